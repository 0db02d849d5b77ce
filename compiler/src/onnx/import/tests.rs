//! Operators that become others as they are read.

mod brought;
mod budget;
mod columns;
mod constants;
mod exact;
mod inside;
mod kept;
mod model;
mod moves;
mod mutated;
mod narrow;
mod qoperator;
mod sequences;
mod wide;

use super::*;
use crate::graph::Node;
use crate::passes::Verdict;
use crate::{float, passes, quantize, reference};
use model::{Model, int, ints, text};

fn image() -> Vec<f32> {
    (0..60)
        .map(|i| ((i * 37) % 41) as f32 / 16.0 - 1.2)
        .collect()
}

fn run(graph: &Graph) -> Vec<f32> {
    float::run(graph, &image()).unwrap().remove(0)
}

/// The quantised network's output is within two steps of the float one's, through a file.
fn quantizes(graph: &Graph) {
    let quantized = quantize::quantize(graph, &[image()], quantize::Mode::Multiply).unwrap();
    let again = load(&super::super::save(&quantized)).unwrap();
    let network = passes::quantized(&again).unwrap();
    let step = |id: usize| network.tensors[id].scale;
    let input = step(network.inputs[0].0);
    let int8: Vec<i16> = image()
        .iter()
        .map(|v| (v / input).round().clamp(-128.0, 127.0) as i16)
        .collect();
    let found = reference::run(&network, &int8).unwrap();
    let (out, expected) = (network.outputs[0].0, run(graph));
    assert_eq!(found[out].len(), expected.len());
    for (q, e) in found[out].iter().zip(&expected) {
        let got = f32::from(*q) * step(out);
        assert!((got - e).abs() <= 0.1 + 2.0 * step(out), "{got} for {e}");
    }
}

#[test]
fn padding_joins_the_convolution() {
    let zeros = [0, 0, 1, 2, 0, 0, 3, 0];
    let expected = Model::default()
        .conv("x", "y", &[ints("pads", &[2, 2, 4, 1])])
        .read(13)
        .unwrap();
    let own = [ints("pads", &[1, 0, 1, 1])];
    for opset in [7, 13] {
        let pad = match opset {
            7 => Model::default().node("Pad", &["x"], "p", &[ints("pads", &zeros)]),
            _ => Model::default()
                .longs("pads", &zeros)
                .node("Pad", &["x", "pads"], "p", &[]),
        };
        let graph = pad.conv("p", "y", &own).read(opset).unwrap();
        assert_eq!(graph.nodes.len(), 1);
        assert_eq!(graph.nodes[0].op, expected.nodes[0].op);
        assert_eq!(run(&graph), run(&expected));
        quantizes(&graph);
    }
}

#[test]
fn padding_goes_through_rounding_and_other_padding() {
    let model = |pads: bool| {
        let mut model = Model::default()
            .floats("s", &[], vec![1.0 / 32.0])
            .int8("z", &[], &[0])
            .int8("w int8", &[3, 2, 1, 1], &[10, -20, 30, 40, -50, 60])
            .node("DequantizeLinear", &["w int8", "s", "z"], "w", &[])
            .rounded("x", "a");
        let mut own = vec![];
        let mut from = "a";
        if pads {
            model = model
                .longs("one", &[0, 0, 1, 0, 0, 0, 0, 2])
                .longs("two", &[0, 0, 0, 3, 0, 0, 1, 0])
                .node("Pad", &["a", "one"], "b", &[])
                .node("Identity", &["b"], "c", &[])
                .rounded("c", "d")
                .node("Pad", &["d", "two"], "e", &[]);
            from = "e";
        } else {
            own.push(ints("pads", &[1, 3, 1, 2]));
        }
        let model = model.node("Conv", &[from, "w"], "f", &own);
        passes::quantized(&model.rounded("f", "y").read(13).unwrap()).unwrap()
    };
    let (joined, expected) = (model(true), model(false));
    let int8: Vec<i16> = (0..60)
        .map(|i| ((i * 29 % 251) as u8 as i8).into())
        .collect();
    let output = |network| -> Vec<i16> {
        let all = reference::run(network, &int8).unwrap();
        all[network.outputs[0].0].clone()
    };
    assert_eq!(output(&joined), output(&expected));
    assert_eq!(output(&joined).len(), 3 * 7 * 11);
}

#[test]
fn padding_counts_in_an_average() {
    let pool = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let graph = Model::default()
        .longs("pads", &[0, 0, 1, 0, 0, 0, 0, 0])
        .node("Pad", &["x", "pads"], "p", &[])
        .node("AveragePool", &["p"], "y", &pool)
        .read(13)
        .unwrap();
    let (found, x) = (run(&graph), image());
    assert_eq!(found.len(), 2 * 3 * 3);
    assert!((found[0] - (x[0] + x[1]) / 4.0).abs() < 1e-6);
    assert!((found[3] - (x[6] + x[7] + x[12] + x[13]) / 4.0).abs() < 1e-6);
    quantizes(&graph);
}

#[test]
fn padding_that_nothing_takes_over_is_refused() {
    let pads = [0, 0, 1, 1, 0, 0, 1, 1];
    let pad = |attributes: &[proto::Attribute]| {
        let mut all = vec![ints("pads", &pads)];
        all.extend_from_slice(attributes);
        Model::default().node("Pad", &["x"], "p", &all)
    };
    let constant = |inputs: &[&str]| {
        Model::default()
            .longs("pads", &pads)
            .longs("both", &[0, 1, -1, 0, 0, -1, 0, 0])
            .longs("short", &[0, 0, 1, 1])
            .floats("one", &[], vec![1.0])
            .node("Pad", inputs, "p", &[])
            .conv("p", "y", &[])
    };
    for (model, says) in [
        (
            pad(&[text("mode", "reflect")]).conv("p", "y", &[]),
            "mode reflect",
        ),
        (constant(&["x", "both"]), "only rows and columns"),
        (constant(&["x", "short"]), "4 pads for 4 dimensions"),
        (constant(&["x", "x"]), "must be a constant"),
        (constant(&["x"]), "pads are missing"),
        (constant(&["x", "pads", "one"]), "only zeros"),
        (
            constant(&["x", "pads", "", "pads"]),
            "8 pads for 8 dimensions",
        ),
    ] {
        let found = model.refused(13);
        assert!(found.contains(says), "{found}: not {says}");
    }
    let zeros = |graph: &Graph| {
        let pads = graph
            .nodes
            .iter()
            .filter(|n| matches!(n.op, Op::Pad { .. }));
        pads.count()
    };
    for (model, left) in [
        (pad(&[]).node("Relu", &["p"], "y", &[]), 1),
        (pad(&[]).node("Identity", &["p"], "y", &[]), 1),
        (
            pad(&[]).conv("p", "y", &[text("auto_pad", "SAME_UPPER")]),
            0,
        ),
    ] {
        assert_eq!(zeros(&model.read(13).unwrap()), left);
    }
}

#[test]
fn a_mean_over_rows_and_columns_is_a_global_average() {
    let x = image();
    let mean = |c: usize| x[c * 30..][..30].iter().sum::<f32>() / 30.0;
    for (keep, axes, as_input) in [
        (1, [2, 3], false),
        (1, [-1, -2], true),
        (0, [3, 2], false),
        (0, [2, -1], true),
    ] {
        let keepdims = int("keepdims", keep);
        let model = match as_input {
            true => Model::default().longs("axes", &axes).node(
                "ReduceMean",
                &["x", "axes"],
                "y",
                &[keepdims],
            ),
            false => {
                Model::default().node("ReduceMean", &["x"], "y", &[keepdims, ints("axes", &axes)])
            }
        };
        let graph = model.read(18).unwrap();
        let found = run(&graph);
        assert!(
            (0..2).all(|c| (found[c] - mean(c)).abs() < 1e-5),
            "{found:?}"
        );
        let shape = &graph.values[graph.outputs[0].0].shape;
        assert_eq!(shape[..], [1, 2, 1, 1][..if keep == 1 { 4 } else { 2 }]);
        quantizes(&graph);
    }
    for axes in [&[1][..], &[2], &[1, 2, 3], &[i64::MIN, i64::MAX], &[]] {
        let model = Model::default().node("ReduceMean", &["x"], "y", &[ints("axes", axes)]);
        let found = model.refused(13);
        assert!(found.contains("axes 2 and 3"), "{found}");
    }
}

#[test]
fn constant_factors_scale_channels() {
    let shapes: [(&[i64], &[f32]); 4] = [
        (&[], &[-1.5]),
        (&[1], &[0.25]),
        (&[2, 1, 1], &[2.0, -0.5]),
        (&[1, 2, 1, 1], &[0.0, 3.0]),
    ];
    for (dims, values) in shapes {
        for inputs in [["x", "m"], ["m", "x"]] {
            let model = Model::default().floats("m", dims, values.to_vec());
            let graph = model.node("Mul", &inputs, "y", &[]).read(13).unwrap();
            let factor = |i: usize| values[i / 30 % values.len()];
            let expected: Vec<f32> = (image().iter().enumerate())
                .map(|(i, v)| v * factor(i))
                .collect();
            assert_eq!(run(&graph), expected);
            assert_eq!(graph.nodes[0].op, Op::Mul);
            quantizes(&graph);
        }
    }
}

#[test]
fn a_factor_after_a_convolution_joins_its_weights() {
    let scaled = |m: &[f32], reused: bool| {
        let model = Model::default()
            .floats("m", &[3, 1, 1], m.to_vec())
            .conv("x", "a", &[])
            .node("Mul", &["a", "m"], "b", &[]);
        let add = if reused { "a" } else { "b" };
        let graph = model.node("Add", &["b", add], "y", &[]).read(13).unwrap();
        let plain = run(&Model::default().conv("x", "y", &[]).read(13).unwrap());
        for (i, (found, plain)) in run(&graph).iter().zip(&plain).enumerate() {
            let factor = m[i / 12] + if reused { 1.0 } else { m[i / 12] };
            assert!((found - plain * factor).abs() < 1e-4);
        }
        graph
    };
    let joins = |graph: &Graph| {
        quantizes(graph);
        let folded = quantize::fold(graph).unwrap();
        folded.nodes.iter().all(|n: &Node| n.op != Op::Mul)
    };
    assert!(joins(&scaled(&[2.0, -0.5, 1.25], false)));
    // Not where the sum is read elsewhere, or a channel is lost.
    assert!(!joins(&scaled(&[2.0, -0.5, 1.25], true)));
    assert!(!joins(&scaled(&[2.0, 0.0, 1.25], false)));
}

#[test]
fn a_factor_between_quantized_tensors_is_exact() {
    for quantized in [false, true] {
        let model = Model::default()
            .floats("s", &[], vec![0.5])
            .int8("z", &[], &[0])
            .int8("m int8", &[2, 1, 1], &[-3, 2])
            .floats("m float", &[2, 1, 1], vec![-1.5, 1.0])
            .node("DequantizeLinear", &["m int8", "s", "z"], "m", &[])
            .rounded("x", "a");
        let factor = if quantized { "m" } else { "m float" };
        let model = model
            .node("Mul", &["a", factor], "b", &[])
            .rounded("b", "y");
        let network = passes::quantized(&model.read(13).unwrap()).unwrap();
        let int8: Vec<i16> = (0..60).map(|i| i - 30).collect();
        let found = reference::run(&network, &int8).unwrap();
        let expected: Vec<i16> = (int8.iter().enumerate())
            .map(|(i, &q)| {
                if i < 30 {
                    (-1.5 * f32::from(q)).round() as i16
                } else {
                    q
                }
            })
            .collect();
        assert_eq!(found[network.outputs[0].0], expected);
    }
}

#[test]
fn other_factors_are_refused() {
    let mul = |dims: &[i64], inputs: [&str; 2]| {
        let count = dims.iter().product::<i64>() as usize;
        Model::default()
            .floats("m", dims, vec![2.0; count])
            .floats("nan", &[], vec![f32::NAN])
            .longs("long", &[3])
            .node("Flatten", &["x"], "f", &[])
            .node("Mul", &inputs, "y", &[])
    };
    for (model, says) in [
        (mul(&[2], ["x", "m"]), "differ"),
        (mul(&[3, 1, 1], ["x", "m"]), "differ"),
        (mul(&[], ["m", "m"]), "depends on no input"),
        (mul(&[], ["x", "long"]), "not a float"),
    ] {
        let found = model.refused(13);
        assert!(found.contains(says), "{found}: not {says}");
    }
    let graph = mul(&[], ["x", "nan"]).read(13).unwrap();
    let judged = passes::judged(&quantize::stand_in(&graph).unwrap());
    let says = |verdict: &Verdict| match verdict {
        Verdict::Host { reason } => reason.contains("isn't finite"),
        _ => false,
    };
    assert!(judged.nodes.iter().any(says), "{:?}", judged.nodes);
}

#[test]
fn whole_factors_repeat_values() {
    let attributes = |place: &str, choose: &str| {
        vec![
            text("coordinate_transformation_mode", place),
            text("nearest_mode", choose),
        ]
    };
    let scales = |scales: [f32; 4]| Model::default().floats("scales", &[4], scales.to_vec());
    let doubled = || scales([1.0, 1.0, 2.0, 3.0]);
    let expected = Op::Resize { factors: [2, 3] };
    for model in [
        doubled().node("Resize", &["x", "", "scales"], "y", &[]),
        doubled().node(
            "Resize",
            &["x", "", "scales"],
            "y",
            &attributes("asymmetric", "floor"),
        ),
        Model::default().longs("sizes", &[1, 2, 10, 18]).node(
            "Resize",
            &["x", "", "", "sizes"],
            "y",
            &[],
        ),
    ] {
        let graph = model.read(13).unwrap();
        assert_eq!(graph.nodes[0].op, expected);
        let (found, x) = (run(&graph), image());
        for (i, value) in found.iter().enumerate() {
            let (c, row, col) = (i / 180, i / 18 % 10, i % 18);
            assert_eq!(*value, x[c * 30 + row / 2 * 6 + col / 3]);
        }
        quantizes(&graph);
    }
    let old = doubled().node(
        "Upsample",
        &["x", "scales"],
        "y",
        &[text("mode", "nearest")],
    );
    assert_eq!(old.read(9).unwrap().nodes[0].op, expected);
    let resize = |s: [f32; 4], attributes: &[proto::Attribute]| {
        scales(s).node("Resize", &["x", "", "scales"], "y", attributes)
    };
    let two = [1.0, 1.0, 2.0, 3.0];
    for (model, says) in [
        (resize([1.0, 1.0, 1.5, 2.0], &[]), "whole constant factors"),
        (resize([1.0, 2.0, 2.0, 2.0], &[]), "whole constant factors"),
        (resize([1.0, 1.0, 0.0, 2.0], &[]), "whole constant factors"),
        (
            resize([1.0, 1.0, f32::NAN, 2.0], &[]),
            "whole constant factors",
        ),
        (resize([1.0, 1.0, 60000.0, 60000.0], &[]), "elements"),
        (resize(two, &[text("mode", "linear")]), "mode linear"),
        (resize(two, &[int("antialias", 1)]), "antialias"),
        (
            resize(two, &attributes("align_corners", "floor")),
            "align_corners",
        ),
        (
            resize(two, &attributes("asymmetric", "round_prefer_floor")),
            "asymmetric",
        ),
        (
            Model::default().node("Resize", &["x"], "y", &[]),
            "whole constant factors",
        ),
    ] {
        let found = model.refused(13);
        assert!(found.contains(says), "{found}: not {says}");
    }
}

#[test]
fn names_that_could_move_a_cursor_are_escaped() {
    let clear = "a\u{1b}[2J\r\n";
    let model = || Model::default().node("Relu", &["x"], clear, &[]);
    let graph = model().node("Relu", &[clear], "y", &[]).read(13).unwrap();
    let names = graph.nodes.iter().map(|n| &n.name);
    for name in names.chain(graph.values.iter().map(|v| &v.name)) {
        assert!(!name.contains(char::is_control), "{name:?}");
    }
    assert_eq!(graph.nodes[0].name, "Relu a\\u{1b}[2J\\r\\n");
    let bad = "\u{9b}31mno";
    for model in [
        model().node(bad, &[clear], "y", &[]),
        model().node("Relu", &[bad], "y", &[]),
        model().node("Add", &[clear, "x", bad], "y", &[]),
        model().conv(clear, "y", &[text("auto_pad", bad)]),
    ] {
        let error = model.refused(13);
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}

#[test]
fn an_input_that_an_operator_has_not_is_refused() {
    let found = Model::default()
        .floats("c", &[1, 2, 5, 6], vec![1.0; 60])
        .node("Relu", &["x", "c"], "y", &[])
        .refused(13);
    assert!(
        found.contains("Relu") && found.contains("2 inputs, not 1 to 1"),
        "{found}"
    );
    let found = Model::default()
        .node("Frobnicate", &["x", "x", "x"], "y", &[])
        .refused(13);
    assert!(found.contains("neither the device nor the host"), "{found}");
}

#[test]
fn every_node_that_nothing_computes_is_told() {
    let found = Model::default()
        .node("Frobnicate", &["x"], "a", &[])
        .node("If", &["x"], "b", &[])
        .node("Relu", &["a"], "c", &[])
        .node("Frobnicate", &["x"], "d", &[])
        .node("Add", &["c", "d"], "y", &[])
        .refused(13);
    assert_eq!(
        found,
        "ONNX nodes Frobnicate a, Frobnicate d (Frobnicate): neither the device nor the host has this operator: cut the \
         model before it; node If b (If): it lacks a branch; 2 nodes behind them weren't read"
    );
    let mut many = Model::default();
    for i in 0..3000 {
        many = many.node("Frobnicate", &["x"], &format!("a{i}"), &[]);
    }
    let found = many.node("Relu", &["a0"], "y", &[]).refused(13);
    assert!(found.contains("a2 and 997 more"), "{found}");
}
