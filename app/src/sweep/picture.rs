//! One figure against another, with the points that no other beats in both.

use std::collections::HashSet;

use maud::{Markup, PreEscaped, html};

use super::objective::{Objective, front};
use super::row::{Measured, Row};
use crate::report::format::{round, round_step};

const STYLE: &str = "svg{background:#fff;color:#1b2027}
text{font:13px system-ui,'Liberation Sans',sans-serif;fill:currentColor}
.b{font-weight:bold}.m{fill:#5f6b7a}.g{stroke:#e8ebef}.p{fill:#9aa5b1;fill-opacity:.75}.f{fill:#2563d4}
.l{stroke:#2563d4;stroke-width:2;fill:none;stroke-opacity:.6}
@media(prefers-color-scheme:dark){svg{background:#1a1f26;color:#e6eaf0}.m{fill:#98a4b3}
.g{stroke:#28303a}.f{fill:#7aa7ff}.l{stroke:#7aa7ff}}";

const LEFT: f64 = 84.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 54.0;
const BOTTOM: f64 = 460.0;
/// Where the list of the front begins, and how far its lines are apart.
const LIST: f64 = 540.0;
const LINE: f64 = 21.0;
/// More points than these are drawn smaller.
const MANY: usize = 200;
/// Points of the front that get a number and a line.
const MAX_LISTED: usize = 40;

/// Characters of a machine that fit beside its figures.
const WIDE: usize = 84;
/// Numbers of the front's points are so far apart.
const APART: (f64, f64) = (16.0, 13.0);

/// An axis from a little below the smallest to a little above the largest value.
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    /// Whether equal ratios are equally far apart.
    log: bool,
}

impl Axis {
    /// Equal differences are equally far apart.
    fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = span(values);
        let span = (high - low).max(high * 0.1).max(1e-9);
        let step = round_step(span / 6.0);
        let low = ((low - span * 0.05) / step).floor().max(0.0) * step;
        let ticks = ((high + span * 0.05 - low) / step).ceil() as usize;
        Self {
            low,
            high: low + step * ticks as f64,
            ticks: (0..=ticks).map(|i| low + step * i as f64).collect(),
            log: false,
        }
    }

    /// As [`linear`](Self::linear), but for values that are too far apart for that.
    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        /// Ratio of the largest to the smallest.
        const FAR: f64 = 6.0;
        let (low, high) = span(values.clone());
        if low <= 0.0 || high < low * FAR {
            return Self::linear(values);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let marks = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
        let marks: Vec<f64> = marks.collect();
        let first = marks.iter().rposition(|m| *m < low).unwrap_or(0);
        let last = marks.iter().position(|m| *m > high);
        let ticks = marks[first..=last.unwrap_or(marks.len() - 1)].to_vec();
        Self {
            low: ticks[0],
            high: ticks[ticks.len() - 1],
            ticks,
            log: true,
        }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

/// The smallest and the largest; of nothing, 0 and 0.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    (if low.is_finite() { low } else { 0.0 }, high)
}

/// A machine in words, without what all of the front have in common.
fn words(keys: &[&str], row: &Row, told: impl Fn(usize) -> bool) -> Vec<String> {
    let pairs = keys.iter().zip(&row.values).enumerate();
    let told = pairs.filter(|(at, _)| told(*at));
    told.map(|(_, (k, v))| format!("{k} {v}")).collect()
}

/// Words in lines, with commas between them.
fn lines(words: &[String]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, word) in words.iter().enumerate() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + word.len() > WIDE {
            lines.push(String::new());
        }
        let last = lines.len() - 1;
        if !lines[last].is_empty() {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
        if at + 1 < words.len() {
            lines[last].push(',');
        }
    }
    lines
}

/// Of the front's points, with the places of their numbers: one that would lie on another has none.
fn numbered(points: &[(f64, f64)]) -> Vec<Option<(f64, f64)>> {
    let mut last: Option<(f64, f64)> = None;
    let place = |&(x, y): &(f64, f64)| {
        // No point is smaller and faster than one of the front: there is room for its number.
        let place = (x - 6.0, y + 15.0);
        let free =
            |(a, b): (f64, f64)| (place.0 - a).abs() > APART.0 || (place.1 - b).abs() > APART.1;
        let free = last.is_none_or(free);
        last = if free { Some(place) } else { last };
        free.then_some(place)
    };
    points.iter().map(place).collect()
}

/// The lines below the picture: the number of a point of the front, its figures, and what differs from others. What
/// all have in common stands behind them.
fn list(keys: &[&str], best: &[(&Row, &Measured)], [x, y]: [Objective; 2]) -> Vec<[String; 3]> {
    let Some((first, _)) = best.first() else {
        return Vec::new();
    };
    let alone = best.len() == 1;
    let differs = |at: usize| {
        let mut others = best.iter();
        alone || others.any(|(row, _)| row.values[at] != first.values[at])
    };
    let mut list = Vec::new();
    let mut add = |mut head: [String; 2], words: &[String]| {
        for line in lines(words) {
            // Only the first line of a point has them.
            let [number, figures] = std::mem::take(&mut head);
            list.push([number, figures, line]);
        }
    };
    for (number, (row, m)) in (1..).zip(best).take(MAX_LISTED) {
        let figures = format!("{}, {}", y.told(m), x.told(m));
        add([number.to_string(), figures], &words(keys, row, differs));
    }
    let common = words(keys, first, |at| !differs(at));
    if !common.is_empty() {
        add([String::new(), "all of these".to_owned()], &common);
    }
    list
}

/// A self-contained SVG of machines, whose values are of these keys, by two figures: across, and up.
pub fn pareto(
    title: &str,
    model: &str,
    keys: &[&str],
    rows: &[Row],
    figures: [Objective; 2],
) -> String {
    let [x, y] = figures;
    let measured = || rows.iter().filter_map(|r| r.outcome.as_ref().ok());
    let (xs, ys) = (
        Axis::linear(measured().map(|m| x.of(m))),
        Axis::new(measured().map(|m| y.of(m))),
    );
    let at = |m: &Measured| {
        let across = LEFT + xs.place(x.of(m)) * (RIGHT - LEFT);
        let up = BOTTOM - ys.place(y.of(m)) * (BOTTOM - TOP);
        (across, up)
    };
    let mut front = front(rows, &figures);
    // The least of what is upwards has number 1, as in tables by the first objective.
    front.reverse();
    let best = front.iter().map(|&i| &rows[i]);
    let best: Vec<(&Row, &Measured)> = best
        .filter_map(|row| Some((row, row.outcome.as_ref().ok()?)))
        .collect();
    let places: Vec<(f64, f64)> = best.iter().map(|(_, m)| at(m)).collect();
    let line = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    let line: Vec<String> = line.collect();
    let on_front: HashSet<usize> = front.iter().copied().collect();
    let others = (0..rows.len()).filter(|i| !on_front.contains(i));
    let text = |row: &Row| words(keys, row, |_| true).join(", ");
    let list = list(keys, &best, figures);
    let bottom = LIST + LINE * list.len() as f64;
    let (small, large) = if rows.len() > MANY {
        (3.0, 4.0)
    } else {
        (5.5, 5.5)
    };
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg"
            viewBox=(format!("0 0 920 {}", bottom + 16.0)) {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            text.b x=(LEFT) y="26" { (model) ": " (y.short()) " against " (x.short()) }
            (axes(&xs, &ys, x.axis()))
            @for row in others.map(|i| &rows[i]) {
                @if let Ok(m) = &row.outcome {
                    (dot("p", at(m), small, &text(row), m))
                }
            }
            polyline.l points=(line.join(" ")) {}
            @for ((row, m), place) in best.iter().zip(&places) {
                (dot("f", *place, large, &text(row), m))
            }
            @for (n, place) in numbered(&places).into_iter().take(MAX_LISTED).enumerate() {
                @if let Some((x, y)) = place {
                    text x=(format!("{x:.1}")) y=(format!("{y:.1}")) text-anchor="end" { (n + 1) }
                }
            }
            @for (i, [number, figures, words]) in list.iter().enumerate() {
                @let y = format!("{:.1}", LIST + LINE * i as f64);
                text.b x=(LEFT) y=(y) text-anchor="end" { (number) }
                text x=(LEFT + 12.0) y=(y) { (figures) }
                text.m x=(LEFT + 220.0) y=(y) { (words) }
            }
        }
    };
    markup.into_string()
}

/// A point with its machine as a tooltip.
fn dot(class: &str, (x, y): (f64, f64), r: f64, machine: &str, m: &Measured) -> Markup {
    html! {
        circle class=(class) cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r=(r) {
            title { (machine) ": " (m.cycles) " cycles, " (m.images) " image(s)" }
        }
    }
}

fn axes(xs: &Axis, ys: &Axis, across: &str) -> Markup {
    html! {
        @for &v in &xs.ticks {
            @let x = format!("{:.1}", LEFT + xs.place(v) * (RIGHT - LEFT));
            line.g x1=(x) x2=(x) y1=(TOP) y2=(BOTTOM) {}
            text.m x=(x) y=(BOTTOM + 20.0) text-anchor="middle" { (round(v)) }
        }
        @for &v in &ys.ticks {
            @let y = BOTTOM - ys.place(v) * (BOTTOM - TOP);
            line.g x1=(LEFT) x2=(RIGHT) y1=(format!("{y:.1}")) y2=(format!("{y:.1}")) {}
            text.m x=(LEFT - 8.0) y=(format!("{:.1}", y + 4.0)) text-anchor="end" { (round(v)) }
        }
        text.m x=((LEFT + RIGHT) / 2.0) y=(BOTTOM + 42.0) text-anchor="middle" {
            (across)
        }
    }
}

#[cfg(test)]
mod tests;
