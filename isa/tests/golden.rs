//! Golden words: each field and each code alone, at its largest value, as the original headers
//! have it. These were written down before the fields were declared as they are now.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use vta_isa::{AluOp, Deps, Insn, Load, MemType, Notation, Opcode, Uop, asm};

/// Assembly text and its word.
#[rustfmt::skip]
const CASES: &[(&str, u128)] = &[
    ("load.uop", 0x00000000000000000000000000000000),
    ("load.wgt", 0x00000000000000000000000000000080),
    ("load.inp", 0x00000000000000000000000000000100),
    ("load.acc", 0x00000000000000000000000000000180),
    ("load.acc8", 0x00000000000000000000000000000280),
    ("load.acc preload", 0x00000000000000000000000000000300),
    ("load.acc8 preload", 0x00000000000000000000000000000380),
    ("load.wgt4", 0x00000000000000000400000000000200),
    ("load.wgt4 y_size=65535", 0x000000000000ffff0400000000000200),
    ("load.wgt4 push_next", 0x00000000000000000400000000000240),
    ("load.inp sram_base=65535", 0x00000000000000000000000003fffd00),
    ("load.inp dram_base=4294967295", 0x000000000000000003fffffffc000100),
    ("load.inp y_size=65535", 0x000000000000ffff0000000000000100),
    ("load.inp x_size=65535", 0x00000000ffff00000000000000000100),
    ("load.inp x_stride=65535", 0x0000ffff000000000000000000000100),
    ("load.inp y_pad_0=15", 0x000f0000000000000000000000000100),
    ("load.inp y_pad_1=15", 0x00f00000000000000000000000000100),
    ("load.inp x_pad_0=15", 0x0f000000000000000000000000000100),
    ("load.inp x_pad_1=15", 0xf0000000000000000000000000000100),
    ("load.acc8 pop_prev", 0x00000000000000000000000000000288),
    ("load.acc8 pop_next", 0x00000000000000000000000000000290),
    ("load.acc8 push_prev", 0x000000000000000000000000000002a0),
    ("load.acc8 push_next", 0x000000000000000000000000000002c0),
    ("store", 0x00000000000000000000000000000201),
    ("store saturate", 0x00000000000000000000000000000301),
    ("store requantize table=0", 0x00000000000000000000000000000205),
    ("store requantize table=32767", 0xfffe0000000000000000000000000205),
    ("store requantize table=0 by_row", 0x00010000000000000000000000000205),
    ("store requantize table=0 residual=63", 0x0000000000000000fc00000000000205),
    ("store sram_base=65535", 0x00000000000000000000000003fffe01),
    ("store dram_base=4294967295", 0x000000000000000003fffffffc000201),
    ("store y_size=65535", 0x000000000000ffff0000000000000201),
    ("store x_size=65535", 0x00000000ffff00000000000000000201),
    ("store x_stride=65535", 0x0000ffff000000000000000000000201),
    ("store pop_prev", 0x00000000000000000000000000000209),
    ("store pop_next", 0x00000000000000000000000000000211),
    ("store push_prev", 0x00000000000000000000000000000221),
    ("store push_next", 0x00000000000000000000000000000241),
    ("gemm", 0x00000000000000000000000000000002),
    ("gemm uop_bgn=8191", 0x000000000000000000000000001fff02),
    ("gemm uop_end=16383", 0x000000000000000000000007ffe00002),
    ("gemm iter_out=16383", 0x00000000000000000001fff800000002),
    ("gemm iter_in=16383", 0x00000000000000007ffe000000000002),
    ("gemm dst_factor_out=2047", 0x00000000000007ff0000000000000002),
    ("gemm dst_factor_in=2047", 0x00000000003ff8000000000000000002),
    ("gemm src_factor_out=2047", 0x00000001ffc000000000000000000002),
    ("gemm src_factor_in=2047", 0x00000ffe000000000000000000000002),
    ("gemm wgt_factor_out=1023", 0x003ff000000000000000000000000002),
    ("gemm wgt_factor_in=1023", 0xffc00000000000000000000000000002),
    ("gemm pop_prev", 0x0000000000000000000000000000000a),
    ("gemm pop_next", 0x00000000000000000000000000000012),
    ("gemm push_prev", 0x00000000000000000000000000000022),
    ("load.inp pad_value=-1 sram_base=0 dram_base=0", 0x000000000000ff000000000000000200),
    ("load.inp pad_value=127 sram_base=0 dram_base=0 y_size=255", 0x0000000000007fff0000000000000200),
    ("gemm push_next", 0x00000000000000000000000000000042),
    ("depthwise", 0x00000000000000000000000000000007),
    ("depthwise uop_bgn=8191", 0x000000000000000000000000001fff07),
    ("depthwise uop_end=16383", 0x000000000000000000000007ffe00007),
    ("depthwise iter_out=16383", 0x00000000000000000001fff800000007),
    ("depthwise iter_in=16383", 0x00000000000000007ffe000000000007),
    ("depthwise dst_factor_out=2047", 0x00000000000007ff0000000000000007),
    ("depthwise dst_factor_in=2047", 0x00000000003ff8000000000000000007),
    ("depthwise src_factor_out=2047", 0x00000001ffc000000000000000000007),
    ("depthwise src_factor_in=2047", 0x00000ffe000000000000000000000007),
    ("depthwise pop_prev", 0x0000000000000000000000000000000f),
    ("depthwise pop_next", 0x00000000000000000000000000000017),
    ("depthwise push_prev", 0x00000000000000000000000000000027),
    ("depthwise push_next", 0x00000000000000000000000000000047),
    ("depthwise overwrite", 0x00000000000000000000000000000087),
    ("depthwise rows=15", 0x0000f000000000000000000000000007),
    ("depthwise columns=15", 0x000f0000000000000000000000000007),
    ("depthwise pitch=2047", 0x7ff00000000000000000000000000007),
    ("alu.min", 0x00000000000000000000000000000004),
    ("alu.max", 0x00001000000000000000000000000004),
    ("alu.add", 0x00002000000000000000000000000004),
    ("alu.shr", 0x00003000000000000000000000000004),
    ("alu.mul", 0x00004000000000000000000000000004),
    ("alu.shl", 0x00005000000000000000000000000004),
    ("alu.clip", 0x00006000000000000000000000000004),
    ("alu.mov", 0x00007000000000000000000000000004),
    ("alu.shl imm=-32768", 0x8000d000000000000000000000000004),
    ("alu.shl imm=32767", 0x7fffd000000000000000000000000004),
    ("alu.shl uop_bgn=8191", 0x000050000000000000000000001fff04),
    ("alu.shl uop_end=16383", 0x000050000000000000000007ffe00004),
    ("alu.shl iter_out=16383", 0x00005000000000000001fff800000004),
    ("alu.shl iter_in=16383", 0x00005000000000007ffe000000000004),
    ("alu.shl dst_factor_out=2047", 0x00005000000007ff0000000000000004),
    ("alu.shl dst_factor_in=2047", 0x00005000003ff8000000000000000004),
    ("alu.shl src_factor_out=2047", 0x00005001ffc000000000000000000004),
    ("alu.shl src_factor_in=2047", 0x00005ffe000000000000000000000004),
    ("alu.shl pop_prev", 0x0000500000000000000000000000000c),
    ("alu.shl pop_next", 0x00005000000000000000000000000014),
    ("alu.shl push_prev", 0x00005000000000000000000000000024),
    ("alu.shl push_next", 0x00005000000000000000000000000044),
    ("finish", 0x00000000000000000000000000000003),
    ("finish pop_prev", 0x0000000000000000000000000000000b),
    ("finish pop_next", 0x00000000000000000000000000000013),
    ("finish push_prev", 0x00000000000000000000000000000023),
    ("finish push_next", 0x00000000000000000000000000000043),
    ("gemm overwrite", 0x00000000000000000000000000000006),
    ("gemm reset", 0x00000000000000000000000000000082),
    ("alu.add imm=0", 0x0000a000000000000000000000000004),
];

#[test]
fn every_field_and_code_is_where_the_original_has_it() {
    for (text, word) in CASES {
        let insn = asm::parse(text).unwrap()[0];
        assert_eq!(insn.encode(), Ok(*word), "{text}");
        assert_eq!(Insn::decode(*word), Ok(insn), "{text}");
    }
}

#[test]
fn every_field_and_code_of_every_kind_has_its_word() {
    let words = |text: &'static str| text.split([' ', '=']);
    let texts: BTreeSet<Vec<_>> = CASES.iter().map(|c| words(c.0).take(2).collect()).collect();
    for opcode in Opcode::ALL {
        let kind = opcode.name();
        let of = |text: &&Vec<&str>| text[0].split('.').next() == Some(kind);
        let own = || texts.iter().filter(of);
        assert_ne!(own().count(), 0, "{kind} has no word");
        for field in Deps::LIST.iter().chain(opcode.fields()) {
            // The mnemonic holds the codes.
            let found = own().any(|text| text.get(1) == Some(&field.name));
            assert!(
                found || field.notation == Notation::Code,
                "{kind} {}",
                field.name
            );
        }
    }
    let loaded = MemType::NAMES.iter().filter(|m| **m != MemType::Out.name());
    let loads = loaded.map(|m| format!("load.{m}"));
    for mnemonic in loads.chain(AluOp::NAMES.iter().map(|op| format!("alu.{op}"))) {
        assert!(texts.iter().any(|text| text[0] == mnemonic), "{mnemonic}");
    }
    for (mem, ..) in MemType::PRELOADED {
        let words = [format!("load.{mem}"), Load::PRELOAD.to_owned()];
        assert!(texts.iter().any(|text| *text == words), "{words:?}");
    }
}

#[test]
fn every_index_of_a_micro_op_is_where_the_original_has_it() {
    let uop = |dst, src, wgt| Uop { dst, src, wgt }.encode();
    assert_eq!(uop(2047, 0, 0), Ok(0x7ff));
    assert_eq!(uop(0, 2047, 0), Ok(0x3f_f800));
    assert_eq!(uop(0, 0, 1023), Ok(0xffc0_0000));
    assert!(uop(2048, 0, 0).is_err() && uop(0, 2048, 0).is_err() && uop(0, 0, 1024).is_err());
}
