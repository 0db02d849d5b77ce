//! Plans that threads of their own make.

use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use vta_driver::{Batch, DeviceMemory, Traffic};
use vta_isa::{Config, Gemm};

use super::super::*;
use super::threads::{WEIGHTS, batch, data, memory, program};
use crate::Oracle;

/// Until a plan must be there.
const LONGEST: Duration = Duration::from_secs(120);

fn config() -> Config {
    Config::default()
}

fn outlook(insns: &[Insn]) -> Outlook {
    Outlook::of(&Traffic::of(insns, &config()))
}

/// Long enough for a thread of its own, with data that depend on all of it.
fn long(seed: u64) -> Arc<Batch> {
    let batch = batch(program(&config(), seed, 300));
    assert!(outlook(&batch.insns).long);
    batch
}

/// Two of the same: for the executor and for the oracle.
fn memories() -> [DeviceMemory; 2] {
    [memory(&config(), 7), memory(&config(), 7)]
}

fn plan(executor: &Functional) -> Option<&Arc<Plan>> {
    executor.known.back()?.plan()
}

/// Runs on both and compares.
fn run(
    executor: &mut Functional,
    oracle: &mut Oracle,
    batch: &Arc<Batch>,
    [ours, expected]: &mut [DeviceMemory; 2],
) {
    let found = executor.run_batch(batch, ours).unwrap();
    let wanted = oracle.run_batch(batch, expected).unwrap();
    assert_eq!(found.leftover_tokens, wanted.leftover_tokens);
    assert!(data(ours) == data(expected));
}

/// Runs until there is a plan; how often.
fn run_until_planned(
    executor: &mut Functional,
    oracle: &mut Oracle,
    batch: &Arc<Batch>,
    memories: &mut [DeviceMemory; 2],
) -> usize {
    let start = Instant::now();
    for runs in 1.. {
        run(executor, oracle, batch, memories);
        if plan(executor).is_some() {
            return runs;
        }
        assert!(start.elapsed() < LONGEST, "there is no plan yet");
        std::thread::sleep(Duration::from_millis(1));
    }
    unreachable!("counting ends with a plan")
}

#[test]
fn a_long_batch_runs_before_its_plan_is_there_and_others_find_the_plan() {
    let (first, second) = (long(5), long(5));
    assert!(!Arc::ptr_eq(&first, &second));
    let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    let mut memory_of_both = memories();
    let runs = run_until_planned(&mut executor, &mut oracle, &first, &mut memory_of_both);
    assert!(runs > 1, "the first run was planned");
    // The same program in other words, and in another executor.
    run(&mut executor, &mut oracle, &second, &mut memory_of_both);
    assert_eq!(executor.known.len(), 1);
    let (mut other, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    let mut memory_of_both = memories();
    run(&mut other, &mut oracle, &second, &mut memory_of_both);
    assert!(Arc::ptr_eq(plan(&other).unwrap(), plan(&executor).unwrap()));
    // Several threads need a plan that says how.
    let mut threads = Functional::new(config()).with_threads(2);
    let mut oracle = Oracle::new(config());
    run(&mut threads, &mut oracle, &second, &mut memories());
    assert!(plan(&threads).is_none());
}

#[test]
fn a_plan_of_other_constants_is_not_taken() {
    let batch = long(6);
    let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    run_until_planned(&mut executor, &mut oracle, &batch, &mut memories());
    let (mut other, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    let mut memory_of_both = memories();
    for memory in &mut memory_of_both {
        // A weight of each tile.
        let tiles = memory.region(1).len() / 256;
        for tile in 0..tiles as u64 {
            memory.write(WEIGHTS as u64 + 256 * tile + 3, 1).unwrap()[0] ^= 0x55;
        }
    }
    run(&mut other, &mut oracle, &batch, &mut memory_of_both);
    assert!(plan(&other).is_none());
    run_until_planned(&mut other, &mut oracle, &batch, &mut memory_of_both);
    assert!(!Arc::ptr_eq(
        plan(&other).unwrap(),
        plan(&executor).unwrap()
    ));
    // The same bytes, written again, and bytes that change under a plan.
    let made = Arc::clone(plan(&other).unwrap());
    for change in [0, 0x55] {
        for memory in &mut memory_of_both {
            memory.write(WEIGHTS as u64 + 9, 1).unwrap()[0] ^= change;
        }
        run(&mut other, &mut oracle, &batch, &mut memory_of_both);
        let same = plan(&other).is_some_and(|now| Arc::ptr_eq(now, &made));
        assert_eq!(same, change == 0);
    }
}

#[test]
fn a_plan_ends_with_those_who_have_it() {
    let batch = long(7);
    let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    let mut memory_of_both = memories();
    run_until_planned(&mut executor, &mut oracle, &batch, &mut memory_of_both);
    let machine = executor.machine();
    assert!(Shared::find(&machine, &batch, &memory_of_both[0]).is_some());
    drop(executor);
    assert!(Shared::find(&machine, &batch, &memory_of_both[0]).is_none());
}

#[test]
fn a_batch_is_planned_once_it_came_as_often_as_planning_takes() {
    // Products of many steps are worth a plan at once, single tiles only later.
    let of = |steps: u16, insns: usize| {
        let gemm = Gemm {
            uop_end: 1,
            iter_out: steps,
            iter_in: 1,
            ..Gemm::default()
        };
        outlook(&vec![gemm.into(); insns])
    };
    assert_eq!(of(500, 100).runs, 1);
    let few = of(1, 50);
    assert!(few.runs > 5 && !few.long && of(1, 100_000).long);
    let batch = super::batch(&super::CONVOLUTION.replace("OUT", "0x800"));
    let runs = outlook(&batch.insns).runs;
    assert!(runs > 1);
    let (mut executor, mut memory) = (Functional::new(config()), super::memory());
    for _ in 0..runs {
        executor.run_batch(&batch, &mut memory).unwrap();
        assert!(plan(&executor).is_none());
    }
    executor.run_batch(&batch, &mut memory).unwrap();
    assert!(plan(&executor).is_some());
    // What it multiplies with changes under the plan: it waits again.
    memory.write(0x2000, 1).unwrap()[0] ^= 1;
    for _ in 0..runs {
        executor.run_batch(&batch, &mut memory).unwrap();
        assert!(plan(&executor).is_none());
    }
    executor.run_batch(&batch, &mut memory).unwrap();
    assert!(plan(&executor).is_some());
}

#[test]
fn executors_that_want_a_plan_at_the_same_time_have_one_made() {
    for seed in 20..24 {
        let both = std::sync::Barrier::new(2);
        let planned = || {
            let batch = long(seed);
            let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
            let mut memories = memories();
            // Each starts to run it as the other does.
            for _ in 0..=outlook(&batch.insns).runs {
                both.wait();
                run(&mut executor, &mut oracle, &batch, &mut memories);
            }
            run_until_planned(&mut executor, &mut oracle, &batch, &mut memories);
            executor
        };
        let [one, other] = std::thread::scope(|scope| {
            let threads = [scope.spawn(planned), scope.spawn(planned)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(Arc::ptr_eq(plan(&one).unwrap(), plan(&other).unwrap()));
    }
}

#[test]
fn what_was_in_the_scratchpads_is_not_taken_for_granted() {
    // Weights, micro-ops: what the first program leaves is what the second needs.
    for left in ["load.uop", "load.wgt"] {
        let ends = " push_prev\n    finish pop_next";
        let all = super::CONVOLUTION
            .replace("OUT", "0x800")
            .replace(ends, "\n");
        let (loads, rest): (Vec<&str>, Vec<&str>) =
            all.lines().partition(|line| line.contains(left));
        let loads = super::batch(&(loads.join("\n") + "\nfinish"));
        for times in [1, 40] {
            // Forty times in a row, it takes a thread of its own.
            let rest = super::batch(&((rest.join("\n") + "\n").repeat(times) + "finish"));
            assert_eq!(outlook(&rest.insns).long, times > 1);
            let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
            let [mut ours, mut expected] = [super::memory(), super::memory()];
            let start = Instant::now();
            for tested in 0.. {
                for memory in [&mut ours, &mut expected] {
                    memory.write(0x2000, 1).unwrap()[0] ^= 1;
                    // The micro-op's inputs.
                    memory.write(0x1001, 1).unwrap()[0] ^= 8;
                }
                for batch in [&loads, &rest] {
                    executor.run_batch(batch, &mut ours).unwrap();
                    oracle.run_batch(batch, &mut expected).unwrap();
                }
                let stored = [&ours, &expected].map(|memory| memory.read(0x8000, 256).unwrap());
                assert_eq!(stored[0], stored[1], "run {tested} without {left}");
                assert!(plan(&executor).is_none());
                let course = executor
                    .known
                    .back()
                    .and_then(|known| known.course.as_ref());
                if matches!(course, Some(Course::Direct)) {
                    break;
                }
                assert!(start.elapsed() < LONGEST, "it still waits for a plan");
            }
        }
    }
}

#[test]
fn a_long_batch_is_kept_from_its_second_run_on_and_none_is_taken_for_another() {
    let loads = "load.uop y_size=1 x_size=1 dram_base=0x400
                 load.acc y_size=1 x_size=1 dram_base=0x100\n";
    let batch = |imm: u32| {
        let add = |imm| format!("alu.add uop_end=1 iter_out=1 iter_in=1 imm={imm}\n");
        let end = "alu.add uop_end=1 iter_out=1 iter_in=1 imm=0 push_next
                   store y_size=1 x_size=1 dram_base=0x800 pop_prev push_prev
                   finish pop_next";
        let all = format!("{loads}{}{}{end}", add(imm), add(1).repeat(5000));
        let mut batch = super::batch(&all);
        let (first_insn, name) = (0, imm.to_string());
        let mark = LayerMark { first_insn, name };
        Arc::get_mut(&mut batch).unwrap().marks.push(mark);
        batch
    };
    let (mut executor, mut oracle) = (Functional::new(config()), Oracle::new(config()));
    let [mut ours, mut expected] = [super::memory(), super::memory()];
    let mut kept = Vec::new();
    for imm in [1, 2, 3, 1, 1, 2, 3, 3, 1, 2, 3] {
        let batch = batch(imm);
        let found = executor.run_batch(&batch, &mut ours).unwrap();
        let wanted = oracle.run_batch(&batch, &mut expected).unwrap();
        assert_eq!(found.marks[0].name, wanted.marks[0].name);
        assert_eq!(found.traffic, wanted.traffic);
        let stored = [&ours, &expected].map(|memory| memory.read(0x8000, 16).unwrap());
        assert_eq!(stored[0], stored[1]);
        kept.push(Arc::strong_count(&batch) > 1);
    }
    // They take the same, so that 2 is kept for having come before, and so is 1 for what 3 was.
    let once = kept.iter().enumerate().filter(|(_, kept)| !**kept);
    assert!(once.map(|(at, _)| at).eq([0, 2, 6]));
}
