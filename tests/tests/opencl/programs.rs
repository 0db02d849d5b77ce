//! Recorded runs and random programs, with every way of forming products.

use rayon::prelude::*;
use vta_driver::{Device, PhysAddr};
use vta_hw_opencl::{Math, OpenClDevice, Options, Structure};
use vta_isa::Config;
use vta_sim::Oracle;
use vta_tests::extended;
use vta_tests::opencl::backends;
use vta_tests::programs::generate;

use crate::kit::{CONFIGS, check_random, contents, expected, parsed, read, run, write};

fn check_recorded(folder: &str, least: usize) {
    let Some(shared) = vta_tests::shared(folder) else {
        return;
    };
    let entries = std::fs::read_dir(shared.join(folder)).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"));
    paths.sort();
    let cases: Vec<_> = paths
        .iter()
        .flat_map(|p| vta_replay::load(p).unwrap())
        .collect();
    assert!(cases.len() >= least, "only {} runs", cases.len());
    for backend in backends(folder) {
        let mut wrong = Vec::new();
        let mut open: Option<OpenClDevice> = None;
        for case in &cases {
            if open.as_ref().is_none_or(|d| d.info().config != case.config) {
                open = Some(backend.open(&case.config));
            }
            let device = open.as_ref().unwrap();
            let report = vta_replay::run_case(case, device).unwrap();
            assert!(report.bytes_compared > 0, "{}: nothing compared", case.name);
            if report.bytes_different > 0 {
                wrong.push((&case.name, report.bytes_different, report.mismatches[0]));
            }
        }
        let (right, all) = (cases.len() - wrong.len(), cases.len());
        println!(
            "{folder} on {}: {right} of {all} runs match",
            backend.name()
        );
        assert!(wrong.is_empty(), "{}: {wrong:?}", backend.name());
    }
}

#[test]
fn runs_of_the_original_runtime() {
    check_recorded("conformance/tvm", 26);
}

#[test]
fn binaries_of_the_standalone_toolchain() {
    check_recorded("conformance/standalone-vta", 8);
}

#[test]
fn random_programs_are_the_oracles() {
    for backend in backends("random programs") {
        CONFIGS
            .par_iter()
            .for_each(|config| check_random(&backend, config, 0..60));
    }
}

/// The GPU's way of forming products, on any device that can, so that machines without a GPU
/// test it, too.
#[test]
fn every_way_of_forming_products_is_the_oracle() {
    let configs = ["{}", CONFIGS[1]].map(|c| extended(c, u64::MAX));
    for backend in backends("products") {
        if backend.structure != Structure::Throughput {
            continue;
        }
        let ways = [
            Math::Int,
            Math::Pairs,
            Math::Float,
            Math::Fours,
            Math::Matrix,
        ];
        for (config, math) in configs.iter().flat_map(|c| ways.map(|m| (c, m))) {
            let options = Options {
                math: Some(math),
                ..Options::from_env()
            };
            let device = backend.open_with(config, options).unwrap();
            let mut oracle = Oracle::new(config.clone());
            for seed in 100..110 {
                let program = generate(config, seed, 4);
                let same = contents(&device, &program) == expected(&mut oracle, &program);
                assert!(same, "{} {math:?} seed {seed}", backend.name());
            }
        }
    }
}

/// Sums of extremes over more products than a float holds exactly, and than int32 holds at all.
#[test]
fn long_sums_are_exact_and_wrap() {
    // 9 micro-ops, 12 000 times 16 products of 128 * 128 each.
    let text = "load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=9 x_stride=9
        load.inp sram_base=0 dram_base=0x200 y_size=1 x_size=1 x_stride=1
        load.wgt sram_base=0 dram_base=0x30 y_size=1 x_size=1 x_stride=1 push_next
        gemm uop_end=9 iter_out=3000 iter_in=4 dst_factor_in=1 pop_prev
        alu.shr imm=24 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 push_next
        store sram_base=0 dram_base=0x210 y_size=1 x_size=4 x_stride=4 pop_prev push_prev
        finish pop_next";
    // 9 * 3000 * 16 * 2^14, modulo 2^32, shifted.
    let sum = (((9u64 * 3000 * 16) << 14) as u32 as i32) >> 24;
    for backend in backends("long sums") {
        let device = backend.open(&Config::default());
        device.alloc_at(PhysAddr(0x1000), 0x4000).unwrap();
        write(&device, 0x2000, &[0x80; 16]);
        write(&device, 0x3000, &[0x80; 256]);
        run(&device, &parsed(text)).unwrap();
        assert_eq!(
            read(&device, 0x2100, 64),
            [sum as u8; 64],
            "{}",
            backend.name()
        );
    }
}
