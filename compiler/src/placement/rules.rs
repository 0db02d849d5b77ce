//! Where a user wants layers to run.

use std::collections::BTreeMap;

use super::target::{PlacementError, Target};
use crate::qgraph::QGraph;

/// Rules by layer: a name or a pattern, in which `*` stands for any characters and `?` for one,
/// and a device.
///
/// The rule whose pattern has the most characters other than `*` and `?` counts. Two such rules
/// for different devices contradict each other.
///
/// ```
/// use vta_compiler::placement::Rules;
///
/// let rules = Rules::from_toml(r#"
/// "layer1.*" = "sim"
/// "layer1.0.conv?" = "opencl"
/// "#)?;
/// assert_eq!(rules.device_of("layer1.0.conv2")?, Some("opencl"));
/// assert_eq!(rules.device_of("layer1.1.conv2")?, Some("sim"));
/// assert_eq!(rules.device_of("fc")?, None);
/// # Ok::<(), vta_compiler::placement::PlacementError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<(String, String)>,
}

impl Rules {
    /// Reads a TOML table of `"pattern" = "device"`.
    ///
    /// # Errors
    /// [`PlacementError::Rules`] for text that isn't such a table.
    pub fn from_toml(text: &str) -> Result<Self, PlacementError> {
        let table: BTreeMap<String, toml::Value> = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            PlacementError::Rules(vta_files::toml_message(text, e.message(), at))
        })?;
        let rule = |(pattern, value): (String, toml::Value)| match value {
            toml::Value::String(device) => Ok((pattern, device)),
            toml::Value::Table(_) => Err(PlacementError::Rules(format!(
                "{pattern} is a table: quote names with dots, as in \"{pattern}.*\" = \"sim\""
            ))),
            other => Err(PlacementError::Rules(format!(
                "\"{pattern}\" is {}, not the name of a device",
                other.type_str()
            ))),
        };
        let rules = table.into_iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// The device that the rules want for a layer.
    ///
    /// # Errors
    /// [`PlacementError::Rules`] when two equally specific rules differ.
    pub fn device_of(&self, layer: &str) -> Result<Option<&str>, PlacementError> {
        let mut best: Option<(usize, &str, &str)> = None;
        for (pattern, device) in &self.rules {
            if !matches(pattern, layer) {
                continue;
            }
            let weight = pattern.chars().filter(|c| !matches!(c, '*' | '?')).count();
            match best {
                Some((w, other, d)) if w == weight && d != device => {
                    return Err(PlacementError::Rules(format!(
                        "\"{other}\" = \"{d}\" and \"{pattern}\" = \"{device}\" both fit {layer}"
                    )));
                }
                Some((w, ..)) if w >= weight => {}
                _ => best = Some((weight, pattern, device)),
            }
        }
        Ok(best.map(|(_, _, device)| device))
    }

    /// Every rule must name one of the devices and fit a layer: a slip of the pen isn't ignored.
    pub(super) fn check(&self, targets: &[Target], graph: &QGraph) -> Result<(), PlacementError> {
        for (pattern, device) in &self.rules {
            if !targets.iter().any(|t| t.name == *device) {
                let names: Vec<&str> = targets.iter().map(|t| t.name.as_str()).collect();
                return Err(PlacementError::Rules(format!(
                    "\"{pattern}\" = \"{device}\", but the devices are {}",
                    names.join(", ")
                )));
            }
            if !graph.nodes.iter().any(|n| matches(pattern, &n.name)) {
                return Err(PlacementError::Rules(format!(
                    "\"{pattern}\" fits no layer (the first is {})",
                    graph.nodes.first().map_or("none", |n| &n.name)
                )));
            }
        }
        Ok(())
    }
}

/// Whether a pattern fits a text. Of several stars only the last ever needs to be tried again,
/// so this takes no more than their lengths' product.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("*b", "aab", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("a*b", "aXbYb", true),
            ("?", "", false),
            ("??", "ab", true),
            ("l.*", "lx1", false),
            ("*é?", "caféx", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
        // Many stars take no exponential time.
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    }

    #[test]
    fn bad_rules_are_refused_by_name() {
        for (text, says) in [
            (
                "layer1.conv = \"sim\"",
                "layer1 is a table: quote names with dots",
            ),
            ("a = 3", "\"a\" is integer, not the name of a device"),
            ("a = ", "TOML parse error"),
        ] {
            let error = Rules::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let rules = Rules::from_toml("\"a*\" = \"x\"\n\"*b\" = \"y\"").unwrap();
        let error = rules.device_of("ab").unwrap_err().to_string();
        assert_eq!(
            error,
            "placement rules: \"*b\" = \"y\" and \"a*\" = \"x\" both fit ab"
        );
        assert_eq!(rules.device_of("ac").unwrap(), Some("x"));
    }
}
