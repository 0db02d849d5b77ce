use proptest::prelude::*;
use vta_isa::Load;

use super::*;
use crate::{Buffer, Command, Layer};

/// A program whose buffers have these sizes, and whose layers name these buffers.
fn program(sizes: &[u64], layers: &[Vec<u32>]) -> Program {
    let buffer = |(i, &size_bytes): (usize, &u64)| Buffer {
        name: format!("b{i}"),
        size_bytes,
        kind: BufferKind::Scratch,
    };
    let layer = |names: &Vec<u32>| Layer {
        commands: names
            .iter()
            .map(|&id| Command {
                insn: Load::default().into(),
                symbol: Symbol::Buffer(BufferId(id)),
            })
            .collect(),
        ..Layer::default()
    };
    Program {
        buffers: sizes.iter().enumerate().map(buffer).collect(),
        layers: layers.iter().map(layer).collect(),
        ..Program::default()
    }
}

#[test]
fn a_chain_needs_two_buffers() {
    let page = PAGE_BYTES;
    let chain = program(
        &[page; 5],
        &[vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 4]],
    );
    let plan = DramPlan::of(&chain);
    assert_eq!(
        (plan.scratch_bytes, plan.unshared_bytes),
        (2 * page, 5 * page)
    );
    // A shortcut around two layers needs a third.
    let shortcut = program(&[page; 4], &[vec![0, 1], vec![1, 2], vec![2, 0, 3]]);
    assert_eq!(DramPlan::of(&shortcut).scratch_bytes, 3 * page);
}

#[test]
fn only_scratch_that_is_named_has_a_place() {
    let mut some = program(&[10, 20, 30, 40], &[vec![0, 1, 9], vec![1]]);
    some.buffers[1].kind = BufferKind::Input;
    some.buffers[3].kind = BufferKind::Constant(vec![0; 40].into());
    let plan = DramPlan::of(&some);
    assert_eq!(plan.offsets, [Some(0), None, None, None]);
    assert_eq!((plan.io_bytes, plan.constant_bytes), (20, 40));
    // Like is compared with like: whole pages.
    assert_eq!(plan.scratch_bytes, PAGE_BYTES);
    assert_eq!(plan.unshared_bytes, PAGE_BYTES);
}

/// Whether two buffers are in use in one layer.
fn meets(a: &Life, b: &Life) -> bool {
    a.layers.start() <= b.layers.end() && b.layers.start() <= a.layers.end()
}

proptest! {
    #[test]
    fn what_meets_is_found(
        spans in prop::collection::vec((0usize..30, 0usize..30), 0..40),
    ) {
        let lives: Vec<Life> = (spans.iter().enumerate())
            .map(|(buffer, &(a, b))| Life { buffer, bytes: 1, layers: a.min(b)..=a.max(b) })
            .collect();
        let mut placed = Placed::new(30);
        for (start, life) in lives.iter().enumerate() {
            let mut found = placed.meeting(life);
            found.sort_unstable();
            let earlier = lives[..start].iter().filter(|other| meets(life, other));
            let expected: Vec<_> =
                earlier.map(|l| (l.buffer as u64, l.buffer as u64 + 1)).collect();
            prop_assert_eq!(found, expected);
            placed.insert(start as u64, life);
        }
    }

    #[test]
    fn buffers_in_use_together_share_no_byte(
        sizes in prop::collection::vec(0u64..40_000, 1..12),
        uses in prop::collection::vec(prop::collection::vec(0u32..12, 1..4), 1..10),
    ) {
        let program = program(&sizes, &uses);
        let plan = DramPlan::of(&program);
        prop_assert!(plan.scratch_bytes <= plan.unshared_bytes);
        let lives = lives(&program);
        for (i, a) in lives.iter().enumerate() {
            let start = plan.offsets[a.buffer].unwrap();
            prop_assert!(start.is_multiple_of(PAGE_BYTES) && start + a.bytes <= plan.scratch_bytes);
            for b in &lives[..i] {
                let other = plan.offsets[b.buffer].unwrap();
                let apart = start + a.bytes <= other || other + b.bytes <= start;
                prop_assert!(apart || !meets(a, b), "{} and {}", a.buffer, b.buffer);
            }
        }
    }
}
