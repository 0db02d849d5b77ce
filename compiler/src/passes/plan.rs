//! The last step: real scales become lane operations.

mod average;

use std::sync::Arc;

use super::ends;
use super::error::PassError;
use super::net::{Net, NetConv, NetNode, NetOp, NetTensor};
use super::segments;
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{ChannelOf, QConv, QGraph, QNode, QOp, QPair, QTensor, Spread, TensorId};
use crate::semantics::{
    self, Interval, Operand, Output, PairPlan, Requantize, SemanticsError, plan_scale,
};

/// What channels of several ratios are multiplied by first: a power of two, so that the ratio
/// stays one if it was, and large, so that half a step of the output is many of the product.
const CHANNEL_GAIN: i8 = 64;

/// Plans every node; tensors that nothing uses are dropped.
pub(super) fn plan(net: &Net) -> Result<QGraph, PassError> {
    let mut plan = Plan {
        net,
        graph: QGraph::default(),
        ids: vec![None; net.tensors.len()],
    };
    plan.graph.metadata.clone_from(&net.metadata);
    plan.graph.numbers = net.numbers;
    for id in &net.inputs {
        let new = plan.tensor(*id, net.numbers.bounds());
        plan.graph.inputs.push(new);
    }
    let mut faults = Vec::new();
    for unit in segments::units(net) {
        let node = &net.nodes[unit[0]];
        if let NetOp::Host { .. } = node.op {
            plan.host(&unit)?;
            continue;
        }
        match plan.op(node) {
            Ok(op) => plan.push(node, op),
            // The nodes behind it are planned, so that all that are at fault are told.
            Err(error) => {
                plan.tensor(node.output, node.clamp);
                faults.push(error);
            }
        }
    }
    if let Some(error) = PassError::of(faults) {
        return Err(error);
    }
    let outputs = net.outputs.iter().map(|id| plan.id(*id));
    plan.graph.outputs = outputs.collect::<Result<_, _>>()?;
    plan.graph.ends = ends::ends(net)?.map(Arc::new);
    Ok(plan.graph)
}

/// What can't be.
fn internal(node: &NetNode, reason: &str) -> PassError {
    PassError::Internal {
        node: node.name.clone(),
        reason: reason.to_owned(),
    }
}

/// An error of a node's arithmetic.
fn of(node: &NetNode) -> impl Fn(SemanticsError) -> PassError {
    |source| PassError::Semantics {
        node: node.name.clone(),
        source,
    }
}

struct Plan<'a> {
    net: &'a Net,
    graph: QGraph,
    ids: Vec<Option<TensorId>>,
}

impl Plan<'_> {
    fn push(&mut self, node: &NetNode, op: QOp) {
        let output = self.tensor(node.output, node.clamp);
        self.graph.nodes.push(QNode {
            name: node.name.clone(),
            op,
            output,
            saturate: false,
        });
    }

    /// Nodes of the host become one for each tensor that is read elsewhere.
    fn host(&mut self, nodes: &[usize]) -> Result<(), PassError> {
        let Some(part) = segments::part(self.net, nodes)? else {
            return Ok(());
        };
        let inputs = part.inputs.iter().map(|id| self.id(*id));
        let inputs: Vec<TensorId> = inputs.collect::<Result<_, _>>()?;
        for (output, (_, node)) in part.outputs.iter().enumerate() {
            let op = QOp::Host {
                segment: Arc::clone(&part.segment),
                inputs: inputs.clone(),
                output,
            };
            self.push(&self.net.nodes[*node], op);
        }
        Ok(())
    }

    fn tensor(&mut self, id: TensorId, range: (i16, i16)) -> TensorId {
        let from = &self.net.tensors[id.0];
        let new = TensorId(self.graph.tensors.len());
        let (name, scale) = (from.name.clone(), from.scale as f32);
        self.graph.tensors.push(QTensor {
            name,
            chw: from.chw,
            scale,
            zero: from.zero,
            range,
        });
        self.ids[id.0] = Some(new);
        new
    }

    /// The planned tensor; the net is verified, so it was written before.
    fn id(&self, id: TensorId) -> Result<TensorId, PassError> {
        self.ids[id.0].ok_or_else(|| {
            let tensor = &self.net.tensors[id.0].name;
            PassError::Graph(format!(
                "internal error: {tensor} is read before it is planned"
            ))
        })
    }

    /// A tensor that is read.
    fn operand(&self, id: TensorId) -> Result<Operand, PassError> {
        let NetTensor { scale, zero, .. } = self.net.tensors[id.0];
        let range = self.graph.tensors[self.id(id)?.0].range;
        Ok(Operand { scale, zero, range })
    }

    /// What a node's results are rounded to.
    fn output(&self, node: &NetNode) -> Output {
        let NetTensor { scale, zero, .. } = self.net.tensors[node.output.0];
        Output {
            scale,
            zero,
            clamp: node.clamp,
            requant: self.net.requant,
            numbers: self.net.numbers,
        }
    }

    fn op(&self, node: &NetNode) -> Result<QOp, PassError> {
        let is_sum = matches!(node.op, NetOp::Conv(_) | NetOp::AvgPool { .. });
        if node.digit.is_some() && !is_sum {
            return Err(internal(node, "it gives a digit of what is no sum"));
        }
        let to = self.output(node);
        // The values that a tensor has, rescaled.
        let rescaled = |id: TensorId| -> Result<Vec<LaneOp>, PassError> {
            let x = self.operand(id)?;
            plan_scale(x.scale / to.scale, x.interval(), x.zero.into(), &to).map_err(of(node))
        };
        Ok(match &node.op {
            NetOp::Conv(conv) => QOp::Conv(self.conv(node, conv)?),
            NetOp::Pair { join, a, b } => {
                let operands = [self.operand(*a)?, self.operand(*b)?];
                let plan = semantics::plan_pair(*join, operands, &to);
                self.pair([*a, *b], plan.map_err(of(node))?)?
            }
            NetOp::Constants {
                join,
                input,
                constants,
            } => {
                let channels = self.net.tensors[node.output.0].chw[0];
                let x = self.operand(*input)?;
                let ops = semantics::plan_constants(*join, constants, channels, &x, &to);
                QOp::Eltwise {
                    input: self.id(*input)?,
                    ops: ops.map_err(of(node))?,
                }
            }
            NetOp::Curve { input, curve } => {
                let plan = curve.plan(&self.operand(*input)?, &to);
                self.pair([*input; 2], plan.map_err(of(node))?)?
            }
            NetOp::Eltwise { input } => QOp::Eltwise {
                input: self.id(*input)?,
                ops: rescaled(*input)?,
            },
            NetOp::MaxPool { input, window } => QOp::MaxPool {
                input: self.id(*input)?,
                window: *window,
                ops: rescaled(*input)?,
            },
            NetOp::Host { .. } => return Err(internal(node, "the host's are planned together")),
            NetOp::AvgPool {
                input,
                window,
                count_include_pad,
            } => self.average(node, *input, window, *count_include_pad)?,
            NetOp::Channels {
                inputs,
                map,
                spread,
            } => self.channels(node, inputs, map, *spread)?,
        })
    }

    /// Operands with the operations that were planned for them.
    fn pair(&self, [a, b]: [TensorId; 2], plan: PairPlan) -> Result<QOp, PassError> {
        let pair = QPair {
            store: None,
            a: self.id(a)?,
            a_ops: plan.a,
            b: self.id(b)?,
            b_ops: plan.b,
            epilogue: plan.epilogue,
        };
        Ok(if plan.is_product {
            QOp::Mul(pair)
        } else {
            QOp::Add(pair)
        })
    }

    /// One ratio and zero point for all channels become immediates, several become vectors.
    fn channels(
        &self,
        node: &NetNode,
        inputs: &[TensorId],
        map: &[Option<ChannelOf>],
        spread: Spread,
    ) -> Result<QOp, PassError> {
        let to = self.output(node);
        // Ratio, zero point and bounds of what a channel is.
        let taken = |from: &ChannelOf| -> Result<(f64, i64, Interval), PassError> {
            let id = inputs.get(from.input);
            let id = id.ok_or_else(|| internal(node, "it takes channels of no input"))?;
            let x = self.operand(*id)?;
            Ok((x.scale / to.scale, x.zero.into(), x.interval()))
        };
        let [channels, ..] = self.net.tensors[node.output.0].chw;
        let taken = map.iter().map(|from| from.as_ref().map(taken).transpose());
        let taken = taken.collect::<Result<Vec<_>, _>>()?;
        // All phases of a channel are requantised alike.
        let alike = taken
            .chunks(channels.max(1))
            .all(|phase| phase == &taken[..phase.len()]);
        if !alike {
            return Err(internal(node, "its phases are of tensors with other steps"));
        }
        let taken = &taken[..channels.min(taken.len())];
        // The sum of a channel of zeros is 0.
        let zeros = (1.0, 0, (0, 0));
        let first = taken.iter().flatten().next().unwrap_or(&zeros);
        let same = |t: &(f64, i64, Interval)| (t.0, t.1) == (first.0, first.1);
        let (gain, ops) = if taken.iter().flatten().all(same) {
            let (ratio, zero, _) = *first;
            let all = taken.iter().flatten().map(|t| t.2);
            let range = all.fold((zero, zero), |a, b| (a.0.min(b.0), a.1.max(b.1)));
            let mut ops = plan_scale(ratio, range, zero, &to).map_err(of(node))?;
            if zero != 0 && taken.contains(&None) {
                let lane = |t: &Option<_>| if t.is_none() { zero as i32 } else { 0 };
                let lanes: Vec<i32> = taken.iter().map(lane).collect();
                ops.insert(0, LaneOp::add(lanes));
            }
            (1, ops)
        } else {
            let taken: Vec<_> = taken.iter().map(|t| t.unwrap_or(zeros)).collect();
            let gain = i64::from(CHANNEL_GAIN);
            let ratio: Vec<f64> = taken.iter().map(|t| t.0 / gain as f64).collect();
            let bias: Vec<f64> = taken.iter().map(|t| (-gain * t.1) as f64).collect();
            let sum = taken.iter().map(|t| (gain * t.2.0, gain * t.2.1));
            let given = Requantize {
                ratio: &ratio,
                bias: &bias,
                sum: &sum.collect::<Vec<Interval>>(),
                to,
            };
            let ops = semantics::plan_requantize(&given);
            (CHANNEL_GAIN, ops.map_err(of(node))?)
        };
        let inputs = inputs.iter().map(|id| self.id(*id));
        Ok(QOp::Channels {
            inputs: inputs.collect::<Result<_, _>>()?,
            map: map.to_vec(),
            spread,
            gain,
            ops,
        })
    }

    fn conv(&self, node: &NetNode, conv: &NetConv) -> Result<QConv, PassError> {
        let (x, to) = (self.operand(conv.input)?, self.output(node));
        let steps: Vec<f64> = conv.weight_scale.iter().map(|w| x.scale * w).collect();
        let ratio: Vec<f64> = steps.iter().map(|step| step / to.scale).collect();
        let sums = conv.sums(&self.net.tensors[conv.input.0]);
        let (sums, offsets) = sums.map_err(of(node))?;
        let bias = conv.bias.iter().zip(&steps).zip(offsets);
        let bias = bias.map(|((b, step), offset)| b / step - offset as f64);
        let mut bias: Vec<f64> = bias.collect();
        let padded = semantics::wider(x.range, x.zero);
        let mut sum: Vec<Interval> = sums.iter().map(|sums| sums.bounds(padded)).collect();
        let residual = match &conv.residual {
            None => None,
            Some(id) => {
                let scale = self.net.tensors[id.0].scale;
                let aligned: Vec<f64> = steps.iter().map(|step| scale / step).collect();
                let bad = || of(node)(SemanticsError::ratio(format!("{aligned:?}")));
                let prologue = semantics::plan_residual(&aligned, &ratio).ok_or_else(bad)?;
                self.join(node, *id, &prologue, (&mut bias, &mut sum))?;
                Some((self.id(*id)?, prologue))
            }
        };
        let epilogue = match node.digit {
            Some(place) => {
                let bias: Vec<i64> = bias.iter().map(|b| b.round() as i64).collect();
                semantics::plan_digit(place, to.zero, &bias, &sum, to.numbers)
            }
            None => semantics::plan_requantize(&Requantize {
                ratio: &ratio,
                bias: &bias,
                sum: &sum,
                to,
            }),
        };
        Ok(QConv {
            store: None,
            input: self.id(conv.input)?,
            window: conv.window,
            weights: conv.weights.clone(),
            group: conv.group,
            residual,
            epilogue: epilogue.map_err(of(node))?,
            dense: conv.dense,
        })
    }

    /// Takes a residual's zero point off the bias, and adds its values to the sums' bounds.
    fn join(
        &self,
        node: &NetNode,
        residual: TensorId,
        prologue: &[LaneOp],
        (bias, sum): (&mut [f64], &mut [Interval]),
    ) -> Result<(), PassError> {
        let residual = self.operand(residual)?;
        for (c, (bias, sum)) in bias.iter_mut().zip(sum).enumerate() {
            let mut zero = [residual.zero];
            for op in prologue {
                semantics::apply(op, c, &mut zero).map_err(of(node))?;
            }
            *bias -= f64::from(zero[0]);
            let range = semantics::range(prologue, c, residual.interval());
            let (lo, hi) = range.map_err(of(node))?;
            *sum = (sum.0 + lo.min(0), sum.1 + hi.max(0));
        }
        Ok(())
    }
}
