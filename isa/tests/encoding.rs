//! Encoding, decoding and text are inverses of each other; no bit pattern panics.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use vta_isa::{AluOp, Deps, Field, Finish, Insn, Load, Opcode, Requantize, Store, Uop, asm};

/// Any value of a field; every bit pattern of a signed one, every code of the assigned ones and
/// some that aren't.
fn value(field: &Field) -> impl Strategy<Value = u128> + use<> {
    let field = *field;
    prop_oneof![
        1 => Just(field.max()),
        4 => 0..=field.max(),
    ]
    .prop_map(move |value| field.put(value).unwrap())
}

/// What a STORE has if it requantises, the flag that says so among it. That it saturates is a code of the memory type.
fn more(opcode: Opcode) -> &'static [Field] {
    match opcode {
        Opcode::Store => Requantize::LIST,
        Opcode::Load | Opcode::Gemm | Opcode::Finish | Opcode::Alu | Opcode::Depthwise => &[],
    }
}

/// Instructions of every kind, with each of its fields over its whole range.
fn insn() -> impl Strategy<Value = Insn> {
    let kind = prop::sample::select(Opcode::ALL.to_vec());
    kind.prop_flat_map(|opcode| {
        let fields = Deps::LIST.iter().chain(opcode.fields()).chain(more(opcode));
        let values: Vec<_> = fields.map(value).collect();
        values.prop_filter_map("a code that isn't assigned", move |values| {
            let opcode = Opcode::FIELD.put(opcode.code().into()).unwrap();
            let word = values.iter().fold(opcode, |word, value| word | value);
            Insn::decode(word).ok()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decode_inverts_encode(insn in insn()) {
        prop_assert_eq!(Insn::decode(insn.encode().unwrap()), Ok(insn));
    }

    #[test]
    fn parse_inverts_print(insns in prop::collection::vec(insn(), 0..4)) {
        let text: String = insns.iter().map(|i| format!("  {i}  # comment\n\n")).collect();
        prop_assert_eq!(asm::parse(&text), Ok(insns));
    }

    #[test]
    fn any_pattern_decodes_or_errs_and_unused_bits_are_masked(word in any::<u128>()) {
        if let Ok(insn) = Insn::decode(word) {
            let clean = insn.encode().unwrap();
            prop_assert_eq!(Insn::decode(clean), Ok(insn));
        }
    }

    #[test]
    fn words_are_the_same_where_no_field_says_otherwise(word in any::<u128>(), bit in 0u32..128) {
        let other = word ^ 1u128 << bit;
        let insn = Insn::decode(word);
        let opcode = insn.map(|insn| insn.opcode());
        let requantizes = matches!(insn, Ok(Insn::Store(store)) if store.requantize.is_some());
        let fields = Deps::LIST.iter().chain(opcode.map_or(&[][..], Opcode::fields));
        let fields = fields.chain(if requantizes { Requantize::LIST } else { &[] });
        let extended = opcode == Ok(Opcode::Load) && Load::FIELDS.memory_type.get(word) == 4;
        let fields = fields.chain(extended.then_some(&Load::WGT4));
        let covered = fields.chain([&Opcode::FIELD]).any(|field| field.mask() >> bit & 1 == 1);
        if opcode.is_ok() {
            prop_assert_eq!(Insn::same_word(word, other), !covered);
        } else {
            prop_assert!(Insn::same_word(word, word));
        }
    }

    #[test]
    fn what_fits_can_be_encoded(insn in insn(), pad in any::<u8>()) {
        let insn = match insn {
            Insn::Load(load) => Load { x_pad_0: pad, preload: pad % 3 == 0, ..load }.into(),
            other => other,
        };
        prop_assert_eq!(insn.fits(), insn.encode().is_ok());
    }

    #[test]
    fn every_micro_op_word_is_one(word in any::<u32>()) {
        prop_assert_eq!(Uop::decode(word).encode(), Ok(word));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}", tail in "(load.inp|gemm|alu.add|finish|store)? ?([a-z_0-9]{0,9}=?-?[0-9x]{0,6} ?){0,4}") {
        let _ = asm::parse(&text);
        let _ = asm::parse(&tail);
    }
}

#[test]
fn garbage_outside_fields_is_ignored() {
    let clean = Insn::from(Load {
        x_size: 3,
        y_size: 1,
        ..Load::default()
    });
    let word = clean.encode().unwrap();
    assert_eq!(Insn::decode(word | 0x3f << 58), Ok(clean));
    let finish = Insn::from(Finish::default());
    assert_eq!(Insn::decode(finish.encode().unwrap() | !0x7f), Ok(finish));
    let sync = Store {
        x_stride: 9,
        ..Store::default()
    };
    let word = Insn::from(sync).encode().unwrap();
    assert_eq!(
        Insn::decode(word & !(7 << 7)),
        Ok(sync.into()),
        "memory type 0 in a sync STORE"
    );
    let moving = Insn::from(Store {
        x_size: 1,
        y_size: 1,
        ..Store::default()
    })
    .encode()
    .unwrap();
    assert!(Insn::decode(moving & !(7 << 7)).is_err());
}

#[test]
fn words_of_a_recorded_program_read_as_the_fields_say() {
    let text = |word: u128| Insn::decode(word).unwrap().to_string();
    assert_eq!(
        text(0x00000040004000010000100000000000),
        "load.uop sram_base=0 dram_base=262144 y_size=1 x_size=64 x_stride=64"
    );
    assert_eq!(text(0x3), "finish");
}

#[test]
fn faults_name_line_column_and_what_was_expected() {
    let cases = [
        ("\n  jump 3", "line 2, column 3: unknown mnemonic 'jump'"),
        ("load.out", "line 1, column 1: unknown mnemonic 'load.out'"),
        (
            "gemm uop_end=16384",
            "line 1, column 6: '16384' is no number from 0 to 16383 for uop_end",
        ),
        (
            "store x_pad_0=1",
            "line 1, column 7: store has no field or flag 'x_pad_0'",
        ),
        (
            "store x_size=1 x_size=2",
            "line 1, column 16: 'x_size' stands twice",
        ),
        (
            "alu.add imm=0x8000",
            "line 1, column 9: '0x8000' is no number from -32768 to 32767",
        ),
        (
            "load.inp preload",
            "line 1, column 10: load.inp has no field or flag 'preload'",
        ),
        (
            "load.inp y_pad_0=",
            "line 1, column 10: '' is no number from 0 to 15 for y_pad_0",
        ),
    ];
    for (text, expected) in cases {
        let error = asm::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text:?} gave {error}");
    }
}

proptest! {
    /// CLIP's operand has the widest bounds inside those that are asked for, exactly those of bytes, and
    /// loses less than a thousandth of the larger one.
    #[test]
    fn operands_of_clip_hold_bounds(low in -1i32 << 26..1 << 26, high in -1i32 << 26..1 << 26, shift in 0u32..26) {
        let [low, high] = [low >> shift, high >> shift];
        let y = AluOp::clip_operand([low, high]);
        let [least, most] = AluOp::clip_bounds(y);
        prop_assert!(low <= least && most <= high);
        let lost = (low.abs().max(high.abs()) + 1) / 2048;
        prop_assert!(least - low <= lost && high - most <= lost, "{low} {high}: {least} {most}");
        let byte = |bound| i8::try_from(bound).is_ok();
        prop_assert_eq!(i16::try_from(y).is_ok(), byte(low) && byte(high));
        prop_assert_eq!(AluOp::clip_bounds(AluOp::clip_operand([i32::MIN, i32::MAX])), [-1 << 26, 4095 << 14]);
    }
}

#[test]
fn alu_operations_follow_the_definition() {
    let (min, max) = (i32::MIN, i32::MAX);
    let cases = [
        (AluOp::Min, 3, -2, -2),
        (AluOp::Max, 3, -2, 3),
        (AluOp::Add, max, 1, min),
        (AluOp::Shr, -5, 1, -3),
        (AluOp::Shr, -5, -1, -10),
        (AluOp::Shr, -5, 33, -3),
        (AluOp::Shr, 1, -33, 2),
        (AluOp::Shr, 7, min, 7),
        (AluOp::Mul, 65536, 65536, 0),
        (AluOp::Mul, -3, 5, -15),
        (AluOp::Shl, 1, 31, min),
        (AluOp::Shl, 1, 32, 1),
        (AluOp::Shl, -8, -2, -2),
        (AluOp::Shl, -8, -34, -2),
        (AluOp::Shl, 7, min, 7),
        (AluOp::Mov, 3, min, min),
        (AluOp::Clip, 500, 0x007f, 127),
        (AluOp::Clip, -500, 0x007f, 0),
        (AluOp::Clip, 500, i32::from(0x807f_u16 as i16), 127),
        (AluOp::Clip, -500, i32::from(0x807f_u16 as i16), -128),
        (AluOp::Clip, 5, i32::from(0x807f_u16 as i16), 5),
        (AluOp::Clip, 5, 0x0a07, 10),
        (AluOp::Clip, max, 5 << 26 | 31 << 16 | 3, 3 * 32 + 31),
        (AluOp::Clip, min, 6 << 26 | 1 << 21 | 0xff00, 2 * (-32 + 1)),
        (AluOp::Clip, max, 4 << 26 | 31 << 16 | 3, (3 * 32 + 31) >> 1),
    ];
    for (op, x, y, expected) in cases {
        assert_eq!(op.apply(x, y), expected, "{op} {x} {y}");
    }
}
