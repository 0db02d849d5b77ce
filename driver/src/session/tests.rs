use std::sync::atomic::Ordering;

use vta_isa::{Config, Load, MemType};

use super::*;
use crate::testing::{Recorder, buffer, clear, kernel, program, tensor};
use crate::{Buffer, BufferId, Command, Layer, NullDevice, Symbol};

const SMALL: QueueLimits = QueueLimits {
    insns: 256,
    uops: 1024,
};
const IMAGE: [i16; 6] = [1, -2, 3, -4, 5, -6];

fn session(program: Program, device: &Arc<Recorder>) -> Result<Session, DriverError> {
    Session::new(Arc::new(program), Arc::clone(device) as _, SMALL)
}

#[test]
fn a_failed_construction_leaves_free_memory_as_it_was() {
    // Three buffers and the two queues take five pages.
    for pages in 0..5 {
        let device = Recorder::new(Config::default(), pages);
        let before = device.free_bytes();
        let failed = session(program(&[3]), &device).err();
        assert!(matches!(failed, Some(DriverError::Alloc { .. })), "{pages}");
        assert_eq!(device.free_bytes(), before, "{pages}");
    }
    // The constant can't be written.
    let device = Recorder::new(Config::default(), 5);
    let before = device.free_bytes();
    device.fail_after(0);
    assert!(session(program(&[3]), &device).is_err());
    assert_eq!(device.free_bytes(), before);
    device.refuse_after(0);
    assert!(session(program(&[3]), &device).is_err());
    assert_eq!(device.free_bytes(), before);
}

#[test]
fn a_dropped_session_frees_its_memory() {
    let device = Recorder::new(Config::default(), 5);
    let before = device.free_bytes();
    for _ in 0..3 {
        let mut session = session(program(&[3]), &device).unwrap();
        assert_eq!(device.free_bytes(), 0);
        session.run(&[&IMAGE]).unwrap();
    }
    assert_eq!(device.free_bytes(), before);
}

#[test]
fn later_runs_replay_the_first() {
    let device = Recorder::new(Config::default(), 16);
    let mut session = session(program(&[3, 4, 3]), &device).unwrap();
    // Encoded when it was made, and sent by the first run.
    assert_eq!(session.counters().encoded_batches, 1);
    assert_eq!(session.counters().submissions, 0);
    for _ in 0..3 {
        let output = session.run(&[&IMAGE]).unwrap();
        assert_eq!(output.reports.len(), 1);
        assert_eq!(output.outputs, [[[0i16; 6]]]);
    }
    let counters = session.counters();
    let counted = (counters.encoded_batches, counters.replayed_batches);
    assert_eq!(counted, (1, 2));
    assert_eq!(counters.flushed(FlushReason::HostRead), 3);
    // One constant, two queues, three inputs.
    assert_eq!(device.writes(), 6);
    let seen = device.seen();
    assert!(seen.iter().all(|run| run.words.0 == run.words.1));
    assert_eq!(seen[0].uops.len(), 3);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn a_session_can_be_used_after_every_error() {
    // A run is an input, two uploads, a batch and a read: let each of them fail, or be refused.
    for (refuse, at) in (0..5).flat_map(|at| [(false, at), (true, at)]) {
        let device = Recorder::new(Config::default(), 16);
        let mut session = session(program(&[3, 4]), &device).unwrap();
        if refuse {
            device.refuse_after(at);
        } else {
            device.fail_after(at);
        }
        let error = session.run(&[&IMAGE]).unwrap_err();
        assert!(error.to_string().contains("on demand"), "{error}");
        device.refuse_after(usize::MAX);
        session.run(&[&IMAGE]).unwrap();
        session.run(&[&IMAGE]).unwrap();
        let seen = device.seen();
        let [.., second, third] = &seen[..] else {
            panic!("two runs");
        };
        for run in [second, third] {
            assert_eq!(run.words.0, run.words.1, "{refuse} {at}");
            let lens: Vec<_> = run.uops.iter().map(Vec::len).collect();
            assert_eq!(lens, [3, 4], "{refuse} {at}");
        }
    }
}

#[test]
fn a_layer_that_does_not_fit_fails_every_run_alike() {
    let device = Recorder::new(Config::default(), 16);
    let mut large = program(&[3, 4]);
    large.kernels.push(kernel(2, 1025));
    large.layers[1].commands.push(clear(2, 0, 1025));
    let mut session = session(large, &device).unwrap();
    assert_eq!(session.counters(), Counters::default());
    for _ in 0..3 {
        let error = session.run(&[&IMAGE]).unwrap_err().to_string();
        assert_eq!(
            error,
            "layer l1: 1029 micro-ops between two cut points, but the queue holds 1024"
        );
    }
    assert!(device.seen().is_empty());
}

#[test]
fn a_recording_too_large_to_keep_is_made_again() {
    let device = Recorder::new(Config::default(), 16);
    let mut session = session(program(&[3, 4]), &device).unwrap();
    let set = &mut session.sets[0];
    set.queue.record_limit_bytes = 1;
    let before = set.queue.counters().clone();
    assert!(set.queue.prepare(FlushReason::HostRead).is_none());
    assert_eq!(*set.queue.counters(), before);
    set.recording = None;
    for _ in 0..3 {
        session.run(&[&IMAGE]).unwrap();
    }
    // And the one that was made with the session.
    assert_eq!(session.counters().encoded_batches, 1 + 3);
    assert_eq!(session.counters().submissions, 3);
    assert_eq!(device.seen()[0], device.seen()[2]);
}

#[test]
fn wrong_images_are_named() {
    let device = Recorder::new(Config::default(), 16);
    let mut session = session(program(&[3]), &device).unwrap();
    for (images, text) in [
        (&[][..], "0 images, but 1 to 1 fit a run"),
        (&[&IMAGE[..], &IMAGE[..]], "2 images, but 1 to 1 fit a run"),
        (&[&IMAGE[..5]], "[5] values, but 3x1x2 = 6 are needed"),
    ] {
        let error = session.run(images).unwrap_err();
        assert_eq!(error.to_string(), format!("input: {text}"));
    }
    let submitted = device.submitted.load(Ordering::Relaxed);
    assert_eq!(submitted, 1, "only the constant");
}

#[test]
fn tensors_can_be_read_back() {
    let device = Recorder::new(Config::default(), 16);
    let mut program = program(&[3]);
    let mut patches = tensor("p", 0, [2, 1, 2]);
    patches.packing = Packing::Im2col {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
    };
    program.tensors.push(patches);
    let mut session = session(program, &device).unwrap();
    session.run(&[&IMAGE]).unwrap();
    assert_eq!(session.read_tensor(0).unwrap(), [IMAGE]);
    assert!(
        session
            .read_tensor(2)
            .unwrap_err()
            .to_string()
            .contains("im2col")
    );
    assert!(
        session
            .read_tensor(3)
            .unwrap_err()
            .to_string()
            .contains("no tensor 3")
    );
}

#[test]
fn a_tensor_that_shares_its_memory_is_not_read() {
    let device = Recorder::new(Config::default(), 16);
    let mut program = program(&[3]);
    let inside = program.buffers.len() as u32;
    program.buffers.push(Buffer {
        name: "inside".to_owned(),
        size_bytes: 32,
        kind: BufferKind::Scratch,
    });
    program.tensors.push(tensor("inside", inside, [2, 1, 2]));
    let load = Load {
        mem: MemType::Inp,
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..Load::default()
    };
    program.layers[0].commands.push(Command {
        insn: load.into(),
        symbol: Symbol::Buffer(BufferId(inside)),
    });
    let number = program.tensors.len() as u32 - 1;
    let program = Arc::new(program);
    let shared = Session::new(Arc::clone(&program), Arc::clone(&device) as _, SMALL).unwrap();
    let error = shared.read_tensor(number).unwrap_err().to_string();
    assert!(error.contains("inside shares its memory"), "{error}");
    let kept = Session::keeping_tensors(program, device, SMALL).unwrap();
    assert_eq!(kept.read_tensor(number).unwrap().len(), 1);
}

#[test]
fn elements_larger_than_a_page_are_aligned() {
    // An accumulator tile of 64x64 int32 has four pages.
    let config = Config::from_json(r#"{"LOG_BATCH": 6, "LOG_BLOCK": 6}"#).unwrap();
    let tile = config.elem_bytes(MemType::Acc) as u64;
    assert_eq!(tile, 16384);
    let load = Load {
        mem: MemType::Acc,
        y_size: 1,
        x_size: 1,
        ..Load::default()
    };
    let biased = Command {
        insn: load.into(),
        symbol: Symbol::Buffer(BufferId(1)),
    };
    let program = Program {
        config: config.clone(),
        buffers: vec![
            buffer("x", 4096, BufferKind::Input),
            buffer("b", tile, BufferKind::Scratch),
        ],
        tensors: vec![tensor("x", 0, [3, 1, 1])],
        layers: vec![Layer {
            name: "bias".into(),
            commands: vec![biased],
            ..Layer::default()
        }],
        inputs: vec![0],
        outputs: vec![0],
        ..Program::default()
    };
    let device = Arc::new(NullDevice::with_config(config));
    let before = device.free_bytes();
    let mut session = Session::new(Arc::new(program), Arc::clone(&device) as _, SMALL).unwrap();
    assert_eq!(session.run(&[&[1, 2, 3]]).unwrap().outputs, [[[1, 2, 3]]]);
    drop(session);
    assert_eq!(device.free_bytes(), before);
}
