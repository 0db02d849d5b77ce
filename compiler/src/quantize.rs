//! Post-training quantisation: float graph and calibration images to a QDQ graph.
//!
//! First, channels between two layers are scaled against each other, so that their ranges are alike and
//! one scale fits all; what the network computes stays. Activations get one int8 scale a tensor, chosen by a
//! [`Method`] from histograms of all values that calibration images give; a Clip (ReLU6) that uses its range
//! keeps it whole. One that gains by it has a zero point ([`ZeroPoints`]). What a network ends with has no
//! scale where it joins values that are far apart, or the host computes it. Weights get one scale for each output
//! channel, or one a tensor ([`WeightScales`]), which the largest weight fills, or in 4 bits
//! ([`Calibrated::with_int4`]) the one of the smallest squared error. In [`Mode::Shift`] all scales are powers of
//! two, those of weights chosen by squared error, so that requantising is one shift. Biases are int32 at
//! `s_x * s_w`, less what the rounded weights add to the mean of their channel. QuantizeLinear and
//! DequantizeLinear stand after the activation function of every operator, where other runtimes expect
//! them too. Activations of 16 bits ([`Activations::Int16`]) have no zero points, and reach no further than sums of
//! their products with weights fit int32. A [`report`] says what all that costs, layer by layer.

mod adaptive;
mod calibration;
mod correct;
mod equalize;
mod error;
mod fold;
mod histogram;
mod insert;
mod limits;
mod method;
mod mode;
mod options;
mod report;
mod rounded;
mod scales;
mod slices;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use self::calibration::{Look, observe_as};
use crate::graph::{Graph, ValueId};

pub use crate::qgraph::Numbers as Activations;
pub use calibration::{Calibration, Observed, observe};
pub use error::QuantizeError;
pub use fold::fold;
use insert::Given;
pub use insert::apply;
pub(crate) use insert::apply_with;
pub use method::Method;
pub use mode::{Mode, Scale, WeightScales, ZeroPoints};
pub use options::Options;
pub use report::compare::{Comparison, LEAST_AGREEMENT, LEAST_COSINE, LEAST_DB, Part};
pub use report::{LayerError, Report, report};
pub use rounded::Kept;
use scales::Limits;
pub use scales::{Scales, calibrate, choose, equal_scales};

/// Quantises a float graph with calibration images (preprocessed, float32, NCHW).
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Graph, QuantizeError> {
    Ok(quantize_network(graph, &images, &Options::new(mode))?.graph)
}

/// A float graph, rewritten as far as it is before it is quantised, and what images showed of it.
#[derive(Debug)]
struct Stage {
    source: Graph,
    observed: Observed,
    /// Pairs of layers that were equalised.
    equalized: usize,
}

/// What images showed of a float graph, from which it is quantised in several ways.
#[derive(Debug)]
pub struct Calibrated {
    plain: Arc<Stage>,
    equal: OnceLock<Arc<Stage>>,
    kept: Kept,
    int4: Kept,
}

impl Calibrated {
    /// Looks at all images, and [again](Self::equalize) with equalised channels if the options ask for them. Nodes that are named, by
    /// their name or their output's, stay in float.
    ///
    /// # Errors
    /// [`QuantizeError`].
    pub fn new<'g>(
        graph: impl Into<Cow<'g, Graph>>,
        images: &dyn Calibration,
        options: &Options,
        keep: &[String],
    ) -> Result<Self, QuantizeError> {
        options.check()?;
        let graph = graph.into();
        let named = rounded::keep::named(&graph, keep)?;
        let source = if fold::is_possible(&graph) {
            Cow::Owned(fold(&graph)?)
        } else {
            graph
        };
        let kept = rounded::keep::found(&source, &named);
        let of = if options.equalize && equalize::is_possible(&source) {
            2
        } else {
            1
        };
        let plain = Stage {
            observed: observe_as(&source, images, &kept, Look { index: 0, of })?,
            source: source.into_owned(),
            equalized: 0,
        };
        let calibrated = Self {
            plain: Arc::new(plain),
            equal: OnceLock::new(),
            kept,
            int4: Kept::new(),
        };
        if of > 1 {
            calibrated.equalize(images, options)?;
        }
        Ok(calibrated)
    }

    /// Looks at all images with equalised channels, if it didn't.
    ///
    /// # Errors
    /// [`QuantizeError`].
    pub fn equalize(
        &self,
        images: &dyn Calibration,
        options: &Options,
    ) -> Result<(), QuantizeError> {
        if self.equal.get().is_some() {
            return Ok(());
        }
        let Stage {
            source, observed, ..
        } = &*self.plain;
        let (source, equalized) = equalize::equalize(source, observed, options);
        let observed = observe_as(&source, images, &self.kept, Look { index: 1, of: 2 })?;
        self.equal.get_or_init(|| {
            Arc::new(Stage {
                source,
                observed,
                equalized,
            })
        });
        Ok(())
    }

    /// The same with weights of 4 bits in some layers: by their names or their outputs', `all`, or `last:2` and the like.
    ///
    /// # Errors
    /// [`QuantizeError`] for a name of which there is no layer with weights.
    pub fn with_int4(self, layers: &[String]) -> Result<Self, QuantizeError> {
        let int4 = rounded::keep::with_weights(self.float(), layers)?;
        Ok(Self { int4, ..self })
    }

    /// The float network, whose outputs are those that a quantised one should have.
    pub fn float(&self) -> &Graph {
        &self.plain.source
    }

    /// Names and multiply-adds and values for one image of nodes that stay in float.
    pub fn kept<'a>(&'a self, kept: &'a Kept) -> impl Iterator<Item = (&'a str, u64, u64)> {
        let graph = self.float();
        let node = |index: &usize| {
            let node = &graph.nodes[*index];
            (
                &node.name[..],
                graph.node_macs(node),
                graph.node_values(node),
            )
        };
        kept.iter().map(node)
    }

    /// Whether there are channels to equalise.
    pub fn equalizes(&self) -> bool {
        equalize::is_possible(self.float())
    }

    /// Quantises the graph; more nodes may stay in float than were named.
    ///
    /// # Errors
    /// [`QuantizeError`] for what can't be quantised.
    pub fn quantize(&self, options: &Options, kept: &Kept) -> Result<Quantized, QuantizeError> {
        options.check()?;
        let equal = self.equal.get().filter(|_| options.equalize);
        let stage = Arc::clone(equal.unwrap_or(&self.plain));
        let mut kept: Kept = self.kept.union(kept).copied().collect();
        let Stage {
            source, observed, ..
        } = &*stage;
        rounded::keep::settle(source, observed, &self.kept, &mut kept);
        let mut scales = choose(source, observed, options);
        for (scale, rounded) in scales.iter_mut().zip(rounded::rounded(source, &kept)) {
            *scale = scale.filter(|_| rounded);
        }
        let (none, unlimited) = (Scales::new(), Limits::new());
        let mut given = Given {
            scales: &none,
            limits: &unlimited,
            options,
            kept: &kept,
            int4: &self.int4,
            observed: Some(observed),
            constants: &|_| None,
        };
        let limits = limits::limit(source, &mut scales, &given)?;
        (given.scales, given.limits) = (&scales, &limits);
        let (graph, rounded) = insert::apply_as(source, &given)?;
        Ok(Quantized {
            graph,
            equalized: stage.equalized,
            kept,
            int4: self.int4.clone(),
            stage,
            rounded,
            scales,
            options: *options,
        })
    }
}

/// A quantised graph, and what is known of how it became one.
#[derive(Debug)]
pub struct Quantized {
    /// With QuantizeLinear and DequantizeLinear.
    pub graph: Graph,
    /// Pairs of layers that were equalised.
    pub equalized: usize,
    /// Nodes of the float network that stayed in float.
    pub kept: Kept,
    /// Nodes of the float network whose weights have 4 bits.
    pub int4: Kept,
    stage: Arc<Stage>,
    /// What stands for those values of the float network that are rounded.
    rounded: Vec<Option<ValueId>>,
    scales: Scales,
    options: Options,
}

/// [`quantize`] with images that are read as they are needed, of which memory and results don't depend on how many are
/// held at once, for a [`report`] on it.
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize_network<'g>(
    graph: impl Into<Cow<'g, Graph>>,
    images: &dyn Calibration,
    options: &Options,
) -> Result<Quantized, QuantizeError> {
    Calibrated::new(graph, images, options, &[])?.quantize(options, &Kept::new())
}

/// The step of every tensor of [`stand_in`]: what int8 holds then is within 8 of 0, as most
/// activations are.
const STAND_IN: f32 = 1.0 / 16.0;

/// A float graph quantised without calibration: nodes and roundings are those of [`quantize`], but all
/// scales of activations are one. For what depends on the structure alone, as which nodes the device
/// computes.
///
/// # Errors
/// [`QuantizeError`], but for images.
pub fn stand_in(graph: &Graph) -> Result<Graph, QuantizeError> {
    let graph = fold(graph)?;
    apply(&graph, &equal_scales(&graph, STAND_IN), Mode::Multiply)
}
