//! Memory scopes: what products read weights and inputs as changes no bit, and copies between
//! scopes are counted.

use std::sync::Arc;

use vta_compiler::{onnx, passes, reference};
use vta_driver::{Device, QueueLimits, Session};
use vta_hw_opencl::{
    Math, OpenClDevice, OpenClError, Options, Scope, Scopes, Structure, remember_scopes,
};
use vta_isa::Config;
use vta_sim::Oracle;
use vta_tests::extended;
use vta_tests::opencl::{Backend, backends, cached_in};
use vta_tests::programs::generate;

use crate::kit::{
    CONFIGS, SHIFT_AND_STORE, compile, contents, expected, parsed, prepare, read, run, write,
};

fn throughputs(what: &str) -> impl Iterator<Item = Backend> {
    let all = backends(what).into_iter();
    all.filter(|backend| backend.structure == Structure::Throughput)
}

fn scopes(text: &str) -> Scopes {
    text.parse().unwrap()
}

fn open(backend: &Backend, config: &Config, options: Options) -> Option<OpenClDevice> {
    let wanted = options.scopes.unwrap_or_default();
    let constant = [wanted.weights, wanted.activations].contains(&Scope::Constant);
    match backend.open_with(config, options) {
        Ok(device) => Some(device),
        // That is small on many devices.
        Err(OpenClError::Scope { reason, .. }) if constant => {
            let limit = "CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE";
            assert!(reason.contains(limit), "{reason}");
            println!("{} {wanted}: {reason}", backend.name());
            None
        }
        Err(error) => panic!("{}: {error}", backend.name()),
    }
}

/// Scopes, ways of forming products and configurations; all of them with `VTA_SCOPES=all`.
fn cases() -> Vec<(Scopes, Math, &'static str)> {
    let maths = [
        Math::Int,
        Math::Pairs,
        Math::Float,
        Math::Fours,
        Math::Matrix,
    ];
    let all = Scopes::all().flat_map(|scopes| {
        let with = move |math| CONFIGS.map(|config| (scopes, math, config));
        maths.into_iter().flat_map(with)
    });
    match std::env::var("VTA_SCOPES").as_deref() {
        Ok("all") => all.collect(),
        Ok(other) => panic!("VTA_SCOPES={other}: only all is known"),
        // Every scope of either, every math and every configuration comes at least twice.
        Err(_) => {
            let pairs = Scopes::all().filter(|scopes| *scopes != Scopes::default());
            let picked = pairs.enumerate().map(|(n, scopes)| {
                let config = if n % 3 == 0 { CONFIGS[n / 3 % 4] } else { "{}" };
                (scopes, maths[n % 5], config)
            });
            picked.collect()
        }
    }
}

#[test]
fn every_scope_is_the_oracle() {
    for backend in throughputs("scopes") {
        let mut ran = 0;
        for (scopes, math, keys) in cases() {
            let config = extended(keys, u64::MAX);
            let options = Options {
                scopes: Some(scopes),
                math: Some(math),
                ..Options::from_env()
            };
            let Some(device) = open(&backend, &config, options) else {
                continue;
            };
            let mut oracle = Oracle::new(config.clone());
            for seed in 300..308 {
                let program = generate(&config, seed, 1 + seed as usize % 6);
                let same = contents(&device, &program) == expected(&mut oracle, &program);
                let name = backend.name();
                assert!(same, "{name} {scopes} {math:?} {keys} seed {seed}");
            }
            ran += 1;
        }
        println!("{}: {ran} cases", backend.name());
        assert!(ran >= 8, "{}: {ran} cases", backend.name());
    }
}

#[test]
fn copies_between_scopes_are_counted_and_none_within_one() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    let graph = onnx::load(&std::fs::read(path).unwrap()).unwrap();
    let graph = passes::quantized(&graph).unwrap();
    let config = Config::default();
    let program = compile(&graph, &config);
    let image: Vec<i16> = (0..3072)
        .map(|i| i16::from(((i * 37) % 255) as i8))
        .collect();
    let expected = reference::run(&graph, &image).unwrap()[graph.outputs[0].0].clone();
    for backend in throughputs("copies between scopes") {
        for (text, copies) in [
            ("weights=buffer,activations=buffer", false),
            ("weights=image,activations=image", false),
            ("weights=image,activations=buffer", false),
            ("weights=constant,activations=image", false),
            ("weights=image2d,activations=buffer", true),
            ("weights=image,activations=image2d", true),
            ("weights=image2d,activations=image2d", true),
        ] {
            let options = Options {
                scopes: Some(scopes(text)),
                ..Options::from_env()
            };
            let Some(device) = open(&backend, &config, options) else {
                continue;
            };
            let device: Arc<dyn Device> = Arc::new(device);
            let counted = || device.counters().unwrap().scope_copies;
            let program = Arc::clone(&program);
            let mut session =
                Session::new(program, Arc::clone(&device), QueueLimits::default()).unwrap();
            let mut runs = Vec::new();
            for _ in 0..2 {
                let before = counted();
                let got = session.run(&[&image]).unwrap();
                assert!(got.outputs[0][0] == expected, "{} {text}", backend.name());
                runs.push(counted() - before);
            }
            println!("{} {text}: {runs:?}", backend.name());
            assert_eq!((runs[0] > 0, runs[0]), (copies, runs[1]), "{text}");
        }
    }
}

#[test]
fn a_device_is_opened_with_what_was_measured_unless_it_is_told() {
    let config = Config::default();
    for backend in throughputs("remembered scopes") {
        let folder = tempfile::tempdir().unwrap();
        let options = cached_in(folder.path().to_owned());
        let opened = |options: &Options| {
            let device = backend.open_with(&config, options.clone()).unwrap();
            device.scopes()
        };
        let buffers = Scopes::default();
        assert_eq!(opened(&options), buffers);
        let chosen = scopes("weights=image,activations=image2d");
        remember_scopes(&backend.entry, &config, &options, chosen);
        assert_eq!(opened(&options), chosen);
        let told = Options {
            scopes: Some(buffers),
            ..options.clone()
        };
        assert_eq!(opened(&told), buffers);
        let one_launch = Options {
            one_launch: Some(true),
            ..options
        };
        assert_eq!(opened(&one_launch), buffers, "which has buffers only");
    }
}

/// Two products of what is loaded once.
const LOAD_ONCE: &str = "load.uop sram_base=0 dram_base=0xa00 y_size=1 x_size=1 x_stride=1
    load.inp sram_base=0 dram_base=0x200 y_size=1 x_size=1 x_stride=1
    load.wgt sram_base=0 dram_base=0x11 y_size=1 x_size=1 x_stride=1 push_next
    gemm reset uop_end=1 iter_out=1 iter_in=1 pop_prev
    gemm uop_end=1 iter_out=1 iter_in=1
    alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1
    gemm uop_end=1 iter_out=1 iter_in=1 push_next
    store sram_base=0 dram_base=0x210 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
    finish pop_next";

#[test]
fn what_is_loaded_once_is_copied_once_however_often_it_is_read() {
    for backend in throughputs("copies of loads") {
        for (text, copies) in [
            ("weights=buffer", 0),
            ("weights=image,activations=image", 0),
            ("weights=image2d", 1),
            ("activations=image2d", 1),
            ("weights=image2d,activations=image2d", 2),
            ("weights=image2d,activations=image", 1),
        ] {
            let options = Options {
                scopes: Some(scopes(text)),
                ..Options::from_env()
            };
            let config = Config::default();
            let device = backend.open_with(&config, options).unwrap();
            prepare(&device);
            write(&device, 0x2000, &[1; 16]);
            write(&device, 0x2800, &[0; 4]);
            let batch = parsed(LOAD_ONCE);
            for byte in [1, 2, 3] {
                write(&device, 0x1100, &[byte; 256]);
                let before = device.counters().unwrap().scope_copies;
                run(&device, &batch).unwrap();
                // 16 products, shifted, and 16 more.
                let got = read(&device, 0x2100, 16);
                assert_eq!(got, [20 * byte; 16], "{} {text}", backend.name());
                let copied = device.counters().unwrap().scope_copies - before;
                assert_eq!(copied, copies, "{} {text}", backend.name());
            }
            write(&device, 0x2000, &[3, 0, 0, 0]);
            let before = device.counters().unwrap().scope_copies;
            run(&device, &parsed(SHIFT_AND_STORE)).unwrap();
            let after = device.counters().unwrap().scope_copies;
            assert_eq!(before, after, "{text}: nothing that products read");
        }
    }
}

#[test]
fn scopes_that_a_device_cannot_have_are_refused_by_name() {
    let refused = |backend: &Backend, keys: &str, options: Options| {
        let config = Config::from_json(keys).unwrap();
        match backend.open_with(&config, options) {
            Err(error @ OpenClError::Scope { .. }) => error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{} opens", backend.name()),
        }
    };
    let with = |text: &str| Options {
        scopes: Some(scopes(text)),
        ..Options::from_env()
    };
    for backend in backends("refused scopes") {
        if backend.structure != Structure::Throughput {
            let error = refused(&backend, "{}", with("weights=image"));
            assert!(error.contains("only the throughput structure"), "{error}");
            assert!(error.contains(&backend.entry.selector), "{error}");
            backend
                .open_with(&Config::default(), with("weights=buffer"))
                .unwrap();
            continue;
        }
        let one_launch = Options {
            one_launch: Some(true),
            ..with("activations=constant")
        };
        let error = refused(&backend, "{}", one_launch);
        assert!(error.contains("a batch in one launch"), "{error}");
        // 1024 tiles of 32 by 32 floats.
        let large = r#"{"LOG_BLOCK": 5, "LOG_WGT_BUFF_SIZE": 20}"#;
        let options = Options {
            math: Some(Math::Float),
            ..with("weights=constant")
        };
        let (bytes, limit) = (4 << 20, backend.entry.facts.constant_bytes);
        if limit >= bytes {
            let config = Config::from_json(large).unwrap();
            backend.open_with(&config, options).unwrap();
            continue;
        }
        let error = refused(&backend, large, options);
        let says = format!(
            "weights=constant: they take {bytes} bytes, but \
             CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE allows {limit}"
        );
        assert!(error.contains(&says), "{error}");
    }
}
