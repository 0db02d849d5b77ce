use vta_sim::views::Spend;

use super::*;
use crate::report::timed::verdict;

/// Width of the table in a window of 1280 pixels with a scroll bar.
const WIDTH: f64 = 1178.0;
/// Padding at both sides of a cell, and a letter's width, at most.
const PADDING: f64 = 12.0;
const LETTER: f64 = 8.2;

/// Letters of the longest part of a cell that isn't broken.
fn longest(cell: &str) -> usize {
    let numbers = cell.starts_with(" class=\"n\"");
    let cell = cell.split_once('>').unwrap().1;
    let mut text = String::new();
    let mut inside = false;
    for c in cell.chars() {
        match c {
            '<' => {
                inside = true;
                text.push('\n');
            }
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    // Narrow blanks of grouped digits take a third of a letter.
    let width = |word: &str| {
        let narrow = word.matches('\u{202f}').count();
        word.chars().count() - narrow + narrow.div_ceil(3)
    };
    let break_at = |c: char| c == '\n' || (!numbers && (c == ' ' || c == '→'));
    text.split(break_at).map(width).max().unwrap_or(0)
}

#[test]
fn every_column_holds_its_widest_cell_in_a_window_of_1280_pixels() {
    assert_eq!(COLUMNS.iter().map(|(_, _, width)| width).sum::<u32>(), 1000);
    let macs = [0, 8_888_888_888, 88_888_888_888];
    for (spend, macs) in Spend::ALL.into_iter().flat_map(|s| macs.map(|m| (s, m))) {
        let mut layer = LayerCycles {
            name: "n".to_owned(),
            cycles: 88_888_888,
            bus_bytes: 8,
            write_beats: 11_234_567,
            macs_per_step: 256,
            ..LayerCycles::default()
        };
        layer.bound.gemm_cycles = 7_200_000;
        layer.spend[spend as usize] = layer.cycles;
        let row = Row {
            index: 158,
            kind: "maxpool",
            shape: "2048×112×112 → 2048×112×112".to_owned(),
            macs,
            verdict: verdict(&layer, macs),
            energy: vta_sim::views::Energy {
                dram_pj: 98.76e9,
                ..Default::default()
            },
            layer: &layer,
        };
        let html = table_row(&row, &layer).into_string();
        assert_eq!(
            html.contains(OVER),
            macs > layer.cycles * layer.macs_per_step
        );
        assert_eq!(html.contains("as adder"), macs == 0 && spend == Spend::Gemm);
        let cells: Vec<&str> = html.split("<td").skip(1).collect();
        assert_eq!(cells.len(), COLUMNS.len());
        for ((name, _, width), cell) in COLUMNS.into_iter().zip(cells) {
            if cell.contains("<svg") {
                continue;
            }
            // What unfolds may be broken anywhere.
            let shown = cell.split("</summary>").next().unwrap();
            let room = WIDTH * f64::from(width) / 1000.0 - PADDING;
            let needed = longest(shown) as f64 * LETTER;
            assert!(needed <= room, "{name}: {needed} of {room}: {shown}");
        }
    }
}
