//! What decoded instructions become.
#![allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]

use std::ops::Range;
use std::sync::Arc;

use vta_isa::resolve::Uops;
use vta_isa::{Alu, AluOp, AluOperand, Config, Gemm, Insn, Load, Store, Uop};

use super::*;
use crate::plan::ops::Kind;
use crate::plan::target::{Cut, Room, Shape};
use crate::scopes::Scopes;

const ROOM: Room = Room([4096, 1024, 2048]);

/// What a batch has for the device to do.
struct Decoded {
    ops: Vec<Op>,
}

fn decode_in(room: Room, f: impl FnOnce(&mut Decoder)) -> Decoded {
    let mut decoder = Decoder::new(Target {
        config: Arc::default(),
        shape: Shape::VECTORS,
        room,
        cut: Cut {
            items: 1,
            block_cost: 1,
            max_blocks: 1,
            small_cost: 1,
            stripes: 1,
        },
        scopes: Scopes::default(),
        tile_bytes: [16, 256, 64],
        dram: (0x1000, 1 << 20),
    });
    f(&mut decoder);
    let mut ops = Vec::new();
    decoder.finish(|op| ops.push(op)).unwrap();
    Decoded { ops }
}

/// Takes an instruction with its micro-ops.
fn take(decoder: &mut Decoder, insn: impl Into<Insn>, uops: &[Uop]) {
    let at = At {
        index: 0,
        insn: insn.into(),
    };
    let resolved = Resolved::of(&Config::default(), &at.insn, Uops::of(uops));
    decoder.take(&at, &resolved.unwrap()).unwrap();
}

fn decode(f: impl FnOnce(&mut Decoder)) -> Decoded {
    decode_in(ROOM, f)
}

fn kinds(decoded: &Decoded) -> Vec<Kind> {
    decoded.ops.iter().map(|op| op.kind).collect()
}

fn uop(dst: u16, src: u16, wgt: u16) -> Uop {
    Uop { dst, src, wgt }
}

/// A rectangle of outputs in rows of 6, with inputs in rows of 8.
fn rectangle(height: u16, width: u16) -> Gemm {
    Gemm {
        uop_end: 1,
        iter_out: height,
        iter_in: width,
        dst_factor_out: 6,
        dst_factor_in: 1,
        src_factor_out: 8,
        src_factor_in: 1,
        ..Gemm::default()
    }
}

fn reset() -> Gemm {
    Gemm {
        reset: true,
        uop_end: 1,
        iter_out: 1,
        iter_in: 24,
        dst_factor_in: 1,
        ..Gemm::default()
    }
}

fn load(mem: MemType, sram_base: u16, tiles: u16) -> Load {
    Load {
        mem,
        sram_base,
        dram_base: 0x800,
        y_size: 1,
        x_size: tiles,
        ..Load::default()
    }
}

fn clamp(op: AluOp) -> Alu {
    Alu {
        deps: vta_isa::Deps::NONE,
        op,
        operand: AluOperand::Imm(3),
        uop_bgn: 0,
        uop_end: 1,
        iter_out: 1,
        iter_in: 24,
        dst_factor_out: 0,
        dst_factor_in: 1,
        src_factor_out: 0,
        src_factor_in: 1,
    }
}

fn store(sram_base: u16) -> Store {
    Store {
        sram_base,
        dram_base: 0x200,
        y_size: 1,
        x_size: 24,
        x_stride: 24,
        ..Store::default()
    }
}

/// Four rows of outputs: the bias, then taps of three rectangles.
fn taps(d: &mut Decoder) {
    take(
        d,
        Gemm {
            src_factor_out: 0,
            src_factor_in: 0,
            ..rectangle(4, 6)
        },
        &[uop(0, 2000, 9)],
    );
    take(d, rectangle(4, 6), &[uop(0, 0, 0), uop(0, 8, 1)]);
    take(d, rectangle(4, 5), &[uop(1, 0, 2)]);
    take(d, rectangle(3, 5), &[uop(7, 0, 3)]);
}

#[test]
fn different_rectangles_on_the_same_outputs_are_one_operation() {
    let decoded = decode(taps);
    assert_eq!(kinds(&decoded), [Kind::Products]);
    let op = &decoded.ops[0];
    assert_eq!(op.units, 3, "24 outputs, 8 at once");
    assert_eq!(op.args[..2], [24, 3]);
    assert_eq!(op.args[7], 2048 + 4096, "zeros lie behind all places");
    let acc = Scratchpad::Acc as usize;
    assert_eq!(op.touches.writes[acc], [0..24]);
    assert_eq!(op.touches.reads[Scratchpad::Wgt as usize], [0..4, 9..10]);
    assert_eq!(
        op.touches.reads[Scratchpad::Inp as usize],
        [0..38, 2000..2001]
    );
}

#[test]
fn chunks_whose_inputs_take_the_same_tiles_are_joined_while_there_is_room() {
    let chunks = |d: &mut Decoder| {
        for _ in 0..3 {
            take(d, load(MemType::Inp, 0, 40), &[]);
            take(d, load(MemType::Wgt, 0, 4), &[]);
            take(d, rectangle(4, 6), &[uop(0, 0, 0), uop(0, 8, 1)]);
        }
    };
    let joined = decode(chunks);
    let loads = [Kind::LoadInp, Kind::LoadWgt];
    assert_eq!(kinds(&joined)[..6], [loads; 3].concat());
    assert_eq!(kinds(&joined)[6..], [Kind::Products]);
    // What the batch leaves is at home.
    let first = |op: &Op| op.touches.writes.concat()[0].start;
    let places: Vec<_> = joined.ops[..6].iter().map(first).collect();
    assert_eq!(places, [2048, 1024, 2088, 1028, 0, 0]);
    let apart = decode_in(Room::default(), chunks);
    let chunk = [Kind::LoadInp, Kind::LoadWgt, Kind::Products];
    assert_eq!(kinds(&apart), [chunk; 3].concat());
}

#[test]
fn what_reads_or_overwrites_in_between_parts_products() {
    let gemm = |d: &mut Decoder| take(d, rectangle(4, 6), &[uop(0, 0, 0)]);
    let between = |f: fn(&mut Decoder)| {
        kinds(&decode_in(Room::default(), |d| {
            gemm(d);
            f(d);
            gemm(d);
        }))
    };
    let parted = |kind| vec![Kind::Products, kind, Kind::Products];
    assert_eq!(between(|d| take(d, store(0), &[])), parted(Kind::Chain));
    let step = |d: &mut Decoder| take(d, clamp(AluOp::Min), &[uop(23, 0, 0)]);
    assert_eq!(between(step), parted(Kind::Chain));
    assert_eq!(
        between(|d| take(d, reset(), &[uop(0, 0, 0)])),
        parted(Kind::Chain)
    );
    let inputs = |d: &mut Decoder| take(d, load(MemType::Inp, 28, 5), &[]);
    assert_eq!(between(inputs), parted(Kind::LoadInp));
    let weights = |d: &mut Decoder| take(d, load(MemType::Wgt, 0, 1), &[]);
    assert_eq!(between(weights), parted(Kind::LoadWgt));
    let sums = |d: &mut Decoder| take(d, load(MemType::Acc8, 20, 9), &[]);
    assert_eq!(between(sums), parted(Kind::LoadAcc8));
    // Neighbours don't.
    let beside = |d: &mut Decoder| {
        take(d, store(24), &[]);
        take(d, load(MemType::Inp, 30, 5), &[]);
        take(d, load(MemType::Wgt, 1, 1), &[]);
        take(d, load(MemType::Acc8, 24, 9), &[]);
    };
    let kinds = between(beside);
    assert_eq!(kinds.len(), 5);
    assert_eq!(kinds[4], Kind::Products);
}

#[test]
fn products_elsewhere_are_operations_of_their_own() {
    let decoded = decode(|d| {
        take(d, rectangle(4, 6), &[uop(0, 0, 0)]);
        take(d, rectangle(4, 6), &[uop(24, 0, 0)]);
    });
    assert_eq!(kinds(&decoded), [Kind::Products; 2]);
    // Each weight's outputs lie 8 apart, and joined they would be summed with 7 others that
    // haven't that weight.
    let comb = Gemm {
        dst_factor_in: 8,
        ..rectangle(1, 8)
    };
    let decoded = decode(|d| {
        let combs: Vec<_> = (0..8).map(|i| uop(i, 0, i)).collect();
        take(d, comb, &combs);
        take(d, rectangle(1, 64), &[uop(0, 0, 9)]);
    });
    assert_eq!(kinds(&decoded), [Kind::Products; 2]);
    assert_eq!([0, 1].map(|i| decoded.ops[i].units), [8, 8]);
}

#[test]
fn a_tile_from_reset_to_store_is_three_operations() {
    let tile = |d: &mut Decoder| {
        take(d, reset(), &[uop(0, 0, 0)]);
        taps(d);
        take(d, clamp(AluOp::Shr), &[uop(0, 0, 0)]);
        take(d, clamp(AluOp::Min), &[uop(0, 0, 0)]);
        take(d, clamp(AluOp::Max), &[uop(0, 0, 0)]);
        take(d, store(0), &[]);
    };
    let decoded = decode(|d| {
        tile(d);
        tile(d);
    });
    let sums = [Kind::Chain, Kind::Products];
    let expected = [&[sums; 2].concat()[..], &[Kind::Chain; 2]].concat();
    assert_eq!(kinds(&decoded), expected);
    let acc = Scratchpad::Acc as usize;
    let places = |n: usize| decoded.ops[n].touches.writes[acc].clone();
    assert_eq!(
        places(1),
        [2048..2072],
        "the first is stored before the end"
    );
    assert_eq!(places(3), [0..24], "the second stays in the scratchpad");
    for op in &decoded.ops[4..] {
        assert_eq!(op.args[1], 3, "stages");
        assert_eq!(
            op.touches.writes_dram,
            [0x1000..0x1180],
            "what the last one leaves is stored"
        );
    }
}

#[test]
fn a_store_joins_its_chain_behind_that_of_the_next_tile() {
    let decoded = decode(|d| {
        take(d, clamp(AluOp::Min), &[uop(0, 0, 0)]);
        take(d, clamp(AluOp::Min), &[uop(24, 0, 0)]);
        take(d, store(0), &[]);
        let elsewhere = Store {
            dram_base: 0x400,
            ..store(24)
        };
        take(d, elsewhere, &[]);
        // The first one's bytes again: behind it.
        take(d, store(48), &[]);
    });
    assert_eq!(kinds(&decoded), [Kind::Chain; 3]);
    let stages = decoded.ops.iter().map(|op| op.args[1]);
    assert_eq!(stages.collect::<Vec<_>>(), [1, 1, 0]);
    let bytes = decoded.ops.iter().map(|op| op.touches.writes_dram[0].start);
    assert_eq!(bytes.collect::<Vec<_>>(), [0x1000, 0x3000, 0x1000]);
}

#[test]
fn a_source_keeps_its_place_until_its_last_reader() {
    let add = Alu {
        operand: AluOperand::Acc,
        src_factor_in: 0,
        ..clamp(AluOp::Add)
    };
    // Places for the source and one tile of outputs.
    let decoded = decode_in(Room([0, 0, 25]), |d| {
        take(d, load(MemType::Acc, 100, 1), &[]);
        for _ in 0..4 {
            take(d, reset(), &[uop(0, 0, 0)]);
            take(d, add, &[uop(0, 100, 0)]);
        }
        take(d, load(MemType::Acc, 100, 1), &[]);
    });
    let acc = Scratchpad::Acc as usize;
    let writes = |op: &Op| op.touches.writes[acc].clone();
    assert_eq!(writes(&decoded.ops[0]), [2048..2049]);
    let chains = decoded.ops.iter().filter(|op| op.kind == Kind::Chain);
    for chain in chains {
        let holds = |ranges: &[Range<usize>]| ranges.iter().any(|r| r.contains(&2048));
        assert!(holds(&chain.touches.reads[acc]), "{chain:?}");
        assert!(!holds(&writes(chain)), "{chain:?}");
    }
}

#[test]
fn a_reset_clears_each_tile_once() {
    let again = Gemm {
        iter_out: 9000,
        ..reset()
    };
    let decoded = decode(|d| take(d, again, &[uop(8, 0, 0), uop(9, 0, 0)]));
    assert_eq!(kinds(&decoded), [Kind::Chain]);
    assert_eq!(
        decoded.ops[0].touches.writes[Scratchpad::Acc as usize],
        [8..33]
    );
    assert_eq!(decoded.ops[0].units, 25);
}

#[test]
fn instructions_with_their_own_loops_work_at_home() {
    let long = Gemm {
        iter_out: 8000,
        dst_factor_out: 0,
        src_factor_out: 0,
        ..rectangle(1, 200)
    };
    let meets = Alu {
        operand: AluOperand::Acc,
        ..clamp(AluOp::Add)
    };
    let decoded = decode(|d| {
        take(d, load(MemType::Inp, 0, 300), &[]);
        take(d, long, &[uop(0, 0, 0)]);
        take(d, load(MemType::Inp, 0, 300), &[]);
        take(d, load(MemType::Acc, 0, 300), &[]);
        take(d, meets, &[uop(0, 1, 0)]);
        take(d, load(MemType::Acc, 0, 300), &[]);
    });
    let (gemm, alu) = (Kind::Gemm, Kind::AluInOrder);
    let (inp, acc) = (Kind::LoadInp, Kind::LoadAcc);
    assert_eq!(kinds(&decoded), [inp, gemm, inp, acc, alu, acc]);
    let ranges = |op: &Op| op.touches.writes.concat();
    assert!(decoded.ops.iter().flat_map(ranges).all(|r| r.end <= 300));
}

#[test]
fn rows_that_overlap_in_memory_are_stored_one_by_one() {
    let store = Store {
        sram_base: 4,
        dram_base: 0x100,
        y_size: 3,
        x_size: 2,
        x_stride: 1,
        ..Store::default()
    };
    let decoded = decode(|d| take(d, store, &[]));
    let rows = decoded.ops.iter().map(|op| (op.args[0], op.args[5]));
    assert_eq!(rows.collect::<Vec<_>>(), [(4, 0), (6, 16), (8, 32)]);
    let apart = Store {
        x_stride: 2,
        ..store
    };
    assert_eq!(decode(|d| take(d, apart, &[])).ops.len(), 1);
}

#[test]
fn synchronisation_and_micro_op_loads_leave_nothing_to_do() {
    let decoded = decode(|d| {
        take(d, Load::default(), &[]);
        take(d, Store::default(), &[]);
        take(d, Gemm::default(), &[]);
        take(d, load(MemType::Uop, 0, 4), &[]);
    });
    assert!(decoded.ops.is_empty());
}
