//! Which buffers share device memory: what a network needs at once, not all it ever writes.

use std::ops::RangeInclusive;

use serde::Serialize;
use vta_isa::MemType;

use crate::{BufferId, BufferKind, PAGE_BYTES, Program, Symbol};

/// Places of a program's scratch buffers in one piece of device memory.
///
/// A scratch buffer is in use from the first layer that names it to the last. Buffers that are
/// never in use in the same layer may share bytes, also where layers overlap (see
/// [`crate::Layer`]): a layer's stores come after its own computation, which comes after that of
/// the layer before, which comes after all that the layer before has read; and stores are in
/// order. Inputs, outputs and constants share with nobody.
///
/// ```
/// use vta_driver::{DramPlan, Program};
///
/// let plan = DramPlan::of(&Program::default());
/// assert_eq!(plan.total_bytes(), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DramPlan {
    /// For each buffer, where it starts in the shared piece; `None` for one of its own.
    #[serde(skip)]
    pub offsets: Vec<Option<u64>>,
    /// Bytes of the shared piece, whole pages.
    pub scratch_bytes: u64,
    /// Bytes of all scratch buffers if none shared.
    pub unshared_bytes: u64,
    /// Bytes of inputs and outputs.
    pub io_bytes: u64,
    /// Bytes of constants.
    pub constant_bytes: u64,
}

/// A scratch buffer and the layers that name it.
struct Life {
    buffer: usize,
    bytes: u64,
    layers: RangeInclusive<usize>,
}

impl Life {
    fn meets(&self, other: &Self) -> bool {
        self.layers.start() <= other.layers.end() && other.layers.start() <= self.layers.end()
    }
}

impl DramPlan {
    /// The plan of a program whose commands name buffers that it has; others are passed over.
    /// Starts are multiples of [`PAGE_BYTES`] and of every element's bytes. The largest buffers are placed first, each as low
    /// as those allow that are in use with it: the same program has the same plan.
    pub fn of(program: &Program) -> Self {
        let mut plan = Self {
            offsets: vec![None; program.buffers.len()],
            ..Self::default()
        };
        for buffer in &program.buffers {
            let total = match buffer.kind {
                BufferKind::Constant(_) => &mut plan.constant_bytes,
                BufferKind::Input | BufferKind::Output => &mut plan.io_bytes,
                BufferKind::Scratch => &mut plan.unshared_bytes,
            };
            *total = total.saturating_add(buffer.size_bytes);
        }
        let mut lives = lives(program);
        lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.buffer));
        let mut placed: Vec<(u64, &Life)> = Vec::with_capacity(lives.len());
        for life in &lives {
            let start = lowest(life, &placed);
            plan.scratch_bytes = plan.scratch_bytes.max(start.saturating_add(life.bytes));
            plan.offsets[life.buffer] = Some(start);
            placed.push((start, life));
        }
        plan
    }

    /// Device memory of all buffers, instructions and micro-ops not counted.
    pub const fn total_bytes(&self) -> u64 {
        self.scratch_bytes
            .saturating_add(self.io_bytes)
            .saturating_add(self.constant_bytes)
    }
}

/// What all places are multiples of: a page, or the largest element where that is larger.
fn granule(program: &Program) -> u64 {
    let bytes = MemType::ALL.map(|mem| program.config.elem_bytes(mem) as u64);
    bytes.into_iter().fold(PAGE_BYTES, u64::max)
}

fn lives(program: &Program) -> Vec<Life> {
    let mut layers: Vec<Option<RangeInclusive<usize>>> = vec![None; program.buffers.len()];
    for (index, layer) in program.layers.iter().enumerate() {
        for command in &layer.commands {
            let Symbol::Buffer(BufferId(id)) = command.symbol else {
                continue;
            };
            if let Some(life) = layers.get_mut(id as usize) {
                let first = life.as_ref().map_or(index, |l| *l.start());
                *life = Some(first..=index);
            }
        }
    }
    let ends = program.inputs.iter().chain(&program.outputs);
    let ends = ends.filter_map(|&tensor| program.tensors.get(tensor as usize));
    let ends: Vec<usize> = ends.map(|tensor| tensor.buffer.0 as usize).collect();
    let granule = granule(program);
    let scratch = |(buffer, layers): (usize, Option<RangeInclusive<usize>>)| {
        let of = &program.buffers[buffer];
        let bytes = of.size_bytes.max(1).checked_next_multiple_of(granule)?;
        (of.kind == BufferKind::Scratch && !ends.contains(&buffer)).then_some(Life {
            buffer,
            bytes,
            layers: layers?,
        })
    };
    layers.into_iter().enumerate().filter_map(scratch).collect()
}

/// The lowest start at which a buffer meets none that is in use with it.
fn lowest(life: &Life, placed: &[(u64, &Life)]) -> u64 {
    let mut taken: Vec<_> = placed
        .iter()
        .filter(|(_, other)| life.meets(other))
        .map(|(start, other)| (*start, start + other.bytes))
        .collect();
    taken.sort_unstable();
    let mut start = 0u64;
    for (from, to) in taken {
        if start.saturating_add(life.bytes) <= from {
            break;
        }
        start = start.max(to);
    }
    start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vta_isa::Load;

    use super::*;
    use crate::{Buffer, Command, Layer};

    /// A program whose buffers have these sizes, and whose layers name these buffers.
    fn program(sizes: &[u64], layers: &[Vec<u32>]) -> Program {
        let buffer = |(i, &size_bytes): (usize, &u64)| Buffer {
            name: format!("b{i}"),
            size_bytes,
            kind: BufferKind::Scratch,
        };
        let layer = |names: &Vec<u32>| Layer {
            commands: names
                .iter()
                .map(|&id| Command {
                    insn: Load::default().into(),
                    symbol: Symbol::Buffer(BufferId(id)),
                })
                .collect(),
            ..Layer::default()
        };
        Program {
            buffers: sizes.iter().enumerate().map(buffer).collect(),
            layers: layers.iter().map(layer).collect(),
            ..Program::default()
        }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let page = PAGE_BYTES;
        let chain = program(
            &[page; 5],
            &[vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 4]],
        );
        let plan = DramPlan::of(&chain);
        assert_eq!(
            (plan.scratch_bytes, plan.unshared_bytes),
            (2 * page, 5 * page)
        );
        // A shortcut around two layers needs a third.
        let shortcut = program(&[page; 4], &[vec![0, 1], vec![1, 2], vec![2, 0, 3]]);
        assert_eq!(DramPlan::of(&shortcut).scratch_bytes, 3 * page);
    }

    #[test]
    fn only_scratch_that_is_named_has_a_place() {
        let mut some = program(&[10, 20, 30, 40], &[vec![0, 1, 9], vec![1]]);
        some.buffers[1].kind = BufferKind::Input;
        some.buffers[3].kind = BufferKind::Constant(vec![0; 40].into());
        let plan = DramPlan::of(&some);
        assert_eq!(plan.offsets, [Some(0), None, None, None]);
        assert_eq!((plan.io_bytes, plan.constant_bytes), (20, 40));
        assert_eq!((plan.scratch_bytes, plan.unshared_bytes), (PAGE_BYTES, 40));
    }

    proptest! {
        #[test]
        fn buffers_in_use_together_share_no_byte(
            sizes in prop::collection::vec(0u64..40_000, 1..12),
            uses in prop::collection::vec(prop::collection::vec(0u32..12, 1..4), 1..10),
        ) {
            let program = program(&sizes, &uses);
            let plan = DramPlan::of(&program);
            let lives = lives(&program);
            for (i, a) in lives.iter().enumerate() {
                let start = plan.offsets[a.buffer].unwrap();
                prop_assert!(start.is_multiple_of(PAGE_BYTES) && start + a.bytes <= plan.scratch_bytes);
                for b in &lives[..i] {
                    let other = plan.offsets[b.buffer].unwrap();
                    let apart = start + a.bytes <= other || other + b.bytes <= start;
                    prop_assert!(apart || !a.meets(b), "{} and {}", a.buffer, b.buffer);
                }
            }
        }
    }
}
