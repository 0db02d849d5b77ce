//! One run: registers, launch, wait, and what becomes of a block that doesn't answer.

use std::time::{Duration, Instant};

use crate::error::{Aftermath, BoardError};
use crate::file::ResetFile;
use crate::layout::{AddressBits, Layout};
use crate::registers::Registers;
use crate::uio::Completion;

/// Written to launch; read while a run goes on.
const LAUNCH: u32 = 1;
/// Set when FINISH has ended.
const DONE: u32 = 2;
/// What a bus reads where nothing answers.
const NOTHING: u32 = u32::MAX;
/// A run that polls looks so often without a pause, then sleeps in between.
const SPINS: u32 = 2000;
/// Pause between two looks at a run that takes longer.
const PAUSE: Duration = Duration::from_micros(50);
/// How long a reset is held: many cycles of the slowest clock.
const RESET_HELD: Duration = Duration::from_millis(1);
/// How long a block may take to be idle after a reset.
const RESET_TIME: Duration = Duration::from_millis(100);

/// What a run may take, and how it is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of one run.
    pub deadline: Duration,
    /// The accelerator's clock, by which its counter is judged; `None` leaves that out.
    pub clock_mhz: Option<f64>,
    /// How the block is reset.
    pub reset: Option<ResetFile>,
}

/// The control registers, and whether a run is lost in the block.
pub struct Control {
    registers: Box<dyn Registers>,
    layout: Layout,
    completion: Completion,
    limits: Limits,
    /// A run missed its deadline and may still go on.
    lost: bool,
}

impl Control {
    /// Looks whether something answers.
    ///
    /// # Errors
    /// [`BoardError::NoAnswer`].
    pub fn new(
        registers: Box<dyn Registers>,
        address_bits: AddressBits,
        completion: Completion,
        limits: Limits,
    ) -> Result<Self, BoardError> {
        let mut control = Self {
            registers,
            layout: Layout::new(address_bits),
            completion,
            limits,
            lost: false,
        };
        control.state()?;
        Ok(control)
    }

    /// Runs instructions in memory; the cycles that they took.
    ///
    /// # Errors
    /// A block that doesn't answer, doesn't end, or counts what can't be. It is reset then, where it can be, and
    /// the next run begins afresh.
    pub fn run(&mut self, address: u64, insns: usize) -> Result<u32, BoardError> {
        let state = self.state()?;
        if self.lost && state & DONE == 0 && state & LAUNCH != 0 {
            return Err(BoardError::Busy);
        }
        self.lost = false;
        self.registers.write(Layout::CYCLES, 0);
        self.registers.write(Layout::COUNT, insns as u32);
        let bases = Layout::bases().map(|base| (base, 0));
        for (index, pointer) in [(0, address)].into_iter().chain(bases) {
            for (offset, word) in self.layout.pointer(index, pointer) {
                self.registers.write(offset, word);
            }
        }
        if let Completion::Interrupt(interrupt) = &mut self.completion {
            interrupt.enable()?;
        }
        let start = Instant::now();
        self.registers.write(Layout::CONTROL, LAUNCH);
        if !self.ended(start + self.limits.deadline)? {
            return Err(BoardError::Deadline {
                insns,
                address,
                deadline: self.limits.deadline,
                after: self.reset()?,
            });
        }
        let wall = start.elapsed();
        let cycles = self.registers.read(Layout::CYCLES);
        self.judge(cycles, insns, wall)?;
        Ok(cycles)
    }

    /// The control register.
    fn state(&mut self) -> Result<u32, BoardError> {
        match self.registers.read(Layout::CONTROL) {
            NOTHING => Err(BoardError::NoAnswer {
                offset: Layout::CONTROL,
                value: NOTHING,
            }),
            value => Ok(value),
        }
    }

    /// Whether the run ended until a moment.
    fn ended(&mut self, until: Instant) -> Result<bool, BoardError> {
        let mut looks = 0;
        loop {
            if self.state()? & DONE != 0 {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            match &mut self.completion {
                Completion::Poll if looks < SPINS => std::hint::spin_loop(),
                Completion::Poll => std::thread::sleep(PAUSE),
                // One that isn't ours, or came too early, is none: the next one is let through before the next look.
                Completion::Interrupt(interrupt) => {
                    if interrupt.wait(until)? {
                        interrupt.enable()?;
                    }
                }
            }
            looks = looks.saturating_add(1);
        }
    }

    fn reset(&mut self) -> Result<Aftermath, BoardError> {
        let Some(reset) = self.limits.reset else {
            self.lost = true;
            return Ok(Aftermath::NoReset);
        };
        self.registers.write(reset.offset, reset.assert);
        std::thread::sleep(RESET_HELD);
        self.registers.write(reset.offset, reset.release);
        let until = Instant::now() + RESET_TIME;
        while self.state()? & LAUNCH != 0 {
            if Instant::now() >= until {
                self.lost = true;
                return Ok(Aftermath::StillBusy);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Aftermath::Reset)
    }

    /// A counter that can't be says that the results can't be trusted either.
    fn judge(&self, cycles: u32, insns: usize, wall: Duration) -> Result<(), BoardError> {
        let Some(clock_mhz) = self.limits.clock_mhz else {
            return Ok(());
        };
        // The counter has 32 bits: a run that is long enough may have gone round.
        let most = wall.as_secs_f64() * clock_mhz * 1e6 * 1.01 + 1000.0;
        let limit = if u64::from(cycles) < insns as u64 {
            format!("fewer than the {insns} instructions")
        } else if f64::from(cycles) > most {
            format!("more than {most:.0} can be")
        } else {
            return Ok(());
        };
        match most > f64::from(u32::MAX) {
            true => Ok(()),
            false => Err(BoardError::Counter {
                cycles,
                wall,
                clock_mhz,
                limit,
            }),
        }
    }
}
