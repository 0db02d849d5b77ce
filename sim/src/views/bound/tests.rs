use vta_isa::asm;

use super::*;

fn bound(text: &str, timing: &TimingConfig) -> Bound {
    Bound::of(&asm::parse(text).unwrap(), &Config::default(), timing)
}

#[test]
fn bytes_read_twice_count_once() {
    let pynq = TimingConfig::pynq();
    for (text, beats) in [
        ("load.inp y_size=1 x_size=16 x_stride=16", 32),
        (
            "load.inp y_size=1 x_size=16 x_stride=16\nload.inp y_size=1 x_size=16 x_stride=16",
            32,
        ),
        (
            "load.inp y_size=1 x_size=16 x_stride=16\nload.inp dram_base=8 y_size=1 x_size=16 x_stride=16",
            48,
        ),
        ("load.inp y_size=4 x_size=2 x_stride=8", 16),
        (
            "load.inp y_size=4 x_size=8 x_stride=8\nload.inp dram_base=3 y_size=1 x_size=1 x_stride=1",
            64,
        ),
        ("load.acc y_size=9 x_size=2 x_stride=0", 16),
        ("load.uop y_size=1 x_size=16 x_stride=16", 0),
        ("load.wgt y_size=0 x_size=3 x_stride=3", 0),
    ] {
        assert_eq!(bound(text, &pynq).read_cycles, beats, "{text}");
    }
}

#[test]
fn loads_of_the_load_module_are_no_work_of_compute() {
    let pynq = TimingConfig::pynq();
    for mem in ["acc", "acc8"] {
        let of = |flag| {
            bound(
                &format!("load.{mem}{flag} y_size=2 x_size=3 x_stride=3"),
                &pynq,
            )
        };
        let (own, ahead) = (of(""), of(" preload"));
        assert!(own.compute_cycles > 0);
        assert_eq!(
            (ahead.compute_cycles, ahead.read_cycles),
            (0, own.read_cycles)
        );
    }
}

#[test]
fn stores_cost_what_the_rtl_takes_but_their_start() {
    // Measured: x=16 52 / 55, x=128 388 / 433, 16x16 stride 56 820 / 865, one cycle to start.
    for (text, pynq, de10) in [
        ("store y_size=1 x_size=1 x_stride=1", 6, 6),
        ("store y_size=1 x_size=16 x_stride=16", 51, 54),
        ("store y_size=1 x_size=128 x_stride=128", 387, 432),
        ("store y_size=16 x_size=16 x_stride=56", 816 + 3, 864),
        // A table's three tiles and four stages.
        (
            "store requantize y_size=1 x_size=16 x_stride=16",
            51 + 7,
            54 + 7,
        ),
        // Seven tiles, six stages, and a residual for each tile.
        (
            "store requantize residual=1 y_size=1 x_size=16 x_stride=16",
            51 + 13 + 16,
            54 + 13 + 16,
        ),
        // An entry for each other row.
        (
            "store requantize by_row y_size=16 x_size=16 x_stride=56",
            819 + 7 + 45,
            864 + 7 + 45,
        ),
    ] {
        let found = [TimingConfig::pynq(), TimingConfig::de10()];
        let found = found.map(|timing| bound(text, &timing).store_cycles);
        assert_eq!(found, [pynq, de10], "{text}");
    }
}

#[test]
fn the_compute_module_does_one_thing_at_a_time() {
    let text = "gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=50
            gemm uop_bgn=0 uop_end=8 iter_out=50 iter_in=1
            alu.shr imm=3 uop_bgn=0 uop_end=1 iter_out=50 iter_in=1
            alu.add uop_bgn=0 uop_end=1 iter_out=50 iter_in=1
            load.acc8 y_size=2 x_size=3 x_stride=3
            load.acc y_size=1 x_size=1 x_stride=1
            load.inp y_size=1 x_size=1 x_stride=1";
    let found = bound(text, &TimingConfig::pynq());
    assert_eq!(found.compute_cycles, 50 + 400 + 50 + 100 + 12 + 8);
    assert_eq!((found.cycles(), found.of_compute()), (400, 620));
}

#[test]
fn the_bound_is_the_slowest_resource() {
    let text = "gemm uop_bgn=0 uop_end=8 iter_out=10 iter_in=1
            gemm reset uop_bgn=0 uop_end=8 iter_out=100 iter_in=1
            load.inp y_size=1 x_size=16 x_stride=16";
    let found = bound(text, &TimingConfig::pynq());
    assert_eq!((found.gemm_cycles, found.cycles()), (80, 80));
}
