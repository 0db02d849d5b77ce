//! The table's rows: what is known of an operator by its name, and how a node of a file is read by its row.

use crate::graph::{Data, Element, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::onnx::element;
use crate::onnx::import::state::Import;
use crate::onnx::proto;

/// An operator of ONNX, by its name.
#[derive(Clone, Copy)]
pub(crate) struct Operator {
    /// ONNX's name.
    pub kind: &'static str,
    /// How large its outputs are.
    pub size: Size,
    /// The type of its first output.
    pub element: Kind,
    /// How it is read as one that devices may compute; the host computes any.
    pub device: Option<Device>,
}

/// How an operator that devices may compute is read.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    /// Fewest and most inputs.
    pub inputs: (usize, usize),
    /// Says what a node is, or why devices can't compute it.
    pub read: Reader,
}

pub(crate) type Reader = fn(&mut Import<'_>, &Found<'_>) -> Result<Made, String>;

/// A node of a file whose operator is in the table.
pub(crate) struct Found<'n> {
    /// As the file has it.
    pub node: &'n proto::Node,
    /// The node's name, or one made from its operator.
    pub name: String,
    pub operator: Operator,
    /// In the form of opset 13 or later.
    pub op: OnnxOp,
    /// The arguments that are given.
    pub inputs: Vec<ValueId>,
}

impl Found<'_> {
    /// An operator that reads all inputs.
    pub fn made(&self, op: Op, shape: Vec<usize>) -> Made {
        let inputs = self.inputs.clone();
        Made { op, inputs, shape }
    }

    /// An operator that reads the first input.
    pub fn unary(&self, op: Op, shape: Vec<usize>) -> Made {
        let inputs = self.inputs[..1].to_vec();
        Made { op, inputs, shape }
    }
}

/// What a node is read as: what devices need to know of it is in it.
pub(crate) struct Made {
    pub op: Op,
    pub inputs: Vec<ValueId>,
    /// The output's.
    pub shape: Vec<usize>,
}

/// What a node reads, by the arguments of its operator.
pub(crate) struct Given<'v> {
    pub op: &'v OnnxOp,
    /// Of the arguments that are given.
    pub values: Vec<&'v Value>,
}

impl<'v> Given<'v> {
    /// An argument, where it is given.
    pub fn get(&self, argument: usize) -> Option<&'v Value> {
        self.values.get(self.op.place(argument)?).copied()
    }

    /// An argument.
    ///
    /// # Errors
    /// One that isn't given, in words.
    pub fn value(&self, argument: usize) -> Result<&'v Value, String> {
        let value = self.get(argument);
        value.ok_or_else(|| format!("its input {argument} is missing"))
    }

    /// The shape of an argument.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub fn shape(&self, argument: usize) -> Result<&'v [usize], String> {
        self.value(argument).map(|value| &value.shape[..])
    }

    /// The integers of an argument, where it is given.
    ///
    /// # Errors
    /// One that is no constant, in words.
    pub fn integers(&self, argument: usize, name: &str) -> Result<Option<Vec<i64>>, String> {
        let integers = |value: &Value| value.data.as_ref().and_then(Data::integers);
        let constant =
            |value| integers(value).ok_or_else(|| format!("its {name} must be a constant"));
        self.get(argument).map(constant).transpose()
    }
}

impl Import<'_> {
    /// What a node reads.
    pub(crate) fn given<'v>(&'v self, found: &'v Found<'_>) -> Given<'v> {
        let value = |id: &ValueId| self.examples.get(id).unwrap_or(&self.graph.values[id.0]);
        let values = found.inputs.iter().map(value);
        Given {
            op: &found.op,
            values: values.collect(),
        }
    }

    /// An operator whose output has the shape of its first input.
    pub(crate) fn same(&self, found: &Found<'_>, op: Op) -> Result<Made, String> {
        let shape = self.given(found).shape(0)?.to_vec();
        Ok(found.made(op, shape))
    }
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
/// How large an operator's outputs are.
#[derive(Clone, Copy)]
pub(crate) enum Size {
    /// As its first input.
    First,
    /// As its inputs together, each dimension the largest of theirs.
    Broadcast,
    /// As a product of matrices.
    Product,
    /// As a window over the second dimension and those behind it gives.
    Window(WindowKind),
    /// As much as the values of its inputs choose, which is so much at most.
    Chosen,
    /// As its first input's dimensions in another order.
    Order,
    /// A state for each step of each direction, and the last ones.
    States,
    /// As a Fourier transform gives.
    Spectrum,
    /// What computing it says, with at most as many elements as the bound.
    Computed(Bound),
}

/// What goes over a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowKind {
    /// A convolution, whose weights are its second input.
    Conv,
    /// A transposed one.
    ConvTranspose,
    /// A pool.
    Pool,
    /// A pool over everything.
    Global,
}

/// The most elements of each output, which are counted before it is computed: by the inputs' shapes, a constant input
/// or an attribute.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// As the first input has.
    First,
    /// As all inputs have together.
    Sum,
    /// The first input's for each of the second's.
    Index,
    /// ConstantOfShape: the shape itself.
    Shape,
    /// Expand: a shape that the first input is broadcast with.
    Expand,
    /// Tile: a factor for each dimension.
    Repeats,
    /// Pad: elements before and behind each dimension.
    Pads,
    /// Resize: sizes or factors.
    Resize,
    /// Range: start, limit and step.
    Range,
    /// OneHot: how many classes.
    Depth,
    /// Einsum: sizes of the letters.
    Letters,
    /// Attention: each query for each key.
    Scores,
    /// GridSample: the channels for each place of the grid.
    Grid,
}

/// The type of an output.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// As the first input.
    First,
    /// As the second.
    Second,
    /// As the third.
    Third,
    /// Always this.
    Is(Element),
    /// What the attribute `to` says.
    To,
    /// That of the tensor in the attribute `value`.
    Value,
}

impl Operator {
    /// An operator that the host's engine computes.
    pub const fn new(kind: &'static str, size: Size, element: Kind) -> Self {
        Self {
            kind,
            size,
            element,
            device: None,
        }
    }

    /// One whose outputs are as its first input.
    pub const fn same(kind: &'static str) -> Self {
        Self::new(kind, Size::First, Kind::First)
    }

    /// One whose outputs have at most as many elements as its first input, of its type.
    pub const fn fewer(kind: &'static str) -> Self {
        Self::computed(kind, Bound::First)
    }

    /// One whose outputs must be computed to say how large they are, of its first input's type.
    pub const fn computed(kind: &'static str, bound: Bound) -> Self {
        Self::new(kind, Size::Computed(bound), Kind::First)
    }

    /// One whose inputs are broadcast.
    pub const fn broadcast(kind: &'static str) -> Self {
        Self::new(kind, Size::Broadcast, Kind::First)
    }

    /// The operator, which devices may compute, too.
    pub const fn device(self, inputs: (usize, usize), read: Reader) -> Self {
        let device = Some(Device { inputs, read });
        Self { device, ..self }
    }

    /// The type of an output, of operators that have a second one, too.
    ///
    /// # Errors
    /// An attribute that says none, in words.
    pub fn output(&self, given: &Given<'_>, output: usize) -> Result<Element, String> {
        match (output, self.kind) {
            // What stands beside maxima, and chosen values, is where they were.
            (1, "MaxPool" | "TopK") => return Ok(Element::I64),
            (1, "Dropout") => return Ok(Element::Bool),
            (1, "DynamicQuantizeLinear") => return Ok(Element::F32),
            _ => {}
        }
        let input = |argument: usize| given.value(argument).map(|value| value.element);
        match self.element {
            Kind::First => input(0),
            Kind::Second => input(1),
            // QuantizeLinear without a zero point makes uint8.
            Kind::Third if self.kind == "QuantizeLinear" => Ok(input(2).unwrap_or(Element::U8)),
            Kind::Third => input(2),
            Kind::Is(element) => Ok(element),
            Kind::To => element(given.op.int("to", 0) as i32),
            Kind::Value => match given.op.attribute("value") {
                Some(OnnxAttribute::Tensor { data, .. }) => Ok(data.element()),
                _ => Ok(Element::F32),
            },
        }
    }
}
