//! Programs in text with their micro-ops, and the texts of what is found.

use vta_driver::DeviceMemory;
use vta_isa::{Config, Uop, asm};
use vta_sim::hazards::{self, Report, UopSource};

/// Where the hand-written programs' micro-ops lie; `dram_base` of their LOAD UOP.
pub const UOP_ADDR: u32 = 0x1000;

pub fn memory(uops: &[(u16, u16, u16)]) -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    memory.map(UOP_ADDR, 4096).unwrap();
    for (i, &(dst, src, wgt)) in uops.iter().enumerate() {
        let word = Uop { dst, src, wgt }.encode().unwrap();
        let bytes = memory.write(u64::from(UOP_ADDR) + 4 * i as u64, 4).unwrap();
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    memory
}

pub fn check(text: &str, uops: &[(u16, u16, u16)]) -> Report {
    let insns = asm::parse(text).unwrap();
    hazards::check(&Config::default(), &insns, UopSource::Memory(&memory(uops))).unwrap()
}

pub fn texts(report: &Report) -> Vec<String> {
    report.hazards.iter().map(ToString::to_string).collect()
}

/// Loads the first four micro-ops into entries 0..4 of the scratchpad.
pub const UOPS: &str = "load.uop dram_base=0x400 y_size=1 x_size=4 x_stride=4\n";

pub const ALL_UOPS: [(u16, u16, u16); 2] = [(0, 0, 0), (0, 2, 3)];
