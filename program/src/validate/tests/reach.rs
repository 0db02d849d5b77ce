//! What commands may reach: micro-ops of their kernel, tiles of the scratchpads.

use vta_isa::{Alu, AluOperand, Gemm, Load, Store};

use super::super::*;
use super::{alu, gemm, on_buffer, on_kernel, refused, set};
use crate::testing::{clear, program};

#[test]
fn micro_op_ranges_stay_inside_their_kernel() {
    refused(&[
        (
            "gemm",
            |p| set(p, clear(1, 2, 6)),
            "layer l1, command 1: micro-ops 2..6 of kernel 1, which has 5",
        ),
        (
            "another kernel is long enough",
            |p| set(p, clear(0, 0, 5)),
            "layer l1, command 1: micro-ops 0..5 of kernel 0, which has 3",
        ),
        (
            "end before begin",
            |p| set(p, clear(1, 3, 2)),
            "layer l1, command 1: micro-ops 3..2 of kernel 1, which has 5",
        ),
        (
            "alu",
            |p| {
                set(
                    p,
                    on_kernel(
                        Alu {
                            uop_end: Alu::FIELDS.uop_end.max() as u16,
                            ..alu(AluOperand::Imm(1))
                        },
                        1,
                    ),
                )
            },
            "layer l1, command 1: micro-ops 0..16383 of kernel 1, which has 5",
        ),
        (
            "an empty range beyond the kernel",
            |p| set(p, clear(1, 6, 6)),
            "layer l1, command 1: micro-ops 6..6 of kernel 1, which has 5",
        ),
    ]);
}

#[test]
fn micro_ops_and_loops_stay_inside_the_scratchpads() {
    refused(&[
        (
            "dst of a micro-op",
            |p| p.kernels[1].uops[3].dst = Uop::DST.max() as u16 + 1,
            "layer l1, command 1: dst reaches 2048, but the acc scratchpad has 2048 entries",
        ),
        (
            "dst at the end of the loops",
            |p| {
                set(
                    p,
                    on_kernel(
                        Gemm {
                            dst_factor_out: 47,
                            dst_factor_in: 1000,
                            ..gemm()
                        },
                        1,
                    ),
                )
            },
            "layer l1, command 1: dst reaches 2048, but the acc scratchpad has 2048 entries",
        ),
        (
            "src of a gemm",
            |p| {
                set(
                    p,
                    on_kernel(
                        Gemm {
                            src_factor_in: 1022,
                            ..gemm()
                        },
                        1,
                    ),
                )
            },
            "layer l1, command 1: src reaches 2048, but the inp scratchpad has 2048 entries",
        ),
        (
            "wgt of a gemm",
            |p| {
                p.kernels[1].uops[4].wgt = 1;
                set(
                    p,
                    on_kernel(
                        Gemm {
                            wgt_factor_out: Gemm::FIELDS.wgt_factor_out.max() as u16,
                            ..gemm()
                        },
                        1,
                    ),
                );
            },
            "layer l1, command 1: wgt reaches 1024, but the wgt scratchpad has 1024 entries",
        ),
        (
            "src of an alu",
            |p| {
                set(
                    p,
                    on_kernel(
                        Alu {
                            src_factor_in: 2044,
                            ..alu(AluOperand::Acc)
                        },
                        1,
                    ),
                )
            },
            "layer l1, command 1: src reaches 2048, but the acc scratchpad has 2048 entries",
        ),
        (
            "a smaller scratchpad",
            |p| {
                p.config = vta_isa::Config::from_json(r#"{"LOG_ACC_BUFF_SIZE": 6}"#).unwrap();
            },
            "layer l1, command 1: dst reaches 1, but the acc scratchpad has 1 entries",
        ),
        (
            "load",
            |p| {
                set(
                    p,
                    on_buffer(
                        Load {
                            sram_base: 2046,
                            y_size: 1,
                            x_size: 1,
                            x_pad_0: 2,
                            ..Load::default()
                        },
                        0,
                    ),
                )
            },
            "layer l1, command 1: sram_base reaches 2048, but the inp scratchpad has 2048 entries",
        ),
        (
            "store",
            |p| {
                set(
                    p,
                    on_buffer(
                        Store {
                            sram_base: 2047,
                            y_size: 2,
                            x_size: 1,
                            ..Store::default()
                        },
                        1,
                    ),
                )
            },
            "layer l1, command 1: sram_base reaches 2048, but the acc scratchpad has 2048 entries",
        ),
    ]);
}

#[test]
fn what_never_runs_reaches_nothing() {
    let far = Gemm {
        dst_factor_out: Gemm::FIELDS.dst_factor_out.max() as u16,
        dst_factor_in: Gemm::FIELDS.dst_factor_in.max() as u16,
        src_factor_out: Gemm::FIELDS.src_factor_out.max() as u16,
        wgt_factor_out: Gemm::FIELDS.wgt_factor_out.max() as u16,
        ..gemm()
    };
    let sound = [
        ("no outer trip", on_kernel(Gemm { iter_out: 0, ..far }, 1)),
        ("no inner trip", on_kernel(Gemm { iter_in: 0, ..far }, 1)),
        ("no micro-op", on_kernel(Gemm { uop_bgn: 5, ..far }, 1)),
        (
            "only the last trips count",
            on_kernel(
                Gemm {
                    iter_out: 1,
                    iter_in: 1,
                    ..far
                },
                1,
            ),
        ),
        (
            "reset reads neither inputs nor weights",
            on_kernel(
                Gemm {
                    reset: true,
                    dst_factor_out: 0,
                    dst_factor_in: 0,
                    ..far
                },
                1,
            ),
        ),
        (
            "an immediate has no source",
            on_kernel(
                Alu {
                    src_factor_in: Alu::FIELDS.src_factor_in.max() as u16,
                    ..alu(AluOperand::Imm(3))
                },
                1,
            ),
        ),
        (
            "a synchronisation moves nothing",
            on_buffer(
                Load {
                    sram_base: 5000,
                    x_size: 9,
                    ..Load::default()
                },
                0,
            ),
        ),
    ];
    for (name, command) in sound {
        let mut program = program(&[3, 5]);
        set(&mut program, command);
        assert_eq!(program.validate(), Ok(()), "{name}");
    }
    // Part of a kernel is judged by that part.
    let mut part = program(&[3, 5]);
    part.kernels[1].uops[4].dst = Uop::DST.max() as u16 + 1;
    set(&mut part, clear(1, 0, 4));
    assert_eq!(part.validate(), Ok(()));
}
