//! What a command reads stays as it is, outputs are files of their own, and a full disk behind standard output
//! or standard error is an error at most.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

#[path = "common/proto.rs"]
mod proto;

use assert_cmd::Command;
use proto::{message, number, text};
use tempfile::TempDir;

/// x [1, 4] times weights [4, 4], which lie in the file `w.data`.
fn model() -> Vec<u8> {
    let value = |field, name| {
        let dims = [1, 4].map(|size| message(1, &[number(1, size)]));
        let tensor = message(1, &[number(1, 1), message(2, &dims)]);
        message(field, &[text(1, name), message(2, &[tensor])])
    };
    let weights = [
        number(1, 4),
        number(1, 4),
        number(2, 1),
        text(8, "w"),
        message(13, &[text(1, "location"), text(2, "w.data")]),
        number(14, 1),
    ];
    let node = [text(1, "x"), text(1, "w"), text(2, "y"), text(4, "MatMul")];
    let graph = [
        message(1, &node),
        text(2, "g"),
        message(5, &weights),
        value(11, "x"),
        value(12, "y"),
    ];
    let opset = message(8, &[text(1, ""), number(2, 17)]);
    [number(1, 8), message(7, &graph), opset].concat()
}

fn vta(folder: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::cargo_bin("vta").unwrap();
    let run = command.current_dir(folder).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    (run.status.code().unwrap(), error)
}

/// Every file by name.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files
        .map(|path| (name(&path), fs::read(&path).unwrap()))
        .collect()
}

fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("p.asm"), "finish\n").unwrap();
    fs::hard_link(at("p.asm"), at("hard")).unwrap();
    std::os::unix::fs::symlink("p.asm", at("soft")).unwrap();
    fs::write(at("m.onnx"), model()).unwrap();
    fs::write(at("w.data"), [0x3f; 64]).unwrap();
    fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo/cat.png"),
        at("x.png"),
    )
    .unwrap();
    fs::write(at("c.json"), "{}").unwrap();
    fs::write(at("t.csv"), "layer\n").unwrap();
    fs::create_dir(at("images")).unwrap();
    fs::copy(at("x.png"), at("images/y.png")).unwrap();
    assert_eq!(vta(folder.path(), &["compile", "demo", "-o", "b.vta"]).0, 0);
    folder
}

#[test]
fn no_command_overwrites_what_it_reads() {
    let folder = files();
    let before = contents(folder.path());
    let image = fs::read(folder.path().join("images/y.png")).unwrap();
    let cycle = ["run", "demo", "--limit", "1", "--device", "cycle"];
    for command in [
        &["asm", "p.asm", "-o", "p.asm"][..],
        &["asm", "p.asm", "-o", "hard"],
        &["asm", "p.asm", "-o", "soft"],
        &["asm", "soft", "-o", "./p.asm"],
        &[
            "quantize",
            "m.onnx",
            "--calibration",
            "x.png",
            "-o",
            "m.onnx",
        ],
        &[
            "quantize",
            "m.onnx",
            "--calibration",
            "x.png",
            "-o",
            "w.data",
        ],
        &["cut", "m.onnx", "--outputs", "y", "-o", "m.onnx"],
        &["cut", "m.onnx", "--outputs", "y", "-o", "w.data"],
        &["compile", "m.onnx", "-o", "m.onnx"],
        &["compile", "demo", "--config", "c.json", "-o", "c.json"],
        &[
            "compile",
            "demo",
            "--config",
            "c.json",
            "-o",
            "n.vta",
            "--listing",
            "c.json",
        ],
        &["exec", "b.vta", "--input", "x.png", "-o", "b.vta"],
        &[&cycle[..], &["--input", "x.png", "--report", "x.png"]].concat(),
        &[&cycle[..], &["--input", "x.png", "--trace", "x.png"]].concat(),
        &[
            &cycle[..],
            &["--input", "images", "--report", "images/y.png"],
        ]
        .concat(),
        &["merge", "t.csv", "-o", "t.csv"],
        &[
            "sweep",
            "gemm:8,16,16",
            "--vary",
            "tags=1",
            "--config",
            "c.json",
            "-o",
            "c.json",
        ],
        &["tune", "gemm:8,16,16", "--config", "c.json", "-o", "c.json"],
    ] {
        let (status, error) = vta(folder.path(), command);
        assert_eq!(status, 2, "{command:?}: {error}");
        assert!(
            !["sweep", "tune"].contains(&command[0]) || error.contains("c.json"),
            "{error}"
        );
        let told = error.contains("an input of this command is its output, too");
        assert!(told || error.contains("c.json"), "{command:?}: {error}");
        assert_eq!(contents(folder.path()), before, "{command:?}");
        assert_eq!(fs::read(folder.path().join("images/y.png")).unwrap(), image);
    }
}

#[test]
fn outputs_are_files_of_their_own() {
    let folder = files();
    let before = contents(folder.path());
    let cycle = ["run", "demo", "--limit", "1", "--device", "cycle"];
    for command in [
        // Of files that aren't there yet, and of links to one.
        &[&cycle[..], &["--report", "new", "--trace", "./new"]].concat()[..],
        &[&cycle[..], &["--report", "hard", "--trace", "soft"]].concat(),
        &["compile", "demo", "-o", "new.csv", "--listing", "new.csv"],
        &[
            "sweep",
            "gemm:8,16,16",
            "--vary",
            "tags=1",
            "-o",
            "new",
            "--picture",
            "new",
        ],
    ] {
        let (status, error) = vta(folder.path(), command);
        let told = error.contains("two outputs of this command are this file");
        assert!(status == 2 && told, "{command:?}: {error}");
        assert_eq!(contents(folder.path()), before, "{command:?}");
    }
    // What was written before is replaced, and what a sweep or a search began goes on.
    for _ in 0..2 {
        for command in [
            &["asm", "p.asm", "-o", "new.bin"][..],
            &["sweep", "gemm:8,16,16", "--vary", "tags=1", "-o", "new.csv"],
            &[
                "tune",
                "gemm:8,16,16",
                "--candidates",
                "1",
                "-o",
                "new.json",
            ],
        ] {
            assert_eq!(
                vta(folder.path(), command),
                (0, String::new()),
                "{command:?}"
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn streams_that_are_full_give_a_status_and_no_panic() {
    let folder = files();
    let full = || {
        Stdio::from(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    let program = env!("CARGO_BIN_EXE_vta");
    let vta = |args: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.current_dir(folder.path()).args(args);
        command
    };
    // The file went to standard output, and what there is to say of it to standard error.
    for (args, status) in [
        (&["asm", "nosuch", "-o", "new"][..], 2),
        (&["asm", "--nosuch"], 2),
        (&["asm", "p.asm", "-o", "-"], 0),
        (&["run", "nosuch"], 2),
    ] {
        let run = vta(args).stderr(full()).stdout(Stdio::null()).status();
        assert_eq!(run.unwrap().code(), Some(status), "{args:?}");
    }
    for args in [
        &["models"][..],
        &["--help"],
        &["asm", "p.asm", "-o", "-"],
        &["asm", "p.asm", "-o", "new"],
    ] {
        let run = vta(args).stdout(full()).output().unwrap();
        let error = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{args:?}: {error}");
        assert!(
            error.starts_with("error: ") && error.lines().count() == 1,
            "{error}"
        );
    }
}

/// A file of images, all of them ramps.
#[cfg(target_os = "linux")]
fn ramps(path: &Path, images: usize) {
    let header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({images}, 3, 32, 32), }}");
    let header = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    let values = (0..images * 3 * 32 * 32).map(|i| (i % 11) as f32 / 11.0);
    bytes.extend(values.flat_map(f32::to_le_bytes));
    fs::write(path, bytes).unwrap();
}

/// Whether a process has a file open.
#[cfg(target_os = "linux")]
fn has_open(process: u32, file: &Path) -> bool {
    let opened = fs::read_dir(format!("/proc/{process}/fd"));
    let mut opened = opened.into_iter().flatten().flatten();
    opened.any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == file))
}

/// Another process changes the bundle in place while the images are read, which are opened behind it.
#[cfg(target_os = "linux")]
#[test]
fn a_bundle_that_changes_while_it_runs_gives_no_wrong_values_and_no_signal() {
    use std::io::Write;

    let folder = TempDir::new().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let [bundle, images, output] = ["m.vta", "x.npy", "y.npy"].map(|name| place.join(name));
    ramps(&images, 400);
    let program = env!("CARGO_BIN_EXE_vta");
    let mut compile = std::process::Command::new(program);
    compile.args(["compile", "demo", "-o"]).arg(&bundle);
    assert!(compile.output().unwrap().status.success());
    let whole = fs::read(&bundle).unwrap();
    let start = || {
        let mut run = std::process::Command::new(program);
        run.arg("exec").arg(&bundle).arg("--input").arg(&images);
        run.arg("-o").arg(&output).args(["--threads", "1"]);
        run.stdout(Stdio::null()).stderr(Stdio::piped());
        run.spawn().unwrap()
    };
    assert!(start().wait().unwrap().success());
    let expected = fs::read(&output).unwrap();
    let truncate = || {
        fs::OpenOptions::new()
            .write(true)
            .open(&bundle)?
            .set_len(4096)
    };
    let overwrite = || {
        let mut file = fs::OpenOptions::new().write(true).open(&bundle)?;
        file.write_all(&vec![77; whole.len()])
    };
    for change in [&truncate as &dyn Fn() -> std::io::Result<()>, &overwrite] {
        fs::write(&bundle, &whole).unwrap();
        let _ = fs::remove_file(&output);
        let mut run = start();
        while !has_open(run.id(), &images) {
            assert!(
                run.try_wait().unwrap().is_none(),
                "it ended before it was seen"
            );
        }
        change().unwrap();
        let done = run.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        match done.status.code() {
            Some(0) => assert_eq!(fs::read(&output).unwrap(), expected),
            Some(_) => assert!(text.starts_with("error: ") && !output.exists(), "{text}"),
            None => panic!("{}: {text}", done.status),
        }
    }
}
