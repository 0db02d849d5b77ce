//! Foreign input asks for too much, or is no file at all: one line, and no work.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/proto.rs"]
mod proto;

#[cfg(target_os = "linux")]
use std::path::Path;

use assert_cmd::Command;
use common::{file, root, succeeds, vta};
use proto::{message, number, text};
use tempfile::TempDir;

/// 2^40 steps of one instruction.
const ENDLESS: &[u8] = b".uop 0 dst=0 src=0 wgt=0
load.uop y_size=1 x_size=1
gemm uop_bgn=0 uop_end=8191 iter_out=16383 iter_in=4096
finish
";

/// A LOAD of 2^32 tiles.
const HUGE_LOAD: &[u8] = br#"{"config": "pynq", "insn_addr": 65536, "programs": [{"insns":
 ["0000ffffffffffff00000000000000c0", "0000000000000000000000000000000b"],
 "rtl_cycles": 1, "rdreq": 1, "rdbeats": 1, "wrreq": 0, "wrbeats": 0}]}"#;

#[test]
fn work_beyond_the_budget_is_refused_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let endless = file(&folder, "endless.asm", ENDLESS);
    let huge = file(&folder, "huge.json", HUGE_LOAD);
    for (command, says) in [
        (
            vec!["exec", &endless],
            "more than its budget of 17179869184 GEMM and ALU steps; --limit-steps raises it",
        ),
        (
            vec!["exec", &endless, "--device", "oracle"],
            "more than its budget of 17179869184 GEMM and ALU steps; --limit-steps raises it",
        ),
        (
            vec!["exec", &endless, "--device", "cycle"],
            "more than its budget of 17179869184 GEMM and ALU steps; --limit-steps raises it",
        ),
        (
            vec![
                "exec",
                &endless,
                "--device",
                "cycle",
                "--limit-cycles",
                "1000",
            ],
            "more than its budget of",
        ),
        (
            vec!["replay", &huge, "--device", "cycle"],
            "more than its budget of 17179869184 bytes",
        ),
    ] {
        let (status, out, err) = vta(&command);
        let text = format!("{out}{err}");
        assert_eq!(status, 1, "{command:?}: {text}");
        assert!(
            text.contains(says) && text.contains("instruction"),
            "{text}"
        );
    }
    // A limit can be lowered, and is named as it was given.
    for (device, option, what) in [
        ("sim", "--limit-steps", "GEMM and ALU steps"),
        ("cycle", "--limit-cycles", "cycles"),
        (
            "cycle",
            "--limit-bytes",
            "bytes between DRAM and scratchpads",
        ),
    ] {
        let command = [
            "run", "demo", "--limit", "1", "--device", device, option, "1000",
        ];
        let (status, _, err) = vta(&command);
        let says = format!("its budget of 1000 {what}; {option} raises it\n");
        assert!(status == 1 && err.ends_with(&says), "{err}");
    }
}

#[test]
fn checks_of_an_endless_program_end() {
    let folder = tempfile::tempdir().unwrap();
    let endless = file(&folder, "endless.asm", ENDLESS);
    for command in [&["check", &endless][..], &["check", &endless, "--hazards"]] {
        let (status, _, err) = vta(command);
        assert!(status <= 1 && err.lines().count() <= 1, "{err}");
    }
}

#[cfg(unix)]
#[test]
fn special_files_are_refused_as_any_input() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.npy");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    let socket = folder.path().join("socket.png");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let [pipe, socket] = [pipe, socket].map(|path| path.display().to_string());
    assert!(made.unwrap().success());
    let special = [
        (socket, "a socket, not a file"),
        (pipe, "a named pipe, not a file"),
    ];
    for (path, says) in special {
        for command in [
            &["run", &path][..],
            &["run", "demo", "--input", &path],
            &["run", "demo", "--config", &path],
            &[
                "run",
                "demo",
                "--placement",
                &path,
                "--device",
                "sim,oracle",
            ],
            &["check", &path],
        ] {
            let (status, _, err) = vta(command);
            let picture = err.contains("is a picture");
            assert!(
                status == 2 && (picture || err.contains(says)),
                "{command:?}: {err}"
            );
            assert_eq!(err.lines().count(), 1, "{err}");
        }
    }
}

#[test]
fn errors_of_tables_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(
        &folder,
        "bad.toml",
        b"# a board\nbus_bytes = 8\ntags = = 4\n",
    );
    for command in [
        &["run", "demo", "--device", "cycle", "--timing", &bad][..],
        &["run", "demo", "--device", "cycle", "--costs", &bad],
        &["run", "demo", "--device", "sim,oracle", "--placement", &bad],
    ] {
        let (status, _, err) = vta(command);
        assert_eq!((status, err.lines().count()), (2, 1), "{err}");
        assert!(
            err.contains("bad.toml") && err.contains("line 3, column 8"),
            "{err}"
        );
    }
    for header in [
        &b"\x93NUMPY\x01\x00\x10\x00{'descr': 12,\n\n}  \n"[..],
        b"not numpy",
    ] {
        let array = file(&folder, "bad.npy", header);
        let (status, _, err) = vta(&["run", "demo", "--input", &array]);
        assert_eq!((status, err.lines().count()), (2, 1), "{err}");
        assert!(err.contains("bad.npy"), "{err}");
    }
}

#[cfg(unix)]
#[test]
fn names_of_files_are_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let photo = std::fs::read(root().join("models/demo/cat.png")).unwrap();
    let image = file(&folder, "a\u{1b}[2J\u{7}.png", &photo);
    let (out, _) = succeeds(&["run", "demo", "--input", &image]);
    assert!(out.contains("a\\u{1b}[2J\\u{7}.png"), "{out:?}");
    assert!(!out.contains(['\u{1b}', '\u{7}']), "{out:?}");
}

#[test]
fn a_bundle_is_the_same_however_its_model_is_spelled() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(root().join("models/demo/resnet20.onnx")).unwrap();
    let model = file(&folder, "m.onnx", &bytes);
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let around = inner.join("../m.onnx").display().to_string();
    let bundle = |model: &str, name: &str| {
        let output = folder.path().join(name);
        succeeds(&["compile", model, "-o", &output.display().to_string()]);
        std::fs::read(output).unwrap()
    };
    assert!(bundle(&model, "a.vta") == bundle(&around, "b.vta"));
}

/// No thread can have a stack of 64 TiB.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn a_system_without_threads_is_one_line() {
    for arguments in [&["run", "demo"][..], &["layer", "conv:1,16,8,8,16,3,1,1"]] {
        let mut command = Command::cargo_bin("vta").unwrap();
        command.env("RUST_MIN_STACK", (1u64 << 46).to_string());
        let output = command.args(arguments).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(
            err.starts_with("error: ") && err.lines().count() == 1,
            "{err}"
        );
    }
}

/// Runs the program with so many KiB of addresses; its status and what it says.
#[cfg(target_os = "linux")]
fn within(kib: u64, arguments: &[&str]) -> (Option<i32>, String) {
    let vta = assert_cmd::cargo::cargo_bin("vta");
    let script = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.current_dir(root()).env_remove("RUST_BACKTRACE");
    let output = command.args(["-c", &script]).arg(vta).args(arguments);
    let output = output.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), err)
}

/// Work that a file, an argument or a model makes too large is refused before it begins.
#[cfg(target_os = "linux")]
#[test]
fn a_system_without_memory_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.onnx");
    let sparse = std::fs::File::create(&large).unwrap();
    sparse.set_len((2 << 30) - 4096).unwrap();
    let large = large.display().to_string();
    let bundle = folder.path().join("b.vta").display().to_string();
    let table = folder.path().join("t.csv").display().to_string();
    let sweep = ["sweep", "zoo:resnet50", "--vary", "tags=1,2", "-o", &table];
    for (kib, arguments) in [
        (1_500_000, &["run", &large][..]),
        (1_500_000, &["check", &large]),
        (200_000, &["run", "zoo:resnet50"]),
        (400_000, &["run", "zoo:resnet152", "--limit", "1"]),
        (300_000, &["compile", "zoo:resnet152", "-o", &bundle]),
        (700_000, &["layer", "conv:1,16,2048,2048,16,3,1,1"]),
        (700_000, &["layer", "gemm:1024,8192,8192"]),
        (300_000, &sweep),
    ] {
        let (status, err) = within(kib, arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.lines().count() == 1,
            "{arguments:?}: {err}"
        );
    }
    assert!(!Path::new(&bundle).exists());
}

/// Also where memory ends in the midst of it, however little there is.
#[cfg(target_os = "linux")]
#[test]
fn no_limit_of_memory_ends_in_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("b.vta").display().to_string();
    let far = file(&folder, "far.asm", b".inp 900000 1\nfinish\n");
    let mut failed = 0;
    for arguments in [
        &["run", "demo", "--limit", "2"][..],
        &["layer", "conv:1,64,56,56,64,3,1,1"],
        &["compile", "demo", "-o", &bundle],
        &["exec", &far],
    ] {
        for kib in (48_000..260_000).step_by(24_000) {
            let (status, err) = within(kib, arguments);
            let ended = status.is_some_and(|status| status <= 1);
            assert!(ended, "{kib} KiB, {arguments:?}: {status:?} {err}");
            failed += usize::from(status == Some(1));
        }
    }
    assert!(failed > 4, "{failed}");
}

#[test]
fn names_of_files_are_never_taken_for_options() {
    for (command, says) in [
        (
            &["run", "`top`.onnx"][..],
            "error: `top`.onnx: No such file",
        ),
        (
            &["run", "demo", "--input", "`threads`.png"],
            "error: `threads`.png: ",
        ),
        (
            &["run", "`quantize`", "--input-shape", "x=1x2"],
            "error: '`quantize`' is neither",
        ),
        // Beside what is an option.
        (
            &["run", "demo", "--timing", "`top`"],
            "error: --timing needs --device cycle",
        ),
        (
            &["run", "demo", "--device", "cycle", "--timing", "`top`"],
            "error: --timing `top`: ",
        ),
    ] {
        let (status, _, error) = vta(command);
        assert!(
            status == 2 && error.starts_with(says),
            "{command:?}: {error}"
        );
    }
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
        assert!(!folder.path().join("part.onnx").exists());
    }
}
