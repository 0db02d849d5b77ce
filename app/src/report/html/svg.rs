//! The report's pictures. Colours come from the page's style, so that they follow its theme.

use std::fmt::Write;

use maud::{Markup, html};
use vta_sim::views::{Lane, LayerCycles, Spend, Verdict};

use crate::report::format::{self, grouped, percent};
use crate::report::timed::Report;

/// What a layer's cycles were spent on, as one bar.
pub fn stacked(layer: &LayerCycles, width: u32, height: u32) -> Markup {
    let mut at = 0.0;
    let scale = f64::from(width) / layer.cycles.max(1) as f64;
    let parts = Spend::ALL.map(|spend| {
        let cycles = layer.spent(spend);
        let part = (at, cycles as f64 * scale, spend, cycles);
        at += part.1;
        part
    });
    html! {
        svg.stack viewBox=(format!("0 0 {width} {height}")) preserveAspectRatio="none"
            style=(format!("height:{height}px")) role="img" aria-label="what the cycles went to" {
            @for (x, w, spend, cycles) in parts {
                @if w > 0.0 {
                    rect class={ "k" (spend as usize) } x=(format!("{x:.2}")) y="0"
                        width=(format!("{w:.2}")) height=(height) {
                        title {
                            (spend.words()) ": " (grouped(cycles)) " cycles, "
                            (percent(cycles as f64 / layer.cycles.max(1) as f64))
                        }
                    }
                }
            }
        }
    }
}

const LEFT: f64 = 104.0;
const WIDTH: f64 = 1180.0;
const STRIP: f64 = 30.0;
const LANE: f64 = 30.0;
const COLUMNS: usize = 1000;

/// The layers and the lanes of all batches, one behind the other.
pub fn timeline(timed: &Report) -> Markup {
    let cycles: u64 = timed.runs.iter().map(|r| r.report.cycles).sum();
    let per_cycle = (WIDTH - LEFT) / cycles.max(1) as f64;
    let x = |cycle: u64| LEFT + cycle as f64 * per_cycle;
    let top = STRIP + 10.0;
    let bottom = top + Lane::COUNT as f64 * LANE;
    let step = tick_step(cycles);
    let columns = columns(timed);
    let classes = [10, 8, 0, 3, 5, 9, 7, 7];
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", bottom + 34.0)) role="img"
            aria-label="busy units over time" {
            @for tick in (0..=cycles).step_by(step as usize) {
                line.grid x1=(px(x(tick))) x2=(px(x(tick))) y1=(px(top)) y2=(px(bottom + 5.0)) {}
                text x=(px(x(tick))) y=(px(bottom + 20.0)) text-anchor="middle" {
                    (format::round(tick as f64))
                }
            }
            text x="0" y=(px(bottom + 20.0)) { "cycle" }
            text x="0" y=(px(STRIP / 2.0 + 4.0)) { "layers" }
            (strip(timed, &x))
            @for (lane, class) in Lane::ALL.into_iter().zip(classes) {
                @let y = top + (lane as usize) as f64 * LANE;
                text.ink x="0" y=(px(y + LANE * 0.62)) { (lane.words()) }
                rect.lane x=(px(LEFT)) y=(px(y + 3.0)) width=(px(WIDTH - LEFT))
                    height=(px(LANE - 6.0)) fill-opacity="0.45" {}
                path class={ "k" (class) } d=(area(&columns, lane, y)) {}
            }
        }
    }
}

/// The layers as cells in the colour of their main use.
fn strip(timed: &Report, x: &dyn Fn(u64) -> f64) -> Markup {
    let mut offset = 0;
    let mut cells = Vec::new();
    for run in &timed.runs {
        for layer in &run.layers {
            let from = x(offset + layer.start);
            let width = x(offset + layer.start + layer.cycles) - from;
            cells.push((from, width, layer));
        }
        offset += run.report.cycles;
    }
    html! {
        @for (from, width, layer) in cells {
            rect class={ "cell k" (Verdict::of(layer).spend as usize) } x=(px(from)) y="0"
                width=(px(width.max(0.3))) height=(px(STRIP)) fill-opacity="0.85" {
                title {
                    (layer.name) ": " (grouped(layer.cycles)) " cycles, "
                    (Verdict::of(layer).resource)
                }
            }
        }
    }
}

/// Busy share of each lane in each column of all batches, one behind the other, 0 to 1.
pub fn columns(timed: &Report) -> Vec<[f64; Lane::COUNT]> {
    let cycles: u64 = timed.runs.iter().map(|r| r.report.cycles).sum();
    let mut columns = vec![[0.0; Lane::COUNT]; COLUMNS];
    let per_column = (cycles.max(1) as f64 / COLUMNS as f64).max(1e-9);
    let mut offset = 0.0;
    for run in &timed.runs {
        let width = run.timeline.width_cycles as f64;
        let end = offset + run.report.cycles as f64;
        for (i, busy) in run.timeline.busy.iter().enumerate() {
            // The last bucket may reach beyond the run; its cycles lie within it.
            let from = (offset + i as f64 * width) / per_column;
            let to = (offset + (i + 1) as f64 * width).min(end) / per_column;
            spread(&mut columns, [from, to], busy, per_column);
        }
        offset = end;
    }
    columns
}

/// Adds a bucket's cycles to the columns `from..to`, by overlap.
fn spread(
    columns: &mut [[f64; Lane::COUNT]],
    [from, to]: [f64; 2],
    busy: &[u64; Lane::COUNT],
    per_column: f64,
) {
    if to <= from {
        return;
    }
    let last = (to.ceil() as usize).min(columns.len());
    for (c, column) in columns
        .iter_mut()
        .enumerate()
        .take(last)
        .skip(from as usize)
    {
        let overlap = to.min((c + 1) as f64) - from.max(c as f64);
        let share = overlap.max(0.0) / (to - from) / per_column;
        for (sum, &cycles) in column.iter_mut().zip(busy) {
            *sum += cycles as f64 * share;
        }
    }
}

/// The outline of a lane; equal neighbours are one step.
fn area(columns: &[[f64; Lane::COUNT]], lane: Lane, y: f64) -> String {
    let (base, height) = (y + LANE - 3.0, LANE - 6.0);
    let width = (WIDTH - LEFT) / columns.len().max(1) as f64;
    let mut path = format!("M{LEFT} {}", px(base));
    let mut level = 0;
    for (i, column) in columns.iter().enumerate() {
        let next = (column[lane as usize].clamp(0.0, 1.0) * height * 10.0).round() as i64;
        if next != level {
            // Writing to a string can't fail.
            let _ = write!(
                path,
                "H{}V{}",
                px(LEFT + i as f64 * width),
                px(base - next as f64 / 10.0)
            );
            level = next;
        }
    }
    let _ = write!(path, "H{WIDTH}V{}Z", px(base));
    path
}

/// A round step that gives about eight ticks.
fn tick_step(cycles: u64) -> u64 {
    format::round_step((cycles as f64 / 8.0).max(1.0)) as u64
}

pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for cycles in [1, 9, 100, 12_345, 27_679_515, 1 << 60] {
            let step = tick_step(cycles);
            assert!(step > 0 && cycles / step <= 8, "{cycles}: {step}");
            let lead = step / 10u64.pow(step.ilog10());
            assert!([1, 2, 5].contains(&lead), "{cycles}: {step}");
        }
    }

    #[test]
    fn spreading_keeps_cycles() {
        let mut columns = vec![[0.0; Lane::COUNT]; 10];
        spread(&mut columns, [1.25, 4.5], &[13; Lane::COUNT], 2.0);
        let sum: f64 = columns.iter().map(|c| c[0] * 2.0).sum();
        assert!((sum - 13.0).abs() < 1e-9, "{sum}");
        assert_eq!(columns[0][0], 0.0);
        assert_eq!(columns[5][0], 0.0);
    }

    #[test]
    fn bars_carry_words_and_escape_nothing_away() {
        let mut layer = LayerCycles {
            cycles: 10,
            ..LayerCycles::default()
        };
        layer.spend[0] = 4;
        layer.spend[8] = 6;
        let text = stacked(&layer, 100, 10).into_string();
        assert!(text.contains("multiplying: 4 cycles, 40.0 %"), "{text}");
        assert!(text.contains("width=\"60.00\""), "{text}");
    }
}
