//! The activation scales of the networks, recorded: calibrating computes in floats, whose last bits
//! depend on the CPU, and takes longer than all else that a network takes to build.

use super::error::ZooError;
use crate::graph::Graph;
use crate::quantize::{Mode, Scales, equal_scales};

/// A line for each network and mode: their names and the bits of the scales, by value.
const RECORDED: &str = include_str!("scales.txt");

/// The name of a mode in the list.
pub(super) const fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Multiply => "multiply",
        Mode::Shift => "shift",
    }
}

/// The scales of a network's values.
///
/// # Errors
/// [`ZooError::Scales`] where the list and the topology contradict each other.
pub(super) fn recorded(name: &str, graph: &Graph, mode: Mode) -> Result<Scales, ZooError> {
    let lines = RECORDED.lines().map(str::split_ascii_whitespace);
    let mut named = lines.filter_map(|mut words| {
        let found = words.next() == Some(name) && words.next() == Some(word(mode));
        found.then_some(words)
    });
    let fail = || ZooError::Scales(name.to_owned());
    let mut bits = named.next().ok_or_else(fail)?;
    let mut scales = equal_scales(graph, 1.0);
    for scale in scales.iter_mut().flatten() {
        let word = bits.next().ok_or_else(fail)?;
        scale.step = f32::from_bits(u32::from_str_radix(word, 16).map_err(|_| fail())?);
    }
    match bits.next() {
        None => Ok(scales),
        Some(_) => Err(fail()),
    }
}
