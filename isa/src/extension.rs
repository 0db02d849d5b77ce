//! Extensions: what a machine may have beyond the original RTL.

use std::fmt;

/// The extensions, each once: `Variant = "name", whether machines have it unless their configuration says
/// otherwise, "meaning"`, in the order of their names.
macro_rules! extensions {
    ($( $Extension:ident = $name:literal, $default:literal, $meaning:literal; )*) => {
        /// An instruction or operation that the original RTL doesn't have. A configuration says which its
        /// machine has ([`crate::Config::extensions`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Extension {
            $( #[doc = $meaning] $Extension, )*
        }

        impl Extension {
            /// Every extension, in the order of their names.
            pub const ALL: [Self; [$( $name ),*].len()] = [$( Self::$Extension ),*];

            /// Whether machines of this project have it unless their configuration says otherwise.
            pub const fn is_default(self) -> bool {
                match self {
                    $( Self::$Extension => $default, )*
                }
            }

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
    Acc8 = "ACC8", true, "LOAD of memory type ACC8: int8 in DRAM, int32 in the accumulators.";
    Clip = "CLIP", false, "ALU CLIP: a lower and an upper bound in one step.";
    Depthwise = "DEPTHWISE", false, "DEPTHWISE: the matrix unit multiplies windows channel by channel.";
    Mov = "MOV", false, "ALU MOV: a tile becomes a copy of another, which alone is read.";
    Mul = "MUL", true, "ALU MUL. The code is a left shift on the original RTL.";
    Overwrite = "OVERWRITE", false, "GEMM `overwrite`: products replace what the accumulators hold.";
    Pad = "PAD", false, "LOAD of inputs with `pad_value`: padding that isn't zero.";
    Preload = "PRELOAD", false, "LOAD `preload` of memory types ACC and ACC8: the load module fills accumulators.";
    Requant = "REQUANT", false, "STORE `requantize`: sums are rounded and clamped on their way to DRAM, with a residual or without.";
    Saturate = "SATURATE", false, "STORE `saturate`: sums are clamped to int8 on their way to DRAM.";
    Shl = "SHL", true, "ALU SHL. SHR by a negative immediate shifts left on every machine.";
    Wgt4 = "WGT4", false, "LOAD of memory type WGT4: weights of 4 bits in DRAM, int8 in the scratchpad.";
}

impl Extension {
    /// The extension of a name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.name() == name)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The extension where something needs it.
    pub(crate) const fn when(self, needed: bool) -> Option<Self> {
        if needed { Some(self) } else { None }
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extensions(u32);

impl Extensions {
    /// None of them: the original RTL.
    pub const NONE: Self = Self(0);

    /// All of them.
    pub const ALL: Self = Self((1 << Extension::ALL.len()) - 1);

    /// Those that a machine has unless its configuration says otherwise.
    pub const DEFAULT: Self = {
        let (mut set, mut at) = (Self::NONE, 0);
        while at < Extension::ALL.len() {
            let extension = Extension::ALL[at];
            if extension.is_default() {
                set = set.with(extension);
            }
            at += 1;
        }
        set
    };

    /// Those that are in any of two sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set with one more.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | extension.bit())
    }

    /// The first in the set that another set lacks.
    pub const fn beyond(self, other: Self) -> Option<Extension> {
        match self.0 & !other.0 {
            0 => None,
            left => Some(Extension::ALL[left.trailing_zeros() as usize]),
        }
    }

    /// The set with one more, if there is one.
    pub(crate) const fn and(self, extension: Option<Extension>) -> Self {
        match extension {
            Some(extension) => self.with(extension),
            None => self,
        }
    }

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
        extensions.into_iter().fold(Self::NONE, Self::with)
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
            ("load.acc preload y_size=1 x_size=1", Some("PRELOAD")),
            ("load.acc8 preload", Some("ACC8")),
            ("load.inp pad_value=-3 y_size=1 x_size=1", Some("PAD")),
            ("load.wgt4 y_size=1 x_size=1", Some("WGT4")),
            ("load.wgt y_size=1 x_size=1", None),
            ("alu.mul imm=3", Some("MUL")),
            ("alu.shl imm=3", Some("SHL")),
            ("alu.shr imm=-3", None),
            ("alu.clip imm=3", Some("CLIP")),
            ("alu.mov", Some("MOV")),
            ("alu.add", None),
            ("gemm overwrite", Some("OVERWRITE")),
            ("gemm", None),
            ("depthwise rows=1 columns=1", Some("DEPTHWISE")),
            (
                "store requantize table=0 y_size=1 x_size=1",
                Some("REQUANT"),
            ),
            ("store saturate y_size=1 x_size=1", Some("SATURATE")),
            ("store saturate", Some("SATURATE")),
            ("store", None),
        ] {
            let insns = asm::parse(&format!("{text}\nfinish")).unwrap();
            let all = Config::default().with_extensions(Extensions::ALL);
            assert_eq!(check::check(&all, &insns), [], "{text}");
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
