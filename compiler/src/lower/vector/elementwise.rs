//! Sums and products of two tensors and element-wise operations.

use vta_isa::{AluOp, Extension, MemType};

use super::super::emit::{Emitter, Loops, Rect};
use super::super::lowering::Lowering;
use super::super::stage::{Stage, Sums};
use super::super::transfer::Transfer;
use super::super::{Fault, LowerError};
use super::tiles::{HALVES, Halves};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{NodeId, QOp, QPair, TensorId};

/// A tensor with its lane operations.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub tensor: TensorId,
    pub ops: &'a [LaneOp],
    /// It has one position for every channel.
    pub spread: bool,
}

/// What is joined, and what follows.
pub(super) struct Elementwise<'a> {
    /// The first has the output's shape.
    pub operands: Vec<Operand<'a>>,
    pub join: AluOp,
    pub epilogue: &'a [LaneOp],
}

impl<'a> Elementwise<'a> {
    /// All lists of operations, in the order of their execution.
    pub fn lists(&self) -> impl Iterator<Item = &'a [LaneOp]> {
        let operands = self.operands.iter().map(|o| o.ops);
        operands.chain([self.epilogue])
    }
}

impl<'a> Lowering<'a> {
    /// Sums and element-wise operations: channels and positions are one run of tiles.
    pub(in crate::lower) fn elementwise(&mut self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let elementwise = self.operands(id)?;
        if elementwise.join == AluOp::Mul && !self.has(Extension::Mul) {
            let lacks = Fault::Lacks {
                reason: "it multiplies two tensors".to_owned(),
                extension: Extension::Mul,
                hint: "",
            };
            return Err(lacks.of(&node.name));
        }
        let vector = |op: &LaneOp| op.vector().or(op.plane()).is_some();
        if elementwise.operands.iter().any(|o| o.spread)
            || elementwise.lists().flatten().any(vector)
        {
            return self.by_blocks(id, &elementwise);
        }
        let Elementwise {
            operands,
            join: op,
            epilogue,
        } = &elementwise;
        let layer = self.layer(id);
        let count: usize = self.tile_chw(node.output).iter().product();
        let half = self.config.depth(MemType::Acc) / HALVES;
        let copies = usize::from(elementwise.lists().any(|ops| self.multiplies(ops)));
        let places = operands.len() + copies;
        let most = (half / places).min(Stage::most(self.config));
        if most == 0 {
            let reason =
                format!("{places} accumulator tiles are needed, half the scratchpad holds {half}",);
            return Err(Fault::NoTile(reason).of(&node.name));
        }
        let mut e = Emitter::new(self, &node.name);
        let mut halves = Halves::open(half, &mut e)?;
        for first in (0..count).step_by(most) {
            let n = most.min(count - first);
            let base = halves.next(&mut e)?;
            let copy = base + operands.len() * n;
            for (i, operand) in operands.iter().enumerate() {
                let ops = operand.ops;
                // An operand as it is joins the sum on its way.
                let adds = *op == AluOp::Add && halves.stage.adds();
                let joins = i > 0 && ops.is_empty() && adds;
                let sram = if joins { base } else { base + i * n };
                let rows = Transfer::run(e.lowering.base(operand.tensor), [sram, first], n);
                let sums = if joins { Sums::Add } else { Sums::Set };
                halves.stage.load(&mut e, rows, sums)?;
                e.immediates(ops, Rect::run(sram, n), copy)?;
                if i > 0 && !joins {
                    e.join(*op, [[base, sram]], Loops::run(n, [1, 1]))?;
                }
            }
            e.immediates(epilogue, Rect::run(base, n), copy)?;
            let output = e.lowering.base(node.output);
            halves.store(&mut e, Transfer::run(output, [base, first], n))?;
        }
        halves.close(&mut e)?;
        e.finish(layer)
    }

    /// What is joined with its operations, and what follows.
    fn operands(&self, id: NodeId) -> Result<Elementwise<'a>, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let chw = |id: TensorId| graph.tensors[id.0].chw;
        let out = chw(node.output);
        let operand = |tensor: &TensorId, ops: &'a [LaneOp]| Operand {
            tensor: *tensor,
            ops,
            spread: chw(*tensor) != out,
        };
        let both = |p: &'a QPair| vec![operand(&p.a, &p.a_ops), operand(&p.b, &p.b_ops)];
        let (mut operands, join, epilogue): (Vec<Operand<'a>>, AluOp, &[LaneOp]) = match &node.op {
            QOp::Add(pair) => (both(pair), AluOp::Add, &pair.epilogue),
            QOp::Mul(pair) => (both(pair), AluOp::Mul, &pair.epilogue),
            QOp::Eltwise { input, ops } => (vec![operand(input, &[])], AluOp::Add, ops),
            _ => return Err(self.internal(id, "it is neither a sum, a product nor element-wise")),
        };
        // The one without operations comes last, one that is spread in any case.
        let bare = |o: &Operand<'_>| !self.has(Extension::Acc8) && o.ops.is_empty();
        operands.sort_by_key(|o| (o.spread, bare(o)));
        let fits = |(i, o): (usize, &Operand<'_>)| {
            if o.spread {
                i > 0 && chw(o.tensor) == [out[0], 1, 1]
            } else {
                true
            }
        };
        if !operands.iter().enumerate().all(fits) {
            return Err(self.inconsistent(id, "the operands have other shapes"));
        }
        Ok(Elementwise {
            operands,
            join,
            epilogue,
        })
    }
}
