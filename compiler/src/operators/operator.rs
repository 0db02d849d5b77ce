//! What is known of an operator: by its name in a file, and of one that a graph holds.

use super::fields::{Field, Written};
use crate::graph::{Element, Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::onnx::element;
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::passes::PassError;
use crate::passes::import::layout::Role;
use crate::passes::import::values::{Reading, Val};

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
    pub device: Option<Read>,
}

/// How an operator that devices may compute is read.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// Fewest and most inputs.
    pub inputs: (usize, usize),
    /// Reads a node, by its attributes, its name and its inputs, of which it leaves those that the graph's node has.
    pub read: Reader,
}

pub(crate) type Reader =
    fn(&mut Import<'_>, &Attributes<'_>, &str, &mut Vec<ValueId>) -> Result<Op, String>;

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

/// The most elements of each output, which are counted before it is computed.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// As the first input has.
    First,
    /// As all inputs have together.
    Sum,
    /// The first input's for each of the second's.
    Index,
    /// As a constant input or an attribute says.
    Stated(Stated),
}

/// Where the sizes of an output stand.
#[derive(Clone, Copy)]
pub(crate) enum Stated {
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
    /// LSTM and GRU: a state for each step of each direction.
    States,
    /// Attention: each query for each key.
    Scores,
    /// GridSample: the channels for each place of the grid.
    Grid,
    /// NonZero: as many as a constant has.
    Found,
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
        Self::new(kind, Size::Computed(Bound::First), Kind::First)
    }

    /// One whose inputs are broadcast.
    pub const fn broadcast(kind: &'static str) -> Self {
        Self::new(kind, Size::Broadcast, Kind::First)
    }

    /// The operator, which devices may compute, too.
    pub const fn device(self, inputs: (usize, usize), read: Reader) -> Self {
        let device = Some(Read { inputs, read });
        Self { device, ..self }
    }

    /// The type of an output, of operators that have a second one, too.
    ///
    /// # Errors
    /// An attribute that says none, in words.
    pub fn output(&self, op: &OnnxOp, inputs: &[Element]) -> Result<Element, String> {
        // What stands beside maxima, and chosen values, is where they were.
        if op.output == 1 && matches!(op.kind, "MaxPool" | "TopK") {
            return Ok(Element::I64);
        }
        if op.output == 1 && op.kind == "Dropout" {
            return Ok(Element::Bool);
        }
        if op.output == 1 && op.kind == "DynamicQuantizeLinear" {
            return Ok(Element::F32);
        }
        let input = |argument: usize| {
            let at = op.place(argument).and_then(|at| inputs.get(at));
            at.copied()
                .ok_or_else(|| format!("its input {argument} is missing"))
        };
        match self.element {
            Kind::First => input(0),
            Kind::Second => input(1),
            // QuantizeLinear without a zero point makes uint8.
            Kind::Third if op.kind == "QuantizeLinear" => Ok(input(2).unwrap_or(Element::U8)),
            Kind::Third => input(2),
            Kind::Is(element) => Ok(element),
            Kind::To => element(op.int("to", 0) as i32),
            Kind::Value => match op.attribute("value") {
                Some(OnnxAttribute::Tensor { data, .. }) => Ok(data.element()),
                _ => Ok(Element::F32),
            },
        }
    }
}

/// What is known of an operator that a graph holds.
pub(crate) struct Facts<'a> {
    /// ONNX's name.
    pub kind: &'static str,
    /// The first operator set that has it, 13 or later.
    pub opset: i64,
    /// Its attributes.
    pub fields: Vec<Field>,
    /// Where the steps of its output come from.
    pub steps: Steps,
    /// How it reads and makes values.
    pub role: Role,
    /// The shape of its output.
    pub shape: Shape<'a>,
    /// What the device does with it, or why not.
    pub device: Device<'a>,
    /// What its node in a file has that its attributes don't say.
    pub write: Option<Write<'a>>,
}

pub(crate) type Shape<'a> = Box<dyn Fn(&Inputs<'_>) -> Result<Vec<usize>, String> + 'a>;
pub(crate) type Device<'a> =
    Box<dyn for<'g> Fn(&mut Reading<'g>, &Node) -> Result<Val<'g>, PassError> + 'a>;
pub(crate) type Write<'a> = Box<dyn Fn(&mut Written) + 'a>;

/// Where the steps of an operator's output come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// They are chosen.
    Own,
    /// They are its input's, whose values it only moves or compares.
    Input,
    /// They are chosen for it and what it bounds together.
    Activation,
}

impl<'a> Facts<'a> {
    pub fn new(
        kind: &'static str,
        shape: impl Fn(&Inputs<'_>) -> Result<Vec<usize>, String> + 'a,
        device: impl for<'g> Fn(&mut Reading<'g>, &Node) -> Result<Val<'g>, PassError> + 'a,
    ) -> Self {
        Self {
            kind,
            opset: 13,
            fields: Vec::new(),
            steps: Steps::Own,
            role: Role::Other,
            shape: Box::new(shape),
            device: Box::new(device),
            write: None,
        }
    }

    /// Those of an operator whose output has the shape of its first input.
    pub fn same(
        kind: &'static str,
        device: impl for<'g> Fn(&mut Reading<'g>, &Node) -> Result<Val<'g>, PassError> + 'a,
    ) -> Self {
        Self::new(
            kind,
            |inputs| inputs.shape(0).map(<[usize]>::to_vec),
            device,
        )
        .role(Role::Each)
    }

    pub fn fields(self, fields: impl IntoIterator<Item = Field>) -> Self {
        let fields = fields.into_iter().collect();
        Self { fields, ..self }
    }

    pub fn steps(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    pub fn write(self, write: impl Fn(&mut Written) + 'a) -> Self {
        let write: Option<Write<'a>> = Some(Box::new(write));
        Self { write, ..self }
    }
}

/// What a node reads.
pub(crate) struct Inputs<'g> {
    pub graph: &'g Graph,
    pub node: &'g Node,
}

impl<'g> Inputs<'g> {
    /// The shape of an input.
    pub fn shape(&self, index: usize) -> Result<&'g [usize], String> {
        let id = self.node.inputs.get(index);
        let id = id.ok_or_else(|| format!("input {index} is missing"))?;
        Ok(&self.graph.values[id.0].shape)
    }

    /// The shapes of all inputs.
    pub fn shapes(&self) -> Vec<&'g [usize]> {
        let ids = self.node.inputs.iter();
        ids.map(|id| &self.graph.values[id.0].shape[..]).collect()
    }
}
