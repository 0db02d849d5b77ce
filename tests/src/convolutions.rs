//! Random programs of the kind that a compiler makes for convolutions: products of a few tap
//! rectangles on the same outputs, chunk after chunk, with biases, resets, ALU steps and stores.
//! Whatever a compiler would never do is put between them now and then: inputs that are
//! overwritten before they are used up, sums that are read half way, outputs that are stored twice.

use std::ops::Range;

use vta_isa::{Alu, AluOperand, Config, Deps, Gemm, Insn, Load, MemType, Module, Uop};

use crate::programs::{Generator, RandomProgram};

/// A random program of so many output tiles, the same for the same seed. Its instructions run one
/// after the other.
pub fn generate(config: &Config, seed: u64, tiles: usize) -> RandomProgram {
    let mut g = Generator::new(config, seed);
    for _ in 0..tiles {
        let tile = Tile::new(&mut g);
        tile.generate(&mut g);
    }
    in_a_row(&mut g.insns);
    g.finish()
}

/// Height and width of some groups of outputs, which begin at `first`.
struct Tile {
    first: usize,
    size: [usize; 2],
    groups: usize,
}

impl Tile {
    fn new(g: &mut Generator<'_>) -> Self {
        let depth = g.config.depth(MemType::Acc);
        let size = [1 + g.below(5), 1 + g.below(5)];
        let groups = 1 + g.below(3);
        let len = groups * size[0] * size[1];
        // Few places, so that tiles meet those before them.
        let first = [0, depth / 2, depth - len][g.below(3)].min(depth - len);
        Self {
            first,
            size,
            groups,
        }
    }

    fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    fn range(&self) -> Range<usize> {
        self.first..self.first + self.groups * self.area()
    }

    fn generate(&self, g: &mut Generator<'_>) {
        match g.below(4) {
            0 => g.load(MemType::Acc, self.range()),
            1 => {}
            _ => self.whole(g, true),
        }
        self.load(g, MemType::Inp);
        self.load(g, MemType::Wgt);
        if g.below(2) == 0 {
            self.whole(g, false);
        }
        for _ in 0..=g.below(3) {
            self.load(g, MemType::Inp);
            if g.below(3) > 0 {
                self.load(g, MemType::Wgt);
            }
            for _ in 0..=g.below(4) {
                self.taps(g);
                if g.below(12) == 0 {
                    self.between(g);
                }
            }
        }
        for _ in 0..g.below(3) {
            self.vector(g);
        }
        g.store(self.range());
        if g.below(2) == 0 {
            g.store(self.range());
        }
    }

    /// One half of a scratchpad, or tiles across the middle.
    fn load(&self, g: &mut Generator<'_>, mem: MemType) {
        let quarter = g.config.depth(mem) / 4;
        let first = [0, 2 * quarter, quarter][g.below(12) / 5];
        let packed = mem == MemType::Wgt && g.packs_weights();
        let mem = if packed { MemType::Wgt4 } else { mem };
        g.load(mem, first..first + 2 * quarter);
    }

    fn between(&self, g: &mut Generator<'_>) {
        match g.below(4) {
            0 => g.store(self.range()),
            1 => self.vector(g),
            2 => g.load(MemType::Acc8, self.range()),
            _ => self.whole(g, true),
        }
    }

    /// A reset or a bias of all outputs.
    fn whole(&self, g: &mut Generator<'_>, reset: bool) {
        let src = g.below(g.config.depth(MemType::Inp));
        let wgt = g.below(g.config.depth(MemType::Wgt) - self.groups);
        let uop = |group| Uop {
            dst: (self.first + group * self.area()) as u16,
            src: src as u16,
            wgt: (wgt + group) as u16,
        };
        let uops: Vec<Uop> = (0..self.groups).map(uop).collect();
        let range = g.uops(&uops);
        let overwrite = g.overwrites();
        g.insns.push(
            Gemm {
                overwrite,
                reset,
                uop_bgn: range.start as u16,
                uop_end: range.end as u16,
                iter_out: 1,
                iter_in: self.area() as u16,
                dst_factor_in: 1,
                ..Gemm::default()
            }
            .into(),
        );
    }

    /// Products on a rectangle of the outputs, of some taps for some of the groups.
    fn taps(&self, g: &mut Generator<'_>) {
        let [height, width] = self.size.map(|n| 1 + g.below(n));
        let corner = [
            g.below(self.size[0] - height + 1),
            g.below(self.size[1] - width + 1),
        ];
        let stride = 1 + g.below(2);
        let row = self.size[1] * stride + g.below(2);
        let reach = (height - 1) * row + (width - 1) * stride;
        let inputs = g.config.depth(MemType::Inp) - reach;
        let weights = g.config.depth(MemType::Wgt);
        let base = [0, inputs / 2][g.below(2)];
        let mut uops = Vec::new();
        for group in 0..=g.below(self.groups) {
            for _ in 0..=g.below(3) {
                let near = base + g.below(4);
                uops.push(Uop {
                    dst: (self.first + group * self.area() + corner[0] * self.size[1] + corner[1])
                        as u16,
                    src: near.min(inputs - 1) as u16,
                    wgt: g.below(weights) as u16,
                });
            }
        }
        let range = g.uops(&uops);
        let overwrite = g.overwrites();
        g.insns.push(
            Gemm {
                deps: Deps::NONE,
                overwrite,
                reset: false,
                uop_bgn: range.start as u16,
                uop_end: range.end as u16,
                iter_out: height as u16,
                iter_in: width as u16,
                dst_factor_out: self.size[1] as u16,
                dst_factor_in: 1,
                src_factor_out: row as u16,
                src_factor_in: stride as u16,
                wgt_factor_out: 0,
                wgt_factor_in: 0,
            }
            .into(),
        );
    }

    /// A step on all outputs, with an immediate or a tile for each group.
    fn vector(&self, g: &mut Generator<'_>) {
        let operand = if g.below(2) == 0 {
            AluOperand::Imm(g.below(40) as i16 - 20)
        } else {
            AluOperand::Acc
        };
        let source = g.below(g.config.depth(MemType::Acc) - self.groups);
        let uop = |group| Uop {
            dst: (self.first + group * self.area()) as u16,
            src: (source + group) as u16,
            wgt: 0,
        };
        let uops: Vec<Uop> = (0..self.groups).map(uop).collect();
        let range = g.uops(&uops);
        let op = g.op();
        g.insns.push(
            Alu {
                deps: Deps::NONE,
                op,
                operand,
                uop_bgn: range.start as u16,
                uop_end: range.end as u16,
                iter_out: 1,
                iter_in: self.area() as u16,
                dst_factor_out: 0,
                dst_factor_in: 1,
                src_factor_out: 0,
                src_factor_in: 0,
            }
            .into(),
        );
    }
}

/// Modules in the order in which they have tokens for each other: load, compute, store.
fn module(insn: &Insn) -> usize {
    match insn {
        Insn::Load(load) if insn.module() == Module::Load && !load.preload => 0,
        Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => 1,
        Insn::Store(_) => 2,
    }
}

/// Lets each instruction wait for the one before it, if that is another module's.
fn in_a_row(insns: &mut Vec<Insn>) {
    let mut all: Vec<Insn> = Vec::new();
    for insn in insns.drain(..) {
        push(&mut all, insn);
    }
    // FINISH, which follows, is the compute module's.
    push(&mut all, nothing());
    *insns = all;
}

/// Work of the compute module that only passes tokens on.
fn nothing() -> Insn {
    let mem = MemType::Acc;
    Load {
        mem,
        ..Load::default()
    }
    .into()
}

fn push(all: &mut Vec<Insn>, mut insn: Insn) {
    let to = module(&insn);
    let from = all.last().map_or(to, module);
    if from.abs_diff(to) == 2 {
        push(all, nothing());
        push(all, insn);
        return;
    }
    if let Some(last) = all.last_mut().filter(|_| from != to) {
        let (deps, own) = (last.deps_mut(), insn.deps_mut());
        if from < to {
            (deps.push_next, own.pop_prev) = (true, true);
        } else {
            (deps.push_prev, own.pop_next) = (true, true);
        }
    }
    all.push(insn);
}
