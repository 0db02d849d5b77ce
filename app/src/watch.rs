//! Whom long work tells how far it is.

use crate::options::names::Said;

/// Is told of progress and of what is worth knowing; the terminal draws a bar. Work goes on
/// whatever it does with that.
pub trait Watch: Sync {
    /// `done` of `all` images, layers or points are finished; first called with 0. Calls come from
    /// several threads, not always in the order of `done`.
    fn progress(&self, done: usize, all: usize);

    /// Whether to stop: what has begun ends, nothing new begins, and the work's result is an error.
    fn cancelled(&self) -> bool {
        false
    }

    /// Called a few times a second by the thread that began a run, while others work for it, for what
    /// that thread alone can do: Python hears of signals on its first thread. `cancelled` is asked next.
    fn waiting(&self) {}

    /// A remark for whoever started the work: one line.
    fn note(&self, text: &Said);
}

/// Part of longer work: its remarks are told, its progress isn't.
pub(crate) struct Part<'a>(pub &'a dyn Watch);

impl Watch for Part<'_> {
    fn progress(&self, _: usize, _: usize) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }

    fn waiting(&self) {
        self.0.waiting();
    }

    fn note(&self, text: &Said) {
        self.0.note(text);
    }
}

/// Nobody watches.
impl Watch for () {
    fn progress(&self, _: usize, _: usize) {}

    fn note(&self, _: &Said) {}
}
