//! Graphs, built a node at a time.

use vta_compiler::graph::{Data, Element, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use vta_compiler::qgraph::Window;

/// Builds graphs a node at a time.
#[derive(Default)]
pub struct Builder(pub Graph);

impl Builder {
    pub fn value(&mut self, name: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        self.0.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(self.0.values.len() - 1)
    }

    pub fn input(&mut self, shape: &[usize]) -> ValueId {
        self.named("x", shape, Element::F32)
    }

    /// An input of a name and type.
    pub fn named(&mut self, name: &str, shape: &[usize], element: Element) -> ValueId {
        let x = self.value(name, shape, None);
        self.0.values[x.0].element = element;
        self.0.inputs.push(x);
        x
    }

    /// A value rounded to int8 and back to floats.
    pub fn rounded(&mut self, x: ValueId, scale: f32) -> ValueId {
        let shape = self.0.values[x.0].shape.clone();
        let scale = self.value("scale", &[], Some(Data::F32(vec![scale])));
        let zero = self.value("zero", &[], Some(Data::I8(vec![0])));
        let q = self.push(Op::QuantizeLinear { axis: 1 }, &[x, scale, zero], &shape);
        self.0.values[q.0].element = Element::I8;
        self.push(Op::DequantizeLinear { axis: 1 }, &[q, scale, zero], &shape)
    }

    pub fn push(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let name = format!("n{}", self.0.nodes.len());
        let output = self.value(&name, shape, None);
        self.0.nodes.push(Node {
            name,
            op,
            inputs: inputs.to_vec(),
            output,
        });
        output
    }

    /// An operator that is kept as a file has it.
    pub fn kept(
        &mut self,
        kind: &'static str,
        inputs: &[ValueId],
        shape: &[usize],
        attributes: &[(&str, OnnxAttribute)],
    ) -> ValueId {
        let attributes = attributes.iter().map(|(n, v)| ((*n).to_owned(), v.clone()));
        let op = OnnxOp {
            opset: 17,
            ..OnnxOp::new(kind, inputs.len(), attributes.collect())
        };
        self.push(Op::Onnx(Box::new(op)), inputs, shape)
    }

    pub fn conv(&mut self, x: ValueId, channels: [usize; 2], plane: usize) -> ValueId {
        let [from, to] = channels;
        let weights = (0..to * from).map(|i| ((i * 13) % 17) as f32 / 16.0 - 0.5);
        let name = format!("w{}", self.0.values.len());
        let w = self.value(&name, &[to, from, 1, 1], Some(Data::F32(weights.collect())));
        let window = Window::whole([1, 1]);
        self.push(
            Op::Conv { window, group: 1 },
            &[x, w],
            &[1, to, plane, plane],
        )
    }

    pub fn finish(mut self, outputs: &[ValueId]) -> Graph {
        self.0.outputs = outputs.to_vec();
        self.0
    }
}
