//! Memory doesn't grow with the number of images.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use image::RgbImage;
use tempfile::TempDir;
use vta_compiler::graph::{Data, Graph, Node, OnnxOp, Op, Value, ValueId};
use vta_compiler::onnx;
use vta_compiler::qgraph::Window;
use vta_compiler::quantize::{self, Mode};

/// Growth that isn't images: results, samples, chance. One decoded photo of 12 MP takes more.
const LEAST_KIB: u64 = 32 << 10;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The largest resident size of the program with these arguments, in KiB; it must succeed.
fn peak_kib(args: &[&str]) -> u64 {
    let (peak, status, error) = watched(args);
    assert!(status == 0 && peak > 0, "{args:?}: {error}");
    peak
}

/// The largest resident size of the program with these arguments, in KiB, its status and what it says of errors.
fn watched(args: &[&str]) -> (u64, i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vta"));
    command.current_dir(root()).args(args);
    // Each thread has a picture of its own at a time.
    command.env("RAYON_NUM_THREADS", "2");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    // The figure never falls, so that only what is added in the last moment is missed.
    let status = loop {
        let facts = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let facts = facts.unwrap_or_default();
        let line = facts.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let words = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
        peak = peak.max(words.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (peak, status.code().unwrap(), error)
}

/// Asserts that the second command needs little more than the first.
fn assert_no_growth(few: &[&str], many: &[&str]) {
    let (few_kib, many_kib) = (peak_kib(few), peak_kib(many));
    println!("{few_kib} KiB for {few:?}, {many_kib} KiB for {many:?}");
    assert!(
        many_kib < few_kib + LEAST_KIB,
        "{few_kib} KiB for {few:?}, {many_kib} KiB for {many:?}"
    );
}

#[test]
fn photos_are_decoded_as_they_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let photo = folder.path().join("photo.jpg");
    let shade = |x: u32, y: u32| image::Rgb([(x / 16) as u8, (y / 12) as u8, 99]);
    RgbImage::from_fn(4000, 3000, shade).save(&photo).unwrap();
    let copies = |count: usize| -> String {
        let copies = folder.path().join(count.to_string());
        std::fs::create_dir(&copies).unwrap();
        for i in 0..count {
            std::fs::hard_link(&photo, copies.join(format!("{i}.jpg"))).unwrap();
        }
        copies.display().to_string()
    };
    let (few, many) = (copies(16), copies(64));
    // Every thread has a photo in hand; how many that are must not depend on the machine.
    let run = ["run", "demo", "--json", "--threads", "2", "--input"];
    assert_no_growth(
        &[&run[..], &[&few]].concat(),
        &[&run[..], &[&many]].concat(),
    );
    let model = folder.path().join("q.onnx").display().to_string();
    let float = "models/demo/resnet20_f32.onnx";
    let quantize = [
        "quantize",
        float,
        "--preprocess",
        "cifar10",
        "-o",
        &model,
        "--calibration",
    ];
    assert_no_growth(
        &[&quantize[..], &[&few]].concat(),
        &[&quantize[..], &[&many]].concat(),
    );
}

/// A network of one small convolution: its images are what takes time and memory.
fn small_network(folder: &TempDir) -> String {
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let image = value("image", &[1, 3, 32, 32], None);
    let data = Data::F32((0..96).map(|k| (k * 37 % 29) as f32 / 29.0 - 0.5).collect());
    let weights = value("weights", &[8, 3, 2, 2], Some(data));
    let output = value("output", &[1, 8, 2, 2], None);
    let window = Window {
        kernel: [2, 2],
        stride: [16, 16],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    graph.inputs.push(image);
    graph.outputs.push(output);
    graph.nodes.push(Node {
        name: "conv".to_owned(),
        op: Op::Conv { window, group: 1 },
        inputs: vec![image, weights],
        output,
    });
    let sample: Vec<f32> = (0..3072).map(|i| (i % 255) as f32).collect();
    let quantized = quantize::quantize(&graph, &[sample], Mode::Multiply).unwrap();
    let path = folder.path().join("small.onnx");
    std::fs::write(&path, onnx::save(&quantized)).unwrap();
    path.display().to_string()
}

/// Pixels `[count, 3, 32, 32]` and labels, compressed.
fn small_images(path: &Path, count: usize) -> String {
    let header = |descr: &str, shape: &str| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&118u16.to_le_bytes());
        bytes.extend(format!("{text:<117}\n").bytes());
        bytes
    };
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    archive
        .start_file("images.npy", Default::default())
        .unwrap();
    archive
        .write_all(&header("|u1", &format!("({count}, 3, 32, 32)")))
        .unwrap();
    for image in 0..count {
        archive.write_all(&[(image % 256) as u8; 3072]).unwrap();
    }
    archive
        .start_file("labels.npy", Default::default())
        .unwrap();
    archive
        .write_all(&header("<i8", &format!("({count},)")))
        .unwrap();
    archive.write_all(&vec![0; count * 8]).unwrap();
    archive.finish().unwrap();
    path.display().to_string()
}

#[test]
fn arrays_are_read_image_by_image() {
    let folder = tempfile::tempdir().unwrap();
    let model = small_network(&folder);
    let few = small_images(&folder.path().join("few.npz"), 4_000);
    let many = small_images(&folder.path().join("many.npz"), 40_000);
    for form in [&["--top", "1"][..], &["--json"]] {
        let run = [&["run", &model, "--preprocess", "raw"], form, &["--input"]].concat();
        assert_no_growth(
            &[&run[..], &[&few]].concat(),
            &[&run[..], &[&many]].concat(),
        );
    }
}

/// An operator of the host whose one argument is given.
fn host(kind: &'static str) -> Op {
    Op::Onnx(Box::new(OnnxOp {
        kind,
        opset: 13,
        attributes: Vec::new(),
        arguments: vec![true],
        output: 0,
        reason: String::new(),
    }))
}

/// A file of some kilobytes, whose constants take gigabytes.
#[test]
fn folded_constants_take_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let x = value("x", &[1, 16, 8, 8], None);
    let count = value("count", &[1], Some(Data::I64(vec![1 << 23])));
    let mut nodes = Vec::new();
    let mut node = |op: Op, inputs: Vec<ValueId>, output: ValueId| {
        let name = format!("n{}", nodes.len());
        nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
        output
    };
    let mut last = node(
        host("ConstantOfShape"),
        vec![count],
        value("c", &[1 << 23], None),
    );
    for i in 0..100 {
        last = node(
            host("Neg"),
            vec![last],
            value(&format!("c{i}"), &[1 << 23], None),
        );
    }
    let most = node(host("ReduceMax"), vec![last], value("most", &[1], None));
    let y = node(Op::Mul, vec![x, most], value("y", &[1, 16, 8, 8], None));
    (graph.inputs, graph.outputs, graph.nodes) = (vec![x], vec![y], nodes);
    let path = folder.path().join("fold.onnx");
    std::fs::write(&path, onnx::save(&graph)).unwrap();
    let (peak, status, error) = watched(&["run", path.to_str().unwrap()]);
    println!("{peak} KiB");
    assert!(peak < 400 << 10, "{peak} KiB");
    assert!(
        status == 2 && error.contains("(Neg): with it, reading the model computes more than"),
        "{status} {error}"
    );
}
