//! An image on a board: placed, given inputs, run, read.

use crate::board::{RegisterLayout, Visibility};
use crate::image::{Image, Tensor, below, round_up};
use crate::insn::Places;
use crate::isa::INSN_BYTES;
use crate::pack::Tiles;
use crate::stats::{BatchStats, Stats};
use crate::{Board, Fault, Status};

const CONTROL: u32 = 0x00;
const CYCLES: u32 = 0x04;
const INSN_COUNT: u32 = 0x08;
const INSN_ADDRESS: u32 = 0x0c;
/// Of micro-ops, inputs, weights, accumulators, outputs.
const BASES: u32 = 5;
const LAUNCH: u32 = 1;
const FINISHED: u32 = 2;

/// What an image needs of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of the window.
    pub window_bytes: u64,
    /// What the addresses of the window, and of an image's constants in place, must be multiples of.
    pub align: u32,
}

impl Image<'_> {
    /// What the image needs of memory.
    pub fn needs(&self, constants: Visibility) -> Needs {
        Needs {
            window_bytes: self.insns_offset(constants)
                + u64::from(INSN_BYTES) * u64::from(self.insns),
            align: self.align,
        }
    }

    /// Where the window has the constants: behind the network's buffers.
    fn constants_offset(&self) -> u64 {
        round_up(self.work, self.align).into()
    }

    /// Where the window has the instructions: behind all else.
    fn insns_offset(&self, constants: Visibility) -> u64 {
        let copied = match constants {
            Visibility::Copied => round_up(self.constants, self.align),
            Visibility::InPlace(_) => 0,
        };
        self.constants_offset() + u64::from(copied)
    }
}

/// A network on a board.
pub struct Runtime<'i, B> {
    image: Image<'i>,
    board: B,
    constants: Visibility,
    /// Where the window has the instructions.
    insns_offset: u32,
    /// The batch that the next step runs.
    next: u32,
    /// Whether a batch was given up, so that the accelerator may still be at work.
    given_up: bool,
    stats: Stats,
}

impl<'i, B: Board> Runtime<'i, B> {
    /// Checks the image and the board's memory, clears the network's buffers, and places
    /// instructions and, where they are copied, constants.
    ///
    /// # Errors
    /// Those of [`Image::read`], [`Status::Window`], [`Status::Alignment`], [`Status::Address`].
    /// Nothing is written before all is checked.
    pub fn open(bytes: &'i [u8], board: B, constants: Visibility) -> Result<Self, Fault> {
        let image = Image::read(bytes)?;
        let needs = image.needs(constants);
        let (has, wanted) = (board.window_bytes(), needs.window_bytes);
        Fault::of(Status::Window, 0, has, wanted).unless(has >= wanted)?;
        let mut runtime = Self {
            insns_offset: u32::try_from(image.insns_offset(constants)).unwrap_or(u32::MAX),
            image,
            board,
            constants,
            next: 0,
            given_up: false,
            stats: Stats::default(),
        };
        runtime.check_addresses(needs)?;
        runtime.place()?;
        Ok(runtime)
    }

    fn check_addresses(&self, needs: Needs) -> Result<(), Fault> {
        let align = u64::from(needs.align);
        let most = match self.board.layout() {
            RegisterLayout::Narrow => 1 << 32,
            // Micro-ops are what instructions address the fewest bytes of.
            RegisterLayout::Wide => 1 << 34,
        };
        let places = self.places();
        let window = (self.board.window_bus(), needs.window_bytes);
        let constants = (places.constants, self.image.constants.into());
        for (start, bytes) in [window, constants] {
            Fault::of(Status::Alignment, 0, start, align).unless(start & (align - 1) == 0)?;
            let end = start.saturating_add(bytes);
            Fault::of(Status::Address, 0, end, most).unless(end <= most)?;
        }
        Ok(())
    }

    /// Where the constants and the network's buffers are on the bus.
    fn places(&self) -> Places {
        let work = self.board.window_bus();
        let constants = match self.constants {
            Visibility::Copied => work.saturating_add(self.image.constants_offset()),
            Visibility::InPlace(image) => image.saturating_add(self.image.constants_at.into()),
        };
        Places { constants, work }
    }

    /// Writes all that the window holds before the first run.
    fn place(&mut self) -> Result<(), Fault> {
        let (regions, places) = (self.image.regions(), self.places());
        let mut at = 0;
        while at < self.image.work {
            let zeros = [0; 64];
            let some = (self.image.work - at).min(64);
            self.board
                .put(at, zeros.get(..some as usize).unwrap_or_default());
            at += some;
        }
        if self.constants == Visibility::Copied {
            let at = self.image.constants_offset() as u32;
            self.board.put(at, self.image.constant_bytes());
        }
        for index in 0..self.image.insns {
            let moved = self.image.insn(index).moved(&regions, &places);
            let [low, high] = moved.ok_or(Fault::of(Status::ImageInsn, index, 0, 0))?.0;
            let at = self.insns_offset + INSN_BYTES * index;
            self.board.put(at, &low.to_le_bytes());
            self.board.put(at + 8, &high.to_le_bytes());
        }
        let end = self.insns_offset + INSN_BYTES * self.image.insns;
        self.board.clean(0, end);
        Ok(())
    }

    /// The image.
    pub fn image(&self) -> &Image<'i> {
        &self.image
    }

    /// The board.
    pub fn board(&mut self) -> &mut B {
        &mut self.board
    }

    /// An input.
    ///
    /// # Errors
    /// [`Status::Index`] beyond the last.
    pub fn input(&self, index: u32) -> Result<Tensor<'i>, Fault> {
        below(index, self.image.inputs)?;
        self.image.tensor_at(index)
    }

    /// An output.
    ///
    /// # Errors
    /// [`Status::Index`] beyond the last.
    pub fn output(&self, index: u32) -> Result<Tensor<'i>, Fault> {
        below(index, self.image.outputs)?;
        self.image.tensor_at(self.image.inputs + index)
    }

    /// Gives a row of the batch its values of an input, in C, H, W order. They stay until others
    /// are given, unless the network's own buffers share their place, which they don't.
    ///
    /// # Errors
    /// [`Status::Index`], [`Status::Length`]; then nothing is written.
    pub fn write_input(&mut self, index: u32, row: u32, values: &[i8]) -> Result<(), Fault> {
        let tensor = self.input(index)?;
        let tiles = self.tiles(row)?;
        tiles.pack(&tensor, values, &mut self.board)?;
        self.board.clean(tensor.offset, tensor.bytes);
        Ok(())
    }

    /// Takes a row's values of an output, in C, H, W order.
    ///
    /// # Errors
    /// [`Status::Index`], [`Status::Length`].
    pub fn read_output(&mut self, index: u32, row: u32, values: &mut [i8]) -> Result<(), Fault> {
        let tensor = self.output(index)?;
        let tiles = self.tiles(row)?;
        self.board.discard(tensor.offset, tensor.bytes);
        tiles.unpack(&tensor, values, &mut self.board)
    }

    fn tiles(&self, row: u32) -> Result<Tiles, Fault> {
        let (log_batch, log_block) = (self.image.log_batch, self.image.log_block);
        below(row, 1 << log_batch)?;
        Ok(Tiles {
            log_batch,
            log_block,
            row,
        })
    }

    /// Runs the rest of a pass: all batches, unless steps ran some. `batches` has the counts of
    /// each; a shorter one has those of the first.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn run(&mut self, batches: &mut [BatchStats]) -> Result<(), Fault> {
        while self.step(batches)? > 0 {}
        Ok(())
    }

    /// Runs the next batch of the pass; how many are left of it.
    ///
    /// # Errors
    /// [`Status::Busy`], [`Status::Hung`], [`Status::Counter`], [`Status::Bus`]. The next step
    /// begins a new pass; after [`Status::Hung`] there is none before [`Self::recover`].
    pub fn step(&mut self, batches: &mut [BatchStats]) -> Result<u32, Fault> {
        if self.image.batches == 0 {
            self.stats.runs = self.stats.runs.saturating_add(1);
            return Ok(0);
        }
        let index = core::mem::replace(&mut self.next, 0);
        let stats = self.image.batch(index)?.stats;
        let (cycles, ticks) = match self.submit(index) {
            Ok(took) => took,
            Err(fault) => {
                let count = match fault.status {
                    Status::Hung => &mut self.stats.hung,
                    Status::Counter => &mut self.stats.wrong_counters,
                    Status::Busy => &mut self.stats.busy,
                    _ => &mut self.stats.bus_errors,
                };
                *count = count.saturating_add(1);
                return Err(fault);
            }
        };
        self.stats.add(&stats, cycles, ticks);
        if let Some(all) = batches.get_mut(index as usize) {
            *all = BatchStats {
                runs: all.runs.saturating_add(1),
                cycles: all.cycles.saturating_add(cycles),
                ticks: all.ticks.saturating_add(ticks),
                ..stats
            };
        }
        let left = self.image.batches - index - 1;
        match left {
            0 => self.stats.runs = self.stats.runs.saturating_add(1),
            _ => self.next = index + 1,
        }
        Ok(left)
    }

    /// Launches a batch and waits for it; its cycles and ticks.
    fn submit(&mut self, index: u32) -> Result<(u64, u64), Fault> {
        let batch = self.image.batch(index)?;
        let count = batch.stats.insns;
        let address = self.board.window_bus()
            + u64::from(self.insns_offset)
            + u64::from(INSN_BYTES) * u64::from(batch.first_insn);
        let busy = self.control()? & LAUNCH != 0 || self.given_up;
        Fault::of(Status::Busy, index, 0, 0).unless(!busy)?;
        let wide = self.board.layout() == RegisterLayout::Wide;
        let words = if wide { 2 } else { 1 };
        self.board.write_register(CYCLES, 0);
        self.board.write_register(INSN_COUNT, count);
        self.board.write_register(INSN_ADDRESS, address as u32);
        if wide {
            let high = (address >> 32) as u32;
            self.board.write_register(INSN_ADDRESS + 4, high);
        }
        for base in 1..=BASES * words {
            let at = INSN_ADDRESS + 4 * (words - 1) + 4 * base;
            self.board.write_register(at, 0);
        }
        for (register, value) in [(INSN_COUNT, count), (INSN_ADDRESS, address as u32)] {
            let found = self.board.read_register(register);
            let fault = Fault::of(Status::Bus, register, found.into(), value.into());
            fault.unless(found == value)?;
        }
        let start = self.board.ticks();
        self.board.write_register(CONTROL, LAUNCH);
        let ticks = self.wait(index, start)?;
        let cycles = self.board.read_register(CYCLES);
        // Fetching an instruction takes a cycle at least.
        let short = self.board.counts() && cycles < count;
        Fault::of(Status::Counter, index, cycles.into(), count.into()).unless(!short)?;
        Ok((cycles.into(), ticks))
    }

    /// Polls until the batch has finished; the ticks since `start`.
    fn wait(&mut self, index: u32, start: u64) -> Result<u64, Fault> {
        let deadline = self.board.deadline();
        loop {
            let finished = self.control()? & FINISHED != 0;
            let ticks = self.board.ticks().wrapping_sub(start);
            if finished {
                return Ok(ticks);
            }
            if ticks > deadline {
                self.given_up = true;
                return Err(Fault::of(Status::Hung, index, ticks, deadline));
            }
        }
    }

    /// The control register, which has no other bits than two.
    fn control(&mut self) -> Result<u32, Fault> {
        let found = self.board.read_register(CONTROL);
        let fault = Fault::of(Status::Bus, CONTROL, found.into(), 0);
        fault.unless(found & !(LAUNCH | FINISHED) == 0)?;
        Ok(found)
    }

    /// To be called when the board has reset the accelerator, after [`Status::Hung`] or
    /// [`Status::Busy`]: clears the control register and writes the window anew, inputs too.
    ///
    /// # Errors
    /// [`Status::Busy`] when the accelerator still says that it is at work, [`Status::Bus`].
    pub fn recover(&mut self) -> Result<(), Fault> {
        self.next = 0;
        self.board.write_register(CONTROL, 0);
        let busy = self.control()? & LAUNCH != 0;
        Fault::of(Status::Busy, 0, 0, 0).unless(!busy)?;
        self.given_up = false;
        self.place()
    }

    /// What was counted since the counts were cleared.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Clears the counts.
    pub fn clear_stats(&mut self) {
        self.stats = Stats::default();
    }
}
