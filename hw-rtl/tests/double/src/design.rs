//! Registers, bus and clock.

use std::collections::VecDeque;

use vta_isa::{Config, INSN_BYTES, Insn};
use vta_sim::Oracle;

use crate::options::{Fault, Options};
use crate::run::{Culprit, Effects};
use crate::schedule::{Schedule, Step};

/// Bytes of a beat.
pub const BEAT_BYTES: usize = 8;
/// Where the fault `address` reads: no allocation reaches so far.
const NOWHERE: u64 = 0xffff_ff00;

/// What the switch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The clock goes on.
    Run,
    /// It waits.
    Wait,
    /// It is over.
    Exit,
}

/// A register access that the host offers.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Byte offset of the register.
    pub addr: u8,
    /// What is written; `None` for a read.
    pub value: Option<u32>,
}

/// What the design has on the bus in a clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusOut {
    /// Address and beats of a read request.
    pub read: Option<(u64, u64)>,
    /// Address and beats of a write request.
    pub write: Option<(u64, u64)>,
    /// A beat that is written.
    pub data: Option<[u8; BEAT_BYTES]>,
    /// Whether no byte of it is.
    pub dropped: bool,
}

/// Who is around the design.
pub trait Pins {
    /// Whether the clock goes on; asked before each cycle.
    fn switch(&mut self) -> Switch;
    /// The access that the host offers, told whether the one before was taken, and what a read answered.
    fn host(&mut self, taken: bool, answer: Option<u32>) -> Option<Access>;
    /// The beat that is read in this cycle.
    fn bus(&mut self, out: BusOut) -> Option<[u8; BEAT_BYTES]>;
}

/// Beats that are asked for and haven't come.
struct Awaited {
    addr: u64,
    beats: u64,
    /// Whose they are; `None` for fetch.
    insn: Option<usize>,
    /// Whether its next beat is corrupted.
    corrupted: bool,
}

/// What it does.
enum Phase {
    Idle,
    Fetching {
        bytes: Vec<u8>,
    },
    Running(Box<Running>),
    /// For ever.
    Hung,
}

struct Running {
    schedule: Schedule,
    effects: Effects,
    cycle: u64,
    /// Cycles in which it waited for the memory.
    waited: u64,
    /// Bursts of LOADs so far.
    bursts: usize,
}

/// The design.
pub struct Design {
    config: Config,
    options: Options,
    oracle: Oracle,
    culprit: Option<Culprit>,
    /// Whether standard error was told which instruction is at fault.
    told: bool,
    registers: [u32; 9],
    /// An access that is taken in this clock, with the answer of a read.
    taking: Option<Option<u32>>,
    answer: Option<u32>,
    to_read: VecDeque<Awaited>,
    reading: VecDeque<Awaited>,
    /// Address, beats, and whose they are.
    to_write: VecDeque<(u64, u64, usize)>,
    writing: Option<(u64, u64, usize)>,
    phase: Phase,
}

impl Design {
    /// One of the default configuration, idle.
    pub fn new(options: Options) -> Self {
        let config = Config::default();
        Self {
            oracle: Oracle::new(config.clone()),
            config,
            options,
            culprit: None,
            told: false,
            registers: [0; 9],
            taking: None,
            answer: None,
            to_read: VecDeque::new(),
            reading: VecDeque::new(),
            to_write: VecDeque::new(),
            writing: None,
            phase: Phase::Idle,
        }
    }

    /// Runs the clock until the switch says that it is over.
    pub fn clock(&mut self, pins: &mut impl Pins) {
        loop {
            match pins.switch() {
                Switch::Exit => return,
                Switch::Wait => continue,
                Switch::Run => {}
            }
            self.host(pins);
            self.work();
            self.bus(pins);
            match (self.options.fault, &self.phase) {
                (Fault::Leave, Phase::Running(_)) => return,
                (Fault::Freeze, Phase::Running(_)) => loop {
                    std::thread::park();
                },
                _ => {}
            }
        }
    }

    /// Takes an access in the clock after that in which it sees it.
    fn host(&mut self, pins: &mut impl Pins) {
        let offered = pins.host(self.taking.is_some(), self.answer.take());
        if let Some(answer) = self.taking.take() {
            self.answer = answer;
            return;
        }
        let Some(access) = offered else { return };
        let register = usize::from(access.addr / 4);
        self.taking = Some(match access.value {
            None => Some(self.registers.get(register).copied().unwrap_or(0)),
            Some(value) => {
                if let Some(register) = self.registers.get_mut(register) {
                    *register = value;
                }
                if register == 0 && value & 1 == 1 {
                    self.launch();
                }
                None
            }
        });
    }

    fn launch(&mut self) {
        let (count, addr) = (u64::from(self.registers[2]), u64::from(self.registers[3]));
        let bytes = count * INSN_BYTES as u64;
        let (mut at, end) = (addr, addr + bytes);
        let chunk = u64::from(self.options.timing.fetch_chunk_insns) * INSN_BYTES as u64;
        if self.options.fault == Fault::Address {
            at = NOWHERE;
        }
        while at < end {
            let beats = (end - at)
                .div_ceil(BEAT_BYTES as u64)
                .min(chunk / BEAT_BYTES as u64);
            self.to_read.push_back(Awaited {
                addr: at,
                beats,
                insn: None,
                corrupted: false,
            });
            at += beats * BEAT_BYTES as u64;
        }
        if self.options.fault == Fault::Address {
            self.to_read.push_back(Awaited {
                addr: NOWHERE,
                beats: 1,
                insn: None,
                corrupted: false,
            });
        }
        self.phase = Phase::Fetching { bytes: Vec::new() };
    }

    fn work(&mut self) {
        let is_reading = !self.to_read.is_empty() || !self.reading.is_empty();
        match &mut self.phase {
            Phase::Fetching { bytes } if !is_reading => {
                let bytes = std::mem::take(bytes);
                let begun = self.begin(&bytes);
                self.phase = begun.map_or(Phase::Hung, |run| Phase::Running(Box::new(run)));
            }
            Phase::Running(_) => self.cycle(),
            Phase::Idle | Phase::Fetching { .. } | Phase::Hung => {}
        }
    }

    /// What was fetched, decoded and timed; `None` if it hangs.
    fn begin(&mut self, bytes: &[u8]) -> Option<Running> {
        if self.options.fault == Fault::Hang {
            return None;
        }
        let word = |chunk: &[u8; INSN_BYTES]| u128::from_le_bytes(*chunk);
        let words = bytes.as_chunks().0.iter().map(word);
        let insns: Vec<Insn> = words.map(Insn::decode).collect::<Result<_, _>>().ok()?;
        let schedule = Schedule::of(
            &self.options.timing,
            &self.config,
            &insns,
            self.registers[3],
        )?;
        if let (None, Fault::Byte(index) | Fault::Late(index)) = (self.culprit, self.options.fault)
        {
            self.culprit = Culprit::at(&insns, index);
        }
        let effects = Effects::new(&self.config, insns, self.options.fault, self.culprit)?;
        Some(Running {
            schedule,
            effects,
            cycle: 0,
            waited: 0,
            bursts: 0,
        })
    }

    /// One cycle of a run.
    fn cycle(&mut self) {
        let Phase::Running(run) = &mut self.phase else {
            return;
        };
        while let Some(step) = run.schedule.due(run.cycle) {
            match step {
                Step::Effect { insn } => {
                    let of = |awaited: &Awaited| awaited.insn == Some(insn);
                    if self.to_read.iter().any(of) || self.reading.iter().any(of) {
                        run.waited += 1;
                        return;
                    }
                    if !run.effects.of(&mut self.oracle, insn) {
                        self.phase = Phase::Hung;
                        return;
                    }
                    let early = self.options.fault == Fault::Early && run.effects.is_early(insn);
                    if let Some(insn) = run.effects.shifted.or(early.then_some(insn)) {
                        tell(&mut self.told, insn);
                    }
                }
                Step::Read { addr, beats, insn } => {
                    let corrupted =
                        insn.is_some() && self.options.fault == Fault::Burst(run.bursts);
                    run.bursts += usize::from(insn.is_some());
                    if let (true, Some(insn)) = (corrupted, insn) {
                        tell(&mut self.told, insn);
                    }
                    self.to_read.push_back(Awaited {
                        addr,
                        beats,
                        insn,
                        corrupted,
                    });
                }
                Step::Write { addr, beats, insn } => self.to_write.push_back((addr, beats, insn)),
            }
            run.schedule.pop();
        }
        run.cycle += 1;
        let quiet = self.to_read.is_empty() && self.reading.is_empty();
        let written = self.to_write.is_empty() && self.writing.is_none();
        if run.cycle >= run.schedule.cycles && quiet && written {
            let cycles = run.schedule.cycles + run.waited;
            let cycles = cycles.saturating_add_signed(run.effects.late_cycles);
            self.registers[1] = u32::try_from(cycles).unwrap_or(u32::MAX);
            self.registers[0] = 2;
            self.phase = Phase::Idle;
        }
    }

    fn bus(&mut self, pins: &mut impl Pins) {
        let mut out = BusOut::default();
        if let Some(awaited) = self.to_read.pop_front() {
            out.read = Some((awaited.addr, awaited.beats));
            self.reading.push_back(awaited);
        }
        match &mut self.writing {
            Some((addr, beats, insn)) => {
                let mut beat = [0; BEAT_BYTES];
                if let Phase::Running(run) = &self.phase
                    && let Ok(bytes) = run.effects.shadow.read(*addr, BEAT_BYTES as u64)
                {
                    beat.copy_from_slice(bytes);
                }
                out.data = Some(beat);
                out.dropped = self.options.fault == Fault::Drop && *beats == 1;
                // Memory is zero at first, so that zeros aren't missed.
                if out.dropped && beat != [0; BEAT_BYTES] {
                    tell(&mut self.told, *insn);
                }
                *addr += BEAT_BYTES as u64;
                *beats -= 1;
                if *beats == 0 {
                    self.writing = None;
                }
            }
            None => {
                self.writing = self.to_write.pop_front();
                out.write = self.writing.map(|(addr, beats, _)| (addr, beats));
            }
        }
        let Some(mut beat) = pins.bus(out) else {
            return;
        };
        let Some(awaited) = self.reading.front_mut() else {
            return;
        };
        if std::mem::take(&mut awaited.corrupted) {
            beat[0] ^= 0x40;
        }
        match &mut self.phase {
            Phase::Fetching { bytes } => bytes.extend(beat),
            Phase::Running(run) if awaited.insn.is_some() => {
                // Beats of what lies beside a row are in the shadow, too.
                if let Ok(to) = run.effects.shadow.write(awaited.addr, BEAT_BYTES as u64) {
                    to.copy_from_slice(&beat);
                }
            }
            Phase::Running(_) | Phase::Idle | Phase::Hung => {}
        }
        awaited.addr += BEAT_BYTES as u64;
        awaited.beats -= 1;
        if awaited.beats == 0 {
            self.reading.pop_front();
        }
    }
}

/// Says once which instruction is at fault.
fn tell(told: &mut bool, insn: usize) {
    if !std::mem::replace(told, true) {
        eprintln!("double: instruction {insn} is at fault");
    }
}
