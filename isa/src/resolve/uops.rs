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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Gemm;

    /// Sixteen micro-ops at byte 0x1000, of destinations 1 to 16.
    struct Dram {
        bytes: Vec<u8>,
        /// Not known.
        dark: Range<u64>,
    }

    impl Dram {
        fn new(dark: Range<u64>) -> Self {
            let bytes = (1..=16u32).flat_map(u32::to_le_bytes).collect();
            Self { bytes, dark }
        }
    }

    impl UopDram for Dram {
        fn uop_bytes(&self, bytes: Range<u64>) -> Option<&[u8]> {
            let dark = bytes.start < self.dark.end && self.dark.start < bytes.end;
            let at = |byte: u64| usize::try_from(byte.checked_sub(0x1000)?).ok();
            let (first, end) = (at(bytes.start)?, at(bytes.end)?);
            self.bytes.get(first..end).filter(|_| !dark)
        }
    }

    fn config() -> Config {
        Config::default()
    }

    fn load(sram_base: u16, dram_base: u32, [y_size, x_size, x_stride]: [u16; 3]) -> Load {
        Load {
            mem: MemType::Uop,
            sram_base,
            dram_base,
            y_size,
            x_size,
            x_stride,
            ..Load::default()
        }
    }

    fn dsts(uops: Uops<'_>) -> Vec<u16> {
        uops.known.iter().map(|u| u.dst).collect()
    }

    #[test]
    fn rows_strides_and_padding_land_where_the_device_puts_them() {
        let padded = Load {
            y_pad_0: 1,
            x_pad_1: 1,
            ..load(2, 0x400, [2, 2, 5])
        };
        let mut pad = UopScratchpad::new(vec![Uop::default(); 16], Origin::Unknown);
        pad.fill(&config(), &padded, &Dram::new(0..0));
        let uops = pad.range(2, 11).unwrap();
        assert!(!uops.some_unknown && !uops.from_before);
        assert_eq!(dsts(uops), [0, 0, 0, 1, 2, 0, 6, 7, 0]);
        // Entries never loaded, and loaded from where nothing is known.
        assert!(pad.range(0, 2).unwrap().some_unknown);
        let mixed = pad.range(0, 7).unwrap();
        assert_eq!(
            (dsts(mixed), mixed.some_unknown),
            (vec![0, 0, 0, 1, 2], true)
        );
        pad.fill(&config(), &load(12, 0x500, [1, 1, 1]), &Dram::new(0..0));
        assert!(pad.range(12, 13).unwrap().some_unknown);
        pad.fill(
            &config(),
            &load(5, 0x400, [1, 2, 2]),
            &Dram::new(0x1004..0x1005),
        );
        assert!(pad.range(5, 7).unwrap().some_unknown);
        let faults = [(0, 17), (3, 2)].map(|(bgn, end)| pad.range(bgn, end).is_err());
        assert_eq!(faults, [true; 2]);
        // What leaves the scratchpad does nothing.
        pad.fill(&config(), &load(10, 0x400, [1, 7, 7]), &Dram::new(0..0));
        assert!(pad.range(10, 11).is_ok_and(|u| dsts(u) == [0]));
    }

    #[test]
    fn what_a_batch_finds_is_told_from_what_it_loads() {
        let before: Vec<Uop> = (20..30)
            .map(|dst| Uop {
                dst,
                ..Uop::default()
            })
            .collect();
        let mut pad = UopScratchpad::holding(before);
        pad.fill(&config(), &load(4, 0x400, [1, 2, 2]), &Dram::new(0..0));
        let uops = pad.range(3, 6).unwrap();
        assert_eq!((dsts(uops), uops.from_before), (vec![23, 1, 2], true));
        pad.fill(&config(), &load(3, 0x404, [1, 1, 1]), &Dram::new(0..0));
        assert!(!pad.range(3, 6).unwrap().from_before);
        let found = pad.found();
        assert_eq!(
            found.iter().map(|(at, u)| (*at, u.dst)).collect::<Vec<_>>(),
            [(3, 23)]
        );
        let loaded: Vec<_> = pad.loaded().collect();
        let dst = |dst| Uop {
            dst,
            ..Uop::default()
        };
        assert_eq!(loaded, [(3, dst(5)), (4, dst(1)), (5, dst(2))]);
        assert!(pad.holds(&loaded) && !pad.holds(&found));
        pad.begin();
        assert!(pad.range(4, 5).unwrap().from_before && pad.loaded().next().is_none());
        pad.restore(&found);
        assert!(pad.holds(&found));
        pad.begin_cleared();
        let uops = pad.range(3, 5).unwrap();
        assert_eq!((dsts(uops), uops.from_before), (vec![0, 0], false));
    }

    #[test]
    fn ranges_of_micro_ops_are_checked_before_anything_else() {
        let config = Config::default();
        let mut pad = UopScratchpad::unknown(&config);
        let resolve = |pad: &mut UopScratchpad, uop_bgn, uop_end| {
            let gemm = Gemm {
                uop_bgn,
                uop_end,
                ..Gemm::default()
            };
            pad.resolve(&config, &gemm.into()).map(|_| ())
        };
        let depth = config.depth(MemType::Uop);
        assert_eq!(resolve(&mut pad, 0, depth as u16), Ok(()));
        assert_eq!(
            resolve(&mut pad, 9000, 9000),
            Ok(()),
            "an empty range is none"
        );
        let backwards = Fault::UopRange { bgn: 3, end: 2 };
        assert_eq!(resolve(&mut pad, 3, 2), Err(backwards));
        let beyond = Fault::Scratchpad {
            field: "uop_end",
            value: depth as u64,
            scratchpad: "uop",
            depth,
        };
        assert_eq!(resolve(&mut pad, 0, depth as u16 + 1), Err(beyond));
    }

    proptest! {
        #[test]
        fn entries_are_those_of_the_last_load(
            loads in prop::collection::vec((0u16..16, 0u32..20, 1u16..4, 0u16..6), 0..12),
        ) {
            let dram = Dram::new(0..0);
            let mut pad = UopScratchpad::holding(vec![Uop { dst: 99, ..Uop::default() }; 16]);
            let mut expected = [99u16; 16];
            for (to, from, rows, cols) in loads {
                pad.fill(&config(), &load(to, 0x400 + from, [rows, cols, 2]), &dram);
                let (to, from) = (usize::from(to), from as usize);
                let shape = [usize::from(rows), usize::from(cols)];
                if to + shape[0] * shape[1] > 16 || from + 2 * (shape[0] - 1) + shape[1] > 16 {
                    // What isn't there is unknown, and is not compared.
                    prop_assume!(to + shape[0] * shape[1] > 16);
                    continue;
                }
                for y in 0..shape[0] {
                    for x in 0..shape[1] {
                        expected[to + y * shape[1] + x] = (from + 2 * y + x + 1) as u16;
                    }
                }
            }
            prop_assert_eq!(dsts(pad.range(0, 16).unwrap()), expected);
        }
    }
}
