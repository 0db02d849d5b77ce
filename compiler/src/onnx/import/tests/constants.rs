//! Constants flow into any input of any operator: a model is read and run, or refused by name.

use super::model::{Model, int, ints, text};
use super::proto;
use crate::graph::{MatMulForm, Op};
use crate::lower::{self, LowerOptions};
use crate::qgraph::{QNode, QOp, TensorId};
use crate::zoo::Rng;
use crate::{float, onnx, passes, quantize, reference};
use rayon::prelude::*;
use std::io::Write as _;

/// Every operator that is read, with how many inputs it may have.
const OPERATORS: [(&str, usize); 42] = [
    ("Conv", 3),
    ("Relu", 1),
    ("Clip", 3),
    ("Add", 2),
    ("MaxPool", 1),
    ("AveragePool", 1),
    ("GlobalAveragePool", 1),
    ("GlobalMaxPool", 1),
    ("ReduceMean", 2),
    ("Flatten", 1),
    ("Reshape", 2),
    ("Squeeze", 2),
    ("Gemm", 3),
    ("MatMul", 2),
    ("BatchNormalization", 5),
    ("QuantizeLinear", 3),
    ("DequantizeLinear", 3),
    ("Identity", 1),
    ("Dropout", 2),
    ("Constant", 0),
    ("Pad", 4),
    ("Resize", 4),
    ("Upsample", 2),
    ("Mul", 2),
    ("Sub", 2),
    ("Concat", 3),
    ("Sigmoid", 1),
    ("HardSigmoid", 1),
    ("HardSwish", 1),
    ("Tanh", 1),
    ("Elu", 1),
    ("LeakyRelu", 1),
    ("Softmax", 1),
    ("Div", 2),
    ("PRelu", 2),
    ("ConvTranspose", 3),
    ("Slice", 5),
    ("Split", 2),
    ("Gather", 2),
    ("DepthToSpace", 1),
    ("SpaceToDepth", 1),
    ("Transpose", 1),
];

/// Shapes of constants: those that fit an operator of `x`, and those that fit none.
const SHAPES: [&[i64]; 24] = [
    &[],
    &[0],
    &[1],
    &[2],
    &[3],
    &[60],
    &[1, 2],
    &[2, 3],
    &[1, 60],
    &[60, 3],
    &[3, 60],
    &[4, 60],
    &[0, 3],
    &[2, 0],
    &[3, 2, 3, 3],
    &[3, 2, 1, 1],
    &[2, 1, 3, 3],
    &[2, 1, 1, 1],
    &[1, 2, 1, 1],
    &[1, 2, 5, 6],
    &[3, 2, 5, 6],
    &[1, 0, 5, 6],
    &[0, 1 << 40, 1 << 40],
    &[1, 2, 5, 6, 1],
];

struct Random(Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn constant(&mut self, name: &str) -> proto::Tensor {
        let dims = self.one(&SHAPES).to_vec();
        let count: i64 = dims.iter().product();
        let mut value = || self.below(255) as i64 - 127;
        let values: Vec<i64> = (0..count.min(4096)).map(|_| value()).collect();
        let data_type = self.one(&[
            proto::FLOAT,
            proto::FLOAT,
            proto::FLOAT,
            proto::INT8,
            proto::UINT8,
            proto::INT32,
            proto::INT64,
        ]);
        let raw = match data_type {
            proto::FLOAT => values
                .iter()
                .flat_map(|&v| (v as f32 / 64.0).to_le_bytes())
                .collect(),
            proto::INT32 => values
                .iter()
                .flat_map(|&v| (v as i32).to_le_bytes())
                .collect(),
            proto::INT64 => values.iter().flat_map(|&v| (v % 7).to_le_bytes()).collect(),
            _ => values.iter().map(|&v| v as u8).collect::<Vec<u8>>(),
        };
        proto::Tensor {
            dims,
            data_type,
            name: name.to_owned(),
            raw_data: raw.into(),
            ..Default::default()
        }
    }

    fn attributes(&mut self, op: &str, name: &str) -> Vec<proto::Attribute> {
        let pools = op.ends_with("Pool") && !op.starts_with("Global");
        let mut all = match op {
            _ if pools => vec![ints("kernel_shape", self.one(&[&[1, 1], &[2, 2], &[5, 6]]))],
            "Conv" | "ConvTranspose" => vec![int("group", self.one(&[1, 1, 1, 2, 0]))],
            "Gather" | "Split" => vec![int("axis", self.one(&[1, 3, 0, -9]))],
            "DepthToSpace" | "SpaceToDepth" => vec![int("blocksize", self.one(&[1, 2, 0]))],
            "Gemm" => vec![int("transB", self.one(&[0, 1]))],
            "QuantizeLinear" | "DequantizeLinear" => vec![int("axis", self.one(&[0, 1, 7]))],
            "Concat" | "Softmax" | "Flatten" => vec![int("axis", self.one(&[1, 1, 0]))],
            "ReduceMean" => vec![ints("axes", self.one(&[&[2, 3], &[1]]))],
            "Constant" => vec![proto::Attribute {
                name: "value".to_owned(),
                t: Some(self.constant(name)),
                ..Default::default()
            }],
            _ => vec![],
        };
        if (pools || op.starts_with("Conv")) && self.below(3) == 0 {
            all.push(ints("strides", self.one(&[&[2, 2], &[1, 3]])));
            all.push(ints("pads", self.one(&[&[1, 1, 1, 1], &[0, 0, 4, 4]])));
        }
        if self.below(20) == 0 {
            all.push(text("auto_pad", "SAME_UPPER"));
        }
        all
    }

    /// A model in which any input may be a constant, the network's input or what a node made.
    fn model(&mut self) -> Model {
        let mut model = Model::default();
        let nodes = 1 + self.below(4);
        let mut made = vec!["x".to_owned()];
        for index in 0..nodes {
            let (op, most) = self.one(&OPERATORS);
            let output = match index + 1 == nodes {
                true => "y".to_owned(),
                false => format!("v{index}"),
            };
            let mut inputs = Vec::new();
            for slot in 0..most {
                match self.below(20) {
                    0 => inputs.push(String::new()),
                    // Weights and parameters usually are constants.
                    k if k < 9 || (slot > 0 && k < 17) => {
                        let name = format!("c{index}.{slot}");
                        let tensor = self.constant(&name);
                        model.0.initializer.push(tensor);
                        inputs.push(name);
                    }
                    19 if slot > 0 => break,
                    _ => inputs.push(made[self.below(made.len())].clone()),
                }
            }
            let attributes = self.attributes(op, &output);
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            model = model.node(op, &inputs, &output, &attributes);
            made.push(output);
        }
        model
    }
}

/// Whatever can be done with a graph; how far it went.
fn all_of(graph: &crate::graph::Graph) -> usize {
    let image = super::image();
    let mut done = usize::from(float::run(graph, &image).is_ok());
    let lowered = |graph: &crate::graph::Graph| {
        let Ok(network) = passes::quantized(graph) else {
            return 0;
        };
        let int8 = vec![3; 60];
        let found = reference::run(&network, &int8);
        let options = LowerOptions::default();
        let program = lower::compile(&network, &vta_isa::Config::default(), &options);
        if let (Ok(_), Ok(program)) = (&found, &program) {
            program.validate().unwrap();
        }
        usize::from(found.is_ok()) + usize::from(program.is_ok())
    };
    done += lowered(graph);
    for mode in [quantize::Mode::Multiply, quantize::Mode::Shift] {
        let images = [image.clone(), vec![0.25; 60]];
        if let Ok(quantized) = quantize::quantize(graph, &images, mode) {
            let again = onnx::load(&onnx::save(&quantized));
            done += 1 + again.map_or(0, |graph| lowered(&graph));
        }
    }
    done
}

#[test]
fn no_model_with_constants_anywhere_panics() {
    let done = (0..30_000).into_par_iter().map(|seed| {
        let model = Random(Rng::new(seed)).model();
        let text = format!("{:?}", model.0.node);
        let caught = std::panic::catch_unwind(|| model.read(13).map(|graph| all_of(&graph)));
        let Ok(done) = caught else {
            panic!("seed {seed} panics: {text}");
        };
        [done.is_ok(), done.is_ok_and(|d| d > 0)].map(usize::from)
    });
    let [read, run] = done.reduce(|| [0; 2], |[a, b], [c, d]| [a + c, b + d]);
    // The generator reaches what it is for.
    assert!(read > 1000 && run > 500, "{read} are read, {run} run");
}

#[test]
fn a_constant_that_is_flattened_is_a_constant() {
    let weights: Vec<f32> = (0..180)
        .map(|i| ((i * 7) % 11) as f32 / 8.0 - 0.6)
        .collect();
    for flatten in ["Flatten", "Identity"] {
        let (dims, trans): (&[i64], _) = match flatten {
            "Flatten" => (&[3, 2, 5, 6], 1),
            _ => (&[60, 3], 0),
        };
        let model = Model::default()
            .floats("c", dims, weights.clone())
            .node(flatten, &["c"], "w", &[])
            .node("Flatten", &["x"], "f", &[])
            .node("Gemm", &["f", "w"], "y", &[int("transB", trans)]);
        let graph = model.read(13).unwrap();
        assert_eq!(super::run(&graph).len(), 3);
        super::quantizes(&graph);
    }
}

/// A Gemm of a transposed first operand: of one row, and of a constant, as it is or dequantised with one scale
/// or several. Of several rows the device would have to turn the tensor.
#[test]
fn the_first_operand_of_a_gemm_may_be_transposed() {
    let weights =
        |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 7) % 11) as f32 / 8.0 - 0.6).collect() };
    let int8: Vec<i8> = (0..8).map(|i| ((i * 37) % 51) as i8 - 25).collect();
    for (rows, operands, trans_b, hosted) in [
        (&[60, 1][..], &["a", "w", "b"][..], 1, false),
        (&[2, 30], &["c", "a"], 0, false),
        (&[2, 30], &["d", "a"], 0, false),
        (&[2, 30], &["e", "a"], 0, false),
        (&[10, 6], &["a", "v"], 0, true),
    ] {
        let quantized = ["d", "e"].contains(&operands[0]);
        let model = Model::default()
            .longs("rows", rows)
            .floats("w", &[4, 60], weights(240))
            .floats("v", &[10, 1], weights(10))
            .floats("b", &[4], weights(4))
            .floats("c", &[2, 4], weights(8))
            .int8("q", &[2, 4], &int8)
            .floats("step", &[], vec![0.02])
            .floats("steps", &[4], vec![0.02, 0.03, 0.01, 0.02])
            .int8("zero", &[], &[0])
            .int8("zeros", &[4], &[0; 4])
            .floats("s", &[], vec![1.0 / 32.0])
            .int8("z", &[], &[0]);
        let gemm = [int("transA", 1), int("transB", trans_b)];
        let model = match quantized {
            false => model
                .node("Reshape", &["x", "rows"], "a", &[])
                .node("Gemm", operands, "y", &gemm),
            true => model
                .node("DequantizeLinear", &["q", "step", "zero"], "d", &[])
                .node(
                    "DequantizeLinear",
                    &["q", "steps", "zeros"],
                    "e",
                    &[int("axis", 1)],
                )
                .rounded("x", "x real")
                .node("Reshape", &["x real", "rows"], "a", &[])
                .node("Gemm", operands, "g", &gemm)
                .rounded("g", "y"),
        };
        let graph = model.read(13).unwrap();
        let expected = super::run(&graph);
        let graph = match quantized {
            true => graph,
            false => {
                quantize::quantize(&graph, &[super::image()], quantize::Mode::Multiply).unwrap()
            }
        };
        let network = passes::quantized(&graph).unwrap();
        let is_host = |n: &QNode| matches!(n.op, QOp::Host { .. });
        let found = network.nodes.iter().any(is_host);
        assert_eq!(found, hosted, "{operands:?}: {network}");
        let tensor = |id: TensorId| &network.tensors[id.0];
        let [input, output] = [network.inputs[0], network.outputs[0]];
        let round = |v: &f32| ((v / tensor(input).scale).round() as i32 + tensor(input).zero) as i8;
        let round = |v: &f32| i16::from(round(v));
        let int8: Vec<i16> = super::image().iter().map(round).collect();
        let found = &reference::run(&network, &int8).unwrap()[output.0];
        assert_eq!(found.len(), expected.len());
        for (q, e) in found.iter().zip(&expected) {
            let step = tensor(output).scale;
            let off = ((i32::from(*q) - tensor(output).zero) as f32 * step - e).abs();
            assert!(off <= 0.1 + step, "{operands:?}: {q} for {e}");
        }
    }
}

/// What a product of a matrix and a constant is read as, from the shape of what is computed.
#[test]
fn products_of_matrices_are_read_by_the_side_of_the_constant() {
    let form = |rows: &[i64], w: &[i64], kind: &str, inputs: [&str; 2]| {
        let count = w.iter().product::<i64>() as usize;
        let graph = Model::default()
            .longs("rows", rows)
            .floats("w", w, vec![1.0; count])
            .node("Reshape", &["x", "rows"], "a", &[])
            .node(
                kind,
                &inputs,
                "y",
                &[int("transB", 1)][..usize::from(kind == "Gemm")],
            )
            .read(13)
            .unwrap();
        let out = graph.values[graph.outputs[0].0].shape.clone();
        (graph.nodes[1].op.clone(), out)
    };
    let right = ["a", "w"];
    for (rows, w, kind, inputs, expected, out) in [
        (
            &[6, 10][..],
            &[10, 4][..],
            "MatMul",
            right,
            MatMulForm::Right,
            &[6, 4][..],
        ),
        (
            &[2, 3, 10],
            &[10, 4],
            "MatMul",
            right,
            MatMulForm::Right,
            &[2, 3, 4],
        ),
        (
            &[6, 10],
            &[4, 10],
            "Gemm",
            right,
            MatMulForm::RightTransposed,
            &[6, 4],
        ),
        (
            &[1, 6, 10],
            &[4, 6],
            "MatMul",
            ["w", "a"],
            MatMulForm::Left,
            &[1, 4, 10],
        ),
        (
            &[6, 10],
            &[1, 6],
            "MatMul",
            ["w", "a"],
            MatMulForm::Left,
            &[1, 10],
        ),
    ] {
        let (op, shape) = form(rows, w, kind, inputs);
        assert_eq!((op, &shape[..]), (Op::MatMul { form: expected }, out));
    }
    let (op, _) = form(&[1, 60], &[60, 4], "MatMul", right);
    assert_eq!(op, Op::Gemm { trans_b: false });
    // Several matrices, and two that are computed, are the host's.
    for (rows, w, inputs) in [
        (&[2, 6, 5][..], &[4, 6][..], ["w", "a"]),
        (&[1, 6, 10], &[1, 10, 4], right),
        (&[1, 60], &[60, 4], ["a", "t"]),
    ] {
        let count = w.iter().product::<i64>() as usize;
        let graph = Model::default()
            .longs("rows", rows)
            .longs("turned", &[60, 1])
            .floats("w", w, vec![1.0; count])
            .node("Reshape", &["x", "rows"], "a", &[])
            .node("Reshape", &["x", "turned"], "t", &[])
            .node("Transpose", &["a"], "u", &[])
            .node("MatMul", &inputs, "y", &[])
            .read(13)
            .unwrap();
        let last = &graph.nodes[graph.nodes.len() - 1].op;
        let is_matrix = |op: &Op| matches!(op, Op::MatMul { .. } | Op::Gemm { .. });
        assert!(!is_matrix(last), "{rows:?} {w:?}: {last:?}");
    }
}

#[test]
fn the_recorded_model_with_a_flattened_constant_runs_or_is_refused() {
    let beside = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("VTA_SHARED").map_or(beside, Into::into);
    let path = shared.join("conformance/reproducers/flatten_const_gemm.onnx");
    let Ok(bytes) = std::fs::read(&path) else {
        assert!(std::env::var_os("CI").is_none(), "{}", path.display());
        let _ = writeln!(std::io::stderr(), "SKIPPED {} is not here", path.display());
        return;
    };
    let Ok(graph) = onnx::load(&bytes) else {
        return;
    };
    let len = graph.values[graph.inputs[0].0].shape.iter().product();
    let image = vec![0.5; len];
    float::run(&graph, &image).unwrap();
    let quantized = quantize::quantize(&graph, &[image], quantize::Mode::Multiply).unwrap();
    passes::quantized(&quantized).unwrap();
}
