//! The extended VTA instruction set, bit for bit.
//!
//! VTA (the Versatile Tensor Accelerator) is an int8 accelerator: a matrix unit, a vector ALU
//! and three modules (load, compute, store) tied together by dependency tokens. This crate is
//! the only place of the project that knows the bits: configuration ([`Config`]), 128-bit
//! instructions ([`Insn`]), 32-bit micro-ops ([`Uop`]), their text form, what each instruction
//! touches ([`resolve`]) and the static check of a program.
//!
//! ```
//! use vta_isa::{Config, Insn, Load, MemType};
//!
//! let config = Config::default();
//! assert_eq!(config.block(), 16);
//! let load = Insn::from(Load { mem: MemType::Inp, y_size: 1, x_size: 16, x_stride: 16, ..Load::default() });
//! let word: u128 = load.encode().expect("every field is in range");
//! assert_eq!(Insn::decode(word), Ok(load));
//! ```
//!
//! It does no input or output and runs nothing: simulators are in `vta-sim`, devices in
//! `vta-driver` and `vta-hw-opencl`.
#![forbid(unsafe_code)]

pub mod asm;
pub mod check;
mod config;
mod extension;
mod field;
pub mod header;
mod insn;
mod number;
pub mod original;
pub mod reference;
pub mod resolve;
pub mod tokens;
mod uop;

pub use config::{Config, ConfigError, Excess};
pub use extension::{Extension, Extensions};
pub use field::{Field, FieldError, Notation};
pub use insn::{
    Alu, AluFields, AluOp, AluOperand, DecodeError, Deps, DepsFields, Depthwise, DepthwiseFields,
    Finish, Gemm, GemmFields, INSN_BYTES, Insn, Load, LoadFields, MemType, Module, Opcode,
    Requantize, RequantizeFields, Rounding, Store, StoreFields, factor,
};
pub use number::number;
pub use uop::{UOP_BYTES, Uop};
