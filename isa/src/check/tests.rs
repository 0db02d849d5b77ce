use proptest::prelude::*;

use super::*;
use crate::asm;

fn findings(text: &str) -> Vec<String> {
    let insns = asm::parse(text).unwrap();
    check(&Config::default(), &insns)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_program_that_hands_its_tokens_on_is_clean() {
    let text = "load.inp y_size=1 x_size=16 push_next\n\
                    gemm uop_end=1 iter_out=1 iter_in=16 dst_factor_in=1 src_factor_in=1 pop_prev push_next\n\
                    store y_size=1 x_size=16 pop_prev push_prev\nfinish pop_next";
    assert!(findings(text).is_empty());
}

#[test]
fn each_fault_is_named_with_its_bound() {
    let cases = [
        (
            "load.inp sram_base=2040 y_size=1 x_size=9\nfinish",
            "sram_base reaches 2048, but the inp scratchpad has 2048",
        ),
        (
            "load.wgt y_size=1 x_size=1 y_pad_0=15 x_pad_1=15 sram_base=900\nfinish",
            "sram_base reaches 1155, but the wgt scratchpad has 1024",
        ),
        (
            "store sram_base=2047 y_size=2 x_size=1\nfinish",
            "sram_base reaches 2048",
        ),
        (
            "load.acc dram_base=0x3ffffff y_size=2 x_size=1 x_stride=1\nfinish",
            "DRAM bytes up to 0x100000040",
        ),
        (
            "gemm uop_bgn=3 uop_end=2\nfinish",
            "uop_end 2 is below uop_bgn 3",
        ),
        (
            "gemm uop_end=8193 iter_out=1 iter_in=1\nfinish",
            "uop_end reaches 8192",
        ),
        (
            "gemm uop_end=1 iter_out=16383 iter_in=16383 dst_factor_out=1\nfinish",
            "dst reaches 16382",
        ),
        (
            "alu.add uop_end=1 iter_out=2 iter_in=1 src_factor_out=2047\nalu.add uop_end=1 iter_out=3 iter_in=1 src_factor_out=2047\nfinish",
            "instruction 1 (alu.add",
        ),
        ("load.inp pop_prev\nfinish", "pop_prev in the load module"),
        ("store push_next\nfinish", "push_next in the store module"),
        ("gemm", "does not end in FINISH"),
        ("finish\ngemm", "FINISH must be the last"),
        (
            "load.inp pop_next\nfinish pop_next",
            "deadlock: load waits at instruction 0 (load.inp sram_base=0 dram_base=0 pop_next) for a token from compute to load; compute waits at",
        ),
        (
            "gemm push_next\nfinish",
            "1 token(s) left from compute to store",
        ),
    ];
    for (text, expected) in cases {
        let found = findings(text);
        assert!(
            found.iter().any(|f| f.contains(expected)),
            "{text:?} gave {found:?}"
        );
    }
}

#[test]
fn known_micro_ops_are_checked_through_the_loops() {
    let insns =
        asm::parse("gemm uop_end=2 iter_out=1 iter_in=10 wgt_factor_in=100\nfinish").unwrap();
    let uops = [
        Uop::default(),
        Uop {
            dst: 0,
            src: 0,
            wgt: 124,
        },
    ];
    let found = check_with(&Config::default(), &insns, |i| {
        (i == 0).then_some(&uops[..])
    });
    assert!(
        found[0].to_string().contains("wgt reaches 1024"),
        "{found:?}"
    );
}

#[test]
fn dirty_bits_are_only_reported_when_asked() {
    let word = 3u128 | 1 << 100;
    assert!(check(&Config::default(), &[Insn::decode(word).unwrap()]).is_empty());
    assert_eq!(
        dirty(&[3, word]),
        [Finding::Dirty {
            index: 1,
            word,
            bits: 1 << 100
        }]
    );
}

proptest! {
    #[test]
    fn no_pattern_panics_or_hangs(words in prop::collection::vec(any::<u128>(), 0..40)) {
        let insns: Vec<_> = words.iter().filter_map(|w| Insn::decode(*w).ok()).collect();
        let _ = check(&Config::default(), &insns);
        let _ = dirty(&words);
    }
}
