//! Networks of which the host computes some layers: the bits of the reference interpreter, on
//! every simulator, with batches cut where the host's layers stand.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use vta_compiler::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::placement::{self, Rules, Target};
use vta_compiler::qgraph::{HostNeeds, QGraph, QOp, Window};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{onnx, passes, reference};
use vta_driver::{
    Device, FlushReason, HostOutput, MultiProgram, MultiSession, QueueLimits, RunOutput, Step,
};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution, SimDevice, hazards};

/// An operator that only the host computes.
fn host(kind: &'static str, arguments: usize) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, arguments, Vec::new())))
}

fn with(kind: &'static str, name: &str, value: OnnxAttribute) -> Op {
    let attributes = vec![(name.to_owned(), value)];
    Op::Onnx(Box::new(OnnxOp::new(kind, 1, attributes)))
}

fn elu(alpha: f32) -> Op {
    with("Elu", "alpha", OnnxAttribute::Float(alpha))
}

/// Over the channels.
fn softmax() -> Op {
    with("Softmax", "axis", OnnxAttribute::Int(1))
}

/// A float network, a node at a time.
#[derive(Default)]
struct Net(Graph);

impl Net {
    fn new(shape: &[usize]) -> (Self, ValueId) {
        let mut net = Self::default();
        net.0.name = "host".into();
        let input = net.value("x", shape, None);
        net.0.inputs.push(input);
        (net, input)
    }

    fn value(&mut self, name: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        self.0.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(self.0.values.len() - 1)
    }

    fn push(&mut self, op: Op, inputs: Vec<ValueId>, shape: &[usize]) -> ValueId {
        let name = format!("n{}", self.0.nodes.len());
        let output = self.value(&format!("{name}.out"), shape, None);
        self.0.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
        output
    }

    fn shape(&self, x: ValueId) -> Vec<usize> {
        self.0.values[x.0].shape.clone()
    }

    fn same(&mut self, op: Op, x: ValueId) -> ValueId {
        let shape = self.shape(x);
        self.push(op, vec![x], &shape)
    }

    /// A convolution that keeps the size.
    fn conv(&mut self, x: ValueId, co: usize, kernel: usize) -> ValueId {
        let [ci, h, w] = [1, 2, 3].map(|i| self.0.values[x.0].shape[i]);
        let at = self.0.nodes.len();
        let weight = |i: usize| ((i * 37 + at * 11) % 29) as f32 / 14.0 - 1.0;
        let count = co * ci * kernel * kernel;
        let data = (0..count)
            .map(|i| weight(i) / (ci * kernel) as f32)
            .collect();
        let shape = [co, ci, kernel, kernel];
        let weights = self.value(&format!("w{at}"), &shape, Some(Data::F32(data)));
        let window = Window {
            kernel: [kernel; 2],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [kernel / 2; 4].into(),
        };
        let op = Op::Conv { window, group: 1 };
        self.push(op, vec![x, weights], &[1, co, h, w])
    }

    /// Quantised through a file, as a user's model is.
    fn finish(mut self, output: ValueId, mode: Mode) -> QGraph {
        self.0.outputs.push(output);
        let graph = onnx::load(&onnx::save(&self.0)).unwrap();
        let len = graph.values[graph.inputs[0].0].shape.iter().product();
        let image = |n: usize| {
            (0..len)
                .map(|i| ((i * (31 + n)) % 255) as f32 / 90.0 - 1.4)
                .collect()
        };
        let images: Vec<Vec<f32>> = (0..2).map(image).collect();
        let quantized = quantize::quantize(&graph, &images, mode).unwrap();
        passes::quantized(&onnx::load(&onnx::save(&quantized)).unwrap()).unwrap()
    }
}

/// An activation function, squeeze and excitation, branches that are joined, and a Softmax at the
/// end, all but the joining on the host.
fn network(mode: Mode) -> QGraph {
    let (mut net, x) = Net::new(&[1, 3, 8, 8]);
    let x = net.conv(x, 20, 3);
    let x = net.same(elu(1.0), x);
    let squeezed = net.push(Op::GlobalAveragePool, vec![x], &[1, 20, 1, 1]);
    let reduced = net.conv(squeezed, 6, 1);
    let reduced = net.push(Op::Relu, vec![reduced], &[1, 6, 1, 1]);
    let gate = net.conv(reduced, 20, 1);
    let gate = net.same(host("Sigmoid", 1), gate);
    let scaled = net.push(host("Max", 2), vec![x, gate], &[1, 20, 8, 8]);
    let a = net.conv(scaled, 17, 3);
    let a = net.same(host("Tanh", 1), a);
    let b = net.conv(scaled, 9, 1);
    let joined = net.push(Op::Concat { axis: 1 }, vec![a, b, x], &[1, 46, 8, 8]);
    let pooled = net.push(Op::GlobalAveragePool, vec![joined], &[1, 46, 1, 1]);
    let out = net.conv(pooled, 10, 1);
    let out = net.push(Op::Flatten, vec![out], &[1, 10]);
    let out = net.same(softmax(), out);
    net.finish(out, mode)
}

/// Nodes of the host and the segments that they are computed in.
fn host_nodes(graph: &QGraph) -> [usize; 2] {
    // What it gives at the end in floats is in no program.
    let needs = HostNeeds::of(&QGraph {
        ends: None,
        ..graph.clone()
    });
    [needs.nodes, needs.segments]
}

/// The same of a program.
fn host_steps(program: &MultiProgram) -> [usize; 2] {
    [program.host_ops(), program.host_steps().count()]
}

fn compile(graph: &QGraph, targets: &[Target], rules: &str) -> MultiProgram {
    let rules = Rules::from_toml(rules).unwrap();
    let placed = placement::place(graph, targets, &rules).unwrap();
    let program = placement::compile(graph, targets, &placed, &LowerOptions::default()).unwrap();
    program.validate().unwrap();
    for part in &program.parts {
        for batch in hazards::check_program(&part.program, QueueLimits::default()).unwrap() {
            assert!(
                batch.report.is_clean(),
                "{:?}",
                batch.report.hazards.first()
            );
        }
    }
    program
}

fn simulators(config: &Config) -> [Arc<dyn Device>; 3] {
    let (timing, log) = (TimingConfig::default(), CycleLog::default());
    [
        Arc::new(SimDevice::functional(config.clone())),
        Arc::new(SimDevice::oracle(config.clone())),
        Arc::new(SimDevice::cycle(
            config.clone(),
            timing,
            Execution::Full,
            log,
        )),
    ]
}

/// Runs BATCH images twice; every tensor of every part and of the host is the reference's.
fn check(graph: &QGraph, program: &Arc<MultiProgram>, devices: &[Arc<dyn Device>]) {
    let limits = QueueLimits::default();
    let mut session = MultiSession::new(Arc::clone(program), devices, limits).unwrap();
    let batch = devices[0].info().config.batch();
    let len: usize = graph.tensors[graph.inputs[0].0].chw.iter().product();
    for run in 0..2 {
        let image = |n: usize| {
            (0..len)
                .map(|i| i16::from(((i * (37 + n) + run) % 255) as u8 as i8))
                .collect()
        };
        let images: Vec<Vec<i16>> = (0..batch).map(image).collect();
        let refs: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
        let RunOutput { outputs, .. } = session.run(&refs).unwrap();
        for (n, image) in images.iter().enumerate() {
            let expected = reference::run(graph, image).unwrap();
            assert_eq!(outputs[0][n], expected[graph.outputs[0].0]);
            for step in &program.steps {
                if let Step::Host(step) = step {
                    let places = |o: &HostOutput| {
                        let number = o.network_tensor as usize;
                        let places: Vec<_> = o.places.iter().map(|p| (*p, number)).collect();
                        places
                    };
                    for (place, number) in step.outputs.iter().flat_map(places) {
                        let found = session.read_tensor(place).unwrap();
                        let expected = &expected[number];
                        assert_eq!(&found[n], expected, "{}", step.name);
                    }
                }
            }
        }
    }
}

#[test]
fn a_network_with_layers_of_the_host_gives_the_reference_s_bits() {
    for mode in [Mode::Multiply, Mode::Shift] {
        let graph = network(mode);
        assert_eq!(host_nodes(&graph), [4, 3]);
        for text in [
            "{}",
            r#"{"LOG_BLOCK": 5}"#,
            r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 16}"#,
        ] {
            let config = Config::from_json(text).unwrap();
            let targets = [
                Target::new("sim", config.clone()),
                Target::host(config.clone()),
            ];
            let program = Arc::new(compile(&graph, &targets, ""));
            assert_eq!((program.parts.len(), host_steps(&program)), (1, [4, 3]));
            for device in simulators(&config) {
                check(&graph, &program, &[device]);
            }
        }
    }
}

#[test]
fn segments_are_few_and_convex() {
    let config = Config::default();
    let targets = [
        Target::new("sim", config.clone()),
        Target::host(config.clone()),
    ];
    let device = || -> Arc<dyn Device> { Arc::new(SimDevice::functional(config.clone())) };
    let shape = [1, 20, 8, 8];
    // Two operators one after another, both of which the device reads: one segment of two outputs.
    let (mut net, x) = Net::new(&[1, 3, 8, 8]);
    let x = net.conv(x, 20, 1);
    let a = net.same(host("Sigmoid", 1), x);
    let b = net.same(host("Tanh", 1), a);
    let (c, d) = (net.conv(a, 20, 1), net.conv(b, 20, 1));
    let sum = net.push(Op::Add, vec![c, d], &shape);
    // One that reads the host's and what the device made of that can't join it.
    let last = net.push(host("Max", 2), vec![a, sum], &shape);
    let last = net.same(elu(0.5), last);
    let graph = net.finish(last, Mode::Multiply);
    assert_eq!(host_nodes(&graph), [2, 1]);
    let program = Arc::new(compile(&graph, &targets, ""));
    assert_eq!(host_steps(&program), [2, 1]);
    let outputs: Vec<usize> = program.host_steps().map(|s| s.outputs.len()).collect();
    assert_eq!(outputs, [2]);
    check(&graph, &program, &[device()]);
    // Branches that the host continues side by side are one segment, too.
    let (mut net, x) = Net::new(&[1, 3, 8, 8]);
    let (a, b) = (net.conv(x, 20, 1), net.conv(x, 20, 3));
    let (a, b) = (
        net.same(host("Sigmoid", 1), a),
        net.same(host("Tanh", 1), b),
    );
    let (a, b) = (net.conv(a, 20, 1), net.conv(b, 20, 3));
    let sum = net.push(Op::Add, vec![a, b], &shape);
    let graph = net.finish(sum, Mode::Multiply);
    assert_eq!(host_nodes(&graph), [2, 1]);
    let program = Arc::new(compile(&graph, &targets, ""));
    check(&graph, &program, &[device()]);
}

#[test]
fn two_devices_and_the_host_work_together() {
    let graph = network(Mode::Multiply);
    let config = Config::default();
    let wide = Config::from_json(r#"{"LOG_BLOCK": 5}"#).unwrap();
    let [sim, oracle] =
        [("sim", &config), ("oracle", &wide)].map(|(n, c)| Target::new(n, c.clone()));
    let targets = [sim, oracle, Target::host(config.clone())];
    for rules in [
        "n3 = \"oracle\"",
        "n8 = \"oracle\"\nn10 = \"oracle\"",
        "n13 = \"oracle\"\nn8 = \"oracle\"\nn0 = \"oracle\"",
    ] {
        let program = Arc::new(compile(&graph, &targets, rules));
        let devices: [Arc<dyn Device>; 2] = [
            Arc::new(SimDevice::functional(config.clone())),
            Arc::new(SimDevice::oracle(wide.clone())),
        ];
        let used = program.parts.iter().map(|p| Arc::clone(&devices[p.target]));
        check(&graph, &program, &used.collect::<Vec<_>>());
    }
    // The host's layers are no device's, and the other way round.
    for (rule, says) in [
        (
            "n1 = \"sim\"",
            "node n1 (Elu): a rule wants sim, which can't run it",
        ),
        (
            "n0 = \"host\"",
            "node n0 (conv): a rule wants host, which can't run it",
        ),
    ] {
        let rules = Rules::from_toml(rule).unwrap();
        let error = placement::place(&graph, &targets, &rules).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
}

#[test]
fn batches_end_where_the_host_s_layers_begin() {
    let graph = network(Mode::Multiply);
    let config = Config::default();
    let targets = [
        Target::new("sim", config.clone()),
        Target::host(config.clone()),
    ];
    let program = Arc::new(compile(&graph, &targets, ""));
    let device: Arc<dyn Device> = Arc::new(SimDevice::functional(config));
    let limits = QueueLimits::default();
    let mut session = MultiSession::new(Arc::clone(&program), &[device], limits).unwrap();
    session.run(&[&[1; 192]]).unwrap();
    // conv | Elu | pool to conv | Sigmoid Max | two convs | Tanh | channels, pool, conv; the Softmax is at the end.
    let counters = session.counters();
    assert_eq!(counters.submissions, 4);
    assert_eq!(counters.flushed(FlushReason::NextLayerElsewhere), 3);
    session.run(&[&[2; 192]]).unwrap();
    assert_eq!(session.counters().encoded_batches, 4);
    assert_eq!(session.counters().replayed_batches, 4);
}

#[test]
fn without_the_host_its_layers_are_refused_by_name() {
    let graph = network(Mode::Multiply);
    let config = Config::default();
    let says = "the device has no operator for 5 of the nodes (1 Elu, 1 Max, 1 Sigmoid, 1 Softmax, \
                1 Tanh; the first is n1)";
    let error = lower::compile(&graph, &config, &LowerOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), says);
    let sim = Target::new("sim", config.clone());
    let error = placement::place(&graph, &[sim], &Rules::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("node n1 (Elu): no device has"),
        "{error}"
    );
    let host = [Target::host(config)];
    assert!(placement::place(&graph, &host, &Rules::default()).is_err());
}

/// An operator of the chains that the property test draws.
#[derive(Clone, Debug)]
enum Link {
    Conv(usize),
    Unary(usize),
    Binary(usize),
    Concat,
    Pool,
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![
        (1usize..40).prop_map(Link::Conv),
        (0usize..7).prop_map(Link::Unary),
        (0usize..2).prop_map(Link::Binary),
        Just(Link::Concat),
        Just(Link::Pool),
    ]
}

fn unary(index: usize) -> Op {
    match index {
        0 => host("Sigmoid", 1),
        1 => Op::HardSwish,
        2 => host("Tanh", 1),
        3 => elu(1.0),
        4 => Op::LeakyRelu { alpha: 0.2 },
        5 => softmax(),
        _ => Op::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
    }
}

/// A chain in which two-operand links read an earlier tensor of the same shape, too.
fn chain(links: &[Link], pick: usize) -> QGraph {
    let (mut net, input) = Net::new(&[1, 5, 6, 4]);
    let (mut x, mut seen) = (input, vec![input]);
    for link in links {
        let shape = net.shape(x);
        let alike = seen
            .iter()
            .copied()
            .filter(|s| net.shape(*s) == shape)
            .collect::<Vec<_>>();
        let other = alike[pick % alike.len()];
        x = match link {
            Link::Conv(co) => net.conv(x, *co, 3),
            Link::Unary(i) => net.same(unary(*i), x),
            Link::Binary(i) => {
                let op = [Op::Mul, host("Max", 2)][*i].clone();
                net.push(op, vec![x, other], &shape)
            }
            Link::Concat => {
                let joined = [1, 2 * shape[1], shape[2], shape[3]];
                net.push(Op::Concat { axis: 1 }, vec![x, other], &joined)
            }
            Link::Pool => {
                let window = Window {
                    kernel: [3, 3],
                    stride: [1, 1],
                    dilation: [1, 1],
                    pads: [1; 4].into(),
                };
                net.push(Op::MaxPool { window }, vec![x], &shape)
            }
        };
        seen.push(x);
    }
    net.finish(x, Mode::Multiply)
}

/// The file of a quantised model with host operators and a depthwise convolution.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (mut net, x) = Net::new(&[1, 4, 6, 6]);
    let x = net.conv(x, 8, 3);
    let weights = net.value("dw", &[8, 1, 3, 3], Some(Data::F32(vec![0.25; 72])));
    let window = Window {
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [1; 4].into(),
    };
    let x = net.push(
        Op::Conv { window, group: 8 },
        vec![x, weights],
        &[1, 8, 6, 6],
    );
    let gate = net.same(unary(6), x);
    let x = net.push(Op::Mul, vec![x, gate], &[1, 8, 6, 6]);
    let x = net.push(Op::Concat { axis: 1 }, vec![x, gate], &[1, 16, 6, 6]);
    let x = net.same(softmax(), x);
    net.0.outputs.push(x);
    let image = vec![(0..144).map(|i| i as f32 / 72.0 - 1.0).collect()];
    onnx::save(&quantize::quantize(&net.0, &image, Mode::Multiply).unwrap())
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn corrupted_models_are_placed_or_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = FILE.clone();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let Ok(graph) = onnx::load(&bytes).map(|graph| passes::quantized(&graph)) else {
            return Ok(());
        };
        let config = Config::default();
        let targets = [Target::new("sim", config.clone()), Target::host(config)];
        if let Ok(graph) = graph
            && let Ok(placed) = placement::place(&graph, &targets, &Rules::default())
            && graph.tensors.iter().all(|t| t.chw.iter().product::<usize>() < 1 << 16)
            && let Ok(program) = placement::compile(&graph, &targets, &placed, &LowerOptions::default())
        {
            program.validate().unwrap();
            let image = vec![1; graph.tensors[graph.inputs[0].0].chw.iter().product()];
            prop_assert!(reference::run(&graph, &image).is_ok());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_chain_of_layers_and_host_operators_gives_the_reference_s_bits(
        links in prop::collection::vec(link(), 1..7), pick in any::<usize>(), two in any::<bool>(),
    ) {
        let graph = chain(&links, pick);
        let config = Config::default();
        let mut targets = vec![Target::new("a", config.clone())];
        let mut rules = String::new();
        if two {
            targets.push(Target::new("b", config.clone()));
            let device_node = |n: &&vta_compiler::qgraph::QNode| !matches!(n.op, QOp::Host { .. });
            if let Some(last) = graph.nodes.iter().rfind(device_node) {
                rules = format!("{} = \"b\"", last.name);
            }
        }
        targets.push(Target::host(config.clone()));
        let program = Arc::new(compile(&graph, &targets, &rules));
        prop_assert_eq!(host_steps(&program), host_nodes(&graph));
        let [device, other, _] = simulators(&config);
        let devices = [device, other];
        let used: Vec<_> = program.parts.iter().map(|p| Arc::clone(&devices[p.target])).collect();
        check(&graph, &program, &used);
    }
}
