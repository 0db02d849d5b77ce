//! Designs in the loop, as a user meets them: the double, a library of cargo's with the interface of a Verilated
//! design, made from the cycle model, which does wrong what it is told to.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Write as _;
use std::path::PathBuf;

use assert_cmd::Command;
use common::{file, root, succeeds, vta};
use serde_json::Value;
use tempfile::TempDir;

/// The library, which cargo builds for this suite.
fn double() -> String {
    let folder = std::env::current_exe().unwrap();
    let folder = folder.parent().unwrap();
    let name = format!(
        "{}vta_rtl_double{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let path: PathBuf = folder.join(name);
    assert!(path.exists(), "{} isn't built", path.display());
    format!("rtl:{}", path.display())
}

/// What the program says of a double with faults.
fn with(fault: &str, args: &[&str]) -> (i32, String, String) {
    let device = double();
    let mut command = Command::cargo_bin("vta").unwrap();
    command
        .env("COLUMNS", "100000")
        .env("VTA_RTL_DOUBLE", fault);
    let args = [args, &["--device", &device]].concat();
    let output = command.current_dir(root()).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Arguments of a comparison with the cycle model.
const AGAINST: [&str; 6] = ["run", "demo", "--limit", "1", "--against", "cycle"];

#[test]
fn networks_run_on_a_design_with_the_models_bytes_and_cycles() {
    for network in ["demo", "zoo:resnet18:shift"] {
        let args = [
            "run",
            network,
            "--limit",
            "1",
            "--against",
            "cycle",
            "--json",
        ];
        let (status, out, err) = with("", &args);
        assert_eq!((status, &err[..]), (0, ""));
        let found: Value = serde_json::from_str(&out).unwrap();
        let args = [
            "run", network, "--limit", "1", "--device", "cycle", "--json",
        ];
        let expected: Value = serde_json::from_str(&succeeds(&args).0).unwrap();
        let cycles = &expected["cycles"];
        assert!(cycles.as_u64().unwrap() > 100_000, "{expected}");
        assert_eq!(found["rtl"]["cycles"], *cycles);
        assert_eq!(found["device_cycles"], *cycles);
        let against = &found["rtl"]["against"];
        assert_eq!(
            (&against["cycles"], &against["differing_batches"]),
            (cycles, &Value::from(0))
        );
        assert_eq!(found["images"], expected["images"]);
        assert_eq!(found[IMAGES], expected[IMAGES]);
    }
    let (status, out, _) = with("", &["run", "demo"]);
    assert_eq!(status, 0);
    assert!(out.contains("10 of 10 right"), "{out}");
    let (_, out, _) = with("", &AGAINST);
    assert!(
        out.contains("every byte and every cycle is cycle's"),
        "{out}"
    );
}

/// Where JSON has what was found of each image.
const IMAGES: &str = "predictions";

/// An instruction is named by its index; loads, stores, products and the ALU are at fault in turn.
#[test]
fn the_first_instruction_that_computes_otherwise_is_named() {
    for (index, what) in [
        (5, "load.uop"),
        (8, "load.wgt"),
        (100, "store"),
        (500, "gemm"),
        (1500, "gemm reset"),
        (2401, "load.inp"),
        (2408, "alu.add"),
    ] {
        let (status, _, err) = with(&format!("byte={index}"), &AGAINST);
        let named = format!("does otherwise is instruction {index} ({what} ");
        assert!(status == 1 && err.contains(&named), "{index}: {err}");
        assert!(
            err.contains("the first byte that differs from cycle's is at 0x"),
            "{err}"
        );
    }
}

#[test]
fn the_first_instruction_that_takes_other_cycles_is_named() {
    for (index, what) in [(100, "store"), (2403, "gemm")] {
        let (status, out, err) = with(&format!("late={index}"), &AGAINST);
        let named = format!("the first that differs is instruction {index} ({what} ");
        assert!(status == 1 && out.contains(&named), "{index}: {out}{err}");
        assert!(
            out.contains("by +3 cycles") && out.contains("every byte is cycle's"),
            "{out}"
        );
    }
    // A whole design that is slower elsewhere, and one that is as it should be on the other board.
    let (status, out, _) = with("timing=de10", &AGAINST);
    assert!(
        status == 1
            && out.contains("1 of 1 batch take other cycles")
            && out
                .contains("the design is another board's: its first read has 16 beats, pynq's 256"),
        "{out}"
    );
    let (status, out, err) = with(
        "timing=de10",
        &[&AGAINST[..], &["--timing", "de10"]].concat(),
    );
    assert_eq!(status, 0, "{out}{err}");
}

/// The recorded network, and the instruction at which the double says that its fault shows first.
fn keyword_spotter(fault: &str, more: &[&str]) -> Option<(i32, String, usize)> {
    let network = shared("conformance/outside/rtl/kws.onnx")?;
    let args = [
        &["run", &network, "--limit", "1", "--against", "cycle"],
        more,
    ]
    .concat();
    let (status, out, err) = with(fault, &args);
    let (_, told) = err.split_once("double: instruction ")?;
    let (index, _) = told.split_once(' ').unwrap();
    Some((status, format!("{out}{err}"), index.parse().unwrap()))
}

/// A path of the shared data; `None`, said aloud, where they are missing, which CI has.
fn shared(path: &str) -> Option<String> {
    let folder = std::env::var_os("VTA_SHARED").map(PathBuf::from);
    let path = folder
        .unwrap_or_else(|| root().join("../shared"))
        .join(path);
    if !path.exists() {
        let text = format!("no test data at {} (set VTA_SHARED)", path.display());
        assert!(std::env::var_os("CI").is_none(), "{text}");
        let _ = writeln!(std::io::stderr(), "SKIPPED {text}");
        return None;
    }
    Some(path.display().to_string())
}

/// The faults of four faulty originals: for good, not in one instruction alone, so that probes have them, too.
#[test]
fn faults_that_a_design_has_for_good_are_named_at_the_instruction() {
    for board in [&[][..], &["--board", "pynq"]] {
        for (fault, kind) in [
            ("shift", "alu.shr"),
            ("drop", "store"),
            ("early", "load."),
            ("burst=3", "load."),
            ("burst=60", "load."),
            ("burst=150", "load."),
        ] {
            let Some((status, said, index)) = keyword_spotter(fault, board) else {
                return;
            };
            let found = match fault {
                "early" => "the first that differs is instruction ",
                _ => "does otherwise is instruction ",
            };
            let named = format!("{found}{index} ({kind}");
            assert!(
                status == 1 && said.contains(&named),
                "{fault} {board:?}: {named}: {said}"
            );
        }
    }
    // Without a comparison, what is never written is missed all the same.
    let (status, _, err) = with("drop", &["run", "demo", "--limit", "1"]);
    assert!(
        status == 1 && err.contains("where its instructions store"),
        "{err}"
    );
}

#[test]
fn recorded_runs_and_programs_by_hand_run_on_a_design() {
    let Some(gemm) = shared("conformance/outside/rtl/gemm.asm") else {
        return;
    };
    for more in [&[][..], &["--board", "pynq"]] {
        let (status, out, err) = with("", &[&["exec", &gemm], more].concat());
        assert_eq!(status, 0, "{out}{err}");
    }
    let Some(archives) = shared("conformance/tvm") else {
        return;
    };
    let mut found: Vec<_> = std::fs::read_dir(archives).unwrap().collect();
    found.sort_by_key(|entry| {
        let entry = entry.as_ref().unwrap();
        (entry.metadata().unwrap().len(), entry.path())
    });
    // The smallest.
    for entry in found.into_iter().take(3) {
        let path = entry.unwrap().path().display().to_string();
        let (status, out, err) = with("", &["replay", &path]);
        assert_eq!(status, 0, "{path}: {out}{err}");
        assert!(out.contains("runs match"), "{out}");
    }
}

/// The first programs of the recorded cycles that end.
#[test]
fn recorded_cycles_replay_on_a_design() {
    let Some(path) = shared("conformance/rtl-cycles/pynq.json") else {
        return;
    };
    let mut all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let programs = all["programs"].as_array_mut().unwrap();
    let ends = |program: &Value| matches!(program["rtl"].as_str(), None | Some("finishes"));
    programs.retain(ends);
    programs.truncate(6);
    let folder = TempDir::new().unwrap();
    let right = file(&folder, "right.json", all.to_string().as_bytes());
    let (status, out, err) = with("", &["replay", &right]);
    assert_eq!(status, 0, "{out}{err}");
    assert!(
        out.contains("on pynq: 6 of 6 programs match in cycles"),
        "{out}"
    );
    let cycles = all["programs"][2]["rtl_cycles"].as_u64().unwrap();
    all["programs"][2]["rtl_cycles"] = (cycles + 1).into();
    let wrong = file(&folder, "wrong.json", all.to_string().as_bytes());
    let (status, out, _) = with("", &["replay", &wrong]);
    assert!(status == 1 && out.contains("5 of 6 programs"), "{out}");
}

#[test]
fn a_layer_says_the_designs_cycles() {
    let layer = ["layer", "conv:1,16,8,8,16,3,1,1", "--json"];
    let (status, out, err) = with("", &layer);
    assert_eq!(status, 0, "{out}{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    let expected = succeeds(&[&layer[..], &["--device", "cycle"]].concat()).0;
    let expected: Value = serde_json::from_str(&expected).unwrap();
    assert!(expected["cycles"].as_u64().unwrap() > 100, "{expected}");
    assert_eq!(found["rtl"]["cycles"], expected["cycles"]);
    let (_, out, _) = with("", &layer[..2]);
    assert!(out.contains("cycles by the design's counter"), "{out}");
}

#[test]
fn designs_that_fail_are_told_from_each_other() {
    for (fault, told) in [
        ("hang", "the design hasn't finished after "),
        ("freeze", "the design stands still: no clock for 10s"),
        ("leave", "VTADPISim returned 0 after "),
        (
            "address",
            "the design reads where nothing is allocated: DRAM bytes 0xffffff00..",
        ),
        ("nonsense", "VTADPISim returned 2 after 0 clocks"),
    ] {
        let (status, _, err) = with(fault, &["run", "demo", "--limit", "1"]);
        assert!(status == 1 && err.contains(told), "{fault}: {err}");
        assert_eq!(err.trim_end().lines().count(), 1, "{err}");
    }
    let limited = ["run", "demo", "--limit", "1", "--limit-cycles", "100000"];
    let (status, _, err) = with("", &limited);
    assert!(status == 1 && err.contains("100000 at most"), "{err}");
}

#[test]
fn what_is_no_design_is_refused() {
    let folder = TempDir::new().unwrap();
    let text = file(&folder, "text.so", b"not a library");
    let device = double();
    let mut bytes = std::fs::read(&device["rtl:".len()..]).unwrap();
    bytes[4] = 1;
    let narrow = file(&folder, "narrow.so", &bytes);
    bytes[4] = 2;
    (bytes[18], bytes[19]) = (243, 0);
    let riscv = file(&folder, "riscv.so", &bytes);
    for (device, told) in [
        (
            "rtl",
            "--device rtl:LIB.so names the library of a design".to_owned(),
        ),
        ("rtl:gone.so", "gone.so: No such file".to_owned()),
        (
            &format!("rtl:{text}"),
            format!("{text}: no library of this machine: it is no ELF file"),
        ),
        (&format!("rtl:{narrow}"), "it is for 32 bits".to_owned()),
        (
            &format!("rtl:{riscv}"),
            "it is for riscv, this is ".to_owned(),
        ),
    ] {
        let (status, _, err) = vta(&["run", "demo", "--device", device]);
        assert!(status != 0 && err.contains(&told), "{device}: {err}");
    }
    for (args, told) in [
        (
            &["--against", "cycle"][..],
            "--against needs --device rtl:LIB.so, not sim",
        ),
        (
            &["--wave", "w.vcd"],
            "--wave needs --device rtl:LIB.so, not sim",
        ),
        (
            &["--against", "sim", "--device", &device],
            "--against sim: a design is compared with cycle",
        ),
    ] {
        let (status, _, err) = vta(&[&["run", "demo"], args].concat());
        assert!(status != 0 && err.contains(told), "{err}");
    }
}

#[test]
fn a_library_that_can_writes_a_waveform() {
    let folder = TempDir::new().unwrap();
    let wave = folder.path().join("wave.vcd").display().to_string();
    let (status, _, err) = with("", &["run", "demo", "--limit", "1", "--wave", &wave]);
    assert_eq!(status, 0, "{err}");
    assert!(
        std::fs::read_to_string(&wave)
            .unwrap()
            .starts_with("$timescale")
    );
    let nowhere = folder.path().join("none/wave.vcd").display().to_string();
    let (status, _, err) = with("", &["run", "demo", "--limit", "1", "--wave", &nowhere]);
    assert!(
        status != 0 && err.contains("it can't write the waveform"),
        "{err}"
    );
}
