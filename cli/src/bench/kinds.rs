//! `vta bench --onnx FILE`: what the kinds of a network's layers take on one thread, beside this CPU's peak, what copying
//! the bytes that they load and store would take, and the larger of the two, which no executor of such layers takes less
//! than.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vta_app::Compiled;
use vta_app::device;
use vta_driver::{AttributeValue, Layer, MultiSession, QueueLimits, RunOutput, Session};
use vta_sim::{GemmKernel, SimDevice};

use super::cores::on_core;
use super::figures::{Measured, Samples};
use super::spread::{median, quartiles};
use super::subject;
use crate::args::BenchArgs;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// Bytes that are copied to see how fast memory is: more than caches hold, and as many as the nearest ones hold.
const COPIED: [usize; 2] = [1 << 26, 1 << 17];
/// Layers of which the table says that they take the most beyond their bound.
const MOST_TOLD: usize = 12;

/// What a layer is, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Convolution,
    Pointwise,
    Grouped,
    Dense,
    Pool,
    ElementWise,
    Host,
}

impl Kind {
    fn of(layer: &Layer) -> Self {
        let node = layer.nodes.first();
        let value = |name: &str| {
            let mut attributes = node?.attributes.iter();
            attributes.find(|a| a.name == name).map(|a| &a.value)
        };
        let one = |name| matches!(value(name), Some(AttributeValue::Int(1)) | None);
        match &layer.kind[..] {
            kind if kind.starts_with("host ") => Self::Host,
            kind if kind.contains("pool") => Self::Pool,
            "dense" => Self::Dense,
            "conv" if !one("group") => Self::Grouped,
            "conv" => match value("kernel") {
                Some(AttributeValue::Ints(sizes)) if sizes.iter().all(|size| *size == 1) => {
                    Self::Pointwise
                }
                _ => Self::Convolution,
            },
            _ => Self::ElementWise,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Convolution => "convolution",
            Self::Pointwise => "convolution 1x1",
            Self::Grouped => "convolution in groups",
            Self::Dense => "dense",
            Self::Pool => "pool",
            Self::ElementWise => "element-wise",
            Self::Host => "host",
        }
    }
}

/// Layers: how many, their multiply-adds, the bytes that they load and store, the least that they can take, and what
/// they took, run by run.
#[derive(Clone, Default)]
struct Row {
    layers: usize,
    macs: u64,
    bytes: u64,
    bound: f64,
    seconds: Vec<f64>,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.layers += other.layers;
        self.macs += other.macs;
        self.bytes += other.bytes;
        self.bound += other.bound;
        self.seconds.resize(other.seconds.len(), 0.0);
        for (sum, more) in self.seconds.iter_mut().zip(&other.seconds) {
            *sum += more;
        }
    }
}

/// What was measured of a network.
struct Kinds {
    network: String,
    kernel: GemmKernel,
    layers: Vec<(String, Kind, Row)>,
    image: Measured,
    /// Bytes that a copy reads or writes, a second, of either size.
    copied: [f64; 2],
}

/// Measures the network and prints it.
pub fn bench(args: &BenchArgs, network: &str) -> Result<bool> {
    let config = device::config(args.config.as_ref())?;
    let kernel = SimDevice::kernel_from_env()?;
    let compiled = subject::compiled(network, &config)?;
    let measured = on_core(0, || measure(network, &compiled, kernel, args.samples))?;
    if args.json {
        print_json(&measured.json())?;
    } else {
        print_text(&measured.text())?;
    }
    Ok(true)
}

/// A network on one device, or on one and the host.
enum Loaded {
    One(Session),
    Several(Box<MultiSession>),
}

impl Loaded {
    fn new(compiled: &Compiled, kernel: GemmKernel) -> Result<Self> {
        let limits = QueueLimits::default();
        let device = subject::simulator(&compiled.program.config, kernel, 1);
        Ok(match &compiled.split {
            None => Self::One(Session::new(Arc::clone(&compiled.program), device, limits)?),
            Some(split) => {
                let devices = vec![device; split.parts.len()];
                let session = MultiSession::new(Arc::clone(split), &devices, limits)?;
                Self::Several(Box::new(session))
            }
        })
    }

    fn run(&mut self, images: &[&[i16]]) -> Result<RunOutput> {
        Ok(match self {
            Self::One(session) => session.run(images)?,
            Self::Several(session) => session.run(images)?,
        })
    }
}

fn measure(
    network: &str,
    compiled: &Compiled,
    kernel: GemmKernel,
    samples: usize,
) -> Result<Kinds> {
    let program = &compiled.program;
    let images = subject::images(program)?;
    let images: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
    let mut loaded = Loaded::new(compiled, kernel)?;
    let mut timed = || {
        let started = Instant::now();
        let out = loaded.run(&images)?;
        Ok((started.elapsed().as_secs_f64(), out.reports))
    };
    // These plan, and touch memory for the first time.
    timed()?;
    timed()?;
    let layer = |layer: &Layer| {
        let row = Row {
            layers: 1,
            macs: layer.macs * images.len() as u64,
            ..Row::default()
        };
        (layer.name.clone(), Kind::of(layer), row)
    };
    let mut layers: Vec<_> = program.layers.iter().map(layer).collect();
    let places = program.layers.iter().zip(0..);
    let places: BTreeMap<&str, usize> = places.map(|(layer, at)| (&layer.name[..], at)).collect();
    let mut taken = Samples::default();
    let mut copied = COPIED.map(|_| Vec::new());
    let (from, mut to) = (vec![1u8; COPIED[0]], vec![0u8; COPIED[0]]);
    for sample in 0..samples {
        for (bytes, speeds) in COPIED.into_iter().zip(&mut copied) {
            speeds.push(copy(&from[..bytes], &mut to[..bytes]));
        }
        let reports = taken.push(kernel, &mut timed)?;
        layers
            .iter_mut()
            .for_each(|(.., row)| row.seconds.push(0.0));
        for mark in reports.iter().flat_map(|report| &report.marks) {
            let at = places.get(&mark.name[..]);
            let at = at.context("a layer that the network hasn't")?;
            let row = &mut layers[*at].2;
            if sample == 0 {
                row.bytes += mark.traffic.total_bytes();
            }
            if let Some(seconds) = row.seconds.last_mut() {
                *seconds += mark.wall.as_secs_f64();
            }
        }
    }
    let (image, copied) = (taken.medians(), copied.map(median));
    for (.., row) in &mut layers {
        row.bound = (row.macs as f64 / image.peak).max(row.bytes as f64 / copied[1]);
    }
    Ok(Kinds {
        network: network.to_owned(),
        kernel,
        layers,
        image,
        copied,
    })
}

/// Bytes read or written a second while some are copied again and again: at least as many as the larger size has.
fn copy(from: &[u8], to: &mut [u8]) -> f64 {
    let times = COPIED[0] / from.len();
    let started = Instant::now();
    for _ in 0..times {
        to.copy_from_slice(black_box(from));
        black_box(&*to);
    }
    2.0 * COPIED[0] as f64 / started.elapsed().as_secs_f64()
}

impl Kinds {
    fn kinds(&self) -> BTreeMap<Kind, Row> {
        let mut kinds: BTreeMap<Kind, Row> = BTreeMap::new();
        for (_, kind, row) in &self.layers {
            kinds.entry(*kind).or_default().add(row);
        }
        kinds
    }

    fn all(&self) -> Row {
        let mut all = Row::default();
        self.layers.iter().for_each(|(.., row)| all.add(row));
        all
    }

    /// The layers that take the most beyond their bound, and what each takes.
    fn slowest(&self) -> Vec<(&str, &Row, [f64; 3])> {
        let layers = self.layers.iter();
        let mut layers: Vec<_> = layers
            .map(|(name, _, row)| (&name[..], row, quartiles(row.seconds.clone())))
            .collect();
        let beyond = |(_, row, [_, seconds, _]): &(_, &Row, [f64; 3])| seconds - row.bound;
        layers.sort_by(|a, b| beyond(b).total_cmp(&beyond(a)));
        layers.truncate(MOST_TOLD);
        layers
    }

    fn json(&self) -> Value {
        let peak = self.image.peak;
        let of_rows = |kind: Kind, row: &Row| {
            let [low, seconds, high] = quartiles(row.seconds.clone());
            let rate = row.macs as f64 / seconds;
            json!({
                "kind": kind.name(), "layers": row.layers, "macs": row.macs, "us": seconds * 1e6,
                "quartiles_us": [low * 1e6, high * 1e6], "gmacs": rate / 1e9, "share": rate / peak,
                "bytes": row.bytes, "copy_share": row.bytes as f64 / self.copied[0] / seconds,
                "bound_us": row.bound * 1e6,
            })
        };
        let of_layer = |(name, kind, row): &(String, Kind, Row)| {
            let mut layer = of_rows(*kind, row);
            layer["name"] = json!(name);
            layer
        };
        let (seconds, all) = (self.image.seconds, self.all());
        let rate = all.macs as f64 / seconds;
        json!({
            "network": self.network, "kernel": self.kernel.name(), "peak_gmacs": peak / 1e9,
            "copied_gbs": self.copied[0] / 1e9, "copied_in_cache_gbs": self.copied[1] / 1e9,
            "kinds": self.kinds().iter().map(|(kind, row)| of_rows(*kind, row)).collect::<Vec<_>>(),
            "layers": self.layers.iter().map(of_layer).collect::<Vec<_>>(),
            "macs": all.macs, "us": seconds * 1e6, "bound_us": all.bound * 1e6,
            "quartiles_us": self.image.quartiles.map(|q| q * seconds * 1e6),
            "gmacs": rate / 1e9, "share": rate / peak,
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new([
            Column::words(""),
            Column::number("layers"),
            Column::number("ms"),
            Column::number("quartiles"),
            Column::number("time"),
            Column::number("GMAC/s"),
            Column::number("peak"),
            Column::number("MB"),
            Column::number("copy"),
            Column::number("bound"),
        ]);
        let whole = self.image.seconds;
        let mut row = |name: &str, of_kind: &Row, [low, seconds, high]: [f64; 3]| {
            let Row {
                layers,
                macs,
                bytes,
                bound,
                ..
            } = *of_kind;
            let rate = macs as f64 / seconds;
            let figure = |figure: String| if macs > 0 { figure } else { String::new() };
            table.row([
                name.to_owned(),
                layers.to_string(),
                format!("{:.3}", seconds * 1e3),
                format!("{:.3} to {:.3}", low * 1e3, high * 1e3),
                format!("{:.1} %", 100.0 * seconds / whole),
                figure(format!("{:.1}", rate / 1e9)),
                figure(format!("{:.1} %", 100.0 * rate / self.image.peak)),
                format!("{:.2}", bytes as f64 / 1e6),
                format!("{:.0} %", 100.0 * bytes as f64 / self.copied[0] / seconds),
                format!("{:.3}", 1e3 * bound),
            ]);
        };
        let mut in_layers = 0.0;
        for (kind, of_kind) in self.kinds() {
            let seconds = quartiles(of_kind.seconds.clone());
            row(kind.name(), &of_kind, seconds);
            in_layers += seconds[1];
        }
        let [low, high] = self.image.quartiles.map(|q| q * whole);
        row("all, with packing", &self.all(), [low, whole, high]);
        for (name, of_layer, seconds) in self.slowest() {
            row(name, of_layer, seconds);
        }
        let between = 1e3 * (whole - in_layers);
        format!(
            "{}\n{between:.3} ms between layers and around them; the peak of {}, one thread, is {:.1} GMAC/s; copy: \
             the time in which {:.1} GB/s copy what the layers load and store; bound: that of {:.1} GB/s, in the \
             nearest caches, or that of the products at the peak, the longer of each layer; last the layers that are the \
             farthest from it",
            table.text(),
            self.kernel.name(),
            self.image.peak / 1e9,
            self.copied[0] / 1e9,
            self.copied[1] / 1e9,
        )
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::Config;

    use super::*;

    #[test]
    fn layers_have_kinds() {
        let config = Config::default();
        let compiled = subject::compiled("zoo:mobilenet-v1", &config).unwrap();
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        for layer in &compiled.program.layers {
            *counts.entry(Kind::of(layer)).or_default() += 1;
        }
        let expected = [
            (Kind::Convolution, 1),
            (Kind::Pointwise, 13),
            (Kind::Grouped, 13),
            (Kind::Dense, 1),
            (Kind::Pool, 1),
        ];
        assert_eq!(counts, BTreeMap::from(expected));
    }
}
