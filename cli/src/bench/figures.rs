//! What `vta bench` has measured, as text and as JSON.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use vta_sim::GemmKernel;

use super::onnxruntime::Comparison;
use super::spread::{median, quartiles};
use crate::table::{Column, Table};

/// Bursts of the CPU's peak before each run; the best counts. Some tens of microseconds each.
const PEAK_BURSTS: usize = 3;

/// How long runs don't count after a peak.
const SETTLE: Duration = Duration::from_millis(2);

/// What runs took, and what the CPU could do meanwhile: medians of samples that take turns, so
/// that what else the machine does hits both.
pub struct Measured {
    pub seconds: f64,
    /// A quarter of the runs took less than the first share of `seconds`, a quarter more than the
    /// second.
    pub quartiles: [f64; 2],
    /// Multiply-adds a second.
    pub peak: f64,
    /// The same with loads, of kernels whose loads count.
    pub peak_with_loads: Option<f64>,
}

/// One layer's figures.
pub struct LayerRow {
    pub name: String,
    pub macs: u64,
    pub run: Measured,
}

/// One network's figures.
pub struct NetworkRow {
    pub name: &'static str,
    pub macs: u64,
    /// An image, from the values that are packed to those that are unpacked.
    pub run: Measured,
    /// On the device alone: the sum of the layers' median times.
    pub device_seconds: f64,
    pub layers: Vec<(String, u64, f64)>,
}

/// How many times as fast threads are as one.
pub struct Speedup {
    pub threads: usize,
    /// On as many images, each with a device of its own.
    pub images: f64,
    /// On one image and one device.
    pub one_image: f64,
}

/// Everything that is measured.
pub struct Figures {
    pub kernel: GemmKernel,
    pub layers: Vec<LayerRow>,
    pub networks: Vec<NetworkRow>,
    /// For 2, 4, 8 and so on, as many as are measured.
    pub threads: Vec<Speedup>,
    pub ns_per_insn: f64,
    pub onnxruntime: Option<Comparison>,
}

/// Runs, and the peak that was measured before each.
#[derive(Default)]
pub struct Samples {
    seconds: Vec<f64>,
    peaks: Vec<f64>,
    peaks_with_loads: Vec<f64>,
}

impl Samples {
    /// Measures the peak, then runs for a while before the run that is the sample: at the peak a CPU's clock may fall,
    /// and it takes that long to rise again.
    pub fn push<T>(
        &mut self,
        kernel: GemmKernel,
        mut run: impl FnMut() -> Result<(f64, T)>,
    ) -> Result<T> {
        self.peaks.push(kernel.peak_macs_per_second(PEAK_BURSTS));
        let with_loads = kernel.peak_with_loads(PEAK_BURSTS);
        self.peaks_with_loads.extend(with_loads);
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            run()?;
        }
        let (seconds, more) = run()?;
        self.seconds.push(seconds);
        Ok(more)
    }

    /// Of at least one sample.
    pub fn medians(self) -> Measured {
        let [low, seconds, high] = quartiles(self.seconds);
        Measured {
            seconds,
            quartiles: [low / seconds, high / seconds],
            peak: median(self.peaks),
            peak_with_loads: some_median(self.peaks_with_loads),
        }
    }
}

/// The median, if there is a figure.
fn some_median(figures: Vec<f64>) -> Option<f64> {
    (!figures.is_empty()).then(|| median(figures))
}

impl Measured {
    fn gmacs(&self, macs: u64) -> f64 {
        macs as f64 / self.seconds / 1e9
    }

    fn share(&self, macs: u64) -> f64 {
        macs as f64 / self.seconds / self.peak
    }
}

impl Figures {
    fn runs(&self) -> impl Iterator<Item = &Measured> {
        let layers = self.layers.iter().map(|l| &l.run);
        layers.chain(self.networks.iter().map(|n| &n.run))
    }

    /// The CPU's peak: the median over everything that was measured.
    fn peak(&self) -> f64 {
        median(self.runs().map(|run| run.peak).collect())
    }

    fn peak_with_loads(&self) -> Option<f64> {
        some_median(self.runs().filter_map(|run| run.peak_with_loads).collect())
    }

    /// One object.
    pub fn json(&self) -> serde_json::Value {
        let layer = |row: &LayerRow| {
            json!({
                "name": row.name, "macs": row.macs, "us": row.run.seconds * 1e6,
                "gmacs": row.run.gmacs(row.macs), "share": row.run.share(row.macs),
                "peak_gmacs": row.run.peak / 1e9, "quartiles": row.run.quartiles,
            })
        };
        let of_network = |row: &NetworkRow| {
            let layers = row.layers.iter();
            let layers = layers.map(|(name, macs, seconds)| {
                let share = *macs as f64 / seconds / row.run.peak;
                json!({"name": name, "macs": macs, "us": seconds * 1e6, "share": share})
            });
            json!({
                "name": row.name, "gmacs": row.run.gmacs(row.macs),
                "share": row.run.share(row.macs), "images_per_s": 1.0 / row.run.seconds,
                "peak_gmacs": row.run.peak / 1e9, "quartiles": row.run.quartiles,
                "device_share": row.macs as f64 / row.device_seconds / row.run.peak,
                "layers": layers.collect::<Vec<_>>(),
            })
        };
        let comparison = self.onnxruntime.as_ref();
        json!({
            "kernel": self.kernel.name(),
            "peak_gmacs": self.peak() / 1e9,
            "peak_with_loads_gmacs": self.peak_with_loads().map(|peak| peak / 1e9),
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "networks": self.networks.iter().map(of_network).collect::<Vec<_>>(),
            "threads": self.threads.iter().map(|s| json!({
                "threads": s.threads, "speedup_images": s.images, "speedup_one_image": s.one_image,
            })).collect::<Vec<_>>(),
            "ns_per_insn": self.ns_per_insn,
            "onnxruntime": comparison.map(Comparison::json),
        })
    }

    /// A table, and what doesn't fit one.
    pub fn text(&self) -> String {
        let mut table = Table::new([
            Column::words(""),
            Column::number("GMAC/s"),
            Column::number("share"),
            Column::number("quartiles"),
            Column::text(""),
        ]);
        let peak = format!("{}, one thread, measured", self.kernel.name());
        let gmacs = format!("{:.1}", self.peak() / 1e9);
        table.row(["peak", &gmacs, "100.0 %", "", &peak].map(str::to_owned));
        if let Some(with_loads) = self.peak_with_loads() {
            let share = format!("{:.1} %", 100.0 * with_loads / self.peak());
            let gmacs = format!("{:.1}", with_loads / 1e9);
            let note = "tiles from the first cache";
            table.row(["with loads", &gmacs, &share, "", note].map(str::to_owned));
        }
        let row = |name: &str, macs: u64, run: &Measured, note: String| {
            // A run that takes longer has the smaller share: the quartiles change places.
            let [low, high] = run.quartiles.map(|q| 100.0 * run.share(macs) / q);
            let share = format!("{:.1} %", 100.0 * run.share(macs));
            let quartiles = format!("{high:.0} to {low:.0} %");
            [
                name.to_owned(),
                format!("{:.1}", run.gmacs(macs)),
                share,
                quartiles,
                note,
            ]
        };
        for l in &self.layers {
            let note = format!("{:.1} us", l.run.seconds * 1e6);
            table.row(row(&l.name, l.macs, &l.run, note));
        }
        for n in &self.networks {
            let device = 100.0 * n.macs as f64 / n.device_seconds / n.run.peak;
            let rate = 1.0 / n.run.seconds;
            let note = format!("{rate:.1} images/s; device alone {device:.1} %");
            table.row(row(n.name, n.macs, &n.run, note));
        }
        let speedup = |s: &Speedup| {
            let (n, images, one) = (s.threads, s.images, s.one_image);
            format!(
                "{n} threads are {images:.2} times as fast as one on {n} images, {one:.2} times on one"
            )
        };
        let speedup = match &self.threads[..] {
            [] => "threads: not measured on one core".to_owned(),
            all => all.iter().map(speedup).collect::<Vec<_>>().join("\n"),
        };
        let comparison = self.onnxruntime.as_ref();
        let comparison = comparison.map_or_else(String::new, |c| format!("\n{}", c.text()));
        format!(
            "{}\n{speedup}\n{:.1} ns for an instruction on one tile{comparison}",
            table.text(),
            self.ns_per_insn
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_a_terminal() {
        let run = || Measured {
            seconds: 0.123_456,
            quartiles: [0.98, 1.31],
            peak: 312.5e9,
            peak_with_loads: Some(212.5e9),
        };
        let layer = LayerRow {
            name: "resnet18.C11".to_owned(),
            macs: 115_605_504,
            run: run(),
        };
        let network = NetworkRow {
            name: "resnet50",
            macs: 4_089_184_256,
            run: run(),
            device_seconds: 0.1,
            layers: Vec::new(),
        };
        let figures = Figures {
            kernel: GemmKernel::Scalar,
            layers: vec![layer],
            networks: vec![network],
            threads: vec![Speedup {
                threads: 2,
                images: 1.98,
                one_image: 1.75,
            }],
            ns_per_insn: 41.5,
            onnxruntime: None,
        };
        let columns = crate::terminal::COLUMNS;
        let text = crate::terminal::wrapped(&figures.text(), columns);
        assert!(text.lines().all(|line| line.len() <= columns), "{text}");
        assert!(text.contains("device alone") && text.contains("2 threads are"));
        assert!(text.contains("with loads") && text.contains("68.0 %"));
    }
}
