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
mod views;

use std::path::PathBuf;
use std::sync::Arc;

use vta_driver::Device;
use vta_isa::Config;
use vta_sim::SimDevice;

use self::kind::{Kind, Opening};
use crate::error::{Result, bail};
use crate::options::did_you_mean;
use crate::options::names::DEVICE;

pub use self::kind::device_names;
pub use self::machine::{ConfigSource, Machine, Wanted, board};
pub use self::rtl::end_on_abort;
pub use self::serial::chain as in_a_row;
pub use self::setup::Setup;
pub use self::totals::Totals;

/// All kinds, those among them that this build lacks.
const KINDS: &[Kind] = &[
    simulator("sim", &["sim"], sim),
    simulator("cycle", &["cycle"], cycle),
    simulator("oracle", &["oracle"], oracle),
    opencl::KIND,
    board::KIND,
    rtl::KIND,
];

const fn simulator(
    name: &'static str,
    meant: &'static [&'static str],
    open: fn(&str, &Config, &Opening) -> Result<Arc<dyn Device>>,
) -> Kind {
    Kind {
        name,
        then: &[],
        form: name,
        meant,
        single: false,
        check: |_| Ok(()),
        open,
    }
}

/// What a device needs that this build hasn't.
#[cfg(not(all(feature = "board", feature = "opencl", feature = "rtl")))]
fn missing(feature: &str) -> crate::Error {
    crate::Error::Usage(crate::options::names::said!(
        "there are no such devices in this build, which lacks the feature `{feature}`"
    ))
}

fn sim(_: &str, config: &Config, opening: &Opening) -> Result<Arc<dyn Device>> {
    let (kernel, config) = (SimDevice::kernel_from_env()?, config.clone());
    let device = SimDevice::functional_within(opening.budget, config, kernel, opening.threads);
    Ok(Arc::new(device))
}

fn oracle(_: &str, config: &Config, opening: &Opening) -> Result<Arc<dyn Device>> {
    let device = SimDevice::oracle_within(opening.budget, config.clone());
    Ok(Arc::new(device))
}

fn cycle(_: &str, _: &Config, _: &Opening) -> Result<Arc<dyn Device>> {
    bail!("{} cycle counts the cycles of one device, not of one of several"; DEVICE)
}

/// The configuration of a file, or the default.
///
/// # Errors
/// A file that can't be read or is none.
pub fn config(path: Option<&PathBuf>) -> Result<Config> {
    let source = path.cloned().map(ConfigSource::File);
    let wanted = Wanted {
        config: source.as_ref(),
        ..Wanted::default()
    };
    Ok(Machine::read(wanted)?.config)
}

/// What a device's name means.
///
/// # Errors
/// A name that no device can have.
fn kind(name: &str) -> Result<&'static Kind> {
    let Some(kind) = KINDS.iter().find(|kind| kind.has(name)) else {
        let forms: Vec<&str> = KINDS.iter().map(|kind| kind.form).collect();
        let (last, others) = forms.split_last().unwrap_or((&"none", &[]));
        bail!(
            "no device '{name}' in this build (there are {} and {last}){}",
            others.join(", "),
            meant_device(name)
        );
    };
    (kind.check)(name)?;
    Ok(kind)
}

/// Whether there can be devices of the names of a list. Whether they are here is found out by who opens them.
///
/// # Errors
/// The first name that no device can have.
pub fn check_names(list: &str) -> Result<()> {
    // A name that is missing between commas is told where they are placed.
    let names = device_names(list).into_iter();
    let mut names = names.filter(|name| !name.is_empty() || list.is_empty());
    names.try_for_each(|name| kind(name).map(drop))
}

/// Kinds and makers of OpenCL devices are written behind `opencl:`.
fn meant_device(name: &str) -> String {
    const OPENCL: [&str; 7] = [
        "cpu",
        "gpu",
        "fpga",
        "accelerator",
        "nvidia",
        "intel",
        "pocl",
    ];
    match OPENCL.iter().find(|kind| name.eq_ignore_ascii_case(kind)) {
        Some(kind) => format!("; did you mean opencl:{kind}?"),
        None => did_you_mean(name, KINDS.iter().flat_map(|kind| kind.meant).copied()),
    }
}

/// Whether there is one of a device, which takes one run after the other, however many threads there are.
pub fn is_single(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.single && kind.has(name))
}

/// Whether a name means a design in a library.
pub fn is_rtl(name: &str) -> bool {
    name == "rtl" || name.starts_with("rtl:")
}

/// Whether a name means an OpenCL device.
pub fn is_opencl(name: &str) -> bool {
    name.strip_prefix("opencl")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '+']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Session, Target};

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
            assert!(check_names(good).is_ok(), "{good}");
        }
        for (bad, hint) in [
            ("cylce", "did you mean cycle?"),
            ("sim,orcale", "did you mean oracle?"),
            ("", "no device ''"),
            ("gpu", "did you mean opencl:gpu?"),
            ("board:", "names a board"),
            ("rtl", "names the library"),
        ] {
            // A float model can't be compiled, which isn't what is said.
            let onnx = include_bytes!("../../models/demo/resnet20_f32.onnx");
            let model = Model::from_onnx("float", onnx).unwrap();
            let mut target = Target::default();
            target.device.device = bad.to_owned();
            let Err(error) = Session::open(model, &target, &()) else {
                panic!("{bad} opens");
            };
            assert!(error.to_string().contains(hint), "{bad}: {error}");
        }
    }
}
