use std::time::Duration;

use proptest::prelude::*;
use vta_isa::{Config, Insn, Load, MemType, Store};

use super::*;
use crate::testing::{batch, read, write};
use crate::{Batch, DeviceInfo, DeviceMemory, PhysAddr, RunReport, WorkerDevice};

const LONG: Duration = Duration::from_secs(30);
const TILE: u64 = 16;

/// Adds: the tile of a batch's STORE becomes three times itself plus that of its LOAD plus 1.
fn step(batch: &Arc<Batch>, memory: &mut DeviceMemory) -> Result<RunReport, String> {
    let [Insn::Load(load), Insn::Store(store)] = &batch.insns[..] else {
        return Err("another batch".into());
    };
    let read =
        |memory: &DeviceMemory, base: u32| memory.read(u64::from(base) * TILE, 1).unwrap()[0];
    let new = next(read(memory, store.dram_base), read(memory, load.dram_base));
    memory.write(u64::from(store.dram_base) * TILE, 1).unwrap()[0] = new;
    Ok(RunReport::default())
}

fn next(to: u8, from: u8) -> u8 {
    to.wrapping_mul(3).wrapping_add(from).wrapping_add(1)
}

fn device() -> Arc<WorkerDevice> {
    let info = DeviceInfo {
        name: "adder".into(),
        config: Config::default(),
    };
    Arc::new(WorkerDevice::new(info, Box::new(step)))
}

fn run(from: PhysAddr, to: PhysAddr) -> Work {
    let load = Load {
        mem: MemType::Inp,
        dram_base: from.0 / TILE as u32,
        y_size: 1,
        x_size: 1,
        ..Load::default()
    };
    let store = Store {
        dram_base: to.0 / TILE as u32,
        y_size: 1,
        x_size: 1,
        ..Store::default()
    };
    batch(vec![load.into(), store.into()])
}

fn byte(ticket: Box<dyn Ticket>) -> u8 {
    match ticket.wait().unwrap() {
        WorkDone::Data(bytes) => bytes[0],
        other => panic!("{other:?}"),
    }
}

fn streams(device: &Arc<WorkerDevice>) -> [Stream; 2] {
    [("copy", Lane::Copy), ("compute", Lane::Compute)]
        .map(|(name, lane)| Stream::new(name, Arc::clone(device) as _, lane))
}

#[test]
fn a_wait_nobody_signals_is_refused_and_fails_the_works_own_signals() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let [copy, _] = streams(&device);
    let (never, mine) = (Timeline::new("never"), Timeline::new("mine"));
    let promise = mine.promise(1).unwrap();
    let refused = copy.submit(write(addr, 1), &[never.at(1)], vec![promise]);
    let error = refused.err().unwrap().to_string();
    assert_eq!(
        error,
        "timeline never is at 0 and nothing outstanding signals 1"
    );
    let error = mine.wait(1).unwrap_err().to_string();
    assert!(error.ends_with("nothing outstanding signals 1"), "{error}");
    // The stream goes on.
    copy.submit(write(addr, 5), &[], vec![]).unwrap();
    assert_eq!(byte(copy.submit(read(addr), &[], vec![]).unwrap()), 5);
}

#[test]
fn waits_in_a_circle_are_refused() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let [copy, compute] = streams(&device);
    let (a, b) = (Timeline::new("a"), Timeline::new("b"));
    let [first, second] = [a.promise(1).unwrap(), b.promise(1).unwrap()];
    let waits_for_b = copy
        .submit(write(addr, 1), &[b.at(1)], vec![first])
        .unwrap();
    let refused = compute.submit(write(addr, 2), &[a.at(1)], vec![second]);
    let error = refused.err().unwrap();
    assert!(
        matches!(&error, DriverError::Timeline(TimelineError::Cycle { .. })),
        "{error}"
    );
    // The first piece of work fails with it, and says so.
    let error = waits_for_b.wait().unwrap_err().to_string();
    assert!(error.contains("which waits for that work"), "{error}");
    // Waiting for oneself, and for later work of the same stream.
    let own = Timeline::new("own");
    let promise = own.promise(1).unwrap();
    assert!(
        copy.submit(write(addr, 1), &[own.at(1)], vec![promise])
            .is_err()
    );
    let later = Timeline::new("later");
    let promise = later.promise(1).unwrap();
    let first = copy.submit(write(addr, 1), &[later.at(1)], vec![]).unwrap();
    let refused = copy.submit(write(addr, 1), &[], vec![promise]);
    assert!(matches!(
        refused.err(),
        Some(DriverError::Timeline(TimelineError::Cycle { .. }))
    ));
    assert!(first.wait().is_err());
}

#[test]
fn work_may_wait_before_its_signaller_is_submitted() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let [copy, compute] = streams(&device);
    let line = Timeline::new("line");
    let promise = line.promise(1).unwrap();
    let seen = compute.submit(read(addr), &[line.at(1)], vec![]).unwrap();
    copy.submit(write(addr, 3), &[], vec![promise]).unwrap();
    assert_eq!(byte(seen), 3);
}

#[test]
fn failures_cascade_with_their_first_cause_and_no_further() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let [copy, compute] = streams(&device);
    let lines = ["a", "b", "c"].map(Timeline::new);
    let promises = lines.each_ref().map(|l| l.promise(1).unwrap());
    let [a, b, c] = promises;
    let bad = PhysAddr(0x7000_0000);
    let first = copy.submit(write(bad, 1), &[], vec![a]).unwrap();
    let second = compute
        .submit(write(addr, 9), &[lines[0].at(1)], vec![b])
        .unwrap();
    let third = copy.submit(read(addr), &[lines[1].at(1)], vec![c]).unwrap();
    assert!(matches!(first.wait(), Err(DriverError::Memory { .. })));
    for (ticket, name) in [(second, "a"), (third, "b")] {
        let error = ticket.wait().unwrap_err().to_string();
        let start = format!("timeline {name} never reaches 1: device adder: DRAM bytes");
        assert!(error.starts_with(&start), "{error}");
    }
    assert!(matches!(
        lines[2].wait_timeout(1, LONG),
        Err(TimelineError::Failed { .. })
    ));
    // Neither the failed write nor what waited for it was done.
    assert_eq!(byte(compute.submit(read(addr), &[], vec![]).unwrap()), 0);
}

#[test]
fn a_lost_device_fails_its_work_and_another_goes_on() {
    let info = DeviceInfo {
        name: "broken".into(),
        config: Config::default(),
    };
    let broken = Arc::new(WorkerDevice::new(info, Box::new(|_, _| panic!("runner"))));
    let whole = device();
    let [theirs, mine] = [broken.alloc(TILE).unwrap(), whole.alloc(TILE).unwrap()];
    let [_, lost] = streams(&broken);
    let [copy, compute] = streams(&whole);
    let line = Timeline::new("result");
    let promise = line.promise(1).unwrap();
    let ran = lost
        .submit(run(theirs, theirs), &[], vec![promise])
        .unwrap();
    let fed = copy.submit(write(mine, 1), &[line.at(1)], vec![]);
    let error = match fed {
        Ok(ticket) => ticket.wait().unwrap_err(),
        Err(error) => error,
    };
    assert!(
        error.to_string().ends_with("device broken has stopped"),
        "{error}"
    );
    assert!(matches!(ran.wait(), Err(DriverError::Lost { .. })));
    compute.submit(run(mine, mine), &[], vec![]).unwrap();
    assert_eq!(byte(compute.submit(read(mine), &[], vec![]).unwrap()), 1);
}

#[test]
fn dropping_a_stream_finishes_what_can_be_and_fails_the_rest() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let line = Timeline::new("host");
    let [copy, compute] = streams(&device);
    let promise = line.promise(1).unwrap();
    let done = copy.submit(write(addr, 8), &[], vec![]).unwrap();
    let stuck = copy.submit(write(addr, 9), &[line.at(1)], vec![]).unwrap();
    let after = copy.submit(read(addr), &[], vec![]).unwrap();
    // Dropped while the host still holds the promise: no hang.
    drop(copy);
    done.wait().unwrap();
    let error = stuck.wait().unwrap_err().to_string();
    assert_eq!(
        error,
        "stream copy was dropped while its work waited for the host"
    );
    assert_eq!(byte(after), 8);
    promise.keep();
    drop(compute);
}

#[test]
fn a_full_stream_that_waits_for_the_host_refuses_instead_of_hanging() {
    let device = device();
    let addr = device.alloc(TILE).unwrap();
    let [copy, _] = streams(&device);
    let line = Timeline::new("host");
    let promise = line.promise(1).unwrap();
    let mut tickets = vec![copy.submit(write(addr, 1), &[line.at(1)], vec![]).unwrap()];
    let error = loop {
        match copy.submit(write(addr, 1), &[], vec![]) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, DriverError::Timeline(TimelineError::Full { .. })),
        "{error}"
    );
    assert!(tickets.len() >= QUEUE_DEPTH);
    promise.keep();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    // Without such a promise a full queue only slows the host down.
    for _ in 0..10 * QUEUE_DEPTH {
        copy.submit(write(addr, 2), &[], vec![]).unwrap();
    }
}

#[test]
fn panicking_work_breaks_its_promises() {
    let device = device();
    let [copy, _] = streams(&device);
    let line = Timeline::new("t");
    let promise = line.promise(1).unwrap();
    let ticket = copy
        .submit_with(|| panic!("make"), &[], vec![promise])
        .unwrap();
    assert!(matches!(ticket.wait(), Err(DriverError::Lost { .. })));
    assert!(matches!(line.wait(1), Err(TimelineError::Failed { .. })));
}

/// One step of a random program over [`BUFFERS`] bytes on each of two devices.
#[derive(Clone, Debug)]
enum Op {
    Write {
        to: usize,
        value: u8,
    },
    Run {
        device: usize,
        from: usize,
        to: usize,
    },
    Read {
        of: usize,
    },
    Move {
        from: usize,
        to: usize,
    },
}

const BUFFERS: usize = 3;

fn op() -> impl Strategy<Value = Op> {
    let place = 0..2 * BUFFERS;
    prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|(to, value)| Op::Write { to, value }),
        (0..2usize, 0..BUFFERS, 0..BUFFERS).prop_map(|(device, from, to)| Op::Run {
            device,
            from,
            to
        }),
        place.clone().prop_map(|of| Op::Read { of }),
        (place.clone(), place).prop_map(|(from, to)| Op::Move { from, to }),
    ]
}

/// What every read sees, one after the other.
fn sequential(ops: &[Op]) -> Vec<u8> {
    let mut memory = [0u8; 2 * BUFFERS];
    let mut seen = Vec::new();
    for op in ops {
        match *op {
            Op::Write { to, value } => memory[to] = value,
            Op::Run { device, from, to } => {
                let (from, to) = (device * BUFFERS + from, device * BUFFERS + to);
                memory[to] = next(memory[to], memory[from]);
            }
            Op::Read { of } => seen.push(memory[of]),
            Op::Move { from, to } => memory[to] = memory[from],
        }
    }
    seen.extend(memory);
    seen
}

/// A program spread over the four streams of two devices, ordered by hazards alone.
struct Spread {
    devices: [Arc<WorkerDevice>; 2],
    streams: Vec<Stream>,
    addresses: Vec<PhysAddr>,
    /// Each buffer's last write, and the reads since.
    hazards: Vec<(Option<Point>, Vec<Point>)>,
    lines: Vec<Timeline>,
}

/// A piece of work with its place, ready to be submitted.
struct Piece {
    stream: usize,
    make: Make,
    waits: Vec<Point>,
    signal: Promise,
    seen: Option<usize>,
}

impl Spread {
    fn new() -> Self {
        let devices = [device(), device()];
        let streams: Vec<Stream> = devices.iter().flat_map(streams).collect();
        let alloc = |i: usize| devices[i / BUFFERS].alloc(TILE).unwrap();
        Self {
            addresses: (0..2 * BUFFERS).map(alloc).collect(),
            hazards: vec![(None, Vec::new()); 2 * BUFFERS],
            lines: (0..streams.len())
                .map(|i| Timeline::new(format!("s{i}")))
                .collect(),
            streams,
            devices,
        }
    }

    fn piece(&mut self, stream: usize, reads: &[usize], writes: &[usize], make: Make) -> Piece {
        let signal = self.lines[stream].promise_next().unwrap();
        let mut waits = Vec::new();
        for &buffer in reads {
            waits.extend(self.hazards[buffer].0.clone());
        }
        for &buffer in writes {
            let (written, read) = &self.hazards[buffer];
            waits.extend(written.iter().chain(read).cloned());
        }
        for &buffer in reads {
            self.hazards[buffer].1.push(signal.point());
        }
        for &buffer in writes {
            self.hazards[buffer] = (Some(signal.point()), Vec::new());
        }
        let seen = None;
        Piece {
            stream,
            make,
            waits,
            signal,
            seen,
        }
    }

    /// The pieces of an operation; copies go to either stream of their device.
    fn pieces(&mut self, op: &Op, lane: usize, reads: &mut usize) -> Vec<Piece> {
        let at = |buffer: usize| 2 * (buffer / BUFFERS) + lane;
        match *op {
            Op::Write { to, value } => {
                let addr = self.addresses[to];
                vec![self.piece(at(to), &[], &[to], Box::new(move || Ok(write(addr, value))))]
            }
            Op::Run { device, from, to } => {
                let (from, to) = (device * BUFFERS + from, device * BUFFERS + to);
                let [a, b] = [self.addresses[from], self.addresses[to]];
                let make = Box::new(move || Ok(run(a, b)));
                vec![self.piece(2 * device + 1, &[from, to], &[to], make)]
            }
            Op::Read { of } => {
                let addr = self.addresses[of];
                let mut piece = self.piece(at(of), &[of], &[], Box::new(move || Ok(read(addr))));
                piece.seen = Some(*reads);
                *reads += 1;
                vec![piece]
            }
            Op::Move { from, to } => {
                // The bytes travel through the host, on the thread of the writing stream.
                let [a, b] = [self.addresses[from], self.addresses[to]];
                let source = Arc::clone(&self.devices[from / BUFFERS]);
                let make =
                    Box::new(
                        move || match source.submit_on(Lane::Copy, read(a))?.wait()? {
                            WorkDone::Data(bytes) => Ok(write(b, bytes[0])),
                            _ => Err(DriverError::Input("no data".into())),
                        },
                    );
                vec![self.piece(at(to), &[from], &[to], make)]
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn streams_give_what_sequential_execution_gives(
        ops in prop::collection::vec((op(), 0..2usize), 1..24),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 80),
    ) {
        let plain: Vec<Op> = ops.iter().map(|(op, _)| op.clone()).collect();
        let mut spread = Spread::new();
        let mut reads = 0;
        let mut queues: Vec<std::collections::VecDeque<Piece>> = (0..4).map(|_| Default::default()).collect();
        let last = (0..2 * BUFFERS).map(|of| (Op::Read { of }, 0));
        for (op, lane) in ops.into_iter().chain(last) {
            for piece in spread.pieces(&op, lane, &mut reads) {
                queues[piece.stream].push_back(piece);
            }
        }
        // Streams are filled in any order among each other: waits come before their signals.
        let mut tickets = Vec::new();
        let mut picks = picks.into_iter().cycle();
        loop {
            let open: Vec<usize> = (0..4).filter(|q| !queues[*q].is_empty()).collect();
            if open.is_empty() {
                break;
            }
            let queue = open[picks.next().unwrap().index(open.len())];
            let piece = queues[queue].pop_front().unwrap();
            let stream = &spread.streams[piece.stream];
            let ticket = stream.submit_with(piece.make, &piece.waits, vec![piece.signal]).unwrap();
            tickets.push((piece.seen, ticket));
        }
        let mut seen = vec![0; reads];
        for (index, ticket) in tickets {
            match index {
                Some(index) => seen[index] = byte(ticket),
                None => drop(ticket.wait().unwrap()),
            }
        }
        prop_assert_eq!(seen, sequential(&plain));
    }
}
