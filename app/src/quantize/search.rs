//! Which of several quantised networks is kept: that which loses least, and with as few nodes in float as reach a target.

use vta_compiler::quantize::{self, Calibrated, Comparison, Kept, Method, Quantized};

use super::trial::Trial;
use crate::error::{Error, Result};
use crate::options::Quantizing;
use crate::watch::Watch;

/// What loses no less than this part of what the defaults do isn't worth a difference from them: 1 dB.
const WORTH: f64 = 0.8;
/// A loss of which no part needs to be saved: 35 dB.
const LITTLE: f64 = 3.2e-4;
/// Methods that are tried.
const METHODS: [Method; 3] = [Method::Mse, Method::MinMax, Method::Percentile(99.99)];
/// Images on which layers are measured.
const MEASURED: usize = 4;
/// Nodes that are tried to be taken back, one after the other.
const TAKEN_BACK: usize = 64;

/// Options by what they lose on a trial, with what `quantizing` leaves open.
pub fn options(
    calibrated: &Calibrated,
    trial: &Trial,
    quantizing: &Quantizing,
    watch: &dyn Watch,
) -> Result<quantize::Options> {
    let mut best = quantizing.options;
    let equal = quantizing.choose_equalize && best.equalize && calibrated.equalizes();
    if !equal && !quantizing.choose_method {
        return Ok(best);
    }
    let loss = |options: &quantize::Options| -> Result<f64> {
        let quantized = calibrated.quantize(options, &Kept::new())?;
        Ok(trial.compare(&quantized.graph, watch)?.loss())
    };
    let mut least = loss(&best)?;
    let mut consider = |options: quantize::Options, best: &mut quantize::Options| -> Result<()> {
        if least > LITTLE {
            let found = loss(&options)?;
            if found < WORTH * least {
                (least, *best) = (found, options);
            }
        }
        Ok(())
    };
    if equal {
        let options = quantize::Options {
            equalize: false,
            ..best
        };
        consider(options, &mut best)?;
    }
    let own = best.method;
    let methods = METHODS.into_iter().filter(|method| *method != own);
    for method in methods.filter(|_| quantizing.choose_method) {
        consider(quantize::Options { method, ..best }, &mut best)?;
    }
    Ok(best)
}

/// A network with nodes in float.
struct Tried {
    kept: Kept,
    quantized: Quantized,
    comparison: Comparison,
}

/// Leaves as few nodes in float as bring all outputs to a target: those around the layers that cost the outputs most,
/// twice as many each time until they do, then half of what was added last, and so on; then what can be taken back
/// is. Where nothing does, what loses least.
pub fn nodes(
    calibrated: &Calibrated,
    trial: &Trial,
    options: &quantize::Options,
    target: f64,
    watch: &dyn Watch,
) -> Result<Quantized> {
    let with = |kept: Kept| -> Result<Tried> {
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let quantized = calibrated.quantize(options, &kept)?;
        vta_compiler::passes::quantized(&quantized.graph)?;
        let comparison = trial.compare(&quantized.graph, watch)?;
        Ok(Tried {
            kept,
            quantized,
            comparison,
        })
    };
    let none = with(Kept::new())?;
    if none.comparison.reaches(target) {
        return Ok(none.quantized);
    }
    let images = &trial.images()[..MEASURED.min(trial.images().len())];
    let progress = |_, _| !watch.cancelled();
    let report = quantize::report(&none.quantized, images, &progress)?;
    let groups = none.quantized.groups(&report.ok_or(Error::Cancelled)?);
    let first = |n: usize| groups[..n].iter().flatten().copied().collect::<Kept>();
    // With everything in float nothing is left for a device: that is no network.
    let attempt = |kept: Kept| match with(kept) {
        Ok(tried) => Ok(Some(tried)),
        Err(Error::Cancelled) => Err(Error::Cancelled),
        Err(_) => Ok(None),
    };
    let (mut short, mut long, mut best) = (0, 1, none);
    let mut reached = None;
    while short < groups.len() {
        long = long.min(groups.len());
        let Some(tried) = attempt(first(long))? else {
            break;
        };
        if tried.comparison.reaches(target) {
            reached = Some(tried);
            break;
        }
        if tried.comparison.loss() < best.comparison.loss() {
            best = tried;
        }
        (short, long) = (long, 2 * long);
    }
    let Some(mut reached) = reached else {
        return Ok(best.quantized);
    };
    while long - short > 1 {
        let middle = short.midpoint(long);
        match attempt(first(middle))? {
            Some(tried) if tried.comparison.reaches(target) => (reached, long) = (tried, middle),
            _ => short = middle,
        }
    }
    // The most expensive ones first.
    let mut nodes: Vec<(u64, usize)> = calibrated
        .kept(&reached.kept)
        .map(|(_, macs, values)| macs.saturating_add(values))
        .zip(reached.kept.iter().copied())
        .collect();
    nodes.sort_unstable_by(|a, b| b.cmp(a));
    for (_, node) in nodes.into_iter().take(TAKEN_BACK) {
        let mut kept = reached.kept.clone();
        kept.remove(&node);
        if let Some(tried) = attempt(kept)?.filter(|tried| tried.comparison.reaches(target)) {
            reached = tried;
        }
    }
    Ok(reached.quantized)
}
