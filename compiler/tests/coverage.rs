//! What listings prove, and that nothing that is wrong with one passes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use vta_compiler::lower::{self, LowerOptions, Tiles};
use vta_compiler::quantize::Mode;
use vta_compiler::{onnx, passes, zoo};
use vta_isa::resolve::{Resolved, TileSet, Uops};
use vta_isa::{AluOp, AluOperand, Config, Insn, MemType};
use vta_program::coverage::{Coverage, FaultKind, coverage};
use vta_program::listing::{ListedInsn, Listing, Role};

fn listing(graph: &vta_compiler::graph::Graph, config: &Config) -> Listing {
    let integer = passes::quantized(graph).unwrap();
    let options = LowerOptions::default();
    let traced = lower::compile_traced(&integer, config, &options, &Tiles::default());
    let (program, geometries) = traced.unwrap();
    Listing::of(&program, &geometries).unwrap()
}

fn demo() -> Listing {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo/resnet20.onnx");
    let graph = onnx::load(&std::fs::read(path).unwrap()).unwrap();
    listing(&graph, &Config::default())
}

fn text(listing: &Listing) -> String {
    let mut text = Vec::new();
    listing.write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// A layer alone: what it reads is there.
fn alone(listing: &Listing, layer: usize) -> Listing {
    let layer = listing.layers[layer].clone();
    let mut alone = listing.clone();
    for (index, tensor) in (0..).zip(&mut alone.tensors) {
        tensor.input = layer.geometry.inputs.contains(&index);
        tensor.output = layer.geometry.output == index;
    }
    alone.layers = vec![layer];
    alone
}

fn proven(listing: &Listing) -> Coverage {
    coverage(listing).unwrap()
}

/// The first fault of a kind, as people read it.
fn fault(coverage: &Coverage, kind: FaultKind) -> String {
    let found = coverage.faults.iter().find(|fault| fault.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind:?} in {:?}", coverage.faults));
    format!("{:?}: {}", found.insn, found.text)
}

#[test]
fn the_demo_is_proven_from_its_text_alone() {
    let listing = demo();
    let read = Listing::read(&text(&listing)).unwrap();
    assert_eq!(read, listing);
    let found = proven(&read);
    assert!(found.holds(), "{:?}", found.faults);
    assert_eq!(found.layers.len(), listing.layers.len());
    let stored: u64 = found.layers.iter().map(|layer| layer.stored_bytes).sum();
    let tiles: u64 = found.layers.iter().map(|layer| layer.tiles[0]).sum();
    assert_eq!(stored, 16 * tiles);
}

/// The head and the last layers of the demo as they are, and a checksum of every layer.
#[test]
fn the_listing_of_the_demo() {
    let text = text(&demo());
    let mut golden = String::new();
    let mut layers: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("layer,") {
            Some(_) => layers.push((line.to_owned(), Vec::new())),
            None => match layers.last_mut() {
                Some((_, lines)) => lines.push(line),
                None if !line.starts_with("uop") => writeln!(golden, "{line}").unwrap(),
                None => {}
            },
        }
    }
    let uops: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("uop"))
        .collect();
    let sum = |lines: &[&str]| crc32fast::hash(lines.join("\n").as_bytes());
    writeln!(golden, "{} micro-ops {:08x}", uops.len(), sum(&uops)).unwrap();
    let last = layers.len() - 1;
    for (at, (line, lines)) in layers.iter().enumerate() {
        let place = line.split(',').take(5).collect::<Vec<_>>().join(",");
        writeln!(golden, "{place} {} lines {:08x}", lines.len(), sum(lines)).unwrap();
        if at == 0 || at == last {
            writeln!(golden, "{line}\n{}", lines.join("\n")).unwrap();
        }
    }
    insta::assert_snapshot!(golden);
}

#[test]
fn a_store_that_is_missing_is_named() {
    let mut listing = demo();
    let insns = &mut listing.layers[1].insns;
    let at = insns
        .iter()
        .position(|i| matches!(&i.insn, Insn::Store(s) if !s.is_sync()))
        .unwrap();
    insns.remove(at);
    let found = proven(&listing);
    assert!(!found.holds());
    insta::assert_snapshot!(fault(&found, FaultKind::NeverStored));
}

#[test]
fn a_store_that_is_doubled_is_named() {
    let mut listing = demo();
    let insns = &mut listing.layers[1].insns;
    let at = insns
        .iter()
        .position(|i| matches!(&i.insn, Insn::Store(s) if !s.is_sync()))
        .unwrap();
    insns.insert(at, insns[at]);
    insta::assert_snapshot!(fault(&proven(&listing), FaultKind::StoredTwice));
}

#[test]
fn a_trip_that_is_missing_is_named() {
    let mut listing = demo();
    let insns = listing.layers[1].insns.iter_mut();
    let mut gemms = insns.filter_map(|i| match &mut i.insn {
        Insn::Gemm(gemm) if !gemm.reset && gemm.iter_out > 1 => Some(gemm),
        _ => None,
    });
    gemms.next().unwrap().iter_out -= 1;
    insta::assert_snapshot!(fault(&proven(&listing), FaultKind::Missing));
}

/// Ways to spoil an instruction; what each of them is called.
fn spoiled(insn: &Insn) -> Vec<(&'static str, Insn)> {
    let mut all = Vec::new();
    let mut add = |name, insn: Insn| all.push((name, insn));
    match *insn {
        Insn::Load(load) if !load.is_sync() => {
            let mut with = |name, change: &dyn Fn(&mut vta_isa::Load)| {
                let mut other = load;
                change(&mut other);
                add(name, other.into());
            };
            with("dram_base + 1", &|l| l.dram_base += 1);
            with("sram_base + 1", &|l| l.sram_base += 1);
            with("y_size - 1", &|l| l.y_size -= 1);
            with("x_size - 1", &|l| l.x_size -= 1);
            with("y_pad_0 + 1", &|l| l.y_pad_0 += 1);
            with("x_pad_0 + 1", &|l| l.x_pad_0 += 1);
            if load.y_size > 1 {
                with("x_stride + 1", &|l| l.x_stride += 1);
                with("x_pad_1 + 1", &|l| l.x_pad_1 += 1);
            }
        }
        Insn::Store(store) if !store.is_sync() => {
            let mut with = |name, change: &dyn Fn(&mut vta_isa::Store)| {
                let mut other = store;
                change(&mut other);
                add(name, other.into());
            };
            with("dram_base + 1", &|s| s.dram_base += 1);
            if store.dram_base > 0 {
                with("dram_base - 1", &|s| s.dram_base -= 1);
            }
            with("sram_base + 1", &|s| s.sram_base += 1);
            with("y_size - 1", &|s| s.y_size -= 1);
            with("y_size + 1", &|s| s.y_size += 1);
            with("x_size - 1", &|s| s.x_size -= 1);
            with("x_size + 1", &|s| s.x_size += 1);
            if store.y_size > 1 {
                with("x_stride + 1", &|s| s.x_stride += 1);
            }
        }
        Insn::Gemm(gemm) => {
            let mut with = |name, change: &dyn Fn(&mut vta_isa::Gemm)| {
                let mut other = gemm;
                change(&mut other);
                add(name, other.into());
            };
            with("iter_out - 1", &|g| g.iter_out -= 1);
            with("iter_in - 1", &|g| g.iter_in -= 1);
            with("uop_end - 1", &|g| g.uop_end -= 1);
            with("uop_bgn + 1", &|g| g.uop_bgn += 1);
            with("reset", &|g| g.reset = !g.reset);
            if gemm.iter_out > 1 {
                with("dst_factor_out + 1", &|g| g.dst_factor_out += 1);
            }
            if gemm.iter_in > 1 {
                with("dst_factor_in + 1", &|g| g.dst_factor_in += 1);
            }
            if !gemm.reset {
                with("iter_out + 1", &|g| g.iter_out += 1);
                with("iter_in + 1", &|g| g.iter_in += 1);
                if gemm.iter_out > 1 {
                    with("src_factor_out + 1", &|g| g.src_factor_out += 1);
                    with("wgt_factor_out + 1", &|g| g.wgt_factor_out += 1);
                }
                if gemm.iter_in > 1 {
                    with("src_factor_in + 1", &|g| g.src_factor_in += 1);
                    with("wgt_factor_in + 1", &|g| g.wgt_factor_in += 1);
                }
            }
        }
        Insn::Alu(alu) if joins(insn) => {
            let mut with = |name, change: &dyn Fn(&mut vta_isa::Alu)| {
                let mut other = alu;
                change(&mut other);
                add(name, other.into());
            };
            with("iter_out - 1", &|a| a.iter_out -= 1);
            with("iter_in - 1", &|a| a.iter_in -= 1);
            with("uop_end - 1", &|a| a.uop_end -= 1);
            if alu.iter_in > 1 {
                with("dst_factor_in + 1", &|a| a.dst_factor_in += 1);
                with("src_factor_in + 1", &|a| a.src_factor_in += 1);
            }
        }
        Insn::Depthwise(insn) => {
            let mut with = |name, change: &dyn Fn(&mut vta_isa::Depthwise)| {
                let mut other = insn;
                change(&mut other);
                add(name, other.into());
            };
            with("iter_out - 1", &|d| d.iter_out -= 1);
            with("iter_in - 1", &|d| d.iter_in -= 1);
            with("iter_out + 1", &|d| d.iter_out += 1);
            with("iter_in + 1", &|d| d.iter_in += 1);
            with("rows - 1", &|d| d.rows -= 1);
            with("columns - 1", &|d| d.columns -= 1);
            if insn.rows > 1 {
                with("pitch + 1", &|d| d.pitch += 1);
            }
            if insn.iter_out > 1 {
                with("dst_factor_out + 1", &|d| d.dst_factor_out += 1);
                with("src_factor_out + 1", &|d| d.src_factor_out += 1);
            }
            if insn.iter_in > 1 {
                with("dst_factor_in + 1", &|d| d.dst_factor_in += 1);
                with("src_factor_in + 1", &|d| d.src_factor_in += 1);
            }
        }
        Insn::Load(_) | Insn::Store(_) | Insn::Alu(_) | Insn::Finish(_) => {}
    }
    all
}

/// Instructions whose operands are what is proven of them. An immediate operation is arithmetic, which isn't.
fn joins(insn: &Insn) -> bool {
    matches!(insn, Insn::Alu(alu) if alu.operand == AluOperand::Acc)
}

/// Whether an instruction does the same when it is done twice.
fn repeats(insn: &Insn) -> bool {
    match insn {
        Insn::Load(_) => true,
        Insn::Gemm(gemm) => gemm.reset,
        Insn::Depthwise(insn) => insn.overwrite,
        Insn::Alu(alu) => {
            alu.operand != AluOperand::Acc || matches!(alu.op, AluOp::Max | AluOp::Min)
        }
        Insn::Store(store) => store.is_sync(),
        Insn::Finish(_) => true,
    }
}

/// Whether an instruction can be left out: it only moves tokens, or is an immediate operation.
fn moves_nothing(insn: &Insn) -> bool {
    match insn {
        Insn::Load(load) => load.is_sync(),
        Insn::Store(store) => store.is_sync(),
        Insn::Gemm(_) | Insn::Depthwise(_) => false,
        Insn::Alu(_) => !joins(insn),
        Insn::Finish(_) => true,
    }
}

fn resolved<'l>(listing: &'l Listing, listed: &ListedInsn, insn: &Insn) -> Resolved<'l> {
    let uops = vta_isa::resolve::uop_range(insn).map_or(&[][..], |(bgn, end)| {
        &listing.kernels[listed.kernel.unwrap() as usize][bgn.into()..end.into()]
    });
    Resolved::of(&listing.config, insn, Uops::of(uops)).unwrap()
}

/// Whether an instruction loads to each entry what the entry has.
fn loads_what_is_there(whole: &Listing, at: usize) -> bool {
    let mut held = std::collections::BTreeMap::new();
    let mut again = false;
    for listed in &whole.layers[0].insns[..=at] {
        let Insn::Load(load) = &listed.insn else {
            continue;
        };
        let elem = whole.config.elem_bytes(load.mem) as u64;
        again = true;
        for fill in load.fills(&whole.config) {
            for (i, entry) in (0..).zip(fill.entries) {
                let from = fill.from.as_ref().map(|from| from.start + i * elem);
                again &= held.insert((load.mem.name(), entry), from) == Some(from);
            }
        }
    }
    again && !moves_nothing(&whole.layers[0].insns[at].insn)
}

/// Whether accumulators that a longer loop writes beyond its own are stored or read by nobody until they are
/// cleared.
fn computes_for_nobody(whole: &Listing, at: usize, longer: &Insn) -> bool {
    let insns = &whole.layers[0].insns;
    let (Resolved::Gemm(own), Resolved::Gemm(more)) = (
        resolved(whole, &insns[at], &insns[at].insn),
        resolved(whole, &insns[at], longer),
    ) else {
        return false;
    };
    let mut beyond = more.dst.set();
    beyond.remove(&own.dst.set());
    // Those of its own are written as often as before.
    if more.dst.steps().count() != own.dst.steps().count() + beyond.len() {
        return false;
    }
    for listed in &insns[at + 1..] {
        match resolved(whole, listed, &listed.insn) {
            Resolved::Sync => {}
            Resolved::Load(load) => {
                if load.load.mem == MemType::Acc {
                    beyond.remove(&TileSet::range(load.entries));
                }
            }
            Resolved::Gemm(gemm) => {
                if gemm.operands.is_none() {
                    beyond.remove(&gemm.dst.set());
                }
            }
            Resolved::Depthwise(_) => {}
            Resolved::Alu(alu) => {
                if alu.src.is_some_and(|src| src.set().meets(&beyond)) {
                    return false;
                }
            }
            Resolved::Store(store) => {
                if beyond.meets(&TileSet::range(store.tiles)) {
                    return false;
                }
            }
        }
    }
    true
}

/// Every instruction of a layer is left out, done twice and spoiled in every way. How many of these do another
/// thing than the layer, and all of them that pass. The others are those that load what is there, and loops that
/// are longer for accumulators of nobody.
fn survivors(listing: &Listing, layer: usize) -> (usize, Vec<String>) {
    let whole = alone(listing, layer);
    assert!(proven(&whole).holds(), "{:?}", proven(&whole).faults);
    let (mut count, mut alike, mut passed) = (0, 0, Vec::new());
    let mut one = |at: usize, name: &str, change: &dyn Fn(&mut Vec<ListedInsn>)| {
        let mut other = whole.clone();
        change(&mut other.layers[0].insns);
        count += 1;
        let spoiled = other.layers[0].insns.get(at).map(|listed| listed.insn);
        let same = match whole.layers[0].insns[at].insn {
            Insn::Load(_) => loads_what_is_there(&whole, at),
            Insn::Gemm(_) if name.starts_with("iter") => {
                spoiled.is_some_and(|longer| computes_for_nobody(&whole, at, &longer))
            }
            _ => false,
        };
        alike += usize::from(same);
        if proven(&other).holds() && !same {
            passed.push(format!(
                "{} {at} {}: {name}",
                other.layers[0].name, whole.layers[0].insns[at].insn
            ));
        }
    };
    for (at, listed) in whole.layers[0].insns.iter().enumerate() {
        if !moves_nothing(&listed.insn) {
            one(at, "left out", &|insns| {
                insns.remove(at);
            });
        }
        if !repeats(&listed.insn) {
            one(at, "twice", &|insns| insns.insert(at, *listed));
        }
        for (name, insn) in spoiled(&listed.insn) {
            one(at, name, &|insns| insns[at].insn = insn);
        }
    }
    (count - alike, passed)
}

#[test]
fn nothing_that_is_left_out_or_spoiled_passes() {
    let listing = demo();
    let last = listing.layers.len() - 1;
    let mut all = 0;
    let mut passed = Vec::new();
    for layer in [0, 1, 3, 11, 23, last - 1, last] {
        let (count, of_layer) = survivors(&listing, layer);
        all += count;
        passed.extend(of_layer);
    }
    assert!(
        passed.is_empty(),
        "{} of {all}:\n{}",
        passed.len(),
        passed.join("\n")
    );
    assert!(all > 2000, "{all}");
}

#[test]
fn no_micro_op_is_free_to_be_another() {
    let listing = demo();
    let whole = alone(&listing, 1);
    let used: std::collections::BTreeSet<u32> = whole.layers[0]
        .insns
        .iter()
        .filter_map(|listed| listed.kernel)
        .collect();
    let reads = |kernel: u32| {
        let insns = whole.layers[0]
            .insns
            .iter()
            .filter(move |listed| listed.kernel == Some(kernel));
        let mut reads = [false; 2];
        for listed in insns {
            let gemm = matches!(&listed.insn, Insn::Gemm(gemm) if !gemm.reset);
            reads[0] |= gemm || joins(&listed.insn);
            reads[1] |= gemm;
        }
        reads
    };
    for kernel in used {
        let [src, wgt] = reads(kernel);
        for at in 0..whole.kernels[kernel as usize].len() {
            for field in 0..3 {
                // Immediate operations aren't proven to be everywhere.
                if ![src, src, wgt][field] {
                    continue;
                }
                let mut other = whole.clone();
                let uop = &mut other.kernels[kernel as usize][at];
                let index = [&mut uop.dst, &mut uop.src, &mut uop.wgt]
                    .into_iter()
                    .nth(field)
                    .unwrap();
                *index += 1;
                assert!(
                    !proven(&other).holds(),
                    "kernel {kernel} micro-op {at} field {field}"
                );
            }
        }
    }
}

#[test]
fn networks_of_the_zoo_are_proven_in_every_mode() {
    // The others take as long as their size says; `vta check --coverage` proves them.
    for (name, mode) in [("resnet18", Mode::Shift), ("mobilenet-v1", Mode::Multiply)] {
        let listing = listing(&zoo::graph_with(name, mode).unwrap(), &Config::default());
        let found = proven(&listing);
        assert!(found.holds(), "{name}: {:?}", found.faults);
        let constants = listing
            .layers
            .iter()
            .flat_map(|layer| &layer.geometry.constants);
        assert!(
            constants
                .into_iter()
                .any(|(role, _)| *role == Role::Weights)
        );
    }
}

#[test]
fn what_was_written_by_others_is_refused_with_its_line() {
    let text = text(&demo());
    let lines: Vec<&str> = text.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.starts_with("insn,"))
        .unwrap();
    let load = lines
        .iter()
        .position(|line| line.contains("load.inp") && line.contains("y_size"))
        .unwrap();
    let with = |at: usize, line: &str| {
        let mut other: Vec<&str> = lines.clone();
        other[at] = line;
        Listing::read(&other.join("\n")).unwrap_err().to_string()
    };
    let moved = lines[load].replace("y_size=", "y_size=1");
    let bases = lines[load].replace("dram_base=", "dram_base=1");
    let errors = [
        with(0, "record,layer"),
        with(1, "format,,,,,vta listing 9,,,"),
        with(2, "config,,,,,{},,"),
        with(3, "buffer,,0,,a,{},,,"),
        with(first, "insn,0,7,0,,finish,,,"),
        with(first, "insn,0,0,0,,fly,,,"),
        with(first, "insn,0,0,0,99999,gemm,,,"),
        with(first, "insn,0,0,0,,\"finish,,,"),
        with(first, ""),
        with(load, &moved),
        with(load, &bases),
        Listing::read("").unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn loops_without_end_are_refused() {
    let mut listing = alone(&demo(), 1);
    let gemm = listing.layers[0]
        .insns
        .iter_mut()
        .find_map(|i| match &mut i.insn {
            Insn::Gemm(gemm) if !gemm.reset => Some(gemm),
            _ => None,
        });
    let gemm = gemm.unwrap();
    (gemm.iter_out, gemm.iter_in) = (16_383, 16_383);
    gemm.dst_factor_out = 0;
    gemm.dst_factor_in = 0;
    gemm.src_factor_out = 0;
    gemm.src_factor_in = 0;
    let error = coverage(&listing).unwrap_err().to_string();
    assert!(
        error.contains("terms") || error.contains("steps"),
        "{error}"
    );
}
