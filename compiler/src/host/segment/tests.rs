use super::*;
use crate::graph::{Entries, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use proptest::prelude::*;

/// `x` of int8, a node in floats, and `y` of int8, all `[1, 1, 1, n]`.
fn segment(op: Op, n: usize, [scale, to]: [(f32, i8); 2]) -> Result<Segment, HostError> {
    let shape = vec![1, 1, 1, n];
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: Vec<usize>, data: Option<Data>| {
        graph.values.push(Value::new(name, shape, data));
        ValueId(graph.values.len() - 1)
    };
    let [x, real, made, y] = ["x", "real", "made", "y"].map(|n| value(n, shape.clone(), None));
    let mut steps = |name: &str, (scale, zero): (f32, i8)| {
        let scale = value(
            &format!("{name}.scale"),
            vec![],
            Some(Data::F32(vec![scale])),
        );
        let zero = value(&format!("{name}.zero"), vec![], Some(Data::I8(vec![zero])));
        [scale, zero]
    };
    let ([a, b], [c, d]) = (steps("x", scale), steps("y", to));
    for id in [x, y] {
        graph.values[id.0].element = Element::I8;
    }
    for (op, inputs, output) in [
        (Op::DequantizeLinear { axis: 1 }, vec![x, a, b], real),
        (op, vec![real], made),
        (Op::QuantizeLinear { axis: 1 }, vec![made, c, d], y),
    ] {
        graph.nodes.push(Node {
            name: format!("n{}", graph.nodes.len()),
            op,
            inputs,
            output,
        });
    }
    (graph.inputs, graph.outputs) = (vec![x], vec![y]);
    Segment::new(graph, &[("n".to_owned(), "Relu".to_owned())])
}

#[test]
fn results_are_quantized_as_onnx_does() {
    let leaky = Op::LeakyRelu { alpha: 0.5 };
    let call = segment(leaky, 7, [(0.5, 0), (0.5, 0)]).unwrap();
    // Halves go to the even neighbour.
    let out = call.run(&[&[-1, -3, -5, 7, 127, -128, 0]]).unwrap();
    assert_eq!(out, [[0, -2, -2, 7, 127, -64, 0]]);
    // Zero points, and values beyond the range.
    let moved = segment(Op::Relu, 5, [(1.0, -3), (0.25, 100)]).unwrap();
    let out = moved.run(&[&[-3, -2, 3, 127, -128]]).unwrap();
    assert_eq!(out, [[100, 104, 124, 127, 100]]);
    let found = moved.run(&[&[1, 2]]).unwrap_err();
    let (expected, given) = (vec![5], vec![2]);
    assert_eq!(
        found,
        HostError::Inputs {
            expected,
            found: given
        }
    );
    assert!(moved.run(&[]).is_err());
}

/// Quotients beside ties, where a product with the reciprocal rounds elsewhere.
#[test]
fn a_scale_divides() {
    let mut differ = 0;
    for k in 1..200u32 {
        let (from, to) = (0.001 * k as f32, 0.0017 * (k % 13 + 1) as f32);
        let x: Vec<i8> = (-128..=127).collect();
        let call = segment(Op::Identity, 256, [(from, 0), (to, 0)]).unwrap();
        let found = call.run(&[&x]).unwrap().remove(0);
        for (&x, found) in x.iter().zip(found) {
            let real = f32::from(x) * from;
            let round = |y: f32| y.round_ties_even().clamp(-128.0, 127.0) as i8;
            assert_eq!(found, round(real / to), "{x} * {from} / {to}");
            let other = round(real * (1.0 / to)) != found;
            differ += usize::from(other);
            // A tensor of one value is no exception.
            if other {
                let call = segment(Op::Identity, 1, [(from, 0), (to, 0)]).unwrap();
                assert_eq!(call.run(&[&[x]]).unwrap(), [[found]]);
            }
        }
    }
    assert!(differ > 0, "no case tells a product from a quotient");
}

#[test]
fn segments_are_read_from_their_bytes_or_refused() {
    let call = segment(Op::Relu, 4, [(0.5, 0), (0.25, 1)]).unwrap();
    let bytes = call.to_bytes().unwrap();
    let again = Segment::from_bytes(&bytes).unwrap();
    assert_eq!(again, call);
    assert_eq!(again.nodes(), call.nodes());
    // A table gives as many as it has places.
    let work = HostWork { macs: 0, values: 4 };
    assert_eq!([call.work(), again.work()], [work; 2]);
    assert_eq!(again.sizes(), Some((vec![4], vec![4])));
    assert_ne!(segment(Op::Relu, 4, [(0.5, 0), (0.25, 2)]).unwrap(), call);
    assert_eq!((call.ops(), call.kinds()), (1, vec!["Relu"]));
    for cut in 0..bytes.len() {
        assert!(Segment::from_bytes(&bytes[..cut]).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x41;
        let small = |port: &Port| values(port).is_some_and(|n| n < 1 << 12);
        if let Ok(changed) = Segment::from_bytes(&bytes)
            && changed
                .model
                .inputs
                .iter()
                .chain(&changed.model.outputs)
                .all(small)
        {
            let x: Vec<Vec<i8>> = changed
                .model
                .inputs
                .iter()
                .filter_map(values)
                .map(|n| vec![1; n])
                .collect();
            let x: Vec<&[i8]> = x.iter().map(Vec::as_slice).collect();
            // It gives what it says or an error.
            if let Ok(made) = changed.run(&x) {
                let sizes: Vec<usize> = made.iter().map(Vec::len).collect();
                assert_eq!(changed.sizes().unwrap().1, sizes);
            }
        }
    }
}

#[test]
fn floats_at_the_edges_are_refused() {
    let mut graph = Graph::default();
    for name in ["x", "y"] {
        graph.values.push(Value::new(name, vec![1, 4], None));
    }
    graph.nodes.push(Node {
        name: "n".to_owned(),
        op: Op::Relu,
        inputs: vec![ValueId(0)],
        output: ValueId(1),
    });
    (graph.inputs, graph.outputs) = (vec![ValueId(0)], vec![ValueId(1)]);
    let error = Segment::new(graph, &[]).unwrap_err().to_string();
    assert_eq!(error, "x is F32 [1, 4]");
    let none = Segment::new(Graph::default(), &[]).unwrap_err().to_string();
    assert_eq!(none, "it takes and gives 0 tensors");
}

/// What a random segment does next with its values.
#[derive(Clone, Debug)]
enum Step {
    Function(&'static str),
    /// `x * sigmoid(x)`, rounded between or not.
    Swish(bool),
    /// A product with a constant, or with one for each entry of the last dimension.
    Factor(f32, bool),
    Softmax,
    Transpose(u64),
    /// Other dimensions of as many values.
    Reshape(u64),
    /// Some entries of a dimension.
    Slice(u64),
    /// A product with the values that are there, turned if the dimensions allow it.
    Square(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::sample::select(vec!["Sigmoid", "Tanh", "Erf", "Abs"]).prop_map(Step::Function),
        2 => any::<bool>().prop_map(Step::Swish),
        2 => (-2f32..2.0, any::<bool>()).prop_map(|(by, each)| Step::Factor(by, each)),
        1 => Just(Step::Softmax),
        4 => any::<u64>().prop_map(Step::Transpose),
        4 => any::<u64>().prop_map(Step::Reshape),
        3 => any::<u64>().prop_map(Step::Slice),
        1 => any::<u64>().prop_map(Step::Square),
    ]
}

/// A graph that grows by steps.
struct Grown(Graph);

impl Grown {
    fn value(&mut self, shape: &[usize], data: Option<Data>) -> ValueId {
        let name = format!("v{}", self.0.values.len());
        self.0.value(name, shape.to_vec(), data)
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let output = self.value(shape, None);
        let name = format!("n{}", self.0.nodes.len());
        self.0.push(name, op, inputs.to_vec(), output);
        output
    }

    fn onnx(
        &mut self,
        kind: &'static str,
        inputs: &[ValueId],
        shape: &[usize],
        attributes: &[(&str, OnnxAttribute)],
    ) -> ValueId {
        let attributes = attributes.iter().map(|(n, v)| ((*n).to_owned(), v.clone()));
        let op = OnnxOp::new(kind, inputs.len(), attributes.collect());
        self.push(Op::Onnx(Box::new(op)), inputs, shape)
    }

    fn steps(&mut self, scale: f32, zero: i8) -> [ValueId; 2] {
        let scale = self.value(&[], Some(Data::F32(vec![scale])));
        [scale, self.value(&[], Some(Data::I8(vec![zero])))]
    }

    fn rounded(&mut self, x: ValueId, scale: f32, zero: i8) -> ValueId {
        let shape = self.0.values[x.0].shape.clone();
        let [scale, zero] = self.steps(scale, zero);
        let y = self.push(Op::QuantizeLinear { axis: 0 }, &[x, scale, zero], &shape);
        self.0.values[y.0].element = Element::I8;
        y
    }

    fn real(&mut self, x: ValueId, scale: f32, zero: i8) -> ValueId {
        let shape = self.0.values[x.0].shape.clone();
        let [scale, zero] = self.steps(scale, zero);
        self.push(Op::DequantizeLinear { axis: 0 }, &[x, scale, zero], &shape)
    }

    fn input(&mut self, shape: &[usize]) -> ValueId {
        let x = self.value(shape, None);
        self.0.values[x.0].element = Element::I8;
        self.0.inputs.push(x);
        self.real(x, 0.04, 3)
    }

    fn turned(&mut self, x: ValueId, seed: u64) -> ValueId {
        let shape = self.0.values[x.0].shape.clone();
        let mut perm: Vec<usize> = (0..shape.len()).collect();
        perm.rotate_left(seed as usize % shape.len());
        if seed.is_multiple_of(3) {
            perm.swap(0, shape.len() - 1);
        }
        let to: Vec<usize> = perm.iter().map(|&at| shape[at]).collect();
        let perm = OnnxAttribute::Ints(perm.iter().map(|&at| at as i64).collect());
        self.onnx("Transpose", &[x], &to, &[("perm", perm)])
    }

    fn step(&mut self, x: ValueId, step: &Step) -> ValueId {
        let shape = self.0.values[x.0].shape.clone();
        match *step {
            Step::Function(kind) => self.onnx(kind, &[x], &shape, &[]),
            Step::Swish(rounds) => {
                let mut gate = self.onnx("Sigmoid", &[x], &shape, &[]);
                if rounds {
                    gate = self.rounded(gate, 1.0 / 255.0, -128);
                    gate = self.real(gate, 1.0 / 255.0, -128);
                }
                self.push(Op::Mul, &[x, gate], &shape)
            }
            Step::Factor(by, each) => {
                let count = if each { shape[shape.len() - 1] } else { 1 };
                let data = (0..count).map(|i| by + i as f32 * 0.1).collect();
                let factor = self.value(&[count], Some(Data::F32(data)));
                self.push(Op::Mul, &[x, factor], &shape)
            }
            Step::Softmax => {
                let axis = ("axis", OnnxAttribute::Int(-1));
                self.onnx("Softmax", &[x], &shape, &[axis])
            }
            Step::Transpose(seed) => self.turned(x, seed),
            Step::Reshape(seed) => {
                let count: usize = shape.iter().product();
                let first = (1..=count).filter(|n| count.is_multiple_of(*n));
                let first: Vec<usize> = first.collect();
                let first = first[seed as usize % first.len()];
                let to = if seed % 2 == 0 {
                    vec![first, count / first]
                } else {
                    [&[first][..], &shape[1..], &[1]].concat()
                };
                let to = if to.iter().product::<usize>() == count {
                    to
                } else {
                    vec![count]
                };
                let sizes = Data::I64(to.iter().map(|&d| d as i64).collect());
                let sizes = self.value(&[to.len()], Some(sizes));
                self.onnx("Reshape", &[x, sizes], &to, &[])
            }
            Step::Slice(seed) => {
                let (axis, step) = (seed as usize % shape.len(), 1 + seed as usize / 16 % 2);
                let start = seed as usize / 64 % shape[axis];
                let len = (shape[axis] - start).div_ceil(step);
                let mut to = shape;
                to[axis] = len;
                let entries = vec![Entries {
                    axis,
                    start,
                    len,
                    step,
                }];
                self.push(Op::Slice { entries }, &[x], &to)
            }
            Step::Square(seed) => {
                let other = self.turned(x, seed);
                let other = if self.0.values[other.0].shape == shape {
                    other
                } else {
                    x
                };
                self.push(Op::Mul, &[x, other], &shape)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tables_are_what_the_engine_computes(
        shape in prop::collection::vec(1usize..6, 2..5), large in 1usize..9,
        outputs in prop::collection::vec(prop::collection::vec(step(), 0..6), 1..4), seed: u64,
    ) {
        let mut grown = Grown(Graph::default());
        let shape = [&shape[..], &[large]].concat();
        let inputs = [grown.input(&shape), grown.input(&shape)];
        for (index, steps) in outputs.iter().enumerate() {
            let from = inputs[index % 2];
            let y = steps.iter().fold(from, |x, step| grown.step(x, step));
            let y = grown.rounded(y, 0.013, -7);
            grown.0.outputs.push(y);
        }
        let segment = Segment::new(grown.0, &[]).unwrap();
        let count = shape.iter().product();
        for round in 0..2u64 {
            let given = [1u64, 2].map(|which| {
                let value = |i: usize| {
                    let x = (i as u64 + 1).wrapping_mul(seed | 1).wrapping_add(which * 77 + round);
                    (x >> 13) as i8
                };
                (0..count).map(value).collect::<Vec<i8>>()
            });
            let found = segment.run(&[&given[0], &given[1]]).unwrap();
            let whole = segment.model.run(given.map(Data::I8).to_vec()).unwrap();
            let whole: Vec<Data> = whole;
            prop_assert_eq!(found.into_iter().map(Data::I8).collect::<Vec<_>>(), whole);
        }
    }
}

#[test]
fn what_is_a_function_of_one_place_is_a_table() {
    let (silu, softmax) = (Step::Swish(true), Step::Softmax);
    let split = Step::Slice(4 + 64);
    for (steps, expected) in [
        (vec![silu.clone()], true),
        (
            vec![
                silu.clone(),
                Step::Transpose(1),
                split.clone(),
                Step::Reshape(2),
            ],
            true,
        ),
        (vec![Step::Factor(0.5, false)], true),
        (vec![Step::Factor(0.5, true)], false),
        (vec![silu.clone(), softmax], false),
        // Of a product of values at two places neither is enough.
        (vec![Step::Square(2)], true),
        (vec![Step::Reshape(0), Step::Square(0)], true),
        (vec![split, Step::Square(1)], true),
    ] {
        let mut grown = Grown(Graph::default());
        let x = grown.input(&[2, 3, 4]);
        let y = steps.iter().fold(x, |x, step| grown.step(x, step));
        let y = grown.rounded(y, 0.1, 0);
        grown.0.outputs = vec![y];
        let segment = Segment::new(grown.0, &[]).unwrap();
        assert_eq!(segment.model.tables[0].is_some(), expected, "{steps:?}");
    }
    // The square of a matrix with its transpose.
    let mut grown = Grown(Graph::default());
    let x = grown.input(&[3, 3]);
    let other = grown.turned(x, 1);
    let y = grown.push(Op::Mul, &[x, other], &[3, 3]);
    let y = grown.rounded(y, 0.1, 0);
    grown.0.outputs = vec![y];
    let segment = Segment::new(grown.0, &[]).unwrap();
    assert_eq!(segment.model.tables, [None]);
}
