//! Which instruction a design does otherwise than the cycle model.
//!
//! The batch's instructions run again from the same memory, the first so many of them one after the other,
//! on both; the number is halved in until one instruction is left after which the two differ, though they
//! agreed before it. What is compared are all bytes of the memory and of the accumulators, or the cycles.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory, LayerMark, PAGE_BYTES, PhysAddr, RunReport, Runner};
use vta_hw_rtl::Rtl;
use vta_isa::tokens::At;
use vta_isa::{Config, INSN_BYTES, Insn, MemType};

use super::serial::{self, Probe};

/// The two that are compared.
pub struct Two<'a> {
    pub config: &'a Config,
    pub rtl: &'a mut Rtl,
    pub reference: &'a mut Runner,
    pub max_clocks: Option<u64>,
}

/// What both found of a run.
pub struct Found {
    /// The first byte that differs: address, the design's, the model's.
    pub byte: Option<(u64, u8, u8)>,
    /// Of the design and of the model.
    pub cycles: [u64; 2],
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
        let ran = vta_hw_rtl::run(self.rtl, self.config, self.max_clocks, batch, memory);
        let report = ran.map_err(|error| error.to_string())?;
        let cycles = [report.cycles, model.cycles].map(|cycles| cycles.unwrap_or(0));
        let byte = first_difference(memory, &expected);
        Ok((Found { byte, cycles }, report))
    }

    /// The instruction that does otherwise first: an index of the batch; `None` if one after the other they
    /// don't differ. What a LOAD brought to a scratchpad that can't be stored shows where it is first read, so
    /// that the LOAD is looked for from there.
    ///
    /// # Errors
    /// As [`Two::run`].
    pub fn wrong(&mut self, batch: &Batch, before: &DeviceMemory) -> Result<Option<usize>, String> {
        let order = order(batch)?;
        let differs = |two: &mut Self, indices: &[u32]| {
            let found = two.prefix(batch, before, insns(batch, indices), true)?;
            Ok::<_, String>(found.byte.is_some())
        };
        let found = self.first(order.len(), |two, count| differs(two, &order[..count]))?;
        let Some(shown) = found else {
            return Ok(None);
        };
        let insn = batch.insns[order[shown] as usize];
        let uops = match insn {
            Insn::Gemm(gemm) => gemm.uop_bgn..gemm.uop_end,
            Insn::Alu(alu) => alu.uop_bgn..alu.uop_end,
            Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {
                return Ok(Some(order[shown] as usize));
            }
        };
        let before_it: Vec<Insn> = insns(batch, &order[..shown]).collect();
        let direct = serial::uops(self.config, &before_it, uops);
        let among = |two: &mut Self, count: usize, direct: &[Insn]| {
            let row = before_it[..count]
                .iter()
                .chain(direct)
                .copied()
                .chain([insn]);
            // Without what the instructions in between load it may be none that runs.
            two.prefix(batch, before, row, true)
                .is_ok_and(|found| found.byte.is_some())
        };
        if among(self, 0, &direct) {
            return Ok(Some(order[shown] as usize));
        }
        let direct = match among(self, shown, &direct) {
            true => &direct[..],
            // Its micro-ops are those that are wrong.
            false => &[],
        };
        let load = self.first(shown, |two, count| Ok(among(two, count, direct)))?;
        let load = load.map(|at| order[at] as usize);
        let is_load = |index: &usize| matches!(batch.insns[*index], Insn::Load(_));
        Ok(Some(load.filter(is_load).unwrap_or(order[shown] as usize)))
    }

    /// The instruction that takes other cycles, and how many more the design takes; `None` if one after
    /// the other they take the same.
    ///
    /// # Errors
    /// As [`Two::run`].
    pub fn late(
        &mut self,
        batch: &Batch,
        before: &DeviceMemory,
    ) -> Result<Option<(usize, i64)>, String> {
        let order = order(batch)?;
        let more = |two: &mut Self, count: usize| {
            let found = two.prefix(batch, before, insns(batch, &order[..count]), false)?;
            let [design, model] = found.cycles.map(|cycles| cycles as i64);
            Ok::<_, String>(design - model)
        };
        let none = more(self, 0)?;
        let differs = |two: &mut Self, count| Ok(more(two, count)? != none);
        let Some(at) = self.first(order.len(), differs)? else {
            return Ok(None);
        };
        let by = more(self, at + 1)? - none;
        Ok(Some((order[at] as usize, by)))
    }

    /// The last of the fewest first that differ, in an order of so many.
    fn first(
        &mut self,
        count: usize,
        mut differs: impl FnMut(&mut Self, usize) -> Result<bool, String>,
    ) -> Result<Option<usize>, String> {
        if !differs(self, count)? {
            return Ok(None);
        }
        let (mut same, mut other) = (0, count);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            match differs(self, middle)? {
                true => other = middle,
                false => same = middle,
            }
        }
        Ok(Some(same))
    }

    /// Runs instructions, most of them a batch's, one after the other, on copies of the memory.
    fn prefix(
        &mut self,
        batch: &Batch,
        before: &DeviceMemory,
        row: impl Iterator<Item = Insn>,
        probed: bool,
    ) -> Result<Found, String> {
        let mut memory = copy(before)?;
        let probe_bytes = Probe::bytes(self.config);
        // As long as the longest: two between neighbours at most.
        let most = batch.insns.len() + self.config.depth(MemType::Uop);
        let words_bytes = ((3 * most + 64) * INSN_BYTES) as u64;
        let words_bytes = words_bytes.next_multiple_of(PAGE_BYTES);
        let filling = serial::filling(self.config);
        let first = behind(&memory);
        let place = u32::try_from(first).map_err(|_| no_room())?;
        let addr = first + filling.len() as u64;
        memory
            .map(place, addr - first + words_bytes + probe_bytes)
            .map_err(|error| format!("{}: {error}", no_room()))?;
        let to = memory.write(first, filling.len() as u64);
        to.map_err(|error| error.to_string())?
            .copy_from_slice(&filling);
        let place = u32::try_from(addr).map_err(|_| no_room())?;
        let probe = Probe::at(self.config, addr + words_bytes);
        let (head, tail) = match probed {
            true => (serial::fill(self.config, first), probe.insns(self.config)),
            false => (Vec::new(), Vec::new()),
        };
        let insns = serial::chain(head.into_iter().chain(row).chain(tail));
        let words: Result<Vec<u128>, _> = insns.iter().map(Insn::encode).collect();
        let words = words.map_err(|error| error.to_string())?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let to = memory.write(addr, bytes.len() as u64);
        to.map_err(|error| error.to_string())?
            .copy_from_slice(&bytes);
        let batch = Batch {
            words,
            insns,
            insn_addr: PhysAddr(place),
            marks: vec![LayerMark {
                name: String::new(),
                first_insn: 0,
            }],
        };
        Ok(self.run(&Arc::new(batch), &mut memory)?.0)
    }
}

fn no_room() -> String {
    "there is no room behind the network's memory to look for the instruction".to_owned()
}

/// Instructions of a batch, by index.
fn insns(batch: &Batch, indices: &[u32]) -> impl Iterator<Item = Insn> {
    indices.iter().map(|&index| batch.insns[index as usize])
}

/// The order in which a batch's instructions may run one after the other, without FINISH.
fn order(batch: &Batch) -> Result<Vec<u32>, String> {
    let order = vta_isa::tokens::order(&batch.insns).map_err(|error| error.to_string())?;
    let indices = order.indices.into_iter();
    let works = |index: &u32| !matches!(batch.insns[*index as usize], Insn::Finish(_));
    Ok(indices.filter(works).collect())
}

/// An instruction with its index and layer, in words.
pub fn named(batch: &Batch, index: usize) -> String {
    let insn = batch.insns[index];
    let at = At { index, insn };
    let after = batch.marks.partition_point(|mark| mark.first_insn <= index);
    match after.checked_sub(1).map(|mark| &batch.marks[mark].name) {
        Some(layer) => format!("{at} of layer {layer}"),
        None => at.to_string(),
    }
}

/// Regions of a memory, in ascending order.
fn regions(memory: &DeviceMemory) -> impl Iterator<Item = (u32, &[u8])> {
    let addresses = (0..).map_while(|region| Some((region, memory.address(region)?)));
    addresses.map(|(region, addr)| (addr, memory.region(region)))
}

/// The first address behind the last region that any element may have.
fn behind(memory: &DeviceMemory) -> u64 {
    let last = regions(memory).last();
    let end = last.map_or(0, |(addr, bytes)| u64::from(addr) + bytes.len() as u64);
    end.next_multiple_of(serial::ELEM_BYTES)
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

/// The first byte that differs, with both values.
fn first_difference(found: &DeviceMemory, expected: &DeviceMemory) -> Option<(u64, u8, u8)> {
    let mut both = regions(found).zip(regions(expected));
    both.find_map(|((addr, found), (_, expected))| {
        if found == expected {
            return None;
        }
        let at = found.iter().zip(expected).position(|(a, b)| a != b)?;
        Some((u64::from(addr) + at as u64, found[at], expected[at]))
    })
}
