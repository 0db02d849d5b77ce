//! Every command but run and exec.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::CommandFactory;
use serde_json::json;
use vta_app::cycle::Setup;
use vta_app::files::{self, decode, is, read_words};
use vta_app::machine::{self, Machine, Wanted};
use vta_app::model::{self, Form};
use vta_app::options::{DeviceOptions, ViewOptions};
use vta_app::preprocess::Preprocess;
use vta_app::source::Source;
use vta_app::timed::{Timed, cycles_json, utilization};
use vta_app::watch::Watch;
use vta_app::{compile, images, replay_rtl, tiles};
use vta_compiler::quantize::Mode;
use vta_compiler::zoo::Outline;
use vta_compiler::{graph::Graph, layer, lower, onnx, passes, reference, zoo};
use vta_driver::{DramPlan, Program, QueueLimits, Session, Symbol, Traffic, output, replay};
use vta_isa::{INSN_BYTES, Insn, MemType, Uop};

use crate::args::{
    AsmArgs, Cli, CompileArgs, DisasmArgs, LayerArgs, QuantizeArgs, QuantizeMode, ReplayArgs,
    TimingArgs,
};
use crate::bar::Bar;
use crate::report::tell_written;
use crate::table::{Column, Table};
use crate::terminal::{print_line, print_text, say_written};

pub fn layer(args: &LayerArgs) -> Result<bool> {
    let spec = layer::parse(&args.layer)?;
    let setup = Setup::new(&args.device.options(), &args.views.options(), &args.layer)?;
    let machine = setup.machine();
    let config = machine.config.clone();
    let graph = layer::build(&spec, args.seed)?;
    let options = args.tiles.options();
    let program = Arc::new(tiles::lower(&graph, &config, &options, machine.named())?);
    if let Some(text) = machine.misfit(&program) {
        remarks().note(&text);
    }
    let device = setup.device(&config, 1)?;
    let mut session = Session::new(Arc::clone(&program), device, QueueLimits::default())?;
    let inputs: Vec<_> = (0..spec.images)
        .map(|i| layer::input(&spec, args.seed, i))
        .collect();
    let (mut largest, mut traffic, mut wall) = (0i32, Traffic::default(), 0.0);
    for images in inputs.chunks(config.batch()) {
        let refs: Vec<&[i8]> = images.iter().map(Vec::as_slice).collect();
        let started = Instant::now();
        let out = session.run(&refs)?;
        wall += started.elapsed().as_secs_f64() * 1e3;
        out.reports.iter().for_each(|r| traffic.add(&r.traffic));
        if setup.timing_only() {
            continue;
        }
        for (image, got) in images.iter().zip(&out.outputs[0]) {
            let values = reference::run(&graph, image)?;
            let expected = &values[program.outputs[0] as usize];
            let error = got
                .iter()
                .zip(expected)
                .map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs());
            largest = largest.max(error.max().unwrap_or(0));
        }
    }
    let timed = setup.finish(&program, &args.layer)?;
    let macs = program.layers[0].macs * spec.images as u64;
    let passes = inputs.len().div_ceil(config.batch()) as u64;
    let done = traffic.gemm_steps * config.macs_per_step();
    let outcome = LayerOutcome {
        macs,
        passes,
        utilization: match timed.as_ref() {
            Some(timed) => utilization(&timed.total(), macs, passes),
            None => macs as f64 / done.max(1) as f64,
        },
        error: (!setup.timing_only()).then_some(largest),
        traffic,
        submissions: session.counters().submissions,
        wall_ms: wall,
        timed,
    };
    match args.json {
        true => outcome.json(args)?,
        false => outcome.text(args)?,
    }
    tell_written(&args.views, args.json)?;
    Ok(largest == 0)
}

/// A layer that has run.
struct LayerOutcome {
    /// Useful multiply-adds of all images.
    macs: u64,
    /// Runs of BATCH images.
    passes: u64,
    utilization: f64,
    /// The largest difference from the reference; `None` when nothing was computed.
    error: Option<i32>,
    traffic: Traffic,
    submissions: u64,
    wall_ms: f64,
    timed: Option<Timed>,
}

impl LayerOutcome {
    fn json(&self, args: &LayerArgs) -> Result<()> {
        let bytes = |m: MemType| self.traffic.bytes[m.code() as usize];
        let by_type: serde_json::Map<_, _> = MemType::ALL
            .into_iter()
            .map(|m| (m.name().to_owned(), json!(bytes(m))))
            .collect();
        let mut object = json!({
            "layer": args.layer, "device": args.device.device, "macs": self.macs,
            "insns": self.traffic.insns, "gemm_uops": self.traffic.gemm_steps, "bytes": by_type,
            "submissions": self.submissions, "wall_ms": self.wall_ms,
            "utilization": self.utilization, "max_abs_error": self.error,
        });
        if let Some(timed) = &self.timed {
            let (total, steps) = (timed.total(), timed.total_steps());
            let mut keys = cycles_json(&total, &steps, self.macs, self.passes, &timed.energy);
            keys.insert("timing".into(), json!(timed.board));
            keys.insert("timing_only".into(), json!(self.error.is_none()));
            for (key, value) in keys {
                object[key] = value;
            }
        }
        print_line(&serde_json::to_string_pretty(&object)?)
    }

    fn text(&self, args: &LayerArgs) -> Result<()> {
        let verdict = match self.error {
            None => "cycles only, nothing computed".to_owned(),
            Some(0) => "bit-identical to the reference (max_abs_error 0)".to_owned(),
            Some(error) => format!("MISMATCH (max_abs_error {error})"),
        };
        // Without results there is no work whose time would tell anything.
        let wall = match self.error {
            None => String::new(),
            Some(_) => format!("\n  {:.2} ms on {}", self.wall_ms, args.device.device),
        };
        print_text(&format!(
            "{}: {verdict}\n  {} MACs, {} GEMM micro-ops, \
             utilisation {:.1} %, {} instructions, {} bytes{wall}",
            args.layer,
            self.macs,
            self.traffic.gemm_steps,
            self.utilization * 100.0,
            self.traffic.insns,
            self.traffic.total_bytes(),
        ))?;
        let Some(timed) = &self.timed else {
            return Ok(());
        };
        let (total, bound) = (timed.total(), timed.bound_cycles().max(1));
        print_text(&format!(
            "  {} cycles on {}, {:.3} times the bound of {bound}\n  {}",
            total.cycles,
            timed.board,
            total.cycles as f64 / bound as f64,
            vta_sim::views::Verdict::of(&total).words,
        ))
    }
}

pub fn quantize(args: &QuantizeArgs) -> Result<bool> {
    let mut graph = model::read_onnx(&args.model)?;
    let stated = graph.metadata.get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess.options(), stated, &remarks())?;
    let pictures = images::Source::open(std::slice::from_ref(&args.calibration), args.limit)?;
    graph
        .metadata
        .insert("preprocess".to_owned(), preprocess.to_json());
    let mode = match args.mode {
        QuantizeMode::Shift => Mode::Shift,
        QuantizeMode::Multiply => Mode::Multiply,
    };
    let quantised = model::quantise(&graph, &pictures, &preprocess, mode)
        .with_context(|| args.model.display().to_string())?;
    // What is written is known to compile.
    passes::quantized(&quantised)?;
    let bytes = onnx::save(&quantised);
    output::write(&args.output, &bytes)?;
    let line = format!(
        "{}: {} nodes, {} bytes, calibrated with {} images",
        args.output.display(),
        quantised.nodes.len(),
        bytes.len(),
        pictures.len()
    );
    say_written(&args.output, &line)?;
    Ok(true)
}

pub fn compile(args: &CompileArgs) -> Result<bool> {
    let machine = Machine::read(Wanted {
        config: args.config.as_deref(),
        board: args.board.board.as_deref(),
        timing: None,
    })?;
    let config = machine.config.clone();
    let mut graph = match model::load(&args.model)? {
        Form::Graph(graph) => *graph,
        Form::Program(_) | Form::Hosted(_) => bail!("{} is compiled already", args.model),
    };
    model::choose_requant(&mut graph, args.requant.mode());
    ensure!(
        model::is_quantised(&graph),
        "{} is a float model: run `vta quantize` first",
        args.model
    );
    if let Some(pass) = &args.dump_after {
        return dump(&graph, pass);
    }
    let output = args.output.as_ref().context("--output is missing")?;
    let preprocess = Preprocess::choose(
        &args.preprocess.options(),
        graph.metadata.get("preprocess"),
        &remarks(),
    )?;
    let mut integer = passes::quantized(&graph).with_context(|| args.model.clone())?;
    let facts = [
        ("preprocess".to_owned(), preprocess.to_json()),
        // Not the path: the same model gives the same bytes wherever it lies.
        ("model".to_owned(), files::name(&args.model)),
    ];
    integer.metadata.extend(facts);
    let hosted = match args.allow_host {
        true => compile::hosted(&integer, &config, &args.tiles.options())
            .with_context(|| args.model.clone())?,
        false => None,
    };
    let (bytes, program, host_ops) = match hosted {
        None => {
            let options = args.tiles.options();
            let program = tiles::lower(&integer, &config, &options, machine.named());
            let program = program.with_context(|| args.model.clone())?;
            (program.to_bytes()?, Arc::new(program), 0)
        }
        Some(network) => {
            let bytes = network.to_bytes()?;
            let part = network.parts.first();
            let program = &part.context("the network has no device")?.program;
            (bytes, Arc::clone(program), network.host_ops())
        }
    };
    output::write(output, &bytes)?;
    let commands: usize = program.layers.iter().map(|l| l.commands.len()).sum();
    let size = bytes.len();
    let host = match host_ops {
        0 => String::new(),
        n => format!(" and {n} of the host"),
    };
    let line = format!(
        "{}: {} layers{host}, {commands} commands, {} micro-op kernels, {size} bytes",
        output.display(),
        program.layers.len(),
        program.kernels.len(),
    );
    say_written(output, &line)?;
    say_written(output, &memory_line(&DramPlan::of(&program)))?;
    Ok(true)
}

/// Work without a bar, whose remarks are shown.
fn remarks() -> Bar {
    Bar::new("", usize::MAX, true)
}

/// Device memory in words.
pub fn memory_line(plan: &DramPlan) -> String {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    format!(
        "{} KiB of device memory at most: {} KiB between layers ({} KiB without sharing), \
         {} KiB of constants, {} KiB of inputs and outputs",
        kib(plan.total_bytes()),
        kib(plan.scratch_bytes),
        kib(plan.unshared_bytes),
        kib(plan.constant_bytes),
        kib(plan.io_bytes),
    )
}

fn dump(graph: &Graph, pass: &str) -> Result<bool> {
    let names = passes::names();
    ensure!(
        pass == "all" || names.contains(&pass),
        "there is no pass '{pass}' (there are {} and all)",
        names.join(", ")
    );
    let mut text = String::new();
    passes::quantized_with(graph, &mut |name, listing| {
        if pass == "all" {
            text.push_str(&format!("== {name}\n{}", listing()));
        } else if pass == name {
            text.push_str(&listing());
        }
    })?;
    print_line(text.trim_end())?;
    Ok(true)
}

pub fn replay(args: &ReplayArgs) -> Result<bool> {
    let device = DeviceOptions {
        device: args.device.clone(),
        bitstream: args.bitstream.clone(),
        config: None,
        board: args.timing.board.board.clone(),
        timing: args.timing.timing.clone(),
        budget: args.limits.budget(),
    };
    let setup = Setup::new(&device, &ViewOptions::default(), "replay")?;
    let (mut matched, mut total, mut compared) = (0, 0, 0);
    let mut rows = Vec::new();
    for path in &args.cases {
        if is(path, &["json"]) {
            let (m, t) = replay_counters(args, path, &mut rows)?;
            (matched, total) = (matched + m, total + t);
            continue;
        }
        for case in replay::load(path)? {
            let device = setup.device(&case.config, 1)?;
            let report = replay::run_case(&case, &*device).with_context(|| case.name.clone())?;
            total += 1;
            compared += report.bytes_compared;
            matched += usize::from(report.bytes_different == 0);
            let leftover: u32 = report.run.leftover_tokens.iter().sum();
            rows.push(json!({
                "case": case.name, "insns": case.insns.len(),
                "bytes_compared": report.bytes_compared,
                "bytes_different": report.bytes_different, "leftover_tokens": leftover,
            }));
            if !args.json {
                let verdict = if report.bytes_different == 0 {
                    "ok  "
                } else {
                    "FAIL"
                };
                let mut line = format!("{verdict} {} ({} bytes", case.name, report.bytes_compared);
                if leftover > 0 {
                    line.push_str(&format!(", {leftover} leftover token(s)"));
                }
                line.push(')');
                for m in &report.mismatches {
                    line.push_str(&format!(
                        "\n       {:#x}: {:#04x}, recorded {:#04x}",
                        m.addr, m.found, m.expected
                    ));
                }
                print_text(&line)?;
            }
        }
    }
    if args.json {
        let object = json!({
            "device": args.device, "matched": matched, "total": total,
            "bytes_compared": compared, "cases": rows,
        });
        print_line(&serde_json::to_string_pretty(&object)?)?;
    } else {
        let bytes = match compared {
            0 => String::new(),
            n => format!(", {n} bytes compared"),
        };
        print_text(&format!("{matched} of {total} runs match{bytes}"))?;
    }
    Ok(matched == total)
}

/// Programs with recorded cycles; how many match, and how many there are.
fn replay_counters(
    args: &ReplayArgs,
    path: &Path,
    rows: &mut Vec<serde_json::Value>,
) -> Result<(usize, usize)> {
    let name = path.display();
    ensure!(
        args.device == "cycle",
        "{name}: cycles are only counted with --device cycle, not {}",
        args.device
    );
    // The counters are those of hardware: a timing is that of its board here.
    let TimingArgs { board, timing } = &args.timing;
    let named = match (&board.board, timing) {
        (Some(name), _) => machine::board("--board", name)?,
        (None, Some(name)) => machine::board("--timing", name)?,
        (None, None) => machine::board("--board", "pynq")?,
    };
    let outcome = replay_rtl::replay(path, &named, &args.limits.budget())?;
    let board = &named.name;
    if !args.json {
        print_text(&format!(
            "{name} on {board}: {} of {} programs match in cycles, requests and beats",
            outcome.matched, outcome.total
        ))?;
        for line in outcome.differences.iter().take(10) {
            print_text(&format!("  {line}"))?;
        }
        if let Some(more) = outcome.differences.len().checked_sub(11) {
            print_text(&format!("  and {} more", more + 1))?;
        }
    }
    rows.extend(outcome.rows);
    Ok((outcome.matched, outcome.total))
}

pub fn asm(args: &AsmArgs) -> Result<bool> {
    let insns = read_asm(&args.file)?;
    let mut bytes = Vec::with_capacity(insns.len() * INSN_BYTES);
    for insn in &insns {
        bytes.extend_from_slice(&insn.encode()?.to_le_bytes());
    }
    output::write(&args.output, bytes)?;
    let line = format!("{}: {} instructions", args.output.display(), insns.len());
    say_written(&args.output, &line)?;
    Ok(true)
}

/// Assembly text of a file.
pub fn read_asm(path: &Path) -> Result<Vec<Insn>> {
    Ok(Source::read(path)?.insns)
}

pub fn disasm(args: &DisasmArgs) -> Result<bool> {
    let mut text = String::new();
    if model::is_bundle(&args.file) {
        list_program(&*model::bundle_program(&args.file)?, &mut text);
    } else {
        let words = read_words(&args.file)?;
        for (i, insn) in decode(&args.file, &words)?.iter().enumerate() {
            text.push_str(&format!("{insn}  # {i}\n"));
        }
    }
    if !text.is_empty() {
        print_line(text.trim_end())?;
    }
    Ok(true)
}

/// The instructions of each layer, then the micro-ops of each kernel.
fn list_program(program: &Program, text: &mut String) {
    for layer in &program.layers {
        text.push_str(&format!("# {} ({})\n", layer.name, layer.kind));
        for command in &layer.commands {
            let symbol = match command.symbol {
                Symbol::None => String::new(),
                Symbol::Buffer(id) => format!("  # {}", program.buffers[id.0 as usize].name),
                Symbol::Kernel(id) => format!("  # kernel {}", id.0),
            };
            text.push_str(&format!("{}{symbol}\n", command.insn));
        }
    }
    for (id, kernel) in program.kernels.iter().enumerate() {
        text.push_str(&format!("# kernel {id}\n"));
        for uop in &kernel.uops {
            let Uop { dst, src, wgt } = uop;
            text.push_str(&format!("#   dst={dst} src={src} wgt={wgt}\n"));
        }
    }
}

pub fn models() -> Result<bool> {
    let mut table = Table::new([
        Column::words("name"),
        Column::words("input"),
        Column::number("layers"),
        Column::number("MACs"),
        Column::number("weights"),
        Column::text("what"),
    ]);
    let mut row = |name: String, outline: &Outline, what: &str| {
        let [c, h, w] = outline.input;
        table.row([
            name,
            format!("{c}x{h}x{w}"),
            outline.layers.to_string(),
            format!("{:.2} G", outline.macs as f64 / 1e9),
            format!("{:.2} M", outline.weights as f64 / 1e6),
            what.to_owned(),
        ]);
    };
    row("demo".to_owned(), &demo()?, "trained on CIFAR-10");
    for name in zoo::NAMES {
        let outline = zoo::outline(name)?;
        row(format!("zoo:{name}"), &outline, "seeded, 1000 classes");
    }
    print_text(table.text().trim_end())?;
    Ok(true)
}

/// What the demo's network amounts to.
fn demo() -> Result<Outline> {
    let Form::Graph(graph) = model::load("demo")? else {
        bail!("the demo is no graph");
    };
    let network = passes::quantized(&graph)?;
    let input = network.inputs.first().context("the demo has no input")?;
    Ok(Outline {
        input: network.tensors[input.0].chw,
        layers: lower::layers(&network),
        macs: graph.macs(),
        weights: graph.weights(),
    })
}

pub fn completions(shell: clap_complete::Shell) -> Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vta", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(true)
}

/// Writes a page for the program and each of its commands, in man's format.
pub fn man(folder: &Path) -> Result<bool> {
    let name = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(name)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(name)?;
    print_text(&format!(
        "{}: man pages of vta and its commands; read one with man {}/vta-run.1",
        name(),
        name()
    ))?;
    Ok(true)
}
