//! A flat image where it lies: every number is checked before it is used.
//!
//! Little-endian; offsets are bytes from the image's start. docs/bare-metal.md has the tables.

use core::ffi::CStr;

use crate::checksum::crc32;
use crate::insn::{Insn, Regions, WORK_AT};
use crate::isa::INSN_BYTES;
use crate::stats::BatchStats;
use crate::{Fault, Status};

pub(crate) const MAGIC: &[u8; 8] = b"VTAFLAT\n";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: u32 = 128;
pub(crate) const BATCH_BYTES: u32 = 56;
pub(crate) const TENSOR_BYTES: u32 = 72;
/// Of BATCH and BLOCK: far beyond what exists, and products of two fit easily.
const MAX_LOG: u32 = 8;

/// How values of a tensor lie in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Tile by tile: `[C/BLOCK][H][W][BATCH][BLOCK]`.
    Tiles,
    /// Patches of a convolution, which are gathered when the input is given.
    Patches {
        /// Rows, columns.
        kernel: [u32; 2],
        /// Rows, columns.
        stride: [u32; 2],
        /// Rows, columns.
        dilation: [u32; 2],
        /// Above, to the left.
        pads: [u32; 2],
    },
}

/// An input or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor<'i> {
    /// The model's name for it.
    pub name: &'i CStr,
    /// First byte among the network's buffers.
    pub(crate) offset: u32,
    /// Bytes there.
    pub(crate) bytes: u32,
    /// Channels, rows, columns.
    pub chw: [u32; 3],
    /// Bits of the f32 `scale`: `real = scale * (value - zero)`.
    pub scale_bits: u32,
    /// The value that stands for a real 0.
    pub zero: i8,
    /// How it lies in the window.
    pub packing: Packing,
    /// Rows and columns of tiles.
    pub(crate) positions: [u32; 2],
    /// Columns of values in all blocks, those beyond the last channel not counted.
    pub(crate) columns: u32,
}

impl Tensor<'_> {
    /// Values of one row of the batch: `C * H * W`.
    pub fn len(&self) -> u32 {
        // Checked when it was read.
        self.chw.iter().fold(1, |n, &d| n.wrapping_mul(d))
    }

    /// Never: a tensor has values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Instructions that are submitted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'i> {
    /// The first of its layers.
    pub name: &'i CStr,
    /// The first of its instructions.
    pub(crate) first_insn: u32,
    /// What one run of it takes; `runs`, `cycles` and `ticks` are zero.
    pub stats: BatchStats,
}

/// A flat image that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Image<'i> {
    bytes: &'i [u8],
    /// log2 of BATCH and of BLOCK.
    pub(crate) log_batch: u32,
    pub(crate) log_block: u32,
    /// What addresses must be multiples of.
    pub(crate) align: u32,
    pub(crate) constants_at: u32,
    pub(crate) constants: u32,
    /// Bytes of the network's buffers.
    pub(crate) work: u32,
    pub(crate) insns_at: u32,
    pub(crate) insns: u32,
    batches_at: u32,
    pub(crate) batches: u32,
    tensors_at: u32,
    pub(crate) inputs: u32,
    pub(crate) outputs: u32,
    names_at: u32,
    names: u32,
}

impl<'i> Image<'i> {
    /// Reads and checks an image: header, checksums, tables, names, tensors and all instructions.
    /// Bytes behind its end are none of it.
    ///
    /// # Errors
    /// [`Status::ImageCut`], [`Status::ImageMagic`], [`Status::ImageVersion`],
    /// [`Status::ImageChecksum`], [`Status::ImageFormat`], [`Status::ImageInsn`].
    pub fn read(bytes: &'i [u8]) -> Result<Self, Fault> {
        let given = bytes.len() as u64;
        let cut = |needed: u32| Fault::of(Status::ImageCut, 0, given, needed.into());
        let magic = bytes.iter().zip(MAGIC).all(|(a, b)| a == b);
        Fault::of(Status::ImageMagic, 0, 0, 0).unless(magic)?;
        cut(HEADER_BYTES).unless(given >= HEADER_BYTES.into())?;
        let mut head = [0; HEADER_BYTES as usize / 4];
        for (at, field) in (0..).step_by(4).zip(&mut head) {
            *field = word(bytes, at);
        }
        let version = Fault::of(Status::ImageVersion, 8, head[2].into(), VERSION.into());
        version.unless(head[2] == VERSION)?;
        let size = head[5];
        let bytes = bytes.get(..size as usize).ok_or(cut(size))?;
        let image = Self {
            bytes,
            log_batch: head[16],
            log_block: head[17],
            align: head[18],
            constants_at: head[6],
            constants: head[7],
            work: head[8],
            insns_at: head[9],
            insns: head[10],
            batches_at: head[11],
            batches: head[12],
            tensors_at: head[13],
            inputs: head[14],
            outputs: head[15],
            names_at: head[19],
            names: head[20],
        };
        image.check(size, head[3], head[4])?;
        Ok(image)
    }

    fn check(&self, size: u32, head_crc: u32, constants_crc: u32) -> Result<(), Fault> {
        section(24, self.constants_at, self.constants.into(), size.into())?;
        at_most(24, HEADER_BYTES, self.constants_at)?;
        self.checksum(16, self.constants_at, head_crc)?;
        self.checksum(self.constants_at, size, constants_crc)?;
        at_most(64, self.log_batch, MAX_LOG)?;
        at_most(68, self.log_block, MAX_LOG)?;
        let least = 64.max(1 << (2 * self.log_block));
        let wanted = least.max(4 << (self.log_batch + self.log_block));
        Fault::field(72, self.align.into(), wanted.into()).unless(self.align == wanted)?;
        at_most(32, self.work, WORK_AT - 1)?;
        at_most(28, self.constants, WORK_AT - 1)?;
        at_most(40, self.insns, WORK_AT / INSN_BYTES)?;
        for (field, at, unit) in [
            (24, self.constants_at, self.align),
            (36, self.insns_at, INSN_BYTES),
        ] {
            Fault::field(field, at.into(), unit.into()).unless(at & (unit - 1) == 0)?;
        }
        let head = u64::from(self.constants_at);
        let tensors = u64::from(self.inputs) + u64::from(self.outputs);
        let table = |count: u64, bytes: u32| count * u64::from(bytes);
        section(
            36,
            self.insns_at,
            table(self.insns.into(), INSN_BYTES),
            head,
        )?;
        let batches = table(self.batches.into(), BATCH_BYTES);
        section(44, self.batches_at, batches, head)?;
        section(52, self.tensors_at, table(tensors, TENSOR_BYTES), head)?;
        section(76, self.names_at, self.names.into(), head)?;
        (0..self.inputs + self.outputs).try_for_each(|index| self.tensor_at(index).map(|_| ()))?;
        self.check_batches()
    }

    fn checksum(&self, from: u32, to: u32, said: u32) -> Result<(), Fault> {
        let bytes = self.bytes.get(from as usize..to as usize);
        let found = crc32(bytes.unwrap_or_default());
        let fault = Fault::of(Status::ImageChecksum, from, found.into(), said.into());
        fault.unless(found == said)
    }

    /// Batches lie one behind the other; FINISH ends each and stands nowhere else.
    fn check_batches(&self) -> Result<(), Fault> {
        let regions = self.regions();
        let mut next = 0u32;
        for index in 0..self.batches {
            let batch = self.batch(index)?;
            let at = self.batches_at + index * BATCH_BYTES;
            let count = batch.stats.insns;
            if batch.first_insn != next || count == 0 || count > self.insns - next {
                return Err(Fault::field(at, batch.first_insn.into(), next.into()));
            }
            for insn in next..next + count {
                let last = insn + 1 == next + count;
                let fault = Fault::of(Status::ImageInsn, insn, 0, 0);
                let found = self.insn(insn);
                if !found.fits(&regions) || found.is_finish() != last {
                    return Err(fault);
                }
            }
            next += count;
        }
        Fault::field(40, self.insns.into(), next.into()).unless(next == self.insns)
    }

    /// What instructions may touch.
    pub(crate) fn regions(&self) -> Regions {
        Regions {
            log_batch: self.log_batch,
            log_block: self.log_block,
            constants: self.constants,
            work: self.work,
        }
    }

    /// An instruction of the table.
    pub(crate) fn insn(&self, index: u32) -> Insn {
        let at = self.insns_at + index * INSN_BYTES;
        Insn([self.long(at), self.long(at + 8)])
    }

    /// An input, or an output behind the inputs.
    pub(crate) fn tensor_at(&self, index: u32) -> Result<Tensor<'i>, Fault> {
        below(index, self.inputs.saturating_add(self.outputs))?;
        let at = self.tensors_at + index * TENSOR_BYTES;
        let words = |from: u32| [self.word(at + from), self.word(at + from + 4)];
        let chw = [12, 16, 20].map(|from| self.word(at + from));
        let form = self.word(at + 28);
        let (kernel, stride, dilation) = (words(32), words(40), words(48));
        let (pads, far) = (words(56), words(64));
        let packing = match form >> 8 {
            0 => Packing::Tiles,
            1 => Packing::Patches {
                kernel,
                stride,
                dilation,
                pads,
            },
            _ => return Err(Fault::field(at + 28, form.into(), 0x1ff)),
        };
        let mut tensor = Tensor {
            name: self.name(at, self.word(at))?,
            offset: self.word(at + 4),
            bytes: self.word(at + 8),
            chw,
            scale_bits: self.word(at + 24),
            zero: form as i8,
            packing,
            positions: [chw[1], chw[2]],
            columns: chw[0],
        };
        let bad = Fault::field(at + 12, self.word(at + 8).into(), self.work.into());
        tensor.measure(far).ok_or(bad)?;
        let bytes = tensor.packed(self.log_batch, self.log_block).ok_or(bad)?;
        let end = u64::from(tensor.offset) + u64::from(bytes);
        let inside = bytes == tensor.bytes && end <= self.work.into();
        if inside && (index < self.inputs || packing == Packing::Tiles) {
            Ok(tensor)
        } else {
            Err(bad)
        }
    }

    /// A batch.
    ///
    /// # Errors
    /// [`Status::Index`] beyond the last.
    pub fn batch(&self, index: u32) -> Result<Batch<'i>, Fault> {
        below(index, self.batches)?;
        let at = self.batches_at + index * BATCH_BYTES;
        let long = |from: u32| self.long(at + from);
        Ok(Batch {
            name: self.name(at + 8, self.word(at + 8))?,
            first_insn: self.word(at),
            stats: BatchStats {
                insns: self.word(at + 4),
                layers: self.word(at + 12),
                loaded_bytes: long(16),
                stored_bytes: long(24),
                gemm_steps: long(32),
                alu_steps: long(40),
                macs: long(48),
                ..BatchStats::default()
            },
        })
    }

    /// Batches of one pass.
    pub fn batches(&self) -> u32 {
        self.batches
    }

    /// The bytes of the constants.
    pub(crate) fn constant_bytes(&self) -> &'i [u8] {
        let bytes = self.bytes.get(self.constants_at as usize..);
        let bytes = bytes.and_then(|b| b.get(..self.constants as usize));
        bytes.unwrap_or_default()
    }

    /// The text up to the zero behind it; the field at `field` names it.
    fn name(&self, field: u32, offset: u32) -> Result<&'i CStr, Fault> {
        let bad = Fault::field(field, offset.into(), self.names.into());
        let names = self.bytes.get(self.names_at as usize..);
        let names = names.and_then(|b| b.get(..self.names as usize));
        let text = names.and_then(|b| b.get(offset as usize..)).ok_or(bad)?;
        CStr::from_bytes_until_nul(text).map_err(|_| bad)
    }

    fn word(&self, at: u32) -> u32 {
        word(self.bytes, at)
    }

    fn long(&self, at: u32) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }
}

impl Tensor<'_> {
    /// Works out positions and columns; `None` for what can't be.
    fn measure(&mut self, far: [u32; 2]) -> Option<()> {
        let [c, h, w] = self.chw;
        c.checked_mul(h)?.checked_mul(w).filter(|&n| n > 0)?;
        let Packing::Patches {
            kernel,
            stride,
            dilation,
            pads,
        } = self.packing
        else {
            return Some(());
        };
        self.columns = c.checked_mul(kernel[0])?.checked_mul(kernel[1])?;
        let axis = |size: u32, near: u32, far: u32, k: u32, s: u32, d: u32| {
            let padded = size.checked_add(near)?.checked_add(far)?;
            let span = k.checked_sub(1)?.checked_mul(d)?.checked_add(1)?;
            // Coordinates are compared as i32.
            let room = padded.min(i32::MAX as u32).checked_sub(span)?;
            (padded <= i32::MAX as u32).then_some(())?;
            room.checked_div(s)?.checked_add(1)
        };
        self.positions = [
            axis(h, pads[0], far[0], kernel[0], stride[0], dilation[0])?,
            axis(w, pads[1], far[1], kernel[1], stride[1], dilation[1])?,
        ];
        Some(())
    }

    /// Bytes of all its tiles.
    fn packed(&self, log_batch: u32, log_block: u32) -> Option<u32> {
        let [rows, columns] = self.positions;
        let blocks = self.columns.checked_add((1 << log_block) - 1)? >> log_block;
        let tiles = blocks.checked_mul(rows)?.checked_mul(columns)?;
        tiles.checked_mul(1 << (log_batch + log_block))
    }
}

/// Four bytes, kept out of line because there are dozens; zero beyond the end, which no checked offset is.
#[inline(never)]
fn word(bytes: &[u8], at: u32) -> u32 {
    let bytes = bytes.get(at as usize..).and_then(|b| b.first_chunk());
    bytes.map_or(0, |&b| u32::from_le_bytes(b))
}

/// The next multiple of a power of two, of a number far from the last.
pub(crate) fn round_up(value: u32, unit: u32) -> u32 {
    value.wrapping_add(unit - 1) & !(unit - 1)
}

pub(crate) fn below(index: u32, count: u32) -> Result<(), Fault> {
    Fault::of(Status::Index, 0, index.into(), count.into()).unless(index < count)
}

fn section(field: u32, at: u32, bytes: u64, limit: u64) -> Result<(), Fault> {
    let end = u64::from(at).saturating_add(bytes);
    Fault::field(field, end, limit).unless(end <= limit)
}

fn at_most(field: u32, value: u32, limit: u32) -> Result<(), Fault> {
    Fault::field(field, value.into(), limit.into()).unless(value <= limit)
}
