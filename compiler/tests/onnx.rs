//! ONNX files: what is written is read back, what isn't supported is refused by name.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::Window;
use vta_compiler::quantize::{self, Mode, QuantizeError};
use vta_compiler::{float, onnx, passes, zoo};
use vta_isa::Config;

fn demo(name: &str) -> Graph {
    let path = format!("{}/../models/demo/{name}", env!("CARGO_MANIFEST_DIR"));
    onnx::load(&std::fs::read(path).unwrap()).unwrap()
}

/// Builds graphs a node at a time.
#[derive(Default)]
struct Builder(Graph);

impl Builder {
    fn value(&mut self, name: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        self.0.values.push(Value::new(name, shape.into(), data));
        ValueId(self.0.values.len() - 1)
    }

    fn floats(&mut self, name: &str, shape: &[usize], at: impl Fn(usize) -> f32) -> ValueId {
        let count: usize = shape.iter().product();
        let data = (0..count).map(at).collect();
        self.value(name, shape, Some(Data::F32(data)))
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let index = self.0.nodes.len();
        let output = self.value(&format!("t{index}"), shape, None);
        self.0.nodes.push(Node {
            name: format!("node{index}"),
            op,
            inputs: inputs.into(),
            output,
        });
        output
    }

    fn finish(mut self, input: ValueId, output: ValueId) -> Graph {
        self.0.name = "test".into();
        self.0.inputs = vec![input];
        self.0.outputs = vec![output];
        self.0
    }
}

fn window(kernel: usize, pad: usize) -> Window {
    Window {
        kernel: [kernel; 2],
        stride: [1; 2],
        dilation: [1; 2],
        pads: [pad; 4].into(),
    }
}

/// conv, batch norm, ReLU, average, MatMul and Add: what a classifier's exporter writes.
fn classifier(bias_shape: &[usize], with_relu_before_norm: bool) -> Graph {
    let mut b = Builder::default();
    let x = b.value("x", &[1, 3, 8, 8], None);
    let w = b.floats("w", &[8, 3, 3, 3], |i| ((i * 37 % 29) as f32 - 14.0) / 40.0);
    let mut y = b.node(
        Op::Conv {
            window: window(3, 1),
            group: 1,
        },
        &[x, w],
        &[1, 8, 8, 8],
    );
    if with_relu_before_norm {
        y = b.node(Op::Relu, &[y], &[1, 8, 8, 8]);
    }
    let norm = [("gamma", 0.9), ("beta", 0.1), ("mean", 0.2), ("var", 1.5)]
        .map(|(name, v)| b.floats(name, &[8], |i| v + 0.01 * i as f32));
    let inputs = [y, norm[0], norm[1], norm[2], norm[3]];
    let y = b.node(
        Op::BatchNormalization { epsilon: 1e-5 },
        &inputs,
        &[1, 8, 8, 8],
    );
    let y = b.node(Op::Relu, &[y], &[1, 8, 8, 8]);
    let y = b.node(Op::GlobalAveragePool, &[y], &[1, 8, 1, 1]);
    let y = b.node(Op::Flatten, &[y], &[1, 8]);
    let dense = b.floats("dense", &[8, 5], |i| ((i * 11 % 17) as f32 - 8.0) / 10.0);
    let y = b.node(Op::Gemm { trans_b: false }, &[y, dense], &[1, 5]);
    let bias = b.floats("bias", bias_shape, |i| i as f32 / 4.0 - 0.5);
    let y = b.node(Op::Add, &[bias, y], &[1, 5]);
    b.finish(x, y)
}

fn image(seed: usize) -> Vec<f32> {
    (0..192)
        .map(|i| ((i * 31 + seed * 17) % 101) as f32 / 50.0 - 1.0)
        .collect()
}

#[test]
fn what_is_saved_is_read_back() {
    let zoo = zoo::graph("resnet18").unwrap();
    for graph in [demo("resnet20.onnx"), demo("resnet20_f32.onnx"), zoo] {
        let again = onnx::load(&onnx::save(&graph)).unwrap();
        assert_eq!(onnx::save(&again), onnx::save(&graph));
        assert_eq!(again.metadata, graph.metadata);
        let ops = |g: &Graph| g.nodes.iter().map(|n| n.op.clone()).collect::<Vec<_>>();
        assert_eq!(ops(&again), ops(&graph));
    }
}

#[test]
fn an_added_constant_becomes_the_bias() {
    for shape in [&[5][..], &[1, 5]] {
        let original = classifier(shape, false);
        let graph = onnx::load(&onnx::save(&original)).unwrap();
        let last = graph.nodes.last().unwrap();
        assert!(matches!(last.op, Op::Gemm { .. }), "{last:?}");
        assert_eq!(last.inputs.len(), 3);
        let run = float::run(&graph, &image(1)).unwrap();
        let out = &run[0];
        let bias: Vec<f32> = (0..5).map(|i| i as f32 / 4.0 - 0.5).collect();
        let without = {
            let mut graph = graph.clone();
            graph.nodes.last_mut().unwrap().inputs.pop();
            float::run(&graph, &image(1)).unwrap()[0].clone()
        };
        for i in 0..5 {
            assert!((out[i] - without[i] - bias[i]).abs() < 1e-5);
        }
    }
}

#[test]
fn a_quantized_bias_that_is_added_is_the_bias_too() {
    // QDQ with MatMul and Add between one DequantizeLinear and one QuantizeLinear.
    let mut b = Builder::default();
    let x = b.value("x", &[1, 4], None);
    let s = b.floats("s", &[], |_| 0.5);
    let z = b.value("z", &[], Some(Data::I8(vec![0])));
    let q = b.node(Op::QuantizeLinear { axis: 1 }, &[x, s, z], &[1, 4]);
    let d = b.node(Op::DequantizeLinear { axis: 1 }, &[q, s, z], &[1, 4]);
    let w = b.value("w", &[4, 2], Some(Data::I8(vec![1, -2, 3, 4, -5, 6, 7, 8])));
    let ws = b.floats("ws", &[], |_| 0.25);
    let wd = b.node(Op::DequantizeLinear { axis: 1 }, &[w, ws, z], &[4, 2]);
    let y = b.node(Op::Gemm { trans_b: false }, &[d, wd], &[1, 2]);
    let bias = b.value("bias", &[1, 2], Some(Data::I32(vec![80, -40])));
    let bs = b.floats("bs", &[], |_| 0.125);
    let bd = b.node(Op::DequantizeLinear { axis: 1 }, &[bias, bs], &[1, 2]);
    let y = b.node(Op::Add, &[y, bd], &[1, 2]);
    let os = b.floats("os", &[], |_| 1.0);
    let y = b.node(Op::QuantizeLinear { axis: 1 }, &[y, os, z], &[1, 2]);
    let y = b.node(Op::DequantizeLinear { axis: 1 }, &[y, os, z], &[1, 2]);
    let graph = onnx::load(&onnx::save(&b.finish(x, y))).unwrap();
    let network = passes::quantized(&graph).unwrap();
    let out = vta_compiler::reference::run(&network, &[4, 2, 0, 2]).unwrap();
    // (sum + bias) / 8: (4 + 6 + 0 + 14 + 80) / 8 and (-8 + 8 + 0 + 16 - 40) / 8.
    assert_eq!(out[network.outputs[0].0], [13, -3]);
}

#[test]
fn other_broadcasts_are_refused_by_name() {
    let mut b = Builder::default();
    let x = b.value("x", &[1, 8, 4, 4], None);
    let c = b.floats("c", &[1, 8, 2, 1], |i| i as f32);
    let y = b.node(Op::Add, &[x, c], &[1, 8, 4, 4]);
    let error = onnx::load(&onnx::save(&b.finish(x, y))).unwrap_err();
    assert!(error.to_string().contains("node0 (Add): shapes"), "{error}");
}

#[test]
fn batch_norm_folds_into_its_convolution_and_stays_elsewhere() {
    let graph = onnx::load(&onnx::save(&classifier(&[5], false))).unwrap();
    let folded = quantize::fold(&graph).unwrap();
    let count = |g: &Graph| {
        g.nodes
            .iter()
            .filter(|n| matches!(n.op, Op::BatchNormalization { .. }))
            .count()
    };
    assert_eq!((count(&graph), count(&folded)), (1, 0));
    let output = |g: &Graph| float::run(g, &image(3)).unwrap()[0].clone();
    for (a, b) in output(&graph).iter().zip(output(&folded)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    let apart = classifier(&[5], true);
    assert_eq!(quantize::fold(&apart), Ok(apart));
}

#[test]
fn quantized_networks_compute_what_the_float_one_does() {
    let graph = onnx::load(&onnx::save(&classifier(&[5], false))).unwrap();
    let images: Vec<_> = (0..16).map(image).collect();
    for mode in [Mode::Multiply, Mode::Shift] {
        let quantized = quantize::quantize(&graph, &images, mode).unwrap();
        let again = onnx::load(&onnx::save(&quantized)).unwrap();
        let network = passes::quantized(&again).unwrap();
        let input = &network.tensors[network.inputs[0].0];
        let output = &network.tensors[network.outputs[0].0];
        for image in &images {
            let int8: Vec<i16> = image
                .iter()
                .map(|v| {
                    ((v / input.scale).round() + input.zero as f32).clamp(-128.0, 127.0) as i16
                })
                .collect();
            let got = vta_compiler::reference::run(&network, &int8).unwrap();
            let expected = &float::run(&graph, image).unwrap()[0];
            for (q, e) in got[network.outputs[0].0].iter().zip(expected) {
                let got = (i32::from(*q) - output.zero) as f32 * output.scale;
                assert!(
                    (got - e).abs() < 0.06,
                    "{mode:?}: {got} for {e}, step {}",
                    output.scale
                );
            }
        }
        if mode == Mode::Shift {
            let powers = network
                .tensors
                .iter()
                .all(|t| t.scale.log2().fract() == 0.0);
            assert!(powers, "shift mode has powers of two only");
        }
    }
}

#[test]
fn quantization_refuses_what_it_cannot_do() {
    let float = demo("resnet20_f32.onnx");
    assert_eq!(
        quantize::quantize(&float, &[], Mode::Shift),
        Err(QuantizeError::NoImages)
    );
    let short = quantize::quantize(&float, &[vec![0.0; 7]], Mode::Shift).unwrap_err();
    assert!(short.to_string().contains("3072"), "{short}");
    let int8 = demo("resnet20.onnx");
    let twice = quantize::quantize(&int8, &[vec![0.0; 3072]], Mode::Shift).unwrap_err();
    assert!(twice.to_string().contains("quantised already"), "{twice}");
}

#[test]
fn scales_go_into_float_graphs_only() {
    let float = demo("resnet20_f32.onnx");
    let scales = quantize::equal_scales(&float, 0.1);
    let refused = |graph: &Graph, scales: &quantize::Scales| {
        let error = quantize::apply(graph, scales, Mode::Multiply);
        error.unwrap_err().to_string()
    };
    let mut none = scales.clone();
    none[float.inputs[0].0] = None;
    let error = refused(&float, &none);
    assert!(error.contains("the input has no scale"), "{error}");
    let int8 = demo("resnet20.onnx");
    let error = refused(&int8, &quantize::equal_scales(&int8, 0.1));
    assert!(error.contains("quantised already"), "{error}");
}

#[test]
fn an_input_that_an_activation_reads_has_a_scale_of_its_own() {
    let mut b = Builder::default();
    let x = b.value("x", &[1, 3, 8, 8], None);
    let y = b.node(Op::Relu, &[x], &[1, 3, 8, 8]);
    let graph = b.finish(x, y);
    let images = [vec![-0.5; 192], vec![0.25; 192]];
    let scales = quantize::calibrate(&graph, &images, Mode::Multiply).unwrap();
    let input = scales[graph.inputs[0].0].unwrap();
    // From -0.5 to 0.25 are 255 steps.
    assert!((input.step - 0.75 / 255.0).abs() < 1e-4, "{input:?}");
    assert_eq!(input.zero, 42);
}

#[test]
fn metadata_says_how_sums_are_requantized() {
    let mut graph = demo("resnet20.onnx");
    let listing = |graph: &Graph| passes::quantized(graph).map(|g| g.to_string());
    let precise = listing(&graph).unwrap();
    let mut set = |name: &str| {
        graph.metadata.insert("requant".to_owned(), name.to_owned());
        listing(&onnx::load(&onnx::save(&graph)).unwrap())
    };
    assert_eq!(set("precise").unwrap(), precise);
    assert_ne!(set("fast").unwrap(), precise);
    let error = set("sloppy").unwrap_err().to_string();
    assert_eq!(
        error,
        "metadata: no requantisation 'sloppy' (there are precise and fast)"
    );
}

#[test]
fn zoo_networks_are_the_same_everywhere() {
    // The checksum of the file: weights, scales and structure.
    let bytes = onnx::save(&zoo::graph("resnet18").unwrap());
    assert_eq!(
        (bytes.len(), crc32fast::hash(&bytes)),
        (11_809_281, 611_890_063)
    );
    assert!(
        zoo::graph("resnet19")
            .unwrap_err()
            .to_string()
            .contains("resnet152")
    );
}

#[test]
fn outlines_say_what_the_networks_compile_to() {
    for name in ["resnet18", "resnet50", "resnext50", "mobilenet-v1"] {
        let outline = zoo::outline(name).unwrap();
        let graph = zoo::graph(name).unwrap();
        let network = passes::quantized(&graph).unwrap();
        let program = lower::compile(&network, &Config::default(), &LowerOptions::default());
        let program = program.unwrap();
        let compiled = zoo::Outline {
            input: network.tensors[network.inputs[0].0].chw,
            layers: program.layers.len(),
            macs: program.layers.iter().map(|l| l.macs).sum(),
            weights: graph.weights(),
        };
        assert_eq!((outline, graph.macs()), (compiled, compiled.macs), "{name}");
        assert_eq!(lower::layers(&network), compiled.layers, "{name}");
    }
    assert!(zoo::outline("resnet19").is_err());
}

#[test]
fn mobilenet_neither_vanishes_nor_saturates() {
    for mode in [Mode::Multiply, Mode::Shift] {
        let graph = passes::quantized(&zoo::graph_with("mobilenet-v1", mode).unwrap()).unwrap();
        let input = &graph.tensors[graph.inputs[0].0];
        let mean = [0.485f32, 0.456, 0.406];
        let std = [0.229f32, 0.224, 0.225];
        let pixels = zoo::sample_image(zoo::SIZE, 1);
        let int8 = pixels.iter().enumerate().map(|(i, &x)| {
            let c = i / (zoo::SIZE * zoo::SIZE);
            let real = (f32::from(x) / 255.0 - mean[c]) / std[c];
            (real / input.scale).round().clamp(-128.0, 127.0) as i16
        });
        let values = vta_compiler::reference::run(&graph, &int8.collect::<Vec<_>>()).unwrap();
        for node in &graph.nodes {
            let (tensor, values) = (&graph.tensors[node.output.0], &values[node.output.0]);
            let share = |wanted: &dyn Fn(i16) -> bool| {
                values.iter().filter(|v| wanted(**v)).count() as f64 / values.len() as f64
            };
            let (zero, top) = (share(&|v| v == 0), share(&|v| v >= tensor.range.1));
            assert!(zero < 0.8, "{mode:?} {}: {zero} zeros", node.name);
            assert!(top < 0.1, "{mode:?} {}: {top} at the bound", node.name);
            // ReLU6 ends at 6, not at the end of int8.
            if node.name.starts_with("block") || node.name == "conv1" {
                let bound = f32::from(tensor.range.1) * tensor.scale;
                assert!(
                    (bound - 6.0).abs() < 0.03,
                    "{mode:?} {}: {bound}",
                    node.name
                );
            }
        }
    }
}

/// A convolution of `[1, ci, 6, 6]` by weights `[co, per_group, 3, 3]`.
fn grouped(ci: usize, co: usize, per_group: usize, group: usize) -> Vec<u8> {
    let mut b = Builder::default();
    let x = b.value("x", &[1, ci, 6, 6], None);
    let w = b.floats("w", &[co, per_group, 3, 3], |i| (i % 7) as f32 - 3.0);
    let window = Window {
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [1; 4].into(),
    };
    let y = b.node(Op::Conv { window, group }, &[x, w], &[1, co, 6, 6]);
    onnx::save(&b.finish(x, y))
}

#[test]
fn wrong_groups_are_refused_by_name() {
    for (ci, co, per_group, group, expected) in [
        (
            8,
            8,
            8,
            0,
            "group 0 doesn't divide the 8 input and 8 output",
        ),
        (
            8,
            8,
            2,
            3,
            "group 3 doesn't divide the 8 input and 8 output",
        ),
        (
            8,
            6,
            2,
            4,
            "group 4 doesn't divide the 8 input and 6 output",
        ),
        (
            8,
            8,
            4,
            4,
            "weights [8, 4, 3, 3] don't fit input [1, 8, 6, 6], group 4",
        ),
        (8, 8, 1, usize::MAX >> 1, "doesn't divide"),
    ] {
        let error = onnx::load(&grouped(ci, co, per_group, group)).unwrap_err();
        let text = error.to_string();
        let named = text.starts_with("ONNX node node0 (Conv): ");
        assert!(named && text.contains(expected), "{text}");
    }
}

#[test]
fn grouped_convolutions_are_quantized_like_others() {
    for (ci, co, group) in [(8, 8, 8), (8, 16, 8), (6, 9, 3)] {
        let graph = onnx::load(&grouped(ci, co, ci / group, group)).unwrap();
        let image: Vec<f32> = (0..ci * 36)
            .map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0)
            .collect();
        let images = std::slice::from_ref(&image);
        let quantized = quantize::quantize(&graph, images, Mode::Multiply).unwrap();
        let network = passes::quantized(&onnx::load(&onnx::save(&quantized)).unwrap()).unwrap();
        let [input, output] =
            [network.inputs[0], network.outputs[0]].map(|id| &network.tensors[id.0]);
        let int8: Vec<i16> = image
            .iter()
            .map(|v| ((v / input.scale).round() as i32 + input.zero) as i16)
            .collect();
        let got = vta_compiler::reference::run(&network, &int8).unwrap();
        let expected = &float::run(&graph, &image).unwrap()[0];
        for (q, e) in got[network.outputs[0].0].iter().zip(expected) {
            let got = (i32::from(*q) - output.zero) as f32 * output.scale;
            assert!(
                (got - e).abs() < 2.5 * output.scale,
                "{got} for {e}, step {}",
                output.scale
            );
        }
    }
}
