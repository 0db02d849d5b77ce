//! What stands between the nodes of a QDQ graph: tensors, real values, constants.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::error::PassError;
use super::super::net::{Entry, Net, NetOp, NetTensor};
use super::constant::Constant;
use super::layout::{Layouts, Order};
use super::storage::Storage;
use crate::graph::{Data, Graph, Node, ValueId};
use crate::qgraph::{Spread, TensorId};
use crate::reflect::Reflect;

/// A real value between DequantizeLinear and QuantizeLinear.
#[derive(Clone)]
pub(crate) struct Real {
    pub op: NetOp,
    pub name: String,
    pub chw: [usize; 3],
    /// That of the model's values.
    pub order: Order,
    /// Real bounds of Relu and Clip.
    pub bounds: (f64, f64),
    /// What becomes of its channels once they are rounded.
    pub moved: Option<Moved>,
}

/// Channels that are phases of positions.
#[derive(Clone)]
pub(crate) struct Moved {
    /// Which channel of the model's each is.
    pub channels: Vec<usize>,
    /// Those that positions are made of, for each phase.
    pub map: Vec<usize>,
    pub spread: Spread,
    /// The result's.
    pub chw: [usize; 3],
}

#[derive(Clone)]
pub(crate) enum Val<'g> {
    /// The network's input before its QuantizeLinear.
    Input,
    /// An int8 tensor, and the order of the model's values.
    Quantized(TensorId, Order),
    /// A real value not yet rounded.
    Real(Box<Real>),
    /// A constant.
    Constant(Box<Constant<'g>>),
    /// What only the host computes, in floats.
    Float,
}

impl From<Real> for Val<'_> {
    fn from(real: Real) -> Self {
        Self::Real(Box::new(real))
    }
}

impl Real {
    /// What a node gives, without bounds.
    pub(crate) fn new(name: &str, op: NetOp, chw: [usize; 3], order: Order) -> Self {
        Self {
            op,
            name: name.to_owned(),
            chw,
            order,
            bounds: (f64::NEG_INFINITY, f64::INFINITY),
            moved: None,
        }
    }

    /// The int8 tensor that it is, without anything done to it.
    pub(crate) fn exactly(&self) -> Option<TensorId> {
        match self.op {
            // As DequantizeLinear gives it.
            NetOp::Eltwise { input } if self.is_unbounded() => Some(input),
            _ => None,
        }
    }

    /// Channels, rows and columns of what it is rounded to.
    pub(crate) fn placed(&self) -> [usize; 3] {
        self.moved.as_ref().map_or(self.chw, |moved| moved.chw)
    }

    pub(crate) fn is_unbounded(&self) -> bool {
        self.bounds == (f64::NEG_INFINITY, f64::INFINITY)
    }
}

pub(crate) struct Reading<'a> {
    pub graph: &'a Graph,
    pub net: Net,
    pub values: HashMap<ValueId, Val<'a>>,
    /// What orders values should have.
    pub layouts: Layouts,
    /// What tensors are in the file, but for those that the net alone has.
    pub stored: HashMap<TensorId, Storage>,
    /// The node that makes each value.
    pub makers: HashMap<ValueId, usize>,
    /// Why nodes that no device computes aren't read, by their index.
    pub refused: BTreeMap<usize, PassError>,
    /// Nodes in the host's parts, by their index.
    pub hosted: BTreeSet<usize>,
    /// Nodes of the host's parts so far.
    pub host_nodes: usize,
    /// For each input of the net, what it is of the model's.
    pub entries: Vec<Entry>,
    /// What computes each of the net's sums, as the model has it.
    pub sums: Vec<NetOp>,
}

pub(crate) fn error(node: &Node, reason: impl Into<String>) -> PassError {
    let (node, op) = (node.name.clone(), node.op.kind().to_owned());
    PassError::Node {
        node,
        op,
        reason: reason.into(),
    }
}

fn input(node: &Node, index: usize) -> Result<ValueId, PassError> {
    let id = node.inputs.get(index).copied();
    id.ok_or_else(|| error(node, "an input is missing"))
}

/// Why a node is left to the host.
pub(crate) const HOST: &str = "the device has no such operator";

pub(crate) const UNQUANTIZED: &str = "its input is not quantised (no QuantizeLinear and DequantizeLinear \
                           before it): quantise the float model first";

/// Why a node is left to the host that the device has an operator for.
pub(crate) const FLOAT: &str = "it reads floats of the host, which nothing rounds to int8";

pub(crate) fn real<'g>(node: &Node, op: NetOp, chw: [usize; 3]) -> Val<'g> {
    ordered(node, op, chw, Order::First)
}

/// A real value whose channels may be innermost in the model.
pub(crate) fn ordered<'g>(node: &Node, op: NetOp, chw: [usize; 3], order: Order) -> Val<'g> {
    Real::new(&node.name, op, chw, order).into()
}

impl<'g> Reading<'g> {
    pub(crate) fn value(&self, node: &Node, index: usize) -> Result<Val<'g>, PassError> {
        let id = input(node, index)?;
        if let Some(value) = self.values.get(&id) {
            return Ok(value.clone());
        }
        let value = &self.graph.values[id.0];
        match (Constant::of(value), &value.data) {
            (Some(constant), _) => Ok(Val::Constant(Box::new(constant))),
            (None, Some(_)) => Err(error(node, "it reads a constant of floats")),
            (None, None) => Err(error(node, format!("{}: {UNQUANTIZED}", value.name))),
        }
    }

    /// Float data of a constant input.
    pub(crate) fn floats(&self, node: &Node, index: usize) -> Result<&[f32], PassError> {
        let text = || format!("input {index} must be a float constant");
        match &self.graph.values[input(node, index)?.0].data {
            Some(Data::F32(v)) => Ok(v),
            _ => Err(error(node, text())),
        }
    }

    pub(crate) fn push_tensor(&mut self, tensor: NetTensor) -> TensorId {
        self.net.tensors.push(tensor);
        TensorId(self.net.tensors.len() - 1)
    }

    /// An operand that is exactly an int8 tensor, with dimensions that are the tensor's or one.
    pub(crate) fn tensor(&self, node: &Node, index: usize) -> Result<TensorId, PassError> {
        let (tensor, order) = self.operand(node, index)?;
        let shape = &self.graph.values[node.inputs[index].0].shape;
        let chw @ [c, h, w] = self.net.tensors[tensor.0].chw;
        let text = || format!("its input of shape {shape:?} lies as {c}x{h}x{w}");
        let fits = order.fits(shape, chw);
        fits.then_some(tensor).ok_or_else(|| error(node, text()))
    }

    /// An operand that is exactly an int8 tensor, and the order of its values.
    pub(crate) fn operand(
        &self,
        node: &Node,
        index: usize,
    ) -> Result<(TensorId, Order), PassError> {
        match self.value(node, index)? {
            Val::Real(real) => {
                let tensor = real.exactly().ok_or_else(|| error(node, UNQUANTIZED))?;
                Ok((tensor, real.order))
            }
            Val::Float => Err(error(node, FLOAT)),
            Val::Input | Val::Quantized(..) => Err(error(node, UNQUANTIZED)),
            Val::Constant(_) => Err(error(node, "a constant operand is not supported here")),
        }
    }

    pub(crate) fn constant(&self, node: &Node, index: usize) -> Result<Constant<'g>, PassError> {
        match self.value(node, index)? {
            Val::Constant(constant) => Ok(*constant),
            _ => Err(error(node, format!("input {index} must be a constant"))),
        }
    }
}
