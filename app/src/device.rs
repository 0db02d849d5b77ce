//! Devices by name, and the machines that they stand for.
//!
//! Each kind that is hardware, or wants a library of the system, is a file here, a line of `KINDS` and a feature of
//! the crate. A build without the feature has a file of `absent` in its place, which says so.

pub(crate) mod ahead;
#[cfg_attr(not(feature = "board"), path = "absent/board.rs")]
pub(crate) mod board;
mod kind;
pub(crate) mod machine;
#[cfg_attr(not(feature = "opencl"), path = "absent/opencl.rs")]
pub(crate) mod opencl;
#[cfg_attr(not(feature = "rtl"), path = "absent/rtl.rs")]
pub(crate) mod rtl;
mod serial;
pub(crate) mod setup;
pub(crate) mod totals;
mod trace;
pub(crate) mod views;

use std::path::PathBuf;
use std::sync::Arc;

use vta_driver::Device;
use vta_isa::Config;
use vta_sim::{Functional, SimDevice};

use self::kind::{Kind, Open, Opened};
use crate::error::{Error, Result, bail};
use crate::options::names::{DEVICE, said};
use crate::options::{ConfigSource, Target, did_you_mean};

pub use self::machine::{Machine, board};
pub use self::rtl::end_on_abort;
pub use self::serial::chain as in_a_row;
pub use self::setup::Setup;
pub use self::totals::Totals;
pub use self::views::costs;

/// All kinds, those among them that this build lacks.
const KINDS: &[Kind] = &[
    simulator("sim", &["sim"], sim),
    simulator("cycle", &["cycle"], cycle),
    simulator("oracle", &["oracle"], oracle),
    OPENCL,
    Kind {
        name: "board",
        then: &[':'],
        form: "board:NAME",
        meant: &["board:pynq", "board:de10"],
        single: true,
        opened: board::OPENED,
    },
    RTL,
];

const OPENCL: Kind = Kind {
    name: "opencl",
    then: &[':', '+'],
    form: "opencl[:SEL]",
    meant: &["opencl"],
    single: true,
    opened: opencl::OPENED,
};

const RTL: Kind = Kind {
    name: "rtl",
    then: &[':'],
    form: "rtl:LIB.so",
    meant: &[],
    single: true,
    opened: rtl::OPENED,
};

const fn simulator(name: &'static str, meant: &'static [&'static str], open: Open) -> Kind {
    Kind {
        name,
        then: &[],
        form: name,
        meant,
        single: false,
        opened: Some(Opened {
            check: |_| Ok(()),
            open,
        }),
    }
}

/// What a device needs that this build hasn't.
fn missing(feature: &str) -> Error {
    Error::Usage(said!(
        "there are no such devices in this build, which lacks the feature `{feature}`"
    ))
}

fn sim(_: &str, config: &Config, target: &Target, threads: usize) -> Result<Arc<dyn Device>> {
    let (kernel, config) = (SimDevice::kernel_from_env()?, config.clone());
    let executor = Functional::with_kernel(config, kernel).with_threads(threads);
    let executor = executor
        .with_max_steps(target.budget.steps)
        .with_times(!target.untimed);
    Ok(Arc::new(SimDevice::of(executor)))
}

fn oracle(_: &str, config: &Config, target: &Target, _: usize) -> Result<Arc<dyn Device>> {
    let device = SimDevice::oracle_within(target.budget, config.clone());
    Ok(Arc::new(device))
}

fn cycle(_: &str, _: &Config, _: &Target, _: usize) -> Result<Arc<dyn Device>> {
    bail!("{} cycle counts the cycles of one device, not of one of several"; DEVICE)
}

/// The configuration of a file, or the default.
///
/// # Errors
/// A file that can't be read or is none.
pub fn config(path: Option<&PathBuf>) -> Result<Config> {
    let target = Target {
        config: path.cloned().map(ConfigSource::File),
        ..Target::default()
    };
    Ok(Machine::read(&target)?.config)
}

/// How a device of a name is opened.
///
/// # Errors
/// A name that no device can have.
fn opened(name: &str) -> Result<&'static Opened> {
    let Some(kind) = KINDS.iter().find(|kind| kind.has(name)) else {
        let forms: Vec<&str> = KINDS.iter().map(|kind| kind.form).collect();
        let (last, others) = forms.split_last().unwrap_or((&"none", &[]));
        bail!(
            "no device '{name}' in this build (there are {} and {last}){}",
            others.join(", "),
            meant_device(name)
        );
    };
    let opened = kind.opened.as_ref().ok_or_else(|| missing(kind.name))?;
    (opened.check)(name)?;
    Ok(opened)
}

/// Whether there can be devices of a target's names. Whether they are here is found out by who opens them.
///
/// # Errors
/// The first name that no device can have.
pub(crate) fn check_names(target: &Target) -> Result<()> {
    // A name that is missing between commas is told where they are placed.
    let mut names = target.devices().into_iter();
    let is_told = |name: &str| name.is_empty() && !target.device.is_empty();
    names.try_for_each(|name| {
        if is_told(name) {
            Ok(())
        } else {
            opened(name).map(drop)
        }
    })
}

/// Kinds and makers of OpenCL devices are written behind `opencl:`.
fn meant_device(name: &str) -> String {
    const OPENCL: [&str; 6] = ["cpu", "gpu", "accelerator", "nvidia", "intel", "pocl"];
    if name.eq_ignore_ascii_case("fpga") {
        return "; an FPGA is opened by opencl:fpga, or behind registers by board:pynq, board:de10 or \
                board:FILE.toml"
            .to_owned();
    }
    match OPENCL.iter().find(|kind| name.eq_ignore_ascii_case(kind)) {
        Some(kind) => format!("; did you mean opencl:{kind}?"),
        None => {
            let here = KINDS.iter().filter(|kind| kind.opened.is_some());
            did_you_mean(name, here.flat_map(|kind| kind.meant).copied())
        }
    }
}

/// Whether there is one of a device, which takes one run after the other, however many threads there are.
pub(crate) fn is_single(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.single && kind.has(name))
}

/// Whether a name means a design in a library.
pub fn is_rtl(name: &str) -> bool {
    RTL.has(name)
}

/// Whether a name means an OpenCL device.
pub fn is_opencl(name: &str) -> bool {
    OPENCL.has(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Session};

    #[test]
    fn names_that_no_device_can_have_are_refused_before_anything_is_compiled() {
        for good in [
            "sim",
            "cycle",
            "oracle,sim",
            "opencl:99",
            "board:x",
            "rtl:x.so",
        ] {
            assert!(check_names(&Target::named(good)).is_ok(), "{good}");
        }
        for (bad, hint) in [
            ("cylce", "did you mean cycle?"),
            ("sim,orcale", "did you mean oracle?"),
            ("", "no device ''"),
            ("gpu", "did you mean opencl:gpu?"),
            ("fpga", "by opencl:fpga, or behind registers by board:pynq"),
            (
                "fpga",
                "(there are sim, cycle, oracle, opencl[:SEL], board:NAME and rtl:LIB.so)",
            ),
            ("board:", "names a board"),
            ("rtl", "names the library"),
        ] {
            // A float model can't be compiled, which isn't what is said.
            let onnx = include_bytes!("../../models/demo/resnet20_f32.onnx");
            let model = Model::from_onnx("float", onnx).unwrap();
            let target = Target::named(bad);
            let Err(error) = Session::open(model, &target, &()) else {
                panic!("{bad} opens");
            };
            assert!(error.to_string().contains(hint), "{bad}: {error}");
        }
    }
}
