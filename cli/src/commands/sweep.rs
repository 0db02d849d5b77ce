//! `vta sweep` and `vta merge`.

use anyhow::Result;
use serde_json::json;
use vta_app::Watch;
use vta_app::sweep::{self, Row, SweepOptions, Swept, Workload, merge as merge_tables};

use crate::args::{MergeArgs, SweepArgs};
use crate::bar::Bar;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// Runs the sweep; whether every point of the grid has a result.
pub fn sweep(args: &SweepArgs) -> Result<bool> {
    let bar = Bar::new("points", 2, args.how.json);
    let work = match &args.layers {
        Some(path) => Workload::read(path)?,
        // Arguments have one of both.
        None => args.model.clone().into(),
    };
    let options = SweepOptions {
        work,
        vary: args.vary.clone(),
        target: args.table.target(args.config.as_ref(), &args.how),
        shard: args.shard.clone(),
        output: args.table.output.clone(),
        picture: args.picture.clone(),
    };
    let swept = sweep::sweep(&options, &bar)?;
    bar.clear();
    summary(args, &options.work.name, &swept)
}

/// Joins tables; points that are missing are told, and are no failure.
pub fn merge(args: &MergeArgs) -> Result<bool> {
    /// Points that are named.
    const NAMED: usize = 8;
    let (points, missing) = merge_tables(&args.tables, &args.output)?;
    if args.json {
        let object = json!({
            "tables": args.tables.len(), "points": points, "missing": missing.len(),
            "missing_points": missing,
        });
        print_json(&object)?;
        return Ok(true);
    }
    if !missing.is_empty() {
        let named: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
        let more = if missing.len() > NAMED { ", .." } else { "" };
        let (count, named) = (missing.len(), named.join(", "));
        let told = format!("{count} points of the grid are in no table: {named}{more}");
        Bar::remarks().note(&told.into());
    }
    let output = args.output.display();
    print_text(&format!(
        "{output}: {points} points of {} tables",
        args.tables.len()
    ))?;
    Ok(true)
}

/// Layers on one machine, with what SCALE-Sim's compute report has of them.
fn layers(rows: &[Row]) -> String {
    let mut table = Table::new([
        Column::name("layer"),
        Column::number("cycles"),
        Column::number("of bound"),
        Column::number("utilisation"),
        Column::number("MACs"),
        Column::number("DRAM bytes").optional(),
    ]);
    for row in rows {
        let (Some(name), Ok(m)) = (row.values.first(), &row.outcome) else {
            continue;
        };
        table.row([
            name.clone(),
            m.cycles.to_string(),
            format!("{:.2}", m.cycles as f64 / m.bound_cycles.max(1) as f64),
            format!("{:.1} %", m.utilization * 100.0),
            m.macs.to_string(),
            m.dram_bytes.to_string(),
        ]);
    }
    table.text().trim_end().to_owned()
}

fn summary(args: &SweepArgs, name: &str, swept: &Swept) -> Result<bool> {
    let Swept {
        keys,
        has_layers,
        rows,
        front,
        resumed,
        computed,
    } = swept;
    let of_machine = &keys[usize::from(*has_layers)..];
    let failed = rows.iter().filter(|r| r.outcome.is_err()).count();
    if args.how.json {
        let point = |row: &Row| {
            let measured = row.outcome.as_ref().ok();
            json!({
                "point": named(of_machine, row),
                "cycles": measured.map(|m| m.cycles),
                "area_mm2": measured.map(|m| m.area_mm2),
            })
        };
        let object = json!({
            "model": name, "points": rows.len(), "resumed": resumed, "computed": computed,
            "failed": failed, "pareto": front.iter().map(point).collect::<Vec<_>>(),
        });
        print_json(&object)?;
        return Ok(failed == 0);
    }
    print_text(&format!(
        "{name}: {} points, {computed} computed, {resumed} found in {}",
        rows.len(),
        args.table.output.display()
    ))?;
    if *has_layers && keys.len() == 1 {
        print_text(&layers(rows))?;
    }
    print_text("best cycles an image for their area:")?;
    for row in front {
        if let Ok(m) = &row.outcome {
            let line = format!(
                "  {:>12.0} cycles  {:>6.2} mm2  {}",
                m.cycles_per_image(),
                m.area_mm2,
                named(of_machine, row)
            );
            print_text(line.trim_end())?;
        }
    }
    if let Some(picture) = &args.picture {
        print_text(&format!("{}: picture written", picture.display()))?;
    }
    if failed > 0 {
        print_text(&failures(keys, rows))?;
    }
    Ok(failed == 0)
}

/// A point's values with their keys.
fn named(keys: &[String], row: &Row) -> String {
    let pairs = keys.iter().zip(&row.values);
    let pairs = pairs.map(|(k, v)| format!("{k}={v}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// Why points have no result: each reason once, with its first point and how many others have it, too.
fn failures(keys: &[String], rows: &[Row]) -> String {
    let mut reasons: Vec<(&str, &Row, usize)> = Vec::new();
    for row in rows {
        let Err(error) = &row.outcome else { continue };
        match reasons.iter_mut().find(|(known, ..)| known == error) {
            Some((.., others)) => *others += 1,
            None => reasons.push((error, row, 0)),
        }
    }
    let line = |(error, first, others): &(&str, &Row, usize)| {
        let more = match others {
            0 => String::new(),
            1 => " and another point".to_owned(),
            _ => format!(" and {others} other points"),
        };
        format!("failed: {}{more}: {error}", named(keys, first))
    };
    reasons.iter().map(line).collect::<Vec<_>>().join("\n")
}
