//! Sums of two tensors and element-wise operations.

use vta_isa::{AluOp, AluOperand, Extension, MemType, Store, Uop};

use super::super::LowerError;
use super::super::emit::{Emitter, Loops, Rect};
use super::super::lowering::{Lowering, buffer};
use super::super::stage::{Rows, Stage, Sums};
use super::tiles::{HALVES, Halves};
use crate::lane::LaneOp;
use crate::qgraph::{NodeId, QOp, TensorId};

/// Tensors with their lane operations.
type Operands<'a> = Vec<(TensorId, &'a [LaneOp])>;

impl<'a> Lowering<'a> {
    /// Sums and element-wise operations: channels and positions are one run of tiles.
    pub(in crate::lower) fn elementwise(&mut self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let (operands, epilogue) = self.operands(id)?;
        let layer = self.layer(id);
        let count: usize = self.tile_chw(node.output).iter().product();
        let half = self.config.depth(MemType::Acc) / HALVES;
        let lists = || operands.iter().map(|o| o.1).chain([epilogue]);
        let copies = usize::from(lists().any(|ops| self.multiplies(ops)));
        let places = operands.len() + copies;
        let most = (half / places).min(Stage::most(self.config));
        if most == 0 {
            let reason =
                format!("{places} accumulator tiles are needed, half the scratchpad holds {half}",);
            return Err(LowerError::NoTile {
                node: node.name.clone(),
                reason,
            });
        }
        let mut e = Emitter::new(self, &node.name);
        let mut halves = Halves::open(half, &mut e)?;
        for first in (0..count).step_by(most) {
            let n = most.min(count - first);
            let (begin, base) = (e.len(), halves.base());
            let copy = base + operands.len() * n;
            for (i, (operand, ops)) in operands.iter().enumerate() {
                // An operand as it is joins the sum on its way.
                let joins = i > 0 && ops.is_empty() && halves.stage.adds();
                let sram = if joins { base } else { base + i * n };
                let rows = Rows {
                    buffer: buffer(*operand),
                    sram,
                    dram: first,
                    size: [1, n],
                    stride: n,
                };
                let sums = if joins { Sums::Add } else { Sums::Set };
                halves.stage.load(&mut e, rows, sums)?;
                e.immediates(ops, Rect::run(sram, n), copy)?;
                if i > 0 && !joins {
                    add(&mut e, [base, sram], n)?;
                }
            }
            e.immediates(epilogue, Rect::run(base, n), copy)?;
            halves.seal(&mut e, begin);
            let store = Store {
                sram_base: base as u16,
                dram_base: first as u32,
                y_size: 1,
                x_size: n as u16,
                x_stride: n as u16,
                ..Store::default()
            };
            halves.store(&mut e, buffer(node.output), store)?;
        }
        halves.close(&mut e)?;
        e.finish(layer)
    }

    /// What is summed with its operations, and what follows the sum.
    fn operands(&self, id: NodeId) -> Result<(Operands<'a>, &'a [LaneOp]), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let (mut operands, epilogue): (Operands<'_>, &[LaneOp]) = match &node.op {
            QOp::Add {
                a,
                a_ops,
                b,
                b_ops,
                epilogue,
            } => (vec![(*a, a_ops), (*b, b_ops)], epilogue),
            QOp::Eltwise { input, ops } => (vec![(*input, &[])], ops),
            QOp::Conv { .. }
            | QOp::MaxPool { .. }
            | QOp::AvgPool { .. }
            | QOp::Channels { .. }
            | QOp::Host { .. } => {
                return Err(self.internal(id, "it is neither a sum nor element-wise"));
            }
        };
        let chw = |id: TensorId| graph.tensors[id.0].chw;
        if operands.iter().any(|(id, _)| chw(*id) != chw(node.output)) {
            return Err(self.inconsistent(id, "the operands have other shapes"));
        }
        // The one without operations comes last.
        operands.sort_by_key(|(_, ops)| !self.has(Extension::Acc8) && ops.is_empty());
        Ok((operands, epilogue))
    }
}

/// `acc[dst..] += acc[src..]`.
fn add(e: &mut Emitter<'_, '_>, [dst, src]: [usize; 2], count: usize) -> Result<(), LowerError> {
    let uop = Uop {
        dst: dst as u16,
        src: src as u16,
        wgt: 0,
    };
    let loops = Loops {
        iter: [1, count],
        dst: [0, 1],
        src: [0, 1],
    };
    e.alu(AluOp::Add, AluOperand::Acc, vec![uop], loops)
}
