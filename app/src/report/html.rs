//! The report of a timed run: one HTML file that needs nothing else.

mod host;
mod labels;
mod roofline;
mod row;
mod svg;
mod table;

use std::borrow::Cow;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use vta_driver::Program;
use vta_isa::Config;
use vta_sim::cycle::{Client, StallReason, TimingConfig, Unit};
use vta_sim::views::{Costs, Energy, LayerCycles, Roofline, Spend, losses};

use crate::report::format::{self, bytes, grouped, percent, short};
use crate::report::timed::{Report, utilization};
pub(crate) use svg::columns as busy;

use row::{Row, loss_list, rows};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/sort.js");

/// Layers that get a card of their own.
const CARDS: usize = 6;

/// The whole file. All text from models is escaped.
pub fn page(timed: &Report) -> String {
    let (title, program) = (&timed.title, &*timed.program);
    let rows = rows(program, timed);
    let total = timed.total();
    let macs = rows.iter().map(|row| row.macs).sum();
    let used = utilization(&total, macs, 1);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " on " (timed.board) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head(title, &program.config, timed))
                    (tiles(program, timed, macs, &total))
                    (where_cycles_go(&total, used))
                    (host::host(timed))
                    section {
                        h2 { "Over time" }
                        p.note {
                            "Share of each slice of time in which a unit is busy. "
                            "The strip on top shows the layers in the colour of what takes most \
                             of their cycles."
                        }
                        (svg::timeline(timed))
                    }
                    section.two {
                        div {
                            h2 { "Roofline" }
                            p.note {
                                "Multiply-adds a cycle against multiply-adds for each byte read. \
                                 Larger dots take more cycles; numbers are those of the table."
                            }
                            (roofline::roofline(
                                &Roofline::new(&program.config, &timed.timing), &timed.layers,
                            ))
                        }
                        (energy(
                            &timed.costs, &total.energy(&timed.costs),
                            timed.costs.area_mm2(&program.config, &timed.timing),
                        ))
                    }
                    (slowest(&rows))
                    (table::layers(&rows, &total))
                    (stalls(&total))
                    (machine(&program.config, &timed.timing, &total))
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    markup.into_string()
}

fn head(title: &str, config: &Config, timed: &Report) -> Markup {
    let timing = &timed.timing;
    html! {
        header {
            h1 { (title) }
            p {
                (config.batch()) "×" (config.block()) "×" (config.block()) " matrix unit, "
                (timing.bus_bytes * 8) "-bit bus, board " b { (timed.board) }
                " at " (timing.clock_mhz) " MHz"
            }
        }
    }
}

fn tile(name: &str, value: &str, note: &str) -> Markup {
    html! { div.tile { span { (name) } strong { (value) } small { (note) } } }
}

fn tiles(program: &Program, timed: &Report, macs: u64, total: &LayerCycles) -> Markup {
    let ms = timed.device_ms();
    let images = program.config.batch() as f64;
    let hosted = !timed.host.layers.is_empty();
    let cycles = if hosted {
        format!("{}, {ms:.2} ms", grouped(total.cycles))
    } else {
        grouped(total.cycles)
    };
    let a_second = |ms: f64| format!("{:.1} images a second", images * 1e3 / ms.max(1e-9));
    let bound = timed.bound_cycles();
    let joules = total.energy(&timed.costs).total_pj();
    let fetched = bytes(total.read_beats[Client::Fetch as usize] * total.bus_bytes);
    let instructions = format!("with {fetched} of {} instructions", grouped(total.insns));
    html! {
        div.tiles {
            (tile("Cycles", &short(total.cycles), &cycles))
            @if hosted {
                (tile("Time with the host", &format!("≈ {:.1} ms", timed.pass_ms()),
                    &format!("about {}", a_second(timed.pass_ms()))))
            } @else {
                (tile("Time", &format!("{ms:.2} ms"), &a_second(ms)))
            }
            (tile("Of the bound", &format!("{:.2}×", total.cycles as f64 / bound.max(1) as f64),
                &format!("bound {}", grouped(bound))))
            (tile("Matrix unit", &percent(utilization(total, macs, 1)),
                &format!("{} useful MACs", short(macs))))
            (tile("DRAM", &bytes(total.dram_bytes()), &instructions))
            (tile("Energy", &format::joules(joules), "estimate, see below"))
        }
    }
}

fn where_cycles_go(total: &LayerCycles, used: f64) -> Markup {
    let reasons = losses(total);
    html! {
        section {
            h2 { "Where the cycles go" }
            p.note {
                "Every cycle of the compute module, by what it does. The matrix unit multiplies in "
                (percent(total.gemm_utilization())) " of them. Useful MACs are " (percent(used))
                " of its peak: they count taps on padding, which take no step, but not biases and residuals, \
                 which may."
            }
            (svg::stacked(total, 1000, 34))
            (legend(total))
            h3 { "The biggest three reasons for lost cycles" }
            ol.reasons {
                @for loss in reasons.iter().take(3) {
                    li {
                        strong { (percent(loss.share)) }
                        div {
                            b { (capital(loss.spend.words())) } " "
                            span.note { (grouped(loss.cycles)) " cycles" }
                            p { (capital(&loss.words)) "." }
                        }
                    }
                }
            }
        }
    }
}

fn legend(total: &LayerCycles) -> Markup {
    html! {
        ul.legend {
            @for spend in Spend::ALL {
                @if total.spent(spend) > 0 {
                    li {
                        i class={ "k" (spend as usize) } {}
                        (capital(spend.words())) " "
                        b { (percent(total.spent(spend) as f64 / total.cycles.max(1) as f64)) }
                    }
                }
            }
        }
    }
}

/// The layers that lose most cycles, each with its reasons.
fn slowest(rows: &[Row<'_>]) -> Markup {
    let lost = |row: &Row<'_>| row.layer.cycles.saturating_sub(row.layer.bound.cycles());
    // The device spends no cycles on layers of the host.
    let mut order: Vec<&Row<'_>> = rows.iter().filter(|r| r.layer.cycles > 0).collect();
    order.sort_by_key(|row| std::cmp::Reverse(lost(row)));
    html! {
        section {
            h2 { "Why are these layers slow?" }
            p.note { "The layers that are the most cycles above their bound." }
            div.cards {
                @for row in order.into_iter().take(CARDS) {
                    article {
                        h3 {
                            span.num { (row.index) } " " (row.layer.name)
                            span.tag { (row.verdict.resource) }
                        }
                        p.note {
                            (grouped(row.layer.cycles)) " cycles, "
                            (format!("{:.2}", row.of_bound())) "× its bound, "
                            (grouped(lost(row))) " above it"
                        }
                        (svg::stacked(row.layer, 400, 14))
                        (loss_list(&losses(row.layer)))
                    }
                }
            }
        }
    }
}

fn stalls(total: &LayerCycles) -> Markup {
    let any = |reason: &StallReason| Unit::ALL.iter().any(|&u| total.stalled(u, *reason) > 0);
    let cell = |unit: Unit, reason: StallReason| {
        let cycles = total.stalled(unit, reason);
        let share = cycles as f64 / total.cycles.max(1) as f64;
        html! {
            td.n style=(heat(share)) data-v=(cycles) {
                @if cycles > 0 { (grouped(cycles)) " " small { (percent(share)) } } @else { "·" }
            }
        }
    };
    html! {
        section {
            h2 { "Stalls" }
            p.note {
                "Cycles in which a unit doesn't do what it is for, and why. Above the line no \
                 instruction runs; below it one runs, but neither moves a beat nor ends."
            }
            div.scroll {
                table.sortable {
                    thead {
                        tr {
                            th { button type="button" { "Reason" } }
                            @for unit in Unit::ALL {
                                th.n { button type="button" { (unit.name()) } }
                            }
                        }
                    }
                    tbody {
                        @for reason in StallReason::ALL.iter().filter(|r| any(r)) {
                            tr.inner[!reason.is_idle()] {
                                td { (reason) }
                                @for unit in Unit::ALL { (cell(unit, *reason)) }
                            }
                        }
                        tr.sum {
                            td { "working" }
                            @for unit in Unit::ALL {
                                td.n data-v=(total.active(unit)) { (grouped(total.active(unit))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A background that is stronger for larger shares.
fn heat(share: f64) -> String {
    format!("--heat:{:.1}%", (share * 55.0).min(55.0))
}

fn energy(costs: &Costs, total: &Energy, area_mm2: f64) -> Markup {
    let parts = [
        ("DRAM", total.dram_pj),
        ("Scratchpads", total.scratchpad_pj),
        ("Matrix unit", total.matrix_pj),
        ("ALU", total.alu_pj),
        ("Leakage and clock", total.leakage_pj),
    ];
    let whole = total.total_pj().max(1e-12);
    html! {
        div {
            h2 { "Energy" }
            p.note {
                "An estimate of one pass: counted operations and bytes, each at a price for a 45 nm \
                 process (Horowitz, ISSCC 2014). By the same table the machine takes about "
                (format!("{area_mm2:.2}")) " mm². A file of costs has other prices."
            }
            table.bars {
                @for (name, pj) in parts {
                    tr {
                        td { (name) }
                        td.n { (format::joules(pj)) }
                        td.meter { i style=(format!("width:{:.1}%", pj / whole * 100.0)) {} }
                        td.n { (percent(pj / whole)) }
                    }
                }
                tr.sum { td { "Together" } td.n { (format::joules(total.total_pj())) } td {} td {} }
            }
            details {
                summary { "Prices in picojoules and square millimetres" }
                table.plain {
                    @for (key, price, source) in costs.entries() {
                        tr { td { (key) } td.n { (price) } td { (source) } }
                    }
                }
            }
        }
    }
}

/// All parameters, so that the report stands on its own.
fn machine(config: &Config, timing: &TimingConfig, total: &LayerCycles) -> Markup {
    let beats = |c: Client| total.read_beats[c as usize];
    html! {
        section {
            h2 { "Machine" }
            p.note { "Everything that the cycles depend on." }
            div.two {
                details open {
                    summary { "Beats read" }
                    table.plain {
                        @for client in Client::READERS {
                            tr { td { (client.name()) } td.n { (grouped(beats(client))) } }
                        }
                        tr { td { "written" } td.n { (grouped(total.write_beats)) } }
                    }
                }
                details {
                    summary { "Configuration and timing" }
                    pre { (config.to_json()) }
                    pre { (timing.to_toml()) }
                }
            }
        }
    }
}

fn capital(words: &str) -> Cow<'_, str> {
    let mut chars = words.chars();
    match chars.next() {
        Some(first) if first.is_lowercase() => {
            Cow::Owned(first.to_uppercase().chain(chars).collect())
        }
        _ => Cow::Borrowed(words),
    }
}
