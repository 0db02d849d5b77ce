//! What the program's output looks like: how wide it is, on which terminals, from which folder.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Standard output and standard error of a command that succeeds or finds something.
fn output(folder: &Path, words: &[&str], env: &[(&str, &str)]) -> (String, String) {
    let mut vta = Command::cargo_bin("vta").unwrap();
    vta.env_remove("COLUMNS").env_remove("TERM");
    vta.env_remove("NO_COLOR");
    let done = vta
        .current_dir(folder)
        .envs(env.iter().copied())
        .args(words);
    let done = done.output().unwrap();
    assert!(
        done.status.code().is_some_and(|code| code < 2),
        "{words:?}: {done:?}"
    );
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(done.stdout), text(done.stderr))
}

/// A folder with the files that the commands below read.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let gemm = std::fs::read_to_string(root().join("cli/examples/gemm.asm")).unwrap();
    let race = gemm
        .replacen(" push_next ", " ", 1)
        .replace("iter_in=1 pop_prev", "iter_in=1");
    for (name, bytes) in [
        ("gemm.asm", gemm.as_bytes()),
        ("race.asm", race.as_bytes()),
        (
            "f.onnx",
            &std::fs::read(root().join("models/demo/resnet20_f32.onnx")).unwrap()[..],
        ),
        (
            "c.npz",
            &std::fs::read(root().join("models/demo/cifar10_calib128.npz")).unwrap(),
        ),
        (
            "cat.png",
            &std::fs::read(root().join("models/demo/cat.png")).unwrap(),
        ),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// Every command whose output is for people.
const COMMANDS: &[&str] = &[
    "run demo",
    "run demo --verify --hazards",
    "run demo --profile",
    "run demo --input cat.png",
    "run demo --device cycle --timing-only --profile --report r.html --trace t.json",
    "run f.onnx --input cat.png",
    "run demo --limit 1 --device sim,oracle",
    "models",
    "boards",
    "costs",
    "devices",
    "layer resnet18.C11",
    "layer conv:1,32,14,14,32,3,1,1 --device cycle",
    "layer gemm:33,100,40 --device cycle --timing-only",
    "check demo --hazards",
    "check demo --nodes",
    "check f.onnx",
    "check race.asm --hazards",
    "tune demo --explain layers.2.1.conv1",
    "tune gemm:8,64,64 -o tiles.json",
    "sweep gemm:8,64,64 --vary LOG_BLOCK=4,5 --vary bus_bytes=8,12 --vary LOG_WGT_BUFF_SIZE=16,18 \
     --vary LOG_INP_BUFF_SIZE=15,16 -o s.csv --picture s.svg",
    "explore demo --points 8 -o e.csv --picture e.svg",
    "compile demo -o demo.vta",
    "exec demo.vta --input cat.png",
    "exec gemm.asm",
    "exec gemm.asm --device cycle --hazards --report r.html --trace t.json",
    "exec race.asm --hazards",
    "asm gemm.asm -o gemm.bin",
    "check gemm.bin",
    "quantize f.onnx --calibration c.npz --limit 4 -o q.onnx",
    "man pages",
];

fn too_wide(text: &str, columns: usize) -> Vec<&str> {
    text.lines().filter(|line| line.width() > columns).collect()
}

#[test]
fn every_command_fits_80_columns() {
    for env in [&[("COLUMNS", "80")][..], &[]] {
        let folder = folder();
        for command in COMMANDS {
            let words: Vec<&str> = command.split_whitespace().collect();
            let (out, err) = output(folder.path(), &words, env);
            assert!(!out.is_empty(), "{command}");
            let wide = [too_wide(&out, 80), too_wide(&err, 80)].concat();
            assert!(wide.is_empty(), "{command}: {wide:#?}");
        }
    }
}

#[test]
fn every_help_fits_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (all, _) = output(folder.path(), &["--help"], &[]);
    let listed = all.split_once("Commands:").unwrap().1;
    let listed = listed.split_once("Options:").unwrap().0;
    let commands: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 16, "{commands:?}");
    let mut calls = vec![vec!["-h"], vec!["--help"]];
    for command in commands {
        calls.extend([vec![command, "-h"], vec![command, "--help"]]);
    }
    for words in calls {
        for env in [&[("COLUMNS", "80")][..], &[("COLUMNS", "300")], &[]] {
            let (out, _) = output(folder.path(), &words, env);
            let wide = too_wide(&out, 80);
            assert!(wide.is_empty(), "{words:?} {env:?}: {wide:#?}");
        }
    }
}

#[test]
fn wide_terminals_get_every_column_and_narrow_ones_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "run",
        "demo",
        "--limit",
        "1",
        "--device",
        "cycle",
        "--profile",
    ];
    let (wide, _) = output(folder.path(), &words, &[("COLUMNS", "200")]);
    let (narrow, _) = output(folder.path(), &words, &[("COLUMNS", "80")]);
    for column in ["kind", "MACs", "insns", "bytes"] {
        let heads = |text: &str| {
            let head = text.lines().find(|l| l.starts_with("layer ")).unwrap();
            head.split_whitespace().any(|word| word == column)
        };
        assert!(heads(&wide), "{wide}");
        let note = narrow.lines().find(|l| l.starts_with('(')).unwrap();
        assert!(
            heads(&narrow) || note.contains(column),
            "{column}: {narrow}"
        );
    }
    // Tables go to files and pipes, too: nothing is left out there without a word either.
    let (piped, _) = output(folder.path(), &words, &[]);
    let without_time = |text: &str| text.lines().take(40).collect::<Vec<_>>().join("\n");
    assert_eq!(without_time(&piped), without_time(&narrow));
}

/// What a terminal would show, of a command that runs on one.
#[cfg(target_os = "linux")]
fn on_a_terminal(folder: &Path, words: &str, env: &str) -> Option<String> {
    let vta = assert_cmd::cargo::cargo_bin("vta");
    let call = format!("stty cols 80 rows 40; env {env} {} {words}", vta.display());
    let mut script = std::process::Command::new("script");
    script
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    let done = script.args(["-qec", &call, "/dev/null"]).output().ok()?;
    assert!(done.status.success(), "{call}: {done:?}");
    Some(String::from_utf8(done.stdout).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_dumb_terminal_gets_letters_and_lines_alone() {
    let folder = folder();
    let many = "run demo --input c.npz --limit 40";
    let Some(shown) = on_a_terminal(folder.path(), "run demo", "TERM=xterm") else {
        let text = "there is no `script` to make a terminal with";
        assert!(std::env::var_os("CI").is_none(), "{text}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {text}");
        return;
    };
    assert!(
        shown.contains('\u{1b}') && shown.contains('\u{2588}'),
        "{shown}"
    );
    let moving = on_a_terminal(folder.path(), many, "TERM=xterm").unwrap();
    assert!(moving.contains('\u{1b}'), "a bar moves: {moving:?}");
    for words in [
        "run demo",
        many,
        "run demo --limit 1 --device cycle --profile",
        "--help",
    ] {
        let plain = on_a_terminal(folder.path(), words, "TERM=dumb").unwrap();
        let control = |c: char| c.is_control() && c != '\n' && c != '\r' && c != '\t';
        assert!(!plain.contains(control), "{words}: {plain:?}");
        assert!(plain.is_ascii(), "{words}: {plain}");
        // A line that is written twice would begin again without an end.
        assert!(
            !plain.replace("\r\n", "\n").contains('\r'),
            "{words}: {plain:?}"
        );
    }
    let grey = on_a_terminal(folder.path(), "run demo", "NO_COLOR=1 TERM=xterm").unwrap();
    assert!(!grey.contains('\u{1b}'), "{grey:?}");
    // Empty is as if it weren't set.
    let colour = on_a_terminal(folder.path(), "run demo", "NO_COLOR= TERM=xterm").unwrap();
    assert!(colour.contains('\u{1b}'), "{colour:?}");
}

#[test]
fn dumb_output_is_plain_in_pipes_too() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = output(folder.path(), &["run", "demo"], &[("TERM", "dumb")]);
    assert!(
        out.is_ascii() && out.contains("right: cat") && out.contains("####"),
        "{out}"
    );
}

#[test]
fn what_is_proposed_next_runs_from_any_folder() {
    let elsewhere = tempfile::tempdir().unwrap();
    for folder in [elsewhere.path(), &root()] {
        let (out, _) = output(folder, &["run", "demo"], &[("COLUMNS", "1000")]);
        let proposed = out.split_once("Try next: ").unwrap().1;
        let lines: Vec<&str> = proposed.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 2, "{proposed}");
        for line in lines {
            let done = std::process::Command::new("sh")
                .args(["-c", line])
                .current_dir(folder)
                .output()
                .unwrap();
            assert!(done.status.success(), "{line}: {done:?}");
        }
    }
}

#[test]
fn views_say_that_they_are_written_and_json_stays_json() {
    let folder = folder();
    for command in ["run demo --limit 1", "layer gemm:4,16,16", "exec gemm.asm"] {
        let views = "--device cycle --report r.html --trace t.json";
        let call = format!("{command} {views}");
        let words: Vec<&str> = call.split_whitespace().collect();
        let (out, err) = output(folder.path(), &words, &[]);
        assert!(out.contains("r.html: report written"), "{command}: {out}");
        assert!(out.contains("t.json: trace written"), "{command}: {out}");
        assert_eq!(err, "", "{command}");
        let words = [&words[..], &["--json"]].concat();
        let (out, err) = output(folder.path(), &words, &[]);
        assert!(
            serde_json::from_str::<serde_json::Value>(&out).is_ok(),
            "{out}"
        );
        assert!(err.contains("r.html: report written"), "{command}: {err}");
    }
}

#[test]
fn cycles_alone_are_no_images_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["run", "demo", "--device", "cycle", "--profile"];
    let (out, _) = output(folder.path(), &words, &[("COLUMNS", "300")]);
    assert!(
        out.contains("images on cycle in ") && out.contains(" a second"),
        "{out}"
    );
    let words = [&words[..], &["--timing-only"]].concat();
    let (out, _) = output(folder.path(), &words, &[("COLUMNS", "300")]);
    assert!(
        out.contains("10 images on cycle, cycles only, nothing computed"),
        "{out}"
    );
    assert!(
        !out.contains(" a second") && !out.contains(" ms ("),
        "{out}"
    );
    let words = [
        "layer",
        "gemm:4,16,16",
        "--device",
        "cycle",
        "--timing-only",
    ];
    let (out, _) = output(folder.path(), &words, &[]);
    assert!(
        out.contains("nothing computed") && !out.contains(" ms on"),
        "{out}"
    );
}

#[test]
fn models_compile_and_run_count_the_same_layers_and_the_listing_takes_no_time() {
    let folder = tempfile::tempdir().unwrap();
    // A second of the processor at most: some 20 ms are used, and seconds were with weights.
    let vta = assert_cmd::cargo::cargo_bin("vta");
    let call = format!("ulimit -t 1; exec '{}' models", vta.display());
    let done = std::process::Command::new("sh")
        .args(["-c", &call])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let models = String::from_utf8(done.stdout).unwrap();
    for name in ["demo", "zoo:resnet50"] {
        let row = models
            .lines()
            .find(|l| l.split_whitespace().next() == Some(name));
        let layers = row.unwrap().split_whitespace().nth(2).unwrap();
        let (compiled, _) = output(folder.path(), &["compile", name, "-o", "m.vta"], &[]);
        assert!(
            compiled.contains(&format!("m.vta: {layers} layers,")),
            "{compiled}"
        );
        let words = [
            "run",
            name,
            "--limit",
            "1",
            "--device",
            "cycle",
            "--timing-only",
            "--json",
        ];
        let (json, _) = output(folder.path(), &words, &[]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["layers"].as_array().unwrap().len().to_string(), layers);
    }
}

#[test]
fn man_pages_are_written_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    output(folder.path(), &["man", "a/b"], &[]);
    let pages = folder.path().join("a/b");
    for page in ["vta.1", "vta-run.1", "vta-sweep.1", "vta-man.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(
            text.contains(".TH") && text.contains(".SH"),
            "{page}: {text}"
        );
    }
    let run = std::fs::read_to_string(pages.join("vta-run.1")).unwrap();
    assert!(
        run.contains("timing\\-only") && run.contains("Examples:"),
        "{run}"
    );
}
