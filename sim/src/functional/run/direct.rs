//! Instructions one after the other, each with the kernel's vectors: what a batch that comes for the first time runs
//! on. Nothing is known of a batch beyond the instruction at hand, so nothing is fused and little is worked out.
//!
//! An instruction whose indices or bytes aren't all there is left to the [oracle](crate::oracle), which finds out exactly
//! where it goes wrong, after the effects of what comes before.

use vta_driver::DeviceMemory;
use vta_isa::resolve::{Loops, Resolved, Uops};
use vta_isa::tokens::At;
use vta_isa::{Alu, AluOp, AluOperand, Config, Depthwise, Gemm, Insn, Load, MemType, Store, Uop};

use super::gemm_loops::{GemmLoops, Trip};
use super::near::Near;
use super::ops::{LoadOp, StoreOp};
use super::scratchpads::Scratchpads;
use super::shape::Shape;
use super::windows;
use crate::error::SimError;
use crate::kernels::direct::{DotRow, DotRows, Dots, Second, Tap, Tiles};
use crate::kernels::lanes::{self, TileOp, TileRun};
use crate::kernels::{GemmKernel, Operand, Step};

/// Rows for which tiles aren't laid out.
const MOST_ROWS_AS_THEY_ARE: usize = 2;
/// Taps and runs that are worked on at once.
const MOST_AT_ONCE: usize = 512;

/// What instructions need, found out once, and lists that are used again from instruction to instruction.
#[derive(Debug)]
pub(crate) struct Direct {
    /// Elements of the scratchpads.
    inputs: usize,
    weights: usize,
    accumulators: usize,
    learnt: Learnt,
    lists: Lists,
    runs: Vec<TileRun>,
    pub near: Near,
    /// Whether the batch has few products.
    pub few_products: bool,
}

/// What GEMMs in the same loops have in common: a layer's instructions have the same, mostly.
#[derive(Debug, Default)]
struct Learnt {
    of: Option<([Loops; 3], GemmLoops)>,
    /// The rows that share weights, counted from the first.
    rows: DotRows,
    /// All rows of a micro-op, where tiles are taken as they lie in the scratchpad, and its taps, counted from its own;
    /// none if there are many.
    all: DotRows,
    taps: Vec<Tap>,
}

impl Learnt {
    /// Learns of other loops, around tiles of so many lanes.
    #[cold]
    fn learn(&mut self, of: [Loops; 3], [lanes, block]: [u32; 2]) {
        let loops = GemmLoops::of(&of);
        self.of = Some((of, loops));
        self.rows.clear();
        loops.offsets(Trip::Row).for_each(|[dst, src, _]| {
            for row in (0..lanes).step_by(block as usize) {
                self.rows.push(DotRow {
                    acc: dst * lanes + row,
                    inp: src * lanes + row,
                    wgt: 0,
                });
            }
        });
        self.all.clear();
        self.taps.clear();
        let rows = self.rows.list();
        if rows.len() > MOST_ROWS_AS_THEY_ARE {
            return;
        }
        for [dst, src, wgt] in loops.offsets(Trip::Other).take(MOST_AT_ONCE + 1) {
            for row in rows {
                self.all.push(DotRow {
                    acc: row.acc + dst * lanes,
                    inp: row.inp + src * lanes,
                    wgt,
                });
            }
        }
        let taps = loops.offsets(Trip::Tap).take(MOST_AT_ONCE + 1);
        self.taps.extend(taps.map(|[_, src, wgt]| Tap {
            inp: src * lanes,
            wgt,
        }));
        if self.taps.len().max(self.all.list().len()) > MOST_AT_ONCE {
            self.taps.clear();
        }
    }
}

/// What is multiplied next.
#[derive(Debug, Default)]
struct Lists {
    taps: Vec<Tap>,
    /// A second tile of each tap.
    second: Vec<u32>,
}

/// An instruction of which something isn't there; nothing was done.
struct Outside;

/// What products are of.
struct Room<'a> {
    kernel: GemmKernel,
    /// The one that tiles are laid out for.
    tiles_kernel: GemmKernel,
    block: usize,
    inp: &'a [u8],
    wgt: &'a [u8],
    acc: &'a mut [i32],
    tiles: &'a mut Tiles,
    lists: &'a mut Lists,
}

/// Whether rows are multiplied by tiles as they lie in the scratchpad.
fn takes_plain(kernel: GemmKernel, rows: &DotRows) -> bool {
    rows.list().len() <= MOST_ROWS_AS_THEY_ARE && kernel.takes_plain_tiles()
}

impl Room<'_> {
    /// Adds the products of all rows and taps to the accumulators from int32 `first` on; no tap is left. `apart` are
    /// int32 from there to those that take in the second tiles.
    fn add(&mut self, rows: &DotRows, apart: Option<u32>, first: usize) {
        let (kernel, block, inp, wgt) = (self.kernel, self.block, self.inp, self.wgt);
        let (plain, acc) = (takes_plain(self.kernel, rows), &mut self.acc[first..]);
        let Lists { taps, second, .. } = &mut *self.lists;
        if !plain {
            for tile in taps.iter().map(|tap| tap.wgt).chain(second.iter().copied()) {
                self.tiles_kernel.lay_out(self.tiles, tile as usize, wgt);
            }
        }
        let dots = Dots {
            rows,
            taps,
            second: apart.map(|acc| Second { acc, wgt: second }),
            block,
            wgt,
            tiles: self.tiles,
        };
        if plain {
            kernel.add_plain(&dots, inp, acc);
        } else {
            kernel.add(&dots, inp, acc);
        }
        taps.clear();
        second.clear();
    }

    /// Micro-ops in loops, whose rows that share weights are given.
    fn trips(&mut self, rows: &DotRows, uops: &[Uop], loops: &GemmLoops, lanes: u32) {
        let pairs = self.kernel.takes_two_columns() && !takes_plain(self.kernel, rows);
        for [to, from, weight] in loops.offsets(Trip::Other) {
            let mut chunks = uops.chunk_by(|a, b| a.dst == b.dst).peekable();
            while let Some(uops) = chunks.next() {
                let beside = |more: &&[Uop]| pairs && loops.pair(uops, more);
                let second = chunks.next_if(beside);
                let first = ((u32::from(uops[0].dst) + to) * lanes) as usize;
                let apart = second.map(|more| u32::from(more[0].dst - uops[0].dst) * lanes);
                let second = second.unwrap_or_default();
                for [_, s, w] in loops.offsets(Trip::Tap) {
                    for (at, uop) in uops.iter().enumerate() {
                        if self.lists.taps.len() == MOST_AT_ONCE {
                            self.add(rows, apart, first);
                        }
                        self.lists.taps.push(Tap {
                            inp: (u32::from(uop.src) + from + s) * lanes,
                            wgt: u32::from(uop.wgt) + weight + w,
                        });
                        let beside = second.get(at).map(|uop| u32::from(uop.wgt) + weight + w);
                        self.lists.second.extend(beside);
                    }
                }
                self.add(rows, apart, first);
            }
        }
    }
}

impl Direct {
    pub fn new(config: &Config) -> Self {
        Self {
            inputs: config.depth(MemType::Inp),
            weights: config.depth(MemType::Wgt),
            accumulators: config.depth(MemType::Acc),
            learnt: Learnt::default(),
            lists: Lists::default(),
            runs: Vec::new(),
            near: Near::default(),
            few_products: false,
        }
    }

    /// Runs one instruction whose tokens are there.
    ///
    /// # Errors
    /// As [`Executor::run`](crate::Executor::run): what the instruction did before its fault stays.
    pub fn execute(
        &mut self,
        pads: &mut Scratchpads,
        config: &Config,
        (index, insn): (usize, &Insn),
        memory: &mut DeviceMemory,
    ) -> Result<(), SimError> {
        let done = match insn {
            Insn::Load(load) => self.load(pads, config, load, memory),
            Insn::Store(store) => self.store(pads, config, store, memory),
            Insn::Gemm(gemm) => self.gemm(pads, gemm),
            Insn::Alu(alu) => self.alu(pads, alu),
            Insn::Depthwise(insn) => depthwise(pads, config, insn),
            Insn::Finish(_) => Ok(()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Outside) => {
                let insn = *insn;
                pads.tiles.forget(0..usize::MAX);
                pads.machine(config).execute(&At { index, insn }, memory)
            }
        }
    }

    /// Rows and taps of a micro-op in the loops of the last product, if tiles are taken as they lie in the scratchpad.
    pub fn plain_product(
        &self,
        of: &[Loops; 3],
        kernel: GemmKernel,
    ) -> Option<(DotRows, Vec<Tap>)> {
        let Learnt {
            rows, all, taps, ..
        } = &self.learnt;
        let known = matches!(&self.learnt.of, Some((known, _)) if known == of);
        let plain = known && !taps.is_empty() && takes_plain(kernel, rows);
        plain.then(|| (all.clone(), taps.clone()))
    }

    /// The kernel of the batch's products.
    pub fn products(&self, kernel: GemmKernel) -> GemmKernel {
        match self.few_products {
            true => kernel.of_few_products(),
            false => kernel,
        }
    }

    fn depth(&self, mem: MemType, pads: &Scratchpads) -> usize {
        match mem {
            MemType::Uop => pads.uop.len(),
            MemType::Inp => self.inputs,
            MemType::Wgt | MemType::Wgt4 => self.weights,
            MemType::Acc | MemType::Acc8 | MemType::Out => self.accumulators,
        }
    }

    fn gemm(&mut self, pads: &mut Scratchpads, gemm: &Gemm) -> Result<(), Outside> {
        let (kernel, lanes, block) = (pads.kernel, pads.lanes, pads.block);
        let uops = uops(&pads.uop, gemm.uop_bgn, gemm.uop_end)?;
        let loops = [gemm.dst_loops(), gemm.src_loops(), gemm.wgt_loops()];
        if gemm.steps() == 0 {
            return Ok(());
        }
        inside(uops, |u| u.dst, &loops[0], self.accumulators)?;
        if !gemm.reset {
            inside(uops, |u| u.src, &loops[1], self.inputs)?;
            inside(uops, |u| u.wgt, &loops[2], self.weights)?;
        }
        if gemm.reset || gemm.overwrite {
            // Of several steps on a tile the last one counts, which is left to the oracle.
            if !gemm.reset && !gemm.dst(uops).is_apart() {
                return Err(Outside);
            }
            let op = AluOp::Mov;
            self.runs_of(uops, &loops[0], None, lanes as u32, |on| {
                lanes::each(kernel, TileOp { op, on, lanes }, 0, &mut pads.acc);
            });
        }
        if gemm.reset {
            return Ok(());
        }
        if !matches!(&self.learnt.of, Some((of, _)) if *of == loops) {
            self.learnt.learn(loops, [lanes, block].map(|n| n as u32));
        }
        let products = self.products(kernel);
        let Learnt {
            rows,
            all,
            taps,
            of,
        } = &self.learnt;
        if let &[uop] = uops
            && !taps.is_empty()
            && takes_plain(kernel, rows)
        {
            pads.add_plain(products, all, taps, uop);
            return Ok(());
        }
        let mut room = Room {
            kernel: products,
            tiles_kernel: kernel,
            block,
            inp: &pads.inp,
            wgt: &pads.wgt,
            acc: &mut pads.acc,
            tiles: &mut pads.tiles,
            lists: &mut self.lists,
        };
        let loops = of.iter().map(|(_, loops)| loops);
        loops.for_each(|loops| room.trips(rows, uops, loops, lanes as u32));
        Ok(())
    }

    fn alu(&mut self, pads: &mut Scratchpads, alu: &Alu) -> Result<(), Outside> {
        let (kernel, lanes, acc) = (pads.kernel, pads.lanes, &mut pads.acc);
        let uops = uops(&pads.uop, alu.uop_bgn, alu.uop_end)?;
        if alu.steps() == 0 {
            return Ok(());
        }
        let (dst, src) = (alu.dst_loops(), alu.src_loops());
        let depth = self.accumulators;
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
        if let ([uop], [1, 1]) = (uops, dst.trips) {
            let [dst, src] = [uop.dst, uop.src].map(|tile| u32::from(tile) * lanes);
            return run(&[TileRun::single(dst, src)]);
        }
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
            if tiles == 1 && runs.last_mut().is_some_and(|last| last.joins(&new)) {
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
        AluOp::Shr | AluOp::Shl | AluOp::Clip | AluOp::Mov => false,
    }
}

fn depthwise(pads: &mut Scratchpads, config: &Config, insn: &Depthwise) -> Result<(), Outside> {
    let uops = uops(&pads.uop, insn.uop_bgn, insn.uop_end)?.to_vec();
    let resolved = Resolved::of(config, &(*insn).into(), Uops::of(&uops));
    let Ok(Resolved::Depthwise(access)) = resolved else {
        return Err(Outside);
    };
    if insn.steps() == 0 {
        return Ok(());
    }
    // Of several steps on a tile the last one counts.
    if insn.overwrite && !access.dst.is_apart() {
        return Err(Outside);
    }
    windows::depthwise(pads, &access);
    Ok(())
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

impl Direct {
    fn load(
        &mut self,
        pads: &mut Scratchpads,
        config: &Config,
        load: &Load,
        memory: &DeviceMemory,
    ) -> Result<(), Outside> {
        let Some(rows) = load.dram_rows(config) else {
            return Ok(());
        };
        if load.sram_span().end > self.depth(load.mem, pads) as u64 {
            return Err(Outside);
        }
        let span = self
            .near
            .span(load.mem, &rows, memory)
            .map_err(|_| Outside)?;
        let bytes = &memory.region(span.region)[span.start..span.start + span.len];
        let padding = [load.x_pad_0, load.x_pad_1, load.y_pad_0, load.y_pad_1];
        // Most loads are one run of bytes: nothing is described for these.
        if padding == [0; 4] && Shape::of(&rows).is_dense() {
            pads.fill(load.mem, load.sram_base.into(), bytes);
        } else {
            super::load(&LoadOp::of(load, &rows, span), pads, bytes);
        }
        Ok(())
    }

    fn store(
        &mut self,
        pads: &Scratchpads,
        config: &Config,
        store: &Store,
        memory: &mut DeviceMemory,
    ) -> Result<(), Outside> {
        let Some(rows) = store.dram_rows(config) else {
            return Ok(());
        };
        let operands = store.operands().map(|(_, tiles)| tiles.end);
        let end = operands.fold(store.sram_span().end, u64::max);
        if end > self.accumulators as u64 {
            return Err(Outside);
        }
        let span = self
            .near
            .span(MemType::Out, &rows, memory)
            .map_err(|_| Outside)?;
        let op = StoreOp::of(store, &rows, span, pads.lanes);
        super::store(&op, pads, memory);
        Ok(())
    }
}
