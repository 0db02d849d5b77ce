//! Every ALU operation is its definition on every OpenCL device, with every structure.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::sync::Arc;

use vta_driver::{Batch, Device, PhysAddr, Work, WorkDone};
use vta_hw_opencl::{OpenClDevice, Options, Structure, devices};
use vta_isa::{AluOp, Config, Extensions, Uop, asm};

const X: [i32; 16] = [
    0,
    1,
    -1,
    7,
    -8,
    100,
    -100,
    127,
    -128,
    255,
    65_536,
    -65_537,
    1 << 30,
    -(1 << 30),
    i32::MAX,
    i32::MIN,
];
const Y: [i32; 16] = [
    0,
    -1,
    1,
    3,
    31,
    -31,
    32,
    -32,
    33,
    127,
    -128,
    65_536,
    -3,
    i32::MAX,
    i32::MIN,
    15,
];
const UOPS: u32 = 0x1000;
const TILES: u32 = 0x2000;
const OUT: u32 = 0x3000;

/// Does the operation once and stores the result, byte by byte.
fn program(op: AluOp, imm: Option<i16>) -> String {
    let (uops, tiles, out) = (UOPS / 4, TILES / 64, OUT / 16);
    let imm = imm.map_or(String::new(), |imm| format!("imm={imm}"));
    let step = "uop_end=1 iter_out=1 iter_in=1";
    let mut text = format!(
        "load.uop dram_base={uops} y_size=1 x_size=1\n\
         load.acc dram_base={tiles} y_size=1 x_size=2\n\
         alu.{op} {imm} {step} push_next\n"
    );
    for byte in 0..4 {
        let at = out + byte;
        text += &format!("store dram_base={at} y_size=1 x_size=1 pop_prev push_prev\n");
        if byte < 3 {
            text += &format!("alu.shr imm=8 {step} pop_next push_next\n");
        }
    }
    text + "finish pop_next"
}

fn write(device: &dyn Device, addr: u32, data: Vec<u8>) {
    let addr = PhysAddr(addr);
    let work = Work::Write {
        addr,
        data: data.into(),
    };
    device.submit(work).unwrap().wait().unwrap();
}

fn run(device: &dyn Device, text: &str) -> Vec<i32> {
    let insns = asm::parse(text).unwrap();
    let batch = Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    };
    let work = Work::Run(Arc::new(batch));
    device.submit(work).unwrap().wait().unwrap();
    let work = Work::Read {
        addr: PhysAddr(OUT),
        size_bytes: 64,
    };
    let WorkDone::Data(bytes) = device.submit(work).unwrap().wait().unwrap() else {
        panic!("a read gives data");
    };
    let lane = |n: usize| i32::from_le_bytes([0, 16, 32, 48].map(|byte| bytes[byte + n]));
    (0..16).map(lane).collect()
}

#[test]
fn every_operation_is_its_definition() {
    let Ok(entries) = devices() else {
        assert!(std::env::var_os("CI").is_none(), "there is no OpenCL");
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: there is no OpenCL on this machine"
        );
        return;
    };
    for entry in entries {
        for structure in entry.structures() {
            if structure == Structure::Channels {
                continue;
            }
            let options = Options {
                structure: Some(structure),
                ..Options::from_env()
            };
            let config = Config::default().with_extensions(Extensions::ALL);
            let device = OpenClDevice::open_entry(&entry, config, options).unwrap();
            for addr in [UOPS, TILES, OUT] {
                device.alloc_at(PhysAddr(addr), 4096).unwrap();
            }
            let uop = Uop {
                src: 1,
                ..Uop::default()
            };
            write(&device, UOPS, uop.encode().unwrap().to_le_bytes().into());
            let lanes = X.iter().chain(&Y);
            let bytes = lanes.flat_map(|lane| lane.to_le_bytes()).collect();
            write(&device, TILES, bytes);
            for op in AluOp::ALL {
                let at = format!("{op} on {} {structure}", entry.selector);
                let expected: Vec<i32> = X.iter().zip(Y).map(|(&x, y)| op.apply(x, y)).collect();
                assert_eq!(run(&device, &program(op, None)), expected, "{at}");
                for imm in [0, 1, -1, 4, -4, 33, -128, 127, i16::MIN, i16::MAX] {
                    let expected = X.map(|x| op.apply(x, imm.into()));
                    assert_eq!(
                        run(&device, &program(op, Some(imm))),
                        expected,
                        "{at} {imm}"
                    );
                }
            }
        }
    }
}
