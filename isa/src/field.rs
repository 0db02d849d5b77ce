//! Fields of words: an instruction's numbers, flags and codes are each declared once, with name,
//! bits, unit and meaning.
//!
//! [`layout`] makes a struct of such a declaration. Bounds, assembler, disassembler, the OpenCL
//! header, the tables of `docs/isa.md` and the random instructions of the tests read the
//! [`Field`]s, so that no width or maximum stands anywhere else.

use thiserror::Error;

/// How a field reads in assembly text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// One bit: its name, where it is set.
    Flag,
    /// `name=value`, left out when it is 0.
    Number,
    /// `name=value`, 0 too.
    Shown,
    /// `name=value` in two's complement.
    Signed,
    /// A code that other words of the text stand for.
    Code,
}

/// A field whose value doesn't fit its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field} is {value}, but its {bits}-bit field holds at most {}", (1u64 << .bits) - 1)]
pub struct FieldError {
    /// The field's name, as in assembly text.
    pub field: &'static str,
    /// The value that doesn't fit.
    pub value: u64,
    /// Width of the field in bits.
    pub bits: u32,
}

impl FieldError {
    /// Of a flag or number that the instruction doesn't have.
    pub(crate) const fn absent(field: &'static str) -> Self {
        Self {
            field,
            value: 1,
            bits: 0,
        }
    }
}

/// One field of an instruction or a micro-op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in code, assembly text and the hardware headers.
    pub name: &'static str,
    /// Its lowest bit in the word.
    pub first_bit: u32,
    /// Its width.
    pub bits: u32,
    /// How it reads in text.
    pub notation: Notation,
    /// What it counts.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Field {
    /// The largest pattern of its bits: the largest value, but for a [`Notation::Signed`] field.
    pub const fn max(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Whether an unsigned value fits.
    pub const fn fits(&self, value: usize) -> bool {
        value as u64 <= self.max()
    }

    /// Smallest and largest value.
    pub const fn range(&self) -> (i64, i64) {
        match self.notation {
            Notation::Signed => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            Notation::Flag | Notation::Number | Notation::Shown | Notation::Code => {
                (0, self.max() as i64)
            }
        }
    }

    /// Its bits of a word.
    #[inline]
    pub const fn get(&self, word: u128) -> u64 {
        (word >> self.first_bit) as u64 & self.max()
    }

    /// A word with these bits in the field and zeros around it.
    ///
    /// # Errors
    /// [`FieldError`] when the field is too narrow for them.
    #[inline]
    pub const fn put(&self, bits: u64) -> Result<u128, FieldError> {
        if bits > self.max() {
            return Err(FieldError {
                field: self.name,
                value: bits,
                bits: self.bits,
            });
        }
        Ok((bits as u128) << self.first_bit)
    }

    /// The bits that the field covers.
    pub const fn mask(&self) -> u128 {
        (self.max() as u128) << self.first_bit
    }
}

/// Fields by their first bits. Doesn't compile in a constant where two overlap, or where one
/// crosses the word's 64-bit halves or is wider than the 32 bits of the kernels' macros.
pub(crate) const fn in_bit_order<const N: usize>(mut fields: [Field; N]) -> [Field; N] {
    let (mut covered, mut n) = (0, 0);
    while n < N {
        let field = fields[n];
        assert!(covered & field.mask() == 0, "two fields overlap");
        assert!(field.first_bit / 64 == (field.first_bit + field.bits - 1) / 64);
        assert!(field.bits > 0 && field.bits <= 32);
        covered |= field.mask();
        // Insertion sort, because slices can't be sorted in a constant.
        let mut at = n;
        while at > 0 && fields[at - 1].first_bit > field.first_bit {
            fields[at] = fields[at - 1];
            at -= 1;
        }
        fields[at] = field;
        n += 1;
    }
    fields
}

/// A struct of fields. `members` hold what isn't the number of one field and are coded by the
/// kind itself, in the fields that `codes` declares; each of `fields` becomes a public member.
///
/// A field is `name: type = [first bit, width], notation, unit, meaning`. The struct has
///
/// - `FIELDS`, the fields by name, and `LIST`, by first bit;
/// - `unpack(word, members..)` and `pack()`, which leaves the codes' bits 0;
/// - `build(members.., get)`, with `get` called for each of `fields` in turn, and `values()`.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $Kind:ident, $Fields:ident {
            members { $( $(#[$about:meta])* $member:ident: $Member:ty; )* }
            codes { $( $code:ident = [$at:literal, $width:literal], $as:ident, $of:literal, $what:literal; )* }
            fields { $( $field:ident: $type:ident = [$first:literal, $bits:literal], $notation:ident, $unit:literal, $meaning:literal; )* }
        }
    ) => {
        $(#[$doc])*
        pub struct $Kind {
            $( $(#[$about])* pub $member: $Member, )*
            $(
                #[doc = concat!($meaning, " (", $unit, ", ", stringify!($bits), " bits).")]
                pub $field: $type,
            )*
        }

        #[doc = concat!("The fields of [`", stringify!($Kind), "`] by name.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $Fields {
            $( #[doc = $what] pub $code: $crate::Field, )*
            $( #[doc = $meaning] pub $field: $crate::Field, )*
        }

        impl $Kind {
            /// The fields by name.
            pub const FIELDS: $Fields = $Fields {
                $( $code: $crate::Field {
                    name: stringify!($code),
                    first_bit: $at,
                    bits: $width,
                    notation: $crate::Notation::$as,
                    unit: $of,
                    meaning: $what,
                }, )*
                $( $field: $crate::Field {
                    name: stringify!($field),
                    first_bit: $first,
                    bits: $bits,
                    notation: $crate::Notation::$notation,
                    unit: $unit,
                    meaning: $meaning,
                }, )*
            };

            /// The fields by first bit.
            pub const LIST: &'static [$crate::Field] = &$crate::field::in_bit_order([
                $( Self::FIELDS.$code, )*
                $( Self::FIELDS.$field, )*
            ]);

            /// Takes the fields out of a word; what else it holds is given.
            #[inline]
            pub(crate) const fn unpack(word: u128 $(, $member: $Member)*) -> Self {
                Self {
                    $( $member, )*
                    $( $field: $crate::field::typed!($type, Self::FIELDS.$field.get(word)), )*
                }
            }

            /// Puts the fields into a word.
            ///
            /// # Errors
            /// [`FieldError`](crate::FieldError) for the first whose value doesn't fit.
            #[inline]
            pub(crate) fn pack(&self) -> Result<u128, $crate::FieldError> {
                let word = 0;
                $( let word = word | Self::FIELDS.$field.put(self.$field as u64)?; )*
                Ok(word)
            }

            /// Whether every value fits its field.
            #[inline]
            pub const fn fits(&self) -> bool {
                true $( && self.$field as u64 <= Self::FIELDS.$field.max() )*
            }

            /// Makes the struct of what `get` says of each field, in the order of the text.
            /// Values beyond the member's type lose their upper bits.
            ///
            /// # Errors
            /// The first of `get`.
            pub fn build<E>(
                $( $member: $Member, )*
                mut get: impl FnMut(&$crate::Field) -> Result<u64, E>,
            ) -> Result<Self, E> {
                Ok(Self {
                    $( $member, )*
                    $( $field: {
                        let value = get(&Self::FIELDS.$field)?;
                        $crate::field::typed!($type, value)
                    }, )*
                })
            }

            /// Each field with its value, in the order of the text.
            pub fn values(&self) -> impl Iterator<Item = ($crate::Field, u64)> + use<> {
                [ $( (Self::FIELDS.$field, self.$field as u64), )* ].into_iter()
            }
        }
    };
}

/// The bits of a field as its member's type.
macro_rules! typed {
    (bool, $bits:expr) => {
        $bits != 0
    };
    ($type:ident, $bits:expr) => {
        $bits as $type
    };
}

pub(crate) use {layout, typed};

/// An enum of the codes of one field. Each variant is declared as
/// `Variant = code, name, extension, meaning`, with the extension that it belongs to, if any.
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $Code:ident of $field:expr; {
            $( $Variant:ident = $code:literal, $name:literal, $extension:expr, $meaning:literal; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Code {
            $( #[doc = concat!($meaning, ".")] $Variant, )*
        }

        impl $Code {
            /// Every one, in the order of the codes.
            pub const ALL: [Self; [$( $code ),*].len()] = [$( Self::$Variant ),*];

            /// The names, in the order of the codes.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$( $name ),*];

            /// The value of the field.
            pub const fn code(self) -> u8 {
                match self {
                    $( Self::$Variant => $code, )*
                }
            }

            /// What a value of the field stands for; `None` for a code that isn't assigned.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$Variant), )*
                    _ => None,
                }
            }

            /// The name in assembly text, JSON and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$Variant => $name, )*
                }
            }

            /// The meaning in words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $( Self::$Variant => $meaning, )*
                }
            }

            /// The extension that it belongs to; `None` for what the original RTL has.
            pub const fn extension(self) -> Option<$crate::Extension> {
                match self {
                    $( Self::$Variant => $extension, )*
                }
            }
        }

        const _: () = {
            let mut last = $Code::ALL.len() - 1;
            assert!($Code::ALL[last].code() as u64 <= $field.max(), "a code doesn't fit its field");
            while last > 0 {
                assert!($Code::ALL[last - 1].code() < $Code::ALL[last].code(), "codes ascend");
                last -= 1;
            }
        };

        impl std::fmt::Display for $Code {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use codes;

/// The first and the last of some codes in words: `0 (load) to 7 (depthwise)`.
pub(crate) fn assigned(codes: &[(u8, &str)]) -> String {
    let end = |code: Option<&(u8, &str)>| code.map_or(String::new(), |(c, n)| format!("{c} ({n})"));
    format!("{} to {}", end(codes.first()), end(codes.last()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn field(first_bit: u32, bits: u32, notation: Notation) -> Field {
        Field {
            name: "f",
            first_bit,
            bits,
            notation,
            unit: "",
            meaning: "",
        }
    }

    #[test]
    fn a_field_takes_what_fits_and_names_what_does_not() {
        let f = field(62, 2, Notation::Number);
        assert_eq!((f.max(), f.range()), (3, (0, 3)));
        assert_eq!(f.put(3), Ok(3 << 62));
        assert_eq!(f.get(!0), 3);
        let error = f.put(4).map_err(|e| e.to_string());
        assert_eq!(
            error,
            Err("f is 4, but its 2-bit field holds at most 3".into())
        );
        assert_eq!(field(112, 16, Notation::Signed).range(), (-32768, 32767));
        assert_eq!(field(26, 32, Notation::Shown).max(), u64::from(u32::MAX));
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn fields_that_overlap_are_refused() {
        in_bit_order([field(4, 2, Notation::Number), field(0, 5, Notation::Number)]);
    }

    #[test]
    fn fields_are_sorted_by_their_bits() {
        let f = |first| field(first, 2, Notation::Number);
        assert_eq!(in_bit_order([f(9), f(0), f(4)]), [f(0), f(4), f(9)]);
    }
}
