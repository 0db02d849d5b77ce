//! Parts of models, and where `vta check` says that a cut helps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{file, succeeds, vta};
use tempfile::TempDir;

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn number(field: usize, value: usize) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn message(field: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    [varint(field << 3 | 2), varint(body.len()), body].concat()
}

fn text(field: usize, text: &str) -> Vec<u8> {
    message(field, &[text.as_bytes().to_vec()])
}

fn value(field: usize, name: &str, channels: usize) -> Vec<u8> {
    let dims = [1, channels, 8, 8].map(|size| message(1, &[number(1, size)]));
    let tensor = message(1, &[number(1, 1), message(2, &dims)]);
    message(field, &[text(1, name), message(2, &[tensor])])
}

fn weights(name: &str, channels: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..channels * channels)
        .flat_map(|k| ((k % 7) as f32 / 7.0 - 0.4).to_le_bytes())
        .collect();
    let mut parts: Vec<Vec<u8>> = [channels, channels, 1, 1]
        .map(|size| number(1, size))
        .into();
    parts.extend([number(2, 1), text(8, name), message(9, &[data])]);
    message(5, &parts)
}

fn node(op: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = inputs.iter().map(|name| text(1, name)).collect();
    parts.extend([text(2, output), text(4, op)]);
    message(1, &parts)
}

/// A convolution of 4 channels, an operator that nothing has and that makes 16 of them, and a convolution of these.
/// `says` is whether the file has the type of what it makes.
fn model(folder: &TempDir, says: bool) -> String {
    let mut graph = vec![
        node("Conv", &["the image", "w"], "a"),
        node("Frobnicate", &["a"], "it's b"),
        node("Conv", &["it's b", "v"], "c"),
        node("Relu", &["c"], "d"),
        text(2, "g"),
        weights("w", 4),
        weights("v", 16),
        value(11, "the image", 4),
        value(12, "d", 16),
    ];
    if says {
        graph.push(value(13, "it's b", 16));
    }
    let opset = message(8, &[text(1, ""), number(2, 17)]);
    let model = [number(1, 8), message(7, &graph), opset].concat();
    file(folder, "m.onnx", &model)
}

/// The words of a command as a shell takes them.
fn words(command: &str) -> Vec<String> {
    let script = format!("printf '%s\\n' {command}");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
#[cfg(unix)]
fn the_cut_that_check_prints_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part.onnx").display().to_string();
    for (says, counts, ends, nodes) in [
        (
            false,
            "4 nodes: 1 on the device, 1 refused, 2 not judged",
            "--inputs 'the image' --outputs a",
            1,
        ),
        (
            true,
            "4 nodes: 3 on the device, 1 refused\n",
            "--inputs 'it'\\''s b' --outputs d",
            2,
        ),
    ] {
        let model = model(&folder, says);
        let (status, out, _) = vta(&["check", &model]);
        assert_eq!(status, 1);
        assert!(out.contains(counts), "{out}");
        let command = out
            .lines()
            .find_map(|line| line.strip_prefix("  vta "))
            .unwrap();
        assert_eq!(command, format!("cut {model} {ends} -o part.onnx"));
        let mut words = words(command);
        *words.last_mut().unwrap() = part.clone();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (out, _) = succeeds(&words);
        assert!(out.contains(&format!("{nodes} of 4 nodes")), "{out}");
        let (out, _) = succeeds(&["check", &part]);
        assert!(
            out.contains(&format!("{nodes} nodes: {nodes} on the device\n")),
            "{out}"
        );
        assert!(out.ends_with("no fault found\n"), "{out}");
    }
}

#[test]
fn a_cut_that_is_none_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(&folder, true);
    for (arguments, says) in [
        (
            ["--outputs", "the imag"],
            "the model has no value 'the imag'; did you mean the image?",
        ),
        (["--outputs", "w"], "w is a constant"),
        (["--inputs", "d"], "d is an input and an output"),
    ] {
        let part = folder.path().join("part.onnx").display().to_string();
        let command = [&["cut", &model][..], &arguments, &["-o", &part]].concat();
        let (status, _, error) = vta(&command);
        assert_eq!(
            (status, &error[..]),
            (2, &format!("error: {model}: {says}\n")[..])
        );
        assert!(!std::path::Path::new(&part).exists());
    }
}
