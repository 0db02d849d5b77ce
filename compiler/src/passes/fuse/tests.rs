//! Random nets with fusions against the same nets without.

use super::*;
use crate::passes::{NetTensor, PASSES, Unfused, plan};
use crate::qgraph::Numbers;
use crate::qgraph::QGraph;
use crate::qgraph::window::{Pads, Window};
use crate::reference;
use proptest::prelude::*;

/// Nets of each kind of rounding.
const NETS: u64 = 3000;

/// Numbers from a seed (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn int8(&mut self) -> i8 {
        match self.below(8) {
            0 => -128,
            1 => 127,
            _ => self.below(256) as u8 as i8,
        }
    }

    /// A factor from 1/4 to 4, often a power of two.
    fn factor(&mut self) -> f64 {
        if self.one_in(3) {
            2f64.powi(self.below(5) as i32 - 2)
        } else {
            0.25 * 16f64.powf(self.below(1000) as f64 / 1000.0)
        }
    }

    fn clamp(&mut self) -> (i16, i16) {
        match self.below(6) {
            0 => {
                let (a, b): (i16, i16) = (self.int8().into(), self.int8().into());
                (a.min(b), a.max(b))
            }
            1 | 2 => (0, 127),
            _ => (-128, 127),
        }
    }
}

/// A net while it grows: a convolution, perhaps its sum with another tensor, clamps and changes of scale
/// behind each.
struct Growth {
    rng: Rng,
    net: Net,
    /// Rows and columns of all tensors.
    plane: [usize; 2],
}

impl Growth {
    fn tensor(&mut self, channels: usize, scale: f64, zero: i32) -> TensorId {
        let id = self.net.tensors.len();
        let [h, w] = self.plane;
        self.net.tensors.push(NetTensor {
            name: format!("t{id}"),
            chw: [channels, h, w],
            scale,
            zero,
        });
        TensorId(id)
    }

    fn node(&mut self, op: NetOp, clamp: (i16, i16), (channels, scale): (usize, f64)) -> TensorId {
        let zero = if self.rng.one_in(3) {
            self.rng.below(200) as i32 - 100
        } else {
            0
        };
        let output = self.tensor(channels, scale, zero);
        self.net.nodes.push(NetNode {
            clamp,
            ..NetNode::new(format!("n{}", output.0), op, output, Numbers::Int8)
        });
        output
    }

    fn conv(&mut self, input: TensorId, channels: usize) -> TensorId {
        let NetTensor { chw, scale, .. } = self.net.tensors[input.0];
        // Narrow weights prove that some sums stay within bounds.
        let wide = [2, 20, 255][self.rng.below(3) as usize];
        let weight = |rng: &mut Rng| (rng.below(wide) as i64 - wide as i64 / 2) as i8;
        let weights: Vec<i8> = (0..channels * chw[0])
            .map(|_| weight(&mut self.rng))
            .collect();
        let one = 0.002 * self.rng.factor();
        let uniform = self.rng.one_in(2);
        let mut scales = (0..channels).map(|_| {
            if uniform {
                one
            } else {
                one * self.rng.factor()
            }
        });
        let weight_scale: Vec<f64> = scales.by_ref().collect();
        let bias = (0..channels).map(|_| (self.rng.below(9) as f64 - 4.0) * scale);
        let op = NetOp::Conv(NetConv {
            input,
            window: Window::whole([1, 1]),
            weights: weights.into(),
            group: 1,
            bias: bias.collect(),
            weight_scale,
            residual: None,
            dense: false,
        });
        let (clamp, factor) = (self.rng.clamp(), self.rng.factor());
        self.node(op, clamp, (channels, scale * factor))
    }

    /// Clamps and changes of scale, and perhaps another reader.
    fn follow(&mut self, mut id: TensorId) -> TensorId {
        for _ in 0..self.rng.below(3) {
            let NetTensor { chw, scale, .. } = self.net.tensors[id.0];
            let factor = if self.rng.one_in(2) {
                1.0
            } else {
                self.rng.factor()
            };
            let clamp = self.rng.clamp();
            id = self.node(
                NetOp::Eltwise { input: id },
                clamp,
                (chw[0], scale * factor),
            );
            if self.rng.one_in(8) {
                self.net.outputs.push(id);
            }
        }
        id
    }

    /// The sum of the last tensor with another one.
    fn sum(&mut self, x: TensorId, last: TensorId) -> TensorId {
        let NetTensor { chw, scale, .. } = self.net.tensors[last.0];
        let shortcut = match self.rng.below(4) {
            0 => self.conv(x, chw[0]),
            1 => last,
            // Its values meet all of a channel's.
            2 => {
                self.plane = [1, 1];
                let scale = scale * self.rng.factor();
                let one = self.tensor(chw[0], scale, 0);
                self.net.inputs.push(one);
                self.plane = [2, 2];
                one
            }
            _ => x,
        };
        let (a, b) = if self.rng.one_in(2) {
            (last, shortcut)
        } else {
            (shortcut, last)
        };
        let (scale, clamp) = (scale * self.rng.factor(), self.rng.clamp());
        let join = Join::Sum;
        self.node(NetOp::Pair { join, a, b }, clamp, (chw[0], scale))
    }
}

fn random_net(seed: u64, requant: Requant) -> Net {
    let mut growth = Growth {
        rng: Rng(seed),
        net: Net {
            requant,
            ..Net::default()
        },
        plane: [2, 2],
    };
    let channels = 1 + growth.rng.below(3) as usize;
    let scale = 0.02 * growth.rng.factor();
    let zero = growth.rng.below(3) as i32 * 10;
    let x = growth.tensor(channels, scale, zero);
    growth.net.inputs.push(x);
    let conv = growth.conv(x, channels);
    if growth.rng.one_in(8) {
        growth.net.outputs.push(conv);
    }
    let mut last = growth.follow(conv);
    for _ in 0..growth.rng.below(3) {
        last = growth.sum(x, last);
        last = growth.follow(last);
    }
    if !growth.net.outputs.contains(&last) {
        growth.net.outputs.push(last);
    }
    growth.net
}

/// The net with fusions, and how many of its sums are part of a convolution.
fn fused(net: &Net) -> (QGraph, usize) {
    let mut net = net.clone();
    for (_, pass) in PASSES {
        pass(&mut net);
        net.verify().unwrap();
    }
    let joined = |node: &&NetNode| {
        matches!(
            node.op,
            NetOp::Conv(NetConv {
                residual: Some(_),
                ..
            })
        )
    };
    let sums = net.nodes.iter().filter(joined).count();
    (plan::plan(&net).unwrap(), sums)
}

/// Compares random nets: how many were compared, how many of them had nodes merged and sums fused, and how many tensors
/// were farther than `most`, by one step.
fn compared(requant: Requant, most: u16) -> [usize; 4] {
    let mut counts = [0; 4];
    for seed in 0..NETS {
        let net = random_net(seed, requant);
        // Ratios beyond fixed point.
        let Ok(graph) = plan::plan(&net) else {
            continue;
        };
        let ((fused, sums), unfused) = (fused(&net), Unfused { graph, most });
        let merged = net.nodes.len() - fused.nodes.len() > sums;
        for (count, is) in counts.iter_mut().zip([true, merged, sums > 0]) {
            *count += usize::from(is);
        }
        let mut rng = Rng(!seed);
        let size = |id: &TensorId| net.tensors[id.0].chw.iter().product::<usize>();
        let values: usize = net.inputs.iter().map(size).sum();
        for _ in 0..4 {
            let input: Vec<i16> = (0..values).map(|_| rng.int8().into()).collect();
            let found = reference::run(&fused, &input).unwrap();
            for off in reference::compare(&fused, &found, &unfused).unwrap() {
                let steps = off.found.abs_diff(off.expected);
                assert!(
                    steps <= 1,
                    "seed {seed}, {requant:?}: {off:?}\n{net}\n{fused}"
                );
                counts[3] += 1;
            }
        }
    }
    counts
}

#[test]
fn precise_fusions_change_values_beside_ties_alone() {
    let [all, merged, fused, off] = compared(Requant::Precise, 0);
    assert!(all > 2000 && merged > 300, "{all} {merged}");
    assert_eq!(fused, 0);
    // Of thousands of tensors.
    assert!(off <= 10, "{off}");
}

#[test]
fn fast_fusions_change_values_by_a_step_at_most() {
    let [all, merged, fused, _] = compared(Requant::Fast, 1);
    assert!(all > 2000 && merged > 300, "{all} {merged}");
    assert!(fused > 100, "{fused}");
}

/// What a case has beside a convolution and the rows and columns that are taken of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Besides {
    Nothing,
    /// Another node reads the others, too.
    Reader,
    /// They are an output.
    Output,
    Residual,
    /// A channel is left out.
    Channel,
    /// The output has other steps, so that it is rounded twice.
    Steps,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Outputs have the same bits, and the convolution takes the steps exactly where pads can say so and nothing
    /// else knows its other values.
    #[test]
    fn a_convolution_computes_what_is_taken_of_it(
        kernel in [1usize..4, 1usize..4], stride in [1usize..3, 1usize..3], dilation in [1usize..3, 1usize..3],
        pads in prop::array::uniform4(0usize..4), size in [3usize..10, 3usize..10], skip in [0usize..3, 0usize..3],
        step in [1usize..4, 1usize..4], less in [0usize..2, 0usize..2], clamp in prop::sample::select(vec![(-128, 127), (-3, 90)]),
        besides in prop::sample::select(vec![
            Besides::Nothing, Besides::Nothing, Besides::Reader, Besides::Output, Besides::Residual, Besides::Channel, Besides::Steps,
        ]), apart in any::<bool>(), seed in any::<u64>(),
    ) {
        let window = Window { kernel, stride, dilation, pads: pads.into() };
        let Some(all) = window.output(size[0], size[1]) else { return Ok(()); };
        let taken = [0, 1].map(|axis| all[axis].saturating_sub(skip[axis]).div_ceil(step[axis]).saturating_sub(less[axis]));
        prop_assume!(!taken.contains(&0) && (skip, step) != ([0, 0], [1, 1]));
        let mut growth = Growth { rng: Rng(seed), net: Net::default(), plane: size };
        let x = growth.tensor(2, 0.1, 3);
        growth.plane = all;
        let (made, other, more) = (growth.tensor(3, 0.2, -5), growth.tensor(3, 0.2, -5), growth.tensor(3, 0.3, 0));
        growth.plane = [taken[0], all[1]];
        let between = growth.tensor(3, 0.2, -5);
        growth.plane = taken;
        let channels = if besides == Besides::Channel { 2 } else { 3 };
        let y = growth.tensor(channels, if besides == Besides::Steps { 0.31 } else { 0.2 }, -5);
        let weights: Vec<i8> = (0..6 * window.area()).map(|_| growth.rng.int8()).collect();
        let conv = NetConv {
            residual: (besides == Besides::Residual).then_some(other),
            ..NetConv::plain(x, window, weights.into(), (vec![0.01; 3], vec![0.5, -1.0, 0.0]))
        };
        let spread = Spread { skip, step, ..Spread::NONE };
        let mut net = growth.net;
        net.nodes.push(NetNode { clamp, ..NetNode::new("conv", NetOp::Conv(conv), made, Numbers::Int8) });
        let rows = Spread { skip: [skip[0], 0], step: [step[0], 1], ..Spread::NONE };
        let columns = Spread { skip: [0, skip[1]], step: [1, step[1]], ..Spread::NONE };
        // As two Slices.
        let (from, spread) = if apart && rows != Spread::NONE && columns != Spread::NONE {
            net.nodes.push(NetNode::new("rows", NetOp::channels_of(made, 0..3, rows), between, Numbers::Int8));
            (between, columns)
        } else {
            (made, spread)
        };
        let op = NetOp::channels_of(from, 0..channels, spread);
        net.nodes.push(NetNode { clamp: (-60, 127), ..NetNode::new("taken", op, y, Numbers::Int8) });
        (net.inputs, net.outputs) = (vec![x, other], vec![y]);
        match besides {
            Besides::Reader => {
                net.nodes.push(NetNode::new("reader", NetOp::Eltwise { input: made }, more, Numbers::Int8));
                net.outputs.push(more);
            }
            Besides::Output => net.outputs.push(made),
            _ => {}
        }
        let before = net.clone();
        join_channels(&mut net);
        let strided = |net: &Net| matches!(&net.nodes[0].op, NetOp::Conv(conv) if conv.window != window);
        let joined = strided(&net);
        merge_clamps(&mut net);
        net.verify().unwrap();
        let run = |net: &Net| {
            let graph = plan::plan(net).unwrap();
            let len: usize = graph.inputs.iter().map(|id| graph.tensors[id.0].chw.iter().product::<usize>()).sum();
            let image: Vec<i16> = (0..len).map(|i| (((i as u64 * 37) ^ seed) as u8 as i8).into()).collect();
            let values = reference::run(&graph, &image).unwrap();
            graph.outputs.iter().map(|id| values[id.0].clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(&net), run(&before));
        // All pads behind, of which one may do.
        let fits = (0..40).flat_map(|bottom| (0..40).map(move |right| [bottom, right])).any(|[bottom, right]| {
            let before = [0, 1].map(|axis| window.pads.before()[axis].checked_sub(skip[axis] * stride[axis]));
            let [Some(top), Some(left)] = before else { return false };
            let stride = [0, 1].map(|axis| stride[axis] * step[axis]);
            let window = Window { stride, pads: Pads { top, left, bottom, right }, ..window };
            window.output(size[0], size[1]) == Some(taken)
        });
        prop_assert_eq!(joined, fits && matches!(besides, Besides::Nothing | Besides::Steps));
        prop_assert_eq!(net.nodes.len() == 1, joined && besides == Besides::Nothing);
    }
}
