//! One instruction at a time: what runs when a program can't be planned, and what finds out
//! exactly where a faulty program goes wrong.

use vta_driver::DeviceMemory;
use vta_isa::tokens::At;
use vta_isa::{Alu, AluOperand, Config, Gemm, Insn, Load, MemType, Store};

use super::scratchpads::Scratchpads;
use crate::error::SimError;
use crate::kernels::lanes;
use crate::oracle::{affine, dram, index, uop_range};

/// Runs one instruction whose tokens are there.
///
/// # Errors
/// As [`Executor::run`](crate::Executor::run): what the instruction did before its fault stays.
pub(crate) fn execute(
    pads: &mut Scratchpads,
    config: &Config,
    at: &At,
    memory: &mut DeviceMemory,
) -> Result<(), SimError> {
    match &at.insn {
        Insn::Load(load) => self::load(pads, config, at, load, memory),
        Insn::Store(store) => self::store(pads, config, at, store, memory),
        Insn::Gemm(gemm) => self::gemm(pads, config, at, gemm),
        Insn::Alu(alu) => self::alu(pads, config, at, alu),
        Insn::Finish(_) => Ok(()),
    }
}

fn load(
    pads: &mut Scratchpads,
    config: &Config,
    at: &At,
    load: &Load,
    memory: &DeviceMemory,
) -> Result<(), SimError> {
    if load.is_sync() {
        return Ok(());
    }
    let end = u64::from(load.sram_base) + load.sram_tiles();
    let depth = config.depth(load.mem);
    index(at, "sram_base", end - 1, load.mem.name(), depth)?;
    for piece in load.fills(config) {
        let first = piece.entries.start;
        match piece.from {
            None => pads.clear(load.mem, first, piece.entries.len()),
            Some(row) => {
                let row = memory.read(row.start, row.end - row.start);
                let row = row.map_err(|source| dram(at, source))?;
                pads.fill(load.mem, first, row);
            }
        }
    }
    Ok(())
}

fn store(
    pads: &Scratchpads,
    config: &Config,
    at: &At,
    store: &Store,
    memory: &mut DeviceMemory,
) -> Result<(), SimError> {
    if store.is_sync() {
        return Ok(());
    }
    let end = u64::from(store.sram_base) + store.tiles();
    index(at, "sram_base", end - 1, "acc", config.depth(MemType::Out))?;
    let rows = store.dram_rows(config).into_iter();
    let mut first = usize::from(store.sram_base) * pads.lanes;
    for row in rows.flat_map(|rows| rows.iter()) {
        let row = memory.write(row.start, row.end - row.start);
        let row = row.map_err(|source| dram(at, source))?;
        lanes::narrow(pads.kernel, &pads.acc[first..], row);
        first += row.len();
    }
    Ok(())
}

fn gemm(pads: &mut Scratchpads, config: &Config, at: &At, gemm: &Gemm) -> Result<(), SimError> {
    uop_range(at, gemm.uop_bgn, gemm.uop_end, pads.uop.len())?;
    let depth = |mem: MemType| config.depth(mem);
    let (lanes, block) = (pads.lanes, pads.block);
    for (i, j, u) in steps(gemm.iter_out, gemm.iter_in, gemm.uop_bgn, gemm.uop_end) {
        let uop = pads.uop[usize::from(u)];
        let dst = affine(uop.dst, i, gemm.dst_factor_out, j, gemm.dst_factor_in);
        let dst = index(at, "dst", dst, "acc", depth(MemType::Acc))? * lanes;
        if gemm.reset {
            pads.acc[dst..dst + lanes].fill(0);
            continue;
        }
        let src = affine(uop.src, i, gemm.src_factor_out, j, gemm.src_factor_in);
        let wgt = affine(uop.wgt, i, gemm.wgt_factor_out, j, gemm.wgt_factor_in);
        let src = index(at, "src", src, "inp", depth(MemType::Inp))? * lanes;
        let wgt = index(at, "wgt", wgt, "wgt", depth(MemType::Wgt))? * block * block;
        for lane in 0..lanes {
            let (row, out) = (lane / block, lane % block);
            let mut sum = pads.acc[dst + lane];
            for k in 0..block {
                let x = i32::from(pads.inp[src + row * block + k] as i8);
                let w = i32::from(pads.wgt[wgt + out * block + k] as i8);
                sum = sum.wrapping_add(x * w);
            }
            pads.acc[dst + lane] = sum;
        }
    }
    Ok(())
}

fn alu(pads: &mut Scratchpads, config: &Config, at: &At, alu: &Alu) -> Result<(), SimError> {
    uop_range(at, alu.uop_bgn, alu.uop_end, pads.uop.len())?;
    let (lanes, depth) = (pads.lanes, config.depth(MemType::Acc));
    for (i, j, u) in steps(alu.iter_out, alu.iter_in, alu.uop_bgn, alu.uop_end) {
        let uop = pads.uop[usize::from(u)];
        let dst = affine(uop.dst, i, alu.dst_factor_out, j, alu.dst_factor_in);
        let dst = index(at, "dst", dst, "acc", depth)? * lanes;
        match alu.operand {
            AluOperand::Imm(imm) => {
                for x in &mut pads.acc[dst..dst + lanes] {
                    *x = alu.op.apply(*x, i32::from(imm));
                }
            }
            AluOperand::Acc => {
                let src = affine(uop.src, i, alu.src_factor_out, j, alu.src_factor_in);
                let src = index(at, "src", src, "acc", depth)? * lanes;
                for lane in 0..lanes {
                    let y = pads.acc[src + lane];
                    let x = &mut pads.acc[dst + lane];
                    *x = alu.op.apply(*x, y);
                }
            }
        }
    }
    Ok(())
}

/// The steps of two affine loops over micro-ops, in order.
fn steps(iter_out: u16, iter_in: u16, bgn: u16, end: u16) -> impl Iterator<Item = (u64, u64, u16)> {
    (0..u64::from(iter_out))
        .flat_map(move |i| (0..u64::from(iter_in)).map(move |j| (i, j)))
        .flat_map(move |(i, j)| (bgn..end).map(move |u| (i, j, u)))
}
