//! The engine against measured figures of the RTL, and its errors: what both share.

mod errors;
mod figures;
mod random;
mod stepper;

use vta_isa::{Config, Deps, Finish, Insn, Load, MemType, Module, Store};

use super::*;

/// Remembers everything, in text that sorts.
#[derive(Default)]
pub(super) struct Log {
    pub spans: Vec<(Option<u64>, Option<u64>)>,
    pub stalls: Vec<StallEvent>,
    pub bursts: Vec<BurstEvent>,
    pub lines: Vec<String>,
}

impl Log {
    pub(super) fn span(&mut self, insn: usize) -> &mut (Option<u64>, Option<u64>) {
        if self.spans.len() <= insn {
            self.spans.resize(insn + 1, (None, None));
        }
        &mut self.spans[insn]
    }
}

impl Listener for Log {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        self.lines.push(format!("{cycle:>9} dispatch {insn}"));
    }
    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        self.span(insn).0 = Some(cycle);
        self.lines.push(format!("{cycle:>9} start {module} {insn}"));
    }
    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        self.span(insn).1 = Some(cycle);
        self.lines.push(format!("{cycle:>9} done {module} {insn}"));
    }
    fn token_pop(&mut self, event: &TokenEvent) {
        self.lines.push(format!("{:>9} pop {event:?}", event.cycle));
    }
    fn token_push(&mut self, event: &TokenEvent) {
        self.lines
            .push(format!("{:>9} push {event:?}", event.cycle));
    }
    fn burst(&mut self, event: &BurstEvent) {
        self.bursts.push(*event);
        self.lines
            .push(format!("{:>9} burst {event:?}", event.first_cycle));
    }
    fn stall(&mut self, event: &StallEvent) {
        self.stalls.push(*event);
        self.lines
            .push(format!("{:>9} stall {event:?}", event.from));
    }
}

fn run(timing: &TimingConfig, insns: &[Insn]) -> (CycleReport, Log) {
    let mut log = Log::default();
    let report = simulate(timing, &Config::default(), insns, 0x1_0000, &mut log).unwrap();
    (report, log)
}

/// Cycles from an instruction's start to the earliest start of the next, alone in the machine.
fn alone(timing: &TimingConfig, insn: Insn) -> u64 {
    // The wait lets fetch get out of the way.
    let wait = Insn::from(Load {
        mem: MemType::Acc,
        ..Load::default()
    });
    let (_, log) = run(timing, &[wait, insn, finish(Deps::NONE)]);
    match log.spans[1] {
        (Some(start), Some(done)) => done + 1 - start,
        // Compute ends the run; load and store may be cut off, so let FINISH wait for them.
        _ => {
            let (mut insn, mut tail) = (insn, Vec::new());
            let pop = |pop_prev, pop_next| Deps {
                pop_prev,
                pop_next,
                ..Deps::NONE
            };
            let load = insn.module() == Module::Load;
            insn.deps_mut().push_next = load;
            insn.deps_mut().push_prev = !load;
            tail.extend([wait, insn, finish(pop(load, !load))]);
            let (_, log) = run(timing, &tail);
            log.spans[1].1.unwrap() + 1 - log.spans[1].0.unwrap()
        }
    }
}

pub(super) fn finish(deps: Deps) -> Insn {
    Finish { deps }.into()
}

fn both() -> [TimingConfig; 2] {
    [TimingConfig::pynq(), TimingConfig::de10()]
}

pub(super) fn load(mem: MemType, y: u16, x: u16, stride: u16, pads: [u8; 4]) -> Insn {
    let load = Load {
        mem,
        y_size: y,
        x_size: x,
        x_stride: stride,
        y_pad_0: pads[0],
        y_pad_1: pads[1],
        x_pad_0: pads[2],
        x_pad_1: pads[3],
        ..Load::default()
    };
    load.into()
}

pub(super) fn store(y: u16, x: u16, stride: u16) -> Insn {
    let store = Store {
        y_size: y,
        x_size: x,
        x_stride: stride,
        ..Store::default()
    };
    store.into()
}
