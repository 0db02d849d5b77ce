//! Programs written by hand, and what is answered to input that is nearly right.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{file, root, succeeds, vta};
use tempfile::TempDir;

/// The program of docs/first-program.md with some of its text replaced.
fn gemm(folder: &TempDir, name: &str, changes: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(root().join("cli/examples/gemm.asm")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    file(folder, name, text.as_bytes())
}

#[test]
fn a_program_by_hand_runs_on_every_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let program = gemm(&folder, "gemm.asm", &[]);
    for device in ["sim", "oracle", "cycle"] {
        let (status, out, err) = vta(&["exec", &program, "--device", device, "--json"]);
        assert_eq!((status, err.as_str()), (0, ""));
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["out"][0]["values"][3], -34);
        assert_eq!(
            (&json["expected"], &json["wrong"]),
            (&16.into(), &serde_json::json!([]))
        );
        let cycles = &json["insn_cycles"];
        assert_eq!(
            cycles.as_array().map(Vec::len),
            (device == "cycle").then_some(8)
        );
    }
    let report = folder.path().join("r.html").display().to_string();
    let trace = folder.path().join("t.json").display().to_string();
    let views = ["--device", "cycle", "--report", &report, "--trace", &trace];
    succeeds(&[&["exec", &program][..], &views].concat());
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&trace).is_ok());
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("</html>") && report.contains("256 useful MACs"));
    // Another configuration: a tile has 32 rows of 32, so that the same values mean less.
    let config = file(&folder, "c.json", br#"{"LOG_BLOCK": 5}"#);
    let (status, out, _) = vta(&["exec", &program, "--config", &config]);
    assert_eq!(status, 1, "{out}");
}

#[test]
fn a_program_by_hand_says_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = gemm(&folder, "wrong.asm", &[(".out 0  34 68", ".out 0  34 69")]);
    let (status, out, _) = vta(&["exec", &wrong]);
    assert_eq!(status, 1);
    assert!(
        out.contains("out 0, value 1: 68 is stored, 69 is expected"),
        "{out}"
    );
    assert!(out.contains("1 of 16 values WRONG"), "{out}");
    let race = gemm(
        &folder,
        "race.asm",
        &[
            (
                "x_stride=1 push_next     # token: the c",
                "x_stride=1 # the c",
            ),
            ("iter_in=1 pop_prev", "iter_in=1"),
        ],
    );
    for (command, status) in [
        (&["exec", &race][..], 0),
        (&["exec", &race, "--hazards"], 1),
        (&["check", &race, "--hazards"], 1),
    ] {
        let (found, out, err) = vta(command);
        assert_eq!(found, status, "{out}{err}");
        assert_eq!(out.contains("no chain of tokens"), status == 1, "{out}");
        // As the file has it, not where the data was put.
        assert_eq!(
            out.contains("load.wgt sram_base=0 dram_base=0 "),
            status == 1,
            "{out}"
        );
    }
    for (change, status, part) in [
        (
            ("pop_prev push_prev", "pop_next"),
            1,
            "pop_next in the store module",
        ),
        (("finish pop_next", ""), 1, "does not end in FINISH"),
        (
            ("load.inp x_size=1", "load.inp sram_base=2047 x_size=2"),
            1,
            "load.inp sram_base=2047 dram_base=0",
        ),
        (
            ("load.inp x_size=1", "load.inp dram_base=9999999 x_size=1"),
            2,
            "each memory type has 16777216",
        ),
        ((".inp 0", ".imp 0"), 2, "line 3: there is no '.imp'"),
        (
            (".inp 0  1..16", ".inp 0  1..128"),
            2,
            "line 3: '128' is no number from -128 to 127",
        ),
        (
            (".inp 0  1..16", ".inp 0  1*99999999999"),
            2,
            "more than 16777216 bytes",
        ),
        ((".inp 0  1..16", ".inp 0"), 2, "line 3: .inp 0: no value"),
        ((".inp 0  1..16", ".inp"), 2, "write .inp INDEX VALUE.."),
        (("dst=0 src=0", "dst=2048 src=0"), 2, "2048"),
        (("dst=0 src=0", "dst=0 dst=0"), 2, "dst stands twice"),
    ] {
        let bad = gemm(&folder, "bad.asm", &[change]);
        let (found, out, err) = vta(&["exec", &bad]);
        assert_eq!(found, status, "{change:?}: {out}{err}");
        assert!(
            err.contains(part) && err.contains("bad.asm"),
            "{change:?}: {err}"
        );
    }
    let (status, _, err) = vta(&["exec", &wrong, "--verify"]);
    assert!(
        status == 2 && err.contains("--verify: for networks"),
        "{err}"
    );
}

#[test]
fn tuned_tiles_are_taken_where_they_fit() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("tiles.json").display().to_string();
    let layer = "conv:1,48,20,20,48,3,1,1";
    let (status, out, err) = vta(&["tune", layer, "-o", &cache, "--json"]);
    assert_eq!(status, 0, "{err}");
    let tuned: serde_json::Value = serde_json::from_str(&out).unwrap();
    let cycles = |more: &[&str]| -> serde_json::Value {
        let words = ["layer", layer, "--device", "cycle", "--json"];
        let (status, out, err) = vta(&[&words[..], more].concat());
        assert_eq!(status, 0, "{err}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["cycles"].clone()
    };
    assert_eq!(cycles(&["--tiles", &cache]), tuned["cycles"]);
    assert_eq!(cycles(&[]), tuned["untuned_cycles"]);
    assert_ne!(tuned["cycles"], tuned["untuned_cycles"]);
    let bundle = folder.path().join("demo.vta").display().to_string();
    let (status, _, err) = vta(&["compile", "demo", "--tiles", &cache, "-o", &bundle]);
    assert_eq!(status, 0, "{err}");
    // What a network over several devices takes, too.
    let words = ["run", "demo", "--limit", "1", "--tiles", &cache];
    let (status, _, err) = vta(&[&words[..], &["--device", "sim,oracle"]].concat());
    assert_eq!(status, 0, "{err}");
    let config = file(&folder, "c.json", br#"{"LOG_BLOCK": 5}"#);
    for (more, part) in [
        (&["--config", &config][..], "no tiles for 1x32 "),
        (&["--device", "cycle", "--timing", "de10"], "de10"),
    ] {
        let (status, _, err) = vta(&[&words[..], more].concat());
        assert!(status == 2 && err.contains(part), "{more:?}: {err}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.bin").display().to_string();
    succeeds(&["compile", "demo", "-o", &bundle]);
    let config = file(&folder, "c.json", br#"{"LOG_BLOCK": 5}"#);
    let own = file(&folder, "d.json", b"{}");
    let image = "models/demo/cat.png";
    // A bundle is known by its first bytes, whatever its name.
    for command in [
        &["exec", &bundle, "--input", image][..],
        &["exec", &bundle, "--input", image, "--config", &own],
        &["check", &bundle],
        &["disasm", &bundle],
    ] {
        let (status, _, err) = vta(command);
        assert_eq!(status, 0, "{command:?}: {err}");
    }
    for (command, part) in [
        (
            &["exec", &bundle, "--input", image, "--config", &config][..],
            "for another configuration",
        ),
        (
            &["check", &bundle, "--config", &config],
            "for another configuration",
        ),
        (&["run", "demo", "--calibration", image], "int8 already"),
        (
            &["exec", &bundle, "--input", image, "--calibration", image],
            "--calibration",
        ),
        (&["devices", "--device", "opencl"], "--save-bitstream"),
        (
            &["devices", "--config", &own],
            "--save-bitstream and --macros",
        ),
        (&["run", "demo", "--mean", "nan"], "--mean must be finite"),
        (&["run", "demo", "--scale", "0"], "--scale must not be 0"),
    ] {
        let (status, _, err) = vta(command);
        assert!(status == 2 && err.contains(part), "{command:?}: {err}");
    }
}

#[test]
fn names_that_are_nearly_right_are_understood() {
    for (command, part) in [
        (&["run", "resnet18"][..], "did you mean zoo:resnet18?"),
        (&["run", "Demo"], "did you mean demo?"),
        (&["run", "zoo"], "vta models"),
        (
            &["run", "models/demo/cat.png"],
            "--input models/demo/cat.png",
        ),
        (
            &["run", "cli/examples/gemm.asm"],
            "vta exec cli/examples/gemm.asm",
        ),
        (&["run", "demo", "--device", "cycl"], "did you mean cycle?"),
        (
            &["run", "demo", "--device", "gpu"],
            "did you mean opencl:gpu?",
        ),
        (&["run", "demo", "--device", "sim,"], "between commas"),
        (
            &["tune", "demo", "--explain", "conv2"],
            "did you mean conv1?",
        ),
        (
            &["sweep", "conv:1,2", "--vary", "tags=1", "-o", "never.csv"],
            "8 are needed",
        ),
    ] {
        let (status, _, err) = vta(command);
        assert!(status == 2 && err.contains(part), "{command:?}: {err}");
    }
}

#[test]
fn devices_lists_all_that_run_takes() {
    let (status, out, _) = vta(&["devices"]);
    assert_eq!(status, 0);
    for name in ["sim", "cycle", "oracle"] {
        assert!(
            out.lines().any(|l| l.trim_start().starts_with(name)),
            "{out}"
        );
    }
    assert!(
        out.lines().all(|l| l.trim_end() == l),
        "blanks at the end of lines"
    );
}

#[test]
fn a_sweep_of_another_model_of_the_same_name_is_another_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.onnx").display().to_string();
    let table = folder.path().join("t.csv").display().to_string();
    let demo = std::fs::read(root().join("models/demo/resnet20.onnx")).unwrap();
    std::fs::write(&model, &demo).unwrap();
    let sweep = ["sweep", &model, "--vary", "tags=8", "-o", &table];
    succeeds(&sweep);
    let (status, out, _) = vta(&sweep);
    assert!(status == 0 && out.contains("0 computed, 1 found"), "{out}");
    // An unknown field at the end changes the file and not the network.
    std::fs::write(&model, [&demo[..], &[0xf8, 0x01, 0x01]].concat()).unwrap();
    let (status, _, err) = vta(&sweep);
    assert!(
        status == 2 && err.contains("not the table of this sweep"),
        "{err}"
    );
}

#[cfg(unix)]
#[test]
fn devices_of_the_system_are_neither_read_without_end_nor_replaced() {
    use std::os::unix::fs::FileTypeExt;
    // Links in a folder of the test: were a device replaced, only its link would be.
    let folder = tempfile::tempdir().unwrap();
    let zero = folder.path().join("zero");
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    let (zero, out) = (zero.display().to_string(), file(&folder, "out.bin", b""));
    for command in [
        &["run", &zero][..],
        &["run", "demo", "--config", &zero],
        &["run", "demo", "--device", "cycle", "--timing", &zero],
        &["asm", &zero, "-o", &out],
        &["check", &zero],
        &["tune", "gemm:1,16,16", "-o", &zero],
        &["sweep", "gemm:1,16,16", "--vary", "tags=1", "-o", &zero],
    ] {
        let (status, _, err) = vta(command);
        assert!(
            status == 2 && err.contains("not a file"),
            "{command:?}: {err}"
        );
    }
    for (device, expected) in [("/dev/null", 0), ("/dev/full", 1)] {
        let link = folder.path().join("link.vta");
        std::os::unix::fs::symlink(device, &link).unwrap();
        let (status, _, err) = vta(&["compile", "demo", "-o", &link.display().to_string()]);
        assert_eq!(status, expected, "{device}: {err}");
        assert!(
            std::fs::metadata(&link)
                .unwrap()
                .file_type()
                .is_char_device()
        );
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        std::fs::remove_file(&link).unwrap();
    }
}
