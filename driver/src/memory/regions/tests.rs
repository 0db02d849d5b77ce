use vta_isa::{Load, MemType, Store};

use super::*;
use crate::PhysAddr;

fn regions(sizes: &[(u32, u64)]) -> Regions {
    let mut regions = Regions::default();
    for &(addr, size) in sizes {
        regions.insert(addr, HostBytes::zeroed(size).unwrap());
    }
    regions
}

fn claim(regions: &Regions, span: &Range<u64>) -> Claim {
    Kept::default().claim(|| regions.touched(std::slice::from_ref(span)))
}

fn batch(at: u32) -> Arc<Batch> {
    Arc::new(Batch {
        words: vec![0],
        insns: vec![],
        insn_addr: PhysAddr(at),
        marks: vec![],
    })
}

#[test]
fn spans_name_what_they_touch_and_the_one_below() {
    let regions = regions(&[(0x3000, 0x1000), (0x1000, 0x1000), (0x2000, 0x1000)]);
    for (span, expected) in [
        (0x1000..0x1001, &[0x1000][..]),
        (0x1fff..0x2000, &[0x1000]),
        (0x1fff..0x2001, &[0x1000, 0x2000]),
        (0x1000..0x4000, &[0x3000, 0x1000, 0x2000]),
        (0x9000..0x9001, &[0x3000]),
        (0..1, &[]),
        (0..u64::MAX, &[0x3000, 0x1000, 0x2000]),
        (1 << 40..1 << 41, &[0x3000]),
    ] {
        let found = regions.touched(std::slice::from_ref(&span));
        let found: Vec<u32> = found.iter().map(|r| r.addr).collect();
        assert_eq!(found, expected, "{span:x?}");
    }
}

#[test]
fn a_batch_touches_its_words_and_its_strided_transfers() {
    let load = Load {
        dram_base: 0x100,
        y_size: 3,
        x_size: 2,
        x_stride: 10,
        ..Load::default()
    };
    let uops = Load {
        mem: MemType::Uop,
        ..load
    };
    let store = Store {
        dram_base: 0x116,
        y_size: 1,
        x_size: 4,
        ..Store::default()
    };
    let nothing = Load { x_size: 0, ..load };
    let load = Load {
        mem: MemType::Inp,
        ..load
    };
    let batch = Batch {
        words: vec![0; 2],
        insns: vec![store.into(), nothing.into(), uops.into(), load.into()],
        insn_addr: PhysAddr(0x9000),
        marks: vec![],
    };
    let found = spans(&batch, &Config::default());
    // The pages of 22 micro-ops of four bytes, of 22 tiles of sixteen with the four stored ones behind, of the words.
    assert_eq!(found, [0..0x2000, 0x9000..0xa000]);
}

#[test]
fn held_bytes_go_back_also_when_a_panic_drops_them() {
    let regions = regions(&[(0x1000, 16)]);
    let byte = 0x1000..0x1001;
    let claimed = claim(&regions, &byte);
    let caught = std::panic::catch_unwind(|| {
        let mut held = Held::take(claimed, &mut Layouts::default());
        held.memory.write(0x1002, 1).unwrap()[0] = 9;
        panic!("a runner");
    });
    assert!(caught.is_err());
    let held = Held::take(claim(&regions, &byte), &mut Layouts::default());
    assert_eq!(held.memory.read(0x1000, 4).unwrap(), [0, 0, 9, 0]);
}

#[test]
fn what_a_runner_unmaps_or_maps_hurts_no_other_allocation() {
    let regions = regions(&[(0x1000, 16), (0x2000, 16), (0x3000, 16)]);
    let all = 0x1000..0x4000;
    let mut layouts = Layouts::default();
    let mut held = Held::take(claim(&regions, &all), &mut layouts);
    held.memory.write(0x3000, 1).unwrap()[0] = 3;
    assert!(held.memory.unmap(0x2000));
    held.memory.map(0x2800, 16).unwrap();
    drop(held);
    let held = Held::take(claim(&regions, &all), &mut layouts);
    assert_eq!(held.memory.read(0x3000, 1).unwrap(), [3]);
    assert!(held.memory.read(0x2000, 1).is_err() && held.memory.read(0x2800, 1).is_err());
}

#[test]
fn the_same_allocations_again_are_the_same_layout_with_their_versions() {
    let mut regions = regions(&[(0x3000, 16), (0x1000, 16)]);
    let mut layouts = Layouts::default();
    let mut hold = |regions: &Regions, end: u64, write: bool| {
        let mut held = Held::take(claim(regions, &(0x1000..end)), &mut layouts);
        if write {
            held.memory.write(0x1000, 1).unwrap()[0] = 1;
        }
        let span = held.memory.span(0x1000, 16).unwrap();
        (held.memory.layout(), held.memory.version(span.region))
    };
    let (both, fresh) = hold(&regions, 0x4000, false);
    assert_eq!(hold(&regions, 0x4000, true), (both, fresh + 1));
    assert_eq!(hold(&regions, 0x4000, false), (both, fresh + 1));
    // Another set is another layout with the same region's version.
    let (one, version) = hold(&regions, 0x2000, false);
    assert!(one != both && version == fresh + 1);
    // A new allocation at the same address is another.
    regions.remove(0x3000);
    regions.insert(0x3000, HostBytes::zeroed(16).unwrap());
    assert_ne!(hold(&regions, 0x4000, false).0, both);
    assert_eq!(hold(&regions, 0x2000, false).0, one);
}

#[test]
fn few_footprints_are_kept_and_dead_batches_forgotten() {
    let footprints = Footprints::default();
    let config = Config::default();
    let batch = |at| Work::Run(batch(at));
    for at in 0..3 * KEPT_FOOTPRINTS as u32 {
        let spans = footprints.of(&batch(at << 12), &config);
        assert_eq!(spans[0].start, u64::from(at << 12));
    }
    assert!(footprints.known.lock().unwrap().len() <= 2);
    let live: Vec<Work> = (0..2 * KEPT_FOOTPRINTS as u32)
        .map(|at| batch(at << 12))
        .collect();
    for _ in 0..2 {
        for (at, work) in live.iter().enumerate() {
            assert_eq!(footprints.of(work, &config)[0].start, (at as u64) << 12);
        }
    }
    assert_eq!(footprints.known.lock().unwrap().len(), KEPT_FOOTPRINTS);
}

#[test]
fn what_a_runner_leaves_as_it_was_is_kept() {
    let regions = regions(&[(0x1000, 16), (0x2000, 16)]);
    let all = 0x1000..0x3000;
    let mut layouts = Layouts::default();
    let kept = Kept::default();
    let touched = || regions.touched(std::slice::from_ref(&all));
    let [same, other] = [(); 2].map(|()| batch(0));
    for (run, expected) in [false, true, false].into_iter().enumerate() {
        let again = kept.again(&same);
        assert_eq!(again.is_some(), expected);
        let take = || Held::take(kept.claim(touched), &mut layouts);
        let mut held = again.unwrap_or_else(|| kept.taking(take));
        if run == 1 {
            assert!(held.memory.unmap(0x2000));
        }
        kept.keep(&same, held);
    }
    // It goes back when another batch comes.
    assert!(kept.again(&other).is_none() && kept.again(&same).is_none());
    // Nor is what allocations aren't any more when it was claimed, or while somebody takes some.
    let mut hold = || Held::take(kept.claim(touched), &mut layouts);
    let held = hold();
    kept.change();
    kept.keep(&same, held);
    assert!(kept.again(&same).is_none());
    let held = hold();
    kept.taking(|| kept.keep(&same, held));
    assert!(kept.again(&same).is_none());
}
