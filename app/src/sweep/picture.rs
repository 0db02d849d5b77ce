//! Cycles against area, with the points that no other beats in both.

use maud::{Markup, PreEscaped, html};

use super::grid::Grid;
use super::table::{Measured, Row};

/// Rows that no other row beats in area and cycles an image, by area; indices into `rows`.
pub fn front(rows: &[Row]) -> Vec<usize> {
    let mut order: Vec<(usize, &Measured)> = rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| Some((i, row.outcome.as_ref().ok()?)))
        .collect();
    // The smaller first; of equal ones the faster, then the earlier.
    order.sort_by(|(i, a), (j, b)| {
        let area = a.area_mm2.total_cmp(&b.area_mm2);
        let cycles = a.cycles_per_image().total_cmp(&b.cycles_per_image());
        area.then(cycles).then(i.cmp(j))
    });
    let mut best = f64::INFINITY;
    order.retain(|(_, m)| {
        let better = m.cycles_per_image() < best;
        best = best.min(m.cycles_per_image());
        better
    });
    order.into_iter().map(|(i, _)| i).collect()
}

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
/// Points of the front that get a number and a line.
const MAX_LISTED: usize = 40;

/// An axis from a little below the smallest to a little above the largest value.
struct Axis {
    low: f64,
    step: f64,
    ticks: usize,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        let low = if low.is_finite() { low } else { 0.0 };
        let span = (high - low).max(high * 0.1).max(1e-9);
        let rough = span / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let low = ((low - span * 0.05) / step).floor().max(0.0) * step;
        let ticks = ((high + span * 0.05 - low) / step).ceil() as usize;
        Self { low, step, ticks }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.step * self.ticks as f64)
    }
}

/// A self-contained SVG.
pub fn pareto(model: &str, grid: &Grid, rows: &[Row]) -> String {
    let measured = || rows.iter().filter_map(|r| r.outcome.as_ref().ok());
    let (xs, ys) = (
        Axis::new(measured().map(|m| m.area_mm2)),
        Axis::new(measured().map(Measured::cycles_per_image)),
    );
    let at = |m: &Measured| {
        let x = LEFT + xs.place(m.area_mm2) * (RIGHT - LEFT);
        let y = BOTTOM - ys.place(m.cycles_per_image()) * (BOTTOM - TOP);
        (x, y)
    };
    let front = front(rows);
    let best: Vec<&Measured> = front
        .iter()
        .filter_map(|&i| rows[i].outcome.as_ref().ok())
        .collect();
    let line: Vec<String> = best
        .iter()
        .map(|m| at(m))
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let text = |row: &Row| {
        let pairs = grid
            .keys()
            .zip(&row.values)
            .map(|(k, v)| format!("{k} {v}"));
        pairs.collect::<Vec<_>>().join(", ")
    };
    let listed = front.iter().take(MAX_LISTED).enumerate();
    let height = LIST + LINE * front.len().min(MAX_LISTED) as f64 + 16.0;
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 920 {height}")) {
            title { "vta sweep of " (model) }
            style { (PreEscaped(STYLE)) }
            text.b x=(LEFT) y="26" { (model) ": cycles an image against area" }
            (axes(&xs, &ys))
            polyline.l points=(line.join(" ")) {}
            @for (i, row) in rows.iter().enumerate() {
                @if !front.contains(&i) && let Ok(m) = &row.outcome {
                    (dot("p", at(m), &text(row), m))
                }
            }
            @for (n, &i) in listed {
                @if let Ok(m) = &rows[i].outcome {
                    @let y = format!("{:.1}", LIST + LINE * n as f64);
                    (dot("f", at(m), &text(&rows[i]), m))
                    // No point is smaller and faster than one of the front: there is room for its
                    // number.
                    text x=(format!("{:.1}", at(m).0 - 6.0)) y=(format!("{:.1}", at(m).1 + 15.0))
                        text-anchor="end" { (n + 1) }
                    text.b x=(LEFT) y=(y) text-anchor="end" { (n + 1) }
                    text x=(LEFT + 12.0) y=(y) {
                        (format!("{:.0} cycles, {:.2} mm²", m.cycles_per_image(), m.area_mm2))
                    }
                    text.m x=(LEFT + 220.0) y=(y) { (text(&rows[i])) }
                }
            }
        }
    };
    markup.into_string()
}

/// A point with its machine as a tooltip.
fn dot(class: &str, (x, y): (f64, f64), machine: &str, m: &Measured) -> Markup {
    html! {
        circle class=(class) cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="5.5" {
            title { (machine) ": " (m.cycles) " cycles, " (m.images) " image(s)" }
        }
    }
}

fn axes(xs: &Axis, ys: &Axis) -> Markup {
    html! {
        @for i in 0..=xs.ticks {
            @let v = xs.low + xs.step * i as f64;
            @let x = format!("{:.1}", LEFT + xs.place(v) * (RIGHT - LEFT));
            line.g x1=(x) x2=(x) y1=(TOP) y2=(BOTTOM) {}
            text.m x=(x) y=(BOTTOM + 20.0) text-anchor="middle" { (tick(v)) }
        }
        @for i in 0..=ys.ticks {
            @let v = ys.low + ys.step * i as f64;
            @let y = BOTTOM - ys.place(v) * (BOTTOM - TOP);
            line.g x1=(LEFT) x2=(RIGHT) y1=(format!("{y:.1}")) y2=(format!("{y:.1}")) {}
            text.m x=(LEFT - 8.0) y=(format!("{:.1}", y + 4.0)) text-anchor="end" { (tick(v)) }
        }
        text.m x=((LEFT + RIGHT) / 2.0) y=(BOTTOM + 42.0) text-anchor="middle" {
            "area proxy in mm² (45 nm: MACs, ALU lanes, scratchpads, bus)"
        }
    }
}

fn tick(value: f64) -> String {
    for (size, prefix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= size {
            return format!("{:.2}", value / size)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + " "
                + prefix;
        }
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use vta_isa::Config;
    use vta_sim::cycle::TimingConfig;

    use super::*;

    fn row(area_mm2: f64, cycles: u64, images: u64) -> Row {
        Row {
            values: vec!["<8>".to_owned()],
            outcome: Ok(Measured {
                cycles,
                images,
                bound_cycles: 1,
                macs: 1,
                utilization: 0.5,
                dram_bytes: 1,
                energy_uj: 1.0,
                area_mm2,
            }),
        }
    }

    #[test]
    fn the_front_has_what_nothing_beats() {
        let failed = Row {
            values: vec!["x".to_owned()],
            outcome: Err("no".to_owned()),
        };
        let rows = [
            row(3.0, 50, 1),
            row(1.0, 100, 1),
            failed,
            row(2.0, 100, 1),
            row(2.5, 120, 2),
            row(1.0, 130, 1),
            row(3.0, 50, 1),
        ];
        assert_eq!(front(&rows), [1, 4, 0]);
        assert!(front(&[]).is_empty());
    }

    #[test]
    fn the_picture_is_escaped_and_has_every_point() {
        let vary = ["tags=8".to_owned()];
        let grid = Grid::new(&vary, &Config::default(), &TimingConfig::pynq()).unwrap();
        for rows in [
            vec![],
            vec![row(1.0, 5, 1)],
            vec![row(1.0, 5, 1), row(2.0, 9, 1)],
        ] {
            let text = pareto("a<b", &grid, &rows);
            assert_eq!(text.matches("<circle").count(), rows.len());
            assert!(text.contains("a&lt;b") && !text.contains("<8>"));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([tick(0.0), tick(2.5), tick(1.5e6)], ["0", "2.5", "1.5 M"]);
    }
}
