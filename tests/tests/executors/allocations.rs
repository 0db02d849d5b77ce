//! Each row of a transfer lies in one allocation: the oracle, the fast executor, the cycle model
//! and OpenCL agree on what that allows and refuses.

use std::sync::Arc;

use vta_driver::{Batch, Device, DriverError, PhysAddr, Work, WorkDone};
use vta_isa::{Config, asm};
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution, Functional, GemmKernel, Planning, SimDevice};
use vta_tests::opencl::backends;

fn devices(config: &Config) -> Vec<(String, Box<dyn Device>)> {
    let mut all: Vec<(String, Box<dyn Device>)> = vec![(
        "oracle".to_owned(),
        Box::new(SimDevice::oracle(config.clone())),
    )];
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let device = SimDevice::functional_with(config.clone(), kernel);
        all.push((format!("sim, {}", kernel.name()), Box::new(device)));
    }
    let executor = Functional::new(config.clone()).with_threads(2);
    let executor = executor.with_planning(Planning::AtOnce);
    let threads = SimDevice::with_executor("sim", config.clone(), executor.with_least_cost_ns(0));
    all.push(("sim, 2 threads".to_owned(), Box::new(threads)));
    let (timing, log) = (TimingConfig::pynq(), CycleLog::default());
    let cycle = SimDevice::cycle(config.clone(), timing, Execution::Full, log);
    all.push(("cycle".to_owned(), Box::new(cycle)));
    for backend in backends("allocations side by side") {
        all.push((backend.name(), Box::new(backend.open(config))));
    }
    all
}

/// Two pages side by side, 1, 2, 3 and so on in them, and one further on.
const PAGES: [u32; 3] = [0x1_0000, 0x1_1000, 0x1_4000];

fn prepare(device: &dyn Device) {
    for (page, addr) in PAGES.into_iter().enumerate() {
        device.alloc_at(PhysAddr(addr), 4096).unwrap();
        // As micro-ops all of them are of tile 0.
        let data: Vec<u8> = match page {
            2 => vec![0; 4096],
            _ => (0..4096).map(|i| (i / 16 + page + 1) as u8).collect(),
        };
        let (addr, data) = (PhysAddr(addr), data.into());
        let write = device.submit(Work::Write { addr, data }).unwrap();
        write.wait().unwrap();
    }
}

/// Runs a program; all bytes of the pages afterwards.
fn run(device: &dyn Device, text: &str) -> Result<Vec<u8>, DriverError> {
    let insns = asm::parse(text).unwrap();
    let batch = Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    };
    device.submit(Work::Run(Arc::new(batch)))?.wait()?;
    let mut all = Vec::new();
    for addr in PAGES.map(PhysAddr) {
        let size_bytes = 4096;
        match device.submit(Work::Read { addr, size_bytes })?.wait()? {
            WorkDone::Data(bytes) => all.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    Ok(all)
}

#[test]
fn a_row_across_two_allocations_is_refused_by_name() {
    // The last element of the first page and the first of the second, of every memory type; in a
    // later row, and in one that hides others between two elements.
    let cases = [
        ("load.uop dram_base=0x43ff x_size=2 y_size=1", 0x1_0ffc),
        ("load.inp dram_base=0x10ff x_size=2 y_size=1", 0x1_0ff0),
        ("load.wgt dram_base=0x10f x_size=2 y_size=1", 0x1_0f00),
        ("load.acc dram_base=0x43f x_size=2 y_size=1", 0x1_0fc0),
        ("load.acc8 dram_base=0x10ff x_size=2 y_size=1", 0x1_0ff0),
        ("load.acc8 dram_base=0x1000 x_size=257 y_size=1", 0x1_0000),
        (
            "load.inp dram_base=0x1000 x_size=3 y_size=2 x_stride=254",
            0x1_0fe0,
        ),
        ("store dram_base=0x10ff x_size=2 y_size=1", 0x1_0ff0),
        (
            "store dram_base=0x10f0 x_size=2 y_size=2 x_stride=15",
            0x1_0ff0,
        ),
    ];
    for (name, device) in devices(&Config::default()) {
        prepare(&*device);
        for (text, first) in cases {
            let error = run(&*device, &format!("{text}\nfinish")).unwrap_err();
            let error = error.to_string();
            let mnemonic = text.split(' ').next().unwrap_or_default();
            for part in [
                &format!("instruction 0 ({mnemonic} "),
                &format!("DRAM bytes {first:#x}.."),
                "cross from the allocation that ends at 0x11000 into the next",
            ] {
                assert!(error.contains(part), "{name}, {text}: {error}");
            }
        }
        // A copy is one row.
        let work = Work::Read {
            addr: PhysAddr(0x1_0fff),
            size_bytes: 2,
        };
        let error = device.submit(work).unwrap().wait().unwrap_err().to_string();
        assert!(
            error.contains("cross from the allocation"),
            "{name}: {error}"
        );
    }
}

#[test]
fn rows_of_one_transfer_may_lie_in_different_allocations() {
    // Rows end where the first page does, begin with the second, and one lies beyond a gap.
    let text = "load.acc8 dram_base=0x10fc x_size=4 y_size=2 x_stride=4
        load.acc8 sram_base=8 dram_base=0x1100 x_size=4 y_size=2 x_stride=0x300 push_next
        store dram_base=0x10fe x_size=2 y_size=3 x_stride=2 pop_prev
        store dram_base=0x1110 x_size=4 sram_base=4 y_size=2 x_stride=0x300 push_prev
        finish pop_next";
    let mut expected: Option<Vec<u8>> = None;
    for (name, device) in devices(&Config::default()) {
        prepare(&*device);
        let bytes = run(&*device, text).unwrap();
        // The first tile that was loaded went to the second last place of the first page.
        assert_eq!(bytes[4096 - 32], 253, "{name}");
        assert_eq!(
            *expected.get_or_insert_with(|| bytes.clone()),
            bytes,
            "{name}"
        );
    }
}

#[test]
fn a_recorded_run_across_two_allocations_is_refused_everywhere() {
    let Some(shared) = vta_tests::shared("allocations side by side") else {
        return;
    };
    let folder = shared.join("conformance/reproducers/adjacent_allocations");
    for case in vta_replay::load(&folder).unwrap() {
        for (name, device) in devices(&case.config) {
            let error = vta_replay::run_case(&case, &*device)
                .unwrap_err()
                .to_string();
            let expected =
                "DRAM bytes 0x2ff0..0x3010 cross from the allocation that ends at 0x3000";
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
