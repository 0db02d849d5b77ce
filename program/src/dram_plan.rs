//! Which buffers share device memory: what a network needs at once, not all it ever writes.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use serde::Serialize;

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
    // What all places are multiples of.
    let granule = PAGE_BYTES.max(program.config.max_elem_bytes());
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
mod tests;
