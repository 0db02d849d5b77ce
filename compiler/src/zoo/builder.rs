//! Topologies, layer by layer.

use std::collections::BTreeMap;

use super::draw::{Draw, Scale};
use super::error::ZooError;
use super::rng::Rng;
use crate::graph::{Data, Graph, Op, ValueId};
use crate::qgraph::window::{Pads, Window};

/// Channels of a network for each one of its thin form; a power of two up to the fewest there are.
const THIN: usize = 16;

/// How much of a network is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// All of it: tests calibrate such networks.
    #[cfg(test)]
    Whole,
    /// Constants without their data.
    Shapes,
    /// One of [`THIN`] channels and groups, and all weights of a layer equal.
    Thin,
}

impl Detail {
    /// Channels or groups that are built of so many.
    pub(super) const fn of(self, channels: usize) -> usize {
        match self {
            #[cfg(test)]
            Self::Whole => channels,
            Self::Shapes => channels,
            Self::Thin => channels.div_ceil(THIN),
        }
    }
}

/// The blocks of a ResNet.
#[derive(Clone, Copy)]
pub(super) enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3 and 1x1, four times as wide outside.
    Bottleneck,
    /// A bottleneck twice as wide inside, whose 3x3 convolution has 32 groups.
    Grouped,
}

/// Rows and columns of what a window makes.
pub(super) fn output(
    node: &str,
    window: &Window,
    [h, w]: [usize; 2],
) -> Result<[usize; 2], ZooError> {
    let fault = || ZooError::Window {
        node: node.to_owned(),
    };
    window.output(h, w).ok_or_else(fault)
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

pub(super) struct Builder {
    pub detail: Detail,
    pub graph: Graph,
    pub rng: Rng,
    /// The constants.
    pub drawn: BTreeMap<ValueId, Draw>,
}

impl Builder {
    pub(super) fn push(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<ValueId>,
        shape: Vec<usize>,
    ) -> ValueId {
        let output = self.graph.value(format!("{name}.out"), shape, None);
        self.graph.push(name, op, inputs, output);
        output
    }

    /// Weights whose products with inputs of mean square 1 have mean square `gain`, and
    /// small biases.
    pub(super) fn weights(&mut self, name: &str, shape: Vec<usize>, gain: f32) -> [ValueId; 2] {
        let (channels, count) = (shape[0], shape.iter().product::<usize>());
        let fan_in = (count / channels) as f32;
        // `Rng::int8` has a standard deviation of 37.
        let step = (gain / fan_in).sqrt() / 37.0;
        [
            self.seeded(&format!("{name}.weight"), shape, Scale::Times(step)),
            self.seeded(&format!("{name}.bias"), vec![channels], Scale::Over(1280.0)),
        ]
    }

    /// A constant of the next values of the generator, or of what stands for them.
    fn seeded(&mut self, name: &str, shape: Vec<usize>, scale: Scale) -> ValueId {
        let count = shape.iter().product();
        let draw = Draw {
            start: self.rng.clone(),
            count,
            scale,
        };
        self.rng.skip(count as u64);
        let data = match self.detail {
            #[cfg(test)]
            Detail::Whole => Some(draw.values()),
            Detail::Thin => Some(vec![scale.of(37.0); count]),
            Detail::Shapes => None,
        };
        let id = self.graph.value(name, shape, data.map(Data::F32));
        self.drawn.insert(id, draw);
        id
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
    pub(super) fn pointwise(&mut self, name: &str, op: Op, x: ValueId) -> ValueId {
        let shape = self.graph.values[x.0].shape.clone();
        self.push(name, op, vec![x], shape)
    }

    pub(super) fn max_pool(
        &mut self,
        name: &str,
        window: Window,
        x: ValueId,
    ) -> Result<ValueId, ZooError> {
        let [c, h, w] = [1, 2, 3].map(|i| self.graph.values[x.0].shape[i]);
        let [oh, ow] = output(name, &window, [h, w])?;
        let op = Op::MaxPool { window };
        Ok(self.push(name, op, vec![x], vec![1, c, oh, ow]))
    }

    pub(super) fn dense(&mut self, name: &str, x: ValueId, classes: usize) -> ValueId {
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
    pub(super) fn resnet(
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
    pub(super) fn block(
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
    pub(super) fn mobilenet(&mut self, input: ValueId) -> Result<ValueId, ZooError> {
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
