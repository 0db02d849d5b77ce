//! From words to instructions.

use thiserror::Error;

use super::opcode::OPCODE;
use crate::field::assigned;
use crate::{
    Alu, AluOp, AluOperand, Deps, Depthwise, Field, Finish, Gemm, Insn, Load, MemType, Opcode,
    Requantize, Store,
};

/// A 128-bit pattern that is no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No kind of instruction has the opcode.
    #[error("opcode is {0}, but only {known} are defined", known = assigned(&Opcode::ALL.map(|c| (c.code(), c.name()))))]
    Opcode(u8),
    /// No memory type of a STORE has the code.
    #[error("memory_type of a STORE is {0}, but it must be {out} (out), or {saturated} (out saturate) without requantize", out = MemType::Out.code(), saturated = Store::SATURATED)]
    MemType(u8),
    /// STORE that moves data must name OUT.
    #[error("memory_type of a STORE is {0}, but it must be out")]
    StoreMemType(MemType),
    /// No operation has the code.
    #[error("alu_opcode is {0}, but only {known} are defined", known = assigned(&AluOp::ALL.map(|c| (c.code(), c.name()))))]
    AluOpcode(u8),
}

impl Insn {
    /// Decodes a 128-bit little-endian word. Bits that no field covers are ignored: streams of
    /// the original runtime carry garbage there.
    ///
    /// # Errors
    /// [`DecodeError`] for an unassigned opcode, memory type or ALU opcode.
    pub fn decode(word: u128) -> Result<Self, DecodeError> {
        Self::decode_to(word, |insn| insn)
    }

    /// As [`Self::decode`], adding the instruction to a list: of many words, each is written once, where it stays.
    ///
    /// # Errors
    /// As [`Self::decode`].
    #[inline]
    pub fn decode_onto(word: u128, insns: &mut Vec<Self>) -> Result<(), DecodeError> {
        Self::decode_to(word, |insn| insns.push(insn))
    }

    /// What can fail is decoded first: a whole instruction in a result would be copied.
    #[inline(always)]
    fn decode_to<T>(word: u128, mut to: impl FnMut(Self) -> T) -> Result<T, DecodeError> {
        let (code, deps) = (OPCODE.get(word) as u8, Deps::unpack(word));
        Ok(match Opcode::of(code).ok_or(DecodeError::Opcode(code))? {
            Opcode::Load => match Load::mem(word)? {
                (MemType::Out, _) => to(Self::Load(Load::of_extended(word))),
                (mem, preload) => to(Self::Load(Load::unpack(word, deps, mem, preload, 0))),
            },
            Opcode::Store => {
                let saturate = Store::saturates(word)?;
                let requantizes = Requantize::FIELDS.requantize.get(word) != 0;
                let requantize = requantizes.then(|| Requantize::unpack(word));
                to(Self::Store(Store::unpack(word, deps, requantize, saturate)))
            }
            Opcode::Gemm => to(Self::Gemm(Gemm::decode(word))),
            Opcode::Finish => to(Self::Finish(Finish::decode(word))),
            Opcode::Alu => {
                let (op, operand) = Alu::operation(word)?;
                to(Self::Alu(Alu::unpack(word, deps, op, operand)))
            }
            Opcode::Depthwise => to(Self::Depthwise(Depthwise::decode(word))),
        })
    }
}

impl MemType {
    /// What the field of a word says.
    #[inline]
    fn of(field: Field, word: u128) -> Result<Self, DecodeError> {
        let code = field.get(word) as u8;
        Self::from_code(code).ok_or(DecodeError::MemType(code))
    }
}

impl Load {
    /// The memory, which is OUT where more of the word says it, and whether the load module loads it.
    #[inline]
    fn mem(word: u128) -> Result<(MemType, bool), DecodeError> {
        let field = Self::FIELDS.memory_type;
        let preloaded = MemType::PRELOADED.into_iter();
        MemType::of(field, word).map_or_else(
            |unknown| {
                let same = |(_, code, _): &(_, u8, _)| u64::from(*code) == field.get(word);
                let found = preloaded.filter(same).map(|(mem, ..)| (mem, true)).next();
                found.ok_or(unknown)
            },
            |mem| Ok((mem, false)),
        )
    }

    /// Of weights of 4 bits, or of inputs with padding that isn't zero.
    #[cold]
    fn of_extended(word: u128) -> Self {
        if Self::WGT4.get(word) != 0 {
            return Self::unpack(word, Deps::unpack(word), MemType::Wgt4, false, 0);
        }
        let (value, y_size) = Self::padded(word);
        let load = Self::unpack(word, Deps::unpack(word), MemType::Inp, false, value);
        Self { y_size, ..load }
    }
}

impl Store {
    #[inline]
    fn saturates(word: u128) -> Result<bool, DecodeError> {
        let code = Self::FIELDS.memory_type.get(word) as u8;
        if code == MemType::Out.code() {
            return Ok(false);
        }
        if code == Self::SATURATED && Requantize::FIELDS.requantize.get(word) == 0 {
            return Ok(true);
        }
        let mem = MemType::of(Self::FIELDS.memory_type, word)?;
        // Synchronisation STOREs of the original runtime carry memory type 0.
        if Self::unpack(word, Deps::NONE, None, false).is_sync() {
            return Ok(false);
        }
        Err(DecodeError::StoreMemType(mem))
    }
}

impl Alu {
    #[inline]
    fn operation(word: u128) -> Result<(AluOp, AluOperand), DecodeError> {
        let code = Self::FIELDS.alu_opcode.get(word) as u8;
        let op = AluOp::from_code(code).ok_or(DecodeError::AluOpcode(code))?;
        let operand = match Self::FIELDS.use_imm.get(word) {
            0 => AluOperand::Acc,
            _ => AluOperand::Imm(Self::FIELDS.imm.get(word) as u16 as i16),
        };
        Ok((op, operand))
    }
}
