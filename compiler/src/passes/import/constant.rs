//! Constants of a QDQ graph: integers, and what they stand for. Those of the graph stay where they are, so that
//! what a layer's weights become is all that is made of them.

use std::sync::Arc;

use crate::graph::{Data, Value};
use crate::qgraph::Weights;
use crate::semantics;

/// A constant: integers as a file has them, or after DequantizeLinear with scales, and less their
/// zero points.
#[derive(Clone)]
pub(crate) struct Constant<'g> {
    raw: Raw<'g>,
    /// What they are less of: one, or one for each slice of so many, in turns.
    zeros: Vec<i32>,
    zero_slice: usize,
    /// One, or one for each slice of `axis`.
    pub scale: Vec<f64>,
    pub axis: usize,
    pub shape: Vec<usize>,
    /// The file has int8 or uint8.
    pub is_byte: bool,
}

/// Integers before zero points are taken off them.
#[derive(Clone)]
enum Raw<'g> {
    I8(&'g [i8]),
    U8(&'g [u8]),
    I32(&'g [i32]),
    /// None of the graph's.
    Computed(Arc<[i32]>),
}

impl<'g> Constant<'g> {
    /// That of a value; `None` for what aren't integers of 8 or 32 bits.
    pub(crate) fn of(value: &'g Value) -> Option<Self> {
        let raw = match value.data.as_ref()? {
            Data::I8(values) => Raw::I8(values),
            Data::U8(values) => Raw::U8(values),
            Data::I32(values) => Raw::I32(values),
            Data::F32(_) | Data::I16(_) | Data::U16(_) | Data::I64(_) | Data::Bool(_) => {
                return None;
            }
        };
        let is_byte = !matches!(raw, Raw::I32(_));
        Some(Self::with(raw, value.shape.clone(), is_byte))
    }

    /// Integers that were computed.
    pub(crate) fn computed(values: Vec<i32>, shape: Vec<usize>, is_byte: bool) -> Self {
        Self::with(Raw::Computed(values.into()), shape, is_byte)
    }

    fn with(raw: Raw<'g>, shape: Vec<usize>, is_byte: bool) -> Self {
        Self {
            raw,
            zeros: Vec::new(),
            zero_slice: 1,
            scale: vec![1.0],
            axis: 0,
            shape,
            is_byte,
        }
    }

    /// Takes zero points off its integers: one, or one for each slice of so many, in turns. `None` for
    /// differences beyond int32.
    pub(crate) fn subtract(&mut self, mut zeros: Vec<i32>, slice: usize) -> Option<()> {
        if zeros.iter().all(|&zero| zero == zeros[0]) {
            zeros.truncate(1);
        }
        let slice = slice.max(1);
        // Then a byte less any zero point is an int32, and `at` needs no check.
        let small = |zero: &i32| (-(1 << 30)..1 << 30).contains(zero);
        let is_kept = match self.raw {
            _ if !self.zeros.is_empty() => false,
            Raw::I8(_) | Raw::U8(_) => zeros.iter().all(small),
            Raw::I32(_) | Raw::Computed(_) => zeros == [0],
        };
        if is_kept {
            (self.zeros, self.zero_slice) = (zeros, slice);
            return Some(());
        }
        let less = |i: usize| self.at(i).checked_sub(zeros[i / slice % zeros.len()]);
        let values: Option<Arc<[i32]>> = (0..self.len()).map(less).collect();
        self.raw = Raw::Computed(values?);
        self.zeros.clear();
        Some(())
    }

    /// A matrix with rows for columns; `None` for any other constant or permutation.
    pub(crate) fn turned(&self, perm: &[usize]) -> Option<Self> {
        let (&[rows, columns], [1, 0]) = (&self.shape[..], perm) else {
            return None;
        };
        if rows.checked_mul(columns) != Some(self.len()) {
            return None;
        }
        let values =
            (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
        let values = values.map(|at| self.at(at)).collect();
        Some(Self {
            scale: self.scale.clone(),
            axis: if self.scale.len() > 1 {
                1 - self.axis.min(1)
            } else {
                0
            },
            ..Self::computed(values, vec![columns, rows], self.is_byte)
        })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.raw {
            Raw::I8(v) => v.len(),
            Raw::U8(v) => v.len(),
            Raw::I32(v) => v.len(),
            Raw::Computed(v) => v.len(),
        }
    }

    /// An integer, less its zero point.
    pub(crate) fn at(&self, i: usize) -> i32 {
        let integer = match &self.raw {
            Raw::I8(v) => v[i].into(),
            Raw::U8(v) => v[i].into(),
            Raw::I32(v) => v[i],
            Raw::Computed(v) => v[i],
        };
        match self.zeros[..] {
            [] => integer,
            [zero] => integer - zero,
            ref zeros => integer - zeros[i / self.zero_slice % zeros.len()],
        }
    }

    /// Its integers, less their zero points.
    pub(crate) fn integers(&self) -> impl Iterator<Item = i32> {
        (0..self.len()).map(|i| self.at(i))
    }

    /// As the weights of a layer, in the order that they have.
    pub(crate) fn weights(&self) -> Weights {
        match (&self.raw, &self.zeros[..]) {
            (Raw::I8(v), [] | [0]) => v.to_vec().into(),
            (Raw::I8(v), &[zero]) => {
                semantics::weight_parts(v.len(), |i| i32::from(v[i]) - zero).into()
            }
            (Raw::U8(v), &[zero]) => {
                semantics::weight_parts(v.len(), |i| i32::from(v[i]) - zero).into()
            }
            _ => self.moved(self.len(), |i| i),
        }
    }

    /// As `count` weights of a layer, of which each is the one that `from` says.
    pub(crate) fn moved(&self, count: usize, from: impl Fn(usize) -> usize) -> Weights {
        semantics::weight_parts(count, |i| self.at(from(i))).into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::graph::Element;

    fn value(data: Data) -> Value {
        Value::new("c", vec![data.len()], Some(data))
    }

    proptest! {
        /// Whatever holds them, integers are what is left of them once all zero points are taken off.
        #[test]
        fn zero_points_are_taken_off_by_slices(
            integers in prop::collection::vec(0i64..128, 12), kind in 0usize..3,
            zeros in prop::collection::vec(prop::collection::vec(-100i32..100, 1..4), 1..3), slice in 1usize..5,
        ) {
            let element = [Element::I8, Element::U8, Element::I32][kind];
            let value = value(Data::of_integers(element, &integers).unwrap());
            let mut found = Constant::of(&value).unwrap();
            let mut wanted: Vec<i32> = integers.iter().map(|&v| v as i32).collect();
            for zeros in zeros {
                found.subtract(zeros.clone(), slice).unwrap();
                for (i, value) in wanted.iter_mut().enumerate() {
                    *value -= zeros[i / slice % zeros.len()];
                }
            }
            prop_assert_eq!(found.integers().collect::<Vec<i32>>(), wanted.clone());
            let parts = found.weights();
            prop_assert_eq!(semantics::whole_weights(&parts, wanted.len()), wanted.clone());
            let turned = found.moved(wanted.len(), |i| wanted.len() - 1 - i);
            wanted.reverse();
            prop_assert_eq!(semantics::whole_weights(&turned, wanted.len()), wanted);
        }
    }

    #[test]
    fn differences_beyond_int32_are_none() {
        let value = value(Data::I32(vec![0, i32::MIN]));
        let mut constant = Constant::of(&value).unwrap();
        assert_eq!(constant.clone().subtract(vec![0], 1), Some(()));
        assert_eq!(constant.subtract(vec![1], 1), None);
    }
}
