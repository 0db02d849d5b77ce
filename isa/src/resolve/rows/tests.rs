use proptest::prelude::*;

use super::*;

fn load(base: u32, [y_size, x_size, x_stride]: [u16; 3]) -> Load {
    Load {
        dram_base: base,
        y_size,
        x_size,
        x_stride,
        ..Load::default()
    }
}

#[test]
fn rows_that_touch_or_repeat_are_one() {
    let config = Config::default();
    let spans = |base, shape| -> Vec<(u64, u64)> {
        let rows = load(base, shape).dram_rows(&config);
        let rows = rows.into_iter().flat_map(|rows| rows.apart());
        rows.map(|r| (r.start, r.end)).collect()
    };
    assert_eq!(spans(2, [3, 4, 4]), [(32, 224)]);
    assert_eq!(spans(2, [3, 4, 0]), [(32, 96)]);
    assert_eq!(spans(0, [2, 1, 3]), [(0, 16), (48, 64)]);
    assert!(spans(0, [0, 4, 4]).is_empty() && spans(0, [4, 0, 4]).is_empty());
    let last = spans(u32::MAX, [u16::MAX; 3]);
    assert_eq!(last[0].0, u64::from(u32::MAX) * 16);
}

#[test]
fn stored_bytes_are_those_of_all_stores() {
    let config = Config::default();
    let store = |dram_base, x_size, x_stride| {
        let y_size = 2;
        Insn::from(Store {
            dram_base,
            y_size,
            x_size,
            x_stride,
            ..Store::default()
        })
    };
    let insns = [
        store(8, 1, 4),
        load(0, [1, 9, 9]).into(),
        store(9, 1, 9),
        store(3, 0, 1),
    ];
    assert_eq!(
        stored_bytes(&config, &insns),
        [128..160, 192..208, 288..304]
    );
}

#[test]
fn many_changes_become_one_that_covers_them() {
    let mut changed = Changed::default();
    (0..MAX_CHANGED as u64).for_each(|i| changed.add(10 * i..10 * i + 1));
    assert!(changed.meets(&(10..11)) && !changed.meets(&(11..20)));
    changed.add(0..1);
    assert!(!changed.meets(&(11..20)), "nothing new");
    changed.add(9999..10000);
    assert!(changed.meets(&(11..20)) && !changed.meets(&(10000..20000)));
}

proptest! {
    #[test]
    fn rows_and_entries_are_those_of_a_walk_over_elements(
        (y, x, stride) in (0u16..5, 0u16..5, 0u16..9),
        pads in [0u8..3, 0u8..3, 0u8..3, 0u8..3],
        sram_base in 0u16..9,
    ) {
        let config = Config::default();
        let load = Load {
            mem: MemType::Uop,
            sram_base,
            y_pad_0: pads[0],
            y_pad_1: pads[1],
            x_pad_0: pads[2],
            x_pad_1: pads[3],
            ..load(7, [y, x, stride])
        };
        let mut expected = Vec::new();
        let mut touched = [false; 400];
        let width = i32::from(pads[2]) + i32::from(x) + i32::from(pads[3]);
        let height = i32::from(pads[0]) + i32::from(y) + i32::from(pads[1]);
        if x > 0 && y > 0 {
            for at in 0..width * height {
                let row = at / width - i32::from(pads[0]);
                let col = at % width - i32::from(pads[2]);
                let inside = (0..i32::from(y)).contains(&row) && (0..i32::from(x)).contains(&col);
                let byte = 4 * (7 + row * i32::from(stride) + col);
                expected.push(inside.then_some(byte as u64));
                if inside {
                    touched[byte as usize..byte as usize + 4].fill(true);
                }
            }
        }
        let mut found = Vec::new();
        for piece in load.fills(&config) {
            prop_assert_eq!(piece.entries.start, usize::from(sram_base) + found.len());
            for i in 0..piece.entries.len() {
                found.push(piece.from.as_ref().map(|from| from.start + 4 * i as u64));
            }
            let bytes = piece.from.map_or(piece.entries.len() as u64 * 4, |f| f.end - f.start);
            prop_assert_eq!(bytes, piece.entries.len() as u64 * 4);
        }
        prop_assert_eq!(found.len() as u64, load.sram_tiles());
        prop_assert_eq!(found, expected);
        let rows = load.dram_rows(&config);
        let mut apart = [false; 400];
        let mut end = None;
        for range in rows.iter().flat_map(Rows::apart) {
            prop_assert!(end < Some(range.start));
            end = Some(range.end);
            apart[range.start as usize..range.end as usize].fill(true);
        }
        prop_assert_eq!(apart, touched);
        if let Some(rows) = rows {
            let first = touched.iter().position(|t| *t).unwrap_or(0) as u64;
            let last = touched.iter().rposition(|t| *t).unwrap_or(0) as u64;
            prop_assert_eq!(rows.span(), first..last + 1);
            let moved: u64 = rows.iter().map(|r| r.end - r.start).sum();
            let distinct = touched.iter().filter(|t| **t).count() as u64;
            prop_assert_eq!(rows.overlap(), moved > distinct);
        }
    }
}
