//! Faults and hazards of a program, found without running it.

mod cuts;
mod network;

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use vta_driver::{Command, Program, QueueLimits, Symbol};
use vta_isa::check::Finding;
use vta_isa::original::Layout;
use vta_isa::tokens::At;
use vta_isa::{Config, Extensions, Finish, Insn, Uop, check as isa_check};
use vta_replay::Case;
use vta_sim::Core;
use vta_sim::hazards::{self, DeviationAt, Hazard, HazardError, Report, UopSource};

use crate::compile::{self, Compiled};
use crate::device::machine::Machine;
use crate::error::{Context, Error, Result, ensure};
use crate::files::{decode, is, read_words};
use crate::open::{Model, Source, model, source};
use crate::options::Target;

pub use cuts::Cut;
pub use network::{NetworkVerdict, NodeVerdict, attributes};
pub use vta_compiler::passes::Verdict;

/// What FILE holds.
enum Subject {
    /// Programs of devices, and what becomes of the nodes of the network that they are of.
    Programs(Vec<Arc<Program>>, Option<Box<NetworkVerdict>>),
    Insns {
        config: Config,
        /// Empty for assembly text.
        words: Vec<u128>,
        insns: Vec<Insn>,
        /// Of assembly text with data.
        case: Option<Box<Case>>,
    },
    Cases(Vec<Case>),
}

/// Everything found.
#[derive(Default)]
pub struct Found {
    /// A line each.
    pub faults: Vec<String>,
    /// What is no fault, a line each.
    pub notes: Vec<String>,
    /// Each with its place: nothing, or a text that ends in `: `.
    pub hazards: Vec<(String, Hazard)>,
    /// Hazards in all; only the first of each run are kept.
    pub hazard_count: u64,
    /// Instructions in which hazards were looked for.
    pub insns: usize,
    /// Runs of those.
    pub runs: usize,
    /// What its instructions need.
    pub needs: Extensions,
    /// What becomes of a network's nodes.
    pub network: Option<NetworkVerdict>,
}

/// What is looked for beside faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Also {
    /// Garbage in bits that no field covers.
    pub strict: bool,
    /// Hazards.
    pub hazards: bool,
    /// The file has raw instructions, in the original's layout of the configuration.
    pub original: bool,
}

/// Checks a file: raw instructions, assembly text, a bundle, a recorded case or a network to compile; or a
/// network that is in memory, as ONNX, which `file` names then.
///
/// # Errors
/// A file that can't be read or compiled. Faults are no error.
pub fn check(file: &Path, onnx: Option<&[u8]>, target: &Target, also: Also) -> Result<Found> {
    let machine = Machine::read(target)?;
    let subject = match onnx {
        None if also.original => original(file, &machine.config)?,
        None => load(file, target, &machine)?,
        Some(_) => network(file, onnx, target, &machine)?,
    };
    check_subject(subject, machine.core(), also)
}

/// Checks instructions, whose micro-ops are unknown. `words` are the same as they were encoded, of which
/// [`Also::strict`] looks at each bit; there may be none.
///
/// # Errors
/// Work that hazards can't be looked for in. Faults are no error.
pub fn check_insns(
    machine: &Machine,
    insns: Vec<Insn>,
    words: Vec<u128>,
    also: Also,
) -> Result<Found> {
    let subject = Subject::Insns {
        config: machine.config.clone(),
        words,
        insns,
        case: None,
    };
    check_subject(subject, machine.core(), also)
}

fn check_subject(subject: Subject, core: Core, also: Also) -> Result<Found> {
    let mut found = Found::default();
    match subject {
        Subject::Programs(programs, network) => {
            for program in &programs {
                let commands = program.layers.iter().flat_map(|layer| &layer.commands);
                found.need(commands.map(|command| &command.insn));
                found.check_program(program);
                if also.hazards {
                    found.find_hazards(program)?;
                }
                if core == Core::Rtl {
                    found.find_deviations(program);
                }
            }
            if let Some(network) = network {
                found.fail("", &network.faults);
                found.network = Some(*network);
            }
        }
        Subject::Insns {
            config,
            words,
            insns,
            case,
        } => {
            found.need(&insns);
            found.fail("", isa_check::check(&config, &insns));
            if also.strict {
                found.fail("", isa_check::dirty(&words));
            }
            if also.hazards {
                let report = match &case {
                    Some(case) => hazards::check_case(case).map(|r| as_written(r, &insns)),
                    None => hazards::check(&config, &insns, UopSource::Unknown).map_err(Into::into),
                };
                found.add_or_note(report, "")?;
            }
            if core == Core::Rtl {
                let deviations = match &case {
                    Some(case) => hazards::case_deviations(case)?,
                    None => hazards::deviations(&config, &insns, UopSource::Unknown),
                };
                found.fail("", deviations);
            }
        }
        Subject::Cases(cases) => {
            for case in &cases {
                let place = format!("{}: ", case.name);
                found.need(&case.insns);
                found.check_case(case, &place, also.strict);
                if also.hazards {
                    found.add_or_note(hazards::check_case(case), &place)?;
                }
                if core == Core::Rtl {
                    found.fail(&place, hazards::case_deviations(case)?);
                }
            }
        }
    }
    Ok(found)
}

/// The micro-ops of a command's kernel.
fn kernel<'p>(program: &'p Program, command: &Command) -> Option<&'p [Uop]> {
    match command.symbol {
        Symbol::Kernel(id) => program.kernels.get(id.0 as usize).map(|k| &k.uops[..]),
        Symbol::None | Symbol::Buffer(_) => None,
    }
}

/// The micro-ops that a command runs over.
fn uops_of<'p>(program: &'p Program, command: &Command) -> &'p [Uop] {
    let range = match &command.insn {
        Insn::Gemm(gemm) => usize::from(gemm.uop_bgn)..usize::from(gemm.uop_end),
        Insn::Alu(alu) => usize::from(alu.uop_bgn)..usize::from(alu.uop_end),
        Insn::Depthwise(insn) => usize::from(insn.uop_bgn)..usize::from(insn.uop_end),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => return &[],
    };
    let uops = kernel(program, command);
    uops.and_then(|uops| uops.get(range)).unwrap_or_default()
}

fn load(file: &Path, target: &Target, machine: &Machine) -> Result<Subject> {
    let name = file.display().to_string();
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(".tar.gz") || lower.ends_with(".tgz") || file.is_dir() {
        ensure!(
            target.config.is_none(),
            "{name} is a recorded case with a configuration of its own"
        );
        let cases = vta_replay::load(file)?;
        for case in &cases {
            let config = machine.admit(&case.config);
            config.with_context(|| case.name.clone())?;
        }
        return Ok(Subject::Cases(cases));
    }
    let config = machine.config.clone();
    if model::is_bundle(file) {
        let program = model::bundle_program(file)?;
        if target.config.is_some() {
            compile::same_config(&program, &config)?;
        }
        machine
            .admit(&program.config)
            .with_context(|| name.clone())?;
        return Ok(Subject::Programs(vec![program], None));
    }
    if name == "demo" || name.starts_with("zoo:") || is(file, &["onnx"]) {
        return network(file, None, target, machine);
    }
    if source::is_assembly(file) {
        let source = Source::read(file)?;
        let case = source.has_data.then(|| {
            let case = source.case(&name, &config);
            case.map(Box::new).with_context(|| name.clone())
        });
        return Ok(Subject::Insns {
            config,
            words: Vec::new(),
            case: case.transpose()?,
            insns: source.insns,
        });
    }
    // Raw instructions have no mark of their own: they are what nothing else claims.
    raw(file, config, None)
}

/// Raw instructions in the original's layout.
fn original(file: &Path, config: &Config) -> Result<Subject> {
    let name = file.display();
    ensure!(
        !model::is_bundle(file) && !is(file, &["onnx"]) && !source::is_assembly(file),
        "{name} isn't raw instructions, in the original's layout"
    );
    let layout = Layout::of(config).map_err(Error::input);
    let layout = layout.context("the original's layout")?;
    raw(file, config.clone(), Some(&layout))
}

fn raw(file: &Path, config: Config, layout: Option<&Layout>) -> Result<Subject> {
    let words = read_words(file, layout)?;
    let insns = decode(file, &words)?;
    Ok(Subject::Insns {
        config,
        words,
        insns,
        case: None,
    })
}

/// A network, of which the host may compute what the machine can't.
fn network(
    file: &Path,
    onnx: Option<&[u8]>,
    target: &Target,
    machine: &Machine,
) -> Result<Subject> {
    let target = Target {
        allow_host: true,
        ..target.clone()
    };
    let name = file.display().to_string();
    let opened = target.open(&name, onnx.map(<[u8]>::to_vec));
    let opened = opened.map(Model::into_network);
    let part = || match onnx {
        None => model::read_part(file, &target.shapes),
        Some(bytes) => model::part_of_bytes(bytes.to_vec(), &name, None, &target.shapes),
    };
    let judged = network::judge(&name, opened, part, &target, &machine.config)?;
    let compiled = judged.compiled.iter();
    let programs = compiled.flat_map(Compiled::programs).cloned().collect();
    Ok(Subject::Programs(programs, Some(Box::new(judged))))
}

/// The hazards of a program, a line each, for `vta run --hazards`.
pub(crate) fn hazards_of_program(program: &Arc<Program>) -> Result<Vec<String>> {
    let mut found = Found::default();
    found.find_hazards(program)?;
    let line = |(place, hazard): &(String, Hazard)| format!("{place}{hazard}");
    Ok(found.hazards.iter().map(line).collect())
}

/// The hazards of a program written by hand, a line each.
pub(crate) fn hazards_of(source: &Source, case: &Case) -> Result<Vec<String>> {
    let report = as_written(hazards::check_case(case)?, &source.insns);
    Ok(report.hazards.iter().map(ToString::to_string).collect())
}

/// A report with the instructions as the file has them, not moved to where their data lies.
pub(crate) fn as_written(mut report: Report, insns: &[Insn]) -> Report {
    let original = |at: &mut At| {
        if let Some(insn) = insns.get(at.index) {
            at.insn = *insn;
        }
    };
    for hazard in &mut report.hazards {
        match hazard {
            Hazard::Race(race) => {
                original(&mut race.first.at);
                original(&mut race.second.at);
            }
            Hazard::Alu(alu) => original(&mut alu.at),
            _ => {}
        }
    }
    report
}

impl Found {
    fn need<'i>(&mut self, insns: impl IntoIterator<Item = &'i Insn>) {
        self.needs = self.needs.or(Extensions::needed(insns));
    }

    /// Each layer is a batch of its own: its tokens balance and its micro-ops are known.
    fn check_program(&mut self, program: &Program) {
        for layer in &program.layers {
            // A layer finds tokens of the one before and leaves some for the next; alone it gets them as a
            // batch does.
            let mut insns = program.opening();
            let mut uops = vec![None; insns.len()];
            for command in &layer.commands {
                insns.push(command.insn);
                uops.push(kernel(program, command));
            }
            insns.extend(program.closing());
            insns.push(Finish::default().into());
            uops.resize(insns.len(), None);
            let found = isa_check::check_with(&program.config, &insns, |i| uops[i]);
            self.fail(&format!("layer {}: ", layer.described()), found);
        }
    }

    /// Hazards in the batches that a session submits, in which layers overlap.
    fn find_hazards(&mut self, program: &Arc<Program>) -> Result<()> {
        for batch in hazards::check_program(program, QueueLimits::default())? {
            let layer = |insn| match batch.layer(insn) {
                Some(layer) => format!("layer {layer}: "),
                None => String::new(),
            };
            self.add(&batch.report, layer);
        }
        Ok(())
    }

    /// What the original RTL does differently.
    fn find_deviations(&mut self, program: &Program) {
        for layer in &program.layers {
            for (index, command) in layer.commands.iter().enumerate() {
                let insn = command.insn;
                let what = hazards::deviation(&insn, uops_of(program, command));
                let at = At { index, insn };
                let deviation = what.map(|what| DeviationAt { at, what });
                self.fail(&format!("layer {}: ", layer.described()), deviation);
            }
        }
    }

    /// Tokens left over at the end are legal in recorded runs.
    fn check_case(&mut self, case: &Case, place: &str, strict: bool) {
        let mut findings = isa_check::check(&case.config, &case.insns);
        if strict {
            findings.extend(isa_check::dirty(&case.words));
        }
        for finding in findings {
            let text = format!("{place}{finding}");
            match finding {
                Finding::Leftover { .. } => self.notes.push(text),
                _ => self.faults.push(text),
            }
        }
    }

    /// Adds faults, each behind its place.
    fn fail(&mut self, place: &str, faults: impl IntoIterator<Item: Display>) {
        let faults = faults.into_iter();
        self.faults
            .extend(faults.map(|fault| format!("{place}{fault}")));
    }

    fn add(&mut self, report: &Report, place: impl Fn(usize) -> String) {
        let hazards = report.hazards.iter();
        self.hazards
            .extend(hazards.map(|h| (place(h.insn()), h.clone())));
        let note = |n: &hazards::Note| format!("{}{n}", place(n.first.index));
        self.notes.extend(report.notes.iter().map(note));
        self.hazard_count += report.found;
        self.insns += report.insns;
        self.runs += 1;
    }

    /// Without an order there is nothing to check; the static check has named the fault.
    fn add_or_note(&mut self, report: Result<Report, HazardError>, place: &str) -> Result<()> {
        match report {
            Ok(report) => self.add(&report, |_| place.to_owned()),
            Err(HazardError::Token(_)) if !self.faults.is_empty() => {
                let note = format!("{place}not checked for hazards: its tokens give no order");
                self.notes.push(note);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
