//! The event loop: jumps from one cycle in which something happens to the next.
//!
//! A cycle has two halves. In the first every unit that has something to do reads the state as it
//! was at the cycle's beginning and notes what it changes for others: tokens, queue entries,
//! transfers that begin in a later cycle. In the second, `commit`, the notes take effect, to be
//! seen one cycle later. So the order of the units within a cycle can't change a result.

use vta_driver::Budget;
use vta_isa::tokens::{self, At, Stuck, TokenError, pops, pushes};
use vta_isa::{Config, Insn, Module};

use super::dram::Dram;
use super::events::{Client, Edge, Listener, StallEvent, StallReason, TokenEvent, Unit};
use super::fetch::{Fetch, REQUEST_GAP};
use super::memory::{Completion, ReadPort};
use super::module::{MAX_CYCLES, ModuleState, NEVER, Running, Start, State};
use super::report::{CycleReport, Sink};
use super::store::WritePort;
use super::{CycleError, TimingConfig, compute, load};

/// Cycles from the start of a LOAD or STORE that moves nothing to its end.
const SYNC: u64 = 1;

/// Instructions, and the physical address in bytes that they are fetched from.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// FINISH is the last.
    pub insns: &'a [Insn],
    /// Where the first lies.
    pub insn_addr: u32,
}

/// What a cycle changes for other units.
#[derive(Debug, Default)]
struct Notes {
    any: bool,
    pops: [bool; 4],
    /// The instruction that pushes each edge.
    pushes: [Option<u32>; 4],
    /// Modules that are done with the head of their queue.
    dequeues: [bool; 3],
}

/// One run.
pub(super) struct Engine<'a, L> {
    timing: &'a TimingConfig,
    config: &'a Config,
    insns: &'a [Insn],
    fetch: Fetch,
    modules: [ModuleState; 3],
    reads: ReadPort,
    writes: WritePort,
    dram: Dram,
    tokens: [u32; 4],
    notes: Notes,
    finished: bool,
    budget: Budget,
    sink: Sink<'a, L>,
}

impl<'a, L: Listener> Engine<'a, L> {
    /// A run of checked instructions with valid timing.
    pub(super) fn new(
        timing: &'a TimingConfig,
        config: &'a Config,
        Run { insns, insn_addr }: Run<'a>,
        listener: &'a mut L,
    ) -> Self {
        let mut fetch = Fetch::new(timing, insn_addr, insns.len());
        let mut reads = ReadPort::new(timing);
        if let Some(chunk) = fetch.first_chunk() {
            reads.open(chunk);
        }
        Self {
            timing,
            config,
            insns,
            fetch,
            modules: Module::ALL.map(ModuleState::new),
            reads,
            writes: WritePort::new(timing, config),
            dram: Dram::new(timing.dram),
            tokens: [0; 4],
            notes: Notes::default(),
            finished: false,
            budget: Budget::default(),
            sink: Sink::new(listener),
        }
    }

    /// Ends with an error rather than beyond the budget's cycles.
    pub(super) fn within(self, budget: Budget) -> Self {
        let cycles = budget.cycles.min(MAX_CYCLES);
        let budget = Budget { cycles, ..budget };
        Self { budget, ..self }
    }

    /// Runs until FINISH; in each cycle the units act in `order`.
    pub(super) fn run(mut self, order: [Unit; 4]) -> Result<CycleReport, CycleError> {
        let mut now = 0;
        while !self.finished {
            let next = self.next_cycle();
            if next == NEVER {
                return Err(self.deadlock(now));
            }
            now = next;
            self.cycle(now, order)?;
        }
        self.end_run(now + 1);
        self.sink.report.stuck = self.stuck_behind_finish();
        // What happens now can't concern the program: only requests and beats are counted.
        let stop = now + u64::from(self.timing.end_poll_cycles);
        while self.next_cycle() <= stop {
            now = self.next_cycle();
            self.cycle(now, order)?;
        }
        // The memory counts a beat when it sends it, a cycle before the bus has it.
        self.reads.settle(stop + 2, &mut self.sink);
        self.writes.settle(stop + 1, &mut self.sink);
        Ok(self.sink.report)
    }

    /// One cycle in which something happens.
    fn cycle(&mut self, now: u64, order: [Unit; 4]) -> Result<(), CycleError> {
        for unit in order {
            self.step(unit, now)?;
        }
        // The memory comes after the units, reads before writes, in any order of the units: the
        // banks behind it see one sequence of accesses.
        if self.reads.wake == now
            && let Some(done) = self.reads.step(now, &mut self.dram, &mut self.sink)
        {
            self.complete(&done, now);
        }
        if self.writes.wake == now
            && let Some(done) = self.writes.step(now, &mut self.dram, &mut self.sink)
        {
            self.set_done(Module::Store, done, done);
        }
        self.commit(now)
    }

    fn next_cycle(&self) -> u64 {
        let [load, compute, store] = &self.modules;
        let modules = load.wake.min(compute.wake).min(store.wake);
        let memory = self.reads.wake.min(self.writes.wake);
        modules.min(memory).min(self.fetch.wake)
    }

    fn step(&mut self, unit: Unit, now: u64) -> Result<(), CycleError> {
        let module = match unit {
            Unit::Fetch => {
                if self.fetch.wake == now {
                    self.dispatch(now);
                }
                return Ok(());
            }
            Unit::Load => Module::Load,
            Unit::Compute => Module::Compute,
            Unit::Store => Module::Store,
        };
        let state = &self.modules[module as usize];
        if state.wake != now {
            return Ok(());
        }
        match state.state {
            State::Running(running) if running.done == now => {
                self.done(module, now);
                Ok(())
            }
            State::Running(running) => self.begin_ahead(module, running.done, now),
            State::Waiting(..) => self.try_start(module, now),
        }
    }

    /// Fetch gives one instruction to its module's queue, if there is room.
    fn dispatch(&mut self, now: u64) {
        let fetch = &mut self.fetch;
        let insn = fetch.cursor;
        let module = self.insns[insn].module();
        let target = &mut self.modules[module as usize];
        fetch.wake = NEVER;
        if target.queue.len() >= self.timing.queue_depth as usize {
            fetch.blocked.get_or_insert((module, now));
            return;
        }
        if let Some((module, from)) = fetch.blocked.take() {
            fetch.blocked_cycles += now - from;
            self.sink.stall(&StallEvent {
                unit: Unit::Fetch,
                reason: StallReason::QueueFull(module),
                insn: Some(insn),
                from,
                to: now,
            });
        }
        target.queue.push_back((insn as u32, now + 1));
        target.delivered(now + 1);
        self.sink.tell(|l| l.insn_dispatched(insn, now));
        fetch.cursor += 1;
        if fetch.cursor < fetch.chunk_end {
            fetch.wake = now + 1;
        } else if let Some(chunk) = fetch.next_chunk(now + REQUEST_GAP) {
            self.reads.open(chunk);
        } else {
            fetch.ended_at = now + 1;
        }
    }

    /// Starts the head instruction of an idle module, if it is there with its tokens or has begun ahead.
    fn try_start(&mut self, module: Module, now: u64) -> Result<(), CycleError> {
        let state = &mut self.modules[module as usize];
        if let Some((insn, done)) = state.ahead {
            state.ahead = None;
            self.run_insn(module, Start { insn, cycle: now }, done);
            return Ok(());
        }
        let Some(insn) = state.head(now) else {
            state.wake = state.head_at();
            state.wait(StallReason::QueueEmpty, None, now, &mut self.sink);
            return Ok(());
        };
        let deps = self.insns[insn as usize].deps();
        if let Some(edge) = pops(module, deps).find(|&e| self.tokens[e as usize] == 0) {
            state.wake = NEVER;
            state.wait(StallReason::Token(edge), Some(insn), now, &mut self.sink);
            return Ok(());
        }
        state.end_wait(Some(insn), now, &mut self.sink);
        self.pop(pops(module, deps), insn, now);
        let start = Start { insn, cycle: now };
        let done = self.begin(start, now);
        if done != NEVER && done > self.budget.cycles {
            return Err(self.budget.over_cycles(*self.at(insn)).into());
        }
        self.run_insn(module, start, done);
        Ok(())
    }

    /// Begins the instruction behind the running one, if it is there with its tokens. It starts when that is done in cycle `after`, and
    /// so do the beats of a LOAD.
    #[cold]
    fn begin_ahead(&mut self, module: Module, after: u64, now: u64) -> Result<(), CycleError> {
        let state = &mut self.modules[module as usize];
        state.wake = after;
        let Some(&(insn, seen_at)) = state.queue.get(1) else {
            return Ok(());
        };
        if seen_at > now {
            state.wake = after.min(seen_at);
            return Ok(());
        }
        let next = &self.insns[insn as usize];
        let able = match next {
            Insn::Load(load) => module == Module::Load && !load.is_sync(),
            next => compute::has_pipeline(next),
        };
        let deps = next.deps();
        if !able || pops(module, deps).any(|e| self.tokens[e as usize] == 0) {
            return Ok(());
        }
        state.ahead_from = NEVER;
        self.pop(pops(module, deps), insn, now);
        // It is done behind its start at the earliest.
        let done = self
            .begin(Start { insn, cycle: now }, after + 1)
            .max(after + 2);
        if done != NEVER && done > self.budget.cycles {
            return Err(self.budget.over_cycles(*self.at(insn)).into());
        }
        self.modules[module as usize].ahead = Some((insn, done));
        Ok(())
    }

    /// A module runs an instruction, which is done in a cycle, if that is known.
    fn run_insn(&mut self, module: Module, start: Start, done: u64) {
        let Start { insn, cycle } = start;
        self.sink
            .tell(|l| l.insn_start(module, insn as usize, cycle));
        let state = &mut self.modules[module as usize];
        state.wake = done;
        if self.timing.compute_ahead && compute::has_pipeline(&self.insns[insn as usize]) {
            state.ahead_from = (cycle + 1).max(done - compute::AHEAD);
            state.wake = done.min(state.ahead_from);
        }
        state.state = State::Running(Running {
            start,
            done,
            padding: (0, 0),
        });
    }

    /// Takes an instruction's tokens.
    #[inline(always)]
    fn pop(&mut self, edges: impl Iterator<Item = Edge>, insn: u32, now: u64) {
        for edge in edges {
            self.notes.any = true;
            self.notes.pops[edge as usize] = true;
            let event = TokenEvent {
                edge,
                insn: insn as usize,
                cycle: now,
            };
            self.sink.tell(|l| l.token_pop(&event));
        }
    }

    /// Begins an instruction, which has its module for itself from a cycle on; its done cycle, or [`NEVER`] if memory will tell.
    #[inline(always)]
    fn begin(&mut self, start: Start, alone: u64) -> u64 {
        let now = start.cycle;
        match &self.insns[start.insn as usize] {
            Insn::Load(load) => {
                match load::transfer(self.timing, self.config, load, start, alone) {
                    Some(transfer) => {
                        self.reads.open(transfer);
                        NEVER
                    }
                    None => now + SYNC,
                }
            }
            Insn::Store(store) => match store.dram_rows(self.config) {
                Some(rows) => {
                    self.writes.open(store, rows, start);
                    NEVER
                }
                None => now + SYNC,
            },
            Insn::Gemm(gemm) => {
                let steps = gemm.steps();
                self.sink.report.gemm_uops += steps;
                self.sink.report.acc_writes += steps;
                compute::gemm_done(self.timing, gemm, now)
            }
            Insn::Depthwise(insn) => {
                let steps = insn.steps();
                self.sink.report.gemm_uops += steps;
                self.sink.report.acc_writes += steps;
                compute::depthwise_done(self.timing, insn, now)
            }
            Insn::Alu(alu) => {
                let steps = alu.steps();
                self.sink.report.alu_uops += steps;
                self.sink.report.acc_writes += steps;
                compute::alu_done(self.timing, alu, now)
            }
            Insn::Finish(_) => {
                self.finished = true;
                now + 1
            }
        }
    }

    /// Memory knows when a transfer is over.
    fn complete(&mut self, completion: &Completion, now: u64) {
        match completion.client {
            Client::Fetch => self.fetch.wake = completion.done,
            Client::Inp | Client::Wgt | Client::Preload => {
                self.set_done(Module::Load, completion.data_end, completion.done);
                if self.timing.load_ahead {
                    let state = &mut self.modules[Module::Load as usize];
                    state.ahead_from = now + 1;
                    state.wake = state.ahead_from;
                }
            }
            Client::Uop | Client::Acc | Client::Out => {
                self.set_done(Module::Compute, completion.data_end, completion.done);
            }
        }
    }

    fn set_done(&mut self, module: Module, data_end: u64, at: u64) {
        let state = &mut self.modules[module as usize];
        if let State::Running(running) = &mut state.state {
            running.padding = (data_end, at);
            running.done = at;
            state.wake = at;
        }
    }

    /// The running instruction of a module is done in this cycle.
    fn done(&mut self, module: Module, now: u64) {
        let state = &mut self.modules[module as usize];
        let State::Running(running) = state.state else {
            return;
        };
        state.state = State::Waiting(StallReason::QueueEmpty, now + 1);
        state.ahead_from = NEVER;
        state.wake = now + 1;
        let insn = running.start.insn;
        let index = insn as usize;
        self.settle(&self.insns[index]);
        self.end_running(module, &running, now + 1);
        self.sink.tell(|l| l.insn_done(module, index, now));
        self.notes.any = true;
        self.notes.dequeues[module as usize] = true;
        for edge in pushes(module, self.insns[index].deps()) {
            self.notes.pushes[edge as usize] = Some(insn);
            let event = TokenEvent {
                edge,
                insn: index,
                cycle: now,
            };
            self.sink.tell(|l| l.token_push(&event));
        }
    }

    /// Reports the last burst of an instruction that is done.
    fn settle(&mut self, insn: &Insn) {
        match insn {
            Insn::Load(load) => {
                let client = load::client(load);
                self.reads.settle_client(client, &mut self.sink);
            }
            Insn::Store(_) => self.writes.settle(u64::MAX, &mut self.sink),
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => {}
        }
    }

    /// Counts an instruction that ran until `end`, not included.
    fn end_running(&mut self, module: Module, running: &Running, end: u64) {
        let Running { start, padding, .. } = running;
        let unit = Unit::from(module);
        self.sink.busy(unit, end - start.cycle);
        self.sink.stall(&StallEvent {
            unit,
            reason: StallReason::Padding,
            insn: Some(start.insn as usize),
            from: padding.0,
            to: padding.1.min(end),
        });
    }

    /// What the cycle changed takes effect.
    fn commit(&mut self, now: u64) -> Result<(), CycleError> {
        if !self.notes.any {
            return Ok(());
        }
        let notes = std::mem::take(&mut self.notes);
        for edge in Edge::ALL {
            let tokens = &mut self.tokens[edge as usize];
            match (notes.pushes[edge as usize], notes.pops[edge as usize]) {
                (Some(insn), false) => {
                    if *tokens >= self.timing.token_max {
                        if self.sink.over {
                            continue;
                        }
                        return Err(CycleError::LostPush {
                            at: self.at(insn),
                            edge,
                            cycle: now,
                            limit: self.timing.token_max,
                        });
                    }
                    *tokens += 1;
                    self.modules[edge.consumer() as usize].token(now + 1);
                }
                (None, true) => *tokens -= 1,
                (Some(_), true) | (None, false) => {}
            }
        }
        for module in Module::ALL {
            if notes.dequeues[module as usize] {
                self.modules[module as usize].queue.pop_front();
                if self.fetch.blocked.is_some_and(|(m, _)| m == module) {
                    self.fetch.wake = now + 1;
                }
            }
        }
        Ok(())
    }

    /// FINISH has started; the run has `end` cycles.
    fn end_run(&mut self, end: u64) {
        self.reads.finish(end, &mut self.sink);
        self.writes.settle(end, &mut self.sink);
        for module in Module::ALL {
            let state = &mut self.modules[module as usize];
            match state.state {
                State::Waiting(StallReason::QueueEmpty, from) => {
                    state.state = State::Waiting(StallReason::Ended, from);
                    state.end_wait(None, end, &mut self.sink);
                }
                State::Waiting(..) => {
                    let head = state.head(end);
                    state.end_wait(head, end, &mut self.sink);
                }
                State::Running(running) => self.end_running(module, &running, end),
            }
        }
        self.sink.stall(&StallEvent {
            unit: Unit::Fetch,
            reason: StallReason::Ended,
            insn: None,
            from: self.fetch.ended_at,
            to: end,
        });
        let fetching = self.fetch.ended_at.min(end) - self.fetch.blocked_cycles;
        self.sink.busy(Unit::Fetch, fetching);
        self.sink.report.cycles = end;
        self.sink.report.leftover_tokens = self.tokens;
        self.sink.end_run();
    }

    /// The modules that wait forever when FINISH starts. Which instructions ever run doesn't depend
    /// on time, so that the order of the tokens alone tells.
    fn stuck_behind_finish(&self) -> Vec<Stuck> {
        let waits = |state: &ModuleState| match state.state {
            State::Waiting(..) => !state.queue.is_empty(),
            State::Running(_) => state.queue.len() > 1,
        };
        if !self.modules.iter().any(waits) {
            return Vec::new();
        }
        match tokens::run_in_token_order(self.insns, |_, _| Ok::<(), TokenError>(())) {
            Err(TokenError::Deadlock { stuck }) => stuck,
            // The rest was checked before the first cycle.
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    fn at(&self, insn: u32) -> Box<At> {
        Box::new(At {
            index: insn as usize,
            insn: self.insns[insn as usize],
        })
    }

    fn deadlock(&self, cycle: u64) -> CycleError {
        let stuck = |state: &ModuleState| {
            let (index, _) = *state.queue.front()?;
            Some(Stuck::at(*self.at(index), &self.tokens))
        };
        let fetch = self.fetch.blocked.map(|(module, _)| {
            let at = *self.at(self.fetch.cursor as u32);
            Box::new((at, module))
        });
        CycleError::Deadlock {
            cycle,
            stuck: self.modules.iter().filter_map(stuck).collect(),
            fetch,
        }
    }
}
