//! Programs in C and C++ over `vta.h`, linked with both libraries.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod gcc;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use vta_app::images::{self, default_images};
use vta_app::{Feed, Model, Session, Target, Values};

use gcc::{Linked, Program, capi};

fn told(output: &Output) -> String {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    of(&output.stdout) + &of(&output.stderr)
}

/// The demo's ten images are one of each class, in the classes' order.
#[test]
fn the_example_classifies_the_demos_images_with_both_libraries() {
    let source = capi().join("examples/classify.c");
    let mut printed = Vec::new();
    for linked in [Linked::Dynamic, Linked::Static] {
        let output = Program::new(&source, linked).run(&[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{linked:?}: {}", told(&output));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 10, "{text}");
        for (class, line) in lines.iter().enumerate() {
            let label = vta_app::open::CIFAR10[class];
            let begins = format!("{class}: {class} {label} (");
            assert!(line.starts_with(&begins), "{linked:?}: {line}");
        }
        printed.push(text);
    }
    assert_eq!(printed[0], printed[1]);
    // The page shows both.
    let page = std::fs::read_to_string(capi().join("../docs/c.md")).unwrap();
    let example = std::fs::read_to_string(source).unwrap();
    assert!(page.contains(&format!("```c\n{example}```")), "{example}");
    assert!(page.contains(&printed[0]), "{}", printed[0]);
}

#[test]
fn the_example_says_why_it_fails() {
    let example = Program::new(&capi().join("examples/classify.c"), Linked::Dynamic);
    for (args, said) in [
        (vec!["none.onnx"], "none.onnx: No such file"),
        (vec!["demo", "none.png"], "none.png: No such file"),
        (vec!["zoo:none"], "none"),
    ] {
        let output = example.run(&args);
        let text = told(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

/// What the library of Rust gives for the demo's images, as `outputs.c` writes it; and its JSON.
struct Expected {
    bytes: Vec<u8>,
    insns: u64,
    cycles: u64,
}

impl Expected {
    fn of(model: &str, target: &Target, images: Option<PathBuf>) -> Self {
        let model = Model::open(model).unwrap();
        let recipe = model.preprocess().unwrap().unwrap();
        let mut session = Session::open(model, target, &()).unwrap();
        let input = session.inputs()[0].clone();
        let pictures = match images {
            Some(path) => vec![images::open(&path).unwrap()],
            None => default_images("demo", input.chw).unwrap(),
        };
        let values = pictures
            .iter()
            .flat_map(|picture| recipe.apply(picture.clone(), input.chw).unwrap());
        let values: Vec<f32> = values.collect();
        let feed = Feed {
            name: &input.name,
            values: Values::Real(values.into()),
        };
        let found = session.run(&[feed], &()).unwrap();
        let mut bytes = Vec::new();
        for output in &found.outputs {
            bytes.extend(output.real().iter().flat_map(|v| v.to_le_bytes()));
            bytes.extend(output.steps().unwrap().iter().map(|v| *v as u8));
        }
        let passes = found.outputs[0].images as u64;
        Self {
            bytes,
            insns: found.counters.traffic.insns,
            cycles: session.report().map_or(0, |r| r.total().cycles * passes),
        }
    }
}

fn cat() -> PathBuf {
    capi().join("../models/demo/cat.png")
}

#[test]
fn outputs_and_counters_are_those_of_the_library_of_rust() {
    let program = Program::new(&capi().join("tests/programs/outputs.c"), Linked::Dynamic);
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.vta");
    let compiled = vta_app::compile::bundle("demo", &Target::default(), &()).unwrap();
    compiled.save(&bundle).unwrap();
    let bundle = bundle.to_str().unwrap();
    let cat = cat();
    let cat = cat.to_str().unwrap();
    let mut de10 = Target::named("cycle");
    de10.timing = Some("de10".to_owned());
    for (args, target) in [
        (vec!["demo", "sim"], Target::named("sim")),
        (vec!["demo", "oracle", cat], Target::named("oracle")),
        (vec!["demo", "cycle", cat, "timing", "de10"], de10),
        (
            vec![bundle, "sim", cat, "threads", "1"],
            Target::named("sim"),
        ),
    ] {
        let output = program.run(&args);
        assert!(output.status.success(), "{args:?}: {}", told(&output));
        let expected = Expected::of(args[0], &target, args.get(2).map(PathBuf::from));
        assert_eq!(output.stdout, expected.bytes, "{args:?}");
        let counters: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(counters["insns"], expected.insns, "{args:?}");
        let cycles = counters.get("cycles").and_then(Value::as_u64);
        assert_eq!(cycles.unwrap_or(0), expected.cycles, "{args:?}");
        assert_eq!(cycles.is_some(), args[1] == "cycle");
    }
}

#[test]
fn every_failure_has_its_status_and_text_and_touches_no_memory_that_it_may_not() {
    let source = capi().join("tests/programs/errors.c");
    let float = capi().join("../models/demo/resnet20_f32.onnx");
    let output = Program::checked(&source, Linked::Dynamic, &[float.to_str().unwrap()]);
    assert!(output.status.success(), "{}", told(&output));
}

#[test]
fn threads_of_cpp_have_sessions_of_their_own_and_share_one() {
    let source = capi().join("tests/programs/threads.cpp");
    let output = Program::new(&source, Linked::Dynamic).run(&[]);
    assert!(output.status.success(), "{}", told(&output));
}

/// Each header alone, strictly by the standards of both languages.
#[test]
fn headers_are_c11_and_cpp17() {
    let folder = capi().join("include");
    let mut headers = Vec::new();
    list(&folder, &mut headers);
    assert!(headers.contains(&folder.join("vta.h")));
    for header in headers {
        gcc::compile_alone(&header);
    }
}

fn list(folder: &Path, headers: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(&path, headers),
            false => headers.push(path),
        }
    }
}

/// The page's lines on options, in a program that fails if one of them does.
#[test]
fn the_options_of_the_page_are_taken() {
    let page = std::fs::read_to_string(capi().join("../docs/c.md")).unwrap();
    let block = page.split("```c\n").nth(2).unwrap();
    let lines = block.split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("options.c");
    let text = format!(
        "#include <vta.h>\nint main(void) {{\nvta_session *session;\n{lines}vta_close(session);\n\
         return vta_last_status() != VTA_STATUS_OK || !session;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let output = Program::new(&source, Linked::Dynamic).run(&[]);
    assert!(output.status.success(), "{}", told(&output));
}

#[test]
fn thousands_of_calls_take_no_more_memory() {
    let source = capi().join("tests/programs/steady.c");
    let model = capi().join("../models/demo/resnet20.onnx");
    let output = Program::new(&source, Linked::Static).run(&[model.to_str().unwrap()]);
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        told(&output)
    );
}

#[test]
fn a_run_is_ended_by_another_thread() {
    let source = capi().join("tests/programs/cancel.cpp");
    let images = capi().join("../models/demo/cifar10_test200.npz");
    let output = Program::new(&source, Linked::Dynamic).run(&[images.to_str().unwrap()]);
    assert!(output.status.success(), "{}", told(&output));
}

/// What a program gives when a bundle changes after it was opened, and after so many runs: a line of values, or of
/// an error.
fn runs(program: &Program, bundle: &Path, before: usize, change: fn(&Path)) -> String {
    let mut child = program.start(&[bundle.to_str().unwrap()]);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(line(), "open");
    for _ in 0..before {
        input.write_all(b"\n").unwrap();
        line();
    }
    change(bundle);
    // A program that a signal has ended takes nothing, which its status says.
    let _ = input.write_all(b"\n");
    let found = line();
    drop(input);
    let status = child.wait().unwrap();
    let expected = i32::from(found.starts_with("error: "));
    assert_eq!(status.code(), Some(expected), "{status}: {found}");
    found
}

fn truncate(bundle: &Path) {
    let file = OpenOptions::new().write(true).open(bundle).unwrap();
    file.set_len(4096).unwrap();
}

fn overwrite(bundle: &Path) {
    let size = std::fs::metadata(bundle).unwrap().len();
    let mut file = OpenOptions::new().write(true).open(bundle).unwrap();
    file.write_all(&vec![77; size as usize]).unwrap();
}

/// Another process changes the file in place, as no program can prevent.
#[test]
fn a_bundle_that_changes_while_it_is_open_gives_no_wrong_values_and_no_signal() {
    let program = Program::new(&capi().join("tests/programs/changed.c"), Linked::Dynamic);
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.vta");
    let compiled = vta_app::compile::bundle("demo", &Target::default(), &()).unwrap();
    compiled.save(&bundle).unwrap();
    let whole = std::fs::read(&bundle).unwrap();
    let expected = runs(&program, &bundle, 0, |_| {});
    assert_eq!(expected.split_whitespace().count(), 10, "{expected}");
    for before in [0, 1] {
        for change in [truncate, overwrite] {
            std::fs::write(&bundle, &whole).unwrap();
            let found = runs(&program, &bundle, before, change);
            assert_ne!(std::fs::read(&bundle).unwrap(), whole);
            assert!(found == expected || found.starts_with("error: "), "{found}");
        }
    }
}
