//! Explorations: bounds, fronts, tables that go on, shards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use vta_app::Target;
use vta_app::sweep::{
    ExploreOptions, Explored, Measured, Objective, Row, Sweeper, Walk, explore, merge,
};

const SPACE: [&str; 5] = [
    "LOG_BATCH=0",
    "LOG_UOP_BUFF_SIZE=15",
    "LOG_INP_BUFF_SIZE=14,15,30",
    "LOG_WGT_BUFF_SIZE=16,17,18",
    "LOG_ACC_BUFF_SIZE=16,17",
];

fn options(output: &Path, shard: Option<&str>) -> ExploreOptions {
    ExploreOptions {
        work: vec!["conv:1,16,7,7,32,3,1,1".to_owned()].into(),
        vary: SPACE.iter().map(|axis| (*axis).to_owned()).collect(),
        target: Target {
            threads: Some(2),
            ..Target::default()
        },
        walk: Walk {
            area_mm2: Some(2.3),
            points: 60,
            shard: shard.map(str::to_owned),
            ..Walk::default()
        },
        output: output.to_owned(),
        picture: None,
    }
}

fn front(explored: &Explored) -> Vec<(&Row, Option<f64>, &str)> {
    let told = explored.front.iter();
    told.map(|best| (&best.row, best.gain, &*best.verdict.words))
        .collect()
}

#[test]
fn an_exploration_stays_within_its_bounds_and_shows_the_front() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut options = options(&path, None);
    options.picture = Some(folder.path().join("t.svg"));
    let explored = explore(&options, &()).unwrap();
    assert!(
        explored.computed <= 60 && explored.computed > 30,
        "{}",
        explored.computed
    );
    assert_eq!(
        (explored.rows.len(), explored.resumed),
        (explored.computed, 0)
    );
    let measured = explored
        .rows
        .iter()
        .map(|row| row.outcome.as_ref().unwrap());
    assert!(measured.clone().all(|m| m.area_mm2 <= 2.3));
    let input = explored
        .keys
        .iter()
        .position(|key| key == "LOG_INP_BUFF_SIZE")
        .unwrap();
    assert!(explored.rows.iter().all(|row| row.values[input] != "30"));
    assert!(!explored.front.is_empty());
    for best in &explored.front {
        let beats = |m: &&Measured| {
            m.cycles < best.measured.cycles && m.energy_uj <= best.measured.energy_uj
        };
        assert_eq!(measured.clone().filter(beats).count(), 0);
        assert!(best.gain.is_none_or(|gain| gain > 0.2) && !best.verdict.words.is_empty());
    }
    assert!(explored.front.iter().any(|best| best.gain.is_some()));
    let again = explore(&options, &()).unwrap();
    assert_eq!((again.computed, again.resumed), (0, explored.computed));
    assert_eq!(front(&again), front(&explored));
    let picture = fs::read_to_string(folder.path().join("t.svg")).unwrap();
    assert!(picture.contains("cycles an image against energy an image"));
    assert_eq!(picture.matches("<circle").count(), explored.rows.len());
}

#[test]
fn a_table_that_was_cut_anywhere_ends_as_the_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut options = options(&path, None);
    options.walk.points = 4;
    options.walk.searches = 2;
    let whole = explore(&options, &()).unwrap();
    let text = fs::read(&path).unwrap();
    for end in 0..text.len() {
        fs::write(&path, &text[..end]).unwrap();
        let found = explore(&options, &()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), text, "cut at {end}");
        assert_eq!(front(&found), front(&whole), "cut at {end}");
        assert_eq!(found.computed + found.resumed, whole.computed);
    }
    // One of more points goes on, and is that of its own.
    options.walk.points = 12;
    let more = explore(&options, &()).unwrap();
    let longer = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let alone = explore(&options, &()).unwrap();
    assert!(more.computed < alone.computed);
    assert_eq!(
        (front(&more), longer),
        (front(&alone), fs::read(&path).unwrap())
    );
}

#[test]
fn shards_together_are_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = explore(&options(&path("whole.csv"), None), &()).unwrap();
    for shards in 2..=4 {
        let tables: Vec<_> = (1..=shards).map(|at| path(&format!("{at}.csv"))).collect();
        for (at, table) in (1..).zip(&tables) {
            let _ = fs::remove_file(table);
            explore(&options(table, Some(&format!("{at}/{shards}"))), &()).unwrap();
        }
        merge(&tables, &path("all.csv")).unwrap();
        let all = explore(&options(&path("all.csv"), None), &()).unwrap();
        assert_eq!((all.computed, all.resumed), (0, whole.computed), "{shards}");
        assert_eq!(front(&all), front(&whole));
        assert_eq!(
            fs::read(path("all.csv")).unwrap(),
            fs::read(path("whole.csv")).unwrap()
        );
    }
}

#[test]
fn networks_are_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder.path().join("t.csv"), None);
    options.work = vec![
        "gemm:8,16,16".to_owned(),
        "conv:1,16,7,7,32,3,1,1".to_owned(),
    ]
    .into();
    options.walk.points = 4;
    let explored = explore(&options, &()).unwrap();
    assert_eq!(explored.computed, 2 * explored.rows.len());
    let row = explored.rows[0].values.clone();
    let one = |name: &str| {
        let vary: Vec<String> = explored
            .keys
            .iter()
            .zip(&row)
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let work = vec![name.to_owned()].into();
        let sweeper = Sweeper::open(&work, &vary, &Target::default(), &()).unwrap();
        sweeper.measure(0).unwrap().outcome.unwrap().cycles
    };
    let sum: u64 = options.work.models.iter().map(|name| one(name)).sum();
    assert_eq!(explored.rows[0].outcome.as_ref().unwrap().cycles, sum);
}

#[test]
fn what_cannot_be_explored_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let refused = |change: &dyn Fn(&mut ExploreOptions)| {
        let mut options = options(&path, None);
        change(&mut options);
        let error = explore(&options, &()).err().unwrap().to_string();
        assert!(!path.exists());
        error
    };
    let small = refused(&|o| o.walk.area_mm2 = Some(0.1));
    assert!(
        small.contains("0.1: no machine that was tried is so small; the smallest takes "),
        "{small}"
    );
    for area in [0.0, -1.0, f64::NAN] {
        assert!(refused(&|o| o.walk.area_mm2 = Some(area)).contains("must be more than 0"));
    }
    let none = refused(&|o| o.vary[2] = "LOG_INP_BUFF_SIZE=30".to_owned());
    assert!(
        none.contains("no machine that was tried can be built")
            && none.contains("LOG_INP_BUFF_SIZE"),
        "{none}"
    );
    assert!(refused(&|o| o.walk.points = 0).contains("points"));
    assert!(refused(&|o| o.walk.searches = 0).contains("must be from 1 to 60"));
    assert!(refused(&|o| o.walk.searches = 61).contains("must be from 1 to 60"));
    assert!(refused(&|o| o.walk.objectives.clear()).contains("objective"));
    assert!(
        refused(&|o| o.walk.objectives.push(Objective::Cycles)).contains("cycles is given twice")
    );
    assert!(refused(&|o| o.walk.shard = Some("1/5".to_owned())).contains("of 4 searches"));
    assert!(refused(&|o| o.walk.shard = Some("5".to_owned())).contains("is no shard"));
    assert!(refused(&|o| o.vary.push("LOG_BLOK=4".to_owned())).contains("no such key"));
    assert!(refused(&|o| o.work = vec!["nothing.onnx".to_owned()].into()).contains("nothing.onnx"));
    let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let huge = |key: &str| format!("{key}={}", many.join(","));
    let keys = [
        "tags",
        "queue_depth",
        "memory_latency_cycles",
        "request_fifo",
        "token_max",
    ];
    let vast = refused(&|o| o.vary.extend(keys.map(huge)));
    assert!(vast.contains("the grid has more than"), "{vast}");
}

#[test]
fn a_board_bounds_the_machines() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder.path().join("t.csv"), None);
    options.vary.clear();
    options.target.board = Some("pynq".to_owned());
    options.work = vec!["gemm:8,16,16".to_owned()].into();
    options.walk = Walk {
        points: 12,
        ..Walk::default()
    };
    let explored = explore(&options, &()).unwrap();
    assert!(
        !explored
            .keys
            .iter()
            .any(|key| key == "EXTENSIONS" || key == "bus_bytes"),
        "{:?}",
        explored.keys
    );
    assert!(
        explored
            .front
            .iter()
            .all(|best| best.config.block() == 16 && best.gain.is_none())
    );
}

/// A fast board and a slow one: the fast one's rows are those of a sweep on that board alone.
#[test]
fn boards_are_walked_within_what_each_admits() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    fs::write(
        &mine,
        "preset = 'own'\nbus_bytes = 32\n[config]\nEXTENSIONS = ['CLIP']\n",
    )
    .unwrap();
    let mine = mine.display().to_string();
    let mut options = options(&folder.path().join("t.csv"), None);
    options.vary = vec![format!("board=pynq,{mine}")];
    options.work = vec!["gemm:8,64,64".to_owned()].into();
    options.walk = Walk {
        points: 40,
        ..Walk::default()
    };
    let explored = explore(&options, &()).unwrap();
    let keys: Vec<&str> = explored.keys.iter().map(String::as_str).collect();
    assert!(!keys.contains(&"bus_bytes"), "{keys:?}");
    let board = keys.iter().position(|key| *key == "board").unwrap();
    let failed = explored.rows.iter().filter(|row| row.outcome.is_err());
    assert_eq!(failed.count(), 0);
    for name in ["pynq", &mine] {
        let of_board = |row: &&Row| row.values[board] == name;
        let rows: Vec<&Row> = explored.rows.iter().filter(of_board).collect();
        assert!(!rows.is_empty(), "{name}");
        for row in rows.iter().take(3) {
            let axes = keys.iter().zip(&row.values);
            let axes = axes.filter(|(key, _)| **key != "board");
            let alone = Sweeper::open(
                &options.work,
                &axes
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect::<Vec<_>>(),
                &Target {
                    board: Some(name.to_owned()),
                    ..options.target.clone()
                },
                &(),
            );
            let alone = alone.unwrap().measure(0).unwrap();
            assert_eq!(
                alone.outcome.as_ref().unwrap().cycles,
                row.outcome.as_ref().unwrap().cycles
            );
        }
    }
}
