//! The stream that the single-work-item core runs: the instructions in the order of their
//! tokens, and, for the variant with channels, which STOREs each LOAD must wait for.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::resolve::{Resolved, Rows};
use vta_isa::tokens::At;

use crate::batch::{Sink, refused};
use crate::error::EngineError;

/// DRAM is tracked in pieces of this size.
const PIECE_BYTES: u64 = 4096;

/// What the core's kernels read.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The instructions' words, least significant first.
    pub insns: Vec<u32>,
    /// STOREs that must be done before an instruction, in the stream's order; only of
    /// instructions that move or compute something.
    pub fences: Vec<u32>,
    /// STOREs that move something.
    pub stores: u32,
    /// Which STORE, counted from 1, last wrote a piece of DRAM.
    wrote: HashMap<u64, u32>,
}

/// The pieces of DRAM that rows touch; some come more than once.
fn pieces(rows: &Rows) -> impl Iterator<Item = u64> + use<> {
    let piece = |row: Range<u64>| row.start / PIECE_BYTES..row.end.div_ceil(PIECE_BYTES);
    rows.apart().flat_map(piece)
}

impl Sink for Stream {
    fn take(&mut self, at: &At, resolved: &Resolved<'_>) -> Result<(), EngineError> {
        // What was checked is what runs: the instruction, not the word beside it.
        let word = at.insn.encode().map_err(|error| refused(at, error))?;
        self.insns.extend((0..4).map(|i| (word >> (32 * i)) as u32));
        let fence = match resolved {
            Resolved::Load(access) => {
                let wrote = pieces(&access.rows).filter_map(|piece| self.wrote.get(&piece));
                wrote.copied().max().unwrap_or(0)
            }
            Resolved::Store(access) => {
                self.stores += 1;
                let written = pieces(&access.rows).map(|piece| (piece, self.stores));
                self.wrote.extend(written);
                0
            }
            Resolved::Gemm(_) | Resolved::Alu(_) | Resolved::Depthwise(_) | Resolved::Sync => 0,
        };
        self.fences.push(fence);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::resolve::Uops;
    use vta_isa::{Config, Insn, Load, Store};

    use super::*;

    #[test]
    fn a_load_waits_for_the_last_store_that_it_reads() {
        let mut stream = Stream::default();
        let mut take = |insn: Insn| {
            let config = Config::default();
            let resolved = Resolved::of(&config, &insn, Uops::of(&[])).unwrap();
            stream.take(&At { index: 0, insn }, &resolved).unwrap();
        };
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
        take(load(1, 1).into());
        take(store(1).into());
        take(Store::default().into());
        take(store(2).into());
        take(load(1, 1).into());
        take(load(1, 2).into());
        take(load(3, 1).into());
        take(Load::default().into());
        assert_eq!(stream.fences, [0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(stream.stores, 2);
    }
}
