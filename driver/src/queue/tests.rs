use proptest::prelude::*;
use vta_isa::{Module, Uop};

use vta_isa::MemType;

use super::*;
use crate::testing::{Recorder, clear, program};
use crate::{BufferId, Device};

const SMALL: QueueLimits = QueueLimits {
    insns: 256,
    uops: 1024,
};

fn queue(program: Program, device: &Arc<Recorder>, limits: QueueLimits) -> CommandQueue {
    let addresses = (0..program.buffers.len() as u32).map(|i| PhysAddr(0x10_0000 + i * 4096));
    let addresses = addresses.collect();
    CommandQueue::new(
        Arc::new(program),
        Arc::clone(device) as _,
        addresses,
        limits,
    )
    .unwrap()
}

fn recorder() -> Arc<Recorder> {
    Recorder::new(vta_isa::Config::default(), 64)
}

fn record(queue: &mut CommandQueue, layer: usize) -> Recording {
    queue.push_layer(layer).unwrap();
    queue.submit(FlushReason::Synchronize).unwrap();
    queue.take_recording()
}

fn wait(queue: &mut CommandQueue) {
    for ticket in queue.take_tickets() {
        ticket.wait().unwrap();
    }
}

#[test]
fn a_replay_finds_its_own_bytes_after_another_recording() {
    let device = recorder();
    let program = program(&[3, 5]);
    let kernels = program.kernels.clone();
    let mut queue = queue(program, &device, SMALL);
    let a = record(&mut queue, 0);
    wait(&mut queue);
    let b = record(&mut queue, 1);
    wait(&mut queue);
    for recording in [&a, &b, &b, &a, &a] {
        queue.replay(recording).unwrap();
        wait(&mut queue);
    }
    let seen = device.seen();
    assert_eq!(seen.len(), 7);
    for (run, kernel) in seen.iter().zip([0, 1, 0, 1, 1, 0, 0]) {
        assert_eq!(run.words.0, run.words.1, "instructions in memory");
        assert_eq!(run.uops, [kernels[kernel].uops.clone()]);
    }
    // Two writes for each change, none where the batch was the last.
    assert_eq!(device.writes(), 2 * 5);
    assert_eq!(queue.counters().submissions, 7);
    assert_eq!(queue.counters().replayed_batches, 5);
    assert_eq!(queue.counters().encoded_batches, 2);
}

#[test]
fn a_replay_uploads_what_is_not_known_to_be_there() {
    let device = recorder();
    let mut queue = queue(program(&[3]), &device, SMALL);
    // The upload of the instructions fails, the second of the two writes.
    device.fail_after(1);
    let recording = record(&mut queue, 0);
    let results: Vec<_> = queue.take_tickets().into_iter().map(Ticket::wait).collect();
    assert!(results[0].is_ok() && results[1].is_err() && results[2].is_ok());
    queue.replay(&recording).unwrap();
    // Nobody has waited for the upload.
    queue.replay(&recording).unwrap();
    assert_eq!(device.writes(), 6);
    wait(&mut queue);
    queue.replay(&recording).unwrap();
    wait(&mut queue);
    assert_eq!(device.writes(), 6);
    let seen = device.seen();
    assert_ne!(seen[0].words.0, seen[0].words.1);
    assert!(seen[1..].iter().all(|run| run.words.0 == run.words.1));
}

#[test]
fn recordings_that_cannot_run_here_are_refused() {
    let device = recorder();
    let mut one = queue(program(&[3]), &device, SMALL);
    let mut two = queue(program(&[3]), &device, SMALL);
    let recording = record(&mut one, 0);
    let error = two.replay(&recording).unwrap_err();
    assert!(error.to_string().contains("another queue"), "{error}");
    two.record_limit_bytes = 200;
    let kept = record(&mut two, 0);
    assert!(!kept.is_complete() && kept.batches.is_empty());
    let error = two.replay(&kept).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
    // The limit is of one recording, not of all.
    two.record_limit_bytes = 300;
    for _ in 0..3 {
        assert!(record(&mut two, 0).is_complete());
    }
}

#[test]
fn batches_are_submitted_for_the_reason_that_is_counted() {
    use FlushReason::{InsnOverflow, Synchronize, UopOverflow};
    // A layer is three commands, a micro-op load and FINISH, and its kernel's micro-ops.
    let cases = [
        ("all fit", SMALL, 1, 0, 0),
        (
            "instructions overflow",
            QueueLimits { insns: 9, uops: 64 },
            2,
            1,
            0,
        ),
        (
            "one layer a batch",
            QueueLimits { insns: 5, uops: 64 },
            4,
            3,
            0,
        ),
        (
            "micro-ops overflow",
            QueueLimits {
                insns: 64,
                uops: 11,
            },
            2,
            0,
            1,
        ),
    ];
    for (name, limits, submissions, insns, uops) in cases {
        let device = recorder();
        let mut queue = queue(program(&[5, 6, 5, 6]), &device, limits);
        for layer in 0..4 {
            queue.push_layer(layer).unwrap();
        }
        queue.submit(Synchronize).unwrap();
        queue.submit(Synchronize).unwrap();
        let counters = queue.counters();
        assert_eq!(counters.submissions, submissions, "{name}");
        let counted = [InsnOverflow, UopOverflow, Synchronize].map(|r| counters.flushed(r));
        assert_eq!(counted, [insns, uops, 1], "{name}");
        let recording = queue.take_recording();
        assert_eq!(recording.batches.len() as u64, submissions, "{name}");
        wait(&mut queue);
        assert!(
            device.seen().iter().all(|r| r.words.0 == r.words.1),
            "{name}"
        );
        for recorded in &recording.batches {
            let batch = &recorded.batch;
            assert!(batch.insns.len() <= limits.insns, "{name}");
            assert_eq!(batch.marks[0].first_insn, 0);
            assert!(matches!(batch.insns.last(), Some(Insn::Finish(_))));
        }
    }
}

#[test]
fn a_layer_that_fails_leaves_nothing_behind() {
    let device = recorder();
    let mut broken = program(&[3, 4, 3]);
    // Layer 1: its second segment is larger than the micro-op queue.
    broken.kernels[1] = crate::testing::kernel(1, 40);
    broken.layers[1].commands.push(clear(1, 0, 40));
    broken.layers[1].cuts = vec![1];
    let mut queue = queue(
        broken,
        &device,
        QueueLimits {
            insns: 64,
            uops: 32,
        },
    );
    queue.push_layer(0).unwrap();
    let error = queue.push_layer(1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer l1: 40 micro-ops between two cut points, but the queue holds 32"
    );
    assert!(queue.push_layer(3).is_err());
    queue.push_layer(2).unwrap();
    queue.submit(FlushReason::Synchronize).unwrap();
    wait(&mut queue);
    let recording = queue.take_recording();
    let [batch] = &recording.batches[..] else {
        panic!("one batch");
    };
    assert_eq!(batch.batch.marks.len(), 1);
    assert_eq!(
        (&*batch.batch.marks[0].name, batch.batch.insns.len()),
        ("l2", 5)
    );
    assert_eq!(device.seen().len(), 1);
}

#[test]
fn a_refused_submission_discards_the_recording() {
    let device = recorder();
    let mut queue = queue(program(&[3, 4]), &device, SMALL);
    for accepted in 0..3 {
        // The batch before was accepted, but a recording without the next would be half a pass.
        queue.push_layer(1).unwrap();
        queue.submit(FlushReason::Synchronize).unwrap();
        queue.push_layer(0).unwrap();
        device.refuse_after(accepted);
        assert!(queue.submit(FlushReason::Synchronize).is_err());
        device.refuse_after(usize::MAX);
        assert!(queue.take_recording().batches.is_empty());
    }
    record(&mut queue, 1);
    queue.take_tickets();
    // The device works in order, so this read comes after the run.
    let addr = device.alloc(1).unwrap();
    let read = Work::Read {
        addr,
        size_bytes: 1,
    };
    device.submit(read).unwrap().wait().unwrap();
    let seen = device.seen();
    assert_eq!(seen.len(), 4);
    for run in &seen {
        assert_eq!(run.words.0, run.words.1);
        assert_eq!(run.uops[0].len(), 4);
    }
}

#[test]
fn a_failed_construction_frees_what_it_allocated() {
    let device = Recorder::new(vta_isa::Config::default(), 2);
    let before = device.free_bytes();
    let limits = |insns, uops| QueueLimits { insns, uops };
    let program = Arc::new(program(&[3]));
    let addresses = vec![PhysAddr(0); 3];
    let new = |addresses: Vec<_>, limits| {
        let device = Arc::clone(&device) as Arc<dyn Device>;
        CommandQueue::new(Arc::clone(&program), device, addresses, limits)
    };
    for (insns, uops) in [
        (256, 1025),
        (257, 1025),
        (600, 1),
        (usize::MAX, 1),
        (1, usize::MAX),
    ] {
        let failed = new(addresses.clone(), limits(insns, uops)).err();
        assert!(
            matches!(failed, Some(DriverError::Alloc { .. })),
            "{insns} {uops}"
        );
        assert_eq!(device.free_bytes(), before, "{insns} {uops}");
    }
    assert!(new(vec![PhysAddr(0); 2], limits(1, 1)).is_err());
    let queue = new(addresses, limits(256, 1024)).unwrap();
    assert_eq!(device.free_bytes(), 0);
    drop(queue);
    assert_eq!(device.free_bytes(), before);
}

#[test]
fn an_empty_micro_op_range_is_legal_anywhere() {
    // The kernel fills the scratchpad, so a range at its end would start at index 8192, which
    // `uop_bgn` can't hold; an empty kernel has no place at all.
    let mut full = program(&[8192, 0, 2]);
    full.layers[0].commands = vec![clear(0, 0, 8192), clear(0, 8192, 8192), clear(1, 0, 0)];
    full.layers[2].commands = vec![clear(2, 1, 2)];
    let device = recorder();
    let limits = QueueLimits {
        insns: 64,
        uops: 9000,
    };
    let mut queue = queue(full, &device, limits);
    queue.push_layer(0).unwrap();
    queue.push_layer(2).unwrap();
    queue.submit(FlushReason::Synchronize).unwrap();
    let recording = queue.take_recording();
    let range = |insn: &Insn| match insn {
        Insn::Gemm(g) => Some((g.uop_bgn, g.uop_end)),
        _ => None,
    };
    let ranges: Vec<_> = recording.batches[0]
        .batch
        .insns
        .iter()
        .filter_map(range)
        .collect();
    assert_eq!(ranges, [(0, 8192), (0, 0), (0, 0), (1, 2)]);
    assert_eq!(
        (queue.counters().kernel_misses, queue.counters().kernel_hits),
        (2, 0)
    );
}

#[test]
fn a_replay_comes_after_what_is_queued() {
    let device = recorder();
    let mut queue = queue(program(&[3, 4]), &device, SMALL);
    let a = record(&mut queue, 0);
    queue.push_layer(1).unwrap();
    queue.replay(&a).unwrap();
    wait(&mut queue);
    let lens: Vec<_> = device.seen().iter().map(|run| run.uops[0].len()).collect();
    assert_eq!(lens, [3, 4, 3]);
    assert_eq!(queue.counters().flushed(FlushReason::Synchronize), 3);
}

#[test]
fn addresses_count_elements_and_must_be_aligned() {
    let device = recorder();
    let make = |addr: u32| {
        let addresses = vec![PhysAddr(addr); 3];
        let device = Arc::clone(&device) as Arc<dyn Device>;
        CommandQueue::new(Arc::new(program(&[1])), device, addresses, SMALL).unwrap()
    };
    let mut queue = make(0x2_0000);
    let recording = record(&mut queue, 0);
    let base = |insn: &Insn| match insn {
        Insn::Load(l) if l.mem == MemType::Inp => Some(l.dram_base),
        Insn::Store(s) => Some(s.dram_base),
        _ => None,
    };
    let bases: Vec<_> = recording.batches[0]
        .batch
        .insns
        .iter()
        .filter_map(base)
        .collect();
    assert_eq!(bases, [0x2000, 0x2000]);
    let error = make(0x2_0008).push_layer(0).unwrap_err();
    assert!(error.to_string().contains("0x20008"), "{error}");
}

#[test]
fn an_inconsistent_program_or_another_device_is_refused() {
    let device = recorder();
    let new = |program: Program| {
        let addresses = vec![PhysAddr(0); program.buffers.len()];
        CommandQueue::new(
            Arc::new(program),
            Arc::clone(&device) as _,
            addresses,
            SMALL,
        )
        .err()
    };
    let mut bad = program(&[1]);
    bad.layers[0].commands[0].symbol = Symbol::Buffer(BufferId(9));
    assert!(matches!(new(bad), Some(DriverError::Program(_))));
    let less = vta_isa::Config::from_json(r#"{"LOG_ACC_BUFF_SIZE": 16}"#).unwrap();
    let small = Recorder::new(less, 64);
    let addresses = vec![PhysAddr(0); 3];
    let other = CommandQueue::new(Arc::new(program(&[1])), small as _, addresses, SMALL).err();
    assert!(matches!(other, Some(DriverError::Config { .. })));
}

/// What every GEMM of the runs executed, from the micro-ops that were in device memory.
fn executed(recording: &Recording, runs: &[crate::testing::Seen]) -> Vec<Vec<Uop>> {
    let mut done = Vec::new();
    for (recorded, run) in recording.batches.iter().zip(runs) {
        let mut scratchpad = vec![None; 8192];
        let mut fetched = run.uops.iter();
        for insn in &recorded.batch.insns {
            match insn {
                Insn::Load(l) if l.mem == MemType::Uop => {
                    for (i, uop) in fetched.next().unwrap().iter().enumerate() {
                        scratchpad[usize::from(l.sram_base) + i] = Some(*uop);
                    }
                }
                Insn::Gemm(g) => {
                    let range = usize::from(g.uop_bgn)..usize::from(g.uop_end);
                    done.push(scratchpad[range].iter().map(|u| u.unwrap()).collect());
                }
                _ => {}
            }
        }
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Kernels larger than the scratchpad together, queues of any size, cuts everywhere: each
    /// command runs its own micro-ops, in order, in the first run and in replays.
    #[test]
    fn every_command_runs_its_own_micro_ops(
        lens in prop::collection::vec(1u16..5000, 3..7),
        layers in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), any::<[u16; 2]>()), 1..8), 1..6),
        insns in 4usize..40,
        uops in 5000usize..30_000,
    ) {
        let mut random = program(&lens);
        let mut expected = Vec::new();
        let layer = |commands: &Vec<(prop::sample::Index, [u16; 2])>| {
            let command = |(kernel, ends): &(prop::sample::Index, [u16; 2])| {
                let kernel = kernel.index(lens.len());
                let [a, b] = ends.map(|e| e % (lens[kernel] + 1));
                let (bgn, end) = (a.min(b), a.max(b));
                expected.push(random.kernels[kernel].uops[bgn.into()..end.into()].to_vec());
                clear(kernel as u32, bgn, end)
            };
            let commands: Vec<_> = commands.iter().map(command).collect();
            Layer { cuts: (0..commands.len() as u32).collect(), commands, ..Layer::default() }
        };
        random.layers = layers.iter().map(layer).collect();
        let device = recorder();
        let mut queue = queue(random, &device, QueueLimits { insns, uops });
        for index in 0..layers.len() {
            queue.push_layer(index).unwrap();
        }
        queue.submit(FlushReason::HostRead).unwrap();
        let recording = queue.take_recording();
        let batches = recording.batches.len();
        queue.replay(&recording).unwrap();
        wait(&mut queue);
        queue.replay(&recording).unwrap();
        wait(&mut queue);
        let seen = device.seen();
        prop_assert_eq!(seen.len(), 3 * batches);
        for runs in seen.chunks(batches) {
            prop_assert_eq!(&executed(&recording, runs), &expected);
            prop_assert!(runs.iter().all(|run| run.words.0 == run.words.1));
        }
    }
}

/// Tokens in load->compute, compute->load, compute->store and store->compute, as they change.
fn tokens(insns: &[Insn]) -> [i64; 4] {
    let mut tokens = [0; 4];
    for insn in insns {
        let deps = insn.deps();
        let (pops, pushes) = match insn.module() {
            Module::Load => ([None, Some(1)], [None, Some(0)]),
            Module::Compute => ([Some(0), Some(3)], [Some(1), Some(2)]),
            Module::Store => ([Some(2), None], [Some(3), None]),
        };
        let flags = [
            (deps.pop_prev, pops[0], -1),
            (deps.pop_next, pops[1], -1),
            (deps.push_prev, pushes[0], 1),
            (deps.push_next, pushes[1], 1),
        ];
        for (_, queue, step) in flags.into_iter().filter(|f| f.0) {
            let queue: Option<usize> = queue;
            tokens[queue.unwrap()] += step;
        }
    }
    tokens
}

#[test]
fn the_tokens_of_a_seam_stand_around_every_batch() {
    for (insns, batches) in [(1 << 10, 1), (16, 3)] {
        let mut program = program(&[2, 2, 2]);
        program.seam_tokens = 2;
        let limits = QueueLimits { insns, ..SMALL };
        let mut queue = queue(program, &recorder(), limits);
        for index in 0..3 {
            queue.push_layer(index).unwrap();
        }
        queue.submit(FlushReason::HostRead).unwrap();
        let recording = queue.take_recording();
        assert_eq!(recording.batches.len(), batches);
        for recorded in &recording.batches {
            let insns = &recorded.batch.insns;
            assert_eq!(tokens(insns), [0; 4]);
            assert_eq!(tokens(&insns[..4]), [0, 2, 0, 2]);
            assert!(matches!(insns.last(), Some(Insn::Finish(_))));
            assert_eq!(recorded.batch.marks[0].first_insn, 0);
        }
    }
}
