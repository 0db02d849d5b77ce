//! Devices by name.

pub(crate) mod ahead;
pub(crate) mod machine;
pub(crate) mod rtl;
pub(crate) mod setup;
mod trace;

pub use self::machine::{ConfigSource, Machine, Wanted, board};
pub use self::rtl::{Totals, end_on_abort, in_a_row};
pub use self::setup::Setup;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vta_driver::{Budget, Device};
use vta_hw_board::{BoardDevice, BoardFile};
use vta_hw_opencl::{OpenClDevice, Options, Scopes, Selector};
use vta_hw_rtl::RtlDevice;
use vta_isa::Config;
use vta_sim::SimDevice;

use crate::error::{Context, Result, bail, ensure};
use crate::files;
use crate::options::hints;
use crate::options::names::{BITSTREAM, DEVICE, SCOPE};

/// The devices of a list, in order.
pub fn device_names(list: &str) -> Vec<&str> {
    list.split(',').collect()
}

/// The configuration of a file, or the default.
pub fn config(path: Option<&PathBuf>) -> Result<Config> {
    let Some(path) = path else {
        return Ok(Config::default());
    };
    let text = files::read_text(path)?;
    Config::from_json(&text).with_context(|| path.display().to_string())
}

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// For OpenCL devices only.
    pub bitstream: Option<&'a PathBuf>,
    /// For OpenCL devices only.
    pub scopes: Option<Scopes>,
    /// Threads that the fast simulator may use for one batch.
    pub threads: usize,
    /// What a batch may ask for.
    pub budget: Budget,
}

/// What a name means.
enum Kind<'n> {
    Sim,
    Cycle,
    Oracle,
    OpenCl(Selector),
    Board(&'n str),
    Rtl(&'n Path),
}

/// What a device's name means.
///
/// # Errors
/// A name that no device can have.
fn kind(name: &str) -> Result<Kind<'_>> {
    Ok(match name {
        "sim" => Kind::Sim,
        "cycle" => Kind::Cycle,
        "oracle" => Kind::Oracle,
        _ if is_opencl(name) => Kind::OpenCl(name.parse()?),
        _ if is_board(name) => {
            let Some(board) = name.strip_prefix("board:").filter(|name| !name.is_empty()) else {
                bail!(
                    "{} board:NAME names a board, pynq or de10, or its file in TOML, as \
                     docs/boards.md says";
                    DEVICE
                );
            };
            Kind::Board(board)
        }
        _ if is_rtl(name) => Kind::Rtl(rtl_library(name)?),
        _ => bail!(
            "no device '{name}' in this build (there are sim, cycle, oracle, opencl[:SEL], board:NAME and rtl:LIB.so){}",
            meant_device(name)
        ),
    })
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

/// A device by name.
///
/// # Errors
/// When there is no such device, or it can't be opened so.
pub fn device(name: &str, config: &Config, opening: Opening<'_>) -> Result<Arc<dyn Device>> {
    let Opening {
        bitstream,
        scopes,
        threads,
        budget,
    } = opening;
    let kind = kind(name)?;
    if !matches!(kind, Kind::OpenCl(_)) {
        ensure!(bitstream.is_none(), "{} is for OpenCL devices, not for {}"; BITSTREAM, name);
        ensure!(scopes.is_none(), "{} is for OpenCL devices, not for {}"; SCOPE, name);
    }
    Ok(match kind {
        Kind::Sim => {
            let kernel = SimDevice::kernel_from_env()?;
            Arc::new(SimDevice::functional_within(
                budget,
                config.clone(),
                kernel,
                threads,
            ))
        }
        Kind::Oracle => Arc::new(SimDevice::oracle_within(budget, config.clone())),
        Kind::Board(board) => Arc::new(BoardDevice::open(board, config.clone())?),
        Kind::Rtl(path) => {
            let options = vta_hw_rtl::Options::default();
            Arc::new(RtlDevice::open(path, config.clone(), budget, &options)?)
        }
        Kind::Cycle => {
            bail!(
                "{} cycle counts the cycles of one device, not of one of several";
                DEVICE
            )
        }
        Kind::OpenCl(selector) => {
            let options = Options {
                bitstream: bitstream.cloned(),
                scopes,
                max_steps: budget.steps,
                ..Options::from_env()
            };
            Arc::new(OpenClDevice::open(&selector, config.clone(), options)?)
        }
    })
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
        None => hints::did_you_mean(
            name,
            [
                "sim",
                "cycle",
                "oracle",
                "opencl",
                "board:pynq",
                "board:de10",
            ],
        ),
    }
}

/// Whether a name means a board behind registers.
pub fn is_board(name: &str) -> bool {
    name == "board" || name.starts_with("board:")
}

/// The preset of a board's machine that the preset of its registers comes with, for a list of devices.
pub fn preset(list: &str) -> Option<&str> {
    let mut boards = device_names(list)
        .into_iter()
        .filter_map(|name| name.strip_prefix("board:"));
    boards.find(|name| BoardFile::PRESETS.contains(name))
}

/// Whether there is one of a device, which takes one run after the other, however many threads there are.
pub fn is_single(name: &str) -> bool {
    is_opencl(name) || is_board(name) || is_rtl(name)
}

/// Whether a name means a design in a library.
pub fn is_rtl(name: &str) -> bool {
    name == "rtl" || name.starts_with("rtl:")
}

/// The library of such a name.
///
/// # Errors
/// When it names none.
pub fn rtl_library(name: &str) -> Result<&Path> {
    match name.strip_prefix("rtl:").filter(|path| !path.is_empty()) {
        Some(path) => Ok(Path::new(path)),
        None => bail!("{} rtl:LIB.so names the library of a design, as docs/rtl.md says"; DEVICE),
    }
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
