//! Files that the program writes: whole, or as they were before.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{file, root, succeeds, vta};
use tempfile::TempDir;

const OLD: &str = "what was here before";

/// The program with arguments, to be started in the repository.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vta"));
    command.current_dir(root()).args(args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Names in a folder, hidden ones too, but for locks that a killed program leaves.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name();
    let names = entries.map(|e| name(e).into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| !n.ends_with(".lock")).collect();
    names.sort();
    names
}

#[test]
fn a_disk_that_is_full_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder, "a.asm", b"load.inp y_size=1 x_size=1\nfinish\n");
    let out = file(&folder, "out", OLD.as_bytes());
    let cycles = ["layer", "gemm:1,16,16", "--device", "cycle"];
    let float = "models/demo/resnet20_f32.onnx";
    let quantize = [
        "quantize",
        float,
        "--preprocess",
        "cifar10",
        "--calibration",
    ];
    for args in [
        vec!["asm", &source, "-o", &out],
        vec!["compile", "demo", "-o", &out],
        vec!["run", "demo", "--limit", "1", "-o", &out],
        [&cycles[..], &["--trace", &out]].concat(),
        [&cycles[..], &["--report", &out]].concat(),
        [&quantize[..], &["models/demo/cat.png", "-o", &out]].concat(),
    ] {
        // No file may grow: as on a full disk, but for this process alone.
        let full = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
        let mut limited = Command::new("bash");
        limited.args(["-c", full, env!("CARGO_BIN_EXE_vta")]);
        let done = limited.args(&args).current_dir(root()).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        // Notes may come before, continued further in.
        let of_note = |line: &&str| line.starts_with("note: ") || line.starts_with("  ");
        let lines: Vec<&str> = error.lines().filter(|line| !of_note(line)).collect();
        assert_eq!(
            (done.status.code(), lines.len()),
            (Some(1), 1),
            "{args:?}: {error}"
        );
        let says = format!("error: {out}: File too large");
        assert!(lines[0].starts_with(&says), "{args:?}: {error}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), OLD, "{args:?}");
        assert_eq!(names(&folder), ["a.asm", "out"], "{args:?}");
    }
    let (status, _, error) = vta(&["asm", &source, "-o", "/dev/full"]);
    assert_eq!((status, error.lines().count()), (1, 1), "{error}");
    assert!(error.contains("/dev/full: No space left"), "{error}");
}

/// Bytes that a process has written to whatever it has open.
#[cfg(target_os = "linux")]
fn written(process: &Child) -> u64 {
    let facts = std::fs::read_to_string(format!("/proc/{}/io", process.id()));
    let facts = facts.unwrap_or_default();
    let line = facts.lines().find_map(|l| l.strip_prefix("wchar: "));
    line.map_or(0, |n| n.parse().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_writer_that_is_killed_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let layer = "conv:1,512,56,56,512,3,1,1";
    let args = ["layer", layer, "--device", "cycle", "--timing-only"];
    // On a busy machine the whole file may be written before it is looked at again.
    for _ in 0..20 {
        let trace = file(&folder, "trace.json", OLD.as_bytes());
        let mut writer = command(&[&args[..], &["--trace", &trace]].concat())
            .spawn()
            .unwrap();
        let mut ended = false;
        while written(&writer) < 1 << 20 && !ended {
            ended = writer.try_wait().unwrap().is_some();
        }
        // SIGKILL: nothing of the program runs any more.
        writer.kill().unwrap();
        if writer.wait().unwrap().success() {
            continue;
        }
        assert!(!ended, "the trace can't be written");
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), OLD);
        assert_eq!(names(&folder), ["trace.json"]);
        return;
    }
    panic!("the writer always ended before it was stopped");
}

#[test]
fn a_bundle_is_the_old_or_the_new_one_whenever_its_writer_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.vta").display().to_string();
    succeeds(&["compile", "demo", "-o", &bundle]);
    let new = std::fs::read(&bundle).unwrap();
    for step in 1..12 {
        std::fs::write(&bundle, OLD).unwrap();
        let mut writer = command(&["compile", "demo", "-o", &bundle])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(step * step * 4));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let found = std::fs::read(&bundle).unwrap();
        assert!(
            found == OLD.as_bytes() || found == new,
            "{} bytes",
            found.len()
        );
    }
}

#[test]
fn tunes_of_one_cache_at_the_same_time_keep_all_shapes() {
    for _ in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("tiles.json").display().to_string();
        let layers = [
            "conv:1,16,8,8,16,3,1,1",
            "conv:1,32,8,8,16,1,1,0",
            "gemm:16,48,32",
        ];
        let start = |layer| {
            let args = ["tune", layer, "--candidates", "2", "-o", &cache];
            command(&args).spawn().unwrap()
        };
        for mut process in layers.map(start) {
            assert!(process.wait().unwrap().success());
        }
        let text = std::fs::read_to_string(&cache).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let machines = json["machines"].as_object().unwrap();
        let shapes: usize = machines
            .values()
            .map(|m| m.as_object().unwrap().len())
            .sum();
        assert_eq!((machines.len(), shapes), (1, 3), "{text}");
        let all = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(all, 1, "the lock is gone");
    }
}

#[test]
fn a_dash_is_the_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder, "a.asm", b"finish\n");
    let binary = folder.path().join("a.bin");
    succeeds(&["asm", &source, "-o", &binary.display().to_string()]);
    let expected = std::fs::read(&binary).unwrap();
    for name in ["-", "/dev/stdout"] {
        let mut asm = command(&["asm", &source, "-o", name]);
        asm.stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = asm.output().unwrap();
        assert_eq!(done.stdout, expected, "{name}");
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(said, format!("{name}: 1 instructions\n"));
    }
    assert!(!Path::new(&root().join("-")).exists());
}
