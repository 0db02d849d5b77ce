//! Views of random programs: totals, buckets and traces agree with the cycle model's report.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use vta_driver::LayerMark;
use vta_isa::{Config, Insn};
use vta_sim::cycle::{CycleReport, Silent, StallReason, TimingConfig, Unit, simulate};
use vta_sim::views::{
    Buckets, Lane, LayerCycles, LayerTotals, Timeline, TraceWriter, Verdict, losses,
};
use vta_tests::programs;

struct Views {
    report: CycleReport,
    layers: Vec<LayerCycles>,
    timeline: Buckets,
    trace: Value,
}

fn views(insns: &[Insn], cuts: &[usize], timing: &TimingConfig) -> Views {
    let config = Config::default();
    let mark = |(i, &first_insn): (usize, &usize)| LayerMark {
        name: format!("layer {i}"),
        first_insn,
    };
    let marks: Vec<_> = cuts.iter().enumerate().map(mark).collect();
    let mut writer = TraceWriter::new(Vec::new(), "random");
    let mut listener = (
        (
            LayerTotals::new(insns, &marks, &config, timing),
            Timeline::new(insns, 50),
        ),
        writer.run(insns, &marks),
    );
    let report = simulate(timing, &config, insns, 0x8000, &mut listener).unwrap();
    let ((layers, timeline), trace) = listener;
    trace.finish(&report);
    let bytes = writer.close().unwrap();
    Views {
        layers: layers.finish(&report),
        timeline: timeline.finish(&report),
        trace: serde_json::from_slice(&bytes).unwrap(),
        report,
    }
}

/// Slices by track, as cycles.
fn tracks(trace: &Value) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let cycles = |v: &Value| (v.as_f64().unwrap() * 1000.0).round() as u64;
    let mut tracks: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let from = cycles(&event["ts"]);
            let track = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
            track.push((from, from + cycles(&event["dur"])));
        }
    }
    tracks.values_mut().for_each(|t| t.sort_unstable());
    tracks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn views_of_random_programs_agree_with_the_report(
        seed in any::<u64>(),
        rounds in 1usize..12,
        cuts in prop::collection::vec(0.0f64..1.0, 0..6),
        de10 in any::<bool>(),
    ) {
        let timing = if de10 { TimingConfig::de10() } else { TimingConfig::pynq() };
        let insns = programs::generate(&Config::default(), seed, rounds).insns;
        let mut cuts: Vec<usize> = cuts.iter().map(|c| (c * insns.len() as f64) as usize).collect();
        cuts.sort_unstable();
        let v = views(&insns, &cuts, &timing);
        let plain = simulate(&timing, &Config::default(), &insns, 0x8000, &mut Silent).unwrap();
        prop_assert_eq!(&v.report, &plain, "listeners changed the timing");

        let mut total = LayerCycles::default();
        for layer in &v.layers {
            prop_assert_eq!(layer.start, total.cycles, "windows leave no gap");
            prop_assert_eq!(layer.spend.iter().sum::<u64>(), layer.cycles, "{}", &layer.name);
            let lost: u64 = losses(layer).iter().map(|l| l.cycles).sum();
            prop_assert_eq!(lost + layer.spend[0], layer.cycles);
            prop_assert!(!Verdict::of(layer).words.is_empty());
            total.add(layer);
        }
        prop_assert_eq!(total.cycles, v.report.cycles);
        prop_assert_eq!(total.insns, insns.len() as u64);
        prop_assert_eq!(total.gemm_uops + total.reset_uops, v.report.gemm_uops);
        prop_assert_eq!(total.alu_uops, v.report.alu_uops);
        for unit in Unit::ALL {
            for reason in StallReason::ALL {
                prop_assert_eq!(total.stalled(unit, reason), v.report.stall(unit, reason));
            }
        }

        let lane = |lane: Lane| v.timeline.busy.iter().map(|b| b[lane as usize]).sum::<u64>();
        prop_assert!(v.timeline.busy.len() <= 50);
        prop_assert_eq!(lane(Lane::Load), v.report.busy[Unit::Load as usize]);
        prop_assert_eq!(lane(Lane::Store), v.report.busy[Unit::Store as usize]);

        for (tid, slices) in tracks(&v.trace) {
            for pair in slices.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "track {}: {:?}", tid, pair);
            }
            let last = slices.last().map_or(0, |s| s.1);
            prop_assert!(last <= v.report.cycles, "track {tid} ends at {last}");
        }
        let flows = |ph: &str| {
            let events = v.trace["traceEvents"].as_array().unwrap();
            let mut ids: Vec<_> = events.iter().filter(|e| e["ph"] == ph)
                .map(|e| e["id"].as_u64().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        prop_assert_eq!(flows("s"), flows("f"));
    }
}
