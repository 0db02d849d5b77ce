//! Programs whose tiles repeat: what joins of instructions must not assume away.
//!
//! Everything happens in a few tiles of each scratchpad. Loops have factors of zero, micro-ops name
//! a tile more than once, ALU instructions stand back to back over the same, nearly the same and
//! overlapping tiles, products are reset half way, tiles are loaded again between their readers,
//! rows of a STORE overlap, and later rounds load what earlier ones stored. The other generators
//! make programs as compilers do; this one shares no code with them.
//!
//! In half of the programs neighbouring steps are on tiles of different parity, so that tiles repeat
//! but no ALU instruction has the hazard on which the RTL aborts.

use vta_driver::DeviceMemory;
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Depthwise, Extension, Finish, Gemm, Insn, Load, MemType,
    Module, Requantize, Rounding, Store, Uop,
};

use crate::tables::{self, MOST_TILES};

/// Tiles of each scratchpad that a program touches: the largest micro-op operand and three more
/// trips of both loops at the largest factor.
const TILES: u16 = LARGEST_UOP + 2 * (TRIPS - 1) * LARGEST_FACTOR + 1;
const LARGEST_UOP: u16 = 6;
const LARGEST_FACTOR: u16 = 3;
/// Trips of a loop at most.
const TRIPS: u16 = 4;
/// Micro-ops that are loaded at a time, of those in DRAM.
const UOPS: u16 = 12;
const UOPS_IN_DRAM: u16 = 64;

/// Where the regions lie. Each has room for twice the tiles of the largest configuration, so that
/// every base is a multiple of every element's size.
const UOP_ADDR: u32 = 0x10_0000;
const WGT_ADDR: u32 = 0x20_0000;
const INP_ADDR: u32 = 0x30_0000;
const ACC_ADDR: u32 = 0x40_0000;
const OUT_ADDR: u32 = 0x50_0000;
const TABLE_ADDR: u32 = 0x58_0000;

/// Accumulator tiles of residuals, behind the others, and of tables behind them.
const RESIDUALS: [u16; 2] = [32, 64];
const TABLE: u16 = 96;
/// Rows of a STORE at most; a program has as many entries of each kind.
const ROWS: u16 = 3;
/// Tiles of the entries without a residual.
const PLAIN_TILES: u16 = Rounding::WORDS as u16 * ROWS;
const TABLE_TILES: u16 = PLAIN_TILES + MOST_TILES as u16 * ROWS;

/// A program and the memory that it starts from.
pub struct Repeats {
    /// The instructions, FINISH last; one legal order only.
    pub insns: Vec<Insn>,
    /// Address and bytes of each region before the run. They are disjoint.
    pub regions: Vec<(u32, Vec<u8>)>,
}

impl Repeats {
    /// Memory as the program expects it.
    ///
    /// # Panics
    /// Never: the regions are disjoint.
    pub fn memory(&self) -> DeviceMemory {
        let mut memory = DeviceMemory::new();
        for (addr, bytes) in &self.regions {
            let size = bytes.len() as u64;
            memory.map(*addr, size).expect("regions are disjoint");
            let all = memory.write((*addr).into(), size);
            all.expect("the region is mapped").copy_from_slice(bytes);
        }
        memory
    }

    /// All bytes of all regions in turn.
    ///
    /// # Panics
    /// When the regions aren't mapped.
    pub fn contents(&self, memory: &DeviceMemory) -> Vec<u8> {
        let read = |(addr, bytes): &(u32, Vec<u8>)| {
            let read = memory.read((*addr).into(), bytes.len() as u64);
            read.expect("the region is mapped").to_vec()
        };
        self.regions.iter().flat_map(read).collect()
    }
}

/// The program of a seed. The same seed gives the same program for a configuration.
///
/// # Panics
/// Never for configurations with scratchpads of at least 32 tiles and micro-ops, or 128 accumulators where STOREs
/// requantise.
pub fn generate(config: &Config, seed: u64) -> Repeats {
    let mut generator = Generator {
        config,
        state: seed,
        parity: match seed / 4 % 2 {
            0 => Parity::Any,
            _ => Parity::Alternates,
        },
        has_sums: false,
        insns: Vec::new(),
    };
    for _ in 0..1 + generator.below(3) {
        generator.round();
    }
    generator.insns.push(Finish::default().into());
    let mut insns = std::mem::take(&mut generator.insns);
    hand_tokens_on(&mut insns);
    let regions = generator.regions();
    Repeats { insns, regions }
}

/// Neighbours of different modules hand a token on, so that there is one order.
///
/// # Panics
/// When LOAD and STORE modules meet, which no token connects: rounds begin with a LOAD of
/// micro-ops.
fn hand_tokens_on(insns: &mut [Insn]) {
    for index in 1..insns.len() {
        let pair = (insns[index - 1].module(), insns[index].module());
        let to_the_right = match pair {
            (a, b) if a == b => continue,
            (Module::Load, Module::Compute) | (Module::Compute, Module::Store) => true,
            (Module::Compute, Module::Load) | (Module::Store, Module::Compute) => false,
            other => panic!("no token connects {other:?}"),
        };
        let (before, after) = insns.split_at_mut(index);
        let (giver, taker) = (before[index - 1].deps_mut(), after[0].deps_mut());
        giver.push_next |= to_the_right;
        taker.pop_prev |= to_the_right;
        giver.push_prev |= !to_the_right;
        taker.pop_next |= !to_the_right;
    }
}

/// The loops of GEMM and ALU instructions.
#[derive(Clone, Copy)]
struct Loops {
    uop_bgn: u16,
    uop_end: u16,
    trips: [u16; 2],
    dst: [u16; 2],
    src: [u16; 2],
    wgt: [u16; 2],
}

/// Of the tiles of one step after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parity {
    Any,
    Alternates,
}

struct Generator<'a> {
    config: &'a Config,
    state: u64,
    parity: Parity,
    /// Whether all accumulators are loaded: no program reads what another left, which devices
    /// needn't keep.
    has_sums: bool,
    insns: Vec<Insn>,
}

impl Generator<'_> {
    /// The next of SplitMix64 (Steele, Lea and Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u16) -> u16 {
        (self.next() >> 32) as u16 % n
    }

    fn one_in(&mut self, n: u16) -> bool {
        self.below(n) == 0
    }

    /// Fresh micro-ops and tiles, some instructions over them, some stores.
    fn round(&mut self) {
        self.load(MemType::Uop);
        self.load_sums();
        self.load(MemType::Inp);
        let packed = self.config.extensions().contains(Extension::Wgt4) && self.one_in(2);
        self.load(if packed { MemType::Wgt4 } else { MemType::Wgt });
        let mut loops = self.loops();
        for _ in 0..2 + self.below(9) {
            // Back to back over the same loops, over nearly the same, or elsewhere.
            match self.below(8) {
                0..4 => {}
                4 => loops.dst = self.factors(),
                5 => loops.src = self.factors(),
                6 => (loops.uop_bgn, loops.uop_end) = self.uop_range(),
                _ => loops = self.loops(),
            }
            self.compute(loops);
        }
        self.load_tables();
        if self.insns.last().map(Insn::module) == Some(Module::Load) {
            // Compute hands on what the load module has done.
            let nothing = Load {
                mem: MemType::Acc,
                ..Load::default()
            };
            self.insns.push(nothing.into());
        }
        for _ in 0..1 + self.below(3) {
            self.store();
        }
    }

    fn compute(&mut self, loops: Loops) {
        match self.below(12) {
            0..5 => {
                let imm = self.immediate();
                self.alu(loops, AluOperand::Imm(imm));
            }
            5 => {
                for (op, imm) in [(AluOp::Shr, 3), (AluOp::Max, -128), (AluOp::Min, 127)] {
                    self.alu_op(loops, op, AluOperand::Imm(imm));
                }
            }
            6..8 => self.alu(loops, AluOperand::Acc),
            8 => self.gemm(loops, true),
            9 if self.has_windows() => self.windows(loops),
            9..11 => self.gemm(loops, false),
            _ => self.load_sums(),
        }
    }

    fn alu(&mut self, loops: Loops, operand: AluOperand) {
        let ops = self.config.extensions().alu_ops();
        let op = ops[usize::from(self.below(ops.len() as u16))];
        self.alu_op(loops, op, operand);
    }

    fn alu_op(&mut self, loops: Loops, op: AluOp, operand: AluOperand) {
        let alu = Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: loops.uop_bgn,
            uop_end: loops.uop_end,
            iter_out: loops.trips[0],
            iter_in: loops.trips[1],
            dst_factor_out: loops.dst[0],
            dst_factor_in: loops.dst[1],
            src_factor_out: loops.src[0],
            src_factor_in: loops.src[1],
        };
        self.insns.push(alu.into());
    }

    fn has_windows(&self) -> bool {
        self.config.extensions().contains(Extension::Depthwise)
    }

    fn windows(&mut self, loops: Loops) {
        let insn = Depthwise {
            deps: Deps::NONE,
            overwrite: self.below(3) == 0,
            rows: 1 + self.below(2) as u8,
            columns: 1 + self.below(2) as u8,
            pitch: self.below(3),
            uop_bgn: loops.uop_bgn,
            uop_end: loops.uop_end,
            iter_out: loops.trips[0],
            iter_in: loops.trips[1],
            dst_factor_out: loops.dst[0],
            dst_factor_in: loops.dst[1],
            src_factor_out: loops.src[0],
            src_factor_in: loops.src[1],
        };
        self.insns.push(insn.into());
    }

    fn gemm(&mut self, loops: Loops, reset: bool) {
        let gemm = Gemm {
            deps: Deps::NONE,
            overwrite: self.config.extensions().contains(Extension::Overwrite)
                && self.below(3) == 0,
            reset,
            uop_bgn: loops.uop_bgn,
            uop_end: loops.uop_end,
            iter_out: loops.trips[0],
            iter_in: loops.trips[1],
            dst_factor_out: loops.dst[0],
            dst_factor_in: loops.dst[1],
            src_factor_out: loops.src[0],
            src_factor_in: loops.src[1],
            wgt_factor_out: loops.wgt[0],
            wgt_factor_in: loops.wgt[1],
        };
        self.insns.push(gemm.into());
    }

    fn immediate(&mut self) -> i16 {
        const TELLING: [i16; 12] = [0, 1, -1, 2, 3, 7, 31, 32, 127, -128, i16::MAX, i16::MIN];
        match self.below(3) {
            0 => self.next() as i16,
            _ => TELLING[usize::from(self.below(TELLING.len() as u16))],
        }
    }

    fn loops(&mut self) -> Loops {
        let (uop_bgn, uop_end) = self.uop_range();
        Loops {
            uop_bgn,
            uop_end,
            trips: [1 + self.below(TRIPS), 1 + self.below(TRIPS)],
            dst: self.factors(),
            src: self.factors(),
            wgt: self.factors(),
        }
    }

    fn uop_range(&mut self) -> (u16, u16) {
        let first = self.below(UOPS - 1);
        let most = UOPS - first;
        let count = match self.parity {
            Parity::Any => 1 + self.below(most),
            Parity::Alternates => 2 + 2 * self.below(most / 2),
        };
        (first, first + count)
    }

    /// Outer and inner factor; zeros are as frequent as everything else.
    fn factors(&mut self) -> [u16; 2] {
        [0; 2].map(|_| match (self.one_in(2), self.parity) {
            (true, _) => 0,
            (false, Parity::Any) => 1 + self.below(LARGEST_FACTOR),
            (false, Parity::Alternates) => 2,
        })
    }

    /// Accumulators from int32 or int8.
    fn load_sums(&mut self) {
        let mem = match self.one_in(2) {
            true => MemType::Acc,
            false => MemType::Acc8,
        };
        self.load(mem);
        self.has_sums = true;
    }

    /// Fills the whole window of a memory type, or for accumulators some of it, with padding,
    /// repeated rows and rows that overlap.
    fn load(&mut self, mem: MemType) {
        let tiles = match mem {
            MemType::Uop => UOPS,
            MemType::Acc | MemType::Acc8 if self.has_sums && !self.one_in(3) => {
                1 + self.below(TILES)
            }
            _ => TILES,
        };
        let (addr, first) = match mem {
            MemType::Uop => (UOP_ADDR, self.below(UOPS_IN_DRAM - UOPS)),
            MemType::Wgt | MemType::Wgt4 => (WGT_ADDR, self.below(TILES)),
            // What was stored comes back as an input or a sum.
            MemType::Inp if self.one_in(3) => (OUT_ADDR, self.below(TILES)),
            MemType::Inp => (INP_ADDR, self.below(TILES)),
            MemType::Acc => (ACC_ADDR, self.below(TILES)),
            MemType::Acc8 | MemType::Out => (OUT_ADDR, self.below(TILES)),
        };
        let rows = match mem {
            MemType::Inp | MemType::Acc | MemType::Acc8 if tiles.is_multiple_of(2) => {
                1 + self.below(2)
            }
            _ => 1,
        };
        let pad = match mem {
            MemType::Uop | MemType::Wgt | MemType::Wgt4 => 0,
            _ if self.one_in(2) => 0,
            _ => (self.below(3)).min(tiles / rows - 1),
        };
        let x_size = tiles / rows - pad;
        let sram_base = match mem {
            MemType::Uop => 0,
            _ => self.below(TILES - tiles + 1),
        };
        let preload = match mem {
            MemType::Acc | MemType::Acc8 => self.preloads(),
            _ => false,
        };
        let load = Load {
            deps: Deps::NONE,
            mem,
            preload,
            sram_base,
            dram_base: addr / self.config.elem_bytes(mem) as u32 + u32::from(first),
            y_size: rows,
            x_size,
            x_stride: [x_size, 0, 1][usize::from(self.below(3))],
            x_pad_0: pad as u8,
            pad_value: self.pad_value(mem),
            ..Load::default()
        };
        self.insns.push(load.into());
    }

    /// What padding holds.
    fn pad_value(&mut self, mem: MemType) -> i8 {
        let able = mem == MemType::Inp && self.config.extensions().contains(Extension::Pad);
        if able && self.one_in(2) {
            self.next() as i8
        } else {
            0
        }
    }

    /// Some tiles; rows may overlap, and a later one wins.
    fn store(&mut self) {
        let rows = 1 + self.below(ROWS);
        let x_size = 1 + self.below(TILES / rows);
        let sram_base = self.below(TILES - rows * x_size + 1);
        let addr = match self.one_in(4) {
            true => INP_ADDR,
            false => OUT_ADDR,
        };
        let first = self.below(TILES);
        let saturate = self.config.extensions().contains(Extension::Saturate) && self.one_in(3);
        let store = Store {
            deps: Deps::NONE,
            sram_base,
            dram_base: addr / self.config.elem_bytes(MemType::Out) as u32 + u32::from(first),
            y_size: rows,
            x_size,
            x_stride: self.below(x_size + 2),
            requantize: self.requantize(rows).filter(|_| !saturate),
            saturate,
        };
        self.insns.push(store.into());
    }

    /// Whether the load module fills accumulators.
    fn preloads(&mut self) -> bool {
        self.config.extensions().contains(Extension::Preload) && self.one_in(2)
    }

    fn requantizes(&self) -> bool {
        self.config.extensions().contains(Extension::Requant)
    }

    /// Tables and residuals, for STOREs that requantise.
    fn load_tables(&mut self) {
        if !self.requantizes() {
            return;
        }
        let preload = self.preloads();
        // The last one is compute's: the load module hands nothing on to a STORE.
        let mut load = |mem: MemType, sram_base, addr: u32, tiles| {
            let load = Load {
                mem,
                preload: preload && sram_base != RESIDUALS[1],
                sram_base,
                dram_base: addr / self.config.elem_bytes(mem) as u32,
                y_size: 1,
                x_size: tiles,
                ..Load::default()
            };
            self.insns.push(load.into());
        };
        load(MemType::Acc, TABLE, TABLE_ADDR, TABLE_TILES);
        load(MemType::Acc8, RESIDUALS[0], OUT_ADDR, TILES);
        load(MemType::Acc, RESIDUALS[1], ACC_ADDR, TILES);
    }

    /// How a STORE of so many rows requantises, by entries that were loaded or by sums, if it does.
    fn requantize(&mut self, rows: u16) -> Option<Requantize> {
        if !self.requantizes() || self.one_in(4) {
            return None;
        }
        let residual = self.below(3) as u8;
        let entry_tiles = if residual == 0 {
            Rounding::WORDS
        } else {
            MOST_TILES
        } as u16;
        let loaded = if residual == 0 {
            TABLE
        } else {
            TABLE + PLAIN_TILES
        };
        Some(Requantize {
            table: match self.below(4) {
                0 => self.below(TILES - rows * entry_tiles + 1),
                1 => loaded + self.below(ROWS - rows + 1) * entry_tiles,
                _ => loaded,
            },
            by_row: self.one_in(2),
            residual,
        })
    }

    fn regions(&mut self) -> Vec<(u32, Vec<u8>)> {
        let types = [
            (WGT_ADDR, MemType::Wgt),
            (INP_ADDR, MemType::Inp),
            (ACC_ADDR, MemType::Acc),
            (OUT_ADDR, MemType::Out),
        ];
        let mut regions = vec![(UOP_ADDR, self.uops())];
        for (addr, mem) in types {
            let size = 3 * usize::from(TILES) * self.config.elem_bytes(mem);
            let mut bytes: Vec<u8> = (0..size).map(|_| self.byte()).collect();
            if mem == MemType::Wgt {
                self.clear_blocks(&mut bytes);
            }
            regions.push((addr, bytes));
        }
        if self.requantizes() {
            let tile = self.config.elem_bytes(MemType::Acc);
            let mut bytes = vec![0; usize::from(TABLE_TILES) * tile];
            let (plain, with_residuals) = bytes.split_at_mut(usize::from(PLAIN_TILES) * tile);
            for (bytes, tiles) in [(plain, Rounding::WORDS), (with_residuals, MOST_TILES)] {
                tables::fill(bytes, self.config, tiles, || self.next());
            }
            regions.push((TABLE_ADDR, bytes));
        }
        regions
    }

    /// Makes the weights of some programs diagonal, but for an element of a tile or two in some of these, and those of
    /// others block-diagonal.
    fn clear_blocks(&mut self, bytes: &mut [u8]) {
        let (block, kind) = (self.config.block(), self.below(6));
        let width = match kind {
            0..3 => 1,
            3 => 4,
            _ => return,
        };
        let off = [0; 2].map(|_: usize| usize::from(self.next() as u16) % bytes.len());
        for (i, byte) in bytes.iter_mut().enumerate() {
            let at = i % (block * block);
            let kept = kind == 0 && off.contains(&i);
            *byte *= u8::from(kept || at / block / width == at % block / width);
        }
    }

    /// Often small, so that sums stay telling, sometimes the extremes.
    fn byte(&mut self) -> u8 {
        let word = self.next();
        match word >> 61 {
            0 => 0x80,
            1 => 0x7f,
            2..5 => (word & 7) as u8,
            _ => word as u8,
        }
    }

    /// Few different tiles, so that many are named twice.
    fn uops(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for index in 0..UOPS_IN_DRAM {
            let dst = self.operand(index);
            let src = match self.one_in(2) {
                true => dst,
                false => self.operand(index),
            };
            let wgt = self.below(LARGEST_UOP + 1);
            let word = Uop { dst, src, wgt }.encode();
            bytes.extend(word.expect("small operands fit").to_le_bytes());
        }
        bytes
    }

    /// A tile for a micro-op: small ones are the most frequent.
    fn operand(&mut self, index: u16) -> u16 {
        let spread = 1 + self.below(LARGEST_UOP);
        let tile = self.below(spread + 1);
        match self.parity {
            Parity::Any => tile,
            Parity::Alternates => (tile & !1) + index % 2 - 2 * u16::from(tile == LARGEST_UOP),
        }
    }
}
