//! Moments against what the engine computes of weights, and rounding against the nearest steps.

use proptest::prelude::*;

use super::super::slices::INT8;
use super::*;
use crate::float;
use crate::graph::{Data, Value};

fn graph(op: Op, shapes: [Vec<usize>; 3], weights: &[f32]) -> Graph {
    let [x, w, y] = shapes;
    let mut graph = Graph {
        values: vec![
            Value::new("x", x, None),
            Value::new("w", w, Some(Data::F32(weights.to_vec()))),
            Value::new("y", y, None),
        ],
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(2)],
        ..Graph::default()
    };
    graph.push("layer", op, vec![ValueId(0), ValueId(1)], ValueId(2));
    graph
}

fn value(i: usize, seed: usize) -> f32 {
    ((i * 7919 + seed * 31) % 101) as f32 / 101.0 - 0.3
}

/// The moments of images of a graph's layer.
fn moments(graph: &Graph, images: &[Vec<f32>]) -> Moments {
    let layer = layers(graph)[0];
    let mut moments = Moments::new(&layer);
    for (index, image) in images.iter().enumerate() {
        moments.add(&layer.patches(image, images.len(), index));
    }
    moments.whole()
}

/// The form's value for the errors of a row.
fn of(form: &[f32], errors: &[f32]) -> f64 {
    let rows = form.chunks(errors.len()).zip(errors);
    let row = |(row, e): (&[f32], &f32)| {
        let sum: f64 = row.iter().zip(errors).map(|(f, e)| f64::from(f * e)).sum();
        sum * f64::from(*e)
    };
    rows.map(row).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Where all positions are taken, the sums are those of the outputs' squares, whatever the weights are.
    #[test]
    fn moments_are_those_of_outputs(
        (group, inputs, outputs) in (1usize..4, 1usize..4, 1usize..3),
        kernel in [1usize..4, 1..4], stride in [1usize..3, 1..3], dilation in [1usize..3, 1..3],
        pads in [0usize..3, 0..3, 0..3, 0..3], size in [7usize..10, 7..10], seed in 0usize..1000,
    ) {
        let [co, ci] = [group * outputs, group * inputs];
        let window = Window { kernel, stride, dilation, pads: pads.into() };
        let (before, after) = (window.pads.before(), window.pads.after());
        let out = [0, 1].map(|a| (size[a] + before[a] + after[a] - (kernel[a] - 1) * dilation[a] - 1) / stride[a] + 1);
        let row = inputs * kernel[0] * kernel[1];
        let weights: Vec<f32> = (0..co * row).map(|i| value(i, seed)).collect();
        let shapes = [vec![1, ci, size[0], size[1]], vec![co, inputs, kernel[0], kernel[1]], vec![1, co, out[0], out[1]]];
        let graph = graph(Op::Conv { window, group }, shapes, &weights);
        let images: Vec<Vec<f32>> = (0..3).map(|k| (0..ci * size[0] * size[1]).map(|i| value(i, seed + k)).collect()).collect();
        let moments = moments(&graph, &images);
        prop_assert_eq!(moments.count, 3 * out[0] * out[1]);
        let mut squares = vec![0f64; co];
        for image in &images {
            let found = float::run(&graph, image).unwrap().remove(0);
            for (square, row) in squares.iter_mut().zip(found.chunks(out[0] * out[1])) {
                *square += row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
            }
        }
        for (channel, square) in squares.into_iter().enumerate() {
            let sums = &moments.sums[channel / outputs];
            let errors = &weights[channel * row..][..row];
            let mut found = 0.0;
            for i in 0..row {
                for k in 0..row {
                    let sum = sums[i * row + k];
                    found += f64::from(sum) * f64::from(errors[i]) * f64::from(errors[k]);
                }
            }
            prop_assert!((found - square).abs() < 1e-3 * square.max(1e-2), "{found} {square}");
        }
    }

    /// No row loses more than with the nearest steps, and some lose less; a weight stays near its place.
    #[test]
    fn steps_lose_no_more_than_the_nearest(seed in 0usize..1000, rows in 1usize..5, len in 2usize..20, turned in any::<bool>()) {
        let weights: Vec<f32> = (0..rows * len).map(|i| value(i * 3, seed)).collect();
        let shapes = if turned { [vec![1, len], vec![len, rows], vec![1, rows]] } else { [vec![1, len], vec![rows, len], vec![1, rows]] };
        let graph = graph(Op::Gemm { trans_b: !turned }, shapes, &weights);
        let base: Vec<Vec<f32>> = (0..40).map(|k| (0..len).map(|i| value(i + k * 13, seed) + 1.0).collect()).collect();
        let moments = moments(&graph, &base);
        let step = 0.05;
        let nearest: Vec<i8> = weights.iter().map(|w| (w / step).round() as i8).collect();
        let place = Rows { count: rows, strides: if turned { [rows, 1] } else { [1, len] }, step: &|_| step, range: INT8 };
        for centred in [false, true] {
            let form = moments.form(0, centred);
            let mut moved = nearest.clone();
            moments.settle(&mut moved, &weights, &place, centred);
            for row in 0..rows {
                let errors = |steps: &[i8]| -> Vec<f32> {
                    (0..len).map(|k| f32::from(steps[place.place(row, k)]) - weights[place.place(row, k)] / step).collect()
                };
                let [before, after] = [errors(&nearest), errors(&moved)];
                prop_assert!(after.iter().all(|e| e.abs() <= AWAY + 1e-3));
                prop_assert!(of(&form, &after) <= of(&form, &before) * 1.001 + 1e-6);
            }
        }
    }
}

#[test]
fn moments_of_long_rows_are_those_of_pairs() {
    for row in [1, 255, 257, 513, 1031] {
        let shapes = [vec![1, row], vec![1, row], vec![1, 1]];
        let graph = graph(Op::Gemm { trans_b: true }, shapes, &vec![0.0; row]);
        let images: Vec<Vec<f32>> = (0..3)
            .map(|k| (0..row).map(|i| value(i * i + k, k)).collect())
            .collect();
        let form = moments(&graph, &images).form(0, false);
        for (at, found) in form.into_iter().enumerate() {
            let (i, k) = (at / row, at % row);
            let products = images
                .iter()
                .map(|image| f64::from(image[i]) * f64::from(image[k]));
            let sure = if i == k {
                1.0
            } else {
                3.0 / (3.0 + row as f64)
            };
            let expected = products.sum::<f64>() / 3.0 * sure;
            assert!(
                (f64::from(found) - expected).abs() < 1e-6,
                "{row}: {i}, {k}"
            );
        }
    }
}

#[test]
fn moments_cost_no_more_than_what_the_layer_does_is_worth() {
    let (row, positions, images) = (1024, 1000, 4);
    let values = vec![0.5; positions * row];
    for (outputs, expected) in [(1, 512), (21, 512), (40, 937), (44, 1024), (512, 1024)] {
        let shapes = [[positions, row], [outputs, row], [positions, outputs]].map(Vec::from);
        let graph = graph(
            Op::Gemm { trans_b: true },
            shapes,
            &vec![0.0; outputs * row],
        );
        let found = layers(&graph)[0].patches(&values, images, 0).len() / row;
        assert_eq!(
            found,
            usize::div_ceil(expected, images),
            "{outputs} outputs"
        );
    }
}

#[test]
fn taps_of_a_smooth_picture_cancel() {
    // Nine equal weights between two steps: the nearest ones all err to the same side.
    let weights = vec![0.04f32; 9];
    let window = Window {
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    let shapes = [vec![1, 1, 12, 12], vec![1, 1, 3, 3], vec![1, 1, 10, 10]];
    let graph = graph(Op::Conv { window, group: 1 }, shapes, &weights);
    let images: Vec<Vec<f32>> = (0..20)
        .map(|k| {
            (0..144)
                .map(|i| (k * 7 % 11) as f32 + value(i, k) / 50.0)
                .collect()
        })
        .collect();
    let mut steps = vec![0i8; 9];
    let rows = Rows {
        count: 1,
        strides: [1, 9],
        step: &|_| 0.1,
        range: INT8,
    };
    moments(&graph, &images).settle(&mut steps, &weights, &rows, false);
    // 9 * 0.4 steps are nearest to 4.
    assert_eq!(steps.iter().map(|q| i32::from(*q)).sum::<i32>(), 4);
}
