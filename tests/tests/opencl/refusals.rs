//! What is refused, by name, and devices that go on after it.

use std::time::Duration;

use vta_driver::{Device, DriverError, PhysAddr, Work};
use vta_hw_opencl::{Options, Selector, Structure};
use vta_isa::Config;
use vta_tests::opencl::{backends, entries};

use crate::kit::{SHIFT_AND_STORE, parsed, prepare, read, run};

#[test]
fn bad_batches_are_refused_by_name_and_the_device_goes_on() {
    let cases = [
        (
            "load.inp sram_base=2040 dram_base=0x100 y_size=1 x_size=9\nfinish",
            "sram_base reaches 2048, but the inp scratchpad has 2048",
        ),
        (
            "load.inp dram_base=0x1ff y_size=1 x_size=2\nfinish",
            "instruction 0 (load.inp sram_base=0 dram_base=511 y_size=1 x_size=2): DRAM bytes \
             0x1ff0..0x2010 cross from the allocation that ends at 0x2000",
        ),
        (
            "store dram_base=0x9000 y_size=1 x_size=1\nfinish",
            "DRAM bytes 0x90000..0x90010",
        ),
        (
            "alu.add uop_end=1 iter_out=3 iter_in=1 src_factor_out=2047\nfinish",
            "src reaches 4094",
        ),
        (
            "gemm uop_bgn=2 uop_end=1\nfinish",
            "uop_end 1 is below uop_bgn 2",
        ),
        (
            "gemm uop_end=8193 iter_out=1 iter_in=1\nfinish",
            "uop_end reaches 8192",
        ),
        (
            "load.inp pop_next\nfinish",
            "deadlock: load waits at instruction 0",
        ),
        ("gemm", "does not end in FINISH"),
        (
            "gemm reset uop_end=8000 iter_out=16383 iter_in=16383\nfinish",
            "more than its budget of 1048576 GEMM and ALU steps",
        ),
    ];
    for backend in backends("bad batches") {
        let options = Options {
            max_steps: 1 << 20,
            ..Options::from_env()
        };
        let device = backend.open_with(&Config::default(), options).unwrap();
        prepare(&device);
        for (text, expected) in cases {
            let error = run(&device, &parsed(text)).unwrap_err();
            assert!(matches!(error, DriverError::Device { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(expected), "{}: {error}", backend.name());
        }
        let outside = Work::Read {
            addr: PhysAddr(0x1ff0),
            size_bytes: 17,
        };
        let error = device.submit(outside).unwrap().wait().unwrap_err();
        assert!(matches!(error, DriverError::Memory { .. }), "{error:?}");
        run(&device, &parsed(SHIFT_AND_STORE)).unwrap();
        assert_eq!(read(&device, 0x1200, 16), [10; 16], "{}", backend.name());
    }
}

#[test]
fn a_hung_kernel_is_given_up_and_other_devices_go_on() {
    for backend in backends("hung kernels") {
        // Some seconds of work that nothing interrupts.
        let trips = match backend.structure {
            Structure::Throughput => 700,
            Structure::Core | Structure::Channels => 300,
        };
        let text = &format!("gemm uop_end=200 iter_out={trips} iter_in={trips}\nfinish");
        let options = Options {
            time_limit: Duration::from_millis(200),
            ..Options::from_env()
        };
        let device = backend.open_with(&Config::default(), options).unwrap();
        let hung = run(&device, &parsed(text)).unwrap_err().to_string();
        assert!(
            hung.contains("given up as hung"),
            "{}: {hung}",
            backend.name()
        );
        assert!(run(&device, &parsed(text)).is_err());
        drop(device);
        let other = backend.open(&Config::default());
        prepare(&other);
        run(&other, &parsed(SHIFT_AND_STORE)).unwrap();
        assert_eq!(read(&other, 0x1200, 16), [10; 16], "{}", backend.name());
    }
}

#[test]
fn devices_that_are_not_there_are_named() {
    let entries = entries("selectors");
    for entry in &entries {
        let selector: Selector = entry.selector.parse().unwrap();
        assert_eq!(selector.find().unwrap().facts.name, entry.facts.name);
    }
    if entries.is_empty() {
        return;
    }
    let missing: Selector = "opencl:no such device".parse().unwrap();
    let error = missing.find().unwrap_err().to_string();
    assert!(error.contains(&entries[0].selector), "{error}");
}
