use proptest::prelude::*;

use super::*;
use crate::float;
use crate::graph::{Data, Value, ValueId};

/// A convolution and a dense layer of it, of weights alone.
fn graph(op: Op, input: Vec<usize>, weights: (Vec<usize>, Vec<f32>), output: Vec<usize>) -> Graph {
    Graph {
        values: vec![
            Value::new("x", input, None),
            Value::new("w", weights.0, Some(Data::F32(weights.1))),
            Value::new("y", output, None),
        ],
        nodes: vec![Node {
            name: "layer".to_owned(),
            op,
            inputs: vec![ValueId(0), ValueId(1)],
            output: ValueId(2),
        }],
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(2)],
        ..Graph::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Of channels that have one value each, the expectation is the mean itself: that of a convolution
    /// whose weights are the errors.
    #[test]
    fn constant_channels_move_by_what_is_expected(
        (group, inputs, outputs) in (1usize..4, 1usize..4, 1usize..5),
        kernel in [1usize..4, 1..4], stride in [1usize..3, 1..3], dilation in [1usize..3, 1..3],
        pads in [0usize..3, 0..3, 0..3, 0..3], size in [7usize..10, 7..10], seed in 0u32..1000,
    ) {
        let value = |i: usize| ((i as u32 * 7919 + seed * 31) % 101) as f32 / 101.0 - 0.3;
        let [co, ci] = [group * outputs, group * inputs];
        let window = Window { kernel, stride, dilation, pads: pads.into() };
        let before = window.pads.before();
        let after = window.pads.after();
        let out = [0, 1].map(|a| (size[a] + before[a] + after[a] - (kernel[a] - 1) * dilation[a] - 1) / stride[a] + 1);
        let weights: Vec<f32> = (0..co * inputs * kernel[0] * kernel[1]).map(value).collect();
        let shape = vec![co, inputs, kernel[0], kernel[1]];
        let graph = graph(
            Op::Conv { window, group },
            vec![1, ci, size[0], size[1]],
            (shape, weights.clone()),
            vec![1, co, out[0], out[1]],
        );
        let means: Vec<f64> = (0..ci).map(|c| f64::from(value(c + 55))).collect();
        let image: Vec<f32> = means.iter().flat_map(|m| vec![*m as f32; size[0] * size[1]]).collect();
        let result = float::run(&graph, &image).unwrap().remove(0);
        let errors: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
        let errors = Errors { count: errors.len(), from: &|first, some| some.copy_from_slice(&errors[first..][..some.len()]) };
        let expected = expected(&graph, &graph.nodes[0], &errors, &means).unwrap();
        for (row, expected) in result.chunks(out[0] * out[1]).zip(expected) {
            let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / row.len() as f64;
            prop_assert!((mean - expected).abs() < 1e-5, "{mean} {expected}");
        }
    }
}

#[test]
fn dense_layers_are_products_and_other_channels_are_refused() {
    let graph = graph(
        Op::Gemm { trans_b: true },
        vec![1, 3],
        (vec![2, 3], vec![0.0; 6]),
        vec![1, 2],
    );
    let errors = [1.0, 2.0, 3.0, -1.0, 0.5, 0.0];
    let errors = Errors {
        count: errors.len(),
        from: &|first, some| some.copy_from_slice(&errors[first..][..some.len()]),
    };
    let expected = |means: &[f64]| expected(&graph, &graph.nodes[0], &errors, means);
    assert_eq!(expected(&[1.0, 10.0, 100.0]), Some(vec![321.0, 4.0]));
    assert_eq!(expected(&[1.0, 10.0]), None);
    assert_eq!(expected(&[]), None);
}
