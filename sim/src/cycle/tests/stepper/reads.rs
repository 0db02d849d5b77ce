//! The read side: transfers in bursts, fetch's among them, and the bus that they share.

use std::collections::VecDeque;

use vta_isa::resolve::Rows;
use vta_isa::{Load, MemType};

use super::Stepper;
use crate::cycle::bursts::{Burst, Bursts, Cuts};
use crate::cycle::events::{Client, StallReason};

/// One thing that the padding of a load does in a cycle.
#[derive(Clone, Copy, PartialEq)]
enum Pad {
    Tile,
    Skip,
}

/// A transfer under way.
pub(super) struct Reader {
    bursts: VecDeque<Burst>,
    offer_at: u64,
    slot: Option<(Burst, u64)>,
    slot_free_at: u64,
    /// Bursts that the memory hasn't taken up.
    pending: usize,
    /// Bursts whose last beat hasn't come.
    missing: usize,
    opened_at: u64,
    eligible_at: u64,
    flowing: bool,
    delay: u64,
    single: u64,
    /// Tiles (or beats) that arrive, each with the first cycle in which it can be written.
    arriving: VecDeque<u64>,
    pads: VecDeque<Pad>,
    pad_delay: u64,
    pad_from: u64,
    /// Done one cycle after this.
    pub last_write: u64,
}

/// The burst on the read bus.
pub(super) struct Bus {
    pub client: usize,
    burst: Burst,
    /// Cycles until its first beat.
    pub extra: u64,
    beat: u64,
}

impl Stepper<'_> {
    /// Of whom a LOAD's transfer is, and the transfer.
    pub(super) fn begin_load(&self, load: &Load) -> (usize, Reader) {
        let elem = self.config.elem_bytes(load.mem) as u64;
        let bus = u64::from(self.timing.bus_bytes);
        let (mut client, direct) = match load.mem {
            MemType::Uop => (Client::Uop, true),
            MemType::Inp => (Client::Inp, bus >= elem),
            MemType::Wgt | MemType::Wgt4 => (Client::Wgt, bus >= elem),
            MemType::Acc => (Client::Acc, bus >= elem),
            MemType::Acc8 | MemType::Out => (Client::Acc, bus >= 4 * elem),
        };
        if load.preload {
            client = Client::Preload;
        }
        let rows = Rows {
            first: u64::from(load.dram_base) * elem,
            row_bytes: u64::from(load.x_size) * elem,
            stride_bytes: u64::from(load.x_stride) * elem,
            rows: load.y_size,
        };
        let mut reader = self.reader(rows, self.now + 1, u64::from(load.y_pad_0));
        reader.delay = if direct { 1 } else { 2 };
        reader.single = if load.mem == MemType::Acc8 { elem } else { 0 };
        reader.pad_delay = if client == Client::Uop { 1 } else { 2 };
        reader.pad_from = self.now + reader.pad_delay;
        let width = load.x_pad_0 as usize + load.x_size as usize + load.x_pad_1 as usize;
        let sides = load.x_pad_0 as usize + load.x_pad_1 as usize;
        let tiles = |n: usize| std::iter::repeat_n(Pad::Tile, n);
        reader.pads.extend(tiles(width * load.y_pad_0 as usize));
        for _ in 0..load.y_size {
            if sides > 0 {
                reader.pads.extend(tiles(sides));
            } else if load.y_pad_1 > 0 {
                reader.pads.push_back(Pad::Skip);
            }
        }
        reader.pads.extend(tiles(width * load.y_pad_1 as usize));
        (client as usize, reader)
    }

    fn reader(&self, rows: Rows, opened_at: u64, offer_after: u64) -> Reader {
        let bursts: VecDeque<_> = Bursts::new(Cuts::new(self.timing), rows).collect();
        let offer_at = opened_at + offer_after;
        Reader {
            pending: bursts.len(),
            missing: bursts.len(),
            bursts,
            offer_at,
            slot: None,
            slot_free_at: 0,
            opened_at,
            eligible_at: offer_at + 3 + u64::from(self.timing.memory_latency_cycles),
            flowing: false,
            delay: 1,
            single: 0,
            arriving: VecDeque::new(),
            pads: VecDeque::new(),
            pad_delay: 0,
            pad_from: 0,
            last_write: 0,
        }
    }

    /// Requests the next chunk of instructions, in cycle `at`.
    pub(super) fn fetch_chunk(&mut self, at: u64) {
        let first = self.chunk_end;
        self.chunk_end = self
            .insns
            .len()
            .min(first + self.timing.fetch_chunk_insns as usize);
        self.dispatch_at = u64::MAX;
        if first == self.chunk_end {
            return;
        }
        let start = self.insn_addr + 16 * first as u64;
        let stop = self.insn_addr + 16 * self.chunk_end as u64;
        let bus = u64::from(self.timing.bus_bytes);
        let rows = Rows {
            first: start,
            row_bytes: stop - start,
            stride_bytes: 0,
            rows: 1,
        };
        let mut reader = self.reader(rows, at, 0);
        reader.bursts = VecDeque::from([Burst {
            start,
            stop,
            beats: stop.div_ceil(bus) - start / bus,
            last: true,
        }]);
        (reader.pending, reader.missing) = (1, 1);
        reader.delay = if bus > 8 { 4 } else { 1 };
        self.readers[Client::Fetch as usize] = Some(reader);
    }

    /// The read side of the memory in this cycle.
    pub(super) fn read_side(&mut self) {
        let queued = self.fifo.len();
        self.account();
        let mut last = false;
        if let Some(bus) = &mut self.bus {
            if bus.extra > 0 {
                bus.extra -= 1;
            } else {
                self.out.read_beats[bus.client] += 1;
                if let Some(reader) = &mut self.readers[bus.client] {
                    reader.receive(&bus.burst, bus.beat, self.now, self.timing.bus_bytes);
                }
                bus.beat += 1;
                last = bus.beat == bus.burst.beats;
            }
        }
        if last
            && let Some(bus) = self.bus.take()
            && let Some(reader) = &mut self.readers[bus.client]
        {
            reader.missing -= 1;
        }
        let ready = self.counter == self.timing.memory_latency_cycles;
        // What was asked for ahead waits for the LOAD before.
        let held = self.held.as_ref().map(|(client, _)| *client);
        let waits = self
            .fifo
            .front()
            .is_some_and(|(client, _)| Some(*client) == held);
        if queued > 0 && ready && self.bus.is_none() && !waits {
            self.take_up();
        }
        let room = queued < self.timing.request_fifo as usize;
        if !last && room && self.tags_used < self.timing.tags {
            self.request();
        }
        self.tags_used -= u32::from(last);
        self.counter = match queued {
            0 => 0,
            _ => self.timing.memory_latency_cycles.min(self.counter + 1),
        };
        let now = self.now;
        for reader in self.readers.iter_mut().flatten() {
            reader.offer(now);
            reader.write(now);
        }
        if let Some((_, reader)) = &mut self.held {
            reader.offer(now);
        }
    }

    fn take_up(&mut self) {
        let Some((client, burst)) = self.fifo.pop_front() else {
            return;
        };
        self.out.read_requests += 1;
        let extra = self.dram.access(burst.start, self.now);
        self.bus = Some(Bus {
            client,
            burst,
            extra,
            beat: 0,
        });
        if let Some(reader) = &mut self.readers[client] {
            reader.pending -= 1;
            reader.flowing = true;
        }
    }

    fn request(&mut self) {
        let mut held = self.held.as_mut();
        let readers = self
            .readers
            .iter_mut()
            .enumerate()
            .flat_map(|(client, reader)| {
                let own = reader.as_mut();
                let ahead = held
                    .take_if(|(of, _)| *of == client)
                    .map(|(_, reader)| reader);
                own.into_iter()
                    .chain(ahead)
                    .map(move |reader| (client, reader))
            });
        for (client, reader) in readers {
            if let Some((burst, ready)) = reader.slot
                && ready <= self.now
            {
                reader.slot = None;
                reader.slot_free_at = self.now + 1;
                self.fifo.push_back((client, burst));
                self.tags_used += 1;
                return;
            }
        }
    }

    /// Why each transfer that still has bursts to come has no beat in this cycle.
    fn account(&mut self) {
        let bus = self.bus.as_ref().map(|b| (b.client, b.extra > 0));
        for client in Client::READERS {
            let Some(reader) = &self.readers[client as usize] else {
                continue;
            };
            let own = bus.is_some_and(|(c, _)| c == client as usize);
            let reason = match bus {
                Some((_, true)) if own => StallReason::Dram,
                Some(_) if own => continue,
                _ if reader.pending == 0 || self.now < reader.opened_at => continue,
                Some((other, _)) if reader.flowing || self.now >= reader.eligible_at => {
                    StallReason::MemoryBusy(Client::READERS[other])
                }
                _ if !reader.flowing => StallReason::MemoryLatency,
                _ => StallReason::RequestSlot,
            };
            self.stall(client.unit(), reason);
        }
        for client in Client::READERS {
            let Some(reader) = &self.readers[client as usize] else {
                continue;
            };
            let data_over = reader.missing == 0 && reader.arriving.is_empty();
            if data_over && !reader.pads.is_empty() {
                self.stall(client.unit(), StallReason::Padding);
            }
        }
    }
}

impl Reader {
    /// The LOAD before is done in a cycle.
    pub(super) fn follow(&mut self, now: u64) {
        self.opened_at = now + 1;
        self.pad_from = self.pad_from.max(now + self.pad_delay);
    }

    /// Whether the memory has taken up all that it asks for.
    pub(super) fn has_asked(&self) -> bool {
        self.pending == 0
    }

    pub(super) fn finished(&self) -> bool {
        self.missing == 0 && self.arriving.is_empty() && self.pads.is_empty()
    }

    fn offer(&mut self, now: u64) {
        if self.slot.is_none() && now >= self.offer_at.max(self.slot_free_at) {
            self.slot = self.bursts.pop_front().map(|b| (b, now + 1));
        }
    }

    fn receive(&mut self, burst: &Burst, beat: u64, now: u64, bus_bytes: u32) {
        let bus = u64::from(bus_bytes);
        let line = burst.start / bus + beat;
        let mut writes = 1;
        if self.single > 0 && bus > self.single {
            let from = (line * bus).max(burst.start);
            let to = ((line + 1) * bus).min(burst.stop);
            writes = (to - from) / self.single;
        }
        for _ in 0..writes {
            self.arriving.push_back(now + self.delay);
        }
    }

    fn write(&mut self, now: u64) {
        if self.arriving.front().is_some_and(|&at| at <= now) {
            self.arriving.pop_front();
            self.last_write = now;
            if self.pads.front() == Some(&Pad::Skip) && now >= self.pad_from {
                self.pads.pop_front();
            }
        } else if now >= self.pad_from && self.pads.pop_front().is_some() {
            self.last_write = now;
        }
    }
}
