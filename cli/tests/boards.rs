//! `--board` as a user meets it: programs that fit, and what is said of those that don't.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::{file, succeeds, vta};
use serde_json::Value;
use tempfile::TempDir;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(args).0).unwrap()
}

/// One line on standard error, with all of the parts.
fn refused(args: &[&str], parts: &[&str]) {
    let (status, _, err) = vta(args);
    assert_eq!(status, 2, "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    for part in parts {
        assert!(err.contains(part), "{part} is not in: {err}");
    }
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    file(folder, name, text.as_bytes())
}

/// A layer without anything that a board lacks.
const LAYER: &str = "resnet18.C2";

#[test]
fn boards_are_listed_with_what_they_have() {
    let (table, _) = succeeds(&["boards"]);
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    let boards = json(&["boards", "--json"]);
    let boards = boards["boards"].as_array().unwrap();
    let names: Vec<_> = boards.iter().map(|b| b["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pynq", "de10", "f1", "pac", "own"]);
    assert!(names.iter().all(|name| table.contains(name)));
    assert_eq!(
        (&boards[0]["uops"], &boards[3]["uops"]),
        (&2048.into(), &8192.into())
    );
    assert_eq!(boards[0]["extensions"].as_array().unwrap().len(), 0);
    let all = vta_isa::Extensions::DEFAULT.iter().count();
    assert_eq!(boards[3]["extensions"].as_array().unwrap().len(), all);
}

#[test]
fn a_layer_runs_on_a_board_and_a_timing_alone_says_that_it_does_not_fit() {
    let on = |option: &str, name: &str| {
        vta(&["layer", LAYER, "--device", "cycle", option, name, "--json"])
    };
    for board in ["pynq", "de10", "f1", "pac", "own"] {
        let (status, out, err) = on("--board", board);
        assert_eq!((status, &err[..]), (0, ""), "{board}");
        let object: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&object["max_abs_error"], &object["timing"]),
            (&0.into(), &board.into())
        );
    }
    // The demo is multiplied; the layer needs nothing that the board lacks.
    let args = ["run", "demo", "--limit", "1", "--device", "cycle", "--json"];
    let notes = |rest: &[&str]| {
        let (status, _, err) = vta(&[&args[..], rest].concat());
        assert_eq!(status, 0, "{err}");
        let notes = err.lines().filter(|line| line.contains("--timing"));
        notes.map(str::to_owned).collect::<Vec<_>>()
    };
    let found = notes(&["--timing", "de10"]);
    assert_eq!(found.len(), 1, "{found:?}");
    for part in [
        "note: --timing de10 only takes that board's time: it has",
        "--board de10",
    ] {
        assert!(found[0].contains(part), "{found:?}");
    }
    assert!(notes(&["--timing", "pac"]).is_empty(), "it has everything");
    assert!(notes(&[]).is_empty(), "no timing is named");
    assert_eq!(on("--timing", "de10").2, "");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let folder = TempDir::new().unwrap();
    let config = write(&folder, "c.json", r#"{"LOG_UOP_BUFF_SIZE": 15}"#);
    let small = write(&folder, "small.json", r#"{"LOG_INP_BUFF_SIZE": 14}"#);
    fn layer<'a>(rest: &[&'a str]) -> Vec<&'a str> {
        [&["layer", LAYER][..], rest].concat()
    }
    refused(
        &layer(&["--board", "pynq", "--config", &config]),
        &[
            "c.json",
            "board pynq",
            "uop scratchpad of 8192 elements, not 2048",
        ],
    );
    succeeds(&layer(&["--board", "pynq", "--config", &small]));
    refused(
        &layer(&["--board", "zcu"]),
        &[
            "--board zcu: no such preset, and no such file",
            "pynq, de10, f1, pac, own",
        ],
    );
    let (status, _, err) = vta(&layer(&[
        "--device", "cycle", "--board", "pynq", "--timing", "de10",
    ]));
    assert!(status == 2 && err.contains("cannot be used with"), "{err}");
    let bad = write(&folder, "bad.toml", "[config]\nLOG_BLOK = 3\n");
    refused(&layer(&["--board", &bad]), &["bad.toml", "LOG_BLOK"]);
    let own = write(
        &folder,
        "own.toml",
        "preset = \"pac\"\n[config]\nLOG_UOP_BUFF_SIZE = 12\n",
    );
    succeeds(&layer(&["--board", &own, "--device", "cycle"]));
}

#[test]
fn networks_of_multiplications_are_refused_with_the_way_out() {
    refused(
        &["run", "demo", "--limit", "1", "--board", "pynq"],
        &[
            "demo: nodes ",
            "no MUL",
            "a model quantised by powers of two",
            "zoo:NAME:shift",
        ],
    );
    succeeds(&["run", "demo", "--limit", "1", "--board", "pac"]);
}

#[test]
fn bundles_keep_what_they_need() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ours, all) = (path("ours.vta"), path("all.vta"));
    let model = "zoo:resnet18:shift";
    succeeds(&["compile", model, "--board", "pynq", "-o", &ours]);
    succeeds(&["compile", model, "-o", &all]);
    let exec = |file: &str, rest: &[&str]| {
        let image = "models/demo/cat.png";
        vta(&[&["exec", file, "--input", image, "--json"], rest].concat())
    };
    let outputs = |done: (i32, String, String)| -> Value {
        assert_eq!(done.0, 0, "{}", done.2);
        serde_json::from_str::<Value>(&done.1).unwrap()["outputs"].clone()
    };
    let plain = outputs(exec(&all, &[]));
    assert_eq!(outputs(exec(&ours, &[])), plain);
    assert_eq!(
        outputs(exec(&ours, &["--board", "pynq", "--device", "cycle"])),
        plain
    );
    let (status, _, err) = exec(&all, &["--board", "pynq"]);
    assert_eq!(status, 2, "{err}");
    for part in ["board pynq", "uop scratchpad of 8192 elements, not 2048"] {
        assert!(err.contains(part), "{err}");
    }
    succeeds(&["check", &ours, "--board", "pynq"]);
    assert_eq!(vta(&["check", &all, "--board", "pynq"]).0, 2);
}

#[test]
fn what_the_rtl_does_differently_is_found() {
    let folder = TempDir::new().unwrap();
    let other = write(
        &folder,
        "other.asm",
        ".uop 0 dst=0 src=1 wgt=0\n.acc 0 5*16 7*16\n.out 0 6*16\n\
         load.uop y_size=1 x_size=1 x_stride=1\nload.acc y_size=1 x_size=2 x_stride=2\n\
         alu.add imm=1 uop_end=1 iter_out=1 iter_in=1 push_next\n\
         store x_size=1 y_size=1 x_stride=1 pop_prev push_prev\nfinish pop_next\n",
    );
    for (text, part) in [
        (None, "takes the operand of an immediate from src"),
        (
            Some("alu.mul imm=3 uop_end=1 iter_out=1 iter_in=1\nfinish\n"),
            "needs MUL",
        ),
        (Some("load.acc8 y_size=1 x_size=1\nfinish\n"), "needs ACC8"),
        (
            Some("gemm uop_end=1 iter_in=1\nfinish\n"),
            "iter_out of 0 is 16384 trips on the RTL",
        ),
        (
            Some("gemm iter_in=1 iter_out=1\nfinish\n"),
            "no micro-ops are 16384 on the RTL",
        ),
        (Some("gemm\nfinish\n"), "the RTL hangs on neither"),
        (
            Some("load.inp x_size=1\nfinish\n"),
            "the RTL hangs on x_size without y_size",
        ),
        (
            Some("gemm uop_end=2049 iter_out=1 iter_in=1\nfinish\n"),
            "uop_end reaches 2048",
        ),
    ] {
        let file = match text {
            Some(text) => write(&folder, "p.asm", text),
            None => other.clone(),
        };
        let (status, _, _) = vta(&["check", &file]);
        assert_eq!(status, 0, "{part}: legal without a board");
        let (status, out, _) = vta(&["check", &file, "--board", "de10"]);
        let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(status == 1 && out.contains(part), "{part}: {out}");
    }
    succeeds(&["exec", &other]);
    let (status, _, err) = vta(&["exec", &other, "--device", "cycle", "--board", "pynq"]);
    assert!(status == 1 && err.contains("from src"), "{err}");
}

#[test]
fn programs_that_the_rtl_does_not_finish_are_refused_by_a_replay() {
    let folder = TempDir::new().unwrap();
    let case = |insns: &str, rest: &str| format!(r#"{{"insns": [{insns}]{rest}}}"#);
    let mul = r#""0001c000000000000002000800200004", "00000000000000000000000000000003""#;
    let hangs = r#""00000000000000000000000000800402", "00000000000000000000000000000003""#;
    let file = |programs: &[String]| {
        let text = format!(
            r#"{{"insn_addr": 65536, "programs": [{}]}}"#,
            programs.join(",")
        );
        write(&folder, "cases.json", &text)
    };
    let replay = |file: &str| {
        let (status, out, _) = vta(&["replay", file, "--device", "cycle"]);
        (status, out)
    };
    let (status, out) = replay(&file(&[case(mul, r#", "rtl_cycles": 50"#)]));
    assert!(status == 1 && out.contains("needs MUL"), "{out}");
    let aborts = [
        case(mul, r#", "rtl": "aborts""#),
        case(hangs, r#", "rtl": "hangs""#),
    ];
    let (status, out) = replay(&file(&aborts));
    assert!(
        status == 0 && out.contains("2 of 2 programs match"),
        "{out}"
    );
    let shared = std::env::var("VTA_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let edges = Path::new(&shared).join("conformance/rtl-edges/edges.json");
    if edges.exists() {
        let (status, out) = replay(edges.to_str().unwrap());
        assert!(
            status == 0 && out.contains("8 of 8 programs match"),
            "{out}"
        );
    }
}

#[test]
fn a_sweep_stays_inside_its_board() {
    let folder = TempDir::new().unwrap();
    let table = folder.path().join("t.csv").display().to_string();
    let args = [
        "sweep",
        LAYER,
        "--board",
        "pynq",
        "--vary",
        "LOG_UOP_BUFF_SIZE=12,15",
        "-o",
        &table,
        "--json",
    ];
    let (_, _, _) = vta(&args);
    let rows = std::fs::read_to_string(&table).unwrap();
    assert!(
        rows.contains("uop scratchpad of 8192 elements, not 2048"),
        "{rows}"
    );
}

#[test]
fn an_exploration_prints_machines_and_what_each_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (table, picture) = (path("t.csv"), path("t.svg"));
    let walk = [
        "explore",
        "conv:1,16,7,7,32,3,1,1",
        "--points",
        "40",
        "--area",
        "2.2",
        "-o",
        &table,
    ];
    let (text, _) = succeeds(&[&walk[..], &["--picture", &picture]].concat());
    assert!(
        text.contains("40 machines; 40 points computed, 0 found in"),
        "{text}"
    );
    for part in [
        "KiB of uop/inp/wgt/acc",
        "what each waits for:\n1: ",
        "picture written",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains("<title>vta explore of conv:1,16,7,7,32,3,1,1</title>"));
    let (text, _) = succeeds(&[&walk[..], &["--json", "--threads", "1"]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&json["computed"], &json["resumed"]),
        (&0.into(), &40.into())
    );
    let front = json["front"].as_array().unwrap();
    assert!(!front.is_empty());
    for best in front {
        assert!(best["area_mm2"].as_f64().unwrap() <= 2.2);
        assert!(best["point"]["LOG_BLOCK"].is_string() && best["why"].is_string());
    }
    for (more, part) in [
        (
            &["--objective", "speed"][..],
            "--objective speed: there are cycles, energy",
        ),
        (
            &["--area", "0.01"],
            "--area 0.01: no machine that was tried is so small",
        ),
        (&["--shard", "1/9"], "--shard of 4 searches"),
        (&["--vary", "LOG_BLOK=4"], "there is no such key"),
    ] {
        let other = path("other.csv");
        let (status, _, err) =
            vta(&[&["explore", "gemm:8,16,16", "-o", &other][..], more].concat());
        assert_eq!((status, err.lines().count()), (2, 1), "{err}");
        assert!(err.contains(part), "{err}");
    }
}

#[test]
fn costs_are_printed_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (usual, _) = succeeds(&["costs"]);
    let file = folder.path().join("costs.toml").display().to_string();
    std::fs::write(&file, "sram_byte_mm2 = 0.0\nmac_pj = 7").unwrap();
    let (other, _) = succeeds(&["costs", &file]);
    let changed: Vec<_> = usual
        .lines()
        .zip(other.lines())
        .filter(|(a, b)| a != b)
        .collect();
    assert_eq!(changed.len(), 2, "{other}");
    let sweep = |output: &str, more: &[&str]| {
        let output = folder.path().join(output).display().to_string();
        let start = [
            "sweep",
            "gemm:8,16,16",
            "--vary",
            "tags=16",
            "--json",
            "-o",
            &output,
        ];
        let json: Value = serde_json::from_str(&succeeds(&[&start, more].concat()).0).unwrap();
        json["pareto"][0]["area_mm2"].as_f64().unwrap()
    };
    let (one, two) = (sweep("one.csv", &[]), sweep("two.csv", &["--costs", &file]));
    assert!(two < one / 5.0, "{two} of {one}");
    // Figures of other prices are another sweep's.
    let output = folder.path().join("one.csv").display().to_string();
    let (status, _, err) = vta(&[
        "sweep",
        "gemm:8,16,16",
        "--vary",
        "tags=16",
        "-o",
        &output,
        "--costs",
        &file,
    ]);
    assert!(
        status == 2 && err.contains("not the table of this sweep"),
        "{err}"
    );
    std::fs::write(&file, "sram_byte_mm2 = -1").unwrap();
    let (status, _, err) = vta(&["costs", &file]);
    assert!(
        status == 2 && err.contains("costs.toml") && err.contains("sram_byte_mm2 is -1"),
        "{err}"
    );
}
