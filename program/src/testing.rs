//! Small programs that the tests of several crates share.

use vta_isa::{Gemm, Load, MemType, Store, Uop};

use crate::{
    Buffer, BufferId, BufferKind, Command, Kernel, KernelId, Layer, Packing, Program, Symbol,
    TensorSpec,
};

/// `len` micro-ops that no other kernel of the program has.
pub fn kernel(id: u16, len: u16) -> Kernel {
    let uop = |i| Uop {
        dst: id,
        src: i % 2048,
        wgt: 0,
    };
    Kernel {
        uops: (0..len).map(uop).collect(),
    }
}

/// A GEMM that clears one tile for each micro-op of a kernel.
pub fn clear(kernel: u32, bgn: u16, end: u16) -> Command {
    let gemm = Gemm {
        reset: true,
        uop_bgn: bgn,
        uop_end: end,
        iter_out: 1,
        iter_in: 1,
        ..Gemm::default()
    };
    Command {
        insn: gemm.into(),
        symbol: Symbol::Kernel(KernelId(kernel)),
    }
}

/// A buffer.
pub fn buffer(name: &str, size_bytes: u64, kind: BufferKind) -> Buffer {
    Buffer {
        name: name.into(),
        size_bytes,
        kind,
    }
}

/// An int8 tensor of tiles at a buffer's start, with scale 0.5.
pub fn tensor(name: &str, buffer: u32, chw: [u32; 3]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        buffer: BufferId(buffer),
        offset_bytes: 0,
        chw,
        scale: 0.5,
        zero: 0,
        packing: Packing::Tiles,
    }
}

/// Loads the first tile of one buffer to input tile 0, and stores output tile 0 to the first of
/// another.
pub fn load_and_store(from: u32, to: u32) -> [Command; 2] {
    let load = Load {
        mem: MemType::Inp,
        y_size: 1,
        x_size: 1,
        ..Load::default()
    };
    let store = Store {
        y_size: 1,
        x_size: 1,
        ..Store::default()
    };
    let at = |insn, buffer| Command {
        insn,
        symbol: Symbol::Buffer(BufferId(buffer)),
    };
    [at(load.into(), from), at(store.into(), to)]
}

/// One layer for each kernel length: it loads input tile 0, clears with its kernel and stores
/// to output tile 0. Buffer 0 is the input `x` of two tiles, 1 the output `y` of two tiles,
/// 2 the constant `w`.
pub fn program(kernel_lens: &[u16]) -> Program {
    let layer = |(id, &len): (usize, &u16)| {
        let [load, store] = load_and_store(0, 1);
        Layer {
            name: format!("l{id}"),
            kind: "test".into(),
            commands: vec![load, clear(id as u32, 0, len), store],
            output: 1,
            ..Layer::default()
        }
    };
    let constant = (0..100u8).collect::<Vec<_>>();
    Program {
        buffers: vec![
            buffer("x", 32, BufferKind::Input),
            buffer("y", 32, BufferKind::Output),
            buffer("w", 100, BufferKind::Constant(constant.into())),
        ],
        kernels: (0..).zip(kernel_lens).map(|(i, &n)| kernel(i, n)).collect(),
        tensors: vec![tensor("x", 0, [3, 1, 2]), tensor("y", 1, [3, 1, 2])],
        layers: kernel_lens.iter().enumerate().map(layer).collect(),
        inputs: vec![0],
        outputs: vec![1],
        ..Program::default()
    }
}
