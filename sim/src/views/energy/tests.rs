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
    let table = EnergyTable::from_toml("mac_pj = 1\nalu_mul_pj = 2\ncycle_pj = 3").unwrap();
    let energy = table.energy(&work, 10, 7);
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
        ("= 3", "energy file"),
    ] {
        let error = EnergyTable::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
