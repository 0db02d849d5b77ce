use super::*;

#[test]
fn both_presets_are_valid_and_survive_toml() {
    for name in TimingConfig::PRESETS {
        let timing = TimingConfig::preset(name).unwrap();
        timing.validate().unwrap();
        assert_eq!(TimingConfig::from_toml(&timing.to_toml()).unwrap(), timing);
        let text = format!("preset = \"{name}\"");
        assert_eq!(TimingConfig::from_toml(&text).unwrap(), timing);
    }
    assert_eq!(TimingConfig::from_toml("").unwrap(), TimingConfig::pynq());
}

#[test]
fn a_banked_dram_survives_toml() {
    let dram = DramModel::Banked {
        banks: 8,
        row_bytes: 2048,
        t_hit: 1,
        t_miss: 12,
        t_refresh: 26,
        refresh_interval: 780,
    };
    let timing = TimingConfig {
        dram,
        ..TimingConfig::de10()
    };
    assert_eq!(TimingConfig::from_toml(&timing.to_toml()).unwrap(), timing);
}

#[test]
fn bad_files_name_key_value_and_limit() {
    for (text, parts) in [
        (
            "bus_bytes = 12",
            &["bus_bytes", "12", "8, 16, 32 or 64"][..],
        ),
        ("burst_beats = 24", &["burst_beats", "24", "power of two"]),
        ("burst_beats = 512", &["burst_beats", "512", "256"]),
        ("burst_beats = 0", &["burst_beats", "is 0"]),
        (
            "fetch_chunk_insns = 0",
            &["fetch_chunk_insns", "is 0", "1 to 128"],
        ),
        (
            "preset = \"de10\"\nfetch_chunk_insns = 9",
            &["fetch_chunk_insns", "9", "1 to 8", "16 beats"],
        ),
        ("tags = 0", &["tags", "is 0", "1 to 4096"]),
        ("queue_depth = 70000", &["queue_depth", "70000", "65536"]),
        ("token_max = 0", &["token_max", "is 0"]),
        (
            "memory_latency_cycles = 0",
            &["memory_latency_cycles", "is 0"],
        ),
        (
            "gemm_pipeline_cycles = 999",
            &["gemm_pipeline_cycles", "999", "256"],
        ),
        (
            "alu_two_operand_cycles = 17",
            &["alu_two_operand_cycles", "17", "16"],
        ),
        ("clock_mhz = nan", &["clock_mhz", "NaN", "over 0"]),
        ("clock_mhz = -1.0", &["clock_mhz", "-1", "over 0"]),
        ("preset = \"zcu\"", &["zcu", "pynq", "de10"]),
        (
            "latency = 3",
            &["latency", "unknown field", "memory_latency_cycles"],
        ),
        ("tags = \"many\"", &["many", "u32"]),
        ("tags = -1", &["-1", "u32"]),
        ("tags = ", &["timing file"]),
        ("[dram]\nmodel = \"magic\"", &["magic", "ideal", "banked"]),
        ("[dram]\nmodel = \"banked\"\nbanks = 8", &["row_bytes"]),
        ("[dram]\nmodel = \"ideal\"\nspeed = 8", &["speed"]),
    ] {
        let error = TimingConfig::from_toml(text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: `{part}` is not in: {error}");
        }
    }
}
