//! What callers give by value where the command line names files: configurations and calibration.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use vta_app::device::Machine;
use vta_app::options::{ConfigSource, Quantizing};
use vta_app::quantize::quantize_arrays;
use vta_app::{Error, Feed, Model, Target, Values};
use vta_compiler::quantize::{Activations, Mode, Options, ZeroPoints};

#[test]
fn a_configuration_by_value_is_that_of_its_file() {
    let path = std::env::temp_dir().join(format!("vta-app-config-{}.json", std::process::id()));
    std::fs::write(&path, r#"{"LOG_BLOCK": 5}"#).unwrap();
    let keys = serde_json::from_str(r#"{"LOG_BLOCK": 5}"#).unwrap();
    let sources = [ConfigSource::Keys(keys), ConfigSource::from(path.clone())];
    let machines = sources.each_ref().map(|config| {
        let target = Target {
            config: Some(config.clone()),
            ..Target::default()
        };
        Machine::read(&target).unwrap().config
    });
    std::fs::remove_file(&path).unwrap();
    assert_eq!(machines[0].block(), 32);
    assert_eq!(machines[0], machines[1]);
    for source in sources {
        let json = serde_json::to_string(&source).unwrap();
        assert_eq!(serde_json::from_str::<ConfigSource>(&json).unwrap(), source);
    }
    let keys = ConfigSource::Keys(serde_json::from_str(r#"{"LOG_BLOCK": 9}"#).unwrap());
    let target = Target {
        config: Some(keys),
        ..Target::default()
    };
    let error = Machine::read(&target).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config: configuration key LOG_BLOCK is 9, but it must be 0 to 6"
    );
}

#[test]
fn a_model_is_quantized_with_arrays_in_any_batches() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20_f32.onnx");
    let model = || Model::open(path.to_str().unwrap()).unwrap();
    let len = 3 * 32 * 32;
    let all: Vec<f32> = (0..3 * len)
        .map(|i| ((i * 7 + i / 50) % 41) as f32 / 20.0 - 1.0)
        .collect();
    let feed = |images: std::ops::Range<usize>| {
        let values = &all[images.start * len..images.end * len];
        vec![Feed {
            name: "input",
            values: Values::Real(values.into()),
        }]
    };
    let options = Quantizing::default();
    let quantize =
        |batches: &[Vec<Feed<'_>>]| quantize_arrays(model(), batches, &[], &options, &());
    let whole = quantize(&[feed(0..3)]).unwrap();
    let parts = quantize(&[feed(0..1), feed(1..1), feed(1..3)]).unwrap();
    assert_eq!((whole.images, parts.images), (3, 3));
    assert_eq!(whole.onnx, parts.onnx);
    let other = quantize(&[feed(1..2), feed(0..1), feed(2..3)]).unwrap();
    assert_ne!(other.onnx, quantize(&[feed(0..1)]).unwrap().onnx);

    let unnamed = |values: Values<'static>, name: &'static str| vec![Feed { name, values }];
    for (batch, expected) in [
        (
            unnamed(Values::Real(vec![0.0; len].into()), "x"),
            "no input 'x' (there is input)",
        ),
        (vec![], "input 'input' isn't given"),
        (
            unnamed(Values::Whole(vec![0; len].into()), "input"),
            "input 'input' takes float32",
        ),
        (
            unnamed(Values::Real(vec![0.0; 5].into()), "input"),
            "5 values; an image has 3072",
        ),
        (
            unnamed(Values::Real(vec![f32::NAN; len].into()), "input"),
            "value 0: NaN",
        ),
    ] {
        let error = quantize(&[feed(0..1), batch]).err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, Error::Input { .. }), "{text}");
        assert!(
            text.starts_with("calibration batch 1: ") && text.ends_with(expected),
            "{text}"
        );
    }
    assert!(matches!(quantize(&[]), Err(Error::Usage(_))));
}

#[test]
fn int16_is_nearer_to_float_and_has_no_zero_points() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20_f32.onnx");
    let all: Vec<f32> = (0..8 * 3 * 32 * 32)
        .map(|i| ((i * 7 + i / 50) % 41) as f32 / 20.0 - 1.0)
        .collect();
    let quantize = |options: Options| {
        let model = Model::open(path.to_str().unwrap()).unwrap();
        let batch = vec![Feed {
            name: "input",
            values: Values::Real((&all[..]).into()),
        }];
        let how = Quantizing {
            options,
            ..Quantizing::default()
        };
        quantize_arrays(model, &[batch], &[], &how, &())
    };
    let options = |activations| Options::new(Mode::Multiply).with_activations(activations);
    let [int8, int16] = [Activations::Int8, Activations::Int16].map(|activations| {
        let quantized = quantize(options(activations)).unwrap();
        quantized.json()["fidelity"].clone()
    });
    assert_eq!(
        (&int8["activations"], &int16["activations"]),
        (&"int8".into(), &"int16".into())
    );
    assert_eq!(int16["method"], "min-max");
    assert_eq!(int16["zero_points"], "symmetric");
    let [int8, int16] = [int8, int16].map(|of| of["outputs"][0]["db"].as_f64().unwrap());
    assert!(int16 > int8 + 6.0, "{int16} for {int8}");
    let asymmetric = Options {
        zero_points: ZeroPoints::Asymmetric,
        ..options(Activations::Int16)
    };
    let error = quantize(asymmetric).err().unwrap();
    assert!(matches!(error, Error::Usage(_)), "{error}");
}
