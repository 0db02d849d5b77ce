//! From 8-bit pixels to the network's real input, and on to int8.

use serde::{Deserialize, Serialize};
use vta_compiler::qgraph::Numbers;
use vta_sim::Rounding;

use crate::error::{Context, Error, Result, bail, bail_input, ensure};
use crate::images::{Picture, fit};
use crate::open::model::Tensor;
use crate::options::names::{MEAN, PREPROCESS, SCALE, STD, said};
use crate::watch::Watch;

/// `(x * scale - mean[c]) / std[c]` of 0..255 pixels; kept in models as JSON under `preprocess`. Where some of it
/// isn't given, another recipe may say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preprocess {
    /// Factor on pixel values of 0..255.
    pub scale: Option<f32>,
    /// Mean of each channel after scaling, or one for all.
    pub mean: Option<Vec<f32>>,
    /// Standard deviation of each channel after scaling, or one for all; positive.
    pub std: Option<Vec<f32>>,
}

impl Preprocess {
    /// A known recipe: `imagenet` or `cifar10`, 1/255 with their mean and standard deviation, or `raw`, 0..255 as
    /// they are.
    ///
    /// # Errors
    /// In words: another name.
    pub fn named(name: &str) -> Result<Self, String> {
        let (scale, mean, std) = match name {
            "imagenet" => (1.0 / 255.0, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            "cifar10" => (
                1.0 / 255.0,
                [0.4914, 0.4822, 0.4465],
                [0.2470, 0.2435, 0.2616],
            ),
            "raw" => (1.0, [0.0; 3], [1.0; 3]),
            _ => {
                return Err(format!(
                    "unknown variant `{name}`, expected one of `imagenet`, `cifar10`, `raw`"
                ));
            }
        };
        Ok(Self {
            scale: Some(scale),
            mean: Some(mean.to_vec()),
            std: Some(std.to_vec()),
        })
    }

    /// What a model states.
    ///
    /// # Errors
    /// Text of another form, or that lacks a part.
    pub(crate) fn stated(json: &str) -> Result<Self> {
        let read = || -> Result<Self> {
            let found: Self = serde_json::from_str(json)?;
            match found.missing() {
                Some(part) => bail_input!("missing field `{part}`"),
                None => Ok(found),
            }
        };
        read().context("the model's preprocessing")
    }

    /// The first part that isn't given.
    fn missing(&self) -> Option<&'static str> {
        let given = [
            ("scale", self.scale.is_some()),
            ("mean", self.mean.is_some()),
            ("std", self.std.is_some()),
        ];
        let missing = given.into_iter().find(|(_, given)| !given);
        missing.map(|(part, _)| part)
    }

    /// What isn't given is another recipe's.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            scale: self.scale.or(other.scale),
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
        }
    }

    /// What is given, or else what the model states, or else ImageNet's recipe with a note where nothing is given.
    ///
    /// # Errors
    /// Metadata of another form, values that are not finite, deviations that are not positive.
    pub fn choose(given: &Self, stated: Option<&String>, watch: &dyn Watch) -> Result<Self> {
        let other = match stated {
            _ if given.missing().is_none() => Self::default(),
            Some(json) => Self::stated(json)?,
            None => {
                if *given == Self::default() {
                    watch.note(&said!(
                        "the model doesn't say how its input is made; assuming {} imagenet";
                        PREPROCESS
                    ));
                }
                Self::named("imagenet").map_err(Error::input)?
            }
        };
        let chosen = given.clone().or(other);
        let scale = chosen.scale.unwrap_or(1.0);
        let positive = |std: &f32| std.is_finite() && *std > 0.0;
        if !chosen.std.iter().flatten().all(positive) || !scale.is_finite() {
            bail!("{} must be positive and {} finite"; STD, SCALE);
        }
        ensure!(chosen.mean.iter().flatten().all(|m| m.is_finite()), "{} must be finite"; MEAN);
        ensure!(scale != 0.0, "{} must not be 0"; SCALE);
        Ok(chosen)
    }

    /// As JSON for a model's metadata.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The real input of a network, in the order of its dimensions: channels are the last of three
    /// where a picture has as many, and not as many as the first.
    ///
    /// # Errors
    /// As for [`Self::apply`].
    pub fn shaped(&self, picture: Picture, input: &Tensor) -> Result<Vec<f32>> {
        let channels = picture.chw[0];
        match input.shape[..] {
            [h, w, c] if c == channels && h != channels && !picture.is_ready() => {
                let planes = self.apply(picture, [c, h, w])?;
                let at = |i: usize| planes[i % c * h * w + i / c];
                Ok((0..c * h * w).map(at).collect())
            }
            _ => self.apply(picture, input.chw),
        }
    }

    /// The real input of a network that takes `chw`.
    pub fn apply(&self, picture: Picture, chw: [usize; 3]) -> Result<Vec<f32>> {
        let is_ready = picture.is_ready();
        let mut values = fit(picture, chw)?;
        if is_ready {
            return Ok(values);
        }
        let [c, h, w] = chw;
        let scale = self.scale.unwrap_or(1.0);
        let mean = self.mean.as_deref().unwrap_or(&[0.0]);
        let std = self.std.as_deref().unwrap_or(&[1.0]);
        for list in [mean, std] {
            let n = list.len();
            ensure!(n == c || n == 1, "{n} means or deviations for {c} channels");
        }
        for (channel, plane) in values.chunks_exact_mut((h * w).max(1)).enumerate() {
            let pick = |list: &[f32]| list[if list.len() == 1 { 0 } else { channel }];
            let (mean, std) = (pick(mean), pick(std));
            plane
                .iter_mut()
                .for_each(|x| *x = (*x * scale - mean) / std);
        }
        Ok(values)
    }
}

/// The place of the first value that is infinite or no number.
pub(crate) fn not_finite(values: &[f32]) -> Option<usize> {
    // All of a piece, whose loop takes vectors, before each of it.
    let finite = |piece: &[f32]| piece.iter().fold(true, |all, x| all & x.is_finite());
    let fine = values.chunks(1024).all(finite);
    let first = || values.iter().position(|x| !x.is_finite());
    if fine { None } else { first() }
}

/// Rounds to steps of an input's scale, half to even, counted from its zero point.
pub fn to_steps(values: &[f32], scale: f32, zero: i16, numbers: Numbers) -> Vec<i16> {
    rounding(scale, zero, numbers).steps(values).0
}

/// How an input's values are rounded.
pub(crate) fn rounding(scale: f32, zero: i16, numbers: Numbers) -> Rounding {
    let bounds = numbers.bounds().into();
    Rounding {
        scale,
        zero,
        bounds,
    }
}
