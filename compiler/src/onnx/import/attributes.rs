//! A node's attributes, with the values that they have where a file leaves them out.

use vta_files::printable;

use crate::onnx::proto;
use crate::qgraph::window::Pads;

/// How many axes an operator with a window goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// Columns.
    Sequence,
    /// Rows and columns.
    Plane,
}

impl Axes {
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Sequence => 1,
            Self::Plane => 2,
        }
    }
}

/// What a window goes over.
#[derive(Clone, Copy)]
pub(crate) struct Plane {
    pub axes: Axes,
    /// Rows and columns; a sequence has one row.
    pub size: [usize; 2],
}

/// A dimension, counted from the end if it is negative.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from = if axis < 0 {
        axis.saturating_add(rank as i64)
    } else {
        axis
    };
    let found = usize::try_from(from).ok().filter(|&a| a < rank);
    found.ok_or_else(|| format!("axis {axis} of {rank} dimensions"))
}

/// A node to look attributes up in.
pub(crate) struct Attributes<'a>(pub(crate) &'a proto::Node);

impl Attributes<'_> {
    pub(crate) fn find(&self, name: &str) -> Option<&proto::Attribute> {
        self.0.attribute.iter().find(|a| a.name == name)
    }

    /// The name of an input by its place; `None` where it is left out.
    pub(crate) fn input(&self, place: usize) -> Option<&str> {
        let name = self.0.input.get(place)?;
        (!name.is_empty()).then_some(name)
    }

    /// The operator.
    pub(crate) fn op_type(&self) -> &str {
        &self.0.op_type
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).map_or(default, |a| a.i)
    }

    pub(crate) fn count(&self, name: &str, default: i64) -> Result<usize, String> {
        let value = self.int(name, default);
        usize::try_from(value).map_err(|_| format!("{name} is {value}"))
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        self.find(name).map_or(default, |a| a.f)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.find(name)
            .map(|a| printable(&String::from_utf8_lossy(&a.s)).into_owned())
    }

    /// Sizes of rows and columns; a sequence's row has 1.
    pub(crate) fn pair(
        &self,
        name: &str,
        axes: Axes,
        default: Option<[usize; 2]>,
    ) -> Result<[usize; 2], String> {
        let Some(attribute) = self.find(name) else {
            return default.ok_or_else(|| format!("{name} is missing"));
        };
        match (axes, &attribute.ints[..]) {
            (Axes::Plane, &[a, b]) if a >= 0 && b >= 0 => Ok([a as usize, b as usize]),
            (Axes::Sequence, &[b]) if b >= 0 => Ok([1, b as usize]),
            (Axes::Plane, ints) => Err(format!("{name} is {ints:?}, not two sizes")),
            (Axes::Sequence, ints) => Err(format!("{name} is {ints:?}, not one size")),
        }
    }

    /// Zeros around rows and columns.
    pub(crate) fn pads(&self, axes: Axes) -> Result<Pads, String> {
        let Some(attribute) = self.find("pads") else {
            return Ok(Pads::NONE);
        };
        let pads: Option<Vec<usize>> = attribute
            .ints
            .iter()
            .map(|&p| usize::try_from(p).ok().filter(|p| *p <= 65535))
            .collect();
        match (axes, pads.as_deref()) {
            (Axes::Plane, Some(&[top, left, bottom, right])) => {
                Ok(Pads::from([top, left, bottom, right]))
            }
            (Axes::Sequence, Some(&[left, right])) => Ok(Pads::from([0, left, 0, right])),
            (axes, _) => Err(format!(
                "pads are {:?}, not {} sizes up to 65535",
                attribute.ints,
                2 * axes.count()
            )),
        }
    }
}
