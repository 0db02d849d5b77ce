//! One run: registers, launch, wait, and what becomes of a block that doesn't answer.

use std::time::{Duration, Instant};

use crate::error::{Aftermath, BoardError};
use crate::file::{BoardFile, ResetFile};
use crate::layout::Layout;
use crate::registers::MappedRegisters;
use crate::uio::{Completion, Interrupt};

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

/// The control registers, and whether a run is lost in the block.
pub struct Control {
    registers: MappedRegisters,
    layout: Layout,
    completion: Completion,
    /// Of one run.
    deadline: Duration,
    /// The accelerator's clock, by which its counter is judged; `None` leaves that out.
    clock_mhz: Option<f64>,
    /// How the block is reset.
    reset: Option<ResetFile>,
    /// A run missed its deadline and may still go on.
    lost: bool,
}

impl Control {
    /// Maps a board's registers and looks whether something answers.
    ///
    /// # Errors
    /// Files that can't be opened or mapped, [`BoardError::NoAnswer`].
    pub fn open(file: &BoardFile) -> Result<Self, BoardError> {
        let mut control = Self {
            registers: MappedRegisters::open(&file.registers)?,
            layout: file.registers.address_bits,
            completion: match &file.interrupt {
                Some(interrupt) => Completion::Interrupt(Interrupt::open(&interrupt.path)?),
                None => Completion::Poll,
            },
            deadline: Duration::from_millis(file.deadline_ms),
            clock_mhz: file.clock_mhz,
            reset: file.reset,
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
        if !self.ended(start + self.deadline)? {
            return Err(BoardError::Deadline {
                insns,
                address,
                deadline: self.deadline,
                after: self.reset_block()?,
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

    fn reset_block(&mut self) -> Result<Aftermath, BoardError> {
        let Some(reset) = self.reset else {
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
        let Some(clock_mhz) = self.clock_mhz else {
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
        if most > f64::from(u32::MAX) {
            Ok(())
        } else {
            Err(BoardError::Counter {
                cycles,
                wall,
                clock_mhz,
                limit,
            })
        }
    }
}
