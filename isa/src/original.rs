//! The original's layouts. Its header gives the fields of GEMM, ALU and micro-ops as many bits as
//! the logarithms of the scratchpads' depths have; this project has one layout for all
//! configurations, which is the original's for the default one.
//!
//! ```
//! use vta_isa::original::Layout;
//! use vta_isa::{Config, asm};
//!
//! let config = Config::from_json(r#"{"LOG_UOP_BUFF_SIZE": 10}"#)?;
//! let layout = Layout::of(&config)?;
//! let gemm = asm::parse("gemm uop_end=9 dst_factor_out=3")?[0].encode()?;
//! let there = layout.of_ours(gemm)?;
//! assert_eq!(there, 3 << 53 | 9 << 16 | 2);
//! assert_eq!(layout.to_ours(there), gemm);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copies;

use thiserror::Error;

use crate::{Alu, Config, Deps, Field, FieldError, Gemm, MemType, Opcode, UOP_BYTES, Uop};

pub use copies::{CopyError, UopCopies};

/// How many bits the original gives a field.
#[derive(Clone, Copy)]
enum Bits {
    /// Those of this project, whatever the configuration is.
    Same,
    /// The logarithm of the scratchpad's depth; the larger one of two.
    Index(&'static [MemType]),
    /// One bit more than that: the depth itself fits.
    Count(MemType),
}
use Bits::{Count, Index, Same};

const UOPS: Bits = Index(&[MemType::Uop]);
const INPUTS: Bits = Index(&[MemType::Inp]);
const WEIGHTS: Bits = Index(&[MemType::Wgt]);
const SUMS: Bits = Index(&[MemType::Acc]);

/// Fields in the order in which the original declares them, behind opcode and tokens.
type Declared = &'static [(Field, Bits)];

const GEMM: Declared = &[
    (Gemm::FIELDS.reset, Same),
    (Gemm::FIELDS.uop_bgn, UOPS),
    (Gemm::FIELDS.uop_end, Count(MemType::Uop)),
    (Gemm::FIELDS.iter_out, Same),
    (Gemm::FIELDS.iter_in, Same),
    (Gemm::FIELDS.dst_factor_out, SUMS),
    (Gemm::FIELDS.dst_factor_in, SUMS),
    (Gemm::FIELDS.src_factor_out, INPUTS),
    (Gemm::FIELDS.src_factor_in, INPUTS),
    (Gemm::FIELDS.wgt_factor_out, WEIGHTS),
    (Gemm::FIELDS.wgt_factor_in, WEIGHTS),
];

const ALU: Declared = &[
    // The original's ALU has the bit, too, and ignores it.
    (Gemm::FIELDS.reset, Same),
    (Alu::FIELDS.uop_bgn, UOPS),
    (Alu::FIELDS.uop_end, Count(MemType::Uop)),
    (Alu::FIELDS.iter_out, Same),
    (Alu::FIELDS.iter_in, Same),
    (Alu::FIELDS.dst_factor_out, SUMS),
    (Alu::FIELDS.dst_factor_in, SUMS),
    (Alu::FIELDS.src_factor_out, SUMS),
    (Alu::FIELDS.src_factor_in, SUMS),
    (Alu::FIELDS.alu_opcode, Same),
    (Alu::FIELDS.use_imm, Same),
    (Alu::FIELDS.imm, Same),
];

const UOP: Declared = &[
    (Uop::DST, SUMS),
    (Uop::SRC, Index(&[MemType::Acc, MemType::Inp])),
    (Uop::WGT, WEIGHTS),
];

/// The bits that opcode and tokens take of every instruction.
const HEAD: u32 = {
    let last = Deps::LIST[Deps::LIST.len() - 1];
    last.first_bit + last.bits
};

/// A configuration for which the original has no layout: its header doesn't compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "configuration key {key} gives a scratchpad of one element, for which {field} has no bit in the original"
)]
pub struct LayoutError {
    /// The key of the scratchpad's size.
    pub key: &'static str,
    /// The first field that has no bit.
    pub field: &'static str,
}

/// A field, and where the original has it: nowhere, if that has no bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    ours: Field,
    theirs: Field,
}

/// Where the original has the fields of instructions and micro-ops in one configuration.
///
/// LOAD, STORE and FINISH are the same in all. No field is wider than in this project's layout,
/// since no scratchpad of a [`Config`] is deeper than that addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    gemm: Vec<Place>,
    alu: Vec<Place>,
    uop: Vec<Place>,
}

impl Layout {
    /// The layout for a configuration.
    ///
    /// # Errors
    /// [`LayoutError`] where a scratchpad has one element.
    pub fn of(config: &Config) -> Result<Self, LayoutError> {
        Ok(Self {
            gemm: places(config, GEMM, Opcode::Gemm.fields(), HEAD, u64::BITS)?,
            alu: places(config, ALU, Opcode::Alu.fields(), HEAD, u64::BITS)?,
            uop: places(config, UOP, Uop::LIST, 0, u32::BITS)?,
        })
    }

    /// Whether it is this project's, so that nothing need be translated.
    pub fn is_ours(&self) -> bool {
        let all = [&self.gemm, &self.alu, &self.uop];
        let same = |place: &Place| place.theirs.bits == 0 || place.ours == place.theirs;
        all.into_iter().flatten().all(same)
    }

    /// The fields of a kind of instruction behind opcode and tokens, in the original's order.
    pub fn fields(&self, opcode: Opcode) -> Vec<Field> {
        match self.places(opcode) {
            None => opcode.fields().to_vec(),
            Some(places) => there(places),
        }
    }

    /// The fields of a micro-op.
    pub fn uop_fields(&self) -> Vec<Field> {
        there(&self.uop)
    }

    /// A word of the original as this project's. A pattern that is no instruction stays as it is.
    #[must_use]
    pub fn to_ours(&self, word: u128) -> u128 {
        let Some(places) = opcode(word).and_then(|opcode| self.places(opcode)) else {
            return word;
        };
        let moved = places.iter().fold(0, |moved, Place { ours, theirs }| {
            // The field is wide enough: the type says why.
            moved | u128::from(theirs.get(word)) << ours.first_bit
        });
        word & head() | moved
    }

    /// A word of this project as the original's. A pattern that is no instruction stays as it is.
    ///
    /// # Errors
    /// [`FieldError`] for the first field whose value the original has no room for.
    pub fn of_ours(&self, word: u128) -> Result<u128, FieldError> {
        let Some(places) = opcode(word).and_then(|opcode| self.places(opcode)) else {
            return Ok(word);
        };
        Ok(word & head() | put(places, word)?)
    }

    /// A micro-op of the original as this project's.
    #[must_use]
    pub fn uop_to_ours(&self, word: u32) -> u32 {
        let get = |Place { ours, theirs }: &Place| theirs.get(word.into()) << ours.first_bit;
        // Its fields lie in 32 bits.
        self.uop
            .iter()
            .map(get)
            .fold(0, |moved, field| moved | field) as u32
    }

    /// Bytes of micro-ops, as they lie in memory: [`Self::uop_to_ours`] for each.
    pub fn uops_to_ours(&self, uops: &mut [[u8; UOP_BYTES]]) {
        for bytes in uops {
            *bytes = self.uop_to_ours(u32::from_le_bytes(*bytes)).to_le_bytes();
        }
    }

    /// A micro-op of this project as the original's.
    ///
    /// # Errors
    /// [`FieldError`] for the first index that the original has no room for.
    pub fn uop_of_ours(&self, word: u32) -> Result<u32, FieldError> {
        // Its fields lie in 32 bits.
        Ok(put(&self.uop, word.into())? as u32)
    }

    /// The fields that may lie elsewhere.
    fn places(&self, opcode: Opcode) -> Option<&[Place]> {
        match opcode {
            Opcode::Gemm => Some(&self.gemm),
            Opcode::Alu => Some(&self.alu),
            Opcode::Load | Opcode::Store | Opcode::Finish | Opcode::Depthwise => None,
        }
    }
}

fn opcode(word: u128) -> Option<Opcode> {
    Opcode::of(Opcode::FIELD.get(word) as u8)
}

const fn head() -> u128 {
    (1 << HEAD) - 1
}

fn there(places: &[Place]) -> Vec<Field> {
    let places = places.iter().map(|place| place.theirs);
    places.filter(|field| field.bits > 0).collect()
}

fn put(places: &[Place], word: u128) -> Result<u128, FieldError> {
    let mut moved = 0;
    for Place { ours, theirs } in places {
        moved |= theirs.put(ours.get(word))?;
    }
    Ok(moved)
}

/// Lays fields side by side, as a C compiler does: one that would cross the end of a unit begins
/// the next. Fields of `all` behind `start` that the original doesn't declare have no bit there.
fn places(
    config: &Config,
    declared: Declared,
    all: &[Field],
    start: u32,
    unit_bits: u32,
) -> Result<Vec<Place>, LayoutError> {
    let mut places = Vec::with_capacity(all.len());
    let mut at = start;
    for (ours, width) in declared {
        let bits = bits(config, ours, *width)?;
        if at % unit_bits + bits > unit_bits {
            at = at.next_multiple_of(unit_bits);
        }
        let theirs = Field {
            first_bit: at,
            bits,
            ..*ours
        };
        places.push(Place {
            ours: *ours,
            theirs,
        });
        at += bits;
    }
    // Flags among the bits that every instruction begins with stay there.
    let known = |field: &Field| field.first_bit < start || declared.iter().any(|(f, _)| f == field);
    places.extend(all.iter().filter(|field| !known(field)).map(|ours| Place {
        ours: *ours,
        theirs: Field { bits: 0, ..*ours },
    }));
    Ok(places)
}

fn bits(config: &Config, field: &Field, width: Bits) -> Result<u32, LayoutError> {
    let log = |mem: MemType| match config.depth(mem).ilog2() {
        0 => Err(LayoutError {
            key: Config::size_key(mem),
            field: field.name,
        }),
        bits => Ok(bits),
    };
    match width {
        Same => Ok(field.bits),
        Count(mem) => Ok(log(mem)? + 1),
        Index(mems) => {
            let mut logs = mems.iter().map(|mem| log(*mem));
            logs.try_fold(0, |widest, bits| Ok(bits?.max(widest)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of an extension, as they may be declared.
    #[test]
    fn what_the_original_does_not_declare_is_refused_by_name_and_never_read() {
        let flag = |first_bit| Field {
            name: "extra",
            first_bit,
            ..Gemm::FIELDS.reset
        };
        let (head, ours) = (flag(2), flag(63));
        let all = [Gemm::LIST, &[head, ours]].concat();
        let config = Config::default();
        let gemm = places(&config, GEMM, &all, HEAD, u64::BITS).unwrap();
        let layout = Layout {
            gemm,
            ..Layout::of(&config).unwrap()
        };
        assert!(layout.is_ours());
        let places = |field: Field| {
            layout
                .gemm
                .iter()
                .filter(|place| place.ours == field)
                .count()
        };
        assert_eq!(
            (places(head), places(ours)),
            (0, 1),
            "bits that every instruction begins with stay"
        );
        let word = ours.mask() | u128::from(Opcode::Gemm.code());
        let error = layout.of_ours(word).unwrap_err().to_string();
        assert_eq!(error, "extra is 1, but its 0-bit field holds at most 0");
        assert_eq!(layout.to_ours(word), word & !ours.mask());
        assert!(
            !layout
                .fields(Opcode::Gemm)
                .iter()
                .any(|f| f.name == "extra")
        );
    }
}
