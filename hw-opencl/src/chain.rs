//! Chains: neighbouring ALU instructions, and GEMM's reset, on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use vta_isa::{Alu, AluOperand, Uop};

use crate::ops::Touches;

/// The kernel's operation for GEMM's reset; ALU operations have their own codes.
const CLEAR: u32 = 6;
/// A tile that a stage leaves as it is.
const UNTOUCHED: u32 = u32::MAX;
/// Stages of one chain.
const MAX_STAGES: usize = 64;

/// One operation on some tiles.
#[derive(Clone, Debug)]
struct Stage {
    op: u32,
    /// `None` reads source tiles.
    imm: Option<i32>,
    /// Destination and source, ascending, each destination once. Without a source tile the source
    /// is the destination.
    tiles: Vec<(u32, u32)>,
}

/// Stages whose tiles don't depend on each other: no stage reads a tile that the chain writes,
/// except the one that it changes.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// Whether the chain writes a tile.
    written: Vec<bool>,
    /// Whether a stage reads a tile for another.
    read: Vec<bool>,
}

impl Chain {
    /// Zeroes tiles, ascending.
    pub fn clear(tiles: &[u32]) -> Self {
        let stage = Stage {
            op: CLEAR,
            imm: Some(0),
            tiles: tiles.iter().map(|&t| (t, t)).collect(),
        };
        let mut chain = Self {
            stages: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
        };
        chain.add(stage);
        chain
    }

    /// The stages of an ALU instruction: the n-th step on a tile belongs to the n-th. `None` when
    /// they would depend on each other or be too many.
    pub fn of(alu: &Alu, uops: &[u32], depth: usize) -> Option<Self> {
        let imm = match alu.operand {
            AluOperand::Acc => None,
            AluOperand::Imm(imm) => Some(i32::from(imm)),
        };
        let mut times = vec![0usize; depth];
        let mut lists: Vec<Vec<(u32, u32)>> = Vec::new();
        for i in 0..u32::from(alu.iter_out) {
            for j in 0..u32::from(alu.iter_in) {
                let dst_base = i * u32::from(alu.dst_factor_out) + j * u32::from(alu.dst_factor_in);
                let src_base = i * u32::from(alu.src_factor_out) + j * u32::from(alu.src_factor_in);
                for uop in uops.iter().map(|w| Uop::decode(*w)) {
                    let dst = u32::from(uop.dst) + dst_base;
                    let src = match imm {
                        Some(_) => dst,
                        None => u32::from(uop.src) + src_base,
                    };
                    let time = &mut times[dst as usize];
                    if *time == lists.len() {
                        if *time == MAX_STAGES {
                            return None;
                        }
                        lists.push(Vec::new());
                    }
                    lists[*time].push((dst, src));
                    *time += 1;
                }
            }
        }
        let mut chain = Self {
            stages: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
        };
        for mut tiles in lists {
            tiles.sort_unstable();
            let op = alu.op.code().into();
            chain.add(Stage { op, imm, tiles });
        }
        chain.is_sound().then_some(chain)
    }

    /// Adds a stage without asking whether the chain stays sound.
    fn add(&mut self, stage: Stage) {
        for &(dst, src) in &stage.tiles {
            mark(&mut self.written, dst);
            if src != dst {
                mark(&mut self.read, src);
            }
        }
        self.stages.push(stage);
    }

    /// Whether no tile is both written and read for another.
    fn is_sound(&self) -> bool {
        self.written
            .iter()
            .zip(&self.read)
            .all(|(w, r)| !(*w && *r))
    }

    /// Appends the stages of another chain; leaves this one as it is and says `false` when they
    /// would depend on each other.
    pub fn append(&mut self, more: &Self) -> bool {
        let clash = |a: &[bool], b: &[bool]| a.iter().zip(b).any(|(a, b)| *a && *b);
        if self.stages.len() + more.stages.len() > MAX_STAGES
            || clash(&self.written, &more.read)
            || clash(&self.read, &more.written)
        {
            return false;
        }
        more.stages.iter().for_each(|stage| self.add(stage.clone()));
        true
    }

    /// The chain's words, and what it touches. `list` stores a list of words and says where.
    pub fn encode(&self, mut list: impl FnMut(&[u32]) -> u32) -> (Vec<u32>, Touches) {
        let bounds = |flags: &[bool]| {
            let first = flags.iter().position(|f| *f).unwrap_or(0);
            first
                ..flags
                    .iter()
                    .rposition(|f| *f)
                    .map_or(first, |last| last + 1)
        };
        let written = bounds(&self.written);
        let read = bounds(&self.read);
        let mut stages = Vec::with_capacity(self.stages.len() * 4);
        for stage in &self.stages {
            let whole = stage.tiles.len() == written.len();
            let (kind, imm) = match stage.imm {
                Some(imm) if whole => (0, imm),
                Some(imm) => (1, imm),
                None => (2, 0),
            };
            let mut table = 0;
            if kind != 0 {
                let mut sources = vec![UNTOUCHED; written.len()];
                for &(dst, src) in &stage.tiles {
                    sources[dst as usize - written.start] = src;
                }
                table = list(&sources);
            }
            stages.extend([stage.op, kind, imm as u32, table]);
        }
        let args = vec![
            written.start as u32,
            self.stages.len() as u32,
            list(&stages),
        ];
        let reads_acc = if read.is_empty() {
            written.clone()
        } else {
            written.start.min(read.start)..written.end.max(read.end)
        };
        let touches = Touches {
            reads_acc,
            writes_acc: written,
            ..Touches::default()
        };
        (args, touches)
    }
}

fn mark(flags: &mut Vec<bool>, tile: u32) {
    let tile = tile as usize;
    if flags.len() <= tile {
        flags.resize(tile + 1, false);
    }
    flags[tile] = true;
}
