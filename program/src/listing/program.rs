//! The listing of a program.

use vta_isa::{Insn, MemType};

use super::geometry::{Geometry, LayerForm, Role};
use super::model::{
    BufferUse, ListedBuffer, ListedInsn, ListedLayer, ListedTensor, Listing, ListingError,
};
use crate::dram_plan::DramPlan;
use crate::{Buffer, BufferKind, Layer, PAGE_BYTES, Program, Symbol};

impl Listing {
    /// Of a program, and what its layers compute, in their order.
    ///
    /// # Errors
    /// [`ListingError::Program`] for a program that contradicts itself or its geometries, or needs more DRAM than
    /// addresses reach.
    pub fn of(program: &Program, geometries: &[Geometry]) -> Result<Self, ListingError> {
        let wrong = |what: &str| ListingError::Program(what.to_owned());
        if geometries.len() != program.layers.len() {
            return Err(wrong("not every layer says what it computes"));
        }
        let buffers = layout(program)?;
        let mut tensors = Vec::with_capacity(program.tensors.len());
        for (index, spec) in (0..).zip(&program.tensors) {
            let buffer = buffers.get(spec.buffer.0 as usize);
            let buffer = buffer.ok_or_else(|| wrong("a tensor has no buffer"))?;
            let too_large = || wrong("a tensor is too large");
            let dims = spec.packed_dims(&program.config);
            let (blocks, _) = dims.ok_or_else(too_large)?;
            let [rows, cols] = spec.positions().ok_or_else(too_large)?;
            let dim = |d: usize| u32::try_from(d).map_err(|_| too_large());
            tensors.push(ListedTensor {
                name: spec.name.clone(),
                buffer: spec.buffer.0,
                start: buffer.start + spec.offset_bytes,
                channels: spec.chw[0],
                tiles: [dim(blocks)?, dim(rows)?, dim(cols)?],
                input: program.inputs.contains(&index),
                output: program.outputs.contains(&index),
            });
        }
        let mut layers = Vec::with_capacity(program.layers.len());
        for (layer, geometry) in program.layers.iter().zip(geometries) {
            let mut geometry = geometry.clone();
            if let LayerForm::Channels(channels) = &mut geometry.form
                && let Some((_, buffer)) =
                    geometry.constants.iter().find(|c| c.0 == Role::Selection)
                && let BufferKind::Constant(bytes) = &program.buffers[*buffer as usize].kind
            {
                channels.tiles = selections(bytes, program.config.block());
            }
            layers.push(ListedLayer {
                name: layer.name.clone(),
                kind: layer.kind.clone(),
                geometry,
                insns: insns(program, &buffers, layer)?,
            });
        }
        Ok(Self {
            config: program.config.clone(),
            buffers,
            tensors,
            kernels: program.kernels.iter().map(|k| k.uops.clone()).collect(),
            layers,
        })
    }
}

/// Where buffers lie.
fn layout(program: &Program) -> Result<Vec<ListedBuffer>, ListingError> {
    let plan = DramPlan::of(program);
    let granule = PAGE_BYTES.max(program.config.max_elem_bytes());
    let kind = |buffer: &Buffer| match buffer.kind {
        BufferKind::Constant(_) => BufferUse::Constant,
        BufferKind::Input => BufferUse::Input,
        BufferKind::Output => BufferUse::Output,
        BufferKind::Scratch => BufferUse::Scratch,
    };
    let mut listed: Vec<ListedBuffer> = (program.buffers.iter().zip(&plan.offsets))
        .map(|(buffer, offset)| ListedBuffer {
            name: buffer.name.clone(),
            kind: kind(buffer),
            start: offset.unwrap_or_default(),
            bytes: buffer.size_bytes,
        })
        .collect();
    let mut next = plan.scratch_bytes.next_multiple_of(granule);
    let mut order: Vec<usize> = (0..listed.len()).collect();
    order.retain(|&at| plan.offsets[at].is_none());
    order.sort_by_key(|&at| listed[at].kind == BufferUse::Constant);
    for at in order {
        listed[at].start = next;
        next = (next + listed[at].bytes.max(1)).next_multiple_of(granule);
    }
    if next <= 1 << 32 {
        Ok(listed)
    } else {
        Err(ListingError::Program(format!(
            "the network needs {next} bytes of DRAM; addresses have 32 bits"
        )))
    }
}

/// Lanes that selection tiles take.
fn selections(bytes: &[u8], block: usize) -> Vec<Vec<[u32; 2]>> {
    let tile = |tile: &[u8]| {
        let taken = tile.iter().enumerate().filter(|(_, weight)| **weight != 0);
        taken
            .map(|(at, _)| [(at / block) as u32, (at % block) as u32])
            .collect()
    };
    bytes.chunks(block * block).map(tile).collect()
}

fn insns(
    program: &Program,
    buffers: &[ListedBuffer],
    layer: &Layer,
) -> Result<Vec<ListedInsn>, ListingError> {
    let mut listed = Vec::with_capacity(layer.commands.len());
    let (mut tile, mut stored) = (0, false);
    let base = |mem: MemType, symbol: Symbol, relative: u32| {
        let Symbol::Buffer(id) = symbol else {
            return Ok(relative);
        };
        let start = buffers.get(id.0 as usize).map(|buffer| buffer.start);
        let first = start.map(|start| start / program.config.elem_bytes(mem) as u64);
        let base = first.and_then(|first| u32::try_from(first + u64::from(relative)).ok());
        let none = || ListingError::Program(format!("layer {}: a buffer is missing", layer.name));
        base.ok_or_else(none)
    };
    for (at, command) in (0..).zip(&layer.commands) {
        let mut insn = command.insn;
        if let Some((mem, first)) = insn.dram_base_mut() {
            *first = base(mem, command.symbol, *first)?;
        }
        let stores = matches!(&insn, Insn::Store(store) if !store.is_sync());
        // A tile of outputs ends with its stores: what follows is for the next.
        if stored && !matches!(insn, Insn::Store(_)) {
            (tile, stored) = (tile + 1, false);
        }
        stored |= stores;
        listed.push(ListedInsn {
            insn,
            kernel: match command.symbol {
                Symbol::Kernel(id) => Some(id.0),
                Symbol::None | Symbol::Buffer(_) => None,
            },
            tile,
            cut: layer.cuts.contains(&at),
        });
    }
    Ok(listed)
}
