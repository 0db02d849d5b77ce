//! `--device cycle` as a user meets it: figures, files, recorded cycles, sweeps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::PathBuf;

use common::{file, succeeds, vta};
use serde_json::Value;
use tempfile::TempDir;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(args).0).unwrap()
}

fn path(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    file(folder, name, text.as_bytes())
}

#[test]
fn cycles_of_layers_add_up_and_outputs_stay_the_same() {
    let args = ["run", "demo", "--limit", "2", "--json", "--device"];
    let cycle = json(&[&args[..], &["cycle"]].concat());
    let sim = json(&[&args[..], &["sim"]].concat());
    assert_eq!(cycle["outputs"], sim["outputs"]);
    assert_eq!(cycle["bytes"], sim["bytes"]);
    for key in ["cycles", "bound_cycles", "gemm_uops"] {
        let layers = cycle["layers"].as_array().unwrap();
        let sum: u64 = layers.iter().map(|l| l[key].as_u64().unwrap()).sum();
        assert_eq!(cycle[key].as_u64().unwrap(), sum, "{key}");
        assert!(sum > 0);
    }
    assert!(cycle["bound_cycles"].as_u64() < cycle["cycles"].as_u64());
    for layer in cycle["layers"].as_array().unwrap() {
        let spend = layer["spend"].as_object().unwrap().values();
        let spent: u64 = spend.map(|v| v.as_u64().unwrap()).sum();
        assert_eq!(
            layer["cycles"].as_u64().unwrap(),
            spent,
            "{}",
            layer["name"]
        );
        assert!(!layer["limited_by"].as_str().unwrap().is_empty());
        assert!(layer["utilization"].as_f64().unwrap() <= 1.0);
    }
}

#[test]
fn timing_alone_gives_the_same_cycles_and_no_outputs() {
    let args = [
        "run", "demo", "--limit", "1", "--json", "--device", "cycle", "--timing", "de10",
    ];
    let full = json(&args);
    let timed = json(&[&args[..], &["--timing-only"]].concat());
    for key in [
        "cycles",
        "bound_cycles",
        "gemm_uops",
        "utilization",
        "bytes",
        "insns",
    ] {
        assert_eq!(full[key], timed[key], "{key}");
    }
    assert_eq!(timed["outputs"], Value::Array(vec![]));
    assert!(timed["top1"].is_null());
}

#[test]
fn a_layer_has_cycles_bound_and_verdict() {
    let object = json(&[
        "layer",
        "conv:1,32,14,14,32,3,1,1",
        "--device",
        "cycle",
        "--json",
    ]);
    let number = |key: &str| object[key].as_u64().unwrap();
    assert_eq!(number("max_abs_error"), 0);
    assert_eq!(number("macs"), number("gemm_uops") * 256);
    // Taps on padding are left out: all 14 rows for one of three taps, 13 for two.
    let taps = 14 + 2 * 13;
    assert_eq!(number("product_uops"), 2 * 2 * taps * taps);
    assert!(number("bound_cycles") >= number("product_uops"));
    assert!(number("compute_bound_cycles") > number("bound_cycles"));
    assert!(number("cycles") > number("compute_bound_cycles"));
    // The bias is one more step of the matrix unit for each of the output's tiles, a reset too.
    let outputs = 14 * 14 * 2;
    assert_eq!((number("bias_uops"), number("residual_uops")), (outputs, 0));
    assert_eq!(number("reset_uops"), outputs);
}

#[test]
fn report_and_trace_are_whole_and_need_nothing_else() {
    let folder = TempDir::new().unwrap();
    let (report, trace) = (path(&folder, "r.html"), path(&folder, "t.json"));
    let energy = write(&folder, "energy.toml", "dram_byte_pj = 0.0");
    let (status, _, err) = vta(&[
        "run",
        "demo",
        "--limit",
        "1",
        "--device",
        "cycle",
        "--timing-only",
        "--report",
        report.to_str().unwrap(),
        "--trace",
        trace.to_str().unwrap(),
        "--costs",
        &energy,
    ]);
    assert_eq!(status, 0, "{err}");
    let html = std::fs::read_to_string(&report).unwrap();
    for part in [
        "<!DOCTYPE html>",
        "Roofline",
        "Stalls",
        "layers.0.0.conv1",
        "biggest three",
        "</html>",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for part in ["http://", "https://", "src=", "@import", "url(", "NaN"] {
        assert!(!html.contains(part), "{part}");
    }
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|e| e["name"] == name).count();
    assert!(named("gemm") > 0 && named("layers.0.0.conv1") == 1);
    let flows = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    assert!(flows("s") > 0 && flows("s") == flows("f"));
}

#[test]
fn names_of_layers_are_escaped_in_the_report() {
    let folder = TempDir::new().unwrap();
    let report = path(&folder, "r.html");
    let name = "conv:1,16, 4,4,16,1,1,0";
    let args = [
        "layer",
        name,
        "--device",
        "cycle",
        "--report",
        report.to_str().unwrap(),
    ];
    succeeds(&args);
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains(name));
    assert_eq!(html.matches("<script>").count(), 1);
}

#[test]
fn options_of_the_cycle_device_are_refused_elsewhere() {
    let folder = TempDir::new().unwrap();
    let bad = write(&folder, "bad.toml", "bus_bytes = 12");
    for (args, part) in [
        (
            &["run", "demo", "--timing-only"][..],
            "--timing-only needs --device cycle",
        ),
        (
            &["run", "demo", "--report", "x.html"],
            "--report needs --device cycle",
        ),
        (
            &["run", "demo", "--device", "cycle", "--timing", "zcu"],
            "no board 'zcu'",
        ),
        (
            &["run", "demo", "--device", "cycle", "--timing", &bad],
            "bus_bytes is 12",
        ),
        (
            &["run", "demo", "--device", "cycle", "--costs", &bad],
            "bus_bytes",
        ),
        (
            &[
                "run",
                "demo",
                "--device",
                "cycle",
                "--timing-only",
                "--verify",
            ],
            "--verify",
        ),
        (
            &[
                "run",
                "demo",
                "--device",
                "cycle",
                "--trace",
                "/no/such/x.json",
            ],
            "/no/such/x.json",
        ),
        (&["replay", &bad.replace("toml", "json")], "--device cycle"),
    ] {
        let (status, _, err) = vta(args);
        assert_eq!(status, 2, "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}

/// LOAD INP of 16 tiles, LOAD UOP of one micro-op, FINISH; cycles by hand as in the cycle model's
/// documentation.
fn recorded(cycles: u64) -> String {
    let words = [
        "0000001000100001_0000000000000140",
        "0000000100010001_0000000000000008",
        "3",
    ];
    let insns = words.map(|w| w.replace('_', ""));
    let object = serde_json::json!({
        "insn_addr": 0,
        "programs": [{"insns": insns, "rtl_cycles": cycles, "rdreq": 3, "rdbeats": 39,
            "wrreq": 0, "wrbeats": 0}],
    });
    object.to_string()
}

#[test]
fn recorded_cycles_match_or_the_difference_is_named() {
    let folder = TempDir::new().unwrap();
    let right = write(&folder, "right.json", &recorded(107));
    let wrong = write(&folder, "wrong.json", &recorded(108));
    let args = ["--device", "cycle", "--timing", "pynq"];
    let object = json(&[&["replay", &right, "--json"][..], &args].concat());
    assert_eq!(
        (&object["matched"], &object["total"]),
        (&1.into(), &1.into())
    );
    let (status, out, _) = vta(&[&["replay", &wrong][..], &args].concat());
    assert_eq!(status, 1);
    assert!(out.contains("cycles 107, recorded 108"), "{out}");
    assert!(out.contains("0 of 1"), "{out}");
    for (text, part) in [
        ("{}", "insn_addr"),
        ("{\"insn_addr\": 0, \"programs\": []}", "no program"),
        (
            &recorded(1).replace("\"3\"", "\"x\""),
            "'x' is no hexadecimal",
        ),
        (
            &recorded(1).replace("\"3\"", "\"100010000000000000001\""),
            "memory_type of a STORE is uop, but it must be out",
        ),
    ] {
        let file = write(&folder, "bad.json", text);
        let (status, _, err) = vta(&[&["replay", &file][..], &args].concat());
        assert_eq!(status, 2, "{err}");
        assert!(err.contains(part), "{err}");
    }
}

#[test]
fn a_sweep_is_resumed_and_does_not_depend_on_threads() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (path(&folder, "1.csv"), path(&folder, "2.csv"));
    let sweep = |output: &PathBuf, threads: &str| {
        let output = output.to_str().unwrap();
        json(&[
            "sweep",
            "conv:1,32,7,7,32,3,1,1",
            "--vary",
            "LOG_BLOCK=4,5",
            "--vary",
            "bus_bytes=8,16",
            "--vary",
            "LOG_WGT_BUFF_SIZE=16,18",
            "-o",
            output,
            "--threads",
            threads,
            "--json",
            "--picture",
            &output.replace("csv", "svg"),
        ])
    };
    let first = sweep(&one, "1");
    assert_eq!(
        (&first["computed"], &first["failed"]),
        (&8.into(), &0.into())
    );
    sweep(&two, "3");
    let whole = std::fs::read_to_string(&one).unwrap();
    assert_eq!(whole, std::fs::read_to_string(&two).unwrap());
    // Stopped within the fourth row.
    let keep = whole.match_indices('\n').nth(3).unwrap().0 + 9;
    std::fs::write(&one, &whole[..keep]).unwrap();
    let resumed = sweep(&one, "2");
    assert_eq!(
        (&resumed["computed"], &resumed["resumed"]),
        (&5.into(), &3.into())
    );
    assert_eq!(whole, std::fs::read_to_string(&one).unwrap());
    assert_eq!(resumed["pareto"], first["pareto"]);
    // Rows that can't be: other figures, in place of a point's or beside them.
    let output = one.to_str().unwrap();
    let args = [
        "sweep",
        "conv:1,32,7,7,32,3,1,1",
        "--vary",
        "LOG_BLOCK=4,5",
        "--vary",
        "bus_bytes=8,16",
        "--vary",
        "LOG_WGT_BUFF_SIZE=16,18",
        "-o",
        output,
    ];
    let cycles = whole.lines().nth(2).unwrap().split(',').nth(3).unwrap();
    let changed = whole.replacen(&format!(",18,{cycles},"), ",18,7,", 1);
    for (text, part) in [
        (changed.clone(), "1.csv:3: the row isn't as it was written"),
        (
            whole.clone() + changed.lines().nth(2).unwrap() + "\n",
            "1.csv:10: the row isn't",
        ),
    ] {
        assert_ne!(text, whole);
        std::fs::write(&one, &text).unwrap();
        let merged = path(&folder, "merged.csv");
        for args in [
            &args[..],
            &["merge", output, "-o", merged.to_str().unwrap()],
        ] {
            let (status, _, err) = vta(args);
            assert!(status == 2 && err.contains(part), "{err}");
            assert_eq!(std::fs::read_to_string(&one).unwrap(), text);
        }
        assert!(!merged.exists());
    }
    let picture = std::fs::read_to_string(path(&folder, "1.svg")).unwrap();
    assert_eq!(picture.matches("<circle").count(), 8);
}

#[test]
fn shards_merge_to_the_table_of_the_whole_sweep() {
    let folder = TempDir::new().unwrap();
    let name = |file: &str| path(&folder, file).display().to_string();
    let sweep = |file: &str, more: &[&str]| {
        let output = name(file);
        // Not ascending, and one value that no machine has.
        let axes = [
            "--vary",
            "LOG_WGT_BUFF_SIZE=17,16",
            "--vary",
            "bus_bytes=16,12,8",
        ];
        let start = ["sweep", "conv:1,16,7,7,16,3,1,1", "-o", &output];
        vta(&[&start[..], &axes, more].concat())
    };
    sweep("whole.csv", &[]);
    let whole = std::fs::read(name("whole.csv")).unwrap();
    for shard in 1..=4 {
        let (_, out, _) = sweep(&format!("{shard}.csv"), &["--shard", &format!("{shard}/4")]);
        let points = if shard <= 2 { 2 } else { 1 };
        assert!(
            out.contains(&format!("{points} points, {points} computed")),
            "{out}"
        );
    }
    let (_, out, _) = sweep("1.csv", &["--shard", "1/4"]);
    assert!(out.contains("2 points, 0 computed, 2 found"), "{out}");
    let [one, two, three, four, all] =
        ["1", "2", "3", "4", "all"].map(|n| name(&format!("{n}.csv")));
    let (status, _, err) = vta(&["merge", &four, &two, &one, &two, "-o", &all]);
    assert_eq!(
        (status, &err[..]),
        (0, "note: 1 points of the grid are in no table: 3\n")
    );
    let merged = json(&["merge", &four, &two, &one, "-o", &all, "--json"]);
    assert_eq!(merged["missing_points"], serde_json::json!([3]));
    assert_eq!(
        (&merged["points"], &merged["missing"]),
        (&5.into(), &1.into())
    );
    let (status, _, err) = vta(&["merge", &four, &two, &one, &three, "-o", &all]);
    assert_eq!((status, &err[..]), (0, ""));
    assert_eq!(std::fs::read(&all).unwrap(), whole);
    let (_, out, _) = sweep("all.csv", &[]);
    assert!(out.contains("6 points, 0 computed, 6 found"), "{out}");
    for (more, part) in [
        (&["--shard", "0/4"][..], "write I/N with I from 1 to N"),
        (&["--shard", "5/4"], "write I/N with I from 1 to N"),
        (
            &["--shard", "1/4", "--picture", "p.svg"],
            "--picture shows the whole grid",
        ),
        (
            &["--shard", "1/4", "--vary", "tags=4"],
            "not the table of this sweep",
        ),
        (&[], "not the table of this sweep"),
    ] {
        let (status, _, err) = sweep("1.csv", more);
        assert!(status == 2 && err.contains(part), "{more:?}: {err}");
    }
}

#[test]
fn a_point_that_cannot_be_built_fails_alone() {
    let folder = TempDir::new().unwrap();
    let output = path(&folder, "s.csv");
    let (status, out, _) = vta(&[
        "sweep",
        "gemm:16,32,32",
        "--vary",
        "bus_bytes=8,12",
        "-o",
        output.to_str().unwrap(),
    ]);
    assert_eq!(status, 1);
    assert!(
        out.contains("failed: bus_bytes=12: timing key bus_bytes is 12"),
        "{out}"
    );
    assert!(out.contains("2 points, 2 computed"), "{out}");
}

#[test]
fn layers_of_a_table_are_an_axis_and_their_sums_are_machines() {
    let folder = TempDir::new().unwrap();
    let name = |file: &str| path(&folder, file).display().to_string();
    let table = "Layer, M, N, K,\nq, 7, 16, 32,\nr, 1, 48, 16,\nlarge, 70000, 1, 70000,\n";
    std::fs::write(name("l.csv"), table).unwrap();
    let (layers, out) = (name("l.csv"), name("o.csv"));
    let (status, text, _) = vta(&["sweep", "--layers", &layers, "-o", &out]);
    // A layer that no device holds is a row with its reason.
    assert_eq!(status, 1);
    assert!(text.starts_with("l.csv: 3 points, 3 computed"), "{text}");
    let failed = "failed: layer=large: 'large': the input has more than 268435456 elements";
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.ends_with(failed), "{text}");
    let lines: Vec<String> = std::fs::read_to_string(&out)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(
        lines[0].starts_with("layer,cycles,") && lines.len() == 4,
        "{lines:?}"
    );
    let cycles = |line: &str, at: usize| line.split(',').nth(at).unwrap().parse::<u64>().unwrap();
    let shown = text.lines().find(|line| line.starts_with("q ")).unwrap();
    assert_eq!(
        shown.split_whitespace().nth(1).unwrap(),
        cycles(&lines[1], 1).to_string()
    );
    // The same by itself.
    let one = name("one.csv");
    vta(&["sweep", "gemm:7,32,16", "--vary", "tags=8", "-o", &one]);
    let alone = std::fs::read_to_string(&one).unwrap();
    assert_eq!(
        cycles(alone.lines().nth(1).unwrap(), 1),
        cycles(&lines[1], 1)
    );
    // Two machines: the front is of sums.
    std::fs::write(name("l.csv"), &table[..table.find("large").unwrap()]).unwrap();
    let start = [
        "sweep",
        "--layers",
        &layers,
        "--vary",
        "bus_bytes=8,16",
        "-o",
    ];
    let both = name("both.csv");
    let swept = json(&[&start[..], &[&both, "--json"]].concat());
    let rows: Vec<String> = std::fs::read_to_string(&both)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!((swept["points"].as_u64(), rows.len()), (Some(4), 5));
    let front = swept["pareto"].as_array().unwrap();
    assert_eq!(front[0]["point"], "bus_bytes=8");
    assert_eq!(
        front[0]["cycles"],
        cycles(&rows[1], 2) + cycles(&rows[3], 2)
    );
    // In shards, too.
    let (a, b, all) = (name("a.csv"), name("b.csv"), name("all.csv"));
    vta(&[&start[..], &[&a, "--shard", "1/2"]].concat());
    vta(&[&start[..], &[&b, "--shard", "2/2"]].concat());
    vta(&["merge", &b, &a, "-o", &all]);
    assert_eq!(std::fs::read(&all).unwrap(), std::fs::read(&both).unwrap());
    for (args, error) in [
        (
            &["sweep", "demo", "--layers", &layers, "-o", &out][..],
            "cannot be used with",
        ),
        (&["sweep", "-o", &out], "required"),
        (&["sweep", "demo", "-o", &out], "--vary"),
        (&["sweep", "--layers", "gone.csv", "-o", &out], "gone.csv"),
    ] {
        let (status, _, err) = vta(args);
        assert!(status == 2 && err.contains(error), "{err}");
    }
}

#[test]
fn a_reason_is_told_once() {
    let folder = TempDir::new().unwrap();
    let out = path(&folder, "t.csv").display().to_string();
    let axes = ["--vary", "bus_bytes=8,12,20,24", "--vary", "tags=1,2"];
    let (status, text, _) = vta(&[&["sweep", "gemm:1,16,16", "-o", &out][..], &axes].concat());
    assert_eq!(status, 1);
    let failed: Vec<&str> = text.split("failed: ").skip(1).collect();
    assert_eq!(failed.len(), 3, "{text}");
    assert!(
        failed[0].starts_with("bus_bytes=12 tags=1 and another point: timing key"),
        "{text}"
    );
}

#[test]
fn a_certificate_is_below_what_a_layer_takes() {
    let args = ["tune", "resnet18.C11", "--certificate"];
    let found = json(&[&args[..], &["--json"]].concat());
    let layer = &found["layers"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let (cycles, least) = (number(&layer["cycles"]), number(&layer["least"]["cycles"]));
    assert!(least < cycles && number(&layer["least"]["bytes"]) < number(&layer["bytes"]));
    assert!((number(&layer["gap"]) - (cycles / least - 1.0)).abs() < 1e-9);
    assert_eq!(found["median_gap"], layer["gap"]);
    // Beyond 2 % it says why.
    assert!(layer["why"].as_str().unwrap().contains("start and drain"));
    let text = succeeds(&args).0;
    assert!(
        text.contains("1 layer, each alone on pynq: median gap 3."),
        "{text}"
    );
}
