//! The roofline: layers below the roof of matrix unit and bus, both axes logarithmic.

use maud::{Markup, html};
use vta_sim::views::{LayerCycles, Roofline, Verdict};

use super::labels::{Area, place, width};
use super::svg::px;

/// The plot: left, top, right, bottom.
const PLOT: Area = Area {
    left: 58.0,
    top: 14.0,
    right: 600.0,
    bottom: 330.0,
};
/// Dots that get a number at most.
const MAX_LABELS: usize = 14;
/// Places on the roof that numbers keep away from lie so far apart.
const ROOF_STEP: f64 = 4.0;

/// The plot's axes, in powers of two.
struct Axes {
    x: [f64; 2],
    y: [f64; 2],
}

/// A layer's number in the table, itself, its intensity and its multiply-adds a cycle.
type Point<'a> = (usize, &'a LayerCycles, f64, f64);

impl Axes {
    fn new(roof: &Roofline, points: &[Point<'_>]) -> Self {
        let lows = points.iter().map(|p| p.2).chain([roof.ridge() / 8.0]);
        let highs = points.iter().map(|p| p.2).chain([roof.ridge() * 8.0]);
        let slow = points.iter().map(|p| p.3);
        let slow = slow.fold(roof.peak_macs / 16.0, f64::min);
        Self {
            x: [
                lows.fold(f64::INFINITY, f64::min).log2().floor(),
                highs.fold(0.0, f64::max).log2().ceil(),
            ],
            y: [slow.log2().floor(), roof.peak_macs.log2().ceil() + 0.8],
        }
    }

    fn x(&self, value: f64) -> f64 {
        let [low, high] = self.x;
        PLOT.left + (value.log2() - low) / (high - low) * (PLOT.right - PLOT.left)
    }

    fn y(&self, value: f64) -> f64 {
        let [low, high] = self.y;
        PLOT.bottom - (value.log2() - low) / (high - low) * (PLOT.bottom - PLOT.top)
    }

    /// The powers of an axis, and whether each has room for its number, whose extent is given.
    fn powers([low, high]: [f64; 2], length: f64, extent: f64) -> Vec<(i64, bool)> {
        let apart = length / (high - low).max(1.0);
        let every = (extent / apart).ceil().max(1.0) as i64;
        let powers = (low as i64)..=(high as i64);
        powers.map(|e| (e, (e - low as i64) % every == 0)).collect()
    }
}

/// The picture.
pub fn roofline(roof: &Roofline, layers: &[LayerCycles]) -> Markup {
    let placed = |(i, layer)| {
        let (intensity, macs) = roof.place(layer)?;
        Some((i + 1, layer, intensity, macs))
    };
    let points: Vec<Point<'_>> = layers.iter().enumerate().filter_map(placed).collect();
    let axes = Axes::new(roof, &points);
    // The slope begins where it enters the plot.
    let enters = roof.ridge() * axes.y[0].exp2() / roof.peak_macs;
    let start = axes.x[0].exp2().max(enters);
    let outline = format!(
        "M{} {}L{} {}H{}",
        px(axes.x(start)),
        px(axes.y(roof.attainable(start))),
        px(axes.x(roof.ridge())),
        px(axes.y(roof.peak_macs)),
        px(PLOT.right)
    );
    let peak = format!("{} MACs a cycle", roof.peak_macs);
    // At the edge, where the numbers of dots under the roof aren't.
    let above = (PLOT.right - 4.0, PLOT.top + 9.0);
    let mut taken = vec![Area::of_text(
        &peak,
        (above.0 - width(&peak) / 2.0, above.1),
    )];
    let mut along = axes.x(start);
    while along < PLOT.right {
        let [low, high] = axes.x;
        let share = (along - PLOT.left) / (PLOT.right - PLOT.left);
        let intensity = (low + share * (high - low)).exp2();
        taken.push(Area::of_dot(
            (along, axes.y(roof.attainable(intensity))),
            2.0,
        ));
        along += ROOF_STEP;
    }
    html! {
        svg viewBox="0 0 610 376" role="img" aria-label="roofline" {
            (grid(&axes))
            path.roof d=(outline) {}
            text.ink x=(px(above.0)) y=(px(above.1)) text-anchor="end" { (peak) }
            text x=(px((PLOT.left + PLOT.right) / 2.0)) y="368" text-anchor="middle" {
                "MACs for each byte read"
            }
            text transform=(format!("translate(13 {}) rotate(-90)", px((PLOT.top + PLOT.bottom) / 2.0)))
                text-anchor="middle" { "MACs a cycle" }
            (dots(&points, &axes, taken))
        }
    }
}

/// Lines at powers of two, and their numbers.
fn grid(axes: &Axes) -> Markup {
    let widest = axes.x.map(|e| width(&power(e as i64)));
    let extent = widest[0].max(widest[1]) + 8.0;
    let columns = Axes::powers(axes.x, PLOT.right - PLOT.left, extent);
    let rows = Axes::powers(axes.y, PLOT.bottom - PLOT.top, 14.0);
    html! {
        @for (e, numbered) in columns {
            @let x = px(axes.x((e as f64).exp2()));
            line.grid x1=(x) x2=(x) y1=(px(PLOT.top)) y2=(px(PLOT.bottom)) {}
            @if numbered {
                text x=(x) y=(px(PLOT.bottom + 17.0)) text-anchor="middle" { (power(e)) }
            }
        }
        @for (e, numbered) in rows {
            @let y = axes.y((e as f64).exp2());
            line.grid x1=(px(PLOT.left)) x2=(px(PLOT.right)) y1=(px(y)) y2=(px(y)) {}
            @if numbered {
                text x=(px(PLOT.left - 7.0)) y=(px(y + 4.0)) text-anchor="end" { (power(e)) }
            }
        }
    }
}

/// The layers as dots; those with most cycles get their number where there is room, on nothing
/// that is `taken` and on no dot.
fn dots(points: &[Point<'_>], axes: &Axes, mut taken: Vec<Area>) -> Markup {
    let most = points.iter().map(|p| p.1.cycles).max().unwrap_or(1).max(1) as f64;
    let radius = |layer: &LayerCycles| 3.5 + 6.5 * (layer.cycles as f64 / most).sqrt();
    let at = |point: &Point<'_>| (axes.x(point.2), axes.y(point.3));
    let mut order: Vec<&Point<'_>> = points.iter().collect();
    order.sort_by_key(|p| std::cmp::Reverse(p.1.cycles));
    taken.extend(points.iter().map(|p| Area::of_dot(at(p), radius(p.1))));
    let mut labels = Vec::new();
    for point in &order {
        let text = point.0.to_string();
        if labels.len() < MAX_LABELS
            && let Some(middle) = place(&text, at(point), radius(point.1), &PLOT, &taken)
        {
            taken.push(Area::of_text(&text, middle));
            labels.push((middle, text));
        }
    }
    html! {
        @for (index, layer, intensity, macs) in order {
            circle class={ "dot k" (Verdict::of(layer).spend as usize) } cx=(px(axes.x(*intensity)))
                cy=(px(axes.y(*macs))) r=(px(radius(layer))) {
                title {
                    (index) " " (layer.name) ": " (format!("{macs:.1}")) " MACs a cycle, "
                    (format!("{intensity:.1}")) " for each byte read"
                }
            }
        }
        @for ((x, y), text) in labels {
            text.ink x=(px(x)) y=(px(y)) text-anchor="middle" { (text) }
        }
    }
}

/// A power of two for an axis.
fn power(e: i64) -> String {
    match u32::try_from(e) {
        Ok(e) => (1u64 << e.min(63)).to_string(),
        Err(_) => format!("1/{}", 1u64 << (-e).min(63)),
    }
}

#[cfg(test)]
mod tests;
