//! `vta_options`: how a network is opened, compiled and run.

use std::path::{Path, PathBuf};

use vta_app::hints::did_you_mean;
use vta_app::machine::ConfigSource;
use vta_app::options::InputShape;
use vta_app::{Model, Result as AppResult, Target};
use vta_compiler::semantics::Requant;

use crate::error::Failure;

/// Names of the options, as Python has them.
const NAMES: [&str; 15] = [
    "config",
    "board",
    "timing",
    "threads",
    "batch",
    "allow_host",
    "input_shape",
    "requant",
    "timing_only",
    "placement",
    "tiles",
    "energy",
    "host_speed",
    "scope",
    "bitstream",
];

/// How a network is opened, compiled and run: see `vta_options_set`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    target: Target,
    shapes: Vec<InputShape>,
    requant: Option<Requant>,
}

impl Options {
    /// Sets an option.
    ///
    /// # Errors
    /// A name that is no option, a value that makes no sense for it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let (target, path) = (&mut self.target, || Some(PathBuf::from(value)));
        match name {
            "config" => target.device.config = Some(config(value)?),
            "board" => target.device.board = Some(value.to_owned()),
            "timing" => target.device.timing = Some(value.to_owned()),
            "threads" => target.threads = Some(count(name, value)?),
            "batch" => target.batch = Some(count(name, value)?),
            "allow_host" => target.allow_host = flag(name, value)?,
            "input_shape" => {
                let shape = value.parse::<InputShape>();
                let shape = shape.map_err(|text| Failure::usage(format!("`{name}`: {text}")))?;
                self.shapes.retain(|other| other.name != shape.name);
                self.shapes.push(shape);
            }
            "requant" => {
                let found = value.parse::<Requant>();
                let wrong = |error| Failure::usage(format!("`{name}`: {error}"));
                self.requant = Some(found.map_err(wrong)?);
            }
            "timing_only" => target.views.timing_only = flag(name, value)?,
            "placement" => target.placement = path(),
            "tiles" => target.tiles.cache = path(),
            "energy" => target.views.energy = path(),
            "host_speed" => target.views.host_speed = path(),
            "scope" => target.device.scope = Some(value.to_owned()),
            "bitstream" => target.device.bitstream = path(),
            _ => {
                let meant = did_you_mean(name, NAMES);
                let all = NAMES.join(", ");
                let text = format!("no option '{name}'{meant} (there are {all})");
                return Err(Failure::usage(text));
            }
        }
        Ok(())
    }

    /// Where it runs.
    pub fn target(&self, device: &str) -> Target {
        let mut target = self.target.clone();
        device.clone_into(&mut target.device.device);
        target
    }

    /// Opens a network by name, or reads one that is in memory.
    ///
    /// # Errors
    /// As for [`Model::open_with`] and [`Model::from_onnx_with`].
    pub fn open(&self, name: &str, bytes: Option<Vec<u8>>) -> AppResult<Model> {
        let mut model = match bytes {
            Some(bytes) => Model::from_onnx_with(name, bytes, &self.shapes)?,
            None => Model::open_with(name, &self.shapes)?,
        };
        if let Some(requant) = self.requant {
            model.set_requant(requant);
        }
        Ok(model)
    }
}

/// A file, or an object of JSON.
fn config(value: &str) -> Result<ConfigSource, Failure> {
    if !value.trim_start().starts_with('{') {
        return Ok(Path::new(value).to_owned().into());
    }
    let keys = serde_json::from_str(value);
    let wrong = |error| Failure::usage(format!("`config`: {error}"));
    Ok(ConfigSource::Keys(keys.map_err(wrong)?))
}

fn count(name: &str, value: &str) -> Result<usize, Failure> {
    let found = value.parse().ok().filter(|n| *n > 0);
    found.ok_or_else(|| Failure::usage(format!("`{name}`: '{value}' is no number of at least 1")))
}

fn flag(name: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(Failure::usage(format!(
            "`{name}`: '{value}' is none of 0, 1, false, true"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_refused_by_name() {
        for (name, value, told) in [
            (
                "bord",
                "pynq",
                "no option 'bord'; did you mean board? (there are config, ",
            ),
            ("threads", "0", "`threads`: '0' is no number of at least 1"),
            ("batch", "two", "`batch`: 'two' is no number of at least 1"),
            (
                "allow_host",
                "yes",
                "`allow_host`: 'yes' is none of 0, 1, false, true",
            ),
            ("config", "{LOG", "`config`: "),
            ("input_shape", "1x0", "`input_shape`: '1x0' is no shape"),
            ("requant", "best", "`requant`: "),
        ] {
            let found = Options::default().set(name, value);
            let text = found.err().map(|failure| failure.text).unwrap_or_default();
            assert!(text.starts_with(told), "{name}: {text}");
        }
    }

    #[test]
    fn a_shape_replaces_that_of_its_input() {
        let mut options = Options::default();
        for value in ["a=1x2", "b=1x3", "a=1x4"] {
            assert_eq!(options.set("input_shape", value), Ok(()));
        }
        let shapes = options.shapes.iter().map(|s| (&*s.name, s.shape[1]));
        assert_eq!(shapes.collect::<Vec<_>>(), [("b", 3), ("a", 4)]);
    }
}
