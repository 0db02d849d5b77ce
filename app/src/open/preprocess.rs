//! From 8-bit pixels to the network's real input, and on to int8.

use serde::{Deserialize, Serialize};

use crate::error::{Context, Result, bail, ensure};
use crate::images::{Picture, fit};
use crate::open::model::Tensor;
use crate::options::names::{MEAN, PREPROCESS, SCALE, STD, said};
use crate::options::{PreprocessOptions, Preset};
use crate::watch::Watch;

/// `(x * scale - mean[c]) / std[c]` of 0..255 pixels; kept in models as JSON under `preprocess`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocess {
    /// Factor on pixel values of 0..255.
    pub scale: f32,
    /// Of each channel, or one for all.
    pub mean: Vec<f32>,
    /// Of each channel, or one for all; positive.
    pub std: Vec<f32>,
}

impl Preprocess {
    /// A known recipe.
    pub(crate) fn preset(preset: Preset) -> Self {
        let (scale, mean, std) = match preset {
            Preset::Imagenet => (1.0 / 255.0, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            Preset::Cifar10 => (
                1.0 / 255.0,
                [0.4914, 0.4822, 0.4465],
                [0.2470, 0.2435, 0.2616],
            ),
            Preset::Raw => (1.0, [0.0; 3], [1.0; 3]),
        };
        Self {
            scale,
            mean: mean.to_vec(),
            std: std.to_vec(),
        }
    }

    /// What the flags say, or else the model, or else ImageNet's recipe with a note.
    ///
    /// # Errors
    /// Metadata of another form, values that are not finite, deviations that are not positive.
    pub fn choose(
        args: &PreprocessOptions,
        model: Option<&String>,
        watch: &dyn Watch,
    ) -> Result<Self> {
        let mut chosen = match (args.preprocess, model) {
            (Some(preset), _) => Self::preset(preset),
            (None, Some(json)) => {
                serde_json::from_str(json).context("the model's preprocessing")?
            }
            (None, None) => {
                if args.mean.is_none() && args.std.is_none() && args.scale.is_none() {
                    watch.note(&said!(
                        "the model doesn't say how its input is made; assuming {} imagenet";
                        PREPROCESS
                    ));
                }
                Self::preset(Preset::Imagenet)
            }
        };
        if let Some(scale) = args.scale {
            chosen.scale = scale;
        }
        for (given, own) in [(&args.mean, &mut chosen.mean), (&args.std, &mut chosen.std)] {
            if let Some(values) = given {
                own.clone_from(values);
            }
        }
        if !chosen.std.iter().all(|s| s.is_finite() && *s > 0.0) || !chosen.scale.is_finite() {
            bail!("{} must be positive and {} finite"; STD, SCALE);
        }
        ensure!(chosen.mean.iter().all(|m| m.is_finite()), "{} must be finite"; MEAN);
        ensure!(chosen.scale != 0.0, "{} must not be 0"; SCALE);
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
    pub fn shaped(&self, picture: &Picture, input: &Tensor) -> Result<Vec<f32>> {
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
    pub fn apply(&self, picture: &Picture, chw: [usize; 3]) -> Result<Vec<f32>> {
        let mut values = fit(picture, chw)?;
        if picture.is_ready() {
            return Ok(values);
        }
        let [c, h, w] = chw;
        for list in [&self.mean, &self.std] {
            let n = list.len();
            ensure!(n == c || n == 1, "{n} means or deviations for {c} channels");
        }
        for (channel, plane) in values.chunks_exact_mut((h * w).max(1)).enumerate() {
            let pick = |list: &[f32]| list[if list.len() == 1 { 0 } else { channel }];
            let (mean, std) = (pick(&self.mean), pick(&self.std));
            plane
                .iter_mut()
                .for_each(|x| *x = (*x * self.scale - mean) / std);
        }
        Ok(values)
    }
}

/// Rounds to steps of the input tensor's scale, counted from its zero point.
pub fn to_int8(values: &[f32], scale: f32, zero: i8) -> Vec<i8> {
    values
        .iter()
        .map(|v| {
            let steps = (v / scale).round_ties_even() + f32::from(zero);
            steps.clamp(-128.0, 127.0) as i8
        })
        .collect()
}
