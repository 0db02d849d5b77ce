//! Compile time is linear in the number of nodes.
//!
//! The processor time of this thread is compared for a network and one of four times its nodes:
//! about four times as much if it is linear, sixteen if it is quadratic. Other work on the machine
//! doesn't count, and only a step that exceeds the bound in each of several tries fails.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::placement::{self, Rules, Target};
use vta_compiler::qgraph::Window;
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{onnx, passes};
use vta_driver::DramPlan;
use vta_isa::Config;

/// Between 4 and 16.
const BOUND: u32 = 9;
/// Tries before a step counts as too slow.
const TRIES: usize = 6;
/// Too short to be measured well.
const SHORT: Duration = Duration::from_millis(4);

/// Processor time of this thread; wall time where the system doesn't say.
fn now() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = text.ok().and_then(|t| t.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn time<T>(step: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = step();
    (result, now().saturating_sub(start))
}

/// The steps of a compilation, with what each takes.
fn steps(graph: &Graph) -> Vec<(&'static str, Duration)> {
    let config = Config::default();
    let mut taken = Vec::new();
    let mut note = |name, time| taken.push((name, time));
    let len = graph.values[graph.inputs[0].0].shape.iter().product();
    let images = [vec![0.5; len]];
    let (folded, t) = time(|| quantize::fold_batchnorm(graph).unwrap());
    note("fold", t);
    let scales = quantize::calibrate(&folded, &images, Mode::Shift).unwrap();
    let (graph, t) = time(|| quantize::apply(&folded, &scales, Mode::Shift).unwrap());
    note("quantize", t);
    let mut graph = graph;
    graph
        .metadata
        .insert("requant".to_owned(), "fast".to_owned());
    let bytes = onnx::save(&graph);
    let (graph, t) = time(|| onnx::load(&bytes).unwrap());
    note("load", t);
    let (network, t) = time(|| passes::quantized(&graph).unwrap());
    note("passes", t);
    let options = LowerOptions::default();
    let (program, t) = time(|| lower::compile(&network, &config, &options).unwrap());
    note("lower", t);
    let (_, t) = time(|| program.validate().unwrap());
    note("validate", t);
    let (_, t) = time(|| DramPlan::of(&program));
    note("plan memory", t);
    // Nodes by the last digit of their names, so that there is something to place.
    let last = |name: &str| name.chars().next_back().filter(char::is_ascii_digit);
    let digits: BTreeSet<char> = network.nodes.iter().filter_map(|n| last(&n.name)).collect();
    let device = |digit: &char| if "037".contains(*digit) { "b" } else { "a" };
    let rule = |digit: &char| format!("\"*{digit}\" = \"{}\"\n", device(digit));
    let rules: String = digits.iter().map(rule).collect();
    let rules = Rules::from_toml(&rules).unwrap();
    let targets = ["a", "b"].map(|name| Target::new(name, config.clone()));
    let (placed, t) = time(|| placement::place(&network, &targets, &rules).unwrap());
    note("place", t);
    let (_, t) = time(|| placement::compile(&network, &targets, &placed, &options).unwrap());
    note("lower placed", t);
    taken
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
        let parameters = [0.001, 0.0, 0.0, 1.0].map(|v| build.floats(&[16], v));
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

fn check(name: &str, make: fn(usize) -> Graph, nodes: usize) {
    let (small, large) = (make(nodes), make(4 * nodes));
    let mut best: Option<Vec<(&str, Duration, Duration)>> = None;
    for _ in 0..TRIES {
        let both = steps(&small).into_iter().zip(steps(&large));
        let both = both.map(|((name, a), (_, b))| (name, a, b));
        let found: Vec<_> = match best.take() {
            None => both.collect(),
            Some(best) => (best.into_iter().zip(both))
                .map(|((name, a, b), (_, c, d))| (name, a.min(c), b.min(d)))
                .collect(),
        };
        let slow = |(_, a, b): &&(&str, Duration, Duration)| *b > BOUND * (*a).max(SHORT);
        let slow = found.iter().find(slow).copied();
        best = Some(found);
        if slow.is_none() {
            return;
        }
    }
    panic!("{name}: more than {BOUND} times the time for four times the nodes: {best:?}");
}

#[test]
fn sums_take_linear_time() {
    check("sums", sums, 2000);
}

#[test]
fn residual_blocks_take_linear_time() {
    check("blocks", blocks, 2000);
}

#[test]
fn outputs_take_linear_time() {
    check("outputs", outputs, 2000);
}
