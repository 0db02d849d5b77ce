//! What the host takes of the pass, and by which assumptions.

use maud::{Markup, html};

use crate::report::format::{bytes, percent, short};
use crate::report::host_share::HostLayer;
use crate::report::timed::Report;

/// Totals, assumptions and the host's layers; nothing for a network that the device runs alone.
pub fn host(timed: &Report) -> Markup {
    let share = &timed.host;
    if share.layers.is_empty() {
        return html! {};
    }
    let (work, traffic, time) = (share.work(), share.traffic(), share.time(&timed.speed));
    let whole = timed.pass_ms().max(1e-9);
    let parts = [
        ("Device", timed.device_ms(), "cycles, counted".to_owned()),
        (
            "Host, computing",
            time.compute_ms,
            format!(
                "{} MACs, {} values, {} segments",
                short(work.macs),
                short(work.values),
                share.layers.len()
            ),
        ),
        (
            "Transfers",
            time.transfer_ms,
            format!(
                "{} to the host, {} back",
                bytes(traffic.read),
                bytes(traffic.written)
            ),
        ),
    ];
    let speed = &timed.speed;
    html! {
        section {
            h2 { "On the host" }
            p.note {
                (share.ops()) " operators that the device doesn't have are computed by the host in "
                (share.layers.len()) " segments. Its time is an estimate: it computes "
                (speed.gmacs) " billion multiply-adds and gives " (speed.gvalues)
                " billion values a second, moves " (speed.gbytes)
                " GB a second and takes " (speed.layer_us)
                " µs more for each segment. Nothing is assumed to overlap. A file of speeds takes others."
            }
            table.bars {
                @for (name, ms, what) in &parts {
                    tr {
                        td { (name) }
                        td.n { (format!("{ms:.2} ms")) }
                        td.meter { i style=(format!("width:{:.1}%", ms / whole * 100.0)) {} }
                        td.n { (percent(ms / whole)) }
                        td { small { (what) } }
                    }
                }
                tr.sum {
                    td { "Together" } td.n { (format!("{:.2} ms", timed.pass_ms())) } td {} td {} td {}
                }
            }
            details {
                summary { "Segments" }
                div.scroll { (segments(timed, whole)) }
            }
        }
    }
}

fn segments(timed: &Report, whole: f64) -> Markup {
    html! {
        table.sortable {
            thead {
                tr {
                    @for name in ["Segment", "Operators", "MACs", "Values", "Read", "Written", "Time", "Share"] {
                        th { button type="button" { (name) } }
                    }
                }
            }
            tbody {
                @for layer in &timed.host.layers { (row(layer, timed, whole)) }
            }
        }
    }
}

fn row(layer: &HostLayer, timed: &Report, whole: f64) -> Markup {
    let ms = layer.time(&timed.speed).total_ms();
    let (work, traffic) = (layer.work, layer.traffic);
    html! {
        tr {
            td { (layer.name) }
            td { (layer.kinds) }
            td.n data-v=(work.macs) { @if work.macs > 0 { (short(work.macs)) } @else { "–" } }
            td.n data-v=(work.values) { (short(work.values)) }
            td.n data-v=(traffic.read) { (bytes(traffic.read)) }
            td.n data-v=(traffic.written) { (bytes(traffic.written)) }
            td.n data-v=(ms) { (format!("{ms:.3} ms")) }
            td.n data-v=(ms) { (percent(ms / whole)) }
        }
    }
}
