//! A batch on a design and on the cycle model: which bytes differ, and by how many cycles.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory, RunReport, Runner};
use vta_hw_rtl::{Moved, Rtl};
use vta_isa::Config;

use crate::device::machine::Machine;

/// The two that are compared.
pub struct Two<'a> {
    pub config: &'a Config,
    pub rtl: &'a mut Rtl,
    pub reference: &'a mut Runner,
    /// Whose time the model takes.
    pub machine: &'a Machine,
}

/// A byte that differs: address, the design's, the model's.
pub type Byte = (u64, u8, u8);

/// What both found of a run.
pub struct Found {
    /// The first byte that differs.
    pub byte: Option<Byte>,
    /// Of the design and of the model.
    pub cycles: [u64; 2],
    /// What the design moved.
    pub moved: Moved,
    /// The model's memory.
    pub expected: DeviceMemory,
}

impl Two<'_> {
    /// Runs a batch on both; the design's memory is `memory`.
    ///
    /// # Errors
    /// In words, what either says.
    pub fn run(
        &mut self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
    ) -> Result<(Found, RunReport), String> {
        let mut expected = copy(memory)?;
        let model = (self.reference)(batch, &mut expected)?;
        let ran = vta_hw_rtl::run(
            self.rtl,
            self.config,
            Some(self.machine.budget.cycles),
            batch,
            memory,
        );
        let (report, moved) = ran.map_err(|error| error.to_string())?;
        let byte = differences(memory, &expected).next();
        let found = Found {
            byte,
            cycles: [report.cycles, model.cycles].map(|cycles| cycles.unwrap_or(0)),
            moved,
            expected,
        };
        Ok((found, report))
    }
}

/// Regions of a memory, in ascending order.
pub fn regions(memory: &DeviceMemory) -> impl Iterator<Item = (u32, &[u8])> {
    let addresses = (0..).map_while(|region| Some((region, memory.address(region)?)));
    addresses.map(|(region, addr)| (addr, memory.region(region)))
}

/// A memory of the same bytes.
///
/// # Errors
/// In words, when the host has no room for them.
pub fn copy(memory: &DeviceMemory) -> Result<DeviceMemory, String> {
    let mut other = DeviceMemory::new();
    for (region, (addr, bytes)) in regions(memory).enumerate() {
        let mapped = other.map(addr, bytes.len() as u64);
        mapped.map_err(|error| error.to_string())?;
        other.region_mut(region).copy_from_slice(bytes);
    }
    Ok(other)
}

/// The bytes that differ, ascending.
pub fn differences(found: &DeviceMemory, expected: &DeviceMemory) -> impl Iterator<Item = Byte> {
    let both = regions(found).zip(regions(expected));
    let unequal = both.filter(|((_, found), (_, expected))| found != expected);
    unequal.flat_map(|((addr, found), (_, expected))| {
        let bytes = (u64::from(addr)..).zip(found.iter().zip(expected));
        let differing = bytes.filter(|(_, (found, expected))| found != expected);
        differing.map(|(addr, (found, expected))| (addr, *found, *expected))
    })
}
