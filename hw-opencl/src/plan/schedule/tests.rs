use std::sync::Arc;

use super::*;
use crate::plan::ops::{Kind, Touches};
use crate::plan::target::{Cut, Room, Shape};
use crate::scopes::Scopes;

const CUT: Cut = Cut {
    items: 1,
    block_cost: 100,
    max_blocks: 4,
    small_cost: 50,
    stripes: 1,
};

fn op(cost: u64, touches: Touches) -> Op {
    Op {
        kind: Kind::Chain,
        units: 10,
        args: vec![],
        touches,
        cost,
    }
}

fn acc(reads: Range<usize>, writes: Range<usize>) -> Touches {
    Touches::default()
        .reading(Scratchpad::Acc, reads)
        .writing(Scratchpad::Acc, writes)
}

fn run(ops: Vec<Op>) -> Scheduled {
    run_in(Scopes::default(), ops)
}

fn run_in(scopes: Scopes, ops: Vec<Op>) -> Scheduled {
    let target = Target {
        config: Arc::default(),
        shape: Shape::VECTORS,
        room: Room::default(),
        cut: CUT,
        scopes,
        tile_bytes: [16, 256, 64],
        dram: (0x1000, 1 << 20),
    };
    let mut scheduler = Scheduler::new(target);
    ops.iter().for_each(|op| scheduler.add(op));
    scheduler.finish(vec![])
}

fn levels_of(s: &Scheduled, ops: usize) -> Vec<usize> {
    let level = |op: usize| {
        let at = s.blocks.chunks(2).position(|b| b[0] == op as u32).unwrap();
        s.levels
            .iter()
            .rposition(|first| *first as usize <= at)
            .unwrap()
    };
    (0..ops).map(level).collect()
}

#[test]
fn reads_and_writes_of_a_tile_keep_their_order() {
    let s = run(vec![
        op(500, acc(0..0, 0..8)),   // 0 writes
        op(500, acc(0..0, 8..16)),  // 0 writes elsewhere
        op(500, acc(4..12, 0..0)),  // 1 reads both
        op(500, acc(0..1, 0..0)),   // 1 reads beside it
        op(500, acc(0..0, 11..12)), // 2 writes what was read
        op(500, acc(11..12, 0..0)), // 3 reads that
        op(500, acc(0..0, 0..0)),   // 0 touches nothing
    ]);
    assert_eq!(levels_of(&s, 7), [0, 0, 1, 1, 2, 3, 0]);
    assert_eq!(s.launches.len(), 4);
}

#[test]
fn rows_of_dram_are_ordered_but_not_what_lies_between() {
    let rows = |first: usize, row_bytes, stride_bytes: usize, rows: usize| -> Vec<Range<usize>> {
        let row = |n| first + n * stride_bytes..first + n * stride_bytes + row_bytes;
        (0..rows).map(row).collect()
    };
    let writes = |dram| Touches {
        writes_dram: dram,
        ..Touches::default()
    };
    let reads = |dram| Touches {
        reads_dram: dram,
        ..Touches::default()
    };
    let s = run(vec![
        op(500, writes(rows(0x1000, 16, 0x1000, 4))),
        op(500, reads(rows(0x1800, 16, 0x1000, 2))),
        op(500, reads(rows(0x3000, 1, 0, 1))),
        op(500, writes(rows(0x3000, 1, 0, 1))),
    ]);
    assert_eq!(levels_of(&s, 4), [0, 0, 1, 2]);
}

#[test]
fn every_unit_is_in_one_block_and_small_levels_share_a_launch() {
    let s = run(vec![
        op(1000, acc(0..4, 0..4)),
        op(10, acc(0..4, 0..4)),
        op(10, acc(0..4, 0..4)),
        op(1000, acc(0..4, 0..4)),
    ]);
    let launch = |first_level, last_level, groups| Launch {
        first_level,
        last_level,
        groups,
    };
    assert_eq!(
        s.launches,
        [launch(0, 1, 4), launch(1, 3, 1), launch(3, 4, 4)]
    );
    let chunk = s.ops[2];
    let firsts: Vec<u32> = s
        .blocks
        .chunks(2)
        .filter(|b| b[0] == 0)
        .map(|b| b[1])
        .collect();
    assert_eq!(chunk, 3);
    assert_eq!(firsts, [0, 3, 6, 9]);
}

/// Loads weights and multiplies them, small or not.
fn fill_and_read(cost: u64, tiles: Range<usize>) -> [Op; 2] {
    let fill = Touches::default().writing(Scratchpad::Wgt, tiles.clone());
    let read = acc(0..4, 0..4).reading(Scratchpad::Wgt, tiles);
    [op(cost, fill), op(cost, read)]
}

#[test]
fn no_launch_fills_what_it_reads_through_a_view() {
    let groups = |scopes: &str, cost| {
        let ops = [0..4, 4..8, 0..4].map(|tiles| fill_and_read(cost, tiles));
        let s = run_in(scopes.parse().unwrap(), ops.into_iter().flatten().collect());
        let kinds = s.launches.iter().map(|launch| {
            let first = s.levels[launch.first_level as usize] as usize;
            let end = s.levels[launch.last_level as usize] as usize;
            let blocks = s.blocks.chunks(2).take(end).skip(first);
            let (fills, reads): (Vec<u32>, Vec<u32>) =
                blocks.map(|b| b[0]).partition(|op| op % 2 == 0);
            [fills.is_empty(), reads.is_empty()].map(|none| !none)
        });
        kinds.collect::<Vec<_>>()
    };
    // Loads of other tiles share the products' levels, and small levels share launches.
    for cost in [10, 500] {
        assert!(groups("weights=buffer", cost).contains(&[true, true]));
        assert!(groups("activations=image", cost).contains(&[true, true]));
        for scope in ["constant", "image", "image2d"] {
            let found = groups(&format!("weights={scope}"), cost);
            assert!(!found.contains(&[true, true]), "{scope} {found:?}");
            assert!(found.len() >= 4, "{scope} {found:?}");
        }
    }
}

#[test]
fn copies_come_between_what_fills_and_what_reads() {
    let scopes: Scopes = "weights=image2d".parse().unwrap();
    let of = |s: &Scheduled| s.refreshes.iter().map(Vec::len).collect::<Vec<_>>();
    let chain = || op(10, acc(8..9, 8..9));
    let [fill, read] = fill_and_read(10, 0..4);
    // Small levels that neither fill nor read join either launch.
    let s = run_in(scopes, vec![fill.clone(), read.clone(), read.clone()]);
    assert_eq!((s.launches.len(), of(&s)), (2, vec![0, 1, 0]));
    let s = run_in(scopes, vec![fill.clone()]);
    assert_eq!(
        (s.launches.len(), of(&s)),
        (1, vec![0, 1]),
        "for the next batch"
    );
    let s = run_in(scopes, vec![read.clone()]);
    assert_eq!((s.launches.len(), of(&s)), (1, vec![0, 0]));
    let large = op(500, acc(20..21, 20..21));
    let after = op(10, acc(20..21, 0..1));
    let s = run_in(scopes, vec![fill, large, chain(), chain(), after, read]);
    let first = s.refreshes.iter().position(|r| !r.is_empty()).unwrap();
    assert_eq!(of(&s).iter().sum::<usize>(), 1);
    assert!(first > 0 && first < s.launches.len(), "{:?}", s.launches);
    for scopes in ["weights=image", "weights=constant", "activations=image2d"] {
        let ops = fill_and_read(10, 0..4).to_vec();
        assert_eq!(
            of(&run_in(scopes.parse().unwrap(), ops))
                .iter()
                .sum::<usize>(),
            0
        );
    }
}

#[test]
fn an_empty_batch_has_no_launch() {
    let s = run(vec![]);
    assert!(s.launches.is_empty() && s.levels == [0]);
}
