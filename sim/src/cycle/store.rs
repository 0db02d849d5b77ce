//! STORE: bursts written one after the other, each acknowledged before the next.

use vta_isa::resolve::Rows;
use vta_isa::{Config, MemType, Store};

use super::TimingConfig;
use super::bursts::{Burst, Bursts, Cuts};
use super::dram::Dram;
use super::events::{BurstEvent, Client, Listener, StallEvent, StallReason, Unit};
use super::module::{NEVER, Start};
use super::report::Sink;

/// Cycles from a command to its request on the bus.
const REQUEST: u64 = 2;
/// Cycles from a command to its first beat.
const FIRST_BEAT: u64 = 3;
/// Cycles from a command to the next, besides those of beats and tile reads: tiles of several
/// beats, whose first read overlaps the command.
const NARROW_OVERHEAD: u64 = 3;
/// The same for tiles no wider than the bus.
const WIDE_OVERHEAD: u64 = 4;

/// The burst that is being written.
#[derive(Clone, Copy, Debug)]
struct OnBus {
    burst: Burst,
    command: u64,
    /// Cycle of the first beat.
    first: u64,
    /// Whether the request is counted.
    requested: bool,
    /// Beats that are reported.
    reported: u64,
}

/// The write side of the memory. It shares nothing with the read side but the DRAM behind it.
#[derive(Debug)]
pub(super) struct WritePort {
    cuts: Cuts,
    tile_bytes: u64,
    /// Beats of a tile; `None` where a beat carries a tile or more.
    tile_beats: Option<u64>,
    bus_bytes: u64,
    /// Those of the STORE that have no command yet.
    bursts: Option<Bursts>,
    /// The newest burst with the cycle of its command and of its first beat, until it is reported.
    on_bus: Option<OnBus>,
    insn: u32,
    /// The cycle of the next command.
    pub wake: u64,
}

/// Cycles that all bursts of a STORE take on an idle memory.
pub(crate) fn store_cycles(timing: &TimingConfig, config: &Config, store: &Store) -> u64 {
    let port = WritePort::new(timing, config);
    let rows = store.dram_rows(config);
    let bursts = rows.map(|rows| Bursts::new(port.cuts, rows));
    bursts.into_iter().flatten().map(|b| port.cost(&b)).sum()
}

impl WritePort {
    pub(super) fn new(timing: &TimingConfig, config: &Config) -> Self {
        let tile_bytes = config.elem_bytes(MemType::Out) as u64;
        let bus_bytes = u64::from(timing.bus_bytes);
        Self {
            cuts: Cuts::new(timing),
            tile_bytes,
            tile_beats: (tile_bytes > bus_bytes).then(|| tile_bytes / bus_bytes),
            bus_bytes,
            bursts: None,
            on_bus: None,
            insn: 0,
            wake: NEVER,
        }
    }

    /// Takes on the rows of a STORE.
    pub(super) fn open(&mut self, rows: Rows, start: Start) {
        self.insn = start.insn;
        self.bursts = Some(Bursts::new(self.cuts, rows));
        self.wake = start.cycle + 1;
    }

    /// Gives the command of cycle `now`; after the last one, the STORE's done cycle.
    pub(super) fn step<L: Listener>(
        &mut self,
        now: u64,
        dram: &mut Dram,
        sink: &mut Sink<'_, L>,
    ) -> Option<u64> {
        self.wake = NEVER;
        self.settle(u64::MAX, sink);
        let burst = self.bursts.as_mut()?.next()?;
        let extra = dram.access(burst.start, now);
        self.on_bus = Some(OnBus {
            burst,
            command: now,
            first: now + extra + FIRST_BEAT,
            requested: false,
            reported: 0,
        });
        let next = now + extra + self.cost(&burst);
        if burst.last {
            return Some(next - 1);
        }
        self.wake = next;
        None
    }

    /// Cycles from a burst's command to the next, on an idle memory.
    fn cost(&self, burst: &Burst) -> u64 {
        match self.tile_beats {
            Some(_) => NARROW_OVERHEAD + burst.beats + burst.tiles(self.tile_bytes),
            None => WIDE_OVERHEAD + burst.beats,
        }
    }

    /// Reports the newest burst as far as it lies before `end`.
    pub(super) fn settle<L: Listener>(&mut self, end: u64, sink: &mut Sink<'_, L>) {
        let Some(bus) = self.on_bus.take() else {
            return;
        };
        let OnBus { burst, first, .. } = bus;
        let beats = burst
            .beats
            .min(self.beats_in(&burst, end.saturating_sub(first)));
        let requested = bus.command + REQUEST < end;
        if requested && !bus.requested {
            sink.report.write_requests += 1;
        }
        if beats < burst.beats {
            // The rest is behind the end of the run.
            self.on_bus = Some(OnBus {
                requested,
                reported: beats,
                ..bus
            });
        }
        sink.stall(&StallEvent {
            unit: Unit::Store,
            reason: StallReason::Dram,
            insn: Some(self.insn as usize),
            from: bus.command + 1,
            to: (first - FIRST_BEAT + 1).min(end),
        });
        sink.burst(&BurstEvent {
            client: Client::Out,
            insn: self.insn as usize,
            addr: burst.start,
            first_cycle: first,
            last_cycle: first + self.beat_offset(&burst, beats.saturating_sub(1)),
            beats: beats - bus.reported,
        });
    }

    /// Beats in the first `cycles` of a long burst: after each tile the next is read for a cycle.
    fn beats_in(&self, burst: &Burst, cycles: u64) -> u64 {
        let Some(tile_beats) = self.tile_beats else {
            return cycles;
        };
        let skipped = self.first_beat(burst);
        let cycles = cycles.saturating_add(skipped);
        let period = tile_beats + 1;
        (cycles / period) * tile_beats + (cycles % period).min(tile_beats) - skipped
    }

    /// The cycle of beat `beat`, counted from that of the first.
    fn beat_offset(&self, burst: &Burst, beat: u64) -> u64 {
        match self.tile_beats {
            Some(tile_beats) => beat + (self.first_beat(burst) + beat) / tile_beats,
            None => beat,
        }
    }

    /// Which beat of its tile a burst begins with.
    fn first_beat(&self, burst: &Burst) -> u64 {
        burst.start % self.tile_bytes / self.bus_bytes
    }
}
