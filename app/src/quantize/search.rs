//! Which of several quantised networks is kept: that which loses least, and with as few nodes in float as reach a target.

use vta_compiler::passes;
use vta_compiler::quantize::{
    self, Activations, Calibrated, Comparison, Kept, Method, Quantized, ZeroPoints,
};

use super::calibrate::{CHOOSING, Calibration, Split};
use super::fidelity::{FEW, Fidelity};
use super::trial::{Device, Float, Trial};
use crate::error::{Error, Result};
use crate::options::Quantizing;
use crate::run::Session;
use crate::watch::Watch;

/// What loses no less than this part of what the defaults do isn't worth a difference from them: 0.7 dB.
const WORTH: f64 = 0.85;
/// A loss of which no part needs to be saved: 23 dB.
const LITTLE: f64 = 5e-3;
/// Methods that are tried.
const METHODS: [Method; 3] = [Method::Mse, Method::MinMax, Method::Percentile(99.999)];
/// Those that are tried for int16, which has steps for all values.
const WIDE_METHODS: [Method; 1] = [Method::MinMax];
/// Zero points, the method, and whether to equalise.
const CHOICES: usize = 3;
/// Images on which layers are measured.
const MEASURED: usize = 2;
/// Nodes that are tried to be taken back, one after the other.
const TAKEN_BACK: usize = 24;

/// A network, and how near its outputs are to the float one's.
struct Tried {
    quantized: Quantized,
    comparison: Comparison,
    /// Whether the simulator computed it.
    simulated: bool,
    /// The simulator with the network, unless another one was tried since.
    session: Option<Box<Session>>,
}

/// What networks are chosen of, and on what.
pub struct Search<'a> {
    pub calibrated: &'a Calibrated,
    /// For another look at what it was calibrated with.
    pub calibration: &'a dyn quantize::Calibration,
    pub images: &'a dyn Calibration,
    pub split: &'a Split,
    pub quantizing: &'a Quantizing,
    pub watch: &'a dyn Watch,
}

impl Search<'_> {
    /// The best network, compared on images that had no part in the choice if there are; `done` images were run
    /// before.
    pub fn best(&self, done: usize) -> Result<(Quantized, Fidelity)> {
        let float = Float::new(self.calibrated)?;
        let Split {
            choose, compare, ..
        } = self.split;
        let is_auto = self.quantizing.is_auto();
        let mut options = self.quantizing.options;
        let mut chosen = None;
        let mut chosen_too = false;
        if !choose.is_empty() || is_auto {
            let some = if choose.is_empty() { compare } else { choose };
            let trial = float.trial(self.images.read(some)?)?;
            let mut best;
            (best, options, chosen_too) = self.options(&trial)?;
            if is_auto {
                best = self.nodes(&trial, best, &options)?;
            }
            chosen_too = (chosen_too || is_auto) && (choose.is_empty() || choose == compare);
            chosen = Some(best);
        }
        let images = (self.images, &compare[..]);
        let compared = |network: &Quantized, session: Option<Box<Session>>| {
            let mut device = match session {
                Some(session) => Device::Simulator(session),
                None => Device::open(&network.graph, self.watch)?,
            };
            let comparison = float.compare(&mut device, images, done, self.watch)?;
            Ok::<_, Error>((comparison, device.simulator().is_some()))
        };
        let (mut network, mut comparison, mut simulated) = match chosen {
            Some(best) if choose == compare => {
                self.watch
                    .progress(done + compare.len(), done + compare.len());
                (best.quantized, best.comparison, best.simulated)
            }
            chosen => {
                let (network, session) = match chosen {
                    Some(best) => (best.quantized, best.session),
                    None => (self.calibrated.quantize(&options, &Kept::new())?, None),
                };
                let (comparison, simulated) = compared(&network, session)?;
                (network, comparison, simulated)
            }
        };
        if is_auto && !chosen_too && !comparison.reaches(self.quantizing.target) {
            // What is enough for some images isn't for others: all choose now.
            let mut all = [&choose[..], &compare[..compare.len().min(CHOOSING)]].concat();
            all.sort_unstable();
            let trial = float.trial(self.images.read(&all)?)?;
            let none = self.tried(&trial, &options, &Kept::new())?;
            let chosen = self.nodes(&trial, none, &options)?;
            network = chosen.quantized;
            (comparison, simulated) = compared(&network, chosen.session)?;
            chosen_too = true;
        }
        let fidelity = Fidelity {
            held_out: comparison.images - self.split.again,
            comparison,
            simulated,
            chosen_too,
            options,
            kept: self
                .calibrated
                .kept(&network.kept)
                .map(Into::into)
                .collect(),
            target: is_auto.then_some(self.quantizing.target),
            few: self.split.calibrate.len() < FEW,
        };
        Ok((network, fidelity))
    }

    /// The network of which the options lose least on a trial, with what is left open, its options, and whether others
    /// were tried.
    fn options(&self, trial: &Trial) -> Result<(Tried, quantize::Options, bool)> {
        let quantizing = self.quantizing;
        let may_equalize = quantizing.choose_equalize && quantizing.options.equalize;
        let mut options = quantize::Options {
            equalize: quantizing.options.equalize && !may_equalize,
            ..quantizing.options
        };
        let mut best = self.tried(trial, &options, &Kept::new())?;
        let mut tried = false;
        // Whether equalised channels gain anything hangs on the method more than the other way round.
        for choice in 0..CHOICES {
            for other in self.others(choice, options) {
                if best.comparison.loss() <= LITTLE || other == options {
                    continue;
                }
                if other.equalize {
                    self.calibrated
                        .equalize(self.calibration, &quantizing.options)?;
                }
                tried = true;
                best.session = None;
                let found = self.tried(trial, &other, &Kept::new())?;
                if found.comparison.loss() < WORTH * best.comparison.loss() {
                    (best, options) = (found, other);
                }
            }
        }
        Ok((best, options, tried))
    }

    /// What there is of one of the choices, if it is left open, with options for all others.
    fn others(&self, choice: usize, options: quantize::Options) -> Vec<quantize::Options> {
        let given = self.quantizing;
        let may_equalize = given.choose_equalize && given.options.equalize;
        let methods = match options.activations {
            Activations::Int8 => &METHODS[..],
            Activations::Int16 => &WIDE_METHODS,
        };
        match choice {
            0 if options.zero_points() == ZeroPoints::Auto => vec![quantize::Options {
                zero_points: ZeroPoints::Asymmetric,
                ..options
            }],
            1 if given.choose_method => methods
                .iter()
                .map(|&method| quantize::Options { method, ..options })
                .collect(),
            2 if may_equalize && self.calibrated.equalizes() => vec![quantize::Options {
                equalize: true,
                ..options
            }],
            _ => Vec::new(),
        }
    }

    fn tried(&self, trial: &Trial, options: &quantize::Options, kept: &Kept) -> Result<Tried> {
        if self.watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let quantized = self.calibrated.quantize(options, kept)?;
        let mut device = Device::open(&quantized.graph, self.watch)?;
        let comparison = trial.compare(&mut device, self.watch)?;
        let session = device.simulator();
        Ok(Tried {
            quantized,
            comparison,
            simulated: session.is_some(),
            session,
        })
    }

    /// As [`Self::tried`]; none where nothing would be left for a device.
    fn attempt(
        &self,
        trial: &Trial,
        options: &quantize::Options,
        kept: &Kept,
    ) -> Result<Option<Tried>> {
        let mut tried = self.tried(trial, options, kept)?;
        tried.session = None;
        let lowered = passes::quantized(&tried.quantized.graph);
        let any =
            lowered.is_ok_and(|graph| graph.nodes.iter().any(|node| node.op.kind() != "host"));
        Ok(any.then_some(tried))
    }

    /// Leaves as few nodes in float as bring all outputs to the target: those around the layers that cost the outputs
    /// most, twice as many each time until they do or nothing is left for a device, then half of what was added last,
    /// and so on; then what can be taken back is. Where nothing does, what loses least.
    fn nodes(&self, trial: &Trial, mut none: Tried, options: &quantize::Options) -> Result<Tried> {
        let reaches = |tried: &Tried| tried.comparison.reaches(self.quantizing.target);
        if reaches(&none) {
            return Ok(none);
        }
        none.session = None;
        let images = &trial.images()[..MEASURED.min(trial.images().len())];
        let progress = |_, _| !self.watch.cancelled();
        let report = quantize::report(&none.quantized, images, &progress)?;
        let groups = none.quantized.groups(&report.ok_or(Error::Cancelled)?);
        let first = |n: usize| groups[..n].iter().flatten().copied().collect();
        let kept: Vec<Kept> = (0..=groups.len())
            .map(|n| none.quantized.with_inputs(first(n)))
            .collect();
        let (mut short, mut long, mut best, mut reached) = (0, 1, none, None);
        let mut doubles = true;
        while short < long.min(groups.len()) && (doubles || long - short > 1) {
            long = long.min(groups.len());
            let some = if doubles { long } else { short.midpoint(long) };
            match self.attempt(trial, options, &kept[some])? {
                Some(tried) if !reaches(&tried) => {
                    if tried.comparison.loss() < best.comparison.loss() {
                        best = tried;
                    }
                    short = some;
                    long = if doubles { 2 * some } else { long };
                }
                enough => {
                    reached = enough.or(reached);
                    (long, doubles) = (some, false);
                }
            }
        }
        let Some(reached) = reached else {
            return Ok(best);
        };
        self.taken_back(trial, reached, options)
    }

    /// Takes back what the target doesn't need, the most expensive nodes first.
    fn taken_back(
        &self,
        trial: &Trial,
        mut reached: Tried,
        options: &quantize::Options,
    ) -> Result<Tried> {
        let all = reached.quantized.kept.clone();
        let costs = self.calibrated.kept(&all);
        let costs = costs.map(|(_, macs, values)| macs.saturating_add(values));
        let mut nodes: Vec<(u64, usize)> = costs.zip(all.iter().copied()).collect();
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        for (_, node) in nodes.into_iter().take(TAKEN_BACK) {
            let mut kept = reached.quantized.kept.clone();
            if kept.remove(&node)
                && let Some(tried) = self.attempt(trial, options, &kept)?
                && tried.comparison.reaches(self.quantizing.target)
            {
                reached = tried;
            }
        }
        Ok(reached)
    }
}
