//! What sums are made of.

use crate::listing::{Geometry, ListedLayer, Listing, Role, find};
use vta_isa::MemType;

/// A part of a sum, in 64 bits: above, the weight tile's index in DRAM and one, 0 for a tile as it is, or
/// [`Term::CONSTANT`]; below, the index in DRAM of the input tile, or of the accumulator tile of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub u64);

impl Term {
    const CONSTANT: u64 = u32::MAX as u64;
    /// Set where a tap of a weight tile is counted, not a tile.
    const TAP: u64 = 1 << 31;

    /// A zero of padding that met an operation of the ALU.
    pub const PADDING: Self = Self(u64::MAX);

    /// An input tile as it is.
    pub const fn copy(tile: u64) -> Self {
        Self(tile & 0xffff_ffff)
    }

    /// An input tile times a weight tile.
    pub const fn product(wgt: u64, inp: u64) -> Self {
        Self((wgt + 1) << 32 | inp & 0xffff_ffff)
    }

    /// An input tile times a tap of a weight tile, channel by channel: `tap` counts the taps of all tiles in DRAM, each
    /// of which has `BLOCK`.
    pub const fn tap(tap: u64, inp: u64) -> Self {
        Self::product(Self::TAP | tap, inp)
    }

    /// A constant in the accumulators.
    pub const fn constant(tile: u64) -> Self {
        Self(Self::CONSTANT << 32 | tile & 0xffff_ffff)
    }

    /// In words, with the coordinates that a layer gives its tensors and constants.
    pub fn show(self, listing: &Listing, layer: &ListedLayer) -> String {
        let (above, below) = (self.0 >> 32, self.0 & 0xffff_ffff);
        let place = |mem: MemType, at: u64| {
            let (spaces, elem) = (listing.spaces(layer), listing.config.elem_bytes(mem) as u64);
            let shown = find(&spaces, at * elem, elem).map(|(at, place)| spaces[at].show(place));
            shown.unwrap_or_else(|| format!("DRAM 0x{:x}", at * elem))
        };
        if self == Self::PADDING {
            return "a zero of padding".to_owned();
        }
        match above {
            0 => format!("operand {}", place(MemType::Inp, below)),
            Self::CONSTANT => format!("constant {}", place(MemType::Acc, below)),
            wgt => format!(
                "{} with {}",
                weight(listing, layer, wgt - 1),
                place(MemType::Inp, below)
            ),
        }
    }
}

/// A weight tile: of a convolution, its product.
fn weight<'l>(listing: &Listing, layer: &'l ListedLayer, at: u64) -> String {
    let at = match at & Term::TAP {
        0 => at,
        _ => (at & !Term::TAP) / listing.config.block() as u64,
    };
    let first4 = listing.first_wgt4();
    let (mem, tile) = match at.checked_sub(first4) {
        Some(tile) => (MemType::Wgt4, tile),
        None => (MemType::Wgt, at),
    };
    let addr = tile * listing.config.elem_bytes(mem) as u64;
    let constants =
        |geometry: &'l Geometry| geometry.constants.iter().map(move |of| (geometry, of));
    let mut found = layer
        .geometry
        .all()
        .flat_map(constants)
        .filter(|(_, (_, buffer))| {
            let buffer = &listing.buffers[*buffer as usize];
            (buffer.start..buffer.start + buffer.bytes).contains(&addr)
        });
    let Some((geometry, &(role, buffer))) = found.next() else {
        return format!("product of weights at DRAM 0x{addr:x}");
    };
    let space = listing.constant_space(geometry, role, buffer);
    match (role, space.place(addr)) {
        (Role::Weights | Role::Weights4, Some([o, i, ky, kx, part])) => {
            let part = if space.sizes[4] > 1 {
                format!(", part {part}")
            } else {
                String::new()
            };
            format!("product [i {i}, ky {ky}, kx {kx}{part}] of o {o}")
        }
        (_, Some(place)) => format!("product of {}", space.show(place)),
        (_, None) => format!("product of {} at DRAM 0x{addr:x}", role.name()),
    }
}
