//! Accesses of every step and reachability over tokens, by brute force.

use std::collections::BTreeMap;

use vta_driver::DeviceMemory;
use vta_isa::{AluOperand, Config, Insn, MemType, Module, Uop};

/// Memory name and tile, or DRAM and byte.
type Place = (&'static str, u64);

/// What each instruction touches, and whether it writes there.
pub fn accesses(
    config: &Config,
    insns: &[Insn],
    memory: &DeviceMemory,
) -> Vec<BTreeMap<Place, bool>> {
    let mut pad = vec![Uop::default(); config.depth(MemType::Uop)];
    insns
        .iter()
        .map(|insn| {
            let mut touched = BTreeMap::new();
            let mut touch = |place: &'static str, index: u64, write: bool| {
                *touched.entry((place, index)).or_insert(false) |= write;
            };
            match insn {
                Insn::Load(l) if !l.is_sync() => {
                    let elem = config.elem_bytes(l.mem) as u64;
                    for y in 0..u64::from(l.y_size) {
                        let first = u64::from(l.dram_base) + y * u64::from(l.x_stride);
                        for byte in first * elem..(first + u64::from(l.x_size)) * elem {
                            touch("dram", byte, false);
                        }
                    }
                    let name = match l.mem {
                        MemType::Acc8 => "acc",
                        MemType::Wgt4 => "wgt",
                        other => other.name(),
                    };
                    for tile in 0..l.sram_tiles() {
                        touch(name, u64::from(l.sram_base) + tile, true);
                    }
                    if l.mem == MemType::Uop {
                        // The generator loads one row without padding.
                        let bytes = memory
                            .read(u64::from(l.dram_base) * 4, u64::from(l.x_size) * 4)
                            .unwrap();
                        for (i, word) in bytes.chunks(4).enumerate() {
                            let word = u32::from_le_bytes(word.try_into().unwrap());
                            pad[usize::from(l.sram_base) + i] = Uop::decode(word);
                        }
                    }
                }
                Insn::Store(s) if !s.is_sync() => {
                    let elem = config.elem_bytes(MemType::Out) as u64;
                    for y in 0..u64::from(s.y_size) {
                        let first = u64::from(s.dram_base) + y * u64::from(s.x_stride);
                        for byte in first * elem..(first + u64::from(s.x_size)) * elem {
                            touch("dram", byte, true);
                        }
                    }
                    for tile in 0..s.tiles() {
                        touch("acc", u64::from(s.sram_base) + tile, false);
                        let Some(how) = &s.requantize else { continue };
                        let row = tile / u64::from(s.x_size) * u64::from(how.by_row);
                        let words = if how.residual == 0 { 3 } else { 7 };
                        for word in 0..words {
                            touch("acc", u64::from(how.table) + row * words + word, false);
                        }
                        if how.residual > 0 {
                            let residual = u64::from(s.sram_base) + 32 * u64::from(how.residual);
                            touch("acc", residual + tile, false);
                        }
                    }
                }
                Insn::Gemm(g) => {
                    for i in 0..g.iter_out {
                        for j in 0..g.iter_in {
                            for uop in &pad[usize::from(g.uop_bgn)..usize::from(g.uop_end)] {
                                let at = |start, out, inner| u64::from(start + i * out + j * inner);
                                touch("acc", at(uop.dst, g.dst_factor_out, g.dst_factor_in), true);
                                if !g.reset {
                                    touch(
                                        "inp",
                                        at(uop.src, g.src_factor_out, g.src_factor_in),
                                        false,
                                    );
                                    touch(
                                        "wgt",
                                        at(uop.wgt, g.wgt_factor_out, g.wgt_factor_in),
                                        false,
                                    );
                                }
                            }
                        }
                    }
                }
                Insn::Depthwise(d) => {
                    for i in 0..d.iter_out {
                        for j in 0..d.iter_in {
                            for uop in &pad[usize::from(d.uop_bgn)..usize::from(d.uop_end)] {
                                let dst = uop.dst + i * d.dst_factor_out + j * d.dst_factor_in;
                                touch("acc", dst.into(), true);
                                touch("wgt", uop.wgt.into(), false);
                                let src = uop.src + i * d.src_factor_out + j * d.src_factor_in;
                                for y in 0..u16::from(d.rows) {
                                    for x in 0..u16::from(d.columns) {
                                        touch("inp", u64::from(src + y * d.pitch + x), false);
                                    }
                                }
                            }
                        }
                    }
                }
                Insn::Alu(a) => {
                    for i in 0..a.iter_out {
                        for j in 0..a.iter_in {
                            for uop in &pad[usize::from(a.uop_bgn)..usize::from(a.uop_end)] {
                                let at = |start, out, inner| u64::from(start + i * out + j * inner);
                                touch("acc", at(uop.dst, a.dst_factor_out, a.dst_factor_in), true);
                                if a.operand == AluOperand::Acc {
                                    touch(
                                        "acc",
                                        at(uop.src, a.src_factor_out, a.src_factor_in),
                                        false,
                                    );
                                }
                            }
                        }
                    }
                }
                Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {}
            }
            touched
        })
        .collect()
}

/// `[a][b]`: a is done before b starts.
pub fn reachability(insns: &[Insn]) -> Vec<Vec<bool>> {
    let n = insns.len();
    let mut before = vec![vec![false; n]; n];
    for module in Module::ALL {
        let own: Vec<_> = (0..n).filter(|i| insns[*i].module() == module).collect();
        own.windows(2)
            .for_each(|pair| before[pair[0]][pair[1]] = true);
    }
    // The n-th push of a queue with its n-th pop.
    let (load, compute, store) = (Module::Load, Module::Compute, Module::Store);
    for (from, to) in [
        (load, compute),
        (compute, load),
        (compute, store),
        (store, compute),
    ] {
        let right = from < to;
        let pushes = (0..n).filter(|i| {
            let deps = insns[*i].deps();
            insns[*i].module() == from
                && if right {
                    deps.push_next
                } else {
                    deps.push_prev
                }
        });
        let pops = (0..n).filter(|i| {
            let deps = insns[*i].deps();
            insns[*i].module() == to && if right { deps.pop_prev } else { deps.pop_next }
        });
        pushes.zip(pops).for_each(|(a, b)| before[a][b] = true);
    }
    for k in 0..n {
        for a in 0..n {
            if before[a][k] {
                let row = before[k].clone();
                before[a].iter_mut().zip(row).for_each(|(x, y)| *x |= y);
            }
        }
    }
    before
}
