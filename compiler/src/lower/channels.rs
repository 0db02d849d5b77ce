//! Channels in another order: the matrix unit multiplies blocks of inputs by selection tiles.
//!
//! Row `o` of a selection tile has the gain where the input block's lane is that goes to lane `o`
//! of the output block, and zeros elsewhere. An output block is the sum of as many products as
//! input blocks have a part in it: one, where whole blocks are taken. Equal tiles are one;
//! [`select`] says which there are and when each is loaded.
//!
//! Output blocks that take whole neighbouring blocks go together, as far as the accumulators hold
//! them. Tokens are those of `stage`.

mod select;

use std::ops::Range;

use vta_driver::{BufferId, GemmSteps};
use vta_isa::{AluOperand, Load, MemType, Store, Uop};

use super::emit::{Emitter, Loops, Rect, count_vectors};
use super::lowering::{Lowering, buffer};
use super::stage::{Rows, Stage};
use super::vector::tiles::{HALVES, Halves};
use super::{LowerError, conv};
use crate::lane::{LaneOp, LaneOperand};
use crate::qgraph::{NodeId, QOp, TensorId};
use select::{Pick, Selection};

/// A layer that is being emitted.
struct Channels<'g> {
    output: TensorId,
    inputs: &'g [TensorId],
    ops: &'g [LaneOp],
    channels: usize,
    /// Tiles of a block.
    plane: usize,
    selection: Selection,
    /// The selection tiles.
    weights: BufferId,
    vectors: Option<BufferId>,
    /// The first accumulator tile of the vectors.
    vector_base: usize,
    /// Blocks whose vectors were loaded last.
    loaded: Range<usize>,
    /// Whether a copy of the tiles is needed to multiply them.
    copies: usize,
}

/// Output tiles that are made together: whole blocks, or a part of one.
struct Piece {
    blocks: Range<usize>,
    positions: Range<usize>,
}

impl Lowering<'_> {
    /// Emits the layer of channels that come from elsewhere.
    pub(super) fn channels(&mut self, id: NodeId) -> Result<(), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let QOp::Channels {
            inputs,
            map,
            gain,
            ops,
        } = &node.op
        else {
            return Err(self.internal(id, "it takes no channels"));
        };
        self.check_channels(id)?;
        // An immediate factor is shifts and sums where there is no MUL.
        let vectors = ops.iter().filter(|op| op.vector().is_some());
        self.check_lanes(&node.name, vectors)?;
        let [blocks, h, w] = self.tile_chw(node.output);
        let (plane, config) = (h * w, self.config);
        let selection = Selection::new(map, *gain, config);
        let copies = usize::from(self.multiplies(ops));
        let lists: Vec<&[i32]> = ops.iter().filter_map(LaneOp::vector).collect();
        let vectors = (!lists.is_empty()).then(|| {
            let bytes = conv::pack_vectors(&lists, blocks, config.batch(), config.block());
            self.constant(format!("{}.vectors", node.name), bytes)
        });
        let weights = self.constant(format!("{}.selection", node.name), selection.bytes());
        let depth = config.depth(MemType::Acc);
        // Half the accumulators hold as many whole blocks and their vectors, or a part of one.
        let each = lists.len() + HALVES * plane * (1 + copies);
        let together = (depth / each.max(1)).clamp(1, blocks.max(1));
        let half = depth.saturating_sub(lists.len() * together) / HALVES;
        let most = (half / (1 + copies)).min(config.depth(MemType::Inp) / HALVES);
        if most == 0 {
            return Err(LowerError::NoTile {
                node: node.name.clone(),
                reason: format!("no tile fits beside {} vectors", lists.len()),
            });
        }
        let pieces = selection.pieces(plane, together, most);
        let layer = vta_driver::Layer {
            steps: GemmSteps {
                products: selection.products() * plane as u64,
                ..GemmSteps::default()
            },
            ..self.layer(id)
        };
        let mut channels = Channels {
            output: node.output,
            inputs,
            ops,
            channels: map.len(),
            plane,
            selection,
            weights,
            vectors,
            vector_base: HALVES * half,
            loaded: 0..0,
            copies,
        };
        let mut e = Emitter::new(self, &node.name);
        let stage = Stage::selecting(&mut e, weights, channels.selection.load(0)[1])?;
        let mut halves = Halves::of(half, stage);
        for piece in pieces {
            channels.piece(&mut e, &mut halves, &piece)?;
        }
        halves.close(&mut e)?;
        e.finish(layer)
    }

    /// Shapes that must agree.
    fn check_channels(&self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let QOp::Channels {
            inputs,
            map,
            gain,
            ops,
        } = &node.op
        else {
            return Err(self.internal(id, "it takes no channels"));
        };
        let [channels, h, w] = self.graph.tensors[node.output.0].chw;
        let chw = |input: usize| inputs.get(input).map(|id| self.graph.tensors[id.0].chw);
        let exists = map.iter().flatten().all(|from| {
            chw(from.input).is_some_and(|[c, y, x]| from.channel < c && [y, x] == [h, w])
        });
        if !exists || map.len() != channels || *gain < 1 {
            return Err(self.inconsistent(id, "it takes channels that its inputs haven't"));
        }
        if ops
            .iter()
            .any(|op| op.vector().is_some_and(|v| v.len() != channels))
        {
            return Err(self.inconsistent(id, "a lane vector has another length"));
        }
        Ok(())
    }
}

impl Channels<'_> {
    /// One piece: sums cleared, products, operations, a store.
    fn piece(
        &mut self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        piece: &Piece,
    ) -> Result<(), LowerError> {
        let (begin, base) = (e.len(), halves.base());
        let count = piece.blocks.len() * piece.positions.len();
        let first = piece.blocks.start * self.plane + piece.positions.start;
        e.clear(Rect::run(base, count))?;
        for index in self.selection.picks(piece.blocks.start) {
            self.product(e, halves, piece, index, base)?;
        }
        self.operations(e, piece, base)?;
        halves.seal(e, begin);
        let store = Store {
            sram_base: base as u16,
            dram_base: first as u32,
            y_size: 1,
            x_size: count as u16,
            x_stride: count as u16,
            ..Store::default()
        };
        halves.store(e, buffer(self.output), store)
    }

    /// Adds what one input block, and its neighbours in as many output blocks, give.
    fn product(
        &mut self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        piece: &Piece,
        index: usize,
        base: usize,
    ) -> Result<(), LowerError> {
        let Stage::Products(products) = &mut halves.stage else {
            return Err(e.inconsistent("it has no products".to_owned()));
        };
        let Pick { input, block, tile } = self.selection.pick(index);
        let begin = e.len();
        let (place, renewed) = self.selection.place(tile);
        if let Some(set) = renewed {
            let load = self.selection.load(set);
            products.renew(e, self.weights, load, self.selection.base(set))?;
        }
        let count = piece.blocks.len() * piece.positions.len();
        let rows = Rows {
            buffer: buffer(self.inputs[input]),
            sram: 0,
            dram: block * self.plane + piece.positions.start,
            size: [1, count],
            stride: count,
        };
        let src = products.fetch_since(e, rows, begin)?;
        let begin = e.len();
        let uop = Uop {
            dst: base as u16,
            src: src as u16,
            wgt: place as u16,
        };
        let loops = Loops {
            iter: [1, count],
            dst: [0, 1],
            src: [0, 1],
        };
        e.gemm(false, vec![uop], loops)?;
        products.release(e, begin)
    }

    fn operations(
        &mut self,
        e: &mut Emitter<'_, '_>,
        piece: &Piece,
        base: usize,
    ) -> Result<(), LowerError> {
        self.load_vectors(e, &piece.blocks)?;
        let (blocks, positions) = (piece.blocks.len(), piece.positions.len());
        let count = blocks * positions;
        let ops = self.ops;
        let block = e.lowering.config.block();
        let lanes = piece.blocks.start * block..(piece.blocks.end * block).min(self.channels);
        let mut next = 0;
        for op in ops {
            let row = self.vector_base + next * blocks;
            next += usize::from(op.vector().is_some());
            let op = LaneOp::new(op.kind, narrowed(&op.operand, lanes.clone()));
            if op.vector().is_none() {
                e.immediates(&[op], Rect::run(base, count), base + self.copies * count)?;
                continue;
            }
            let uop = |i: usize| Uop {
                dst: (base + i * positions) as u16,
                src: (row + i) as u16,
                wgt: 0,
            };
            let loops = Loops {
                iter: [1, positions],
                dst: [0, 1],
                src: [0, 0],
            };
            let uops = (0..blocks).map(uop).collect();
            e.alu(op.kind.alu(), AluOperand::Acc, uops, loops)?;
        }
        Ok(())
    }

    fn load_vectors(
        &mut self,
        e: &mut Emitter<'_, '_>,
        blocks: &Range<usize>,
    ) -> Result<(), LowerError> {
        let Some(vectors) = self.vectors.filter(|_| self.loaded != *blocks) else {
            return Ok(());
        };
        self.loaded = blocks.clone();
        let all = self.channels.div_ceil(e.lowering.config.block());
        let load = Load {
            mem: MemType::Acc,
            sram_base: self.vector_base as u16,
            dram_base: blocks.start as u32,
            y_size: count_vectors(self.ops) as u16,
            x_size: blocks.len() as u16,
            x_stride: all as u16,
            ..Load::default()
        };
        e.load(vectors, load)
    }
}

/// A vector of which some channels have the same small value is an immediate for them.
fn narrowed(operand: &LaneOperand, channels: Range<usize>) -> LaneOperand {
    let LaneOperand::Vec(all) = operand else {
        return operand.clone();
    };
    let part = all.get(channels).unwrap_or(all);
    match part.first().map(|&first| i16::try_from(first)) {
        Some(Ok(imm)) if part.iter().all(|&y| y == i32::from(imm)) => imm.into(),
        _ => operand.clone(),
    }
}
