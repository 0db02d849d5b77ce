//! STORE: bursts written one after the other, each acknowledged before the next.

use vta_isa::resolve::Rows;
use vta_isa::{Config, MemType, Requantize, Store};

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
/// Cycles from a command to the next, besides those of beats, and of tile reads but the first sum's.
const OVERHEAD: u64 = 4;

/// Stages between a sum and the byte of it, of a STORE that requantises: two for the product, one that adds and
/// shifts, one that clamps.
const STAGES: u64 = 4;
/// The same with a residual, whose sum takes a product that is one stage, and one that adds, shifts and clamps.
const RESIDUAL_STAGES: u64 = 6;

/// What a STORE takes that requantises, in cycles beyond another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extra {
    /// Before the first command: the entry is read into registers, a tile a cycle, and the stages fill.
    start: u64,
    /// Before the first command of each other row: the next entry.
    row: u64,
    /// The accumulators' port reads residuals, too: this often beside each read of sums.
    reads: u64,
}

impl Extra {
    fn of(store: &Store) -> Self {
        let of = |how: Requantize| {
            let (entry, residual) = (how.entry_tiles() as u64, how.distance().is_some());
            let stages = if residual { RESIDUAL_STAGES } else { STAGES };
            Self {
                start: entry + stages,
                row: if how.by_row { entry } else { 0 },
                reads: residual.into(),
            }
        };
        store.requantize.map_or(Self::default(), of)
    }
}

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
    /// Cycles without a beat between two tiles of several, in which the next is read.
    read: u64,
    /// Those of the STORE that have no command yet.
    bursts: Option<Bursts>,
    extra: Extra,
    /// The newest burst with the cycle of its command and of its first beat, until it is reported.
    on_bus: Option<OnBus>,
    insn: u32,
    /// The cycle of the next command.
    pub wake: u64,
}

/// Cycles that all bursts of a STORE take on an idle memory.
pub(crate) fn store_cycles(timing: &TimingConfig, config: &Config, store: &Store) -> u64 {
    let Some(rows) = store.dram_rows(config) else {
        return 0;
    };
    let extra = Extra::of(store);
    let port = WritePort {
        extra,
        ..WritePort::new(timing, config)
    };
    let bursts = Bursts::new(port.cuts, rows).map(|burst| port.cost(&burst));
    extra.start + bursts.sum::<u64>() + extra.row * u64::from(store.y_size - 1)
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
            read: if timing.store_ahead { 0 } else { 1 },
            bursts: None,
            extra: Extra::default(),
            on_bus: None,
            insn: 0,
            wake: NEVER,
        }
    }

    /// Takes on the rows of a STORE.
    pub(super) fn open(&mut self, store: &Store, rows: Rows, start: Start) {
        self.insn = start.insn;
        self.bursts = Some(Bursts::new(self.cuts, rows));
        self.extra = Extra::of(store);
        self.wake = start.cycle + 1 + self.extra.start;
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
        let bursts = self.bursts.as_mut()?;
        let burst = bursts.next()?;
        let entry = if bursts.begins_row() {
            self.extra.row
        } else {
            0
        };
        let extra = dram.access(burst.start, now);
        self.on_bus = Some(OnBus {
            burst,
            command: now,
            first: now + extra + FIRST_BEAT + self.extra.reads,
            requested: false,
            reported: 0,
        });
        let next = now + extra + self.cost(&burst);
        if burst.last {
            return Some(next - 1);
        }
        self.wake = next + entry;
        None
    }

    /// Cycles from a burst's command to the next, on an idle memory.
    fn cost(&self, burst: &Burst) -> u64 {
        let more = self.extra.reads;
        match self.tile_beats {
            Some(_) => {
                let tiles = burst.tiles(self.tile_bytes);
                OVERHEAD + burst.beats + tiles * more + (tiles - 1) * self.read
            }
            None => OVERHEAD + burst.beats * (1 + more),
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
            to: (first - self.extra.reads - FIRST_BEAT + 1).min(end),
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

    /// Beats that follow each other, and cycles between them and the next: after each tile the next is read for a cycle
    /// unless it is read ahead, and its residual for another.
    fn beats_and_gap(&self) -> (u64, u64) {
        match self.tile_beats {
            Some(tile_beats) => (tile_beats, self.read + self.extra.reads),
            None => (1, self.extra.reads),
        }
    }

    /// Beats in the first `cycles` of a long burst.
    fn beats_in(&self, burst: &Burst, cycles: u64) -> u64 {
        let (beats, gap) = self.beats_and_gap();
        let skipped = self.first_beat(burst);
        let cycles = cycles.saturating_add(skipped);
        let period = beats + gap;
        (cycles / period) * beats + (cycles % period).min(beats) - skipped
    }

    /// The cycle of beat `beat`, counted from that of the first.
    fn beat_offset(&self, burst: &Burst, beat: u64) -> u64 {
        let (beats, gap) = self.beats_and_gap();
        beat + (self.first_beat(burst) + beat) / beats * gap
    }

    /// Which beat of its tile a burst begins with.
    fn first_beat(&self, burst: &Burst) -> u64 {
        burst.start % self.tile_bytes / self.bus_bytes
    }
}
