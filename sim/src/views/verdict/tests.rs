use super::*;

fn layer(spend: &[(Spend, u64)]) -> LayerCycles {
    let mut layer = LayerCycles::default();
    for &(use_, cycles) in spend {
        layer.spend[use_ as usize] += cycles;
        layer.cycles += cycles;
    }
    layer
}

#[test]
fn the_largest_loss_decides_unless_the_matrix_unit_does() {
    for (spend, resource, share) in [
        (
            &[(Spend::Gemm, 90), (Spend::Alu, 10)][..],
            "matrix unit",
            0.9,
        ),
        (&[(Spend::Gemm, 40), (Spend::Alu, 60)], "ALU", 0.6),
        (&[(Spend::Gemm, 50), (Spend::Alu, 50)], "matrix unit", 0.5),
        (
            &[(Spend::LoadAcc, 3), (Spend::Reset, 1)],
            "accumulator loads",
            0.75,
        ),
        (&[], "matrix unit", 0.0),
        // Steps and drains of the ALU are one resource's, whichever are more.
        (
            &[
                (Spend::Gemm, 40),
                (Spend::Alu, 38),
                (Spend::AluPipeline, 7),
                (Spend::Reset, 15),
            ],
            "ALU",
            0.45,
        ),
        (
            &[
                (Spend::Gemm, 30),
                (Spend::Alu, 12),
                (Spend::AluPipeline, 19),
                (Spend::WaitLoad, 29),
                (Spend::LoadAcc, 10),
            ],
            "short ALU operations",
            0.31,
        ),
    ] {
        let layer = layer(spend);
        let verdict = Verdict::of(&layer);
        assert_eq!((verdict.resource, verdict.share), (resource, share));
        assert_eq!(cause(&layer, verdict.spend).0, resource);
    }
}

#[test]
fn waiting_for_load_names_what_load_does() {
    let mut waits = layer(&[(Spend::WaitLoad, 100)]);
    waits.read_beats[Client::Wgt as usize] = 80;
    assert_eq!(Verdict::of(&waits).resource, "weights");
    waits.read_beats[Client::Inp as usize] = 81;
    let verdict = Verdict::of(&waits);
    assert_eq!(verdict.resource, "inputs");
    assert!(verdict.words.contains("81 beats of inputs, 80 of weights)"));
    waits.read_beats[Client::Preload as usize] = 82;
    let verdict = Verdict::of(&waits);
    assert_eq!(verdict.resource, "accumulators");
    assert!(
        verdict
            .words
            .contains("82 beats of accumulators, 81 of inputs, 80 of weights")
    );
    waits.stalls[Unit::Load as usize][StallReason::MemoryLatency.index()] = 60;
    assert_eq!(Verdict::of(&waits).resource, "memory latency");
    let acc = StallReason::MemoryBusy(Client::Acc);
    waits.stalls[Unit::Load as usize][acc.index()] = 61;
    let verdict = Verdict::of(&waits);
    assert_eq!(verdict.resource, "bus");
    assert!(verdict.words.contains("beats of acc"), "{}", verdict.words);
}

#[test]
fn losses_add_up_and_are_sorted() {
    let found = losses(&layer(&[
        (Spend::Gemm, 10),
        (Spend::Alu, 20),
        (Spend::WaitStore, 30),
        (Spend::Sync, 5),
    ]));
    let cycles: Vec<_> = found.iter().map(|l| l.cycles).collect();
    assert_eq!(cycles, [30, 20, 5]);
}
