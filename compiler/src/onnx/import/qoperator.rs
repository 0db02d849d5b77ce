//! Operators on integers, rewritten as what they mean: DequantizeLinear, the operator,
//! QuantizeLinear.
//!
//! `QLinearConv` and its like, the QOperator form of onnxruntime, name the scales and zero points of
//! their tensors themselves. Each such node becomes a DequantizeLinear for every operand, the
//! operator, which keeps the node's name, and a QuantizeLinear. Operators that move integers as they
//! are, such as MaxPool and Reshape, get both around them, with the steps of what they move, and
//! ConvInteger and MatMulInteger of such tensors, with the Cast after them, become products of
//! reals. What lacks a name, or says what the form doesn't, is left as it is and refused later by its name.

mod narrow;

use std::collections::{HashMap, HashSet};

use super::order::{fresh, names};
use crate::onnx::proto::{ATTRIBUTE_INT, Attribute, FLOAT, Graph, Node, Tensor};

const MICROSOFT: &str = "com.microsoft";

/// Rewrites all nodes that compute with integers, in time linear in their number.
pub(super) fn expand(graph: &mut Graph) {
    narrow::widen(graph);
    let elements = |dims: &[i64]| dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    let single = graph.initializer.iter();
    let single = single.filter(|tensor| elements(&tensor.dims) == Some(1));
    let mut expansion = Expansion {
        single: single.map(|tensor| tensor.name.clone()).collect(),
        names: names(graph),
        steps: HashMap::new(),
        readers: readers(graph),
        nodes: Vec::with_capacity(graph.node.len()),
        waiting: std::mem::take(&mut graph.node)
            .into_iter()
            .map(Some)
            .collect(),
        one: None,
    };
    for index in 0..expansion.waiting.len() {
        if let Some(node) = expansion.waiting[index].take() {
            expansion.node(node);
        }
    }
    graph.node = expansion.nodes;
    graph.initializer.extend(expansion.one);
}

/// The node that reads a value, for those that one reads once and that are no output.
fn readers(graph: &Graph) -> HashMap<String, usize> {
    let nodes = graph.node.iter().enumerate();
    let reads = nodes.flat_map(|(at, node)| node.input.iter().map(move |name| (name, Some(at))));
    let outputs = graph.output.iter().map(|info| (&info.name, None));
    let mut readers: HashMap<&String, Option<usize>> = HashMap::new();
    for (name, at) in reads.chain(outputs) {
        readers
            .entry(name)
            .and_modify(|known| *known = None)
            .or_insert(at);
    }
    let alone = readers.into_iter();
    alone
        .filter_map(|(name, at)| Some((name.clone(), at?)))
        .collect()
}

/// The names of a scale and of a zero point, which may be left out.
#[derive(Clone, PartialEq)]
struct Steps {
    scale: String,
    zero: String,
}

/// What an operator on integers is between its QuantizeLinear and DequantizeLinear.
struct Unquantized {
    /// The operator.
    op: &'static str,
    /// Its operands on integers; per-channel steps lie along the axis.
    operands: Vec<Operand>,
    /// A sum's int32 constant, in steps of both operands' product.
    bias: Option<String>,
    /// Of the output; a float output has none.
    output: Option<Steps>,
}

struct Operand {
    value: String,
    steps: Steps,
    axis: i64,
}

struct Expansion {
    /// Constants of one element.
    single: HashSet<String>,
    /// All names.
    names: HashSet<String>,
    /// Of integer tensors with one scale.
    steps: HashMap<String, Steps>,
    /// The nodes that alone read a value.
    readers: HashMap<String, usize>,
    /// The nodes so far, and those to come.
    nodes: Vec<Node>,
    waiting: Vec<Option<Node>>,
    /// The constant 1, once it is needed.
    one: Option<Tensor>,
}

impl Expansion {
    fn node(&mut self, mut node: Node) {
        if node.domain == MICROSOFT && is_scaled(&node.op_type) {
            node.domain.clear();
        }
        if node.domain.is_empty() && node.op_type == "QuantizeLinear" {
            if let (Some(steps), Some(output)) = (steps(&node, 1), node.output.first()) {
                self.learn(output.clone(), steps);
            }
            return self.nodes.push(node);
        }
        match unquantized(&node).or_else(|| self.integer(&mut node)) {
            Some(form) => self.computed(node, form),
            None => match self.moved(&node) {
                Some(steps) => self.around(node, steps),
                None => self.nodes.push(node),
            },
        }
    }

    /// Keeps in mind what a tensor's integers mean, if it has one scale.
    fn learn(&mut self, value: String, steps: Steps) {
        if self.single.contains(&steps.scale) && !steps.zero.is_empty() {
            self.steps.insert(value, steps);
        }
    }

    /// A name that nothing has yet.
    fn fresh(&mut self, base: &str, what: &str) -> String {
        fresh(&mut self.names, format!("{base}/{what}"))
    }

    fn push(&mut self, name: String, op: &str, input: Vec<String>, output: String, axis: i64) {
        let axis = Attribute {
            name: "axis".to_owned(),
            i: axis,
            kind: ATTRIBUTE_INT,
            ..Attribute::default()
        };
        self.nodes.push(Node {
            input,
            output: vec![output],
            name,
            op_type: op.to_owned(),
            attribute: if is_scaled(op) {
                vec![axis]
            } else {
                Vec::new()
            },
            domain: String::new(),
        });
    }

    /// A DequantizeLinear; its output.
    fn dequantized(&mut self, base: &str, what: &str, operand: Operand) -> String {
        let real = self.fresh(base, what);
        let Steps { scale, zero } = operand.steps;
        let mut input = vec![operand.value, scale];
        input.extend(Some(zero).filter(|zero| !zero.is_empty()));
        let name = real.clone();
        self.push(name, "DequantizeLinear", input, real.clone(), operand.axis);
        real
    }

    fn quantized(&mut self, real: String, steps: Steps, output: String) {
        self.learn(output.clone(), steps.clone());
        let input = vec![real, steps.scale, steps.zero];
        let name = format!("{output}/quantize");
        self.push(name, "QuantizeLinear", input, output, 1);
    }

    /// An operator of the QOperator form.
    fn computed(&mut self, mut node: Node, form: Unquantized) {
        let base = node.output.first().cloned().unwrap_or_default();
        let scales: Vec<String> = form
            .operands
            .iter()
            .map(|o| o.steps.scale.clone())
            .collect();
        let mut input: Vec<String> = Vec::with_capacity(form.operands.len() + 1);
        for (index, operand) in form.operands.into_iter().enumerate() {
            input.push(self.dequantized(&base, &format!("operand{index}"), operand));
        }
        if let Some(value) = form.bias {
            // Read as a constant, as both scales are.
            let scale = self.fresh(&base, "bias scale");
            self.push(scale.clone(), "Mul", scales, scale.clone(), 0);
            let zero = String::new();
            let steps = Steps { scale, zero };
            let axis = 0;
            let operand = Operand { value, steps, axis };
            input.push(self.dequantized(&base, "bias", operand));
        }
        node.input = input;
        node.op_type = form.op.to_owned();
        node.domain.clear();
        node.attribute
            .retain(|a| !["channels_last", "opset"].contains(&&a.name[..]));
        self.rounded(node, form.output);
    }

    /// An operator that moves integers, between reals.
    fn around(&mut self, mut node: Node, steps: Steps) {
        let base = node.output.first().cloned().unwrap_or_default();
        let count = if node.op_type == "Concat" {
            node.input.len()
        } else {
            1
        };
        for index in 0..count {
            let operand = Operand {
                value: std::mem::take(&mut node.input[index]),
                steps: steps.clone(),
                axis: 1,
            };
            node.input[index] = self.dequantized(&base, &format!("operand{index}"), operand);
        }
        self.rounded(node, Some(steps));
    }

    /// A node whose outputs are rounded to steps, unless they stay reals.
    fn rounded(&mut self, mut node: Node, steps: Option<Steps>) {
        let Some(steps) = steps else {
            return self.nodes.push(node);
        };
        let mut rounded = Vec::with_capacity(node.output.len());
        for output in &mut node.output {
            if !output.is_empty() {
                let real = self.fresh(output, "real");
                rounded.push((real.clone(), std::mem::replace(output, real)));
            }
        }
        self.nodes.push(node);
        for (real, output) in rounded {
            self.quantized(real, steps.clone(), output);
        }
    }

    /// The form of an operator whose result is an int32 sum that is read as reals, and perhaps
    /// multiplied by one constant: those nodes are taken in. With the constant divided by the one scale
    /// as the other's, the real product is what they make of the sum.
    fn integer(&mut self, node: &mut Node) -> Option<Unquantized> {
        let (op, axis) = match &node.op_type[..] {
            "ConvInteger" => ("Conv", 0),
            "MatMulInteger" => ("MatMul", 1),
            _ => return None,
        };
        let [value, weights] = node.input.get(..2)? else {
            return None;
        };
        let (value, weights) = (value.clone(), weights.clone());
        let scale = self.steps.get(&value)?.scale.clone();
        let to_reals = |node: &Node| {
            let to = node.find("to").map(|to| to.i);
            node.op_type == "Cast" && to == Some(FLOAT.into())
        };
        let cast = self.reader(node.output.first()?, to_reals)?;
        let mut output = cast.output;
        let numerator = match self.factor(output.first()?) {
            Some((product, factor)) => {
                output = product.output;
                factor
            }
            None => self.one(),
        };
        let ratio = self.fresh(output.first()?, "scale");
        let input = vec![numerator, scale.clone()];
        self.push(ratio.clone(), "Div", input, ratio.clone(), 0);
        node.output = output;
        let zero = |at: usize| node.input.get(at).cloned().unwrap_or_default();
        let operand = |value, scale, zero, axis| Operand {
            value,
            steps: Steps { scale, zero },
            axis,
        };
        Some(Unquantized {
            op,
            operands: vec![
                operand(value, scale, zero(2), 1),
                operand(weights, ratio, zero(3), axis),
            ],
            bias: None,
            output: None,
        })
    }

    /// Takes the product with one constant that alone reads a value; with the constant.
    fn factor(&mut self, value: &str) -> Option<(Node, String)> {
        let node = self.waiting.get(*self.readers.get(value)?)?.as_ref()?;
        let factor = node
            .input
            .iter()
            .find(|x| self.single.contains(*x))?
            .clone();
        let product = self.reader(value, |node| node.op_type == "Mul")?;
        Some((product, factor))
    }

    /// Takes the one node that reads a value, if it is such.
    fn reader(&mut self, value: &str, such: impl Fn(&Node) -> bool) -> Option<Node> {
        let at = *self.readers.get(value)?;
        self.waiting.get_mut(at)?.take_if(|node| such(node))
    }

    /// The constant 1.
    fn one(&mut self) -> String {
        if let Some(one) = &self.one {
            return one.name.clone();
        }
        let name = self.fresh("scale", "one");
        self.one = Some(Tensor {
            name: name.clone(),
            data_type: FLOAT,
            float_data: vec![1.0],
            ..Tensor::default()
        });
        name
    }

    /// The steps of what a node moves, if it moves integers whose steps are known.
    fn moved(&self, node: &Node) -> Option<Steps> {
        let first = self.steps.get(node.input.first()?)?;
        let moves = match &node.op_type[..] {
            "MaxPool" => node.output.len() == 1,
            "Concat" => node.input.iter().all(|x| self.steps.get(x) == Some(first)),
            "Resize" => node
                .find("mode")
                .is_none_or(|mode| mode.s == b"nearest"[..]),
            "Identity" | "GlobalMaxPool" | "Flatten" | "Reshape" | "Transpose" | "Squeeze"
            | "Unsqueeze" | "Slice" | "Split" | "Gather" | "Expand" | "DepthToSpace"
            | "SpaceToDepth" => true,
            _ => false,
        };
        (node.domain.is_empty() && moves).then(|| first.clone())
    }
}

fn is_scaled(op: &str) -> bool {
    matches!(op, "QuantizeLinear" | "DequantizeLinear")
}

/// The names of a scale and a zero point among a node's inputs, if there is a scale.
fn steps(node: &Node, at: usize) -> Option<Steps> {
    let name = |i: usize| node.input.get(i).cloned().unwrap_or_default();
    let scale = Some(name(at)).filter(|scale| !scale.is_empty())?;
    let zero = name(at + 1);
    Some(Steps { scale, zero })
}

/// An operand with its steps behind it.
fn operand(node: &Node, at: usize, axis: i64) -> Option<Operand> {
    let value = node
        .input
        .get(at)
        .filter(|value| !value.is_empty())?
        .clone();
    let steps = steps(node, at + 1)?;
    Some(Operand { value, steps, axis })
}

/// The form of a node of the QOperator kind.
fn unquantized(node: &Node) -> Option<Unquantized> {
    if !["", "ai.onnx", MICROSOFT].contains(&&node.domain[..]) {
        return None;
    }
    let int = |name: &str| node.find(name).map_or(0, |a| a.i);
    if int("channels_last") != 0 {
        return None;
    }
    let present = |at: usize| node.input.get(at).filter(|name| !name.is_empty()).cloned();
    // By the places of operands, with the axes of their steps, of the bias, and of the output's steps.
    let form = |op, operands: &[(usize, i64)], bias: Option<usize>, output: Option<usize>| {
        let operands = operands.iter().map(|&(at, axis)| operand(node, at, axis));
        Some(Unquantized {
            op,
            operands: operands.collect::<Option<_>>()?,
            bias: bias.and_then(present),
            output: match output {
                // The zero point says the type.
                Some(at) => Some(steps(node, at).filter(|steps| !steps.zero.is_empty())?),
                None => None,
            },
        })
    };
    let pair = |op| form(op, &[(0, 1), (3, 1)], None, Some(6));
    let unary = |op| form(op, &[(0, 1)], None, Some(3));
    match &node.op_type[..] {
        "QLinearConv" => form("Conv", &[(0, 1), (3, 0)], Some(8), Some(6)),
        "QLinearMatMul" => pair("MatMul"),
        "QLinearAdd" => pair("Add"),
        "QLinearMul" => pair("Mul"),
        "QGemm" => {
            let axis = i64::from(int("transB") == 0);
            let rounded = present(7).map(|_| 7);
            form("Gemm", &[(0, 1), (3, axis)], Some(6), rounded)
        }
        "QLinearConcat" => {
            let operands = (2..node.input.len()).step_by(3).map(|at| (at, 1));
            form("Concat", &operands.collect::<Vec<_>>(), None, Some(0))
        }
        "QLinearGlobalAveragePool" => unary("GlobalAveragePool"),
        "QLinearAveragePool" => unary("AveragePool"),
        "QLinearReduceMean" => unary("ReduceMean"),
        "QLinearLeakyRelu" => unary("LeakyRelu"),
        "QLinearSigmoid" => unary("Sigmoid"),
        "QLinearSoftmax" => unary("Softmax"),
        _ => None,
    }
}
