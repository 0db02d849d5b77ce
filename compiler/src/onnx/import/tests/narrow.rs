//! Integers of few bits.

use super::model::{Model, int, text};
use super::{image, run};
use crate::graph::{Data, Op};
use crate::onnx::external::External;
use crate::onnx::import::read_tensor;
use crate::onnx::{ReadOptions, proto};

const STEP: f32 = 0.25;

/// A constant of few bits, as bytes of a file.
fn packed(model: Model, name: &str, data_type: i32, byte: u8) -> Model {
    let mut model = model;
    model.0.initializer.push(proto::Tensor {
        data_type,
        name: name.to_owned(),
        raw_data: vec![byte].into(),
        ..Default::default()
    });
    model
}

/// What the image is by steps from a zero point within bounds.
fn bounded(zero: f32, low: f32, high: f32) -> Vec<f32> {
    let one = |x: &f32| {
        let step = (x / STEP).round_ties_even() + zero;
        (step.clamp(low, high) - zero) * STEP
    };
    image().iter().map(one).collect()
}

fn rounded(model: Model) -> Model {
    let steps = |from: &'static str| [from, "s", "z"];
    model
        .floats("s", &[], vec![STEP])
        .node("QuantizeLinear", &steps("x"), "q", &[])
        .node("DequantizeLinear", &steps("q"), "y", &[])
}

#[test]
fn few_bits_are_bytes_within_bounds() {
    for (data_type, byte, bounds) in [
        (proto::INT4, 0x0F, (-1.0, -8.0, 7.0)),
        (proto::UINT4, 0x09, (9.0, 0.0, 15.0)),
        (proto::INT2, 0x01, (1.0, -2.0, 1.0)),
        (proto::UINT2, 0x02, (2.0, 0.0, 3.0)),
    ] {
        let model = packed(rounded(Model::default()), "z", data_type, byte);
        let graph = model.read(21).unwrap();
        let (zero, low, high) = bounds;
        assert_eq!(run(&graph), bounded(zero, low, high), "{data_type}");
        // Where the device has it.
        let clips = |op: &Op| matches!(op, Op::Clip { .. });
        assert!(clips(&graph.nodes[0].op), "{:?}", graph.nodes[0]);
    }
}

#[test]
fn the_forms_of_brevitas_are_the_same() {
    let steps = |from: &'static str| [from, "s", "z"];
    let clipped = Model::default()
        .floats("s", &[], vec![STEP])
        .int8("z", &[], &[1])
        .int8("low", &[], &[-3])
        .int8("high", &[], &[2])
        .node("QuantizeLinear", &steps("x"), "q", &[])
        .node("Clip", &["q", "low", "high"], "c", &[])
        .node("DequantizeLinear", &steps("c"), "y", &[]);
    let graph = clipped.read(17).unwrap();
    assert_eq!(run(&graph), bounded(1.0, -3.0, 2.0));
    assert!(
        !graph
            .nodes
            .iter()
            .any(|node| matches!(node.op, Op::Onnx(_)))
    );
    for (signed, narrow, bounds) in [
        (1, 0, (-4.0, 3.0)),
        (1, 1, (-3.0, 3.0)),
        (0, 0, (0.0, 7.0)),
        (0, 1, (0.0, 6.0)),
    ] {
        let attributes = |rounding| {
            let signs = [int("signed", signed), int("narrow", narrow)];
            [&signs[..], &[text("rounding_mode", rounding)]].concat()
        };
        let quant = |rounding| {
            let mut model = Model::default()
                .floats("s", &[1], vec![STEP])
                .floats("zero", &[], vec![1.0])
                .floats("bits", &[], vec![3.0])
                .node(
                    "Quant",
                    &["x", "s", "zero", "bits"],
                    "y",
                    &attributes(rounding),
                );
            model.0.node[0].domain = "qonnx.custom_op.general".to_owned();
            model.read(17)
        };
        let graph = quant("ROUND").unwrap();
        assert_eq!(run(&graph), bounded(1.0, bounds.0, bounds.1));
        assert!(quant("FLOOR").is_err(), "another rounding is refused");
    }
}

#[test]
fn integers_that_another_reads_have_no_other_bounds() {
    let steps = |from: &'static str| [from, "s", "z"];
    let graph = Model::default()
        .floats("s", &[], vec![STEP])
        .int8("z", &[], &[0])
        .int8("low", &[], &[-3])
        .int8("high", &[], &[2])
        .node("QuantizeLinear", &steps("x"), "q", &[])
        .node("Clip", &["q", "low", "high"], "c", &[])
        .node("DequantizeLinear", &steps("c"), "a", &[])
        .node("DequantizeLinear", &steps("q"), "b", &[])
        .node("Sub", &["a", "b"], "y", &[])
        .read(17)
        .unwrap();
    let all = bounded(0.0, -3.0, 2.0)
        .into_iter()
        .zip(bounded(0.0, -128.0, 127.0));
    assert_eq!(run(&graph), all.map(|(a, b)| a - b).collect::<Vec<_>>());
}

#[test]
fn several_elements_are_in_a_byte() {
    let read = |data_type, count: i64, tensor: proto::Tensor| {
        let tensor = proto::Tensor {
            dims: vec![count],
            data_type,
            ..tensor
        };
        let options = ReadOptions::default();
        let read = read_tensor("t", &tensor, &mut External::new(&options));
        read.map(|(_, data)| data)
    };
    let raw = |bytes: &[u8]| proto::Tensor {
        raw_data: bytes.to_vec().into(),
        ..Default::default()
    };
    let bytes = [0xF1, 0x87];
    let signed = Data::I8(vec![1, -1, 7, -8]);
    let unsigned = Data::U8(vec![1, 15, 7]);
    assert_eq!(read(proto::INT4, 4, raw(&bytes)).unwrap(), signed);
    assert_eq!(read(proto::UINT4, 3, raw(&bytes)).unwrap(), unsigned);
    let fields = proto::Tensor {
        int32_data: vec![0xF1, 0x87],
        ..Default::default()
    };
    assert_eq!(read(proto::UINT4, 3, fields).unwrap(), unsigned);
    let quarters = Data::I8(vec![1, 0, -1, -1, -1]);
    assert_eq!(read(proto::INT2, 5, raw(&[0xF1, 0x07])).unwrap(), quarters);
    for count in [1, 2, 5] {
        let error = read(proto::INT4, count, raw(&bytes)).unwrap_err();
        assert!(error.to_string().contains("elements"), "{error}");
    }
    let wide = Data::I16(vec![-2, 0x1234]);
    let bytes = raw(&[0xFE, 0xFF, 0x34, 0x12]);
    assert_eq!(read(proto::INT16, 2, bytes.clone()).unwrap(), wide);
    let wide = Data::U16(vec![0xFFFE, 0x1234]);
    assert_eq!(read(proto::UINT16, 2, bytes).unwrap(), wide);
}
