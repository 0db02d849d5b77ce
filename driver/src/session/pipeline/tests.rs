use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use vta_isa::{Config, Insn};

use super::*;
use crate::testing::{Recorder, doubler, program};
use crate::{Device, DeviceInfo, FlushReason, Lane, PAGE_BYTES, QueueLimits, WorkerDevice};

const SMALL: QueueLimits = QueueLimits {
    insns: 256,
    uops: 1024,
};

fn image(n: usize) -> [i16; 6] {
    std::array::from_fn(|i| (n * 7 + i) as i16 - 40)
}

/// The program reads its tensors' first pixel only, so the second is zero.
fn loader() -> Arc<crate::Program> {
    let mut program = program(&[3, 4]);
    for layer in &mut program.layers {
        if let Insn::Load(load) = &mut layer.commands[0].insn {
            load.mem = vta_isa::MemType::Inp;
        }
    }
    Arc::new(program)
}

fn expected(n: usize) -> Vec<i16> {
    let [a, _, b, _, c, _] = image(n).map(|v| v.wrapping_mul(2));
    vec![a, 0, b, 0, c, 0]
}

#[test]
fn any_number_in_flight_gives_the_results_of_one_at_a_time() {
    let images: Vec<_> = (0..9).map(image).collect();
    let groups: Vec<Vec<&[i16]>> = images.iter().map(|x| vec![&x[..]]).collect();
    for in_flight in [0, 1, 2, 3, 8, 20] {
        let device = Arc::new(doubler(|| Ok(())));
        let before = device.free_bytes();
        let mut session = Session::new(loader(), Arc::clone(&device) as _, SMALL).unwrap();
        for repeat in 1..=2 {
            let results = session.run_many(&groups, in_flight).unwrap();
            for (n, result) in results.iter().enumerate() {
                assert_eq!(result.outputs, [[expected(n)]], "{in_flight} {n}");
                assert_eq!(result.reports.len(), 1);
            }
            assert_eq!(results.len(), images.len());
            let counters = session.counters();
            let sets = in_flight.clamp(1, 2) as u64;
            assert_eq!(counters.submissions, 9 * repeat);
            assert_eq!(counters.flushed(FlushReason::HostRead), 9 * repeat);
            assert_eq!(counters.encoded_batches, sets);
            assert_eq!(counters.replayed_batches, 9 * repeat - sets);
            assert_eq!(session.read_tensor(1).unwrap(), [expected(8)]);
        }
        // One at a time again, between pipelines.
        assert_eq!(session.run(&groups[3]).unwrap().outputs, [[expected(3)]]);
        drop(session);
        assert_eq!(device.free_bytes(), before);
    }
}

/// A device that says when a write on its copy lane has ended.
struct Telling {
    inner: WorkerDevice,
    written: Sender<()>,
}

struct TellingTicket(Box<dyn Ticket>, Sender<()>);

impl Ticket for TellingTicket {
    fn wait(self: Box<Self>) -> Result<WorkDone, DriverError> {
        let done = self.0.wait();
        self.1.send(()).unwrap();
        done
    }
}

impl Device for Telling {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.inner.alloc(size_bytes)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.inner.alloc_at(addr, size_bytes)
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.inner.free(addr)
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.inner.submit(work)
    }

    fn submit_on(&self, lane: Lane, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let input = matches!(work, Work::Write { .. } | Work::Pack { .. });
        let tell = lane == Lane::Copy && input;
        let ticket = self.inner.submit_on(lane, work)?;
        if !tell {
            return Ok(ticket);
        }
        Ok(Box::new(TellingTicket(ticket, self.written.clone())))
    }
}

#[test]
fn the_next_input_is_copied_while_a_run_computes() {
    // Every run but the last ends only after the write of the next input has: it would time out
    // if the copy had to wait for it.
    const RUNS: usize = 5;
    let (written, told): (_, Receiver<()>) = unbounded();
    let (mut run, mut writes) = (0, 0);
    let wait = move || {
        run += 1;
        while writes < (run + 1).min(RUNS) {
            let waited = told.recv_timeout(Duration::from_secs(30));
            waited.map_err(|e| format!("run {run}, {writes} writes: {e}"))?;
            writes += 1;
        }
        Ok(())
    };
    let inner = doubler(wait);
    let device = Arc::new(Telling { inner, written });
    let mut session = Session::new(loader(), device, SMALL).unwrap();
    let images: Vec<_> = (0..RUNS).map(image).collect();
    let groups: Vec<Vec<&[i16]>> = images.iter().map(|x| vec![&x[..]]).collect();
    let results = session.run_many(&groups, 2).unwrap();
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result.outputs, [[expected(n)]]);
    }
}

#[test]
fn back_pressure_bounds_what_is_in_flight() {
    let device = Arc::new(doubler(|| Ok(())));
    let mut session = Session::new(loader(), device, SMALL).unwrap();
    let mut pipeline = session.pipeline(3).unwrap();
    let mut done = 0;
    for n in 0..7 {
        if let Some(result) = pipeline.push(&[&image(n)]).unwrap() {
            assert_eq!(result.outputs, [[expected(done)]]);
            done += 1;
        }
        assert_eq!(n + 1 - done, (n + 1).min(2), "two stay behind");
    }
    let wrong = pipeline.push(&[&[1, 2]]).unwrap_err();
    assert!(wrong.to_string().starts_with("input: "), "{wrong}");
    while let Some(result) = pipeline.pop() {
        assert_eq!(result.unwrap().outputs, [[expected(done)]]);
        done += 1;
    }
    assert_eq!(done, 7);
}

#[test]
fn a_dropped_pipeline_leaves_a_session_that_works() {
    let device = Arc::new(doubler(|| Ok(())));
    let mut session = Session::new(loader(), device, SMALL).unwrap();
    for n in 0..10 {
        let mut pipeline = session.pipeline(4).unwrap();
        for k in 0..3 {
            pipeline.push(&[&image(k)]).unwrap();
        }
        drop(pipeline);
        let result = session.run(&[&image(n)]).unwrap();
        assert_eq!(result.outputs, [[expected(n)]]);
    }
}

#[test]
fn a_failed_run_is_reported_in_its_place_and_the_session_goes_on() {
    let mut runs = 0;
    let device = Arc::new(doubler(move || {
        runs += 1;
        if runs == 3 {
            Err("insn 1: bad".into())
        } else {
            Ok(())
        }
    }));
    let mut session = Session::new(loader(), device, SMALL).unwrap();
    let mut pipeline = session.pipeline(2).unwrap();
    assert!(pipeline.push(&[&image(0)]).unwrap().is_none());
    assert_eq!(
        pipeline.push(&[&image(1)]).unwrap().unwrap().outputs,
        [[expected(0)]]
    );
    assert_eq!(
        pipeline.push(&[&image(2)]).unwrap().unwrap().outputs,
        [[expected(1)]]
    );
    let error = pipeline.push(&[&image(3)]).unwrap_err();
    assert_eq!(error.to_string(), "device doubler: insn 1: bad");
    assert_eq!(
        pipeline.push(&[&image(4)]).unwrap().unwrap().outputs,
        [[expected(3)]]
    );
    assert_eq!(pipeline.pop().unwrap().unwrap().outputs, [[expected(4)]]);
    assert!(pipeline.pop().is_none());
    drop(pipeline);
    assert_eq!(session.run(&[&image(5)]).unwrap().outputs, [[expected(5)]]);
}

#[test]
fn every_failing_or_refused_piece_is_an_error_and_the_session_goes_on() {
    for (refuse, at) in (0..10).flat_map(|at| [(false, at), (true, at)]) {
        let device = Recorder::new(Config::default(), 16);
        let mut session = Session::new(loader(), Arc::clone(&device) as _, SMALL).unwrap();
        let images: Vec<_> = (0..3).map(image).collect();
        let groups: Vec<Vec<&[i16]>> = images.iter().map(|x| vec![&x[..]]).collect();
        if refuse {
            device.refuse_after(at);
        } else {
            device.fail_after(at);
        }
        let error = session.run_many(&groups, 2).unwrap_err();
        assert!(error.to_string().contains("on demand"), "{error}");
        device.refuse_after(usize::MAX);
        let before = device.seen().len();
        session.run_many(&groups, 2).unwrap();
        session.run(&groups[0]).unwrap();
        for run in &device.seen()[before..] {
            assert_eq!(run.words.0, run.words.1, "{refuse} {at}");
            let lens: Vec<_> = run.uops.iter().map(Vec::len).collect();
            assert_eq!(lens, [3, 4], "{refuse} {at}");
        }
        assert_eq!(device.seen().len(), before + 4);
    }
}

#[test]
fn a_second_set_that_does_not_fit_is_an_error_and_frees_nothing_in_use() {
    // The first set takes five pages, the second input, output and queues four.
    for pages in 5..9 {
        let device = Recorder::new(Config::default(), pages);
        let mut session = Session::new(loader(), Arc::clone(&device) as _, SMALL).unwrap();
        let failed = session.pipeline(2).err();
        assert!(matches!(failed, Some(DriverError::Alloc { .. })), "{pages}");
        session.run(&[&image(0)]).unwrap();
        drop(session);
        assert_eq!(device.free_bytes(), pages * PAGE_BYTES);
    }
    let device = Recorder::new(Config::default(), 9);
    let mut session = Session::new(loader(), Arc::clone(&device) as _, SMALL).unwrap();
    session.pipeline(2).unwrap();
    assert_eq!(
        device.submitted.load(Ordering::Relaxed),
        1,
        "only the constant"
    );
}
