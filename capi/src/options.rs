//! `vta_options`: how a network is opened, compiled and run.

use std::path::PathBuf;

use vta_app::Target;
use vta_app::options::names::Front;
use vta_app::options::{ConfigSource, Slot, input_shape, named};
use vta_compiler::semantics::Requant;

use crate::error::Failure;

/// How a network is opened, compiled and run: see `vta_options_set`. The device is an argument of its own.
#[derive(Clone, Debug, Default)]
pub struct Options(pub(crate) Target);

impl Options {
    /// Sets an option.
    ///
    /// # Errors
    /// A name that is no option, a value that makes no sense for it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let option = named(name, &Target::NAMES, Front::Library);
        let Some(slot) = self.0.slot(option.map_err(Failure::usage)?) else {
            return Ok(());
        };
        let wrong = |text: String| Failure::usage(format!("`{name}`: {text}"));
        match slot {
            Slot::Text(of) => *of = Some(value.to_owned()),
            Slot::Path(of) => *of = Some(PathBuf::from(value)),
            Slot::Count(of) => *of = Some(count(value).map_err(wrong)?),
            Slot::Flag(of) => *of = flag(value).map_err(wrong)?,
            Slot::Config(of) => *of = Some(config(value).map_err(wrong)?),
            Slot::Shapes(of) => {
                of.extend([input_shape(value).map_err(wrong)?]);
            }
            Slot::Requant(of) => {
                let found = value.parse::<Requant>().map_err(|e| wrong(e.to_string()));
                *of = Some(found?);
            }
        }
        Ok(())
    }
}

/// A file, or an object of JSON.
fn config(value: &str) -> Result<ConfigSource, String> {
    if !value.trim_start().starts_with('{') {
        return Ok(PathBuf::from(value).into());
    }
    let keys = serde_json::from_str(value).map_err(|error| error.to_string());
    Ok(ConfigSource::Keys(keys?))
}

fn count(value: &str) -> Result<usize, String> {
    let found = value.parse().ok().filter(|n| *n > 0);
    found.ok_or_else(|| format!("'{value}' is no number of at least 1"))
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(format!("'{value}' is none of 0, 1, false, true")),
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
        let shapes = options
            .0
            .shapes
            .iter()
            .map(|(name, shape)| (&**name, shape[1]));
        assert_eq!(shapes.collect::<Vec<_>>(), [("a", 4), ("b", 3)]);
    }
}
