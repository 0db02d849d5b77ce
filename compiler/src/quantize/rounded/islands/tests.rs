//! Which parts of networks stay floats between operators of the host.

use super::super::{Kept, rounded};
use super::*;
use crate::graph::{Data, OnnxOp, Value};

struct Built(Graph);

impl Built {
    fn new() -> Self {
        let mut graph = Graph {
            values: vec![Value::new("x", vec![1, 8, 4, 4], None)],
            ..Graph::default()
        };
        graph.inputs.push(ValueId(0));
        Self(graph)
    }

    fn constant(&mut self) -> ValueId {
        self.0.value("c", vec![1], Some(Data::F32(vec![0.5])))
    }

    fn node(&mut self, op: Op, inputs: Vec<ValueId>, name: &str) -> ValueId {
        let output = self.0.value(name, vec![1, 8, 4, 4], None);
        self.0.push(name, op, inputs, output);
        output
    }

    fn conv(&mut self, x: ValueId, name: &str) -> ValueId {
        let w = self
            .0
            .value("w", vec![8, 8, 1, 1], Some(Data::F32(vec![0.1; 64])));
        let window = crate::qgraph::window::Window {
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4].into(),
        };
        self.node(Op::Conv { window, group: 1 }, vec![x, w], name)
    }

    /// The names of values that are rounded.
    fn rounded(mut self, outputs: &[ValueId]) -> Vec<String> {
        self.0.outputs = outputs.to_vec();
        let rounded = rounded(&self.0, &Kept::new());
        let named = self.0.values.iter().zip(rounded);
        named
            .filter(|(_, is)| *is)
            .map(|(value, _)| value.name.clone())
            .collect()
    }
}

fn host(kind: &'static str, arguments: usize) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, arguments, vec![])))
}

#[test]
fn parts_of_a_normalisation_stay_floats() {
    let mut net = Built::new();
    let x = net.conv(ValueId(0), "before");
    let (mean, two, one, gain) = (
        net.node(Op::GlobalAveragePool, vec![x], "mean"),
        net.constant(),
        net.constant(),
        net.constant(),
    );
    let apart = net.node(Op::Sub, vec![x, mean], "apart");
    let squares = net.node(host("Pow", 2), vec![apart, two], "squares");
    let variance = net.node(Op::GlobalAveragePool, vec![squares], "variance");
    let more = net.node(Op::Add, vec![variance, one], "more");
    let root = net.node(host("Sqrt", 1), vec![more], "root");
    let normal = net.node(Op::Div, vec![apart, root], "normal");
    let scaled = net.node(Op::Mul, vec![normal, gain], "scaled");
    let y = net.conv(scaled, "after");
    assert_eq!(net.rounded(&[y]), ["x", "before", "scaled", "after"]);
}

#[test]
fn what_a_device_reads_too_is_rounded_and_so_is_what_two_tensors_give() {
    let mut net = Built::new();
    let (x, half) = (net.conv(ValueId(0), "before"), net.constant());
    let moved = net.node(Op::HardSwish, vec![x], "moved");
    let scaled = net.node(Op::Mul, vec![moved, half], "scaled");
    let erf = net.node(host("Erf", 1), vec![scaled], "erf");
    // The device's convolution reads what the host's function does.
    let beside = net.conv(scaled, "beside");
    let sum = net.node(Op::Add, vec![erf, beside], "sum");
    let product = net.node(Op::Mul, vec![erf, moved], "product");
    let y = net.conv(product, "after");
    let rounded = net.rounded(&[y, sum]);
    assert_eq!(
        rounded,
        [
            "x", "before", "moved", "scaled", "erf", "beside", "sum", "product", "after"
        ]
    );
}

#[test]
fn without_operators_of_the_host_nothing_changes() {
    let mut net = Built::new();
    let (x, half) = (net.conv(ValueId(0), "before"), net.constant());
    let moved = net.node(Op::Mul, vec![x, half], "moved");
    let twice = net.node(Op::Add, vec![moved, x], "twice");
    assert_eq!(net.rounded(&[twice]), ["x", "before", "moved", "twice"]);
}
