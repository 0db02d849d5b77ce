//! `vta bench --first`: what a program takes the first time and when it is known, beside an interpreter of
//! instructions.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vta_app::device;
use vta_driver::{Batch, DeviceInfo, PhysAddr, QueueLimits, Runner, Session, WorkerDevice};
use vta_isa::{Config, Insn};
use vta_replay::Case;
use vta_sim::{Executor, Functional, GemmKernel, Planning, SimDevice};

use crate::args::BenchArgs;
use crate::bench::on_core;
use crate::bench::spread::{median, quartiles};
use crate::bench::subject::{image, program};
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// What `--samples` is divided by: a sample here is a device that has run nothing yet.
const SHARE: usize = 20;
/// Runs of a known program for each sample, behind two that plan and touch memory for the first time.
const KNOWN: usize = 5;
const WARM_UPS: usize = 2;
/// An interpreter of instructions that was measured: multiply-adds and instructions a second of the
/// original functional simulator, compiled with -O2.
const INTERPRETER_MACS: f64 = 6.5e9;
const INTERPRETER_INSNS: f64 = 1e9 / 28.0;
/// Networks of the zoo.
const NETWORKS: [&str; 2] = ["resnet18", "resnet50"];

/// One program, in seconds of each sample.
#[derive(Default)]
struct Row {
    name: String,
    insns: u64,
    macs: u64,
    first: Vec<f64>,
    /// The second run: of programs whose plan is worth it by then a short one is planned before it, a long one meanwhile.
    second: Vec<f64>,
    known: Vec<f64>,
    /// The device alone, the first time.
    first_device: Vec<f64>,
    /// Of runs that plan.
    planned: Vec<f64>,
    /// Memory of the plans.
    plan_bytes: usize,
}

fn json_us(seconds: &[f64]) -> Value {
    let [low, median, high] = quartiles(seconds.to_vec()).map(|s| s * 1e6);
    json!({ "us": median, "quartiles_us": [low, high] })
}

impl Row {
    /// The first two runs on what has run nothing yet.
    fn first(&mut self, mut run: impl FnMut() -> Result<f64>) -> Result<()> {
        self.first.push(run()?);
        self.second.push(run()?);
        Ok(())
    }

    /// Runs of what is planned at once.
    fn known(&mut self, mut run: impl FnMut() -> Result<f64>) -> Result<()> {
        self.planned.push(run()?);
        for _ in 1..WARM_UPS {
            run()?;
        }
        for _ in 0..KNOWN {
            self.known.push(run()?);
        }
        Ok(())
    }

    /// What a run takes longer that plans.
    fn planning(&self) -> Vec<f64> {
        let known = median(self.known.clone());
        let planned = self.planned.iter();
        planned.map(|seconds| (seconds - known).max(0.0)).collect()
    }

    /// The first run over what the interpreter would take.
    fn first_of_interpreter(&self) -> f64 {
        median(self.first.clone()) / self.interpreter()
    }

    /// What the interpreter would take.
    fn interpreter(&self) -> f64 {
        self.macs as f64 / INTERPRETER_MACS + self.insns as f64 / INTERPRETER_INSNS
    }

    fn ns_an_insn(&self, seconds: &[f64]) -> f64 {
        median(seconds.to_vec()) * 1e9 / self.insns.max(1) as f64
    }

    fn json(&self) -> Value {
        let planning = self.planning();
        json!({
            "name": self.name, "instructions": self.insns, "macs": self.macs,
            "first": json_us(&self.first), "second": json_us(&self.second),
            "known": json_us(&self.known), "first_device": json_us(&self.first_device),
            "first_ns_per_insn": self.ns_an_insn(&self.first),
            "known_ns_per_insn": self.ns_an_insn(&self.known),
            "interpreter_us": self.interpreter() * 1e6,
            "first_of_interpreter": self.first_of_interpreter(),
            "planning": json_us(&planning), "planning_ns_per_insn": self.ns_an_insn(&planning),
            "plan_bytes": self.plan_bytes,
        })
    }
}

/// Measures and prints.
pub fn bench(args: &BenchArgs) -> Result<bool> {
    ensure!(args.samples > 0, "--samples must be at least 1");
    let config = device::config(args.config.as_ref())?;
    let kernel = SimDevice::kernel_from_env()?;
    let samples = args.samples.div_ceil(SHARE);
    let mut rows = Vec::new();
    for name in NETWORKS {
        rows.push(on_core(0, || of_network(name, &config, kernel, samples))?);
    }
    for path in &args.case {
        for case in vta_replay::load(path)? {
            rows.push(on_core(0, || of_case(path, &case, kernel, samples))?);
        }
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let interpreter = json!({
            "macs_per_s": INTERPRETER_MACS, "ns_per_insn": 1e9 / INTERPRETER_INSNS,
        });
        let all = json!({ "kernel": kernel.name(), "interpreter": interpreter, "programs": rows });
        print_json(&all)?;
    } else {
        print_text(&text(&rows))?;
    }
    Ok(true)
}

/// How long a device ran so far, and how much memory its plans take.
type Ran = Arc<Mutex<(Duration, usize)>>;

/// The functional simulator, which tells what it took.
fn telling(config: &Config, mut executor: Functional, ran: Ran) -> WorkerDevice {
    let info = DeviceInfo {
        name: "sim".to_owned(),
        config: config.clone(),
    };
    let runner: Runner = Box::new(move |batch, memory| {
        let start = Instant::now();
        let report = executor.run_batch(batch, memory);
        let elapsed = start.elapsed();
        // A lock that a panic has poisoned still has the figures.
        let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
        *ran = (ran.0 + elapsed, executor.plan_bytes());
        report.map_err(|e| e.to_string())
    });
    WorkerDevice::new(info, runner)
}

/// A network of the zoo: seconds from the values that are packed to those that are unpacked.
fn of_network(name: &str, config: &Config, kernel: GemmKernel, samples: usize) -> Result<Row> {
    let name = format!("zoo:{name}");
    let program = program(&name, config)?;
    let image = image(&program, 0)?;
    let mut row = Row {
        macs: program.layers.iter().map(|l| l.macs).sum(),
        name,
        ..Row::default()
    };
    for planning in (0..samples).flat_map(|_| [Planning::Again, Planning::AtOnce]) {
        let ran = Ran::default();
        let executor = Functional::with_kernel(config.clone(), kernel).with_planning(planning);
        let device = Arc::new(telling(config, executor, Arc::clone(&ran)));
        let mut session = Session::new(Arc::clone(&program), device, QueueLimits::default())?;
        let mut device_seconds = None;
        let (mut insns, mut plan_bytes) = (0, 0);
        let run = || {
            let start = Instant::now();
            let reports = session.run(&[&image])?.reports;
            let seconds = start.elapsed().as_secs_f64();
            let ran = *ran.lock().unwrap_or_else(PoisonError::into_inner);
            device_seconds.get_or_insert(ran.0.as_secs_f64());
            plan_bytes = ran.1;
            insns = reports.iter().map(|report| report.traffic.insns).sum();
            Ok(seconds)
        };
        if planning == Planning::AtOnce {
            row.known(run)?;
            row.plan_bytes = plan_bytes;
        } else {
            row.first(run)?;
            row.first_device.extend(device_seconds);
        }
        row.insns = insns;
    }
    Ok(row)
}

/// A recorded run: seconds of the simulator alone.
fn of_case(path: &Path, case: &Case, kernel: GemmKernel, samples: usize) -> Result<Row> {
    let batch = Arc::new(Batch {
        words: case.words.clone(),
        insns: case.insns.clone(),
        insn_addr: PhysAddr(0),
        marks: Vec::new(),
    });
    let tile = (case.config.lanes() * case.config.block()) as u64;
    let macs = case.insns.iter().map(|insn| match insn {
        Insn::Gemm(gemm) if !gemm.reset => gemm.steps() * tile,
        Insn::Depthwise(insn) => insn.steps() * (insn.taps() * case.config.lanes()) as u64,
        Insn::Gemm(_) | Insn::Load(_) | Insn::Store(_) | Insn::Alu(_) | Insn::Finish(_) => 0,
    });
    let mut row = Row {
        name: case.name.clone(),
        insns: batch.insns.len() as u64,
        macs: macs.sum(),
        ..Row::default()
    };
    for planning in (0..samples).flat_map(|_| [Planning::Again, Planning::AtOnce]) {
        let mut memory = case.memory()?;
        let executor = Functional::with_kernel(case.config.clone(), kernel);
        let mut executor = executor.with_planning(planning);
        let run = || {
            let start = Instant::now();
            executor
                .run_batch(&batch, &mut memory)
                .with_context(|| path.display().to_string())?;
            Ok(start.elapsed().as_secs_f64())
        };
        if planning == Planning::AtOnce {
            row.known(run)?;
            row.plan_bytes = executor.plan_bytes();
        } else {
            row.first(run)?;
        }
    }
    row.first_device.clone_from(&row.first);
    Ok(row)
}

/// A table, and what doesn't fit one.
fn text(rows: &[Row]) -> String {
    let mut table = Table::new([
        Column::name(""),
        Column::number("GMAC"),
        Column::number("insns"),
        Column::number("first ms"),
        Column::number("second"),
        Column::number("known"),
        Column::number("ns/insn"),
        Column::number("bound"),
        Column::number("plan MB"),
    ]);
    let ms = |seconds: &[f64]| match median(seconds.to_vec()) * 1e3 {
        ms if ms < 1.0 => format!("{ms:.3}"),
        ms if ms < 100.0 => format!("{ms:.2}"),
        ms => format!("{ms:.0}"),
    };
    for row in rows {
        table.row([
            row.name.clone(),
            format!("{:.3}", row.macs as f64 / 1e9),
            row.insns.to_string(),
            ms(&row.first),
            ms(&row.second),
            ms(&row.known),
            format!(
                "{:.0}, {:.0}, {:.0}",
                row.ns_an_insn(&row.first),
                row.ns_an_insn(&row.planning()),
                row.ns_an_insn(&row.known)
            ),
            format!("{:.2}", row.first_of_interpreter()),
            format!("{:.2}", row.plan_bytes as f64 / 1e6),
        ]);
    }
    let [gmacs, nanos] = [INTERPRETER_MACS / 1e9, 1e9 / INTERPRETER_INSNS];
    format!(
        "{}\nns/insn: an instruction the first time, of planning, and when the program is known\n\
         bound: the first run over an interpreter of {gmacs} GMAC/s and {nanos:.0} ns an instruction\n\
         plan MB: memory of the plan",
        table.text(),
    )
}
