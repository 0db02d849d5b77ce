//! `vta layer`.

use anyhow::{Result, ensure};
use vta_app::report;
use vta_app::run::layer::{self, LayerOutcome};

use crate::args::LayerArgs;
use crate::bar::Bar;
use crate::report::{print_plans, tell_written};
use crate::terminal::{print_json, print_text};

/// Runs a layer; whether it computed what the reference does.
pub fn layer(args: &LayerArgs) -> Result<bool> {
    if let Some(detail) = args.dump.plan {
        let views = &args.views;
        ensure!(
            !views.timing_only && views.trace.is_none() && views.report.is_none(),
            "--timing-only, --trace and --report need a run, and --dump-plan runs nothing"
        );
        let plans = layer::plans(&args.layer, args.seed, &args.target())?;
        print_plans(&plans, (!args.json).then_some(detail))?;
        return Ok(true);
    }
    let bar = Bar::new("images", 20, args.json);
    let outcome = layer::run(&args.layer, args.seed, &args.target(), &bar)?;
    bar.clear();
    if args.json {
        print_json(&outcome.json())?;
    } else {
        text(&outcome)?;
    }
    tell_written(&args.views, args.json)?;
    Ok(outcome.is_right())
}

fn text(outcome: &LayerOutcome) -> Result<()> {
    let verdict = match outcome.max_abs_error {
        None => "cycles only, nothing computed".to_owned(),
        Some(0) => "bit-identical to the reference (max_abs_error 0)".to_owned(),
        Some(error) => format!("MISMATCH (max_abs_error {error})"),
    };
    // Without results there is no work whose time would tell anything.
    let wall = match outcome.max_abs_error {
        None => String::new(),
        Some(_) => {
            let ms = outcome.wall.as_secs_f64() * 1e3;
            format!("\n  {ms:.2} ms on {}", outcome.device)
        }
    };
    print_text(&format!(
        "{}: {verdict}\n  {} MACs, {} GEMM micro-ops, \
         utilisation {:.1} %, {} instructions, {} bytes{wall}",
        outcome.layer,
        outcome.macs,
        outcome.traffic.gemm_steps,
        outcome.utilization * 100.0,
        outcome.traffic.insns,
        outcome.traffic.total_bytes(),
    ))?;
    if let Some(design) = &outcome.design {
        print_text(&format!("  {}", design.text().trim_end()))?;
    }
    let Some(timed) = &outcome.timed else {
        return Ok(());
    };
    let (total, bound) = (timed.total(), timed.bound_cycles().max(1));
    print_text(&format!(
        "  {} cycles on {}, {:.3} times the bound of {bound}\n  {}",
        total.cycles,
        timed.board,
        total.cycles as f64 / bound as f64,
        report::verdict(&total, outcome.macs).words,
    ))
}
