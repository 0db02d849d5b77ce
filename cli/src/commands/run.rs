//! `vta run`.

use anyhow::{Result, ensure};
use vta_app::run;

use crate::args::RunArgs;
use crate::bar::Bar;
use crate::report;
use crate::terminal::print_with;

/// Runs a network; whether everything that was compared matched.
pub fn run(args: &RunArgs) -> Result<bool> {
    if let Some(detail) = args.dump.plan {
        refuse_results(args)?;
        let plans = run::plans(&args.options(), &Bar::remarks())?;
        report::print_plans(&plans, (!args.json).then_some(detail))?;
        return Ok(true);
    }
    let bar = Bar::new("images", 20, args.json);
    let outcome = run::run(&args.options(), &bar)?;
    bar.clear();
    if args.json {
        print_with(|out| outcome.write_json(out))?;
    } else {
        report::text(&outcome, args)?;
    }
    report::tell_written(&args.views, args.json)?;
    let clean = outcome.hazards.as_ref().is_none_or(Vec::is_empty);
    let same = outcome
        .design
        .as_ref()
        .is_none_or(|design| design.differing == 0);
    Ok(outcome.found.mismatches.is_empty() && clean && same)
}

/// What has no meaning where nothing runs.
fn refuse_results(args: &RunArgs) -> Result<()> {
    for (option, given) in [
        ("--output", args.output.is_some()),
        ("--reference", args.reference.is_some()),
        ("--verify", args.verify),
        ("--hazards", args.hazards),
        ("--profile", args.profile),
        ("--timing-only", args.views.timing_only),
        ("--trace", args.views.trace.is_some()),
        ("--report", args.views.report.is_some()),
        ("--against", args.against.is_some()),
        ("--wave", args.wave.is_some()),
    ] {
        ensure!(!given, "{option} needs a run, and --dump-plan runs nothing");
    }
    Ok(())
}
