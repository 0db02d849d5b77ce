//! GEMM instructions that are no matrix products: a bias (the same constant input for every
//! sum) and a residual (a diagonal weight tile). Both become lane-wise steps of the product
//! whose sums they add to.

use std::borrow::Cow;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_driver::{DeviceMemory, Span};
use vta_isa::resolve::{Interval, TileSet};
use vta_isa::{AluOp, Config};

use super::draft::{Matmul, OperandDraft, Vector, Weight};
use super::places::Places;
use crate::kernels::PADDING;
use crate::kernels::direct::add_tile;

/// Whether a weight tile, of `block` inputs and outputs, has nothing beside its diagonal.
pub(super) fn is_diagonal(tile: &[u8], block: usize) -> bool {
    let mut pieces = tile.chunks(block + 1);
    pieces.all(|piece| piece[1..].iter().all(|&w| w == 0))
}

/// A tile that has a tap of each channel on its diagonal, of a tile whose rows have the taps of a channel.
pub(super) fn diagonal_of(tile: &[u8], tap: u8, block: usize) -> Vec<u8> {
    let mut diagonal = vec![0; block * block];
    let taps = tile.iter().skip(tap.into()).step_by(block);
    let places = diagonal.iter_mut().step_by(block + 1);
    places.zip(taps).for_each(|(to, from)| *to = *from);
    diagonal
}

/// Reads tiles of weights and inputs in DRAM.
#[derive(Clone, Copy)]
pub(crate) struct TileReader<'a> {
    pub config: &'a Config,
    pub memory: &'a DeviceMemory,
}

impl<'a> TileReader<'a> {
    /// A weight tile's bytes, `[output][input]`; none for padding or the scratchpad's own.
    fn weights(&self, weight: &Weight) -> Option<Cow<'a, [u8]>> {
        let block = self.config.block();
        let tile = weight.read(block * block, self.memory)?;
        Some(match weight {
            Weight::Tap { tap, .. } => Cow::Owned(diagonal_of(&tile, *tap, block)),
            _ => tile,
        })
    }

    /// The diagonal of a weight tile that has nothing beside it.
    fn diagonal(&self, weight: &Weight) -> Option<Vector> {
        let (block, tile) = (self.config.block(), self.weights(weight)?);
        let diagonal = tile.iter().step_by(block + 1).map(|&w| i32::from(w as i8));
        is_diagonal(&tile, block).then(|| diagonal.collect())
    }

    /// Whether a product has taps, all of diagonal weights.
    pub fn is_diagonal(&self, matmul: &Matmul) -> bool {
        let block = self.config.block();
        let diagonal = |weight| {
            self.weights(weight)
                .is_some_and(|tile| is_diagonal(&tile, block))
        };
        !matmul.has_no_taps() && matmul.weights.iter().all(diagonal)
    }

    /// The products of one GEMM as scaled inputs, if that is all they are: the factors of each group,
    /// and the DRAM that is read.
    pub fn scaled(&self, parts: &[(Matmul, Rc<TileSet>)]) -> Option<(Vec<Vector>, Span)> {
        let mut all = Vec::new();
        let mut known: FxHashMap<Weight, Vector> = FxHashMap::default();
        let mut read: Option<Span> = None;
        for (matmul, _) in parts {
            let span = matmul.read?;
            if matmul.inputs.len() != matmul.positions.len()
                || read.is_some_and(|r| r.region != span.region)
            {
                return None;
            }
            read = Some(read.map_or(span, |r| r.hull(&span)));
            // One tap: a weight for each group.
            for weight in &matmul.weights {
                let factors = match known.get(weight) {
                    Some(factors) => factors,
                    None => {
                        let diagonal = self.diagonal(weight)?;
                        known.entry(*weight).or_insert(diagonal)
                    }
                };
                all.push(factors.clone());
            }
            if matmul.inputs.iter().any(|start| start == PADDING) {
                return None;
            }
        }
        Some((all, read?))
    }

    /// Makes a product whose sums are all over the same input tiles, which may be taken as constants, an addition of
    /// constants; the spans of those inputs, which are constants from then on.
    pub fn fix(&self, matmul: &mut Matmul, may_be: impl Fn(&Span) -> bool) -> Option<Vec<Span>> {
        let positions = matmul.positions.len();
        let (lanes, block) = (self.config.lanes(), self.config.block());
        let region = matmul.read?.region;
        if matmul.groups.iter().any(|group| group.shift > 0) {
            return None;
        }
        let mut spans = Vec::new();
        for (tap, from) in matmul.inputs.taps(positions) {
            let &first = tap.first()?;
            if first == PADDING || tap.iter().any(|&start| start != first) {
                return None;
            }
            let (start, len) = ((first + from) as usize, lanes);
            spans.push(Span { region, start, len });
        }
        let constant = |span: &Span| may_be(span) && self.rows_are_equal(span, block);
        if !spans.iter().all(constant) {
            return None;
        }
        let bytes = self.memory.region(region);
        let sums = (0..matmul.groups.len()).map(|group| {
            let mut sums = vec![0i32; block];
            for (weight, span) in matmul.weights_of(group).iter().zip(&spans) {
                let input = bytes.get(span.start..span.start + block)?;
                add_tile(&mut sums, input, &self.weights(weight)?);
            }
            Some(Vector::from(sums))
        });
        let sums: Vec<Vector> = sums.collect::<Option<_>>()?;
        matmul.inputs = Places::default();
        matmul.weights.clear();
        matmul.read = None;
        matmul.after = vec![(AluOp::Add, OperandDraft::Values(sums))];
        Some(spans)
    }

    /// Whether there is a tile there whose batch rows, of so many bytes, are the same.
    pub fn rows_are_equal(&self, span: &Span, row_bytes: usize) -> bool {
        let tile = super::bytes(self.memory, span).unwrap_or_default();
        let mut rows = tile.chunks_exact(row_bytes);
        rows.next()
            .is_some_and(|first| rows.all(|row| row == first))
    }
}
