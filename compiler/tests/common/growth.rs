//! Networks of any number of nodes, and the steps of compiling one.

use std::collections::BTreeSet;

use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::placement::{self, Rules, Target};
use vta_compiler::qgraph::Window;
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{onnx, passes};
use vta_driver::DramPlan;
use vta_isa::Config;

/// A network of about so many nodes.
pub(crate) type Make = fn(usize) -> Graph;

/// By name.
pub(crate) const NETWORKS: [(&str, Make); 3] =
    [("sums", sums), ("blocks", blocks), ("outputs", outputs)];

struct Steps<M> {
    measure: fn(&mut dyn FnMut()) -> M,
    taken: Vec<(&'static str, M)>,
}

impl<M> Steps<M> {
    fn of<T>(&mut self, name: &'static str, step: impl FnOnce() -> T) -> T {
        let (mut step, mut result) = (Some(step), None);
        let measured = (self.measure)(&mut || result = step.take().map(|step| step()));
        self.taken.push((name, measured));
        result.unwrap()
    }
}

/// The steps of a compilation, with what `measure` says of each.
pub(crate) fn steps<M>(
    graph: &Graph,
    measure: fn(&mut dyn FnMut()) -> M,
) -> Vec<(&'static str, M)> {
    let config = Config::default();
    let taken = Vec::new();
    let mut steps = Steps { measure, taken };
    let len = graph.values[graph.inputs[0].0].shape.iter().product();
    let images = [vec![0.5; len]];
    let folded = steps.of("fold", || quantize::fold(graph).unwrap());
    let scales = quantize::calibrate(&folded, &images, Mode::Shift).unwrap();
    let mut graph = steps.of("quantize", || {
        quantize::apply(&folded, &scales, Mode::Shift).unwrap()
    });
    graph
        .metadata
        .insert("requant".to_owned(), "fast".to_owned());
    let bytes = onnx::save(&graph);
    let graph = steps.of("load", || onnx::load(&bytes).unwrap());
    let network = steps.of("passes", || passes::quantized(&graph).unwrap());
    let options = LowerOptions::default();
    let program = steps.of("lower", || {
        lower::compile(&network, &config, &options).unwrap()
    });
    steps.of("validate", || program.validate().unwrap());
    steps.of("plan memory", || DramPlan::of(&program));
    // Nodes by the last digit of their names, so that there is something to place.
    let last = |name: &str| name.chars().next_back().filter(char::is_ascii_digit);
    let digits: BTreeSet<char> = network.nodes.iter().filter_map(|n| last(&n.name)).collect();
    let device = |digit: &char| if "037".contains(*digit) { "b" } else { "a" };
    let rule = |digit: &char| format!("\"*{digit}\" = \"{}\"\n", device(digit));
    let rules: String = digits.iter().map(rule).collect();
    let rules = Rules::from_toml(&rules).unwrap();
    let targets = ["a", "b"].map(|name| Target::new(name, config.clone()));
    let placed = steps.of("place", || {
        placement::place(&network, &targets, &rules).unwrap()
    });
    steps.of("lower placed", || {
        placement::compile(&network, &targets, &placed, &options).unwrap()
    });
    steps.taken
}

/// A graph with a float input `[1, 16, 2, 2]`.
struct Build(Graph);

impl Build {
    fn new() -> Self {
        let mut build = Self(Graph::default());
        let x = build.value("x", &[1, 16, 2, 2], None);
        build.0.inputs.push(x);
        build
    }

    fn value(&mut self, name: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        self.0.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(self.0.values.len() - 1)
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let name = format!("n{}", self.0.nodes.len());
        let output = self.value(&format!("{name}.out"), shape, None);
        let inputs = inputs.to_vec();
        self.0.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
        output
    }

    fn floats(&mut self, shape: &[usize], value: f32) -> ValueId {
        let name = format!("c{}", self.0.values.len());
        let count = shape.iter().product();
        self.value(&name, shape, Some(Data::F32(vec![value; count])))
    }

    fn conv(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        let weights = self.floats(&[16, 16, 1, 1], 0.125);
        let window = Window {
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4].into(),
        };
        self.node(Op::Conv { window, group: 1 }, &[x, weights], shape)
    }

    fn done(mut self, outputs: &[ValueId]) -> Graph {
        self.0.outputs = outputs.to_vec();
        self.0
    }
}

const SHAPE: [usize; 4] = [1, 16, 2, 2];

/// Each sum reads the one before and the first activation.
fn sums(n: usize) -> Graph {
    let mut build = Build::new();
    let first = build.node(Op::Relu, &[ValueId(0)], &SHAPE);
    let last = (0..n).fold(first, |x, _| build.node(Op::Add, &[x, first], &SHAPE));
    build.done(&[last])
}

/// Residual blocks: a convolution with its normalisation, a sum, an activation.
fn blocks(n: usize) -> Graph {
    let mut build = Build::new();
    let mut x = build.node(Op::Relu, &[ValueId(0)], &SHAPE);
    for _ in 0..n / 4 {
        let conv = build.conv(x, &SHAPE);
        // So small that ranges don't grow with depth: how operands are divided into weights depends on them.
        let parameters = [0.00001, 0.0, 0.0, 1.0].map(|v| build.floats(&[16], v));
        let [scale, bias, mean, var] = parameters;
        let norm = Op::BatchNormalization { epsilon: 1e-5 };
        let norm = build.node(norm, &[conv, scale, bias, mean, var], &SHAPE);
        let sum = build.node(Op::Add, &[norm, x], &SHAPE);
        x = build.node(Op::Relu, &[sum], &SHAPE);
    }
    build.done(&[x])
}

/// Many branches from one tensor, each an output.
fn outputs(n: usize) -> Graph {
    let mut build = Build::new();
    let first = build.node(Op::Relu, &[ValueId(0)], &SHAPE);
    let all = (0..n).map(|_| build.node(Op::Add, &[first, first], &SHAPE));
    let all: Vec<ValueId> = all.collect();
    build.done(&all)
}
