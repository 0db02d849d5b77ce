//! The instruction: the sum of all kinds, and what they have in common.

mod alu;
mod decode;
mod depthwise;
mod finish;
mod gemm;
mod load;
mod looped;
mod opcode;
mod requantize;
mod store;
mod transfer;

pub use alu::{Alu, AluFields, AluOp, AluOperand};
pub use decode::DecodeError;
pub use depthwise::{Depthwise, DepthwiseFields};
pub use finish::Finish;
pub use gemm::{Gemm, GemmFields};
pub use load::{Load, LoadFields, MemType};
pub use opcode::{Deps, DepsFields, Module, Opcode};
pub use requantize::{Requantize, RequantizeFields, Rounding, factor};
pub use store::{Store, StoreFields};

use crate::{Extension, Extensions, Field, FieldError};

/// Bytes of one instruction in DRAM.
pub const INSN_BYTES: usize = 16;

impl Opcode {
    /// The opcode of a GEMM that overwrites: the flag is one of its bits, since streams of the original runtime carry
    /// garbage in those that no field covers.
    pub const OVERWRITING: u8 = Self::Gemm.code() | Gemm::FIELDS.overwrite.mask() as u8;

    /// The opcode of a STORE that requantises.
    pub const REQUANTIZING: u8 = Self::Store.code() | Requantize::FIELDS.requantize.mask() as u8;

    /// The kind of instruction that an opcode's value is.
    #[inline]
    pub(crate) const fn of(value: u8) -> Option<Self> {
        match value {
            Self::OVERWRITING => Some(Self::Gemm),
            Self::REQUANTIZING => Some(Self::Store),
            value => Self::from_code(value),
        }
    }

    /// The fields of this kind of instruction beside its opcode and tokens, by first bit.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Load => Load::LIST,
            Self::Store => Store::LIST,
            Self::Gemm => Gemm::LIST,
            Self::Finish => Finish::LIST,
            Self::Alu => Alu::LIST,
            Self::Depthwise => Depthwise::LIST,
        }
    }
}

/// By opcode, the bits of a word that have a meaning: all where no kind of instruction has the opcode.
const COVERED: [u128; 1 << opcode::OPCODE.bits] = {
    let (mut covered, mut at) = ([u128::MAX; 1 << opcode::OPCODE.bits], 0);
    while at < Opcode::ALL.len() {
        let kind = Opcode::ALL[at];
        let begin = opcode::OPCODE.mask() | mask(Deps::LIST);
        covered[kind.code() as usize] = begin | mask(kind.fields());
        at += 1;
    }
    covered[Opcode::OVERWRITING as usize] = covered[Opcode::Gemm.code() as usize];
    covered[Opcode::REQUANTIZING as usize] =
        covered[Opcode::Store.code() as usize] | mask(Requantize::LIST);
    covered
};

const fn mask(fields: &[Field]) -> u128 {
    match fields {
        [] => 0,
        [first, rest @ ..] => first.mask() | mask(rest),
    }
}

/// One instruction. Fields have the names of the VTA hardware headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insn {
    /// DRAM to scratchpad.
    Load(Load),
    /// Accumulator scratchpad to DRAM.
    Store(Store),
    /// Matrix products.
    Gemm(Gemm),
    /// End of the run.
    Finish(Finish),
    /// Vector operations.
    Alu(Alu),
    /// Products of windows, channel by channel.
    Depthwise(Depthwise),
}

impl Insn {
    /// Encodes the instruction; bits that no field covers are zero.
    ///
    /// # Errors
    /// [`FieldError`] for the first field whose value doesn't fit its bits.
    #[inline]
    pub fn encode(&self) -> Result<u128, FieldError> {
        match self {
            Self::Load(x) => x.encode(),
            Self::Store(x) => x.encode(),
            Self::Gemm(x) => x.encode(),
            Self::Finish(x) => x.encode(),
            Self::Alu(x) => x.encode(),
            Self::Depthwise(x) => x.encode(),
        }
    }

    /// Whether two words are the same instruction, or the same pattern that is none: bits that no field covers may
    /// differ.
    #[inline]
    pub const fn same_word(a: u128, b: u128) -> bool {
        let opcode = opcode::OPCODE.get(a);
        let extended = Load::FIELDS.memory_type.get(a) == MemType::PADDED as u64;
        let wgt4 = match opcode == Opcode::Load.code() as u64 && extended {
            true => Load::WGT4.mask(),
            false => 0,
        };
        (a ^ b) & (COVERED[opcode as usize] | wgt4) == 0
    }

    /// Whether every number fits its field, so that the instruction can be encoded.
    #[inline]
    pub const fn fits(&self) -> bool {
        match self {
            Self::Load(x) => x.fits() && x.code().is_ok(),
            Self::Store(x) => x.all_fit(),
            Self::Gemm(x) => x.fits(),
            Self::Finish(_) => true,
            Self::Alu(x) => x.fits(),
            Self::Depthwise(x) => x.fits(),
        }
    }

    /// The extensions that the instruction needs: none for those of the original RTL.
    pub const fn extensions(&self) -> Extensions {
        let [kind, flag] = match self {
            Self::Load(load) if load.pad_value != 0 => [None, Some(Extension::Pad)],
            Self::Load(load) => [load.mem.extension(), Extension::Preload.when(load.preload)],
            Self::Alu(alu) => [alu.op.extension(), None],
            Self::Gemm(gemm) => [None, Extension::Overwrite.when(gemm.overwrite)],
            Self::Store(store) if store.saturate => [None, Some(Extension::Saturate)],
            Self::Store(store) => [None, Extension::Requant.when(store.requantize.is_some())],
            Self::Finish(_) | Self::Depthwise(_) => [None, None],
        };
        let set = Extensions::NONE.and(self.opcode().extension());
        set.and(kind).and(flag)
    }

    /// The instruction's opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Load(_) => Opcode::Load,
            Self::Store(_) => Opcode::Store,
            Self::Gemm(_) => Opcode::Gemm,
            Self::Finish(_) => Opcode::Finish,
            Self::Alu(_) => Opcode::Alu,
            Self::Depthwise(_) => Opcode::Depthwise,
        }
    }

    /// The module that runs the instruction.
    #[inline]
    pub const fn module(&self) -> Module {
        match self {
            Self::Load(load) => match load.mem {
                MemType::Wgt | MemType::Wgt4 | MemType::Inp => Module::Load,
                MemType::Acc | MemType::Acc8 if load.preload => Module::Load,
                MemType::Uop | MemType::Acc | MemType::Acc8 | MemType::Out => Module::Compute,
            },
            Self::Store(_) => Module::Store,
            Self::Gemm(_) | Self::Finish(_) | Self::Alu(_) | Self::Depthwise(_) => Module::Compute,
        }
    }

    /// The dependency-token flags.
    #[inline]
    pub const fn deps(&self) -> Deps {
        match self {
            Self::Load(x) => x.deps,
            Self::Store(x) => x.deps,
            Self::Gemm(x) => x.deps,
            Self::Finish(x) => x.deps,
            Self::Alu(x) => x.deps,
            Self::Depthwise(x) => x.deps,
        }
    }

    /// The dependency-token flags, to change.
    #[inline]
    pub const fn deps_mut(&mut self) -> &mut Deps {
        match self {
            Self::Load(x) => &mut x.deps,
            Self::Store(x) => &mut x.deps,
            Self::Gemm(x) => &mut x.deps,
            Self::Finish(x) => &mut x.deps,
            Self::Alu(x) => &mut x.deps,
            Self::Depthwise(x) => &mut x.deps,
        }
    }
}

impl Extensions {
    /// Whether a machine with this set has what the instruction needs; else the extension that
    /// it lacks.
    ///
    /// # Errors
    /// The extension.
    #[inline]
    pub const fn allow(self, insn: &Insn) -> Result<(), Extension> {
        match insn.extensions().beyond(self) {
            Some(lacking) => Err(lacking),
            None => Ok(()),
        }
    }

    /// What instructions need.
    pub fn needed<'i>(insns: impl IntoIterator<Item = &'i Insn>) -> Self {
        let all = insns.into_iter().map(Insn::extensions);
        all.fold(Self::NONE, Self::or)
    }

    /// The ALU operations of a machine that has them.
    pub fn alu_ops(self) -> Vec<AluOp> {
        let has = |op: &AluOp| op.extension().is_none_or(|e| self.contains(e));
        AluOp::ALL.into_iter().filter(has).collect()
    }
}

macro_rules! from_kind {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Insn {
            fn from(kind: $kind) -> Self {
                Self::$kind(kind)
            }
        }
    )*};
}
from_kind!(Load, Store, Gemm, Finish, Alu, Depthwise);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_module_fills_accumulators_where_a_load_says_so() {
        for mem in MemType::ALL.into_iter().filter(|mem| *mem != MemType::Out) {
            let of = |preload| {
                let load = Load {
                    mem,
                    preload,
                    ..Load::default()
                };
                let insn = Insn::from(load);
                (insn.module(), insn.encode().is_ok())
            };
            let own = match mem {
                MemType::Inp | MemType::Wgt | MemType::Wgt4 => Module::Load,
                MemType::Uop | MemType::Acc | MemType::Acc8 | MemType::Out => Module::Compute,
            };
            assert_eq!(of(false), (own, true), "{mem}");
            let sums = matches!(mem, MemType::Acc | MemType::Acc8);
            assert_eq!(of(true).1, sums, "{mem}");
            assert!(!sums || of(true).0 == Module::Load, "{mem}");
        }
    }
}
