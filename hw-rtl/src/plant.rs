//! What the design's thread and the host's share: memory, bus, registers, and the end of a run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vta_driver::DeviceMemory;

use crate::RtlError;
use crate::bus::{Burst, Bus, Moved};
use crate::host::{Access, Host};

/// How often the host looks whether clocks still pass.
const LOOK: Duration = Duration::from_millis(50);

/// One for each library.
#[derive(Default)]
pub struct Plant {
    state: Mutex<State>,
    changed: Condvar,
    running: AtomicBool,
    leaving: AtomicBool,
    /// Since the library was opened.
    clocks: AtomicU64,
    /// Whether beats of reads are under way: without them a clock with no request needs no lock.
    reading: AtomicBool,
    /// Whether the design's thread called `abort`, where it stays.
    pub aborted: AtomicBool,
}

#[derive(Default)]
struct State {
    memory: DeviceMemory,
    host: Host,
    bus: Bus,
    cycles: Option<u32>,
    fault: Option<RtlError>,
    /// What `VTADPISim` returned, and why it did if the library knows.
    left: Option<(i32, Option<String>)>,
}

/// What the memory side sees of a clock.
#[derive(Clone, Copy, Debug)]
pub struct BusClock<'a> {
    /// A read request.
    pub read: Option<Burst>,
    /// A write request.
    pub write: Option<Burst>,
    /// Strobes and bytes of a beat that is written.
    pub data: Option<(u64, &'a [u8])>,
    /// Whether the design takes the beat that it reads.
    pub ready: bool,
}

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// What the design's counter says.
    pub cycles: u64,
    /// Clocks that passed, register accesses among them.
    pub clocks: u64,
    /// What went over the bus.
    pub moved: Moved,
}

impl Plant {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A callback that panicked has left a fault behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One clock passes; whether the design shall leave. Between runs it doesn't return.
    pub fn clock(&self) -> bool {
        // Only the design's thread counts.
        let clocks = self.clocks.load(Ordering::Relaxed);
        self.clocks.store(clocks + 1, Ordering::Relaxed);
        if !self.running.load(Ordering::Acquire) && !self.leaving.load(Ordering::Acquire) {
            let idle = |_: &mut State| {
                !self.running.load(Ordering::Acquire) && !self.leaving.load(Ordering::Acquire)
            };
            let woken = self.changed.wait_while(self.lock(), idle);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        self.leaving.load(Ordering::Acquire)
    }

    /// The register side of a clock.
    pub fn host(&self, taken: bool, answer: Option<u32>) -> Option<Access> {
        let mut state = self.lock();
        match state.host.clock(taken, answer) {
            Ok(offered) => {
                if let (Some(cycles), None) = (state.host.cycles(), state.cycles) {
                    state.cycles = Some(cycles);
                    self.running.store(false, Ordering::Release);
                    self.changed.notify_all();
                }
                offered
            }
            Err(fault) => {
                self.fail(&mut state, RtlError::Misbehaved(fault));
                None
            }
        }
    }

    /// Whether nothing happens on the bus in a clock.
    pub fn is_quiet(&self, clock: &BusClock<'_>) -> bool {
        let quiet = clock.read.is_none() && clock.write.is_none() && clock.data.is_none();
        quiet && !self.reading.load(Ordering::Relaxed)
    }

    /// The memory side of a clock: `beat` is what the bus carries, and its id is returned.
    pub fn bus(&self, clock: BusClock<'_>, beat: &mut [u8]) -> Option<u8> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let found = bus(state, clock, beat);
        self.reading
            .store(state.bus.is_reading(), Ordering::Relaxed);
        found.unwrap_or_else(|fault| {
            self.fail(state, fault);
            None
        })
    }

    /// The design did what it may not: the run is over.
    pub fn misbehaved(&self, fault: String) {
        self.fail(&mut self.lock(), RtlError::Misbehaved(fault));
    }

    fn fail(&self, state: &mut State, fault: RtlError) {
        state.fault.get_or_insert(fault);
        self.changed.notify_all();
    }

    /// `VTADPISim` has returned.
    pub fn left(&self, code: i32, why: Option<String>) {
        self.lock().left = Some((code, why));
        self.changed.notify_all();
    }

    /// Tells the design to leave, and waits for it; whether it did.
    pub fn leave(&self, within: Duration) -> bool {
        let guard = self.lock();
        self.leaving.store(true, Ordering::Release);
        self.changed.notify_all();
        let aborted = || self.aborted.load(Ordering::Acquire);
        let stays = |state: &mut State| state.left.is_none() && !aborted();
        let waited = self.changed.wait_timeout_while(guard, within, stays);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.left.is_some()
    }

    /// Runs instructions that lie in memory, which comes back however it ends, for so many clocks and so long
    /// without one at most.
    ///
    /// # Errors
    /// A design that stands still, doesn't finish, leaves or does what it may not.
    pub fn run(
        &self,
        host: Host,
        memory: &mut DeviceMemory,
        max_clocks: u64,
        silence: Duration,
    ) -> Result<Ran, RtlError> {
        let first = self.clocks.load(Ordering::Relaxed);
        let mut state = self.lock();
        std::mem::swap(&mut state.memory, memory);
        state.host = host;
        state.cycles = None;
        state.bus.moved = Moved::default();
        self.running.store(true, Ordering::Release);
        self.changed.notify_all();
        let (mut last, mut since) = (first, Instant::now());
        let misbehaved = |text| Err(RtlError::Misbehaved(text));
        let ended = loop {
            let clocks = self.clocks.load(Ordering::Relaxed);
            let passed = clocks - first;
            if clocks != last {
                (last, since) = (clocks, Instant::now());
            }
            if let Some(fault) = state.fault.take() {
                break Err(fault);
            }
            if let Some(cycles) = state.cycles {
                break Ok(Ran {
                    cycles: cycles.into(),
                    clocks: passed,
                    moved: state.bus.moved,
                });
            }
            if let Some((code, why)) = &state.left {
                break misbehaved(match why {
                    Some(text) => {
                        format!("the design ended itself after {passed} clocks of the run: {text}")
                    }
                    None => format!(
                        "VTADPISim returned {code} after {passed} clocks of the run, though nobody told it to leave"
                    ),
                });
            }
            if self.aborted.load(Ordering::Acquire) {
                break misbehaved(format!(
                    "the design's library called abort after {passed} clocks of the run, as Verilator's own $stop \
                     and $fatal do; it printed why"
                ));
            }
            if passed > max_clocks {
                break misbehaved(format!(
                    "the design hasn't finished after {passed} clocks; a run of these instructions has {max_clocks} at most"
                ));
            }
            if since.elapsed() > silence {
                break misbehaved(format!(
                    "the design stands still: no clock for {silence:?}, after {passed} of the run"
                ));
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        self.running.store(false, Ordering::Release);
        std::mem::swap(&mut state.memory, memory);
        ended
    }
}

fn bus(state: &mut State, clock: BusClock<'_>, beat: &mut [u8]) -> Result<Option<u8>, RtlError> {
    let State { memory, bus, .. } = state;
    if let Some((strobes, bytes)) = clock.data {
        bus.data(memory, strobes, bytes)?;
    }
    if let Some(burst) = clock.read {
        bus.read(burst)?;
    }
    if let Some(burst) = clock.write {
        bus.write(burst)?;
    }
    // A clock before what is asked for reaches the design, as in the original's simulator.
    bus.beat(memory, clock.ready, beat)
}
