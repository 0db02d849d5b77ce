use std::thread::{self, ThreadId};
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use vta_isa::{Config, Gemm};

use super::*;
use crate::testing::{batch, read, write};
use crate::{PAGE_BYTES, RunReport, WorkDone};

fn device(runner: Runner) -> WorkerDevice {
    WorkerDevice::new(
        DeviceInfo {
            name: "test".into(),
            config: Config::default(),
        },
        runner,
    )
}

/// A batch that names one tile of memory.
fn store_at(addr: PhysAddr) -> Work {
    let store = vta_isa::Store {
        dram_base: addr.0 / 16,
        y_size: 1,
        x_size: 1,
        ..vta_isa::Store::default()
    };
    batch(vec![store.into()])
}

#[test]
fn work_runs_in_order() {
    let d = device(Box::new(|_, memory| {
        memory.write(0x1000, 1).unwrap()[0] += 1;
        Ok(RunReport::default())
    }));
    let addr = d.alloc(4).unwrap();
    let works = [write(addr, 41), store_at(addr), read(addr)];
    let tickets: Vec<_> = works.into_iter().map(|w| d.submit(w).unwrap()).collect();
    let done: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
    assert!(matches!(&done[2], WorkDone::Data(bytes) if bytes == &[42]));
}

#[test]
fn faults_name_the_device_and_leave_it_usable() {
    let d = device(Box::new(|_, _| Err("insn 3: bad".into())));
    let error = d.submit(batch(vec![])).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "device test: insn 3: bad");
    let read = Work::Read {
        addr: PhysAddr(0),
        size_bytes: 1,
    };
    assert!(matches!(
        d.submit(read).unwrap().wait(),
        Err(DriverError::Memory { .. })
    ));
}

#[test]
fn a_panicking_runner_answers_every_ticket() {
    let d = device(Box::new(|_, _| panic!("runner")));
    let first = d.submit(batch(vec![])).unwrap();
    assert!(matches!(first.wait(), Err(DriverError::Lost { .. })));
    let later = d.submit(batch(vec![])).map(Ticket::wait);
    assert!(matches!(
        later,
        Err(DriverError::Lost { .. }) | Ok(Err(DriverError::Lost { .. }))
    ));
}

#[test]
fn a_range_is_unmapped_before_another_thread_maps_it_again() {
    // Few pages: nearly every allocation gets a range that another thread has just freed.
    // Nobody waits before the end, so the worker's queue is full and senders block.
    let info = DeviceInfo {
        name: "test".into(),
        config: Config::default(),
    };
    let allocator = Allocator::new(PAGE_BYTES, 3 * PAGE_BYTES);
    let d = WorkerDevice::with_allocator(info, allocator, Box::new(|_, _| unreachable!()));
    let turn = |value: u8| {
        let addr = d.alloc(PAGE_BYTES).ok()?;
        let write = Work::Write {
            addr,
            data: [value].into(),
        };
        let read = Work::Read {
            addr,
            size_bytes: 2,
        };
        let written = d.submit(write).unwrap();
        let read = d.submit(read).unwrap();
        d.free(addr).unwrap();
        Some((written, read))
    };
    let turns = |value: u8| {
        let tickets: Vec<_> = (0..60_000).filter_map(|_| turn(value)).collect();
        for (written, read) in tickets {
            written.wait().unwrap();
            let found = read.wait().unwrap();
            assert!(matches!(found, WorkDone::Data(bytes) if bytes == [value, 0]));
        }
    };
    thread::scope(|scope| {
        for value in 1..=4u8 {
            let turns = &turns;
            scope.spawn(move || turns(value));
        }
    });
    assert_eq!(d.free_bytes(), 2 * PAGE_BYTES);
}

#[test]
fn a_refused_allocation_leaves_the_free_memory_as_it_is() {
    let d = device(Box::new(|_, _| panic!("runner")));
    let before = d.free_bytes();
    assert!(d.alloc(u64::MAX).is_err() && d.alloc(0).is_err());
    assert!(d.alloc_at(PhysAddr(u32::MAX), 2).is_err());
    assert_eq!(d.free_bytes(), before);
}

#[test]
fn copies_overlap_a_batch_that_touches_other_memory() {
    // The batch ends only after the copies, so it would hang if they had to wait for it.
    let (done, copied) = bounded::<()>(1);
    let d = device(Box::new(move |_, memory| {
        copied.recv_timeout(Duration::from_secs(30)).unwrap();
        memory.write(0x1000, 1).unwrap()[0] += 1;
        Ok(RunReport::default())
    }));
    let [mine, other] = [d.alloc(16).unwrap(), d.alloc(16).unwrap()];
    let ran = d.submit(store_at(mine)).unwrap();
    let copy = |work| d.submit_on(Lane::Copy, work).unwrap().wait();
    copy(write(other, 7)).unwrap();
    assert!(matches!(copy(read(other)), Ok(WorkDone::Data(b)) if b == [7]));
    done.send(()).unwrap();
    ran.wait().unwrap();
    assert!(matches!(copy(read(mine)), Ok(WorkDone::Data(b)) if b == [1]));
}

#[test]
fn lanes_take_turns_on_the_same_memory() {
    // Each batch and each copy leaves whole allocations, whatever order they get.
    let d = device(Box::new(|_, memory| {
        for at in [0x1000, 0x1001] {
            let byte = &mut memory.write(at, 1).unwrap()[0];
            thread::yield_now();
            *byte += 1;
        }
        Ok(RunReport::default())
    }));
    let addr = d.alloc(16).unwrap();
    let tickets: Vec<_> = (0..100)
        .map(|_| {
            let ran = d.submit(store_at(addr)).unwrap();
            let size_bytes = 2;
            let work = Work::Read { addr, size_bytes };
            (ran, d.submit_on(Lane::Copy, work).unwrap())
        })
        .collect();
    for (ran, read) in tickets {
        ran.wait().unwrap();
        let done = read.wait().unwrap();
        assert!(matches!(done, WorkDone::Data(b) if b[0] == b[1]));
    }
}

#[test]
fn freed_memory_stays_for_work_of_either_lane_that_names_it() {
    let (go, gate) = bounded::<()>(1);
    let d = device(Box::new(move |_, memory| {
        let _ = gate.recv();
        memory.write(0x1000, 1).unwrap()[0] += 1;
        Ok(RunReport::default())
    }));
    let addr = d.alloc(16).unwrap();
    let ran = d.submit(store_at(addr)).unwrap();
    let read_later = d.submit(read(addr)).unwrap();
    d.free(addr).unwrap();
    // The same address again is other memory, and needn't wait for the batch.
    assert_eq!(d.alloc(16).unwrap(), addr);
    d.submit_on(Lane::Copy, write(addr, 9))
        .unwrap()
        .wait()
        .unwrap();
    go.send(()).unwrap();
    ran.wait().unwrap();
    let old = read_later.wait().unwrap();
    assert!(matches!(old, WorkDone::Data(b) if b == [1]));
    let new = d.submit(read(addr)).unwrap().wait().unwrap();
    assert!(matches!(new, WorkDone::Data(b) if b == [9]));
}

#[test]
fn a_lost_device_refuses_on_both_lanes() {
    let d = device(Box::new(|_, _| panic!("runner")));
    let addr = d.alloc(16).unwrap();
    assert!(d.submit(store_at(addr)).unwrap().wait().is_err());
    for lane in [Lane::Copy, Lane::Compute] {
        let answer = d.submit_on(lane, read(addr)).unwrap().wait();
        assert!(matches!(answer, Err(DriverError::Lost { .. })));
    }
    assert!(matches!(d.alloc(1), Err(DriverError::Lost { .. })));
    d.free(addr).unwrap();
}

/// A device with small work at once whose batches wait for a word each, with what says which threads ran them.
fn gated() -> (
    WorkerDevice,
    crossbeam_channel::Sender<()>,
    crossbeam_channel::Receiver<ThreadId>,
) {
    let ((go, gate), (ran, threads)) = (unbounded(), unbounded());
    let runner: Runner = Box::new(move |_, memory| {
        gate.recv_timeout(Duration::from_secs(30)).unwrap();
        ran.send(thread::current().id()).unwrap();
        let byte = &mut memory.write(0x1000, 1).unwrap()[0];
        *byte = byte.wrapping_mul(3) + 1;
        Ok(RunReport::default())
    });
    (device(runner).with_work_at_once(), go, threads)
}

#[test]
fn small_work_runs_on_the_callers_thread_unless_something_waits() {
    let (d, go, threads) = gated();
    let addr = d.alloc(16).unwrap();
    let own = thread::current().id();
    go.send(()).unwrap();
    let ran = d.submit(store_at(addr)).unwrap();
    assert_eq!(threads.try_recv(), Ok(own));
    ran.wait().unwrap();
    // A batch of many steps is another thread's, whose answer small ones behind it must wait for.
    let steps = Gemm {
        uop_end: 1,
        iter_out: 1 << 13,
        iter_in: 1,
        ..Gemm::default()
    };
    let store = |more: Vec<vta_isa::Insn>| {
        let Work::Run(stored) = store_at(addr) else {
            unreachable!()
        };
        batch([more, stored.insns.clone()].concat())
    };
    let large = d.submit(store(vec![steps.into()])).unwrap();
    let small = d.submit(store_at(addr)).unwrap();
    let found = d.submit(read(addr)).unwrap();
    assert!(threads.try_recv().is_err());
    go.send(()).unwrap();
    go.send(()).unwrap();
    large.wait().unwrap();
    small.wait().unwrap();
    assert!(matches!(found.wait(), Ok(WorkDone::Data(b)) if b == [13]));
    let others: Vec<_> = threads.try_iter().collect();
    assert!(others.len() == 2 && !others.contains(&own));
    // Who waits next does large work, too, unless something waits.
    let large = || store(vec![steps.into()]);
    go.send(()).unwrap();
    d.perform(&large()).unwrap().unwrap();
    assert_eq!(threads.try_recv(), Ok(own));
    let before = d.submit(large()).unwrap();
    assert!(d.perform(&large()).is_none());
    let behind = d.submit(large()).unwrap();
    assert!(threads.try_recv().is_err());
    go.send(()).unwrap();
    go.send(()).unwrap();
    before.wait().unwrap();
    behind.wait().unwrap();
    let others: Vec<_> = threads.try_iter().collect();
    assert!(others.len() == 2 && !others.contains(&own));
    let elsewhere = device(Box::new(|_, _| Ok(RunReport::default())));
    assert!(elsewhere.perform(&batch(vec![])).is_none());
}

#[test]
fn small_is_what_takes_some_tens_of_microseconds() {
    let (d, ..) = gated();
    let addr = d.alloc(1 << 17).unwrap();
    let steps = |iter_out| {
        let steps = Gemm {
            uop_end: 1,
            iter_out,
            iter_in: 1,
            ..Gemm::default()
        };
        batch(vec![steps.into()])
    };
    let store = |y_size| {
        let store = vta_isa::Store {
            y_size,
            x_size: 1,
            ..vta_isa::Store::default()
        };
        batch(vec![store.into()])
    };
    let read = |size_bytes| Work::Read { addr, size_bytes };
    let [few, many] = [1, 65].map(|count| batch(vec![vta_isa::Finish::default().into(); count]));
    assert!(
        [steps(1 << 12), store(1 << 12), read(1 << 16), few]
            .iter()
            .all(|w| d.is_small(w))
    );
    let large = [
        steps((1 << 12) + 1),
        store((1 << 12) + 1),
        read((1 << 16) + 1),
        many,
    ];
    assert!(large.iter().all(|w| !d.is_small(w)));
    assert!(!device(Box::new(|_, _| unreachable!())).is_small(&read(1)));
}

#[test]
fn a_panic_on_the_callers_thread_loses_the_device() {
    let d = device(Box::new(|_, _| panic!("runner"))).with_work_at_once();
    let addr = d.alloc(16).unwrap();
    for work in [store_at(addr), read(addr), store_at(addr)] {
        let answer = d.submit(work).unwrap().wait();
        assert!(matches!(answer, Err(DriverError::Lost { .. })));
    }
}

#[test]
fn what_the_host_writes_in_place_changes_with_each_piece_of_work() {
    let (told, seen) = unbounded();
    let d = device(Box::new(move |_, memory| {
        let seen = (
            memory.is_in_place(0),
            memory.version(0),
            memory.read(0x1000, 2).unwrap().to_vec(),
        );
        told.send(seen).unwrap();
        Ok(RunReport::default())
    }));
    let addr = d.alloc(16).unwrap();
    let batch = store_at(addr);
    let run = || {
        d.submit(batch.clone()).unwrap().wait().unwrap();
        seen.recv().unwrap()
    };
    d.submit(write(addr, 7)).unwrap().wait().unwrap();
    let (before, again) = (run(), run());
    assert_eq!(before, again);
    assert_eq!((before.0, before.2), (false, vec![7, 0]));
    let bytes = d.in_place(addr).unwrap();
    assert!(bytes.len == 16 && bytes.first.addr().get().is_multiple_of(PAGE_BYTES as usize));
    assert_eq!(d.in_place(addr).map(|again| again.first), Some(bytes.first));
    let (first, second) = (run(), run());
    assert_eq!((first.0, first.2), (true, vec![7, 0]));
    assert_ne!(first.1, second.1);
    assert!(d.in_place(PhysAddr(addr.0 + 1)).is_none());
    d.free(addr).unwrap();
    assert!(d.in_place(addr).is_none());
}

#[test]
fn what_a_batch_leaves_is_whose_who_wants_it() {
    // Each run adds one to the first byte of every allocation that its batch names.
    let d = device(Box::new(|_, memory| {
        for region in 0..2 {
            if let Some(byte) = memory.region_mut(region).first_mut() {
                *byte = byte.wrapping_add(1);
            }
        }
        Ok(RunReport::default())
    }))
    .with_work_at_once();
    let (one, other) = (d.alloc(16).unwrap(), d.alloc(16).unwrap());
    let both = {
        let load = |addr: PhysAddr| vta_isa::Load {
            mem: vta_isa::MemType::Inp,
            dram_base: addr.0 / 16,
            y_size: 1,
            x_size: 1,
            ..vta_isa::Load::default()
        };
        batch(vec![load(one).into(), load(other).into()])
    };
    let run = |work: &Work| drop(d.submit(work.clone()).unwrap().wait().unwrap());
    let byte = |lane, addr| match d.submit_on(lane, read(addr)).unwrap().wait().unwrap() {
        WorkDone::Data(bytes) => bytes[0],
        done => panic!("{done:?}"),
    };
    // Of the same batch, of another one, of either lane, and of the host in place.
    for _ in 0..3 {
        run(&both);
    }
    assert_eq!([one, other].map(|addr| byte(Lane::Copy, addr)), [3, 3]);
    run(&both);
    run(&store_at(one));
    run(&both);
    assert_eq!([one, other].map(|addr| byte(Lane::Compute, addr)), [6, 5]);
    run(&both);
    assert!(d.in_place(other).is_some());
    run(&both);
    assert_eq!([one, other].map(|addr| byte(Lane::Copy, addr)), [8, 7]);
    // Another allocation at the same address is another.
    run(&both);
    d.free(other).unwrap();
    d.alloc_at(other, 16).unwrap();
    run(&both);
    assert_eq!([one, other].map(|addr| byte(Lane::Copy, addr)), [10, 1]);
    // Threads that want different ones at once.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..400 {
                    run(&both);
                    byte(Lane::Copy, one);
                    run(&store_at(other));
                    assert!(d.in_place(one).is_some());
                }
            });
        }
    });
    let [found, more] = [one, other].map(|addr| byte(Lane::Compute, addr));
    assert_eq!(
        [found, more],
        [10 + 1200, 1 + 2400].map(|runs: u32| runs as u8)
    );
}

#[test]
fn threads_start_when_they_are_needed() {
    let (d, go, threads) = gated();
    let addr = d.alloc(16).unwrap();
    go.send(()).unwrap();
    d.submit(store_at(addr)).unwrap().wait().unwrap();
    d.submit(read(addr)).unwrap().wait().unwrap();
    assert!(threads.try_recv().is_ok() && !d.compute.started() && d.copy.get().is_none());
    d.submit_on(Lane::Copy, read(addr)).unwrap().wait().unwrap();
    assert!(!d.compute.started() && d.copy.get().is_some_and(LaneThread::started));
}
