use vta_isa::asm;

use super::*;

#[test]
fn every_access_is_counted_with_its_bytes() {
    for (text, expected) in [
        (
            "gemm uop_bgn=0 uop_end=2 iter_out=3 iter_in=1",
            [24, 96, 1536, 768],
        ),
        (
            "gemm reset uop_bgn=0 uop_end=2 iter_out=3 iter_in=1",
            [24, 0, 0, 384],
        ),
        (
            "alu.max imm=0 uop_bgn=0 uop_end=1 iter_out=2 iter_in=1",
            [8, 0, 0, 256],
        ),
        (
            "alu.mul uop_bgn=0 uop_end=1 iter_out=2 iter_in=1",
            [8, 0, 0, 384],
        ),
        (
            "load.inp y_size=1 x_size=2 x_stride=2 x_pad_0=1",
            [0, 48, 0, 0],
        ),
        ("load.acc8 y_size=1 x_size=2 x_stride=2", [0, 0, 0, 128]),
        ("store y_size=2 x_size=2 x_stride=2", [0, 0, 0, 256]),
        ("store requantize y_size=2 x_size=2", [0, 0, 0, 448]),
        (
            "store requantize by_row residual=1 y_size=2 x_size=2",
            [0, 0, 0, 1408],
        ),
    ] {
        let mut work = Work::default();
        for insn in asm::parse(text).unwrap() {
            work.count(&insn, &Config::default());
        }
        assert_eq!(work.scratchpad_bytes, expected, "{text}");
    }
}

#[test]
fn a_store_that_rounds_multiplies() {
    for (text, expected) in [
        ("store y_size=2 x_size=2", (0, 0)),
        ("store saturate y_size=2 x_size=2", (0, 128)),
        ("store requantize y_size=2 x_size=2", (64, 256)),
        ("store requantize residual=1 y_size=2 x_size=2", (128, 576)),
        ("store requantize y_size=0 x_size=2", (0, 0)),
    ] {
        let mut work = Work::default();
        for insn in asm::parse(text).unwrap() {
            work.count(&insn, &Config::default());
        }
        assert_eq!((work.alu_muls, work.alu_ops), expected, "{text}");
    }
}

#[test]
fn prices_are_multiplied_and_summed() {
    let mut work = Work::default();
    let text = "gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=1
            alu.mul imm=3 uop_bgn=0 uop_end=1 iter_out=1 iter_in=1";
    for insn in asm::parse(text).unwrap() {
        work.count(&insn, &Config::default());
    }
    let costs = Costs::from_toml("mac_pj = 1\nalu_mul_pj = 2\ncycle_pj = 3").unwrap();
    let energy = costs.energy(&work, 10, 7);
    assert_eq!(energy.matrix_pj, 256.0);
    assert_eq!(energy.alu_pj, 32.0);
    assert_eq!(energy.dram_pj, 1600.0);
    assert_eq!(energy.leakage_pj, 21.0);
    let parts = 256.0 + 32.0 + 1600.0 + 21.0 + energy.scratchpad_pj;
    assert_eq!(energy.total_pj(), parts);
}

#[test]
fn bad_files_name_the_key() {
    for (text, part) in [
        ("mac = 1.0", "mac"),
        ("mac_pj = -1.0", "mac_pj is -1"),
        ("dram_byte_pj = nan", "dram_byte_pj is NaN"),
        ("cycle_pj = \"x\"", "cycle_pj"),
        ("= 3", "costs file"),
    ] {
        let error = Costs::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_printed_table_is_the_table() {
    let costs = Costs {
        mac_pj: 1.5,
        bus_byte_mm2: 0.0,
        ..Costs::default()
    };
    let text = costs.to_toml();
    assert_eq!(Costs::from_toml(&text).unwrap(), costs);
    let sources = text.lines().filter_map(|line| line.strip_prefix("# "));
    assert!(
        sources
            .clone()
            .all(|source| (10..=78).contains(&source.len())),
        "{text}"
    );
    assert_eq!(sources.count(), costs.entries().count());
}

#[test]
fn every_part_grows_with_what_it_is_for() {
    let costs = Costs::default();
    let area = |json: &str, timing| {
        costs.area_mm2(
            &Config::from_json(json).unwrap(),
            &TimingConfig::from_toml(timing).unwrap(),
        )
    };
    let base = area("{}", "");
    let scratchpads = f64::from((32 + 32 + 256 + 128 + 32) * 1024) * costs.sram_byte_mm2;
    let (matrix, alu) = (256.0 * costs.mac_mm2, 16.0 * costs.alu_lane_mm2);
    let bus = 8.0 * costs.bus_byte_mm2;
    assert!((base - matrix - alu - scratchpads - bus).abs() < 1e-12);
    // Four times the MACs and twice the lanes.
    let wide = area("{\"LOG_BLOCK\": 5}", "") - base;
    assert!((wide - 3.0 * matrix - alu).abs() < 1e-12);
    assert!(area("{}", "bus_bytes = 16") > base);
    assert!(area("{\"LOG_WGT_BUFF_SIZE\": 17}", "") < base);
    for (name, lane) in [
        ("CLIP", costs.clip_lane_mm2),
        ("MOV", costs.mov_lane_mm2),
        ("OVERWRITE", costs.overwrite_sum_mm2),
        ("PRELOAD", costs.preload_lane_mm2),
    ] {
        let with = format!(r#"{{"EXTENSIONS": ["ACC8", "MUL", "SHL", "{name}"]}}"#);
        assert!(
            (area(&with, "") - base - 16.0 * lane).abs() < 1e-12,
            "{name}"
        );
    }
    let bits = f64::from(32 * 1024) / 4.0 * costs.sram_byte_mm2;
    let circuit = 16.0 * costs.saturate_lane_mm2 + 8.0 * costs.saturate_byte_mm2;
    let with = r#"{"EXTENSIONS": ["ACC8", "MUL", "SHL", "SATURATE"]}"#;
    assert!((area(with, "") - base - bits - circuit).abs() < 1e-12);
    let requant = |depth| {
        let of = |more: &str| {
            format!(r#"{{"EXTENSIONS": ["MUL"{more}], "LOG_ACC_BUFF_SIZE": {depth}}}"#)
        };
        area(&of(r#", "REQUANT""#), "") - area(&of(""), "")
    };
    let mirror = f64::from(3 * 32 * 1024) * costs.sram_byte_mm2;
    let circuit = 16.0 * costs.requant_lane_mm2 + 8.0 * costs.requant_byte_mm2;
    assert!((requant(17) - mirror - circuit).abs() < 1e-12);
    assert!((requant(17) - requant(16) - mirror / 2.0).abs() < 1e-12);
}
