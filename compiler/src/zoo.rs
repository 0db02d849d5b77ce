//! Built-in topologies with seeded weights: ResNets, a ResNeXt and a MobileNet at ImageNet's shapes.
//!
//! The networks have the layers of the published ResNet-18 to -152 (with the stride of a
//! bottleneck in its 3x3 convolution), ResNeXt-50 32x4d and MobileNet v1 (width 1.0), 224x224 input
//! and 1000 classes. Weights are drawn by an
//! integer generator and scaled to keep the variance from layer to layer, activation scales are
//! calibrated on a small synthetic image: the same bytes on every machine. They classify
//! nothing; they are there to measure and to test.

use thiserror::Error;

use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::lower;
use crate::passes::{self, PassError};
use crate::quantize::{self, Mode, QuantizeError};
use crate::semantics::Requant;
use crate::window::{Pads, Window};

/// The networks.
pub const NAMES: [&str; 7] = [
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50",
    "mobilenet-v1",
];

/// Rows and columns of the input.
pub const SIZE: usize = 224;
/// The size at which activation scales are calibrated.
const CALIBRATION_SIZE: usize = 128;
const CLASSES: usize = 1000;
/// Channels of a network for each one of its thin form; a power of two up to the fewest there are.
const THIN: usize = 16;

/// How much of a network is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// All of it.
    Whole,
    /// Constants without their data.
    Shapes,
    /// One of [`THIN`] channels and groups, and all weights of a layer equal.
    Thin,
}

impl Detail {
    /// Channels or groups that are built of so many.
    const fn of(self, channels: usize) -> usize {
        match self {
            Self::Whole | Self::Shapes => channels,
            Self::Thin => channels.div_ceil(THIN),
        }
    }
}

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
    /// A topology that contradicts itself: a fault of the zoo.
    #[error("zoo: internal error: the window of {node} doesn't fit its input")]
    Window {
        /// The node.
        node: String,
    },
    /// The outline can't be planned.
    #[error(transparent)]
    Passes(#[from] PassError),
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

/// The blocks of a ResNet.
#[derive(Clone, Copy)]
enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3 and 1x1, four times as wide outside.
    Bottleneck,
    /// A bottleneck twice as wide inside, whose 3x3 convolution has 32 groups.
    Grouped,
}

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
    let small = build(name, CALIBRATION_SIZE, Detail::Whole)?;
    let image = normalise(&sample_image(CALIBRATION_SIZE, 0), CALIBRATION_SIZE);
    let scales = quantize::calibrate(&small, &[image], mode)?;
    let shapes = build_shapes(small, SIZE)?;
    Ok(quantize::apply(&shapes, &scales, mode)?)
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
    let shapes = build(name, SIZE, Detail::Shapes)?;
    let thin = build(name, SIZE, Detail::Thin)?;
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
fn build(name: &str, size: usize, detail: Detail) -> Result<Graph, ZooError> {
    let mut b = Builder {
        detail,
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
    Ok(b.graph)
}

/// Rows and columns of what a window makes.
fn output(node: &str, window: &Window, [h, w]: [usize; 2]) -> Result<[usize; 2], ZooError> {
    let fault = || ZooError::Window {
        node: node.to_owned(),
    };
    window.output(h, w).ok_or_else(fault)
}

/// The same graph for another input size: only shapes change.
fn build_shapes(mut graph: Graph, size: usize) -> Result<Graph, ZooError> {
    let input = graph.inputs[0];
    graph.values[input.0].shape = vec![1, 3, size, size];
    for index in 0..graph.nodes.len() {
        let node = graph.nodes[index].clone();
        let x = graph.values[node.inputs[0].0].shape.clone();
        let out = &mut graph.values[node.output.0].shape;
        if let (Op::Conv { window, .. } | Op::MaxPool { window }, [_, _, h, w]) = (&node.op, &x[..])
        {
            let [oh, ow] = output(&node.name, window, [*h, *w])?;
            (out[2], out[3]) = (oh, ow);
        } else if matches!(node.op, Op::Relu | Op::Clip { .. } | Op::Add) {
            *out = x;
        }
    }
    Ok(graph)
}

/// A convolution padded to keep the size at stride 1.
#[derive(Clone, Copy)]
struct Conv {
    co: usize,
    /// Rows and columns of the kernel.
    k: usize,
    stride: usize,
    group: usize,
    /// The mean square of the results for inputs of mean square 1.
    gain: f32,
}

impl Conv {
    /// One group.
    const fn new(co: usize, k: usize, stride: usize, gain: f32) -> Self {
        Self {
            co,
            k,
            stride,
            group: 1,
            gain,
        }
    }
}

struct Builder {
    detail: Detail,
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
        let weights = self.seeded(count, |value| value * step);
        let bias = self.seeded(channels, |value| value / 1280.0);
        [
            self.value(&format!("{name}.weight"), shape, weights),
            self.value(&format!("{name}.bias"), vec![channels], bias),
        ]
    }

    /// The next values of the generator, scaled, or what stands for them.
    fn seeded(&mut self, count: usize, scale: impl Fn(f32) -> f32) -> Option<Data> {
        let values = match self.detail {
            Detail::Whole => (0..count)
                .map(|_| scale(f32::from(self.rng.int8())))
                .collect(),
            Detail::Thin => vec![scale(37.0); count],
            Detail::Shapes => return None,
        };
        Some(Data::F32(values))
    }

    fn conv(&mut self, name: &str, x: ValueId, conv: Conv) -> Result<ValueId, ZooError> {
        let [ci, h, w] = [1, 2, 3].map(|i| self.graph.values[x.0].shape[i]);
        let Conv {
            co,
            k,
            stride,
            group,
            gain,
        } = conv;
        let [co, group] = [co, group].map(|count| self.detail.of(count));
        let [weight, bias] = self.weights(name, vec![co, ci / group, k, k], gain);
        let pads = Pads::all(k / 2);
        let window = Window {
            kernel: [k; 2],
            stride: [stride; 2],
            dilation: [1, 1],
            pads,
        };
        let [oh, ow] = output(name, &window, [h, w])?;
        let op = Op::Conv { window, group };
        Ok(self.push(name, op, vec![x, weight, bias], vec![1, co, oh, ow]))
    }

    /// An operator on every value.
    fn pointwise(&mut self, name: &str, op: Op, x: ValueId) -> ValueId {
        let shape = self.graph.values[x.0].shape.clone();
        self.push(name, op, vec![x], shape)
    }

    fn max_pool(&mut self, name: &str, window: Window, x: ValueId) -> Result<ValueId, ZooError> {
        let [c, h, w] = [1, 2, 3].map(|i| self.graph.values[x.0].shape[i]);
        let [oh, ow] = output(name, &window, [h, w])?;
        let op = Op::MaxPool { window };
        Ok(self.push(name, op, vec![x], vec![1, c, oh, ow]))
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

    /// A ResNet without its classifier.
    fn resnet(
        &mut self,
        input: ValueId,
        (blocks, kind): ([usize; 4], Block),
    ) -> Result<ValueId, ZooError> {
        let stem = self.conv("conv1", input, Conv::new(64, 7, 2, 1.0))?;
        let stem = self.pointwise("relu1", Op::Relu, stem);
        let pool = Window {
            kernel: [3, 3],
            stride: [2, 2],
            dilation: [1, 1],
            pads: Pads::all(1),
        };
        let mut x = self.max_pool("maxpool", pool, stem)?;
        for (stage, &count) in blocks.iter().enumerate() {
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = format!("layer{}.{block}", stage + 1);
                x = self.block(&name, x, 64 << stage, stride, kind)?;
            }
        }
        Ok(x)
    }

    /// A residual block. The gains keep the mean square about 1: half of a shortcut and half of
    /// the branch.
    fn block(
        &mut self,
        name: &str,
        x: ValueId,
        width: usize,
        stride: usize,
        kind: Block,
    ) -> Result<ValueId, ZooError> {
        let convs = match kind {
            Block::Basic => vec![
                Conv::new(width, 3, stride, 2.0),
                Conv::new(width, 3, 1, 0.5),
            ],
            Block::Bottleneck => vec![
                Conv::new(width, 1, 1, 2.0),
                Conv::new(width, 3, stride, 2.0),
                Conv::new(4 * width, 1, 1, 0.5),
            ],
            Block::Grouped => vec![
                Conv::new(2 * width, 1, 1, 2.0),
                Conv {
                    group: 32,
                    ..Conv::new(2 * width, 3, stride, 2.0)
                },
                Conv::new(4 * width, 1, 1, 0.5),
            ],
        };
        let (mut y, last) = (x, convs.len());
        let mut out = 0;
        for (i, conv) in (1..).zip(convs) {
            out = conv.co;
            y = self.conv(&format!("{name}.conv{i}"), y, conv)?;
            if i < last {
                y = self.pointwise(&format!("{name}.relu{i}"), Op::Relu, y);
            }
        }
        let shape = self.graph.values[y.0].shape.clone();
        let shortcut = if self.graph.values[x.0].shape == shape {
            x
        } else {
            let conv = Conv::new(out, 1, stride, 1.0);
            self.conv(&format!("{name}.downsample"), x, conv)?
        };
        let sum = self.push(&format!("{name}.add"), Op::Add, vec![y, shortcut], shape);
        Ok(self.pointwise(&format!("{name}.relu"), Op::Relu, sum))
    }

    /// MobileNet v1 of width 1.0 without its classifier: a strided convolution, then 13 pairs of
    /// a depthwise 3x3 and a 1x1 convolution, each with ReLU6. The gain is more than ReLU's 2: what
    /// ReLU6 cuts off balances the rest.
    fn mobilenet(&mut self, input: ValueId) -> Result<ValueId, ZooError> {
        const GAIN: f32 = 2.3;
        let relu6 = Op::Clip { min: 0.0, max: 6.0 };
        let mut x = self.conv("conv1", input, Conv::new(32, 3, 2, GAIN))?;
        x = self.pointwise("relu1", relu6.clone(), x);
        let pairs = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)];
        let pairs = pairs.into_iter().chain([(512, 1); 5]);
        let mut width = 32;
        for (i, (co, stride)) in (1..).zip(pairs.chain([(1024, 2), (1024, 1)])) {
            let depthwise = Conv {
                group: width,
                ..Conv::new(width, 3, stride, GAIN)
            };
            x = self.conv(&format!("block{i}.depthwise"), x, depthwise)?;
            x = self.pointwise(&format!("block{i}.relu1"), relu6.clone(), x);
            x = self.conv(&format!("block{i}.pointwise"), x, Conv::new(co, 1, 1, GAIN))?;
            x = self.pointwise(&format!("block{i}.relu2"), relu6.clone(), x);
            width = co;
        }
        Ok(x)
    }
}
