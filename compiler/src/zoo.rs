//! Built-in topologies with seeded weights: ResNets at ImageNet's shapes.
//!
//! The networks have the layers of the published ResNet-18 to -152 (with the stride of a
//! bottleneck in its 3x3 convolution), 224x224 input and 1000 classes. Weights are drawn by an
//! integer generator and scaled to keep the variance from layer to layer, activation scales are
//! calibrated on a small synthetic image: the same bytes on every machine. They classify
//! nothing; they are there to measure and to test.

use thiserror::Error;

use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::qgraph::Window;
use crate::quantize::{self, Mode, QuantizeError};
use crate::semantics::Requant;

/// The networks.
pub const NAMES: [&str; 5] = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"];

/// Rows and columns of the input.
pub const SIZE: usize = 224;
/// The size at which activation scales are calibrated.
const CALIBRATION_SIZE: usize = 128;
const CLASSES: usize = 1000;

/// A network that isn't there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ZooError {
    /// Unknown name.
    #[error("no network '{name}' in the zoo (there are {})", NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Calibration failed.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
}

/// SplitMix64, a public-domain generator by Sebastiano Vigna: integers only, the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with its own sequence for each seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An int8, roughly normal with a standard deviation of 37, within -127..=127: the mean of
    /// four uniform bytes.
    pub const fn int8(&mut self) -> i8 {
        let bits = self.next_u64();
        let sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24 & 255);
        (sum as i64 / 4 - 127) as i8
    }
}

/// Blocks in each stage, and whether they are bottlenecks.
fn stages(name: &str) -> Result<([usize; 4], bool), ZooError> {
    Ok(match name {
        "resnet18" => ([2, 2, 2, 2], false),
        "resnet34" => ([3, 4, 6, 3], false),
        "resnet50" => ([3, 4, 6, 3], true),
        "resnet101" => ([3, 4, 23, 3], true),
        "resnet152" => ([3, 8, 36, 3], true),
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
    let small = build(name, CALIBRATION_SIZE)?;
    let image = normalise(&sample_image(CALIBRATION_SIZE, 0), CALIBRATION_SIZE);
    let scales = quantize::calibrate(&small, &[image], mode)?;
    let shapes = build_shapes(small, SIZE);
    Ok(quantize::apply(&shapes, &scales, mode)?)
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

/// ImageNet's usual mean and standard deviation.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

fn normalise(image: &[u8], size: usize) -> Vec<f32> {
    let value = |(i, &x): (usize, &u8)| {
        let c = i / (size * size);
        (f32::from(x) / 255.0 - MEAN[c]) / STD[c]
    };
    image.iter().enumerate().map(value).collect()
}

/// The float graph for an input of `size`.
fn build(name: &str, size: usize) -> Result<Graph, ZooError> {
    let (blocks, bottleneck) = stages(name)?;
    let mut b = Builder {
        graph: Graph::default(),
        rng: Rng::new(0x7a6f_6f00),
    };
    b.graph.name = name.to_owned();
    // Measured for speed; there are no labels to be true to.
    let requant = Requant::Fast.name().to_owned();
    b.graph.metadata.insert(Requant::KEY.to_owned(), requant);
    b.graph.metadata.insert(
        "preprocess".to_owned(),
        r#"{"scale":0.00392156862745098,"mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}"#
            .to_owned(),
    );
    let input = b.value("input", vec![1, 3, size, size], None);
    b.graph.inputs.push(input);
    let stem = b.conv("conv1", input, 64, 7, 2, 1.0);
    let stem = b.unary("relu1", Op::Relu, stem);
    let pool = Window {
        kernel: [3, 3],
        stride: [2, 2],
        dilation: [1, 1],
        pads: [1; 4],
    };
    let mut x = b.unary("maxpool", Op::MaxPool { window: pool }, stem);
    for (stage, &count) in blocks.iter().enumerate() {
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let name = format!("layer{}.{block}", stage + 1);
            x = b.block(&name, x, 64 << stage, stride, bottleneck);
        }
    }
    let pooled = b.unary("avgpool", Op::GlobalAveragePool, x);
    let flat = b.unary("flatten", Op::Flatten, pooled);
    let logits = b.dense("fc", flat, CLASSES);
    b.graph.outputs.push(logits);
    Ok(b.graph)
}

/// The same graph for another input size: only shapes change.
fn build_shapes(mut graph: Graph, size: usize) -> Graph {
    let input = graph.inputs[0];
    graph.values[input.0].shape = vec![1, 3, size, size];
    for index in 0..graph.nodes.len() {
        let node = graph.nodes[index].clone();
        let x = graph.values[node.inputs[0].0].shape.clone();
        let out = &mut graph.values[node.output.0].shape;
        if let (Op::Conv { window, .. } | Op::MaxPool { window }, [_, _, h, w]) = (&node.op, &x[..])
        {
            if let Some([oh, ow]) = window.output(*h, *w) {
                (out[2], out[3]) = (oh, ow);
            }
        } else if matches!(node.op, Op::Relu | Op::Add) {
            *out = x;
        }
    }
    graph
}

struct Builder {
    graph: Graph,
    rng: Rng,
}

impl Builder {
    fn value(&mut self, name: &str, shape: Vec<usize>, data: Option<Data>) -> ValueId {
        self.graph.values.push(Value {
            name: name.to_owned(),
            shape,
            data,
        });
        ValueId(self.graph.values.len() - 1)
    }

    fn push(&mut self, name: &str, op: Op, inputs: Vec<ValueId>, shape: Vec<usize>) -> ValueId {
        let output = self.value(&format!("{name}.out"), shape, None);
        self.graph.nodes.push(Node {
            name: name.to_owned(),
            op,
            inputs,
            output,
        });
        output
    }

    /// Weights whose products with inputs of mean square 1 have mean square `gain`, and
    /// small biases.
    fn weights(&mut self, name: &str, shape: Vec<usize>, gain: f32) -> [ValueId; 2] {
        let (channels, count) = (shape[0], shape.iter().product::<usize>());
        let fan_in = (count / channels) as f32;
        // `Rng::int8` has a standard deviation of 37.
        let step = (gain / fan_in).sqrt() / 37.0;
        let weights = (0..count)
            .map(|_| f32::from(self.rng.int8()) * step)
            .collect();
        let bias = (0..channels)
            .map(|_| f32::from(self.rng.int8()) / 1280.0)
            .collect();
        [
            self.value(&format!("{name}.weight"), shape, Some(Data::F32(weights))),
            self.value(
                &format!("{name}.bias"),
                vec![channels],
                Some(Data::F32(bias)),
            ),
        ]
    }

    fn conv(
        &mut self,
        name: &str,
        x: ValueId,
        co: usize,
        k: usize,
        stride: usize,
        gain: f32,
    ) -> ValueId {
        let [ci, h, w] = [1, 2, 3].map(|i| self.graph.values[x.0].shape[i]);
        let [weight, bias] = self.weights(name, vec![co, ci, k, k], gain);
        let pads = [k / 2; 4];
        let window = Window {
            kernel: [k; 2],
            stride: [stride; 2],
            dilation: [1, 1],
            pads,
        };
        let [oh, ow] = window.output(h, w).unwrap_or([1, 1]);
        let op = Op::Conv { window, group: 1 };
        self.push(name, op, vec![x, weight, bias], vec![1, co, oh, ow])
    }

    fn unary(&mut self, name: &str, op: Op, x: ValueId) -> ValueId {
        let mut shape = self.graph.values[x.0].shape.clone();
        match &op {
            Op::MaxPool { window } => {
                let [oh, ow] = window.output(shape[2], shape[3]).unwrap_or([1, 1]);
                (shape[2], shape[3]) = (oh, ow);
            }
            Op::GlobalAveragePool => (shape[2], shape[3]) = (1, 1),
            Op::Flatten => shape.truncate(2),
            _ => {}
        }
        self.push(name, op, vec![x], shape)
    }

    fn dense(&mut self, name: &str, x: ValueId, classes: usize) -> ValueId {
        let features = self.graph.values[x.0].shape[1];
        let [weight, bias] = self.weights(name, vec![classes, features], 1.0);
        self.push(
            name,
            Op::Gemm { trans_b: true },
            vec![x, weight, bias],
            vec![1, classes],
        )
    }

    /// A residual block. The gains keep the mean square about 1: half of a shortcut and half of
    /// the branch.
    fn block(
        &mut self,
        name: &str,
        x: ValueId,
        width: usize,
        stride: usize,
        bottleneck: bool,
    ) -> ValueId {
        let out = if bottleneck { 4 * width } else { width };
        let kernels: &[(usize, usize, usize)] = if bottleneck {
            &[(1, width, 1), (3, width, stride), (1, out, 1)]
        } else {
            &[(3, width, stride), (3, width, 1)]
        };
        let mut y = x;
        for (i, &(k, co, stride)) in kernels.iter().enumerate() {
            let last = i + 1 == kernels.len();
            let conv = format!("{name}.conv{}", i + 1);
            y = self.conv(&conv, y, co, k, stride, if last { 0.5 } else { 2.0 });
            if !last {
                y = self.unary(&format!("{name}.relu{}", i + 1), Op::Relu, y);
            }
        }
        let shape = self.graph.values[y.0].shape.clone();
        let shortcut = if self.graph.values[x.0].shape == shape {
            x
        } else {
            self.conv(&format!("{name}.downsample"), x, out, 1, stride, 1.0)
        };
        let sum = self.push(&format!("{name}.add"), Op::Add, vec![y, shortcut], shape);
        self.unary(&format!("{name}.relu"), Op::Relu, sum)
    }
}
