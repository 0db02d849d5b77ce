//! Integers of other widths than bytes, as what they are: bytes within bounds.
//!
//! Constants of 2 and 4 bits are read as bytes. A QuantizeLinear that gives so few is one of bytes with a Clip behind it,
//! which is also how Brevitas writes it (QCDQ), and QONNX's Quant is those two and a DequantizeLinear. Where the steps are
//! known, the Clip stands before the QuantizeLinear, where the device has it. One that gives 16 bits is left.

use std::collections::{HashMap, HashSet};

use super::super::order::{fresh, names};
use crate::graph::Data;
use crate::onnx::external::External;
use crate::onnx::import::read_tensor;
use crate::onnx::proto::{
    ATTRIBUTE_INT, Attribute, FLOAT, Graph, INT4, INT8, Node, Tensor, UINT4, UINT8,
};
use crate::onnx::{ReadOptions, proto};

/// Where QONNX's operators were and are.
const QONNX: [&str; 3] = [
    "qonnx.custom_op.general",
    "onnx.brevitas",
    "finn.custom_op.general",
];
/// Elements of constants that are looked at.
const MAX_LOOKED_AT: i64 = 1 << 16;

/// Rewrites all of them.
pub(super) fn widen(graph: &mut Graph) {
    let is_one = |node: &Node| {
        let clips = node.op_type == "Clip" && node.domain.is_empty();
        clips || rounds(node) || node.op_type == "Quant" && QONNX.contains(&&node.domain[..])
    };
    if !graph.node.iter().any(is_one) {
        return;
    }
    let mut widened = Widened {
        names: names(graph),
        constants: HashMap::new(),
        types: HashMap::new(),
        readers: HashMap::new(),
        made: Vec::new(),
        nodes: Vec::new(),
    };
    for tensor in &graph.initializer {
        widened.learn(&tensor.name, tensor);
    }
    for node in &graph.node {
        let value = node.find("value").and_then(|a| a.t.as_ref());
        if let ("Constant", Some(tensor), Some(name)) =
            (&node.op_type[..], value, node.output.first())
        {
            widened.learn(name, tensor);
        }
    }
    let reads = graph.node.iter().flat_map(|node| &node.input);
    for name in reads.chain(graph.output.iter().map(|info| &info.name)) {
        *widened.readers.entry(name.clone()).or_insert(0) += 1;
    }
    let mut rounded: HashMap<String, usize> = HashMap::new();
    for node in std::mem::take(&mut graph.node) {
        match &node.op_type[..] {
            "QuantizeLinear" if rounds(&node) => widened.few_bits(node),
            "Quant" if QONNX.contains(&&node.domain[..]) => widened.quant(node),
            "Clip" => widened.clip(node, &rounded),
            _ => widened.nodes.push(Some(node)),
        }
        if let Some(Some(last)) = widened.nodes.last()
            && let Some(output) = last.output.first().filter(|_| rounds(last))
        {
            rounded.insert(output.clone(), widened.nodes.len() - 1);
        }
    }
    graph.node = widened.nodes.into_iter().flatten().collect();
    graph.initializer.extend(widened.made);
}

fn rounds(node: &Node) -> bool {
    node.op_type == "QuantizeLinear" && node.domain.is_empty()
}

/// What integers of few bits have: the type of bytes that holds them, the least and the largest.
#[derive(Clone, Copy)]
struct Range {
    byte: i32,
    low: i64,
    high: i64,
}

impl Range {
    fn of(data_type: i32) -> Option<Self> {
        let (byte, low, high) = match data_type {
            INT4 => (INT8, -8, 7),
            UINT4 => (UINT8, 0, 15),
            proto::INT2 => (INT8, -2, 1),
            proto::UINT2 => (UINT8, 0, 3),
            _ => return None,
        };
        Some(Self { byte, low, high })
    }
}

struct Widened {
    names: HashSet<String>,
    /// Small constants with their dimensions.
    constants: HashMap<String, (Vec<usize>, Data)>,
    /// Types of all constants.
    types: HashMap<String, i32>,
    /// How often values are read.
    readers: HashMap<String, usize>,
    /// Constants that were made.
    made: Vec<Tensor>,
    /// Without those that went elsewhere.
    nodes: Vec<Option<Node>>,
}

impl Widened {
    fn learn(&mut self, name: &str, tensor: &Tensor) {
        self.types.insert(name.to_owned(), tensor.data_type);
        let count = tensor.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        let options = ReadOptions::default();
        if count.is_some_and(|n| n <= MAX_LOOKED_AT)
            && tensor.data_location != proto::EXTERNAL
            && let Ok(read) = read_tensor(name, tensor, &mut External::new(&options))
        {
            self.constants.insert(name.to_owned(), read);
        }
    }

    /// The only value of a constant.
    fn single(&self, name: Option<&String>) -> Option<f64> {
        match &self.constants.get(name?)?.1 {
            Data::F32(v) if v.len() == 1 => Some(v[0].into()),
            data if data.len() == 1 => data.integers().map(|v| v[0] as f64),
            _ => None,
        }
    }

    /// A new constant.
    fn constant(
        &mut self,
        base: &str,
        what: &str,
        (data_type, dims): (i32, Vec<i64>),
        bytes: Vec<u8>,
    ) -> String {
        let name = fresh(&mut self.names, format!("{base}/{what}"));
        let tensor = Tensor {
            dims,
            data_type,
            name: name.clone(),
            raw_data: bytes.into(),
            ..Tensor::default()
        };
        self.learn(&name, &tensor);
        self.made.push(tensor);
        name
    }

    fn push(&mut self, name: &str, op: &str, input: Vec<String>, output: String) {
        self.nodes.push(Some(Node {
            input,
            output: vec![output],
            name: name.to_owned(),
            op_type: op.to_owned(),
            attribute: Vec::new(),
            domain: String::new(),
        }));
    }

    /// A QuantizeLinear whose zero point, or attribute, says that it gives few bits.
    fn few_bits(&mut self, mut node: Node) {
        let zero = node.input.get(2).filter(|name| !name.is_empty());
        let said = node.find("output_dtype").map(|a| a.i as i32);
        let range = zero.and_then(|name| self.types.get(name)).copied().or(said);
        let (Some(range), [output]) = (range.and_then(Range::of), &node.output[..]) else {
            return self.nodes.push(Some(node));
        };
        let output = output.clone();
        if zero.is_none() {
            let Some(count) = node.input.get(1).and_then(|name| self.constants.get(name)) else {
                return self.nodes.push(Some(node));
            };
            let dims = count.0.iter().map(|&d| d as i64).collect();
            let zeros = vec![0; count.1.len()];
            let zero = self.constant(&output, "zero", (range.byte, dims), zeros);
            node.input.truncate(2);
            node.input.push(zero);
        }
        node.attribute.retain(|a| a.name != "output_dtype");
        self.bounded(node, range, output);
    }

    /// A QuantizeLinear whose integers are within bounds.
    fn bounded(&mut self, mut node: Node, range: Range, output: String) {
        if self.real_bounds(&mut node, range) {
            node.output = vec![output];
            return self.nodes.push(Some(node));
        }
        let bytes = fresh(&mut self.names, format!("{output}/bytes"));
        node.output = vec![bytes.clone()];
        self.nodes.push(Some(node));
        let bound = |value: i64| vec![value as u8];
        let low = self.constant(&output, "low", (range.byte, vec![]), bound(range.low));
        let high = self.constant(&output, "high", (range.byte, vec![]), bound(range.high));
        self.push(&output, "Clip", vec![bytes, low, high], output.clone());
    }

    /// Puts a Clip of reals before a QuantizeLinear, if its steps are known and what it reads isn't.
    fn real_bounds(&mut self, node: &mut Node, range: Range) -> bool {
        let (Some(scale), zero) = (self.single(node.input.get(1)), node.input.get(2)) else {
            return false;
        };
        let Some(zero) = zero.map_or(Some(0.0), |name| self.single(Some(name))) else {
            return false;
        };
        let Some(from) = node
            .input
            .first()
            .filter(|name| !self.types.contains_key(*name))
            .cloned()
        else {
            return false;
        };
        let real = |bound: i64| {
            (((bound as f64 - zero) * scale) as f32)
                .to_le_bytes()
                .to_vec()
        };
        let low = self.constant(&from, "low", (FLOAT, vec![]), real(range.low));
        let high = self.constant(&from, "high", (FLOAT, vec![]), real(range.high));
        let within = fresh(&mut self.names, format!("{from}/within"));
        self.push(&within, "Clip", vec![from, low, high], within.clone());
        node.input[0] = within;
        true
    }

    /// A Clip of what a QuantizeLinear gives to it alone: a Clip of reals before it.
    fn clip(&mut self, node: Node, rounded: &HashMap<String, usize>) {
        let alone = |name: &&String| self.readers.get(*name) == Some(&1);
        let from = node.input.first().filter(alone);
        let at = from.and_then(|name| rounded.get(name)).copied();
        let rounding = at.and_then(|at| self.nodes[at].clone());
        let [low, high] = [1, 2].map(|at| self.single(node.input.get(at)));
        if let (Some(mut rounding), Some(low), Some(high)) = (rounding, low, high) {
            let range = Range {
                byte: INT8,
                low: low as i64,
                high: high as i64,
            };
            if self.real_bounds(&mut rounding, range) {
                rounding.output.clone_from(&node.output);
                self.nodes.push(Some(rounding));
                at.into_iter().for_each(|at| self.nodes[at] = None);
                return;
            }
        }
        self.nodes.push(Some(node));
    }

    /// QONNX's Quant.
    fn quant(&mut self, node: Node) {
        let (Some(range), Some((scale, zeros, axis)), [output]) = (
            self.quant_range(&node),
            self.quant_steps(&node),
            &node.output[..],
        ) else {
            return self.nodes.push(Some(node));
        };
        let zeros: Option<Vec<u8>> = zeros.iter().map(|&z| byte(z, range.byte)).collect();
        let Some(zeros) = zeros else {
            return self.nodes.push(Some(node));
        };
        let output = output.clone();
        let dims = match scale.len() {
            1 => vec![],
            slices => vec![slices as i64],
        };
        let scale = scale.iter().flat_map(|v| v.to_le_bytes()).collect();
        let scale = self.constant(&output, "scale", (FLOAT, dims.clone()), scale);
        let zero = self.constant(&output, "zero", (range.byte, dims), zeros);
        let quantized = fresh(&mut self.names, format!("{output}/int"));
        let rounding = scaled(
            "QuantizeLinear",
            &quantized,
            axis,
            [&node.input[0], &scale, &zero],
        );
        // What all bytes may be needs no bounds.
        if range.high - range.low == 255 {
            self.nodes.push(Some(Node {
                output: vec![quantized.clone()],
                ..rounding
            }));
        } else {
            self.bounded(rounding, range, quantized.clone());
        }
        let real = scaled(
            "DequantizeLinear",
            &node.name,
            axis,
            [&quantized, &scale, &zero],
        );
        self.nodes.push(Some(Node {
            output: vec![output],
            ..real
        }));
    }

    /// The integers that a Quant gives.
    fn quant_range(&self, node: &Node) -> Option<Range> {
        let is_set = |name: &str, default| node.find(name).map_or(default, |a| a.i != 0);
        let rounding = node.find("rounding_mode").map_or(&b"ROUND"[..], |a| &a.s);
        let bits = self.single(node.input.get(3))?;
        if rounding != b"ROUND" || !(1.0..=8.0).contains(&bits) || bits.fract() != 0.0 {
            return None;
        }
        let (size, narrow) = (1i64 << bits as u32, i64::from(is_set("narrow", false)));
        Some(if is_set("signed", true) {
            Range {
                byte: INT8,
                low: narrow - size / 2,
                high: size / 2 - 1,
            }
        } else {
            Range {
                byte: UINT8,
                low: 0,
                high: size - 1 - narrow,
            }
        })
    }

    /// Scales and zero points of a Quant, one or one for each slice along an axis.
    fn quant_steps(&self, node: &Node) -> Option<(Vec<f32>, Vec<f32>, i64)> {
        let floats = |at: usize| match self.constants.get(node.input.get(at)?)? {
            (shape, Data::F32(v)) if !v.is_empty() => Some((shape, v)),
            _ => None,
        };
        let ((shape, scale), (_, zeros)) = (floats(1)?, floats(2)?);
        let mut wide = (0..shape.len()).filter(|&at| shape[at] != 1);
        let axis = wide.next().unwrap_or(0);
        let zeros = match zeros[..] {
            [zero] => vec![zero; scale.len()],
            _ => zeros.clone(),
        };
        let fits = wide.next().is_none() && zeros.len() == scale.len();
        fits.then(|| (scale.clone(), zeros, axis as i64))
    }
}

/// A QuantizeLinear or DequantizeLinear along an axis.
fn scaled(op: &str, name: &str, axis: i64, inputs: [&String; 3]) -> Node {
    Node {
        input: inputs.map(String::clone).into(),
        output: Vec::new(),
        name: name.to_owned(),
        op_type: op.to_owned(),
        attribute: vec![Attribute {
            name: "axis".to_owned(),
            i: axis,
            kind: ATTRIBUTE_INT,
            ..Attribute::default()
        }],
        domain: String::new(),
    }
}

/// A zero point as a byte.
fn byte(zero: f32, data_type: i32) -> Option<u8> {
    let whole = zero as i64;
    let fits = if data_type == INT8 {
        (-128..=127).contains(&whole)
    } else {
        (0..=255).contains(&whole)
    };
    (fits && whole as f32 == zero).then_some(whole as u8)
}
