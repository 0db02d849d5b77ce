//! The peer of the engine in tests: the same rules, cycle by cycle, beat by beat, tile by tile.
//!
//! It shares with the engine only how rows are cut into bursts and the DRAM's banks.

use std::collections::VecDeque;

use vta_isa::tokens::{pops, pushes};
use vta_isa::{AluOperand, Config, Insn, Load, MemType, Module, Store};

use super::bursts::{Burst, Bursts, Cuts, Rows};
use super::dram::Dram;
use super::events::{Client, Edge, StallReason, Unit};
use super::{CycleError, TimingConfig};

/// What the stepper counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub cycles: u64,
    pub read_requests: u64,
    pub read_beats: [u64; 5],
    pub write_requests: u64,
    pub write_beats: u64,
    pub busy: [u64; 4],
    pub stalls: [[u64; StallReason::COUNT]; 4],
    /// Start and done cycle of each instruction that got so far, by index.
    pub spans: Vec<(Option<u64>, Option<u64>)>,
    pub tokens: [u32; 4],
}

/// How the stepper ended.
#[derive(Debug)]
pub(super) enum End {
    Finished(Box<Outcome>),
    LostPush(Edge, u64),
    /// The limit of cycles came first.
    Unfinished,
}

/// One thing that the padding of a load does in a cycle.
#[derive(Clone, Copy, PartialEq)]
enum Pad {
    Tile,
    Skip,
}

/// A transfer under way.
struct Reader {
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
    pad_from: u64,
    /// Done one cycle after this.
    last_write: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Write {
    Command(Burst),
    Start,
    Dram,
    Address,
    Read,
    Data,
    Ack,
}

enum Job {
    Steps(u64),
    Read(usize),
    Write,
    Finish,
}

struct Running {
    insn: usize,
    start: u64,
    job: Job,
}

struct Bus {
    client: usize,
    burst: Burst,
    extra: u64,
    beat: u64,
}

pub(super) struct Stepper<'a> {
    timing: &'a TimingConfig,
    config: &'a Config,
    insns: &'a [Insn],
    insn_addr: u64,
    out: Outcome,
    now: u64,
    tokens: [u32; 4],
    queues: [VecDeque<(usize, u64)>; 3],
    running: [Option<Running>; 3],
    readers: [Option<Reader>; 5],
    fifo: VecDeque<(usize, Burst)>,
    counter: u32,
    tags_used: u32,
    bus: Option<Bus>,
    writing: VecDeque<Write>,
    /// When write requests reach the bus.
    requests: VecDeque<u64>,
    dram: Dram,
    cursor: usize,
    chunk_end: usize,
    dispatch_at: u64,
    finished_at: Option<u64>,
}

impl<'a> Stepper<'a> {
    pub(super) fn new(
        timing: &'a TimingConfig,
        config: &'a Config,
        insns: &'a [Insn],
        insn_addr: u32,
    ) -> Self {
        let mut stepper = Self {
            timing,
            config,
            insns,
            insn_addr: insn_addr.into(),
            out: Outcome {
                spans: vec![(None, None); insns.len()],
                ..Outcome::default()
            },
            now: 0,
            tokens: [0; 4],
            queues: Default::default(),
            running: [const { None }; 3],
            readers: [const { None }; 5],
            fifo: VecDeque::new(),
            counter: 0,
            tags_used: 0,
            bus: None,
            writing: VecDeque::new(),
            requests: VecDeque::new(),
            dram: Dram::new(timing.dram),
            cursor: 0,
            chunk_end: 0,
            dispatch_at: u64::MAX,
            finished_at: None,
        };
        stepper.fetch_chunk(1);
        stepper
    }

    pub(super) fn run(mut self, limit: u64) -> End {
        while self.now < limit {
            if let Err(lost) = self.cycle() {
                return lost;
            }
            if let Some(at) = self.finished_at
                && self.now == at + u64::from(self.timing.end_poll_cycles)
            {
                // The memory sends a beat one cycle before the bus has it.
                if let Some(bus) = self.bus.as_ref().filter(|b| b.extra == 0) {
                    self.out.read_beats[bus.client] += 1;
                }
                return End::Finished(Box::new(self.out));
            }
            self.now += 1;
        }
        End::Unfinished
    }

    fn over(&self) -> bool {
        self.finished_at.is_some_and(|at| self.now > at)
    }

    fn stall(&mut self, unit: Unit, reason: StallReason) {
        if !self.over() {
            self.out.stalls[unit as usize][reason.index()] += 1;
        }
    }

    fn cycle(&mut self) -> Result<(), End> {
        let (mut popped, mut pushed) = ([false; 4], [None; 4]);
        let mut leaving = [false; 3];
        let full =
            Module::ALL.map(|m| self.queues[m as usize].len() >= self.timing.queue_depth as usize);
        let was_over = self.over();
        for module in Module::ALL {
            self.step_module(module, &mut popped, &mut pushed, &mut leaving);
        }
        self.dispatch(full);
        self.read_side();
        self.write_side();
        for edge in Edge::ALL {
            let tokens = &mut self.tokens[edge as usize];
            match (pushed[edge as usize], popped[edge as usize]) {
                (Some(_), false) if *tokens < self.timing.token_max => *tokens += 1,
                // After the end a lost token concerns nobody.
                (Some(_), false) if !was_over => return Err(End::LostPush(edge, self.now)),
                (None, true) => *tokens -= 1,
                _ => {}
            }
        }
        for module in Module::ALL {
            if leaving[module as usize] {
                self.queues[module as usize].pop_front();
            }
        }
        if self.finished_at == Some(self.now) {
            self.out.cycles = self.now + 1;
            self.out.tokens = self.tokens;
        }
        Ok(())
    }

    fn step_module(
        &mut self,
        module: Module,
        popped: &mut [bool; 4],
        pushed: &mut [Option<usize>; 4],
        leaving: &mut [bool; 3],
    ) {
        let m = module as usize;
        if let Some(running) = &self.running[m] {
            if !self.over() {
                self.out.busy[m + 1] += 1;
            }
            if self.is_done(running) {
                let insn = running.insn;
                if !self.over() {
                    self.out.spans[insn].1 = Some(self.now);
                }
                for edge in pushes(module, self.insns[insn].deps()) {
                    pushed[edge as usize] = Some(insn);
                }
                if let Job::Read(client) = running.job {
                    self.readers[client] = None;
                }
                leaving[m] = true;
                self.running[m] = None;
            }
            return;
        }
        let head = self.queues[m].front().filter(|(_, seen)| *seen <= self.now);
        let Some(&(insn, _)) = head else {
            let more = self.insns[self.cursor..]
                .iter()
                .any(|i| i.module() == module)
                || !self.queues[m].is_empty();
            let reason = if more {
                StallReason::QueueEmpty
            } else {
                StallReason::Ended
            };
            self.stall(module.into(), reason);
            return;
        };
        let deps = self.insns[insn].deps();
        if let Some(edge) = pops(module, deps).find(|&e| self.tokens[e as usize] == 0) {
            self.stall(module.into(), StallReason::Token(edge));
            return;
        }
        for edge in pops(module, deps) {
            popped[edge as usize] = true;
        }
        let job = self.begin(insn);
        if !self.over() {
            self.out.spans[insn].0 = Some(self.now);
            self.out.busy[m + 1] += 1;
        }
        self.running[m] = Some(Running {
            insn,
            start: self.now,
            job,
        });
    }

    fn is_done(&self, running: &Running) -> bool {
        match running.job {
            Job::Steps(cycles) => self.now == running.start + cycles,
            Job::Read(client) => self.readers[client]
                .as_ref()
                .is_some_and(|r| r.finished() && self.now > r.last_write),
            Job::Write => self.writing.is_empty(),
            Job::Finish => self.now == running.start + 1,
        }
    }

    fn begin(&mut self, insn: usize) -> Job {
        match self.insns[insn] {
            Insn::Load(load) if load.is_sync() => Job::Steps(1),
            Insn::Store(store) if store.is_sync() => Job::Steps(1),
            Insn::Load(load) => self.begin_load(&load),
            Insn::Store(store) => {
                self.begin_store(&store);
                Job::Write
            }
            Insn::Gemm(gemm) => {
                Job::Steps(gemm.steps() + 2 + u64::from(self.timing.gemm_pipeline_cycles))
            }
            Insn::Alu(alu) => {
                let each = match alu.operand {
                    AluOperand::Imm(_) => 1,
                    AluOperand::Acc => u64::from(self.timing.alu_two_operand_cycles),
                };
                Job::Steps(alu.steps() * each + 2 + u64::from(self.timing.alu_pipeline_cycles))
            }
            Insn::Finish(_) => {
                self.finished_at = Some(self.now);
                Job::Finish
            }
        }
    }

    fn begin_load(&mut self, load: &Load) -> Job {
        let elem = self.config.elem_bytes(load.mem) as u64;
        let bus = u64::from(self.timing.bus_bytes);
        let (client, direct) = match load.mem {
            MemType::Uop => (Client::Uop, true),
            MemType::Inp => (Client::Inp, bus >= elem),
            MemType::Wgt => (Client::Wgt, bus >= elem),
            MemType::Acc => (Client::Acc, bus >= elem),
            MemType::Acc8 | MemType::Out => (Client::Acc, bus >= 4 * elem),
        };
        let rows = Rows {
            base: u64::from(load.dram_base) * elem,
            bytes: u64::from(load.x_size) * elem,
            stride: u64::from(load.x_stride) * elem,
            count: u64::from(load.y_size),
        };
        let mut reader = self.reader(rows, self.now + 1, u64::from(load.y_pad_0));
        reader.delay = if direct { 1 } else { 2 };
        reader.single = if load.mem == MemType::Acc8 { elem } else { 0 };
        reader.pad_from = self.now + if client == Client::Uop { 1 } else { 2 };
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
        self.readers[client as usize] = Some(reader);
        Job::Read(client as usize)
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
            pad_from: 0,
            last_write: 0,
        }
    }

    fn begin_store(&mut self, store: &Store) {
        let tile = self.config.elem_bytes(MemType::Out) as u64;
        let bus = u64::from(self.timing.bus_bytes);
        let rows = Rows {
            base: u64::from(store.dram_base) * tile,
            bytes: u64::from(store.x_size) * tile,
            stride: u64::from(store.x_stride) * tile,
            count: u64::from(store.y_size),
        };
        // The start cycle itself.
        self.writing.push_back(Write::Start);
        for burst in Bursts::new(Cuts::new(self.timing), rows) {
            let front = [Write::Command(burst), Write::Address, Write::Read];
            self.writing.extend(front);
            for beat in 0..burst.beats {
                let at = burst.start / bus + beat;
                if beat > 0 && tile > bus && at.is_multiple_of(tile / bus) {
                    self.writing.push_back(Write::Read);
                }
                self.writing.push_back(Write::Data);
            }
            self.writing.push_back(Write::Ack);
        }
        // The STORE is done in the cycle before the one in which the next could give a command.
        self.writing.pop_back();
    }

    fn write_side(&mut self) {
        if self.requests.front() == Some(&self.now) {
            self.requests.pop_front();
            self.out.write_requests += 1;
        }
        match self.writing.front() {
            Some(Write::Command(burst)) => {
                let extra = self.dram.access(burst.start, self.now);
                self.writing.pop_front();
                for _ in 0..extra {
                    self.writing.push_front(Write::Dram);
                }
                self.requests.push_back(self.now + 2);
            }
            Some(Write::Dram) => {
                self.stall(Unit::Store, StallReason::Dram);
                self.writing.pop_front();
            }
            Some(Write::Data) => {
                self.out.write_beats += 1;
                self.writing.pop_front();
            }
            Some(_) => {
                self.writing.pop_front();
            }
            None => {}
        }
    }

    fn fetch_chunk(&mut self, at: u64) {
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
            base: start,
            bytes: stop - start,
            stride: 0,
            count: 1,
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

    fn dispatch(&mut self, full: [bool; 3]) {
        if self.cursor == self.insns.len() {
            self.stall(Unit::Fetch, StallReason::Ended);
            return;
        }
        let busy = |s: &mut Self| {
            if !s.over() {
                s.out.busy[0] += 1;
            }
        };
        if let Some(reader) = &self.readers[Client::Fetch as usize] {
            if !(reader.finished() && self.now > reader.last_write) {
                busy(self);
                return;
            }
            self.readers[Client::Fetch as usize] = None;
            self.dispatch_at = self.now;
        }
        if self.now < self.dispatch_at {
            busy(self);
            return;
        }
        let module = self.insns[self.cursor].module();
        if full[module as usize] {
            self.stall(Unit::Fetch, StallReason::QueueFull(module));
            return;
        }
        busy(self);
        self.queues[module as usize].push_back((self.cursor, self.now + 1));
        self.cursor += 1;
        if self.cursor == self.chunk_end {
            self.fetch_chunk(self.now + 2);
        }
    }

    fn read_side(&mut self) {
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
        if queued > 0 && ready && self.bus.is_none() {
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
        for (client, reader) in self.readers.iter_mut().enumerate() {
            let Some(reader) = reader else { continue };
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
    fn finished(&self) -> bool {
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

/// The engine's error in the stepper's terms.
pub(super) fn same_error(error: &CycleError, end: &End) -> bool {
    match (error, end) {
        (CycleError::Deadlock { .. }, End::Unfinished) => true,
        (CycleError::LostPush { edge, cycle, .. }, End::LostPush(e, c)) => (edge, cycle) == (e, c),
        _ => false,
    }
}
