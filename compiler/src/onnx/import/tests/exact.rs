//! Operators that the host's library computes otherwise, by ONNX's definitions.

use super::model::{Model, int, ints, text};
use super::{image, run};
use crate::onnx::proto;

/// What a model of opset 21 gives on the image.
fn made(model: Model) -> Vec<f32> {
    run(&model.read(21).unwrap())
}

fn refused(model: Model) -> String {
    model.read(21).unwrap_err().to_string()
}

/// Rows of 6 values below 0 as 0, which are equal then.
fn rows() -> Vec<Vec<f32>> {
    let all: Vec<f32> = image().iter().map(|v| v.max(0.0)).collect();
    all.chunks(6).map(<[f32]>::to_vec).collect()
}

fn places(kind: &str, last: i64, keep: i64) -> Vec<f32> {
    let axis = [
        int("axis", -1),
        int("keepdims", keep),
        int("select_last_index", last),
    ];
    let to = int("to", proto::FLOAT.into());
    made(
        Model::default()
            .node("Relu", &["x"], "a", &[])
            .node(kind, &["a"], "i", &axis)
            .node("Cast", &["i"], "y", &[to]),
    )
}

#[test]
fn the_first_of_equal_values_is_found_unless_the_last_is_wanted() {
    let least = |row: &Vec<f32>| row.iter().copied().fold(f32::MAX, f32::min);
    let first = |row: &Vec<f32>| row.iter().position(|v| *v == least(row)).unwrap() as f32;
    let last = |row: &Vec<f32>| row.iter().rposition(|v| *v == least(row)).unwrap() as f32;
    let [first, last]: [Vec<f32>; 2] = [
        rows().iter().map(first).collect(),
        rows().iter().map(last).collect(),
    ];
    assert_ne!(first, last);
    for keep in [0, 1] {
        assert_eq!(places("ArgMin", 0, keep), first);
        assert_eq!(places("ArgMin", 1, keep), last);
    }
    // Of all zeros the greatest is the first, too.
    let zeros = Model::default()
        .floats("none", &[], vec![0.0])
        .node("Mul", &["x", "none"], "a", &[])
        .node("ArgMax", &["a"], "i", &[int("axis", 2)])
        .node("Cast", &["i"], "y", &[int("to", proto::FLOAT.into())]);
    assert_eq!(made(zeros), [0.0; 12]);
}

#[test]
fn the_sign_of_nothing_is_0() {
    let model = Model::default()
        .node("Relu", &["x"], "a", &[])
        .node("Sign", &["a"], "y", &[]);
    let expected: Vec<f32> = image()
        .iter()
        .map(|v| f32::from(u8::from(*v > 0.0)))
        .collect();
    assert!(expected.contains(&0.0));
    assert_eq!(made(model), expected);
}

#[test]
fn a_flatten_from_the_end_counts_dimensions() {
    for (axis, shape) in [
        (-4, [1, 60]),
        (-1, [10, 6]),
        (0, [1, 60]),
        (2, [2, 30]),
        (4, [60, 1]),
    ] {
        let model = Model::default().node("Flatten", &["x"], "y", &[int("axis", axis)]);
        let graph = model.read(21).unwrap();
        assert_eq!(graph.values[graph.outputs[0].0].shape, shape, "axis {axis}");
    }
    let error = refused(Model::default().node("Flatten", &["x"], "y", &[int("axis", -5)]));
    assert!(error.contains("axis"), "{error}");
}

#[test]
fn shapes_that_an_input_says_are_refused() {
    let numbers = |kind: &str| {
        Model::default()
            .node("ReduceMax", &["x"], "m", &[int("keepdims", 0)])
            .longs("one", &[1])
            .node("Cast", &["m"], "i", &[int("to", proto::INT64.into())])
            .node("Reshape", &["i", "one"], "said", &[])
            .node(kind, &["x", "said"], "y", &[])
    };
    for kind in [
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "ReduceSum",
        "TopK",
        "Split",
        "Slice",
    ] {
        let error = refused(numbers(kind));
        assert!(
            error.contains("isn't known before it runs"),
            "{kind}: {error}"
        );
    }
}

#[test]
fn gaps_of_an_average_are_left_out() {
    let attributes = |counted: i64| {
        [
            ints("kernel_shape", &[2, 3]),
            ints("dilations", &[2, 2]),
            ints("strides", &[2, 1]),
            ints("pads", &[1, 0, 1, 1]),
            int("count_include_pad", counted),
        ]
    };
    for counted in [0, 1] {
        let found = made(Model::default().node("AveragePool", &["x"], "y", &attributes(counted)));
        let mut expected = Vec::new();
        for (c, y, x) in
            (0..2).flat_map(|c| (0..3).flat_map(move |y| (0..3).map(move |x| (c, y, x))))
        {
            let (mut sum, mut count) = (0.0, 0.0);
            for (row, column) in [0, 2].into_iter().flat_map(|r| [0, 2, 4].map(|c| (r, c))) {
                let (row, column) = (2 * y + row, x + column);
                let inside = (1..6).contains(&row) && column < 6;
                if inside {
                    sum += image()[c * 30 + (row - 1) * 6 + column];
                }
                count += f32::from(u8::from(inside || counted == 1));
            }
            expected.push(sum / count);
        }
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(&expected) {
            assert!((f - e).abs() < 1e-5, "{f} for {e}");
        }
    }
}

#[test]
fn steps_of_blocks_and_other_types_are_refused() {
    let scaled = |attributes: &[proto::Attribute]| {
        Model::default()
            .floats("s", &[], vec![0.1])
            .int8("z", &[], &[0])
            .node("QuantizeLinear", &["x", "s", "z"], "q", attributes)
            .node("DequantizeLinear", &["q", "s", "z"], "y", &[])
    };
    assert!(
        scaled(&[int("output_dtype", proto::INT8.into())])
            .read(21)
            .is_ok()
    );
    let blocks = refused(scaled(&[int("block_size", 2)]));
    assert!(blocks.contains("block"), "{blocks}");
    let other = refused(scaled(&[int("output_dtype", proto::UINT8.into())]));
    assert!(other.contains("output_dtype"), "{other}");
}

#[test]
fn training_isnt_taken_for_inference() {
    let mut model = Model::default().floats("ratio", &[], vec![0.5]).node(
        "Dropout",
        &["x", "ratio", "train"],
        "y",
        &[],
    );
    model.0.initializer.push(proto::Tensor {
        data_type: proto::BOOL,
        name: "train".to_owned(),
        int32_data: vec![1],
        ..Default::default()
    });
    let error = refused(model);
    assert!(error.contains("training"), "{error}");
    let channels = Model::default().node(
        "SpaceToDepth",
        &["x"],
        "y",
        &[int("blocksize", 1), text("mode", "CRD")],
    );
    let error = refused(channels);
    assert!(error.contains("channel by channel"), "{error}");
}

#[test]
fn a_product_with_a_vector_has_a_dimension_less() {
    let vector = vec![1.0, -2.0, 0.5, 3.0, 0.0, 1.5];
    let model = Model::default().floats("v", &[6], vector.clone());
    let graph = model
        .node("MatMul", &["x", "v"], "y", &[])
        .read(21)
        .unwrap();
    assert_eq!(graph.values[graph.outputs[0].0].shape, [1, 2, 5]);
    for (row, found) in image().chunks(6).zip(run(&graph)) {
        let expected: f32 = row.iter().zip(&vector).map(|(x, v)| x * v).sum();
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
}

#[test]
fn a_convolution_over_volumes_sums_its_taps_in_depth() {
    let weights = vec![1.0, 2.0, -0.5, 0.25];
    let model = Model::default()
        .longs("shape", &[1, 2, 5, 3, 2])
        .floats("w", &[1, 2, 2, 1, 1], weights.clone())
        .node("Reshape", &["x", "shape"], "a", &[])
        .node(
            "Conv",
            &["a", "w"],
            "y",
            &[ints("pads", &[1, 0, 0, 0, 0, 0])],
        );
    let at = |c: usize, depth: usize, place: usize| match depth {
        0 => 0.0,
        depth => image()[c * 30 + (depth - 1) * 6 + place],
    };
    let mut expected = Vec::new();
    for (depth, place) in (0..5).flat_map(|d| (0..6).map(move |p| (d, p))) {
        let taps = (0..4).map(|i| weights[i] * at(i / 2, depth + i % 2, place));
        expected.push(taps.sum::<f32>());
    }
    let found = made(model);
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(&expected) {
        assert!((f - e).abs() < 1e-5, "{f} for {e}");
    }
}

#[test]
fn hostile_windows_and_axes_are_refused() {
    let vast = [1 << 15; 6];
    let pool = Model::default()
        .longs("shape", &[1, 2, 5, 6, 1])
        .node("Reshape", &["x", "shape"], "a", &[])
        .node(
            "MaxPool",
            &["a"],
            "y",
            &[ints("kernel_shape", &[1000; 3]), ints("pads", &vast)],
        );
    assert!(pool.read(21).is_err());
    for axis in [i64::MIN, 4, i64::MAX] {
        let model = Model::default().floats("g", &[6], vec![1.0; 6]).node(
            "SimplifiedLayerNormalization",
            &["x", "g"],
            "y",
            &[int("axis", axis)],
        );
        assert!(model.read(21).is_err(), "axis {axis}");
    }
}
