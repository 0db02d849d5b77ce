//! Where operations come from.

/// Instructions that an operation stands for, by their index, each with the name of the pass that
/// brought it there; none if the operation was made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin(Vec<(u32, Option<&'static str>)>);

impl Origin {
    pub fn of(insn: usize) -> Self {
        Self(vec![(insn as u32, None)])
    }

    /// Takes what a pass has joined to the operation.
    pub fn take(&mut self, other: Self, pass: &'static str) {
        let parts = other.0.into_iter();
        self.0
            .extend(parts.map(|(insn, by)| (insn, by.or(Some(pass)))));
    }

    /// The instructions, ascending.
    pub fn insns(&self) -> Vec<(u32, Option<&'static str>)> {
        let mut list = self.0.clone();
        list.sort_unstable();
        list.dedup();
        list
    }
}
