//! A program written by hand, with its data, on any device.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use vta_driver::{
    Batch, Device, DriverError, Layer, LayerMark, PhysAddr, Program, RunReport, Work, WorkDone,
};
use vta_isa::resolve::stored_bytes;
use vta_isa::{Config, Insn, MemType};
use vta_replay::{Case, spaces};
use vta_sim::cycle;

use crate::check;
use crate::device::{Setup, Totals};
use crate::error::{Context, Result, ensure};
use crate::open::source::Source;
use crate::options::RunOptions;
use crate::options::names::{DEVICE, Said, TIMING_ONLY};
use crate::report::host_share::HostShare;
use crate::report::timed::{Report, insn_times};

/// The name of the whole as a layer, in reports and traces.
const PROGRAM: &str = "program";

/// Runs the program that `args.model` names.
///
/// # Errors
/// Options that only networks have, a file that is no program, a failure of the device.
pub fn exec(args: &RunOptions) -> Result<Done> {
    exec_source(args, || Source::read(Path::new(&args.model)))
}

/// As [`exec`], with the text of a program that `args.model` names only.
///
/// # Errors
/// As there; the first line that is neither an instruction nor data.
pub fn exec_text(args: &RunOptions, text: &str) -> Result<Done> {
    exec_source(args, || Source::parse(text))
}

fn exec_source(args: &RunOptions, read: impl FnOnce() -> Result<Source>) -> Result<Done> {
    let target = &args.target;
    ensure!(
        !target.device.contains(','),
        "{}: a program written by hand runs on one device";
        DEVICE
    );
    let setup = Setup::new(target, &args.model)?;
    ensure!(!setup.timing_only(), "{} computes nothing that could be shown"; TIMING_ONLY);
    let config = setup.machine.config.clone();
    let source = read()?;
    let case = source.case(&args.model, &config);
    let case = case.with_context(|| args.model.clone())?;
    let hazards = args.hazards.then(|| check::hazards_of(&source, &case));
    let hazards = hazards.transpose()?;
    let device = setup.device(&config, 1)?;
    let (report, out) = run_case(&case, &*device)
        .map_err(|error| as_written(error, &source, &case))
        .context(args.model.clone())?;
    let steps = report.traffic.gemm_steps;
    let overview = Arc::new(Program {
        layers: vec![Layer {
            name: PROGRAM.to_owned(),
            macs: steps * config.macs_per_step() / config.batch() as u64,
            ..Layer::default()
        }],
        config: config.clone(),
        ..Program::default()
    });
    let timed = setup.finish(&overview, HostShare::default(), &args.model)?;
    let ends = source.insns.iter().map(|insn| match insn {
        Insn::Gemm(gemm) => gemm.uop_end.into(),
        Insn::Alu(alu) => alu.uop_end.into(),
        Insn::Depthwise(insn) => insn.uop_end.into(),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
    });
    let uops = ends.max().unwrap_or(0);
    let misfit = setup.machine.misfit_of(&config, uops, source.insns.iter());
    let run = cycle::Run {
        insns: &case.insns,
        insn_addr: case.insn_addr.0,
    };
    let expected = case.after.iter();
    let expected = expected.map(|region| config.numbers(MemType::Out, &region.bytes).count());
    Ok(Done {
        misfit,
        program: args.model.clone(),
        device: target.device.clone(),
        wrong: wrong(&case, &out),
        expected: expected.sum(),
        design: setup.design(),
        times: timed
            .as_ref()
            .map(|t| insn_times(&target.budget, &t.timing, &case.config, run))
            .transpose()?,
        insns: source.insns,
        config,
        report,
        out,
        timed,
        hazards,
    })
}

/// Stored bytes by their first element, in order.
pub type Stored = Vec<(u64, Vec<u8>)>;

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
    let lost = || DriverError::lost(&device.info().name);
    let WorkDone::Ran(report) = device.submit(Work::Run(batch.into()))?.wait()? else {
        return Err(lost());
    };
    let elem = case.config.elem_bytes(MemType::Out) as u64;
    let base = u64::from(spaces::address(MemType::Out, 0).0);
    let mut out = Vec::new();
    for bytes in stored_bytes(&case.config, &case.insns) {
        let first = (bytes.start - base) / elem;
        let read = Work::Read {
            // Inside the space of what is stored.
            addr: PhysAddr(bytes.start as u32),
            size_bytes: bytes.end - bytes.start,
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
pub struct Wrong {
    /// In `out`.
    pub element: u64,
    /// Within the element.
    pub lane: u64,
    /// `None` when nothing was stored there.
    pub found: Option<i32>,
    /// What `.out` says.
    pub expected: i32,
}

/// Every expected value that isn't there.
fn wrong(case: &Case, out: &Stored) -> Vec<Wrong> {
    let numbers = |bytes: &[u8]| -> Vec<i32> { case.config.numbers(MemType::Out, bytes).collect() };
    let lanes = case.config.lanes() as u64;
    let bytes = case.config.width(MemType::Out) as u64 / 8;
    let out: Vec<_> = out
        .iter()
        .map(|(first, bytes)| (first, numbers(bytes)))
        .collect();
    // Numbers count from the start of the space.
    let found = |number: u64| {
        let at = out.partition_point(|(first, _)| *first * lanes <= number);
        let (first, stored) = out.get(at.checked_sub(1)?)?;
        stored.get((number - *first * lanes) as usize).copied()
    };
    let values = case.after.iter().flat_map(|region| {
        let first = u64::from(region.addr.0) - u64::from(spaces::address(MemType::Out, 0).0);
        (first / bytes..).zip(numbers(&region.bytes))
    });
    values
        .filter(|(number, expected)| found(*number) != Some(*expected))
        .map(|(number, expected)| Wrong {
            element: number / lanes,
            lane: number % lanes,
            found: found(number),
            expected,
        })
        .collect()
}

/// A program that has run.
pub struct Done {
    /// The file.
    pub program: String,
    /// Where it ran.
    pub device: String,
    /// As written: `dram_base` counts from the start of each space.
    pub insns: Vec<Insn>,
    /// Its instance.
    pub config: Config,
    /// What the device says of the run.
    pub report: RunReport,
    /// What STORE wrote.
    pub out: Stored,
    /// Values that are not as expected.
    pub wrong: Vec<Wrong>,
    /// Expected values.
    pub expected: usize,
    /// Cycles, from a device that counts them.
    pub timed: Option<Report>,
    /// What a design took, and how that compares with the cycle model.
    pub design: Option<Totals>,
    /// As [`insn_times`] gives them, from a device that counts cycles.
    pub times: Option<Vec<(u64, Option<u64>)>>,
    /// Why the program isn't one for the board whose timing is borrowed.
    pub misfit: Option<Said>,
    /// A line each, if they were looked for.
    pub hazards: Option<Vec<String>>,
}

impl Done {
    /// Stored elements with their values.
    pub fn elements(&self) -> impl Iterator<Item = (u64, Vec<i32>)> {
        let size = self.config.elem_bytes(MemType::Out);
        let values = |bytes: &[u8]| self.config.numbers(MemType::Out, bytes).collect();
        self.out.iter().flat_map(move |(first, bytes)| {
            let chunks = bytes.chunks_exact(size).zip(*first..);
            chunks.map(move |(chunk, element)| (element, values(chunk)))
        })
    }

    /// As one object.
    pub fn json(&self) -> Value {
        let element =
            |(element, values): (u64, Vec<i32>)| json!({"element": element, "values": values});
        let wrong = |w: &Wrong| {
            json!({
                "element": w.element, "lane": w.lane, "found": w.found, "expected": w.expected,
            })
        };
        let mut object = json!({
            "program": self.program, "device": self.device,
            "insns": self.insns.len(),
            "gemm_uops": self.report.traffic.gemm_steps,
            "out": self.elements().map(element).collect::<Vec<_>>(),
            "expected": self.expected,
            "wrong": self.wrong.iter().map(wrong).collect::<Vec<_>>(),
            "leftover_tokens": self.report.leftover_tokens,
        });
        if let (Some(timed), Some(times)) = (&self.timed, &self.times) {
            let rows = times.iter().zip(&self.insns);
            let row = |((start, done), insn): (&(u64, Option<u64>), &Insn)| {
                json!({
                    "insn": insn.to_string(), "module": insn.module().name(),
                    "start_cycle": start, "done_cycle": done,
                })
            };
            object["cycles"] = json!(timed.total().cycles);
            object["timing"] = json!(timed.board);
            object["insn_cycles"] = rows.map(row).collect();
        }
        if let Some(design) = &self.design {
            object["rtl"] = design.json();
        }
        if let Some(hazards) = &self.hazards {
            object["hazards"] = json!(hazards);
        }
        object
    }
}
