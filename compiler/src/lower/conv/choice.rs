//! The form of a convolution: what the matrix unit adds, and the tile.

use std::ops::Range;

use vta_isa::{Depthwise, Extension, Load, MemType};
use vta_program::listing::ResidualBy;
use vta_program::{GemmSteps, Packing};

use super::super::emit::count_vectors;
use super::super::tile::{self, ConvShape, ConvTile, Groups, Room};
use super::super::{Fault, LowerError, Lowering};
use super::division::{self, Division, When};
use super::pack::Digits;
use super::parts::{Parts, Region};
use super::work;
use crate::qgraph::QStore;
use crate::qgraph::lane::{LaneKind, LaneOp};
use crate::qgraph::window::Window;

/// What to do about sums that are multiplied.
const SHIFT: &str = ": a model quantised by powers of two needs shifts only, \
                     as zoo:NAME:shift does";

/// What was decided for a convolution: its tile, the digits of its bias if the matrix unit adds
/// it, likewise the plan of a residual, and the other lane operations.
pub(super) struct Choice {
    pub cost: u64,
    pub shape: ConvShape,
    pub tile: ConvTile,
    pub digits: Option<Digits>,
    /// Outputs with a bias of their own, or all of them where theirs is copied.
    pub regions: Vec<Region>,
    pub product: Option<Division>,
    pub epilogue: Vec<LaneOp>,
}

impl Choice {
    pub(super) fn steps(&self) -> GemmSteps {
        let outputs = (self.shape.co * self.shape.output[0] * self.shape.output[1]) as u64;
        let kept = match self.shape.regions {
            0 => outputs / self.shape.phases() as u64,
            _ => outputs - (self.shape.co * self.shape.plain) as u64,
        };
        let residual = self.product.as_ref().map_or(0, Division::steps);
        GemmSteps {
            dense: self.shape.dense_products(),
            products: self.shape.products(),
            bias: kept * self.shape.bias as u64,
            residual: outputs * residual as u64,
        }
    }
}

impl Lowering<'_> {
    /// The cheapest form and tile: the matrix unit may add the bias if its digits reach it, and a
    /// residual. Every output tile must have products then: their tokens tell when the constants
    /// are there and when a residual's place is free.
    pub(super) fn choose(&self, parts: &Parts<'_>) -> Result<Choice, LowerError> {
        let digits = parts.digits(self.config.block());
        let starts = parts.residual.is_none() || self.has(Extension::Acc8);
        let when = if starts { When::Cheap } else { When::Always };
        let plain = if starts {
            self.choice(parts, None, None)
        } else {
            let reason = "its residual has a factor or a tile that the matrix unit can't add";
            Err(Fault::lacks(reason, Extension::Acc8).of(parts.name))
        };
        let mut best = None;
        let whole = self.starting(parts);
        let copied = [true, false].map(|residual| (whole.as_ref(), false, residual));
        let others = [(true, true), (true, false), (false, true)];
        let others = others.map(|(bias, residual)| (Some(parts), bias, residual));
        for (parts, bias, residual) in others.into_iter().chain(copied) {
            let Some(parts) = parts.filter(|_| starts || residual) else {
                continue;
            };
            let digits = digits.clone().filter(|_| bias);
            let epilogue = match digits {
                Some(_) => parts.after_bias(),
                None => parts.epilogue,
            };
            let product = parts.residual.filter(|_| residual);
            let product =
                product.and_then(|(_, ops)| division::divide_residual(ops, epilogue, when));
            if digits.is_some() != bias || product.is_some() != residual {
                continue;
            }
            let Ok(choice) = self.choice(parts, digits, product) else {
                continue;
            };
            let worth = |than: &Choice| choice.cost < than.cost;
            let works = || work::works(&choice.shape, &choice.tile);
            if plain.as_ref().map_or(true, worth)
                && best.as_ref().is_none_or(worth)
                && works().iter().all(|w| !w.chunks.is_empty())
            {
                best = Some(choice);
            }
        }
        best.map_or(plain, Ok)
    }

    /// Whether sums start as a copy of their region's vector: not if `plain` positions are in none.
    pub(super) fn copies(&self, residual: ResidualBy, plain: usize) -> bool {
        self.has(Extension::Mov) && residual != ResidualBy::Load && plain == 0
    }

    /// The convolution with one region, whose bias all sums start as a copy of.
    fn starting<'g>(&self, parts: &Parts<'g>) -> Option<Parts<'g>> {
        let [co, rows, cols] = self.graph.tensors[parts.output.0].chw;
        let (bias, epilogue) = parts.bias(co);
        let adds = epilogue.len() < parts.epilogue.len();
        (self.has(Extension::Mov) && parts.regions.is_empty() && adds).then(|| Parts {
            regions: vec![Region {
                places: [0..rows, 0..cols],
                bias,
            }],
            epilogue,
            ..*parts
        })
    }

    /// Whether the machine has what the lane operations of a convolution's sums need.
    pub(in crate::lower) fn check_lanes<'o>(
        &self,
        node: &str,
        ops: impl Iterator<Item = &'o LaneOp>,
    ) -> Result<(), LowerError> {
        for op in ops {
            if op.kind == LaneKind::Mul && !self.has(Extension::Mul) {
                let fault = Fault::Lacks {
                    reason: "its sums are multiplied".to_owned(),
                    extension: Extension::Mul,
                    hint: SHIFT,
                };
                return Err(fault.of(node));
            }
            // By a register the original RTL shifts to the right only.
            if op.kind == LaneKind::Shr
                && !self.has(Extension::Shl)
                && let Some(n) = op.vector().and_then(|v| v.iter().find(|n| **n < 0))
            {
                let reason = format!("a channel's sums are shifted left by {}", n.unsigned_abs());
                return Err(Fault::lacks(reason, Extension::Shl).of(node));
            }
        }
        Ok(())
    }

    /// The cheapest tile of one form.
    pub(super) fn choice(
        &self,
        parts: &Parts<'_>,
        digits: Option<Digits>,
        product: Option<Division>,
    ) -> Result<Choice, LowerError> {
        let epilogue = match (&product, &digits) {
            (Some(plan), _) => plan.after.clone(),
            (None, Some(_)) => parts.after_bias().to_vec(),
            (None, None) => parts.epilogue.to_vec(),
        };
        let before = parts.prologue(product.as_ref());
        self.check_lanes(parts.name, before.iter().chain(&epilogue))?;
        let shape = self.conv_shape(
            parts,
            digits.as_ref().map_or(0, |d| d.steps),
            product.as_ref(),
            &epilogue,
        )?;
        let of = |shape: &ConvShape| {
            let known = self.tiles.get(shape);
            let known = known.and_then(|tile| {
                let busy = tile::appraise(shape, &Room::all(self.config), tile)?;
                Some((busy.total(tile), *tile))
            });
            let searched = || {
                let found = self.search(shape);
                found.map_err(|reason| Fault::NoTile(reason).of(parts.name))
            };
            known.map_or_else(searched, Ok)
        };
        let windows = self.by_windows(parts, &shape);
        let windows = windows.and_then(|shape| Some((of(&shape).ok()?, shape)));
        let left_out = match parts.pad_value {
            0 => of(&shape),
            _ => {
                let reason = "its padding has a value".to_owned();
                Err(Fault::NoTile(reason).of(parts.name))
            }
        };
        let ((cost, tile), shape) = match (left_out, windows) {
            (Ok(found), Some((other, shape))) if other.0 < found.0 => (other, shape),
            (Ok(found), _) => (found, shape),
            (Err(_), Some(windows)) => windows,
            (Err(error), None) => return Err(error),
        };
        Ok(Choice {
            cost,
            shape,
            tile,
            digits,
            product,
            epilogue,
            regions: parts.regions.clone(),
        })
    }

    /// The same by DEPTHWISE, where each channel has weights of its own, and a row of a weight tile holds a kernel row's.
    fn by_windows(&self, parts: &Parts<'_>, shape: &ConvShape) -> Option<ConvShape> {
        let (window, fields) = (&shape.window, Depthwise::FIELDS);
        let [_, across] = window.kernel;
        let own = |groups: Groups| groups.inputs == 1 && groups.outputs == 1;
        let most = self.config.block().min(fields.rows.max() as usize);
        let pads = window.pads.to_array();
        let possible = self.has(Extension::Depthwise)
            && shape.groups.is_some_and(own)
            && self.program.tensors[parts.input.0].packing == Packing::Tiles
            && !shape.ones
            && shape.weight_parts == 1
            && shape.pool.is_none()
            && window.dilation[1] == 1
            && across <= most
            // Another column makes the number of columns odd.
            && pads.into_iter().all(|pad| Load::FIELDS.x_pad_1.fits(pad + 1));
        let vectors = shape.bias == 0 && shape.regions > 0;
        let anew = shape.residual != ResidualBy::Load && !vectors;
        possible.then(|| ConvShape {
            window_rows: (self.config.block() / across).clamp(1, most.min(window.kernel[0])),
            anew: anew && (shape.bias == 0 || self.has(Extension::Overwrite)),
            pad_value: parts.pad_value,
            ..*shape
        })
    }

    /// The convolution with the input's zero point as padding, so that no output lacks a tap, if the machine can do so.
    pub(super) fn padded<'g>(&self, parts: &Parts<'g>) -> Option<Parts<'g>> {
        let zero = i8::try_from(self.graph.tensors[parts.input.0].zero).ok()?;
        let able = self.has(Extension::Depthwise) && self.has(Extension::Pad);
        let [_, height, _] = self.tile_chw(parts.input);
        (able && zero != 0 && Load::PADDED_ROWS.fits(height)).then(|| Parts {
            pad_value: zero,
            regions: Vec::new(),
            ..*parts
        })
    }

    /// A window that is all of its input has other rows where a row of weights is more than the scratchpads hold:
    /// inputs and weights lie in memory one behind the other, so any rows of equal length are as good.
    fn refolded(&self, shape: ConvShape) -> ConvShape {
        let depths = [MemType::Wgt, MemType::Inp, MemType::Uop].map(|of| self.config.depth(of));
        let most = depths.into_iter().min().unwrap_or(0) / 2 / shape.weight_parts;
        if shape.window != Window::whole(shape.input) || shape.window.kernel[1] <= most {
            return shape;
        }
        let positions = shape.window.area();
        let columns = (1..=most.max(1))
            .rev()
            .find(|n| positions.is_multiple_of(*n));
        let sides = columns.map_or(shape.input, |columns| [positions / columns, columns]);
        ConvShape {
            input: sides,
            window: Window::whole(sides),
            ..shape
        }
    }

    /// The convolution in blocks; gathered patches make it a 1x1 convolution.
    fn conv_shape(
        &self,
        parts: &Parts<'_>,
        bias: usize,
        product: Option<&Division>,
        epilogue: &[LaneOp],
    ) -> Result<ConvShape, LowerError> {
        let ([ci, h, w], [co, oh, ow]) = (self.tile_chw(parts.input), self.tile_chw(parts.output));
        let window = parts.window;
        let residual = match product {
            Some(plan) => ResidualBy::Product {
                steps: plan.steps() as u32,
                uniform: plan.uniform(),
            },
            None if parts.residual.is_some() => ResidualBy::Load,
            None if parts.store.is_some_and(|store| store.residual.is_some()) => ResidualBy::Store,
            None => ResidualBy::None,
        };
        let ops = || parts.prologue(product).iter().chain(epilogue);
        let places = parts.regions.len();
        let area = |region: &Region| region.places.iter().map(Range::len).product::<usize>();
        let plain = match places {
            0 => 0,
            _ => oh * ow - parts.regions.iter().map(area).sum::<usize>(),
        };
        // Of several regions each is a vector, and each output adds one, unless it starts as a copy of it.
        let (by_place, added) = match bias {
            0 => (
                places,
                usize::from(places > 0 && !self.copies(residual, plain)),
            ),
            _ => (0, 0),
        };
        let vectors = count_vectors(ops());
        let products = bias + product.map_or(0, Division::steps);
        let [input, output] = parts.channels;
        let groups = Groups::new(parts.group, [output, input], self.config.block());
        let base = ConvShape {
            ci: groups.map_or(ci, |g| g.span()),
            co,
            input: [h, w],
            output: [oh, ow],
            window: *window,
            alu_steps: ops().count() + vectors + products + 2 * added,
            vectors: vectors + by_place,
            entry: parts.store.map_or(0, QStore::entry_tiles),
            residual,
            bias,
            pool: parts.pool.map(|p| p.window.stride),
            groups,
            regions: places,
            plain,
            weight_parts: parts.weight_parts(),
            ones: parts.ones,
            anew: false,
            window_rows: 0,
            pad_value: 0,
            wgt4: self.has(Extension::Wgt4) && !parts.ones && int4(parts.weights),
        };
        let digits_first = bias > 0 && plain == 0 && (parts.pool.is_none() || places > 0);
        let anew = self.has(Extension::Overwrite) && residual != ResidualBy::Load && by_place == 0;
        let spec = &self.program.tensors[parts.input.0];
        match spec.packing {
            Packing::Tiles => {
                let shape = self.refolded(base);
                let anew = anew && (digits_first || shape.has_inner_tap());
                Ok(ConvShape { anew, ..shape })
            }
            Packing::Im2col { .. } => {
                let dims = spec.packed_dims(self.config);
                let fault = || Fault::Internal("its patches don't fit its input".to_owned());
                let (ci, ..) = dims.ok_or_else(|| fault().of(parts.name))?;
                Ok(ConvShape {
                    ci,
                    input: [oh, ow],
                    window: Window::whole([1, 1]),
                    anew,
                    ..base
                })
            }
        }
    }
}

/// Whether weights fit 4 bits.
fn int4(weights: &[i8]) -> bool {
    weights.iter().all(|weight| (-8..8).contains(weight))
}
