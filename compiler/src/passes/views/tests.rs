use proptest::prelude::*;
use vta_program::HostKernel;

use super::*;
use crate::graph::{Data, Element, OnnxAttribute, OnnxOp};
use crate::host::Segment;

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
        let tables = views(&grown.0, &[0, 1]);
        let whole = Segment::new(grown.0.clone(), &[]).unwrap();
        let segment = Segment::with_tables(grown.0, &[], &tables).unwrap();
        let again = Segment::from_bytes(&segment.to_bytes().unwrap()).unwrap();
        let count = shape.iter().product();
        for round in 0..2u64 {
            let given = [1u64, 2].map(|which| {
                let value = |i: usize| {
                    let x = (i as u64 + 1).wrapping_mul(seed | 1).wrapping_add(which * 77 + round);
                    i16::from((x >> 13) as i8)
                };
                (0..count).map(value).collect::<Vec<i16>>()
            });
            let given = [&given[0][..], &given[1]];
            let expected = whole.run(&given).unwrap();
            prop_assert_eq!(&segment.run(&given).unwrap(), &expected);
            prop_assert_eq!(again.run(&given).unwrap(), expected);
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
        let found = views(&grown.0, &[0]);
        assert_eq!(found[0].is_some(), expected, "{steps:?}");
    }
    // The square of a matrix with its transpose.
    let mut grown = Grown(Graph::default());
    let x = grown.input(&[3, 3]);
    let other = grown.turned(x, 1);
    let y = grown.push(Op::Mul, &[x, other], &[3, 3]);
    let y = grown.rounded(y, 0.1, 0);
    grown.0.outputs = vec![y];
    assert_eq!(views(&grown.0, &[0]), [None]);
}

#[test]
fn tables_that_a_file_makes_up_are_refused() {
    let mut grown = Grown(Graph::default());
    let x = grown.input(&[2, 3]);
    let y = grown.step(x, &Step::Transpose(1));
    let y = grown.rounded(y, 0.1, 0);
    grown.0.outputs = vec![y];
    let tables = views(&grown.0, &[0]);
    let segment = Segment::with_tables(grown.0, &[], &tables).unwrap();
    // Of the values that it gives.
    assert_eq!(segment.work().values, 6);
    let bytes = segment.to_bytes().unwrap();
    let own = br#"[{"input":0,"offset":0,"dimensions":[[3,1],[2,3]]}]"#;
    let at = bytes
        .windows(own.len())
        .position(|part| part == own)
        .unwrap();
    for other in [
        &br#"[{"input":1,"offset":0,"dimensions":[[3,1],[2,3]]}]"#[..],
        br#"[{"input":0,"offset":1,"dimensions":[[3,1],[2,3]]}]"#,
        br#"[{"input":0,"offset":0,"dimensions":[[3,1],[3,3]]}]"#,
        br#"[{"input":0,"offset":0,"dimensions":[[3,1],[2,4]]}]"#,
        br#"[{"input":0,"offset":0,"dimensions":[[3,1] [2,3]]}]"#,
    ] {
        let mut changed = bytes.clone();
        changed[at..at + other.len()].copy_from_slice(other);
        assert!(Segment::from_bytes(&changed).is_err());
        assert_ne!(changed, bytes);
    }
    // Other values than the file's, but as many, and none beyond.
    let mut changed = bytes;
    let other = br#"[{"input":0,"offset":0,"dimensions":[[2,1],[3,2]]}]"#;
    changed[at..at + other.len()].copy_from_slice(other);
    let changed = Segment::from_bytes(&changed).unwrap();
    assert_eq!(changed.run(&[&[1; 6]]).unwrap()[0].len(), 6);
}
