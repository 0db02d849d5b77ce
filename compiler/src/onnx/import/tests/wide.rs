//! Integers of 16 bits between reals and integers.

use super::model::{Model, int};
use super::{image, run};
use crate::graph::{Data, Element, Value};
use crate::onnx::{load, proto, save};

const INT16: [i32; 3] = [proto::INT16, -32768, 32767];
const UINT16: [i32; 3] = [proto::UINT16, 0, 65535];

impl Model {
    fn wide(mut self, name: &str, data_type: i32, values: &[i32]) -> Self {
        let dims = match values.len() {
            1 => vec![],
            count => vec![count as i64],
        };
        self.0.initializer.push(proto::Tensor {
            dims,
            data_type,
            name: name.to_owned(),
            int32_data: values.to_vec(),
            ..Default::default()
        });
        self
    }
}

/// What DequantizeLinear gives of QuantizeLinear, by ONNX's definition.
fn defined(x: f32, scale: f32, zero: i32, [_, low, high]: [i32; 3]) -> f32 {
    let steps = f64::from(x / scale).round_ties_even() + f64::from(zero);
    let q = steps.clamp(low.into(), high.into()) as i32;
    (q - zero) as f32 * scale
}

#[test]
fn sixteen_bits_are_rounded_as_defined_and_saturate() {
    // Ties, all in range, and most beyond it.
    for scale in [1.0 / 32.0, 3.1e-5, 1.3e-6] {
        for (kind, zero) in [
            (INT16, 0),
            (INT16, -12345),
            (INT16, 32767),
            (UINT16, 0),
            (UINT16, 40000),
            (UINT16, 65535),
        ] {
            let graph = Model::default()
                .floats("s", &[], vec![scale])
                .wide("z", kind[0], &[zero])
                .rounded("x", "y")
                .read(21)
                .unwrap();
            let expected = image().into_iter().map(|x| defined(x, scale, zero, kind));
            assert_eq!(run(&graph), expected.collect::<Vec<_>>(), "{scale} {zero}");
        }
    }
}

#[test]
fn sixteen_bits_have_steps_along_an_axis() {
    let (scales, zeros) = ([2e-5, 3.5e-5], [100, -200]);
    let axis = [int("axis", 1)];
    let model = Model::default()
        .floats("s", &[2], scales.to_vec())
        .wide("z", INT16[0], &zeros)
        .node("QuantizeLinear", &["x", "s", "z"], "q", &axis)
        .node("DequantizeLinear", &["q", "s", "z"], "y", &axis);
    let expected = image().into_iter().enumerate();
    let expected = expected.map(|(i, x)| defined(x, scales[i / 30], zeros[i / 30], INT16));
    assert_eq!(run(&model.read(21).unwrap()), expected.collect::<Vec<_>>());
}

#[test]
fn sixteen_bits_may_be_moved_and_are_outputs() {
    let model = |last: &str| {
        Model::default()
            .floats("s", &[], vec![2e-5])
            .wide("z", INT16[0], &[7])
            .node("QuantizeLinear", &["x", "s", "z"], "q", &[])
            .node("Transpose", &["q"], last, &[])
    };
    let graph = model("t")
        .node("DequantizeLinear", &["t", "s", "z"], "y", &[])
        .read(21)
        .unwrap();
    let again = load(&save(&graph)).unwrap();
    let found = run(&graph);
    assert_eq!(found, run(&again));
    let turned = (0..60).map(|i| image()[(i % 2) * 30 + (i / 2 % 5) * 6 + i / 10]);
    let expected = turned.map(|x| defined(x, 2e-5, 7, INT16));
    assert_eq!(found, expected.collect::<Vec<_>>());
    let graph = model("y").read(21).unwrap();
    assert_eq!(graph.values[graph.outputs[0].0].element, Element::I16);
    let steps: Vec<f32> = found.iter().map(|v| (v / 2e-5).round() + 7.0).collect();
    assert_eq!(run(&graph), steps);
}

#[test]
fn files_of_sixteen_bits_are_of_opset_21() {
    use prost::Message;
    let opset = |kind: [i32; 3]| {
        let graph = Model::default()
            .floats("s", &[], vec![0.1])
            .wide("z", kind[0], &[0])
            .rounded("x", "y")
            .read(21)
            .unwrap();
        let file = proto::Model::decode(&save(&graph)[..]).unwrap();
        (file.ir_version, file.opset_import[0].version)
    };
    assert_eq!(opset([proto::INT8, -128, 127]), (8, 13));
    assert_eq!(opset(INT16), (10, 21));
    assert_eq!(opset(UINT16), (10, 21));
}

/// An operator that isn't of the device, whose axes were an attribute until opset 18.
#[test]
fn older_operators_are_brought_to_opset_21() {
    let axes = proto::Attribute {
        name: "axes".to_owned(),
        ints: vec![1],
        kind: proto::ATTRIBUTE_INTS,
        ..Default::default()
    };
    let graph = Model::default()
        .floats("s", &[], vec![1e-4])
        .wide("z", INT16[0], &[0])
        .rounded("x", "a")
        .node("ReduceMax", &["a"], "y", &[axes])
        .read(13)
        .unwrap();
    let again = load(&save(&graph)).unwrap();
    assert_eq!(run(&graph).len(), 30);
    assert_eq!(run(&graph), run(&again));
}

#[test]
fn others_compute_with_constants_of_sixteen_bits_as_int32() {
    let model = Model::default()
        .wide("a", INT16[0], &[-30000, 30000])
        .wide("b", INT16[0], &[-30000, 2])
        .node("Add", &["a", "b"], "c", &[])
        .node("Cast", &["c"], "f", &[int("to", proto::FLOAT.into())])
        .longs("shape", &[2, 1, 1])
        .node("Reshape", &["f", "shape"], "g", &[])
        .node("Add", &["x", "g"], "y", &[]);
    let found = run(&model.read(21).unwrap());
    assert_eq!(found[0], image()[0] - 60000.0);
    assert_eq!(found[59], image()[59] + 30002.0);
    // What is computed might exceed them.
    let model = Model::default()
        .floats("s", &[], vec![1e-4])
        .wide("z", INT16[0], &[0])
        .node("QuantizeLinear", &["x", "s", "z"], "q", &[])
        .node("Add", &["q", "q"], "d", &[])
        .node("DequantizeLinear", &["d", "s", "z"], "y", &[]);
    let error = model.read(21).unwrap_err().to_string();
    assert!(error.contains("it computes with int16"), "{error}");
}

#[test]
fn weights_are_folded_to_sixteen_bits() {
    let values: Vec<f32> = image().iter().map(|v| v * 2.0).collect();
    let model = Model::default()
        .floats("w", &[2, 5, 6], values.clone())
        .floats("s", &[], vec![1.0 / 16384.0])
        .wide("z", INT16[0], &[0])
        .node("QuantizeLinear", &["w", "s", "z"], "q", &[])
        .node("DequantizeLinear", &["q", "s", "z"], "v", &[])
        .node("Add", &["x", "v"], "y", &[]);
    let graph = model.read(21).unwrap();
    let ints = |v: &Value| matches!(v.data, Some(Data::I16(ref v)) if v.len() == 60);
    assert!(graph.values.iter().any(ints), "{:?}", graph.values);
    let expected = image().into_iter().zip(values);
    let expected = expected.map(|(x, w)| x + defined(w, 1.0 / 16384.0, 0, INT16));
    assert_eq!(run(&graph), expected.collect::<Vec<_>>());
}
