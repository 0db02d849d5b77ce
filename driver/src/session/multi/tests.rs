use std::time::Duration;

use crossbeam_channel::bounded;

use super::*;
use crate::testing::{buffer, doubler, load_and_store, tensor};
use crate::{
    BufferKind, FlushReason, HostKernel, HostOutput, HostTraffic, Layer, Packing, Part, Program,
};

const SMALL: QueueLimits = QueueLimits {
    insns: 64,
    uops: 64,
};

/// A program whose tensors have one tile each; layer `i` doubles a tensor into another.
fn part(tensors: u32, layers: &[(u32, u32)], inputs: &[u32], outputs: &[u32]) -> Part {
    let layer = |(i, &(from, to)): (usize, &(u32, u32))| Layer {
        name: format!("l{i}"),
        commands: load_and_store(from, to).into(),
        output: to,
        ..Layer::default()
    };
    let kind = |t: &u32| match (inputs.contains(t), outputs.contains(t)) {
        (true, _) => BufferKind::Input,
        (_, true) => BufferKind::Output,
        _ => BufferKind::Scratch,
    };
    let all = 0..tensors;
    let program = Program {
        buffers: all.clone().map(|t| buffer("b", 16, kind(&t))).collect(),
        tensors: all.clone().map(|t| tensor("t", t, [2, 1, 1])).collect(),
        layers: layers.iter().enumerate().map(layer).collect(),
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        ..Program::default()
    };
    Part {
        target: 0,
        program: Arc::new(program),
        network_tensors: all.collect(),
    }
}

fn at(part: usize, tensor: u32) -> Place {
    Place { part, tensor }
}

fn run(part: usize, layers: Range<usize>) -> Step {
    Step::Run { part, layers }
}

fn copy(from: Place, to: Place) -> Step {
    Step::Copy { from, to }
}

/// There and back: device 0 doubles, device 1 doubles twice, device 0 doubles; the last result
/// and that of the first layer come out.
fn there_and_back() -> MultiProgram {
    MultiProgram {
        parts: vec![
            part(4, &[(0, 1), (2, 3)], &[0, 2], &[1, 3]),
            part(3, &[(0, 1), (1, 2)], &[0], &[2]),
        ],
        steps: vec![
            run(0, 0..1),
            copy(at(0, 1), at(1, 0)),
            run(1, 0..2),
            copy(at(1, 2), at(0, 2)),
            run(0, 1..2),
        ],
        inputs: vec![vec![at(0, 0)]],
        ends: vec![],
        outputs: vec![at(0, 3), at(0, 1)],
    }
}

fn healthy() -> Arc<dyn Device> {
    Arc::new(doubler(|| Ok(())))
}

fn session(program: MultiProgram, devices: &[Arc<dyn Device>]) -> MultiSession {
    MultiSession::new(Arc::new(program), devices, SMALL).unwrap()
}

#[test]
fn tensors_travel_and_later_runs_replay() {
    let mut session = session(there_and_back(), &[healthy(), healthy()]);
    for n in 1..=4i16 {
        let out = session.run(&[&[n, -n]]).unwrap();
        assert_eq!(out.outputs, [[[16 * n, -16 * n]], [[2 * n, -2 * n]]]);
        assert_eq!(out.reports.len(), 3);
        let back = session.read_tensor(at(1, 1)).unwrap();
        assert_eq!(back, [[4 * n, -4 * n]]);
    }
    let counters = session.counters();
    assert_eq!(counters.submissions, 12);
    assert_eq!(counters.flushed(FlushReason::NextLayerElsewhere), 8);
    assert_eq!(counters.flushed(FlushReason::HostRead), 4);
    assert_eq!(
        (counters.encoded_batches, counters.replayed_batches),
        (3, 9)
    );
    assert_eq!(session.parts[1].counters().submissions, 4);
}

#[test]
fn a_session_frees_its_memory_on_every_device() {
    let devices = [0; 2].map(|_| Arc::new(doubler(|| Ok(()))));
    let before = devices[0].free_bytes();
    let dynamic = devices.each_ref().map(|d| Arc::clone(d) as Arc<dyn Device>);
    let mut session = session(there_and_back(), &dynamic);
    session.run(&[&[1, 2]]).unwrap();
    drop(session);
    assert!(devices.iter().all(|d| d.free_bytes() == before));
}

#[test]
fn devices_work_at_the_same_time() {
    // Both parts read the input; each run ends only when the other has begun.
    let meet = |mine: crossbeam_channel::Sender<()>, other: crossbeam_channel::Receiver<()>| {
        let device = doubler(move || {
            mine.send(()).map_err(|e| e.to_string())?;
            let met = other.recv_timeout(Duration::from_secs(30));
            met.map_err(|e| e.to_string())
        });
        Arc::new(device) as Arc<dyn Device>
    };
    let ((a, from_a), (b, from_b)) = (bounded(8), bounded(8));
    let program = MultiProgram {
        parts: vec![
            part(2, &[(0, 1)], &[0], &[1]),
            part(2, &[(0, 1)], &[0], &[1]),
        ],
        steps: vec![run(0, 0..1), run(1, 0..1)],
        inputs: vec![vec![at(0, 0), at(1, 0)]],
        ends: vec![],
        outputs: vec![at(0, 1), at(1, 1)],
    };
    let mut session = session(program, &[meet(a, from_b), meet(b, from_a)]);
    let out = session.run(&[&[3, 4]]).unwrap();
    assert_eq!(out.outputs, [[[6, 8]], [[6, 8]]]);
}

#[test]
fn other_packings_are_packed_again() {
    let im2col = Packing::Im2col {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
    };
    let mut multi = there_and_back();
    let mut program = Program::clone(&multi.parts[1].program);
    program.tensors[0].packing = im2col;
    multi.parts[1].program = Arc::new(program.clone());
    let mut one = session(multi.clone(), &[healthy(), healthy()]);
    assert_eq!(one.run(&[&[1, -3]]).unwrap().outputs[0], [[16, -48]]);
    // A program from an im2col tensor can't be a source.
    multi.steps[1] = copy(at(1, 0), at(0, 2));
    assert!(matches!(
        multi.validate(),
        Err(ProgramError::Step { index: 1, .. })
    ));
}

#[test]
fn a_device_that_fails_midway_stops_the_run_and_nothing_else() {
    let mut runs = 0;
    let failing = doubler(move || {
        runs += 1;
        if runs == 2 {
            Err("insn 7: bad".into())
        } else {
            Ok(())
        }
    });
    let first = healthy();
    let mut session = session(there_and_back(), &[Arc::clone(&first), Arc::new(failing)]);
    assert_eq!(session.run(&[&[1, 1]]).unwrap().outputs[0], [[16, 16]]);
    let error = session.run(&[&[1, 1]]).unwrap_err().to_string();
    assert_eq!(error, "device doubler: insn 7: bad");
    assert_eq!(session.run(&[&[2, 2]]).unwrap().outputs[0], [[32, 32]]);
}

#[test]
fn a_lost_device_is_an_error_and_the_other_goes_on() {
    for first_is_lost in [true, false] {
        let lost: Arc<dyn Device> = Arc::new(doubler(|| panic!("gone")));
        let whole = healthy();
        let devices = if first_is_lost {
            [lost, Arc::clone(&whole)]
        } else {
            [Arc::clone(&whole), lost]
        };
        let mut both = session(there_and_back(), &devices);
        for _ in 0..3 {
            let error = both.run(&[&[1, 1]]).unwrap_err().to_string();
            assert!(error.ends_with("device doubler has stopped"), "{error}");
        }
        let alone = [Arc::clone(&whole), whole];
        assert_eq!(
            session(there_and_back(), &alone)
                .run(&[&[1, 1]])
                .unwrap()
                .outputs[0],
            [[16, 16]]
        );
    }
}

#[test]
fn wrong_images_and_programs_are_refused() {
    let mut session = session(there_and_back(), &[healthy(), healthy()]);
    assert!(matches!(session.run(&[]), Err(DriverError::Input(_))));
    assert!(matches!(session.run(&[&[1]]), Err(DriverError::Input(_))));
    session.run(&[&[1, 2]]).unwrap();
    let one = [healthy()];
    let few = MultiSession::new(Arc::new(there_and_back()), &one, SMALL).err();
    let part = ProgramError::Part { index: 1 };
    assert!(matches!(few, Some(DriverError::Program(e)) if e == part));
    type Break = fn(&mut MultiProgram);
    let cases: [(&str, Break); 8] = [
        ("step 0: it runs on a part", |m| m.steps[0] = run(2, 0..1)),
        ("step 4: its layers", |m| m.steps[4] = run(0, 0..1)),
        ("layer 1 is missing", |m| m.steps.truncate(4)),
        ("layer 3 is missing", |m| m.steps[4] = run(0, 1..3)),
        ("no tensor 9", |m| m.steps[1] = copy(at(0, 9), at(1, 0))),
        ("no part 5", |m| m.steps[1] = copy(at(0, 1), at(5, 0))),
        ("from a device to the same", |m| {
            m.steps[1] = copy(at(0, 1), at(0, 2))
        }),
        ("no tensor 4", |m| m.outputs[0] = at(0, 4)),
    ];
    for (says, change) in cases {
        let mut multi = there_and_back();
        change(&mut multi);
        let error = multi.validate().unwrap_err().to_string();
        assert!(error.contains(says), "{error}, not {says}");
    }
}

#[test]
fn sessions_that_take_turns_share_their_devices() {
    let devices = [healthy(), healthy()];
    let mut sessions = [0, 1, 2].map(|_| session(there_and_back(), &devices));
    assert!(sessions[0].finish().is_none());
    for round in 0..3i16 {
        for (i, session) in sessions.iter_mut().enumerate() {
            let n = 3 * round + i as i16;
            session.start(&[&[n, -n]]).unwrap();
        }
        for (i, session) in sessions.iter_mut().enumerate() {
            let n = 3 * round + i as i16;
            let out = session.finish().unwrap().unwrap();
            assert_eq!(
                out.outputs[0],
                [[n * 16, n * -16].map(|x| i16::from(x as i8))]
            );
            assert!(session.finish().is_none());
        }
    }
    // What nobody asked for is waited for, and wrong images leave nothing behind.
    sessions[0].start(&[&[1, 1]]).unwrap();
    assert!(sessions[0].start(&[&[1]]).is_err());
    assert!(sessions[0].finish().is_none());
    assert_eq!(sessions[0].run(&[&[2, 3]]).unwrap().outputs[0], [[32, 48]]);
}

/// Adds its inputs and a constant; fails on 100 and panics on 101.
#[derive(Debug)]
struct Sum(i16);

impl HostKernel for Sum {
    fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, String> {
        let at = |i: usize| inputs.iter().map(|x| x[i]).sum::<i16>() + self.0;
        assert!(inputs[0][0] != 101, "the kernel is broken");
        match inputs[0][0] {
            100 => Err("a hundred is too much".to_owned()),
            _ => Ok(vec![(0..inputs[0].len()).map(at).collect()]),
        }
    }
}

fn host(name: &str, constant: i16, inputs: &[Place], outputs: &[Place]) -> Step {
    Step::Host(HostStep {
        name: name.to_owned(),
        op: "Sum".to_owned(),
        kernel: Arc::new(Sum(constant)),
        inputs: inputs.to_vec(),
        outputs: vec![HostOutput {
            places: outputs.to_vec(),
            network_tensor: 0,
        }],
    })
}

/// Device 0 doubles the input; the host adds both and 1, for both devices; device 1 doubles that;
/// the host adds what each has, and a second layer of the host takes its result.
fn with_host() -> MultiProgram {
    MultiProgram {
        parts: vec![
            part(5, &[(0, 1)], &[0, 2, 3, 4], &[1]),
            part(2, &[(0, 1)], &[0], &[1]),
        ],
        steps: vec![
            run(0, 0..1),
            host("first", 1, &[at(0, 0), at(0, 1)], &[at(0, 2), at(1, 0)]),
            run(1, 0..1),
            host("second", 0, &[at(0, 2), at(1, 1)], &[at(0, 3)]),
            host("third", 5, &[at(0, 3)], &[at(0, 4)]),
        ],
        inputs: vec![vec![at(0, 0)]],
        ends: vec![],
        outputs: vec![at(0, 4)],
    }
}

#[test]
fn the_host_computes_between_devices() {
    let program = with_host();
    assert_eq!((program.host_ops(), program.copies()), (3, 0));
    let mut session = session(program, &[healthy(), healthy()]);
    for n in 1..=4i16 {
        // x to 2x to 3x + 1 to 6x + 2, and 9x + 3 + 5.
        let out = session.run(&[&[n, -n]]).unwrap();
        assert_eq!(out.outputs, [[[9 * n + 8, 8 - 9 * n]]]);
        for place in [at(0, 2), at(1, 0)] {
            let both = session.read_tensor(place).unwrap();
            assert_eq!(both, [[3 * n + 1, 1 - 3 * n]]);
        }
        let host = out.reports.last().unwrap();
        let mut names: Vec<&str> = host.marks.iter().map(|mark| &mark.name[..]).collect();
        names.sort_unstable();
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(host.wall, host.marks.iter().map(|mark| mark.wall).sum());
    }
    let counters = session.counters();
    assert_eq!(counters.flushed(FlushReason::NextLayerElsewhere), 8);
    assert_eq!(counters.flushed(FlushReason::HostRead), 0);
}

#[test]
fn what_the_host_moves_is_counted() {
    let program = with_host();
    let moved = |step| program.host_traffic(step).unwrap();
    let moved: Vec<_> = program.host_steps().map(moved).collect();
    let bytes = |read, written| HostTraffic { read, written };
    // Tensors of 2 values take 16 bytes; the first output goes on to a second device.
    assert_eq!(moved, [bytes(48, 32), bytes(32, 16), bytes(16, 16)]);
    let mut nowhere = with_host();
    let Step::Host(step) = &mut nowhere.steps[1] else {
        panic!("a step of the host");
    };
    step.inputs[0] = at(7, 0);
    let step = step.clone();
    assert!(nowhere.host_traffic(&step).is_err());
}

/// Gives its input, its negative, and as many more as it says.
#[derive(Debug)]
struct Both(usize);

impl HostKernel for Both {
    fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, String> {
        let negative = inputs[0].iter().map(|x| -x).collect();
        let mut all = vec![inputs[0].to_vec(), negative];
        all.extend((0..self.0).map(|_| Vec::new()));
        Ok(all)
    }
}

/// The host computes two tensors at once, of which each device gets the second.
fn with_two_outputs(more: usize) -> MultiProgram {
    let output = |places: &[Place]| HostOutput {
        places: places.to_vec(),
        network_tensor: 0,
    };
    let mut program = with_host();
    program.steps[1] = Step::Host(HostStep {
        name: "both".to_owned(),
        op: "Both".to_owned(),
        kernel: Arc::new(Both(more)),
        inputs: vec![at(0, 1)],
        outputs: vec![output(&[at(0, 3)]), output(&[at(1, 0), at(0, 2)])],
    });
    program.steps[3] = host("second", 0, &[at(0, 2), at(1, 1), at(0, 3)], &[at(0, 4)]);
    program.steps.pop();
    program
}

#[test]
fn the_host_computes_several_tensors_at_once() {
    let program = with_two_outputs(0);
    assert_eq!(program.host_ops(), 2);
    let mut session = session(program, &[healthy(), healthy()]);
    for n in 1..=4i16 {
        // 2x and -2x; -2x is doubled by the other device; their sum with 2x.
        let out = session.run(&[&[n, -n]]).unwrap();
        assert_eq!(out.outputs, [[[-4 * n, 4 * n]]]);
        assert_eq!(session.read_tensor(at(0, 2)).unwrap(), [[-2 * n, 2 * n]]);
    }
    let mut wrong = self::session(with_two_outputs(1), &[healthy(), healthy()]);
    let error = wrong.run(&[&[1, 1]]).unwrap_err().to_string();
    assert!(error.contains("it gave 3 tensors, not 2"), "{error}");
    let mut nowhere = with_two_outputs(0);
    let Step::Host(step) = &mut nowhere.steps[1] else {
        panic!("a step of the host");
    };
    step.outputs[1].places.clear();
    let error = nowhere.validate().unwrap_err().to_string();
    assert!(error.contains("goes nowhere"), "{error}");
}

#[test]
fn a_layer_of_the_host_that_fails_stops_the_run_and_nothing_else() {
    let mut session = session(with_host(), &[healthy(), healthy()]);
    let error = session.run(&[&[100, 1]]).unwrap_err().to_string();
    assert_eq!(error, "host layer first: a hundred is too much");
    assert_eq!(session.run(&[&[1, 0]]).unwrap().outputs, [[[17, 8]]]);
    let error = session.run(&[&[101, 1]]).unwrap_err().to_string();
    assert_eq!(error, "host layer first: it panicked");
    assert_eq!(session.run(&[&[1, 0]]).unwrap().outputs, [[[17, 8]]]);
}

#[test]
fn impossible_layers_of_the_host_are_refused() {
    let wide = |program: &mut MultiProgram| {
        let mut part = Program::clone(&program.parts[1].program);
        part.tensors[0].chw = [3, 1, 1];
        program.parts[1].program = Arc::new(part);
    };
    type Break<'a> = &'a dyn Fn(&mut MultiProgram);
    let cases: [(&str, Break<'_>); 5] = [
        ("step 1: the host's result goes nowhere", &|m| {
            m.steps[1] = host("first", 1, &[at(0, 0)], &[])
        }),
        ("step 1: the host's result has different shapes", &wide),
        ("no tensor 7", &|m| {
            m.steps[3] = host("second", 0, &[at(0, 7)], &[at(0, 3)])
        }),
        ("no part 2", &|m| {
            m.steps[3] = host("second", 0, &[at(0, 2)], &[at(2, 0)])
        }),
        ("no tensor 9", &|m| {
            m.steps[4] = host("third", 0, &[at(0, 2)], &[at(0, 9)])
        }),
    ];
    for (says, change) in cases {
        let mut multi = with_host();
        change(&mut multi);
        let error = multi.validate().unwrap_err().to_string();
        assert!(error.contains(says), "{error}, not {says}");
    }
}
