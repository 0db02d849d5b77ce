//! `vta exec` of assembly text: a program written by hand, with its data, on any device.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use vta_driver::replay::Case;
use vta_driver::{
    Batch, Device, DriverError, Layer, LayerMark, Program, RunReport, Work, WorkDone,
};
use vta_isa::{Config, Insn, MemType, Module};
use vta_sim::cycle::{Listener, TimingConfig, simulate};

use crate::args::RunArgs;
use crate::check;
use crate::cycle::{Setup, Timed};
use crate::report::{self, print_line};
use crate::source::{self, Source};
use crate::{model, run};

/// Stored elements that are printed at most; JSON has all.
const MAX_SHOWN: usize = 64;
/// Instructions whose cycles are printed at most; JSON has all.
const MAX_TIMED: usize = 200;
/// The name of the whole as a layer, in reports and traces.
const PROGRAM: &str = "program";
/// Wrong values that are named at most.
const MAX_WRONG: usize = 10;

/// Runs a bundle like `vta run`, or a program written by hand; whether all that was compared is
/// as expected.
pub fn exec(args: &RunArgs) -> Result<bool> {
    let path = Path::new(&args.model);
    if !source::is_assembly(path) {
        return run::run(args);
    }
    refuse_network_options(args)?;
    ensure!(
        !args.device.device.contains(','),
        "--device: a program written by hand runs on one device"
    );
    let setup = Setup::new(&args.device, &args.views, &args.model)?;
    ensure!(
        !setup.timing_only(),
        "--timing-only computes nothing that could be shown"
    );
    let config = model::config(args.device.config.as_ref())?;
    let source = Source::read(path)?;
    let case = source.case(&args.model, &config);
    let case = case.with_context(|| args.model.clone())?;
    let hazards = args.hazards.then(|| check::hazards_of(&source, &case));
    let hazards = hazards.transpose()?;
    let device = setup.device(&config, 1)?;
    let (report, out) = run_case(&case, &*device)
        .map_err(|error| as_written(error, &source, &case))
        .context(args.model.clone())?;
    let steps = report.traffic.gemm_steps;
    let overview = Program {
        layers: vec![Layer {
            name: PROGRAM.to_owned(),
            macs: steps * config.macs_per_step() / config.batch() as u64,
            ..Layer::default()
        }],
        config: config.clone(),
        ..Program::default()
    };
    let timed = setup.finish(&overview, &args.model)?;
    let done = Done {
        wrong: wrong(&source, &out, &config),
        expected: case.after.iter().map(|region| region.bytes.len()).sum(),
        times: timed
            .as_ref()
            .map(|t| times(&t.timing, &case))
            .transpose()?,
        source,
        config,
        report,
        out,
        timed,
        hazards,
    };
    match args.json {
        true => print_line(&serde_json::to_string_pretty(&done.json(args))?)?,
        false => done.print(args)?,
    }
    Ok(done.wrong.is_empty() && done.hazards.is_none_or(|found| found.is_empty()))
}

/// What has no meaning without a network.
fn refuse_network_options(args: &RunArgs) -> Result<()> {
    let p = &args.preprocess;
    let recipe = p.preprocess.is_some() || p.mean.is_some() || p.std.is_some() || p.scale.is_some();
    for (option, given) in [
        ("--input", !args.input.is_empty()),
        ("--preprocess, --mean, --std and --scale", recipe),
        ("--requant", args.requant.requant.is_some()),
        ("--tiles", args.tiles.cache.is_some()),
        ("--limit", args.limit.is_some()),
        ("--output", args.output.is_some()),
        ("--reference", args.reference.is_some()),
        ("--verify", args.verify),
        ("--calibration", args.calibration.is_some()),
        ("--batch", args.batch != 1),
        ("--placement", args.placement.is_some()),
        ("--allow-host", args.allow_host),
        ("--threads", args.threads.is_some()),
        ("--profile", args.profile),
    ] {
        ensure!(
            !given,
            "{option}: for networks; {} is a program written by hand",
            args.model
        );
    }
    Ok(())
}

/// Stored bytes by their first element, in order.
type Stored = Vec<(u64, Vec<u8>)>;

/// Runs a case on a device whose memory is unused.
fn run_case(case: &Case, device: &dyn Device) -> Result<(RunReport, Stored), DriverError> {
    for (addr, size) in &case.allocations {
        device.alloc_at(*addr, *size)?;
    }
    for region in &case.before {
        let (addr, data) = (region.addr, region.bytes.as_slice().into());
        device.submit(Work::Write { addr, data })?.wait()?;
    }
    let mark = LayerMark {
        name: PROGRAM.to_owned(),
        first_insn: 0,
    };
    let batch = Batch {
        words: case.words.clone(),
        insns: case.insns.clone(),
        insn_addr: case.insn_addr,
        marks: vec![mark],
    };
    let lost = || DriverError::Lost {
        device: device.info().name.clone(),
    };
    let WorkDone::Ran(report) = device.submit(Work::Run(batch.into()))?.wait()? else {
        return Err(lost());
    };
    let elem = case.config.elem_bytes(MemType::Out) as u64;
    let base = source::address(MemType::Out, 0).0 / elem as u32;
    let mut out = Vec::new();
    for elements in source::stored(&case.insns) {
        let first = elements.start - u64::from(base);
        let read = Work::Read {
            addr: source::address(MemType::Out, first * elem),
            size_bytes: (elements.end - elements.start) * elem,
        };
        let WorkDone::Data(bytes) = device.submit(read)?.wait()? else {
            return Err(lost());
        };
        out.push((first, bytes));
    }
    Ok((report, out))
}

/// A device's error names instructions with the addresses that they were moved to.
fn as_written(error: DriverError, source: &Source, case: &Case) -> DriverError {
    match error {
        DriverError::Device { device, message } => DriverError::Device {
            device,
            message: source.as_written(&message, case),
        },
        other => other,
    }
}

/// A value that isn't the expected one.
struct Wrong {
    element: u64,
    lane: u64,
    /// `None` when nothing was stored there.
    found: Option<i8>,
    expected: i8,
}

/// Every expected value that isn't there.
fn wrong(source: &Source, out: &Stored, config: &Config) -> Vec<Wrong> {
    let elem = config.elem_bytes(MemType::Out) as u64;
    let found = |byte: u64| {
        let at = out.partition_point(|(first, _)| first * elem <= byte);
        let (first, bytes) = out.get(at.checked_sub(1)?)?;
        bytes.get((byte - first * elem) as usize).map(|b| *b as i8)
    };
    let expected = source.expected(config);
    let values = expected.iter().flat_map(|(first, bytes)| {
        let at = move |(i, byte): (usize, &u8)| (first + i as u64, *byte as i8);
        bytes.iter().enumerate().map(at)
    });
    values
        .filter(|(byte, expected)| found(*byte) != Some(*expected))
        .map(|(byte, expected)| Wrong {
            element: byte / elem,
            lane: byte % elem,
            found: found(byte),
            expected,
        })
        .collect()
}

/// When an instruction ran.
#[derive(Clone, Copy, Default)]
struct Time {
    start: u64,
    /// `None` for FINISH, with which the run ends.
    done: Option<u64>,
}

/// Notes when instructions start and end.
struct Times(Vec<Time>);

impl Listener for Times {
    fn insn_start(&mut self, _: Module, insn: usize, cycle: u64) {
        self.0[insn].start = cycle;
    }

    fn insn_done(&mut self, _: Module, insn: usize, cycle: u64) {
        self.0[insn].done = Some(cycle);
    }
}

fn times(timing: &TimingConfig, case: &Case) -> Result<Vec<Time>> {
    let mut times = Times(vec![Time::default(); case.insns.len()]);
    let (config, base) = (&case.config, case.insn_addr.0);
    simulate(timing, config, &case.insns, base, &mut times)?;
    Ok(times.0)
}

/// A program that has run.
struct Done {
    source: Source,
    config: Config,
    report: RunReport,
    out: Stored,
    wrong: Vec<Wrong>,
    /// Expected values.
    expected: usize,
    timed: Option<Timed>,
    times: Option<Vec<Time>>,
    hazards: Option<Vec<String>>,
}

impl Done {
    /// Stored elements with their values.
    fn elements(&self) -> impl Iterator<Item = (u64, Vec<i8>)> {
        let size = self.config.elem_bytes(MemType::Out);
        let values = |bytes: &[u8]| bytes.iter().map(|b| *b as i8).collect();
        self.out.iter().flat_map(move |(first, bytes)| {
            let chunks = bytes.chunks_exact(size).zip(*first..);
            chunks.map(move |(chunk, element)| (element, values(chunk)))
        })
    }

    fn json(&self, args: &RunArgs) -> Value {
        let element =
            |(element, values): (u64, Vec<i8>)| json!({"element": element, "values": values});
        let wrong = |w: &Wrong| {
            json!({
                "element": w.element, "lane": w.lane, "found": w.found, "expected": w.expected,
            })
        };
        let mut object = json!({
            "program": args.model, "device": args.device.device,
            "insns": self.source.insns.len(),
            "gemm_uops": self.report.traffic.gemm_steps,
            "out": self.elements().map(element).collect::<Vec<_>>(),
            "expected": self.expected,
            "wrong": self.wrong.iter().map(wrong).collect::<Vec<_>>(),
            "leftover_tokens": self.report.leftover_tokens,
        });
        if let (Some(timed), Some(times)) = (&self.timed, &self.times) {
            let rows = times.iter().zip(&self.source.insns);
            let row = |(time, insn): (&Time, &Insn)| {
                json!({
                    "insn": insn.to_string(), "module": insn.module().name(),
                    "start_cycle": time.start, "done_cycle": time.done,
                })
            };
            object["cycles"] = json!(timed.total().cycles);
            object["timing"] = json!(timed.board);
            object["insn_cycles"] = rows.map(row).collect();
        }
        if let Some(hazards) = &self.hazards {
            object["hazards"] = json!(hazards);
        }
        object
    }

    fn print(&self, args: &RunArgs) -> Result<()> {
        let mut text = String::new();
        if let Some(times) = &self.times {
            text.push_str(&self.schedule(times));
        }
        let all = self.elements().count();
        for (element, values) in self.elements().take(MAX_SHOWN) {
            text.push_str(&format!("out {element}:"));
            values.iter().for_each(|v| text.push_str(&format!(" {v}")));
            text.push('\n');
        }
        if all > MAX_SHOWN {
            text.push_str(&format!("({all} elements are stored; --json has all)\n"));
        }
        for w in self.wrong.iter().take(MAX_WRONG) {
            let found = w.found.map_or("nothing".to_owned(), |v| v.to_string());
            text.push_str(&format!(
                "out {}, value {}: {found} is stored, {} is expected\n",
                w.element, w.lane, w.expected
            ));
        }
        for hazard in self.hazards.iter().flatten().take(MAX_WRONG) {
            text.push_str(&format!("{hazard}\n"));
        }
        text.push_str(&self.summary(args));
        print_line(&text)
    }

    fn summary(&self, args: &RunArgs) -> String {
        let mut line = format!(
            "{}: {} instruction{} on {}",
            args.model,
            self.source.insns.len(),
            if self.source.insns.len() == 1 {
                ""
            } else {
                "s"
            },
            args.device.device
        );
        if let Some(timed) = &self.timed {
            let cycles = timed.total().cycles;
            line.push_str(&format!(", {cycles} cycles on {}", timed.board));
        }
        line.push_str(&match (self.expected, self.wrong.len()) {
            (0, _) => ", nothing to compare with (.out)".to_owned(),
            (n, 0) => format!(", all {n} values as expected"),
            (n, wrong) => format!(", {wrong} of {n} values WRONG"),
        });
        if let Some(hazards) = &self.hazards {
            line.push_str(&match hazards.len() {
                0 => ", no hazard".to_owned(),
                n => format!(", {n} hazard(s)"),
            });
        }
        let left: u32 = self.report.leftover_tokens.iter().sum();
        if left > 0 {
            line.push_str(&format!(", {left} leftover token(s)"));
        }
        line
    }

    /// When each instruction ran, in a table.
    fn schedule(&self, times: &[Time]) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["start", "done", "module", "instruction"]);
        for (time, insn) in times.iter().zip(&self.source.insns).take(MAX_TIMED) {
            table.add_row([
                time.start.to_string(),
                time.done.map_or(String::new(), |cycle| cycle.to_string()),
                insn.module().name().to_owned(),
                insn.to_string(),
            ]);
        }
        for column in table.column_iter_mut().take(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = report::lines(&table);
        if times.len() > MAX_TIMED {
            let all = times.len();
            text.push_str(&format!("({all} instructions; --json has all)\n"));
        }
        text
    }
}
