mod reach;

use vta_isa::{Alu, AluOp, AluOperand, Deps, Finish, Gemm, Load, Store};

use super::*;
use crate::testing::{buffer, clear, kernel, program, tensor};
use crate::{BufferId, Bytes, NodeInfo, TensorInfo};

type Case = (&'static str, fn(&mut Program), &'static str);

/// Applies each change to a sound program and compares the error.
fn refused(cases: &[Case]) {
    program(&[3, 5]).validate().unwrap();
    for (name, change, expected) in cases {
        let mut bad = program(&[3, 5]);
        change(&mut bad);
        let error = bad.validate().expect_err(name).to_string();
        assert_eq!(error, format!("program: {expected}"), "{name}");
    }
}

fn on_buffer(insn: impl Into<Insn>, buffer: u32) -> Command {
    Command {
        insn: insn.into(),
        symbol: Symbol::Buffer(BufferId(buffer)),
    }
}

fn on_kernel(insn: impl Into<Insn>, kernel: u32) -> Command {
    Command {
        insn: insn.into(),
        symbol: Symbol::Kernel(KernelId(kernel)),
    }
}

fn set(program: &mut Program, command: Command) {
    program.layers[1].commands[1] = command;
}

/// A GEMM over kernel 1 (five micro-ops of `dst` 1 and `src` up to 4).
fn gemm() -> Gemm {
    Gemm {
        uop_end: 5,
        iter_out: 2,
        iter_in: 3,
        ..Gemm::default()
    }
}

fn alu(operand: AluOperand) -> Alu {
    Alu {
        deps: Deps::NONE,
        op: AluOp::Add,
        operand,
        uop_bgn: 0,
        uop_end: 5,
        iter_out: 1,
        iter_in: 2,
        dst_factor_out: 0,
        dst_factor_in: 0,
        src_factor_out: 0,
        src_factor_in: 0,
    }
}

#[test]
fn indices_and_order_are_checked() {
    refused(&[
        (
            "buffer",
            |p| p.tensors[0].buffer.0 = 3,
            "there is no buffer 3",
        ),
        (
            "start within a tile",
            |p| p.tensors[0].offset_bytes = 8,
            "tensor x starts at byte 8, which is no multiple of 16",
        ),
        (
            "start behind the buffer",
            |p| p.tensors[0].offset_bytes = 1 << 60,
            "x needs 1152921504606847008 bytes, its buffer has 32",
        ),
        ("input", |p| p.inputs = vec![2], "there is no tensor 2"),
        ("output", |p| p.outputs = vec![7], "there is no tensor 7"),
        (
            "layer output",
            |p| p.layers[0].output = 2,
            "there is no tensor 2",
        ),
        (
            "cuts that descend",
            |p| p.layers[1].cuts = vec![2, 1],
            "layer 1 is missing or its cut points are not ascending",
        ),
        (
            "a cut beyond the layer",
            |p| p.layers[1].cuts = vec![4],
            "layer 1 is missing or its cut points are not ascending",
        ),
        (
            "kernel",
            |p| set(p, clear(2, 0, 1)),
            "there is no micro-op kernel 2",
        ),
        (
            "command's buffer",
            |p| set(p, on_buffer(Load::default(), 3)),
            "there is no buffer 3",
        ),
        (
            "kernel length",
            |p| p.kernels[0] = kernel(0, 8193),
            "kernel 0 has 8193 micro-ops, the scratchpad holds 8192",
        ),
    ]);
}

#[test]
fn buffers_are_not_left_or_misused() {
    refused(&[
        (
            "load beyond the buffer",
            |p| {
                set(
                    p,
                    on_buffer(
                        Load {
                            dram_base: 1,
                            y_size: 2,
                            x_size: 1,
                            x_stride: 1,
                            ..Load::default()
                        },
                        0,
                    ),
                )
            },
            "layer l1, command 1: bytes up to 48 of buffer x, which has 32",
        ),
        (
            "store into a constant",
            |p| set(p, on_buffer(Store::default(), 2)),
            "layer l1, command 1: it stores into the constant w",
        ),
        (
            "a layer that says what it computes",
            |p| {
                set(p, on_buffer(Store::default(), 2));
                let tensor = |shape: [usize; 3]| TensorInfo {
                    name: String::new(),
                    shape: shape.to_vec(),
                };
                p.layers[1].nodes = vec![NodeInfo {
                    name: "l1".to_owned(),
                    kind: "conv".into(),
                    attributes: vec![],
                    inputs: vec![tensor([3, 2, 2])],
                    output: tensor([16, 2, 2]),
                }];
            },
            "layer l1 (conv 3x2x2 to 16x2x2), command 1: it stores into the constant w",
        ),
        (
            "constant of another size",
            |p| p.buffers[2].size_bytes = 99,
            "w needs 100 bytes, its buffer has 99",
        ),
        (
            "input over a constant",
            |p| p.tensors[0].buffer.0 = 2,
            "the input x lies in the constant w",
        ),
    ]);
    let bytes: Bytes = vec![0; 4].into();
    let sound = Program {
        buffers: vec![buffer("c", 4, BufferKind::Constant(bytes))],
        ..Program::default()
    };
    assert_eq!(sound.validate(), Ok(()));
}

#[test]
fn sizes_are_bounded_by_what_a_device_addresses() {
    let im2col = |pads| Packing::Im2col {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads,
    };
    let window = |change: fn(&mut TensorSpec)| {
        let mut bad = program(&[3]);
        bad.tensors[0].packing = im2col([0; 4]);
        bad.validate().unwrap();
        change(&mut bad.tensors[0]);
        bad.validate().unwrap_err().to_string()
    };
    refused(&[
        (
            "more values than 64 bits count",
            |p| p.tensors[0].chw = [u32::MAX; 3],
            "tensor x has more than 1073741824 values in an image",
        ),
        (
            "more values than the limit",
            |p| p.tensors[1].chw = [1 << 10, 1 << 10, (1 << 10) + 1],
            "tensor y has more than 1073741824 values in an image",
        ),
        (
            "tiles of few channels",
            |p| p.tensors[1].chw = [1, 1 << 15, 1 << 15],
            "tensor y has more than 4294967296 packed bytes",
        ),
        (
            "a tensor larger than its buffer",
            |p| p.tensors[1].chw = [17, 1, 2],
            "y needs 64 bytes, its buffer has 32",
        ),
        (
            "no rows",
            |p| p.tensors[1].chw[1] = 0,
            "tensor y has an impossible shape or window",
        ),
        (
            "no scale",
            |p| p.tensors[0].scale = f32::NAN,
            "tensor x has an impossible shape or window",
        ),
        (
            "buffers that no device holds",
            |p| {
                p.buffers
                    .push(buffer("big", (1 << 32) - 164, BufferKind::Scratch));
                p.validate().unwrap();
                p.buffers.push(buffer("one more", 1, BufferKind::Scratch));
            },
            "buffers up to one more have more than 4294967296 bytes together",
        ),
        (
            "a buffer of all the 64 bits",
            |p| p.buffers.push(buffer("big", u64::MAX, BufferKind::Scratch)),
            "buffers up to big have more than 4294967296 bytes together",
        ),
        (
            "the same large output many times",
            |p| {
                p.buffers.push(buffer("big", 1 << 30, BufferKind::Output));
                p.tensors.push(tensor("big", 3, [16, 1 << 13, 1 << 13]));
                p.outputs = vec![2; 4];
                p.validate().unwrap();
                p.outputs = vec![2; 5];
            },
            "outputs up to big have more than 4294967296 bytes together",
        ),
        (
            "an output that can't be unpacked",
            |p| {
                p.tensors[1].packing = Packing::Im2col {
                    kernel: [1, 1],
                    stride: [1, 1],
                    dilation: [1, 1],
                    pads: [0; 4],
                };
            },
            "the output y is packed as im2col, not as tiles",
        ),
    ]);
    let shape = "program: tensor x has an impossible shape or window";
    assert_eq!(
        window(|t| t.packing = Packing::Im2col {
            kernel: [2, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4]
        }),
        shape
    );
    assert_eq!(
        window(|t| t.packing = Packing::Im2col {
            kernel: [1, 1],
            stride: [0, 1],
            dilation: [1, 1],
            pads: [0; 4]
        }),
        shape
    );
    let packed = "program: tensor x has more than 4294967296 packed bytes";
    assert_eq!(
        window(|t| t.packing = Packing::Im2col {
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [u32::MAX; 4]
        }),
        packed
    );
}

#[test]
fn instructions_go_with_their_symbols() {
    let sync = Load::default();
    let moving = Load {
        y_size: 1,
        x_size: 1,
        ..Load::default()
    };
    let uop = Load {
        mem: MemType::Uop,
        ..moving
    };
    let none = Symbol::None;
    let buffer = Symbol::Buffer(BufferId(0));
    let kernel = Symbol::Kernel(KernelId(1));
    let cases: [(Insn, Symbol, bool); 10] = [
        (sync.into(), none, true),
        (Store::default().into(), none, true),
        (moving.into(), none, false),
        (moving.into(), buffer, true),
        (uop.into(), buffer, false),
        (moving.into(), kernel, false),
        (gemm().into(), none, false),
        (gemm().into(), buffer, false),
        (gemm().into(), kernel, true),
        (Finish::default().into(), none, false),
    ];
    for (insn, symbol, sound) in cases {
        let mut program = program(&[3, 5]);
        set(&mut program, Command { insn, symbol });
        match program.validate() {
            Ok(()) => assert!(sound, "{insn:?} {symbol:?}"),
            Err(ProgramError::Command {
                layer,
                command,
                what,
            }) => {
                assert!(!sound, "{insn:?} {symbol:?}");
                assert!(what.contains("can't go with its symbol"), "{what}");
                assert_eq!((&*layer, command), ("l1", 1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
