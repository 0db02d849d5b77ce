//! The report's table of layers.

use maud::{Markup, html};
use vta_sim::views::{LayerCycles, losses};

use super::format::{self, bytes, grouped, percent, short};
use super::row::{Row, loss_list};
use super::svg;
use crate::timed::utilization;

/// A column: its heading, what that means, and its share of the table's width in thousandths.
struct Column {
    name: &'static str,
    hint: &'static str,
    width: u32,
}

const fn column(name: &'static str, hint: &'static str, width: u32) -> Column {
    Column { name, hint, width }
}

/// The table is as wide as the page, so that the last column is never cut.
const COLUMNS: [Column; 12] = [
    column("#", "Position in the program", 32),
    column("Layer", "The graph's name, and the layer's kind", 152),
    column(
        "Shape",
        "Channels, rows and columns of what it reads and of what it writes",
        98,
    ),
    column(
        "Cycles",
        "From the end of the layer before to its last result, and the share of the run's",
        82,
    ),
    column(
        "Spent on",
        "Uses of the compute module's cycles; sorts by the multiplying part",
        86,
    ),
    column(
        "Of bound",
        "Cycles over the largest of GEMM steps, beats that must be read, and store time",
        66,
    ),
    column(
        "Matrix unit",
        "Useful MACs over what the matrix unit could do",
        64,
    ),
    column("MACs", "Useful multiply-adds", 64),
    column("Read", "Bytes read from DRAM", 70),
    column("Written", "Bytes written to DRAM", 72),
    column("Energy", "Estimate", 72),
    column("Limited by", "What decides how long the layer takes", 142),
];

/// All layers, sortable by every column.
pub fn layers(rows: &[Row<'_>], total: &LayerCycles) -> Markup {
    html! {
        section {
            h2 { "Layers" }
            p.note { "Click a heading to sort, and the last column for the reasons in full." }
            div.scroll {
                table.sortable.layers {
                    colgroup {
                        @for column in &COLUMNS {
                            col style=(format!("width:{:.1}%", f64::from(column.width) / 10.0));
                        }
                    }
                    thead {
                        tr {
                            @for column in &COLUMNS {
                                th title=(column.hint) { button type="button" { (column.name) } }
                            }
                        }
                    }
                    tbody {
                        @for row in rows { (table_row(row, total)) }
                    }
                }
            }
        }
    }
}

fn table_row(row: &Row<'_>, total: &LayerCycles) -> Markup {
    let layer = row.layer;
    let share = layer.cycles as f64 / total.cycles.max(1) as f64;
    let used = utilization(layer, row.macs, 1);
    let read = layer.total_read_beats() * layer.bus_bytes;
    let written = layer.write_beats * layer.bus_bytes;
    let joules = row.energy.total_pj();
    let of_bound = row.of_bound();
    html! {
        tr {
            td.n data-v=(row.index) { (row.index) }
            td.name title=(layer.name) { (layer.name) br; small { (row.kind) } }
            td { (row.shape) }
            td.n data-v=(layer.cycles) { (grouped(layer.cycles)) br; small { (percent(share)) } }
            td.bar data-v=(layer.gemm_utilization()) { (svg::stacked(layer, 120, 12)) }
            td.n data-v=(of_bound) { (format!("{of_bound:.2}×")) }
            td.n data-v=(used) {
                @if row.macs > 0 { (percent(used)) } @else { "–" }
            }
            td.n data-v=(row.macs) {
                @if row.macs > 0 { (short(row.macs as f64)) } @else { "–" }
            }
            td.n data-v=(read) { (bytes(read)) }
            td.n data-v=(written) { (bytes(written)) }
            td.n data-v=(joules) { (format::joules(joules)) }
            td.why data-v=(row.verdict.resource) {
                details {
                    summary { span.tag { (row.verdict.resource) } " " small { (brief(layer)) } }
                    p { (row.verdict.words) }
                    (loss_list(&losses(layer)))
                }
            }
        }
    }
}

/// The largest loss in a few words.
fn brief(layer: &LayerCycles) -> String {
    let losses = losses(layer);
    let worst = losses.first().filter(|l| l.share >= 0.01);
    worst.map_or_else(String::new, |l| {
        format!("{} {}", percent(l.share), l.spend.words())
    })
}

#[cfg(test)]
mod tests {
    use vta_sim::views::{Spend, Verdict};

    use super::*;

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
        assert_eq!(COLUMNS.iter().map(|c| c.width).sum::<u32>(), 1000);
        for spend in Spend::ALL {
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
                macs: 8_888_888_888,
                verdict: Verdict::of(&layer),
                energy: vta_sim::views::Energy {
                    dram_pj: 98.76e9,
                    ..Default::default()
                },
                layer: &layer,
            };
            let html = table_row(&row, &layer).into_string();
            let cells: Vec<&str> = html.split("<td").skip(1).collect();
            assert_eq!(cells.len(), COLUMNS.len());
            for (column, cell) in COLUMNS.iter().zip(cells) {
                if cell.contains("<svg") {
                    continue;
                }
                // What unfolds may be broken anywhere.
                let shown = cell.split("</summary>").next().unwrap();
                let room = WIDTH * f64::from(column.width) / 1000.0 - PADDING;
                let needed = longest(shown) as f64 * LETTER;
                assert!(
                    needed <= room,
                    "{}: {needed} of {room}: {shown}",
                    column.name
                );
            }
        }
    }
}
