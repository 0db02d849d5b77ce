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
