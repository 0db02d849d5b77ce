//! Boards in a build without the feature `board`.

use super::kind::Kind;
use super::missing;

pub(super) const KIND: Kind = Kind {
    name: "board",
    then: &[':'],
    form: "board:NAME",
    meant: &[],
    single: true,
    check: |_| Err(missing("board")),
    open: |_, _, _| Err(missing("board")),
};

/// The preset of a board's machine that the preset of its registers comes with.
pub(crate) fn preset(_: &str) -> Option<&str> {
    None
}

/// The presets whose memory is here.
pub(crate) fn found() -> Vec<(String, String)> {
    Vec::new()
}
