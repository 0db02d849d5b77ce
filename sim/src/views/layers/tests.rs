use vta_isa::asm;

use super::*;
use crate::cycle::simulate;

/// Two layers of the worked example's form.
pub(super) fn program(rounds: usize) -> (Vec<Insn>, Vec<LayerMark>) {
    let layer = "load.inp y_size=1 x_size=16 x_stride=16
            load.wgt y_size=1 x_size=16 x_stride=16 push_next
            load.uop y_size=1 x_size=32 x_stride=32
            gemm reset uop_bgn=0 uop_end=16 iter_out=16 iter_in=1 dst_factor_out=16
            gemm uop_bgn=0 uop_end=16 iter_out=16 iter_in=1 dst_factor_out=16 pop_prev
            alu.max imm=-127 uop_bgn=16 uop_end=32 iter_out=16 iter_in=1 dst_factor_out=16 push_next
            store y_size=1 x_size=256 x_stride=256 pop_prev push_prev
            load.acc pop_next push_prev
            load.inp pop_next\n";
    let text = layer.repeat(rounds) + "finish";
    let insns = asm::parse(&text).unwrap();
    let mark = |i: usize| LayerMark {
        name: format!("layer{i}"),
        first_insn: i * 9,
    };
    (insns, (0..rounds).map(mark).collect())
}

fn layers(rounds: usize) -> (CycleReport, Vec<LayerCycles>) {
    let (insns, marks) = program(rounds);
    let (config, timing) = (Config::default(), TimingConfig::pynq());
    let mut totals = LayerTotals::new(&insns, &marks, &config, &timing);
    let report = simulate(&timing, &config, &insns, 0, &mut totals).unwrap();
    (report.clone(), totals.finish(&report))
}

#[test]
fn layers_add_up_to_the_run() {
    for rounds in [1, 2, 40] {
        let (report, layers) = layers(rounds);
        let mut total = LayerCycles::default();
        layers.iter().for_each(|l| total.add(l));
        assert_eq!(total.cycles, report.cycles);
        assert_eq!(total.gemm_uops + total.reset_uops, report.gemm_uops);
        assert_eq!(total.alu_uops, report.alu_uops);
        assert_eq!(total.read_beats, report.read_beats_by_client);
        assert_eq!(total.write_beats, report.write_beats);
        for unit in Unit::ALL {
            for reason in StallReason::ALL {
                let (ours, theirs) = (total.stalled(unit, reason), report.stall(unit, reason));
                assert_eq!(ours, theirs, "{} {reason}", unit.name());
            }
        }
        for layer in &layers {
            assert_eq!(
                layer.spend.iter().sum::<u64>(),
                layer.cycles,
                "{}",
                layer.name
            );
            assert!(layer.bound.cycles() <= layer.cycles);
            assert_eq!((layer.gemm_uops, layer.reset_uops), (256, 256));
        }
    }
}

#[test]
fn a_layer_of_one_instruction_at_a_time_is_explained() {
    let (_, layers) = layers(2);
    let second = &layers[1];
    assert_eq!(second.spent(Spend::Gemm), 256);
    assert_eq!(second.spent(Spend::Reset), 256);
    assert_eq!(second.spent(Spend::Alu), 256);
    assert_eq!(second.spent(Spend::AluPipeline), 7);
    assert!(second.spent(Spend::WaitLoad) > 0);
    assert!(second.spent(Spend::WaitStore) > 700, "the store takes 774");
    // Inputs lie within the weights' bytes, since all addresses are 0.
    assert_eq!(second.bound.read_cycles, 512);
}

#[test]
fn a_run_without_marks_is_one_layer() {
    let (insns, _) = program(1);
    let (config, timing) = (Config::default(), TimingConfig::de10());
    let mut totals = LayerTotals::new(&insns, &[], &config, &timing);
    let report = simulate(&timing, &config, &insns, 0, &mut totals).unwrap();
    let layers = totals.finish(&report);
    assert_eq!(layers.len(), 1);
    assert_eq!(
        (&*layers[0].name, layers[0].cycles),
        ("(run)", report.cycles)
    );
}
