//! Kernels that are kept: the cache of binaries, and bitstreams of FPGAs.

use vta_driver::Device;
use vta_hw_opencl::{OpenClDevice, OpenClError, Options, Structure, save_bitstream};
use vta_isa::Config;
use vta_sim::Oracle;
use vta_tests::opencl::{backends, cached_in};
use vta_tests::programs::generate;

use crate::kit::{SHIFT_AND_STORE, contents, expected, fpgas, parsed, prepare, read, run};

#[test]
fn binaries_are_cached_and_a_damaged_cache_is_survived() {
    for backend in backends("cache") {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let options = cached_in(folder.path().to_owned());
            let device = backend.open_with(&Config::default(), options).unwrap();
            prepare(&device);
            run(&device, &parsed(SHIFT_AND_STORE)).unwrap();
            assert_eq!(read(&device, 0x1200, 16), [10; 16]);
            (
                device.counters().unwrap().builds,
                device.counters().unwrap().cache_hits,
            )
        };
        assert_eq!(open(), (1, 0), "{}", backend.name());
        assert_eq!(open(), (0, 1), "{}", backend.name());
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        }
        assert_eq!(open(), (1, 0), "{}", backend.name());
        assert_eq!(open(), (0, 1), "{}", backend.name());
    }
}

#[test]
fn a_saved_bitstream_runs_and_a_wrong_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vta.aocx");
    let options = || Options {
        bitstream: Some(path.clone()),
        ..Options::from_env()
    };
    for backend in fpgas("bitstreams") {
        let config = Config::default();
        save_bitstream(&backend.entry, &config, Structure::Core, &path).unwrap();
        let device = backend.open_with(&config, options()).unwrap();
        assert_eq!(device.counters().unwrap().builds, 0);
        for seed in 0..20 {
            let program = generate(&config, seed, 3);
            let mut oracle = Oracle::new(config.clone());
            assert!(
                contents(&device, &program) == expected(&mut oracle, &program),
                "{seed}"
            );
        }
        drop(device);
        let small = Config::from_json(r#"{"LOG_ACC_BUFF_SIZE": 16}"#).unwrap();
        let error = backend.open_with(&small, options()).err().unwrap();
        assert!(matches!(error, OpenClError::Bitstream { .. }), "{error}");
        let differs = "it was built for another VTA: its accumulator depth is 2048, not 1024";
        assert!(error.to_string().ends_with(differs), "{error}");
        let channels = Options {
            structure: Some(Structure::Channels),
            ..options()
        };
        let error = OpenClDevice::open_entry(&backend.entry, config.clone(), channels);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("it has no kernel vta_load"), "{error}");
        for junk in [&b""[..], b"no bitstream at all"] {
            std::fs::write(&path, junk).unwrap();
            let error = backend.open_with(&config, options()).err().unwrap();
            assert!(matches!(error, OpenClError::Bitstream { .. }), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = backend.open_with(&config, options()).err().unwrap();
        assert!(matches!(error, OpenClError::Bitstream { .. }), "{error}");
    }
}
