//! Networks of sequences `[1, C, W]`: planes of one row.

use crate::builder::Builder;
use proptest::prelude::*;
use vta_compiler::graph::{Data, Element, Graph, Op};
use vta_compiler::qgraph::{Pads, QOp, Window};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{float, onnx, passes, reference};

/// Kernel, stride, pads and dilation of columns.
type Columns = (usize, usize, [usize; 2], usize);

fn window((kernel, stride, [left, right], dilation): Columns) -> Window {
    Window {
        kernel: [1, kernel],
        stride: [1, stride],
        pads: Pads::from([0, left, 0, right]),
        dilation: [1, dilation],
    }
}

/// A convolution in groups, a pool, a mean and a dense layer.
fn network(
    width: usize,
    conv: Columns,
    pool: Columns,
    group: usize,
    average: bool,
) -> Option<Graph> {
    let (conv, pool) = (window(conv), window(pool));
    let [_, middle] = conv.output(1, width)?;
    let [_, last] = pool.output(1, middle)?;
    let pads = [pool.pads.left, pool.pads.right];
    if pads.iter().any(|&pad| pad >= pool.kernel[1]) {
        return None;
    }
    let (from, to) = (2 * group, 3 * group);
    let mut b = Builder::default();
    let x = b.named("x", &[1, from, width], Element::F32);
    let count = to * 2 * conv.kernel[1];
    let weights = (0..count).map(|i| ((i * 13) % 17) as f32 / 16.0 - 0.5);
    let w = b.value(
        "w",
        &[to, 2, conv.kernel[1]],
        Some(Data::F32(weights.collect())),
    );
    let y = b.push(
        Op::Conv {
            window: conv,
            group,
        },
        &[x, w],
        &[1, to, middle],
    );
    let y = b.push(Op::Relu, &[y], &[1, to, middle]);
    let op = match average {
        true => Op::AveragePool {
            window: pool,
            count_include_pad: false,
        },
        false => Op::MaxPool { window: pool },
    };
    let y = b.push(op, &[y], &[1, to, last]);
    let y = b.push(Op::GlobalAveragePool, &[y], &[1, to, 1]);
    let y = b.push(Op::Flatten, &[y], &[1, to]);
    let dense = (0..to * 4).map(|i| ((i * 7) % 11) as f32 / 10.0 - 0.5);
    let w = b.value("dense", &[to, 4], Some(Data::F32(dense.collect())));
    let y = b.push(Op::Gemm { trans_b: false }, &[y, w], &[1, 4]);
    Some(b.finish(&[y]))
}

/// The device computes all of a network, as near to the floats as steps are.
fn check(graph: &Graph, len: usize) -> Result<(), TestCaseError> {
    let image = |seed: usize| -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7 + seed * 29) % 31) as f32 / 15.0 - 1.0)
            .collect()
    };
    let images: Vec<Vec<f32>> = (0..3).map(image).collect();
    // What is written is what was read.
    let again = onnx::load(&onnx::save(graph)).unwrap();
    prop_assert_eq!(
        float::run(&again, &images[0]).unwrap(),
        float::run(graph, &images[0]).unwrap()
    );
    let quantized = quantize::quantize(graph, &images, Mode::Multiply).unwrap();
    let quantized = onnx::load(&onnx::save(&quantized)).unwrap();
    let network = passes::quantized(&quantized).unwrap();
    let of_host = network
        .nodes
        .iter()
        .filter(|n| matches!(n.op, QOp::Host { .. }));
    prop_assert_eq!((of_host.count(), network.ends.is_none()), (0, true));
    let input = &network.tensors[network.inputs[0].0];
    for image in &images {
        let int8: Vec<i16> = image
            .iter()
            .map(|v| ((v / input.scale).round_ties_even() as i32 + input.zero) as i16)
            .collect();
        let all = reference::run(&network, &int8).unwrap();
        let expected = float::run(graph, image).unwrap().remove(0);
        let out = &network.tensors[network.outputs[0].0];
        for (q, real) in all[network.outputs[0].0].iter().zip(expected) {
            let far = ((i32::from(*q) - out.zero) as f32 - real / out.scale).abs();
            prop_assert!(far < 12.0, "{far} steps of {}", out.scale);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_windows_over_sequences_are_the_devices(
        width in 1usize..24,
        conv in (1usize..6, 1usize..4, [0usize..4, 0usize..4], 1usize..4),
        pool in (1usize..4, 1usize..4, [0usize..3, 0usize..3], Just(1usize)),
        group in 1usize..4, average in any::<bool>(),
    ) {
        if let Some(graph) = network(width, conv, pool, group, average) {
            check(&graph, 2 * group * width)?;
        }
    }
}

#[test]
fn attributes_of_another_number_of_axes_are_refused() {
    let graph = network(16, (3, 1, [1, 1], 1), (2, 2, [0, 0], 1), 1, false).unwrap();
    let mut flat = graph.clone();
    // The same file with an input of four dimensions.
    flat.values[flat.inputs[0].0].shape = vec![1, 2, 1, 16];
    let error = onnx::load(&onnx::save(&flat)).and_then(|graph| {
        passes::quantized(&graph).map_err(|e| onnx::OnnxError::Model(e.to_string()))
    });
    assert!(error.is_err(), "{error:?}");
}
