//! What runs behind a batch's first instructions to show what they left: memory that nothing else uses, loads from
//! it, and stores of accumulators into it.

use vta_isa::resolve::TileSet;
use vta_isa::{Alu, AluOp, AluOperand, Config, Deps, Insn, Load, MemType, Store, Uop};

/// What every element's size divides.
pub const ELEM_BYTES: u64 = 1 << 16;
/// Where data may begin: a multiple of every bus's width.
const ALIGN: usize = 64;

/// How accumulators get to where a STORE takes them from: operations that leave each value's low byte, and between
/// them stores of it.
#[derive(Clone, Copy, Debug)]
pub struct Way(&'static [(AluOp, i16)]);

impl Way {
    /// The best first: shifts show all four bytes of a value, the others the lowest alone.
    pub const ALL: [Self; 3] = [
        Self(&[
            (AluOp::Shr, 0),
            (AluOp::Shr, 8),
            (AluOp::Shr, 8),
            (AluOp::Shr, 8),
        ]),
        Self(&[(AluOp::Add, 0)]),
        Self(&[(AluOp::Max, i16::MIN)]),
    ];
}

/// Instructions in a row, with the bytes that they read and write.
pub struct Tail<'c> {
    config: &'c Config,
    base: u64,
    /// What lies at the base.
    pub bytes: Vec<u8>,
    /// Their tokens mean nothing.
    pub insns: Vec<Insn>,
}

impl<'c> Tail<'c> {
    /// Nothing yet; its bytes will lie at a multiple of [`ELEM_BYTES`].
    pub fn at(config: &'c Config, base: u64) -> Self {
        Self {
            config,
            base,
            bytes: Vec::new(),
            insns: Vec::new(),
        }
    }

    /// Bytes in memory; the number of their first element.
    fn put(&mut self, mem: MemType, bytes: &[u8]) -> u32 {
        let elem = self.config.elem_bytes(mem);
        let first = self.bytes.len().next_multiple_of(elem.max(ALIGN));
        self.bytes.resize(first, 0);
        self.bytes.extend_from_slice(bytes);
        // The memory ends before 2^32.
        ((self.base + first as u64) / elem as u64) as u32
    }

    /// Brings bytes to consecutive entries of a scratchpad.
    pub fn load(&mut self, mem: MemType, sram: usize, bytes: &[u8]) {
        let entries = bytes.len() / self.config.elem_bytes(mem);
        let load = Load {
            mem,
            sram_base: sram as u16,
            dram_base: self.put(mem, bytes),
            y_size: 1,
            x_size: entries as u16,
            x_stride: entries as u16,
            ..Load::default()
        };
        self.insns.push(load.into());
    }

    /// Brings noise to accumulators: a value that is left out, taken twice or shifted shows.
    pub fn noise(&mut self, tiles: &TileSet) {
        let mut state = 0x9e37_79b9_u32;
        let mut random = std::iter::repeat_with(|| {
            // Xorshift; the top byte is the most even.
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 24) as u8
        });
        for run in tiles.runs() {
            let bytes = run.len() * self.config.elem_bytes(MemType::Acc);
            let bytes: Vec<u8> = random.by_ref().take(bytes).collect();
            self.load(MemType::Acc, run.start, &bytes);
        }
    }

    /// Stores accumulators, and leaves noise in them. The first micro-op is another afterwards.
    pub fn dump(&mut self, tiles: &TileSet, way: Way) {
        let elem = self.config.elem_bytes(MemType::Out);
        for run in tiles.runs() {
            let first = run.start as u16;
            let uop = Uop {
                dst: first,
                src: first,
                wgt: 0,
            };
            // Tiles of accumulators are few enough for a micro-op's fields.
            let word = uop.encode().unwrap_or_default();
            self.load(MemType::Uop, 0, &word.to_le_bytes());
            let count = run.len() as u16;
            for &(op, imm) in way.0 {
                let alu = Alu {
                    deps: Deps::NONE,
                    op,
                    operand: AluOperand::Imm(imm),
                    uop_bgn: 0,
                    uop_end: 1,
                    iter_out: 1,
                    iter_in: count,
                    dst_factor_out: 0,
                    dst_factor_in: 1,
                    src_factor_out: 0,
                    // The original takes the operand from here.
                    src_factor_in: 1,
                };
                let store = Store {
                    sram_base: first,
                    dram_base: self.put(MemType::Out, &vec![0; run.len() * elem]),
                    y_size: 1,
                    x_size: count,
                    x_stride: count,
                    ..Store::default()
                };
                self.insns.extend([Insn::from(alu), store.into()]);
            }
        }
        // A later run in which a tile isn't cleared shows, whatever was dumped.
        self.noise(tiles);
    }
}

/// Accumulator tiles that a STORE reaches.
pub fn reachable(config: &Config) -> TileSet {
    TileSet::range(0..config.depth(MemType::Acc).min(config.depth(MemType::Out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::serial::chain;

    #[test]
    fn every_way_is_a_legal_program_that_the_original_runs_too() {
        for json in ["{}", r#"{"LOG_BLOCK": 5}"#, r#"{"LOG_UOP_BUFF_SIZE": 6}"#] {
            let config = Config::from_json(json).unwrap();
            let mut tiles = TileSet::range(0..3);
            tiles.add(&TileSet::range(100..164));
            for way in Way::ALL {
                let mut tail = Tail::at(&config, ELEM_BYTES);
                tail.noise(&tiles);
                tail.dump(&tiles, way);
                let row = chain(tail.insns.iter().copied());
                for insn in &row {
                    insn.encode().unwrap();
                    // Within what was put there.
                    if let Some(rows) = insn.dram_rows(&config) {
                        let span = rows.span();
                        let end = ELEM_BYTES + tail.bytes.len() as u64;
                        assert!(span.start >= ELEM_BYTES && span.end <= end, "{insn}");
                    }
                }
                let unknown = vta_sim::hazards::UopSource::Unknown;
                assert!(vta_sim::hazards::deviations(&config, &row, unknown).is_empty());
                let stores = row.iter().filter(|insn| matches!(insn, Insn::Store(_)));
                assert_eq!(stores.count(), 2 * way.0.len());
            }
        }
    }
}
