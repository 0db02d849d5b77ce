//! ALU steps on two tiles.

use vta_isa::AluOp;
use vta_isa::resolve::{MAX_TILES, TileSet};

use crate::functional::run::ops::Op;
use crate::kernels::lanes::{Gather, TileRun};

/// Most steps that are joined into one operation.
const MOST_JOINED: usize = 1 << 16;

/// Steps on two tiles, `(dst, src)` in order, of neighbouring ALU instructions.
pub(super) struct Pairs {
    op: AluOp,
    pairs: Vec<(u16, u16)>,
    dst: TileSet,
    src: TileSet,
}

impl Pairs {
    pub fn new(op: AluOp, pairs: Vec<(u16, u16)>) -> Self {
        Self {
            op,
            dst: pairs.iter().map(|p| p.0).collect(),
            src: pairs.iter().map(|p| p.1).collect(),
            pairs,
        }
    }

    /// Takes the steps of the next instruction if no operand of either is changed by the other.
    pub fn join(&mut self, op: AluOp, more: &[(u16, u16)]) -> bool {
        if op != self.op || self.pairs.len() + more.len() > MOST_JOINED {
            return false;
        }
        let (mut dst, mut src) = (self.dst.clone(), self.src.clone());
        dst.extend(more.iter().map(|p| p.0));
        src.extend(more.iter().map(|p| p.1));
        if dst.meets(&src) {
            return false;
        }
        self.pairs.extend_from_slice(more);
        (self.dst, self.src) = (dst, src);
        true
    }

    /// Steps on two tiles: lists of operands where no operand is changed, else in order.
    pub fn op(self, lanes: usize) -> Op {
        let lane = |tile: u16| (usize::from(tile) * lanes) as u32;
        if self.dst.meets(&self.src) {
            let runs = tile_runs(&self.pairs, lanes);
            return Op::Zip { op: self.op, runs };
        }
        // Destinations in the order of their first steps, each with how many it has.
        let mut tiles: Vec<(u16, u32)> = Vec::new();
        let mut lens = [0u32; MAX_TILES];
        for (dst, _) in &self.pairs {
            let len = &mut lens[usize::from(*dst)];
            if *len == 0 {
                tiles.push((*dst, 0));
            }
            *len += 1;
        }
        tiles
            .iter_mut()
            .for_each(|(tile, len)| *len = lens[usize::from(*tile)]);
        // No tile depends on another, so they may be in any order.
        tiles.sort_by_key(|(_, len)| *len);
        let mut firsts = lens;
        let mut all = 0;
        for (tile, len) in &tiles {
            firsts[usize::from(*tile)] = all;
            all += len;
        }
        let mut operands = vec![0; all as usize];
        for (dst, src) in self.pairs {
            let next = &mut firsts[usize::from(dst)];
            operands[*next as usize] = lane(src);
            *next += 1;
        }
        let mut table = Gather::default();
        let mut rest = &operands[..];
        for (dst, len) in tiles {
            let (list, later) = rest.split_at(len as usize);
            table.push(lane(dst), list);
            rest = later;
        }
        Op::Gather {
            op: self.op,
            table: Box::new(table),
        }
    }
}

/// Pairs of tiles with constant steps, in order.
fn tile_runs(pairs: &[(u16, u16)], lanes: usize) -> Box<[TileRun]> {
    let lane = |tile: u16| (usize::from(tile) * lanes) as u32;
    let mut runs: Vec<TileRun> = Vec::new();
    for &(dst, src) in pairs {
        let new = TileRun {
            dst: lane(dst),
            src: lane(src),
            dst_step: 0,
            src_step: 0,
            tiles: 1,
        };
        if !runs.last_mut().is_some_and(|last| last.joins(&new)) {
            runs.push(new);
        }
    }
    runs.into()
}
