use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use vta_driver::DeviceMemory;

use super::*;
use crate::kernels::Inputs;

const BYTES: usize = 64;

fn span(start: usize, len: usize) -> Span {
    Span {
        region: 0,
        start,
        len,
    }
}

fn memory() -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    memory.map(0x1000, BYTES as u64).unwrap();
    memory
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let one = (0..BYTES, 0usize..9).prop_map(|(start, len)| span(start, len.min(BYTES - start)));
    proptest::collection::vec(one, 0..3)
}

/// Bytes of some spans, as a set.
fn bits(spans: &[Span]) -> u64 {
    let bytes = spans.iter().flat_map(|s| s.start..s.start + s.len);
    bytes.fold(0, |bits, byte| bits | 1 << byte)
}

/// What a task does in these tests: each byte that it writes depends on its number, on what
/// was there and on all bytes that it reads.
fn step(task: usize, read: &[&[u8]], write: &mut [u8]) {
    let bytes = read.iter().copied().flatten();
    let sum = bytes.fold(task as u8, |sum, b| sum.wrapping_mul(31).wrapping_add(*b));
    for byte in write {
        *byte = byte.wrapping_mul(5).wrapping_add(sum);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn footprints_are_sets_of_bytes(
        reads in spans(), writes in spans(), more in spans(), most in spans(),
    ) {
        let a = Footprint::new(reads.clone(), writes.clone());
        let b = Footprint::new(more.clone(), most.clone());
        let [r, w, s, x] = [&reads, &writes, &more, &most].map(|spans| bits(spans));
        prop_assert_eq!(a.conflicts(&b), w & (s | x) != 0 || x & r != 0);
        prop_assert_eq!(a.conflicts(&b), b.conflicts(&a));
        prop_assert_eq!(bits(&a.reads), r);
        prop_assert!(a.reads.windows(2).all(|p| p[0].start + p[0].len < p[1].start));
        for start in 0..BYTES {
            for len in 0..(BYTES - start).min(12) {
                let piece = span(start, len);
                prop_assert_eq!(covers(&a.writes, &piece), bits(&[piece]) & !w == 0);
            }
        }
    }

    #[test]
    fn any_number_of_hands_is_one(
        tasks in proptest::collection::vec((spans(), spans()), 1..40), threads in 1usize..5,
    ) {
        let footprint = |(reads, writes): &(Vec<Span>, Vec<Span>)| {
            Footprint::new(reads.clone(), writes.clone())
        };
        let order = Order::new(tasks.iter().map(footprint).collect());
        let run = |threads: usize| {
            let mut memory = memory();
            let shared = Shared::new(&order, memory.lend(&[0]));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let mut hand = shared.hand();
                        while let Some(mut grant) = hand.next() {
                            let task = grant.task();
                            let (reads, writes) = &tasks[task];
                            for to in writes {
                                let read: Vec<Vec<u8>> =
                                    reads.iter().map(|s| grant.read(*s).to_vec()).collect();
                                let read: Vec<&[u8]> = read.iter().map(|r| &r[..]).collect();
                                step(task, &read, grant.write(*to));
                            }
                        }
                    });
                }
            });
            drop(shared);
            memory.read(0x1000, BYTES as u64).unwrap().to_vec()
        };
        prop_assert_eq!(run(threads), run(1));
    }
}

#[test]
fn tasks_wait_for_those_that_they_conflict_with() {
    let write = |start| Footprint::new(Vec::new(), vec![span(start, 4)]);
    let read = |start| Footprint::new(vec![span(start, 4)], Vec::new());
    let order = Order::new(vec![
        write(0),
        write(4),
        read(8),
        read(2),
        write(8),
        read(0),
    ]);
    let after: Vec<usize> = (0..6).map(|task| order.after(task)).collect();
    assert_eq!(after, [0, 0, 0, 2, 3, 1]);
}

#[test]
fn a_grant_refuses_what_its_task_did_not_name() {
    let order = Order::new(vec![Footprint::new(vec![span(0, 8)], vec![span(16, 8)])]);
    for (start, len, write) in [(1, 8, false), (16, 1, false), (0, 1, true), (17, 8, true)] {
        let mut memory = memory();
        let shared = Shared::new(&order, memory.lend(&[0]));
        let mut hand = shared.hand();
        let mut grant = hand.next().unwrap();
        assert_eq!(grant.read(span(2, 6)), [0; 6]);
        assert_eq!(grant.write(span(16, 8)), [0; 8]);
        let refused = catch_unwind(AssertUnwindSafe(|| match write {
            true => grant.write(span(start, len)).len(),
            false => grant.read(span(start, len)).len(),
        }));
        assert!(refused.is_err(), "{start} {len} {write}");
    }
    // A region that was lent to read.
    let mut memory = memory();
    let shared = Shared::new(&order, memory.lend(&[]));
    let mut hand = shared.hand();
    let mut grant = hand.next().unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| grant.write(span(16, 1)).len()));
    assert!(refused.is_err());
}

#[test]
fn nobody_waits_for_a_task_that_has_panicked() {
    let write = || Footprint::new(Vec::new(), vec![span(0, 4)]);
    let order = Order::new((0..6).map(|_| write()).collect());
    let mut memory = memory();
    let shared = Shared::new(&order, memory.lend(&[0]));
    let done = AtomicUsize::new(0);
    let work = || {
        let mut hand = shared.hand();
        while let Some(grant) = hand.next() {
            // Long enough that the others sleep.
            std::thread::sleep(Duration::from_millis(20));
            assert!(grant.task() != 2, "task 2 fails, as it should");
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    let panicked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|t| t.join().is_err());
        joined.filter(|&panicked| panicked).count()
    });
    assert_eq!((panicked, done.into_inner()), (1, 2));
    assert!(shared.hand().next().is_none());
}

#[test]
fn inputs_are_lent_without_what_lies_between_them() {
    // Two inputs of four bytes, 1,000 apart.
    let inputs = || Inputs::new(&[4, 1004], 2, 1, None).in_runs(4, 1010);
    let (inputs, others) = (inputs(), inputs());
    let whole = span(100, 1010);
    let reads: Vec<Span> = inputs.runs().of(whole).collect();
    assert_eq!(reads, [span(104, 4), span(1104, 4)]);
    let between = Footprint::new(Vec::new(), vec![span(108, 996)]);
    let footprint = Footprint::new(reads.clone(), Vec::new());
    assert!(!footprint.conflicts(&between));

    let mut memory = DeviceMemory::new();
    memory.map(0x1000, 2000).unwrap();
    memory
        .write(0x1000 + 1104, 4)
        .unwrap()
        .copy_from_slice(&[1, 2, 3, 4]);
    let order = Order::new(vec![footprint]);
    let shared = Shared::new(&order, memory.lend(&[]));
    let mut hand = shared.hand();
    let grant = hand.next().unwrap();
    let source = grant.read_runs(whole, inputs.runs());
    assert_eq!(
        (source.len(), source.bytes(1004..1008)),
        (1010, &[1, 2, 3, 4][..])
    );
    assert!(source.serves(inputs.runs()) && !source.serves(others.runs()));
    let refused = |found: &dyn Fn()| catch_unwind(AssertUnwindSafe(found)).is_err();
    for range in [0..4, 4..9, 8..12, 1004..1009, 1008..1011] {
        assert!(refused(&|| _ = source.bytes(range.clone())), "{range:?}");
    }
    // Places of which the footprint knows one, or none.
    for start in [99, 1100] {
        assert!(
            refused(&|| _ = grant.read_runs(span(start, 1010), inputs.runs())),
            "{start}"
        );
    }
}
