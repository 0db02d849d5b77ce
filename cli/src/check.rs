//! `vta check`: faults and hazards of a program, found without running it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use vta_driver::replay::{self, Case};
use vta_driver::{Program, QueueLimits, Symbol};
use vta_isa::check::Finding;
use vta_isa::tokens::At;
use vta_isa::{Config, Finish, Insn, Uop, check as isa_check};
use vta_sim::hazards::{
    self, Access, Hazard, HazardError, MAX_HAZARDS, Report, SharedMemory, UopSource,
};

use crate::args::CheckArgs;
use crate::model::{self, Model};
use crate::report::print_line;
use crate::source::{self, Source};
use crate::tools::{decode, is, read_words};

/// What FILE holds.
enum Subject {
    Program(Arc<Program>),
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
struct Found {
    faults: Vec<String>,
    notes: Vec<String>,
    hazards: Vec<(String, Hazard)>,
    /// Hazards in all; only the first of each run are kept.
    hazard_count: u64,
    insns: usize,
    runs: usize,
}

pub fn check(args: &CheckArgs) -> Result<bool> {
    let subject = load(args)?;
    let mut found = Found::default();
    match &subject {
        Subject::Program(program) => check_program(program, &mut found.faults),
        Subject::Insns {
            config,
            words,
            insns,
            ..
        } => {
            let faults = isa_check::check(config, insns);
            found.faults.extend(faults.iter().map(ToString::to_string));
            if args.strict {
                let dirty = isa_check::dirty(words);
                found.faults.extend(dirty.iter().map(ToString::to_string));
            }
        }
        Subject::Cases(cases) => {
            for case in cases {
                check_case(case, args.strict, &mut found);
            }
        }
    }
    if args.hazards {
        find_hazards(&subject, &mut found)?;
    }
    print(args, &found)?;
    Ok(found.faults.is_empty() && found.hazard_count == 0)
}

fn load(args: &CheckArgs) -> Result<Subject> {
    let file = &args.file;
    let name = file.display().to_string();
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(".tar.gz") || lower.ends_with(".tgz") || file.is_dir() {
        ensure!(
            args.config.is_none(),
            "{name} is a recorded case with a configuration of its own"
        );
        return Ok(Subject::Cases(replay::load(file)?));
    }
    let config = model::config(args.config.as_ref())?;
    if model::is_bundle(file) {
        let program = model::bundle_program(file)?;
        if args.config.is_some() {
            model::same_config(&program, &config)?;
        }
        return Ok(Subject::Program(program));
    }
    if name == "demo" || name.starts_with("zoo:") || is(file, &["onnx"]) {
        return compiled(&name, &config).map(Subject::Program);
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
    let words = read_words(file)?;
    let insns = decode(file, &words)?;
    Ok(Subject::Insns {
        config,
        words,
        insns,
        case: None,
    })
}

/// The program of a network that is compiled now.
fn compiled(name: &str, config: &Config) -> Result<Arc<Program>> {
    let graph = match model::load(name)? {
        Model::Program(_) | Model::Hosted(_) => bail!("{name} is compiled already"),
        Model::Graph(graph) => graph,
    };
    ensure!(
        model::is_quantised(&graph),
        "{name} is a float model: run `vta quantize` first"
    );
    let (_, program) = model::compile(&graph, config).with_context(|| name.to_owned())?;
    Ok(Arc::new(program))
}

/// Each layer is a batch of its own: its tokens balance and its micro-ops are known.
fn check_program(program: &Program, faults: &mut Vec<String>) {
    let kernels: Vec<&[Uop]> = program.kernels.iter().map(|k| &k.uops[..]).collect();
    for layer in &program.layers {
        let mut insns = program.opening();
        let mut uops = vec![None; insns.len()];
        for command in &layer.commands {
            insns.push(command.insn);
            uops.push(match command.symbol {
                Symbol::Kernel(id) => kernels.get(id.0 as usize).copied(),
                Symbol::None | Symbol::Buffer(_) => None,
            });
        }
        insns.extend(program.closing());
        insns.push(Finish::default().into());
        uops.resize(insns.len(), None);
        let found = isa_check::check_with(&program.config, &insns, |i| uops[i]);
        faults.extend(found.iter().map(|f| format!("layer {}: {f}", layer.name)));
    }
}

/// Tokens left over at the end are legal in recorded runs.
fn check_case(case: &Case, strict: bool, found: &mut Found) {
    let mut findings = isa_check::check(&case.config, &case.insns);
    if strict {
        findings.extend(isa_check::dirty(&case.words));
    }
    for finding in findings {
        let text = format!("{}: {finding}", case.name);
        match finding {
            Finding::Leftover { .. } => found.notes.push(text),
            _ => found.faults.push(text),
        }
    }
}

fn find_hazards(subject: &Subject, found: &mut Found) -> Result<()> {
    match subject {
        Subject::Program(program) => {
            for batch in hazards::check_program(program, QueueLimits::default())? {
                let layer = |insn| match batch.layer(insn) {
                    Some(layer) => format!("layer {layer}: "),
                    None => String::new(),
                };
                found.add(&batch.report, layer);
            }
        }
        Subject::Insns {
            case: Some(case),
            insns,
            ..
        } => {
            let report = hazards::check_case(case);
            found.add_or_note(report.map(|r| as_written(r, insns)), "")?;
        }
        Subject::Insns { config, insns, .. } => {
            let report = hazards::check(config, insns, UopSource::Unknown);
            found.add_or_note(report.map_err(HazardError::from), "")?;
        }
        Subject::Cases(cases) => {
            for case in cases {
                let name = format!("{}: ", case.name);
                found.add_or_note(hazards::check_case(case), &name)?;
            }
        }
    }
    Ok(())
}

/// The hazards of a program, a line each, for `vta run --hazards`.
pub fn hazards_of_program(program: &Arc<Program>) -> Result<Vec<String>> {
    let mut found = Found::default();
    find_hazards(&Subject::Program(Arc::clone(program)), &mut found)?;
    let line = |(place, hazard): &(String, Hazard)| format!("{place}{hazard}");
    Ok(found.hazards.iter().map(line).collect())
}

/// The hazards of a program written by hand, a line each.
pub fn hazards_of(source: &Source, case: &Case) -> Result<Vec<String>> {
    let report = as_written(hazards::check_case(case)?, &source.insns);
    Ok(report.hazards.iter().map(ToString::to_string).collect())
}

/// A report with the instructions as the file has them, not moved to where their data lies.
fn as_written(mut report: Report, insns: &[Insn]) -> Report {
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
            Err(HazardError::Token(error)) if !self.faults.is_empty() => {
                let note = format!("{place}not checked for hazards: {error}");
                self.notes.push(note);
            }
            Err(error) => bail!(error),
        }
        Ok(())
    }
}

fn print(args: &CheckArgs, found: &Found) -> Result<()> {
    if args.json {
        let object = json_object(&args.file, args.hazards, found);
        return print_line(&serde_json::to_string_pretty(&object)?);
    }
    for fault in &found.faults {
        print_line(fault)?;
    }
    for (place, hazard) in &found.hazards {
        print_line(&format!("{place}{hazard}"))?;
    }
    if found.hazards.len() as u64 != found.hazard_count {
        print_line(&format!(
            "({} hazards are shown, at most {MAX_HAZARDS} of each run)",
            found.hazards.len()
        ))?;
    }
    for note in &found.notes {
        print_line(&format!("note: {note}"))?;
    }
    let mut line = format!("{}: ", args.file.display());
    line.push_str(&match found.faults.len() {
        0 => "no fault found".to_owned(),
        n => format!("{n} fault(s)"),
    });
    if args.hazards {
        let hazards = match found.hazard_count {
            0 => "no hazard".to_owned(),
            n => format!("{n} hazard(s)"),
        };
        line.push_str(&format!(
            ", {hazards} in {} instruction(s) of {} run(s)",
            found.insns, found.runs
        ));
    }
    print_line(&line)
}

fn json_object(file: &Path, hazards: bool, found: &Found) -> Value {
    let mut object = json!({
        "file": file.display().to_string(), "faults": found.faults, "notes": found.notes,
    });
    if hazards {
        let list: Vec<_> = found
            .hazards
            .iter()
            .map(|(place, hazard)| hazard_json(place, hazard))
            .collect();
        object["hazards"] = list.into();
        object["hazards_found"] = found.hazard_count.into();
        object["insns"] = found.insns.into();
        object["runs"] = found.runs.into();
    }
    object
}

fn hazard_json(place: &str, hazard: &Hazard) -> Value {
    let place = place.trim_end_matches(": ");
    let text = hazard.to_string();
    let access = |a: &Access| {
        json!({
            "index": a.at.index, "insn": a.at.insn.to_string(),
            "module": a.at.insn.module().name(), "does": a.kind.verb(),
        })
    };
    match hazard {
        Hazard::Race(race) => {
            let ranges: Vec<_> = race.ranges.iter().map(|r| [r.start, r.end]).collect();
            let unit = match race.memory {
                SharedMemory::Dram => "bytes",
                SharedMemory::Inp | SharedMemory::Wgt | SharedMemory::Acc => "tiles",
            };
            json!({
                "kind": "race", "place": place, "memory": race.memory.name(), "unit": unit,
                "ranges": ranges, "count": race.count, "first": access(&race.first),
                "second": access(&race.second), "text": text,
            })
        }
        Hazard::Alu(alu) => json!({
            "kind": "alu", "place": place, "index": alu.at.index,
            "insn": alu.at.insn.to_string(), "step": alu.step, "tile": alu.tile, "text": text,
        }),
        _ => json!({ "kind": "other", "place": place, "text": text }),
    }
}
