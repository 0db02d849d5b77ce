//! A program of tiny instructions: what deciding costs when there is nothing to compute.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use vta_driver::{Batch, Device, LayerMark, PhysAddr, Work, WorkDone};
use vta_isa::{Config, Insn, MemType, asm};
use vta_sim::{Functional, Planning, SimDevice};

use super::spread::median;

/// Groups of five one-tile instructions.
const TINY_GROUPS: usize = 4096;

/// Nanoseconds an instruction of a program whose every instruction touches one tile: LOAD INP,
/// LOAD ACC8, GEMM, ALU and STORE, in turns.
pub(super) fn tiny(config: &Config, samples: usize) -> Result<f64> {
    let kernel = SimDevice::kernel_from_env()?;
    let executor = Functional::with_kernel(config.clone(), kernel).with_planning(Planning::AtOnce);
    let device = SimDevice::with_executor("sim", config.clone(), executor);
    let (base, out) = (device.alloc(1 << 16)?, device.alloc(1 << 20)?);
    let insns = asm::parse(&text(config, base, out))?;
    let words = insns.iter().map(Insn::encode);
    let batch = Arc::new(Batch {
        words: words.collect::<Result<Vec<_>, _>>()?,
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![LayerMark {
            name: "tiny".to_owned(),
            first_insn: 0,
        }],
    });
    let mut nanos = Vec::with_capacity(samples);
    for sample in 0..samples + 2 {
        let ticket = device.submit(Work::Run(Arc::clone(&batch)))?;
        if let WorkDone::Ran(report) = ticket.wait()?
            && sample >= 2
        {
            nanos.push(report.wall.as_secs_f64() * 1e9 / batch.insns.len() as f64);
        }
    }
    Ok(median(nanos))
}

/// Assembly text. Load, compute and store hand one token around, so that their order is the program's; all but
/// the first group wait for the one before. The memory is all zeros, as is a micro-op of the first tiles.
fn text(config: &Config, base: PhysAddr, out: PhysAddr) -> String {
    const ONE: &str = "y_size=1 x_size=1 x_stride=1";
    const STEP: &str = "uop_end=1 iter_out=1 iter_in=1";
    let at = |mem: MemType, addr: PhysAddr| addr.0 / config.elem_bytes(mem) as u32;
    let [wgt, uop, inp, acc] = [MemType::Wgt, MemType::Uop, MemType::Inp, MemType::Acc8];
    let [wgt, uop, inp, acc] = [wgt, uop, inp, acc].map(|mem| at(mem, base));
    let out = at(MemType::Out, out);
    let tiles = config.depth(MemType::Acc).min(config.depth(MemType::Inp));
    let mut text = format!("load.wgt dram_base={wgt} {ONE}\nload.uop dram_base={uop} {ONE}\n");
    for group in 0..TINY_GROUPS {
        let (tile, to) = (group % tiles.min(64), out as usize + group % 1024);
        let wait = if group > 0 { "pop_next" } else { "" };
        // Nothing is wrong with writing to a string.
        let _ = write!(
            text,
            "load.inp sram_base={tile} dram_base={inp} {ONE} {wait} push_next\n\
             load.acc8 dram_base={acc} {ONE} pop_prev {wait}\n\
             gemm {STEP}\n\
             alu.add imm=1 {STEP} push_prev push_next\n\
             store sram_base={tile} dram_base={to} {ONE} pop_prev push_prev\n"
        );
    }
    text + &format!("load.inp dram_base={inp} {ONE} pop_next\nfinish pop_next\n")
}
