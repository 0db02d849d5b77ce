//! Instructions one after the other, each with the kernel's vectors: what a batch that comes for the first time runs
//! on. Nothing is known of a batch beyond the instruction at hand, so nothing is fused and little is worked out.
//!
//! An instruction whose indices or bytes aren't all there is left to [`interpret`], which finds out exactly where it
//! goes wrong, after the effects of what comes before.

use vta_driver::{DeviceMemory, Span};
use vta_isa::resolve::{Loops, Rows};
use vta_isa::tokens::At;
use vta_isa::{Alu, AluOp, AluOperand, Config, Gemm, Insn, Load, MemType, Store, Uop};

use super::interpret;
use super::scratchpads::Scratchpads;
use crate::error::SimError;
use crate::kernels::direct::{Dots, Place, Tap};
use crate::kernels::lanes::{self, TileOp, TileRun};
use crate::kernels::{Operand, Step};

/// Taps and runs that are worked on at once.
const MOST_AT_ONCE: usize = 512;

/// Lists that are used again from instruction to instruction.
#[derive(Debug, Default)]
pub(super) struct Direct {
    places: Vec<Place>,
    taps: Vec<Tap>,
    runs: Vec<TileRun>,
}

/// An instruction of which something isn't there; nothing was done.
struct Outside;

impl Direct {
    /// Runs one instruction whose tokens are there.
    ///
    /// # Errors
    /// As [`Executor::run`](crate::Executor::run): what the instruction did before its fault stays.
    pub fn execute(
        &mut self,
        pads: &mut Scratchpads,
        config: &Config,
        at: &At,
        memory: &mut DeviceMemory,
    ) -> Result<(), SimError> {
        let done = match &at.insn {
            Insn::Load(load) => self::load(pads, config, load, memory),
            Insn::Store(store) => self::store(pads, config, store, memory),
            Insn::Gemm(gemm) => self.gemm(pads, config, gemm),
            Insn::Alu(alu) => self.alu(pads, config, alu),
            Insn::Finish(_) => Ok(()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Outside) => interpret::execute(pads, config, at, memory),
        }
    }

    fn gemm(
        &mut self,
        pads: &mut Scratchpads,
        config: &Config,
        gemm: &Gemm,
    ) -> Result<(), Outside> {
        let Scratchpads {
            uop,
            inp,
            wgt,
            acc,
            tiles,
            ..
        } = pads;
        let (kernel, lanes, block) = (pads.kernel, pads.lanes, pads.block);
        let uops = uops(uop, gemm.uop_bgn, gemm.uop_end)?;
        let loops = [gemm.dst_loops(), gemm.src_loops(), gemm.wgt_loops()];
        if gemm.steps() == 0 {
            return Ok(());
        }
        inside(uops, |u| u.dst, &loops[0], config.depth(MemType::Acc))?;
        if gemm.reset {
            let op = AluOp::Mul;
            self.runs_of(uops, &loops[0], None, lanes as u32, |on| {
                lanes::each(kernel, TileOp { op, on, lanes }, 0, acc);
            });
            return Ok(());
        }
        inside(uops, |u| u.src, &loops[1], config.depth(MemType::Inp))?;
        inside(uops, |u| u.wgt, &loops[2], config.depth(MemType::Wgt))?;
        for offset in loops[2].without_repeats().offsets() {
            for uop in uops {
                tiles.lay_out(usize::from(uop.wgt) + offset as usize, wgt);
            }
        }
        let form = Form::of(&loops);
        self.place(&form, [lanes, block].map(|n| n as u32));
        let lanes = lanes as u32;
        // Sums may be added in any order: inputs and weights stay, and sums wrap.
        for [to, from, weight] in form.offsets(Trip::Other) {
            for uops in uops.chunk_by(|a, b| a.dst == b.dst) {
                let first = (u32::from(uops[0].dst) + to) * lanes;
                let taps = form
                    .offsets(Trip::Tap)
                    .flat_map(|[_, s, w]| uops.iter().map(move |u| (u, from + s, weight + w)));
                let mut taps = taps.map(|(u, s, w)| Tap {
                    inp: (u32::from(u.src) + s) * lanes,
                    wgt: u32::from(u.wgt) + w,
                });
                loop {
                    self.taps.clear();
                    self.taps.extend(taps.by_ref().take(MOST_AT_ONCE));
                    if self.taps.is_empty() {
                        break;
                    }
                    let dots = Dots {
                        places: &self.places,
                        taps: &self.taps,
                        block,
                        wgt,
                        tiles,
                    };
                    kernel.add(&dots, inp, &mut acc[first as usize..]);
                }
            }
        }
        Ok(())
    }

    /// The rows that share weights, counted from the first.
    fn place(&mut self, form: &Form, [lanes, block]: [u32; 2]) {
        self.places.clear();
        for [dst, src, _] in form.offsets(Trip::Row) {
            let rows = (0..lanes).step_by(block as usize);
            self.places.extend(rows.map(|row| Place {
                acc: dst * lanes + row,
                inp: src * lanes + row,
            }));
        }
    }

    fn alu(&mut self, pads: &mut Scratchpads, config: &Config, alu: &Alu) -> Result<(), Outside> {
        let (kernel, lanes, acc) = (pads.kernel, pads.lanes, &mut pads.acc);
        let uops = uops(&pads.uop, alu.uop_bgn, alu.uop_end)?;
        if alu.steps() == 0 {
            return Ok(());
        }
        let (dst, src) = (alu.dst_loops(), alu.src_loops());
        let depth = config.depth(MemType::Acc);
        inside(uops, |u| u.dst, &dst, depth)?;
        let step = match alu.operand {
            AluOperand::Imm(imm) => Some(Step::immediate(alu.op, imm.into())),
            AluOperand::Acc => None,
        };
        if let Some(Step {
            op,
            operand: Operand::Imm(imm),
        }) = step
        {
            self.runs_of(uops, &dst, None, lanes as u32, |on| {
                lanes::each(kernel, TileOp { op, on, lanes }, imm, acc);
            });
            return Ok(());
        }
        inside(uops, |u| u.src, &src, depth)?;
        let op = alu.op;
        self.runs_of(uops, &dst, Some((&src, op)), lanes as u32, |on| {
            lanes::zip(kernel, TileOp { op, on, lanes }, acc);
        });
        Ok(())
    }

    /// Gives the tiles of each step, and those of its operand if it has one, as runs; in another order than that of
    /// the steps only where none can tell.
    fn runs_of(
        &mut self,
        uops: &[Uop],
        dst: &Loops,
        operand: Option<(&Loops, AluOp)>,
        lanes: u32,
        mut run: impl FnMut(&[TileRun]),
    ) {
        let src = operand.map_or(*dst, |(src, _)| *src);
        let [outer, inner] = dst.trips.map(u32::from);
        let at = |loops: &Loops, i: u32, j: u32| {
            i * u32::from(loops.factors[0]) + j * u32::from(loops.factors[1])
        };
        let runs = &mut self.runs;
        runs.clear();
        let mut push = |uop: &Uop, [i, j]: [u32; 2], tiles: u32| {
            let new = TileRun {
                dst: (u32::from(uop.dst) + at(dst, i, j)) * lanes,
                src: (u32::from(uop.src) + at(&src, i, j)) * lanes,
                dst_step: (u32::from(dst.factors[1]) * lanes) as i32,
                src_step: (u32::from(src.factors[1]) * lanes) as i32,
                tiles,
            };
            if tiles == 1 && runs.last_mut().is_some_and(|last| joined(last, &new)) {
                return;
            }
            if runs.len() == MOST_AT_ONCE {
                run(runs);
                runs.clear();
            }
            runs.push(new);
        };
        if inner > 1 && (uops.len() == 1 || any_order(uops, dst, operand)) {
            for uop in uops {
                (0..outer).for_each(|i| push(uop, [i, 0], inner));
            }
        } else if any_order(uops, dst, operand) {
            for uop in uops {
                (0..outer).for_each(|i| push(uop, [i, 0], 1));
            }
        } else {
            for (i, j) in (0..outer).flat_map(|i| (0..inner).map(move |j| (i, j))) {
                uops.iter().for_each(|uop| push(uop, [i, j], 1));
            }
        }
        run(runs);
    }
}

/// Makes a run one tile longer, if that tile is the next.
fn joined(last: &mut TileRun, new: &TileRun) -> bool {
    let behind = |first: u32, next: u32, tiles: u32, step: i32| {
        i64::from(first) + i64::from(tiles) * i64::from(step) == i64::from(next)
    };
    if last.tiles == 1 {
        last.dst_step = new.dst.wrapping_sub(last.dst) as i32;
        last.src_step = new.src.wrapping_sub(last.src) as i32;
    } else if !behind(last.dst, new.dst, last.tiles, last.dst_step)
        || !behind(last.src, new.src, last.tiles, last.src_step)
    {
        return false;
    }
    last.tiles += 1;
    true
}

/// Whether steps in any order do the same: each tile takes in what no step changes, by an operation whose order
/// doesn't count, or an immediate.
fn any_order(uops: &[Uop], dst: &Loops, operand: Option<(&Loops, AluOp)>) -> bool {
    let Some((src, op)) = operand else {
        return true;
    };
    let ends = |index: fn(&Uop) -> u16, loops: &Loops| {
        let first = uops.iter().map(index).min().unwrap_or(0);
        let last = uops.iter().map(index).max().unwrap_or(0);
        (
            u64::from(first),
            u64::from(last) + loops.reach().unwrap_or(0),
        )
    };
    let (written, read) = (ends(|u| u.dst, dst), ends(|u| u.src, src));
    match op {
        AluOp::Min | AluOp::Max | AluOp::Add | AluOp::Mul => {
            written.1 < read.0 || read.1 < written.0
        }
        AluOp::Shr | AluOp::Shl => false,
    }
}

/// The micro-ops of an instruction.
fn uops(held: &[Uop], bgn: u16, end: u16) -> Result<&[Uop], Outside> {
    held.get(usize::from(bgn)..usize::from(end)).ok_or(Outside)
}

/// Whether the loops around an index of the micro-ops stay below a depth.
fn inside(
    uops: &[Uop],
    index: impl Fn(&Uop) -> u16,
    loops: &Loops,
    depth: usize,
) -> Result<(), Outside> {
    let most = uops.iter().map(index).max().unwrap_or(0);
    let last = u64::from(most) + loops.reach().unwrap_or(0);
    if last < depth as u64 {
        Ok(())
    } else {
        Err(Outside)
    }
}

/// What the two loops of a GEMM are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trip {
    /// Go to other accumulators, with the same weights: rows of one product.
    Row,
    /// Stay at their accumulators: taps of one product.
    Tap,
    /// Go to other accumulators and weights.
    Other,
}

/// A GEMM's loops: how many trips of what, and the tiles from one to the next, of accumulators, inputs and weights.
struct Form([(Trip, u32, [u32; 3]); 2]);

impl Form {
    fn of([dst, src, wgt]: &[Loops; 3]) -> Self {
        let axis = |d: usize| {
            let trip = match (dst.factors[d], wgt.factors[d]) {
                (0, _) => Trip::Tap,
                (_, 0) => Trip::Row,
                (..) => Trip::Other,
            };
            let factors = [dst, src, wgt].map(|loops| u32::from(loops.factors[d]));
            (trip, u32::from(dst.trips[d]), factors)
        };
        let [mut outer, inner] = [axis(0), axis(1)];
        // Rows of one product are apart.
        let apart = |(_, trips, factors): &(Trip, u32, [u32; 3]), other: u32| {
            u64::from(*trips - 1) * u64::from(factors[0]) < other.into()
        };
        if (outer.0, inner.0) == (Trip::Row, Trip::Row)
            && !apart(&inner, outer.2[0])
            && !apart(&outer, inner.2[0])
        {
            outer.0 = Trip::Other;
        }
        Self([outer, inner])
    }

    /// What trips of a kind add to the indices.
    fn offsets(&self, kind: Trip) -> impl Iterator<Item = [u32; 3]> + use<> {
        let axes = self
            .0
            .map(|(trip, trips, factors)| (if trip == kind { trips } else { 1 }, factors));
        let [outer, inner] = axes;
        (0..outer.0).flat_map(move |i| {
            (0..inner.0).map(move |j| [0, 1, 2].map(|k| i * outer.1[k] + j * inner.1[k]))
        })
    }
}

/// The bytes from the first of some rows to the last.
fn span(memory: &DeviceMemory, rows: &Rows) -> Result<Span, Outside> {
    let bytes = rows.span();
    memory
        .span(bytes.start, bytes.end - bytes.start)
        .map_err(|_| Outside)
}

fn load(
    pads: &mut Scratchpads,
    config: &Config,
    load: &Load,
    memory: &DeviceMemory,
) -> Result<(), Outside> {
    let Some(rows) = load.dram_rows(config) else {
        return Ok(());
    };
    if load.sram_span().end > config.depth(load.mem) as u64 {
        return Err(Outside);
    }
    let span = span(memory, &rows)?;
    let bytes = &memory.region(span.region)[span.start..span.start + span.len];
    for piece in load.fills(config) {
        let first = piece.entries.start;
        match piece.from {
            None => pads.clear(load.mem, first, piece.entries.len()),
            Some(row) => {
                let row = (row.start - rows.first) as usize..(row.end - rows.first) as usize;
                pads.fill(load.mem, first, &bytes[row]);
            }
        }
    }
    Ok(())
}

fn store(
    pads: &Scratchpads,
    config: &Config,
    store: &Store,
    memory: &mut DeviceMemory,
) -> Result<(), Outside> {
    let Some(rows) = store.dram_rows(config) else {
        return Ok(());
    };
    if store.sram_span().end > config.depth(MemType::Out) as u64 {
        return Err(Outside);
    }
    let span = span(memory, &rows)?;
    let bytes = &mut memory.region_mut(span.region)[span.start..span.start + span.len];
    let mut first = usize::from(store.sram_base) * pads.lanes;
    for row in rows.iter() {
        let to = &mut bytes[(row.start - rows.first) as usize..(row.end - rows.first) as usize];
        lanes::narrow(pads.kernel, &pads.acc[first..], to);
        first += to.len();
    }
    Ok(())
}
