//! The library's own promises: arrays in, arrays out, errors by cause.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/network.rs"]
#[expect(dead_code, reason = "its main function, which a test has no use for")]
mod network;

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use vta_app::device::Machine;
use vta_app::options::names::Said;
use vta_app::options::{QuantizeOptions, RunOptions};
use vta_app::run::{layer, run};
use vta_app::sweep::Tuner;
use vta_app::{Error, Feed, Model, Session, Target, Values, Watch, compile, quantize};
use vta_compiler::tune::Cache;

/// Values for some images of a network, different for each.
fn values(images: usize, len: usize) -> Vec<i16> {
    let value = |i: usize| i16::from((i * 37 + i / len * 11) as i8);
    (0..images * len).map(value).collect()
}

fn session(target: &Target) -> Session {
    Session::open(Model::open("demo").unwrap(), target, &()).unwrap()
}

fn feed<'a>(name: &'a str, values: &'a [i16]) -> Feed<'a> {
    Feed {
        name,
        values: Values::Steps(Cow::Borrowed(values)),
    }
}

#[test]
fn the_example_sees_a_cat() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let found = network::classify("demo", &demo.join("cat.png"));
    assert_eq!(found.unwrap(), ("cat".to_owned(), true));
}

#[test]
fn any_number_of_images_on_any_number_of_threads_is_the_same() {
    let mut one = session(&Target {
        threads: Some(1),
        ..Target::default()
    });
    let input = one.inputs()[0].clone();
    let all = values(5, input.len());
    let expected = one.run(&[feed(&input.name, &all)], &()).unwrap();
    let output = &expected.outputs[0];
    assert_eq!((output.images, output.tensor.len()), (5, 10));
    assert_eq!(output.steps().unwrap().len(), 50);
    for (threads, batch) in [(3, 1), (1, 2), (2, 3)] {
        let mut several = session(&Target {
            threads: Some(threads),
            batch: Some(batch),
            ..Target::default()
        });
        // Twice, with another number in between: devices stay or are opened anew.
        for images in [5, 1, 5] {
            let some = &all[..images * input.len()];
            let found = several.run(&[feed(&input.name, some)], &()).unwrap();
            let values = found.get(&output.tensor.name).unwrap().steps().unwrap();
            assert_eq!(
                *values,
                output.steps().unwrap()[..images * 10],
                "{threads} {batch}"
            );
        }
    }
    let real: Vec<f32> = all
        .iter()
        .map(|&v| f32::from(v) * input.scale.unwrap())
        .collect();
    let values = Values::Real(real.into());
    let found = one
        .run(
            &[Feed {
                name: &input.name,
                values,
            }],
            &(),
        )
        .unwrap();
    assert_eq!(found.outputs, expected.outputs);
}

#[test]
fn a_session_gives_what_a_run_of_its_images_gives() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = RunOptions::new("demo");
    options.output = Some(folder.path().join("logits.npy"));
    let outcome = run(&options, &()).unwrap();
    let mut session = session(&Target::default());
    let recipe = Model::open("demo").unwrap().preprocess().unwrap().unwrap();
    let input = session.inputs()[0].clone();
    let steps = |picture| {
        let real = recipe.apply(picture, [3, 32, 32]).unwrap();
        vta_app::open::to_steps(&real, input.scale.unwrap(), 0, input.numbers)
    };
    let pictures = vta_app::images::default_images("demo", [3, 32, 32]).unwrap();
    let steps: Vec<i16> = pictures.into_iter().flat_map(steps).collect();
    let feed = Feed {
        name: &input.name,
        values: Values::Steps(steps.into()),
    };
    let found = session.run(&[feed], &()).unwrap();
    let logits = outcome
        .images
        .iter()
        .flat_map(|image| image.outputs[0].clone());
    assert_eq!(found.outputs[0].real(), logits.collect::<Vec<f32>>());
    assert_eq!(outcome.correct(), Some((10, 10)));
}

#[test]
fn a_bundle_computes_what_its_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.vta");
    let compiled = Model::open("demo")
        .unwrap()
        .compile(&Target::default(), &())
        .unwrap();
    std::fs::write(&path, compiled.to_bundle().unwrap()).unwrap();
    let name = path.to_str().unwrap();
    let bundle = || Model::open(name).unwrap();
    assert!(bundle().is_compiled());
    let (mut of_bundle, mut of_model) = (
        Session::open(bundle(), &Target::default(), &()).unwrap(),
        session(&Target::default()),
    );
    let input = of_bundle.inputs()[0].clone();
    assert_eq!(of_model.inputs(), std::slice::from_ref(&input));
    assert_eq!(input.port.shape, [1, 3, 32, 32]);
    assert_eq!(of_model.outputs(), of_bundle.outputs());
    let output = &of_model.outputs()[0].port;
    assert_eq!(
        (&output.shape[..], output.image()),
        (&[1, 10][..], &[10][..])
    );
    let all = values(2, input.len());
    let [a, b] = [&mut of_bundle, &mut of_model]
        .map(|s| s.run(&[feed(&input.name, &all)], &()).unwrap().outputs);
    assert_eq!(a, b);
    let error = Session::verifying(bundle(), &Target::default(), &())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Usage(_)), "{error}");
}

#[test]
fn errors_are_split_by_cause_and_leave_a_session_usable() {
    let open = |name: &str| Model::open(name).err().unwrap();
    let error = open("demi");
    assert!(matches!(error, Error::Usage(_)), "{error:?}");
    let error = open("no/such.onnx");
    let named = |path: &Path| path == Path::new("no/such.onnx");
    assert!(
        matches!(&error, Error::Io { path, .. } if named(path)),
        "{error:?}"
    );
    let error = Model::from_onnx("x", b"text").err().unwrap();
    assert!(
        matches!(&error, Error::Model { at, .. } if at == "x"),
        "{error:?}"
    );

    let mut session = session(&Target::default());
    let input = session.inputs()[0].clone();
    let all = values(1, input.len());
    let mut fails = |name: &str, values: Values<'_>| {
        let error = session.run(&[Feed { name, values }], &()).unwrap_err();
        assert!(matches!(error, Error::Input { .. }), "{error:?}");
        error.to_string()
    };
    let text = fails("other", Values::Steps(all[..].into()));
    assert_eq!(text, format!("no input 'other' (there is {})", input.name));
    let text = fails(&input.name, Values::Steps(all[1..].into()));
    assert!(text.ends_with("3071 values; an image has 3072"), "{text}");
    let text = fails(&input.name, Values::Real(vec![f32::NAN; 3072].into()));
    assert!(text.ends_with("value 0: NaN"), "{text}");
    assert!(session.run(&[], &()).is_err());
    assert!(session.run(&[feed(&input.name, &all)], &()).is_ok());

    let no_device = Target::named("toaster");
    let opened = Session::open(Model::open("demo").unwrap(), &no_device, &());
    let error = opened.err().unwrap();
    assert!(matches!(error, Error::Usage(_)), "{error:?}");
}

/// Stops after so many images.
struct After(usize, AtomicUsize);

impl Watch for After {
    fn progress(&self, done: usize, _: usize) {
        self.1.store(done, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }

    fn note(&self, _: &Said) {}
}

#[test]
fn a_watch_stops_a_run_between_images() {
    let mut session = session(&Target {
        threads: Some(1),
        ..Target::default()
    });
    let input = session.inputs()[0].clone();
    let all = values(6, input.len());
    let watch = After(2, AtomicUsize::new(0));
    let error = session.run(&[feed(&input.name, &all)], &watch).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    assert_eq!(watch.1.into_inner(), 2);
    let found = session.run(&[feed(&input.name, &all)], &()).unwrap();
    assert_eq!(found.outputs[0].images, 6);
}

#[test]
fn a_report_has_every_layer() {
    let mut session = session(&Target::named("cycle"));
    let input = session.inputs()[0].clone();
    session
        .run(&[feed(&input.name, &values(1, input.len()))], &())
        .unwrap();
    let report = session.report().unwrap();
    let (cycles, bound) = (report.total().cycles, report.bound_cycles());
    assert!(cycles >= bound && bound > 0);
    let sum: u64 = report.layers.iter().map(|layer| layer.cycles).sum();
    assert_eq!(sum, cycles);
    let json = report.json();
    assert_eq!(json["cycles"], cycles);
    assert_eq!(
        json["layers"].as_array().unwrap().len(),
        report.program.layers.len()
    );
    assert!(report.html().contains("</html>"));
    assert!(json["energy_uj"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_target_is_data_that_travels_and_a_report_is_told_as_data() {
    let target = Target {
        threads: Some(2),
        ..Target::named("cycle")
    };
    let text = serde_json::to_string(&target).unwrap();
    assert_eq!(serde_json::from_str::<Target>(&text).unwrap(), target);
    // What isn't given is at its default, and what there isn't is an error.
    let short = r#"{"device": "cycle", "budget": {"steps": 5}, "threads": 2}"#;
    let mut short: Target = serde_json::from_str(short).unwrap();
    assert_eq!(short.budget.steps, 5);
    short.budget = target.budget;
    assert_eq!(short, target);
    assert!(serde_json::from_str::<Target>(r#"{"thread": 2}"#).is_err());

    let mut session = session(&short);
    let input = session.inputs()[0].clone();
    let image = values(1, input.len());
    session.run(&[feed(&input.name, &image)], &()).unwrap();
    let report = session.report().unwrap();
    let told = serde_json::to_value(&report).unwrap();
    assert_eq!(told["title"], "demo");
    assert_eq!(told["layers"], report.json()["layers"]);
}

#[test]
fn a_watch_stops_what_opens_a_session() {
    let watch = After(0, AtomicUsize::new(0));
    let demo = || Model::open("demo").unwrap();
    let target = Target::default();
    let error = Session::open(demo(), &target, &watch).err().unwrap();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    let error = demo().compile(&target, &watch).err().unwrap();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
}

#[test]
fn models_are_quantized_and_bundled_by_one_call_each() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let images = demo.join("cifar10_calib128.npz");
    let mut options = QuantizeOptions::new(demo.join("resnet20_f32.onnx"), images);
    options.limit = Some(6);
    let watch = After(usize::MAX, AtomicUsize::new(0));
    let quantized = quantize::quantize(&options, &watch).unwrap();
    // They are looked at a second time, with channels equalised; one is kept out, and compared with three of them.
    assert_eq!((quantized.images, watch.1.into_inner()), (5, 14));
    let stopped = quantize::quantize(&options, &After(0, AtomicUsize::new(0)));
    assert!(matches!(stopped, Err(Error::Cancelled)));

    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("q.onnx");
    std::fs::write(&model, &quantized.onnx).unwrap();
    let (name, options) = (model.to_str().unwrap(), Target::default());
    let made = compile::bundle(name, &options, &()).unwrap();
    let path = folder.path().join("q.vta");
    let size_bytes = made.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size_bytes);
    let bundle = Model::open(path.to_str().unwrap()).unwrap();
    let compiled = bundle.compile(&Target::default(), &());
    assert_eq!(compiled.unwrap().program.layers, made.program.layers);
    let stopped = compile::bundle(name, &options, &After(0, AtomicUsize::new(0)));
    assert!(matches!(stopped, Err(Error::Cancelled)));
}

#[test]
fn layers_are_run_and_planned_by_one_call() {
    let (name, target) = ("conv:2,16,8,8,16,3,1,1", Target::default());
    let watch = After(usize::MAX, AtomicUsize::new(0));
    let outcome = layer::run(name, 1, &target, &watch).unwrap();
    assert!(outcome.is_right() && outcome.passes == 2);
    assert_eq!(watch.1.into_inner(), 2);
    let plans = layer::plans(name, 1, &target).unwrap();
    assert!(plans.summary().contains("layer conv:2,16,8,8,16,3,1,1"));
    let stopped = layer::run(name, 1, &target, &After(0, AtomicUsize::new(0)));
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let session = session(&target);
    let plans = session.plans().unwrap();
    let json = plans.json();
    let batches = json["batches"].as_array().unwrap();
    assert!(batches.iter().all(|batch| batch["operations"].is_array()));
}

#[test]
fn errors_name_fields_and_not_the_options_of_a_command_line() {
    let demo = || Model::open("demo").unwrap();
    let target = Target {
        timing_only: true,
        ..Target::default()
    };
    let error = Session::open(demo(), &target, &()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "`timing_only` needs `device` cycle, not sim"
    );
    let float = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20_f32.onnx");
    let float = Model::open(float.to_str().unwrap()).unwrap();
    let error = float.compile(&Target::default(), &()).err().unwrap();
    assert!(matches!(error, Error::Float(_)), "{error:?}");
}

/// Stops when the thread that began the run has waited.
#[derive(Default)]
struct Impatient(std::sync::atomic::AtomicBool);

impl Watch for Impatient {
    fn progress(&self, _: usize, _: usize) {}

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn waiting(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn note(&self, _: &Said) {}
}

#[test]
fn the_thread_that_began_a_run_is_asked_while_it_waits() {
    let mut session = session(&Target::default());
    let input = session.inputs()[0].clone();
    // Seconds of work, of which a twentieth of one is done.
    let all = values(20_000, input.len());
    let found = session.run(&[feed(&input.name, &all)], &Impatient::default());
    assert!(
        matches!(found, Err(Error::Cancelled)),
        "{:?}",
        found.is_ok()
    );
    let one = session.run(&[feed(&input.name, &all[..input.len()])], &());
    assert_eq!(one.unwrap().outputs[0].images, 1);
}

#[test]
fn a_model_survives_onnx_and_tiles_are_tuned_within_a_cache() {
    let model = Model::open("demo").unwrap();
    let again = Model::from_onnx("again", &model.to_onnx().unwrap()).unwrap();
    assert_eq!(again.labels().unwrap(), model.labels().unwrap());
    let program = |model: Model| model.compile(&Target::default(), &()).unwrap().program;
    assert_eq!(program(again).layers, program(model).layers);

    let machine = Machine::read(&Target::default()).unwrap();
    let graph = vta_app::open::layer_or_network("conv:1,32,8,8,32,3,1,1").unwrap();
    let tuner = Tuner::new(graph, machine, 2).unwrap();
    let mut cache = Cache::new();
    let error = tuner.tune(&mut cache, &After(0, AtomicUsize::new(0)));
    assert!(matches!(error, Err(Error::Cancelled)), "{error:?}");
    assert!(cache.is_empty());
    let untuned = tuner.total(&cache).unwrap();
    assert_eq!(tuner.tune(&mut cache, &()).unwrap(), 1);
    let tuned = tuner.total(&cache).unwrap();
    assert!(tuned <= untuned);
    assert_eq!(tuner.tune(&mut cache, &()).unwrap(), 0);
    assert_eq!(tuner.total(&cache).unwrap(), tuned);
}
