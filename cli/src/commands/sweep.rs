//! `vta sweep` and `vta merge`.

use anyhow::Result;
use serde_json::json;
use vta_app::sweep::sweeper::{Study, Workload};
use vta_app::sweep::table::Row;
use vta_app::sweep::{self, SweepOptions, Swept, merge as tables, picture};
use vta_app::watch::Watch;

use crate::args::{MergeArgs, SweepArgs};
use crate::bar::Bar;
use crate::terminal::{print_line, print_text};

/// Runs the sweep; whether every point of the grid has a result.
pub fn sweep(args: &SweepArgs) -> Result<bool> {
    let bar = Bar::new("points", 2, args.json);
    let options = SweepOptions {
        study: Study {
            work: Workload::Model(args.model.clone()),
            vary: args.vary.clone(),
            config: args.config.clone().map(Into::into),
            board: args.timing.board.board.clone(),
            timing: args.timing.timing.clone(),
        },
        shard: args.shard.as_deref().map(str::parse).transpose()?,
        output: args.output.clone(),
        picture: args.picture.clone(),
        threads: args.threads,
    };
    let swept = sweep::sweep(&options, &bar)?;
    bar.clear();
    summary(args, &swept)
}

/// Joins tables; points that are missing are told, and are no failure.
pub fn merge(args: &MergeArgs) -> Result<bool> {
    /// Points that are named.
    const NAMED: usize = 8;
    let merged = tables::merge(&args.tables, &args.output)?;
    let missing = &merged.missing;
    if args.json {
        let object = json!({
            "tables": args.tables.len(), "points": merged.rows, "missing": missing.len(),
            "missing_points": missing,
        });
        print_line(&serde_json::to_string_pretty(&object)?)?;
        return Ok(true);
    }
    if !missing.is_empty() {
        let named: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
        let more = if missing.len() > NAMED { ", .." } else { "" };
        Bar::remarks().note(&format!(
            "{} points of the grid are in no table: {}{more}",
            missing.len(),
            named.join(", ")
        ));
    }
    let output = args.output.display();
    print_text(&format!(
        "{output}: {} points of {} tables",
        merged.rows,
        args.tables.len()
    ))?;
    Ok(true)
}

fn summary(args: &SweepArgs, swept: &Swept) -> Result<bool> {
    let Swept {
        grid,
        rows,
        resumed,
        computed,
    } = swept;
    let front = picture::front(rows);
    let failed = rows.iter().filter(|r| r.outcome.is_err()).count();
    let describe = |row: &Row| {
        let pairs = grid
            .keys()
            .zip(&row.values)
            .map(|(k, v)| format!("{k}={v}"));
        pairs.collect::<Vec<_>>().join(" ")
    };
    if args.json {
        let point = |&i: &usize| {
            let row = &rows[i];
            let measured = row.outcome.as_ref().ok();
            json!({
                "point": describe(row),
                "cycles": measured.map(|m| m.cycles),
                "area_mm2": measured.map(|m| m.area_mm2),
            })
        };
        let object = json!({
            "model": args.model, "points": rows.len(), "resumed": resumed, "computed": computed,
            "failed": failed, "pareto": front.iter().map(point).collect::<Vec<_>>(),
        });
        print_line(&serde_json::to_string_pretty(&object)?)?;
        return Ok(failed == 0);
    }
    print_text(&format!(
        "{}: {} points, {computed} computed, {resumed} found in {}",
        args.model,
        rows.len(),
        args.output.display()
    ))?;
    print_text("best cycles an image for their area:")?;
    for &i in &front {
        if let Ok(m) = &rows[i].outcome {
            print_text(&format!(
                "  {:>12.0} cycles  {:>6.2} mm2  {}",
                m.cycles_per_image(),
                m.area_mm2,
                describe(&rows[i])
            ))?;
        }
    }
    if let Some(picture) = &args.picture {
        print_text(&format!("{}: picture written", picture.display()))?;
    }
    for row in rows {
        if let Err(error) = &row.outcome {
            print_text(&format!("failed: {}: {error}", describe(row)))?;
        }
    }
    Ok(failed == 0)
}
