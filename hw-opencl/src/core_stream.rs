//! The stream that the single-work-item core runs: the instructions in the order of their
//! tokens, and, for the variant with channels, which STOREs each LOAD must wait for.

use std::collections::HashMap;

use vta_isa::{Alu, Config, Gemm, Load, MemType, Store};

use crate::batch::{Sink, rows};

/// DRAM is tracked in pieces of this size.
const PIECE_BYTES: u64 = 4096;

/// What the core's kernels read.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// STOREs that must be done before an instruction, in the stream's order; only of
    /// instructions that move or compute something.
    pub fences: Vec<u32>,
    /// STOREs that move something.
    pub stores: u32,
}

/// Collects fences.
pub(crate) struct StreamBuilder<'a> {
    config: &'a Config,
    out: Stream,
    /// Which STORE, counted from 1, last wrote a piece of DRAM.
    wrote: HashMap<u64, u32>,
}

impl<'a> StreamBuilder<'a> {
    pub fn new(config: &'a Config) -> Self {
        Self {
            config,
            out: Stream::default(),
            wrote: HashMap::new(),
        }
    }

    pub fn finish(self) -> Stream {
        self.out
    }

    fn pieces(&self, mem: MemType, row: (u64, u64)) -> std::ops::RangeInclusive<u64> {
        let elem = self.config.elem_bytes(mem) as u64;
        let (first, len) = (row.0 * elem, row.1 * elem);
        first / PIECE_BYTES..=(first + len - 1) / PIECE_BYTES
    }
}

impl Sink for StreamBuilder<'_> {
    fn load(&mut self, load: &Load) {
        let mut fence = 0;
        if !load.is_sync() {
            for row in rows(load.dram_base, load.y_size, load.x_size, load.x_stride) {
                let pieces = self.pieces(load.mem, row);
                let wrote = pieces.filter_map(|piece| self.wrote.get(&piece));
                fence = wrote.copied().fold(fence, u32::max);
                if load.x_stride == 0 {
                    break;
                }
            }
        }
        self.out.fences.push(fence);
    }

    fn store(&mut self, store: &Store) {
        self.out.fences.push(0);
        if store.is_sync() {
            return;
        }
        self.out.stores += 1;
        for row in rows(store.dram_base, store.y_size, store.x_size, store.x_stride) {
            for piece in self.pieces(MemType::Out, row) {
                self.wrote.insert(piece, self.out.stores);
            }
        }
    }

    fn gemm(&mut self, _: &Gemm, _: &[u32]) {
        self.out.fences.push(0);
    }

    fn alu(&mut self, _: &Alu, _: &[u32]) {
        self.out.fences.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_waits_for_the_last_store_that_it_reads() {
        let config = Config::default();
        let mut builder = StreamBuilder::new(&config);
        let store = |page: u32| Store {
            dram_base: page * 256,
            y_size: 1,
            x_size: 2,
            ..Store::default()
        };
        let load = |page: u32, y_size| Load {
            dram_base: page * 256,
            y_size,
            x_size: 1,
            x_stride: 256,
            ..Load::default()
        };
        builder.load(&load(1, 1));
        builder.store(&store(1));
        builder.store(&Store::default());
        builder.store(&store(2));
        builder.load(&load(1, 1));
        builder.load(&load(1, 2));
        builder.load(&load(3, 1));
        builder.load(&Load::default());
        let stream = builder.finish();
        assert_eq!(stream.fences, [0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(stream.stores, 2);
    }
}
