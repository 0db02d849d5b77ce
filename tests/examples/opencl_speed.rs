//! How fast a network runs on every OpenCL backend of this machine:
//! `cargo run --release -p vta-tests --example opencl_speed`.

use std::sync::Arc;
use std::time::Instant;

use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::{passes, zoo};
use vta_driver::{Device, QueueLimits, Session};
use vta_hw_opencl::{Math, Options, Structure};
use vta_isa::Config;
use vta_tests::opencl::backends;

/// Processor time of this process in seconds, where the system tells.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|t| t.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Prints GMAC/s of a network's images on every backend, after a first one that compiles and plans. The
/// environment narrows it: VTA_SPEED_NET, VTA_SPEED_ONLY (a part of a backend's name),
/// VTA_SPEED_ALL (every way of forming products), VTA_SPEED_CONFIG (a configuration's JSON).
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let set = |name| std::env::var(name).ok();
    let name = set("VTA_SPEED_NET").unwrap_or_else(|| "resnet18".into());
    let only = set("VTA_SPEED_ONLY").unwrap_or_default();
    let graph = passes::quantized(&zoo::graph(&name)?)?;
    let config = Config::from_json(&set("VTA_SPEED_CONFIG").unwrap_or_else(|| "{}".into()))?;
    let program = lower::compile(&graph, &config, &LowerOptions::default());
    let program = Arc::new(program?);
    let image = zoo::sample_image(224, 1);
    let image: Vec<i16> = image
        .iter()
        .map(|&x| (i16::from(x) - 118) * 2 / 3)
        .collect();
    let macs: u64 = program.layers.iter().map(|l| l.macs).sum();
    let ways = [
        Math::Int,
        Math::Pairs,
        Math::Float,
        Math::Fours,
        Math::Matrix,
    ]
    .map(Some);
    for backend in backends("speed") {
        if !backend.name().contains(&only) {
            continue;
        }
        let all = set("VTA_SPEED_ALL").is_some() && backend.structure == Structure::Throughput;
        for math in if all { &ways[..] } else { &[None] } {
            let options = Options {
                math: *math,
                ..Options::from_env()
            };
            let device = Arc::new(backend.open_with(&program.config, options)?);
            let shared: Arc<dyn Device> = device.clone();
            let mut session = Session::new(Arc::clone(&program), shared, QueueLimits::default())?;
            let first = Instant::now();
            session.run(&[&image])?;
            let first = first.elapsed().as_secs_f64() * 1e3;
            let (runs, mut best) = (10, f64::MAX);
            let processor = processor_seconds();
            for _ in 0..runs {
                let start = Instant::now();
                session.run(&[&image])?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            let processor = (processor_seconds() - processor) * 1e3 / f64::from(runs);
            let stats = device.counters().unwrap_or_default();
            println!(
                "{:28} {math:?}: {:.1} ms, {:.2} GMAC/s (first {first:.0} ms, planned in \
                 {:.1} ms), processor {processor:.0} ms, {} launches, {} stalls, {} bytes to the device",
                backend.name(),
                best * 1e3,
                macs as f64 / best / 1e9,
                stats.plan_ns as f64 / 1e6,
                stats.launches / stats.batches,
                stats.stalls,
                stats.bytes_to_device,
            );
        }
    }
    Ok(())
}
