//! Is a program consistent with itself? Checked before anything is allocated.

use vta_isa::resolve::{Resolved, Uops, furthest, uop_range};
use vta_isa::{Insn, MemType, Uop};

use crate::packing::{MAX_IMAGE_LEN, MAX_PACKED_BYTES};
use crate::{
    Buffer, BufferKind, Command, Kernel, KernelId, Layer, Packing, Program, ProgramError, Symbol,
    TensorSpec,
};

/// What a device's 32-bit addresses reach.
const DEVICE_BYTES: u64 = 1 << 32;

/// Most tokens between layers: far from what a hardware counter holds.
const MAX_SEAM_TOKENS: u32 = 16;

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

    /// Checks every index, range and size, so that a driver can trust the program whatever file
    /// it came from: tensors fit their buffers, buffers and outputs fit a device's 4 GiB,
    /// commands stay inside buffers, kernels and scratchpads. Tokens are the device's to check.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), ProgramError> {
        if self.seam_tokens > MAX_SEAM_TOKENS {
            return inconsistent(format!(
                "{} seam tokens, but at most {MAX_SEAM_TOKENS} are allowed",
                self.seam_tokens
            ));
        }
        self.check_buffers()?;
        let depth = self.config.depth(MemType::Uop);
        for (index, kernel) in self.kernels.iter().enumerate() {
            let uops = kernel.uops.len();
            if uops > depth {
                return inconsistent(format!(
                    "kernel {index} has {uops} micro-ops, the scratchpad holds {depth}"
                ));
            }
        }
        for tensor in &self.tensors {
            self.check_tensor(tensor)?;
        }
        self.check_ends()?;
        let furthest: Vec<_> = self.kernels.iter().map(|k| furthest(&k.uops)).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            self.tensor(layer.output)?;
            let cuts = layer.cuts.iter().map(|&c| c as usize);
            let ends: Vec<_> = cuts.chain([layer.commands.len()]).collect();
            if ends.windows(2).any(|w| w[0] > w[1]) {
                return Err(ProgramError::Layer { index });
            }
            for (at, command) in layer.commands.iter().enumerate() {
                self.check_command(At { layer, at }, command, &furthest)?;
            }
        }
        Ok(())
    }

    /// The kernel of a GEMM or ALU command, whose micro-op range lies inside it.
    ///
    /// # Errors
    /// [`ProgramError`] for another instruction, an unknown kernel, micro-ops beyond it.
    pub fn kernel_of(
        &self,
        at: At<'_>,
        insn: &Insn,
        id: KernelId,
    ) -> Result<&Kernel, ProgramError> {
        let (bgn, end) = uop_range(insn).ok_or_else(|| at.wrong_symbol(insn))?;
        let index = id.0;
        let kernel = self.kernels.get(index as usize);
        let kernel = kernel.ok_or(ProgramError::Kernel { index })?;
        let uops = kernel.uops.len();
        if bgn > end || usize::from(end) > uops {
            return Err(at.refuse(format!(
                "micro-ops {bgn}..{end} of kernel {index}, which has {uops}"
            )));
        }
        Ok(kernel)
    }

    fn check_buffers(&self) -> Result<(), ProgramError> {
        let mut total = 0u64;
        for buffer in &self.buffers {
            if let BufferKind::Constant(data) = &buffer.kind
                && data.len() as u64 != buffer.size_bytes
            {
                return wrong_size(&buffer.name, data.len() as u64, buffer.size_bytes);
            }
            total = total.saturating_add(buffer.size_bytes);
            if total > DEVICE_BYTES {
                return too_many("buffers", &buffer.name);
            }
        }
        Ok(())
    }

    fn check_tensor(&self, tensor: &TensorSpec) -> Result<(), ProgramError> {
        let name = &tensor.name;
        if tensor.chw.contains(&0) || !tensor.scale.is_finite() || tensor.positions().is_none() {
            return inconsistent(format!("tensor {name} has an impossible shape or window"));
        }
        if tensor.image_len() as u64 > MAX_IMAGE_LEN {
            let limit = format!("{MAX_IMAGE_LEN} values in an image");
            return inconsistent(format!("tensor {name} has more than {limit}"));
        }
        let need = tensor.packed_bytes(&self.config);
        let Some(need) = need.filter(|&n| n <= MAX_PACKED_BYTES) else {
            let limit = format!("{MAX_PACKED_BYTES} packed bytes");
            return inconsistent(format!("tensor {name} has more than {limit}"));
        };
        let have = self.buffer(tensor.buffer.0)?.size_bytes;
        let (offset, tile) = (
            tensor.offset_bytes,
            self.config.elem_bytes(MemType::Inp) as u64,
        );
        if !offset.is_multiple_of(tile) {
            return inconsistent(format!(
                "tensor {name} starts at byte {offset}, which is no multiple of {tile}"
            ));
        }
        let need = need.saturating_add(offset);
        if need > have {
            return wrong_size(name, need, have);
        }
        Ok(())
    }

    /// Checks the network's inputs and outputs.
    fn check_ends(&self) -> Result<(), ProgramError> {
        for &index in &self.inputs {
            let tensor = self.tensor(index)?;
            let buffer = self.buffer(tensor.buffer.0)?;
            if matches!(buffer.kind, BufferKind::Constant(_)) {
                let (name, buffer) = (&tensor.name, &buffer.name);
                return inconsistent(format!("the input {name} lies in the constant {buffer}"));
            }
        }
        let mut total = 0u64;
        for &index in &self.outputs {
            let tensor = self.tensor(index)?;
            tensor.check_output()?;
            total = total.saturating_add(tensor.packed_bytes(&self.config).unwrap_or(u64::MAX));
            if total > DEVICE_BYTES {
                return too_many("outputs", &tensor.name);
            }
        }
        Ok(())
    }

    fn buffer(&self, index: u32) -> Result<&Buffer, ProgramError> {
        self.buffers
            .get(index as usize)
            .ok_or(ProgramError::Buffer { index })
    }

    fn check_command(
        &self,
        at: At<'_>,
        command: &Command,
        furthest: &[Option<Uop>],
    ) -> Result<(), ProgramError> {
        if let Err(extension) = self.config.extensions().allow(&command.insn) {
            return Err(at.refuse(format!(
                "it needs {extension}, which its configuration doesn't have"
            )));
        }
        match (command.symbol, &command.insn) {
            (Symbol::None, Insn::Load(load)) if load.is_sync() => Ok(()),
            (Symbol::None, Insn::Store(store)) if store.is_sync() => Ok(()),
            (Symbol::Kernel(id), Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_)) => {
                self.check_uops(at, &command.insn, id, furthest)
            }
            // The driver alone loads micro-ops: it must know what is resident.
            (Symbol::Buffer(_), Insn::Load(load)) if load.mem == MemType::Uop => {
                Err(at.wrong_symbol(&command.insn))
            }
            (Symbol::Buffer(id), Insn::Load(_) | Insn::Store(_)) => {
                self.check_range(at, &command.insn, self.buffer(id.0)?)
            }
            (Symbol::None | Symbol::Kernel(_), Insn::Load(_) | Insn::Store(_))
            | (
                Symbol::None | Symbol::Buffer(_),
                Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_),
            )
            | (_, Insn::Finish(_)) => Err(at.wrong_symbol(&command.insn)),
        }
    }

    /// Checks a GEMM's or ALU's micro-op range, and how far its loops take its micro-ops.
    fn check_uops(
        &self,
        at: At<'_>,
        insn: &Insn,
        id: KernelId,
        all: &[Option<Uop>],
    ) -> Result<(), ProgramError> {
        let uops = &self.kernel_of(at, insn, id)?.uops;
        let (bgn, end) = uop_range(insn).unwrap_or_default();
        let range = usize::from(bgn)..usize::from(end);
        // Most commands use a whole kernel, which was looked through once.
        let used = match all.get(id.0 as usize) {
            Some(whole) if range == (0..uops.len()) => *whole,
            _ => furthest(uops.get(range).unwrap_or_default()),
        };
        self.check_tiles(at, insn, used.as_slice())
    }

    /// Checks that the tiles of an instruction are in their scratchpads.
    fn check_tiles(&self, at: At<'_>, insn: &Insn, uops: &[Uop]) -> Result<(), ProgramError> {
        let resolved = Resolved::of(&self.config, insn, Uops::of(uops));
        resolved.map(drop).map_err(|fault| at.refuse(fault))
    }

    /// Checks what a LOAD or STORE touches, in its buffer and in the scratchpad.
    fn check_range(&self, at: At<'_>, insn: &Insn, buffer: &Buffer) -> Result<(), ProgramError> {
        let (name, size_bytes) = (&buffer.name, buffer.size_bytes);
        if matches!(insn, Insn::Store(_)) && matches!(buffer.kind, BufferKind::Constant(_)) {
            return Err(at.refuse(format!("it stores into the constant {name}")));
        }
        let end = insn
            .dram_rows(&self.config)
            .map_or(0, |rows| rows.span().end);
        if end > size_bytes {
            return Err(at.refuse(format!(
                "bytes up to {end} of buffer {name}, which has {size_bytes}"
            )));
        }
        self.check_tiles(at, insn, &[])
    }
}

/// A command's place.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// Its layer.
    pub layer: &'a Layer,
    /// Which of the layer's commands.
    pub at: usize,
}

impl At<'_> {
    /// The command's symbol isn't what its instruction needs.
    pub fn wrong_symbol(self, insn: &Insn) -> ProgramError {
        self.refuse(format!(
            "{insn:?} can't go with its symbol (buffers: load and store, not of micro-ops; kernels: \
             gemm and alu; no symbol: synchronisation only)"
        ))
    }

    fn refuse(self, what: impl ToString) -> ProgramError {
        ProgramError::Command {
            layer: self.layer.described(),
            command: self.at,
            what: what.to_string(),
        }
    }
}

impl TensorSpec {
    /// The host unpacks tiles alone.
    pub(crate) fn check_output(&self) -> Result<(), ProgramError> {
        if self.packing == Packing::Tiles {
            return Ok(());
        }
        inconsistent(format!(
            "the output {} is packed as im2col, not as tiles",
            self.name
        ))
    }
}

fn inconsistent<T>(what: String) -> Result<T, ProgramError> {
    Err(ProgramError::Inconsistent(what))
}

/// Refuses what a device's memory can't hold at once.
fn too_many<T>(what: &str, name: &str) -> Result<T, ProgramError> {
    inconsistent(format!(
        "{what} up to {name} have more than {DEVICE_BYTES} bytes together"
    ))
}

/// Refuses a buffer that isn't of the size of what lies in it.
fn wrong_size<T>(name: &str, need: u64, have: u64) -> Result<T, ProgramError> {
    inconsistent(format!("{name} needs {need} bytes, its buffer has {have}"))
}

#[cfg(test)]
mod tests;
