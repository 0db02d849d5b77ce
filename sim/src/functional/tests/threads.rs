//! Any number of threads is one thread: DRAM, scratchpads, reports.

use proptest::prelude::*;
use vta_driver::Traffic;
use vta_isa::{
    Alu, AluOp, AluOperand, Deps, Finish, Gemm, Load, MemType, Module, Requantize, Store, Uop,
};

use super::super::*;
use crate::Oracle;

/// Where loads and stores of a program meet.
const DATA: usize = 0x4_0000;
const DATA_BYTES: usize = 4096;
const UOPS: usize = 0x1_0000;
pub(super) const WEIGHTS: usize = 0x2_0000;
/// Micro-ops and weight tiles that a program loads first.
const LOADED: usize = 16;
/// Accumulator and input tiles that a program uses: few, so that they are used again and again.
const TILES: usize = 24;

/// A small random number from a seed, the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }

    /// At least 1.
    fn up_to(&mut self, n: usize) -> u16 {
        1 + self.below(n) as u16
    }
}

pub(super) fn memory(config: &Config, seed: u64) -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    let mut dice = Dice(seed);
    let weights = LOADED * config.elem_bytes(MemType::Wgt);
    for (addr, size) in [(UOPS, 4 * LOADED), (WEIGHTS, weights), (DATA, DATA_BYTES)] {
        memory.map(addr as u32, size as u64).unwrap();
        let bytes = memory.write(addr as u64, size as u64).unwrap();
        bytes.iter_mut().for_each(|b| *b = dice.below(256) as u8);
    }
    let mut uops = Vec::new();
    for _ in 0..LOADED {
        let mut index = || dice.below(TILES / 2) as u16;
        let (dst, src) = (index(), index());
        let uop = Uop {
            dst,
            src,
            wgt: dice.below(LOADED) as u16,
        };
        uops.extend(uop.encode().unwrap().to_le_bytes());
    }
    let bytes = memory.write(UOPS as u64, uops.len() as u64).unwrap();
    bytes.copy_from_slice(&uops);
    memory
}

pub(super) fn data(memory: &DeviceMemory) -> Vec<u8> {
    memory
        .read(DATA as u64, DATA_BYTES as u64)
        .unwrap()
        .to_vec()
}

/// Puts tokens between neighbours of different modules, so that instructions run as listed.
fn serialised(insns: Vec<Insn>) -> Vec<Insn> {
    let mut all: Vec<Insn> = Vec::new();
    for insn in insns {
        let last = all.last().map_or(insn.module(), Insn::module);
        let outer = [Module::Load, Module::Store];
        if outer.contains(&last) && outer.contains(&insn.module()) && last != insn.module() {
            // Nothing but tokens, in between.
            all.push(
                Load {
                    mem: MemType::Acc,
                    ..Load::default()
                }
                .into(),
            );
        }
        all.push(insn);
    }
    for at in 1..all.len() {
        let (before, after) = (all[at - 1].module(), all[at].module());
        if before == after {
            continue;
        }
        let forward = after == Module::Store || before == Module::Load;
        let deps = all[at - 1].deps_mut();
        if forward {
            deps.push_next = true
        } else {
            deps.push_prev = true
        }
        let deps = all[at].deps_mut();
        if forward {
            deps.pop_prev = true
        } else {
            deps.pop_next = true
        }
    }
    all
}

/// Loads and stores that overlap each other anywhere in a few kilobytes, and steps on a few tiles
/// that are used again before anybody is done with them.
pub(super) fn program(config: &Config, seed: u64, steps: usize) -> Vec<Insn> {
    let mut insns = listed(config, seed, steps);
    insns.push(Finish::default().into());
    serialised(insns)
}

fn listed(config: &Config, seed: u64, steps: usize) -> Vec<Insn> {
    let mut dice = Dice(seed ^ 0x9e37_79b9);
    let whole = |mem: MemType, addr: usize| Load {
        mem,
        dram_base: (addr / config.elem_bytes(mem)) as u32,
        y_size: 1,
        x_size: LOADED as u16,
        x_stride: LOADED as u16,
        ..Load::default()
    };
    let mut insns: Vec<Insn> = vec![
        whole(MemType::Uop, UOPS).into(),
        whole([MemType::Wgt, MemType::Wgt4][dice.below(2)], WEIGHTS).into(),
    ];
    for _ in 0..steps {
        insns.push(match dice.below(8) {
            0 | 1 => load(config, &mut dice, MemType::Inp),
            2 => {
                let mem = [MemType::Acc, MemType::Acc8][dice.below(2)];
                load(config, &mut dice, mem)
            }
            3 => alu(&mut dice),
            4 | 5 => gemm(&mut dice),
            _ => store(config, &mut dice),
        });
    }
    insns
}

fn load(config: &Config, dice: &mut Dice, mem: MemType) -> Insn {
    let elem = config.elem_bytes(mem);
    let (x, y) = (dice.up_to(3), dice.up_to(2));
    let stride = x + dice.below(2) as u16;
    let pad = |dice: &mut Dice| dice.below(4).saturating_sub(2) as u8;
    let (x_pad_0, y_pad_0) = (pad(dice), pad(dice));
    let room = DATA_BYTES / elem - usize::from((y - 1) * stride + x);
    let tiles = usize::from((y + u16::from(y_pad_0)) * (x + u16::from(x_pad_0)));
    // Residuals.
    let (far, preload) = match mem {
        MemType::Acc | MemType::Acc8 => {
            let far = dice.below(2) * Requantize::RESIDUAL_TILES;
            (far, dice.below(2) == 0)
        }
        MemType::Uop | MemType::Wgt | MemType::Wgt4 | MemType::Inp | MemType::Out => (0, false),
    };
    Load {
        mem,
        preload,
        pad_value: match mem {
            MemType::Inp => dice.below(3) as i8,
            _ => 0,
        },
        sram_base: (dice.below(TILES - tiles) + far) as u16,
        dram_base: (DATA / elem + dice.below(room + 1)) as u32,
        y_size: y,
        x_size: x,
        x_stride: stride,
        x_pad_0,
        y_pad_0,
        ..Load::default()
    }
    .into()
}

fn store(config: &Config, dice: &mut Dice) -> Insn {
    let elem = config.elem_bytes(MemType::Out);
    let (x, y) = (dice.up_to(4), dice.up_to(3));
    // Rows that overlap among them.
    let stride = (x + dice.below(3) as u16).saturating_sub(dice.below(8) as u16 / 7);
    let room = DATA_BYTES / elem - usize::from((y - 1) * stride + x);
    let how = dice.below(4);
    Store {
        deps: Deps::NONE,
        sram_base: dice.below(TILES - usize::from(x * y)) as u16,
        dram_base: (DATA / elem + dice.below(room + 1)) as u32,
        y_size: y,
        x_size: x,
        x_stride: stride,
        saturate: how == 0,
        requantize: (how > 1).then(|| Requantize {
            table: dice.below(TILES) as u16,
            by_row: dice.below(2) == 0,
            residual: dice.below(2) as u8,
        }),
    }
    .into()
}

fn uop_range(dice: &mut Dice) -> (u16, u16) {
    let bgn = dice.below(LOADED - 1) as u16;
    (bgn, bgn + dice.up_to((LOADED - usize::from(bgn)).min(3)))
}

fn gemm(dice: &mut Dice) -> Insn {
    let (uop_bgn, uop_end) = uop_range(dice);
    let gemm = Gemm {
        reset: dice.below(3) == 0,
        uop_bgn,
        uop_end,
        iter_out: dice.up_to(2),
        iter_in: dice.up_to(4),
        dst_factor_out: dice.below(4) as u16,
        dst_factor_in: dice.below(3) as u16,
        src_factor_out: dice.below(4) as u16,
        src_factor_in: dice.below(3) as u16,
        ..Gemm::default()
    };
    // Of several steps two may replace the same tile, which isn't planned.
    let overwrite = gemm.steps() == 1 && dice.below(2) == 0;
    Gemm { overwrite, ..gemm }.into()
}

fn alu(dice: &mut Dice) -> Insn {
    let (uop_bgn, uop_end) = uop_range(dice);
    Alu {
        deps: Deps::NONE,
        op: AluOp::ALL[dice.below(AluOp::ALL.len())],
        operand: match dice.below(2) {
            0 => AluOperand::Imm(dice.below(20) as i16 - 6),
            _ => AluOperand::Acc,
        },
        uop_bgn,
        uop_end,
        iter_out: dice.up_to(2),
        iter_in: dice.up_to(4),
        dst_factor_out: dice.below(4) as u16,
        dst_factor_in: dice.below(3) as u16,
        src_factor_out: dice.below(4) as u16,
        src_factor_in: dice.below(3) as u16,
    }
    .into()
}

pub(super) fn batch(insns: Vec<Insn>) -> Arc<Batch> {
    let mark = |first_insn: usize, name: &str| LayerMark {
        first_insn,
        name: name.into(),
    };
    Arc::new(Batch {
        words: Vec::new(),
        marks: vec![mark(0, "first"), mark(insns.len() / 2, "second")],
        insns,
        insn_addr: vta_driver::PhysAddr(0),
    })
}

/// What a report says but times: of all, of each mark, and tokens.
type Reported = (Traffic, Vec<(String, Traffic)>, [u32; 4]);

/// Everything that a run leaves.
#[derive(Debug, PartialEq)]
struct After {
    dram: Vec<u8>,
    uop: Vec<Uop>,
    wgt: Vec<u8>,
    inp: Vec<u8>,
    acc: Vec<i32>,
    reports: Vec<Reported>,
}

/// Runs all batches in turns, several times, and says what is there in the end; and how many tasks
/// the plans had.
fn run_all(mut executor: Functional, config: &Config, batches: &[Arc<Batch>]) -> (After, usize) {
    let mut memory = memory(config, 7);
    let mut reports = Vec::new();
    for _ in 0..3 {
        for batch in batches {
            let report = executor.run_batch(batch, &mut memory).unwrap();
            let marks = report.marks.into_iter().map(|m| (m.name, m.traffic));
            reports.push((report.traffic, marks.collect(), report.leftover_tokens));
        }
    }
    let plans = executor.known.iter().filter_map(|known| known.plan());
    let schedules = plans.filter_map(|plan| plan.schedule.get()?.as_ref());
    let tasks = schedules.map(|s| s.tasks.len()).sum();
    executor.settle();
    let pads = executor.pads;
    let after = After {
        dram: data(&memory),
        uop: pads.uop,
        wgt: pads.wgt,
        inp: pads.inp,
        acc: pads.acc,
        reports,
    };
    (after, tasks)
}

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
];

/// Runs the same on 1, 2, 3 and 8 threads, with copies of inputs and without; the tasks that there
/// were on several.
fn compare(config: &Config, kernel: GemmKernel, batches: &[Arc<Batch>]) -> usize {
    let executor = |staged| {
        let executor = Functional::with_kernel(config.clone(), kernel).with_least_cost_ns(0);
        let executor = executor.with_staged_inputs(staged);
        executor.with_planning(Planning::AtOnce)
    };
    let (expected, none) = run_all(executor(false), config, batches);
    assert_eq!(none, 0);
    let mut most = 0;
    for (threads, staged) in [(1, true), (2, true), (3, false), (8, true)] {
        let (found, tasks) = run_all(executor(staged).with_threads(threads), config, batches);
        assert!(
            found == expected,
            "{threads} threads differ, {tasks} tasks, {staged}"
        );
        most = most.max(tasks);
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn programs_that_use_everything_again_are_those_of_one_thread(
        seed in any::<u64>(), config in 0usize..4, steps in 4usize..80,
    ) {
        let config = Config::from_json(CONFIGS[config]).unwrap();
        let batches: Vec<Arc<Batch>> =
            (0..2).map(|n| batch(program(&config, seed.wrapping_add(n), steps))).collect();
        compare(&config, GemmKernel::detect(), &batches);
    }
}

#[test]
fn most_such_programs_have_several_tasks_and_are_the_oracles() {
    let (mut planned, mut tasks) = (0, 0);
    for seed in 0..60 {
        let config = Config::from_json(CONFIGS[seed as usize % 4]).unwrap();
        let batch = batch(program(&config, seed, 40));
        let found = compare(&config, GemmKernel::Scalar, std::slice::from_ref(&batch));
        planned += usize::from(found > 1);
        tasks += found;
        let (mut ours, mut expected) = (memory(&config, 7), memory(&config, 7));
        let mut functional = Functional::new(config.clone())
            .with_planning(Planning::AtOnce)
            .with_least_cost_ns(0)
            .with_threads(3);
        functional.run_batch(&batch, &mut ours).unwrap();
        Oracle::new(config.clone())
            .run_batch(&batch, &mut expected)
            .unwrap();
        assert!(data(&ours) == data(&expected), "seed {seed}");
    }
    assert!(
        planned > 40 && tasks > 200,
        "{planned} programs with {tasks} tasks"
    );
}

/// Chains of tiles through one buffer in DRAM and one accumulator tile, in place.
#[test]
fn tasks_that_write_what_others_read_keep_their_order() {
    let config = Config::default();
    let mut insns: Vec<Insn> = Vec::new();
    let elem = config.elem_bytes(MemType::Out);
    for step in 0..40u32 {
        let (from, to) = (DATA / elem, DATA / elem);
        // Each adds to what the one before stored: RAW, WAR and WAW over DRAM and tile 3.
        insns.push(
            Load {
                mem: MemType::Acc8,
                sram_base: 3,
                dram_base: from as u32 + step % 5,
                y_size: 1,
                x_size: 2,
                x_stride: 2,
                ..Load::default()
            }
            .into(),
        );
        insns.push(
            Alu {
                deps: Deps::NONE,
                op: AluOp::Add,
                operand: AluOperand::Imm(step as i16 + 1),
                uop_bgn: 0,
                uop_end: 1,
                iter_out: 1,
                iter_in: 2,
                dst_factor_out: 0,
                dst_factor_in: 1,
                src_factor_out: 0,
                src_factor_in: 0,
            }
            .into(),
        );
        insns.push(
            Store {
                sram_base: 3,
                dram_base: to as u32 + (step * 3) % 7,
                y_size: 1,
                x_size: 2,
                x_stride: 2,
                ..Store::default()
            }
            .into(),
        );
    }
    insns.push(Finish::default().into());
    let mut memory = memory(&config, 7);
    let uop = Uop {
        dst: 3,
        src: 0,
        wgt: 0,
    }
    .encode()
    .unwrap()
    .to_le_bytes();
    let first = Load {
        mem: MemType::Uop,
        dram_base: (UOPS / 4) as u32,
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..Load::default()
    };
    insns.insert(0, first.into());
    let batch = batch(serialised(insns));
    memory.write(UOPS as u64, 4).unwrap().copy_from_slice(&uop);
    let start = data(&memory);
    let mut oracle = Oracle::new(config.clone());
    oracle.run_batch(&batch, &mut memory).unwrap();
    let expected = data(&memory);
    let executor = Functional::new(config.clone()).with_least_cost_ns(0);
    let mut executor = executor.with_threads(4).with_planning(Planning::AtOnce);
    // Again and again: a wrong order would show in some run.
    for round in 0..300 {
        memory
            .write(DATA as u64, DATA_BYTES as u64)
            .unwrap()
            .copy_from_slice(&start);
        executor.run_batch(&batch, &mut memory).unwrap();
        let found = memory.read(DATA as u64, DATA_BYTES as u64).unwrap();
        assert!(found == expected, "round {round}");
    }
    let plan = executor.known[0].plan().unwrap();
    let schedule = plan.schedule.get().unwrap();
    assert!(schedule.as_ref().is_some_and(|s| s.tasks.len() > 30));
}

#[test]
fn a_small_batch_starts_no_thread() {
    let config = Config::default();
    let batch = batch(program(&config, 3, 30));
    let mut executor = Functional::new(config.clone()).with_threads(8);
    executor = executor.with_planning(Planning::AtOnce);
    executor.run_batch(&batch, &mut memory(&config, 7)).unwrap();
    assert!(executor.crew.is_none());
    assert_eq!(executor.threads(), 8);
    assert_eq!(Functional::new(config).with_threads(0).threads(), 1);
}

#[test]
fn a_fault_has_the_effects_of_what_comes_before_it() {
    let config = Config::default();
    for seed in 0..20 {
        let outside = Store {
            sram_base: 2000,
            dram_base: 1,
            y_size: 1,
            x_size: 1,
            x_stride: 1,
            ..Store::default()
        };
        let mut insns = listed(&config, seed, 30);
        insns.extend([Insn::from(outside), Finish::default().into()]);
        let insns = serialised(insns);
        let run = |threads: usize| {
            let mut memory = memory(&config, 7);
            let executor = Functional::new(config.clone()).with_least_cost_ns(0);
            let executor = executor.with_planning(Planning::AtOnce);
            let error = executor.with_threads(threads).run(&insns, &[], &mut memory);
            (error.unwrap_err(), data(&memory))
        };
        assert_eq!(run(1), run(4));
    }
}
