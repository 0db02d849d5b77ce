//! One GEMM through the library: memory, instructions and one submission to a device.
//!
//! `cargo run --release -p vta --example one_gemm` prints `[34, -34, 0, ...]`: a quarter
//! of 136 and of -136, since STORE keeps only the low byte of a sum.

use std::error::Error;

use vta_driver::{Batch, Device, Work, WorkDone};
use vta_isa::{Config, MemType, Uop, asm};
use vta_sim::SimDevice;

/// Runs on the fast simulator; any other [`Device`] does the same.
fn main() -> Result<(), Box<dyn Error>> {
    let device = SimDevice::functional(Config::default());
    println!("{:?}", gemm(&device)?);
    Ok(())
}

/// Sixteen inputs, 1 to 16, times weights that sum them for output 0 and sum them negatively for
/// output 1: a quarter of each sum, as the sixteen int8 outputs.
pub fn gemm(device: &dyn Device) -> Result<Vec<i8>, Box<dyn Error>> {
    let config = device.info().config.clone();
    let elem = |mem: MemType| config.elem_bytes(mem);

    // Memory of the device: one tile of each kind, one micro-op, the instructions.
    let inputs: Vec<u8> = (1..=elem(MemType::Inp) as u8).collect();
    let mut weights = vec![0i8; elem(MemType::Wgt)];
    weights[..config.block()].fill(1);
    weights[config.block()..][..config.block()].fill(-1);
    let weights: Vec<u8> = weights.iter().map(|w| *w as u8).collect();
    let uop = Uop::default().encode()?.to_le_bytes();
    let output_bytes = elem(MemType::Out) as u64;
    let [inp, wgt, uops] =
        [&inputs[..], &weights, &uop].map(|bytes| -> Result<_, Box<dyn Error>> {
            let addr = device.alloc(bytes.len() as u64)?;
            let data = bytes.into();
            device.submit(Work::Write { addr, data })?.wait()?;
            Ok(addr)
        });
    let (inp, wgt, uops, out) = (inp?, wgt?, uops?, device.alloc(output_bytes)?);

    // `dram_base` counts elements of the memory type, not bytes.
    let insns = asm::parse(&format!(
        "load.uop dram_base={} x_size=1 y_size=1 x_stride=1
         load.inp dram_base={} x_size=1 y_size=1 x_stride=1
         load.wgt dram_base={} x_size=1 y_size=1 x_stride=1 push_next
         gemm reset uop_end=1 iter_out=1 iter_in=1
         gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
         alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
         store dram_base={} x_size=1 y_size=1 x_stride=1 pop_prev push_prev
         finish pop_next",
        uops.0 as usize / elem(MemType::Uop),
        inp.0 as usize / elem(MemType::Inp),
        wgt.0 as usize / elem(MemType::Wgt),
        out.0 as usize / elem(MemType::Out),
    ))?;

    // Hardware fetches the words from device memory.
    let words = insns.iter().map(|insn| insn.encode());
    let words: Vec<u128> = words.collect::<Result<_, _>>()?;
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let insn_addr = device.alloc(code.len() as u64)?;
    let addr = insn_addr;
    device.submit(Work::Write {
        addr,
        data: code.into(),
    })?;
    let batch = Batch {
        words,
        insns,
        insn_addr,
        marks: Vec::new(),
    };
    device.submit(Work::Run(batch.into()))?.wait()?;

    // Work runs in order, and each piece has a ticket to wait for.
    let read = Work::Read {
        addr: out,
        size_bytes: output_bytes,
    };
    let WorkDone::Data(bytes) = device.submit(read)?.wait()? else {
        return Err("a read gives bytes".into());
    };
    for addr in [inp, wgt, uops, out, insn_addr] {
        device.free(addr)?;
    }
    Ok(bytes.iter().map(|byte| *byte as i8).collect())
}
