use proptest::prelude::*;
use vta_isa::resolve::Uops;
use vta_isa::{Alu, AluOp, Uop};

use super::*;

/// One trip over `inner` with factors of 1.
fn alu(op: AluOp, operand: AluOperand, inner: u16) -> Alu {
    Alu {
        deps: vta_isa::Deps::NONE,
        op,
        operand,
        uop_bgn: 0,
        uop_end: 1,
        iter_out: 1,
        iter_in: inner,
        dst_factor_out: 0,
        dst_factor_in: 1,
        src_factor_out: 0,
        src_factor_in: 1,
    }
}

fn of(alu: &Alu, pairs: &[(u16, u16)]) -> Option<Chain> {
    let uop = |&(dst, src): &(u16, u16)| Uop { dst, src, wgt: 0 };
    let uops: Vec<_> = pairs.iter().map(uop).collect();
    Chain::of(&AluAccess::of(*alu, Uops::of(&uops)), 64)
}

#[test]
fn a_source_that_another_step_writes_is_no_chain() {
    let two = |inner| alu(AluOp::Add, AluOperand::Acc, inner);
    assert!(of(&two(4), &[(0, 4)]).is_some(), "beside each other");
    assert!(
        of(&two(5), &[(0, 4)]).is_none(),
        "tile 4 is read, then written"
    );
    assert!(of(&two(4), &[(0, 0)]).is_some(), "each tile reads itself");
    assert!(
        of(&two(1), &[(0, 1), (1, 0)]).is_none(),
        "they read each other"
    );
    assert!(of(&alu(AluOp::Add, AluOperand::Imm(1), 5), &[(0, 4)]).is_some());
}

#[test]
fn steps_on_one_tile_become_stages_in_their_order() {
    let mut pool = alu(AluOp::Max, AluOperand::Acc, 2);
    pool.uop_end = 3;
    let chain = of(&pool, &[(0, 10), (0, 20), (0, 30)]).unwrap();
    let runs: Vec<_> = chain.stages.iter().map(|s| &s.runs[..]).collect();
    let run = |src| Run {
        len: 2,
        ..Run::one(0, src)
    };
    assert_eq!(runs, [[run(10)], [run(20)], [run(30)]]);
    pool.iter_out = 100;
    assert!(of(&pool, &[(0, 10)]).is_none(), "100 stages are too many");
}

#[test]
fn chains_join_unless_one_reads_what_the_other_writes() {
    let imm = |first| of(&alu(AluOp::Shr, AluOperand::Imm(3), 4), &[(first, 0)]).unwrap();
    let add = |dst, src| of(&alu(AluOp::Add, AluOperand::Acc, 4), &[(dst, src)]).unwrap();
    let mut chain = imm(0);
    let mut takes = |more| chain.append(more).is_none();
    assert!(takes(add(0, 8)) && takes(imm(0)) && takes(imm(3)));
    assert!(!takes(imm(8)), "the chain has read tile 8");
    assert!(!takes(add(4, 0)), "the chain writes tile 3");
    assert!(takes(add(4, 8)), "sources may be shared");
    assert_eq!(chain.stages.len(), 5);
    assert!(add(0, 8).append(Chain::clear([9..10])).is_some());
    assert!(imm(0).append(imm(4)).is_some(), "no tile in common");
}

#[test]
fn words_say_which_tiles_a_stage_touches() {
    let mut chain = Chain::clear([2..4, 5..6]);
    let add = of(&alu(AluOp::Add, AluOperand::Acc, 2), &[(2, 9)]).unwrap();
    assert!(chain.append(add).is_none());
    let mut lists = Vec::new();
    let touches = chain.touches();
    let args = chain.encode(|list| {
        lists.push(list.to_vec());
        lists.len() as u32
    });
    assert_eq!(lists[0], [0, 1, UNTOUCHED]);
    assert_eq!(
        lists[1],
        [8, 0, 0, 0, 0, AluOp::Add.code().into(), 2, 0, 1, 9]
    );
    assert_eq!(lists[2], [0, 1, 3], "offsets of the tiles");
    assert_eq!(args, [2, 2, 2, 3, UNTOUCHED, 0, 0]);
    let acc = Scratchpad::Acc as usize;
    assert_eq!(touches.writes[acc], [2..4, 5..6]);
    assert_eq!(touches.reads[acc], [2..4, 5..6, 9..11]);
}

/// A scratchpad of tiles with one lane each, and a memory of tiles of 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Memories {
    acc: Vec<i32>,
    dram: Vec<i32>,
}

/// What `vta_chain` does with a chain's words.
fn run(chain: &Chain, on: &mut Memories) {
    let mut tables: Vec<u32> = Vec::new();
    let args = chain.encode(|list| {
        tables.extend_from_slice(list);
        (tables.len() - list.len()) as u32
    });
    let before = on.acc.clone();
    for tile in 0..chain.len() {
        let table = |at: u32| tables[at as usize + tile];
        let dst = (args[0] + table(args[3])) as usize;
        let mut x = on.acc[dst];
        for stage in tables[args[2] as usize..]
            .chunks(STAGE_WORDS)
            .take(args[1] as usize)
        {
            let mut y = stage[2] as i32;
            if stage[1] != StageOperand::Imm as u32 {
                let offset = table(stage[3]);
                if offset == UNTOUCHED {
                    continue;
                }
                if stage[1] == StageOperand::Tiles as u32 {
                    let src = (stage[4] + offset) as usize;
                    y = if src == dst { x } else { before[src] };
                }
            }
            x = if stage[0] == StageOp::Clear.word() {
                0
            } else {
                x.wrapping_mul(3) + y
            };
        }
        on.acc[dst] = x;
        if args[4] != UNTOUCHED && table(args[4]) != UNTOUCHED {
            // Narrower bounds than those of int8.
            let most = if args[6] == 0 { x } else { 20 };
            on.dram[(args[5] + table(args[4])) as usize / 16] = x.min(most);
        }
    }
}

/// What a chain says of each tile: by stage, destination and source.
fn pairs(chain: &Chain) -> Vec<Vec<(u32, u32)>> {
    let of = |run: &Run| {
        let run = *run;
        (0..run.len).map(move |n| (run.dst + n, run.src + n * run.step))
    };
    let stage = |stage: &Stage| stage.runs.iter().flat_map(of).collect();
    chain.stages.iter().map(stage).collect()
}

proptest! {
    /// Instructions and STOREs that join do what they do one after the other.
    #[test]
    fn what_joins_does_what_its_parts_do_in_their_order(
        steps in prop::collection::vec((0usize..5, 0u16..12, 1u16..6, 0u16..16, 0u64..40), 2..8),
    ) {
        let part = |&(kind, dst, tiles, src, place): &(usize, u16, u16, u16, u64)| match kind {
            0 => of(&alu(AluOp::Add, AluOperand::Imm(7), tiles), &[(dst, 0)]),
            1 => of(&alu(AluOp::Add, AluOperand::Acc, tiles), &[(dst, src)]),
            2 => Some(Chain::clear([dst.into()..u32::from(dst + tiles)])),
            kind => {
                // One row, or two with a gap.
                let (first, rows) = (16 * place, 1 + (src & tiles & 1));
                let row_bytes = 16 * u64::from(tiles);
                let rows = Rows { first, rows, row_bytes, stride_bytes: row_bytes + 16 };
                let dst = usize::from(dst);
                Some(Chain::store(&(dst..dst + usize::from(tiles * rows.rows)), &rows, kind == 4))
            }
        };
        let new = Memories { acc: (1..40).collect(), dram: vec![0; 64] };
        let (mut apart, mut joined) = (new.clone(), new);
        // In the other order, since none waits for another.
        let parts = |chain: Chain, on: &mut Memories| chain.parts().iter().rev().for_each(|c| run(c, on));
        let mut open: Option<Chain> = None;
        for next in steps.iter().filter_map(part) {
            run(&next, &mut apart);
            let rest = match &mut open {
                Some(open) => open.append(next),
                None => Some(next),
            };
            if let Some(next) = rest && let Some(done) = open.replace(next) {
                parts(done, &mut joined);
            }
        }
        if let Some(done) = open {
            parts(done, &mut joined);
        }
        prop_assert_eq!(joined, apart);
    }

    /// Runs say the same of every tile as the instruction's steps one by one.
    #[test]
    fn stages_are_the_nth_steps_on_each_tile(
        uops in prop::collection::vec((0u16..12, 20u16..32), 1..5),
        trips in [1u16..5, 1u16..5],
        factors in [0u16..5, 0u16..5, 0u16..3, 0u16..3],
        immediate: bool,
    ) {
        let alu = Alu {
            operand: if immediate { AluOperand::Imm(1) } else { AluOperand::Acc },
            uop_end: uops.len() as u16,
            iter_out: trips[0],
            dst_factor_out: factors[0],
            dst_factor_in: factors[1],
            src_factor_out: factors[2],
            src_factor_in: factors[3],
            ..alu(AluOp::Add, AluOperand::Acc, trips[1])
        };
        let uops: Vec<_> = uops.iter().map(|&(dst, src)| Uop { dst, src, wgt: 0 }).collect();
        let access = AluAccess::of(alu, Uops::of(&uops));
        let mut expected: Vec<Vec<(u32, u32)>> = Vec::new();
        for (dst, src) in access.steps().map(|(d, s)| (d as u32, s as u32)) {
            let free = expected.iter().position(|s| s.iter().all(|pair| pair.0 != dst));
            let at = free.unwrap_or(expected.len());
            expected.resize(expected.len().max(at + 1), Vec::new());
            expected[at].push((dst, src));
        }
        expected.iter_mut().for_each(|stage| stage.sort_unstable());
        let all = || expected.iter().flatten();
        let read = |tile| all().any(|&(dst, src)| src == tile && dst != src);
        let sound = !all().any(|&(dst, _)| read(dst));
        let chain = Chain::of(&access, 64);
        prop_assert_eq!(chain.is_some(), sound && expected.len() <= MAX_STAGES);
        let Some(chain) = chain else { return Ok(()) };
        prop_assert_eq!(pairs(&chain), expected.clone());
        // Every third tile goes elsewhere.
        let moved = |tile: u32| tile + 100 * (tile / 3 % 2) + 1000;
        let parts = |tiles: Range<u32>| {
            let (start, end) = (tiles.start, tiles.end);
            let ends = tiles.filter(move |tile| tile % 3 == 2 || *tile + 1 == end);
            let mut from = None;
            ends.map(move |end| {
                let first = from.replace(end + 1).unwrap_or(start);
                (first..end + 1, moved(first) - first)
            })
        };
        let placed = chain.placed(parts);
        let map = |&(dst, src): &(u32, u32)| (moved(dst), moved(src));
        let expected: Vec<Vec<_>> = expected.iter().map(|s| s.iter().map(map).collect()).collect();
        prop_assert_eq!(pairs(&placed), expected);
    }
}
