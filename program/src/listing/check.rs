//! What listings of others must have before anybody relies on it.

use vta_isa::MemType;

use super::geometry::{Geometry, LayerForm, ResidualBy, Role, WindowGeometry};
use super::model::{BufferUse, ListedBuffer, Listing};
use vta_files::printable;

/// The bytes that addresses reach.
const MAX_DRAM: u64 = 1 << 32;

/// Indices and places that everybody relies on later.
pub(super) fn check(listing: &Listing) -> Result<(), String> {
    let config = &listing.config;
    let tile = config.elem_bytes(MemType::Inp) as u64;
    for (index, buffer) in listing.buffers.iter().enumerate() {
        let end = buffer.start.checked_add(buffer.bytes);
        let aligned = MemType::ALL.iter();
        let mut aligned =
            aligned.map(|&mem| buffer.start.is_multiple_of(config.elem_bytes(mem) as u64));
        if end.is_none_or(|end| end > MAX_DRAM) || !aligned.all(|yes| yes) {
            return Err(format!(
                "buffer {index} starts or ends where no element does"
            ));
        }
    }
    for (index, tensor) in listing.tensors.iter().enumerate() {
        let buffer = listing.buffers.get(tensor.buffer as usize);
        let buffer = buffer.ok_or_else(|| format!("tensor {index} has no buffer"))?;
        let sizes = tensor.tiles.iter();
        let bytes = sizes.fold(u128::from(tile), |n, &size| n.saturating_mul(size.into()));
        let end = bytes + u128::from(tensor.start);
        let inside = tensor.start >= buffer.start && end <= u128::from(buffer.start + buffer.bytes);
        if !inside || !tensor.start.is_multiple_of(tile) || buffer.kind == BufferUse::Constant {
            return Err(format!("tensor {index} doesn't lie in its buffer"));
        }
    }
    let mut order: Vec<&ListedBuffer> = listing.buffers.iter().collect();
    order.sort_by_key(|buffer| buffer.start);
    // Ends of all before, and of those that share with nobody.
    let (mut all, mut alone) = (0, 0);
    for buffer in order.iter().filter(|buffer| buffer.bytes > 0) {
        let shares = buffer.kind == BufferUse::Scratch;
        let end = buffer.start + buffer.bytes;
        if buffer.start < if shares { alone } else { all } {
            let name = printable(&buffer.name);
            return Err(format!("buffer {name} shares bytes with another"));
        }
        all = all.max(end);
        if !shares {
            alone = alone.max(end);
        }
    }
    let layers = listing.layers.iter();
    let all = layers.flat_map(|layer| layer.geometry.all().map(move |geometry| (layer, geometry)));
    for (layer, geometry) in all {
        let name = || printable(&layer.name).into_owned();
        let tensors = || geometry.inputs.iter().chain([&geometry.output]);
        if tensors().any(|&tensor| tensor as usize >= listing.tensors.len()) {
            return Err(format!("layer {}: a tensor is missing", name()));
        }
        let constant = |&(_, buffer): &(Role, u32)| {
            let buffer = listing.buffers.get(buffer as usize);
            buffer.is_some_and(|b| b.kind == BufferUse::Constant)
        };
        if !geometry.constants.iter().all(constant) {
            return Err(format!("layer {}: a constant is missing", name()));
        }
        geometry
            .check(listing)
            .map_err(|what| format!("layer {}: {what}", name()))?;
    }
    Ok(())
}

/// The most terms that an output tile may be made of.
const MAX_TERMS: u128 = 1 << 22;
/// The most elements that a layer's weights may have.
const MAX_WEIGHTS: u128 = 1 << 32;

impl Geometry {
    /// Sizes that a proof multiplies and divides by.
    fn check(&self, listing: &Listing) -> Result<(), String> {
        let product = |sizes: &[u32]| {
            sizes
                .iter()
                .fold(1u128, |n, &size| n.saturating_mul(size.into()))
        };
        let tensor = |at: u32| &listing.tensors[at as usize];
        let output = tensor(self.output);
        let Some(&first) = self.inputs.first() else {
            return Err("it reads nothing".to_owned());
        };
        let window = |window: &WindowGeometry| {
            let steps = window.stride.iter().chain(&window.kernel);
            if steps.clone().all(|&size| size > 0) && product(&window.kernel) <= MAX_TERMS {
                Ok(product(&window.kernel))
            } else {
                Err("its window has no or too many taps, or doesn't step".to_owned())
            }
        };
        let terms = match &self.form {
            LayerForm::Elementwise => 1,
            LayerForm::Pool(pool) => window(pool)?,
            LayerForm::Conv(conv) => {
                let taps = window(&conv.window)?;
                let pooled = conv.pool.as_ref().map_or(Ok(1), window)?;
                let (ci, co) = (tensor(first).channels, output.channels);
                let divides = conv.group > 0
                    && ci.is_multiple_of(conv.group)
                    && co.is_multiple_of(conv.group);
                if !divides || ci == 0 || co == 0 || conv.parts == 0 {
                    return Err("its channels don't divide into its groups".to_owned());
                }
                let [blocks, ..] = tensor(first).tiles;
                let each = taps * product(&[blocks, conv.parts]);
                if each.saturating_mul(product(&[output.tiles[0]])) > MAX_WEIGHTS {
                    return Err("it has too many weights".to_owned());
                }
                if conv.residual != ResidualBy::None && self.inputs.len() < 2 {
                    return Err("its residual is missing".to_owned());
                }
                each.saturating_mul(pooled)
            }
            LayerForm::Channels(channels) => {
                let phases = product(&channels.up);
                let lanes = phases.saturating_mul(output.channels.into());
                if phases == 0 || lanes != channels.map.len() as u128 {
                    return Err("its map has another size".to_owned());
                }
                let inputs = self.inputs.len();
                let mut taken = channels.map.iter().flatten();
                if !taken.all(|[input, _]| (*input as usize) < inputs) {
                    return Err("it takes channels of an input that it doesn't have".to_owned());
                }
                1
            }
        };
        if terms <= MAX_TERMS {
            Ok(())
        } else {
            Err("its outputs are made of too much".to_owned())
        }
    }
}
