//! Extensions: what a machine may have beyond the original RTL.

use std::fmt;

/// The extensions, each once: `Variant = "name", "meaning"`, in the order of their names.
macro_rules! extensions {
    ($( $Extension:ident = $name:literal, $meaning:literal; )*) => {
        /// An instruction or operation that the original RTL doesn't have. Machines of this
        /// project have all of them unless their configuration says otherwise
        /// ([`crate::Config::extensions`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Extension {
            $( #[doc = $meaning] $Extension, )*
        }

        impl Extension {
            /// Every extension, in the order of their names.
            pub const ALL: [Self; [$( $name ),*].len()] = [$( Self::$Extension ),*];

            /// The name in a configuration and in errors.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$Extension => $name, )*
                }
            }
        }
    };
}

extensions! {
    Acc8 = "ACC8", "LOAD of memory type ACC8: int8 in DRAM, int32 in the accumulators.";
    Mul = "MUL", "ALU MUL. The code is a left shift on the original RTL.";
    Shl = "SHL", "ALU SHL. SHR by a negative immediate shifts left on every machine.";
}

impl Extension {
    /// The extension of a name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.name() == name)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extensions(u32);

impl Extensions {
    /// None of them: the original RTL.
    pub const NONE: Self = Self(0);

    /// All of them: the default.
    pub const ALL: Self = Self((1 << Extension::ALL.len()) - 1);

    /// Whether one is in the set.
    pub const fn contains(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// Those in the set, in the order of [`Extension::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Extension::ALL
            .into_iter()
            .filter(move |e| self.contains(*e))
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        let bits = extensions.into_iter().map(Extension::bit);
        Self(bits.fold(0, |set, bit| set | bit))
    }
}

impl fmt::Display for Extensions {
    /// Names with commas between, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Extension::name).collect();
        if names.is_empty() {
            f.pad("none")
        } else {
            f.pad(&names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, asm, check};

    #[test]
    fn sets_hold_what_they_were_made_of() {
        assert_eq!(
            Extension::ALL.into_iter().collect::<Extensions>(),
            Extensions::ALL
        );
        let names = Extension::ALL.map(Extension::name);
        assert!(names.is_sorted());
        assert_eq!(Extensions::ALL.to_string(), names.join(", "));
        assert_eq!(Extensions::NONE.to_string(), "none");
        for extension in Extension::ALL {
            let one: Extensions = [extension].into_iter().collect();
            assert_eq!(one.iter().collect::<Vec<_>>(), [extension]);
            assert_eq!(Extension::from_name(extension.name()), Some(extension));
        }
        assert_eq!(Extension::from_name("mul"), None);
    }

    #[test]
    fn an_instruction_that_the_machine_lacks_is_found_by_name() {
        let base = Config::default().with_extensions(Extensions::NONE);
        for (text, lacks) in [
            ("load.acc8 y_size=1 x_size=1", Some("ACC8")),
            ("load.acc8", Some("ACC8")),
            ("load.acc y_size=1 x_size=1", None),
            ("alu.mul imm=3", Some("MUL")),
            ("alu.shl imm=3", Some("SHL")),
            ("alu.shr imm=-3", None),
            ("alu.add", None),
            ("gemm", None),
            ("store", None),
        ] {
            let insns = asm::parse(&format!("{text}\nfinish")).unwrap();
            assert_eq!(check::check(&Config::default(), &insns), [], "{text}");
            let found = check::check(&base, &insns);
            match lacks {
                None => assert_eq!(found, [], "{text}"),
                Some(name) => {
                    let error = found[0].to_string();
                    let expected = format!("needs {name}, which this machine doesn't have");
                    assert!(
                        error.contains(&expected)
                            && error.contains(text.split(' ').next().unwrap()),
                        "{text}: {error}"
                    );
                }
            }
        }
    }
}
