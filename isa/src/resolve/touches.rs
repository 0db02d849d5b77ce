//! Scratchpad tiles of an instruction, whatever its kind.

use super::{Resolved, TileSet};
use crate::MemType;

/// Tiles that an instruction reads and writes, by the scratchpad that holds them: ACC for ACC8 and OUT. Sums that it adds
/// to count as written. Micro-ops that it runs aren't listed, nor those that it loads beyond
/// [`MAX_TILES`](super::MAX_TILES).
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// Reads, a set for each operand.
    pub reads: Vec<(MemType, TileSet)>,
    /// Writes.
    pub writes: Option<(MemType, TileSet)>,
}

impl Resolved<'_> {
    /// The tiles that the instruction touches.
    pub fn touches(&self) -> Touches {
        let range = |range: &std::ops::Range<usize>| TileSet::range(range.clone());
        let (reads, writes) = match self {
            Self::Sync => (Vec::new(), None),
            Self::Load(access) => {
                let mem = match access.load.mem {
                    MemType::Acc8 | MemType::Out => MemType::Acc,
                    MemType::Wgt4 => MemType::Wgt,
                    mem @ (MemType::Uop | MemType::Inp | MemType::Wgt | MemType::Acc) => mem,
                };
                (Vec::new(), Some((mem, range(&access.entries))))
            }
            Self::Store(access) => {
                let mut all = range(&access.tiles);
                let operands = access.operands.iter();
                operands.for_each(|tiles| all.add(&range(tiles)));
                (vec![(MemType::Acc, all)], None)
            }
            Self::Gemm(access) => {
                let of = |[src, wgt]: [super::AffineTiles<'_>; 2]| {
                    vec![(MemType::Inp, src.set()), (MemType::Wgt, wgt.set())]
                };
                let reads = access.operands.map(of).unwrap_or_default();
                (reads, Some((MemType::Acc, access.dst.set())))
            }
            Self::Depthwise(access) => {
                let weights = (MemType::Wgt, access.wgt.set());
                let reads = vec![(MemType::Inp, access.inputs()), weights];
                (reads, Some((MemType::Acc, access.dst.set())))
            }
            Self::Alu(access) => {
                let operand = access.src.iter().map(|src| (MemType::Acc, src.set()));
                (operand.collect(), Some((MemType::Acc, access.dst.set())))
            }
        };
        Touches { reads, writes }
    }
}
