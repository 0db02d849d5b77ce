//! A program of tiny instructions: what deciding costs when there is nothing to compute.

use std::sync::Arc;

use anyhow::{Result, ensure};
use vta_driver::{Batch, Device, LayerMark, PhysAddr, Work, WorkDone};
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Finish, Gemm, Insn, Load, MemType, Store, Uop,
};
use vta_sim::{Functional, Planning, SimDevice};

use super::median::median;

/// Groups of five one-tile instructions.
const TINY_GROUPS: usize = 4096;

/// Nanoseconds an instruction of a program whose every instruction touches one tile: LOAD INP,
/// LOAD ACC8, GEMM, ALU and STORE, in turns.
pub(super) fn tiny(config: &Config, samples: usize) -> Result<f64> {
    let kernel = SimDevice::kernel_from_env()?;
    let executor = Functional::with_kernel(config.clone(), kernel).with_planning(Planning::AtOnce);
    let device = SimDevice::with_executor("sim", config.clone(), executor);
    let (base, out) = (device.alloc(1 << 16)?, device.alloc(1 << 20)?);
    let insns = tiny_insns(config, base, out)?;
    let words = insns
        .iter()
        .map(Insn::encode)
        .collect::<Result<Vec<_>, _>>()?;
    let batch = Arc::new(Batch {
        words,
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

fn tiny_insns(config: &Config, base: PhysAddr, out: PhysAddr) -> Result<Vec<Insn>> {
    let at = |mem: MemType| base.0 / config.elem_bytes(mem) as u32;
    let one = |mem: MemType, tile: usize| Load {
        mem,
        sram_base: tile as u16,
        dram_base: at(mem),
        y_size: 1,
        x_size: 1,
        x_stride: 1,
        ..Load::default()
    };
    let tiles = config
        .depth(MemType::Acc)
        .min(config.depth(MemType::Inp))
        .min(64);
    let mut insns = vec![one(MemType::Wgt, 0).into(), one(MemType::Uop, 0).into()];
    ensure!(
        Uop::default().encode()? == 0,
        "a micro-op of zeros names the first tiles"
    );
    for group in 0..TINY_GROUPS {
        let tile = group % tiles;
        let store = Store {
            sram_base: tile as u16,
            dram_base: out.0 / config.elem_bytes(MemType::Out) as u32 + group as u32 % 1024,
            y_size: 1,
            x_size: 1,
            x_stride: 1,
            ..Store::default()
        };
        let loads = [one(MemType::Inp, tile), one(MemType::Acc8, 0)];
        insns.extend(tiny_group(loads, store, group > 0));
    }
    let last = Deps {
        pop_next: true,
        ..Deps::NONE
    };
    insns.push(
        Load {
            deps: last,
            ..one(MemType::Inp, 0)
        }
        .into(),
    );
    insns.push(Finish { deps: last }.into());
    Ok(insns)
}

/// Five instructions. Load, compute and store hand one token around, so that their order is the
/// program's; all but the first group wait for the one before.
fn tiny_group([inp, acc]: [Load; 2], store: Store, wait: bool) -> [Insn; 5] {
    let gemm = Gemm {
        uop_end: 1,
        iter_out: 1,
        iter_in: 1,
        ..Gemm::default()
    };
    let alu = Alu {
        deps: Deps {
            push_next: true,
            push_prev: true,
            ..Deps::NONE
        },
        op: AluOp::Add,
        operand: AluOperand::Imm(1),
        uop_bgn: 0,
        uop_end: 1,
        iter_out: 1,
        iter_in: 1,
        dst_factor_out: 0,
        dst_factor_in: 0,
        src_factor_out: 0,
        src_factor_in: 0,
    };
    let deps = Deps {
        pop_next: wait,
        push_next: true,
        ..Deps::NONE
    };
    let inp = Load { deps, ..inp };
    let deps = Deps {
        pop_prev: true,
        pop_next: wait,
        ..Deps::NONE
    };
    let acc = Load { deps, ..acc };
    let deps = Deps {
        pop_prev: true,
        push_prev: true,
        ..Deps::NONE
    };
    let store = Store { deps, ..store };
    [
        inp.into(),
        acc.into(),
        gemm.into(),
        alu.into(),
        store.into(),
    ]
}
