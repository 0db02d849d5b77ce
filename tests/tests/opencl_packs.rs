//! Images that OpenCL devices pack themselves: the tiles of `TensorImages::pack_into`, in order with
//! other work.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use vta_driver::packing::TensorImages;
use vta_driver::{
    Batch, BufferId, Device, Lane, Packing, PhysAddr, TensorSpec, Ticket, Work, WorkDone,
};
use vta_hw_opencl::{Options, Structure};
use vta_isa::{Config, Uop, asm};
use vta_tests::opencl::{Backend, backends};

/// Bytes of the memory that tensors are packed into.
const MEMORY: u64 = 1 << 20;
/// What the memory holds before.
const BEFORE: u8 = 0x5a;

fn config(keys: &str) -> Config {
    Config::from_json(keys).unwrap()
}

/// Tensors of all packings, windows that hang over the edges and leave gaps among them.
fn specs() -> impl Strategy<Value = TensorSpec> {
    let pair = |most: u32| prop::array::uniform2(1..=most);
    let packing = (pair(5), pair(3), pair(3), prop::array::uniform4(0u32..6));
    let packing = prop_oneof![
        1 => Just(Packing::Tiles),
        3 => packing.prop_map(|(kernel, stride, dilation, pads)| Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        }),
    ];
    let chw = (1u32..40, 1u32..12, 1u32..12);
    (chw, packing, any::<i8>()).prop_map(|((c, h, w), packing, zero)| TensorSpec {
        name: "x".into(),
        buffer: BufferId(0),
        offset_bytes: 0,
        chw: [c, h, w],
        scale: 1.0,
        zero: zero.into(),
        packing,
    })
}

fn data(ticket: Box<dyn Ticket>) -> Vec<u8> {
    match ticket.wait().unwrap() {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Packs a tensor in the middle of the memory, which else stays as it is.
fn check(device: &dyn Device, memory: PhysAddr, images: TensorImages, lane: Lane, what: &str) {
    let all = |byte: u8| vec![byte; MEMORY as usize];
    let before = Work::Write {
        addr: memory,
        data: all(BEFORE).into(),
    };
    device.submit_on(lane, before).unwrap();
    let at = 4096 - 48;
    let mut expected = all(BEFORE);
    let size = images.packed_bytes() as usize;
    images.pack_into(&mut expected[at..at + size]);
    let pack = Work::Pack {
        addr: PhysAddr(memory.0 + at as u32),
        images: Arc::new(images.clone()),
    };
    let packed = device.submit_on(lane, pack).unwrap();
    let read = Work::Read {
        addr: memory,
        size_bytes: MEMORY,
    };
    let found = data(device.submit_on(lane, read).unwrap());
    assert!(matches!(packed.wait().unwrap(), WorkDone::Written));
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    let spec = images.spec();
    assert_eq!(
        differs,
        None,
        "{what}: {} images of {spec:?}",
        images.count()
    );
}

fn with_pack(backend: &Backend, config: &Config, pack: bool) -> impl Device {
    let options = Options {
        pack: Some(pack),
        ..Options::from_env()
    };
    backend.open_with(config, options).unwrap()
}

#[test]
fn tiles_are_those_of_the_host() {
    let configs = [
        "{}",
        r#"{"LOG_BATCH": 2}"#,
        r#"{"LOG_BLOCK": 3, "LOG_BATCH": 1, "LOG_WGT_BUFF_SIZE": 16, "LOG_INP_BUFF_SIZE": 14, "LOG_ACC_BUFF_SIZE": 16}"#,
    ];
    let mut runner = TestRunner::deterministic();
    for backend in backends("packing") {
        for (keys, pack) in configs
            .iter()
            .flat_map(|keys| [(keys, true), (keys, false)])
        {
            let config = config(keys);
            let device = with_pack(&backend, &config, pack);
            let memory = device.alloc(MEMORY).unwrap();
            let mut tried = 0;
            while tried < 60 {
                let tree = (specs(), 1..=config.batch(), any::<u64>());
                let (spec, count, seed) = tree.new_tree(&mut runner).unwrap().current();
                let value = |i: usize| i16::from((seed.wrapping_mul(2 * i as u64 + 1) >> 40) as i8);
                let len = spec.image_len();
                let values: Vec<i16> = (0..count * len).map(value).collect();
                let images: Vec<&[i16]> = values.chunks_exact(len).collect();
                // A window that fits nowhere makes no tensor.
                let Ok(images) = TensorImages::new(&spec, &config, &images) else {
                    continue;
                };
                if images.packed_bytes() > MEMORY / 2 {
                    continue;
                }
                let lane = [Lane::Compute, Lane::Copy][tried % 2];
                let what = format!("{} {keys} {pack}", backend.name());
                check(&device, memory, images, lane, &what);
                tried += 1;
            }
        }
    }
}

/// Doubles the accumulator tile that the micro-op at 0x3000 names, where tile 1 is that at 0x1000,
/// and stores tile 1 to 0x2000.
const DOUBLE: &str = "load.uop sram_base=0 dram_base=0xc00 y_size=1 x_size=1 x_stride=1
    load.acc8 sram_base=1 dram_base=0x100 y_size=1 x_size=1 x_stride=1
    alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
    store sram_base=1 dram_base=0x200 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
    finish pop_next";

#[test]
fn micro_ops_that_were_packed_are_those_that_run() {
    let config = Config::default();
    let insns = asm::parse(DOUBLE).unwrap();
    let batch = Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    });
    let spec = TensorSpec {
        name: "micro-ops".into(),
        buffer: BufferId(0),
        offset_bytes: 0,
        chw: [4, 1, 1],
        scale: 1.0,
        zero: 0,
        packing: Packing::Tiles,
    };
    let uop = |dst: u16| {
        let uop = Uop {
            dst,
            ..Uop::default()
        };
        let values = uop
            .encode()
            .unwrap()
            .to_le_bytes()
            .map(|b| i16::from(b as i8));
        let images = TensorImages::new(&spec, &config, &[&values]).unwrap();
        Work::Pack {
            addr: PhysAddr(0x3000),
            images: Arc::new(images),
        }
    };
    for backend in backends("packed micro-ops") {
        let device = with_pack(&backend, &config, true);
        device.alloc_at(PhysAddr(0), 0x4000).unwrap();
        let tile = Work::Write {
            addr: PhysAddr(0x1000),
            data: [21u8; 16].into(),
        };
        device.submit(tile).unwrap();
        // The same batch again finds its plan, whose micro-ops must still be those in memory.
        for (dst, expected) in [(0, 21), (1, 42), (1, 42), (0, 21)] {
            device.submit(uop(dst)).unwrap();
            device.submit(Work::Run(Arc::clone(&batch))).unwrap();
            let read = Work::Read {
                addr: PhysAddr(0x2000),
                size_bytes: 16,
            };
            let found = data(device.submit(read).unwrap());
            assert_eq!(found, [expected; 16], "{}, tile {dst}", backend.name());
        }
    }
}

#[test]
fn images_go_to_a_device_that_packs_as_they_are() {
    let config = config(r#"{"LOG_BATCH": 2}"#);
    let packing = Packing::Im2col {
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [1; 4],
    };
    let spec = TensorSpec {
        name: "x".into(),
        buffer: BufferId(0),
        offset_bytes: 0,
        chw: [3, 8, 8],
        scale: 1.0,
        zero: 0,
        packing,
    };
    let image = vec![1i16; spec.image_len()];
    let images = TensorImages::new(&spec, &config, &[&image, &image]).unwrap();
    for backend in backends("bytes of images") {
        for pack in [true, false] {
            let device = with_pack(&backend, &config, pack);
            let addr = device.alloc(images.packed_bytes()).unwrap();
            let images = Arc::new(images.clone());
            let mut counted = Vec::new();
            for _ in 0..2 {
                let before = device.counters().unwrap();
                let images = Arc::clone(&images);
                device
                    .submit(Work::Pack { addr, images })
                    .unwrap()
                    .wait()
                    .unwrap();
                let since = device.counters().unwrap().since(&before);
                counted.push((since.copies, since.bytes_to_device));
            }
            let packs = pack && backend.structure == Structure::Throughput;
            let expected = match packs {
                true => 2 * image.len() as u64,
                false => images.packed_bytes(),
            };
            // The first time, the tensor's sizes go there, too.
            assert_eq!(counted[1], (1, expected), "{} {pack}", backend.name());
        }
    }
}
