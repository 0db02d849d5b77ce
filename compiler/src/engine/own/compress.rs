//! Compress: the entries of a dimension, or of all elements, that a list of truths has.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::operators::operator::axis;

pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let (x, truths) = (of.required(0)?, of.required(1)?);
    let truths = truths.data.integers().ok_or("its truths are floats")?;
    let count: usize = x.shape.iter().product();
    let (axis, mut shape) = match of.node.find("axis") {
        None => (0, vec![count]),
        Some(given) => (axis(given.i, x.shape.len())?, x.shape.to_vec()),
    };
    let size = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let taken: Vec<usize> = (0..size.min(truths.len()))
        .filter(|&at| truths[at] != 0)
        .collect();
    shape[axis] = taken.len();
    fn chosen<T: Copy>(data: &[T], [size, inner]: [usize; 2], taken: &[usize]) -> Vec<T> {
        let blocks = data.chunks_exact((size * inner).max(1));
        let entries = |block| taken.iter().map(move |at| (block, at * inner));
        let all = blocks.flat_map(entries);
        all.flat_map(|(block, at): (&[T], usize)| block[at..][..inner].iter().copied())
            .collect()
    }
    let sizes = [size, inner];
    let data = match x.data {
        Data::F32(v) => Data::F32(chosen(v, sizes, &taken)),
        Data::I8(v) => Data::I8(chosen(v, sizes, &taken)),
        Data::U8(v) => Data::U8(chosen(v, sizes, &taken)),
        Data::I16(v) => Data::I16(chosen(v, sizes, &taken)),
        Data::U16(v) => Data::U16(chosen(v, sizes, &taken)),
        Data::I32(v) => Data::I32(chosen(v, sizes, &taken)),
        Data::I64(v) => Data::I64(chosen(v, sizes, &taken)),
        Data::Bool(v) => Data::Bool(chosen(v, sizes, &taken)),
    };
    Ok(vec![Tensor { shape, data }])
}
