//! An instruction with what it touches, checked against the scratchpads.

use std::collections::BTreeMap;
use std::ops::Range;

use thiserror::Error;

use super::{AffineTiles, Rows, TileSet, UopIndex};
use crate::{Alu, Config, Depthwise, Gemm, Insn, Load, MemType, Requantize, Store, Uop};

/// The micro-ops of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uops<'u> {
    /// In order, without those whose contents are unknown.
    pub known: &'u [Uop],
    /// Whether there are others.
    pub some_unknown: bool,
    /// Whether the batch hasn't loaded all of the known ones itself.
    pub from_before: bool,
}

impl<'u> Uops<'u> {
    /// Micro-ops that are all known.
    pub const fn of(known: &'u [Uop]) -> Self {
        Self {
            known,
            some_unknown: false,
            from_before: false,
        }
    }
}

/// An instruction with what it touches, all of it inside the scratchpads. Whether DRAM rows are
/// inside allocations, only memory can say.
#[derive(Clone, Debug)]
pub enum Resolved<'u> {
    /// FINISH, or a LOAD or STORE that moves nothing: only tokens act.
    Sync,
    /// A LOAD that moves something.
    Load(LoadAccess),
    /// A STORE that moves something.
    Store(StoreAccess),
    /// A GEMM.
    Gemm(GemmAccess<'u>),
    /// An ALU instruction.
    Alu(AluAccess<'u>),
    /// A DEPTHWISE.
    Depthwise(DepthwiseAccess<'u>),
}

/// What a LOAD touches.
#[derive(Clone, Debug)]
pub struct LoadAccess {
    /// The instruction.
    pub load: Load,
    /// Entries of its scratchpad that it fills, padding included: tiles, or micro-ops.
    pub entries: Range<usize>,
    /// DRAM that it reads.
    pub rows: Rows,
}

/// What a STORE touches.
#[derive(Clone, Debug)]
pub struct StoreAccess {
    /// The instruction.
    pub store: Store,
    /// Accumulator tiles that it reads: the sums.
    pub tiles: Range<usize>,
    /// Others that it reads, if it requantises: the table and the residual, either of which may be empty.
    pub operands: [Range<usize>; 2],
    /// DRAM that it writes.
    pub rows: Rows,
}

/// What a GEMM touches.
#[derive(Clone, Copy, Debug)]
pub struct GemmAccess<'u> {
    /// The instruction.
    pub gemm: Gemm,
    /// Its micro-ops.
    pub uops: Uops<'u>,
    /// Accumulator tiles that it writes and, unless it is a reset or overwrites, reads.
    pub dst: AffineTiles<'u>,
    /// Input and weight tiles that it reads; `None` for a reset.
    pub operands: Option<[AffineTiles<'u>; 2]>,
}

/// What a DEPTHWISE touches.
#[derive(Clone, Copy, Debug)]
pub struct DepthwiseAccess<'u> {
    /// The instruction.
    pub insn: Depthwise,
    /// Its micro-ops.
    pub uops: Uops<'u>,
    /// Accumulator tiles that it writes and, unless it overwrites, reads.
    pub dst: AffineTiles<'u>,
    /// The first input tile of each window.
    pub src: AffineTiles<'u>,
    /// Weight tiles, one for each micro-op.
    pub wgt: AffineTiles<'u>,
}

/// What an ALU instruction touches.
#[derive(Clone, Copy, Debug)]
pub struct AluAccess<'u> {
    /// The instruction.
    pub alu: Alu,
    /// Its micro-ops.
    pub uops: Uops<'u>,
    /// Accumulator tiles that it reads and writes.
    pub dst: AffineTiles<'u>,
    /// Accumulator tiles of its second operand; `None` for an immediate.
    pub src: Option<AffineTiles<'u>>,
}

impl<'u> GemmAccess<'u> {
    /// Of an instruction whose bounds are somebody else's to check.
    pub fn of(gemm: Gemm, uops: Uops<'u>) -> Self {
        Self {
            uops,
            dst: gemm.dst(uops.known),
            operands: gemm.operands(uops.known),
            gemm,
        }
    }

    /// A GEMM that overwrites, as one that adds to its tiles once these are cleared: the last step on each tile, as
    /// micro-ops of a single trip. `None` where each tile has one step, so that this one does it.
    pub fn last_steps(&self) -> Option<(Gemm, Vec<Uop>)> {
        let [src, wgt] = self.operands.filter(|_| !self.dst.is_apart())?;
        let steps = self.dst.steps().zip(src.steps()).zip(wgt.steps());
        let last: BTreeMap<u64, [u64; 2]> = steps.map(|((d, s), w)| (d, [s, w])).collect();
        let uops: Vec<Uop> = last
            .into_iter()
            .map(|(dst, [src, wgt])| Uop {
                dst: dst as u16,
                src: src as u16,
                wgt: wgt as u16,
            })
            .collect();
        let gemm = Gemm {
            uop_end: uops.len() as u16,
            iter_out: 1,
            iter_in: 1,
            ..Gemm::default()
        };
        Some((gemm, uops))
    }
}

impl<'u> DepthwiseAccess<'u> {
    /// Of an instruction whose bounds are somebody else's to check.
    pub fn of(insn: Depthwise, uops: Uops<'u>) -> Self {
        let [src, wgt] = insn.operands(uops.known);
        let dst = insn.dst(uops.known);
        Self {
            insn,
            uops,
            dst,
            src,
            wgt,
        }
    }

    /// Input tiles that it reads: those of all windows.
    pub fn inputs(&self) -> TileSet {
        let mut set = self.src.set();
        set.repeat(self.insn.rows.into(), self.insn.pitch);
        set.repeat(self.insn.columns.into(), 1);
        set
    }

    /// What it adds to accumulators, product by product in the order of execution: the accumulator tile, the input
    /// tile, the weight tile and the tap.
    pub fn products(&self) -> impl Iterator<Item = [u64; 4]> + use<'u> {
        let (columns, pitch) = (u64::from(self.insn.columns), u64::from(self.insn.pitch));
        let taps = self.insn.taps() as u64;
        let steps = self.dst.steps().zip(self.src.steps()).zip(self.wgt.steps());
        steps.flat_map(move |((dst, src), wgt)| {
            let input = move |tap: u64| src + tap / columns * pitch + tap % columns;
            (0..taps).map(move |tap| [dst, input(tap), wgt, tap])
        })
    }
}

impl<'u> AluAccess<'u> {
    /// Of an instruction whose bounds are somebody else's to check.
    pub fn of(alu: Alu, uops: Uops<'u>) -> Self {
        Self {
            uops,
            dst: alu.dst(uops.known),
            src: alu.src(uops.known),
            alu,
        }
    }

    /// Destination and second operand of each step, in the order of execution; for an immediate
    /// the destination twice.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + use<'u> {
        let (dst, src) = (self.dst, self.src.unwrap_or(self.dst));
        let [outer, inner] = dst.loops.trips;
        let [d, s] = [dst, src].map(|tiles| tiles.loops.factors.map(u64::from));
        // One walk over both, since this is where planning spends its time.
        let trips = (0..u64::from(outer)).flat_map(move |i| {
            (0..u64::from(inner)).map(move |j| (i * d[0] + j * d[1], i * s[0] + j * s[1]))
        });
        trips.flat_map(move |(to, from)| {
            let tile = move |tiles: AffineTiles<'_>, uop: &Uop| u64::from(tiles.index.of(*uop));
            let uops = dst.uops.iter();
            uops.map(move |uop| (tile(dst, uop) + to, tile(src, uop) + from))
        })
    }
}

/// An index that an instruction must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It leaves its scratchpad.
    #[error("{field} reaches {value}, but the {scratchpad} scratchpad has {depth} entries")]
    Scratchpad {
        /// The field that it comes from.
        field: &'static str,
        /// The largest index.
        value: u64,
        /// The scratchpad's name.
        scratchpad: &'static str,
        /// The scratchpad's entries.
        depth: usize,
    },
    /// A window has no tap, or more than a row of a weight tile holds.
    #[error(
        "a window has {rows} rows of {columns} taps, but a weight tile holds 1 to {most} for a channel"
    )]
    Window {
        /// `rows`.
        rows: u8,
        /// `columns`.
        columns: u8,
        /// Taps that a row of a weight tile holds.
        most: usize,
    },
    /// `uop_end` is below `uop_bgn`.
    #[error("uop_end {end} is below uop_bgn {bgn}")]
    UopRange {
        /// `uop_bgn`.
        bgn: u16,
        /// `uop_end`.
        end: u16,
    },
}

impl StoreAccess {
    /// One of its rows, as another STORE would have it.
    #[must_use]
    pub fn row(&self, y: u16) -> Self {
        let (cols, row) = (usize::from(self.store.x_size), usize::from(y));
        let first = self.tiles.start + row * cols;
        let of_row = |how: Requantize| Requantize {
            table: how.entry(row) as u16,
            by_row: false,
            ..how
        };
        let store = Store {
            sram_base: first as u16,
            y_size: 1,
            requantize: self.store.requantize.map(of_row),
            ..self.store
        };
        let mut operands = [0..0, 0..0];
        for (at, (_, span)) in operands.iter_mut().zip(store.operands()) {
            *at = span.start as usize..span.end as usize;
        }
        Self {
            store,
            tiles: first..first + cols,
            operands,
            rows: Rows {
                first: self.rows.first + u64::from(y) * self.rows.stride_bytes,
                rows: 1,
                ..self.rows
            },
        }
    }
}

impl<'u> Resolved<'u> {
    /// An instruction whose micro-ops are given.
    ///
    /// # Errors
    /// [`Fault`]: an index that leaves its scratchpad, of several the one that comes first in the
    /// order of micro-ops and, in one of them, of dst, src and wgt.
    pub fn of(config: &Config, insn: &Insn, uops: Uops<'u>) -> Result<Self, Fault> {
        match insn {
            Insn::Load(load) => match load.dram_rows(config) {
                None => Ok(Self::Sync),
                Some(rows) => Ok(Self::Load(LoadAccess {
                    load: *load,
                    entries: sram(config, load.mem, "sram_base", load.sram_span())?,
                    rows,
                })),
            },
            Insn::Store(store) => match store.dram_rows(config) {
                None => Ok(Self::Sync),
                Some(rows) => {
                    let tiles = sram(config, MemType::Out, "sram_base", store.sram_span())?;
                    let mut operands = [0..0, 0..0];
                    for (at, (field, span)) in operands.iter_mut().zip(store.operands()) {
                        *at = sram(config, MemType::Acc, field, span)?;
                    }
                    Ok(Self::Store(StoreAccess {
                        store: *store,
                        tiles,
                        operands,
                        rows,
                    }))
                }
            },
            Insn::Gemm(gemm) => {
                let access = GemmAccess::of(*gemm, uops);
                let dst = Some((access.dst, MemType::Acc));
                let src = access.operands.map(|o| (o[0], MemType::Inp));
                let wgt = access.operands.map(|o| (o[1], MemType::Wgt));
                check_tiles(config, uops.known, [dst, src, wgt], 0)?;
                Ok(Self::Gemm(access))
            }
            Insn::Depthwise(insn) => {
                check_window(config, insn)?;
                let access = DepthwiseAccess::of(*insn, uops);
                let dst = Some((access.dst, MemType::Acc));
                let src = Some((access.src, MemType::Inp));
                let wgt = Some((access.wgt, MemType::Wgt));
                check_tiles(config, uops.known, [dst, src, wgt], insn.extent())?;
                Ok(Self::Depthwise(access))
            }
            Insn::Alu(alu) => {
                let access = AluAccess::of(*alu, uops);
                let dst = Some((access.dst, MemType::Acc));
                let src = access.src.map(|src| (src, MemType::Acc));
                check_tiles(config, uops.known, [dst, src, None], 0)?;
                Ok(Self::Alu(access))
            }
            Insn::Finish(_) => Ok(Self::Sync),
        }
    }
}

/// The micro-ops that a GEMM or ALU instruction names, `uop_bgn` and `uop_end`.
pub const fn uop_range(insn: &Insn) -> Option<(u16, u16)> {
    match insn {
        Insn::Gemm(gemm) => Some((gemm.uop_bgn, gemm.uop_end)),
        Insn::Alu(alu) => Some((alu.uop_bgn, alu.uop_end)),
        Insn::Depthwise(insn) => Some((insn.uop_bgn, insn.uop_end)),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => None,
    }
}

/// Checks a range of micro-ops against the scratchpad's depth.
pub(crate) fn check_uop_range(bgn: u16, end: u16, depth: usize) -> Result<(), Fault> {
    if end < bgn {
        return Err(Fault::UopRange { bgn, end });
    }
    if end > bgn && usize::from(end) > depth {
        return Err(Fault::Scratchpad {
            field: "uop_end",
            value: u64::from(end) - 1,
            scratchpad: MemType::Uop.name(),
            depth,
        });
    }
    Ok(())
}

impl MemType {
    /// The name of the scratchpad that it addresses.
    pub const fn scratchpad(self) -> &'static str {
        match self {
            Self::Acc | Self::Acc8 | Self::Out => Self::Acc.name(),
            Self::Wgt | Self::Wgt4 => Self::Wgt.name(),
            Self::Uop | Self::Inp => self.name(),
        }
    }
}

/// The entries of a LOAD or STORE, if they are in the scratchpad.
fn sram(
    config: &Config,
    mem: MemType,
    field: &'static str,
    span: Range<u64>,
) -> Result<Range<usize>, Fault> {
    let depth = config.depth(mem);
    if span.end <= depth as u64 {
        return Ok(span.start as usize..span.end as usize);
    }
    Err(Fault::Scratchpad {
        field,
        value: span.end - 1,
        scratchpad: mem.scratchpad(),
        depth,
    })
}

/// The largest index of each kind over some micro-ops, whose bounds are those of all.
pub fn furthest(uops: &[Uop]) -> Option<Uop> {
    let max = |a: Uop, b: &Uop| Uop {
        dst: a.dst.max(b.dst),
        src: a.src.max(b.src),
        wgt: a.wgt.max(b.wgt),
    };
    (!uops.is_empty()).then(|| uops.iter().fold(Uop::default(), max))
}

/// Checks that a weight tile holds each tap, and that there is one.
fn check_window(config: &Config, insn: &Depthwise) -> Result<(), Fault> {
    let most = config.block();
    if (1..=most).contains(&insn.taps()) {
        return Ok(());
    }
    let (rows, columns) = (insn.rows, insn.columns);
    Err(Fault::Window {
        rows,
        columns,
        most,
    })
}

/// Checks the furthest tile of each micro-op, of indices that share their loops' trips. Of inputs the furthest lies
/// `extent` tiles behind that.
fn check_tiles(
    config: &Config,
    uops: &[Uop],
    indices: [Option<(AffineTiles<'_>, MemType)>; 3],
    extent: u64,
) -> Result<(), Fault> {
    let limits = indices.map(|index| {
        let (tiles, mem) = index?;
        let extent = if mem == MemType::Inp { extent } else { 0 };
        let reach = tiles.loops.reach()? + extent;
        Some((tiles.index, reach, mem, config.depth(mem)))
    });
    let limits = || limits.iter().flatten();
    // Most instructions are right, and the maximum of each index says so.
    let furthest = furthest(uops);
    let leaves = |uop: Uop, reach: u64, index: UopIndex, depth: usize| {
        let value = u64::from(index.of(uop)) + reach;
        (value >= depth as u64).then_some(value)
    };
    let fine = limits().all(|&(index, reach, _, depth)| {
        furthest.is_none_or(|uop| leaves(uop, reach, index, depth).is_none())
    });
    if fine {
        return Ok(());
    }
    for uop in uops {
        for &(index, reach, mem, depth) in limits() {
            if let Some(value) = leaves(*uop, reach, index, depth) {
                return Err(Fault::Scratchpad {
                    field: index.name(),
                    value,
                    scratchpad: mem.scratchpad(),
                    depth,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
