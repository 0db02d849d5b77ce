//! Programs from bytes: what the fuzz target and a short suite run. Any bytes are a case.

mod case;

use std::sync::Arc;

use vta_driver::{Batch, PhysAddr};
use vta_sim::{Executor, Functional, GemmKernel, Oracle, Planning, SimError};

use case::{Case, REGIONS};

/// Steps of a run at most: enough for every tile, and an end for everything else.
const MOST_STEPS: u64 = 1 << 16;
/// Threads of one more run with the best kernel.
const THREADS: usize = 3;

/// Runs a case on the oracle and, with every kernel of this CPU and once on several threads, on
/// the fast executor: twice with bytes written in between, and both must agree after each run.
///
/// # Panics
/// When they don't: that is what fuzzing looks for.
pub fn run(data: &[u8]) {
    let mut case = Case::read(data);
    let config = case.config.clone();
    let batch = Arc::new(Batch {
        words: Vec::new(),
        insns: std::mem::take(&mut case.insns),
        insn_addr: PhysAddr(0),
        marks: Vec::new(),
    });
    let mut expected = Vec::new();
    let oracle = Oracle::new(config.clone()).with_max_steps(MOST_STEPS);
    outcomes(oracle, &case, &batch, |outcome| {
        expected.push(outcome);
    });
    let kernels = GemmKernel::ALL.into_iter().filter(|k| k.supported());
    let one = kernels.flat_map(|kernel| {
        [Planning::AtOnce, Planning::Never].map(|planning| (kernel, 1, planning))
    });
    let several = [(GemmKernel::detect(), THREADS, Planning::AtOnce)];
    for (kernel, threads, planning) in one.chain(several) {
        let fast = Functional::with_kernel(config.clone(), kernel).with_max_steps(MOST_STEPS);
        let fast = fast
            .with_threads(threads)
            .with_least_cost_ns(0)
            .with_planning(planning);
        let mut expected = expected.iter();
        outcomes(fast, &case, &batch, |outcome| {
            let Some(expected) = expected.next() else {
                return;
            };
            let name = format!(
                "{} on {threads} threads, planned {planning:?}",
                kernel.name()
            );
            assert_eq!(outcome.0, expected.0, "{name}: another end");
            let differs = outcome.1.iter().zip(&expected.1).position(|(a, b)| a != b);
            let program = batch.insns.iter().map(|insn| format!("\n{insn}"));
            assert!(
                differs.is_none(),
                "{name}: byte {differs:?} differs from the oracle's after{}",
                program.collect::<String>()
            );
        });
    }
}

/// Leftover tokens or the faulty instruction, and all bytes.
type Outcome = (Result<[u32; 4], Option<String>>, Vec<u8>);

fn outcomes(
    mut executor: impl Executor,
    case: &Case<'_>,
    batch: &Arc<Batch>,
    mut tell: impl FnMut(Outcome),
) {
    let mut memory = case.memory();
    for round in 0..3 {
        if round == 1 {
            // One byte anywhere, which may be of something that was taken as a constant.
            let (addr, size) = REGIONS[usize::from(case.written) % REGIONS.len()];
            let at = u64::from(addr) + u64::from(case.written) * 7 % size as u64;
            if let Ok([byte]) = memory.write(at, 1) {
                *byte ^= 0x55;
            }
        }
        let ran = executor.run_batch(batch, &mut memory);
        // The oracle goes element by element, so it names other bytes of a row.
        let fault = |e: SimError| e.to_string().split(": ").next().map(str::to_owned);
        let ran = ran.map(|r| r.leftover_tokens).map_err(fault);
        let failed = ran.as_ref().err().cloned().flatten();
        if failed.as_ref().is_some_and(|f| f.contains("(store")) {
            // What a faulty STORE wrote before its fault is open.
            tell((ran, Vec::new()));
            return;
        }
        let read = |&(addr, size): &(u32, usize)| memory.read(addr.into(), size as u64);
        let bytes = REGIONS.iter().flat_map(|r| read(r).unwrap_or_default());
        tell((ran, bytes.copied().collect()));
        if failed.is_some() {
            // So is what a faulty instruction left in the scratchpads.
            return;
        }
    }
}
