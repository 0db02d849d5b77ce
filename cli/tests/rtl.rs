//! Designs in the loop, as a user meets them: the double, a library of cargo's with the interface of a Verilated
//! design, made from the cycle model, which does wrong what it is told to.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

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
        status == 1 && out.contains("1 of 1 batch take other cycles"),
        "{out}"
    );
    let (status, out, err) = with(
        "timing=de10",
        &[&AGAINST[..], &["--timing", "de10"]].concat(),
    );
    assert_eq!(status, 0, "{out}{err}");
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
