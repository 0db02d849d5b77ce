//! DEPTHWISE, an instruction at a time.

use vta_isa::resolve::DepthwiseAccess;

use super::scratchpads::Scratchpads;

/// Runs an instruction whose tiles are all there. One that overwrites must have a tile for each step.
pub(crate) fn depthwise(pads: &mut Scratchpads, access: &DepthwiseAccess<'_>) {
    let (lanes, block, insn) = (pads.lanes, pads.block, &access.insn);
    let (columns, pitch) = (usize::from(insn.columns), usize::from(insn.pitch));
    let tiles: Vec<usize> = (0..insn.taps())
        .map(|tap| tap / columns * pitch + tap % columns)
        .collect();
    let [to, from] = [access.dst.loops, access.src.loops];
    let mut weights = vec![0; tiles.len() * block];
    for uop in access.uops.known {
        let tile = &pads.wgt[usize::from(uop.wgt) * block * block..][..block * block];
        for (tap, row) in weights.chunks_exact_mut(block).enumerate() {
            let of_channels = tile[tap..].iter().step_by(block);
            (row.iter_mut().zip(of_channels)).for_each(|(to, w)| *to = i32::from(*w as i8));
        }
        let trips = to.offsets().zip(from.offsets());
        for (to, from) in trips {
            let dst = (usize::from(uop.dst) + to as usize) * lanes;
            let src = usize::from(uop.src) + from as usize;
            let sums = &mut pads.acc[dst..dst + lanes];
            if insn.overwrite {
                sums.fill(0);
            }
            for (tile, weights) in tiles.iter().zip(weights.chunks_exact(block)) {
                let inputs = &pads.inp[(src + tile) * lanes..][..lanes];
                for (sums, inputs) in sums.chunks_exact_mut(block).zip(inputs.chunks_exact(block)) {
                    for ((sum, x), w) in sums.iter_mut().zip(inputs).zip(weights) {
                        *sum = sum.wrapping_add(i32::from(*x as i8) * w);
                    }
                }
            }
        }
    }
}
