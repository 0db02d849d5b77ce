//! What the instructions of a batch that came before do, worked out, in the order in which they ran.
//!
//! A step does the same as its instruction, to scratchpads and DRAM alike. It depends on where allocations lie and on
//! the micro-ops that the batch loads: if these have changed, the rest runs as the instructions say.

use web_time::Instant;

use vta_driver::{DeviceMemory, LayerMark, StepBudget};
use vta_isa::resolve::{Loops, Rows};
use vta_isa::tokens;
use vta_isa::{Alu, AluOp, AluOperand, Config, Gemm, Insn, Load, MemType, Module, Uop};

use super::Laps;
use super::direct::Direct;
use super::scratchpads::Scratchpads;
use super::shape::Shape;
use crate::error::SimError;
use crate::kernels::direct::{DotRows, Tap};
use crate::kernels::lanes::{self, TileOp, TileRun};
use crate::kernels::{Operand, Step};

/// Instructions of a batch at most of which it is noted in which order they run, and no more: that is most of what is
/// gained, and takes little of a first run's time.
pub(crate) const MOST_OF_AN_ORDER: usize = 64;
/// Kinds of loops of which products are worked out.
const MOST_PRODUCTS: usize = 64;

/// The steps of a batch.
#[derive(Debug)]
pub(crate) struct Script {
    steps: Vec<ScriptStep>,
    products: Vec<Taps>,
    loaded: Vec<Loaded>,
    /// Of the memory whose places the steps have.
    layout: u64,
    /// Tokens that the batch leaves.
    leftover: [u32; 4],
    /// Whether each micro-op of the scratchpad was loaded by the batch, up to the last that was.
    known: Vec<bool>,
    /// Whether instructions are worked out.
    whole: bool,
}

/// A step, and the instruction that it is.
#[derive(Clone, Copy, Debug)]
struct ScriptStep {
    index: u32,
    what: What,
}

/// Places in scratchpads count tiles.
#[derive(Clone, Copy, Debug)]
enum What {
    /// What the instruction says.
    Insn,
    /// The same, and `loaded` has the micro-ops that are there then.
    Uops(u32),
    /// Bytes of a region into a scratchpad from one of its elements on.
    Load {
        mem: MemType,
        first: u16,
        span: ShortSpan,
    },
    /// As many accumulators, from a tile on, as bytes of a region: the low ones, or clamped.
    Store {
        first: u16,
        saturate: bool,
        span: ShortSpan,
    },
    Zero(u16),
    Each {
        op: AluOp,
        imm: i32,
        dst: u16,
    },
    Zip {
        op: AluOp,
        dst: u16,
        src: u16,
    },
    Product {
        product: u8,
        uop: Uop,
    },
}

/// Bytes of a region.
#[derive(Clone, Copy, Debug)]
struct ShortSpan {
    region: u16,
    len: u16,
    start: u32,
}

/// A batch has many.
const _: () = assert!(size_of::<ScriptStep>() == 16);

/// What products in the same loops have in common.
#[derive(Debug)]
struct Taps {
    of: [Loops; 3],
    rows: DotRows,
    taps: Vec<Tap>,
}

/// Micro-ops of the scratchpad.
#[derive(Debug)]
struct Loaded {
    first: usize,
    uops: Box<[Uop]>,
}

impl Script {
    /// No step yet, of a batch of so many instructions in a memory.
    pub fn new(insns: usize, memory: &DeviceMemory) -> Self {
        Self {
            steps: Vec::with_capacity(insns),
            products: Vec::new(),
            loaded: Vec::new(),
            layout: memory.layout(),
            leftover: [0; 4],
            known: Vec::new(),
            whole: insns > MOST_OF_AN_ORDER,
        }
    }

    /// Whether its places are those of a memory.
    pub fn holds(&self, memory: &DeviceMemory) -> bool {
        self.layout == memory.layout()
    }

    /// Adds an instruction that has just run.
    pub fn push(
        &mut self,
        (direct, pads): (&mut Direct, &Scratchpads),
        config: &Config,
        (index, insn): (usize, &Insn),
        memory: &DeviceMemory,
    ) {
        let what = match insn {
            Insn::Load(load) if load.is_sync() => return,
            Insn::Store(store) if store.is_sync() => return,
            Insn::Finish(_) => return,
            _ if !self.whole => None,
            Insn::Load(load) if load.mem == MemType::Uop => Some(self.uops(load, pads)),
            Insn::Load(load) => {
                let whole = [load.x_pad_0, load.x_pad_1, load.y_pad_0, load.y_pad_1] == [0; 4];
                let rows = load.dram_rows(config).filter(|_| whole);
                let span = span(direct, (load.mem, rows), memory);
                span.map(|span| What::Load {
                    mem: load.mem,
                    first: load.sram_base,
                    span,
                })
            }
            Insn::Store(store) => {
                let plain = store.requantize.is_none();
                let rows = store.dram_rows(config).filter(|_| plain);
                let span = span(direct, (MemType::Out, rows), memory);
                span.map(|span| What::Store {
                    first: store.sram_base,
                    saturate: store.saturate,
                    span,
                })
            }
            Insn::Gemm(gemm) => self.gemm(direct, pads, gemm),
            Insn::Alu(alu) => self.alu(pads, alu),
            Insn::Depthwise(_) => None,
        };
        self.steps.push(ScriptStep {
            index: index as u32,
            what: what.unwrap_or(What::Insn),
        });
    }

    fn uops(&mut self, load: &Load, pads: &Scratchpads) -> What {
        let first = usize::from(load.sram_base);
        let all = first..first + load.sram_tiles() as usize;
        self.known.resize(self.known.len().max(all.end), false);
        self.known[all.clone()].fill(true);
        let uops = pads.uop[all].into();
        self.loaded.push(Loaded { first, uops });
        What::Uops(self.loaded.len() as u32 - 1)
    }

    /// The only micro-op of an instruction, if the batch has loaded it.
    fn only_uop(&self, pads: &Scratchpads, bgn: u16, end: u16) -> Option<Uop> {
        let at = usize::from(bgn);
        (end == bgn + 1 && *self.known.get(at)?).then(|| pads.uop[at])
    }

    fn gemm(&mut self, direct: &Direct, pads: &Scratchpads, gemm: &Gemm) -> Option<What> {
        let uop = self.only_uop(pads, gemm.uop_bgn, gemm.uop_end)?;
        if gemm.reset {
            let once = (gemm.iter_out, gemm.iter_in) == (1, 1);
            return once.then_some(What::Zero(uop.dst));
        }
        if gemm.overwrite {
            return None;
        }
        let of = [gemm.dst_loops(), gemm.src_loops(), gemm.wgt_loops()];
        let known = self.products.iter().position(|product| product.of == of);
        let product = match known {
            Some(known) => known,
            None if self.products.len() == MOST_PRODUCTS => return None,
            None => {
                let (rows, taps) = direct.plain_product(&of, pads.kernel)?;
                self.products.push(Taps { of, rows, taps });
                self.products.len() - 1
            }
        };
        let product = product as u8;
        Some(What::Product { product, uop })
    }

    fn alu(&self, pads: &Scratchpads, alu: &Alu) -> Option<What> {
        let Uop { dst, src, .. } = self.only_uop(pads, alu.uop_bgn, alu.uop_end)?;
        if (alu.iter_out, alu.iter_in) != (1, 1) {
            return None;
        }
        match alu.operand {
            AluOperand::Acc => Some(What::Zip {
                op: alu.op,
                dst,
                src,
            }),
            AluOperand::Imm(imm) => match Step::immediate(alu.op, imm.into()) {
                Step {
                    op,
                    operand: Operand::Imm(imm),
                } => Some(What::Each { op, imm, dst }),
                _ => None,
            },
        }
    }
}

/// The bytes of rows in DRAM, if they are one run.
fn span(
    direct: &mut Direct,
    (mem, rows): (MemType, Option<Rows>),
    memory: &DeviceMemory,
) -> Option<ShortSpan> {
    let rows = rows.filter(|rows| Shape::of(rows).is_dense())?;
    let span = direct.near.span(mem, &rows, memory).ok()?;
    Some(ShortSpan {
        region: span.region.try_into().ok()?,
        len: span.len.try_into().ok()?,
        start: span.start.try_into().ok()?,
    })
}

/// What instructions run on without a plan.
pub(crate) struct Stage<'a> {
    pub direct: &'a mut Direct,
    pub pads: &'a mut Scratchpads,
    pub config: &'a Config,
    pub insns: &'a [Insn],
    pub marks: &'a [LayerMark],
    pub memory: &'a mut DeviceMemory,
    pub laps: Laps,
}

impl Stage<'_> {
    /// Runs all instructions, of so many steps at most; what they do is added to a script. The tokens that are left.
    ///
    /// # Errors
    /// As [`Executor::run`](crate::Executor::run).
    pub fn run(
        &mut self,
        most_steps: u64,
        mut script: Option<&mut Script>,
    ) -> Result<[u32; 4], SimError> {
        let mut steps = StepBudget::new(most_steps);
        let mut marks = (0..).zip(self.marks).peekable();
        let mut next_mark = self
            .marks
            .first()
            .map_or(usize::MAX, |mark| mark.first_insn);
        let leftover = tokens::run_in_token_order(self.insns, |index, insn| {
            steps.spend(index, insn)?;
            if next_mark <= index && insn.module() == Module::Compute {
                while let Some((mark, _)) = marks.next_if(|m| m.1.first_insn <= index) {
                    self.laps.begin(mark, Instant::now());
                }
                next_mark = marks.peek().map_or(usize::MAX, |m| m.1.first_insn);
            }
            self.execute(index)?;
            if let Some(script) = &mut script {
                let held = (&mut *self.direct, &*self.pads);
                script.push(held, self.config, (index, insn), self.memory);
            }
            Ok::<_, SimError>(())
        })?;
        if let Some(script) = script {
            script.leftover = leftover;
        }
        Ok(leftover)
    }

    #[inline]
    fn execute(&mut self, index: usize) -> Result<(), SimError> {
        let insn = (index, &self.insns[index]);
        self.direct
            .execute(self.pads, self.config, insn, self.memory)
    }
}

impl Script {
    /// Runs all steps in a memory in which it [holds](Self::holds). The tokens that are left.
    ///
    /// # Errors
    /// As [`Direct::execute`].
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<[u32; 4], SimError> {
        let mut marks = stage.marks.iter().enumerate().peekable();
        let mut as_said = false;
        for step in &self.steps {
            let index = step.index as usize;
            let begins = |m: &(usize, &LayerMark)| m.1.first_insn <= index;
            if marks.peek().is_some_and(begins) && stage.insns[index].module() == Module::Compute {
                while let Some((mark, _)) = marks.next_if(begins) {
                    stage.laps.begin(mark, Instant::now());
                }
            }
            let what = if as_said { What::Insn } else { step.what };
            as_said |= !self.perform(what, index, stage)?;
        }
        Ok(self.leftover)
    }

    /// Does a step; whether the steps behind it hold.
    #[inline]
    fn perform(&self, what: What, index: usize, stage: &mut Stage<'_>) -> Result<bool, SimError> {
        let lanes = stage.pads.lanes;
        let pads = &mut *stage.pads;
        let at = |tile: u16| usize::from(tile) * lanes;
        let single = |dst, src| TileRun::single(at(dst) as u32, at(src) as u32);
        match what {
            What::Insn => stage.execute(index)?,
            What::Uops(number) => {
                stage.execute(index)?;
                let Loaded { first, uops } = &self.loaded[number as usize];
                return Ok(stage.pads.uop[*first..*first + uops.len()] == **uops);
            }
            What::Load { mem, first, span } => {
                let bytes = &stage.memory.region(span.region.into())[span.start as usize..];
                pads.fill(mem, first.into(), &bytes[..span.len.into()]);
            }
            What::Store {
                first,
                saturate,
                span,
            } => {
                let to = stage.memory.region_mut(span.region.into());
                let to = &mut to[span.start as usize..][..span.len.into()];
                let acc = &pads.acc[at(first)..][..to.len()];
                let narrow = if saturate {
                    lanes::saturate
                } else {
                    lanes::narrow
                };
                narrow(pads.kernel, acc, to);
            }
            What::Zero(dst) => pads.acc[at(dst)..][..lanes].fill(0),
            What::Each { op, imm, dst } => {
                let on = &[single(dst, dst)][..];
                lanes::each(pads.kernel, TileOp { op, on, lanes }, imm, &mut pads.acc);
            }
            What::Zip { op, dst, src } => {
                let on = &[single(dst, src)][..];
                lanes::zip(pads.kernel, TileOp { op, on, lanes }, &mut pads.acc);
            }
            What::Product { product, uop } => {
                let Taps { rows, taps, .. } = &self.products[usize::from(product)];
                let kernel = stage.direct.products(pads.kernel);
                pads.add_plain(kernel, rows, taps, uop);
            }
        }
        Ok(true)
    }
}
