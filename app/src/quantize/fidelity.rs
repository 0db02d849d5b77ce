//! How near a quantised model is to the float one, and what to do where it isn't.

use serde_json::{Value, json};
use vta_compiler::quantize::{
    self, Comparison, LEAST_AGREEMENT, LEAST_COSINE, LEAST_DB, Part, ZeroPoints,
};

use crate::options::names::{KEEP_FLOAT, REPORT, Said, said};
use crate::report::HostSpeed;

/// Fewer calibration images are worth a remark.
pub const FEW: usize = 32;
/// Nodes in float that are shown, the slowest.
const SHOWN: usize = 12;

/// How near a quantised model is to the float one: its outputs on images, as devices compute them.
pub struct Fidelity {
    /// Output by output.
    pub(super) comparison: Comparison,
    /// Whether the simulator computed them. What can't be lowered the host computes, in floats.
    pub(super) simulated: bool,
    /// How many of the images were kept out of the calibration.
    pub(super) held_out: usize,
    /// Whether options or nodes were chosen on these images.
    pub(super) chosen_too: bool,
    /// How it was quantised.
    pub(super) options: quantize::Options,
    /// Nodes that stayed in float.
    pub(super) kept: Vec<KeptNode>,
    /// What `AUTO` was to reach.
    pub(super) target: Option<f64>,
    /// Whether more images may help.
    pub(super) few: bool,
}

/// A node that stayed in float, and what it costs the host for one image.
pub(super) struct KeptNode {
    /// Its name.
    name: String,
    /// Multiply-adds.
    macs: u64,
    /// An estimate of its time, in microseconds.
    us: f64,
}

impl From<(&str, u64, u64)> for KeptNode {
    fn from((name, macs, values): (&str, u64, u64)) -> Self {
        let speed = HostSpeed::default();
        Self {
            name: name.to_owned(),
            macs,
            us: (macs as f64 / speed.gmacs + values as f64 / speed.gvalues) / 1e3,
        }
    }
}

impl Fidelity {
    /// A line for each output and each part of one, and one on what was chosen.
    pub fn lines(&self) -> Vec<String> {
        let images = self.comparison.images;
        let mut lines: Vec<String> = self
            .comparison
            .parts
            .iter()
            .map(|part| self.line(part))
            .collect();
        let of = match self.held_out {
            0 => "of the calibration: no others were kept out".to_owned(),
            all if all == images => "kept out of the calibration".to_owned(),
            some => format!("of which {some} were kept out of the calibration"),
        };
        let by = if self.simulated {
            ""
        } else {
            ", computed in floats, since it can't be lowered"
        };
        let alone = if self.chosen_too {
            ", on which it was chosen, too"
        } else {
            ""
        };
        lines.push(format!(
            "{} against float, {images} images {of}{by}{alone}",
            self.options.activations
        ));
        let equalized = if self.options.equalize {
            ", equalised channels"
        } else {
            ""
        };
        let (method, zero_points) = (self.options.method, self.zero_points());
        lines.push(format!(
            "method {method}, zero points {zero_points}{equalized}"
        ));
        let mut kept: Vec<&KeptNode> = self.kept.iter().collect();
        kept.sort_by(|a, b| b.us.total_cmp(&a.us));
        let line = |name: &str, macs: u64, us: f64| {
            format!("{name}: {macs} multiply-adds, about {us:.0} us of the host")
        };
        if !kept.is_empty() {
            let (macs, us) = (
                kept.iter().map(|n| n.macs).sum(),
                kept.iter().map(|n| n.us).sum(),
            );
            lines.push(line(&format!("{} nodes in float", kept.len()), macs, us));
        }
        let shown = kept.iter().take(SHOWN);
        lines.extend(shown.map(|node| line(&format!("  {}", node.name), node.macs, node.us)));
        lines
    }

    fn line(&self, part: &Part) -> String {
        let mut line = format!("{}: {}", name(part), self.figures(part));
        if let Some(agreement) = part.agreement() {
            line.push_str(&format!(", {:.1} % agree", 100.0 * agreement));
        }
        line
    }

    fn figures(&self, part: &Part) -> String {
        let db = part.db();
        let noise = if db.is_finite() {
            format!("{db:.1} dB")
        } else {
            "exact".to_owned()
        };
        format!("cosine {:.4}, {noise}", part.cosine(self.comparison.images))
    }

    /// Outputs, and parts of outputs, that have lost their meaning, and what to do.
    pub fn warnings(&self) -> Vec<Said> {
        let images = self.comparison.images;
        let mut warnings = Vec::new();
        let lost = |part: &&Part| part.is_lost(images);
        for part in self.comparison.parts.iter().filter(lost) {
            let is_part = |other: &Part| other.output == part.output && other.concat.is_some();
            let several = self
                .comparison
                .parts
                .iter()
                .any(|p| is_part(p) && p.is_lost(images));
            if part.concat.is_none() && several {
                continue;
            }
            warnings.push(self.warning(part));
        }
        if let Some(target) = self
            .target
            .filter(|target| !self.comparison.reaches(*target))
        {
            let line = format!("outputs don't all reach {target}");
            warnings.push(said!("{} with nodes in float: name more with {}"; line, KEEP_FLOAT));
        }
        warnings
    }

    fn warning(&self, part: &Part) -> Said {
        let line = self.line(part);
        let bounds = format!(
            "below cosine {LEAST_COSINE}, {LEAST_DB} dB or {} % it has lost its meaning",
            100.0 * LEAST_AGREEMENT
        );
        let more = if self.few {
            format!("; {FEW} or more images may help")
        } else {
            String::new()
        };
        match &part.concat {
            Some((concat, _)) => said!(
                "{} ({}): its scale is that of all parts; {} {} leaves them their own, or cut the model before it{}";
                line, bounds, KEEP_FLOAT, concat, more
            ),
            None => said!(
                "{} ({}): {} AUTO finds layers to keep in float, {} names those that lose most{}";
                line, bounds, KEEP_FLOAT, REPORT, more
            ),
        }
    }

    fn zero_points(&self) -> &'static str {
        match self.options.zero_points() {
            ZeroPoints::Symmetric => "symmetric",
            ZeroPoints::Asymmetric => "asymmetric",
            ZeroPoints::Auto => "auto",
        }
    }

    /// Everything; ratios are in dB, `null` where nothing differs.
    pub fn json(&self) -> Value {
        let images = self.comparison.images;
        let parts = self.comparison.parts.iter().map(|part| {
            json!({
                "name": part.output,
                "concat": part.concat.as_ref().map(|(concat, _)| concat),
                "part": part.concat.as_ref().map(|(_, part)| part),
                "db": part.db(), "cosine": part.cosine(images), "agreement": part.agreement(),
                "lost": part.is_lost(images),
            })
        });
        let kept = self
            .kept
            .iter()
            .map(|node| json!({"name": node.name, "macs": node.macs, "us": node.us}));
        json!({
            "images": images, "held_out": self.held_out, "chosen_too": self.chosen_too, "simulated": self.simulated,
            "outputs": parts.collect::<Vec<_>>(), "activations": self.options.activations.to_string(), "method": self.options.method.to_string(),
            "equalize": self.options.equalize, "zero_points": self.zero_points(), "keep_float": kept.collect::<Vec<_>>(),
        })
    }
}

/// An output, or a part of one.
fn name(part: &Part) -> String {
    match &part.concat {
        None => part.output.clone(),
        Some((_, value)) => format!("{} of {}", value, part.output),
    }
}
