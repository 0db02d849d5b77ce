//! What the host computes around a network: inputs of any kind, outputs that aren't rounded.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../compiler/tests/common/builder.rs"]
#[expect(
    dead_code,
    reason = "others have convolutions and inputs without a name"
)]
mod builder;

use std::path::Path;

use builder::Builder;
use vta_app::options::{QuantizeOptions, RunOptions};
use vta_app::run::run;
use vta_app::{Error, Feed, Model, Outputs, Session, Target, Values, quantize};
use vta_compiler::engine::{self, Engine, Lent, Tensor};
use vta_compiler::graph::{Data, Element, Graph, OnnxAttribute, Op, ValueId};
use vta_compiler::onnx;

/// Values of some images, steps of a quarter between -8 and 8.
fn reals(count: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 37 + seed * 11) % 65) as f32 / 4.0 - 8.0;
    (0..count).map(value).collect()
}

fn target(allow_host: bool) -> Target {
    Target {
        allow_host,
        ..Target::default()
    }
}

/// A graph as the whole file's engine computes it, for an image.
fn expected(graph: &Graph, inputs: &[(&str, Tensor)]) -> Vec<Data> {
    let bytes = engine::model(graph, &graph.outputs);
    let inputs: Vec<Lent<'_>> = inputs.iter().map(|(n, x)| Lent::of(n, x)).collect();
    let names = graph.outputs.iter().map(|id| &graph.values[id.0].name[..]);
    let names: Vec<&str> = names.collect();
    let made = Engine::new(&bytes).unwrap().run(&inputs, &names).unwrap();
    made.into_iter().map(|tensor| tensor.data).collect()
}

/// What a session gives, compiled here and from a bundle: the same.
fn found(graph: &Graph, feeds: &[Feed<'_>], images: usize) -> Outputs {
    let bytes = onnx::save(graph);
    let model = || Model::from_onnx("net.onnx", &bytes).unwrap();
    let mut session = Session::verifying(model(), &target(true), &()).unwrap();
    let found = session.run(feeds, &()).unwrap();
    assert!(found.mismatches.is_empty(), "{:?}", found.mismatches);
    assert!(found.outputs.iter().all(|output| output.images == images));
    let bundle = model()
        .compile(&target(true), &())
        .unwrap()
        .to_bundle()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    std::fs::write(&path, bundle).unwrap();
    let again = Model::open(path.to_str().unwrap()).unwrap();
    let mut session = Session::open(again, &Target::default(), &()).unwrap();
    assert_eq!(session.run(feeds, &()).unwrap().outputs, found.outputs);
    found
}

fn real<'a>(name: &'a str, values: &'a [f32]) -> Feed<'a> {
    Feed {
        name,
        values: Values::Real(values.into()),
    }
}

/// `y = round(x) * w` by channel, in steps of a quarter.
fn pointwise(b: &mut Builder, x: ValueId, shape: &[usize]) -> ValueId {
    let x = b.rounded(x, 0.25);
    let y = b.push(Op::Relu, &[x], shape);
    b.rounded(y, 0.25)
}

#[test]
fn an_output_that_is_not_rounded_is_the_hosts() {
    let mut b = Builder::default();
    let shape = [1, 3, 2, 2];
    let x = b.named("x", &shape, Element::F32);
    let y = pointwise(&mut b, x, &shape);
    let raw = b.kept("Tanh", &[y], &shape, &[]);
    let axis = [
        ("axis", OnnxAttribute::Int(1)),
        ("keepdims", OnnxAttribute::Int(0)),
    ];
    let best = b.kept("ArgMax", &[y], &[1, 2, 2], &axis);
    b.0.values[best.0].element = Element::I64;
    let graph = b.finish(&[raw, y, best]);
    let values = reals(24, 1);
    let found = found(&graph, &[real("x", &values)], 2);
    assert_eq!(found.outputs[0].tensor.shape, [3, 2, 2]);
    assert_eq!(found.outputs[0].tensor.element, Element::F32);
    assert!(found.outputs[1].steps().is_some());
    assert_eq!(found.outputs[2].tensor.shape, [2, 2]);
    for (image, values) in values.chunks(12).enumerate() {
        let x = Tensor {
            shape: shape.to_vec(),
            data: Data::F32(values.to_vec()),
        };
        let expected = expected(&graph, &[("x", x)]);
        let Values::Real(tanh) = &found.outputs[0].values else {
            panic!("{:?}", found.outputs[0]);
        };
        assert_eq!(Data::F32(tanh[image * 12..][..12].to_vec()), expected[0]);
        let Values::Whole(best) = &found.outputs[2].values else {
            panic!("{:?}", found.outputs[2]);
        };
        let best: Vec<i32> = best[image * 4..][..4].iter().map(|&v| v as i32).collect();
        assert_eq!(Data::I32(best), expected[2]);
    }
}

#[test]
fn what_the_host_computes_around_a_network_is_asked_for() {
    let mut b = Builder::default();
    let shape = [1, 3, 2, 2];
    let x = b.named("x", &shape, Element::F32);
    let y = pointwise(&mut b, x, &shape);
    let raw = b.kept("Tanh", &[y], &shape, &[]);
    let bytes = onnx::save(&b.finish(&[raw]));
    let model = Model::from_onnx("net.onnx", &bytes).unwrap();
    let error = Session::open(model, &target(false), &()).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("1 Tanh; the first is"), "{text}");
    // What only rounds an input a second time is no operator of the model.
    let mut b = Builder::default();
    let x = b.named("x", &shape, Element::F32);
    let (fine, coarse) = (b.rounded(x, 0.25), b.rounded(x, 0.5));
    let sum = b.push(Op::Add, &[fine, coarse], &shape);
    let y = b.rounded(sum, 0.25);
    let bytes = onnx::save(&b.finish(&[y]));
    let model = Model::from_onnx("net.onnx", &bytes).unwrap();
    Session::open(model, &target(false), &()).unwrap();
}

#[test]
fn an_exit_reads_inputs_of_the_model() {
    let mut b = Builder::default();
    let shape = [1, 3, 2, 2];
    let x = b.named("x", &shape, Element::F32);
    let y = pointwise(&mut b, x, &shape);
    let sum = b.push(Op::Add, &[x, y], &shape);
    let graph = b.finish(&[sum]);
    // Steps of an eighth are lost in the tensors, and are there in the sum.
    let values: Vec<f32> = reals(36, 3).iter().map(|v| v / 2.0).collect();
    let found = found(&graph, &[real("x", &values)], 3);
    let mut all = Vec::new();
    for values in values.chunks(12) {
        let x = Tensor {
            shape: shape.to_vec(),
            data: Data::F32(values.to_vec()),
        };
        match expected(&graph, &[("x", x)]).remove(0) {
            Data::F32(values) => all.extend(values),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found.outputs[0].values, Values::Real(all.into()));
}

#[test]
fn two_inputs_lie_one_behind_the_other_whatever_their_order() {
    let shape = [1, 3, 2, 2];
    let mut b = Builder::default();
    let a = b.named("a", &shape, Element::F32);
    let c = b.named("c", &shape, Element::F32);
    // The second is read first.
    let (c, a) = (b.rounded(c, 0.25), b.rounded(a, 0.25));
    let c = b.push(Op::Relu, &[c], &shape);
    let c = b.rounded(c, 0.25);
    let sum = b.push(Op::Add, &[a, c], &shape);
    let sum = b.rounded(sum, 0.25);
    let graph = b.finish(&[sum]);
    let (left, right) = (reals(24, 1), reals(24, 5));
    let feeds = [real("c", &right), real("a", &left)];
    let found = found(&graph, &feeds, 2);
    let step = |v: f32| (v * 4.0).clamp(-128.0, 127.0);
    let expected = left
        .iter()
        .zip(&right)
        .map(|(a, c)| step(a + c.max(0.0)) as i16);
    assert_eq!(
        found.outputs[0].steps().unwrap(),
        expected.collect::<Vec<_>>()
    );

    let bytes = onnx::save(&graph);
    let model = Model::from_onnx("net.onnx", &bytes).unwrap();
    let mut session = Session::open(model, &Target::default(), &()).unwrap();
    let names: Vec<&str> = session.inputs().iter().map(|i| &*i.name).collect();
    assert_eq!(names, ["a", "c"]);
    let mut fails = |feeds: &[Feed<'_>]| -> String {
        let error = session.run(feeds, &()).unwrap_err();
        assert!(matches!(error, Error::Input { .. }), "{error:?}");
        error.to_string()
    };
    assert_eq!(fails(&feeds[..1]), "input 'a' isn't given");
    let feeds = [real("a", &left[..12]), real("c", &right)];
    let text = fails(&feeds);
    assert_eq!(text, "2 images of input 'c', but 1 of the first");
}

#[test]
fn whole_numbers_enter_through_the_host() {
    // Tokens, each a row of a table; and a picture of uint8 beside them.
    let mut b = Builder::default();
    let tokens = b.named("tokens", &[1, 4], Element::I64);
    let table: Vec<f32> = reals(40, 2);
    let table = b.value("table", &[10, 4], Some(Data::F32(table)));
    let rows = b.kept("Gather", &[table, tokens], &[1, 4, 4], &[]);
    let rows = b.rounded(rows, 0.25);
    let shown = b.push(Op::Relu, &[rows], &[1, 4, 4]);
    let y = b.rounded(shown, 0.25);
    let graph = b.finish(&[y]);
    let values = [3i64, 0, 9, 5, 1, 1, 2, 8];
    let feed = Feed {
        name: "tokens",
        values: Values::Whole((&values[..]).into()),
    };
    let found = found(&graph, &[feed], 2);
    for (image, values) in values.chunks(4).enumerate() {
        let tokens = Tensor {
            shape: vec![1, 4],
            data: Data::I64(values.to_vec()),
        };
        let Data::F32(expected) = expected(&graph, &[("tokens", tokens)]).remove(0) else {
            panic!("floats are expected");
        };
        let steps: Vec<i16> = expected.iter().map(|v| (v * 4.0) as i16).collect();
        assert_eq!(found.outputs[0].steps().unwrap()[image * 16..][..16], steps);
    }
    let bytes = onnx::save(&graph);
    let model = Model::from_onnx("net.onnx", &bytes).unwrap();
    let mut session = Session::open(model, &target(true), &()).unwrap();
    let floats = real("tokens", &[0.5; 4]);
    let error = session.run(&[floats], &()).unwrap_err().to_string();
    assert_eq!(error, "input 'tokens' takes int64");
    // The table has no such row: the engine says so, and nothing panics.
    let feed = Feed {
        name: "tokens",
        values: Values::Whole([0i64, 1, 2, 1 << 40][..].into()),
    };
    assert!(session.run(&[feed], &()).is_err());
}

#[test]
fn inputs_of_8_bits_are_tensors_as_they_are() {
    let shape = [1, 3, 2, 2];
    let mut b = Builder::default();
    let x = b.named("x", &shape, Element::U8);
    let scale = b.value("scale", &[], Some(Data::F32(vec![0.25])));
    let zero = b.value("zero", &[], Some(Data::U8(vec![120])));
    let real_x = b.push(Op::DequantizeLinear { axis: 1 }, &[x, scale, zero], &shape);
    let y = b.push(Op::Relu, &[real_x], &shape);
    let y = b.rounded(y, 0.25);
    let graph = b.finish(&[y]);
    let values = reals(12, 4);
    let found = found(&graph, &[real("x", &values)], 1);
    let expected = values.iter().map(|v| (v * 4.0).clamp(0.0, 127.0) as i16);
    assert_eq!(
        found.outputs[0].steps().unwrap(),
        expected.collect::<Vec<_>>()
    );
}

#[test]
fn inputs_that_the_host_would_read_in_the_middle_are_refused() {
    let shape = [1, 3, 2, 2];
    let mut b = Builder::default();
    let x = b.named("x", &shape, Element::F32);
    let mask = b.named("mask", &shape, Element::F32);
    let y = pointwise(&mut b, x, &shape);
    let power = b.kept("Pow", &[y, mask], &shape, &[]);
    let y = b.rounded(power, 0.25);
    let bytes = onnx::save(&b.finish(&[y]));
    let model = Model::from_onnx("net.onnx", &bytes).unwrap();
    let error = Session::open(model, &target(true), &()).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("input mask, which isn't quantised"), "{text}");
}

#[test]
fn damaged_ends_are_refused() {
    let shape = [1, 3, 2, 2];
    let mut b = Builder::default();
    let x = b.named("x", &shape, Element::F32);
    let y = pointwise(&mut b, x, &shape);
    let sum = b.push(Op::Add, &[x, y], &shape);
    let graph = b.finish(&[sum]);
    let network = vta_compiler::passes::quantized(&onnx::load(&onnx::save(&graph)).unwrap());
    let ends = network.unwrap().ends.unwrap();
    let bytes = ends.to_bytes().unwrap();
    let read = vta_compiler::host::Ends::from_bytes;
    assert_eq!(read(&bytes).unwrap(), *ends);
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut]).is_err(), "{cut}");
    }
    let image = Data::F32(reals(12, 1));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        if let Ok(ends) = read(&changed)
            && ends
                .inputs()
                .is_some_and(|i| i.iter().all(|p| p.shape == shape))
            && ends.fits(&[12], &[12])
        {
            // It gives what it says or an error.
            if let Ok(int8) = ends.enter(vec![image.clone()]) {
                assert_eq!(int8.len(), 12);
                let _ = ends.leave(&[&int8], std::slice::from_ref(&image));
            }
        }
    }
}

/// Writes an array of float32.
fn write_npy(path: &Path, shape: &str, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_array(path, "<f4", shape, &bytes);
}

fn write_array(path: &Path, kind: &str, shape: &str, data: &[u8]) {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (10 + header.len()) % 64 != 63 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn files_are_given_to_inputs_by_name() {
    let mut b = Builder::default();
    let row = b.named("row", &[1, 3, 4], Element::F32);
    let map = b.named("map", &[1, 3, 1, 4], Element::F32);
    let row = b.rounded(row, 0.25);
    let map = b.rounded(map, 0.25);
    let shape = [1, 3, 1, 4];
    let to = b.value("to", &[4], Some(Data::I64(vec![1, 3, 1, 4])));
    let row = b.kept("Reshape", &[row, to], &shape, &[]);
    let row = b.rounded(row, 0.25);
    let sum = b.push(Op::Add, &[row, map], &shape);
    let y = b.rounded(sum, 0.25);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("net.onnx"), onnx::save(&b.finish(&[y]))).unwrap();
    let (rows, maps) = (reals(24, 2), reals(24, 3));
    // Rank 3 is two images here, and an image of three channels where it is the network's own shape.
    write_npy(&path("rows.npy"), "2, 3, 4", &rows);
    write_npy(&path("maps.npy"), "2, 3, 1, 4", &maps);
    write_npy(&path("one.npy"), "3, 4", &rows[..12]);
    let run = |files: &[&str]| {
        let mut options = RunOptions::new(path("net.onnx").to_str().unwrap());
        let input = files.iter().map(|file| match file.split_once('=') {
            Some((name, file)) => format!("{name}={}", path(file).display()).into(),
            None => path(file),
        });
        options.input = input.collect();
        options.output = Some(path("found.npz"));
        options.target = target(true);
        run(&options, &()).map(|outcome| outcome.images)
    };
    let images = run(&["map=maps.npy", "row=rows.npy"]).unwrap();
    assert_eq!(images.len(), 2);
    for (at, image) in images.iter().enumerate() {
        let sums = rows.iter().zip(&maps).skip(at * 12).take(12);
        let sums: Vec<f32> = sums.map(|(a, b)| (a + b).clamp(-32.0, 31.75)).collect();
        assert_eq!(image.outputs[0], sums);
    }
    let fails = |files: &[&str]| run(files).err().unwrap().to_string();
    let text = fails(&["rows.npy"]);
    assert!(
        text.starts_with("the network has 2 inputs (row, map)"),
        "{text}"
    );
    let text = fails(&["row=rows.npy"]);
    assert!(text.starts_with("input 'map' isn't given"), "{text}");
    let text = fails(&["row=one.npy", "map=maps.npy"]);
    assert_eq!(text, "1 images of input 'row', but 2 of 'map'");
    let text = fails(&["row=rows.npy", "map=maps.npy", "row=gone.npy"]);
    assert!(text.contains("gone.npy"), "{text}");
}

#[test]
fn a_float_network_of_several_inputs_is_quantized() {
    let mut b = Builder::default();
    let map = b.named("map", &[1, 4, 1, 4], Element::F32);
    let tokens = b.named("tokens", &[1, 4], Element::I64);
    let table: Vec<f32> = reals(40, 2);
    let table = b.value("table", &[10, 4], Some(Data::F32(table)));
    let rows = b.kept("Gather", &[table, tokens], &[1, 4, 4], &[]);
    let to = b.value("to", &[4], Some(Data::I64(vec![1, 4, 1, 4])));
    let shape = [1, 4, 1, 4];
    let rows = b.kept("Reshape", &[rows, to], &shape, &[]);
    let sum = b.push(Op::Add, &[map, rows], &shape);
    let y = b.push(Op::Relu, &[sum], &shape);
    let graph = b.finish(&[y]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("net.onnx"), onnx::save(&graph)).unwrap();
    let maps = reals(48, 3);
    let words: Vec<i64> = (0..12).map(|i| i * 7 % 10).collect();
    write_npy(&path("maps.npy"), "3, 4, 1, 4", &maps);
    let bytes: Vec<u8> = words.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_array(&path("tokens.npy"), "<i8", "3, 4", &bytes);
    let given = |name: &str, file: &str| format!("{name}={}", path(file).display()).into();
    let files = [given("tokens", "tokens.npy"), given("map", "maps.npy")];
    let mut options = QuantizeOptions::new(path("net.onnx"), "");
    options.calibration = files[..1].to_vec();
    let error = quantize::quantize(&options, &()).err().unwrap().to_string();
    assert!(error.contains("input 'map' isn't given"), "{error}");
    options.calibration = files.to_vec();
    let quantized = quantize::quantize(&options, &()).unwrap();
    assert_eq!(quantized.images, 3);
    let model = Model::from_onnx("net.onnx", &quantized.onnx).unwrap();
    let mut session = Session::verifying(model, &target(true), &()).unwrap();
    let tokens = Feed {
        name: "tokens",
        values: Values::Whole((&words[..]).into()),
    };
    let found = session.run(&[tokens, real("map", &maps)], &()).unwrap();
    assert!(found.mismatches.is_empty());
    let step = found.outputs[0].tensor.scale.unwrap();
    for (image, out) in found.outputs[0].real().chunks(16).enumerate() {
        let map = Tensor {
            shape: shape.to_vec(),
            data: Data::F32(maps[image * 16..][..16].to_vec()),
        };
        let tokens = Tensor {
            shape: vec![1, 4],
            data: Data::I64(words[image * 4..][..4].to_vec()),
        };
        let expected = expected(&graph, &[("map", map), ("tokens", tokens)]).remove(0);
        let Data::F32(expected) = expected else {
            panic!("{expected:?}");
        };
        let far = |(a, b): (&f32, &f32)| (a - b).abs() / step;
        let far = out.iter().zip(&expected).map(far).fold(0f32, f32::max);
        assert!(far < 2.5, "{far} steps");
    }
    // A run quantises with its own images, too.
    let mut options = RunOptions::new(path("net.onnx").to_str().unwrap());
    options.input = files.to_vec();
    options.output = Some(path("found.npz"));
    options.target = target(true);
    let outcome = run(&options, &()).unwrap();
    assert_eq!(outcome.images[2].outputs[0], found.outputs[0].real()[32..]);
}
