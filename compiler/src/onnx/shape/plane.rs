//! Tensors with rows and columns, and sequences, which have one row.

/// The sizes of a tensor that has all of them.
///
/// # Errors
/// Another rank, a batch that isn't 1, and sizes of 0.
pub(super) fn nchw(x: &[usize]) -> Result<[usize; 4], String> {
    let shape = x
        .try_into()
        .map_err(|_| format!("input of shape {x:?}, not [1, C, H, W]"))?;
    let [n, c, h, w]: [usize; 4] = shape;
    if n == 1 && c > 0 && h > 0 && w > 0 {
        Ok(shape)
    } else {
        Err(format!(
            "input of shape {x:?}: the batch must be 1 and no size 0"
        ))
    }
}

/// As [`nchw`]; a sequence `[1, C, W]` has one row.
pub(super) fn rows(x: &[usize]) -> Result<[usize; 4], String> {
    match *x {
        [n, c, w] => nchw(&[n, c, 1, w]),
        _ => nchw(x),
    }
}

/// The shape of what has so many channels, rows and columns, of an input's rank.
pub(super) fn like(x: &[usize], [c, h, w]: [usize; 3]) -> Vec<usize> {
    match x.len() {
        3 => vec![1, c, w],
        _ => vec![1, c, h, w],
    }
}
