//! Operators that the library computes in another way than ONNX says, written by others.

use super::gaps;
use super::parts::{Parts, onnx};
use crate::graph::{
    Data, Element, Entries, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId,
};
use crate::operators::conv;
use crate::operators::operator::Given;

/// What the library computes of wider integers, or floats, alone: the type's number in ONNX that holds each value of
/// int8 and uint8.
fn wider(kind: &str) -> Option<(i64, Element)> {
    Some(match kind {
        // A sum or product of int8 keeps the low byte, and a quotient is whole.
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Sum" | "ReduceSum" | "ReduceProd" => {
            (6, Element::I32)
        }
        "Max" | "Min" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual"
        | "Relu" | "Clip" | "Abs" | "Neg" | "Sign" | "ArgMax" | "ArgMin" | "TopK" | "ReduceMax"
        | "ReduceMin" | "MaxPool" | "GlobalMaxPool" => (1, Element::F32),
        _ => return None,
    })
}

fn is_narrow(element: Element) -> bool {
    matches!(element, Element::I8 | Element::U8)
}

/// Whether the library gives other values, or another shape, than ONNX says.
pub(super) fn is_inexact(graph: &Graph, node: &Node, op: &OnnxOp) -> bool {
    let input = |argument: usize| Some(&graph.values[node.inputs.get(op.place(argument)?)?.0]);
    let first = node.inputs.first().map(|id| graph.values[id.0].element);
    if wider(op.kind).is_some() && first.is_some_and(is_narrow) {
        return true;
    }
    if gaps::is_volume(op, input(0).map_or(0, |value| value.shape.len())) {
        return true;
    }
    match op.kind {
        // It takes the last of equal values, and the sign of 0 is 1.
        "ArgMax" | "ArgMin" | "Sign" => true,
        // It multiplies by the reciprocal of the scale.
        "DynamicQuantizeLinear" => op.output == 0,
        // It pads with 0, not with the zero point, which stands for 0.
        "ConvInteger" => op.place(2).is_some(),
        // Of no truths, which are integers for it, the greatest is its least integer.
        "ReduceMax" | "ReduceMin" => first == Some(Element::Bool),
        // It takes no list of dimensions.
        "Pad" => op.place(3).is_some(),
        // It has no powers of floats by integers.
        "Pow" => {
            let [base, power] = [0, 1].map(|at| input(at).map(|value| value.element));
            base == Some(Element::F32) && power != base
        }
        // One zero point in a list counts as one of a row.
        "MatMulInteger" => [2, 3]
            .into_iter()
            .any(|at| input(at).is_some_and(|v| v.shape == [1])),
        // What a vector leaves of a shape has one dimension too many.
        "MatMul" => {
            let ranks = [0, 1].map(|at| input(at).map_or(0, |value| value.shape.len()));
            ranks[0] > 1 && ranks[1] == 1
        }
        _ => false,
    }
}

/// Writes a node of [`is_inexact`].
pub(super) fn compose(parts: &mut Parts<'_>, x: ValueId, op: &OnnxOp) -> Option<()> {
    if is_narrow(parts.graph.values[x.0].element)
        && let Some((number, element)) = wider(op.kind)
    {
        return parts.widened(op, number, element);
    }
    if gaps::is_volume(op, parts.shape.len()) {
        return gaps::volumes(parts, x, op);
    }
    match op.kind {
        "ArgMax" | "ArgMin" => parts.first_of_equals(x, op),
        "Sign" => parts.sign(x),
        "DynamicQuantizeLinear" => parts.dynamic(x, op),
        "ConvInteger" => parts.padded_with_zero_point(x, op),
        "MatMulInteger" => parts.single_zero_points(op),
        "Pad" => parts.of_all_dimensions(op),
        "ReduceMax" | "ReduceMin" => {
            let inputs = parts.node.inputs.clone();
            let shape = parts.graph.values[parts.node.output.0].shape.clone();
            let found = parts.shaped(kept(op.clone()), &inputs, "found", shape);
            let zero = parts.value("zero", &[], Some(Data::I32(vec![0])));
            parts.last(onnx("Greater", 2, vec![]), &[found, zero])
        }
        "Pow" => {
            let power = *parts.node.inputs.get(1)?;
            let shape = parts.graph.values[power.0].shape.clone();
            let to = vec![("to".to_owned(), OnnxAttribute::Int(1))];
            let power = parts.shaped(onnx("Cast", 1, to), &[power], "power", shape);
            parts.last(kept(op.clone()), &[x, power])
        }
        "MatMul" => parts.by_vector(x, op),
        _ => None,
    }
}

/// The same operator without some of its attributes.
fn without(op: &OnnxOp, names: &[&str]) -> OnnxOp {
    let mut op = op.clone();
    op.attributes
        .retain(|(name, _)| !names.contains(&&name[..]));
    op
}

fn kept(op: OnnxOp) -> Op {
    Op::Onnx(Box::new(op))
}

/// Where a QuantizeLinear saturates, and the type that the library has for what it makes; `None` for what none makes.
pub(super) const fn saturated(element: Element) -> Option<(f32, f32, i64)> {
    match element {
        Element::I8 => Some((-128.0, 127.0, 3)),
        Element::U8 => Some((0.0, 255.0, 2)),
        Element::I16 => Some((-32768.0, 32767.0, 6)),
        Element::U16 => Some((0.0, 65535.0, 6)),
        Element::F32 | Element::I32 | Element::I64 | Element::Bool => None,
    }
}

impl Parts<'_> {
    /// An operator on int8 or uint8 between casts; what it is then may be inexact by itself.
    fn widened(&mut self, op: &OnnxOp, number: i64, element: Element) -> Option<()> {
        let to = |number| {
            onnx(
                "Cast",
                1,
                vec![("to".to_owned(), OnnxAttribute::Int(number))],
            )
        };
        let mut inputs = self.node.inputs.clone();
        for (at, id) in inputs.iter_mut().enumerate() {
            let Value {
                element: own,
                shape,
                ..
            } = self.graph.values[id.0].clone();
            if is_narrow(own) {
                *id = self.shaped(to(number), &[*id], &format!("wide{at}"), shape);
                self.graph.values[id.0].element = element;
            }
        }
        let made = self.graph.values[self.node.output.0].clone();
        let narrow = match made.element {
            Element::I8 => 3,
            Element::U8 => 2,
            _ => return self.again(op, inputs, self.node.output),
        };
        let wide = self.value("wide", &made.shape, None);
        self.graph.values[wide.0].element = element;
        self.again(op, inputs, wide)?;
        self.last(to(narrow), &[wide])
    }

    /// The operator, of other values.
    fn again(&mut self, op: &OnnxOp, inputs: Vec<ValueId>, output: ValueId) -> Option<()> {
        let node = Node {
            name: format!("{}.wide", self.node.name),
            op: kept(op.clone()),
            inputs,
            output,
        };
        if is_inexact(self.graph, &node, op) {
            let (mut parts, x) = Parts::of(self.graph, &node)?;
            return compose(&mut parts, x, op);
        }
        self.graph.nodes.push(node);
        Some(())
    }

    /// The last of equals in the values turned round is the first.
    fn first_of_equals(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let plain = without(op, &["select_last_index"]);
        if op.int("select_last_index", 0) != 0 {
            return self.last(kept(plain), &[x]);
        }
        let axis = op.int("axis", 0);
        let rank = self.shape.len() as i64;
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let size = *self.shape.get(axis)? as i64;
        let list = |parts: &mut Self, what: &str, value: i64| {
            parts.value(what, &[1], Some(Data::I64(vec![value])))
        };
        let inputs = [
            x,
            list(self, "starts", size - 1),
            list(self, "ends", -size - 1),
            list(self, "axes", axis as i64),
            list(self, "steps", -1),
        ];
        let turned = self.push(onnx("Slice", 5, vec![]), &inputs, "turned");
        let shape = self.graph.values[self.node.output.0].shape.clone();
        let place = self.shaped(kept(plain), &[turned], "place", shape);
        let most = self.value("most", &[], Some(Data::I64(vec![size - 1])));
        self.last(onnx("Sub", 2, vec![]), &[most, place])
    }

    /// Whether it is above 0 less whether it is below.
    fn sign(&mut self, x: ValueId) -> Option<()> {
        let element = self.graph.values[x.0].element;
        let zero = Data::zeros(element, 1);
        let zero = self.value("zero", &[], Some(zero));
        let [above, below] = ["Greater", "Less"].map(|kind| {
            let truth = self.push(onnx(kind, 2, vec![]), &[x, zero], kind);
            let to = vec![("to".to_owned(), OnnxAttribute::Int(6))];
            self.push(onnx("Cast", 1, to), &[truth], &format!("{kind}.number"))
        });
        if element != Element::F32 {
            return self.last(onnx("Sub", 2, vec![]), &[above, below]);
        }
        let sign = self.push(onnx("Sub", 2, vec![]), &[above, below], "sign");
        let to = vec![("to".to_owned(), OnnxAttribute::Int(1))];
        self.last(onnx("Cast", 1, to), &[sign])
    }

    /// `clamp(round(x / scale) + zero)` with the scale and zero point that the library finds.
    fn dynamic(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let [scale, zero] = [1, 2].map(|output| {
            let op = kept(OnnxOp {
                output,
                ..op.clone()
            });
            self.shaped(op, &[x], &format!("output{output}"), vec![])
        });
        let to = |number| vec![("to".to_owned(), OnnxAttribute::Int(number))];
        let zero = self.push(onnx("Cast", 1, to(1)), &[zero], "zero");
        let steps = self.quotient(x, scale);
        let rounded = self.push(onnx("Round", 1, vec![]), &[steps], "rounded");
        let moved = self.push(Op::Add, &[rounded, zero], "moved");
        let (min, max) = (0.0, 255.0);
        let clamped = self.push(Op::Clip { min, max }, &[moved], "clamped");
        self.last(onnx("Cast", 1, to(2)), &[clamped])
    }

    /// The first input by a single number that is computed. The library would multiply by its reciprocal: there are two
    /// divisors at least.
    fn quotient(&mut self, x: ValueId, by: ValueId) -> ValueId {
        let shape = self.shape.clone();
        let wide = [&shape[..], &[2]].concat();
        let single = [&shape[..], &[1]].concat();
        let column = self.reshaped(x, &single, "column");
        let sizes = Data::I64(wide.iter().map(|&d| d as i64).collect());
        let sizes = self.value("twice.sizes", &[wide.len()], Some(sizes));
        let [twice, divisors] = [(column, "twice"), (by, "divisors")].map(|(of, what)| {
            self.shaped(onnx("Expand", 2, vec![]), &[of, sizes], what, wide.clone())
        });
        let steps = self.shaped(Op::Div, &[twice, divisors], "steps", wide);
        let first = Entries::run(shape.len(), 0, 1).into();
        let steps = self.shaped(first, &[steps], "first", single);
        self.reshaped(steps, &shape, "quotient")
    }

    /// A QuantizeLinear whose one step is computed: `clamp(round(x / scale) + zero)`.
    pub(super) fn rounded_at_run(&mut self, x: ValueId) -> Option<()> {
        let (scale, zero) = (*self.node.inputs.get(1)?, self.node.inputs.get(2).copied());
        if self.graph.values[scale.0].shape.iter().product::<usize>() != 1 {
            return None;
        }
        let (low, high, number) = saturated(self.graph.values[self.node.output.0].element)?;
        let to = |number| {
            onnx(
                "Cast",
                1,
                vec![("to".to_owned(), OnnxAttribute::Int(number))],
            )
        };
        let steps = self.quotient(x, scale);
        let mut now = self.push(onnx("Round", 1, vec![]), &[steps], "rounded");
        if let Some(zero) = zero {
            let zero = self.shaped(to(1), &[zero], "zero", vec![]);
            now = self.push(Op::Add, &[now, zero], "moved");
        }
        let (min, max) = (low, high);
        let clamped = self.push(Op::Clip { min, max }, &[now], "clamped");
        self.last(to(number), &[clamped])
    }

    fn padded_with_zero_point(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let of = {
            let inputs = self.node.inputs.iter();
            let values = inputs.map(|id| &self.graph.values[id.0]).collect();
            conv::geometry(&Given { op, values }).ok()?
        };
        let mut inputs = self.node.inputs.clone();
        let zero = op.place(2)?;
        inputs[zero] = self.reshaped(inputs[zero], &[], "zero");
        let plane = self.shape.len().checked_sub(2)?;
        let [before, after] = [of.window.pads.before(), of.window.pads.after()];
        let around =
            |pads: [usize; 2]| [&[0, 0][..], &pads.map(|p| p as i64)[2 - plane..]].concat();
        let pads = [around(before), around(after)].concat();
        let pads = self.value("pads", &[pads.len()], Some(Data::I64(pads)));
        inputs[0] = self.push(onnx("Pad", 3, vec![]), &[x, pads, inputs[zero]], "padded");
        let mut op = without(op, &["pads", "auto_pad"]);
        let none = OnnxAttribute::Ints(vec![0; 2 * plane]);
        op.attributes.push(("pads".to_owned(), none));
        self.last(kept(op), &inputs)
    }

    /// A Pad of some dimensions as one of all.
    fn of_all_dimensions(&mut self, op: &OnnxOp) -> Option<()> {
        let data = |argument: usize| {
            let id = self.node.inputs.get(op.place(argument)?)?;
            self.graph.values[id.0].data.as_ref()?.integers()
        };
        let (some, axes) = (data(1)?, data(3)?);
        let rank = self.shape.len();
        let mut pads = vec![0; 2 * rank];
        for (at, axis) in axes.iter().enumerate() {
            let axis = if *axis < 0 { axis + rank as i64 } else { *axis };
            let axis = usize::try_from(axis).ok().filter(|axis| *axis < rank)?;
            pads[axis] = *some.get(at)?;
            pads[rank + axis] = *some.get(axes.len() + at)?;
        }
        let mut inputs = self.node.inputs.clone();
        inputs.remove(op.place(3)?);
        inputs[op.place(1)?] = self.value("all", &[pads.len()], Some(Data::I64(pads)));
        let mut op = op.clone();
        op.arguments.truncate(3);
        self.last(kept(op), &inputs)
    }

    fn single_zero_points(&mut self, op: &OnnxOp) -> Option<()> {
        let mut inputs = self.node.inputs.clone();
        for at in [2, 3].into_iter().filter_map(|argument| op.place(argument)) {
            if self.graph.values[inputs[at].0].shape == [1] {
                inputs[at] = self.reshaped(inputs[at], &[], &format!("zero{at}"));
            }
        }
        self.last(kept(op.clone()), &inputs)
    }

    /// A product with a matrix of one column.
    fn by_vector(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let vector = *self.node.inputs.get(1)?;
        let length = self.graph.values[vector.0].shape.clone();
        let column = self.reshaped(vector, &[&length[..], &[1]].concat(), "column");
        let (_, shape) = self.shape.split_last()?;
        let shape = shape.to_vec();
        let wide = [&shape[..], &[1]].concat();
        let product = self.shaped(kept(op.clone()), &[x, column], "product", wide);
        self.last_reshaped(product, &shape)
    }
}
