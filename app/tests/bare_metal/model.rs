//! A model of the control registers over the simulator: what a board is to the runtime.

use vta_driver::{DeviceMemory, PhysAddr};
use vta_isa::{Config, Insn};
use vta_rt::{Board, RegisterLayout};
use vta_sim::cycle::{Silent, TimingConfig, simulate};
use vta_sim::{Executor, Functional};

/// What goes wrong on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaks {
    Nothing,
    /// It never finishes.
    Hangs,
    /// Its cycle counter stays at zero.
    CounterStands,
    /// Its cycle counter counts too little.
    CounterLags,
    /// Registers read as ones.
    Bus,
    /// The instruction address isn't kept.
    Address,
}

/// The accelerator: registers, memory as it sees it, and the simulator behind.
pub struct Accelerator {
    config: Config,
    functional: Functional,
    pub memory: DeviceMemory,
    /// Whether cycles are simulated; else they are the instructions.
    pub timed: bool,
    /// Cycles of all batches.
    pub cycles: u64,
    pub batches: u64,
}

impl Accelerator {
    pub fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            functional: Functional::new(config.clone()),
            memory: DeviceMemory::new(),
            timed: true,
            cycles: 0,
            batches: 0,
        }
    }

    /// The instructions at an address.
    pub fn insns(&self, address: u32, count: u32) -> Vec<Insn> {
        let bytes = self.memory.read(address.into(), u64::from(count) * 16);
        let words = bytes.unwrap().chunks_exact(16);
        let words = words.map(|word| u128::from_le_bytes(word.try_into().unwrap()));
        words.map(|word| Insn::decode(word).unwrap()).collect()
    }

    /// Runs a batch; its cycles.
    pub fn run(&mut self, PhysAddr(address): PhysAddr, count: u32) -> u32 {
        let insns = self.insns(address, count);
        self.functional.run(&insns, &[], &mut self.memory).unwrap();
        let timing = TimingConfig::default();
        let cycles = match self.timed {
            true => {
                simulate(&timing, &self.config, &insns, address, &mut Silent)
                    .unwrap()
                    .cycles
            }
            false => count.into(),
        };
        self.cycles += cycles;
        self.batches += 1;
        u32::try_from(cycles).unwrap()
    }
}

/// The registers and the window.
pub struct Model {
    pub accelerator: Accelerator,
    pub breaks: Breaks,
    registers: [u32; 16],
    layout: RegisterLayout,
    bus: u32,
    bytes: u64,
    ticks: u64,
}

impl Model {
    pub fn new(config: &Config, bus: u32, bytes: u64) -> Self {
        let mut accelerator = Accelerator::new(config);
        accelerator.memory.map(bus, bytes).unwrap();
        Self {
            accelerator,
            breaks: Breaks::Nothing,
            registers: [0; 16],
            layout: RegisterLayout::Narrow,
            bus,
            bytes,
            ticks: 0,
        }
    }

    /// With address registers of 64 bits.
    pub fn wide(mut self) -> Self {
        self.layout = RegisterLayout::Wide;
        self
    }

    /// Shows the accelerator some bytes at an address.
    pub fn show(mut self, address: u32, bytes: &[u8]) -> Self {
        let (memory, len) = (&mut self.accelerator.memory, bytes.len() as u64);
        memory.map(address, len).unwrap();
        let shown = memory.write(address.into(), len).unwrap();
        shown.copy_from_slice(bytes);
        self
    }

    /// What a reset of the board does.
    pub fn reset(&mut self) {
        self.breaks = Breaks::Nothing;
        self.registers = [0; 16];
    }

    fn launch(&mut self) {
        if self.breaks == Breaks::Hangs {
            return;
        }
        let bases = match self.layout {
            RegisterLayout::Narrow => &self.registers[4..9],
            RegisterLayout::Wide => &self.registers[4..15],
        };
        assert!(bases.iter().all(|&base| base == 0), "{bases:x?}");
        let address = PhysAddr(self.registers[3]);
        let cycles = self.accelerator.run(address, self.registers[2]);
        self.registers[1] = match self.breaks {
            Breaks::CounterStands => 0,
            Breaks::CounterLags => self.registers[2] - 1,
            _ => cycles,
        };
        self.registers[0] = 2;
    }
}

impl Board for Model {
    fn layout(&self) -> RegisterLayout {
        self.layout
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        match self.breaks {
            Breaks::Bus => u32::MAX,
            _ => self.registers[offset as usize / 4],
        }
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        let kept = match (self.breaks, offset) {
            (Breaks::Address, 0x0c) => value & 0xffff,
            _ => value,
        };
        self.registers[offset as usize / 4] = kept;
        if (offset, value) == (0, 1) {
            self.launch();
        }
    }

    fn ticks(&mut self) -> u64 {
        self.ticks += 3;
        self.ticks
    }

    fn deadline(&self) -> u64 {
        100
    }

    fn window_bytes(&self) -> u64 {
        self.bytes
    }

    fn window_bus(&self) -> u64 {
        self.bus.into()
    }

    fn put(&mut self, offset: u32, bytes: &[u8]) {
        let at = u64::from(self.bus) + u64::from(offset);
        if bytes.is_empty() {
            return;
        }
        let to = self.accelerator.memory.write(at, bytes.len() as u64);
        to.unwrap().copy_from_slice(bytes);
    }

    fn get(&mut self, offset: u32) -> u8 {
        let at = u64::from(self.bus) + u64::from(offset);
        self.accelerator.memory.read(at, 1).unwrap()[0]
    }
}
