//! LOAD: rows of tiles from DRAM into a scratchpad, with zero padding; memory types; which module runs it.

use super::transfer::transfer;
use crate::field::codes;
use crate::{Deps, Extension, Field, FieldError, Notation, Opcode};

/// The memory type's field, and above it the bit [`Load::WGT4`] of a word in which the field is 4.
const CODE: Field = Field {
    bits: Load::FIELDS.memory_type.bits + 1,
    ..Load::FIELDS.memory_type
};

codes! {
    /// The memory type of LOAD and STORE.
    MemType of CODE; {
        Uop = 0, "uop", None, "Micro-ops, 4 bytes each, into the micro-op scratchpad";
        Wgt = 1, "wgt", None, "Weight tiles, `BLOCK_OUT * BLOCK_IN` int8, into the weight scratchpad";
        Inp = 2, "inp", None, "Input tiles, `BATCH * BLOCK_IN` int8, into the input scratchpad";
        Acc = 3, "acc", None, "Accumulator tiles, `BATCH * BLOCK_OUT` int32, into the accumulator scratchpad";
        Out = 4, "out", None, "Output tiles, `BATCH * BLOCK_OUT` int8, written by STORE from the accumulator scratchpad";
        Acc8 = 5, "acc8", Some(Extension::Acc8), "Tiles of `BATCH * BLOCK_OUT` int8 in DRAM, sign-extended to int32 in the accumulator scratchpad";
        Wgt4 = 12, "wgt4", Some(Extension::Wgt4), "Weight tiles of 4-bit numbers in DRAM, the first in a byte's lower half, sign-extended to int8 in the weight scratchpad";
    }
}

impl MemType {
    /// Those that the load module loads, too, where a machine has PRELOAD: with the code that says so, and its meaning.
    pub const PRELOADED: [(Self, u8, &'static str); 2] = [
        (Self::Acc, 6, "As `acc`, by the load module"),
        (Self::Acc8, 7, "As `acc8`, by the load module"),
    ];

    /// The code of a LOAD of inputs whose padding isn't zero: no LOAD fills the output scratchpad, whose code it is.
    pub const PADDED: u8 = Self::Out.code();

    /// Its place in [`Self::ALL`], for arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The code that says that the load module fills accumulators.
    #[inline]
    const fn preloaded(self) -> Option<u8> {
        let mut at = 0;
        while at < Self::PRELOADED.len() {
            let (mem, code, _) = Self::PRELOADED[at];
            if mem as u8 == self as u8 {
                return Some(code);
            }
            at += 1;
        }
        None
    }
}

transfer! {
    /// LOAD writes `y_pad_0 + y_size + y_pad_1` rows of `x_pad_0 + x_size + x_pad_1` consecutive
    /// tiles from `sram_base`. Padding tiles are zero, or of inputs `pad_value`; row `y` of the payload comes from
    /// `dram_base + y * x_stride`. `x_stride = 0` repeats one row. With `x_size = 0` or `y_size = 0`
    /// nothing is written, padding neither: only the tokens act.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    Load, LoadFields {
        members {
            /// Dependency tokens.
            deps: Deps;
            /// What to load: any type but [`MemType::Out`].
            mem: MemType;
            /// The load module fills accumulators, not the compute module: a code of the memory type
            /// ([`MemType::PRELOADED`]). No other type has one.
            preload: bool;
            /// What the lanes of padding hold: 0, or of a LOAD of inputs any value, which is a code of the memory type
            /// ([`MemType::PADDED`]) and bits that `y_size` has otherwise.
            pad_value: i8;
        }
        after {
            y_pad_0: u8 = [112, 4], Number, "rows", "Zeros above";
            y_pad_1: u8 = [116, 4], Number, "rows", "Zeros below";
            x_pad_0: u8 = [120, 4], Number, "tiles", "Zeros left of each row";
            x_pad_1: u8 = [124, 4], Number, "tiles", "Zeros right of each row";
        }
    }
}

impl Default for Load {
    /// A LOAD INP that moves nothing.
    fn default() -> Self {
        Self::unpack(0, Deps::NONE, MemType::Inp, false, 0)
    }
}

impl Load {
    /// The flag of assembly text that says that the load module fills accumulators.
    pub const PRELOAD: &'static str = "preload";

    /// What tells a LOAD of 4-bit weights from one of [`MemType::PADDED`] inputs. Other LOADs carry garbage there.
    pub const WGT4: Field = Field {
        name: "wgt4",
        first_bit: 58,
        bits: 1,
        notation: Notation::Flag,
        unit: "flag",
        meaning: "Of memory type 4: weights of 4 bits; else inputs with `pad_value`",
    };

    /// What padding holds, where the memory type is [`MemType::PADDED`].
    pub const PAD_VALUE: Field = Field {
        name: "pad_value",
        first_bit: 72,
        bits: 8,
        notation: Notation::Signed,
        unit: "int8",
        meaning: "What padding holds, of a LOAD of inputs: `y_size` has 8 bits then",
    };

    /// The rows of such a LOAD.
    pub const PADDED_ROWS: Field = Field {
        bits: 8,
        ..Self::FIELDS.y_size
    };

    /// Its fields that differ then.
    pub const PADDED: &'static [Field] = &[Self::PADDED_ROWS, Self::PAD_VALUE];

    /// What a word has that a LOAD of inputs with padding is: that value, and its rows.
    pub(super) const fn padded(word: u128) -> (i8, u16) {
        let value = Self::PAD_VALUE.get(word) as u8 as i8;
        (value, Self::PADDED_ROWS.get(word) as u16)
    }

    /// The code of its memory type.
    ///
    /// # Errors
    /// [`FieldError`] if that has none for the load module, or for padding that isn't zero, or more rows than that can have.
    #[inline]
    pub(crate) const fn code(&self) -> Result<u8, FieldError> {
        match (self.preload, self.pad_value, self.mem) {
            (false, 0, mem) => Ok(mem.code()),
            (false, _, MemType::Inp) => match Self::PADDED_ROWS.put(self.y_size as u64) {
                Ok(_) => Ok(MemType::PADDED),
                Err(error) => Err(error),
            },
            (false, ..) => Err(FieldError::absent(Self::PAD_VALUE.name)),
            (true, ..) => match self.mem.preloaded() {
                Some(code) if self.pad_value == 0 => Ok(code),
                _ => Err(FieldError::absent(Self::PRELOAD)),
            },
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        // Codes fit the field and the bit, which are in the lower half.
        let (code, field) = (u64::from(self.code()?), Self::FIELDS.memory_type);
        let mem = (code & field.max()) << field.first_bit;
        let mem = u128::from(mem | (code >> field.bits) << Self::WGT4.first_bit);
        let pads = Self::PAD_VALUE.put(self.pad_value as u8 as u64)?;
        Ok(Opcode::Load.word(self.deps)? | mem | self.pack()? | pads)
    }

    /// Tiles written to the scratchpad, padding included; 0 for a synchronisation.
    #[inline]
    pub const fn sram_tiles(&self) -> u64 {
        if self.is_sync() {
            return 0;
        }
        let rows = self.y_pad_0 as u64 + self.y_size as u64 + self.y_pad_1 as u64;
        let cols = self.x_pad_0 as u64 + self.x_size as u64 + self.x_pad_1 as u64;
        rows * cols
    }

    /// Elements read from DRAM (a repeated row counts each time).
    #[inline]
    pub const fn dram_elems(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }
}
