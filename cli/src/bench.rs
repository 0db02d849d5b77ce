//! `vta bench`: how fast the functional simulator is, as a share of what this CPU can do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use vta_compiler::{layer, lower, zoo};
use vta_driver::{
    Batch, Device, LayerMark, PhysAddr, Program, QueueLimits, Session, Work, WorkDone,
};
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Finish, Gemm, Insn, Load, MemType, Store, Uop,
};
use vta_sim::{GemmKernel, SimDevice};

use crate::args::BenchArgs;
use crate::model::{self, Model};
use crate::report::print_line;

/// Layers whose share is reported: ResNet-18's convolutions but the first.
const LAYERS: std::ops::RangeInclusive<usize> = 2..=11;
/// Networks of the zoo, all of whose multiply-adds count.
const NETWORKS: [&str; 2] = ["resnet18", "resnet50"];
/// Samples of the CPU's peak before each measurement.
const PEAK_SAMPLES: usize = 40;
/// Groups of five one-tile instructions in the program of tiny instructions.
const TINY_GROUPS: usize = 4096;

/// One layer's figures.
struct LayerRow {
    name: String,
    macs: u64,
    gmacs: f64,
    micros: f64,
}

/// One network's figures.
struct NetworkRow {
    name: &'static str,
    gmacs: f64,
    images_per_s: f64,
    /// On the device alone: the sum of the layers' median times.
    device_gmacs: f64,
}

/// Everything that is measured.
struct Figures {
    kernel: GemmKernel,
    /// Multiply-adds a second: the median of readings before each measurement.
    peak: f64,
    layers: Vec<LayerRow>,
    networks: Vec<NetworkRow>,
    speedup_2_threads: Option<f64>,
    ns_per_insn: f64,
}

/// Measures and prints.
pub fn bench(args: &BenchArgs) -> Result<bool> {
    ensure!(args.samples > 0, "--samples must be at least 1");
    ensure!(args.threads > 0, "--threads must be at least 1");
    let config = model::config(args.config.as_ref())?;
    let kernel = SimDevice::kernel_from_env()?;
    let mut figures = Figures {
        kernel,
        peak: 0.0,
        layers: Vec::new(),
        networks: Vec::new(),
        speedup_2_threads: None,
        ns_per_insn: 0.0,
    };
    let mut peaks = Vec::new();
    for index in LAYERS {
        peaks.push(kernel.peak_macs_per_second(PEAK_SAMPLES));
        let name = format!("resnet18.C{index}");
        figures
            .layers
            .push(one_layer(&name, &config, args.samples)?);
    }
    for name in NETWORKS {
        peaks.push(kernel.peak_macs_per_second(PEAK_SAMPLES));
        let samples = args.samples.div_ceil(4);
        let program = network(name, &config)?;
        let (row, speedup) = one_network(name, &program, samples, args.threads)?;
        figures.speedup_2_threads = figures.speedup_2_threads.or(speedup);
        figures.networks.push(row);
    }
    figures.peak = median(peaks);
    figures.ns_per_insn = tiny(&config, args.samples)?;
    if args.json {
        print_line(&serde_json::to_string_pretty(&figures.json())?)?;
    } else {
        print_line(&figures.text())?;
    }
    Ok(true)
}

impl Figures {
    fn share(&self, gmacs: f64) -> f64 {
        gmacs * 1e9 / self.peak.max(1.0)
    }

    fn json(&self) -> serde_json::Value {
        let layer = |row: &LayerRow| {
            json!({
                "name": row.name, "macs": row.macs, "us": row.micros,
                "gmacs": row.gmacs, "share": self.share(row.gmacs),
            })
        };
        let network = |row: &NetworkRow| {
            json!({
                "name": row.name, "gmacs": row.gmacs, "share": self.share(row.gmacs),
                "images_per_s": row.images_per_s,
                "device_share": self.share(row.device_gmacs),
            })
        };
        json!({
            "kernel": self.kernel.name(),
            "peak_gmacs": self.peak / 1e9,
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "networks": self.networks.iter().map(network).collect::<Vec<_>>(),
            "speedup_2_threads": self.speedup_2_threads,
            "ns_per_insn": self.ns_per_insn,
        })
    }

    fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["", "GMAC/s", "share", ""]);
        let row = |name: &str, gmacs: f64, note: String| {
            let share = format!("{:.1} %", 100.0 * self.share(gmacs));
            [name.to_owned(), format!("{gmacs:.1}"), share, note]
        };
        let peak = format!("{}, one thread, measured", self.kernel.name());
        table.add_row(row("peak", self.peak / 1e9, peak));
        for l in &self.layers {
            table.add_row(row(&l.name, l.gmacs, format!("{:.1} us", l.micros)));
        }
        for n in &self.networks {
            let device = 100.0 * self.share(n.device_gmacs);
            let note = format!("{:.1} images/s; device alone {device:.1} %", n.images_per_s);
            table.add_row(row(n.name, n.gmacs, note));
        }
        let speedup = self.speedup_2_threads.map_or_else(
            || "two threads: not measured on one core".to_owned(),
            |s| format!("two threads are {s:.2} times as fast as one"),
        );
        format!(
            "{table}\n\n{speedup}\n{:.1} ns for an instruction on one tile",
            self.ns_per_insn
        )
    }
}

/// The median of at least one figure.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One layer, on one thread: the device's wall time of a run.
fn one_layer(name: &str, config: &Config, samples: usize) -> Result<LayerRow> {
    let spec = layer::parse(name)?;
    let graph = layer::build(&spec, 1)?;
    let program = Arc::new(lower::compile(
        &graph,
        config,
        &lower::LowerOptions::default(),
    )?);
    let mut session = session(&program)?;
    let image = layer::input(&spec, 1, 0);
    let mut seconds = Vec::with_capacity(samples);
    // The first runs plan, and touch memory for the first time.
    for sample in 0..samples + 2 {
        let out = session.run(&[&image])?;
        let wall: Duration = out.reports.iter().map(|r| r.wall).sum();
        if sample >= 2 {
            seconds.push(wall.as_secs_f64());
        }
    }
    let (macs, seconds) = (program.layers[0].macs, median(seconds));
    Ok(LayerRow {
        name: spec.name,
        macs,
        gmacs: macs as f64 / seconds / 1e9,
        micros: seconds * 1e6,
    })
}

fn session(program: &Arc<Program>) -> Result<Session> {
    let device = SimDevice::functional_from_env(program.config.clone())?;
    let device: Arc<dyn Device> = Arc::new(device);
    Ok(Session::new(
        Arc::clone(program),
        device,
        QueueLimits::default(),
    )?)
}

fn network(name: &str, config: &Config) -> Result<Arc<Program>> {
    match model::load(&format!("zoo:{name}"))? {
        Model::Graph(graph) => Ok(Arc::new(model::compile(&graph, config)?.1)),
        Model::Program(program) => Ok(Arc::new(*program)),
    }
}

/// One network, everything from the packed image to the unpacked output included; and how much
/// faster two threads are, where there are two cores.
fn one_network(
    name: &'static str,
    program: &Arc<Program>,
    samples: usize,
    threads: usize,
) -> Result<(NetworkRow, Option<f64>)> {
    let (one, layers) = images_per_second(program, samples, 1)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let speedup = if cores.min(threads) >= 2 {
        Some(images_per_second(program, samples, 2)?.0 / one)
    } else {
        None
    };
    let macs: u64 = program.layers.iter().map(|l| l.macs).sum();
    let row = NetworkRow {
        name,
        gmacs: macs as f64 * one / 1e9,
        images_per_s: one,
        device_gmacs: macs as f64 / layers.into_iter().map(median).sum::<f64>() / 1e9,
    };
    Ok((row, speedup))
}

/// Images a second over threads that each have a device, from the median time of a run; and the
/// seconds of each layer on the device, run by run.
fn images_per_second(
    program: &Arc<Program>,
    samples: usize,
    threads: usize,
) -> Result<(f64, Vec<Vec<f64>>)> {
    let spec = program.tensor(*program.inputs.first().context("the program has no input")?)?;
    let side = spec.chw[1] as usize;
    let image: Vec<i8> = zoo::sample_image(side, 0)
        .into_iter()
        .map(|v| (i16::from(v) - 128) as i8)
        .collect();
    let ready = std::sync::Barrier::new(threads);
    let worker = || -> Result<(f64, Vec<Vec<f64>>)> {
        let mut layers = vec![Vec::with_capacity(samples); program.layers.len()];
        let mut session = session(program)?;
        session.run(&[&image])?;
        session.run(&[&image])?;
        ready.wait();
        let mut seconds = Vec::with_capacity(samples);
        for _ in 0..samples {
            let started = Instant::now();
            let out = session.run(&[&image])?;
            seconds.push(started.elapsed().as_secs_f64());
            let marks = out.reports.iter().flat_map(|report| &report.marks);
            for (times, mark) in layers.iter_mut().zip(marks) {
                times.push(mark.wall.as_secs_f64());
            }
        }
        Ok((1.0 / median(seconds), layers))
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let (mut rate, mut layers) = (0.0, Vec::new());
        for worker in workers {
            let done = worker.join();
            let done = done.unwrap_or_else(|_| bail!("a worker thread failed"))?;
            rate += done.0;
            layers = done.1;
        }
        Ok((rate, layers))
    })
}

/// Nanoseconds an instruction of a program whose every instruction touches one tile: LOAD INP,
/// LOAD ACC8, GEMM, ALU and STORE, in turns.
fn tiny(config: &Config, samples: usize) -> Result<f64> {
    let device = SimDevice::functional_from_env(config.clone())?;
    let (base, out) = (device.alloc(1 << 16)?, device.alloc(1 << 20)?);
    let insns = tiny_insns(config, base, out)?;
    let words = insns
        .iter()
        .map(Insn::encode)
        .collect::<Result<Vec<_>, _>>()?;
    let batch = Arc::new(Batch {
        words,
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![LayerMark {
            name: "tiny".to_owned(),
            first_insn: 0,
        }],
    });
    let mut nanos = Vec::with_capacity(samples);
    for sample in 0..samples + 2 {
        let ticket = device.submit(Work::Run(Arc::clone(&batch)))?;
        if let WorkDone::Ran(report) = ticket.wait()?
            && sample >= 2
        {
            nanos.push(report.wall.as_secs_f64() * 1e9 / batch.insns.len() as f64);
        }
    }
    Ok(median(nanos))
}

fn tiny_insns(config: &Config, base: PhysAddr, out: PhysAddr) -> Result<Vec<Insn>> {
    let at = |mem: MemType| base.0 / config.elem_bytes(mem) as u32;
    let one = |mem: MemType, tile: usize| Load {
        mem,
        sram_base: tile as u16,
        dram_base: at(mem),
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..Load::default()
    };
    let tiles = config
        .depth(MemType::Acc)
        .min(config.depth(MemType::Inp))
        .min(64);
    let mut insns = vec![one(MemType::Wgt, 0).into(), one(MemType::Uop, 0).into()];
    ensure!(
        Uop::default().encode()? == 0,
        "a micro-op of zeros names the first tiles"
    );
    for group in 0..TINY_GROUPS {
        let tile = group % tiles;
        let store = Store {
            sram_base: tile as u16,
            dram_base: out.0 / config.elem_bytes(MemType::Out) as u32 + group as u32 % 1024,
            y_size: 1,
            x_size: 1,
            x_stride: 1,
            ..Store::default()
        };
        let loads = [one(MemType::Inp, tile), one(MemType::Acc8, 0)];
        insns.extend(tiny_group(loads, store, group > 0));
    }
    let last = Deps {
        pop_next: true,
        ..Deps::NONE
    };
    insns.push(
        Load {
            deps: last,
            ..one(MemType::Inp, 0)
        }
        .into(),
    );
    insns.push(Finish { deps: last }.into());
    Ok(insns)
}

/// Five instructions. Load, compute and store hand one token around, so that their order is the
/// program's; all but the first group wait for the one before.
fn tiny_group([inp, acc]: [Load; 2], store: Store, wait: bool) -> [Insn; 5] {
    let gemm = Gemm {
        uop_end: 1,
        iter_out: 1,
        iter_in: 1,
        ..Gemm::default()
    };
    let alu = Alu {
        deps: Deps {
            push_next: true,
            push_prev: true,
            ..Deps::NONE
        },
        op: AluOp::Add,
        operand: AluOperand::Imm(1),
        uop_bgn: 0,
        uop_end: 1,
        iter_out: 1,
        iter_in: 1,
        dst_factor_out: 0,
        dst_factor_in: 0,
        src_factor_out: 0,
        src_factor_in: 0,
    };
    let deps = Deps {
        pop_next: wait,
        push_next: true,
        ..Deps::NONE
    };
    let inp = Load { deps, ..inp };
    let deps = Deps {
        pop_prev: true,
        pop_next: wait,
        ..Deps::NONE
    };
    let acc = Load { deps, ..acc };
    let deps = Deps {
        pop_prev: true,
        push_prev: true,
        ..Deps::NONE
    };
    let store = Store { deps, ..store };
    [
        inp.into(),
        acc.into(),
        gemm.into(),
        alu.into(),
        store.into(),
    ]
}
