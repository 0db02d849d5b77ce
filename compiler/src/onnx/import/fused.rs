//! Operators that onnxruntime's optimisation joins, written by those that they were made of, and operators of ONNX
//! that are others with some of their inputs constant.

mod columns;
mod weights;

use super::state::{Arguments, Import};
use crate::graph::{Value, ValueId};
use crate::onnx::{OnnxError, proto};
use proto::{Attribute, Node};

impl Import<'_> {
    /// Reads a node by others, if it is one of these. Whether it was.
    pub(super) fn fused(
        &mut self,
        node: &Node,
        arguments: &Arguments,
        index: usize,
    ) -> Result<bool, OnnxError> {
        let is_known = match &node.domain[..] {
            "com.microsoft" => true,
            "" | "ai.onnx" => {
                matches!(&node.op_type[..], "SimplifiedLayerNormalization" | "Col2Im")
            }
            _ => false,
        };
        if !is_known {
            return Ok(false);
        }
        let mut parts = Parts {
            node,
            nodes: Vec::new(),
            ranks: arguments
                .iter()
                .map(|id| id.map_or(0, |id| self.value(id).shape.len()))
                .collect(),
            opset: self.opset,
        };
        let known = match &node.op_type[..] {
            "FusedConv" => parts.convolution(),
            "FusedGemm" => parts.gemm(),
            "FusedMatMul" | "TransposeMatMul" => parts.product(),
            "Gelu" | "BiasGelu" => parts.gelu(),
            "FastGelu" => parts.fast_gelu(),
            "QuickGelu" => parts.quick_gelu(),
            "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => parts.skip(),
            "SimplifiedLayerNormalization" => parts.by_root_of_squares(0, 1, 0),
            "MatMulIntegerToFloat" => parts.integers(),
            "DynamicQuantizeMatMul" => parts.dynamic(),
            "Col2Im" => self.columns(&mut parts, arguments)?,
            "MatMulNBits" => match self.unpacked(node, arguments)? {
                Some(weights) => parts.with_weights(weights),
                None => None,
            },
            _ => None,
        };
        if known.is_none() {
            return Ok(false);
        }
        for part in &parts.nodes {
            self.node(part, index)?;
        }
        Ok(true)
    }

    fn value(&self, id: ValueId) -> &Value {
        &self.graph.values[id.0]
    }
}

/// The nodes that stand for one.
struct Parts<'n> {
    node: &'n Node,
    nodes: Vec<Node>,
    /// Of its inputs; 0 where one is left out.
    ranks: Vec<usize>,
    opset: i64,
}

fn attribute(name: &str, kind: i32) -> Attribute {
    Attribute {
        name: name.to_owned(),
        kind,
        ..Attribute::default()
    }
}

pub(super) fn int(name: &str, i: i64) -> Attribute {
    Attribute {
        i,
        ..attribute(name, proto::ATTRIBUTE_INT)
    }
}

fn float(name: &str, f: f32) -> Attribute {
    Attribute {
        f,
        ..attribute(name, proto::ATTRIBUTE_FLOAT)
    }
}

pub(super) fn ints(name: &str, ints: Vec<i64>) -> Attribute {
    Attribute {
        ints,
        ..attribute(name, proto::ATTRIBUTE_INTS)
    }
}

impl Parts<'_> {
    /// An input's name, if it is given.
    fn input(&self, at: usize) -> Option<String> {
        self.node
            .input
            .get(at)
            .filter(|name| !name.is_empty())
            .cloned()
    }

    /// An output's name; one that nothing reads has a name of its own.
    fn output(&self, at: usize) -> Option<String> {
        self.node
            .output
            .get(at)
            .filter(|name| !name.is_empty())
            .cloned()
    }

    fn float(&self, name: &str, default: f32) -> f32 {
        self.node.find(name).map_or(default, |a| a.f)
    }

    fn int(&self, name: &str) -> i64 {
        self.node.find(name).map_or(0, |a| a.i)
    }

    fn add(&mut self, kind: &str, input: Vec<String>, output: String, attribute: Vec<Attribute>) {
        let own = if self.node.name.is_empty() {
            &self.node.op_type
        } else {
            &self.node.name
        };
        self.nodes.push(Node {
            input,
            output: vec![output],
            name: format!("{own}/{kind}{}", self.nodes.len()),
            op_type: kind.to_owned(),
            attribute,
            domain: String::new(),
        });
    }

    /// A node with a value of its own, which it gives.
    fn push(&mut self, kind: &str, input: Vec<String>, attribute: Vec<Attribute>) -> String {
        let base = self.node.output.iter().find(|name| !name.is_empty());
        let output = format!(
            "{}/{kind}{}",
            base.map_or("", String::as_str),
            self.nodes.len()
        );
        self.add(kind, input, output.clone(), attribute);
        output
    }

    fn constant(&mut self, value: f32) -> String {
        self.push("Constant", Vec::new(), vec![float("value_float", value)])
    }

    /// A node that gives the first output.
    fn last(&mut self, kind: &str, input: Vec<String>, attribute: Vec<Attribute>) -> Option<()> {
        let output = self.output(0)?;
        self.add(kind, input, output, attribute);
        Some(())
    }

    /// The node's attributes but for some.
    fn attributes(&self, but: &[&str]) -> Vec<Attribute> {
        let all = self.node.attribute.iter();
        all.filter(|a| !but.contains(&&a.name[..]))
            .cloned()
            .collect()
    }

    /// The function that a node's attribute names, of a value; its parameters are `first` and `second`.
    fn activated(&mut self, x: String, parameters: [Option<f32>; 2]) -> Option<()> {
        let name = match self.node.find("activation") {
            None => "Identity".to_owned(),
            Some(name) => String::from_utf8(name.s.to_vec()).ok()?,
        };
        let [first, second] = parameters;
        match &name[..] {
            "" => self.last("Identity", vec![x], vec![]),
            "Identity" | "Relu" | "Sigmoid" | "Tanh" | "HardSwish" | "Softplus" => {
                self.last(&name, vec![x], vec![])
            }
            "LeakyRelu" => self.last(
                "LeakyRelu",
                vec![x],
                vec![float("alpha", first.unwrap_or(0.01))],
            ),
            "HardSigmoid" => {
                let slope = float("alpha", first.unwrap_or(0.2));
                self.last(
                    "HardSigmoid",
                    vec![x],
                    vec![slope, float("beta", second.unwrap_or(0.5))],
                )
            }
            "Clip" => {
                let (low, high) = (self.constant(first?), self.constant(second?));
                self.last("Clip", vec![x, low, high], vec![])
            }
            _ => None,
        }
    }

    fn convolution(&mut self) -> Option<()> {
        let attributes = self.attributes(&["activation", "activation_params"]);
        let input = self.node.input.iter().take(3).cloned().collect();
        let mut sum = self.push("Conv", input, attributes);
        if let Some(other) = self.input(3) {
            sum = self.push("Add", vec![sum, other], vec![]);
        }
        let parameters = self.node.find("activation_params");
        let parameters = parameters.map(|a| a.floats.clone()).unwrap_or_default();
        self.activated(
            sum,
            [parameters.first().copied(), parameters.get(1).copied()],
        )
    }

    fn gemm(&mut self) -> Option<()> {
        let own = [
            "activation",
            "activation_alpha",
            "activation_beta",
            "activation_gamma",
        ];
        let attributes = self.attributes(&own);
        let sum = self.push("Gemm", self.node.input.clone(), attributes);
        let parameters = ["activation_alpha", "activation_beta"];
        self.activated(
            sum,
            parameters.map(|name| self.node.find(name).map(|a| a.f)),
        )
    }

    fn product(&mut self) -> Option<()> {
        if self.int("transBatchA") != 0 || self.int("transBatchB") != 0 {
            return None;
        }
        let mut operands = Vec::new();
        for (at, turns) in ["transA", "transB"].into_iter().enumerate() {
            let x = self.input(at)?;
            let rank = *self.ranks.get(at)?;
            operands.push(if self.int(turns) == 0 || rank < 2 {
                x
            } else {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                order.swap(rank - 1, rank - 2);
                self.push("Transpose", vec![x], vec![ints("perm", order)])
            });
        }
        match self.float("alpha", 1.0) {
            1.0 => self.last("MatMul", operands, vec![]),
            alpha => {
                let product = self.push("MatMul", operands, vec![]);
                let alpha = self.constant(alpha);
                self.last("Mul", vec![product, alpha], vec![])
            }
        }
    }

    /// The first input, with the second as a bias where there is one.
    fn biased(&mut self) -> Option<String> {
        let x = self.input(0)?;
        Some(match self.input(1) {
            Some(bias) => self.push("Add", vec![x, bias], vec![]),
            None => x,
        })
    }

    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    fn gelu(&mut self) -> Option<()> {
        let x = self.biased()?;
        let root = self.constant(std::f32::consts::SQRT_2);
        let scaled = self.push("Div", vec![x.clone(), root], vec![]);
        let error = self.push("Erf", vec![scaled], vec![]);
        self.gated(x, error)
    }

    /// `x / 2 * (1 + gate)`.
    fn gated(&mut self, x: String, gate: String) -> Option<()> {
        let [one, half] = [1.0, 0.5].map(|c| self.constant(c));
        let sum = self.push("Add", vec![gate, one], vec![]);
        let product = self.push("Mul", vec![x, sum], vec![]);
        self.last("Mul", vec![product, half], vec![])
    }

    /// `x / 2 * (1 + tanh(x * (0.79788 + 0.035677 * x * x)))`.
    fn fast_gelu(&mut self) -> Option<()> {
        let x = self.biased()?;
        let [a, b] = [0.797_884_6, 0.035_677_407].map(|c| self.constant(c));
        let square = self.push("Mul", vec![x.clone(), x.clone()], vec![]);
        let scaled = self.push("Mul", vec![square, b], vec![]);
        let inner = self.push("Add", vec![scaled, a], vec![]);
        let inner = self.push("Mul", vec![x.clone(), inner], vec![]);
        let tanh = self.push("Tanh", vec![inner], vec![]);
        self.gated(x, tanh)
    }

    fn quick_gelu(&mut self) -> Option<()> {
        let x = self.input(0)?;
        let alpha = self.constant(self.float("alpha", 1.702));
        let scaled = self.push("Mul", vec![x.clone(), alpha], vec![]);
        let gate = self.push("Sigmoid", vec![scaled], vec![]);
        self.last("Mul", vec![x, gate], vec![])
    }

    /// A sum of two inputs and perhaps a bias, normalised; the sum is another output.
    fn skip(&mut self) -> Option<()> {
        let plain = self.node.op_type == "SkipLayerNormalization";
        let (x, other) = (self.input(0)?, self.input(1)?);
        // Mean and deviation are for training alone.
        if self.output(1).is_some() || self.output(2).is_some() {
            return None;
        }
        let bias = self.input(if plain { 4 } else { 3 });
        let sum = self.output(3);
        let mut all = vec![x, other];
        if let Some(bias) = bias {
            all = vec![self.push("Add", all, vec![]), bias];
        }
        let sum = match sum {
            Some(sum) => {
                self.add("Add", all, sum.clone(), vec![]);
                sum
            }
            None => self.push("Add", all, vec![]),
        };
        if !plain {
            let scale = self.input(2)?;
            let rank = *self.ranks.first()?;
            return self.root_of_squares(
                sum,
                scale,
                self.float("epsilon", 1e-5),
                rank as i64 - 1,
                rank,
            );
        }
        let mut input = vec![sum, self.input(2)?];
        input.extend(self.input(3));
        let attributes = vec![
            int("axis", -1),
            float("epsilon", self.float("epsilon", 1e-5)),
        ];
        self.last("LayerNormalization", input, attributes)
    }

    fn by_root_of_squares(&mut self, x: usize, scale: usize, rank: usize) -> Option<()> {
        let (from, scale, rank) = (self.input(x)?, self.input(scale)?, *self.ranks.get(rank)?);
        let axis = self.node.find("axis").map_or(-1, |a| a.i);
        let axis = if axis < 0 { axis + rank as i64 } else { axis };
        if (1..3).any(|at| self.output(at).is_some()) {
            return None;
        }
        self.root_of_squares(from, scale, self.float("epsilon", 1e-5), axis, rank)
    }

    /// `x / sqrt(mean(x^2) + epsilon) * scale`.
    fn root_of_squares(
        &mut self,
        x: String,
        scale: String,
        epsilon: f32,
        axis: i64,
        rank: usize,
    ) -> Option<()> {
        if !(0..rank as i64).contains(&axis) {
            return None;
        }
        let square = self.push("Mul", vec![x.clone(), x.clone()], vec![]);
        let axes = ints("axes", (axis..rank as i64).collect());
        let mean = if self.opset < 18 {
            self.push("ReduceMean", vec![square], vec![axes])
        } else {
            let axes = Attribute {
                name: "value_ints".to_owned(),
                ..axes
            };
            let axes = self.push("Constant", vec![], vec![axes]);
            self.push("ReduceMean", vec![square, axes], vec![])
        };
        let epsilon = self.constant(epsilon);
        let more = self.push("Add", vec![mean, epsilon], vec![]);
        let root = self.push("Sqrt", vec![more], vec![]);
        let normal = self.push("Div", vec![x, root], vec![]);
        self.last("Mul", vec![normal, scale], vec![])
    }

    /// A product of integers as reals.
    fn integers(&mut self) -> Option<()> {
        let names = [0, 1, 2, 3].map(|at| self.input(at));
        let [a, b, scale, other] = names;
        let zero = [4, 5].map(|at| self.input(at).unwrap_or_default());
        let operands = [a?, b?, zero[0].clone(), zero[1].clone()].to_vec();
        self.scaled(operands, scale?, other?, 6)
    }

    /// The same of floats that are rounded to uint8 before.
    fn dynamic(&mut self) -> Option<()> {
        let (x, weights, scale) = (self.input(0)?, self.input(1)?, self.input(2)?);
        // A node for each of the outputs: all are one in what is written.
        let mut output = |at: usize| {
            let made = self.push("DynamicQuantizeLinear", vec![x.clone()], vec![]);
            let mut outputs = vec![String::new(); at];
            outputs.push(made.clone());
            let node = self.nodes.last_mut()?;
            node.output = outputs;
            Some(made)
        };
        let (steps, own, zero) = (output(0)?, output(1)?, output(2)?);
        let operands = [steps, weights, zero, self.input(3).unwrap_or_default()].to_vec();
        self.scaled(operands, own, scale, 4)
    }

    fn scaled(
        &mut self,
        operands: Vec<String>,
        scale: String,
        other: String,
        bias: usize,
    ) -> Option<()> {
        let sum = self.push("MatMulInteger", operands, vec![]);
        let sum = self.push("Cast", vec![sum], vec![int("to", proto::FLOAT.into())]);
        let scale = self.push("Mul", vec![scale, other], vec![]);
        match self.input(bias) {
            None => self.last("Mul", vec![sum, scale], vec![]),
            Some(bias) => {
                let product = self.push("Mul", vec![sum, scale], vec![]);
                self.last("Add", vec![product, bias], vec![])
            }
        }
    }

    fn with_weights(&mut self, weights: String) -> Option<()> {
        let operands = vec![self.input(0)?, weights];
        match self.input(5) {
            None => self.last("MatMul", operands, vec![]),
            Some(bias) => {
                let product = self.push("MatMul", operands, vec![]);
                self.last("Add", vec![product, bias], vec![])
            }
        }
    }
}
