//! A case of the fuzz target: instructions with arbitrary fields, legal or not, among tiles as a
//! compiler makes them (resets, products, biases, diagonal residuals, requantisation, stores),
//! since those are what the fast executor fuses.

use std::ops::Range;

use vta_driver::DeviceMemory;
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Depthwise, Finish, Gemm, Insn, Load, MemType, Module,
    Requantize, Store, Uop,
};

use crate::tables::{self, MOST_TILES};

/// DRAM regions: address and size. Micro-ops, weights, inputs, accumulators, outputs.
pub(super) const REGIONS: [(u32, usize); 5] = [
    (0x1000, 1 << 12),
    (0x8000, 1 << 14),
    (0x2_0000, 1 << 13),
    (0x3_0000, 1 << 13),
    (0x4_0000, 1 << 13),
];

const UOPS: u32 = 0x1000;
const WEIGHTS: u32 = 0x8000;
const INPUTS: u32 = 0x2_0000;
const ACCS: u32 = 0x3_0000;
const OUTPUTS: u32 = 0x4_0000;

/// Instructions of a case at most.
const MOST_INSNS: usize = 120;

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 5}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
];

/// Bytes one after the other, zeros at the end.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn below(&mut self, n: u16) -> u16 {
        u16::from(self.byte()) % n.max(1)
    }
}

/// Instructions, and what their memory holds at first.
pub(super) struct Case<'a> {
    bytes: Cursor<'a>,
    pub config: Config,
    /// Of the memory's bytes.
    pub seed: u16,
    /// Which byte is written between two runs.
    pub written: u16,
    pub insns: Vec<Insn>,
    uops: Vec<Uop>,
}

/// Tokens that make the modules follow the program's order: instructions hand one around where
/// neighbours are of different modules. Those of LOAD and STORE aren't connected; there the order
/// is what the tokens left, the same for everybody.
fn in_order(insns: &mut [Insn]) {
    let place = |insn: &Insn| match insn.module() {
        Module::Load => 0,
        Module::Compute => 1,
        Module::Store => 2,
    };
    for index in 1..insns.len() {
        let (from, to) = (place(&insns[index - 1]), place(&insns[index]));
        let step = i32::from(to as i8) - i32::from(from as i8);
        if step == 1 {
            insns[index - 1].deps_mut().push_next = true;
            insns[index].deps_mut().pop_prev = true;
        } else if step == -1 {
            insns[index - 1].deps_mut().push_prev = true;
            insns[index].deps_mut().pop_next = true;
        }
    }
}

impl<'a> Case<'a> {
    /// The case that bytes stand for: any bytes are one.
    pub fn read(data: &'a [u8]) -> Self {
        let mut bytes = Cursor(data);
        let config = CONFIGS[usize::from(bytes.byte()) % CONFIGS.len()];
        let mut case = Case {
            config: Config::from_json(config).expect("the configurations are legal"),
            seed: bytes.word(),
            written: bytes.word(),
            bytes,
            insns: Vec::new(),
            uops: Vec::new(),
        };
        while !case.bytes.0.is_empty() && case.insns.len() < MOST_INSNS {
            case.more();
        }
        case.insns.push(Finish::default().into());
        in_order(&mut case.insns);
        case
    }

    /// Memory with all regions, random bytes in them.
    pub fn memory(&self) -> DeviceMemory {
        let mut memory = DeviceMemory::new();
        let mut state = u64::from(self.seed) | 1 << 32;
        for (addr, size) in REGIONS {
            memory.map(addr, size as u64).expect("regions are disjoint");
            let bytes = memory.write(addr.into(), size as u64);
            for byte in bytes.expect("the region is mapped") {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = match state >> 61 {
                    0 => 0x80,
                    _ => (state >> 33) as u8,
                };
            }
        }
        let block = self.config.block();
        // The second half of the weights is diagonal tiles.
        let half = REGIONS[1].1 / 2;
        let bytes = memory.write(u64::from(WEIGHTS) + half as u64, half as u64);
        for (i, byte) in bytes.expect("the region is mapped").iter_mut().enumerate() {
            let at = i % (block * block);
            if at / block != at % block {
                *byte = 0;
            }
        }
        let tables = self.tables();
        let bytes = memory.write(u64::from(ACCS) + tables.start as u64, tables.len() as u64);
        let bytes = bytes.expect("the region is mapped");
        tables::fill(bytes, &self.config, MOST_TILES, || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state >> 16 ^ state << 32
        });
        let words = self.uops.iter().map(|u| u.encode().unwrap_or_default());
        let words: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        let uops = memory.write(UOPS.into(), words.len().min(REGIONS[0].1) as u64);
        for (to, from) in uops.expect("the region is mapped").iter_mut().zip(words) {
            *to = from;
        }
        memory
    }

    /// Where tables lie among the accumulators of DRAM.
    fn tables(&self) -> Range<usize> {
        REGIONS[3].1 / 2..REGIONS[3].1
    }

    fn more(&mut self) {
        match self.bytes.below(8) {
            0 => self.any_load(),
            1 => self.any_store(),
            2 => self.any_gemm(),
            3 => self.any_alu(),
            4 => self.any_windows(),
            _ => self.tile(),
        }
    }

    fn base(&self, mem: MemType, addr: u32) -> u32 {
        addr / self.config.elem_bytes(mem) as u32
    }

    fn any_load(&mut self) {
        let kinds = [
            (MemType::Uop, UOPS),
            (MemType::Wgt, WEIGHTS),
            (MemType::Wgt4, WEIGHTS),
            (MemType::Inp, INPUTS),
            (MemType::Acc, ACCS),
            (MemType::Acc8, OUTPUTS),
        ];
        let (mem, addr) = kinds[usize::from(self.bytes.below(6))];
        let sums = matches!(mem, MemType::Acc | MemType::Acc8);
        let load = Load {
            deps: Deps::NONE,
            mem,
            preload: sums && self.bytes.byte() & 1 == 0,
            pad_value: match mem {
                MemType::Inp => self.bytes.byte() as i8,
                _ => 0,
            },
            sram_base: self.bytes.word() % Config::MAX_ACC_DEPTH as u16,
            dram_base: self.base(mem, addr) + u32::from(self.bytes.byte()),
            y_size: self.bytes.below(5),
            x_size: self.bytes.below(9),
            x_stride: self.bytes.below(12),
            y_pad_0: self.bytes.byte() & 3,
            y_pad_1: self.bytes.byte() & 1,
            x_pad_0: self.bytes.byte() & 3,
            x_pad_1: self.bytes.byte() & 1,
        };
        self.insns.push(load.into());
    }

    fn any_store(&mut self) {
        let addr = [OUTPUTS, INPUTS, WEIGHTS, UOPS][usize::from(self.bytes.byte() >> 5) % 4];
        let store = Store {
            deps: Deps::NONE,
            sram_base: self.bytes.word() % Config::MAX_ACC_DEPTH as u16,
            dram_base: self.base(MemType::Out, addr) + u32::from(self.bytes.byte()),
            y_size: self.bytes.below(5),
            x_size: self.bytes.below(9),
            x_stride: self.bytes.below(12),
            ..self.narrowing(|word| word % Config::MAX_ACC_DEPTH as u16)
        };
        self.insns.push(store.into());
    }

    /// A STORE of nothing that requantises, by a table that is found by a number, saturates, or does neither.
    fn narrowing(&mut self, table: impl FnOnce(u16) -> u16) -> Store {
        let kind = self.bytes.byte();
        let requantize = (kind & 3 != 0).then(|| Requantize {
            table: table(self.bytes.word()),
            by_row: kind & 4 != 0,
            residual: if kind & 8 == 0 { 0 } else { kind >> 4 & 3 },
        });
        Store {
            saturate: kind & 7 == 4,
            requantize,
            ..Store::default()
        }
    }

    fn any_gemm(&mut self) {
        let reset = self.bytes.byte();
        let gemm = Gemm {
            deps: Deps::NONE,
            overwrite: reset & 4 == 0,
            reset: reset & 3 == 0,
            uop_bgn: self.bytes.below(8),
            uop_end: self.bytes.below(16),
            iter_out: self.bytes.below(5),
            iter_in: self.bytes.below(5),
            dst_factor_out: self.bytes.below(9),
            dst_factor_in: self.bytes.below(9),
            src_factor_out: self.bytes.below(9),
            src_factor_in: self.bytes.below(9),
            wgt_factor_out: self.bytes.below(3),
            wgt_factor_in: self.bytes.below(3),
        };
        self.insns.push(gemm.into());
    }

    fn any_windows(&mut self) {
        let window = self.bytes.byte();
        let insn = Depthwise {
            deps: Deps::NONE,
            overwrite: window & 1 == 0,
            rows: window >> 1 & 3,
            columns: window >> 3 & 7,
            pitch: self.bytes.below(9),
            uop_bgn: self.bytes.below(8),
            uop_end: self.bytes.below(16),
            iter_out: self.bytes.below(5),
            iter_in: self.bytes.below(5),
            dst_factor_out: self.bytes.below(9),
            dst_factor_in: self.bytes.below(9),
            src_factor_out: self.bytes.below(9),
            src_factor_in: self.bytes.below(9),
        };
        self.insns.push(insn.into());
    }

    fn any_alu(&mut self) {
        let op = AluOp::ALL[usize::from(self.bytes.byte()) % AluOp::ALL.len()];
        let operand = match self.bytes.byte() & 1 {
            0 => AluOperand::Imm(self.bytes.word() as i16),
            _ => AluOperand::Acc,
        };
        let alu = Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: self.bytes.below(8),
            uop_end: self.bytes.below(16),
            iter_out: self.bytes.below(5),
            iter_in: self.bytes.below(5),
            dst_factor_out: self.bytes.below(9),
            dst_factor_in: self.bytes.below(9),
            src_factor_out: self.bytes.below(9),
            src_factor_in: self.bytes.below(9),
        };
        self.insns.push(alu.into());
    }

    /// Puts micro-ops into DRAM and loads them to the scratchpad's start; how many.
    fn load_uops(&mut self, uops: &[Uop]) -> u16 {
        let room = REGIONS[0].1 / 4 - self.uops.len();
        let uops = &uops[..uops.len().min(room)];
        let load = Load {
            mem: MemType::Uop,
            dram_base: UOPS / 4 + self.uops.len() as u32,
            y_size: 1,
            x_size: uops.len() as u16,
            x_stride: uops.len() as u16,
            ..Load::default()
        };
        self.uops.extend_from_slice(uops);
        self.insns.push(load.into());
        uops.len() as u16
    }

    /// LOAD of `tiles` elements in a row.
    fn load(&mut self, mem: MemType, sram_base: u16, dram_base: u32, tiles: u16) {
        let load = Load {
            mem,
            sram_base,
            dram_base,
            y_size: 1,
            x_size: tiles,
            x_stride: tiles,
            ..Load::default()
        };
        self.insns.push(load.into());
    }

    /// A GEMM over `positions` accumulators of each micro-op.
    fn gemm(&mut self, uops: &[Uop], reset: bool, positions: u16, src_step: u16) {
        let uop_end = self.load_uops(uops);
        let gemm = Gemm {
            overwrite: positions & 4 == 0,
            reset,
            uop_end,
            iter_out: 1,
            iter_in: positions,
            dst_factor_in: 1,
            src_factor_in: src_step,
            ..Gemm::default()
        };
        self.insns.push(gemm.into());
    }

    /// An output tile: groups of accumulators, products, biases, residuals, steps, stores.
    fn tile(&mut self) {
        let shape = self.bytes.byte();
        let (positions, groups) = (1 + u16::from(shape & 7), 1 + u16::from(shape >> 3 & 3));
        let taps = 1 + u16::from(shape >> 5 & 3);
        let acc = self.bytes.below(3) * positions * groups;
        let each = |f: &dyn Fn(u16) -> Uop| (0..groups).map(f).collect::<Vec<Uop>>();
        let dst = |g: u16| acc + g * positions;
        let [inp, wgt] = [MemType::Inp, MemType::Wgt].map(|m| self.config.elem_bytes(m) as u32);
        let from = u32::from(self.bytes.below(32));
        self.load(MemType::Inp, 0, INPUTS / inp + from, positions + taps);
        let weights = u32::from(self.bytes.below(4));
        self.load(MemType::Wgt, 0, WEIGHTS / wgt + weights, groups * taps);
        let reset = each(&|g| Uop {
            dst: dst(g),
            ..Uop::default()
        });
        match self.bytes.below(3) {
            0 => self.residual_load(acc, positions * groups),
            _ => self.gemm(&reset, true, positions, 0),
        }
        let products: Vec<Uop> = (0..groups)
            .flat_map(|g| {
                (0..taps).map(move |t| Uop {
                    dst: dst(g),
                    src: t,
                    wgt: g * taps + t,
                })
            })
            .collect();
        self.gemm(&products, false, positions, 1);
        for _ in 0..self.bytes.below(8) {
            match self.bytes.below(8) {
                0 => {
                    // A bias: one input tile for all.
                    let bias = each(&|g| Uop {
                        dst: dst(g),
                        src: positions,
                        wgt: g,
                    });
                    self.gemm(&bias, false, positions, 0);
                }
                1 => {
                    // A residual through diagonal weights.
                    let first = REGIONS[1].1 as u32 / 2 / wgt;
                    let bank = u32::from(self.bytes.below(4));
                    let at = 8 + groups * taps;
                    let from = u32::from(self.bytes.below(32));
                    self.load(MemType::Wgt, at, WEIGHTS / wgt + first + bank, groups);
                    self.load(MemType::Inp, 32, INPUTS / inp + from, positions * groups);
                    let residual = each(&|g| Uop {
                        dst: dst(g),
                        src: 32 + g * positions,
                        wgt: at + g,
                    });
                    self.gemm(&residual, false, positions, 1);
                }
                2 => {
                    // Taps in any order, some of them again.
                    let any = |_| products[usize::from(self.bytes.byte()) % products.len()];
                    let taps: Vec<Uop> = (0..4).map(any).collect();
                    let step = self.bytes.below(3);
                    self.gemm(&taps, false, positions, step);
                }
                3 => {
                    // Some of the tiles start anew.
                    let some = 1 + usize::from(self.bytes.byte()) % reset.len();
                    let positions = 1 + self.bytes.below(positions);
                    self.gemm(&reset[..some], true, positions, 0);
                }
                4 => self.burst(acc, positions, groups),
                _ => self.step(acc, positions, groups),
            }
        }
        self.stores(acc, positions, groups);
    }

    fn residual_load(&mut self, acc: u16, tiles: u16) {
        let from = u32::from(self.bytes.below(32));
        let base = self.base(MemType::Acc8, INPUTS) + from;
        self.load(MemType::Acc8, acc, base, tiles);
    }

    /// An ALU step on all groups, or on some.
    fn step(&mut self, acc: u16, positions: u16, groups: u16) {
        let kind = self.bytes.byte();
        let vectors = acc + positions * groups;
        let group = |g| Uop {
            dst: acc + g * positions,
            src: vectors + g,
            wgt: 0,
        };
        let mut uops: Vec<Uop> = (0..groups).map(group).collect();
        if kind & 0x30 == 0 {
            uops.truncate(1 + usize::from(kind >> 6) % uops.len().max(1));
        }
        let op = AluOp::ALL[usize::from(kind & 7) % AluOp::ALL.len()];
        let vector = kind & 8 != 0;
        if vector {
            let base = self.base(MemType::Acc, ACCS) + u32::from(self.bytes.below(8));
            self.load(MemType::Acc, vectors, base, groups);
        }
        let operand = match vector {
            true => AluOperand::Acc,
            false => AluOperand::Imm(i16::from(self.bytes.byte() as i8)),
        };
        let uop_end = self.load_uops(&uops);
        let alu = Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: 0,
            uop_end,
            iter_out: 1,
            iter_in: positions,
            dst_factor_out: 0,
            dst_factor_in: 1,
            src_factor_out: 0,
            src_factor_in: 0,
        };
        self.insns.push(alu.into());
    }

    /// ALU instructions back to back on the same tiles, some of which they visit repeatedly.
    fn burst(&mut self, acc: u16, positions: u16, groups: u16) {
        let tiles = positions * groups;
        let mut uops = Vec::new();
        for _ in 0..2 + self.bytes.below(5) {
            let (dst, src) = (self.bytes.below(tiles), self.bytes.below(2 * tiles));
            let (dst, src) = (acc + dst, acc + src);
            uops.push(Uop { dst, src, wgt: 0 });
        }
        let uop_end = self.load_uops(&uops);
        for _ in 0..2 + self.bytes.below(3) {
            let kind = self.bytes.byte();
            let operand = match kind & 0x18 {
                0 => AluOperand::Acc,
                _ => AluOperand::Imm(i16::from(self.bytes.byte() as i8)),
            };
            let alu = Alu {
                deps: Deps::NONE,
                op: AluOp::ALL[usize::from(kind & 7) % AluOp::ALL.len()],
                operand,
                uop_bgn: u16::from(kind & 0xe0 == 0x20).min(uop_end),
                uop_end,
                iter_out: 1,
                iter_in: 1 + u16::from(kind & 0xc0 == 0x40),
                dst_factor_out: 0,
                dst_factor_in: 0,
                src_factor_out: 0,
                src_factor_in: 0,
            };
            self.insns.push(alu.into());
        }
    }

    /// One store of all groups, or one of each; sometimes some of them again, to the same bytes
    /// or to bytes beside them.
    fn stores(&mut self, acc: u16, positions: u16, groups: u16) {
        let kind = self.bytes.byte();
        let addr = if kind & 0x1f == 0 { INPUTS } else { OUTPUTS };
        let base = self.base(MemType::Out, addr) + u32::from(kind >> 5) * 8;
        let table = acc + (positions + 1) * groups;
        let narrowing = self.narrowing(|far| table + far % 4);
        if let Some(how) = &narrowing.requantize {
            let tiles = (how.entry_tiles() * usize::from(groups)) as u16;
            let from = self.tables().start / self.config.elem_bytes(MemType::Acc);
            let from = self.base(MemType::Acc, ACCS) + from as u32;
            self.load(MemType::Acc, table, from, tiles);
        }
        let store = |sram_base, dram_base, y_size, x_size| {
            Insn::from(Store {
                sram_base,
                dram_base,
                y_size,
                x_size,
                x_stride: positions + 1,
                ..narrowing
            })
        };
        if kind & 1 == 0 {
            self.insns.push(store(acc, base, groups, positions));
        } else {
            for g in 0..groups {
                let to = base + u32::from(g * (positions + 1));
                let one = store(acc + g * positions, to, 1, positions);
                self.insns.push(one);
            }
        }
        if kind & 6 == 2 {
            let beside = u32::from(self.bytes.below(3));
            let rows = 1 + self.bytes.below(groups);
            self.insns.push(store(acc, base + beside, rows, positions));
        }
    }
}
