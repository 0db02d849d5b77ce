//! The four scratchpads as flat memory.

use std::ops::Range;

use vta_isa::{Config, MemType, Uop};

use crate::kernels::direct::{DotRows, Dots, Tap, Tiles, filled};
use crate::kernels::product::staging::{self, Staging};
use crate::kernels::{GemmKernel, lanes};
use crate::oracle::Machine;

/// Bytes of a piece of a row: a tile's, mostly.
const PIECE: usize = 16;
/// Pieces of a row that are copied one by one at most.
const MOST_PIECES: usize = 8;

/// Parts of the scratchpads, in int32 and bytes.
#[derive(Debug, Default)]
pub(crate) struct PadParts {
    pub acc: Vec<Range<usize>>,
    pub inp: Vec<Range<usize>>,
}

/// Scratchpad contents; inputs and weights are int8.
pub(crate) struct Scratchpads {
    pub kernel: GemmKernel,
    pub lanes: usize,
    pub block: usize,
    pub batch: usize,
    pub uop: Vec<Uop>,
    pub inp: Vec<u8>,
    pub wgt: Vec<u8>,
    pub acc: Vec<i32>,
    /// BLOCK zeros.
    pub zeros: Vec<u8>,
    /// Weight tiles as the kernel wants them.
    pub tiles: Tiles,
    /// Copies of inputs for the kernel.
    pub staging: Staging,
    /// Whether plans have kernels that can read such copies.
    pub staged_inputs: bool,
}

impl Scratchpads {
    /// Adds the products of a micro-op, of tiles as they lie here; rows and taps count from its own.
    pub fn add_plain(&mut self, kernel: GemmKernel, rows: &DotRows, taps: &[Tap], uop: Uop) {
        let (lanes, block) = (self.lanes, self.block);
        let dots = Dots {
            rows,
            taps,
            second: None,
            block,
            wgt: &self.wgt[usize::from(uop.wgt) * block * block..],
            tiles: &self.tiles,
        };
        let inp = &self.inp[usize::from(uop.src) * lanes..];
        let acc = &mut self.acc[usize::from(uop.dst) * lanes..];
        kernel.add_plain(&dots, inp, acc);
    }

    /// All zero, and all in memory.
    pub fn new(config: &Config, kernel: GemmKernel) -> Self {
        let (lanes, block) = (config.lanes(), config.block());
        let weight_bytes = config.depth(MemType::Wgt) * block * block;
        let mut tiles = Tiles::new(kernel, block);
        tiles.reserve(weight_bytes);
        Self {
            kernel,
            lanes,
            block,
            batch: config.batch(),
            uop: filled(Uop::default(), config.depth(MemType::Uop)),
            inp: filled(0, config.depth(MemType::Inp) * lanes),
            wgt: filled(0, weight_bytes),
            acc: filled(0, config.depth(MemType::Acc) * lanes),
            zeros: vec![0; block],
            tiles,
            staging: Staging::default(),
            staged_inputs: staging::gains(),
        }
    }

    /// Input and accumulator tiles of the same size, zeroed, and nothing else.
    pub fn own_tiles(&self) -> Self {
        Self {
            uop: Vec::new(),
            // Not `filled`: a thread touches few of these tiles, and others need no memory.
            inp: vec![0; self.inp.len()],
            wgt: Vec::new(),
            acc: vec![0; self.acc.len()],
            zeros: self.zeros.clone(),
            tiles: Tiles::new(self.kernel, self.block),
            staging: Staging::default(),
            ..*self
        }
    }

    /// Copies parts of another's input and accumulator tiles.
    pub fn copy_tiles(&mut self, from: &Self, places: &PadParts) {
        for range in &places.acc {
            self.acc[range.clone()].copy_from_slice(&from.acc[range.clone()]);
        }
        for range in &places.inp {
            self.inp[range.clone()].copy_from_slice(&from.inp[range.clone()]);
        }
    }

    /// What the oracle runs an instruction on. It knows of no laid out tiles: those that it loads must be forgotten.
    pub fn machine<'a>(&'a mut self, config: &'a Config) -> Machine<'a> {
        Machine {
            config,
            uop: &mut self.uop,
            inp: &mut self.inp,
            wgt: &mut self.wgt,
            acc: &mut self.acc,
        }
    }

    /// Bytes of a weight tile.
    pub fn weight_tile_bytes(&self) -> usize {
        self.block * self.block
    }

    /// Zeroes `tiles` consecutive elements, which exist, or makes inputs another value.
    pub fn clear(&mut self, (mem, value): (MemType, i8), first: usize, tiles: usize) {
        if tiles == 0 {
            return;
        }
        let range = |size: usize| first * size..(first + tiles) * size;
        match mem {
            MemType::Uop => self.uop[range(1)].fill(Uop::default()),
            MemType::Inp => self.inp[range(self.lanes)].fill(value as u8),
            MemType::Wgt | MemType::Wgt4 => {
                let range = range(self.weight_tile_bytes());
                self.wgt[range].fill(0);
                self.tiles.forget(first..first + tiles);
            }
            MemType::Acc | MemType::Acc8 | MemType::Out => self.acc[range(self.lanes)].fill(0),
        }
    }

    /// Writes a row of DRAM elements from element `first` on; there is room for all of it.
    pub fn fill(&mut self, mem: MemType, first: usize, row: &[u8]) {
        match mem {
            MemType::Uop => {
                let (words, _) = row.as_chunks::<4>();
                for (to, from) in self.uop[first..].iter_mut().zip(words) {
                    *to = Uop::decode(u32::from_le_bytes(*from));
                }
            }
            MemType::Inp => {
                let at = first * self.lanes;
                copy(&mut self.inp[at..at + row.len()], row);
            }
            MemType::Wgt => {
                let size = self.weight_tile_bytes();
                let at = first * size;
                self.wgt[at..at + row.len()].copy_from_slice(row);
                self.tiles.forget(first..first + row.len() / size);
            }
            MemType::Wgt4 => {
                let size = self.weight_tile_bytes();
                let tiles = row.chunks(size.div_ceil(2));
                self.tiles.forget(first..first + tiles.len());
                for (to, from) in self.wgt[first * size..].chunks_mut(size).zip(tiles) {
                    lanes::unpack(from, to);
                }
            }
            MemType::Acc => {
                let (words, _) = row.as_chunks::<4>();
                for (to, from) in self.acc[first * self.lanes..].iter_mut().zip(words) {
                    *to = i32::from_le_bytes(*from);
                }
            }
            MemType::Acc8 | MemType::Out => {
                let at = first * self.lanes;
                lanes::widen(self.kernel, row, &mut self.acc[at..at + row.len()]);
            }
        }
    }
}

/// Copies equally many bytes. Rows of a few tiles, which loads often have, are copied piece by
/// piece: that is sooner done than a call.
fn copy(to: &mut [u8], from: &[u8]) {
    let (pieces, rest) = from.as_chunks::<PIECE>();
    if pieces.len() > MOST_PIECES || !rest.is_empty() {
        to.copy_from_slice(from);
        return;
    }
    let (to, _) = to.as_chunks_mut::<PIECE>();
    for (to, from) in to.iter_mut().zip(pieces) {
        *to = *from;
    }
}
