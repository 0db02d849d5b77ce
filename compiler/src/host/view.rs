//! Where the values of a table come from: dimensions of an input with their strides.

use serde::{Deserialize, Serialize};

/// The most dimensions of a view.
const MOST_DIMENSIONS: usize = 64;

/// Where values come from: the first from `offset`, and then along dimensions, of which the last is the innermost, so many
/// at a stride.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Which input.
    pub input: usize,
    pub offset: usize,
    /// Sizes and strides.
    pub dimensions: Vec<[usize; 2]>,
}

impl View {
    /// A whole input of so many values.
    pub fn whole(input: usize, count: usize) -> Self {
        Self {
            input,
            offset: 0,
            dimensions: vec![[count, 1]],
        }
    }

    /// Whether it is a whole input as that lies.
    pub fn is_whole(&self, count: usize) -> bool {
        *self == Self::whole(self.input, count)
    }

    /// How many values it gives.
    pub fn count(&self) -> usize {
        self.dimensions.iter().map(|[size, _]| size).product()
    }

    /// Whether it gives so many values and reads none beyond so many, each once at most.
    pub fn fits(&self, given: usize, read: usize) -> bool {
        let mut count = 1usize;
        let mut last = Some(self.offset);
        for &[size, stride] in &self.dimensions {
            count = count.saturating_mul(size);
            let reach = size.checked_sub(1).and_then(|n| n.checked_mul(stride));
            last = last.zip(reach).and_then(|(a, b)| a.checked_add(b));
        }
        let few = self.dimensions.len() <= MOST_DIMENSIONS;
        few && count == given && last.is_some_and(|last| last < read)
    }

    /// Calls with each place, in order, and the place of the input that it comes from.
    pub fn each(&self, mut call: impl FnMut(usize, usize)) {
        let Some((&[size, stride], outer)) = self.dimensions.split_last() else {
            return call(0, self.offset);
        };
        let mut at = vec![0usize; outer.len()];
        let (mut to, mut from) = (0, self.offset);
        loop {
            for i in 0..size {
                call(to + i, from + i * stride);
            }
            to += size;
            // The innermost that isn't at its end goes on; those within it begin again.
            let mut dimension = outer.len();
            loop {
                let Some(next) = dimension.checked_sub(1) else {
                    return;
                };
                dimension = next;
                let [size, stride] = outer[dimension];
                at[dimension] += 1;
                from += stride;
                if at[dimension] < size {
                    break;
                }
                from -= size * stride;
                at[dimension] = 0;
            }
        }
    }

    /// As few dimensions as there can be.
    pub fn joined(mut self) -> Self {
        let mut kept: Vec<[usize; 2]> = Vec::new();
        for [size, stride] in self.dimensions {
            match kept.last_mut() {
                _ if size == 1 => {}
                Some(last) if last[1] == size * stride => *last = [last[0] * size, stride],
                _ => kept.push([size, stride]),
            }
        }
        if kept.is_empty() {
            kept.push([1, 1]);
        }
        self.dimensions = kept;
        self
    }
}
