//! Between values in C, H, W order and tiles in the window.

use core::num::NonZeroU32;

use crate::image::{Packing, Tensor};
use crate::{Board, Fault, Status};

/// Values of a tile that are put together.
const PIECE: usize = 16;

/// Where the rows of a batch lie in tiles.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    pub(crate) log_batch: u32,
    pub(crate) log_block: u32,
    /// The row of the batch.
    pub(crate) row: u32,
}

/// Where a value of a patch comes from, relative to the patch's first.
#[derive(Clone, Copy, Default)]
struct Tap {
    /// First value of the channel; none beyond the last column.
    plane: Option<u32>,
    y: u32,
    x: u32,
}

impl Tiles {
    /// The offset of value 0 of this row in the tile at a block and position.
    fn tile(self, tensor: &Tensor<'_>, block: u32, position: u32) -> u32 {
        let [rows, columns] = tensor.positions;
        let tile = block * rows * columns + position;
        tensor.offset + (((tile << self.log_batch) + self.row) << self.log_block)
    }

    /// Puts a row's values, zeros behind the last column, into the window.
    pub(crate) fn pack<B: Board>(
        self,
        tensor: &Tensor<'_>,
        values: &[i8],
        board: &mut B,
    ) -> Result<(), Fault> {
        length(tensor, values.len())?;
        let [rows, columns] = tensor.positions;
        let block = 1u32 << self.log_block;
        let mut first = 0;
        // To the end of the last block.
        while first < tensor.columns.wrapping_add(block - 1) & !(block - 1) {
            let piece = (block as usize).min(PIECE);
            let mut taps = [Tap::default(); PIECE];
            for (column, tap) in (first..).zip(&mut taps) {
                *tap = tensor.tap(column);
            }
            for row in 0..rows {
                for column in 0..columns {
                    let mut bytes = [0; PIECE];
                    for (byte, tap) in bytes.iter_mut().zip(&taps) {
                        *byte = tensor.value(values, tap, row, column) as u8;
                    }
                    let position = row * columns + column;
                    let at = self.tile(tensor, first >> self.log_block, position);
                    let bytes = bytes.get(..piece).unwrap_or_default();
                    board.put(at + (first & (block - 1)), bytes);
                }
            }
            first += piece as u32;
        }
        Ok(())
    }

    /// Takes a row's values out of the window.
    pub(crate) fn unpack<B: Board>(
        self,
        tensor: &Tensor<'_>,
        values: &mut [i8],
        board: &mut B,
    ) -> Result<(), Fault> {
        length(tensor, values.len())?;
        let [rows, columns] = tensor.positions;
        let mut values = values.iter_mut();
        for channel in 0..tensor.columns {
            let lane = channel & ((1 << self.log_block) - 1);
            for (position, value) in (0..rows * columns).zip(&mut values) {
                let tile = self.tile(tensor, channel >> self.log_block, position);
                *value = board.get(tile + lane) as i8;
            }
        }
        Ok(())
    }
}

fn length(tensor: &Tensor<'_>, given: usize) -> Result<(), Fault> {
    let (given, wanted) = (given as u64, tensor.len().into());
    Fault::of(Status::Length, 0, given, wanted).unless(given == wanted)
}

impl Tensor<'_> {
    /// Where a column of the packed tensor comes from.
    fn tap(&self, column: u32) -> Tap {
        if column >= self.columns {
            return Tap::default();
        }
        let [_, height, width] = self.chw;
        let Packing::Patches {
            kernel, dilation, ..
        } = self.packing
        else {
            return Tap {
                plane: Some(column * height * width),
                y: 0,
                x: 0,
            };
        };
        let [kh, kw] = kernel.map(NonZeroU32::new);
        // The tensor has columns.
        let (Some(kh), Some(kw)) = (kh, kw) else {
            return Tap::default();
        };
        let (channel, y, x) = (column / kw / kh, column / kw % kh, column % kw);
        Tap {
            plane: Some(channel * height * width),
            y: y * dilation[0],
            x: x * dilation[1],
        }
    }

    /// The value of a tap at a position.
    fn value(&self, values: &[i8], tap: &Tap, row: u32, column: u32) -> i8 {
        let Some(plane) = tap.plane else {
            return 0;
        };
        let (mut y, mut x) = (row, column);
        if let Packing::Patches { stride, pads, .. } = self.packing {
            // Padding above and to the left wraps to what lies beyond the last.
            y = (row * stride[0] + tap.y).wrapping_sub(pads[0]);
            x = (column * stride[1] + tap.x).wrapping_sub(pads[1]);
        }
        let [_, height, width] = self.chw;
        if y >= height || x >= width {
            return self.zero;
        }
        let value = values.get((plane + y * width + x) as usize);
        value.copied().unwrap_or_default()
    }
}
