//! Networks of several outputs, vectors and open shapes, as a user meets them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Cursor, Read};
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;
use vta_compiler::graph::{Data, Element, Graph, Node, OnnxOp, Op, Value, ValueId};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{onnx, passes, reference};

fn vta(folder: &TempDir, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("vta").unwrap();
    let run = command
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        run.status.code().unwrap(),
        text(&run.stdout),
        text(&run.stderr),
    )
}

fn npy(path: &Path, shape: &str, values: &[f32]) {
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&118u16.to_le_bytes());
    bytes.extend(format!("{text:<117}\n").bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

/// The floats behind the header of an npy file, and that header.
fn floats(bytes: &[u8]) -> (String, Vec<f32>) {
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values = bytes[end..]
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b));
    (
        String::from_utf8_lossy(&bytes[10..end]).into_owned(),
        values.collect(),
    )
}

/// A dense layer of 6 values to 4, and the sum of its output with itself: both are outputs.
fn two() -> Graph {
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: &[usize], data| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let weights = (0..24u8).map(|i| f32::from(i % 7) - 3.0).collect();
    let (x, w) = (
        value("x", &[1, 6], None),
        value("w", &[4, 6], Some(Data::F32(weights))),
    );
    let (y, z) = (value("../first", &[1, 4], None), value("z", &[1, 4], None));
    let node = |name: &str, op, inputs, output| Node {
        name: name.to_owned(),
        op,
        inputs,
        output,
    };
    graph.nodes = vec![
        node("dense", Op::Gemm { trans_b: true }, vec![x, w], y),
        node("twice", Op::Add, vec![y, y], z),
    ];
    (graph.inputs, graph.outputs) = (vec![x], vec![y, z]);
    graph
}

#[test]
fn every_output_is_told_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let vectors: Vec<f32> = (0..12u8).map(|i| f32::from(i) / 8.0 - 0.5).collect();
    let images: Vec<Vec<f32>> = vectors.chunks(6).map(<[f32]>::to_vec).collect();
    let quantized = quantize::quantize(&two(), &images, Mode::Multiply).unwrap();
    std::fs::write(folder.path().join("q.onnx"), onnx::save(&quantized)).unwrap();
    npy(&folder.path().join("x.npy"), "2, 6", &vectors);
    let run = ["run", "q.onnx", "--input", "x.npy", "--preprocess", "raw"];
    let (status, _, error) = vta(&folder, &[&run[..], &["-o", "y.npy"]].concat());
    assert_eq!(status, 2, "{error}");
    assert!(
        error.contains("2 outputs (../first, z)") && error.contains(".npz"),
        "{error}"
    );
    assert!(!folder.path().join("y.npy").exists());
    let (status, out, error) = vta(&folder, &[&run[..], &["-o", "y.npz", "--json"]].concat());
    assert_eq!(status, 0, "{error}");
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    let names: Vec<&str> = told["output_tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["../first", "z"]);
    let network = passes::quantized(&quantized).unwrap();
    let input = &network.tensors[network.inputs[0].0];
    let expected = |output: usize| -> Vec<f32> {
        let id = network.outputs[output];
        let tensor = &network.tensors[id.0];
        let real = |image: &Vec<f32>| -> Vec<f32> {
            let int8 = image
                .iter()
                .map(|v| ((v / input.scale).round_ties_even() as i32 + input.zero) as i16);
            let all = reference::run(&network, &int8.collect::<Vec<_>>()).unwrap();
            all[id.0]
                .iter()
                .map(|&q| (i32::from(q) - tensor.zero) as f32 * tensor.scale)
                .collect()
        };
        images.iter().flat_map(real).collect()
    };
    let bytes = std::fs::read(folder.path().join("y.npz")).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    // A name leads out of no folder.
    for (index, name) in ["__/first.npy", "z.npy"].into_iter().enumerate() {
        let mut entry = Vec::new();
        archive
            .by_name(name)
            .unwrap()
            .read_to_end(&mut entry)
            .unwrap();
        let (header, values) = floats(&entry);
        assert!(header.contains("(2, 4"), "{header}");
        assert_eq!(values, expected(index));
    }
    // Two vectors have no classes.
    let (status, out, _) = vta(&folder, &run);
    assert!(
        status == 0 && out.contains("output z: 4 an image") && !out.contains("class"),
        "{out}"
    );
}

/// The layers of [`two`] in int8; the last output again under another name, as a sequence, and in its steps.
fn aliased() -> Graph {
    let images: Vec<Vec<f32>> = (0..4u8)
        .map(|k| vec![f32::from(k) / 4.0 - 0.5; 6])
        .collect();
    let mut graph = quantize::quantize(&two(), &images, Mode::Multiply).unwrap();
    let z = graph.outputs[1];
    let made = graph.nodes.iter().find(|node| node.output == z).unwrap();
    assert!(matches!(made.op, Op::DequantizeLinear { .. }));
    let steps = made.inputs[0];
    graph.values[steps.0].name = "steps".to_owned();
    graph.values[steps.0].element = Element::I8;
    let mut value = |name: &str, shape: &[usize], data| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let same = value("same", &[1, 4], None);
    let sizes = value("sizes", &[3], Some(Data::I64(vec![1, 2, 2])));
    let sequence = value("sequence", &[1, 2, 2], None);
    let reshape = Op::Onnx(Box::new(OnnxOp {
        kind: "Reshape",
        opset: 13,
        attributes: Vec::new(),
        arguments: vec![true; 2],
        output: 0,
        reason: String::new(),
    }));
    for (op, inputs, output) in [
        (Op::Identity, vec![z], same),
        (reshape, vec![z, sizes], sequence),
    ] {
        let name = graph.values[output.0].name.clone();
        graph.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
    }
    graph.outputs = vec![z, same, sequence, steps];
    graph
}

#[test]
fn outputs_are_what_the_model_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("q.onnx"), onnx::save(&aliased())).unwrap();
    npy(&folder.path().join("x.npy"), "1, 6", &[0.25; 6]);
    let run = [
        "run",
        "q.onnx",
        "--preprocess",
        "raw",
        "--allow-host",
        "--json",
    ];
    let given = [&run[..], &["--input", "x.npy", "-o", "y.npz"]].concat();
    let (status, out, error) = vta(&folder, &given);
    assert_eq!(status, 0, "{error}");
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    let told: Vec<String> = told["output_tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| format!("{} {} {}", o["name"], o["shape"], o["element"]))
        .collect();
    let says = [
        r#""z" [4] "float32""#,
        r#""same" [4] "float32""#,
        r#""sequence" [2,2] "float32""#,
        r#""steps" [4] "int8""#,
    ];
    assert_eq!(told, says);
    let bytes = std::fs::read(folder.path().join("y.npz")).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut entry = |name: &str| {
        let mut bytes = Vec::new();
        let mut entry = archive.by_name(&format!("{name}.npy")).unwrap();
        entry.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (header, z) = floats(&entry("z"));
    assert!(
        header.contains("<f4") && header.contains("(1, 4"),
        "{header}"
    );
    assert_eq!(floats(&entry("same")), (header, z.clone()));
    let (header, sequence) = floats(&entry("sequence"));
    assert!(header.contains("(1, 2, 2") && sequence == z, "{header}");
    let steps = entry("steps");
    let (header, data) = steps.split_at(steps.len() - 4);
    assert!(
        String::from_utf8_lossy(header).contains("|i1"),
        "{header:?}"
    );
    let signs: Vec<bool> = data.iter().map(|&b| (b as i8) < 0).collect();
    assert_eq!(signs, z.iter().map(|v| *v < 0.0).collect::<Vec<_>>());
    assert!(z.iter().any(|v| *v != 0.0));
    // A timing needs no values.
    let timed = |args: &[&str]| {
        let timing = ["--device", "cycle", "--timing-only"];
        let (status, out, error) = vta(&folder, &[&run[..], &timing, args].concat());
        assert_eq!(status, 0, "{error}");
        let told: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["images"], 1);
        told["cycles"].as_u64().unwrap()
    };
    assert_eq!(timed(&[]), timed(&["--input", "x.npy"]));
}

#[test]
fn a_shape_that_is_no_inputs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f.onnx"), onnx::save(&two())).unwrap();
    npy(&folder.path().join("x.npy"), "1, 6", &[0.5; 6]);
    for (shape, says) in [
        (
            "y=1x6",
            "error: f.onnx: ONNX: input shape y: the inputs are x\n",
        ),
        (
            "x=1x7",
            "error: f.onnx: ONNX tensor x: input shape 1x7: the model says 1x6\n",
        ),
        ("x=1x0", "'1x0' is no shape"),
        ("1x", "'1x' is no shape"),
    ] {
        let args = ["run", "f.onnx", "--input", "x.npy", "--input-shape", shape];
        let (status, _, error) = vta(&folder, &args);
        assert!(status == 2 && error.contains(says), "{shape}: {error}");
    }
    let args = ["run", "demo", "--input-shape", "1x6"];
    let (status, _, error) = vta(&folder, &args);
    assert!(
        status == 2 && error.contains("--input-shape is for ONNX files"),
        "{error}"
    );
}
