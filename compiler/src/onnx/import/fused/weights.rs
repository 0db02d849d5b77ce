//! Weights in few bits.

use super::super::state::{Arguments, Import};
use crate::graph::Data;
use crate::onnx::proto::Node;
use crate::onnx::{OnnxError, elements};

/// The largest number of weights that one node may hold.
const MAX_WEIGHTS: usize = 1 << 26;

/// Weights of `k` rows and `n` columns, each column in blocks of rows that have a scale and a zero point.
struct Packed<'d> {
    bits: usize,
    block: usize,
    size: [usize; 2],
    bytes: &'d [u8],
    scales: &'d [f32],
    zeros: Option<&'d Data>,
}

impl Import<'_> {
    /// The weights of a MatMulNBits as a matrix of floats, by its name; `None` where it isn't one of constants in 4 or
    /// 8 bits.
    ///
    /// # Errors
    /// More elements than a tensor may have.
    pub(super) fn unpacked(
        &mut self,
        node: &Node,
        arguments: &Arguments,
    ) -> Result<Option<String>, OnnxError> {
        let int = |name: &str| node.find(name).and_then(|a| usize::try_from(a.i).ok());
        let given = |at: usize| arguments.get(at).copied().flatten();
        let data = |at: usize| self.graph.values[given(at)?.0].data.as_ref();
        let (Some(k), Some(n), Some(block)) = (int("K"), int("N"), int("block_size")) else {
            return Ok(None);
        };
        let (Some(Data::U8(bytes)), Some(Data::F32(scales))) = (data(1), data(2)) else {
            return Ok(None);
        };
        // A list of groups puts the blocks in another order.
        if given(4).is_some() || given(3).is_some() && data(3).is_none() {
            return Ok(None);
        }
        let packed = Packed {
            bits: int("bits").unwrap_or(4),
            block,
            size: [k, n],
            bytes,
            scales,
            zeros: data(3),
        };
        let Some(weights) = packed.matrix() else {
            return Ok(None);
        };
        let name = format!("{}/weights", node.output.first().map_or("", String::as_str));
        elements(&name, &[k, n])?;
        let data = Data::F32(weights);
        self.budget.add_constant(&data);
        self.define(&name, vec![k, n], Some(data))?;
        Ok(Some(name))
    }
}

impl Packed<'_> {
    /// A number of some bits among bytes, the lowest first.
    fn digit(&self, bytes: &[u8], at: usize) -> Option<u8> {
        match self.bits {
            4 => bytes.get(at / 2).map(|b| (b >> (4 * (at % 2))) & 15),
            _ => bytes.get(at).copied(),
        }
    }

    /// The zero point of a block of a column.
    fn zero(&self, column: usize, at: usize, blocks: usize) -> Option<f32> {
        match self.zeros {
            None => Some(f32::from(1u8 << (self.bits - 1))),
            Some(Data::U8(zeros)) => {
                let each = (blocks * self.bits).div_ceil(8);
                let own = zeros.get(column * each..(column + 1) * each)?;
                self.digit(own, at).map(f32::from)
            }
            Some(Data::F32(zeros)) => zeros.get(column * blocks + at).copied(),
            Some(_) => None,
        }
    }

    fn matrix(&self) -> Option<Vec<f32>> {
        let ([k, n], block) = (self.size, self.block);
        let count = k
            .checked_mul(n)
            .filter(|count| (1..=MAX_WEIGHTS).contains(count))?;
        if !matches!(self.bits, 4 | 8) || !(16..=MAX_WEIGHTS).contains(&block) {
            return None;
        }
        let blocks = k.div_ceil(block);
        let blob = block * self.bits / 8;
        if self.scales.len() != n * blocks || self.bytes.len() != (n * blocks).checked_mul(blob)? {
            return None;
        }
        let mut weights = vec![0f32; count];
        for column in 0..n {
            for at in 0..blocks {
                let zero = self.zero(column, at, blocks)?;
                let own = self
                    .bytes
                    .get((column * blocks + at) * blob..)?
                    .get(..blob)?;
                let scale = self.scales[column * blocks + at];
                for row in at * block..k.min((at + 1) * block) {
                    let value = f32::from(self.digit(own, row - at * block)?);
                    weights[row * n + column] = (value - zero) * scale;
                }
            }
        }
        Some(weights)
    }
}
