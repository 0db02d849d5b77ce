//! STORE: rows of accumulator tiles to DRAM, low 8 bits of each element, or what it is clamped or rounded to.

use std::ops::Range;

use super::requantize::Requantize;
use super::transfer::transfer;
use crate::{Deps, Field, FieldError, MemType, Notation, Opcode};

transfer! {
    /// STORE reads `y_size` rows of `x_size` consecutive accumulator tiles from `sram_base` and
    /// writes the low 8 bits of each element (wrapping), with `saturate` the element clamped to -128..127, or what
    /// [`Requantize`] makes of it, to DRAM rows at `dram_base + y * x_stride` output tiles. With `x_size = 0` or `y_size = 0` only the tokens act.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Store, StoreFields {
        members {
            /// Dependency tokens.
            deps: Deps;
            /// How it requantises; `None` for a STORE of the original.
            requantize: Option<Requantize>;
            /// Whether it clamps to int8: a code of the memory type ([`Store::SATURATED`]). No STORE does both.
            saturate: bool;
        }
        after {}
    }
}

impl Store {
    /// The memory type of a STORE that saturates: [`MemType::Out`] and [`Self::SATURATE`].
    pub const SATURATED: u8 = MemType::Out.code()
        | (1 << (Self::SATURATE.first_bit - Self::FIELDS.memory_type.first_bit));

    /// The bit of the memory type that a STORE has if it saturates.
    pub const SATURATE: Field = Field {
        name: "saturate",
        first_bit: 8,
        bits: 1,
        notation: Notation::Flag,
        unit: "flag",
        meaning: "Clamps what it stores to int8: the middle bit of the memory type, which is 6 then",
    };

    /// The memory type's code.
    ///
    /// # Errors
    /// [`FieldError`] if it saturates and requantises.
    #[inline]
    const fn code(&self) -> Result<u8, FieldError> {
        match (self.saturate, self.requantize) {
            (false, _) => Ok(MemType::Out.code()),
            (true, None) => Ok(Self::SATURATED),
            (true, Some(_)) => Err(FieldError::absent(Self::SATURATE.name)),
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let mem = Self::FIELDS.memory_type.put(self.code()?.into())?;
        let requantize = match &self.requantize {
            None => 0,
            Some(how) => Requantize::FIELDS.requantize.put(1)? | how.pack()?,
        };
        Ok(Opcode::Store.word(self.deps)? | mem | self.pack()? | requantize)
    }

    /// Tiles read from the scratchpad and written to DRAM.
    #[inline]
    pub const fn tiles(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }

    /// Whether every number fits its field.
    #[inline]
    pub const fn all_fit(&self) -> bool {
        match &self.requantize {
            None => self.fits(),
            Some(how) => self.fits() && how.fits() && !self.saturate,
        }
    }

    /// Accumulator tiles beside the sums that it reads, with the field that says where they lie: those of the table
    /// and those of the residual. None where nothing is moved.
    pub fn operands(&self) -> impl Iterator<Item = (&'static str, Range<u64>)> + use<> {
        let moved = self.requantize.filter(|_| !self.is_sync());
        let (sums, rows) = (self.sram_span(), u64::from(self.y_size));
        let of = move |how: Requantize| {
            let fields = Requantize::FIELDS;
            let entries = if how.by_row { rows } else { 1 };
            let first = u64::from(how.table);
            let table = first..first + entries * how.entry_tiles() as u64;
            let residual = how.distance().map(|distance| {
                let distance = distance as u64;
                (
                    fields.residual.name,
                    sums.start + distance..sums.end + distance,
                )
            });
            [Some((fields.table.name, table)), residual]
        };
        moved.into_iter().flat_map(of).flatten()
    }
}
