//! Operators on the bits of integers.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::onnx::elements;
use crate::operators::elementwise::broadcast;

pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let x = of.required(0)?;
    let numbers = |data: &Data| match data {
        Data::F32(_) | Data::Bool(_) => Err(format!("bits of {:?}", data.element())),
        data => data.integers().ok_or_else(|| "bits of floats".to_owned()),
    };
    let bits = match x.data {
        Data::I8(_) | Data::U8(_) => 8,
        _ => 32,
    };
    let (shape, made) = if of.node.op_type == "BitwiseNot" {
        let made = numbers(x.data)?.into_iter().map(|x| !x).collect();
        (x.shape.to_vec(), made)
    } else {
        let y = of.required(1)?;
        let joined = join(of, bits)?;
        let shape = broadcast(x.shape, y.shape)?;
        let count = elements("C", &shape).map_err(|e| e.to_string())?;
        let [a, b] = [x, y]
            .map(|lent| Ok::<_, String>((places(lent.shape, &shape, count), numbers(lent.data)?)));
        let ((at, a), (bt, b)) = (a?, b?);
        let made = at.into_iter().zip(bt).map(|(at, bt)| joined(a[at], b[bt]));
        (shape, made.collect::<Vec<i64>>())
    };
    // The low bits, as a number of the type.
    let data = match x.data {
        Data::I8(_) => Data::I8(made.into_iter().map(|v| v as i8).collect()),
        Data::U8(_) => Data::U8(made.into_iter().map(|v| v as u8).collect()),
        _ => Data::I32(made.into_iter().map(|v| v as i32).collect()),
    };
    Ok(vec![Tensor { shape, data }])
}

type Join = fn(i64, i64) -> i64;

/// What joins two numbers.
fn join(of: &Asked<'_>, bits: i64) -> Result<Box<dyn Fn(i64, i64) -> i64>, String> {
    let both: Join = match &of.node.op_type[..] {
        "BitwiseAnd" => |a, b| a & b,
        "BitwiseOr" => |a, b| a | b,
        "BitwiseXor" => |a, b| a ^ b,
        _ => {
            let is_within = move |by: i64| (0..bits).contains(&by);
            // Beyond its width a number has its sign alone, or nothing.
            return Ok(match &of.text("direction", "")[..] {
                "LEFT" => Box::new(move |a, by| if is_within(by) { a << by } else { 0 }),
                "RIGHT" => Box::new(move |a, by| a >> if is_within(by) { by } else { 63 }),
                other => return Err(format!("direction is {other}")),
            });
        }
    };
    Ok(Box::new(both))
}

/// For each element of a shape, the place in a smaller one that is broadcast to it.
fn places(own: &[usize], shape: &[usize], count: usize) -> Vec<usize> {
    let place = |index: usize| {
        let (mut rest, mut at, mut step) = (index, 0, 1);
        for (axis, size) in shape.iter().enumerate().rev() {
            let own = (axis + own.len())
                .checked_sub(shape.len())
                .map(|axis| own[axis]);
            if let Some(own) = own {
                at += if own == 1 { 0 } else { rest % size * step };
                step *= own;
            }
            rest /= size;
        }
        at
    };
    (0..count).map(place).collect()
}
