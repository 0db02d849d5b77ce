//! Every edge between modules is one that something needs: without it two of them race, or none goes on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::common::{Rng, clamp, config, push, tensor};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{
    ChannelOf, LaneOp, QConv, QGraph, QOp, QPair, Spread, TensorId, Window,
};
use vta_driver::{Command, Layer, Program, QueueLimits, Symbol};
use vta_isa::tokens::{self, Edge};
use vta_isa::{Deps, Extension, Extensions, Insn, Load, MemType};
use vta_sim::hazards;

/// A command: its layer, and its index there.
type Place = [usize; 2];

fn window(kernel: usize, stride: usize, pad: usize) -> Window {
    Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pads: [pad; 4].into(),
    }
}

/// A convolution of a kernel to some channels, as large as its input.
fn conv(
    graph: &mut QGraph,
    rng: &mut Rng,
    [kernel, co]: [usize; 2],
    input: TensorId,
    residual: Option<(TensorId, Vec<LaneOp>)>,
) -> TensorId {
    let [ci, h, w] = graph.tensors[input.0].chw;
    let bias: Vec<i32> = (0..co).map(|_| rng.next() as i32 >> 16).collect();
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window: window(kernel, 1, kernel / 2),
        weights: rng.int8(ci * co * kernel * kernel).into(),
        residual,
        epilogue: [vec![LaneOp::add(bias), LaneOp::shr(7)], clamp()].concat(),
        dense: false,
        group: 1,
    });
    push(graph, op, [co, h, w])
}

/// A network in which layers of all kinds read each other.
fn network() -> QGraph {
    let mut graph = QGraph::default();
    let mut rng = Rng(7);
    let input = tensor(&mut graph, [20, 8, 8]);
    graph.inputs = vec![input];
    let mut conv = |graph: &mut QGraph, input, kernel, co, residual| {
        conv(graph, &mut rng, [kernel, co], input, residual)
    };
    let wide = conv(&mut graph, input, 3, 40, None);
    let shl = vec![LaneOp::shl(6)];
    let sum = conv(&mut graph, wide, 1, 40, Some((wide, shl)));
    let joined = conv(&mut graph, sum, 3, 40, None);
    let pool = |input| QOp::MaxPool {
        input,
        window: window(2, 2, 0),
        ops: vec![],
    };
    let pooled = push(&mut graph, pool(joined), [40, 4, 4]);
    let apart = push(&mut graph, pool(sum), [40, 4, 4]);
    let add = QOp::Add(QPair {
        store: None,
        a: pooled,
        a_ops: vec![LaneOp::shl(1)],
        b: apart,
        b_ops: vec![],
        epilogue: [vec![LaneOp::shr(1)], clamp()].concat(),
    });
    let added = push(&mut graph, add, [40, 4, 4]);
    let of = |channel| Some(ChannelOf { input: 0, channel });
    let turned = QOp::Channels {
        inputs: vec![added],
        map: (0..40).rev().map(of).collect(),
        spread: Spread::NONE,
        gain: 1,
        ops: vec![],
    };
    let turned = push(&mut graph, turned, [40, 4, 4]);
    let last = conv(&mut graph, turned, 3, 20, None);
    graph.outputs = vec![last];
    graph
}

/// Which token of a layer an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Of the layer's own commands.
    Within,
    /// That the outputs of the layer before are in memory, as compute tells the load module.
    HandedOn,
    /// Of the two that a layer leaves to the next in each queue.
    Seam(usize),
}

#[derive(Clone, Copy)]
pub(crate) struct Link {
    edge: Edge,
    kind: Kind,
    from: Place,
    to: Place,
}

/// All edges of a program: who tells and who waits. Queues are FIFO, so the n-th token told is the
/// n-th taken; those of the driver at both ends are left out.
pub(crate) fn links(program: &Program) -> Vec<Link> {
    let mut told = BTreeMap::new();
    for edge in Edge::ALL {
        let count = match edge {
            Edge::ComputeToLoad | Edge::StoreToCompute => program.seam_tokens,
            Edge::LoadToCompute | Edge::ComputeToStore => 0,
        };
        told.insert(edge, VecDeque::from(vec![None; count as usize]));
    }
    let mut links = Vec::new();
    for (l, layer) in program.layers.iter().enumerate() {
        let mut taken = BTreeMap::<Edge, usize>::new();
        for (c, command) in layer.commands.iter().enumerate() {
            let (module, deps) = (command.insn.module(), command.insn.deps());
            for edge in tokens::pops(module, deps) {
                let nth = taken.entry(edge).or_default();
                *nth += 1;
                let Some(from @ [source, teller]): Option<Place> =
                    told.get_mut(&edge).unwrap().pop_front().unwrap()
                else {
                    continue;
                };
                let symbol = program.layers[source].commands[teller].symbol;
                let kind = match (source == l, edge, symbol) {
                    (false, ..) => Kind::Seam(*nth),
                    (true, Edge::ComputeToLoad, Symbol::None) => Kind::HandedOn,
                    (true, ..) => Kind::Within,
                };
                links.push(Link {
                    edge,
                    kind,
                    from,
                    to: [l, c],
                });
            }
            for edge in tokens::pushes(module, deps) {
                told.get_mut(&edge).unwrap().push_back(Some([l, c]));
            }
        }
    }
    links
}

/// What is found in a program, an error or hazards.
pub(crate) fn objections(program: Program) -> Vec<String> {
    objections_in(program, QueueLimits::default())
}

fn objections_in(program: Program, limits: QueueLimits) -> Vec<String> {
    match hazards::check_program(&Arc::new(program), limits) {
        Err(error) => vec![error.to_string()],
        Ok(batches) => {
            let found = batches.iter().flat_map(|batch| &batch.report.hazards);
            found.map(ToString::to_string).collect()
        }
    }
}

/// A program without an edge: its token is neither given nor taken.
pub(crate) fn without(program: &Program, link: Link) -> Program {
    let mut broken = program.clone();
    let mut clear = |[l, c]: Place, flag: fn(Edge, &mut Deps) -> &mut bool| {
        let deps = broken.layers[l].commands[c].insn.deps_mut();
        assert!(std::mem::take(flag(link.edge, deps)));
    };
    clear(link.from, Edge::push);
    clear(link.to, Edge::pop);
    broken
}

#[test]
fn every_edge_is_needed() {
    let graph = network();
    let small = config(5);
    for config in [small.clone(), small.with_extensions(Extensions::NONE)] {
        let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
        assert_eq!(objections(program.clone()), [""; 0]);
        let mut counts = BTreeMap::<(Edge, Kind), [usize; 2]>::new();
        for link in links(&program) {
            let needed = !objections(without(&program, link)).is_empty();
            let [all, kept] = counts.entry((link.edge, link.kind)).or_default();
            (*all, *kept) = (*all + 1, *kept + usize::from(needed));
            // Inputs and residuals have places of their own, and tokens in common.
            let common =
                link.edge == Edge::ComputeToLoad && program.layers[link.to[0]].steps.residual > 0;
            let [from, to] = [link.from, link.to].map(|[l, c]| program.layers[l].commands[c].insn);
            assert!(
                needed || common || link.kind != Kind::Within,
                "{}: {from} -> {to}",
                link.edge
            );
        }
        println!("{counts:?}");
        // What a layer does may hide what it finds: then another layer needs that.
        assert!(counts.values().all(|[_, needed]| *needed > 0), "{counts:?}");
        assert_eq!(counts.len(), 9, "{counts:?}");
    }
}

/// Of edges to and from LOADs of accumulators by the load module, those that say that a STORE finds what it reads are
/// needed, and of those that say that the place is free all but the ones of places that nobody has used.
#[test]
fn edges_of_preloads_are_needed() {
    let [requant, preload] = [Extension::Requant, Extension::Preload];
    let mut counts = [[0; 2]; 2];
    for (config, has) in [0, 4, 5].into_iter().flat_map(|number| {
        let some = [vec![requant], vec![preload], vec![requant, preload]];
        some.map(|some| (config(number), some))
    }) {
        let all = has
            .iter()
            .fold(Extensions::DEFAULT, |all, one| all.with(*one));
        let config = config.with_extensions(all);
        let network = network();
        let graph = lower::for_machine(&network, &config);
        let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
        assert_eq!(objections(program.clone()), [""; 0]);
        let preloads = |[l, c]: Place| match program.layers[l].commands[c].insn {
            Insn::Load(load) => load.preload,
            _ => false,
        };
        for link in links(&program) {
            let of = match link.edge {
                Edge::ComputeToLoad if preloads(link.to) => 0,
                Edge::LoadToCompute if preloads(link.from) => 1,
                _ => continue,
            };
            assert!(has.contains(&preload));
            let needed = !objections(without(&program, link)).is_empty();
            counts[of] = [counts[of][0] + 1, counts[of][1] + usize::from(needed)];
        }
    }
    let [freed, preloaded] = counts;
    assert!(freed[1] > 2 && preloaded[1] > 1, "{counts:?}");
    assert_eq!(preloaded[0], preloaded[1]);
}

/// Where STOREs round, a layer loads its first inputs before the layer before has stored its last outputs, and waits for these
/// before it loads any of them: the edge is needed, and in front of the first of these LOADs.
#[test]
fn first_inputs_are_loaded_before_the_last_ones_are_stored() {
    let mut graph = QGraph::default();
    let mut rng = Rng(11);
    let mut last = tensor(&mut graph, [32, 16, 16]);
    graph.inputs = vec![last];
    for kernel in [3, 1, 3, 1] {
        last = conv(&mut graph, &mut rng, [kernel, 32], last, None);
    }
    graph.outputs = vec![last];
    let loads = |command: &Command| matches!(command.insn, Insn::Load(load) if load.mem == MemType::Inp && load.x_size > 0);
    let (mut all, mut early, mut needed, mut late) = (0, 0, 0, 0);
    for others in [vec![], vec![Extension::Preload, Extension::Overwrite]] {
        let has = others.iter().chain([&Extension::Requant]);
        let has = has.fold(Extensions::DEFAULT, |all, one| all.with(*one));
        let config = config(5).with_extensions(has);
        let graph = lower::for_machine(&graph, &config);
        let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
        assert_eq!(objections(program.clone()), [""; 0]);
        let links = links(&program);
        for link in links.iter().filter(|link| link.kind == Kind::HandedOn) {
            let [l, to] = link.to;
            let (before, behind) = program.layers[l].commands.split_at(to);
            all += 1;
            needed += usize::from(!objections(without(&program, *link)).is_empty());
            early += usize::from(before.iter().any(loads));
            // Taken behind the next LOAD of inputs, it comes too late.
            let mut broken = program.clone();
            let commands = &mut broken.layers[l].commands;
            *Edge::ComputeToLoad.pop(commands[to].insn.deps_mut()) = false;
            let mut takes = Load::default();
            takes.deps.pop_next = true;
            let Some(next) = behind.iter().position(loads) else {
                continue;
            };
            let (insn, symbol) = (takes.into(), Symbol::None);
            commands.insert(to + next + 1, Command { insn, symbol });
            late += usize::from(!objections(broken).is_empty());
        }
    }
    assert!(
        early > all / 2 && needed > 9 && late > 9,
        "{all}: {early}, {needed}, {late}"
    );
}

/// Tokens in each queue after the first commands of a layer, as their flags say.
fn tokens_after(program: &Program, commands: &[Command]) -> Vec<i64> {
    let seam = i64::from(program.seam_tokens);
    let mut count = vec![0; Edge::ALL.len()];
    count[Edge::ComputeToLoad as usize] = seam;
    count[Edge::StoreToCompute as usize] = seam;
    for command in commands {
        let (module, deps) = (command.insn.module(), command.insn.deps());
        tokens::pops(module, deps).for_each(|edge| count[edge as usize] -= 1);
        tokens::pushes(module, deps).for_each(|edge| count[edge as usize] += 1);
    }
    count
}

/// Instructions that a queue must hold for some commands.
fn need(program: &Program, commands: &[Command]) -> usize {
    let kernels = commands
        .iter()
        .filter(|c| matches!(c.symbol, Symbol::Kernel(_)));
    commands.len() + kernels.count() + 4 * program.seam_tokens as usize + 1
}

#[test]
fn a_cut_where_tokens_are_in_flight_is_found() {
    let (graph, config) = (network(), config(5));
    for config in [config.clone(), config.with_extensions(Extensions::NONE)] {
        let options = LowerOptions {
            part: 0,
            ..LowerOptions::default()
        };
        let program = lower::compile(&graph, &config, &options).unwrap();
        assert!(program.layers.iter().any(|l| l.cuts.len() > 1));
        let [mut kept, mut refused] = [0; 2];
        for layer in &program.layers {
            for at in 1..layer.commands.len() {
                let (before, after) = layer.commands.split_at(at);
                let mut one = program.clone();
                let cuts = vec![at as u32];
                one.layers = vec![Layer {
                    cuts,
                    ..layer.clone()
                }];
                // The smallest queue that holds either part, as long as it doesn't hold both.
                let [before_needs, after_needs] = [before, after].map(|c| need(&program, c));
                let insns = before_needs.max(after_needs);
                if before.len() + after_needs <= insns {
                    continue;
                }
                let limits = QueueLimits {
                    insns,
                    ..QueueLimits::default()
                };
                let sound = tokens_after(&program, before) == tokens_after(&program, &[]);
                let objections = objections_in(one, limits);
                assert_eq!(
                    sound,
                    objections.is_empty(),
                    "{} {at}: {objections:?}",
                    layer.name
                );
                assert!(
                    sound || !layer.cuts.contains(&(at as u32)),
                    "{} {at}",
                    layer.name
                );
                kept += usize::from(layer.cuts.contains(&(at as u32)));
                refused += usize::from(!sound);
            }
        }
        assert!(kept > 5 && refused > 100, "{kept} {refused}");
    }
}
