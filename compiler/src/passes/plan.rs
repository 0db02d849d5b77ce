//! The last step: real scales become lane operations.

use super::error::PassError;
use super::net::{Net, NetNode, NetOp};
use crate::lane::LaneOp;
use crate::qgraph::{QGraph, QNode, QOp, QTensor, TensorId};
use crate::semantics::{self, Interval, Requantize, SemanticsError};
use crate::window::Window;

/// Plans every node; tensors that nothing uses are dropped.
pub(super) fn plan(net: &Net) -> Result<QGraph, PassError> {
    let mut plan = Plan {
        net,
        graph: QGraph::default(),
        ids: vec![None; net.tensors.len()],
    };
    plan.graph.metadata.clone_from(&net.metadata);
    for id in &net.inputs {
        let new = plan.tensor(*id, (-128, 127));
        plan.graph.inputs.push(new);
    }
    for node in &net.nodes {
        let op = plan.op(node)?;
        let output = plan.tensor(node.output, node.clamp);
        plan.graph.nodes.push(QNode {
            name: node.name.clone(),
            op,
            output,
        });
    }
    let outputs = net.outputs.iter().map(|id| plan.id(*id));
    plan.graph.outputs = outputs.collect::<Result<_, _>>()?;
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
    fn tensor(&mut self, id: TensorId, range: (i8, i8)) -> TensorId {
        let from = &self.net.tensors[id.0];
        let new = TensorId(self.graph.tensors.len());
        let (name, scale) = (from.name.clone(), from.scale as f32);
        self.graph.tensors.push(QTensor {
            name,
            chw: from.chw,
            scale,
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

    fn range(&self, id: TensorId) -> Result<(i8, i8), PassError> {
        Ok(self.graph.tensors[self.id(id)?.0].range)
    }

    fn scale(&self, id: TensorId) -> f64 {
        self.net.tensors[id.0].scale
    }

    fn op(&self, node: &NetNode) -> Result<QOp, PassError> {
        let out = self.scale(node.output);
        let wide = |id: TensorId| -> Result<Interval, PassError> {
            let (low, high) = self.range(id)?;
            Ok((low.into(), high.into()))
        };
        Ok(match &node.op {
            NetOp::Conv { .. } => self.conv(node)?,
            NetOp::Add { a, b } => {
                let ratios = [self.scale(*a) / out, self.scale(*b) / out];
                let ranges = [self.range(*a)?, self.range(*b)?];
                let plan = semantics::plan_add(ratios, ranges, node.clamp, self.net.requant);
                let plan = plan.map_err(of(node))?;
                QOp::Add {
                    a: self.id(*a)?,
                    a_ops: plan.a,
                    b: self.id(*b)?,
                    b_ops: plan.b,
                    epilogue: plan.epilogue,
                }
            }
            NetOp::Eltwise { input } => {
                let ratio = self.scale(*input) / out;
                let ops = self.rescale(ratio, wide(*input)?, node)?;
                QOp::Eltwise {
                    input: self.id(*input)?,
                    ops,
                }
            }
            NetOp::MaxPool { input, window } => {
                let ratio = self.scale(*input) / out;
                let ops = self.rescale(ratio, wide(*input)?, node)?;
                QOp::MaxPool {
                    input: self.id(*input)?,
                    window: *window,
                    ops,
                }
            }
            NetOp::Host { op, inputs, flat } => QOp::Host {
                op: *op,
                inputs: inputs
                    .iter()
                    .map(|id| self.id(*id))
                    .collect::<Result<_, _>>()?,
                flat: *flat,
                clamp: node.clamp,
            },
            NetOp::AvgPool { .. } => self.average(node)?,
        })
    }

    fn average(&self, node: &NetNode) -> Result<QOp, PassError> {
        let NetOp::AvgPool {
            input,
            window,
            count_include_pad,
        } = &node.op
        else {
            return Err(internal(node, "it is no average"));
        };
        let counts = match count_include_pad {
            true => vec![window.area()],
            false => self.counts(*input, node.output, window),
        };
        let (low, high) = self.range(*input)?;
        let all = window.area() as i64;
        let start = (i64::from(low.min(0)) * all, i64::from(high.max(0)) * all);
        let ratio = self.scale(*input) / self.scale(node.output);
        let ops = |&count: &usize| -> Result<(usize, Vec<LaneOp>), PassError> {
            Ok((count, self.rescale(ratio / count as f64, start, node)?))
        };
        Ok(QOp::AvgPool {
            input: self.id(*input)?,
            window: *window,
            count_include_pad: *count_include_pad,
            ops_by_count: counts.iter().map(ops).collect::<Result<_, _>>()?,
        })
    }

    fn rescale(
        &self,
        ratio: f64,
        start: Interval,
        node: &NetNode,
    ) -> Result<Vec<LaneOp>, PassError> {
        semantics::plan_scale(ratio, start, node.clamp, self.net.requant).map_err(of(node))
    }

    /// The distinct numbers of valid positions in a pool's windows, ascending.
    fn counts(&self, input: TensorId, output: TensorId, window: &Window) -> Vec<usize> {
        let [_, h, w] = self.net.tensors[input.0].chw;
        let [_, oh, ow] = self.net.tensors[output.0].chw;
        let axis = |axis: usize, size: usize, out: usize| -> Vec<usize> {
            let inside = |o| {
                window
                    .positions(axis, o, 0..window.kernel[axis], size)
                    .count()
            };
            let mut counts: Vec<_> = (0..out).map(inside).collect();
            counts.sort_unstable();
            counts.dedup();
            counts
        };
        let (rows, cols) = (axis(0, h, oh), axis(1, w, ow));
        let mut counts: Vec<_> = rows
            .iter()
            .flat_map(|r| cols.iter().map(move |c| r * c))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    fn conv(&self, node: &NetNode) -> Result<QOp, PassError> {
        let NetOp::Conv {
            input,
            window,
            weights,
            group,
            weight_scale,
            bias,
            residual,
            dense,
        } = &node.op
        else {
            return Err(internal(node, "it is no convolution"));
        };
        let (scale_x, out) = (self.scale(*input), self.scale(node.output));
        let step = |w: &f64| scale_x * w;
        let ratio: Vec<f64> = weight_scale.iter().map(|w| step(w) / out).collect();
        let bias: Vec<i64> = bias
            .iter()
            .zip(weight_scale)
            .map(|(b, w)| (b / step(w)).round() as i64)
            .collect();
        let channels = weight_scale.len();
        let mut sum = semantics::sum_bounds(weights, channels, self.range(*input)?);
        let residual = match residual {
            None => None,
            Some(id) => {
                let aligned: Vec<f64> = weight_scale
                    .iter()
                    .map(|w| self.scale(*id) / step(w))
                    .collect();
                let prologue = semantics::plan_residual(&aligned, &ratio);
                let prologue = prologue.ok_or_else(|| {
                    let ratio = format!("{aligned:?}");
                    of(node)(SemanticsError::Ratio { ratio })
                })?;
                let (low, high) = self.range(*id)?;
                for (c, sum) in sum.iter_mut().enumerate() {
                    let (lo, hi) = semantics::range(&prologue, c, (low.into(), high.into()))
                        .map_err(of(node))?;
                    *sum = (sum.0 + lo.min(0), sum.1 + hi.max(0));
                }
                Some((self.id(*id)?, prologue))
            }
        };
        let given = Requantize {
            ratio: &ratio,
            bias: &bias,
            sum: &sum,
            clamp: node.clamp,
            requant: self.net.requant,
        };
        let epilogue = semantics::plan_requantize(&given).map_err(of(node))?;
        Ok(QOp::Conv {
            input: self.id(*input)?,
            window: *window,
            weights: weights.clone(),
            group: *group,
            residual,
            epilogue,
            dense: *dense,
        })
    }
}
