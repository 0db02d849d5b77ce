//! Cycle, request and beat counts of the RTL, program by program.

use serde_json::Value;
use vta_isa::{Config, Insn};
use vta_sim::cycle::{Silent, TimingConfig, simulate};

/// The counters in the order of the recorded keys.
const KEYS: [&str; 5] = ["rtl_cycles", "rdreq", "rdbeats", "wrreq", "wrbeats"];

fn check(preset: &str) {
    let Some(shared) = vta_tests::shared("conformance/rtl-cycles") else {
        return;
    };
    let path = shared.join(format!("conformance/rtl-cycles/{preset}.json"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let insn_addr = file["insn_addr"].as_u64().unwrap() as u32;
    let timing = TimingConfig::preset(preset).unwrap();
    let programs = file["programs"].as_array().unwrap();
    let mut matched = 0;
    for program in programs {
        let word = |w: &Value| u128::from_str_radix(w.as_str().unwrap(), 16).unwrap();
        let words = program["insns"].as_array().unwrap().iter().map(word);
        let insns: Vec<_> = words.map(|w| Insn::decode(w).unwrap()).collect();
        let r = simulate(&timing, &Config::default(), &insns, insn_addr, &mut Silent).unwrap();
        let ours = [
            r.cycles,
            r.read_requests,
            r.read_beats,
            r.write_requests,
            r.write_beats,
        ];
        let rtl = KEYS.map(|key| program[key].as_u64().unwrap());
        if ours == rtl {
            matched += 1;
        } else {
            println!(
                "seed {}: {KEYS:?} are {ours:?}, RTL {rtl:?}",
                program["seed"]
            );
        }
    }
    let total = programs.len();
    println!("rtl-cycles {preset}: matched {matched} of {total}");
    assert!(total >= 86, "only {total} programs were found");
    assert_eq!(matched, total);
}

#[test]
fn every_recorded_program_on_pynq() {
    check("pynq");
}

#[test]
fn every_recorded_program_on_de10() {
    check("de10");
}
