//! Operators that are kept, what is computed while a file is read, and data beside it.

use std::collections::BTreeMap;

use super::model::{Model, int, ints, text};
use crate::graph::{Data, Element, Graph, MatMulForm, OnnxAttribute, Op};
use crate::onnx::{OnnxError, ReadOptions, load, load_part, proto, save};

fn load_with(bytes: &[u8], options: &ReadOptions<'_>) -> Result<Graph, OnnxError> {
    load_part(bytes.to_vec(), options)?.whole()
}

fn shape(graph: &Graph, name: &str) -> Vec<usize> {
    let value = graph.values.iter().find(|v| v.name == name);
    value.unwrap().shape.clone()
}

fn kinds(graph: &Graph) -> Vec<&str> {
    let kind = |n: &crate::graph::Node| match &n.op {
        Op::Onnx(op) => Some(op.kind),
        _ => None,
    };
    graph.nodes.iter().filter_map(kind).collect()
}

#[test]
fn shapes_are_those_of_the_engine_and_the_definitions() {
    let (f, i) = (Element::F32, Element::I64);
    for (op, inputs, attributes, expected, element) in [
        ("Erf", &["x"][..], vec![], &[1, 2, 5, 6][..], f),
        (
            "Transpose",
            &["x"],
            vec![ints("perm", &[0, 2, 3, 1])],
            &[1, 5, 6, 2],
            f,
        ),
        ("Reshape", &["x", "six"], vec![], &[6, 10], f),
        (
            "ReduceMax",
            &["x"],
            vec![ints("axes", &[1, 3]), int("keepdims", 0)],
            &[1, 5],
            f,
        ),
        (
            "ArgMax",
            &["x"],
            vec![int("axis", 3), int("keepdims", 0)],
            &[1, 2, 5],
            i,
        ),
        ("MatMul", &["x", "w"], vec![], &[1, 2, 5, 4], f),
        (
            "Gather",
            &["x", "index"],
            vec![int("axis", 3)],
            &[1, 2, 5],
            f,
        ),
        ("Tile", &["x", "twice"], vec![], &[2, 4, 10, 12], f),
        ("Expand", &["x", "large"], vec![], &[3, 2, 5, 6], f),
        ("Greater", &["x", "v"], vec![], &[1, 2, 5, 6], Element::Bool),
        (
            "Cast",
            &["x"],
            vec![int("to", proto::INT32.into())],
            &[1, 2, 5, 6],
            Element::I32,
        ),
        (
            "AveragePool",
            &["x"],
            vec![
                ints("kernel_shape", &[2, 2]),
                int("ceil_mode", 1),
                ints("pads", &[1, 1, 1, 1]),
            ],
            &[1, 2, 6, 7],
            f,
        ),
    ] {
        let graph = Model::default()
            .longs("six", &[6, -1])
            .longs("twice", &[2; 4])
            .longs("large", &[3, 1, 1, 1])
            .long("index", 2)
            .floats("w", &[6, 4], vec![1.0; 24])
            .floats("v", &[6], vec![1.0; 6])
            .node(op, inputs, "y", &attributes)
            .read(13)
            .unwrap();
        let y = &graph.values[graph.outputs[0].0];
        assert_eq!(
            (&y.shape[..], y.element),
            (expected, element),
            "{op} {inputs:?}"
        );
        // What is written is read again as the same.
        assert_eq!(load(&save(&graph)).unwrap().nodes, graph.nodes, "{op}");
    }
}

#[test]
fn constants_are_folded_whatever_computes_them() {
    let graph = Model::default()
        .node("Shape", &["x"], "shape", &[])
        .long("first", 1)
        .node("Gather", &["shape", "first"], "channels", &[int("axis", 0)])
        .longs("rest", &[-1])
        .longs("zero", &[0])
        .node("Unsqueeze", &["channels", "zero"], "c", &[])
        .longs("one", &[1])
        .node("Concat", &["one", "c", "rest"], "to", &[int("axis", 0)])
        .node("Reshape", &["x", "to"], "flat", &[])
        .floats("w", &[2, 2], vec![1.0, 2.0, 3.0, 4.0])
        .node("Transpose", &["w"], "wt", &[ints("perm", &[1, 0])])
        .node("MatMul", &["wt", "flat"], "y", &[])
        .read(13)
        .unwrap();
    assert_eq!(shape(&graph, "flat"), [1, 2, 30]);
    assert_eq!(kinds(&graph), ["Reshape"]);
    let form = MatMulForm::Left;
    assert_eq!(graph.nodes[1].op, Op::MatMul { form });
    let transposed = graph.values.iter().find(|v| v.name == "wt").unwrap();
    assert_eq!(transposed.data, Some(Data::F32(vec![1.0, 3.0, 2.0, 4.0])));
    // Nothing else of the shape's arithmetic is left.
    let left: Vec<&str> = graph.values.iter().map(|v| &v.name[..]).collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn attributes_of_older_operator_sets_become_inputs() {
    let sliced = |opset| {
        let attributes = [
            ints("starts", &[1, 0]),
            ints("ends", &[3, 2]),
            ints("axes", &[2, 3]),
        ];
        Model::default()
            .node("Slice", &["x"], "y", &attributes)
            .read(opset)
            .unwrap()
    };
    assert_eq!(shape(&sliced(9), "y"), [1, 2, 2, 2]);
    let softmax = |opset, axis| {
        let model = Model::default().node("Softmax", &["x"], "y", &[int("axis", axis)]);
        model.read(opset)
    };
    let graph = softmax(11, 3).unwrap();
    let Op::Onnx(op) = &graph.nodes[0].op else {
        panic!("{:?}", graph.nodes[0]);
    };
    assert_eq!(op.attribute("axis"), Some(&OnnxAttribute::Int(-1)));
    let error = softmax(11, 1).unwrap_err().to_string();
    assert!(error.contains("only opset 13"), "{error}");
    let mode = text("mode", "linear");
    let mut scales = ints("scales", &[]);
    scales.floats = vec![1.0, 1.0, 2.0, 2.0];
    scales.kind = proto::ATTRIBUTE_FLOATS;
    let old = Model::default().node("Upsample", &["x"], "y", &[mode, scales]);
    assert_eq!(shape(&old.read(7).unwrap(), "y"), [1, 2, 10, 12]);
}

#[test]
fn work_and_outputs_of_a_hostile_file_are_bounded() {
    for (op, inputs, says) in [
        ("Tile", &["x", "vast"][..], "the most is"),
        ("Expand", &["x", "tall"], "the most is"),
        ("ConstantOfShape", &["vast"], "the most is"),
        ("Range", &["start", "limit", "step"], "the most is"),
        ("Range", &["start", "limit", "start"], "range"),
        ("Pad", &["x", "wide"], "the most is"),
        ("Tile", &["x", "y0"], "isn't known"),
        ("Unique", &["x"], "cut the model before it"),
    ] {
        let found = Model::default()
            .longs("vast", &[1 << 20; 4])
            .longs("tall", &[1 << 40, 1, 1, 1])
            .longs("wide", &[1 << 40; 8])
            .long("start", 0)
            .long("limit", i64::MAX)
            .long("step", 1)
            .node("ArgMax", &["x"], "y0", &[])
            .node(op, inputs, "y", &[])
            .refused(13);
        assert!(found.contains(says), "{op}: {found}");
    }
}

/// A model whose weights `w`, two of 3x3 by 3, lie elsewhere.
fn outside(location: &str, offset: &str, length: &str) -> Vec<u8> {
    let entry = |key: &str, value: &str| proto::StringEntry {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mut model = Model::default().conv("x", "y", &[]);
    let weights = &mut model.0.initializer[0];
    weights.float_data.clear();
    weights.raw_data = bytes::Bytes::new();
    weights.data_location = proto::EXTERNAL;
    weights.external_data = vec![
        entry("location", location),
        entry("offset", offset),
        entry("length", length),
    ];
    model.encoded(17)
}

#[test]
fn weights_are_read_from_files_beside_the_model_alone() {
    let folder = std::env::temp_dir().join(format!("vta external {}", std::process::id()));
    let inner = folder.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    let values: Vec<f32> = (0..54u8).map(|i| f32::from(i) / 8.0).collect();
    let mut bytes = vec![0xff; 8];
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    vta_files::output::write(&folder.join("w.data"), &bytes).unwrap();
    vta_files::output::write(&inner.join("w.data"), &bytes).unwrap();
    let read = |bytes: &[u8], folder: Option<&std::path::Path>| {
        let options = ReadOptions {
            folder,
            ..ReadOptions::default()
        };
        load_with(bytes, &options)
    };
    for place in ["w.data", "inner/w.data", "./w.data"] {
        let graph = read(&outside(place, "8", "216"), Some(&folder)).unwrap();
        let data = graph.values.iter().find_map(|v| v.data.clone());
        assert_eq!(data, Some(Data::F32(values.clone())), "{place}");
    }
    let absolute = folder.join("w.data");
    for (place, offset, length, says) in [
        ("../w.data", "8", "216", "only files in the model's folder"),
        (
            absolute.to_str().unwrap(),
            "8",
            "216",
            "only files in the model's folder",
        ),
        ("inner", "0", "216", "inner"),
        ("missing.data", "8", "216", "missing.data"),
        ("w.data", "9", "216", "which has 224"),
        ("w.data", "18446744073709551615", "216", "which has 224"),
        (
            "w.data",
            "8",
            "215",
            "215 bytes in w.data, its shape has 216",
        ),
        ("w.data", "-1", "216", "offset '-1'"),
        ("", "8", "216", "only files"),
    ] {
        let error = read(&outside(place, offset, length), Some(&folder))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{place} {offset}: {error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.join("w.data"), inner.join("link.data")).unwrap();
        let error = read(&outside("link.data", "8", "216"), Some(&inner)).unwrap_err();
        assert!(error.to_string().contains("a link out of"), "{error}");
    }
    let error = read(&outside("w.data", "8", "216"), None).unwrap_err();
    assert!(
        error.to_string().contains("was read from no file"),
        "{error}"
    );
    let asked = ReadOptions {
        folder: Some(&folder),
        ask: &|bytes| Err(format!("no room for {bytes}")),
        ..ReadOptions::default()
    };
    let error = load_with(&outside("w.data", "8", "216"), &asked).unwrap_err();
    assert!(error.to_string().contains("no room for 216"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn open_dimensions_are_given_by_name() {
    let open = |dims: &[Option<i64>]| {
        let model = Model::default().node("Relu", &["x"], "y", &[]);
        model.with_input(17, dims)
    };
    let read = |bytes: &[u8], given: &[usize]| {
        let shapes = match given {
            [] => BTreeMap::new(),
            given => BTreeMap::from([("x".to_owned(), given.to_vec())]),
        };
        let options = ReadOptions {
            shapes,
            ..ReadOptions::default()
        };
        load_with(bytes, &options).map(|graph| shape(&graph, "x"))
    };
    let batch = open(&[None, Some(3), Some(8), Some(8)]);
    assert_eq!(read(&batch, &[]).unwrap(), [1, 3, 8, 8]);
    let all = open(&[None, Some(3), None, None]);
    assert_eq!(read(&all, &[1, 3, 6, 7]).unwrap(), [1, 3, 6, 7]);
    let error = read(&all, &[]).unwrap_err().to_string();
    assert!(
        error.contains("nx3xnxn is open") && error.contains("x=1x3xNxN"),
        "{error}"
    );
    for given in [&[1, 4, 6, 7][..], &[1, 3, 6], &[1, 3, 0, 7]] {
        let error = read(&all, given).unwrap_err().to_string();
        assert!(error.contains("input shape"), "{given:?}: {error}");
    }
    let four = open(&[Some(4), Some(3), Some(8), Some(8)]);
    let error = read(&four, &[]).unwrap_err().to_string();
    assert!(error.contains("x=1x3x8x8"), "{error}");
    assert_eq!(read(&four, &[1, 3, 8, 8]).unwrap(), [1, 3, 8, 8]);
}

#[test]
fn halves_and_doubles_become_floats() {
    let tensor = |data_type, raw: Vec<u8>, halves: Vec<i32>| proto::Tensor {
        dims: vec![2],
        data_type,
        name: "c".to_owned(),
        raw_data: raw.into(),
        int32_data: halves,
        ..Default::default()
    };
    let doubles = [1.5f64, -2.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    for tensor in [
        tensor(proto::FLOAT16, vec![0x00, 0x3e, 0x00, 0xc0], vec![]),
        tensor(proto::FLOAT16, vec![], vec![0x3e00, 0xc000]),
        tensor(proto::BFLOAT16, vec![0xc0, 0x3f, 0x00, 0xc0], vec![]),
        tensor(proto::DOUBLE, doubles, vec![]),
    ] {
        let mut model = Model::default()
            .longs("column", &[2, 1, 1])
            .node("Reshape", &["c", "column"], "d", &[])
            .node("Pow", &["x", "d"], "y", &[]);
        model.0.initializer.push(tensor);
        let graph = model.read(13).unwrap();
        let found = graph.values.iter().find_map(|v| v.data.clone());
        assert_eq!(found, Some(Data::F32(vec![1.5, -2.0])));
    }
}

/// What the library lacks is written by others: values are those of ONNX's definitions.
#[test]
fn operators_that_the_engine_lacks_are_composed() {
    let x = super::image();
    let each = |f: &dyn Fn(f64) -> f64| -> Vec<f64> { x.iter().map(|&v| f(v.into())).collect() };
    let float = |name: &str, f: f32| proto::Attribute {
        name: name.to_owned(),
        f,
        kind: proto::ATTRIBUTE_FLOAT,
        ..proto::Attribute::default()
    };
    // The input is [1, 2, 5, 6]; windows of channels meet both of them, or one.
    let across = |size: usize| -> Vec<f64> {
        let square = |c: i64, at: usize| match c {
            0 | 1 => f64::from(x[c as usize * 30 + at]).powi(2),
            _ => 0.0,
        };
        let normal = |i: usize| {
            let (c, at) = ((i / 30) as i64, i % 30);
            let from = c - (size as i64 - 1) / 2;
            let sum: f64 = (from..from + size as i64).map(|c| square(c, at)).sum();
            f64::from(x[i]) / (2.0 + 0.5 / size as f64 * sum).powf(0.6)
        };
        (0..60).map(normal).collect()
    };
    let lrn = |size: usize| {
        let numbers = [float("alpha", 0.5), float("beta", 0.6), float("bias", 2.0)];
        [&numbers[..], &[int("size", size as i64)]].concat()
    };
    let grouped = |groups: usize, by_channel: bool| -> Vec<f64> {
        let len = 60 / groups;
        let normal = |i: usize| {
            let own = &x[i / len * len..][..len];
            let mean = own.iter().map(|&v| f64::from(v)).sum::<f64>() / len as f64;
            let var = own.iter().map(|&v| (f64::from(v) - mean).powi(2));
            let var = var.sum::<f64>() / len as f64;
            let at = if by_channel { i / 30 } else { i / len };
            let (scale, bias) = ([2.0, -0.5][at], [0.25, 1.0][at]);
            (f64::from(x[i]) - mean) / (var + 1e-3).sqrt() * scale + bias
        };
        (0..60).map(normal).collect()
    };
    let groups = |groups: usize| vec![float("epsilon", 1e-3), int("num_groups", groups as i64)];
    let celu = |v: f64| v.max(0.0) + (0.7 * ((v / 0.7).exp() - 1.0)).min(0.0);
    let selu = |v: f64| match v > 0.0 {
        true => 1.0507010221481323 * v,
        false => 1.0507010221481323 * 1.6732631921768188 * (v.exp() - 1.0),
    };
    let cases = [
        ("Celu", 1, vec![float("alpha", 0.7)], each(&celu)),
        ("Selu", 1, vec![], each(&selu)),
        ("Mish", 1, vec![], each(&|v| v * v.exp().ln_1p().tanh())),
        ("LRN", 1, lrn(1), across(1)),
        ("LRN", 1, lrn(2), across(2)),
        ("LRN", 1, lrn(3), across(3)),
        ("GroupNormalization", 3, groups(2), grouped(2, true)),
        ("GroupNormalization", 3, groups(1), grouped(1, true)),
    ];
    for (kind, count, attributes, expected) in cases {
        let inputs = ["x", "scale", "bias"];
        let model = Model::default()
            .floats("scale", &[2], vec![2.0, -0.5])
            .floats("bias", &[2], vec![0.25, 1.0])
            .node(kind, &inputs[..count], "y", &attributes);
        let graph = model.read(21).unwrap();
        assert_eq!(kinds(&graph), [kind]);
        let found = super::run(&graph);
        for (a, b) in found.iter().zip(&expected) {
            let far = (f64::from(*a) - b).abs();
            assert!(
                far < 1e-5 * b.abs().max(1.0),
                "{kind} {attributes:?}: {a} {b}"
            );
        }
        assert_eq!(found.len(), expected.len());
    }
    // What can't be written is refused by name.
    for (kind, attributes) in [("LRN", lrn(0)), ("GroupNormalization", groups(3))] {
        let count = if kind == "LRN" { 1 } else { 3 };
        let model = Model::default()
            .floats("scale", &[2], vec![1.0; 2])
            .floats("bias", &[2], vec![0.0; 2])
            .node(kind, &["x", "scale", "bias"][..count], "y", &attributes);
        let found = model.read(21).unwrap_err().to_string();
        assert!(found.contains(kind), "{found}");
    }
}
