//! `vta explore`.

use anyhow::Result;
use serde_json::{Value, json};
use vta_app::Watch;
use vta_app::sweep::{self, Best, ExploreOptions, Explored, Objective, Walk};
use vta_isa::{Extension, MemType};

use crate::args::ExploreArgs;
use crate::bar::Bar;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text, width, wrapped};

/// Machines of the front that are listed.
const LISTED: usize = 40;

/// Runs the exploration; whether there is a machine that runs the model.
pub fn explore(args: &ExploreArgs) -> Result<bool> {
    let bar = Bar::new("points", 2, args.how.json);
    let objectives = args.objective.iter().map(|name| name.parse::<Objective>());
    let options = ExploreOptions {
        work: args.model.clone().into(),
        vary: args.vary.clone(),
        target: args.table.target(args.config.as_ref(), &args.how),
        walk: Walk {
            area_mm2: args.area,
            objectives: objectives.collect::<vta_app::Result<_>>()?,
            points: args.points,
            searches: args.searches,
            shard: args.shard.clone(),
            seed: args.seed,
        },
        output: args.table.output.clone(),
        picture: args.picture.clone(),
    };
    let explored = sweep::explore(&options, &bar)?;
    bar.clear();
    let name = &options.work.name;
    if args.how.json {
        print_json(&json(name, &explored))?;
    } else {
        let failed = failed(&explored);
        if failed > 0 {
            let told = format!("{failed} machines can't run it: the table says why");
            Bar::remarks().note(&told.into());
        }
        print_text(&format!(
            "{name}: {} machines; {} points computed, {} found in {}",
            explored.rows.len(),
            explored.computed,
            explored.resumed,
            args.table.output.display()
        ))?;
        print_text(&front(&explored, &options.walk.objectives))?;
        if let Some(picture) = &args.picture {
            print_text(&format!("{}: picture written", picture.display()))?;
        }
    }
    Ok(!explored.front.is_empty())
}

/// How many machines have no result.
fn failed(explored: &Explored) -> usize {
    explored
        .rows
        .iter()
        .filter(|row| row.outcome.is_err())
        .count()
}

fn json(name: &str, explored: &Explored) -> Value {
    let machine = |best: &Best| best.json(&explored.keys);
    json!({
        "model": name, "machines": explored.rows.len(), "resumed": explored.resumed,
        "computed": explored.computed, "failed": failed(explored),
        "front": explored.front.iter().map(machine).collect::<Vec<_>>(),
    })
}

/// The machines that no other beats, and what each waits for.
fn front(explored: &Explored, objectives: &[Objective]) -> String {
    let best = &explored.front;
    let gains = best.iter().any(|best| best.gain.is_some());
    let mut columns = vec![Column::number("#")];
    let figure = |objective: &Objective| match objective {
        Objective::Cycles => Some(Column::number("cycles")),
        Objective::Energy => Some(Column::number("uJ")),
        Objective::Area => Some(Column::number("mm2")),
        Objective::Time => Some(Column::number("ms")).filter(|_| objectives.contains(objective)),
        Objective::Dram => {
            Some(Column::number("DRAM bytes")).filter(|_| objectives.contains(objective))
        }
    };
    let figures = Objective::ALL
        .into_iter()
        .filter_map(|o| Some((o, figure(&o)?)));
    let figures: Vec<(Objective, Column)> = figures.collect();
    columns.extend(figures.iter().map(|(_, column)| *column));
    columns.extend(gains.then_some(Column::number("gain")));
    columns.extend(["unit", "KiB of uop/inp/wgt/acc", "bus"].map(Column::words));
    columns.push(Column::text("with"));
    let mut table = Table::new(columns);
    for (number, best) in (1..).zip(best).take(LISTED) {
        let mut cells = vec![number.to_string()];
        cells.extend(figures.iter().map(|(objective, _)| value(*objective, best)));
        cells.extend(gains.then(|| {
            best.gain
                .map_or_else(String::new, |gain| format!("{gain:.2}"))
        }));
        cells.extend(machine(&explored.keys, best));
        table.row(cells);
    }
    let mut text = table.text();
    if gains {
        let note = "gain: times as fast as the fastest one that was found of at most its area without more extensions";
        text += &(wrapped(note, width()) + "\n");
    }
    text += "what each waits for:\n";
    for (number, best) in (1..).zip(best).take(LISTED) {
        let told = format!("{number}: {}", best.verdict.words);
        text += &(wrapped(&told, width()) + "\n");
    }
    if best.len() > LISTED {
        text += &format!(
            "{} more: with --json, and in the picture\n",
            best.len() - LISTED
        );
    }
    text.trim_end().to_owned()
}

fn value(objective: Objective, best: &Best) -> String {
    let value = objective.of(&best.measured);
    match objective {
        Objective::Cycles | Objective::Energy | Objective::Dram => format!("{value:.0}"),
        Objective::Area => format!("{value:.2}"),
        Objective::Time => format!("{value:.3}"),
    }
}

/// The machine's cells: those that all machines have, and the last of what else was chosen.
fn machine(keys: &[String], best: &Best) -> [String; 4] {
    let (config, block) = (&best.config, best.config.block());
    let memories = [MemType::Uop, MemType::Inp, MemType::Wgt, MemType::Acc];
    let kib = memories.map(|mem| {
        let bytes = (config.depth(mem) * config.elem_bytes(mem)) as f64;
        (bytes / 1024.0).to_string()
    });
    let more = config.extensions().iter().filter(|e| !e.is_default());
    let mut with: Vec<String> = more.map(|e: Extension| e.name().to_owned()).collect();
    let told = |key: &str| key.starts_with("LOG_") || key == "EXTENSIONS" || key == "bus_bytes";
    let others = keys
        .iter()
        .zip(&best.row.values)
        .filter(|(key, _)| !told(key));
    with.extend(others.map(|(key, value)| format!("{key}={value}")));
    [
        format!("{}x{block}x{block}", config.batch()),
        kib.join("/"),
        best.timing.bus_bytes.to_string(),
        with.join(" "),
    ]
}
