//! Small programs, each for one condition of a fusion: with the fusion but without its condition
//! their results are others than the oracle's.
//!
//! Words are short for fields: `uop=a..b` for `uop_bgn` and `uop_end`, `n` for `iter_in` (and one
//! outer trip), `d`, `s` and `w` for the inner factors, `x=n` for one row of `n` tiles, `to` for
//! `sram_base` and `at` for `dram_base`. Inputs lie at 0x2000, weights at 0x80 (diagonal ones from
//! 0x88), int32 at 0xc00, results at 0x4000; with two batch rows at 0x1000, 0x80, 0x600 and 0x2000.
//!
//! A table, so that it is longer than other files.

/// Micro-ops are loaded first, all of them; then the lines run one after the other.
pub(super) struct Case {
    pub name: &'static str,
    /// Destination, source and weight tile of each.
    pub uops: &'static [(u16, u16, u16)],
    pub text: &'static str,
}

/// Programs of the default configuration.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "inputs that were stored over are read from the scratchpad",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc to=8 at=0xc00 x=2
               store to=8 at=0x2001 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a vector that is stored over before it is loaded is no constant",
        uops: &[(0, 0, 0), (0, 9, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc to=8 at=0xc00 x=1
               store to=8 at=0x3004 x=1
               load.acc to=9 at=0xc01 x=1
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "an input that is stored over is no bias",
        uops: &[(0, 0, 0), (0, 7, 1)],
        text: "load.inp at=0x2000 x=7
               load.wgt at=0x80 x=16
               load.acc to=8 at=0xc00 x=1
               store to=8 at=0x2007 x=1
               load.acc to=20 at=0xc05 x=1
               load.inp to=7 at=0x2007 x=1
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a tile that a joined product writes is no constant any more",
        uops: &[(3, 0, 0), (3, 3, 1), (10, 0, 0), (10, 5, 0)],
        text: "load.acc to=5 at=0xc00 x=1
               load.wgt at=0x80 x=16
               load.inp at=0x2000 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=3 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=1
               alu.add uop=3..4 n=2 d=1
               store to=10 at=0x4000 x=2",
    },
    Case {
        name: "weights that move with a loop",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1 w=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "destinations with other inputs each",
        uops: &[(0, 0, 0), (4, 2, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=6",
    },
    Case {
        name: "a loop that stays on one tile",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=3 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a tap twice",
        uops: &[(0, 1, 0), (0, 1, 0), (4, 1, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=6",
    },
    Case {
        name: "products of different regions aren't joined",
        uops: &[(0, 0, 0), (0, 8, 1)],
        text: "load.inp at=0x2000 x=4
               load.inp to=8 at=0x4000 x=4
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=3 d=1 s=1
               gemm uop=1..2 n=3 d=1 s=1
               store to=0 at=0x4020 x=3",
    },
    Case {
        name: "groups of joined products don't overlap",
        uops: &[(0, 0, 0), (2, 0, 1), (1, 4, 2), (3, 4, 3)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               gemm uop=2..4 n=2 d=1 s=1
               store to=0 at=0x4000 x=5",
    },
    Case {
        name: "products of other groups aren't joined",
        uops: &[(0, 0, 0), (8, 0, 1), (0, 4, 2)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=10",
    },
    Case {
        name: "groups that move by different amounts aren't joined",
        uops: &[(0, 0, 0), (8, 0, 1), (1, 4, 2), (7, 4, 3)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               gemm uop=2..4 n=2 d=1 s=1
               store to=0 at=0x4000 x=10",
    },
    Case {
        name: "two taps of diagonal weights are no residual",
        uops: &[(0, 0, 0), (0, 0, 8), (0, 4, 9)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a residual of padding is none",
        uops: &[(0, 0, 0), (0, 8, 8)],
        text: "load.inp at=0x2000 x=8
               load.inp to=8 at=0x2008 x=3 x_pad_1=1
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               gemm uop=1..2 n=4 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a residual lies in one region",
        uops: &[(0, 0, 0), (4, 0, 1), (0, 8, 8), (4, 16, 9)],
        text: "load.inp at=0x2000 x=16
               load.inp to=16 at=0x4000 x=4
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=1
               gemm uop=2..4 n=1
               store to=0 at=0x4020 x=5",
    },
    Case {
        name: "weights beside the diagonal are no residual",
        uops: &[(0, 0, 0), (0, 4, 1), (0, 8, 2)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a reset of fewer tiles than the product has",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=4
               gemm reset uop=0..1 n=2 d=1
               gemm uop=0..1 n=4 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a reset of more tiles than the product has",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=4
               gemm reset uop=0..1 n=4 d=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a step between a reset and the product",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm reset uop=0..1 n=2 d=1
               alu.add imm=77 uop=0..1 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a reset between products",
        uops: &[(0, 0, 0), (0, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm reset uop=0..1 n=2 d=1
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a load between products",
        uops: &[(0, 0, 0), (0, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 at=0x2010 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "products of other positions",
        uops: &[(0, 0, 0), (0, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=1..2 n=4 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "products of fewer groups",
        uops: &[(0, 0, 0), (0, 4, 1), (8, 4, 2)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=1..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=10",
    },
    Case {
        name: "products of neighbouring groups",
        uops: &[(0, 0, 0), (1, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=3",
    },
    Case {
        name: "a chunk isn't moved behind a write of its residual's operand",
        uops: &[(0, 0, 0), (0, 8, 1), (0, 9, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 at=0x2018 x=2
               load.acc8 to=9 at=0x2003 x=1
               alu.add uop=2..3 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 to=9 at=0x2004 x=1
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a chunk isn't moved behind a store to its inputs",
        uops: &[(0, 0, 0), (0, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2018 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=20 at=0x2000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "inputs of two regions are read from the scratchpad",
        uops: &[(0, 0, 0), (0, 8, 1)],
        text: "load.inp at=0x2000 x=8
               load.inp to=8 at=0x4000 x=8
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               load.inp at=0x2000 x=16
               gemm reset uop=0..1 n=1
               store to=0 at=0x4020 x=2",
    },
    Case {
        name: "a step that visits the product's tiles twice",
        uops: &[(0, 0, 0), (0, 0, 0), (1, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.add imm=9 uop=1..3 n=2
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a step on tiles beside the product's",
        uops: &[(0, 0, 0), (1, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.mul imm=3 uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=3",
    },
    Case {
        name: "a step whose operand is loaded after the product",
        uops: &[(0, 0, 0), (0, 9, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 to=9 at=0x2010 x=1
               alu.add uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a step whose operand is the product's own",
        uops: &[(0, 0, 0), (8, 0, 1), (0, 8, 0), (8, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=1
               alu.add uop=2..4 n=1
               store to=0 at=0x4000 x=9",
    },
    Case {
        name: "a step whose operand is another for each position",
        uops: &[(0, 0, 0), (0, 9, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=9 at=0x2010 x=2
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a bias that changes inside a group",
        uops: &[(0, 0, 0), (0, 7, 1), (2, 7, 2)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               gemm uop=1..3 n=2 d=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a bias behind a reset",
        uops: &[(0, 0, 0), (0, 7, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm reset uop=0..1 n=2 d=1
               gemm uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a bias behind a load",
        uops: &[(0, 0, 0), (0, 7, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 at=0x2010 x=2
               gemm uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a bias with taps of another region",
        uops: &[(0, 0, 0), (0, 7, 1), (0, 16, 2)],
        text: "load.inp at=0x2000 x=16
               load.inp to=16 at=0x4000 x=4
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4020 x=2",
    },
    Case {
        name: "a bias of more tiles than the product has",
        uops: &[(0, 0, 0), (0, 7, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=4 d=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a residual isn't moved before a store to it",
        uops: &[(0, 0, 0), (0, 16, 8)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2000 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=20 at=0x2018 x=2
               load.acc to=30 at=0xc00 x=1
               load.inp to=16 at=0x2018 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a residual whose factors change inside a group",
        uops: &[(0, 0, 0), (0, 8, 8), (2, 10, 9)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               gemm uop=1..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a residual whose bytes lie elsewhere in another group",
        uops: &[
            (0, 0, 0),
            (4, 0, 1),
            (0, 8, 8),
            (1, 9, 8),
            (4, 12, 9),
            (5, 15, 9),
        ],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               gemm uop=2..6 n=1
               store to=0 at=0x4000 x=6",
    },
    Case {
        name: "two residuals",
        uops: &[(0, 0, 0), (0, 8, 8), (0, 10, 8)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a residual of more tiles than the product has",
        uops: &[(0, 0, 0), (0, 8, 8)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=4 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a step behind a load of some of the tiles",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 to=1 at=0x2010 x=1
               alu.add imm=5 uop=0..1 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a step between the stores of two groups",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               alu.add imm=5 uop=0..2 n=2 d=1
               store to=4 at=0x4010 x=2",
    },
    Case {
        name: "a store isn't moved before a load of its bytes",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.acc8 to=20 at=0x4000 x=2
               store to=0 at=0x4000 x=2
               store to=20 at=0x4010 x=2",
    },
    Case {
        name: "a store isn't moved before another to its bytes",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2010 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=20 at=0x4000 x=2
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a store of tiles that the product skips",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=4
               gemm uop=0..1 n=2 d=2 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "rows of a store that overlap",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               store to=0 at=0x4000 y_size=2 x_size=2 x_stride=1",
    },
    Case {
        name: "a store of more tiles than the product has",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=4
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=3",
    },
    Case {
        name: "a store of some of a group's tiles and of others",
        uops: &[(2, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=8
               gemm uop=0..1 n=4 d=1 s=1
               store to=0 at=0x4000 y_size=2 x_size=2 x_stride=4",
    },
    Case {
        name: "a group that is stored twice",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               store to=0 at=0x4010 x=2
               store to=4 at=0x4020 x=2",
    },
    Case {
        name: "groups that are stored in other shapes",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=4 d=1 s=1
               store to=0 at=0x4000 y_size=2 x_size=2 x_stride=3
               store to=4 at=0x4010 x=4",
    },
    Case {
        name: "groups that are stored in two regions",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               store to=4 at=0x2020 x=2",
    },
    Case {
        name: "groups that are stored to the same bytes",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..2 n=2 d=1 s=1
               store to=4 at=0x4000 x=2
               store to=0 at=0x4001 x=2",
    },
    Case {
        name: "a store to the product's inputs",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x2001 x=2",
    },
    Case {
        name: "a residual of tiles that the product skips",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 at=0x2010 x=2
               gemm uop=0..1 n=2 d=2 s=1
               store to=0 at=0x4000 x=3",
    },
    Case {
        name: "a residual before a reset",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 at=0x2010 x=2
               gemm reset uop=0..1 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a tile is stored between two loads of a residual",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=0 at=0x2010 x=2
               load.acc8 to=4 at=0x2018 x=2
               store to=4 at=0x4010 x=2
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=6",
    },
    Case {
        name: "a residual that is stored over before the product",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2000 x=2
               load.acc8 to=0 at=0x2018 x=2
               store to=20 at=0x2018 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a step between two loads of a residual",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=0 at=0x2010 x=2
               alu.add imm=5 uop=0..2 n=2 d=1
               load.acc8 to=4 at=0x2018 x=2
               gemm uop=0..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=6",
    },
    Case {
        name: "a residual with padding for other tiles",
        uops: &[(0, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc to=0 at=0xc00 x=4
               load.acc8 to=0 at=0x2010 x=2 y_pad_1=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=4",
    },
    Case {
        name: "a load of int32 is no residual",
        uops: &[(0, 0, 0), (8, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc to=8 at=0xc00 x=8
               load.acc8 to=0 at=0x3040 x=8
               load.acc to=8 at=0xc02 x=2
               gemm uop=0..2 n=8 d=1 s=1
               store to=0 at=0x4000 x=16",
    },
    Case {
        name: "sums that are read before they are reset",
        uops: &[(0, 0, 0), (8, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=1..2 n=2 d=1 s=1
               gemm reset uop=0..1 n=2 d=1
               store to=8 at=0x4000 x=2",
    },
    Case {
        name: "sums that are read before the product to join",
        uops: &[(0, 0, 0), (4, 0, 1), (8, 0, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=2..3 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               store to=8 at=0x4000 x=2",
    },
    Case {
        name: "products that share a tile",
        uops: &[(0, 0, 0), (1, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=1..2 n=2 d=1 s=1",
    },
    Case {
        name: "a product's store isn't moved behind a load of it",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               load.acc8 to=20 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4008 x=2
               store to=20 at=0x4010 x=2",
    },
    Case {
        name: "a product isn't moved behind a store to its inputs",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2010 x=2
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               store to=20 at=0x2000 x=2
               load.acc to=30 at=0xc00 x=1
               load.inp to=0 at=0x2000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "inputs between what two products store",
        uops: &[(0, 4, 0), (4, 4, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x2000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x2008 x=2",
    },
    Case {
        name: "products of which one starts from zero",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=8
               gemm reset uop=0..1 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "products of which one's sums are overwritten in between",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm reset uop=0..2 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               load.acc8 to=0 at=0x2010 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "products on other positions",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               load.inp to=16 at=0x2010 x=2
               gemm uop=1..2 n=2 d=2 s=1",
    },
    Case {
        name: "products with other immediates",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.add imm=3 uop=0..1 n=2 d=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               alu.add imm=4 uop=1..2 n=2 d=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "products with other operations",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               alu.max imm=3 uop=0..1 n=2 d=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               alu.min imm=3 uop=1..2 n=2 d=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "products of other inputs",
        uops: &[(0, 0, 0), (4, 3, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "products whose stores have other shapes",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               store to=0 at=0x4000 x=4
               gemm uop=1..2 n=4 d=1 s=1
               store to=4 at=0x4008 y_size=2 x_size=2 x_stride=3",
    },
    Case {
        name: "products whose stores overlap",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4001 x=2",
    },
    Case {
        name: "products whose residuals lie elsewhere",
        uops: &[(0, 0, 0), (4, 0, 1), (0, 8, 8), (4, 8, 8), (5, 10, 8)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               gemm uop=1..2 n=2 d=1 s=1
               gemm uop=3..5 n=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "an operand that changes between two products",
        uops: &[(0, 0, 0), (4, 0, 1), (0, 20, 0), (4, 20, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2010 x=1
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=2..3 n=2 d=1
               store to=0 at=0x4000 x=2
               load.acc8 to=20 at=0x2011 x=1
               gemm uop=1..2 n=2 d=1 s=1
               alu.add uop=3..4 n=2 d=1
               store to=4 at=0x4008 x=2",
    },
    Case {
        name: "a chain on runs that repeat a tile isn't done run by run",
        uops: &[(0, 0, 0), (1, 1, 0), (0, 0, 0)],
        text: "alu.add imm=1 uop=0..3 n=1
               alu.shl imm=1 uop=0..3 n=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a loop with factor 0 visits a tile again and again",
        uops: &[(4, 0, 0), (2, 0, 0)],
        text: "load.acc at=0xc00 x=8
               alu.mul imm=3 uop=0..2 n=5 iter_out=3
               alu.shr imm=2 uop=0..1 n=5
               alu.max imm=-9 uop=0..2 n=5
               store to=2 at=0x4000 x=3",
    },
    Case {
        name: "steps on other runs",
        uops: &[(0, 0, 0), (1, 0, 0)],
        text: "load.acc at=0xc00 x=8
               alu.mul imm=3 uop=0..2 n=2 d=2
               alu.add imm=7 uop=0..2 n=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "two operations on the same pairs",
        uops: &[(0, 8, 0), (1, 9, 0)],
        text: "load.acc at=0xc00 x=16
               alu.add uop=0..2 n=1
               alu.max uop=0..2 n=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "an operand that the instruction changes",
        uops: &[(0, 1, 0), (1, 0, 0)],
        text: "load.acc at=0xc00 x=4
               alu.add uop=0..2 n=1
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "a pair twice",
        uops: &[(0, 1, 0), (0, 1, 0)],
        text: "load.acc at=0xc00 x=4
               alu.add uop=0..2 n=3
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "an operand that the next instruction changes",
        uops: &[(0, 8, 0), (8, 0, 0)],
        text: "load.acc at=0xc00 x=16
               alu.add uop=0..1 n=2 d=1 s=1
               alu.add uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=10",
    },
    Case {
        name: "a store whose rows cut a group in two",
        uops: &[(0, 0, 0), (2, 0, 1), (4, 0, 2)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..3 n=2 d=1 s=1
               store to=0 at=0x4000 y_size=2 x_size=3 x_stride=8",
    },
    Case {
        name: "residuals of two regions",
        uops: &[(0, 0, 0), (0, 8, 8), (0, 12, 9)],
        text: "load.inp at=0x2010 x=8
               load.inp to=8 at=0x2000 x=2
               load.inp to=12 at=0x4000 x=2
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=1
               store to=0 at=0x4020 x=2",
    },
    Case {
        name: "residuals that begin alike",
        uops: &[(0, 0, 0), (0, 8, 8), (0, 8, 9)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               gemm uop=2..3 n=2 d=1 s=2
               store to=0 at=0x4000 x=2",
    },
    Case {
        name: "products of the same inputs on bytes that other steps change",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=0 at=0x2018 x=2
               load.acc8 to=4 at=0x2020 x=2
               alu.shl imm=1 uop=0..1 n=2 d=1
               alu.shl imm=2 uop=1..2 n=2 d=1
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               store to=4 at=0x4010 x=2",
    },
    Case {
        name: "products of the same inputs that are stored in two regions",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               store to=4 at=0x3010 x=2",
    },
    Case {
        name: "products of input tiles that change in between",
        uops: &[(0, 0, 0), (8, 0, 1)],
        text: "load.inp at=0x2000 x=2
               load.inp to=2 at=0x4000 x=2
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=4 d=1 s=1
               load.inp at=0x2008 x=1
               gemm uop=1..2 n=4 d=1 s=1
               store to=0 at=0x4020 x=4
               store to=8 at=0x4030 x=4",
    },
    Case {
        name: "products of the same inputs that add tiles",
        uops: &[(0, 0, 0), (4, 0, 1), (0, 20, 0), (4, 21, 0)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc8 to=20 at=0x2018 x=2
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               alu.add uop=2..3 n=2 d=1
               alu.add uop=3..4 n=2 d=1
               store to=0 at=0x4000 x=2
               store to=4 at=0x4010 x=2",
    },
    Case {
        name: "products of the same inputs with fewer steps",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1 s=1
               alu.shr imm=2 uop=0..1 n=2 d=1
               alu.shr imm=2 uop=1..2 n=2 d=1
               alu.min imm=3 uop=1..2 n=2 d=1
               store to=0 at=0x4000 x=2
               store to=4 at=0x4010 x=2",
    },
    Case {
        name: "a product isn't moved behind a load of the sums that it goes on with",
        uops: &[(0, 0, 0), (4, 0, 1)],
        text: "load.inp at=0x2000 x=16
               load.wgt at=0x80 x=16
               load.acc at=0xc00 x=8
               gemm uop=0..1 n=2 d=1 s=1
               store to=0 at=0x4000 x=2
               load.acc8 to=0 at=0x2018 x=2
               gemm uop=1..2 n=2 d=1 s=1
               store to=4 at=0x4010 x=2
               load.acc8 to=4 at=0x2020 x=2",
    },
    Case {
        name: "a step on two tiles between immediates",
        uops: &[(0, 0, 0), (0, 4, 0)],
        text: "load.acc at=0xc00 x=8
               alu.add imm=7 uop=0..1 n=2 d=1
               alu.add uop=1..2 n=2 d=1 s=1
               alu.shl imm=1 uop=0..1 n=2 d=1
               store to=0 at=0x4000 x=2",
    },
];

/// Programs of two batch rows.
pub(super) const BATCH_CASES: &[Case] = &[
    Case {
        name: "a bias whose batch rows differ",
        uops: &[(0, 0, 0), (0, 7, 1)],
        text: "load.inp at=0x1000 x=8
               load.wgt at=0x80 x=16
               gemm uop=0..1 n=2 d=1 s=1
               gemm uop=1..2 n=2 d=1
               store to=0 at=0x2000 x=2",
    },
    Case {
        name: "a vector whose batch rows differ",
        uops: &[(0, 0, 0), (0, 9, 0)],
        text: "load.inp at=0x1000 x=8
               load.wgt at=0x80 x=16
               load.acc to=9 at=0x600 x=1
               gemm uop=0..1 n=2 d=1 s=1
               alu.add uop=1..2 n=2 d=1
               store to=0 at=0x2000 x=2",
    },
    Case {
        name: "repeated tiles of two batch rows",
        uops: &[(0, 8, 0), (1, 9, 0), (0, 9, 0)],
        text: "load.acc at=0x600 x=16
               alu.add imm=1 uop=0..3 n=2
               alu.shl imm=1 uop=0..3 n=2
               alu.add uop=0..3 n=2
               store to=0 at=0x2000 x=2",
    },
];
