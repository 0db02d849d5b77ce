//! The micro-op scratchpad, followed without running the program.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Fault, Resolved, Uops};
use crate::{Config, Insn, Load, MemType, UOP_BYTES, Uop};

/// Where the contents of the micro-op scratchpad are read from.
pub trait UopDram {
    /// The DRAM bytes of a range, as they are when a LOAD UOP reads them; `None` if they aren't
    /// known. A device would refuse those outside of all allocations, and whoever reads checks
    /// that.
    fn uop_bytes(&self, bytes: Range<u64>) -> Option<&[u8]>;
}

/// How an entry of the scratchpad came to be what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From bytes that nobody knows, or from before a program of which nothing is known.
    Unknown,
    /// From before this batch.
    Before,
    /// From before, and the batch has used it.
    Found,
    /// From a LOAD of this batch.
    Loaded,
}

/// What each entry of the micro-op scratchpad holds, as far as it is known, and which entries a
/// batch relies on without having loaded them.
#[derive(Clone, Debug)]
pub struct UopScratchpad {
    entries: Vec<Uop>,
    origins: Vec<Origin>,
    found: BTreeMap<usize, Uop>,
    /// The known ones of a range that has others.
    known: Vec<Uop>,
}

impl UopScratchpad {
    /// A scratchpad of which nothing is known.
    pub fn unknown(config: &Config) -> Self {
        let depth = config.depth(MemType::Uop);
        Self::new(vec![Uop::default(); depth], Origin::Unknown)
    }

    /// A scratchpad with these entries before the batch.
    pub fn holding(entries: Vec<Uop>) -> Self {
        Self::new(entries, Origin::Before)
    }

    fn new(entries: Vec<Uop>, origin: Origin) -> Self {
        Self {
            origins: vec![origin; entries.len()],
            entries,
            found: BTreeMap::new(),
            known: Vec::new(),
        }
    }

    /// Begins a batch that finds what the last one left.
    pub fn begin(&mut self) {
        for origin in &mut self.origins {
            if *origin != Origin::Unknown {
                *origin = Origin::Before;
            }
        }
        self.found.clear();
    }

    /// Begins a batch on a device whose scratchpad is zero then.
    pub fn begin_cleared(&mut self) {
        self.entries.fill(Uop::default());
        self.origins.fill(Origin::Loaded);
        self.found.clear();
    }

    /// What a LOAD UOP does, if it stays inside the scratchpad; other LOADs do nothing here.
    pub fn fill(&mut self, config: &Config, load: &Load, dram: &impl UopDram) {
        let end = load.sram_span().end;
        if load.mem != MemType::Uop || end > self.entries.len() as u64 {
            return;
        }
        for piece in load.fills(config) {
            let entries = &mut self.entries[piece.entries.clone()];
            let bytes = piece.from.map(|from| dram.uop_bytes(from));
            let origin = match bytes {
                None => {
                    entries.fill(Uop::default());
                    Origin::Loaded
                }
                Some(Some(bytes)) => {
                    let words = bytes.as_chunks::<UOP_BYTES>().0;
                    for (entry, word) in entries.iter_mut().zip(words) {
                        *entry = Uop::decode(u32::from_le_bytes(*word));
                    }
                    Origin::Loaded
                }
                Some(None) => Origin::Unknown,
            };
            self.origins[piece.entries].fill(origin);
        }
    }

    /// The micro-ops `bgn..end` of an instruction, which relies on them from now on.
    ///
    /// # Errors
    /// [`Fault`] when `end` is below `bgn` or beyond the scratchpad.
    pub fn range(&mut self, bgn: u16, end: u16) -> Result<Uops<'_>, Fault> {
        super::check_uop_range(bgn, end, self.entries.len())?;
        // An empty range may lie anywhere.
        let first = usize::from(bgn).min(self.entries.len());
        let range = first..first + usize::from(end - bgn);
        let origins = &mut self.origins[range.clone()];
        let mut uops = Uops::of(&self.entries[range.clone()]);
        if origins.iter().all(|o| *o == Origin::Loaded) {
            return Ok(uops);
        }
        for (index, origin) in range.clone().zip(&mut *origins) {
            match origin {
                Origin::Before => {
                    *origin = Origin::Found;
                    self.found.insert(index, self.entries[index]);
                    uops.from_before = true;
                }
                Origin::Found => uops.from_before = true,
                Origin::Unknown => uops.some_unknown = true,
                Origin::Loaded => {}
            }
        }
        if uops.some_unknown {
            let all = self.entries[range].iter().zip(origins);
            let known = all.filter(|(_, origin)| **origin != Origin::Unknown);
            self.known.clear();
            self.known.extend(known.map(|(uop, _)| *uop));
            uops.known = &self.known;
        }
        Ok(uops)
    }

    /// An instruction with its micro-ops, checked against the scratchpads' bounds. A LOAD UOP has
    /// done nothing yet: [`Self::fill`] does it, once whoever asks knows that its DRAM is there.
    ///
    /// # Errors
    /// [`Fault`]: an index that leaves its scratchpad.
    pub fn resolve<'u>(&'u mut self, config: &Config, insn: &Insn) -> Result<Resolved<'u>, Fault> {
        Resolved::of(config, insn, self.uops_of(insn)?)
    }

    /// The micro-ops of an instruction alone; a LOAD, STORE or FINISH has none.
    ///
    /// # Errors
    /// As for [`Self::range`].
    pub fn uops_of(&mut self, insn: &Insn) -> Result<Uops<'_>, Fault> {
        match super::uop_range(insn) {
            Some((bgn, end)) => self.range(bgn, end),
            None => Ok(Uops::of(&[])),
        }
    }

    /// What the batch used and hadn't loaded itself: entry and contents, ascending. The same
    /// batch does the same when it finds the same.
    pub fn found(&self) -> Vec<(usize, Uop)> {
        self.found.iter().map(|(&at, &uop)| (at, uop)).collect()
    }

    /// What the batch has loaded: entry and contents, ascending.
    pub fn loaded(&self) -> impl Iterator<Item = (usize, Uop)> + '_ {
        let all = self.entries.iter().zip(&self.origins).enumerate();
        let loaded = all.filter(|(_, (_, origin))| **origin == Origin::Loaded);
        loaded.map(|(at, (uop, _))| (at, *uop))
    }

    /// Whether the scratchpad holds these entries.
    pub fn holds(&self, entries: &[(usize, Uop)]) -> bool {
        entries.iter().all(|&(at, uop)| self.entries[at] == uop)
    }

    /// Overwrites entries with what an earlier run of the same batch left.
    pub fn restore(&mut self, entries: &[(usize, Uop)]) {
        for &(at, uop) in entries {
            self.entries[at] = uop;
        }
    }
}

#[cfg(test)]
mod tests;
