//! The report's table of layers.

use maud::{Markup, html};
use vta_sim::views::{LayerCycles, losses};

use super::row::{Row, loss_list};
use super::svg;
use crate::report::format::{self, bytes, grouped, percent, short};
use crate::report::timed::utilization;

/// A heading, what it means, and its share of the table's width in thousandths.
type Column = (&'static str, &'static str, u32);

/// The table is as wide as the page, so that the last column is never cut.
const COLUMNS: [Column; 12] = [
    ("#", "Position in the program", 32),
    ("Layer", "The graph's name, and the layer's kind", 152),
    (
        "Shape",
        "Channels, rows and columns of what it reads and of what it writes",
        98,
    ),
    (
        "Cycles",
        "From the end of the layer before to its last result, and the share of the run's",
        82,
    ),
    (
        "Spent on",
        "Uses of the compute module's cycles; sorts by the multiplying part",
        86,
    ),
    (
        "Of bound",
        "Cycles over the largest of GEMM steps, beats that must be read, and store time",
        66,
    ),
    (
        "Matrix unit",
        "Useful MACs over what the matrix unit could do; with taps on padding, which it leaves out",
        64,
    ),
    ("MACs", "Useful multiply-adds", 64),
    ("Read", "Bytes read from DRAM", 70),
    ("Written", "Bytes written to DRAM", 72),
    ("Energy", "Estimate", 72),
    ("Limited by", "What decides how long the layer takes", 142),
];

/// Why a layer's useful multiply-adds may be more than the matrix unit could do in its cycles.
const OVER: &str =
    "Over 100 %: taps on padding count as useful, and the matrix unit leaves them out";

/// All layers, sortable by every column.
pub fn layers(rows: &[Row<'_>], total: &LayerCycles) -> Markup {
    html! {
        section {
            h2 { "Layers" }
            p.note { "Click a heading to sort, and the last column for the reasons in full." }
            div.scroll {
                table.sortable.layers {
                    colgroup {
                        @for (_, _, width) in COLUMNS {
                            col style=(format!("width:{:.1}%", f64::from(width) / 10.0));
                        }
                    }
                    thead {
                        tr {
                            @for (name, hint, _) in COLUMNS {
                                th title=(hint) { button type="button" { (name) } }
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
                @if used > 1.0 { br; small title=(OVER) { "padding" } }
            }
            td.n data-v=(row.macs) {
                @if row.macs > 0 { (short(row.macs)) } @else { "–" }
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
mod tests;
