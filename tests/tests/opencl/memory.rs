//! Device memory: what is allocated, written and read back, and plans that follow it.

use vta_driver::{Device, DriverError, PhysAddr};
use vta_isa::Config;
use vta_tests::opencl::backends;

use crate::kit::{SHIFT_AND_STORE, parsed, prepare, read, run, write};

#[test]
fn micro_ops_that_the_device_stored_are_read_back() {
    // The tile that the STORE writes holds micro-ops of tile 3, and is loaded as such.
    let text = "load.acc8 sram_base=7 dram_base=0x102 y_size=1 x_size=1 x_stride=1 push_next
        store sram_base=7 dram_base=0x140 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        load.uop sram_base=0 dram_base=0x500 y_size=1 x_size=1 x_stride=1 pop_next
        load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1
        alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
        store sram_base=3 dram_base=0x120 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        finish pop_next";
    for backend in backends("stored micro-ops") {
        let device = backend.open(&Config::default());
        prepare(&device);
        write(&device, 0x1400, &[9, 0, 0, 0]);
        write(
            &device,
            0x1020,
            &[3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0],
        );
        let batch = parsed(text);
        for stalls in 1..3 {
            run(&device, &batch).unwrap();
            assert_eq!(read(&device, 0x1200, 16), [10; 16], "{}", backend.name());
            write(&device, 0x1200, &[0; 16]);
            assert_eq!(
                device.counters().unwrap().stalls,
                stalls,
                "such a batch can't be kept"
            );
        }
    }
}

#[test]
fn a_kept_plan_follows_the_micro_ops_in_memory() {
    for backend in backends("kept plans") {
        let device = backend.open(&Config::default());
        prepare(&device);
        let batch = parsed(SHIFT_AND_STORE);
        let mut planned = Vec::new();
        for (uop, expected) in [(3, 10), (3, 10), (4, 5), (3, 10)] {
            write(&device, 0x2000, &[uop, 0, 0, 0]);
            run(&device, &batch).unwrap();
            assert_eq!(
                read(&device, 0x1200, 16),
                [expected; 16],
                "{}",
                backend.name()
            );
            planned.push(device.counters().unwrap().plans);
        }
        assert_eq!(planned, [1, 1, 2, 3]);
    }
}

#[test]
fn memory_grows_and_new_allocations_are_zero() {
    for backend in backends("memory") {
        let device = backend.open(&Config::default());
        device.alloc_at(PhysAddr(0x0200_0000), 32).unwrap();
        write(&device, 0x0200_0000, &[7; 32]);
        device.alloc_at(PhysAddr(0x3001), 9).unwrap();
        write(&device, 0x3001, &[8; 9]);
        let far = device.alloc(40 << 20).unwrap();
        write(&device, far.0 + (40 << 20) - 3, &[9; 3]);
        assert_eq!(read(&device, 0x0200_0000, 32), [7; 32]);
        assert_eq!(read(&device, 0x3001, 9), [8; 9]);
        assert_eq!(read(&device, far.0 + (40 << 20) - 5, 5), [0, 0, 9, 9, 9]);
        device.free(PhysAddr(0x3001)).unwrap();
        device.alloc_at(PhysAddr(0x3000), 16).unwrap();
        assert_eq!(read(&device, 0x3000, 16), [0; 16], "{}", backend.name());
        let limit = backend.entry.facts.max_alloc_bytes;
        let error = device.alloc(limit.max(1 << 32)).unwrap_err();
        assert!(matches!(error, DriverError::Alloc { .. }), "{error}");
    }
}
