//! A listing as a page: one file that needs nothing else. Layers and micro-ops are folded.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use vta_files::printable;
use vta_isa::Uop;
use vta_program::listing::{Columns, ListedLayer, Listing};

/// What a reader of instructions has to know first.
pub const LEGEND: &str = "pop_prev and pop_next wait for a token of the module before or behind, in the order load, \
                          compute, store; push_prev and push_next give one. A load or store without y_size does \
                          nothing else";

const STYLE: &str = include_str!("listing_html/page.css");

/// Instructions of a layer that are shown; the page says how many there are beyond.
const MAX_INSNS: usize = 2000;
/// Instructions and micro-ops that are shown in all.
const MAX_ROWS: usize = 40_000;

/// The whole file. All text from models is escaped.
pub fn page(title: &str, listing: &Listing) -> String {
    let mut room = MAX_ROWS;
    let mut number = 0;
    let layers: Vec<Markup> = listing
        .layers
        .iter()
        .map(|layer| {
            let shown = layer.insns.len().min(MAX_INSNS).min(room);
            room -= shown;
            let markup = of_layer(listing, layer, number, shown);
            number += layer.insns.len();
            markup
        })
        .collect();
    let uops: usize = listing.kernels.iter().map(Vec::len).sum();
    let config = &listing.config;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Listing of " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p {
                    (config.batch()) "×" (config.block()) "×" (config.block()) " matrix unit; "
                    (listing.layers.len()) " layers, " (listing.len()) " instructions, " (uops)
                    " micro-ops. Coordinates are blocks of channels, rows and columns; \
                     ranges end before their last number."
                }
                p { (LEGEND) "." }
                details { summary { "DRAM" } (buffers(listing)) }
                @for layer in &layers { (layer) }
                (kernels(listing, room))
            }
        }
    };
    markup.into_string()
}

fn buffers(listing: &Listing) -> Markup {
    html! {
        table {
            thead { tr { th { "buffer" } th { "for" } th { "bytes" } th { "tensors" } } }
            tbody {
                @for (index, buffer) in (0..).zip(&listing.buffers) {
                    tr {
                        td { (printable(&buffer.name)) }
                        td { (format!("{:?}", buffer.kind).to_lowercase()) }
                        td { (format!("0x{:x}..0x{:x}", buffer.start, buffer.start + buffer.bytes)) }
                        td {
                            @for tensor in listing.tensors.iter().filter(|t| t.buffer == index) {
                                (printable(&tensor.name)) " "
                                (format!("{:?} at 0x{:x} ", tensor.tiles, tensor.start))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of_layer(listing: &Listing, layer: &ListedLayer, first: usize, shown: usize) -> Markup {
    let columns = match shown {
        // They cost as much for a few lines as for all.
        0 => Vec::new(),
        _ => Columns::of(listing, layer),
    };
    let rows = layer.insns.iter().zip(&columns).take(shown).enumerate();
    let left = layer.insns.len() - shown;
    html! {
        details {
            summary {
                b { (printable(&layer.name)) } " " (printable(&layer.kind)) ", "
                (layer.insns.len()) " instructions"
            }
            table {
                thead {
                    tr {
                        th { "#" } th { "tile" } th { "instruction" } th { "operands" } th { "DRAM" }
                        th { "scratchpads" }
                    }
                }
                tbody {
                    @for (at, (listed, columns)) in rows {
                        tr {
                            td { (first + at) }
                            td { (listed.tile) }
                            td {
                                code { (listed.insn) }
                                @if let Some(kernel) = listed.kernel { " kernel " (kernel) }
                            }
                            td { (columns.operands) }
                            td { (columns.dram) }
                            td { (columns.scratchpad) }
                        }
                    }
                }
            }
            @if left > 0 { p { (left) " more instructions are in the listing as .csv alone." } }
        }
    }
}

fn kernels(listing: &Listing, mut room: usize) -> Markup {
    let shown: Vec<_> = listing
        .kernels
        .iter()
        .take_while(|uops| {
            let fits = uops.len() <= room;
            room = room.saturating_sub(uops.len());
            fits
        })
        .collect();
    let left = listing.kernels.len() - shown.len();
    html! {
        details {
            summary { b { "Micro-ops" } " " (listing.kernels.len()) " kernels" }
            @for (kernel, uops) in shown.iter().enumerate() {
                h3 { "kernel " (kernel) }
                p { code {
                    @for (at, Uop { dst, src, wgt }) in uops.iter().enumerate() {
                        span { (at) ": dst=" (dst) " src=" (src) " wgt=" (wgt) } " "
                    }
                } }
            }
            @if left > 0 { p { (left) " more kernels are in the listing as .csv alone." } }
        }
    }
}
