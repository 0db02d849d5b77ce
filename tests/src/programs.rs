//! Random legal programs: every instruction type, every field, tokens right, no races.
//!
//! A program is a number of rounds. In round `r` the load module fills one half of the input
//! and weight scratchpads, the compute module works on one half of the accumulators, the store
//! module writes them out; a half is used again when the tokens of two rounds ago are back. So
//! any order that the tokens allow gives the same memory. Where the load module fills accumulators, it does so with the
//! upper part of the round's half, while compute works on the lower one.

use std::ops::Range;

use vta_compiler::zoo::Rng;
use vta_driver::DeviceMemory;
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Depthwise, Extension, Finish, Gemm, Insn, Load, MemType,
    Requantize, Rounding, Store, Uop,
};

use crate::tables::{self, MOST_TILES};

/// Bytes of each memory type's DRAM region.
const REGION_BYTES: u64 = 1 << 18;

/// A program with the memory that it starts from.
pub struct RandomProgram {
    /// The instructions, FINISH last.
    pub insns: Vec<Insn>,
    /// Random bytes of each memory type's region.
    regions: Vec<(u32, Vec<u8>)>,
}

impl RandomProgram {
    /// Fresh memory as the program expects it.
    ///
    /// # Panics
    /// Never: the regions are disjoint.
    pub fn memory(&self) -> DeviceMemory {
        let mut memory = DeviceMemory::new();
        for (addr, bytes) in &self.regions {
            memory
                .map(*addr, bytes.len() as u64)
                .expect("regions are disjoint");
            let all = memory.write((*addr).into(), bytes.len() as u64);
            all.expect("the region is mapped").copy_from_slice(bytes);
        }
        memory
    }

    /// Address and bytes of each memory type's region before the run.
    pub fn regions(&self) -> &[(u32, Vec<u8>)] {
        &self.regions
    }

    /// Writes the program's bytes into memory that has its regions.
    ///
    /// # Panics
    /// When the regions aren't mapped.
    pub fn fill(&self, memory: &mut DeviceMemory) {
        for (addr, bytes) in &self.regions {
            let all = memory.write((*addr).into(), bytes.len() as u64);
            all.expect("the region is mapped").copy_from_slice(bytes);
        }
    }

    /// This program of a machine of any widths with numbers that int8 holds, and its like on a machine of int8 that is the
    /// same otherwise.
    pub fn like_int8(mut self, config: &Config, int8: &Config) -> [Self; 2] {
        let first = |config: &Config, mem| (region(mem) / config.elem_bytes(mem) as u64) as u32;
        let mut narrow = Self {
            insns: self.insns.clone(),
            regions: self.regions.clone(),
        };
        for insn in &mut narrow.insns {
            if let Some((mem, base)) = insn.dram_base_mut()
                && let Some(offset) = base.checked_sub(first(config, mem))
            {
                *base = first(int8, mem) + offset;
            }
        }
        for (mem, (_, bytes)) in MemType::ALL.into_iter().zip(&mut self.regions) {
            let (width, least) = (config.width(mem), int8.width(mem));
            if width != least {
                let numbers = int8.numbers(mem, bytes);
                let wide = numbers.flat_map(|n| n.to_le_bytes().into_iter().take(width / 8));
                *bytes = wide.take(REGION_BYTES as usize).collect();
            }
        }
        [self, narrow]
    }

    /// The first byte of the region of a memory type.
    pub const fn region(mem: MemType) -> u64 {
        region(mem)
    }

    /// All bytes of all regions, to compare.
    pub fn contents(&self, memory: &DeviceMemory) -> Vec<u8> {
        let read = |(addr, bytes): &(u32, Vec<u8>)| {
            memory
                .read((*addr).into(), bytes.len() as u64)
                .unwrap_or_default()
                .to_vec()
        };
        self.regions.iter().flat_map(read).collect()
    }
}

/// Builds random programs.
pub(crate) struct Generator<'a> {
    pub(crate) config: &'a Config,
    rng: Rng,
    pub(crate) insns: Vec<Insn>,
    uop_bytes: Vec<u8>,
    /// The entries that were loaded last: their tiles, and how many an entry has.
    table: (Range<usize>, usize),
    /// The part of the accumulators that compute may touch yet; else the round's half.
    part: Option<Range<usize>>,
}

/// A random legal program for a configuration, the same for the same seed.
pub fn generate(config: &Config, seed: u64, rounds: usize) -> RandomProgram {
    let mut g = Generator::new(config, seed);
    for round in 0..rounds {
        g.round(round, rounds);
    }
    // The stores of the last rounds are waited for.
    for _ in 0..rounds.min(2) {
        let deps = Deps {
            pop_next: true,
            ..Deps::NONE
        };
        g.insns.push(
            Load {
                deps,
                mem: MemType::Acc,
                ..Load::default()
            }
            .into(),
        );
    }
    g.finish()
}

/// Tiles of an entry without a residual.
const FEWEST_TILES: usize = Rounding::WORDS;

const fn region(mem: MemType) -> u64 {
    (mem.index() as u64 + 1) * REGION_BYTES
}

impl<'a> Generator<'a> {
    pub(crate) fn new(config: &'a Config, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            insns: Vec::new(),
            uop_bytes: Vec::new(),
            table: (0..0, 1),
            part: None,
        }
    }

    /// Ends the program and fills its memory.
    pub(crate) fn finish(mut self) -> RandomProgram {
        self.insns.push(Finish::default().into());
        let mut regions = Vec::new();
        for mem in MemType::ALL {
            let mut bytes = if mem == MemType::Uop {
                let mut bytes = std::mem::take(&mut self.uop_bytes);
                bytes.resize(REGION_BYTES as usize, 0);
                bytes
            } else {
                // Bytes of -128 and 127 are common, so that extremes meet.
                let byte = |bits: u64| match bits & 7 {
                    0 => 0x80,
                    1 => 0x7f,
                    _ => (bits >> 8) as u8,
                };
                (0..REGION_BYTES)
                    .map(|_| byte(self.rng.next_u64()))
                    .collect()
            };
            if mem == MemType::Acc && self.requantizes() {
                // Those in front of the second lie in the first.
                for (first, entry_tiles) in self.tables() {
                    let entries = &mut bytes[first * self.config.elem_bytes(mem)..];
                    tables::fill(entries, self.config, entry_tiles, || self.rng.next_u64());
                }
            }
            regions.push((region(mem) as u32, bytes));
        }
        RandomProgram {
            insns: self.insns,
            regions,
        }
    }
}

impl Generator<'_> {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n.max(1) as u64) as usize
    }

    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.len())
    }

    /// One half of a scratchpad, or what compute may touch of it.
    fn half(&self, mem: MemType, round: usize) -> Range<usize> {
        if let Some(part) = self.part.clone().filter(|_| mem == MemType::Acc) {
            return part;
        }
        let half = self.config.depth(mem) / 2;
        let start = round % 2 * half;
        start..start + half
    }

    fn round(&mut self, round: usize, rounds: usize) {
        let first = self.insns.len();
        for mem in [MemType::Inp, MemType::Wgt] {
            for _ in 0..=self.below(2) {
                let half = self.half(mem, round);
                let packed = mem == MemType::Wgt && self.packs_weights();
                self.load(if packed { MemType::Wgt4 } else { mem }, half);
            }
        }
        let last = self.insns.len() - 1;
        let preloads = self.config.extensions().contains(Extension::Preload);
        self.insns[first].deps_mut().pop_next = round >= 2 && !preloads;
        self.insns[last].deps_mut().push_next = true;
        let first = self.insns.len();
        let acc = self.half(MemType::Acc, round);
        if preloads {
            self.preload(round);
        } else {
            self.load(MemType::Acc, acc.clone());
        }
        for _ in 0..=self.below(5) {
            self.step(round);
        }
        let last = self.insns.len() - 1;
        let deps = self.insns[first].deps_mut();
        (deps.pop_prev, deps.pop_next) = (true, round >= 2);
        let deps = self.insns[last].deps_mut();
        (deps.push_prev, deps.push_next) = (round + 2 < rounds && !preloads, true);
        let first = self.insns.len();
        for _ in 0..=self.below(2) {
            self.store(acc.clone());
        }
        let last = self.insns.len() - 1;
        self.insns[first].deps_mut().pop_prev = true;
        self.insns[last].deps_mut().push_prev = true;
    }

    /// Something that compute does with a round's accumulators.
    fn step(&mut self, round: usize) {
        let acc = self.half(MemType::Acc, round);
        match self.below(6) {
            0 => {
                let mem = self.sums();
                self.load(mem, acc.clone());
            }
            1 | 2 if self.has_windows() && self.below(2) == 0 => self.windows(round),
            1 | 2 => self.gemm(round),
            3 => self.burst(round),
            _ => self.alu(round),
        }
        if self.requantizes() && acc.len() >= MOST_TILES && self.below(2) == 0 {
            self.load_table(acc);
        }
    }

    /// Whether the next weights have 4 bits.
    pub(crate) fn packs_weights(&mut self) -> bool {
        self.config.extensions().contains(Extension::Wgt4) && self.below(2) == 0
    }

    /// A type of accumulators in DRAM.
    fn sums(&mut self) -> MemType {
        [MemType::Acc, MemType::Acc8][self.below(2)]
    }

    /// The load module fills a part of the round's accumulators, while compute works on the other. Compute's first
    /// instruction follows the stores of two rounds ago and all of the last round, so that its token is for the next
    /// round's inputs, too.
    fn preload(&mut self, round: usize) {
        let acc = self.half(MemType::Acc, round);
        let middle = acc.start + acc.len() / 4 + self.below(acc.len() / 2);
        self.load(MemType::Acc, acc.start..middle);
        let last = self.insns.len() - 1;
        self.insns[last].deps_mut().push_prev = true;
        let first = self.insns.len();
        for _ in 0..=self.below(3) {
            let upper = middle..acc.end;
            if self.requantizes() && upper.len() >= MOST_TILES && self.below(2) == 0 {
                self.load_table(upper);
            } else {
                let mem = self.sums();
                self.load(mem, upper);
            }
            if let Some(Insn::Load(load)) = self.insns.last_mut() {
                load.preload = true;
            }
        }
        let last = self.insns.len() - 1;
        self.insns[first].deps_mut().pop_next = true;
        self.insns[last].deps_mut().push_next = true;
        let table = std::mem::replace(&mut self.table, (0..0, 1));
        self.part = Some(acc.start..middle);
        for _ in 0..self.below(3) {
            self.step(round);
        }
        self.part = None;
        if self.table.0.is_empty() {
            self.table = table;
        }
        let first = self.insns.len();
        self.step(round);
        self.insns[first].deps_mut().pop_prev = true;
    }

    /// What padding holds.
    fn pad_value(&mut self, mem: MemType) -> i8 {
        let able = mem == MemType::Inp && self.config.extensions().contains(Extension::Pad);
        if able && self.below(2) == 0 {
            self.rng.next_u64() as i8
        } else {
            0
        }
    }

    /// Rows of a shape that fit `room` scratchpad tiles and the DRAM region.
    pub(crate) fn load(&mut self, mem: MemType, half: Range<usize>) {
        if self.below(12) == 0 {
            // Only tokens; the pads must not be written.
            let load = Load {
                mem,
                y_pad_0: 3,
                x_pad_1: 2,
                y_size: 2,
                ..Load::default()
            };
            self.insns.push(load.into());
            return;
        }
        let mut pads = [0; 4].map(|_: u8| {
            if self.below(3) == 0 {
                self.below(4) as u8
            } else {
                0
            }
        });
        let (mut y, mut x) = (1 + self.below(4), 1 + self.below(6));
        let tiles = |pads: &[u8; 4], y: usize, x: usize| {
            (usize::from(pads[0] + pads[1]) + y) * (usize::from(pads[2] + pads[3]) + x)
        };
        if tiles(&pads, y, x) > half.len() {
            (pads, y, x) = ([0; 4], 1, 1);
        }
        let room = half.len() - tiles(&pads, y, x);
        let sram_base = half.start + self.below(room + 1);
        let elems = REGION_BYTES as usize / self.config.elem_bytes(mem);
        let stride = self.below(12).min(elems / 16);
        let (y, x) = if (y - 1) * stride + x > elems {
            (1, 1)
        } else {
            (y, x)
        };
        let offset = self.below(elems - ((y - 1) * stride + x) + 1);
        let base = region(mem) as usize / self.config.elem_bytes(mem);
        let load = Load {
            deps: Deps::NONE,
            mem,
            preload: false,
            pad_value: self.pad_value(mem),
            sram_base: sram_base as u16,
            dram_base: (base + offset) as u32,
            y_size: y as u16,
            x_size: x as u16,
            x_stride: stride as u16,
            y_pad_0: pads[0],
            y_pad_1: pads[1],
            x_pad_0: pads[2],
            x_pad_1: pads[3],
        };
        self.insns.push(load.into());
    }

    /// Rows of a shape that fit `room` scratchpad tiles and the DRAM region; rarely rows that
    /// overlap, or another store over the same bytes.
    pub(crate) fn store(&mut self, half: Range<usize>) {
        let x = 1 + self.below(half.len().min(6));
        let y = 1 + self.below((half.len() / x).min(4));
        let elem = self.config.elem_bytes(MemType::Out);
        let elems = REGION_BYTES as usize / elem;
        let stride = match self.below(6) {
            0 => self.below(x),
            _ => x + self.below(5),
        };
        let room = elems - y * x.max(stride);
        let first = half.start + self.below(half.len() - x * y + 1);
        let saturate = self.saturates();
        let store = Store {
            deps: Deps::NONE,
            sram_base: first as u16,
            dram_base: (region(MemType::Out) as usize / elem + self.below(room)) as u32,
            y_size: y as u16,
            x_size: x as u16,
            x_stride: stride as u16,
            requantize: self
                .requantize(y, first + x * y, &half)
                .filter(|_| !saturate),
            saturate,
        };
        self.insns.push(store.into());
        if self.below(4) == 0 {
            let first = half.start + self.below(half.len() - x * y + 1);
            let saturate = self.saturates();
            let again = Store {
                sram_base: first as u16,
                requantize: self
                    .requantize(y, first + x * y, &half)
                    .filter(|_| !saturate),
                saturate,
                ..store
            };
            self.insns.push(again.into());
        }
    }

    /// Whether a STORE clamps.
    fn saturates(&mut self) -> bool {
        self.config.extensions().contains(Extension::Saturate) && self.below(3) == 0
    }

    fn requantizes(&self) -> bool {
        self.config.extensions().contains(Extension::Requant)
    }

    /// Where entries lie in DRAM, and how many tiles each has: first those without a residual.
    fn tables(&self) -> [(usize, usize); 2] {
        let tiles = REGION_BYTES as usize / self.config.elem_bytes(MemType::Acc);
        [(tiles / 2, FEWEST_TILES), (tiles / 4 * 3, MOST_TILES)]
    }

    /// Loads some entries.
    fn load_table(&mut self, half: Range<usize>) {
        let (first, entry_tiles) = self.tables()[self.below(2)];
        let count = 1 + self.below((half.len() / entry_tiles).min(4));
        let tiles = count * entry_tiles;
        let room = REGION_BYTES as usize / self.config.elem_bytes(MemType::Acc) / 4 / entry_tiles;
        let from = first + self.below(room - count + 1) * entry_tiles;
        let to = self.within(half.start..half.end - tiles + 1);
        let load = Load {
            mem: MemType::Acc,
            sram_base: to as u16,
            dram_base: (region(MemType::Acc) as usize / self.config.elem_bytes(MemType::Acc) + from)
                as u32,
            y_size: 1,
            x_size: tiles as u16,
            ..Load::default()
        };
        self.insns.push(load.into());
        self.table = (to..to + tiles, entry_tiles);
    }

    /// How a STORE of rows up to a tile of some requantises, if it does: mostly by the entries that were loaded last,
    /// else by whatever lies in some tiles, often the last ones.
    fn requantize(&mut self, rows: usize, end: usize, half: &Range<usize>) -> Option<Requantize> {
        if !self.requantizes() || self.below(4) == 0 {
            return None;
        }
        let farthest = (half.end - end) / Requantize::RESIDUAL_TILES;
        let (entries, entry_tiles) = self.table.clone();
        let residual = match self.below(4) {
            0 => false,
            1 => true,
            _ => entry_tiles == MOST_TILES,
        };
        let mut how = Requantize {
            table: 0,
            by_row: self.below(2) == 0,
            residual: match farthest {
                1.. if residual => 1 + self.below(farthest.min(63)) as u8,
                _ => 0,
            },
        };
        let tiles = |how: &Requantize| how.entry_tiles() * if how.by_row { rows } else { 1 };
        how.by_row &= tiles(&how) <= half.len();
        if tiles(&how) > half.len() {
            return None;
        }
        let loaded = half.contains(&entries.start) && entries.start + tiles(&how) <= half.end;
        let last = half.end - tiles(&how);
        let table = match self.below(6) {
            0 => last,
            1 => self.within(half.start..last + 1),
            _ if loaded => entries.start,
            _ => self.within(half.start..last + 1),
        };
        how.table = table as u16;
        Some(how)
    }

    /// Loop factors that keep indices within `room` tiles of a start, often zero; what they
    /// reach.
    fn factors(&mut self, room: usize, iter: [usize; 2]) -> ([u16; 2], usize) {
        let factors = match self.below(5) {
            0 => [0; 2],
            _ => [self.below(4), self.below(4)],
        };
        let reach = (iter[0] - 1) * factors[0] + (iter[1] - 1) * factors[1];
        if reach < room {
            (factors.map(|f| f as u16), reach)
        } else {
            ([0; 2], 0)
        }
    }

    /// Puts micro-ops into DRAM and loads them; their range in the scratchpad.
    pub(crate) fn uops(&mut self, uops: &[Uop]) -> Range<usize> {
        let first = self.uop_bytes.len() / 4;
        for uop in uops {
            let word = uop.encode().unwrap_or_default();
            self.uop_bytes.extend_from_slice(&word.to_le_bytes());
        }
        let depth = self.config.depth(MemType::Uop);
        let sram_base = self.below(depth - uops.len() + 1);
        let load = Load {
            mem: MemType::Uop,
            sram_base: sram_base as u16,
            dram_base: (region(MemType::Uop) as usize / 4 + first) as u32,
            y_size: 1,
            x_size: uops.len() as u16,
            ..Load::default()
        };
        self.insns.push(load.into());
        sram_base..sram_base + uops.len()
    }

    fn iterations(&mut self) -> [usize; 2] {
        [1 + self.below(4), 1 + self.below(6)]
    }

    /// Makes some micro-ops those of two before again, wholly or in one tile. Not those right
    /// before, since the RTL can't run most ALU instructions with such.
    fn repeat_some(&mut self, uops: &mut [Uop]) {
        for i in 2..uops.len() {
            let from = uops[self.below(i - 1)];
            match self.below(8) {
                0 => uops[i] = from,
                1 => uops[i].dst = from.dst,
                2 => uops[i].src = from.src,
                3 => uops[i].wgt = from.wgt,
                _ => {}
            }
        }
    }

    /// ALU instructions back to back on a few tiles, most of which they visit more than once:
    /// their runs are the same, or overlap, and a reset may come in between.
    fn burst(&mut self, round: usize) {
        let acc = self.half(MemType::Acc, round);
        let tiles = 2 + self.below(4.min(acc.len() - 1));
        let first = self.within(acc.start..acc.end - tiles + 1);
        let mut uops: Vec<Uop> = Vec::new();
        for _ in 0..2 + self.below(6) {
            let dst = first + self.below(tiles);
            let src = match self.below(3) {
                0 => first + self.below(tiles),
                _ => self.within(acc.clone()),
            };
            let (dst, src) = (dst as u16, src as u16);
            // As above: the RTL.
            let apart = uops.last().is_none_or(|last| last.dst != dst);
            if apart || self.below(16) == 0 {
                let wgt = self.below(Config::MAX_WGT_DEPTH as usize) as u16;
                uops.push(Uop { dst, src, wgt });
            }
        }
        let range = self.uops(&uops);
        let whole = [range.start as u16, range.end as u16];
        for _ in 0..2 + self.below(4) {
            let mut part = whole;
            match self.below(4) {
                0 => part[0] += self.below(uops.len()) as u16,
                1 => part[1] -= self.below(uops.len()) as u16,
                _ => {}
            }
            let iter = match self.below(3) {
                0 => [1 + self.below(3), 1 + self.below(3)],
                _ => [1, 1],
            };
            let iter = iter.map(|i| i as u16);
            if self.below(8) == 0 {
                let [uop_bgn, uop_end] = part;
                let reset = Gemm {
                    reset: true,
                    uop_bgn,
                    uop_end,
                    iter_out: 1,
                    iter_in: 1,
                    ..Gemm::default()
                };
                self.insns.push(reset.into());
                continue;
            }
            let operand = match self.below(3) {
                0 => AluOperand::Acc,
                _ => AluOperand::Imm(self.immediate()),
            };
            let alu = Alu {
                deps: Deps::NONE,
                op: self.op(),
                operand,
                uop_bgn: part[0],
                uop_end: part[1],
                iter_out: iter[0],
                iter_in: iter[1],
                dst_factor_out: 0,
                dst_factor_in: 0,
                src_factor_out: 0,
                src_factor_in: 0,
            };
            self.insns.push(alu.into());
        }
    }

    /// An operation of the machine.
    pub(crate) fn op(&mut self) -> AluOp {
        let ops = self.config.extensions().alu_ops();
        ops[self.below(ops.len())]
    }

    /// Whether products replace what tiles hold.
    pub(crate) fn overwrites(&mut self) -> bool {
        self.config.extensions().contains(Extension::Overwrite) && self.below(3) == 0
    }

    fn immediate(&mut self) -> i16 {
        match self.below(4) {
            0 => i16::MIN,
            1 => self.below(40) as i16 - 20,
            _ => self.rng.next_u64() as i16,
        }
    }

    fn gemm(&mut self, round: usize) {
        let iter = self.iterations();
        let [acc, inp, wgt] =
            [MemType::Acc, MemType::Inp, MemType::Wgt].map(|m| self.half(m, round));
        let (dst, dst_reach) = self.factors(acc.len(), iter);
        let (src, src_reach) = self.factors(inp.len(), iter);
        let (wgt_f, wgt_reach) = self.factors(wgt.len(), iter);
        let count = 1 + self.below(6);
        let mut uops: Vec<Uop> = (0..count)
            .map(|_| Uop {
                dst: self.within(acc.start..acc.end - dst_reach) as u16,
                src: self.within(inp.start..inp.end - src_reach) as u16,
                wgt: self.within(wgt.start..wgt.end - wgt_reach) as u16,
            })
            .collect();
        self.repeat_some(&mut uops);
        let range = self.uops(&uops);
        let gemm = Gemm {
            deps: Deps::NONE,
            overwrite: self.overwrites(),
            reset: self.below(5) == 0,
            uop_bgn: range.start as u16,
            uop_end: range.end as u16,
            iter_out: iter[0] as u16,
            iter_in: iter[1] as u16,
            dst_factor_out: dst[0],
            dst_factor_in: dst[1],
            src_factor_out: src[0],
            src_factor_in: src[1],
            wgt_factor_out: wgt_f[0],
            wgt_factor_in: wgt_f[1],
        };
        self.insns.push(gemm.into());
    }

    fn has_windows(&self) -> bool {
        self.config.extensions().contains(Extension::Depthwise)
    }

    /// A DEPTHWISE, mostly of one micro-op whose windows move on along a row.
    fn windows(&mut self, round: usize) {
        let iter = self.iterations();
        let [acc, inp, wgt] =
            [MemType::Acc, MemType::Inp, MemType::Wgt].map(|m| self.half(m, round));
        let most = self.config.block().min(inp.len() / 2).clamp(1, 15);
        let columns = 1 + self.below(most);
        let rows = 1 + self.below(self.config.block().min(15 * columns) / columns);
        let width = inp.len() - columns;
        let pitch = match rows {
            1 => self.below(40),
            _ => self.below((width / (rows - 1)).min(40) + 1),
        };
        let extent = (rows - 1) * pitch + columns - 1;
        let (dst, dst_reach) = self.factors(acc.len(), iter);
        let (src, src_reach) = self.factors(inp.len() - extent, iter);
        let count = 1 + self.below(4) * self.below(2);
        let mut uops: Vec<Uop> = (0..count)
            .map(|_| Uop {
                dst: self.within(acc.start..acc.end - dst_reach) as u16,
                src: self.within(inp.start..inp.end - extent - src_reach) as u16,
                wgt: self.within(wgt.clone()) as u16,
            })
            .collect();
        self.repeat_some(&mut uops);
        let range = self.uops(&uops);
        let insn = Depthwise {
            deps: Deps::NONE,
            overwrite: self.below(3) == 0,
            rows: rows as u8,
            columns: columns as u8,
            pitch: pitch as u16,
            uop_bgn: range.start as u16,
            uop_end: range.end as u16,
            iter_out: iter[0] as u16,
            iter_in: iter[1] as u16,
            dst_factor_out: dst[0],
            dst_factor_in: dst[1],
            src_factor_out: src[0],
            src_factor_in: src[1],
        };
        self.insns.push(insn.into());
    }

    pub(crate) fn alu(&mut self, round: usize) {
        let iter = self.iterations();
        let acc = self.half(MemType::Acc, round);
        let (dst, dst_reach) = self.factors(acc.len(), iter);
        let (src, src_reach) = self.factors(acc.len(), iter);
        let count = 1 + self.below(6);
        let mut uops: Vec<Uop> = (0..count)
            .map(|_| Uop {
                dst: self.within(acc.start..acc.end - dst_reach) as u16,
                src: self.within(acc.start..acc.end - src_reach) as u16,
                wgt: self.below(Config::MAX_WGT_DEPTH as usize) as u16,
            })
            .collect();
        self.repeat_some(&mut uops);
        let range = self.uops(&uops);
        let imm = self.immediate();
        let alu = Alu {
            deps: Deps::NONE,
            op: self.op(),
            operand: if self.below(2) == 0 {
                AluOperand::Imm(imm)
            } else {
                AluOperand::Acc
            },
            uop_bgn: range.start as u16,
            uop_end: range.end as u16,
            iter_out: iter[0] as u16,
            iter_in: iter[1] as u16,
            dst_factor_out: dst[0],
            dst_factor_in: dst[1],
            src_factor_out: src[0],
            src_factor_in: src[1],
        };
        self.insns.push(alu.into());
    }
}
