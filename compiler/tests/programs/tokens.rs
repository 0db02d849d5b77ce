//! Products of tokens with constants, whose rows are positions of the device's tensors, between the host's
//! operators and at both ends of a network.

use crate::builder::Builder;
use vta_compiler::graph::{Data, Graph, MatMulForm, OnnxAttribute, Op, ValueId};
use vta_compiler::host::EndOutput;
use vta_compiler::qgraph::{HostNeeds, QGraph, QOp, Window};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{float, onnx, passes, reference};

/// A network of `rows` tokens of `columns` values while it grows.
struct Tokens {
    net: Builder,
    shape: Vec<usize>,
}

impl Tokens {
    fn new(shape: &[usize]) -> (Self, ValueId) {
        let mut net = Builder::default();
        let x = net.input(shape);
        let shape = shape.to_vec();
        (Self { net, shape }, x)
    }

    fn constant(&mut self, shape: &[usize]) -> ValueId {
        let count: usize = shape.iter().product();
        let value = |i: usize| ((i * 37 + 11) % 41) as f32 / 41.0 - 0.45;
        let data = Data::F32((0..count).map(value).collect());
        let name = format!("c{}", self.net.0.values.len());
        self.net.value(&name, shape, Some(data))
    }

    fn with_columns(&self, columns: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape.pop();
        [&shape[..], &[columns]].concat()
    }

    fn columns(&self, x: ValueId) -> usize {
        self.net.0.values[x.0].shape.last().copied().unwrap()
    }

    /// A dense layer of every token.
    fn dense(&mut self, x: ValueId, to: usize) -> ValueId {
        let shape = self.with_columns(to);
        let (weights, bias) = (self.constant(&[self.columns(x), to]), self.constant(&[to]));
        let form = MatMulForm::Right;
        let y = self.net.push(Op::MatMul { form }, &[x, weights], &shape);
        self.net.push(Op::Add, &[y, bias], &shape)
    }

    fn normalized(&mut self, x: ValueId) -> ValueId {
        let n = self.columns(x);
        let (scale, shift) = (self.constant(&[n]), self.constant(&[n]));
        let shape = self.with_columns(n);
        let axis = [("axis", OnnxAttribute::Int(-1))];
        self.net
            .kept("LayerNormalization", &[x, scale, shift], &shape, &axis)
    }
}

/// The network of a float one, through files, and its outputs beside the float ones: how many steps apart
/// they are at most.
fn compared(float: &Graph) -> (QGraph, f32) {
    let float = onnx::load(&onnx::save(float)).unwrap();
    let len: usize = float.values[float.inputs[0].0].shape.iter().product();
    let image = |seed: usize| -> Vec<f32> {
        let value = |i: usize| ((i * 7 + seed * 29) % 31) as f32 / 15.0 - 1.0;
        (0..len).map(value).collect()
    };
    let images: Vec<Vec<f32>> = (0..3).map(image).collect();
    let quantized = quantize::quantize(&float, &images, Mode::Multiply).unwrap();
    let quantized = onnx::load(&onnx::save(&quantized)).unwrap();
    let network = passes::quantized(&quantized).unwrap();
    let mut far = 0f32;
    for image in &images {
        let rounded = float::run(&quantized, image).unwrap();
        let outputs = outputs(&network, image);
        for (own, of_file) in outputs.iter().zip(&rounded) {
            let largest = of_file.iter().fold(0f32, |m, v| m.max(v.abs()));
            assert_eq!(own.len(), of_file.len());
            for (a, b) in own.iter().zip(of_file) {
                far = far.max((a - b).abs() / largest * 127.0);
            }
        }
    }
    (network, far)
}

/// The model's outputs of one image, as a caller sees them.
fn outputs(network: &QGraph, image: &[f32]) -> Vec<Vec<f32>> {
    let ends = network.ends.as_deref();
    let input = &network.tensors[network.inputs[0].0];
    let rounded = || -> Vec<i16> {
        let step = |v: &f32| (v / input.scale).round_ties_even().clamp(-128.0, 127.0) as i16;
        image.iter().map(step).collect()
    };
    let given = vec![Data::F32(image.to_vec())];
    let entry = ends.filter(|ends| ends.inputs().is_some());
    let int8 = match entry {
        Some(ends) => ends.enter(given.clone()).unwrap(),
        None => rounded(),
    };
    let all = reference::run(network, &int8).unwrap();
    let tensors: Vec<&[i16]> = network.outputs.iter().map(|id| &all[id.0][..]).collect();
    let real = |index: usize| -> Vec<f32> {
        let tensor = &network.tensors[network.outputs[index].0];
        let real = |q: &i16| (i32::from(*q) - tensor.zero) as f32 * tensor.scale;
        tensors[index].iter().map(real).collect()
    };
    let Some(ends) = ends else {
        return (0..tensors.len()).map(real).collect();
    };
    let left = ends.leave(&tensors, &given).unwrap();
    let output = |output: &EndOutput| match *output {
        EndOutput::Tensor(at) => real(at),
        EndOutput::Value { index, .. } => match &left[index] {
            Data::F32(values) => values.clone(),
            other => panic!("{other:?}"),
        },
    };
    ends.outputs().iter().map(output).collect()
}

/// Kinds of what the host computes, with how many of each.
fn hosted(network: &QGraph) -> String {
    HostNeeds::of(network).kinds
}

/// Convolutions of a network, each with its tensor.
fn convolutions(network: &QGraph) -> Vec<[usize; 3]> {
    let all = network.nodes.iter();
    let convs = all.filter(|node| matches!(node.op, QOp::Conv(_)));
    convs
        .map(|node| network.tensors[node.output.0].chw)
        .collect()
}

#[test]
fn dense_layers_of_tokens_are_the_devices() {
    // As many tokens as columns say nothing of which is which.
    for shape in [
        &[1, 6, 10][..],
        &[1, 8, 8],
        &[1, 3, 4, 12],
        &[7, 9],
        &[2, 5, 6],
    ] {
        let (mut t, x) = Tokens::new(shape);
        let columns = t.columns(x);
        let wide = t.dense(x, 20);
        let shape = t.with_columns(20);
        let wide = t.net.push(Op::Relu, &[wide], &shape);
        let back = t.dense(wide, columns);
        let shape = t.with_columns(columns);
        let sum = t.net.push(Op::Add, &[x, back], &shape);
        let (network, far) = compared(&t.net.finish(&[sum]));
        assert_eq!(hosted(&network), "", "{shape:?}");
        let positions: usize = shape[..shape.len() - 1].iter().product();
        let sizes: Vec<[usize; 2]> = convolutions(&network)
            .iter()
            .map(|[c, h, w]| [*c, h * w])
            .collect();
        assert_eq!(sizes, [[20, positions], [columns, positions]]);
        assert!(far < 1.5, "{shape:?}: {far}");
    }
}

#[test]
fn tokens_pass_from_the_host_to_the_device_and_back() {
    for shape in [&[1, 6, 10][..], &[1, 8, 8], &[1, 3, 4, 12]] {
        let (mut t, x) = Tokens::new(shape);
        let columns = t.columns(x);
        let one = t.normalized(x);
        let wide = t.dense(one, 16);
        let to = t.with_columns(16);
        let gate = t.net.kept("Erf", &[wide], &to, &[]);
        let back = t.dense(gate, columns);
        let shape = t.with_columns(columns);
        let sum = t.net.push(Op::Add, &[x, back], &shape);
        let half = t.constant(&[]);
        let sum = t.net.push(Op::Mul, &[half, sum], &shape);
        let last = t.normalized(sum);
        let y = t.dense(last, 5);
        let (network, far) = compared(&t.net.finish(&[y, sum]));
        assert_eq!(hosted(&network), "2 LayerNormalization, 1 Erf", "{shape:?}");
        assert!(convolutions(&network).len() >= 3);
        assert!(far < 3.0, "{shape:?}: {far}");
    }
}

#[test]
fn matrices_on_the_left_and_images_with_channels_last() {
    // Tokens are mixed by a matrix on the left, then each by one on the right: the first order of
    // dimensions isn't the second, so that the host turns what is between them.
    let (mut t, x) = Tokens::new(&[1, 6, 10]);
    let weights = t.constant(&[7, 6]);
    let form = MatMulForm::Left;
    let y = t.net.push(Op::MatMul { form }, &[x, weights], &[1, 7, 10]);
    let (network, far) = compared(&t.net.finish(&[y]));
    assert_eq!(convolutions(&network), [[7, 1, 10]]);
    assert!(hosted(&network).is_empty() && far < 1.0, "{far}");
    // The planes of an image with channels last are those of one with channels in front.
    let (mut t, x) = Tokens::new(&[1, 4, 5, 6]);
    let rows = t.dense(x, 9);
    let perm = OnnxAttribute::Ints(vec![0, 3, 1, 2]);
    let image = t
        .net
        .kept("Transpose", &[rows], &[1, 9, 4, 5], &[("perm", perm)]);
    let weights = t.constant(&[3, 9, 1, 1]);
    let window = Window::whole([1, 1]);
    let conv = Op::Conv { window, group: 1 };
    let y = t.net.push(conv, &[image, weights], &[1, 3, 4, 5]);
    let (network, far) = compared(&t.net.finish(&[y]));
    assert_eq!(convolutions(&network), [[9, 4, 5], [3, 4, 5]]);
    assert!(hosted(&network).is_empty() && far < 1.5, "{far}");
}

#[test]
fn tokens_meet_constants_of_their_positions() {
    for constant in [&[1, 6, 10][..], &[6, 10], &[6, 1], &[1, 1, 10], &[10]] {
        let (mut t, x) = Tokens::new(&[1, 6, 7]);
        let weights = t.constant(&[7, 10]);
        let form = MatMulForm::Right;
        let y = t.net.push(Op::MatMul { form }, &[x, weights], &[1, 6, 10]);
        // What differs from token to token is no bias of the product, which is rounded before it.
        let places = t.constant(constant);
        let y = t.net.push(Op::Add, &[places, y], &[1, 6, 10]);
        let factors = t.constant(constant);
        let y = t.net.push(Op::Mul, &[y, factors], &[1, 6, 10]);
        let (network, far) = compared(&t.net.finish(&[y]));
        assert_eq!(hosted(&network), "", "{constant:?}");
        let by_position = constant.contains(&6);
        let layers = if by_position { 3 } else { 2 };
        assert_eq!(network.nodes.len(), layers, "{constant:?}: {network}");
        assert!(far < 1.0, "{constant:?}: {far}");
    }
    // Of a product with a matrix on the left channels are rows.
    for (constant, layers) in [(&[7, 1][..], 1), (&[1, 7, 10], 2), (&[10], 2)] {
        let (mut t, x) = Tokens::new(&[1, 6, 10]);
        let weights = t.constant(&[7, 6]);
        let form = MatMulForm::Left;
        let y = t.net.push(Op::MatMul { form }, &[x, weights], &[1, 7, 10]);
        let places = t.constant(constant);
        let y = t.net.push(Op::Add, &[y, places], &[1, 7, 10]);
        let (network, far) = compared(&t.net.finish(&[y]));
        assert_eq!(hosted(&network), "", "{constant:?}");
        assert_eq!(network.nodes.len(), layers, "{constant:?}: {network}");
        assert!(far < 1.0, "{constant:?}: {far}");
    }
}

#[test]
fn windows_of_the_whole_image_are_its_tokens() {
    // As in the last stage of a Swin: the Transpose of the windows swaps only dimensions of 1.
    let (mut t, x) = Tokens::new(&[1, 7, 5, 12]);
    let one = t.normalized(x);
    let reshaped = |t: &mut Tokens, x: ValueId, shape: &[usize]| {
        let sizes = shape.iter().map(|&d| d as i64).collect();
        let name = format!("s{}", t.net.0.values.len());
        let sizes = t.net.value(&name, &[shape.len()], Some(Data::I64(sizes)));
        t.net.kept("Reshape", &[x, sizes], shape, &[])
    };
    let perm = [("perm", OnnxAttribute::Ints(vec![0, 1, 3, 2, 4, 5]))];
    let windows = reshaped(&mut t, one, &[1, 1, 7, 1, 5, 12]);
    let turned = &[1, 1, 1, 7, 5, 12];
    let windows = t.net.kept("Transpose", &[windows], turned, &perm);
    let rows = reshaped(&mut t, windows, &[1, 35, 12]);
    t.shape = vec![1, 35, 12];
    let rows = t.dense(rows, 12);
    let windows = reshaped(&mut t, rows, turned);
    let back = &[1, 1, 7, 1, 5, 12];
    let windows = t.net.kept("Transpose", &[windows], back, &perm);
    let image = reshaped(&mut t, windows, &[1, 7, 5, 12]);
    let sum = t.net.push(Op::Add, &[image, one], &[1, 7, 5, 12]);
    let (network, far) = compared(&t.net.finish(&[sum]));
    assert_eq!(hosted(&network), "1 LayerNormalization");
    assert!(far < 1.5, "{far}");
}

#[test]
fn what_reads_values_in_two_orders_is_right() {
    // A dense layer of all values reads the tensor as the model has it.
    let (mut t, x) = Tokens::new(&[1, 6, 10]);
    let rows = t.dense(x, 4);
    let flat = t.net.push(Op::Flatten, &[rows], &[1, 24]);
    let weights = t.constant(&[24, 3]);
    let y = t
        .net
        .push(Op::Gemm { trans_b: false }, &[flat, weights], &[1, 3]);
    let (network, far) = compared(&t.net.finish(&[y]));
    assert!(hosted(&network).is_empty() && far < 1.0, "{far}");
    // A convolution over tokens wants them in front: one of both is the host's.
    let (mut t, x) = Tokens::new(&[1, 6, 10]);
    let weights = t.constant(&[4, 6, 1]);
    let window = Window::whole([1, 1]);
    let conv = t
        .net
        .push(Op::Conv { window, group: 1 }, &[x, weights], &[1, 4, 10]);
    t.shape = vec![1, 4, 10];
    let y = t.dense(conv, 8);
    let (network, far) = compared(&t.net.finish(&[y]));
    assert_eq!(hosted(&network), "1 Add, 1 MatMul");
    assert!(far < 1.0, "{far}");
}
