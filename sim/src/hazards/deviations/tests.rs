use super::*;
use vta_driver::DeviceMemory;
use vta_isa::asm;

fn found(text: &str, uops: UopSource<'_>) -> Vec<String> {
    let insns = asm::parse(text).unwrap();
    let found = deviations(&Config::default(), &insns, uops);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn each_deviation_is_named_at_its_instruction() {
    for (text, expected) in [
        (
            "gemm uop_end=1 iter_in=2",
            Some("iter_out of 0 is 16384 trips"),
        ),
        (
            "gemm uop_end=1 iter_out=2",
            Some("iter_in of 0 is 16384 trips"),
        ),
        ("gemm iter_out=1 iter_in=1", Some("no micro-ops are 16384")),
        (
            "gemm uop_bgn=3 uop_end=3",
            Some("hangs on neither micro-ops nor trips"),
        ),
        ("gemm uop_end=1 iter_out=1 iter_in=1", None),
        (
            "alu.add iter_out=1 iter_in=1",
            Some("aborts on an ALU instruction without"),
        ),
        ("alu.add uop_end=1 iter_in=1", Some("iter_out of 0")),
        (
            "alu.add uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1",
            None,
        ),
        (
            "alu.add imm=1 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1",
            Some("from src"),
        ),
        (
            "alu.add imm=1 uop_end=1 iter_out=1 iter_in=1 dst_factor_in=1",
            None,
        ),
        (
            "alu.add imm=1 uop_end=1 iter_out=2 iter_in=1 src_factor_out=1",
            Some("from src"),
        ),
        ("load.acc x_size=5", Some("hangs on x_size without y_size")),
        ("load.inp y_size=5", None),
        ("store x_size=1", Some("hangs on x_size without y_size")),
        ("store", None),
        (
            "load.uop x_size=2 y_size=2 x_stride=2",
            Some("one row of micro-ops"),
        ),
    ] {
        let found = found(&format!("{text}\nfinish"), UopSource::Unknown);
        match (expected, &found[..]) {
            (None, []) => {}
            (Some(part), [found]) => {
                assert!(
                    found.contains(part) && found.contains("instruction 0"),
                    "{text}: {found}"
                );
            }
            _ => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn operands_are_compared_where_micro_ops_are_known() {
    let mut memory = DeviceMemory::new();
    memory.map(0x1000, 4096).unwrap();
    let uops = [(3, 3), (4, 5)].map(|(dst, src)| Uop { dst, src, wgt: 0 });
    for (i, uop) in uops.iter().enumerate() {
        let bytes = uop.encode().unwrap().to_le_bytes();
        memory
            .write(0x1000 + 4 * i as u64, 4)
            .unwrap()
            .copy_from_slice(&bytes);
    }
    let text = |bgn: u16, end: u16| {
        format!(
            "load.uop dram_base=0x400 y_size=1 x_size=2 x_stride=2
                 alu.add imm=1 uop_bgn={bgn} uop_end={end} iter_out=1 iter_in=1\nfinish"
        )
    };
    assert_eq!(found(&text(0, 1), UopSource::Memory(&memory)).len(), 0);
    assert_eq!(found(&text(1, 2), UopSource::Memory(&memory)).len(), 1);
    assert_eq!(found(&text(0, 2), UopSource::Memory(&memory)).len(), 1);
    assert_eq!(found(&text(0, 2), UopSource::Unknown).len(), 0);
}

#[test]
fn counts_of_zero_wrap() {
    let insns =
        asm::parse("gemm uop_bgn=2 uop_end=2 iter_out=3\nalu.add uop_end=1 iter_in=2\nfinish")
            .unwrap();
    let steps: Vec<_> = insns
        .iter()
        .map(|insn| match counts_on_rtl(insn) {
            Insn::Gemm(gemm) => gemm.steps(),
            Insn::Alu(alu) => alu.steps(),
            Insn::Load(_) | Insn::Store(_) | Insn::Depthwise(_) | Insn::Finish(_) => 0,
        })
        .collect();
    assert_eq!(steps, [3 << 28, 2 << 14, 0]);
}
