//! Plans as `--dump-plan` shows them: text, summary and JSON tell the same.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{file, succeeds, vta};
use serde_json::Value;

/// What a command prints that must succeed.
fn dump(arguments: &[&str]) -> String {
    let (out, err) = succeeds(arguments);
    assert_eq!(err, "", "{arguments:?}");
    out
}

#[test]
fn json_has_every_operation_of_the_text() {
    let json = dump(&["run", "demo", "--dump-plan", "--json"]);
    let plans: Value = serde_json::from_str(&json).unwrap();
    let text = dump(&["run", "demo", "--dump-plan=full"]);
    let mut lines = text.lines();
    let mut operations = 0;
    for batch in plans["batches"].as_array().unwrap() {
        let head = lines.next().unwrap();
        let kernel = plans["kernel"].as_str().unwrap();
        assert!(
            head.starts_with("== batch ") && head.ends_with(kernel),
            "{head}"
        );
        for operation in batch["operations"].as_array().unwrap() {
            let line = lines.next().unwrap();
            let what = operation["what"].as_str().unwrap();
            let places = operation["places"].as_str().unwrap();
            assert!(line.starts_with(what) && line.ends_with(places), "{line}");
            let from = operation["from"].as_array().unwrap();
            if from.is_empty() {
                continue;
            }
            let origin = lines.next().unwrap();
            for part in from {
                for insn in part["insns"].as_array().unwrap() {
                    let mnemonic = insn["mnemonic"].as_str().unwrap();
                    assert!(origin.contains(&format!("{} {mnemonic}", insn["index"])));
                }
                if let Some(fusion) = part["fusion"].as_str() {
                    assert!(origin.contains(&format!("{fusion}: ")), "{origin}");
                }
            }
            operations += 1;
        }
    }
    assert_eq!(lines.next(), None);
    assert!(operations > 100, "{operations}");
    // The summary counts what the text lists.
    let summary = dump(&["run", "demo", "--dump-plan"]);
    let counts = summary.lines().filter(|line| !line.starts_with(' '));
    let counts = counts.filter_map(|line| line.split_once(" x "));
    let counted: usize = counts.map(|(n, _)| n.parse::<usize>().unwrap()).sum();
    let listed = text
        .lines()
        .filter(|l| !l.starts_with(' ') && !l.starts_with("=="));
    assert_eq!(counted, listed.count());
}

#[test]
fn plans_of_bundles_and_of_several_devices_are_those_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.vta").display().to_string();
    dump(&["compile", "demo", "-o", &bundle]);
    let whole = dump(&["run", "demo", "--dump-plan"]);
    assert_eq!(dump(&["exec", &bundle, "--dump-plan"]), whole);
    assert_eq!(
        dump(&["run", "demo", "--dump-plan", "--threads", "3"]),
        whole
    );
    let cycle = whole.replace(" on sim, ", " on cycle, ");
    assert_eq!(
        dump(&["run", "demo", "--dump-plan", "--device", "cycle"]),
        cycle
    );
    let program = file(&folder, "end.asm", b"finish\n");
    let (status, _, err) = vta(&["exec", &program, "--dump-plan"]);
    assert!(
        status == 2 && err.contains("--dump-plan: for networks"),
        "{err}"
    );
}
