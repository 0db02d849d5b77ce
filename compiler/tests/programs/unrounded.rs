//! Outputs that nothing rounds: sums that the device computes exactly and gives in digits.

use crate::builder::Builder;
use crate::common::{Rng, check, config, window, zero};
use proptest::prelude::*;
use vta_compiler::graph::{Data, Element, Graph, MatMulForm, Op, ValueId};
use vta_compiler::onnx;
use vta_compiler::qgraph::{HostNeeds, Pads, QGraph, Window};
use vta_compiler::{float, passes, reference};

/// The step of every input.
const STEP: f32 = 0.25;

/// The last operator of a network.
#[derive(Clone, Copy, Debug)]
enum Last {
    Mean,
    Average(bool),
    Conv,
    Transposed,
    Dense,
}

/// What is random of a network.
#[derive(Clone, Debug)]
struct Given {
    last: Last,
    chw: [usize; 3],
    /// Channels of a convolution's result.
    to: usize,
    window: Window,
    zero: i16,
    /// The magnitude of biases, in a sum's steps, and whether they lie between these.
    bias: Option<(f64, bool)>,
    /// Whether a Relu follows.
    relu: bool,
    seed: u64,
}

fn given() -> impl Strategy<Value = Given> {
    let last = prop_oneof![
        Just(Last::Mean),
        any::<bool>().prop_map(Last::Average),
        Just(Last::Conv),
        Just(Last::Conv),
        Just(Last::Transposed),
        Just(Last::Dense),
    ];
    let bias = prop::option::of(((0f64..27.0).prop_map(f64::exp2), any::<bool>()));
    let shape = (prop::array::uniform3(1usize..20), 1usize..20, window(4));
    (
        last,
        shape,
        zero(),
        bias,
        prop::bool::weighted(0.2),
        any::<u64>(),
    )
        .prop_map(|(last, (chw, to, window), zero, bias, relu, seed)| Given {
            last,
            chw,
            to,
            window,
            zero: zero as i16,
            bias,
            relu,
            seed,
        })
}

/// Integers less a zero point, in steps: DequantizeLinear of a constant.
fn constant(b: &mut Builder, data: Data, shape: &[usize], scale: Vec<f32>, axis: usize) -> ValueId {
    let channels = [scale.len()];
    let zero = match &data {
        Data::I32(_) => Data::I32(vec![0; scale.len()]),
        _ => Data::I8(vec![0; scale.len()]),
    };
    let element = data.element();
    let int = b.value("int", shape, Some(data));
    b.0.values[int.0].element = element;
    let scale = b.value("scale", &channels, Some(Data::F32(scale)));
    let zero = b.value("zero", &channels, Some(zero));
    b.push(Op::DequantizeLinear { axis }, &[int, scale, zero], shape)
}

/// Weights with a step for each output channel, which is `axis`, and a bias where there is one.
fn parameters(
    b: &mut Builder,
    given: &Given,
    shape: &[usize],
    axis: usize,
) -> (Vec<ValueId>, Vec<f32>) {
    let mut rng = Rng(given.seed);
    let step = |rng: &mut Rng| (1 + rng.next() % 9) as f32 / 64.0;
    let scale: Vec<f32> = (0..shape[axis]).map(|_| step(&mut rng)).collect();
    let steps: Vec<f32> = scale.iter().map(|s| s * STEP).collect();
    let weights = Data::I8(rng.int8(shape.iter().product()));
    let mut all = vec![constant(b, weights, shape, scale, axis)];
    if let Some((far, between)) = given.bias {
        let values = steps
            .iter()
            .map(|_| (rng.next() % 2048) as f64 / 1024.0 - 1.0);
        let values: Vec<f64> = values.map(|v| v * far).collect();
        all.push(match between {
            true => {
                let real = values
                    .iter()
                    .zip(&steps)
                    .map(|(v, s)| (v * f64::from(*s)) as f32);
                b.value("bias", &[steps.len()], Some(Data::F32(real.collect())))
            }
            false => {
                let whole = Data::I32(values.iter().map(|v| v.round() as i32).collect());
                constant(b, whole, &[steps.len()], steps.clone(), 0)
            }
        });
    }
    (all, steps)
}

/// A network of one rounded input, and half of a sum's step for each channel of its output; `None`
/// where the window doesn't fit.
fn network(given: &Given) -> Option<(Graph, Vec<f32>)> {
    let mut b = Builder::default();
    let ([c, h, w], window) = (given.chw, given.window);
    let x = b.input(&[1, c, h, w]);
    let scale = b.value("step", &[], Some(Data::F32(vec![STEP])));
    let zero = b.value("point", &[], Some(Data::I8(vec![given.zero as i8])));
    let shape = [1, c, h, w];
    let int8 = b.push(Op::QuantizeLinear { axis: 1 }, &[x, scale, zero], &shape);
    b.0.values[int8.0].element = Element::I8;
    let x = b.push(
        Op::DequantizeLinear { axis: 1 },
        &[int8, scale, zero],
        &shape,
    );
    let (kernel, [oh, ow]) = (window.kernel, window.output(h, w)?);
    let covered = (0..2).all(|axis| {
        let pads = [window.pads.before(), window.pads.after()];
        pads.iter().all(|pads| pads[axis] < window.kernel[axis])
    });
    let (mut y, steps) = match given.last {
        Last::Mean => {
            let area = (h * w) as f32;
            let y = b.push(Op::GlobalAveragePool, &[x], &[1, c, 1, 1]);
            (b.push(Op::Flatten, &[y], &[1, c]), vec![STEP / area; c])
        }
        Last::Average(count_include_pad) => {
            let window = Window {
                dilation: [1, 1],
                ..window
            };
            let [oh, ow] = window.output(h, w).filter(|_| covered)?;
            let op = Op::AveragePool {
                window,
                count_include_pad,
            };
            let step = STEP / window.area() as f32;
            (b.push(op, &[x], &[1, c, oh, ow]), vec![step; c])
        }
        Last::Conv => {
            let shape = [given.to, c, kernel[0], kernel[1]];
            let (all, steps) = parameters(&mut b, given, &shape, 0);
            let inputs = [&[x], &all[..]].concat();
            let op = Op::Conv { window, group: 1 };
            (b.push(op, &inputs, &[1, given.to, oh, ow]), steps)
        }
        Last::Transposed => {
            let window = Window {
                stride: [2, 2],
                ..Window::whole([2, 2])
            };
            let (all, steps) = parameters(&mut b, given, &[c, given.to, 2, 2], 1);
            let inputs = [&[x], &all[..]].concat();
            let op = Op::ConvTranspose {
                window,
                group: 1,
                output_padding: [0, 0],
            };
            (b.push(op, &inputs, &[1, given.to, 2 * h, 2 * w]), steps)
        }
        Last::Dense => {
            let flat = b.push(Op::Flatten, &[x], &[1, c * h * w]);
            let (all, steps) = parameters(&mut b, given, &[given.to, c * h * w], 0);
            let inputs = [&[flat], &all[..]].concat();
            (
                b.push(Op::Gemm { trans_b: true }, &inputs, &[1, given.to]),
                steps,
            )
        }
    };
    if given.relu {
        let shape = b.0.values[y.0].shape.clone();
        y = b.push(Op::Relu, &[y], &shape);
    }
    Some((
        b.finish(&[y]),
        steps.iter().map(|step| step / 2.0).collect(),
    ))
}

/// Whether the device gives a network's sums: they have one step for each channel, nothing bounds them and
/// they stay where they are.
fn is_exact(given: &Given) -> bool {
    let one_divisor = match given.last {
        Last::Average(count_include_pad) => count_include_pad || given.window.pads == Pads::NONE,
        Last::Transposed => false,
        Last::Mean | Last::Conv | Last::Dense => true,
    };
    one_divisor && !given.relu
}

/// The model's output of an image.
fn left(network: &QGraph, int8: &[i16]) -> Vec<f32> {
    let all = reference::run(network, int8).unwrap();
    let tensors: Vec<&[i16]> = network.outputs.iter().map(|id| &all[id.0][..]).collect();
    let ends = network.ends.as_ref().unwrap();
    match &ends.leave(&tensors, &[]).unwrap()[..] {
        [Data::F32(values)] => values.clone(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn sums_that_nothing_rounds_are_the_devices(given in given(), machine in 0usize..6) {
        let Some((graph, half)) = network(&given) else { return Ok(()); };
        let graph = onnx::load(&onnx::save(&graph)).unwrap();
        let network = passes::quantized(&graph).unwrap();
        prop_assert_eq!(HostNeeds::of(&network).nodes == 0, is_exact(&given), "{}", network);
        let len = given.chw.iter().product();
        for seed in 0..2 {
            let int8 = Rng(given.seed ^ seed).int8(len);
            let real = |&q: &i16| (f32::from(q) - f32::from(given.zero)) * STEP;
            let image: Vec<f32> = int8.iter().map(real).collect();
            let expected = float::run(&graph, &image).unwrap().remove(0);
            let found = left(&network, &int8);
            let plane = found.len() / half.len();
            for (i, (y, e)) in found.iter().zip(&expected).enumerate() {
                // Half of a step, and what floats of that size are off by.
                let bound = half[i / plane] + e.abs() * 1e-6;
                prop_assert!((y - e).abs() < bound, "{} for {}, {}", y, e, network);
            }
        }
        // Where the host computes all, there is no program.
        if is_exact(&given) {
            check(&network, &config(machine), given.seed)?;
        }
    }
}

/// The int8 or digit tensors of a network that reads one rounded tensor.
fn of(op: &dyn Fn(&mut Builder, ValueId) -> Vec<ValueId>, zero: i8) -> QGraph {
    let mut b = Builder::default();
    let x = b.input(&[1, 4, 2, 2]);
    let scale = b.value("step", &[], Some(Data::F32(vec![STEP])));
    let zero = b.value("point", &[], Some(Data::I8(vec![zero])));
    let shape = [1, 4, 2, 2];
    let int8 = b.push(Op::QuantizeLinear { axis: 1 }, &[x, scale, zero], &shape);
    b.0.values[int8.0].element = Element::I8;
    let x = b.push(
        Op::DequantizeLinear { axis: 1 },
        &[int8, scale, zero],
        &shape,
    );
    let outputs = op(&mut b, x);
    passes::quantized(&b.finish(&outputs)).unwrap()
}

#[test]
fn what_two_outputs_read_is_summed_once() {
    let both = |b: &mut Builder, x: ValueId| {
        let mean = b.push(Op::GlobalAveragePool, &[x], &[1, 4, 1, 1]);
        let flat = b.push(Op::Flatten, &[mean], &[1, 4]);
        let tanh = b.kept("Tanh", &[flat], &[1, 4], &[]);
        vec![mean, flat, tanh]
    };
    let network = of(&both, 3);
    assert_eq!(network.nodes.len(), 2, "{network}");
    let needs = HostNeeds::of(&network);
    assert_eq!((needs.nodes, &needs.kinds[..]), (1, "1 Tanh"));
    let int8: Vec<i16> = (0..16i32).map(|i| (i * 11 - 100) as i16).collect();
    let all = reference::run(&network, &int8).unwrap();
    let tensors: Vec<&[i16]> = network.outputs.iter().map(|id| &all[id.0][..]).collect();
    let left = network.ends.unwrap().leave(&tensors, &[]).unwrap();
    let sums = int8
        .chunks(4)
        .map(|x| x.iter().map(|&q| i32::from(q) - 3).sum::<i32>());
    let means: Vec<f32> = sums.map(|sum| sum as f32 * (STEP / 4.0)).collect();
    let tanh = means.iter().map(|x| x.tanh());
    assert_eq!(left[0], Data::F32(means.clone()));
    let Data::F32(last) = &left[left.len() - 1] else {
        panic!("{left:?}");
    };
    assert!(last.iter().zip(tanh).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn what_a_bias_has_between_two_steps_is_added() {
    for seed in 0..8 {
        let given = Given {
            last: Last::Dense,
            chw: [2, 1, 1],
            to: 3,
            window: Window::whole([1, 1]),
            zero: 5,
            bias: Some((4.0, true)),
            relu: false,
            seed,
        };
        let (graph, half) = network(&given).unwrap();
        let network = passes::quantized(&graph).unwrap();
        let int8 = Rng(seed).int8(2);
        let image: Vec<f32> = int8.iter().map(|&q| (f32::from(q) - 5.0) * STEP).collect();
        let expected = float::run(&graph, &image).unwrap().remove(0);
        let found = left(&network, &int8);
        let near = |((y, e), half): ((&f32, &f32), &f32)| (y - e).abs() < half / 32.0;
        let mut all = found.iter().zip(&expected).zip(&half);
        assert!(all.all(near), "{found:?} {expected:?}");
    }
}

#[test]
fn sums_of_tokens_are_given_in_the_models_order() {
    let mut b = Builder::default();
    let x = b.input(&[1, 5, 3]);
    let x = b.rounded(x, STEP);
    let weights = Data::I8(Rng(7).int8(3 * 4));
    let w = constant(&mut b, weights, &[3, 4], vec![0.5, 0.25, 1.0, 0.125], 1);
    let form = MatMulForm::Right;
    let y = b.push(Op::MatMul { form }, &[x, w], &[1, 5, 4]);
    let graph = b.finish(&[y]);
    let network = passes::quantized(&graph).unwrap();
    assert_eq!(HostNeeds::of(&network).nodes, 0, "{network}");
    let image: Vec<f32> = (0..15).map(|i| (i * 7 % 31) as f32 * STEP - 2.0).collect();
    let ends = network.ends.as_ref().unwrap();
    let int8 = ends.enter(vec![Data::F32(image.clone())]).unwrap();
    let expected = float::run(&graph, &image).unwrap().remove(0);
    assert_eq!(left(&network, &int8), expected);
    check(&network, &config(0), 1).unwrap();
}

#[test]
fn bounds_that_are_steps_need_no_rounding() {
    let clipped = |min: f32, max: f32, zero: i8| {
        let op = move |b: &mut Builder, x: ValueId| {
            vec![b.push(Op::Clip { min, max }, &[x], &[1, 4, 2, 2])]
        };
        of(&op, zero)
    };
    let int8: Vec<i16> = (0..16i32).map(|i| (i * 17 - 128) as i16).collect();
    for zero in [0, 7] {
        for (min, max, exact) in [
            (0.0, f32::INFINITY, true),
            (-1.25, 6.0, true),
            (-1000.0, 1000.0, true),
            (0.1, 1000.0, false),
            (0.0, 5.9, false),
            (900.0, 1000.0, false),
        ] {
            let network = clipped(min, max, zero);
            assert_eq!(HostNeeds::of(&network).nodes == 0, exact, "{min} {max}");
            let all = reference::run(&network, &int8).unwrap();
            let real = |&q: &i16| (f32::from(q) - f32::from(zero)) * STEP;
            let expected: Vec<f32> = int8.iter().map(|q| real(q).clamp(min, max)).collect();
            let found = match exact {
                true => all[network.outputs[0].0].iter().map(real).collect(),
                false => left(&network, &int8),
            };
            assert_eq!(found, expected, "{min} {max}");
        }
    }
}

#[test]
fn a_vector_becomes_a_plane_and_a_plane_stays_one() {
    let shape = |shape: &'static [i64]| {
        move |b: &mut Builder, x: ValueId| {
            let to = b.value("to", &[shape.len()], Some(Data::I64(shape.to_vec())));
            let sizes: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
            vec![b.kept("Reshape", &[x, to], &sizes, &[])]
        }
    };
    for to in [&[1, 4, 2, 2][..], &[1, 16], &[1, 4, 4]] {
        let network = of(&shape(to), 0);
        assert_eq!(HostNeeds::of(&network).nodes, 0, "{to:?}");
    }
    let plane = |b: &mut Builder, x: ValueId| {
        let flat = b.push(Op::Flatten, &[x], &[1, 16]);
        let weights: Vec<i8> = (0..16 * 16).map(|i| i8::from(i % 17 == 0)).collect();
        let same = constant(b, Data::I8(weights), &[16, 16], vec![1.0], 0);
        let vector = b.push(Op::Gemm { trans_b: true }, &[flat, same], &[1, 16]);
        let plane = b.value("plane", &[4], Some(Data::I64(vec![1, 2, 4, 2])));
        let early = b.kept("Reshape", &[vector, plane], &[1, 2, 4, 2], &[]);
        let early = b.rounded(early, STEP);
        let rounded = b.rounded(vector, STEP);
        let late = b.kept("Reshape", &[rounded, plane], &[1, 2, 4, 2], &[]);
        let late = b.rounded(late, STEP);
        // What reads rows makes planes of them.
        let window = Window {
            stride: [2, 1],
            ..Window::whole([2, 1])
        };
        let pool = |b: &mut Builder, x| b.push(Op::MaxPool { window }, &[x], &[1, 2, 2, 2]);
        vec![pool(b, early), pool(b, late)]
    };
    let network = of(&plane, 0);
    assert_eq!(HostNeeds::of(&network).nodes, 0, "{network}");
    let int8: Vec<i16> = (0..16i32).map(|i| (i * 37 % 256 - 128) as i16).collect();
    let all = reference::run(&network, &int8).unwrap();
    // Of each channel's four rows of two the larger of two neighbours.
    let pairs = int8
        .chunks(4)
        .flat_map(|rows| [rows[0].max(rows[2]), rows[1].max(rows[3])]);
    let expected: Vec<i16> = pairs.collect();
    assert_eq!(network.outputs.len(), 2);
    for output in &network.outputs {
        assert_eq!(all[output.0], expected, "{network}");
    }
    check(&network, &config(0), 3).unwrap();
}
