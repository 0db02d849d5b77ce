use std::collections::BTreeMap;

use serde_json::Value;
use vta_isa::{Config, asm};

use super::*;
use crate::cycle::{TimingConfig, simulate};

const PROGRAM: &str = "load.inp y_size=1 x_size=16 x_stride=16
        load.wgt y_size=2 x_size=16 x_stride=16 push_next
        load.uop y_size=1 x_size=32 x_stride=32
        gemm uop_bgn=0 uop_end=16 iter_out=16 iter_in=1 dst_factor_out=16 pop_prev push_prev
        load.wgt y_size=1 x_size=16 x_stride=16 pop_next push_next
        alu.max imm=-127 uop_bgn=16 uop_end=32 iter_out=16 iter_in=1 dst_factor_out=16 push_next
        load.acc y_size=1 x_size=16 x_stride=16 pop_prev push_next
        store y_size=1 x_size=256 x_stride=256 pop_prev push_prev
        store y_size=1 x_size=256 x_stride=256 pop_prev push_prev
        finish pop_next";

fn trace(timing: &TimingConfig) -> Value {
    let insns = asm::parse(PROGRAM).unwrap();
    let mark = |name: &str, first_insn| LayerMark {
        name: name.to_owned(),
        first_insn,
    };
    let marks = [mark("conv \"1\"\n\\", 0), mark("b", 4)];
    let mut writer = TraceWriter::new(Vec::new(), "demo <\">");
    for _ in 0..2 {
        let mut run = writer.run(&insns, &marks);
        let report = simulate(timing, &Config::default(), &insns, 0, &mut run).unwrap();
        run.finish(&report);
    }
    let bytes = writer.close().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn cycles(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn slices_of_a_track_do_not_overlap() {
    for timing in [TimingConfig::pynq(), TimingConfig::de10()] {
        let trace = trace(&timing);
        let mut tracks: BTreeMap<u64, Vec<(u64, u64, String)>> = BTreeMap::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            if event["ph"] == "X" {
                let (from, dur) = (cycles(&event["ts"]), cycles(&event["dur"]));
                let track = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
                track.push((from, from + dur, event["name"].to_string()));
            }
        }
        assert!(tracks.len() >= 10, "there are {} tracks", tracks.len());
        for (tid, slices) in &mut tracks {
            slices.sort();
            for pair in slices.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "track {tid}: {pair:?}");
            }
        }
        assert_eq!(tracks[&u64::from(Track::of(Unit::Compute).0)].len(), 2 * 5);
        assert_eq!(tracks[&u64::from(Track::LAYERS.0)].len(), 2 * 2);
    }
}

#[test]
fn every_arrow_has_both_ends_within_slices_of_its_modules() {
    let trace = trace(&TimingConfig::pynq());
    let events = trace["traceEvents"].as_array().unwrap();
    let ends = |ph: &str| -> BTreeMap<u64, &Value> {
        let of_kind = events.iter().filter(|e| e["ph"] == ph);
        of_kind.map(|e| (e["id"].as_u64().unwrap(), e)).collect()
    };
    let (starts, finishes) = (ends("s"), ends("f"));
    assert_eq!(starts.len(), 2 * 6);
    assert!(starts.keys().eq(finishes.keys()));
    for (id, start) in &starts {
        let finish = finishes[id];
        assert!(cycles(&start["ts"]) < cycles(&finish["ts"]));
        assert_eq!(start["name"], finish["name"]);
        for end in [start, finish] {
            let at = cycles(&end["ts"]);
            let inside = |e: &&Value| {
                let on_track = e["ph"] == "X" && e["tid"] == end["tid"];
                on_track && {
                    let from = cycles(&e["ts"]);
                    (from..from + cycles(&e["dur"])).contains(&at)
                }
            };
            assert_eq!(events.iter().filter(inside).count(), 1, "{end}");
        }
    }
}

#[test]
fn names_are_escaped_and_kept() {
    let trace = trace(&TimingConfig::pynq());
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|e| e["name"] == "conv \"1\"\n\\"));
    assert_eq!(events[0]["args"]["name"], "demo <\"> (1 ns = 1 cycle)");
    let gemm = events.iter().find(|e| e["name"] == "gemm").unwrap();
    assert!(
        gemm["args"]["text"]
            .as_str()
            .unwrap()
            .contains("uop_end=16")
    );
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let insns = asm::parse(PROGRAM).unwrap();
    let mut writer = TraceWriter::new(Full(3000), "demo");
    let mut run = writer.run(&insns, &[]);
    let (timing, config) = (TimingConfig::pynq(), Config::default());
    let report = simulate(&timing, &config, &insns, 0, &mut run).unwrap();
    run.finish(&report);
    let fault = writer.close().map(|_| ()).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::StorageFull);
}
