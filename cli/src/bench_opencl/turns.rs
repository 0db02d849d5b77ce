//! Ways of running that take turns, so that whatever else the machine does meets all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use vta_driver::{Device, DeviceCounters};

/// How often all ways run.
#[derive(Clone, Copy)]
pub struct Rounds {
    pub least: usize,
    pub most: usize,
    /// No more rounds once they have taken so long together.
    pub patience: Duration,
}

/// What one way took.
pub struct Taken {
    /// Milliseconds of each run behind the first, which plans.
    pub ms: Vec<f64>,
    /// By the last run.
    pub counted: DeviceCounters,
    /// Whether all outputs are that of the first way's first run.
    pub same: bool,
}

/// Runs as many ways as there are devices, by their index: each on its device.
pub fn turns<O: PartialEq>(
    rounds: Rounds,
    devices: &[Arc<dyn Device>],
    mut run: impl FnMut(usize) -> Result<O>,
) -> Result<Vec<Taken>> {
    let first = (0..devices.len()).map(&mut run);
    let first = first.collect::<Result<Vec<O>>>()?;
    let fresh = |out: &O| Taken {
        ms: Vec::with_capacity(rounds.most),
        counted: DeviceCounters::default(),
        same: *out == first[0],
    };
    let mut all: Vec<Taken> = first.iter().map(fresh).collect();
    let started = Instant::now();
    for round in 0..rounds.most {
        if round >= rounds.least && started.elapsed() > rounds.patience {
            break;
        }
        for (way, (taken, device)) in all.iter_mut().zip(devices).enumerate() {
            let counters = || device.counters().unwrap_or_default();
            let (before, begun) = (counters(), Instant::now());
            let out = run(way)?;
            taken.ms.push(begun.elapsed().as_secs_f64() * 1e3);
            taken.counted = counters().since(&before);
            taken.same &= out == first[0];
        }
    }
    Ok(all)
}
