//! `cargo bench -p vta-rtl-double --bench overhead`: what the host, memory and bus of `vta-hw-rtl` cost beside a
//! design. The double's clock runs a layer twice: alone, with pins that answer at once from a vector of bytes, and
//! as a library behind the DPI interface. Medians of seven rounds in turns, with quartiles.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use vta_compiler::{layer, lower};
use vta_driver::{Batch, DeviceInfo, DeviceMemory, QueueLimits, Runner, Session, WorkerDevice};
use vta_hw_rtl::{Options, Rtl};
use vta_isa::Config;
use vta_rtl_double::design::{Access, BEAT_BYTES, BusOut, Design, Pins, Switch};

const LAYERS: [&str; 3] = ["conv:1,16,32,32,32,3,1,1", "resnet18.C2", "resnet18.C11"];
const ROUNDS: usize = 7;

/// A host and a memory with nothing around them: what any harness has to do.
struct Bare {
    base: u64,
    memory: Vec<u8>,
    /// Registers to write, the launch last.
    writes: Vec<Access>,
    read: std::collections::VecDeque<(u64, u64)>,
    write: (u64, u64),
    cycles: Option<u32>,
    asked: u8,
}

impl Pins for Bare {
    fn switch(&mut self) -> Switch {
        match self.cycles {
            Some(_) => Switch::Exit,
            None => Switch::Run,
        }
    }

    fn host(&mut self, taken: bool, answer: Option<u32>) -> Option<Access> {
        if taken && !self.writes.is_empty() {
            self.writes.remove(0);
        }
        match (answer, self.asked) {
            (Some(2), 0) => self.asked = 4,
            (Some(cycles), 4) => self.cycles = Some(cycles),
            _ => {}
        }
        let read = Access {
            addr: self.asked,
            value: None,
        };
        Some(self.writes.first().copied().unwrap_or(read))
    }

    fn bus(&mut self, out: BusOut) -> Option<[u8; BEAT_BYTES]> {
        let at = |addr: u64| (addr - self.base) as usize;
        if let Some(beat) = out.data {
            let to = at(self.write.0);
            self.memory[to..to + BEAT_BYTES].copy_from_slice(&beat);
            self.write.0 += BEAT_BYTES as u64;
        }
        if let Some(write) = out.write {
            self.write = write;
        }
        self.read.extend(out.read);
        let (addr, beats) = self.read.front_mut()?;
        let from = at(*addr);
        *addr += BEAT_BYTES as u64;
        *beats -= 1;
        if *beats == 0 {
            self.read.pop_front();
        }
        self.memory[from..from + BEAT_BYTES].try_into().ok()
    }
}

/// Seconds of a batch on the double alone.
fn alone(batch: &Batch, memory: &DeviceMemory) -> f64 {
    let regions: Vec<(u32, &[u8])> = (0..)
        .map_while(|i| Some((memory.address(i)?, memory.region(i))))
        .collect();
    let base = u64::from(regions[0].0);
    let end = regions
        .iter()
        .map(|(addr, bytes)| u64::from(*addr) + bytes.len() as u64);
    let mut bytes = vec![0; (end.max().unwrap() - base) as usize + 64];
    for (addr, region) in regions {
        let first = (u64::from(addr) - base) as usize;
        bytes[first..first + region.len()].copy_from_slice(region);
    }
    let write = |addr, value| Access {
        addr,
        value: Some(value),
    };
    let mut pins = Bare {
        base,
        memory: bytes,
        writes: vec![
            write(8, batch.insns.len() as u32),
            write(12, batch.insn_addr.0),
            write(0, 1),
        ],
        read: Default::default(),
        write: (0, 0),
        cycles: None,
        asked: 0,
    };
    let options = vta_rtl_double::options::Options::parse("").unwrap();
    let start = Instant::now();
    Design::new(options).clock(&mut pins);
    start.elapsed().as_secs_f64()
}

fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folder.with_file_name(format!("{prefix}vta_rtl_double{suffix}"))
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test --benches` only wants to know that it starts.
    }
    println!(
        "| layer | cycles | alone, Mcycles/s | behind the interface, Mcycles/s | overhead, % |"
    );
    println!("|---|---|---|---|---|");
    for name in LAYERS {
        let (times, cycles) = measure(name);
        let mut overhead: Vec<f64> = times.iter().map(|[a, b]| 100.0 * (b / a - 1.0)).collect();
        let rate = |k: usize| {
            let mut rates: Vec<f64> = times.iter().map(|t| cycles as f64 / t[k] / 1e6).collect();
            quartiles(&mut rates)
        };
        let (one, other) = (rate(0), rate(1));
        println!(
            "| {name} | {cycles} | {one} | {other} | {} |",
            quartiles(&mut overhead)
        );
    }
}

/// Seconds alone and behind the interface, round by round, and the layer's cycles.
fn measure(name: &str) -> (Vec<[f64; 2]>, u64) {
    let config = Config::default();
    let spec = layer::parse(name).unwrap();
    let graph = layer::build(&spec, 3).unwrap();
    let program = lower::compile(&graph, &config, &lower::LowerOptions::default()).unwrap();
    let found = Arc::new(Mutex::new((Vec::new(), 0)));
    let (log, of) = (Arc::clone(&found), config.clone());
    let mut rtl = Rtl::open(&library(), &Options::default()).unwrap();
    let runner: Runner = Box::new(move |batch, memory| {
        let one = alone(batch, memory);
        let start = Instant::now();
        let ran = vta_hw_rtl::run(&mut rtl, &of, None, batch, memory);
        let other = start.elapsed().as_secs_f64();
        let report = ran.map_err(|error| error.to_string())?.0;
        let mut log = log.lock().unwrap();
        log.0.push([one, other]);
        log.1 = report.cycles.unwrap();
        Ok(report)
    });
    let info = DeviceInfo {
        name: "both".to_owned(),
        config,
    };
    let device = Arc::new(WorkerDevice::new(info, runner));
    let mut session = Session::new(Arc::new(program), device, QueueLimits::default()).unwrap();
    let image = layer::input(&spec, 3, 0);
    for _ in 0..ROUNDS {
        session.run(&[&image]).unwrap();
    }
    drop(session);
    let found = found.lock().unwrap();
    found.clone()
}

/// The median, with quartiles in brackets.
fn quartiles(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
    format!("{:.2} ({:.2}, {:.2})", at(2), at(1), at(3))
}
