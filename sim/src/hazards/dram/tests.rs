use proptest::prelude::*;
use vta_isa::asm;

use super::*;

fn stamp(seq: u32) -> Stamp {
    Stamp { seq, insn: seq }
}

#[test]
fn pruning_forgets_what_is_ordered_and_keeps_what_may_still_race() {
    let insns =
        asm::parse("load.inp push_next\nload.acc pop_prev push_next\nstore pop_prev\nload.inp")
            .unwrap();
    let (mut clocks, mut dram) = (Clocks::default(), Dram::default());
    let mut conflicts = Conflicts::default();
    // Single bytes with gaps, so that none join: the store follows the first load's.
    let bytes = |first: u64| {
        let starts = (0..FIRST_PRUNE as u64).map(move |i| first + 2 * i);
        starts.map(|start| start..start + 1)
    };
    for (index, insn) in insns.iter().enumerate() {
        let turn = clocks.start(index, insn);
        match index {
            0 => dram.read(&turn, bytes(0), &mut conflicts),
            3 => dram.read(&turn, bytes(1 << 20), &mut conflicts),
            _ => {}
        }
        clocks.done(insn);
    }
    dram.prune(&clocks);
    assert_eq!(dram.reads[0].0.len(), FIRST_PRUNE);
    assert!(dram.reads[0].0.keys().all(|start| *start >= 1 << 20));
    let store = asm::parse("store").unwrap()[0];
    let turn = clocks.start(4, &store);
    dram.write(&turn, std::iter::once(1 << 20..2 << 20), &mut conflicts);
    assert_eq!(conflicts.0.keys().copied().collect::<Vec<_>>(), [3]);
    assert_eq!(conflicts.0[&3].count, FIRST_PRUNE as u64);
}

proptest! {
    #[test]
    fn intervals_hold_the_last_stamp_of_every_byte(
        sets in prop::collection::vec((0u64..60, 0u64..20), 0..30),
        query in (0u64..70, 0u64..30),
    ) {
        let (mut intervals, mut bytes) = (Intervals::default(), [None; 128]);
        for (seq, (start, len)) in (1..).zip(sets) {
            intervals.set(start..start + len, stamp(seq));
            bytes[start as usize..(start + len) as usize].fill(Some(seq));
        }
        let range = query.0..query.0 + query.1;
        let mut found = [None; 128];
        let mut end = 0;
        for (part, stamp) in intervals.overlapping(&range) {
            prop_assert!(part.start >= end && part.end <= range.end && part.start < part.end);
            end = part.end;
            found[part.start as usize..part.end as usize].fill(Some(stamp.seq));
        }
        for byte in 0..128 {
            let expected = bytes[byte].filter(|_| range.contains(&(byte as u64)));
            prop_assert_eq!(found[byte], expected, "byte {}", byte);
        }
    }
}
