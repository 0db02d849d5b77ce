//! The program as a user meets it: results, exit status, errors.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{file, root, succeeds, vta};
use std::io::Write as _;
use tempfile::TempDir;

#[test]
fn the_demo_names_every_image_right() {
    let (status, out, _) = vta(&["run", "demo"]);
    assert_eq!(status, 0);
    assert!(out.contains("10 of 10 right (100.0 %)"), "{out}");
}

#[test]
fn a_photo_of_a_cat_is_a_cat() {
    let (status, out, _) = vta(&["run", "demo", "--input", "models/demo/cat.png", "--json"]);
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["outputs"][0]["top"][0]["label"], "cat");
    for key in [
        "device",
        "macs",
        "insns",
        "submissions",
        "flush_reasons",
        "bytes",
        "wall_ms",
        "layers",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
    let start = |key: &str| json["start"][key].as_f64().unwrap();
    let [opening, loading, first] = ["opening_ms", "loading_ms", "first_results_ms"].map(start);
    let wall = json["wall_ms"].as_f64().unwrap();
    assert!(
        0.0 < opening && loading < first && first <= wall,
        "{}",
        json["start"]
    );
    assert_eq!(
        (&json["submissions"], &json["flush_reasons"]["host_read"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn layers_are_checked_against_the_reference() {
    for spec in ["resnet18.C10", "conv:2,3,17,9,20,3,2,1", "gemm:33,100,40"] {
        let (status, out, err) = vta(&["layer", spec, "--json"]);
        assert_eq!(status, 0, "{err}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["max_abs_error"], 0);
    }
}

#[test]
fn every_layer_of_resnet18_runs() {
    for n in 1..=11 {
        let (status, out, err) = vta(&["layer", &format!("resnet18.C{n}")]);
        assert!(
            status == 0 && out.contains("bit-identical"),
            "C{n}: {out}{err}"
        );
    }
}

#[test]
fn a_bundle_says_what_its_model_says() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("demo.vta").display().to_string();
    succeeds(&["compile", "demo", "-o", &bundle]);
    let input = "models/demo/cat.png";
    let (status, out, err) = vta(&["exec", &bundle, "--input", input]);
    assert!(status == 0 && out.contains("cat"), "{err}");
    assert_eq!(
        vta(&["check", &bundle]),
        (
            0,
            format!("{bundle}: no fault found; --hazards looks for races, too\n"),
            String::new()
        )
    );
    let (status, out, _) = vta(&["disasm", &bundle]);
    assert!(status == 0 && out.contains("# conv1 (conv)") && out.contains("gemm"));
}

/// The words are those of the bit fields of the original's header for a micro-op scratchpad of 256.
#[test]
fn assembly_has_the_layout_of_the_original_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "c.json", br#"{"LOG_UOP_BUFF_SIZE": 10}"#);
    let text = "gemm uop_end=9 dst_factor_out=3 dst_factor_in=5 push_next\nalu.add imm=-2 uop_end=256\nstore y_size=3\n";
    let source = file(&folder, "a.asm", text.as_bytes());
    let binary = folder.path().join("a.bin").display().to_string();
    let layout = ["--layout", "original", "--config", &config];
    succeeds(&[&["asm", &source, "-o", &binary][..], &layout].concat());
    let words: [u128; 3] = [
        5 << 64 | 3 << 53 | 9 << 16 | 1 << 6 | 2,
        0xfffe << 101 | 1 << 100 | 2 << 97 | 256 << 16 | 4,
        3 << 64 | 4 << 7 | 1,
    ];
    let bytes = words.map(u128::to_le_bytes).concat();
    assert_eq!(std::fs::read(&binary).unwrap(), bytes);
    let (status, there, _) = vta(&[&["disasm", &binary][..], &layout].concat());
    assert_eq!(status, 0);
    for (line, words) in there.lines().zip(text.lines()) {
        assert!(words.split(' ').all(|word| line.contains(word)), "{line}");
    }
    assert_ne!(vta(&["disasm", &binary]).1, there);
    // Checks find in the words what they find in the text.
    let faulty = b"gemm uop_end=9 iter_out=2 iter_in=3 dst_factor_in=5 pop_prev\nfinish\n";
    let faulty = file(&folder, "f.asm", faulty);
    let words = folder.path().join("f.bin").display().to_string();
    succeeds(&[&["asm", &faulty, "-o", &words][..], &layout].concat());
    let (status, found, _) = vta(&[&["check", &words][..], &layout].concat());
    let (_, expected, _) = vta(&["check", &faulty, "--config", &config]);
    assert_eq!((status, found.replace(&words, &faulty)), (1, expected));
    let wide = file(&folder, "b.asm", b"finish\ngemm uop_bgn=256\n");
    let tile = file(&folder, "d.json", br#"{"LOG_WGT_BUFF_SIZE": 8}"#);
    let bundle = folder.path().join("demo.vta").display().to_string();
    succeeds(&["compile", "demo", "-o", &bundle]);
    for (args, expected) in [
        (
            [&["asm", &wide, "-o", &binary][..], &layout].concat(),
            "uop_bgn is 256, but its 8-bit field holds at most 255",
        ),
        (
            vec!["disasm", &binary, "--layout", "original", "--config", &tile],
            "LOG_WGT_BUFF_SIZE gives a scratchpad of one element",
        ),
        (
            vec!["disasm", &binary, "--config", &config],
            "--layout original",
        ),
        ([&["disasm", &bundle][..], &layout].concat(), "is a bundle"),
        (
            [&["check", &bundle][..], &layout].concat(),
            "isn't raw instructions",
        ),
    ] {
        let (status, _, error) = vta(&args);
        assert!(status == 2 && error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(
        std::fs::read(&binary).unwrap(),
        bytes,
        "a failure leaves the file"
    );
}

#[test]
fn assembly_survives_the_way_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = "load.inp y_size=1 x_size=3 push_next\ngemm uop_end=1 iter_out=2 iter_in=1 pop_prev\nfinish\n";
    let source = file(&folder, "a.asm", text.as_bytes());
    let binary = folder.path().join("a.bin").display().to_string();
    succeeds(&["asm", &source, "-o", &binary]);
    let (_, listing, _) = vta(&["disasm", &binary]);
    let again = file(&folder, "b.asm", listing.as_bytes());
    let binary2 = folder.path().join("b.bin").display().to_string();
    succeeds(&["asm", &again, "-o", &binary2]);
    assert_eq!(
        std::fs::read(&binary).unwrap(),
        std::fs::read(&binary2).unwrap()
    );
    succeeds(&["check", &binary]);
    let bad = file(
        &folder,
        "c.asm",
        b"store sram_base=2048 y_size=1 x_size=1\nfinish",
    );
    let (status, out, _) = vta(&["check", &bad]);
    assert!(
        status == 1 && out.contains("sram_base reaches 2048"),
        "{out}"
    );
}

#[test]
fn hazards_are_found_in_streams_and_none_in_compiled_networks() {
    let folder = tempfile::tempdir().unwrap();
    let racy = file(
        &folder,
        "racy.asm",
        b"load.acc y_size=1 x_size=4 x_stride=4\nstore dram_base=64 y_size=1 x_size=4 x_stride=4 push_prev\nfinish pop_next\n",
    );
    succeeds(&["check", &racy]);
    let (status, out, _) = vta(&["check", &racy, "--hazards"]);
    assert_eq!(status, 1, "{out}");
    for part in [
        "acc tiles 0..4: instruction 0 (load.acc",
        "instruction 1 (store",
        "no chain of tokens orders them",
        "racy.asm: 1 hazard(s) in 3 instruction(s) of 1 run(s)",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (status, out, _) = vta(&["check", &racy, "--hazards", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, object["hazards_found"].as_u64()), (1, Some(1)));
    let hazard = &object["hazards"][0];
    assert_eq!(hazard["memory"], "acc");
    assert_eq!(hazard["ranges"], serde_json::json!([[0, 4]]));
    assert_eq!(hazard["second"]["module"], "store");
    let gemm = file(
        &folder,
        "gemm.asm",
        b"gemm uop_end=1 iter_out=1 iter_in=1\nfinish\n",
    );
    let (status, out, _) = vta(&["check", &gemm, "--hazards"]);
    assert!(
        status == 0 && out.contains("note: not checked: what 1 GEMM"),
        "{out}"
    );
    let dead = file(&folder, "dead.asm", b"finish pop_next\n");
    let (status, out, _) = vta(&["check", &dead, "--hazards"]);
    assert!(
        status == 1
            && out.contains("note: not checked for hazards: its tokens give no order")
            && out.matches("deadlock").count() == 1,
        "{out}"
    );
    let (status, out, _) = vta(&["check", "demo", "--hazards"]);
    assert!(
        status == 0 && out.contains("\ndemo: no fault found, no hazard in "),
        "{out}"
    );
    let bundle = folder.path().join("demo.vta").display().to_string();
    succeeds(&["compile", "demo", "-o", &bundle]);
    let (status, out, _) = vta(&["check", &bundle, "--hazards", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, object["hazards_found"].as_u64()), (0, Some(0)));
    assert!(object["insns"].as_u64() > Some(1000) && object["runs"] == 1);
}

#[test]
fn a_quantized_model_keeps_its_recipe() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("q.onnx").display().to_string();
    for mode in ["shift", "multiply"] {
        let calibration = "models/demo/cifar10_calib128.npz";
        let args = [
            "quantize",
            "models/demo/resnet20_f32.onnx",
            "--preprocess",
            "cifar10",
            "--mode",
            mode,
            "--limit",
            "64",
            "--calibration",
            calibration,
            "-o",
            &model,
        ];
        let (status, _, err) = vta(&args);
        assert_eq!(status, 0, "{err}");
        let images = "models/demo/cifar10_test200.npz";
        let (status, out, err) = vta(&["run", &model, "--input", images, "--json"]);
        assert!(status == 0 && err.is_empty(), "{err}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        // The float network has 93.0 %.
        let least = if mode == "shift" { 0.92 } else { 0.925 };
        assert!(
            json["top1"].as_f64().unwrap() >= least,
            "{mode}: {}",
            json["top1"]
        );
    }
}

#[test]
fn bad_input_gets_one_message_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let text = file(&folder, "text.png", b"no image");
    let png = std::fs::read(root().join("models/demo/cat.png")).unwrap();
    let cut = file(&folder, "cut.png", &png[..png.len() / 2]);
    let onnx = file(&folder, "bad.onnx", b"\x08\x07\x12\xff\xff");
    let config = file(&folder, "config.json", br#"{"LOG_BLOK": 4}"#);
    let deep = file(&folder, "deep.json", br#"{"LOG_INP_BUFF_SIZE": 20}"#);
    let bundle = file(&folder, "bad.vta", b"VTAPROG\n\x01\0\0\0");
    let binary = file(&folder, "odd.bin", &[0; 17]);
    let asm = file(&folder, "a.asm", b"finish\nload.inp x_size=70000");
    let npy = file(&folder, "x.npy", b"junk");
    let cat = "models/demo/cat.png";
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let empty = empty.display().to_string();
    let out = folder.path().join("o.bin").display().to_string();
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (
            vec!["run", "missing.onnx", "--input", cat],
            "missing.onnx: No such file",
        ),
        (
            vec!["run", "demo", "--input", &text],
            "text.png: not a readable png, jpeg, webp, bmp or tiff image",
        ),
        (
            vec!["run", "demo", "--input", &cut],
            "cut.png: not a readable png, jpeg, webp, bmp or tiff image",
        ),
        (
            vec!["run", "demo", "--input", &npy],
            "x.npy: not a .npy file",
        ),
        (vec!["run", &onnx, "--input", cat], "ONNX: not a model file"),
        (
            vec!["run", "demo", "--config", &config],
            "unknown field `LOG_BLOK`",
        ),
        (
            vec!["run", "demo", "--config", &deep],
            "LOG_INP_BUFF_SIZE = 20 gives a scratchpad of 65536 tiles",
        ),
        (
            vec!["exec", &bundle, "--input", cat],
            "bundle: header: bytes 0..24 of a file of 12 bytes",
        ),
        (
            vec!["layer", "conv:1,2,3"],
            "'conv:1,2,3' has 3 numbers, but 8 are needed",
        ),
        (
            vec!["layer", "conv:1,0,8,8,8,3,1,1"],
            "CI is '0', but it must be a whole number from 1",
        ),
        (
            vec!["layer", "conv:1,16,4,4,16,9,1,1"],
            "a kernel of 9 doesn't fit an input of 4x4 padded by 1",
        ),
        (
            vec!["layer", "conv:1,16,4,65536,16,1,1,0"],
            "65536 input columns; x_stride holds at most 65535",
        ),
        (
            vec!["run", "demo", "--device", "toaster"],
            "no device 'toaster' in this build",
        ),
        (
            vec!["run", "zoo:resnet19"],
            "no network 'resnet19' in the zoo (there are resnet18",
        ),
        (
            vec!["disasm", &binary],
            "17 bytes, not a multiple of the 16 bytes",
        ),
        (
            vec!["asm", &asm, "-o", &out],
            "line 2, column 10: '70000' is no number from 0 to 65535 for x_size",
        ),
        (vec!["replay", &empty], "no recorded run here"),
        (
            vec!["compile", "demo", "--dump-after", "nothing"],
            "there is no pass 'nothing'",
        ),
    ];
    for (args, expected) in cases {
        let (status, _, err) = vta(&args);
        assert!(
            err.contains(expected) && err.starts_with("error: "),
            "{args:?}: {err}"
        );
        assert_eq!(
            (status, err.trim_end().lines().count()),
            (2, 1),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn every_command_has_help() {
    let (status, out, _) = vta(&["--help"]);
    assert!(status == 0 && out.contains("Start with: vta run demo"));
    for command in [
        "run",
        "layer",
        "quantize",
        "compile",
        "exec",
        "replay",
        "asm",
        "disasm",
        "check",
        "sweep",
        "merge",
        "tune",
        "bench",
        "devices",
        "models",
        "completions",
    ] {
        assert!(out.contains(command), "{command}");
        let (status, help, _) = vta(&[command, "--help"]);
        assert!(status == 0 && help.contains("Usage: vta"), "{command}");
    }
    let (status, script, _) = vta(&["completions", "bash"]);
    assert!(status == 0 && script.contains("vta__"), "bash completions");
}

#[test]
fn devices_share_a_network_and_runs_overlap() {
    let folder = TempDir::new().unwrap();
    let rules = file(&folder, "rules.toml", b"\"layers.1.*\" = \"oracle\"\n");
    let run = |more: &[&str]| {
        let args = ["run", "demo", "--threads", "1", "--json"];
        let (status, out, error) = vta(&[&args[..], more].concat());
        assert_eq!(status, 0, "{error}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let alone = run(&[]);
    let both = run(&["--device", "sim,oracle", "--placement", &rules, "--verify"]);
    assert_eq!(both["outputs"], alone["outputs"]);
    assert_eq!(both["mismatches"], serde_json::json!([]));
    let reasons = &both["flush_reasons"];
    assert_eq!(reasons["next_layer_elsewhere"], 20);
    assert_eq!(reasons["host_read"], 10);
    let both_flying = run(&[
        "--device",
        "sim,oracle",
        "--placement",
        &rules,
        "--batch",
        "3",
    ]);
    assert_eq!(both_flying["outputs"], alone["outputs"]);
    let flying = run(&["--batch", "3"]);
    assert_eq!(flying["outputs"], alone["outputs"]);
    assert_eq!(flying["flush_reasons"], alone["flush_reasons"]);
    assert_eq!(flying["encoded_batches"], 2);
}

#[test]
fn impossible_placements_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let rules = file(&folder, "rules.toml", b"fc = \"fpga\"\n");
    for (args, says) in [
        (&["--device", "sim,sim"][..], "--device names sim twice"),
        (
            &["--placement", &rules],
            "\"fc\" = \"fpga\", but the devices are sim",
        ),
        (&["--batch", "0"], "--batch must be at least 1"),
        (&["--device", "sim,toaster"], "no device 'toaster'"),
        (&["--device", "board:"], "--device board:NAME names a board"),
        (
            &["--device", "board:pinq"],
            "no board 'pinq' (there are pynq, de10",
        ),
        (&["--device", "board:gone.toml"], "gone.toml: can't be read"),
        // The preset's machine is that of the board, which has no MUL.
        (&["--device", "board:pynq"], "this machine has no MUL"),
    ] {
        let (status, _, error) = vta(&[&["run", "demo"], args].concat());
        assert_ne!(status, 0, "{args:?}");
        assert!(error.contains(says), "{error}");
    }
}

/// On the device that CI has; elsewhere only that its absence is said.
#[test]
fn opencl_counts_its_launches_and_is_measured() {
    let (status, out, error) = vta(&["run", "demo", "--device", "opencl:pocl", "--json"]);
    if error.contains("no OpenCL device matches") || error.contains("OpenCL") && status == 2 {
        assert!(std::env::var_os("CI").is_none(), "{error}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
        return;
    }
    assert_eq!(status, 0, "{error}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let counted = &json["device_counters"]["opencl:pocl:0"];
    let count = |key: &str| counted[key].as_u64().unwrap();
    assert_eq!((count("batches"), count("stalls")), (10, 0));
    assert!(count("launches") >= 10 && count("launches") % 10 == 0);
    assert!(count("copies") >= 20 && count("waits") >= 30);
    assert!(count("bytes_to_device") > count("bytes_from_device"));
    let planning = json["start"]["planning_ms"].as_f64().unwrap();
    assert!(count("plans") >= 1 && planning > 0.0, "{}", json["start"]);

    let bench = |more: &[&str]| {
        let first = [
            "bench",
            "--model",
            "demo",
            "--samples",
            "1",
            "--instructions",
            "300",
        ];
        vta(&[&first, more].concat())
    };
    let (status, out, error) = bench(&["--device", "opencl:pocl", "--json"]);
    assert_eq!(status, 0, "{error}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let row = &json["opencl"][0];
    let at = |pointer: &str| row.pointer(pointer).and_then(|v| v.as_f64()).unwrap();
    assert_eq!(
        (at("/whole/0/submissions"), at("/whole/0/ratio")),
        (1.0, 1.0)
    );
    let layers = at("/whole/1/submissions");
    assert!(layers > 20.0 && at("/whole/1/batches") == layers);
    assert!(at("/part/layers") >= 1.0 && at("/part/ways/1/submissions") > 1.0);
    assert!(at("/part/ways/1/waits") > at("/part/ways/0/waits"));
    assert!(at("/two_in_flight") > 0.0 && at("/kernel_share") > 0.0);
    assert_eq!(row["mismatches"], serde_json::json!([]));

    let (status, out, _) = bench(&["--device", "opencl:pocl", "--batch", "4"]);
    assert!(status == 0 && out.contains("4 images a run"), "{out}");
    let (status, _, error) = bench(&["--device", "opencl:pocl", "--batch", "3"]);
    assert!(status == 2 && error.contains("power of two"), "{error}");
    let (status, _, error) = bench(&["--device", "sim"]);
    assert!(
        status == 2 && error.contains("OpenCL devices are measured"),
        "{error}"
    );

    let split = ["--device", "opencl:pocl,sim", "--batch", "3"];
    let (status, out, error) = vta(&[&["run", "demo"][..], &split].concat());
    assert_eq!(status, 0, "{error}");
    assert!(
        out.contains("10 of 10 right") && out.contains("launches"),
        "{out}"
    );
}

#[test]
fn a_cause_is_told_once() {
    let folder = TempDir::new().unwrap();
    let cache = file(&folder, "cache.json", b"{\"LOG_BATCH\": 1}");
    let (status, _, error) = vta(&["tune", "conv:1,16,4,4,16,1,1,0", "-o", &cache]);
    assert_eq!(status, 2);
    assert_eq!(error.matches("unknown field").count(), 1, "{error}");
}
