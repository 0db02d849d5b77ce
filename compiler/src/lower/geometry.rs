//! What layers compute, for listings: said of the network's nodes, before and beside their instructions.

use vta_isa::Extension;
use vta_program::listing::{ChannelsGeometry, Geometry, LayerForm, WindowGeometry};

use super::lowering::Lowering;
use crate::qgraph::lane::{LaneKind, LaneOp};
use crate::qgraph::window::Window;
use crate::qgraph::{NodeId, QOp, TensorId};

/// A window as listings have it.
pub(super) fn window(window: &Window) -> WindowGeometry {
    let pair = |sizes: [usize; 2]| sizes.map(|size| size as u32);
    WindowGeometry {
        kernel: pair(window.kernel),
        stride: pair(window.stride),
        dilation: pair(window.dilation),
        before: pair(window.pads.before()),
    }
}

impl Lowering<'_> {
    /// What a layer of a node computes whose constants were made last.
    pub(super) fn describe(&mut self, id: NodeId) -> Geometry {
        let node = &self.graph.nodes[id.0];
        let (op, output) = (&node.op, node.output);
        let form = match (self.form.take(), op) {
            (Some(form), _) => form,
            (None, QOp::MaxPool { window: of, .. } | QOp::AvgPool { window: of, .. }) => {
                LayerForm::Pool(window(of))
            }
            (None, QOp::Channels { map, spread, .. }) => LayerForm::Channels(ChannelsGeometry {
                map: map
                    .iter()
                    .map(|of| of.map(|of| [of.input, of.channel].map(|at| at as u32)))
                    .collect(),
                up: spread.up.map(|up| up as u32),
                skip: spread.skip.map(|skip| skip as u32),
                step: spread.step.map(|step| step as u32),
                kept: (0..self.tile_chw(output)[0])
                    .filter(|block| self.places.is_shared(output, *block))
                    .map(|block| block as u32)
                    .collect(),
                tiles: Vec::new(),
            }),
            (
                None,
                QOp::Conv(_) | QOp::Add(_) | QOp::Mul(_) | QOp::Eltwise { .. } | QOp::Host { .. },
            ) => LayerForm::Elementwise,
        };
        let inputs = op.inputs();
        Geometry {
            form,
            inputs: inputs.iter().map(|&TensorId(at)| at as u32).collect(),
            output: output.0 as u32,
            constants: std::mem::take(&mut self.roles),
            zero_factor: !self.has(Extension::Mul) && clears(op),
            before: self.before.take().map(Box::new),
        }
    }
}

/// Whether a node multiplies by 0, beside the products of convolutions.
fn clears(op: &QOp) -> bool {
    let lists: Vec<&[LaneOp]> = match op {
        QOp::Conv(_) | QOp::Host { .. } => Vec::new(),
        QOp::Add(pair) | QOp::Mul(pair) => vec![&pair.a_ops, &pair.b_ops, &pair.epilogue],
        QOp::Eltwise { ops, .. } | QOp::MaxPool { ops, .. } | QOp::Channels { ops, .. } => {
            vec![ops]
        }
        QOp::AvgPool { ops_by_count, .. } => ops_by_count.iter().map(|(_, ops)| &ops[..]).collect(),
    };
    let mut ops = lists.into_iter().flatten();
    ops.any(|op| op.kind == LaneKind::Mul && !op.operand.all(|factor| factor != 0))
}
