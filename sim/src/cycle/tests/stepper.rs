//! The peer of the engine in tests: the same rules, cycle by cycle, beat by beat, tile by tile.
//!
//! It shares with the engine only how rows are cut into bursts and the DRAM's banks.

use std::collections::VecDeque;

use vta_isa::tokens::{pops, pushes};
use vta_isa::{AluOp, AluOperand, Config, Insn, Module};

use super::super::bursts::Burst;
use super::super::dram::Dram;
use super::super::events::{Client, Edge, StallReason, Unit};
use super::super::{CycleError, TimingConfig};
use crate::stepper::State;

mod reads;
mod writes;

use self::reads::{Bus, Reader};
use self::writes::Write;

/// What the stepper counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub cycles: u64,
    pub read_requests: u64,
    pub read_beats: [u64; 6],
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

enum Job {
    Steps(u64),
    Read(usize),
    Write,
    Finish,
}

/// What a cycle changes for other modules, by edge and by module.
#[derive(Default)]
struct Changes {
    popped: [bool; 4],
    pushed: [bool; 4],
    leaving: [bool; 3],
}

struct Running {
    insn: usize,
    start: u64,
    job: Job,
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
    /// What has begun beside what runs, and what it reads.
    ahead: [Option<Running>; 3],
    held: Option<(usize, Reader)>,
    readers: [Option<Reader>; 6],
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
            ahead: [const { None }; 3],
            held: None,
            readers: [const { None }; 6],
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

    /// One more cycle: the state behind it but for the bus, which it has by beats; `None` when a token is lost.
    pub(super) fn next(&mut self) -> Option<State> {
        let before = self.out.stalls;
        self.cycle().ok()?;
        self.now += 1;
        let reason = |unit: usize| {
            let lost = self.out.stalls[unit].iter().zip(&before[unit]);
            let at = lost.into_iter().position(|(now, before)| now > before)?;
            Some(StallReason::ALL[at])
        };
        Some(State {
            tokens: self.tokens,
            queues: [0, 1, 2].map(|m| self.queues[m].iter().map(|(insn, _)| *insn).collect()),
            running: [0, 1, 2].map(|m| self.running[m].is_some()),
            stalls: [0, 1, 2, 3].map(reason),
            bus: [None; 2],
        })
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
        let mut changes = Changes::default();
        let full =
            Module::ALL.map(|m| self.queues[m as usize].len() >= self.timing.queue_depth as usize);
        let was_over = self.over();
        for module in Module::ALL {
            self.step_module(module, &mut changes);
        }
        self.dispatch(full);
        self.read_side();
        self.write_side();
        for edge in Edge::ALL {
            let tokens = &mut self.tokens[edge as usize];
            match (changes.pushed[edge as usize], changes.popped[edge as usize]) {
                (true, false) if *tokens < self.timing.token_max => *tokens += 1,
                // After the end a lost token concerns nobody.
                (true, false) if was_over => {}
                (true, false) => return Err(End::LostPush(edge, self.now)),
                (false, true) => *tokens -= 1,
                (true, true) | (false, false) => {}
            }
        }
        for module in Module::ALL {
            if changes.leaving[module as usize] {
                self.queues[module as usize].pop_front();
            }
        }
        if self.finished_at == Some(self.now) {
            self.out.cycles = self.now + 1;
            self.out.tokens = self.tokens;
        }
        Ok(())
    }

    fn step_module(&mut self, module: Module, changes: &mut Changes) {
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
                    changes.pushed[edge as usize] = true;
                }
                if let Job::Read(client) = running.job {
                    self.readers[client] = None;
                }
                changes.leaving[m] = true;
                self.running[m] = None;
            } else if self.ahead[m].is_none() {
                self.start_ahead(module, changes);
            }
            return;
        }
        if let Some(next) = self.ahead[m].take() {
            return self.follow(next);
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
            changes.popped[edge as usize] = true;
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

    /// What has begun beside what ran starts.
    fn follow(&mut self, next: Running) {
        if !self.over() {
            let unit = Unit::from(self.insns[next.insn].module());
            self.out.spans[next.insn].0 = Some(self.now);
            self.out.busy[unit as usize] += 1;
        }
        if let Job::Read(client) = next.job
            && let Some((_, mut reader)) = self.held.take()
        {
            reader.follow(self.now);
            self.readers[client] = Some(reader);
        }
        let module = self.insns[next.insn].module();
        self.running[module as usize] = Some(next);
    }

    /// Begins the next instruction beside what runs, where the machine does so.
    fn start_ahead(&mut self, module: Module, changes: &mut Changes) {
        let m = module as usize;
        let next = self.queues[m].get(1).filter(|(_, seen)| *seen <= self.now);
        let (Some(running), Some(&(insn, _))) = (&self.running[m], next) else {
            return;
        };
        let steps = |insn: usize| {
            !matches!(
                self.insns[insn],
                Insn::Load(_) | Insn::Store(_) | Insn::Finish(_)
            )
        };
        let able = match (&running.job, self.insns[insn]) {
            (Job::Read(client), Insn::Load(load)) if module == Module::Load => {
                let asked = self.readers[*client]
                    .as_ref()
                    .is_some_and(Reader::has_asked);
                self.timing.load_ahead && asked && !load.is_sync()
            }
            // A cycle to start and one to decode.
            (Job::Steps(cycles), _) if steps(running.insn) && steps(insn) => {
                self.timing.compute_ahead && self.now + 2 >= running.start + cycles
            }
            _ => false,
        };
        let deps = self.insns[insn].deps();
        if !able || pops(module, deps).any(|e| self.tokens[e as usize] == 0) {
            return;
        }
        for edge in pops(module, deps) {
            changes.popped[edge as usize] = true;
        }
        let job = match self.insns[insn] {
            Insn::Load(load) => {
                let held = self.begin_load(&load);
                let client = held.0;
                self.held = Some(held);
                Job::Read(client)
            }
            _ => self.begin(insn),
        };
        self.ahead[m] = Some(Running {
            insn,
            start: self.now,
            job,
        });
    }

    fn is_done(&self, running: &Running) -> bool {
        match running.job {
            Job::Steps(cycles) => self.now >= running.start + cycles,
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
            Insn::Load(load) => {
                let (client, reader) = self.begin_load(&load);
                self.readers[client] = Some(reader);
                Job::Read(client)
            }
            Insn::Store(store) => {
                self.begin_store(&store);
                Job::Write
            }
            Insn::Gemm(gemm) => {
                Job::Steps(gemm.steps() + 2 + u64::from(self.timing.gemm_pipeline_cycles))
            }
            Insn::Depthwise(insn) => {
                let mut cycles = 0;
                let bank = |y: &u8| usize::from(*y) * usize::from(insn.pitch) % 4;
                for (j, _) in (0..insn.iter_out).flat_map(|_| (0..insn.iter_in).zip(0..)) {
                    for _ in insn.uop_bgn..insn.uop_end {
                        // What the window before has, columns further to the right.
                        let held = |x: &u8| {
                            let at = u16::from(*x) + insn.src_factor_in;
                            j > 0 && insn.uop_count() == 1 && at < u16::from(insn.columns)
                        };
                        let mut step = 0;
                        for _ in (0..insn.columns).filter(|x| !held(x)) {
                            let of = |b| (0..insn.rows).filter(|y| bank(y) == b).count();
                            step += (0..4).map(of).max().unwrap_or(0) as u64;
                        }
                        cycles += step.max(1);
                    }
                }
                Job::Steps(cycles + 2 + u64::from(self.timing.gemm_pipeline_cycles))
            }
            Insn::Alu(alu) => {
                let each = match (alu.op, alu.operand) {
                    (AluOp::Mov, _) | (_, AluOperand::Imm(_)) => 1,
                    (_, AluOperand::Acc) => u64::from(self.timing.alu_two_operand_cycles),
                };
                Job::Steps(alu.steps() * each + 2 + u64::from(self.timing.alu_pipeline_cycles))
            }
            Insn::Finish(_) => {
                self.finished_at = Some(self.now);
                Job::Finish
            }
        }
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
}

/// The engine's error in the stepper's terms.
pub(super) fn same_error(error: &CycleError, end: &End) -> bool {
    match (error, end) {
        (CycleError::Deadlock { .. }, End::Unfinished) => true,
        (CycleError::LostPush { edge, cycle, .. }, End::LostPush(e, c)) => (edge, cycle) == (e, c),
        _ => false,
    }
}
