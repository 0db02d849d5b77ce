//! What can be wrong with a program.

use thiserror::Error;
use vta_isa::FieldError;

/// A program that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A command names a buffer that isn't there.
    #[error("program: there is no buffer {index}")]
    Buffer {
        /// The index.
        index: u32,
    },
    /// A command names a kernel that isn't there.
    #[error("program: there is no micro-op kernel {index}")]
    Kernel {
        /// The index.
        index: u32,
    },
    /// A tensor index that isn't there.
    #[error("program: there is no tensor {index}")]
    Tensor {
        /// The index.
        index: u32,
    },
    /// A layer that isn't there, or whose cut points are out of order.
    #[error("program: layer {index} is missing or its cut points are not ascending")]
    Layer {
        /// The index.
        index: usize,
    },
    /// A command that can't be.
    #[error("program: layer {layer}, command {command}: {what}")]
    Command {
        /// The layer.
        layer: String,
        /// The command's index in it.
        command: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A buffer, a kernel, a tensor or an end of the network that contradicts another or a limit: which, with figures.
    #[error("program: {0}")]
    Inconsistent(String),
    /// A field doesn't fit its bits.
    #[error("program: {0}")]
    Field(FieldError),
    /// A buffer's address isn't a multiple of the element.
    #[error("program: address {addr:#x} is not a multiple of the {elem_bytes}-byte element")]
    Alignment {
        /// The address.
        addr: u32,
        /// The element.
        elem_bytes: u32,
    },
    /// An address leaves the 32-bit `dram_base`.
    #[error("program: dram_base {base} from address {addr:#x} exceeds 32 bits")]
    Address {
        /// Elements from the buffer's start.
        base: u32,
        /// The buffer's address.
        addr: u32,
    },
    /// A part of a network over several devices that isn't there, or has no device.
    #[error("program: there is no part {index}, or no device for it")]
    Part {
        /// The index.
        index: usize,
    },
    /// A step of a network over several devices that can't be done.
    #[error("program: step {index}: {reason}")]
    Step {
        /// The step's index; one past the last for the network's ends.
        index: usize,
        /// Why.
        reason: &'static str,
    },
}
