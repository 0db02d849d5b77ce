//! One run: registers, launch, wait, and what becomes of a block that doesn't answer.

use std::time::{Duration, Instant};

use crate::error::BoardError;
use crate::file::{BoardFile, ResetFile};
use crate::layout::Layout;
use crate::registers::MappedRegisters;
use crate::uio::Interrupt;

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
    /// What a run ends with; without one the host polls.
    interrupt: Option<Interrupt>,
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
    /// Files that can't be opened or mapped, registers that don't answer.
    pub fn open(file: &BoardFile) -> Result<Self, BoardError> {
        let mut control = Self {
            registers: MappedRegisters::open(&file.registers)?,
            layout: file.registers.address_bits,
            interrupt: match &file.interrupt {
                Some(interrupt) => Some(Interrupt::open(&interrupt.path)?),
                None => None,
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
            let text = "the accelerator is still busy with a run that missed its deadline: reset the board, or give \
                        its file a [reset]";
            return Err(BoardError(text.to_owned()));
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
        if let Some(interrupt) = &mut self.interrupt {
            interrupt.enable()?;
        }
        let start = Instant::now();
        self.registers.write(Layout::CONTROL, LAUNCH);
        if !self.ended(start + self.deadline)? {
            let (time, after) = (seconds(self.deadline), self.reset_block()?);
            return Err(BoardError(format!(
                "{insns} instructions at {address:#x} didn't end in {time}: {after}"
            )));
        }
        let wall = start.elapsed();
        let cycles = self.registers.read(Layout::CYCLES);
        self.judge(cycles, insns, wall)?;
        Ok(cycles)
    }

    /// The control register.
    fn state(&mut self) -> Result<u32, BoardError> {
        match self.registers.read(Layout::CONTROL) {
            NOTHING => Err(BoardError(format!(
                "the registers answer {NOTHING:#x} at {:#x}: nothing is on the bus there, or the design isn't loaded",
                Layout::CONTROL
            ))),
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
            match &mut self.interrupt {
                None if looks < SPINS => std::hint::spin_loop(),
                None => std::thread::sleep(PAUSE),
                // One that isn't ours, or came too early, is none: the next one is let through before the next look.
                Some(interrupt) => {
                    if interrupt.wait(until)? {
                        interrupt.enable()?;
                    }
                }
            }
            looks = looks.saturating_add(1);
        }
    }

    /// Resets a block that missed its deadline, where that can be; what became of it.
    fn reset_block(&mut self) -> Result<&'static str, BoardError> {
        let Some(reset) = self.reset else {
            self.lost = true;
            return Ok("the board's file has no [reset]");
        };
        self.registers.write(reset.offset, reset.assert);
        std::thread::sleep(RESET_HELD);
        self.registers.write(reset.offset, reset.release);
        let until = Instant::now() + RESET_TIME;
        while self.state()? & LAUNCH != 0 {
            if Instant::now() >= until {
                self.lost = true;
                return Ok("it is still busy after a reset");
            }
            std::thread::sleep(PAUSE);
        }
        Ok("the accelerator was reset")
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
            let time = seconds(wall);
            Err(BoardError(format!(
                "the cycle counter says {cycles} after {time} at {clock_mhz} MHz, {limit}"
            )))
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
