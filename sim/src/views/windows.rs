//! Which layer an instruction belongs to, and where one layer ends and the next begins.

use vta_driver::LayerMark;

/// The layers of a batch in program order.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    names: Vec<String>,
    first: Vec<usize>,
}

impl Layers {
    /// Instructions before the first mark belong to a layer `(start)`; without marks everything is
    /// one layer `(run)`.
    pub(super) fn new(marks: &[LayerMark]) -> Self {
        let mut names = Vec::with_capacity(marks.len() + 1);
        let mut first = Vec::with_capacity(marks.len() + 1);
        match marks.first() {
            None => {
                names.push("(run)".to_owned());
                first.push(0);
            }
            Some(mark) if mark.first_insn > 0 => {
                names.push("(start)".to_owned());
                first.push(0);
            }
            Some(_) => {}
        }
        for mark in marks {
            names.push(mark.name.clone());
            first.push(mark.first_insn);
        }
        Self { names, first }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The layer of an instruction.
    pub(super) fn of(&self, insn: usize) -> usize {
        let after = self.first.partition_point(|&first| first <= insn);
        after.saturating_sub(1)
    }
}

/// Ends of layers: a layer is over when all its instructions and all layers before it are done.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// Instructions of each layer that are not done; FINISH is never done.
    left: Vec<usize>,
    /// One past the last done cycle so far.
    done_by: Vec<u64>,
    /// One past the last cycle of each layer that is over.
    ends: Vec<u64>,
}

impl Windows {
    /// For a batch of `insns` instructions, FINISH included.
    pub(super) fn new(layers: &Layers, insns: usize) -> Self {
        let mut left = vec![0; layers.names.len()];
        for insn in 0..insns {
            left[layers.of(insn)] += 1;
        }
        Self {
            done_by: vec![0; left.len()],
            ends: Vec::with_capacity(left.len()),
            left,
        }
    }

    /// An instruction of `layer` was done in `cycle`; whether this ended a layer.
    pub(super) fn done(&mut self, layer: usize, cycle: u64) -> bool {
        self.left[layer] = self.left[layer].saturating_sub(1);
        self.done_by[layer] = self.done_by[layer].max(cycle + 1);
        let before = self.ends.len();
        // The last layer is over with the run.
        while self.ends.len() + 1 < self.left.len() && self.left[self.ends.len()] == 0 {
            let open = self.ends.len();
            self.ends.push(self.done_by[open].max(self.start_of(open)));
        }
        self.ends.len() > before
    }

    /// The run has `cycles`: every layer is over.
    pub(super) fn finish(&mut self, cycles: u64) {
        while self.ends.len() < self.left.len() {
            let open = self.ends.len();
            let last = open + 1 == self.left.len();
            let end = if last { cycles } else { self.done_by[open] };
            self.ends.push(end.max(self.start_of(open)).min(cycles));
        }
    }

    /// Ends of the layers that are over, in ascending order.
    pub(super) fn ended(&self) -> &[u64] {
        &self.ends
    }

    /// The first layer that isn't over.
    pub(super) fn open(&self) -> usize {
        self.ends.len().min(self.left.len() - 1)
    }

    /// The cycle after the layer's last, if it is over.
    pub(super) fn end_of(&self, layer: usize) -> Option<u64> {
        self.ends.get(layer).copied()
    }

    /// The first cycle of a layer whose predecessors are over.
    pub(super) fn start_of(&self, layer: usize) -> u64 {
        layer.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(name: &str, first_insn: usize) -> LayerMark {
        LayerMark {
            name: name.to_owned(),
            first_insn,
        }
    }

    #[test]
    fn instructions_belong_to_the_mark_before_them() {
        for (marks, at, name) in [
            (vec![], 7, "(run)"),
            (vec![mark("a", 0), mark("b", 4)], 3, "a"),
            (vec![mark("a", 0), mark("b", 4)], 4, "b"),
            (vec![mark("a", 2)], 1, "(start)"),
            (vec![mark("a", 2)], 2, "a"),
        ] {
            let layers = Layers::new(&marks);
            assert_eq!(layers.names()[layers.of(at)], name);
        }
    }

    #[test]
    fn a_layer_ends_with_its_last_instruction_and_not_before_the_one_ahead() {
        let layers = Layers::new(&[mark("a", 0), mark("b", 2), mark("c", 3)]);
        let mut windows = Windows::new(&layers, 5);
        assert!(!windows.done(0, 10));
        assert!(!windows.done(1, 12), "b is done, a is not");
        assert!(windows.done(0, 20));
        assert_eq!((windows.end_of(0), windows.end_of(1)), (Some(21), Some(21)));
        assert_eq!(windows.open(), 2);
        windows.done(2, 30);
        windows.finish(40);
        assert_eq!((windows.start_of(2), windows.end_of(2)), (21, Some(40)));
    }
}
