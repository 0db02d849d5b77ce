//! `vta check`.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use vta_app::check::{self, Also, Found};
use vta_sim::hazards::{Access, Hazard, MAX_HAZARDS, SharedMemory};

use super::coverage;
use crate::args::{CheckArgs, Packing};
use crate::terminal::{print_json, print_line, print_text};
use crate::verdicts;

/// Checks a file; whether nothing was found.
pub fn check(args: &CheckArgs) -> Result<bool> {
    if args.coverage {
        return coverage::check(args);
    }
    let also = Also {
        strict: args.strict,
        hazards: args.hazards,
        original: args.layout == Packing::Original,
    };
    let found = check::check(&args.file, None, &args.target(), also)?;
    print(args, &found)?;
    let refused = found.network.as_ref().is_some_and(|n| n.is_refused());
    Ok(found.faults.is_empty() && found.hazard_count == 0 && !refused)
}

fn print(args: &CheckArgs, found: &Found) -> Result<()> {
    if args.json {
        let object = json_object(&args.file, args.hazards, found);
        return print_json(&object);
    }
    if let Some(network) = &found.network {
        print_text(verdicts::text(network, args.nodes).trim_end())?;
        if let Some(cut) = &network.cut {
            // In one line however long, so that a shell takes it.
            print_line(&format!("  {}", verdicts::command(&args.file, cut)))?;
        }
    }
    for fault in &found.faults {
        print_text(fault)?;
    }
    for (place, hazard) in &found.hazards {
        print_text(&format!("{place}{hazard}"))?;
    }
    if found.hazards.len() as u64 != found.hazard_count {
        print_text(&format!(
            "({} hazards are shown, at most {MAX_HAZARDS} of each run)",
            found.hazards.len()
        ))?;
    }
    let rare = found.needs.iter().any(|one| !one.is_default());
    if found.network.is_none() && rare {
        print_text(&format!("it needs a machine with {}", found.needs))?;
    }
    for note in &found.notes {
        print_text(&format!("note: {note}"))?;
    }
    let network = found.network.as_ref();
    let verdict = match found.faults.len() {
        0 if network.is_some_and(|n| n.is_refused()) => Some("it can't be compiled".to_owned()),
        0 if args.hazards && found.hazard_count > 0 => None,
        0 if args.hazards || network.is_some() => Some("no fault found".to_owned()),
        0 => Some("no fault found; --hazards looks for races, too".to_owned()),
        n => Some(format!("{n} fault(s)")),
    };
    // Without an order of the instructions nothing was looked for, and a note says so.
    let hazards = (args.hazards && found.runs > 0).then(|| {
        let count = match found.hazard_count {
            0 => "no hazard".to_owned(),
            n => format!("{n} hazard(s)"),
        };
        let (insns, runs) = (found.insns, found.runs);
        format!("{count} in {insns} instruction(s) of {runs} run(s)")
    });
    let parts: Vec<_> = verdict.into_iter().chain(hazards).collect();
    print_text(&format!("{}: {}", args.file.display(), parts.join(", ")))
}

fn json_object(file: &Path, hazards: bool, found: &Found) -> Value {
    let mut object = json!({
        "file": file.display().to_string(), "faults": found.faults, "notes": found.notes,
        "extensions": found.needs.iter().map(|one| one.name()).collect::<Vec<_>>(),
    });
    if let Some(network) = &found.network {
        object["network"] = verdicts::json(network);
    }
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
