//! Comparisons against figures that are worked out by themselves.

use proptest::prelude::*;

use super::*;
use crate::graph::{Node, OnnxAttribute, OnnxOp, Value};

/// Several inputs that a Concat joins along a dimension, and the transpose of what it gives.
fn graph(shape: [usize; 3], axis: usize, sizes: &[usize], perm: [usize; 3]) -> Graph {
    let mut graph = Graph::default();
    let sized = |size: usize| {
        let mut shape = shape.to_vec();
        shape[axis] = size;
        shape
    };
    let mut value = |name: String, shape: Vec<usize>| {
        graph.values.push(Value::new(name, shape, None));
        ValueId(graph.values.len() - 1)
    };
    let parts = sizes.iter().enumerate();
    let parts: Vec<ValueId> = parts
        .map(|(i, size)| value(format!("part{i}"), sized(*size)))
        .collect();
    let whole = sized(sizes.iter().sum());
    let turned = perm.iter().map(|from| whole[*from]).collect();
    let [joined, output] = [
        value("joined".to_owned(), whole),
        value("y".to_owned(), turned),
    ];
    let perm = perm.iter().map(|from| *from as i64).collect();
    let attributes = vec![("perm".to_owned(), OnnxAttribute::Ints(perm))];
    let node = |name: &str, op, inputs: &[ValueId], output| Node {
        name: name.to_owned(),
        op,
        inputs: inputs.to_vec(),
        output,
    };
    let transpose = Op::Onnx(Box::new(OnnxOp::new("Transpose", 1, attributes)));
    graph.nodes = vec![
        node("join", Op::Concat { axis }, &parts, joined),
        node("turn", transpose, &[joined], output),
    ];
    (graph.inputs, graph.outputs) = (parts, vec![output]);
    graph
}

proptest! {
    #[test]
    fn a_part_is_what_its_input_puts_into_the_output(
        shape in [1usize..4, 1usize..4, 1usize..4],
        axis in 0usize..3,
        sizes in prop::collection::vec(1usize..4, 2..4),
        perm in Just([0usize, 1, 2]).prop_shuffle(),
    ) {
        let graph = graph(shape, axis, &sizes, perm);
        let comparison = Comparison::new(&graph);
        prop_assert_eq!(comparison.parts.len(), sizes.len() + 1);
        // Every value of the output says which part it is of.
        let dims = &graph.values[graph.outputs[0].0].shape;
        let place = perm.iter().position(|from| *from == axis).unwrap();
        let part = |index: usize| {
            let inner: usize = dims[place + 1..].iter().product();
            let at = index / inner % dims[place];
            let ends = sizes.iter().scan(0, |end, size| { *end += size; Some(*end) });
            ends.take_while(|end| *end <= at).count()
        };
        let all: usize = dims.iter().product();
        let output: Vec<f32> = (0..all).map(|index| part(index) as f32).collect();
        for (at, part) in comparison.parts[1..].iter().enumerate() {
            let found = part.of(&output);
            prop_assert_eq!(found.len() * sizes.iter().sum::<usize>(), all * sizes[at]);
            prop_assert!(found.iter().all(|v| *v == at as f32));
            let concat = Some(("join".to_owned(), format!("part{at}")));
            prop_assert_eq!(&part.concat, &concat);
        }
    }
}

/// A graph whose only output is one of its inputs.
fn output(element: Element, shape: &[usize]) -> Graph {
    let mut value = Value::new("y", shape.to_vec(), None);
    value.element = element;
    Graph {
        values: vec![value],
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(0)],
        ..Graph::default()
    }
}

#[test]
fn figures_are_those_of_their_definitions() {
    let mut found = Comparison::new(&output(Element::F32, &[1, 3]));
    found.add(&[vec![3.0, 4.0, 0.0]], &[vec![3.0, 4.0, 0.0]]);
    found.add(&[vec![3.0, 4.0, 0.0]], &[vec![4.0, 3.0, 0.0]]);
    let part = &found.parts[0];
    assert!((part.cosine(2) - (1.0 + 24.0 / 25.0) / 2.0).abs() < 1e-12);
    assert!((part.db() - 10.0 * (50f64 / 2.0).log10()).abs() < 1e-9);
    assert_eq!(part.agreement(), Some(0.5));
    assert!((found.loss() - 2.0 / 50.0).abs() < 1e-12);
    assert!(part.is_lost(2));
}

/// Numbers between 0 and 1 that look like chance.
fn chances() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn few_images_tell_how_many_of_others_keep_their_class() {
    let mut chance = chances();
    let mut image = |noise: f64| {
        let float: Vec<f32> = (0..20).map(|_| (chance() * 10.0) as f32).collect();
        // A sum of twelve is normal enough.
        let mut moved = || (0..12).map(|_| chance()).sum::<f64>() - 6.0;
        let found: Vec<f32> = float.iter().map(|v| v + (noise * moved()) as f32).collect();
        (float, found)
    };
    for noise in [0.01, 0.05, 0.2, 0.5] {
        let mut agreed = 0;
        for _ in 0..5000 {
            let (float, found) = image(noise);
            agreed += usize::from(largest(&float) == largest(&found));
        }
        let truth = agreed as f64 / 5000.0;
        let (mut sum, mut counted, mut above) = (0.0, 0.0, 0);
        for _ in 0..100 {
            let mut some = Comparison::new(&output(Element::F32, &[1, 20]));
            for _ in 0..12 {
                let (float, found) = image(noise);
                some.add(&[float], &[found]);
            }
            sum += some.parts[0].nearness(12);
            counted += some.parts[0].agreement().unwrap();
            above += usize::from(some.parts[0].nearness(12) > truth + 0.02);
        }
        // It is on the safe side, and says a wrong thing more seldom than a count.
        let expected = sum / 100.0;
        assert!(
            expected <= truth && expected > truth - 0.15,
            "{noise}: {expected}, {truth}"
        );
        assert!(above <= 25, "{noise}: {above} of 100 are too sure");
        assert!((counted / 100.0 - truth).abs() < 0.03);
    }
}

#[test]
fn nearness_of_values_and_probabilities_is_their_relative_error() {
    for shape in [&[1, 2][..], &[1, 2, 1]] {
        let mut found = Comparison::new(&output(Element::F32, shape));
        found.add(&[vec![0.6, 0.4]], &[vec![0.63, 0.36]]);
        let expected = 1.0 - (25e-4f64 / 0.52).sqrt();
        assert!((found.parts[0].nearness(1) - expected).abs() < 1e-6);
        assert!(found.reaches(0.93) && !found.reaches(0.94));
        // Of two images one has all of the noise, and so may one that follows.
        found.add(&[vec![0.6, 0.4]], &[vec![0.6, 0.4]]);
        assert!((found.parts[0].nearness(2) - expected).abs() < 1e-6);
    }
}

#[test]
fn a_sequence_of_probabilities_needs_each_row() {
    let float = [0.5, 0.499, 0.001, 0.9, 0.1, 0.0];
    let found = [0.499, 0.5, 0.001, 0.9, 0.1, 0.0];
    let nearness = |shape: &[usize], float: &[f32], found: &[f32]| {
        let mut all = Comparison::new(&output(Element::F32, shape));
        all.add(&[float.to_vec()], &[found.to_vec()]);
        all.parts[0].nearness(1)
    };
    // A lead of 0.001 moved by 0.002, one of 0.8 by nothing: the normal distribution at half of the square root of 2.
    for shape in [&[1, 2, 3][..], &[2, 1, 3], &[1, 1, 2, 3]] {
        assert!(
            (nearness(shape, &float, &found) - 0.760_250).abs() < 1e-4,
            "{shape:?}"
        );
    }
    // Pixels and rows that are no probabilities have their relative error.
    let error = 1.0 - (2e-6f64 / (0.25 + 0.249_001 + 1e-6 + 0.82)).sqrt();
    let [twice, found_twice] = [float, found].map(|rows| [rows, rows].concat());
    assert!((nearness(&[1, 2, 2, 3], &twice, &found_twice) - error).abs() < 1e-5);
    let [half, found] = [float, found].map(|rows| rows.map(|v| v / 2.0));
    assert!((nearness(&[1, 2, 3], &half, &found) - error).abs() < 1e-5);
    // Where leads are wide, the error is what is left.
    let [float, found] = [[0.9, 0.1, 0.8, 0.2], [0.8, 0.2, 0.7, 0.3]];
    let expected = 1.0 - (0.04f64 / 1.5).sqrt();
    assert!((nearness(&[1, 2, 2], &float, &found) - expected).abs() < 1e-5);
}

#[test]
fn few_sequences_tell_how_many_of_others_keep_every_row() {
    let mut chance = chances();
    let mut image = |noise: f64| {
        let scores: Vec<f64> = (0..30).map(|_| chance() * 20.0).collect();
        let mut moved = || (0..12).map(|_| chance()).sum::<f64>() - 6.0;
        let found: Vec<f64> = scores.iter().map(|v| v + noise * moved()).collect();
        [scores, found].map(|scores| -> Vec<f32> {
            let rows = scores.chunks(6).map(|row| {
                let all: f64 = row.iter().map(|v| v.exp()).sum();
                row.iter().map(move |v| (v.exp() / all) as f32)
            });
            rows.flatten().collect()
        })
    };
    for noise in [0.02, 0.1, 0.4] {
        let kept = |[float, found]: [Vec<f32>; 2]| {
            let mut rows = float.chunks(6).zip(found.chunks(6));
            rows.all(|(float, found)| largest(float) == largest(found))
        };
        let truth = (0..5000).filter(|_| kept(image(noise))).count() as f64 / 5000.0;
        let mut sum = 0.0;
        for _ in 0..100 {
            let mut some = Comparison::new(&output(Element::F32, &[1, 5, 6]));
            for _ in 0..12 {
                let [float, found] = image(noise);
                some.add(&[float], &[found]);
            }
            sum += some.parts[0].leads.kept();
        }
        let expected = sum / 100.0;
        assert!(
            (expected - truth).abs() < 0.1,
            "{noise}: {expected}, {truth}"
        );
    }
}

#[test]
fn each_bound_alone_makes_an_output_lost() {
    let after = |shape: &[usize], pairs: &[([f32; 2], [f32; 2])]| {
        let mut found = Comparison::new(&output(Element::F32, shape));
        pairs
            .iter()
            .for_each(|(a, b)| found.add(&[a.to_vec()], &[b.to_vec()]));
        found.parts[0].is_lost(found.images)
    };
    // The right direction and half the size: 6 dB.
    assert!(after(&[1, 2, 1], &[([2.0, 2.0], [1.0, 1.0])]));
    assert!(!after(&[1, 2, 1], &[([2.0, 2.0], [1.5, 1.5])]));
    // A small image's direction is lost, which a large one's energy hides.
    let large = ([100.0, 0.0], [100.0, 0.0]);
    assert!(after(&[1, 2, 1], &[large, ([1.0, 0.0], [0.0, 1.0])]));
    // The largest is another.
    let close = ([1.0, 1.01], [1.01, 1.0]);
    assert!(after(&[1, 2], &[close]) && !after(&[1, 2, 1], &[close]));
    // What isn't finite any more is lost, and what never was says nothing.
    assert!(after(&[1, 2, 1], &[([1.0, 1.0], [1.0, f32::NAN])]));
    assert!(!after(
        &[1, 2, 1],
        &[([1.0, f32::INFINITY], [1.0, f32::INFINITY])]
    ));
}

#[test]
fn whole_numbers_agree_or_not() {
    let mut found = Comparison::new(&output(Element::I64, &[1, 4]));
    found.add(&[vec![7.0, 1.0, 2.0, 3.0]], &[vec![7.0, 1.0, 2.0, 9.0]]);
    let part = &found.parts[0];
    assert_eq!((part.agreement(), found.loss()), (Some(0.75), 0.25));
    assert!(part.is_lost(1) && found.reaches(0.75) && !found.reaches(0.8));
}

#[test]
fn what_is_chosen_may_come_in_another_order() {
    for (kind, cosine) in [("NonZero", 1.0), ("Transpose", 0.0)] {
        let mut graph = Graph::default();
        let x = graph.value("x", vec![2, 3], None);
        let y = graph.value("y", vec![2, 3], None);
        let op = Op::Onnx(Box::new(OnnxOp::new(kind, 1, Vec::new())));
        graph.push("node", op, vec![x], y);
        (graph.inputs, graph.outputs) = (vec![x], vec![y]);
        let mut comparison = Comparison::new(&graph);
        let [float, found] = [
            [1.0, 2.0, 3.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 1.0, 2.0, 3.0],
        ];
        comparison.add(&[float.to_vec()], &[found.to_vec()]);
        let part = &comparison.parts[0];
        assert!((part.cosine(1) - cosine).abs() < 1e-9, "{kind}");
    }
}
