use super::*;

const ADD: Kind = Kind::Alu {
    op: AluOp::Add,
    operand: AluOperand::Acc,
};
const GEMM: Kind = Kind::Gemm { reset: false };

fn repeat(extent: u32) -> Loop {
    Loop {
        extent,
        dst: 1,
        src: 2,
        wgt: 3,
    }
}

#[test]
fn one_loop_is_the_outer_of_gemm_and_the_inner_of_the_alu() {
    for (kind, text) in [
        (
            GEMM,
            "gemm uop_bgn=7 uop_end=8 iter_out=5 iter_in=1 dst_factor_out=1 src_factor_out=2 wgt_factor_out=3",
        ),
        (
            ADD,
            "alu.add uop_bgn=7 uop_end=8 iter_out=1 iter_in=5 dst_factor_in=1 src_factor_in=2",
        ),
    ] {
        let mut recording = Recording::new(8);
        recording.begin(repeat(5));
        recording.push(kind, [0, 0, 0]);
        recording.end();
        let mut kernel = recording.finish(kind == GEMM).unwrap();
        set_uops(&mut kernel.insn, 7, kernel.uops.len());
        assert_eq!(kernel.insn.to_string(), text);
    }
}

#[test]
fn a_wrong_nest_is_told_when_the_callback_has_ended() {
    type Calls = fn(&mut Recording);
    let cases: [(Calls, &str); 9] = [
        (|_| {}, "no micro-op"),
        (|r| r.end(), "hasn't begun"),
        (|r| r.begin(repeat(1)), "no micro-op"),
        (
            |r| {
                r.begin(repeat(1));
                r.push(GEMM, [0; 3]);
            },
            "doesn't end",
        ),
        (
            |r| {
                r.push(GEMM, [0; 3]);
                r.push(ADD, [0; 3]);
            },
            "differ in what they do",
        ),
        (
            |r| (0..3).for_each(|_| r.begin(repeat(1))),
            "at most 2 loops",
        ),
        (
            |r| (0..9).for_each(|_| r.push(GEMM, [0; 3])),
            "more than the 8 micro-ops",
        ),
        (|r| r.push(GEMM, [4096, 0, 0]), "micro-op 0: "),
        (
            |r| {
                r.begin(repeat(1 << 14));
                r.push(GEMM, [0; 3]);
                r.end();
            },
            "iter_out is 16384",
        ),
    ];
    for (calls, told) in cases {
        let mut recording = Recording::new(8);
        calls(&mut recording);
        let text = recording.finish(true).unwrap_err().text;
        assert!(text.contains(told), "{text}");
    }
    let mut recording = Recording::new(8);
    recording.push(ADD, [0; 3]);
    assert!(
        recording
            .finish(true)
            .unwrap_err()
            .text
            .contains("came through VTAPushGEMMOp")
    );
}
