//! Which instruction a design does otherwise than the cycle model.
//!
//! A prefix of the batch runs again from the same memory on both: its instructions as they are, with their tokens,
//! in their places, and idle ones in the places of the others, so that what is fetched and moved before stays as it
//! was. First the prefix is bisected to the STORE that first writes a wrong byte; then, over the accumulators that
//! it stores, to the instruction that first makes them wrong; then to the LOAD that brought what that one reads.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory, LayerMark, PAGE_BYTES, PhysAddr};
use vta_isa::resolve::TileSet;
use vta_isa::tokens::{At, pops, pushes};
use vta_isa::{Config, INSN_BYTES, Insn, Module};
use vta_sim::cycle::Run;

use super::compare::{Found, Two, copy, differences, regions};
use super::slice::{Brought, Slice};
use super::tail::{ELEM_BYTES, Tail, Way, reachable};
use crate::device::serial::{chain, idle, settle};
use crate::report::timed::insn_times;

/// A batch whose prefixes run again.
pub struct Search<'s, 't> {
    two: &'s mut Two<'t>,
    batch: &'s Batch,
    before: &'s DeviceMemory,
    /// In which its instructions start, without FINISH.
    order: Vec<u32>,
    slice: Slice<'s>,
    /// Where nothing of the network's lies.
    spare: u64,
}

impl<'s, 't> Search<'s, 't> {
    /// A search from the memory before the batch.
    ///
    /// # Errors
    /// In words, a batch that the model can't time.
    pub fn new(
        two: &'s mut Two<'t>,
        config: &'s Config,
        batch: &'s Batch,
        before: &'s DeviceMemory,
    ) -> Result<Self, String> {
        let order = order(two, batch)?;
        let insns = order.iter().map(|&index| batch.insns[index as usize]);
        let last = regions(before).last();
        let end = last.map_or(0, |(addr, bytes)| u64::from(addr) + bytes.len() as u64);
        Ok(Self {
            slice: Slice::new(config, insns.collect(), before),
            two,
            batch,
            before,
            order,
            spare: end.next_multiple_of(ELEM_BYTES),
        })
    }

    /// In words, which instruction is the first to compute, load or store otherwise.
    ///
    /// # Errors
    /// As [`Two::run`].
    pub fn wrong(&mut self) -> Result<String, String> {
        let nothing = self.tail();
        let all = self.order.len();
        let stored = self.first(all, |search, count| search.differs(count, &nothing))?;
        let Some(stored) = stored else {
            return Ok("the same instructions again do what the model's do".to_owned());
        };
        let stores = self.slice.touched(stored).map(|touched| touched.operand);
        let tiles = meet(
            &stores.unwrap_or(TileSet::EMPTY),
            &reachable(self.two.config),
        );
        if !matches!(self.insn(stored), Insn::Store(_)) || tiles.is_empty() {
            return Ok(self.is_first(stored, ""));
        }
        let Some(way) = self.believed(&tiles)? else {
            return self.unread(stored);
        };
        if !self.shown(stored, &tiles, way)? {
            return Ok(self.is_first(stored, "; what it stores is right until then"));
        }
        self.made(stored, tiles, way)
    }

    /// Which instruction made accumulators wrong that the one at a position reads.
    fn made(&mut self, reader: usize, tiles: TileSet, way: Way) -> Result<String, String> {
        let (mut reader, mut tiles) = (reader, tiles);
        loop {
            let shown = |search: &mut Self, count| search.shown(count, &tiles, way);
            let Some(maker) = self.first(reader, shown)? else {
                return Ok(self.is_first(reader, ""));
            };
            match self.insn(maker) {
                Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) => {}
                Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {
                    return Ok(self.is_first(maker, ""));
                }
            }
            let operand = self.slice.touched(maker).map(|touched| touched.operand);
            let operand = meet(
                &operand.unwrap_or(TileSet::EMPTY),
                &reachable(self.two.config),
            );
            if !self.shown(maker, &operand, way)? {
                return self.cause(maker, &tiles, way);
            }
            (reader, tiles) = (maker, operand);
        }
    }

    /// Whether an instruction that makes accumulators wrong computes otherwise, or reads what a LOAD brought
    /// wrong or too late.
    fn cause(&mut self, maker: usize, tiles: &TileSet, way: Way) -> Result<String, String> {
        let Some(touched) = self.slice.touched(maker) else {
            return Ok(self.is_first(maker, ""));
        };
        let mut changed = self.slice.written(maker);
        changed.add(&touched.written);
        let tiles = meet(tiles, &changed);
        let differs = |search: &mut Self, brought: &[Brought]| {
            let mut tail = search.tail();
            brought.iter().for_each(|brought| brought.again(&mut tail));
            tail.insns.push(search.insn(maker));
            tail.dump(&tiles, way);
            search.differs(maker, &tail)
        };
        if !differs(self, &[])? {
            let gives = |at: &usize| {
                let insn = self.insn(*at);
                insn.module() == Module::Load && insn.deps().push_next
            };
            let giver = (0..maker).rev().find(gives);
            let late = format!(
                "; {} is right once all before it are done",
                self.named(maker)
            );
            return Ok(self.is_first(giver.unwrap_or(maker), &late));
        }
        let now = self.ran(self.before, maker, &self.tail())?.1.expected;
        let brought = self.slice.brought(maker, &touched, &now);
        if differs(self, &brought)? {
            return Ok(self.is_first(maker, ""));
        }
        let mended = |search: &mut Self, count| Ok(!differs(search, &brought[..count])?);
        let load = self.first(brought.len(), mended)?;
        Ok(self.is_first(load.map_or(maker, |load| brought[load].position), ""))
    }

    /// The first instruction that takes other cycles, and how many more the design takes; `None` if they take the
    /// same now.
    ///
    /// # Errors
    /// As [`Two::run`].
    pub fn late(&mut self) -> Result<Option<(usize, i64)>, String> {
        let more = |search: &mut Self, count: usize| {
            let (_, found) = search.ran(search.before, count, &search.tail())?;
            let [design, model] = found.cycles.map(|cycles| cycles as i64);
            Ok::<_, String>(design - model)
        };
        let none = more(self, 0)?;
        let differs = |search: &mut Self, count| Ok(more(search, count)? != none);
        let Some(at) = self.first(self.order.len(), differs)? else {
            return Ok(None);
        };
        let by = more(self, at + 1)? - none;
        Ok(Some((self.order[at] as usize, by)))
    }

    /// A way to read accumulators by which both show the same of known ones, before anything of the batch has run.
    fn believed(&mut self, tiles: &TileSet) -> Result<Option<Way>, String> {
        for way in Way::ALL {
            let mut tail = self.tail();
            tail.noise(tiles);
            tail.dump(tiles, way);
            if !self.differs(0, &tail)? {
                return Ok(Some(way));
            }
        }
        Ok(None)
    }

    /// Whether accumulators that the first instructions have changed differ.
    fn shown(&mut self, count: usize, tiles: &TileSet, way: Way) -> Result<bool, String> {
        let tiles = meet(tiles, &self.slice.written(count));
        if tiles.is_empty() {
            return Ok(false);
        }
        let mut tail = self.tail();
        tail.dump(&tiles, way);
        self.differs(count, &tail)
    }

    /// What can be said where known accumulators aren't stored right either: a STORE that leaves bytes as they
    /// were is told by other bytes there before.
    fn unread(&mut self, stored: usize) -> Result<String, String> {
        let mut other = copy(self.before)?;
        let rows = self.insn(stored).dram_rows(self.two.config).into_iter();
        for row in rows.flat_map(|rows| rows.apart()) {
            let bytes = other.write(row.start, row.end - row.start);
            let bytes = bytes.map_err(|error| error.to_string())?;
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        let mut left = true;
        for before in [self.before, &other] {
            let (memory, found) = self.ran(before, stored + 1, &self.tail())?;
            left &= differences(&memory, &found.expected).all(|(addr, byte, _)| {
                let was = before.read(addr, 1);
                was.is_ok_and(|was| was[0] == byte)
            });
        }
        if left {
            return Ok(self.is_first(stored, ", which leaves bytes as they were"));
        }
        Ok(format!(
            "the first STORE of a wrong byte is {}; what it stores can't be judged, since known accumulators are \
             stored wrong, too",
            self.named(stored)
        ))
    }

    fn insn(&self, position: usize) -> Insn {
        self.batch.insns[self.order[position] as usize]
    }

    fn named(&self, position: usize) -> String {
        named(self.batch, self.order[position] as usize)
    }

    fn is_first(&self, position: usize, more: &str) -> String {
        let named = self.named(position);
        format!("the first instruction that does otherwise is {named}{more}")
    }

    fn tail(&self) -> Tail<'s> {
        Tail::at(self.slice.config, self.spare)
    }

    /// The last of the fewest that differ, of so many; the empty prefix is tried first.
    fn first(
        &mut self,
        count: usize,
        mut differs: impl FnMut(&mut Self, usize) -> Result<bool, String>,
    ) -> Result<Option<usize>, String> {
        if differs(self, 0)? {
            return Err("the two differ even without the batch's instructions".to_owned());
        }
        if !differs(self, count)? {
            return Ok(None);
        }
        let (mut same, mut other) = (0, count);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if differs(self, middle)? {
                other = middle;
            } else {
                same = middle;
            }
        }
        Ok(Some(same))
    }

    fn differs(&mut self, count: usize, tail: &Tail<'_>) -> Result<bool, String> {
        Ok(self.ran(self.before, count, tail)?.1.byte.is_some())
    }

    /// Runs a prefix and what shows its effects; the design's memory, and what was found.
    fn ran(
        &mut self,
        before: &DeviceMemory,
        count: usize,
        tail: &Tail<'_>,
    ) -> Result<(DeviceMemory, Found), String> {
        let insns = self.stream(count, tail);
        let words: Result<Vec<u128>, _> = insns.iter().map(Insn::encode).collect();
        let words = words.map_err(|error| error.to_string())?;
        let data = tail.bytes.len().next_multiple_of(PAGE_BYTES as usize);
        let mut bytes = tail.bytes.clone();
        bytes.resize(data, 0);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut memory = copy(before)?;
        let room = |error: &dyn std::fmt::Display| {
            format!(
                "there is no room behind the network's memory to look for the instruction: {error}"
            )
        };
        let place = u32::try_from(self.spare).map_err(|error| room(&error))?;
        let size = (data + insns.len() * INSN_BYTES) as u64;
        let mapped = memory.map(place, size);
        mapped.map_err(|error| room(&error))?;
        let to = memory.write(self.spare, size);
        to.map_err(|error| room(&error))?.copy_from_slice(&bytes);
        let batch = Batch {
            words,
            insns,
            insn_addr: PhysAddr(place + data as u32),
            marks: vec![LayerMark {
                name: String::new(),
                first_insn: 0,
            }],
        };
        let found = self.two.run(&Arc::new(batch), &mut memory)?.0;
        Ok((memory, found))
    }

    /// The first instructions of the order in their places, idle ones in those of the others, and behind them
    /// what shows their effects.
    fn stream(&self, count: usize, tail: &Tail<'_>) -> Vec<Insn> {
        let all = &self.batch.insns;
        let mut insns: Vec<Insn> = all.iter().map(|insn| idle(insn.module())).collect();
        let mut left = [0_u32; 4];
        for &index in &self.order[..count] {
            let insn = all[index as usize];
            insns[index as usize] = insn;
            // A prefix of the order has pushed what it pops.
            for edge in pops(insn.module(), insn.deps()) {
                left[edge as usize] = left[edge as usize].saturating_sub(1);
            }
            pushes(insn.module(), insn.deps()).for_each(|edge| left[edge as usize] += 1);
        }
        insns.extend(settle(left));
        let shown = tail.insns.iter().copied();
        insns.extend(chain(std::iter::once(idle(Module::Compute)).chain(shown)));
        insns
    }
}

/// The order in which a batch's instructions start by the model, which tokens allow: what runs before an instruction
/// is the same then, whether those behind it run or not.
fn order(two: &Two<'_>, batch: &Batch) -> Result<Vec<u32>, String> {
    let order = vta_isa::tokens::order(&batch.insns).map_err(|error| error.to_string())?;
    let mut order = order.indices;
    order.retain(|&index| !matches!(batch.insns[index as usize], Insn::Finish(_)));
    let run = Run {
        insns: &batch.insns,
        insn_addr: batch.insn_addr.0,
    };
    let times = insn_times(&two.machine.budget, &two.machine.timing, two.config, run);
    let times = times.map_err(|error| error.to_string())?;
    // Stable: what starts in one cycle stays in the order of the tokens.
    order.sort_by_key(|&index| times[index as usize].0);
    Ok(order)
}

/// Tiles that are in both.
fn meet(a: &TileSet, b: &TileSet) -> TileSet {
    let (mut both, mut only) = (a.clone(), a.clone());
    only.remove(b);
    both.remove(&only);
    both
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
