//! Built-in topologies with seeded weights: ResNets, a ResNeXt and a MobileNet at ImageNet's shapes.
//!
//! The networks have the layers of the published ResNet-18 to -152 (with the stride of a
//! bottleneck in its 3x3 convolution), ResNeXt-50 32x4d and MobileNet v1 (width 1.0), 224x224 input
//! and 1000 classes. Weights are drawn by an
//! integer generator and scaled to keep the variance from layer to layer, activation scales
//! were calibrated on a small synthetic image: the same bytes on every machine. They classify
//! nothing; they are there to measure and to test.

mod builder;
mod draw;
mod error;
mod rng;
mod scales;

use std::collections::BTreeMap;

use crate::graph::{Graph, Op, ValueId};
use crate::lower;
use crate::passes;
use crate::quantize::{self, Mode};
use crate::semantics::Requant;
use builder::{Block, Builder, Detail};
use draw::Draw;

pub use error::{NAMES, ZooError};
pub use rng::Rng;

/// Rows and columns of the input.
pub const SIZE: usize = 224;
const CLASSES: usize = 1000;
/// Blocks in each stage of a ResNet, and their kind.
fn stages(name: &str) -> Result<([usize; 4], Block), ZooError> {
    Ok(match name {
        "resnet18" => ([2, 2, 2, 2], Block::Basic),
        "resnet34" => ([3, 4, 6, 3], Block::Basic),
        "resnet50" => ([3, 4, 6, 3], Block::Bottleneck),
        "resnet101" => ([3, 4, 23, 3], Block::Bottleneck),
        "resnet152" => ([3, 8, 36, 3], Block::Bottleneck),
        "resnext50" => ([3, 4, 6, 3], Block::Grouped),
        _ => {
            return Err(ZooError::Unknown {
                name: name.to_owned(),
            });
        }
    })
}

/// A network as a QDQ graph with per-channel weights.
///
/// # Errors
/// [`ZooError::Unknown`] listing the names.
pub fn graph(name: &str) -> Result<Graph, ZooError> {
    graph_with(name, Mode::Multiply)
}

/// A network as a QDQ graph, quantised in a mode.
///
/// # Errors
/// [`ZooError::Unknown`] listing the names.
pub fn graph_with(name: &str, mode: Mode) -> Result<Graph, ZooError> {
    // Weights are drawn when they are quantised, so that there is never more than a layer's in floats.
    let (graph, drawn) = build(name, SIZE, Detail::Shapes)?;
    let scales = scales::recorded(name, &graph, mode)?;
    let constants = |id: ValueId| drawn.get(&id).map(Draw::values);
    Ok(quantize::apply_with(&graph, &scales, mode, &constants)?)
}

/// What a network amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Channels, rows and columns of an input image.
    pub input: [usize; 3],
    /// Layers of the device, as [`lower::layers`] counts them.
    pub layers: usize,
    /// Multiply-adds of an image.
    pub macs: u64,
    /// Weights, without biases.
    pub weights: u64,
}

/// The outline of a network, within milliseconds: shapes come from the topology without weights,
/// the number of layers from the passes over it with a sixteenth of the channels, equal weights
/// and equal scales.
///
/// # Errors
/// [`ZooError::Unknown`] listing the names.
pub fn outline(name: &str) -> Result<Outline, ZooError> {
    let (shapes, _) = build(name, SIZE, Detail::Shapes)?;
    let (thin, _) = build(name, SIZE, Detail::Thin)?;
    let scales = quantize::equal_scales(&thin, 1.0 / 16.0);
    let thin = passes::quantized(&quantize::apply(&thin, &scales, Mode::Multiply)?)?;
    Ok(Outline {
        input: [3, SIZE, SIZE],
        layers: lower::layers(&thin),
        macs: shapes.macs(),
        weights: shapes.weights(),
    })
}

/// A synthetic RGB photo `[3][size][size]`: soft gradients and noise.
pub fn sample_image(size: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ 0x5eed_1ae6e);
    let mut image = Vec::with_capacity(3 * size * size);
    for channel in 0..3 {
        for y in 0..size {
            for x in 0..size {
                let ramp = match channel {
                    0 => 255 * x / size,
                    1 => 255 * y / size,
                    _ => 255 * (x + y) / (2 * size),
                };
                let checks = if (8 * x / size + 8 * y / size).is_multiple_of(2) {
                    48
                } else {
                    0
                };
                let noise = (rng.next_u64() >> 58) as usize;
                image.push((ramp * 3 / 5 + checks + noise).min(255) as u8);
            }
        }
    }
    image
}

/// The float graph for an input of `size`, and its constants.
fn build(
    name: &str,
    size: usize,
    detail: Detail,
) -> Result<(Graph, BTreeMap<ValueId, Draw>), ZooError> {
    let mut b = Builder {
        detail,
        graph: Graph::default(),
        rng: Rng::new(0x7a6f_6f00),
        drawn: BTreeMap::new(),
    };
    b.graph.name = name.to_owned();
    // Measured for speed; there are no labels to be true to.
    let requant = Requant::Fast.name().to_owned();
    b.graph.metadata.insert(Requant::KEY.to_owned(), requant);
    // A residual block rounds once.
    let sums = (passes::Net::SUMS.to_owned(), "wide".to_owned());
    b.graph.metadata.extend([sums]);
    b.graph.metadata.insert(
        "preprocess".to_owned(),
        r#"{"scale":0.00392156862745098,"mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}"#
            .to_owned(),
    );
    let input = b.graph.value("input", vec![1, 3, size, size], None);
    b.graph.inputs.push(input);
    let x = match name {
        "mobilenet-v1" => b.mobilenet(input)?,
        _ => b.resnet(input, stages(name)?)?,
    };
    let channels = b.graph.values[x.0].shape[1];
    let pooled = b.push(
        "avgpool",
        Op::GlobalAveragePool,
        vec![x],
        vec![1, channels, 1, 1],
    );
    let flat = b.push("flatten", Op::Flatten, vec![pooled], vec![1, channels]);
    let logits = b.dense("fc", flat, CLASSES);
    b.graph.outputs.push(logits);
    Ok((b.graph, b.drawn))
}

#[cfg(test)]
mod tests;
