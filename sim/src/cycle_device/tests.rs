use vta_driver::{Device, Work, WorkDone};
use vta_isa::asm;

use super::*;
use crate::Board;

const PROGRAM: &str = "load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1 push_next
        store sram_base=3 dram_base=0x101 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        finish pop_next";

fn batch(text: &str) -> Work {
    let insns = asm::parse(text).unwrap();
    Work::Run(Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0x8000),
        marks: vec![LayerMark {
            name: "copy".into(),
            first_insn: 0,
        }],
    }))
}

#[test]
fn a_board_refuses_what_it_lacks_and_what_it_does_differently() {
    let pynq = Board::preset("pynq").unwrap();
    let error = pynq.admit(&Config::default()).unwrap_err().to_string();
    assert!(error.contains("board pynq: uop scratchpad"), "{error}");
    let machine = CycleMachine {
        config: pynq.config,
        timing: pynq.timing,
        core: pynq.core,
        budget: Budget::default(),
    };
    let device = machine.device(Execution::TimingOnly, CycleLog::default());
    for (text, expected) in [
        (
            "gemm uop_end=1 iter_out=1",
            Some("instruction 0 (gemm uop_bgn=0 uop_end=1 iter_out=1): iter_in of 0 is"),
        ),
        (
            "alu.mul imm=1 uop_end=1 iter_out=1 iter_in=1",
            Some("needs MUL"),
        ),
        ("load.acc8 y_size=1 x_size=1", Some("needs ACC8")),
        ("store x_size=1", Some("the RTL hangs")),
        ("gemm uop_end=1 iter_out=1 iter_in=1", None),
    ] {
        let done = device
            .submit(batch(&format!("{text}\nfinish")))
            .unwrap()
            .wait();
        match expected {
            None => assert!(done.is_ok(), "{text}"),
            Some(part) => {
                let error = done.unwrap_err().to_string();
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}

fn run_on(execution: Execution) -> (RunReport, Vec<u8>, CycleLog) {
    let log = CycleLog::default();
    let timing = TimingConfig::pynq();
    let device = SimDevice::cycle(Config::default(), timing, execution, log.clone());
    device.alloc_at(PhysAddr(0x1000), 0x1000).unwrap();
    let data = [7u8; 16].into();
    let addr = PhysAddr(0x1000);
    device.submit(Work::Write { addr, data }).unwrap();
    let mut last = RunReport::default();
    for _ in 0..2 {
        match device.submit(batch(PROGRAM)).unwrap().wait().unwrap() {
            WorkDone::Ran(report) => last = report,
            other => panic!("{other:?}"),
        }
    }
    let (addr, size_bytes) = (PhysAddr(0x1010), 16);
    let read = device.submit(Work::Read { addr, size_bytes }).unwrap();
    match read.wait().unwrap() {
        WorkDone::Data(bytes) => (last, bytes, log),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_alu_hazard_is_an_error() {
    let device = SimDevice::cycle(
        Config::default(),
        TimingConfig::pynq(),
        Execution::Full,
        CycleLog::default(),
    );
    let addr = device.alloc(4096).unwrap();
    let base = addr.0 / 4;
    // Micro-op 0 is all zero, so that every step has the destination of the step before.
    let run = |iter_in: u16| {
        let text = format!(
            "load.uop dram_base={base} y_size=1 x_size=1 x_stride=1
                 alu.add imm=1 uop_end=1 iter_out=1 iter_in={iter_in}
                 finish"
        );
        device.submit(batch(&text)).unwrap().wait()
    };
    assert!(run(1).is_ok());
    let error = run(2).unwrap_err().to_string();
    assert!(
        error.contains("the RTL aborts: ") && error.contains("instruction 1 (alu.add"),
        "{error}"
    );
}

#[test]
fn a_device_that_computes_gives_bytes_and_cycles() {
    let (report, bytes, log) = run_on(Execution::Full);
    assert_eq!(bytes, [7; 16]);
    let runs = log.runs();
    assert_eq!(runs.len(), 1, "the same batch is timed once");
    assert_eq!(report.cycles, Some(runs[0].report.cycles));
    assert_eq!(runs[0].layers[0].name, "copy");
    assert_eq!(report.marks[0].name, "copy");
}

#[test]
fn timing_alone_takes_the_same_cycles_and_writes_nothing() {
    let (full, _, _) = run_on(Execution::Full);
    let (timed, bytes, _) = run_on(Execution::TimingOnly);
    assert_eq!(bytes, [0; 16]);
    assert_eq!(timed.cycles, full.cycles);
    assert_eq!(timed.traffic, full.traffic);
    assert_eq!(timed.marks[0].traffic, full.marks[0].traffic);
}

#[test]
fn a_deadlock_is_an_error_of_the_device() {
    let config = Config::default();
    for execution in [Execution::Full, Execution::TimingOnly] {
        let (timing, log) = (TimingConfig::de10(), CycleLog::default());
        let device = SimDevice::cycle(config.clone(), timing, execution, log);
        // FINISH itself never starts, or it does while a module waits for ever.
        for (text, expected) in [
            (
                "gemm uop_bgn=0 uop_end=0 pop_prev\nfinish",
                "compute waits at instruction 0",
            ),
            (
                "store push_prev\nload.inp pop_next\nfinish pop_next",
                "load waits at instruction 1",
            ),
        ] {
            let work = device.submit(batch(text)).unwrap();
            let error = work.wait().unwrap_err().to_string();
            assert!(error.contains("device cycle"), "{error}");
            assert!(error.contains("deadlock"), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}
