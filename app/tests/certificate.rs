//! No program is below its certificate, whatever its tiles, and some are near it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vta_app::Target;
use vta_app::device::Machine;
use vta_app::open::layer_or_network;
use vta_app::sweep::{Certified, certify, median_gap};
use vta_compiler::lower::{LowerOptions, Tiles, candidates, conv_tiles};
use vta_compiler::qgraph::{LaneOp, Pads, QGraph, QNode, QOp, QPair, QTensor, TensorId, Window};
use vta_compiler::tune;
use vta_isa::{Config, Extension, Extensions};

fn machine(config: Config, timing: &str) -> Machine {
    let target = Target {
        timing: Some(timing.to_owned()),
        ..Target::default()
    };
    let mut machine = Machine::read(&target).unwrap();
    machine.config = config;
    machine
}

/// The sets of extensions on which a certificate depends, each on both timings; `scratchpads` are sizes as in
/// `vta_config.json`.
fn machines(scratchpads: [u32; 3]) -> Vec<Machine> {
    let [inp, wgt, acc] = scratchpads;
    let keys = format!(
        r#"{{"LOG_UOP_BUFF_SIZE": 13, "LOG_INP_BUFF_SIZE": {inp}, "LOG_WGT_BUFF_SIZE": {wgt}, "LOG_ACC_BUFF_SIZE": {acc}}}"#
    );
    let config = Config::from_json(&keys).unwrap();
    let own = Extensions::DEFAULT;
    let with = |more: &[Extension]| more.iter().fold(own, |all, one| all.with(*one));
    let sets = [
        own,
        with(&[Extension::Mov]),
        with(&[Extension::Overwrite]),
        with(&[Extension::Requant]),
        with(&[Extension::Preload]),
        with(&[Extension::Requant, Extension::Preload]),
        Extensions::ALL,
    ];
    let of = |set: &Extensions| {
        ["pynq", "own"].map(|timing| machine(config.clone().with_extensions(*set), timing))
    };
    sets.iter().flat_map(of).collect()
}

fn check(layers: &[Certified], what: &str) {
    for layer in layers {
        let least = &layer.least;
        assert!(layer.cycles >= least.cycles, "{what}: {layer:?}");
        assert!(layer.bytes >= least.bytes, "{what}: {layer:?}");
        assert_eq!(layer.why.is_some(), layer.gap > 0.02, "{what}: {layer:?}");
    }
}

/// Every tile that fits, of convolutions that fit the scratchpads in part.
#[test]
fn no_tile_of_a_small_convolution_is_below() {
    let specs = [
        "conv:1,64,6,6,64,1,1,0",
        "conv:1,32,8,8,48,3,1,1",
        "conv:1,48,7,7,32,3,2,1",
        "conv:1,32,9,9,32,1,2,0",
        "dw:1,32,8,8,3,1,1",
        "dw:1,32,9,9,3,2,1",
        "conv:1,32,6,6,32,3,1,1,2",
        "gemm:5,96,64",
    ];
    for machine in machines([9, 13, 12]) {
        for (at, spec) in specs.into_iter().enumerate() {
            let mut graph = layer_or_network(spec).unwrap();
            // Weights of 4 bits in every other one, which machines with WGT4 load so.
            for node in &mut graph.nodes {
                if let (QOp::Conv(conv), 0) = (&mut node.op, at % 2) {
                    let weights: Vec<i8> = conv.weights.iter().map(|weight| weight >> 4).collect();
                    conv.weights = weights.into();
                }
            }
            let (config, options) = (&machine.config, LowerOptions::default());
            let found = conv_tiles(&graph, config, &options, &Tiles::default()).unwrap();
            let [(_, shape, _)] = found[..] else {
                panic!("{spec}")
            };
            let tiles = candidates(&shape, config, usize::MAX);
            // A few of many: every one would take minutes.
            let step = tiles.len().div_ceil(15);
            assert!(!tiles.is_empty());
            for (_, tile) in tiles.into_iter().step_by(step) {
                let layers = certify(&graph, &machine, &Tiles::from([(shape, tile)])).unwrap();
                assert_eq!(layers.len(), 1);
                check(
                    &layers,
                    &format!("{spec} {tile:?} {}", machine.config.extensions()),
                );
            }
        }
    }
}

fn tensor(chw: [usize; 3]) -> QTensor {
    QTensor {
        name: "t".to_owned(),
        chw,
        scale: 1.0,
        zero: 0,
        range: (-128, 127),
    }
}

fn layer(inputs: &[[usize; 3]], output: [usize; 3], op: QOp) -> QGraph {
    let mut tensors: Vec<QTensor> = inputs.iter().map(|chw| tensor(*chw)).collect();
    tensors.push(tensor(output));
    let output = TensorId(inputs.len());
    QGraph {
        inputs: (0..inputs.len()).map(TensorId).collect(),
        outputs: vec![output],
        nodes: vec![QNode {
            name: "layer".to_owned(),
            op,
            output,
            saturate: false,
        }],
        tensors,
        ..QGraph::default()
    }
}

#[test]
fn pools_and_vector_layers_are_not_below() {
    let (input, [a, b]) = (TensorId(0), [TensorId(0), TensorId(1)]);
    let clamp = || vec![LaneOp::shr(1), LaneOp::min(127), LaneOp::max(-128)];
    let mut graphs = Vec::new();
    for (side, kernel, stride, pad) in [
        (9, 3, 2, 1),
        (8, 2, 2, 0),
        (7, 3, 1, 1),
        (9, 1, 2, 0),
        (11, 3, 3, 0),
    ] {
        let window = Window {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1, 1],
            pads: Pads::all(pad),
        };
        let [rows, columns] = window.output(side, side).unwrap();
        let shapes = ([[40, side, side]], [40, rows, columns]);
        let max = QOp::MaxPool {
            input,
            window,
            ops: Vec::new(),
        };
        graphs.push(layer(&shapes.0, shapes.1, max));
        let average = QOp::AvgPool {
            input,
            window,
            count_include_pad: true,
            ops_by_count: vec![(kernel * kernel, clamp())],
        };
        graphs.push(layer(&shapes.0, shapes.1, average));
    }
    let pair = |b| QPair {
        a,
        a_ops: Vec::new(),
        b,
        b_ops: Vec::new(),
        epilogue: clamp(),
        store: None,
    };
    // One tile of the accumulators, and many.
    for side in [6, 60] {
        let (chw, ops) = ([40, side, side], clamp());
        graphs.push(layer(&[chw, chw], chw, QOp::Add(pair(b))));
        graphs.push(layer(&[chw, chw], chw, QOp::Mul(pair(b))));
        graphs.push(layer(&[chw], chw, QOp::Mul(pair(a))));
        graphs.push(layer(&[chw, [40, 1, 1]], chw, QOp::Mul(pair(b))));
        graphs.push(layer(&[chw], chw, QOp::Eltwise { input, ops }));
    }
    for machine in machines([12, 15, 14]) {
        for graph in &graphs {
            let layers = certify(graph, &machine, &Tiles::default()).unwrap();
            assert_eq!(layers.len(), 1, "{graph}");
            check(&layers, &format!("{graph} {}", machine.config.extensions()));
        }
    }
}

#[test]
fn the_layers_of_networks_are_not_below_and_near() {
    for (network, median) in [
        ("demo", 1.0),
        ("zoo:mobilenet-v1", 0.03),
        ("zoo:resnet18", 0.02),
        ("zoo:resnet50", 0.02),
    ] {
        let graph = layer_or_network(network).unwrap();
        let all = Config::default().with_extensions(Extensions::ALL);
        for (config, median) in [(Config::default(), median), (all, 1.0)] {
            let machine = machine(config, "pynq");
            let options = LowerOptions::default();
            let shipped = tune::shipped().unwrap();
            let tiles = tune::tiles(&shipped, &graph, &machine.config, &options, "pynq").unwrap();
            let layers = certify(&graph, &machine, &tiles).unwrap();
            check(&layers, network);
            assert!(
                median_gap(&layers) < median,
                "{network}: {}",
                median_gap(&layers)
            );
            // A certificate of 2 % more is wrong for some layer.
            assert!(
                !network.starts_with("zoo:resnet") || layers.iter().any(|layer| layer.gap < 0.02),
                "{network}"
            );
        }
    }
}

#[test]
fn a_network_of_no_layers_has_no_gap() {
    let layers = certify(
        &QGraph::default(),
        &machine(Config::default(), "pynq"),
        &Tiles::default(),
    );
    assert_eq!(median_gap(&layers.unwrap()), 0.0);
}
