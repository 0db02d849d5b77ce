//! Models with operators that no device has, as a user meets them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;
use vta_compiler::graph::{Data, Graph, Node, OnnxOp, Op, Value, ValueId};
use vta_compiler::onnx;
use vta_compiler::qgraph::Window;
use vta_compiler::quantize::{self, Mode};

fn vta(folder: &TempDir, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("vta").unwrap();
    let output = command
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// An operator that no device has.
fn host(kind: &'static str) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, 1, Vec::new())))
}

/// A convolution and two operators that no device has, twice.
fn model() -> Graph {
    let mut graph = Graph::default();
    let value = |graph: &mut Graph, name: &str, shape: &[usize], data| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let shape = [1, 3, 6, 6];
    let mut x = value(&mut graph, "image", &shape, None);
    graph.inputs.push(x);
    for i in 0..2 {
        let weight = |k: usize| (k * 37 % 29) as f32 / 29.0 - 0.5;
        let data = Data::F32((0..81).map(weight).collect());
        let weights = value(&mut graph, &format!("w{i}"), &[3, 3, 3, 3], Some(data));
        let window = Window {
            kernel: [3, 3],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [1; 4].into(),
        };
        let node = |graph: &mut Graph, name: &str, op, inputs| {
            let name = format!("{name}{i}");
            let output = value(graph, &format!("{name}.out"), &shape, None);
            graph.nodes.push(Node {
                name,
                op,
                inputs,
                output,
            });
            output
        };
        let conv = Op::Conv { window, group: 1 };
        let sum = node(&mut graph, "conv", conv, vec![x, weights]);
        let gate = node(&mut graph, "gate", host("Sigmoid"), vec![sum]);
        x = node(&mut graph, "curve", host("Tanh"), vec![gate]);
    }
    graph.outputs.push(x);
    graph
}

fn image(n: usize) -> Vec<f32> {
    (0..108)
        .map(|i| ((i * (31 + n)) % 255) as f32 / 90.0 - 1.4)
        .collect()
}

/// The model, quantised and float, and an image for it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let float = model();
    write("float.onnx", &onnx::save(&float));
    let quantized = quantize::quantize(&float, &[image(0), image(1)], Mode::Multiply).unwrap();
    write("model.onnx", &onnx::save(&quantized));
    write("unknown.onnx", &renamed(&onnx::save(&quantized)));
    npy(&folder.path().join("image.npy"), &image(2));
    folder
}

/// The same model with an operator that doesn't exist.
fn renamed(bytes: &[u8]) -> Vec<u8> {
    let (from, to) = (b"\x22\x07Sigmoid", b"\x22\x07Sigmold");
    let mut bytes = bytes.to_vec();
    let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

fn npy(path: &Path, values: &[f32]) {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 6, 6), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&118u16.to_le_bytes());
    bytes.extend(format!("{text:<117}\n").bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

fn json(folder: &TempDir, args: &[&str]) -> serde_json::Value {
    let run = [
        "run",
        "model.onnx",
        "--input",
        "image.npy",
        "--allow-host",
        "--json",
    ];
    let (status, out, error) = vta(folder, &[&run[..], args].concat());
    assert_eq!(status, 0, "{error}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn an_operator_that_only_the_host_has_is_refused_by_name() {
    let folder = folder();
    let says = "error: model.onnx: the device has no operator for 4 of the nodes (2 Sigmoid, 2 Tanh; \
                the first is gate0); --allow-host lets the host compute them, vta check lists \
                them\n";
    for args in [
        &["run", "model.onnx", "--input", "image.npy"][..],
        &["compile", "model.onnx", "-o", "model.vta"],
    ] {
        let (status, _, error) = vta(&folder, args);
        assert!(status == 2 && error.ends_with(says), "{error}");
    }
}

#[test]
fn an_operator_that_nothing_has_is_refused_without_that_advice() {
    let folder = folder();
    for flag in [&[][..], &["--allow-host"]] {
        let args = [&["run", "unknown.onnx", "--input", "image.npy"], flag].concat();
        let (status, _, error) = vta(&folder, &args);
        let says = "error: unknown.onnx: ONNX node gate0 (Sigmold): neither the device nor the \
                    host has this operator: cut the model before it\n";
        assert_eq!((status, &error[..]), (2, says));
    }
}

/// Of a float model the verdicts are those of the quantised one.
#[test]
fn a_network_is_judged_before_and_after_calibration() {
    let folder = folder();
    let table = "node    operator  output   MACs  runs on\n\
                 conv0   Conv      1x3x6x6  2916  device\n\
                 gate0   Sigmoid   1x3x6x6        host [1]\n\
                 curve0  Tanh      1x3x6x6        host [1]\n";
    let mut judged = Vec::new();
    for model in ["model.onnx", "float.onnx"] {
        let (status, out, error) = vta(&folder, &["check", model]);
        assert_eq!((status, &error[..]), (0, ""));
        assert!(out.starts_with(table), "{out}");
        assert!(
            out.contains("\n[1] the device has no such operator\n"),
            "{out}"
        );
        assert!(
            out.contains("\n6 nodes: 2 on the device, 4 on the host\n"),
            "{out}"
        );
        assert!(
            out.contains("5832 of 5832 multiply-adds on the device (100.0 %)"),
            "{out}"
        );
        assert!(
            out.contains("the host computes in 2 segments, where --allow-host lets it"),
            "{out}"
        );
        assert!(
            out.ends_with(&format!("{model}: no fault found\n")),
            "{out}"
        );
        let (_, out, _) = vta(&folder, &["check", model, "--json"]);
        let object: serde_json::Value = serde_json::from_str(&out).unwrap();
        judged.push(object["network"].clone());
    }
    let [model, float] = &judged[..] else {
        panic!("two models");
    };
    for key in ["nodes", "macs", "host_segments", "host"] {
        assert_eq!(model[key], float[key], "{key}");
    }
    assert_eq!(
        (&model["float"], &float["float"]),
        (&false.into(), &true.into())
    );
    assert_eq!(model["nodes"][1]["why"], "the device has no such operator");
    assert_eq!(model["device_macs"], model["macs"]);
}

#[test]
fn a_network_that_is_refused_is_judged_as_far_as_it_goes() {
    let folder = folder();
    let (status, out, _) = vta(&folder, &["check", "unknown.onnx"]);
    assert_eq!(status, 1);
    assert!(out.contains("refused [1]"), "{out}");
    assert!(
        out.contains("[1] neither the device nor the host has this operator: cut")
            && out.contains("the rest can be used: end the model at conv0"),
        "{out}"
    );
    assert!(
        out.ends_with("unknown.onnx: it can't be compiled\n"),
        "{out}"
    );
    let (status, out, _) = vta(&folder, &["check", "unknown.onnx", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    let network = &object["network"];
    assert_eq!((status, &network["refused_nodes"]), (1, &1.into()));
    let nodes = network["nodes"].as_array().unwrap();
    let places = nodes.iter().map(|node| &node["runs_on"]);
    assert_eq!(places.collect::<Vec<_>>(), ["device", "refused"]);
    assert_eq!(network["ends"].as_array().unwrap().len(), 1);
}

#[test]
fn what_the_host_takes_is_told() {
    let folder = folder();
    let run = ["run", "model.onnx", "--input", "image.npy", "--allow-host"];
    let (status, out, error) = vta(&folder, &[&run[..], &["--profile"]].concat());
    assert_eq!(status, 0, "{error}");
    // 108 values lie in 36 tiles of 16 bytes.
    for says in [
        "on the host  nodes  operators",
        "curve0           2  Sigmoid, Tanh",
        // What they give at the end stays a float.
        "4 operators on the host, in 2 of 3 layers: 576 B read for each pass, 576 B written",
    ] {
        assert!(out.replace("\n  ", " ").contains(says), "{says}: {out}");
    }
    let found = json(&folder, &[]);
    let host = &found["host"];
    assert_eq!(
        (&host["ops"], &host["bytes_read"]),
        (&4.into(), &576.into())
    );
    assert_eq!(found["layers"][1]["host"]["ops"], 2);
    assert!(host.get("estimate_ms").is_none(), "it was measured: {host}");
    std::fs::write(folder.path().join("speed.toml"), "layer_us = 500000").unwrap();
    let cycle = [
        "--device",
        "cycle",
        "--timing-only",
        "--host-speed",
        "speed.toml",
    ];
    let found = json(&folder, &cycle);
    // Each layer takes half a second, whatever it computes.
    let [pass, all] = ["pass_ms", "pass_with_host_ms"].map(|key| found[key].as_f64().unwrap());
    assert!((1000.0..1001.0).contains(&(all - pass)), "{pass} {all}");
    assert_eq!(found["host"]["assumed"]["layer_us"], 5e5);
    let report = [&cycle[..], &["--report", "r.html"]].concat();
    let (status, out, error) = vta(&folder, &[&run[..], &report].concat());
    assert_eq!(status, 0, "{error}");
    assert!(
        out.contains("with the host about 1000.") && out.contains(" 1.0 images a"),
        "{out}"
    );
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    for says in [
        "On the host",
        "\u{2248} 1000.",
        "about 1.0 images a second",
        "Sigmoid, Tanh",
    ] {
        assert!(page.contains(says), "{says}");
    }
    let (status, _, error) = vta(
        &folder,
        &[&run[..], &["--host-speed", "speed.toml"]].concat(),
    );
    assert_eq!(status, 2);
    assert!(
        error.contains("--host-speed needs --device cycle"),
        "{error}"
    );
}

#[test]
fn the_host_computes_what_it_is_allowed_to() {
    let folder = folder();
    let found = json(&folder, &["--verify", "--hazards"]);
    assert_eq!(
        (&found["host_ops"], &found["submissions"]),
        (&4.into(), &2.into())
    );
    let reasons = &found["flush_reasons"];
    assert_eq!(
        (&reasons["next_layer_elsewhere"], &reasons["host_read"]),
        (&1.into(), &1.into())
    );
    assert_eq!(found["mismatches"], serde_json::json!([]));
    assert_eq!(found["hazards"], serde_json::json!([]));
    let kinds = found["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["kind"].clone());
    let kinds: Vec<_> = kinds.collect();
    let pair = ["conv", "host Sigmoid, Tanh"];
    assert_eq!(kinds, [pair[0], pair[1], pair[0]]);
    assert_eq!(found["host_segments"], 2);
    for device in [
        &["--device", "oracle"][..],
        &["--device", "cycle", "--verify"],
    ] {
        assert_eq!(json(&folder, device)["outputs"], found["outputs"]);
    }
    let timed = json(&folder, &["--device", "cycle", "--timing-only"]);
    assert!(
        timed["cycles"].as_u64() > Some(0) && timed["host_ops"] == 4,
        "{timed}"
    );
}

#[test]
fn a_bundle_holds_the_layers_of_the_host() {
    let folder = folder();
    let compile = ["compile", "model.onnx", "-o", "model.vta"];
    let (status, _, error) = vta(&folder, &compile);
    assert!(
        status == 2 && error.contains("the first is gate0"),
        "{error}"
    );
    assert!(!folder.path().join("model.vta").exists());
    let (status, out, error) = vta(&folder, &[&compile[..], &["--allow-host"]].concat());
    assert_eq!(status, 0, "{error}");
    assert!(
        out.contains("2 layers and 4 operators of the host"),
        "{out}"
    );
    let expected = json(&folder, &[]);
    let run = ["run", "model.vta", "--input", "image.npy"];
    for device in [&[][..], &["--device", "cycle"], &["--allow-host"]] {
        let (status, out, error) = vta(&folder, &[&run[..], &["--json"], device].concat());
        assert_eq!(status, 0, "{error}");
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["outputs"], expected["outputs"]);
        assert_eq!(found["host_ops"], 4);
        let described = |run: &serde_json::Value| -> Vec<[serde_json::Value; 2]> {
            let layers = run["layers"].as_array().unwrap().iter();
            let layers = layers.map(|l| ["name", "nodes"].map(|key| l[key].clone()));
            layers.collect()
        };
        assert_eq!(described(&found), described(&expected));
        // The host's layers and the device's, each with attributes and shapes.
        for layer in found["layers"].as_array().unwrap() {
            let node = &layer["nodes"][0];
            assert!(!node["attributes"].as_array().unwrap().is_empty(), "{node}");
            assert!(
                !node["output"]["shape"].as_array().unwrap().is_empty(),
                "{node}"
            );
        }
    }
    for tool in [
        &["check", "model.vta", "--hazards"][..],
        &["disasm", "model.vta"],
    ] {
        let (status, out, error) = vta(&folder, tool);
        assert_eq!(status, 0, "{out}{error}");
    }
    for (flag, says) in [
        (&["--verify"][..], "--verify needs the model"),
        (
            &["--device", "sim,oracle"],
            "several devices need the model",
        ),
    ] {
        let (status, _, error) = vta(&folder, &[&run[..], flag].concat());
        assert!(status == 2 && error.contains(says), "{error}");
    }
    // A network that needs no host is a program alone, as without the flag.
    let bundle = |name: &str, flag: &[&str]| {
        let args = ["compile", "demo", "-o", name];
        let (status, _, error) = vta(&folder, &[&args[..], flag].concat());
        assert_eq!(status, 0, "{error}");
        std::fs::read(folder.path().join(name)).unwrap()
    };
    assert_eq!(bundle("a.vta", &[]), bundle("b.vta", &["--allow-host"]));
}

#[test]
fn a_float_model_is_quantized_on_the_way() {
    let folder = folder();
    let args = [
        "run",
        "float.onnx",
        "--input",
        "image.npy",
        "--allow-host",
        "--verify",
    ];
    let (status, out, error) = vta(&folder, &args);
    assert_eq!(status, 0, "{error}");
    assert!(
        out.contains("4 operators on the host, in 2 of 3 layers") && out.contains("bit for bit"),
        "{out}"
    );
}

#[test]
fn a_softmax_at_the_end_is_the_confidence() {
    let folder = folder();
    let mut float = model();
    // The outputs are too much alike.
    let last = float.values.iter().position(|v| v.name == "conv0.out");
    let (last, shape) = (ValueId(last.unwrap()), [1, 108]);
    for (i, (name, op)) in [("flat", Op::Flatten), ("softmax", host("Softmax"))]
        .into_iter()
        .enumerate()
    {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let output = ValueId(float.values.len());
        float
            .values
            .push(Value::new(format!("{name}.out"), shape, None));
        let input = if i == 0 { last } else { ValueId(output.0 - 1) };
        float.nodes.push(Node {
            name,
            op,
            inputs: vec![input],
            output,
        });
        float.outputs = vec![output];
    }
    let bytes = onnx::save(&float);
    std::fs::write(folder.path().join("softmax.onnx"), bytes).unwrap();
    let args = [
        "run",
        "softmax.onnx",
        "--input",
        "image.npy",
        "--allow-host",
        "--verify",
    ];
    let run = [&args[..], &["--json", "--top", "108"]].concat();
    let (status, out, error) = vta(&folder, &run);
    assert_eq!(status, 0, "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let top = found["outputs"][0]["top"].as_array().unwrap();
    let confidences = top.iter().map(|t| t["confidence"].as_f64().unwrap());
    let all: Vec<f64> = confidences.collect();
    let sum: f64 = all.iter().sum();
    // What the host gives at the end is no int8, and it isn't a Softmax of a Softmax.
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    assert!(all[0] > 4.0 / 108.0, "{all:?}");
}

#[test]
fn allowing_the_host_changes_nothing_for_networks_that_do_not_need_it() {
    let folder = folder();
    let (status, out, error) = vta(&folder, &["run", "demo", "--allow-host", "--json"]);
    assert_eq!(status, 0, "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found["host_ops"], &found["submissions"]),
        (&0.into(), &10.into())
    );
}

#[test]
fn runs_in_flight_share_the_host() {
    let folder = folder();
    let outputs = |batch: &str| {
        let image = ["--input", "image.npy"];
        let images = [image; 3].concat();
        let args = ["run", "model.onnx", "--threads", "1", "--allow-host"];
        let args = [&args[..], &images, &["--json", "--batch", batch]].concat();
        let (status, out, error) = vta(&folder, &args);
        assert_eq!(status, 0, "{error}");
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        found["outputs"].clone()
    };
    assert_eq!(outputs("2"), outputs("1"));
}
