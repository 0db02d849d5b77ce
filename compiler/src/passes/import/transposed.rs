//! Operators that enlarge rows and columns, or make channels of them.
//!
//! A transposed convolution of stride s gives s * s phases of positions. Each is a convolution with
//! stride 1 of the same input: of taps k those with k * dilation = phase modulo s. So it is one
//! convolution whose channels are the phases of all channels, and then channels become neighbouring
//! positions; what pads cut off is left out there.

use super::super::error::PassError;
use super::super::net::{NetConv, NetOp};
use super::constant::Constant;
use super::layout::Order;
use super::values::{HOST, Moved, Reading, Real, Val, error, real};
use crate::graph::{DepthMode, Node};
use crate::qgraph::window::{Pads, Window};
use crate::qgraph::{Spread, Weights};
use crate::semantics;

/// The most phases that channels become.
pub(crate) const MAX_PHASES: usize = 1 << 10;
/// The most channels of all phases, and weights, that an operator is rewritten to.
pub(crate) const MAX_CHANNELS: usize = 1 << 22;
const MAX_WEIGHTS: usize = 1 << 27;

impl<'g> Reading<'g> {
    fn within(&self, node: &Node, sizes: &[usize], most: usize) -> Result<usize, PassError> {
        let size = sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s));
        size.filter(|&n| n <= most)
            .ok_or_else(|| error(node, format!("its sizes {sizes:?} are more than {most}")))
    }

    /// Channels that become positions: `from` says which an output channel is at a phase.
    fn spread(
        &self,
        node: &Node,
        channels: usize,
        up: [usize; 2],
        from: impl Fn(usize, usize) -> usize,
    ) -> Result<Val<'g>, PassError> {
        let input = self.channels(node, 0)?;
        let [_, h, w] = self.net.tensors[input.0].chw;
        let phases = self.within(node, &up, MAX_PHASES)?;
        self.within(node, &[phases, channels], MAX_CHANNELS)?;
        let all = (0..phases).flat_map(|phase| (0..channels).map(move |c| (phase, c)));
        let all = all.map(|(phase, c)| from(phase, c));
        let op = NetOp::channels_of(input, all, Spread { up, ..Spread::NONE });
        Ok(real(node, op, [channels, h * up[0], w * up[1]]))
    }

    pub(crate) fn resize(&self, node: &Node, factors: [usize; 2]) -> Result<Val<'g>, PassError> {
        if factors.iter().product::<usize>() > MAX_PHASES {
            return Err(error(node, HOST));
        }
        let [channels, ..] = self.net.tensors[self.channels(node, 0)?.0].chw;
        self.spread(node, channels, factors, |_, c| c)
    }

    pub(crate) fn depth_to_space(
        &self,
        node: &Node,
        block: usize,
        mode: DepthMode,
    ) -> Result<Val<'g>, PassError> {
        let [channels, ..] = self.net.tensors[self.channels(node, 0)?.0].chw;
        let area = self.within(node, &[block; 2], MAX_PHASES)?;
        let count = channels / area.max(1);
        if area == 0 || count * area != channels {
            return Err(error(
                node,
                format!("{channels} channels for blocks of {block}x{block}"),
            ));
        }
        let from = |phase: usize, c: usize| mode.channel([c, count], [phase, area]);
        self.spread(node, count, [block; 2], from)
    }

    /// Rows and columns become channels: a convolution with one weight for each of them.
    pub(crate) fn space_to_depth(&self, node: &Node, block: usize) -> Result<Val<'g>, PassError> {
        /// As large as precise requantisation wants it, and a power of two.
        const GAIN: i8 = 64;
        let input = self.channels(node, 0)?;
        let [c, h, w] = self.net.tensors[input.0].chw;
        let area = self.within(node, &[block; 2], MAX_PHASES)?;
        if area == 0 || h % block != 0 || w % block != 0 {
            return Err(error(node, format!("{h}x{w} in blocks of {block}x{block}")));
        }
        let count = self.within(node, &[area, c, c, area], MAX_WEIGHTS)?;
        let mut weights = vec![0; count];
        for o in 0..area * c {
            let (at, channel) = (o / c, o % c);
            weights[(o * c + channel) * area + at] = GAIN;
        }
        let window = Window {
            stride: [block; 2],
            ..Window::whole([block; 2])
        };
        let parameters = (vec![1.0 / f64::from(GAIN); area * c], vec![0.0; area * c]);
        let conv = NetConv::plain(input, window, weights.into(), parameters);
        let chw = [area * c, h / block, w / block];
        Ok(real(node, NetOp::Conv(conv), chw))
    }

    pub(crate) fn conv_transpose(
        &self,
        node: &Node,
        window: Window,
        group: usize,
    ) -> Result<Val<'g>, PassError> {
        let input = self.channels(node, 0)?;
        let [ci, h, w] = self.net.tensors[input.0].chw;
        let (weights, scale) = self.weights(node, 1)?;
        let &[_, per_group, ..] = &weights.shape[..] else {
            return Err(error(node, "its weights have too few dimensions"));
        };
        let shape = &self.graph.values[node.output.0].shape;
        let &[_, channels, oh, ow] = &shape[..] else {
            return Err(error(node, format!("its output is {shape:?}")));
        };
        let phases = Phases::of(window, per_group);
        let count = self.within(node, &window.stride, MAX_PHASES)?;
        let wide = self.within(node, &[count, channels], MAX_CHANNELS)?;
        let inputs = ci / group.max(1);
        let [kh, kw] = phases.kernel;
        self.within(node, &[wide, inputs, kh, kw], MAX_WEIGHTS)?;
        if weights.len() != ci * per_group * window.area() || per_group * group != channels {
            return Err(error(node, "its weights don't fit its channels"));
        }
        let bias = self.bias(node, channels)?;
        let pairs = (0..count).flat_map(|phase| (0..channels).map(move |c| (phase, c)));
        let mut of = vec![0; wide];
        pairs
            .clone()
            .for_each(|(phase, c)| of[phases.channel(phase, c)] = c);
        // As many positions as the output has of each phase.
        let skip = window.pads.before();
        let need = |axis: usize, out: usize| (out - 1 + skip[axis]) / window.stride[axis] + 1;
        let [rows, cols] = [need(0, oh).max(h), need(1, ow).max(w)];
        let all = Window {
            pads: Pads::from([kh - 1, kw - 1, rows - h, cols - w]),
            ..Window::whole(phases.kernel)
        };
        let parameters = (
            of.iter().map(|&c| scale[c % per_group]).collect(),
            of.iter().map(|&c| bias[c]).collect(),
        );
        let conv = NetConv {
            group,
            ..NetConv::plain(
                input,
                all,
                phases.weights(&weights, [inputs, channels]),
                parameters,
            )
        };
        let moved = Moved {
            channels: of,
            map: pairs.map(|(phase, c)| phases.channel(phase, c)).collect(),
            spread: Spread {
                up: window.stride,
                skip,
                ..Spread::NONE
            },
            chw: [channels, oh, ow],
        };
        Ok(Val::from(Real {
            moved: Some(moved),
            ..Real::new(
                &node.name,
                NetOp::Conv(conv),
                [wide, rows, cols],
                Order::First,
            )
        }))
    }
}

/// A transposed convolution as one of stride 1, whose channels are the phases of all channels.
struct Phases {
    /// That of the transposed convolution.
    window: Window,
    /// Rows and columns of the taps of a phase.
    kernel: [usize; 2],
    /// Output channels of a group.
    per_group: usize,
}

impl Phases {
    fn of(window: Window, per_group: usize) -> Self {
        let taps = |axis: usize| (window.span(axis) - 1) / window.stride[axis] + 1;
        Self {
            window,
            kernel: [taps(0), taps(1)],
            per_group,
        }
    }

    /// The channel that is a phase of an output channel: those of a group stand together, and within them
    /// those of one phase.
    fn channel(&self, phase: usize, c: usize) -> usize {
        let phases = self.window.stride[0] * self.window.stride[1];
        (c / self.per_group * phases + phase) * self.per_group + c % self.per_group
    }

    /// The phase and the tap that a tap of the transposed convolution is.
    fn place(&self, k: usize) -> (usize, usize) {
        let Self { window, kernel, .. } = self;
        let index = [k / window.kernel[1], k % window.kernel[1]];
        let at = [0, 1].map(|axis| index[axis] * window.dilation[axis]);
        let phase = [0, 1].map(|axis| at[axis] % window.stride[axis]);
        // The transposed convolution spreads its input, where the phases' gather theirs: taps are turned round.
        let tap = [0, 1].map(|axis| kernel[axis] - 1 - at[axis] / window.stride[axis]);
        (
            phase[0] * window.stride[1] + phase[1],
            tap[0] * kernel[1] + tap[1],
        )
    }

    /// The weights of all phases, 0 where a phase has no tap, of so many inputs of a group and output channels.
    fn weights(&self, from: &Constant<'_>, [inputs, channels]: [usize; 2]) -> Weights {
        let (taps, area) = (self.kernel[0] * self.kernel[1], self.window.area());
        let phases = self.window.stride[0] * self.window.stride[1];
        let mut whole = vec![0; phases * channels * inputs * taps];
        for (c, i) in (0..channels).flat_map(|c| (0..inputs).map(move |i| (c, i))) {
            let row = (c / self.per_group * inputs + i) * self.per_group + c % self.per_group;
            for k in 0..area {
                let (phase, tap) = self.place(k);
                let at = (self.channel(phase, c) * inputs + i) * taps + tap;
                whole[at] = from.at(row * area + k);
            }
        }
        semantics::weight_parts(whole.len(), |i| whole[i]).into()
    }
}
