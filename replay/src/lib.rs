//! Recorded device runs: loading them, running them again, comparing every byte.
//!
//! Two forms are recognised:
//!
//! - **runs of the original runtime**: `CASE.tar.gz`, a folder with `runNNN/` folders, or one
//!   such folder: `insns.bin`, `dram_map.json`, `dram_before.bin`, `dram_after.bin`,
//!   `config.json`. Everything that DRAM holds afterwards is compared, also where nothing
//!   should have changed. Instructions and micro-ops have [the original's
//!   layout](vta_isa::original) of `config.json`, unless `dram_map.json` says `"layout": "vta"`.
//! - **raw binaries of the standalone toolchain**: a folder with `instructions.bin`,
//!   `input.bin`, `weight.bin`, `uop.bin`, `accumulator.bin`, `expected_out.bin`, or with
//!   `instructions_LN.bin` and `base_addr_LN.csv` for each layer. It has one address space for
//!   each memory type; they are laid side by side and the instructions moved along. The stored
//!   tiles are compared.

mod case;
mod original;
pub mod spaces;
mod standalone;
mod traced;

use std::path::Path;

use self::case::list;
pub use self::case::{Case, DramBytes, ReplayError};
use vta_driver::{
    Batch, Device, DeviceMemory, DriverError, LayerMark, MemoryError, PhysAddr, RunReport, Work,
    WorkDone,
};

/// Differences that are kept.
const MAX_MISMATCHES: usize = 16;

/// A byte that isn't what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its address.
    pub addr: u64,
    /// What was recorded.
    pub expected: u8,
    /// What the device left.
    pub found: u8,
}

/// What a replay found.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// Bytes compared.
    pub bytes_compared: u64,
    /// Bytes that differ.
    pub bytes_different: u64,
    /// The first differences.
    pub mismatches: Vec<Mismatch>,
    /// The device's report; its `leftover_tokens` are legal in recorded streams.
    pub run: RunReport,
}

/// Loads every run of a case.
///
/// # Errors
/// [`ReplayError`] naming the file and what is wrong with it.
pub fn load(path: &Path) -> Result<Vec<Case>, ReplayError> {
    let text = path.display().to_string().to_ascii_lowercase();
    if text.ends_with(".tar.gz") || text.ends_with(".tgz") {
        return traced::from_archive(path);
    }
    if path.is_file() {
        return Err(ReplayError::no_case(path, "a .tar.gz or a folder"));
    }
    let files = list(path)?;
    if files
        .iter()
        .any(|f| f.starts_with("instructions") && f.ends_with(".bin"))
    {
        standalone::load(path, &files)
    } else {
        traced::from_folder(path)
    }
}

/// Runs a case on a device whose memory is unused, and frees it again, whatever fails.
///
/// # Errors
/// What the device reports: [`DriverError::Alloc`] when an allocation of the case is taken or
/// outside the device's memory.
pub fn run_case(case: &Case, device: &dyn Device) -> Result<CaseReport, DriverError> {
    let mut taken = 0;
    let allocated = case.allocations.iter().try_for_each(|(addr, size)| {
        device.alloc_at(*addr, *size)?;
        taken += 1;
        Ok(())
    });
    let report = allocated.and_then(|()| run_allocated(case, device));
    let freed = case
        .allocations
        .iter()
        .take(taken)
        .map(|(addr, _)| device.free(*addr));
    // All are freed before the first error is reported; the run's own comes first.
    let freed = freed.fold(Ok(()), Result::and);
    report.and_then(|report| freed.map(|()| report))
}

fn run_allocated(case: &Case, device: &dyn Device) -> Result<CaseReport, DriverError> {
    // A recorded region may run across neighbouring allocations.
    for &(start, size) in &case.allocations {
        for region in &case.before {
            let Some((offset, part)) = clip(region, start, size) else {
                continue;
            };
            let addr = PhysAddr(start.0 + offset as u32);
            device
                .submit(Work::Write {
                    addr,
                    data: part.into(),
                })?
                .wait()?;
        }
    }
    let batch = Batch {
        words: case.words.clone(),
        insns: case.insns.clone(),
        insn_addr: case.insn_addr,
        marks: vec![LayerMark {
            name: case.name.clone(),
            first_insn: 0,
        }],
    };
    let done = device.submit(Work::Run(batch.into()))?.wait()?;
    let WorkDone::Ran(run) = done else {
        return Err(DriverError::lost(&device.info().name));
    };
    let mut report = CaseReport {
        bytes_compared: 0,
        bytes_different: 0,
        mismatches: Vec::new(),
        run,
    };
    if case.complete {
        for &(addr, size) in &case.allocations {
            let mut expected = vec![0; size as usize];
            for region in case.before.iter().chain(&case.after) {
                if let Some((offset, part)) = clip(region, addr, size) {
                    expected[offset..offset + part.len()].copy_from_slice(part);
                }
            }
            compare(&mut report, device, addr, &expected)?;
        }
    } else {
        for region in &case.after {
            compare(&mut report, device, region.addr, &region.bytes)?;
        }
    }
    Ok(report)
}

impl Case {
    /// The DRAM of the run before it.
    ///
    /// # Errors
    /// [`MemoryError`] when allocations overlap.
    pub fn memory(&self) -> Result<DeviceMemory, MemoryError> {
        let mut memory = DeviceMemory::new();
        for &(start, size) in &self.allocations {
            memory.map(start.0, size)?;
            // A recorded region may run across neighbouring allocations.
            let parts = self.before.iter().filter_map(|r| clip(r, start, size));
            for (offset, part) in parts {
                let first = u64::from(start.0) + offset as u64;
                let bytes = memory.write(first, part.len() as u64)?;
                bytes.copy_from_slice(part);
            }
        }
        Ok(memory)
    }
}

/// The part of a region that lies inside an allocation, and where it starts there.
fn clip(region: &DramBytes, start: PhysAddr, size: u64) -> Option<(usize, &[u8])> {
    let (start, first) = (u64::from(start.0), u64::from(region.addr.0));
    let from = first.max(start);
    let to = (first + region.bytes.len() as u64).min(start.saturating_add(size));
    if from >= to {
        return None;
    }
    let part = &region.bytes[(from - first) as usize..(to - first) as usize];
    Some(((from - start) as usize, part))
}

fn compare(
    report: &mut CaseReport,
    device: &dyn Device,
    addr: PhysAddr,
    expected: &[u8],
) -> Result<(), DriverError> {
    let read = Work::Read {
        addr,
        size_bytes: expected.len() as u64,
    };
    let WorkDone::Data(found) = device.submit(read)?.wait()? else {
        return Err(DriverError::lost(&device.info().name));
    };
    report.bytes_compared += expected.len() as u64;
    if found == expected {
        return Ok(());
    }
    for (offset, (&expected, &found)) in expected.iter().zip(&found).enumerate() {
        if expected != found {
            report.bytes_different += 1;
            if report.mismatches.len() < MAX_MISMATCHES {
                let addr = u64::from(addr.0) + offset as u64;
                report.mismatches.push(Mismatch {
                    addr,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vta_isa::Config;

    use super::*;

    use vta_driver::NullDevice;

    #[test]
    fn a_case_that_cannot_be_placed_leaves_no_allocation() {
        let device = NullDevice::with_config(Config::default());
        let before = device.free_bytes();
        let page = |n: u32| (PhysAddr(n * 4096), 4096);
        let mut case = Case {
            name: "case".into(),
            config: Config::default(),
            words: vec![],
            insns: vec![],
            insn_addr: PhysAddr(0),
            allocations: vec![page(1), page(3), page(5)],
            before: vec![],
            after: vec![],
            complete: true,
        };
        assert_eq!(run_case(&case, &device).unwrap().bytes_compared, 3 * 4096);
        assert_eq!(device.free_bytes(), before);
        for clash in [page(1), page(3), (PhysAddr(0), 0), (PhysAddr(u32::MAX), 2)] {
            case.allocations[2] = clash;
            let error = run_case(&case, &device).unwrap_err();
            assert!(matches!(error, DriverError::Alloc { .. }), "{clash:?}");
            assert_eq!(device.free_bytes(), before, "{clash:?}");
        }
    }
}
