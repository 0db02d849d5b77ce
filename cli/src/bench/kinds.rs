//! `vta bench --onnx FILE`: what the kinds of a network's layers take on one thread, beside this CPU's peak and what
//! copying the bytes that they load and store would take.

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

/// Bytes that are copied to see how fast memory is: more than caches hold.
const COPIED: usize = 1 << 26;

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

/// The layers of a kind: how many, their multiply-adds, the bytes that they load and store, and what they took, run
/// by run.
#[derive(Default)]
struct Row {
    layers: usize,
    macs: u64,
    bytes: u64,
    seconds: Vec<f64>,
}

/// What was measured of a network.
struct Kinds {
    network: String,
    kernel: GemmKernel,
    rows: BTreeMap<Kind, Row>,
    image: Measured,
    /// Bytes that a copy reads or writes, a second.
    copied: f64,
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

    fn run(&mut self, images: &[&[i8]]) -> Result<RunOutput> {
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
    let images: Vec<&[i8]> = images.iter().map(Vec::as_slice).collect();
    let mut loaded = Loaded::new(compiled, kernel)?;
    let mut timed = || {
        let started = Instant::now();
        let out = loaded.run(&images)?;
        Ok((started.elapsed().as_secs_f64(), out.reports))
    };
    // These plan, and touch memory for the first time.
    timed()?;
    timed()?;
    let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for layer in &program.layers {
        let kind = Kind::of(layer);
        kinds.insert(&layer.name, kind);
        let row = rows.entry(kind).or_default();
        row.layers += 1;
        row.macs += layer.macs * images.len() as u64;
    }
    let mut taken = Samples::default();
    let (from, mut to) = (vec![1u8; COPIED], vec![0u8; COPIED]);
    let mut copied = Vec::new();
    for sample in 0..samples {
        let started = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        copied.push(2.0 * COPIED as f64 / started.elapsed().as_secs_f64());
        let reports = taken.push(kernel, &mut timed)?;
        rows.values_mut().for_each(|row| row.seconds.push(0.0));
        for mark in reports.iter().flat_map(|report| &report.marks) {
            let row = kinds
                .get(&mark.name[..])
                .and_then(|kind| rows.get_mut(kind));
            let row = row.context("a layer that the network hasn't")?;
            if sample == 0 {
                row.bytes += mark.traffic.total_bytes();
            }
            if let Some(seconds) = row.seconds.last_mut() {
                *seconds += mark.wall.as_secs_f64();
            }
        }
    }
    Ok(Kinds {
        network: network.to_owned(),
        kernel,
        rows,
        image: taken.medians(),
        copied: median(copied),
    })
}

impl Kinds {
    /// What a kind takes, in seconds: quartiles.
    fn rows(&self) -> impl Iterator<Item = (Kind, &Row, [f64; 3])> {
        let rows = self.rows.iter();
        rows.map(|(kind, row)| (*kind, row, quartiles(row.seconds.clone())))
    }

    fn macs(&self) -> u64 {
        self.rows.values().map(|row| row.macs).sum()
    }

    fn json(&self) -> Value {
        let peak = self.image.peak;
        let of_kind = |(kind, row, [low, seconds, high]): (Kind, &Row, [f64; 3])| {
            let rate = row.macs as f64 / seconds;
            json!({
                "kind": kind.name(), "layers": row.layers, "macs": row.macs, "us": seconds * 1e6,
                "quartiles_us": [low * 1e6, high * 1e6], "gmacs": rate / 1e9, "share": rate / peak,
                "bytes": row.bytes, "copy_share": row.bytes as f64 / self.copied / seconds,
            })
        };
        let seconds = self.image.seconds;
        let rate = self.macs() as f64 / seconds;
        json!({
            "network": self.network, "kernel": self.kernel.name(), "peak_gmacs": peak / 1e9,
            "copied_gbs": self.copied / 1e9,
            "kinds": self.rows().map(of_kind).collect::<Vec<_>>(),
            "macs": self.macs(), "us": seconds * 1e6,
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
        ]);
        let whole = self.image.seconds;
        let mut row = |name: &str, of_kind: &Row, [low, seconds, high]: [f64; 3]| {
            let Row {
                layers,
                macs,
                bytes,
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
                format!("{:.0} %", 100.0 * bytes as f64 / self.copied / seconds),
            ]);
        };
        let mut in_layers = 0.0;
        let mut all = Row::default();
        for (kind, of_kind, seconds) in self.rows() {
            row(kind.name(), of_kind, seconds);
            in_layers += seconds[1];
            all.layers += of_kind.layers;
            all.macs += of_kind.macs;
            all.bytes += of_kind.bytes;
        }
        let [low, high] = self.image.quartiles.map(|q| q * whole);
        row("all, with packing", &all, [low, whole, high]);
        let between = 1e3 * (whole - in_layers);
        format!(
            "{}\n{between:.3} ms between layers and around them; the peak of {}, one thread, is {:.1} GMAC/s; copy: \
             the time in which {:.1} GB/s copy what the layers load and store",
            table.text(),
            self.kernel.name(),
            self.image.peak / 1e9,
            self.copied / 1e9,
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
