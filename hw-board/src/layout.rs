//! Where the control registers are.

use serde::Deserialize;

/// Where the registers are that a run needs, by the bits of a pointer's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub enum Layout {
    /// One register.
    #[default]
    Bits32,
    /// Two, the low word first.
    Bits64,
}

impl TryFrom<u32> for Layout {
    type Error = String;

    fn try_from(bits: u32) -> Result<Self, String> {
        match bits {
            32 => Ok(Self::Bits32),
            64 => Ok(Self::Bits64),
            _ => Err(format!("address_bits is {bits}, but it must be 32 or 64")),
        }
    }
}

impl Layout {
    /// Writing 1 launches; bit 1 is set when FINISH has ended.
    pub const CONTROL: u64 = 0x00;
    /// Cycles of the run, valid when it has ended.
    pub const CYCLES: u64 = 0x04;
    /// Number of instructions.
    pub const COUNT: u64 = 0x08;
    /// Address of the instructions, low word first where it has two.
    pub const INSNS: u64 = 0x0c;
    /// Base addresses: of micro-ops, inputs, weights, accumulators, outputs.
    const BASES: u64 = 5;

    fn words(self) -> u64 {
        match self {
            Self::Bits32 => 1,
            Self::Bits64 => 2,
        }
    }

    /// The registers of a pointer, 0 being that of the instructions, and what each gets.
    pub fn pointer(self, index: u64, address: u64) -> impl Iterator<Item = (u64, u32)> {
        let words = self.words();
        let first = Self::INSNS + index * words * 4;
        (0..words).map(move |word| (first + word * 4, (address >> (32 * word)) as u32))
    }

    /// The pointers behind that of the instructions.
    pub fn bases() -> std::ops::RangeInclusive<u64> {
        1..=Self::BASES
    }

    /// Bytes of all registers, with the counter of accumulator writes at the end.
    pub fn bytes(self) -> u64 {
        Self::INSNS + (1 + Self::BASES) * self.words() * 4 + 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_take_one_register_or_two() {
        let narrow = Layout::Bits32;
        let found: Vec<_> = narrow.pointer(0, 0x1234_5000).collect();
        assert_eq!(found, [(0x0c, 0x1234_5000)]);
        assert_eq!(narrow.pointer(5, 7).next(), Some((0x20, 7)));
        assert_eq!(narrow.bytes(), 0x28);
        let wide = Layout::Bits64;
        let found: Vec<_> = wide.pointer(0, 0x1_2345_6000).collect();
        assert_eq!(found, [(0x0c, 0x2345_6000), (0x10, 1)]);
        assert_eq!(wide.pointer(1, 0).next(), Some((0x14, 0)));
        assert_eq!(wide.bytes(), 0x40);
    }
}
