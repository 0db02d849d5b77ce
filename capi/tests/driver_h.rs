//! Programs in C over `vta/driver.h`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "another test links programs in more ways")]

mod gcc;

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use vta_isa::{Insn, MemType};
use vta_replay::{Case, DramBytes};

use gcc::{Linked, Program, capi};

fn program(name: &str) -> PathBuf {
    capi().join("tests/programs").join(name)
}

fn bytes(regions: &[DramBytes], case: &Case, out: &mut Vec<u32>) {
    let mut parts = Vec::new();
    for region in regions {
        // A recorded region may run across neighbouring allocations.
        for (index, (start, size)) in case.allocations.iter().enumerate() {
            let (start, first) = (u64::from(start.0), u64::from(region.addr.0));
            let from = first.max(start);
            let to = (first + region.bytes.len() as u64).min(start + size);
            if from < to {
                let part = &region.bytes[(from - first) as usize..(to - first) as usize];
                parts.push((index as u32, (from - start) as u32, part));
            }
        }
    }
    out.push(parts.len() as u32);
    for (index, offset, part) in parts {
        out.extend([index, offset, part.len() as u32]);
        for word in part.chunks(4) {
            let mut four = [0; 4];
            four[..word.len()].copy_from_slice(word);
            out.push(u32::from_le_bytes(four));
        }
    }
}

/// A run as `replay.c` reads it: nothing in it depends on where buffers lie.
fn numbers(case: &Case) -> Vec<u8> {
    let mut out = vec![case.allocations.len() as u32];
    out.extend(case.allocations.iter().map(|(_, size)| *size as u32));
    bytes(&case.before, case, &mut out);
    bytes(&case.after, case, &mut out);
    out.push(case.words.len() as u32);
    for word in &case.words {
        out.extend((0..4).map(|i| (word >> (32 * i)) as u32));
    }
    let mut moved = Vec::new();
    for (index, insn) in case.insns.iter().enumerate() {
        let (mem, base) = match insn {
            Insn::Load(load) => (load.mem, load.dram_base),
            Insn::Store(store) => (MemType::Out, store.dram_base),
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => continue,
        };
        if insn.dram_rows(&case.config).is_none() {
            continue;
        }
        let elem = case.config.elem_bytes(mem) as u64;
        let addr = u64::from(base) * elem;
        let inside = |(start, size): &(vta_driver::PhysAddr, u64)| {
            (u64::from(start.0)..u64::from(start.0) + size).contains(&addr)
        };
        let at = case.allocations.iter().position(inside).unwrap();
        let offset = addr - u64::from(case.allocations[at].0.0);
        moved.push([index as u32, at as u32, offset as u32, elem as u32]);
    }
    out.push(moved.len() as u32);
    out.extend(moved.iter().flatten());
    out.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Every archive, all runs in one process, twice: tokens that runs leave stay for those that need them.
#[test]
fn every_recorded_run_of_the_original_replays_through_driver_h() {
    let beside = capi().join("../../shared");
    let shared = std::env::var_os("VTA_SHARED").map_or(beside, PathBuf::from);
    let archives = shared.join("conformance/tvm");
    if !archives.is_dir() {
        let text = format!("no test data at {} (set VTA_SHARED)", archives.display());
        assert!(std::env::var_os("CI").is_none(), "{text}");
        let _ = writeln!(std::io::stderr(), "SKIPPED {text}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut files, mut sizes, mut profiles) = (Vec::new(), Vec::new(), Vec::new());
    let mut found: Vec<PathBuf> = std::fs::read_dir(archives)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    assert_eq!(found.len(), 16);
    for archive in found {
        for case in vta_replay::load(&archive).unwrap() {
            let path = folder.path().join(files.len().to_string());
            std::fs::write(&path, numbers(&case)).unwrap();
            files.push(path.display().to_string());
            sizes.push(case.allocations.iter().map(|(_, size)| size).sum::<u64>());
            let traffic = vta_driver::Traffic::of(&case.insns, &case.config);
            profiles.push(traffic);
        }
    }
    let args: Vec<&str> = files.iter().chain(&files).map(String::as_str).collect();
    let output = Program::new(&program("replay.c"), Linked::Dynamic).run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 2 * files.len());
    for (at, line) in lines.iter().enumerate() {
        let (bytes, json) = line.split_once(' ').unwrap();
        let at = at % files.len();
        assert_eq!(bytes.parse::<u64>().unwrap(), sizes[at]);
        let json: Value = serde_json::from_str(json).unwrap();
        let traffic = &profiles[at];
        assert_eq!(json["gemm_counter"], traffic.gemm_steps);
        assert_eq!(json["alu_counter"], traffic.alu_steps);
        let stored = traffic.bytes[MemType::Out.index()];
        assert_eq!(json["out_store_nbytes"], stored);
    }
}

#[test]
fn what_driver_h_refuses_leaves_no_fault_in_memory() {
    let output = Program::checked(&program("driver_errors.c"), Linked::Dynamic, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("libvta: VTAMemGetPhyAddr:"), "{said}");
    assert!(said.contains("further failures"), "{said}");
}

/// The program packs instructions and micro-ops as the original does in each configuration, by bit fields of C.
#[test]
fn programs_of_other_configurations_are_read_in_the_layout_of_the_original() {
    let layouts = Program::new(&program("layouts.c"), Linked::Dynamic);
    for device in ["sim", "oracle"] {
        let output = layouts.run(&[device]);
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{device}: {said}{errors}");
        assert_eq!(said.matches(": right").count(), 11, "{said}");
    }
}

#[test]
fn driver_h_is_a_header_of_c_and_cpp() {
    gcc::compile_alone(&capi().join("include/vta/driver.h"));
}
