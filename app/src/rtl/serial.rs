//! A program's first instructions one after the other: tokens between neighbours, so that none runs before
//! the one in front of it is done.

use std::collections::BTreeMap;
use std::ops::Range;

use vta_isa::{Alu, AluOp, AluOperand, Config, Deps, Finish, Insn, Load, MemType, Module, Store};

/// Instructions in a row, and FINISH behind them.
pub fn chain(insns: impl Iterator<Item = Insn>) -> Vec<Insn> {
    let mut row: Vec<Insn> = Vec::new();
    for mut insn in insns.chain([Finish::default().into()]) {
        *insn.deps_mut() = Deps::NONE;
        if let Some(before) = row.last().map(Insn::module)
            && matches!(
                (before, insn.module()),
                (Module::Load, Module::Store) | (Module::Store, Module::Load)
            )
        {
            // These two share no queue.
            join(&mut row, nothing());
        }
        join(&mut row, insn);
    }
    row
}

/// A LOAD that moves nothing, in the compute module.
fn nothing() -> Insn {
    let load = Load {
        mem: MemType::Uop,
        ..Load::default()
    };
    load.into()
}

/// Adds an instruction that waits for the one before, if that is another module's.
fn join(row: &mut Vec<Insn>, mut insn: Insn) {
    if let Some(before) = row.last_mut() {
        let (from, to) = (before.module(), insn.module());
        let (before, after) = (before.deps_mut(), insn.deps_mut());
        if from < to {
            before.push_next = true;
            after.pop_prev = true;
        } else if from > to {
            before.push_prev = true;
            after.pop_next = true;
        }
    }
    row.push(insn);
}

/// Tiles of a row that [`fill`] loads again and again.
const ROW: usize = 64;

/// What every element's size divides.
pub const ELEM_BYTES: u64 = 1 << 16;

/// Scratchpads whose bytes the next instructions may read.
const FILLED: [MemType; 4] = [MemType::Uop, MemType::Inp, MemType::Wgt, MemType::Acc];

/// What [`fill`] loads: zeros for micro-ops, which must stay in range, and behind them noise, in which a tile
/// that is left out, taken twice or multiplied shows.
pub fn filling(config: &Config) -> Vec<u8> {
    let bytes = FILLED.map(|mem| ROW * config.elem_bytes(mem));
    let noise = bytes
        .into_iter()
        .max()
        .unwrap_or(0)
        .next_multiple_of(ELEM_BYTES as usize);
    let mut state = 0x9e37_79b9_u32;
    let random = std::iter::repeat_with(|| {
        // Xorshift; the top byte is the most even.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    });
    let zeros = std::iter::repeat_n(0, ELEM_BYTES as usize);
    zeros.chain(random.take(noise)).collect()
}

/// Instructions that fill all scratchpads with what lies at an address that is a multiple of 65536: what an
/// earlier run left there may differ.
pub fn fill(config: &Config, addr: u64) -> Vec<Insn> {
    let load = |mem: MemType| {
        let tiles = config.depth(mem).min(ROW);
        let addr = match mem {
            MemType::Uop => addr,
            MemType::Inp | MemType::Wgt | MemType::Acc | MemType::Acc8 | MemType::Out => {
                addr + ELEM_BYTES
            }
        };
        // Depths and rows are powers of two.
        let load = Load {
            mem,
            dram_base: (addr / config.elem_bytes(mem) as u64) as u32,
            y_size: (config.depth(mem) / tiles) as u16,
            x_size: tiles as u16,
            x_stride: 0,
            ..Load::default()
        };
        load.into()
    };
    FILLED.map(load).to_vec()
}

/// Loads of micro-ops one by one, as instructions in a row leave them: each is another instruction than that
/// which brought it.
pub fn uops(config: &Config, row: &[Insn], uops: Range<u16>) -> Vec<Insn> {
    let elem = config.elem_bytes(MemType::Uop) as u64;
    let mut wanted: BTreeMap<usize, Option<u64>> = uops.map(|uop| (uop.into(), None)).collect();
    let loads = row.iter().rev().filter_map(|insn| match insn {
        Insn::Load(load) if load.mem == MemType::Uop => Some(load),
        _ => None,
    });
    for filled in loads.flat_map(|load| load.fills(config)) {
        let Some(from) = filled.from else { continue };
        let first = filled.entries.start;
        for (uop, place) in wanted.range_mut(filled.entries) {
            place.get_or_insert(from.start / elem + (uop - first) as u64);
        }
    }
    let load = |(uop, dram): (usize, u64)| {
        let load = Load {
            mem: MemType::Uop,
            sram_base: uop as u16,
            dram_base: dram as u32,
            y_size: 1,
            x_size: 1,
            x_stride: 2,
            ..Load::default()
        };
        load.into()
    };
    let found = wanted
        .into_iter()
        .filter_map(|(uop, dram)| Some((uop, dram?)));
    found.map(load).collect()
}

/// Where the accumulators go to be compared: a byte of each of their values at a time.
pub struct Probe {
    /// Tiles of the scratchpad that can be stored.
    tiles: usize,
    tile_bytes: usize,
    uop_addr: u64,
    out_addr: u64,
}

/// The bytes of an accumulator.
const PARTS: usize = 4;

impl Probe {
    /// Bytes that a probe needs: a micro-op, which is zero, and what is stored.
    pub fn bytes(config: &Config) -> u64 {
        let tiles = tiles(config) * config.elem_bytes(MemType::Out);
        (tiles * (PARTS + 1)) as u64
    }

    /// A probe at an address that is a whole number of pages.
    pub fn at(config: &Config, addr: u64) -> Self {
        let tile_bytes = config.elem_bytes(MemType::Out);
        Self {
            tiles: tiles(config),
            tile_bytes,
            uop_addr: addr,
            out_addr: addr + (tiles(config) * tile_bytes) as u64,
        }
    }

    /// Instructions that store all accumulators. They use the last micro-op and change the accumulators.
    pub fn insns(&self, config: &Config) -> Vec<Insn> {
        // Below the depths, which have few bits.
        let tiles = self.tiles as u16;
        let uop = (config.depth(MemType::Uop) - 1) as u16;
        let load = Load {
            mem: MemType::Uop,
            sram_base: uop,
            dram_base: (self.uop_addr / config.elem_bytes(MemType::Uop) as u64) as u32,
            y_size: 1,
            x_size: 1,
            x_stride: 1,
            ..Load::default()
        };
        let mut insns = vec![load.into()];
        for part in 0..PARTS {
            let shift = Alu {
                deps: Deps::NONE,
                op: AluOp::Shr,
                operand: AluOperand::Imm(if part == 0 { 0 } else { 8 }),
                uop_bgn: uop,
                uop_end: uop + 1,
                iter_out: 1,
                iter_in: tiles,
                dst_factor_out: 0,
                dst_factor_in: 1,
                src_factor_out: 0,
                src_factor_in: 0,
            };
            let out = self.out_addr as usize / self.tile_bytes + part * self.tiles;
            let store = Store {
                dram_base: out as u32,
                y_size: 1,
                x_size: tiles,
                x_stride: tiles,
                ..Store::default()
            };
            insns.extend([Insn::from(shift), store.into()]);
        }
        insns
    }
}

/// Tiles of the accumulators that a STORE reaches and the fields hold.
fn tiles(config: &Config) -> usize {
    let most = config.depth(MemType::Acc).min(config.depth(MemType::Out));
    most.min((1 << 14) - 1)
}

#[cfg(test)]
mod tests {
    use vta_isa::{asm, tokens};

    use super::*;

    #[test]
    fn a_chain_runs_in_its_own_order_only() {
        let text = "load.inp y_size=1 x_size=1 x_stride=1 push_next
            store sram_base=3 dram_base=0x101 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
            load.wgt y_size=1 x_size=1 x_stride=1
            gemm uop_end=1 iter_out=1 iter_in=1
            load.acc y_size=1 x_size=1 x_stride=1
            store y_size=1 x_size=1 x_stride=1";
        let row = chain(asm::parse(text).unwrap().into_iter());
        tokens::check_run(&row).unwrap();
        let order = tokens::order(&row).unwrap();
        let expected: Vec<u32> = (0..row.len() as u32).collect();
        assert_eq!((order.indices, order.leftover), (expected, [0; 4]));
        // Two stand between a LOAD and a STORE.
        assert_eq!(row.len(), 6 + 2 + 1);
        assert_eq!(chain([].into_iter()).len(), 1);
    }

    #[test]
    fn all_scratchpads_are_filled() {
        for json in ["{}", r#"{"LOG_BLOCK": 5}"#, r#"{"LOG_UOP_BUFF_SIZE": 6}"#] {
            let config = Config::from_json(json).unwrap();
            let bytes = filling(&config);
            for (insn, mem) in fill(&config, ELEM_BYTES).iter().zip(FILLED) {
                insn.encode().unwrap();
                let Insn::Load(load) = insn else {
                    panic!("{insn} fills nothing");
                };
                let depth = config.depth(mem) as u64;
                assert_eq!((load.mem, load.sram_tiles()), (mem, depth));
                let span = insn.dram_rows(&config).unwrap().span();
                let span = (span.start - ELEM_BYTES) as usize..(span.end - ELEM_BYTES) as usize;
                let is_zero = bytes[span].iter().all(|byte| *byte == 0);
                assert_eq!(is_zero, mem == MemType::Uop, "{insn}");
            }
        }
    }

    #[test]
    fn micro_ops_are_loaded_from_where_they_came_last() {
        let text = "load.uop sram_base=3 dram_base=100 y_size=1 x_size=8 x_stride=8
            load.uop sram_base=5 dram_base=200 y_size=2 x_size=1 x_stride=9";
        let row = asm::parse(text).unwrap();
        let found: Vec<_> = uops(&Config::default(), &row, 2..8)
            .iter()
            .map(Insn::to_string)
            .collect();
        let load = |uop, dram| {
            format!("load.uop sram_base={uop} dram_base={dram} y_size=1 x_size=1 x_stride=2")
        };
        let places = [(3, 100), (4, 101), (5, 200), (6, 209), (7, 104)];
        assert_eq!(found, places.map(|(uop, dram)| load(uop, dram)));
    }

    #[test]
    fn a_probe_is_a_legal_program() {
        let config = Config::default();
        let probe = Probe::at(&config, 0x10000);
        let row = chain(probe.insns(&config).into_iter());
        for insn in &row {
            insn.encode().unwrap();
        }
        assert_eq!(
            row.iter()
                .filter(|insn| matches!(insn, Insn::Store(_)))
                .count(),
            PARTS
        );
    }
}
