//! Boards in a build without the feature `board`.

use super::kind::Opened;

pub(super) const OPENED: Option<Opened> = None;

/// The preset of a board's machine that the preset of its registers comes with.
pub(crate) fn preset(_: &str) -> Option<&str> {
    None
}

/// The presets whose memory is here.
pub(crate) fn found() -> Vec<(String, String)> {
    Vec::new()
}
