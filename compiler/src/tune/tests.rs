use super::*;
use crate::layer;
use crate::qgraph::{LaneOp, QNode, QOp, QTensor, TensorId, Window};

fn job<'a>(graph: &'a QGraph, config: &'a Config) -> Job<'a> {
    Job {
        graph,
        config,
        options: &LowerOptions {
            im2col: true,
            part: 1 << 15,
        },
        timing: "test",
        candidates: 12,
    }
}

/// Fewer commands are faster, as far as these tests care.
fn count(program: &Program) -> Result<u64, String> {
    Ok(program.layers.iter().map(|l| l.commands.len() as u64).sum())
}

#[test]
fn the_fastest_candidate_is_kept_and_used() {
    let spec = layer::parse("conv:1,64,28,28,64,3,1,1").unwrap();
    let (graph, config) = (layer::build(&spec, 1).unwrap(), Config::default());
    let job = job(&graph, &config);
    let mut cache = Cache::new();
    assert_eq!(tune(&job, &mut cache, &count, &mut |_, _| {}).unwrap(), 1);
    assert_eq!(tune(&job, &mut cache, &count, &mut |_, _| {}).unwrap(), 0);
    let cache = Cache::from_json(&cache.to_json().unwrap()).unwrap();
    let plain = lower::compile(&graph, &config, job.options).unwrap();
    let tiles = tiles(&cache, &graph, &config, job.options, "test").unwrap();
    let tuned = lower::compile_with(&graph, &config, job.options, &tiles).unwrap();
    let shape = tiles.keys().next().unwrap();
    let entry = cache.get(&machine(&config, "test"), shape).unwrap();
    assert_eq!(count(&plain), Ok(entry.untuned_cycles));
    assert_eq!(count(&tuned), Ok(entry.cycles));
    assert!(entry.cycles < entry.untuned_cycles, "{entry:?}");
    assert_eq!(cache.get(&machine(&config, "other"), shape), None);
}

#[test]
fn a_tile_that_does_not_fit_is_passed_over() {
    let spec = layer::parse("conv:1,64,28,28,64,3,1,1").unwrap();
    let (graph, config) = (layer::build(&spec, 1).unwrap(), Config::default());
    let options = LowerOptions::default();
    let plain = lower::compile(&graph, &config, &options).unwrap();
    let found = lower::conv_tiles(&graph, &config, &options, &Tiles::default()).unwrap();
    let (_, shape, tile) = found[0];
    let wrong = [
        ConvTile {
            output: [28, 28],
            co: 4,
            ..tile
        },
        ConvTile {
            output: [0, 28],
            ..tile
        },
        ConvTile { halves: 3, ..tile },
        ConvTile { co: 0, ..tile },
        ConvTile {
            ci: usize::MAX,
            ..tile
        },
        ConvTile {
            kernel_rows: 2,
            ci: 4,
            ..tile
        },
    ];
    for tile in wrong {
        let tiles = Tiles::from([(shape, tile)]);
        let program = lower::compile_with(&graph, &config, &options, &tiles).unwrap();
        assert_eq!(program, plain, "{tile:?}");
    }
}

#[test]
fn a_failed_measurement_names_its_node() {
    let spec = layer::parse("gemm:16,64,64").unwrap();
    let (graph, config) = (layer::build(&spec, 1).unwrap(), Config::default());
    let fail = |_: &Program| Err("no board".to_owned());
    let error = tune(
        &job(&graph, &config),
        &mut Cache::new(),
        &fail,
        &mut |_, _| {},
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "node gemm:16,64,64: no board"
    );
}

#[test]
fn the_shipped_cache_knows_the_layers_of_resnet18() {
    let (cache, config) = (shipped().unwrap(), Config::default());
    let options = LowerOptions::default();
    for (name, _) in layer::RESNET18 {
        let spec = layer::parse(&format!("resnet18.{name}")).unwrap();
        let graph = layer::build(&spec, 1).unwrap();
        let tiles = tiles(&cache, &graph, &config, &options, "pynq").unwrap();
        assert_eq!(tiles.len(), 1, "{name}");
        let known = lower::conv_tiles(&graph, &config, &options, &tiles).unwrap();
        assert_eq!(tiles.get(&known[0].1), Some(&known[0].2), "{name}");
    }
}

#[test]
fn bad_caches_are_refused() {
    for text in ["", "{}", r#"{"version": 1, "machines": {}, "more": 1}"#] {
        assert!(
            matches!(Cache::from_json(text), Err(TuneError::Text(_))),
            "{text}"
        );
    }
    let error = Cache::from_json(r#"{"version": 9, "machines": {}}"#).unwrap_err();
    assert!(error.to_string().contains("version 9"), "{error}");
}

#[test]
fn the_tile_of_the_search_is_always_measured() {
    // It takes a half of the scratchpads, though such a layer has nothing to overlap.
    let spec = layer::parse("conv:1,64,1,1,16,1,1,0").unwrap();
    let (graph, config) = (layer::build(&spec, 1).unwrap(), Config::default());
    let job = Job {
        candidates: 1,
        ..job(&graph, &config)
    };
    let found = lower::conv_tiles(&graph, &config, job.options, &Tiles::default()).unwrap();
    let (_, shape, searched) = found[0];
    let candidates = lower::candidates(&shape, &config, 20);
    assert_ne!(candidates[0].1, searched, "others look cheaper");
    assert_eq!(lower::candidates(&shape, &config, 1)[0].1, searched);
    let mut cache = Cache::new();
    assert_eq!(tune(&job, &mut cache, &count, &mut |_, _| {}).unwrap(), 1);
}

/// The matrix unit sums a pool that the input scratchpad doesn't hold.
#[test]
fn average_pools_that_the_matrix_unit_sums_have_tiles() {
    let pool = |channels: usize| {
        let tensor = |chw| QTensor {
            name: "t".to_owned(),
            chw,
            scale: 1.0,
            zero: 0,
            range: (-128, 127),
        };
        let op = QOp::AvgPool {
            input: TensorId(0),
            window: Window::whole([7, 7]),
            count_include_pad: true,
            ops_by_count: vec![(49, vec![LaneOp::shr(6)])],
        };
        QGraph {
            tensors: vec![tensor([channels, 7, 7]), tensor([channels, 1, 1])],
            nodes: vec![QNode {
                name: "pool".to_owned(),
                op,
                output: TensorId(1),
                saturate: false,
            }],
            inputs: vec![TensorId(0)],
            outputs: vec![TensorId(1)],
            ..QGraph::default()
        }
    };
    let config = Config::default();
    let (large, small) = (pool(1024), pool(512));
    assert!(subjects(&job(&small, &config)).unwrap().is_empty());
    let job = job(&large, &config);
    let [subject] = subjects(&job).unwrap()[..] else {
        panic!("one pool")
    };
    // A program follows the tile that is asked for.
    let program = |tile| {
        let tiles = Tiles::from([(subject.shape, tile)]);
        lower::compile_with(&large, &config, job.options, &tiles).unwrap()
    };
    let other = lower::candidates(&subject.shape, &config, 20);
    let other = other
        .iter()
        .find(|(_, tile)| tile.co != subject.searched.co);
    let [searched, other] = [subject.searched, other.unwrap().1].map(program);
    assert_ne!(searched.layers[0].commands, other.layers[0].commands);
    let mut cache = Cache::new();
    assert_eq!(tune(&job, &mut cache, &count, &mut |_, _| {}).unwrap(), 1);
    assert_eq!(tune(&job, &mut cache, &count, &mut |_, _| {}).unwrap(), 0);
}
