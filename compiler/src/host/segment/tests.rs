use super::*;
use crate::graph::{Element, Node, Op, Value, ValueId};

/// `x` of int8, a node in floats, and `y` of int8, all `[1, 1, 1, n]`.
fn segment(op: Op, n: usize, [scale, to]: [(f32, i8); 2]) -> Result<Segment, HostError> {
    let shape = vec![1, 1, 1, n];
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: Vec<usize>, data: Option<Data>| {
        graph.values.push(Value::new(name, shape, data));
        ValueId(graph.values.len() - 1)
    };
    let [x, real, made, y] = ["x", "real", "made", "y"].map(|n| value(n, shape.clone(), None));
    let mut steps = |name: &str, (scale, zero): (f32, i8)| {
        let scale = value(
            &format!("{name}.scale"),
            vec![],
            Some(Data::F32(vec![scale])),
        );
        let zero = value(&format!("{name}.zero"), vec![], Some(Data::I8(vec![zero])));
        [scale, zero]
    };
    let ([a, b], [c, d]) = (steps("x", scale), steps("y", to));
    for id in [x, y] {
        graph.values[id.0].element = Element::I8;
    }
    for (op, inputs, output) in [
        (Op::DequantizeLinear { axis: 1 }, vec![x, a, b], real),
        (op, vec![real], made),
        (Op::QuantizeLinear { axis: 1 }, vec![made, c, d], y),
    ] {
        graph.nodes.push(Node {
            name: format!("n{}", graph.nodes.len()),
            op,
            inputs,
            output,
        });
    }
    (graph.inputs, graph.outputs) = (vec![x], vec![y]);
    Segment::new(graph, &[("n".to_owned(), "Relu".to_owned())])
}

#[test]
fn results_are_quantized_as_onnx_does() {
    let leaky = Op::LeakyRelu { alpha: 0.5 };
    let call = segment(leaky, 7, [(0.5, 0), (0.5, 0)]).unwrap();
    // Halves go to the even neighbour.
    let out = call.run(&[&[-1, -3, -5, 7, 127, -128, 0]]).unwrap();
    assert_eq!(out, [[0, -2, -2, 7, 127, -64, 0]]);
    // Zero points, and values beyond the range.
    let moved = segment(Op::Relu, 5, [(1.0, -3), (0.25, 100)]).unwrap();
    let out = moved.run(&[&[-3, -2, 3, 127, -128]]).unwrap();
    assert_eq!(out, [[100, 104, 124, 127, 100]]);
    let found = moved.run(&[&[1, 2]]).unwrap_err();
    let (expected, given) = (vec![5], vec![2]);
    assert_eq!(
        found,
        HostError::Inputs {
            expected,
            found: given
        }
    );
    assert!(moved.run(&[]).is_err());
}

/// Quotients beside ties, where a product with the reciprocal rounds elsewhere.
#[test]
fn a_scale_divides() {
    let mut differ = 0;
    for k in 1..200u32 {
        let (from, to) = (0.001 * k as f32, 0.0017 * (k % 13 + 1) as f32);
        let x: Vec<i16> = (-128..=127).collect();
        let call = segment(Op::Identity, 256, [(from, 0), (to, 0)]).unwrap();
        let found = call.run(&[&x]).unwrap().remove(0);
        for (&x, found) in x.iter().zip(found) {
            let real = f32::from(x) * from;
            let round = |y: f32| y.round_ties_even().clamp(-128.0, 127.0) as i16;
            assert_eq!(found, round(real / to), "{x} * {from} / {to}");
            let other = round(real * (1.0 / to)) != found;
            differ += usize::from(other);
            // A tensor of one value is no exception.
            if other {
                let call = segment(Op::Identity, 1, [(from, 0), (to, 0)]).unwrap();
                assert_eq!(call.run(&[&[x]]).unwrap(), [[found]]);
            }
        }
    }
    assert!(differ > 0, "no case tells a product from a quotient");
}

#[test]
fn segments_are_read_from_their_bytes_or_refused() {
    let call = segment(Op::Relu, 4, [(0.5, 0), (0.25, 1)]).unwrap();
    let bytes = call.to_bytes().unwrap();
    let again = Segment::from_bytes(&bytes).unwrap();
    assert_eq!(again, call);
    assert_eq!(again.nodes(), call.nodes());
    // Rounding on both sides, and the node.
    let work = HostWork {
        macs: 0,
        values: 12,
    };
    assert_eq!([call.work(), again.work()], [work; 2]);
    assert_eq!(again.sizes(), Some((vec![4], vec![4])));
    assert_ne!(segment(Op::Relu, 4, [(0.5, 0), (0.25, 2)]).unwrap(), call);
    assert_eq!((call.ops(), call.kinds()), (1, vec!["Relu"]));
    for cut in 0..bytes.len() {
        assert!(Segment::from_bytes(&bytes[..cut]).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x41;
        let small = |port: &Port| values(port).is_some_and(|n| n < 1 << 12);
        if let Ok(changed) = Segment::from_bytes(&bytes)
            && changed
                .model
                .inputs
                .iter()
                .chain(&changed.model.outputs)
                .all(small)
        {
            let x: Vec<Vec<i16>> = changed
                .model
                .inputs
                .iter()
                .filter_map(values)
                .map(|n| vec![1; n])
                .collect();
            let x: Vec<&[i16]> = x.iter().map(Vec::as_slice).collect();
            // It gives what it says or an error.
            if let Ok(made) = changed.run(&x) {
                let sizes: Vec<usize> = made.iter().map(Vec::len).collect();
                assert_eq!(changed.sizes().unwrap().1, sizes);
            }
        }
    }
}

#[test]
fn floats_at_the_edges_are_refused() {
    let mut graph = Graph::default();
    for name in ["x", "y"] {
        graph.values.push(Value::new(name, vec![1, 4], None));
    }
    graph.nodes.push(Node {
        name: "n".to_owned(),
        op: Op::Relu,
        inputs: vec![ValueId(0)],
        output: ValueId(1),
    });
    (graph.inputs, graph.outputs) = (vec![ValueId(0)], vec![ValueId(1)]);
    let error = Segment::new(graph, &[]).unwrap_err().to_string();
    assert_eq!(error, "x is F32 [1, 4]");
    let none = Segment::new(Graph::default(), &[]).unwrap_err().to_string();
    assert_eq!(none, "it takes and gives 0 tensors");
}
