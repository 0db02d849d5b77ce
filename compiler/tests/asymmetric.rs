//! Zero points of every kind give what ONNX's definition says: integers, less their zero points,
//! summed exactly, then rounded; and every device gives the same.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/check.rs"]
mod common;
#[path = "common/definition.rs"]
mod definition;

use common::{Rng, check, config};
use definition::{Real, Steps, convolution, dequantized, round, windows};
use proptest::prelude::*;
use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::qgraph::Window;
use vta_compiler::{passes, reference};

fn steps() -> impl Strategy<Value = Steps> {
    (0.01f32..0.1, 0u8..=255, 0..4, any::<bool>()).prop_map(|(scale, zero, kind, unsigned)| {
        let zero = match kind {
            0 => {
                if unsigned {
                    128
                } else {
                    0
                }
            }
            1 => {
                if unsigned {
                    0
                } else {
                    -128
                }
            }
            _ => i32::from(zero) - if unsigned { 0 } else { 128 },
        };
        Steps {
            scale,
            zero,
            unsigned,
        }
    })
}

/// What stands between the input's steps and the output's.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Conv {
        group: usize,
        outputs: usize,
        bias: Bias,
    },
    Dense {
        outputs: usize,
    },
    Add(Steps),
    Max,
    Average {
        include_pad: bool,
    },
    Global,
    Rescale,
}

#[derive(Clone, Copy, Debug)]
enum Bias {
    None,
    Float,
    Int32,
    Byte(Steps),
}

fn kind() -> impl Strategy<Value = Kind> {
    let bias = prop_oneof![
        Just(Bias::None),
        Just(Bias::Float),
        Just(Bias::Int32),
        steps().prop_map(Bias::Byte)
    ];
    let conv = (1usize..4, 1usize..12, bias);
    prop_oneof![
        4 => conv.prop_map(|(group, outputs, bias)| Kind::Conv { group, outputs, bias }),
        1 => (1usize..20).prop_map(|outputs| Kind::Dense { outputs }),
        1 => steps().prop_map(Kind::Add),
        1 => Just(Kind::Max),
        2 => any::<bool>().prop_map(|include_pad| Kind::Average { include_pad }),
        1 => Just(Kind::Global),
        1 => Just(Kind::Rescale),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    channels: usize,
    hw: [usize; 2],
    window: Window,
    input: Steps,
    output: Steps,
    weights: Steps,
    /// Whether every output channel's weights have their own scale and zero point.
    by_channel: bool,
    relu: bool,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let window = (
        [1usize..4, 1usize..4],
        [1usize..3, 1usize..3],
        [1usize..3, 1usize..3],
        prop::array::uniform4(0usize..3),
    );
    let window = window.prop_map(|(kernel, stride, dilation, pads)| Window {
        kernel,
        stride,
        dilation,
        pads: pads.into(),
    });
    let flags = [any::<bool>(), any::<bool>()];
    (
        kind(),
        1usize..20,
        [1usize..9, 1usize..9],
        window,
        [steps(), steps(), steps()],
        flags,
        any::<u64>(),
    )
        .prop_filter_map(
            "the window must fit, and none lie on padding alone",
            |(kind, channels, hw, window, [input, output, weights], [by_channel, relu], seed)| {
                let [before, after] = [window.pads.before(), window.pads.after()];
                let pooled = matches!(kind, Kind::Max | Kind::Average { .. });
                let covered = (0..2)
                    .all(|a| before[a].max(after[a]) < window.kernel[a] && window.dilation[a] == 1);
                window.output(hw[0], hw[1])?;
                (covered || !pooled).then_some(())?;
                let group = if let Kind::Conv { group, .. } = kind {
                    group
                } else {
                    1
                };
                let channels = channels.next_multiple_of(group);
                Some(Case {
                    kind,
                    channels,
                    hw,
                    window,
                    input,
                    output,
                    weights,
                    by_channel,
                    relu,
                    seed,
                })
            },
        )
}

/// Graphs a node at a time.
#[derive(Default)]
struct Builder(Graph);

impl Builder {
    fn value(&mut self, shape: &[usize], data: Option<Data>) -> ValueId {
        let name = format!("v{}", self.0.values.len());
        self.0.values.push(Value::new(name, shape.into(), data));
        ValueId(self.0.values.len() - 1)
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let output = self.value(shape, None);
        let name = format!("n{}", self.0.nodes.len());
        self.0.nodes.push(Node {
            name,
            op,
            inputs: inputs.into(),
            output,
        });
        output
    }

    fn scale(&mut self, steps: Steps) -> [ValueId; 2] {
        let scale = self.value(&[], Some(Data::F32(vec![steps.scale])));
        [scale, self.value(&[], Some(steps.integers(&[steps.zero])))]
    }

    fn dequantized(&mut self, x: ValueId, steps: Steps, shape: &[usize]) -> ValueId {
        let [scale, zero] = self.scale(steps);
        self.node(Op::DequantizeLinear { axis: 1 }, &[x, scale, zero], shape)
    }

    /// Rounded to steps and back.
    fn rounded(&mut self, x: ValueId, steps: Steps, shape: &[usize]) -> ValueId {
        let [scale, zero] = self.scale(steps);
        let x = self.node(Op::QuantizeLinear { axis: 1 }, &[x, scale, zero], shape);
        self.dequantized(x, steps, shape)
    }
}

/// The weights of a case: integers less their zero points, and the node that dequantises them.
fn weights(
    b: &mut Builder,
    rng: &mut Rng,
    case: &Case,
    shape: &[usize],
    axis: usize,
) -> (ValueId, Vec<f64>) {
    let count: usize = shape.iter().product();
    let (low, _) = case.weights.range();
    let raw: Vec<i32> = (0..count)
        .map(|_| low + (rng.next() % 256) as i32)
        .collect();
    let slices = if case.by_channel { shape[axis] } else { 1 };
    let scales: Vec<f32> = (0..slices)
        .map(|c| case.weights.scale * (1.0 + c as f32 / 8.0))
        .collect();
    let zeros: Vec<i32> = (0..slices as i32)
        .map(|c| (case.weights.zero - low + c * 5) % 256 + low)
        .collect();
    let inner: usize = shape[axis + 1..].iter().product();
    let slice = |i: usize| i / inner % slices;
    let values = raw
        .iter()
        .enumerate()
        .map(|(i, &w)| f64::from(w - zeros[slice(i)]) * f64::from(scales[slice(i)]));
    let values = values.collect();
    let w = b.value(shape, Some(case.weights.integers(&raw)));
    let dims = if case.by_channel {
        vec![slices]
    } else {
        vec![]
    };
    let scale = b.value(&dims, Some(Data::F32(scales)));
    let zero = b.value(&dims, Some(case.weights.integers(&zeros)));
    (
        b.node(Op::DequantizeLinear { axis }, &[w, scale, zero], shape),
        values,
    )
}

/// A bias and its node; steps of `unit` by channel are what int32 has.
fn bias(b: &mut Builder, rng: &mut Rng, kind: Bias, unit: &[f64]) -> (Option<ValueId>, Vec<f64>) {
    let count = unit.len();
    let wide: Vec<i32> = (0..count).map(|_| rng.next() as i32 >> 18).collect();
    match kind {
        Bias::None => (None, vec![0.0; count]),
        Bias::Float => {
            let floats: Vec<f32> = wide
                .iter()
                .zip(unit)
                .map(|(&v, &u)| (f64::from(v) * u) as f32)
                .collect();
            let values = floats.iter().map(|&v| v.into()).collect();
            (Some(b.value(&[count], Some(Data::F32(floats)))), values)
        }
        Bias::Int32 => {
            let scale: Vec<f32> = unit.iter().map(|&u| u as f32).collect();
            let values = wide
                .iter()
                .zip(&scale)
                .map(|(&v, &s)| f64::from(v) * f64::from(s))
                .collect();
            let v = b.value(&[count], Some(Data::I32(wide)));
            let scale = b.value(&[count], Some(Data::F32(scale)));
            (
                Some(b.node(Op::DequantizeLinear { axis: 0 }, &[v, scale], &[count])),
                values,
            )
        }
        Bias::Byte(steps) => {
            let (low, _) = steps.range();
            let raw: Vec<i32> = (0..count)
                .map(|_| low + (rng.next() % 256) as i32)
                .collect();
            let v = b.value(&[count], Some(steps.integers(&raw)));
            (
                Some(b.dequantized(v, steps, &[count])),
                dequantized(&raw, steps),
            )
        }
    }
}

/// The case's operator on a dequantised input, whose values are `x`.
fn operator(
    b: &mut Builder,
    rng: &mut Rng,
    case: &mut Case,
    id: ValueId,
    x: Real,
) -> (ValueId, Real) {
    let full = |chw: [usize; 3]| [1, chw[0], chw[1], chw[2]];
    let mean = |all: &[f64], divisor: usize| all.iter().sum::<f64>() / divisor as f64;
    let (op, inputs, real) = match case.kind {
        Kind::Conv { .. } | Kind::Dense { .. } => return product(b, rng, case, id, x),
        Kind::Add(steps) => {
            let other = b.rounded(id, steps, &full(x.chw));
            let again = x
                .values
                .iter()
                .map(|&v| round(v, steps).0)
                .collect::<Vec<_>>();
            let again = dequantized(&again, steps);
            let values = x.values.iter().zip(again).map(|(a, b)| a + b).collect();
            (Op::Add, vec![id, other], Real { chw: x.chw, values })
        }
        Kind::Max => {
            let real = windows(&x, &case.window, |all| {
                all.iter().copied().fold(f64::MIN, f64::max)
            });
            (
                Op::MaxPool {
                    window: case.window,
                },
                vec![id],
                real,
            )
        }
        Kind::Average { include_pad } => {
            let whole = case.window.area();
            let real = windows(&x, &case.window, |all| {
                mean(all, if include_pad { whole } else { all.len() })
            });
            let op = Op::AveragePool {
                window: case.window,
                count_include_pad: include_pad,
            };
            (op, vec![id], real)
        }
        Kind::Global => {
            let real = windows(&x, &Window::whole(case.hw), |all| mean(all, all.len()));
            (Op::GlobalAveragePool, vec![id], real)
        }
        Kind::Rescale => return (id, x),
    };
    (b.node(op, &inputs, &full(real.chw)), real)
}

fn product(
    b: &mut Builder,
    rng: &mut Rng,
    case: &mut Case,
    id: ValueId,
    x: Real,
) -> (ValueId, Real) {
    let [ci, h, w] = x.chw;
    let (window, group, co) = match case.kind {
        Kind::Conv { group, outputs, .. } => (case.window, group, group * outputs),
        Kind::Dense { outputs } => (Window::whole([h, w]), 1, outputs),
        _ => unreachable!("it has weights"),
    };
    let dense = matches!(case.kind, Kind::Dense { .. });
    let taps = ci / group * window.area();
    // Outputs of about the range of 8 bits.
    case.output.scale = case.input.scale * case.weights.scale * 60.0 * (taps as f32).sqrt();
    let shape = match dense {
        true => vec![co, taps],
        false => vec![co, ci / group, window.kernel[0], window.kernel[1]],
    };
    let (weights, values) = weights(b, rng, case, &shape, 0);
    let unit: Vec<f64> = (0..co)
        .map(|c| {
            let own = if case.by_channel {
                1.0 + c as f64 / 8.0
            } else {
                1.0
            };
            f64::from(case.input.scale) * f64::from(case.weights.scale) * own
        })
        .collect();
    let form = if let Kind::Conv { bias, .. } = case.kind {
        bias
    } else {
        Bias::Int32
    };
    let (bias, offsets) = bias(b, rng, form, &unit);
    let real = convolution(&x, &window, group, &values, &offsets);
    let mut inputs = vec![id, weights];
    if dense {
        inputs[0] = b.node(Op::Flatten, &[id], &[1, ci * h * w]);
    }
    inputs.extend(bias);
    let shape = [1, co, real.chw[1], real.chw[2]];
    let id = match dense {
        true => b.node(Op::Gemm { trans_b: true }, &inputs, &[1, co]),
        false => b.node(Op::Conv { window, group }, &inputs, &shape),
    };
    (id, real)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn operators_are_their_definition(mut case in case()) {
        let mut rng = Rng(case.seed);
        let mut b = Builder::default();
        let chw = [case.channels, case.hw[0], case.hw[1]];
        let shape = [1, chw[0], chw[1], chw[2]];
        let x = b.value(&shape, None);
        b.0.inputs = vec![x];
        let image = rng.int8(chw.iter().product());
        let offset = if case.input.unsigned { 128 } else { 0 };
        let integers: Vec<i32> = image.iter().map(|&q| i32::from(q) + offset).collect();
        let x = b.rounded(x, case.input, &shape);
        let values = Real { chw, values: dequantized(&integers, case.input) };
        let (mut y, mut expected) = operator(&mut b, &mut rng, &mut case, x, values);
        let shape = b.0.values[y.0].shape.clone();
        if case.relu {
            y = b.node(Op::Relu, &[y], &shape);
            expected.values.iter_mut().for_each(|v| *v = v.max(0.0));
        }
        let y = b.rounded(y, case.output, &shape);
        b.0.outputs = vec![y];
        let graph = passes::quantized(&b.0).unwrap();
        let output = graph.outputs[0];
        let got = reference::run(&graph, &image).unwrap().swap_remove(output.0);
        prop_assert_eq!(got.len(), expected.values.len());
        let offset = if case.output.unsigned { 128 } else { 0 };
        // Forms are right but for values beside a tie; a float bias is rounded to the sum's steps.
        let near = 0.02;
        for (&got, &value) in got.iter().zip(&expected.values) {
            let (want, distance) = round(value, case.output);
            let got = i32::from(got) + offset;
            let off = (got - want).abs();
            prop_assert!(off == 0 || off == 1 && distance < near, "{} for {} ({})", got, want, value / f64::from(case.output.scale));
        }
        check(&graph, &config(case.seed as usize % 6), case.seed)?;
    }

    /// A block of a `fast` network: the convolution takes its shortcut in, and rounds once.
    #[test]
    fn a_residual_that_joins_has_its_zero_point_taken_off(
        channels in 1usize..24, hw in [1usize..8, 1usize..8], input in steps(), output in steps(),
        seed in any::<u64>(),
    ) {
        let mut rng = Rng(seed);
        let mut b = Builder::default();
        let (chw, shape) = ([channels, hw[0], hw[1]], [1, channels, hw[0], hw[1]]);
        let x = b.value(&shape, None);
        b.0.inputs = vec![x];
        b.0.metadata.insert("requant".to_owned(), "fast".to_owned());
        let image = rng.int8(chw.iter().product());
        let offset = if input.unsigned { 128 } else { 0 };
        let integers: Vec<i32> = image.iter().map(|&q| i32::from(q) + offset).collect();
        let x = b.rounded(x, input, &shape);
        let real = Real { chw, values: dequantized(&integers, input) };
        let window = Window { kernel: [3, 3], stride: [1, 1], dilation: [1, 1], pads: [1; 4].into() };
        let weights = rng.int8(channels * channels * 9);
        // No input reaches the bounds of what is rounded between.
        let scale = 0.005 / (channels as f32 * 9.0);
        let w = b.value(&[channels, channels, 3, 3], Some(Data::I8(weights.clone())));
        let w_steps = Steps { scale, zero: 0, unsigned: false };
        let [s, z] = b.scale(w_steps);
        let w = b.node(Op::DequantizeLinear { axis: 0 }, &[w, s, z], &[channels, channels, 3, 3]);
        let y = b.node(Op::Conv { window, group: 1 }, &[x, w], &shape);
        let middle = Steps { scale: input.scale * 2.0, zero: 0, unsigned: false };
        let y = b.rounded(y, middle, &shape);
        let y = b.node(Op::Add, &[y, x], &shape);
        let output = Steps { scale: input.scale * 2.0, ..output };
        let y = b.rounded(y, output, &shape);
        b.0.outputs = vec![y];
        let graph = passes::quantized(&b.0).unwrap();
        prop_assert_eq!(graph.nodes.len(), 1);
        let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w) * f64::from(scale)).collect();
        let sum = convolution(&real, &window, 1, &weights, &vec![0.0; channels]);
        let got = reference::run(&graph, &image).unwrap().swap_remove(graph.outputs[0].0);
        let offset = if output.unsigned { 128 } else { 0 };
        for ((&got, sum), shortcut) in got.iter().zip(&sum.values).zip(&real.values) {
            let (want, _) = round(sum + shortcut, output);
            let off = (i32::from(got) + offset - want).abs();
            prop_assert!(off <= 1, "{} for {}", i32::from(got) + offset, want);
        }
        check(&graph, &config(seed as usize % 6), seed)?;
    }
}

/// Through QuantizeLinear and DequantizeLinear with these zero points, or none.
fn through(zeros: [Option<Data>; 2]) -> Result<i32, String> {
    let mut b = Builder::default();
    let shape = [1, 2, 3, 3];
    let x = b.value(&shape, None);
    b.0.inputs = vec![x];
    let scale = b.value(&[], Some(Data::F32(vec![0.5])));
    let mut last = x;
    for (op, zero) in [
        Op::QuantizeLinear { axis: 1 },
        Op::DequantizeLinear { axis: 1 },
    ]
    .into_iter()
    .zip(zeros)
    {
        let zero = zero.map(|data| b.value(&[data.len()], Some(data)));
        let inputs: Vec<ValueId> = [last, scale].into_iter().chain(zero).collect();
        last = b.node(op, &inputs, &shape);
    }
    b.0.outputs = vec![last];
    let graph = passes::quantized(&b.0).map_err(|e| e.to_string())?;
    Ok(graph.tensors[graph.outputs[0].0].zero)
}

#[test]
fn zero_points_of_activations_are_one_value_of_their_width() {
    let int8 = |zero: i8| Some(Data::I8(vec![zero]));
    let uint8 = |zero: u8| Some(Data::U8(vec![zero]));
    let int16 = |zero: i16| Some(Data::I16(vec![zero]));
    let uint16 = |zero: u16| Some(Data::U16(vec![zero]));
    for (zeros, expected) in [
        ([int8(0), int8(0)], 0),
        ([int8(0), None], 0),
        ([int8(-128), int8(-128)], -128),
        ([uint8(0), uint8(0)], -128),
        ([uint8(255), uint8(255)], 127),
        ([None, None], -128),
        ([None, uint8(0)], -128),
        ([int16(-300), int16(-300)], -300),
        ([uint16(0), uint16(0)], -32768),
        ([uint16(0), None], -32768),
        ([uint16(65535), uint16(65535)], 32767),
    ] {
        assert_eq!(through(zeros.clone()).unwrap(), expected, "{zeros:?}");
    }
    let differs = "differs from its QuantizeLinear's";
    for (zeros, reason) in [
        ([int8(3), int8(4)], differs),
        ([int8(3), None], differs),
        // The same distance, of other integers.
        ([int8(-128), uint8(0)], differs),
        ([uint8(0), int8(-128)], differs),
        ([int16(-32768), uint16(0)], differs),
        ([int16(0), int8(0)], differs),
        ([Some(Data::I8(vec![])), int8(0)], "no value"),
        (
            [Some(Data::U8(vec![1, 1])), uint8(1)],
            "one zero point per tensor",
        ),
        (
            [int8(0), Some(Data::I8(vec![0, 0]))],
            "one zero point per tensor",
        ),
        ([Some(Data::I32(vec![0])), int8(0)], "16 bits"),
        (
            [Some(Data::F32(vec![0.0])), int8(0)],
            "not a constant of 8 or 16 bits, or int32",
        ),
    ] {
        let error = through(zeros.clone()).unwrap_err();
        assert!(error.contains(reason), "{zeros:?}: {error}");
    }
}
