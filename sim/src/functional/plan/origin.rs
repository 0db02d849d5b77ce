//! Where operations come from.

/// Instructions that an operation stands for, by their index, each with the name of the pass that
/// brought it there; none if the operation was made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    own: Option<u32>,
    taken: Vec<(u32, &'static str)>,
}

impl Origin {
    pub fn of(insn: usize) -> Self {
        let own = Some(insn as u32);
        Self {
            own,
            taken: Vec::new(),
        }
    }

    /// Takes what a pass has joined to the operation.
    pub fn take(&mut self, other: Self, pass: &'static str) {
        self.taken.extend(other.own.map(|insn| (insn, pass)));
        self.taken.extend(other.taken);
    }

    /// The instructions, ascending.
    pub fn insns(&self) -> Vec<(u32, Option<&'static str>)> {
        let own = self.own.map(|insn| (insn, None));
        let taken = self.taken.iter().map(|&(insn, by)| (insn, Some(by)));
        let mut list: Vec<_> = own.into_iter().chain(taken).collect();
        list.sort_unstable();
        list.dedup();
        list
    }
}
