//! Runs in the original's layout of their configuration, translated to this project's.

use std::ops::Range;

use vta_driver::{PAGE_BYTES, PhysAddr};
use vta_isa::original::{Layout, UopCopies};
use vta_isa::resolve::{covers, disjoint};
use vta_isa::{INSN_BYTES, Insn, UOP_BYTES};

use super::case::{Case, DramBytes, ReplayError};

/// The case with its micro-ops translated. They are copies behind everything else, so that all
/// recorded bytes stay what they are; the instructions, which are translated already, load these.
///
/// # Errors
/// Micro-ops that can't be known before the run or are in no allocation, regions that overlap, no
/// room for the copies.
pub(super) fn with_uops(mut case: Case, layout: &Layout) -> Result<Case, ReplayError> {
    let invalid = |reason: String| ReplayError::new(&case.name, reason);
    let copies = UopCopies::of(&case.config, &case.insns);
    let copies = copies.map_err(|error| invalid(error.to_string()))?;
    let size = copies.size_bytes();
    if size == 0 {
        return Ok(case);
    }
    let dram = Dram::of(&case.before).ok_or_else(|| invalid("two regions overlap".to_owned()))?;
    let allocated = case.allocations.iter();
    let mut allocated: Vec<Range<u64>> = allocated
        .map(|(start, size)| range(*start, *size))
        .collect();
    allocated.sort_unstable_by_key(|bytes| bytes.start);
    let mut bytes = Vec::with_capacity(size as usize);
    for (index, row) in copies.rows() {
        if !covers(&allocated, &row) {
            let (start, end) = (row.start, row.end);
            let text = format!(
                "instruction {index}: micro-ops at {start:#x}..{end:#x} are in no allocation"
            );
            return Err(invalid(text));
        }
        dram.read(row, &mut bytes);
    }
    layout.uops_to_ours(bytes.as_chunks_mut::<UOP_BYTES>().0);

    let insns_end = u64::from(case.insn_addr.0) + (case.words.len() * INSN_BYTES) as u64;
    let ends = allocated.iter().map(|bytes| bytes.end);
    let addr = ends.fold(insns_end, u64::max).next_multiple_of(PAGE_BYTES);
    let room = addr.saturating_add(size.next_multiple_of(PAGE_BYTES)) <= u64::from(u32::MAX);
    let none = || {
        invalid(format!(
            "no room for {size} bytes of micro-ops from {addr:#x} on"
        ))
    };
    let addr = u32::try_from(addr).ok().filter(|_| room).ok_or_else(none)?;

    copies.redirect(&mut case.insns, addr);
    let words = case
        .insns
        .iter()
        .map(Insn::encode)
        .collect::<Result<_, _>>();
    case.words = words.map_err(|error| ReplayError::new(&case.name, error))?;
    let addr = PhysAddr(addr);
    case.allocations
        .push((addr, size.next_multiple_of(PAGE_BYTES)));
    case.before.push(DramBytes { addr, bytes });
    Ok(case)
}

/// Memory before a run: zero but for regions, which are apart and ascend.
struct Dram<'c>(Vec<&'c DramBytes>);

impl<'c> Dram<'c> {
    /// `None` where two regions overlap: then a search couldn't skip any.
    fn of(regions: &'c [DramBytes]) -> Option<Self> {
        let mut sorted: Vec<&DramBytes> = regions.iter().collect();
        sorted.sort_by_key(|region| region.addr.0);
        disjoint(sorted.iter().map(|region| place(region)).collect()).then_some(Self(sorted))
    }

    fn read(&self, from: Range<u64>, to: &mut Vec<u8>) {
        let first = to.len();
        to.resize(first + (from.end - from.start) as usize, 0);
        let to = &mut to[first..];
        let behind = self
            .0
            .partition_point(|region| place(region).end <= from.start);
        let touching = self.0[behind..]
            .iter()
            .map(|region| (place(region), region));
        for (at, region) in touching.take_while(|(at, _)| at.start < from.end) {
            let part = at.start.max(from.start)..at.end.min(from.end);
            let [source, target] = [at.start, from.start]
                .map(|start| (part.start - start) as usize..(part.end - start) as usize);
            to[target].copy_from_slice(&region.bytes[source]);
        }
    }
}

fn place(region: &DramBytes) -> Range<u64> {
    range(region.addr, region.bytes.len() as u64)
}

fn range(start: PhysAddr, size: u64) -> Range<u64> {
    let start = u64::from(start.0);
    start..start.saturating_add(size)
}
