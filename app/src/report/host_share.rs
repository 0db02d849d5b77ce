//! What the host takes of a network: how much it computes and moves, and an estimate of its time.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vta_compiler::host::Ends;
use vta_driver::{HostTraffic, HostWork, MultiProgram};

use crate::error::{Error, Result, ensure_input};

/// How fast a host is, for estimates.
///
/// The defaults are within a factor of two of what one thread of a server's core took for the segments
/// of EfficientNet-B0, ViT-Tiny and Swin-T, with a bus that copies a gigabyte a second. In TOML every key is optional and overrides its default:
///
/// ```
/// use vta_app::report::HostSpeed;
///
/// let slow = HostSpeed::from_toml("gmacs = 0.5  # an embedded core")?;
/// assert_eq!((slow.gmacs, slow.gbytes), (0.5, 1.0));
/// # Ok::<(), vta_app::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpeed {
    /// Billions of multiply-adds a second, in floats.
    pub gmacs: f64,
    /// Billions of values a second that operators give.
    pub gvalues: f64,
    /// Billions of bytes a second between the host and a device's memory.
    pub gbytes: f64,
    /// Microseconds that a layer of the host takes beside that: to wait, to start, to submit.
    pub layer_us: f64,
}

impl Default for HostSpeed {
    fn default() -> Self {
        Self {
            gmacs: 20.0,
            gvalues: 0.4,
            gbytes: 1.0,
            layer_us: 20.0,
        }
    }
}

impl HostSpeed {
    /// Reads a file of speeds.
    ///
    /// # Errors
    /// [`Error::Input`] for text that isn't TOML of these keys, and for what is no speed.
    pub fn from_toml(text: &str) -> Result<Self> {
        let speed: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            Error::input(vta_files::toml_message(text, e.message(), at))
        })?;
        for (key, value) in [
            ("gmacs", speed.gmacs),
            ("gvalues", speed.gvalues),
            ("gbytes", speed.gbytes),
        ] {
            let positive = value.is_finite() && value > 0.0;
            ensure_input!(positive, "{key} is {value}, but it must be above 0");
        }
        let delay = speed.layer_us;
        let possible = delay.is_finite() && delay >= 0.0;
        ensure_input!(possible, "layer_us is {delay}, but it must be at least 0");
        Ok(speed)
    }
}

/// A layer of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayer {
    /// As in the program.
    pub name: String,
    /// Operators of the model, each with how many there are, the most frequent first: `3 Mul, 1 Erf`.
    pub kinds: String,
    /// How many operators.
    pub ops: usize,
    /// What it computes in a pass.
    pub work: HostWork,
    /// What it moves in a pass.
    pub traffic: HostTraffic,
}

/// What the host takes of one pass over a network: of BATCH images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostShare {
    /// In their order.
    pub layers: Vec<HostLayer>,
}

/// An estimate, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostTime {
    /// Computing, and what layers take beside it.
    pub compute_ms: f64,
    /// Moving tensors to the host and back.
    pub transfer_ms: f64,
}

impl HostTime {
    /// Both.
    pub fn total_ms(&self) -> f64 {
        self.compute_ms + self.transfer_ms
    }
}

impl HostLayer {
    /// What it takes on a host of some speed.
    pub fn time(&self, speed: &HostSpeed) -> HostTime {
        let HostWork { macs, values } = self.work;
        let HostTraffic { read, written } = self.traffic;
        let compute = macs as f64 / speed.gmacs + values as f64 / speed.gvalues;
        HostTime {
            compute_ms: compute / 1e6 + speed.layer_us / 1e3,
            transfer_ms: (read + written) as f64 / speed.gbytes / 1e6,
        }
    }

    /// The keys of a layer in JSON, with an estimate for a speed.
    pub fn json(&self, speed: Option<&HostSpeed>) -> Value {
        let time = speed.map(|speed| self.time(speed));
        figures(self.ops, self.work, self.traffic, time)
    }
}

impl HostShare {
    /// That of a network over devices and the host, if it is one, and of what is around it, for a
    /// number of images.
    ///
    /// # Errors
    /// [`Error::Model`] for a network that contradicts itself.
    pub fn of(batch: u64, split: Option<&MultiProgram>, ends: Option<&Ends>) -> Result<Self> {
        let times = |work: HostWork| HostWork {
            macs: work.macs.saturating_mul(batch),
            values: work.values.saturating_mul(batch),
        };
        let mut layers = Vec::new();
        let steps = split
            .iter()
            .flat_map(|n| n.host_steps().map(move |step| (n, step)));
        for (network, step) in steps {
            layers.push(HostLayer {
                name: step.name.clone(),
                kinds: counted(step.kernel.operators()),
                ops: step.kernel.ops(),
                work: times(step.kernel.work()),
                traffic: network.host_traffic(step)?,
            });
        }
        // What is around the network moves nothing: the device's inputs and outputs do.
        for (name, nodes, work) in ends.iter().flat_map(|ends| ends.parts()) {
            layers.push(HostLayer {
                name: name.to_owned(),
                kinds: counted(nodes.iter().map(|(_, kind)| &kind[..]).collect()),
                ops: nodes.len(),
                work: times(work),
                traffic: HostTraffic::default(),
            });
        }
        Ok(Self { layers })
    }

    /// Operators of the model.
    pub fn ops(&self) -> usize {
        self.layers.iter().map(|layer| layer.ops).sum()
    }

    /// What all layers compute.
    pub fn work(&self) -> HostWork {
        let mut all = HostWork::default();
        self.layers.iter().for_each(|layer| all.add(layer.work));
        all
    }

    /// What all layers move.
    pub fn traffic(&self) -> HostTraffic {
        let mut all = HostTraffic::default();
        for layer in &self.layers {
            all.read += layer.traffic.read;
            all.written += layer.traffic.written;
        }
        all
    }

    /// What all layers take, one after the other.
    pub fn time(&self, speed: &HostSpeed) -> HostTime {
        let mut all = HostTime::default();
        for layer in &self.layers {
            let time = layer.time(speed);
            all.compute_ms += time.compute_ms;
            all.transfer_ms += time.transfer_ms;
        }
        all
    }

    /// A layer by name.
    pub fn layer(&self, name: &str) -> Option<&HostLayer> {
        self.layers.iter().find(|layer| layer.name == name)
    }

    /// What the host takes as JSON, with an estimate and the speed that it assumes.
    pub fn json(&self, speed: Option<&HostSpeed>) -> Value {
        let time = speed.map(|speed| self.time(speed));
        let mut object = figures(self.ops(), self.work(), self.traffic(), time);
        object["segments"] = json!(self.layers.len());
        if let Some(speed) = speed {
            object["assumed"] = json!(speed);
        }
        object
    }
}

fn figures(ops: usize, work: HostWork, traffic: HostTraffic, time: Option<HostTime>) -> Value {
    let mut object = json!({
        "ops": ops,
        "macs": work.macs,
        "values": work.values,
        "bytes_read": traffic.read,
        "bytes_written": traffic.written,
    });
    if let Some(time) = time {
        object["compute_ms"] = json!(time.compute_ms);
        object["transfer_ms"] = json!(time.transfer_ms);
        object["estimate_ms"] = json!(time.total_ms());
    }
    object
}

/// `3 Mul, 1 Erf`: the most frequent first.
fn counted(kinds: Vec<&str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for kind in kinds {
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    counts.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
    let told = counts.iter().map(|(kind, count)| match count {
        1 => (*kind).to_owned(),
        n => format!("{n} {kind}"),
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(macs: u64, values: u64, read: u64) -> HostLayer {
        HostLayer {
            name: "n".to_owned(),
            kinds: counted(vec!["Erf", "Mul", "Mul"]),
            ops: 3,
            work: HostWork { macs, values },
            traffic: HostTraffic { read, written: 0 },
        }
    }

    #[test]
    fn times_follow_the_speeds() {
        let speed = HostSpeed {
            gmacs: 2.0,
            gvalues: 0.5,
            gbytes: 4.0,
            layer_us: 100.0,
        };
        let one = layer(4_000_000, 1_000_000, 8_000_000);
        // 2 ms of products, 2 ms of values, and a tenth.
        let expected = HostTime {
            compute_ms: 4.1,
            transfer_ms: 2.0,
        };
        assert_eq!((one.time(&speed), &one.kinds[..]), (expected, "2 Mul, Erf"));
        let share = HostShare {
            layers: vec![one.clone(), one],
        };
        assert!((share.time(&speed).total_ms() - 12.2).abs() < 1e-9);
        assert_eq!(share.json(Some(&speed))["bytes_read"], 16_000_000);
        assert_eq!(HostShare::default().time(&speed), HostTime::default());
    }

    #[test]
    fn what_is_no_speed_is_refused() {
        for text in [
            "gmacs = 0",
            "gbytes = -1.0",
            "gvalues = nan",
            "layer_us = inf",
            "speed = 1",
        ] {
            let error = HostSpeed::from_toml(text).unwrap_err().to_string();
            let key = text.split(' ').next().unwrap_or_default();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert_eq!(HostSpeed::from_toml("").unwrap(), HostSpeed::default());
    }
}
