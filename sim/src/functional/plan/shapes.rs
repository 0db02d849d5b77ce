//! Shapes of instructions: a batch repeats few micro-ops and loops in many places.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_isa::Uop;
use vta_isa::resolve::{AffineTiles, Loops};

/// By micro-ops.
type Known<T> = FxHashMap<Box<[Uop]>, Rc<T>>;

/// What is made of micro-ops and the loops around their indices, made once for all instructions that have them.
#[derive(Debug)]
pub(super) struct Shapes<T>(FxHashMap<[Option<u64>; 3], Known<T>>);

/// Loops as one number, which is hashed at once.
fn packed(loops: Loops) -> u64 {
    let Loops { trips, factors } = loops;
    let all = trips.into_iter().chain(factors);
    all.fold(0, |number, part| number << 16 | u64::from(part))
}

impl<T> Default for Shapes<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T> Shapes<T> {
    /// What is made of an instruction's tiles, all of the same micro-ops.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn of<E>(
        &mut self,
        tiles: [Option<AffineTiles<'_>>; 3],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Rc<T>, E> {
        let uops = tiles
            .iter()
            .flatten()
            .next()
            .map_or(&[][..], |tiles| tiles.uops);
        let loops = tiles.map(|tiles| Some(packed(tiles?.loops)));
        let known = self.0.entry(loops).or_default();
        if let Some(found) = known.get(uops) {
            return Ok(Rc::clone(found));
        }
        let made = Rc::new(make()?);
        known.insert(uops.into(), Rc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::{Gemm, Uop};

    use super::*;

    #[test]
    fn shapes_differ_in_micro_ops_and_in_loops() {
        let uop = |src| Uop {
            src,
            ..Uop::default()
        };
        let gemm = |trips, factor| Gemm {
            iter_in: trips,
            src_factor_in: factor,
            ..Gemm::default()
        };
        let mut shapes: Shapes<usize> = Shapes::default();
        let mut made = 0;
        let mut number = |gemm: Gemm, uops: &[Uop]| {
            let [src, wgt] = gemm.operands(uops).expect("it isn't a reset");
            let make = || {
                made += 1;
                Ok::<_, ()>(made)
            };
            *shapes
                .of([gemm.dst(uops), src, wgt].map(Some), make)
                .unwrap()
        };
        let first = number(gemm(2, 1), &[uop(1), uop(2)]);
        // Elsewhere in the scratchpad they are the same.
        assert_eq!(number(gemm(2, 1), &[uop(1), uop(2)].clone()), first);
        let others = [
            number(gemm(2, 1), &[uop(2), uop(1)]),
            number(gemm(2, 1), &[uop(1)]),
            number(gemm(2, 2), &[uop(1), uop(2)]),
            number(gemm(3, 1), &[uop(1), uop(2)]),
        ];
        assert_eq!(others, [2, 3, 4, 5]);
        let failed = shapes.of([None; 3], || Err::<usize, _>("no form"));
        assert_eq!(failed, Err("no form"));
    }
}
