//! Recorded runs of other implementations, byte for byte, on every simulator.

use std::path::PathBuf;

use vta_driver::{Device, WorkerDevice};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution, Functional, GemmKernel, Planning, SimDevice};

type MakeDevice = Box<dyn Fn(Config) -> WorkerDevice>;

fn devices() -> Vec<(String, MakeDevice)> {
    let mut devices: Vec<(String, MakeDevice)> =
        vec![("oracle".into(), Box::new(SimDevice::oracle))];
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let make = move |config| SimDevice::functional_with(config, kernel);
        devices.push((format!("functional, {}", kernel.name()), Box::new(make)));
        let make = move |config: Config| {
            let executor = Functional::with_kernel(config.clone(), kernel);
            SimDevice::with_executor("sim", config, executor.with_planning(Planning::AtOnce))
        };
        devices.push((
            format!("functional, {}, planned", kernel.name()),
            Box::new(make),
        ));
    }
    let threads = |config: Config| {
        let executor = Functional::new(config.clone()).with_threads(3);
        let executor = executor.with_planning(Planning::AtOnce);
        SimDevice::with_executor("sim", config, executor.with_least_cost_ns(0))
    };
    devices.push(("functional, 3 threads".into(), Box::new(threads)));
    let cycle = |config| {
        let timing = TimingConfig::pynq();
        SimDevice::cycle(config, timing, Execution::Full, CycleLog::default())
    };
    devices.push(("cycle".into(), Box::new(cycle)));
    devices
}

/// Every entry of a folder but licences and notes.
fn cases(folder: &str) -> Option<Vec<PathBuf>> {
    let path = vta_tests::shared(folder)?.join(folder);
    let entries = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path());
    let mut paths: Vec<_> = entries
        .filter(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"))
        .collect();
    paths.sort();
    Some(paths)
}

fn check(folder: &str, least: usize) {
    let Some(paths) = cases(folder) else { return };
    let (mut matched, mut total) = (0, 0);
    for case in paths.iter().flat_map(|p| vta_replay::load(p).unwrap()) {
        for (name, make) in devices() {
            let device = make(case.config.clone());
            let report = vta_replay::run_case(&case, &device as &dyn Device).unwrap();
            assert!(report.bytes_compared > 0, "{}: nothing compared", case.name);
            total += 1;
            if report.bytes_different == 0 {
                matched += 1;
            } else {
                println!("{} on {name}: {:?}", case.name, report.mismatches);
            }
        }
    }
    println!("{folder}: {matched} of {total} runs match");
    assert!(
        total >= least * devices().len(),
        "only {total} runs were found"
    );
    assert_eq!(matched, total);
}

#[test]
fn runs_of_the_original_runtime() {
    check("conformance/tvm", 26);
}

#[test]
fn binaries_of_the_standalone_toolchain() {
    check("conformance/standalone-vta", 8);
}

#[test]
fn paths_without_a_case_say_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let error = vta_replay::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("no recorded run here"), "{error}");
    std::fs::write(folder.path().join("x.tar.gz"), b"not gzip").unwrap();
    assert!(vta_replay::load(&folder.path().join("x.tar.gz")).is_err());
    assert!(vta_replay::load(&folder.path().join("missing")).is_err());
}
