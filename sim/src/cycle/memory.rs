//! The read side of the memory: command registers, tags, request FIFO, latency and the bus.
//!
//! The port is driven by events. Nothing happens in it but in a cycle in which a command enters a
//! register, a request leaves one for the FIFO, or a burst is taken from the FIFO; everything
//! between follows from those cycles. Within one cycle all decisions rest on the state at its
//! beginning.

use std::collections::VecDeque;

use super::TimingConfig;
use super::arrival::Arrival;
use super::bursts::{Burst, Bursts};
use super::dram::Dram;
use super::events::{BurstEvent, Client, Listener, StallEvent, StallReason};
use super::module::NEVER;
use super::report::Sink;

/// What one LOAD, or the fetch of one chunk, reads.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub client: Client,
    /// The LOAD, or the chunk's first instruction.
    pub insn: u32,
    pub bursts: Bursts,
    /// First cycle that counts as waiting; no beat comes before.
    pub opened_at: u64,
    /// First cycle in which the first command is offered.
    pub offer_at: u64,
    /// What becomes of the beats.
    pub arrival: Arrival,
}

/// All bursts of a transfer are on the bus or behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub client: Client,
    /// First cycle after the last data write.
    pub data_end: u64,
    /// The done cycle.
    pub done: u64,
}

/// One client's transfer with its command register.
#[derive(Clone, Debug)]
struct Stream {
    transfer: Transfer,
    /// The command register and the first cycle in which its command can become a request.
    slot: Option<(Burst, u64)>,
    /// First cycle in which the register can take a command again.
    slot_free_at: u64,
    /// The first beat can't come before, even from an idle memory.
    eligible_at: u64,
    /// All cycles before are accounted for as beats or stalls.
    accounted: u64,
    /// Whether a burst has been taken up.
    flowing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    client: Client,
    burst: Burst,
}

/// The burst that has the bus, or had it last.
#[derive(Clone, Copy, Debug)]
struct OnBus {
    client: Client,
    insn: u32,
    addr: u64,
    taken_at: u64,
    first: u64,
    last: u64,
}

/// Sets of clients, one bit each; the lowest bit has priority.
type ClientSet = u8;

/// The read side of the memory.
#[derive(Debug)]
pub(super) struct ReadPort {
    latency: u64,
    tags: usize,
    fifo_depth: usize,
    streams: [Option<Stream>; Client::READERS.len()],
    /// Clients with a command to offer and an empty register.
    offering: ClientSet,
    /// Clients whose register is full.
    slotted: ClientSet,
    /// Clients with a burst that isn't taken up yet.
    waiting: ClientSet,
    fifo: VecDeque<Request>,
    /// From when on beats of all transfers may come.
    held_until: u64,
    /// When the FIFO became non-empty: the latency counts from there.
    counting_from: u64,
    /// Cycle of the last beat of the newest burst.
    bus_end: u64,
    /// The newest burst, until it is reported.
    on_bus: Option<OnBus>,
    /// The next cycle in which anything happens here.
    pub wake: u64,
}

fn clients(mut set: ClientSet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (lowest < 8).then_some(lowest)
    })
}

impl ReadPort {
    pub(super) fn new(timing: &TimingConfig) -> Self {
        let tags = timing.tags as usize;
        Self {
            latency: timing.memory_latency_cycles.into(),
            tags,
            fifo_depth: timing.request_fifo as usize,
            streams: [const { None }; Client::READERS.len()],
            offering: 0,
            slotted: 0,
            waiting: 0,
            fifo: VecDeque::with_capacity(tags),
            held_until: 0,
            counting_from: 0,
            bus_end: 0,
            on_bus: None,
            wake: NEVER,
        }
    }

    /// Takes on a transfer. Its client has none under way, and `offer_at` is in the future.
    pub(super) fn open(&mut self, transfer: Transfer) {
        let client = transfer.client as usize;
        let bit = 1 << client;
        self.offering |= bit;
        self.waiting |= bit;
        self.held_until = self.held_until.max(transfer.opened_at - 1);
        self.wake = self.wake.min(transfer.offer_at);
        self.streams[client] = Some(Stream {
            slot: None,
            slot_free_at: 0,
            // One cycle in the register, one to the FIFO, the latency, one to the bus.
            eligible_at: transfer.offer_at + 3 + self.latency,
            accounted: transfer.opened_at,
            flowing: false,
            transfer,
        });
    }

    /// Does what happens in cycle `now`, and sets `wake`.
    pub(super) fn step<L: Listener>(
        &mut self,
        now: u64,
        dram: &mut Dram,
        sink: &mut Sink<'_, L>,
    ) -> Option<Completion> {
        let queued = self.fifo.len();
        let bus_busy = self.bus_end >= now;
        let last_beat = self.bus_end == now;
        let taken = if queued > 0 && now >= self.dequeue_at() {
            self.fifo.pop_front()
        } else {
            None
        };
        let completion = taken.and_then(|request| self.take_up(request, now, dram, sink));
        let tag_free = queued + usize::from(bus_busy) < self.tags;
        if !last_beat && tag_free && queued < self.fifo_depth && self.request(now) {
            // The latency counts from the cycle in which the FIFO is seen to be non-empty.
            if queued == 0 {
                self.counting_from = now + 1;
            }
        }
        self.accept(now);
        self.wake = self.next(now + 1);
        completion
    }

    /// When the head of the FIFO is served: the latency has passed, the bus is free or in its last beat, and its client
    /// takes beats.
    fn dequeue_at(&self) -> u64 {
        let at = self.bus_end.max(self.counting_from + self.latency);
        if at >= self.held_until {
            return at;
        }
        let head = self.fifo.front().map(|head| head.client as usize);
        let stream = head.and_then(|client| self.streams[client].as_ref());
        stream.map_or(at, |stream| at.max(stream.transfer.opened_at - 1))
    }

    /// Puts a request's beats on the bus.
    fn take_up<L: Listener>(
        &mut self,
        request: Request,
        now: u64,
        dram: &mut Dram,
        sink: &mut Sink<'_, L>,
    ) -> Option<Completion> {
        self.settle(u64::MAX, sink);
        for client in clients(self.waiting) {
            self.account_idle(client, now + 1, sink);
        }
        let Request { client, burst } = request;
        let first = now + 1 + dram.access(burst.start, now);
        let last = first + burst.beats - 1;
        self.bus_end = last;
        sink.report.read_requests += 1;
        let stream = self.streams[client as usize].as_mut()?;
        self.on_bus = Some(OnBus {
            client,
            insn: stream.transfer.insn,
            addr: burst.start,
            taken_at: now,
            first,
            last,
        });
        stream.flowing = true;
        stream.accounted = last + 1;
        stream.transfer.arrival.burst(&burst, first, last);
        if !burst.last {
            return None;
        }
        self.waiting &= !(1 << client as usize);
        let (data_end, done) = stream.transfer.arrival.finish();
        Some(Completion {
            client,
            data_end,
            done,
        })
    }

    /// Moves the command of the first client by priority from its register to the FIFO.
    fn request(&mut self, now: u64) -> bool {
        for client in clients(self.slotted) {
            let Some(stream) = &mut self.streams[client] else {
                continue;
            };
            if let Some((burst, ready_at)) = stream.slot
                && ready_at <= now
            {
                stream.slot = None;
                stream.slot_free_at = now + 1;
                self.slotted &= !(1 << client);
                if !stream.transfer.bursts.is_empty() {
                    self.offering |= 1 << client;
                }
                let client = stream.transfer.client;
                self.fifo.push_back(Request { client, burst });
                return true;
            }
        }
        false
    }

    /// Fills empty registers.
    fn accept(&mut self, now: u64) {
        for client in clients(self.offering) {
            let Some(stream) = &mut self.streams[client] else {
                continue;
            };
            if now < stream.offer_at() {
                continue;
            }
            if let Some(burst) = stream.transfer.bursts.next() {
                stream.slot = Some((burst, now + 1));
                stream.transfer.offer_at = now + 1;
                self.slotted |= 1 << client;
            }
            self.offering &= !(1 << client);
        }
    }

    /// The first cycle from `from` on in which something can happen.
    fn next(&self, from: u64) -> u64 {
        let mut wake = NEVER;
        if !self.fifo.is_empty() {
            wake = from.max(self.dequeue_at());
        }
        if self.slotted != 0 && self.fifo.len() < self.fifo_depth {
            wake = wake.min(self.request_at(from));
        }
        for client in clients(self.offering) {
            let at = self.streams[client]
                .as_ref()
                .map_or(NEVER, Stream::offer_at);
            wake = wake.min(at.max(from));
        }
        wake
    }

    /// The first cycle from `from` on in which a register's command can become a request, as
    /// long as no further burst is taken up.
    fn request_at(&self, from: u64) -> u64 {
        let ready = |client| match &self.streams[client] {
            Some(Stream {
                slot: Some((_, ready_at)),
                ..
            }) => *ready_at,
            _ => NEVER,
        };
        let at = clients(self.slotted)
            .map(ready)
            .min()
            .unwrap_or(NEVER)
            .max(from);
        let bus_busy = self.bus_end >= at;
        if self.fifo.len() + usize::from(bus_busy) < self.tags {
            at + u64::from(at == self.bus_end)
        } else if bus_busy {
            // The burst on the bus frees its tag with its last beat.
            self.bus_end + 1
        } else {
            // All tags are in the FIFO, which is served first.
            NEVER
        }
    }

    /// Reports the newest burst if it is of `client`; called when its transfer is over.
    pub(super) fn settle_client<L: Listener>(&mut self, client: Client, sink: &mut Sink<'_, L>) {
        if self.on_bus.is_some_and(|b| b.client == client) {
            self.settle(u64::MAX, sink);
        }
    }

    /// Reports the newest burst, as far as it lies before `end`, and who waited for it.
    pub(super) fn settle<L: Listener>(&mut self, end: u64, sink: &mut Sink<'_, L>) {
        let Some(bus) = self.on_bus.take() else {
            return;
        };
        let stop = end.min(bus.last + 1);
        if stop <= bus.last {
            // The rest is behind the end of the run.
            self.on_bus = Some(OnBus {
                first: bus.first.max(stop),
                ..bus
            });
        }
        sink.stall(&StallEvent {
            unit: bus.client.unit(),
            reason: StallReason::Dram,
            insn: Some(bus.insn as usize),
            from: bus.taken_at + 1,
            to: bus.first.min(end),
        });
        sink.burst(&BurstEvent {
            client: bus.client,
            insn: bus.insn as usize,
            addr: bus.addr,
            first_cycle: bus.first,
            last_cycle: stop.saturating_sub(1),
            beats: stop.saturating_sub(bus.first),
        });
        for client in clients(self.waiting & !(1 << bus.client as usize)) {
            self.account_foreign(client, &bus, stop, sink);
        }
    }

    /// `client` couldn't have the bus up to `stop`, because another burst had it.
    fn account_foreign<L: Listener>(
        &mut self,
        client: usize,
        bus: &OnBus,
        stop: u64,
        sink: &mut Sink<'_, L>,
    ) {
        self.account_idle(client, stop.min(bus.taken_at + 1), sink);
        let Some(stream) = &mut self.streams[client] else {
            return;
        };
        if !stream.flowing {
            let latency_end = stream.eligible_at.min(stop);
            stream.account(StallReason::MemoryLatency, latency_end, sink);
        }
        stream.account(StallReason::MemoryBusy(bus.client), stop, sink);
    }

    /// `client` had no beat up to `to`, although the bus was free.
    fn account_idle<L: Listener>(&mut self, client: usize, to: u64, sink: &mut Sink<'_, L>) {
        if let Some(stream) = &mut self.streams[client] {
            let reason = if stream.flowing {
                StallReason::RequestSlot
            } else {
                StallReason::MemoryLatency
            };
            stream.account(reason, to, sink);
        }
    }

    /// The run ends before cycle `end`.
    pub(super) fn finish<L: Listener>(&mut self, end: u64, sink: &mut Sink<'_, L>) {
        self.settle(end, sink);
        for client in clients(self.waiting) {
            self.account_idle(client, end, sink);
        }
    }
}

impl Stream {
    fn offer_at(&self) -> u64 {
        self.transfer.offer_at.max(self.slot_free_at)
    }

    fn account<L: Listener>(&mut self, reason: StallReason, to: u64, sink: &mut Sink<'_, L>) {
        if self.accounted < to {
            sink.stall(&StallEvent {
                unit: self.transfer.client.unit(),
                reason,
                insn: Some(self.transfer.insn as usize),
                from: self.accounted,
                to,
            });
            self.accounted = to;
        }
    }
}
