//! Is a program consistent with itself? Checked before anything is allocated.

use thiserror::Error;
use vta_isa::{FieldError, Insn, MemType};

use crate::{Buffer, BufferKind, Command, Layer, Program, Symbol, TensorSpec};

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
    /// A kernel is longer than the micro-op scratchpad.
    #[error("program: kernel {index} has {uops} micro-ops, the scratchpad holds {depth}")]
    KernelTooLarge {
        /// The kernel.
        index: u32,
        /// Its length.
        uops: usize,
        /// The scratchpad's depth.
        depth: usize,
    },
    /// A command uses micro-ops beyond its kernel.
    #[error("program: micro-ops {bgn}..{end} of kernel {index}, which has {uops}")]
    UopRange {
        /// The kernel.
        index: u32,
        /// First micro-op.
        bgn: u16,
        /// One past the last.
        end: u16,
        /// The kernel's length.
        uops: usize,
    },
    /// An instruction that can't go with its symbol, or that compilers never emit.
    #[error(
        "program: {insn} can't go with its symbol (buffers: load and store; kernels: gemm and alu; no symbol: synchronisation only)"
    )]
    Symbol {
        /// The instruction.
        insn: String,
    },
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
    /// A command reaches beyond its buffer.
    #[error(
        "program: layer {layer}, command {command}: bytes up to {end} of buffer {buffer}, which has {size_bytes}"
    )]
    Range {
        /// The layer.
        layer: String,
        /// The command's index in it.
        command: usize,
        /// The buffer's name.
        buffer: String,
        /// One past the last byte touched.
        end: u64,
        /// The buffer's size.
        size_bytes: u64,
    },
    /// A STORE into a constant.
    #[error("program: layer {layer}, command {command} stores into the constant {buffer}")]
    StoreToConstant {
        /// The layer.
        layer: String,
        /// The command's index in it.
        command: usize,
        /// The buffer's name.
        buffer: String,
    },
    /// A constant's data and size differ, or a tensor doesn't fit its buffer.
    #[error("program: {name} needs {need} bytes, its buffer has {have}")]
    Size {
        /// Buffer or tensor.
        name: String,
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// A tensor's geometry is impossible.
    #[error("program: tensor {name} has an impossible shape or window")]
    Shape {
        /// The tensor.
        name: String,
    },
}

impl Program {
    /// The tensor at an index.
    ///
    /// # Errors
    /// [`ProgramError::Tensor`].
    pub fn tensor(&self, index: u32) -> Result<&TensorSpec, ProgramError> {
        self.tensors
            .get(index as usize)
            .ok_or(ProgramError::Tensor { index })
    }

    /// Checks every index, range and size, so that a driver can trust the program whatever
    /// file it came from. Scratchpad bounds and tokens are the device's to check.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), ProgramError> {
        for buffer in &self.buffers {
            check_constant(buffer)?;
        }
        let depth = self.config.depth(MemType::Uop);
        for (index, kernel) in self.kernels.iter().enumerate() {
            let (index, uops) = (index as u32, kernel.uops.len());
            if uops > depth {
                return Err(ProgramError::KernelTooLarge { index, uops, depth });
            }
        }
        for tensor in &self.tensors {
            self.check_tensor(tensor)?;
        }
        for &index in self.inputs.iter().chain(&self.outputs) {
            self.tensor(index)?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            self.tensor(layer.output)?;
            let cuts = layer.cuts.iter().map(|&c| c as usize);
            let ends: Vec<_> = cuts.chain([layer.commands.len()]).collect();
            if ends.windows(2).any(|w| w[0] > w[1]) {
                return Err(ProgramError::Layer { index });
            }
            for (at, command) in layer.commands.iter().enumerate() {
                self.check_command(layer, at, command)?;
            }
        }
        Ok(())
    }

    fn check_tensor(&self, tensor: &TensorSpec) -> Result<(), ProgramError> {
        let shape = || ProgramError::Shape {
            name: tensor.name.clone(),
        };
        if tensor.chw.contains(&0) || !tensor.scale.is_finite() {
            return Err(shape());
        }
        let need = tensor.packed_bytes(&self.config).ok_or_else(shape)?;
        let id = tensor.buffer.0;
        let buffer = self
            .buffers
            .get(id as usize)
            .ok_or(ProgramError::Buffer { index: id })?;
        if need > buffer.size_bytes {
            let (name, have) = (tensor.name.clone(), buffer.size_bytes);
            return Err(ProgramError::Size { name, need, have });
        }
        Ok(())
    }

    fn check_command(
        &self,
        layer: &Layer,
        at: usize,
        command: &Command,
    ) -> Result<(), ProgramError> {
        let wrong = || ProgramError::Symbol {
            insn: format!("{:?}", command.insn),
        };
        match (command.symbol, &command.insn) {
            (Symbol::None, Insn::Load(load)) if load.is_sync() => Ok(()),
            (Symbol::None, Insn::Store(store)) if store.is_sync() => Ok(()),
            (Symbol::Kernel(id), Insn::Gemm(_) | Insn::Alu(_)) => {
                let index = id.0;
                self.kernels
                    .get(index as usize)
                    .map(drop)
                    .ok_or(ProgramError::Kernel { index })
            }
            (Symbol::Buffer(id), Insn::Load(_) | Insn::Store(_)) => {
                let index = id.0;
                let buffer = self
                    .buffers
                    .get(index as usize)
                    .ok_or(ProgramError::Buffer { index })?;
                self.check_range(layer, at, &command.insn, buffer)
            }
            _ => Err(wrong()),
        }
    }

    fn check_range(
        &self,
        layer: &Layer,
        at: usize,
        insn: &Insn,
        buffer: &Buffer,
    ) -> Result<(), ProgramError> {
        let (mem, base, y, x, stride) = match insn {
            Insn::Load(l) => (l.mem, l.dram_base, l.y_size, l.x_size, l.x_stride),
            Insn::Store(s) => (MemType::Out, s.dram_base, s.y_size, s.x_size, s.x_stride),
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => return Ok(()),
        };
        let place = || (layer.name.clone(), at, buffer.name.clone());
        if mem == MemType::Out && matches!(buffer.kind, BufferKind::Constant(_)) {
            let (layer, command, buffer) = place();
            return Err(ProgramError::StoreToConstant {
                layer,
                command,
                buffer,
            });
        }
        if x == 0 || y == 0 {
            return Ok(());
        }
        let elems = u64::from(base) + u64::from(y - 1) * u64::from(stride) + u64::from(x);
        let end = elems * self.config.elem_bytes(mem) as u64;
        if end > buffer.size_bytes {
            let ((layer, command, name), size_bytes) = (place(), buffer.size_bytes);
            return Err(ProgramError::Range {
                layer,
                command,
                buffer: name,
                end,
                size_bytes,
            });
        }
        Ok(())
    }
}

fn check_constant(buffer: &Buffer) -> Result<(), ProgramError> {
    match &buffer.kind {
        BufferKind::Constant(data) if data.len() as u64 != buffer.size_bytes => {
            Err(ProgramError::Size {
                name: buffer.name.clone(),
                need: data.len() as u64,
                have: buffer.size_bytes,
            })
        }
        _ => Ok(()),
    }
}
