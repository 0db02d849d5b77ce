//! Which buffers share device memory: what a network needs at once, not all it ever writes.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use serde::Serialize;
use vta_isa::MemType;

use crate::{BufferId, BufferKind, Program, Symbol};

/// Allocation granularity and alignment, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Places of a program's scratch buffers in one piece of device memory.
///
/// A scratch buffer is in use from the first layer that names it to the last. Buffers that are
/// never in use in the same layer may share bytes, also where layers overlap (see
/// [`crate::Layer`]): a layer's stores come after its own computation, which comes after that of
/// the layer before, which comes after all that the layer before has read; and stores are in
/// order. Inputs, outputs and constants share with nobody.
///
/// ```
/// use vta_program::{DramPlan, Program};
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
    /// Bytes of the same buffers, each in whole pages, if none shared: at least
    /// [`Self::scratch_bytes`].
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

/// The buffers that have places, by the layers that they are in use in: those that a buffer meets
/// are found without a look at the others.
struct Placed<'l> {
    /// By first layer.
    starts: BTreeMap<usize, Vec<(u64, &'l Life)>>,
    /// A tree over the layers, leaves from `leaves` on: each buffer is at the fewest vertices that
    /// cover its layers, so that the vertices above a layer have all that are in use in it.
    covers: Vec<Vec<(u64, &'l Life)>>,
    leaves: usize,
}

impl<'l> Placed<'l> {
    fn new(layers: usize) -> Self {
        Self {
            starts: BTreeMap::new(),
            covers: vec![Vec::new(); 2 * layers],
            leaves: layers,
        }
    }

    fn insert(&mut self, start: u64, life: &'l Life) {
        let (first, last) = (*life.layers.start(), *life.layers.end());
        let starts = self.starts.entry(first).or_default();
        starts.push((start, life));
        let (mut from, mut to) = (first + self.leaves, last + self.leaves + 1);
        while from < to {
            if !from.is_multiple_of(2) {
                self.covers[from].push((start, life));
                from += 1;
            }
            if !to.is_multiple_of(2) {
                to -= 1;
                self.covers[to].push((start, life));
            }
            (from, to) = (from / 2, to / 2);
        }
    }

    /// The bytes of all that are in use in one of a buffer's layers, in no order.
    fn meeting(&self, life: &Life) -> Vec<(u64, u64)> {
        let (first, last) = (*life.layers.start(), *life.layers.end());
        let later = (Bound::Excluded(first), Bound::Included(last));
        let mut found: Vec<_> = self.starts.range(later).flat_map(|(_, all)| all).collect();
        let mut vertex = first + self.leaves;
        while vertex > 0 {
            found.extend(&self.covers[vertex]);
            vertex /= 2;
        }
        let bytes = found.into_iter();
        bytes.map(|(at, life)| (*at, at + life.bytes)).collect()
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
                BufferKind::Scratch => continue,
            };
            *total = total.saturating_add(buffer.size_bytes);
        }
        let mut lives = lives(program);
        lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.buffer));
        let mut placed = Placed::new(program.layers.len());
        for life in &lives {
            let start = lowest(life, placed.meeting(life));
            plan.unshared_bytes = plan.unshared_bytes.saturating_add(life.bytes);
            plan.scratch_bytes = plan.scratch_bytes.max(start.saturating_add(life.bytes));
            plan.offsets[life.buffer] = Some(start);
            placed.insert(start, life);
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

/// The lowest start at which a buffer meets none of the bytes that are taken.
fn lowest(life: &Life, mut taken: Vec<(u64, u64)>) -> u64 {
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
        // Like is compared with like: whole pages.
        assert_eq!(plan.scratch_bytes, PAGE_BYTES);
        assert_eq!(plan.unshared_bytes, PAGE_BYTES);
    }

    /// Whether two buffers are in use in one layer.
    fn meets(a: &Life, b: &Life) -> bool {
        a.layers.start() <= b.layers.end() && b.layers.start() <= a.layers.end()
    }

    proptest! {
        #[test]
        fn what_meets_is_found(
            spans in prop::collection::vec((0usize..30, 0usize..30), 0..40),
        ) {
            let lives: Vec<Life> = (spans.iter().enumerate())
                .map(|(buffer, &(a, b))| Life { buffer, bytes: 1, layers: a.min(b)..=a.max(b) })
                .collect();
            let mut placed = Placed::new(30);
            for (start, life) in lives.iter().enumerate() {
                let mut found = placed.meeting(life);
                found.sort_unstable();
                let earlier = lives[..start].iter().filter(|other| meets(life, other));
                let expected: Vec<_> =
                    earlier.map(|l| (l.buffer as u64, l.buffer as u64 + 1)).collect();
                prop_assert_eq!(found, expected);
                placed.insert(start as u64, life);
            }
        }

        #[test]
        fn buffers_in_use_together_share_no_byte(
            sizes in prop::collection::vec(0u64..40_000, 1..12),
            uses in prop::collection::vec(prop::collection::vec(0u32..12, 1..4), 1..10),
        ) {
            let program = program(&sizes, &uses);
            let plan = DramPlan::of(&program);
            prop_assert!(plan.scratch_bytes <= plan.unshared_bytes);
            let lives = lives(&program);
            for (i, a) in lives.iter().enumerate() {
                let start = plan.offsets[a.buffer].unwrap();
                prop_assert!(start.is_multiple_of(PAGE_BYTES) && start + a.bytes <= plan.scratch_bytes);
                for b in &lives[..i] {
                    let other = plan.offsets[b.buffer].unwrap();
                    let apart = start + a.bytes <= other || other + b.bytes <= start;
                    prop_assert!(apart || !meets(a, b), "{} and {}", a.buffer, b.buffer);
                }
            }
        }
    }
}
