//! What the host computes of one tensor value by value goes on in its tables, and what else there is stays as it was.

use crate::builder::Builder;
use proptest::prelude::*;
use vta_compiler::graph::{Data, Graph, Op, ValueId};
use vta_compiler::qgraph::{HostNeeds, QGraph, QOp, TensorId, Window};
use vta_compiler::{float, onnx, passes, reference};

/// A network whose values are all rounded.
struct Net {
    net: Builder,
    shape: [usize; 4],
    made: Vec<Made>,
}

/// What was rounded so far.
#[derive(Clone, Copy)]
struct Made {
    id: ValueId,
    /// The largest of its values, of which a step is a hundredth.
    most: f32,
    /// How far the device may be from the file, where each of its layers may round a tie the other way.
    off: f32,
}

/// What is made of earlier values, the last of which is 0.
#[derive(Clone, Debug)]
enum Link {
    Function(&'static str, usize),
    Leaky(usize),
    HardSwish(usize),
    Product(usize, usize),
    Sum(usize, usize),
    Difference(usize, usize),
    /// A product with a constant, or with one for each channel.
    Factor(usize, bool),
    /// A clamp at 0.
    Relu(usize),
    Softmax(usize),
    Pool(usize),
}

fn link() -> impl Strategy<Value = Link> {
    let at = || 0usize..3;
    prop_oneof![
        4 => (prop::sample::select(vec!["Sigmoid", "Tanh", "Erf"]), at()).prop_map(|(k, a)| Link::Function(k, a)),
        1 => at().prop_map(Link::Leaky),
        1 => at().prop_map(Link::HardSwish),
        4 => (at(), at()).prop_map(|(a, b)| Link::Product(a, b)),
        2 => (at(), at()).prop_map(|(a, b)| Link::Sum(a, b)),
        1 => (at(), at()).prop_map(|(a, b)| Link::Difference(a, b)),
        1 => (at(), any::<bool>()).prop_map(|(a, each)| Link::Factor(a, each)),
        1 => at().prop_map(Link::Relu),
        1 => at().prop_map(Link::Softmax),
        1 => at().prop_map(Link::Pool),
    ]
}

impl Net {
    fn new(shape: [usize; 4]) -> Self {
        let mut net = Builder::default();
        let x = net.input(&shape);
        let id = net.rounded(x, 0.03);
        let made = vec![Made {
            id,
            most: 0.03 * 127.0,
            off: 0.0,
        }];
        Self { net, shape, made }
    }

    fn at(&self, back: usize) -> Made {
        self.made[self.made.len().saturating_sub(1 + back)]
    }

    fn constant(&mut self, shape: &[usize], data: Vec<f32>) -> ValueId {
        let name = format!("c{}", self.net.0.values.len());
        self.net.value(&name, shape, Some(Data::F32(data)))
    }

    fn link(&mut self, link: &Link) {
        let shape = self.shape;
        let (made, most, off) = match *link {
            Link::Function(kind, a) => {
                let x = self.at(a);
                let slope = [("Sigmoid", 0.25), ("Tanh", 1.0), ("Erf", 1.129)];
                let slope = slope.iter().find(|s| s.0 == kind).unwrap().1;
                let made = self.net.kept(kind, &[x.id], &shape, &[]);
                (made, 1.0, slope * x.off)
            }
            Link::Leaky(a) => {
                let x = self.at(a);
                let op = Op::LeakyRelu { alpha: 0.2 };
                (self.net.push(op, &[x.id], &shape), x.most, x.off)
            }
            Link::HardSwish(a) => {
                let x = self.at(a);
                let made = self.net.push(Op::HardSwish, &[x.id], &shape);
                (made, x.most, 1.5 * x.off)
            }
            Link::Product(a, b) => {
                let (x, y) = (self.at(a), self.at(b));
                // Numbers end at 128 steps.
                let off = 1.28 * (x.most * y.off + y.most * x.off);
                let made = self.net.push(Op::Mul, &[x.id, y.id], &shape);
                (made, x.most * y.most, off)
            }
            Link::Sum(a, b) | Link::Difference(a, b) => {
                let (x, y) = (self.at(a), self.at(b));
                let is_sum = matches!(link, Link::Sum(..));
                let op = if is_sum { Op::Add } else { Op::Sub };
                let made = self.net.push(op, &[x.id, y.id], &shape);
                (made, x.most + y.most, x.off + y.off)
            }
            Link::Factor(a, each) => {
                let x = self.at(a);
                let count = if each { shape[1] } else { 1 };
                let data = (0..count).map(|i| 0.7 - 0.3 * i as f32).collect();
                let c = self.constant(&[1, count, 1, 1], data);
                let most = x.most * (0.3 * count as f32 + 0.7);
                let made = self.net.push(Op::Mul, &[x.id, c], &shape);
                (made, most, 0.7 * x.off)
            }
            Link::Relu(a) => {
                let x = self.at(a);
                (self.net.push(Op::Relu, &[x.id], &shape), x.most, x.off)
            }
            Link::Softmax(a) => {
                let x = self.at(a);
                let made = self.net.kept("Softmax", &[x.id], &shape, &[]);
                (made, 1.0, 0.5 * x.off)
            }
            Link::Pool(a) => {
                let x = self.at(a);
                let window = Window {
                    kernel: [3, 3],
                    pads: [1; 4].into(),
                    ..Window::whole([3, 3])
                };
                let made = self.net.push(Op::MaxPool { window }, &[x.id], &shape);
                (made, x.most, x.off)
            }
        };
        // Values far from the bounds, and some beyond.
        let most = most.clamp(0.01, 8.0);
        let id = self.net.rounded(made, most / 100.0);
        let off = off + most / 100.0;
        self.made.push(Made { id, most, off });
    }

    /// With some values as outputs, as a file has it.
    fn finish(self, outputs: &[ValueId]) -> Graph {
        onnx::load(&onnx::save(&self.net.finish(outputs))).unwrap()
    }
}

fn image(graph: &Graph, seed: u64) -> Vec<f32> {
    let len: usize = graph.values[graph.inputs[0].0].shape.iter().product();
    let value = |i: usize| ((i as u64 * 7919 + seed % 1000) % 255) as f32 * 0.03 - 3.8;
    (0..len).map(value).collect()
}

/// How far each output of a network is from what the engine makes of the file, at most.
fn compared(graph: &Graph, network: &QGraph, seed: u64) -> Vec<f32> {
    let image = image(graph, seed);
    let int8 = |v: &f32| (v / 0.03).round_ties_even().clamp(-128.0, 127.0) as i16;
    let int8: Vec<i16> = image.iter().map(int8).collect();
    let values = reference::run(network, &int8).unwrap();
    let unfused = passes::unfused(graph).unwrap();
    let deviations = reference::compare(network, &values, &unfused).unwrap();
    assert!(deviations.is_empty(), "{deviations:?}");
    let of_file = float::run(graph, &image).unwrap();
    let far = |(id, of_file): (&TensorId, &Vec<f32>)| {
        let tensor = &network.tensors[id.0];
        let real = |q: &i16| (i32::from(*q) - tensor.zero) as f32 * tensor.scale;
        let both = values[id.0].iter().map(real).zip(of_file);
        both.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    network.outputs.iter().zip(&of_file).map(far).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tables_change_no_value_by_more_than_a_step(
        links in prop::collection::vec(link(), 1..8), more in 0usize..12, seed: u64,
    ) {
        let mut net = Net::new([1, 3, 5, 5]);
        links.iter().for_each(|link| net.link(link));
        let mut outputs = vec![net.made[net.made.len() - 1]];
        // A value on the way is an output, too.
        outputs.extend(net.made.get(1 + more));
        let ids: Vec<ValueId> = outputs.iter().map(|made| made.id).collect();
        let graph = net.finish(&ids);
        let network = passes::quantized(&graph).unwrap();
        let far = compared(&graph, &network, seed);
        // The host alone is never away from the file.
        let (device, ..) = layers(&network);
        for (far, made) in far.iter().zip(&outputs) {
            let step = made.most / 100.0;
            let most = if device == 0 { 0.0 } else { made.off };
            prop_assert!(*far <= most + 1e-3 * step, "{} steps, {} allowed", far / step, most / step);
        }
    }
}

/// Layers of the device and of the host, and what the host computes.
fn layers(network: &QGraph) -> (usize, usize, String) {
    let is_host = |op: &QOp| matches!(op, QOp::Host { .. });
    let hosts = network.nodes.iter().filter(|n| is_host(&n.op)).count();
    (
        network.nodes.len() - hosts,
        hosts,
        HostNeeds::of(network).kinds,
    )
}

#[test]
fn what_both_together_read_one_tensor_is_joined() {
    use Link::{Factor, Function, Leaky, Pool, Product, Relu, Softmax, Sum};
    let sigmoid = || Function("Sigmoid", 0);
    for (links, extra, expected) in [
        // A SiLU, and what comes before and behind it.
        (
            vec![sigmoid(), Product(0, 1)],
            None,
            (0, 1, "1 Mul, 1 Sigmoid"),
        ),
        (
            vec![Leaky(0), sigmoid(), Product(0, 1)],
            None,
            (0, 1, "1 LeakyRelu, 1 Mul, 1 Sigmoid"),
        ),
        (
            vec![sigmoid(), Product(0, 1), Sum(0, 2)],
            None,
            (0, 1, "1 Add, 1 Mul, 1 Sigmoid"),
        ),
        (
            vec![Factor(0, false), sigmoid()],
            None,
            (0, 1, "1 Mul, 1 Sigmoid"),
        ),
        // What something else reads isn't.
        (vec![sigmoid(), Product(0, 1)], Some(1), (1, 1, "1 Sigmoid")),
        (
            vec![sigmoid(), Product(0, 1), Sum(0, 1)],
            None,
            (2, 1, "1 Sigmoid"),
        ),
        // Nor what differs between channels, or reads other places, or is the device's alone.
        (vec![Factor(0, true), sigmoid()], None, (1, 1, "1 Sigmoid")),
        (vec![Pool(0), sigmoid()], None, (1, 1, "1 Sigmoid")),
        (vec![Softmax(0), Product(0, 1)], None, (1, 1, "1 Softmax")),
        (vec![Leaky(0), Product(0, 1)], None, (2, 0, "")),
        (vec![Relu(0), Leaky(0), Sum(0, 1)], None, (3, 0, "")),
    ] {
        let mut net = Net::new([1, 3, 5, 5]);
        links.iter().for_each(|link| net.link(link));
        let mut outputs = vec![net.made[net.made.len() - 1]];
        outputs.extend(extra.map(|at: usize| net.made[at]));
        let ids: Vec<ValueId> = outputs.iter().map(|made| made.id).collect();
        let graph = net.finish(&ids);
        let network = passes::quantized(&graph).unwrap();
        let (device, hosts, kinds) = layers(&network);
        assert_eq!(
            (device, hosts, &kinds[..]),
            expected,
            "{links:?}\n{network}"
        );
        for (far, made) in compared(&graph, &network, 5).iter().zip(&outputs) {
            assert!(*far <= 1.01 * made.most / 100.0, "{links:?}");
        }
    }
}
