use super::*;

fn grid(vary: &[&str]) -> Result<Grid> {
    let vary: Vec<String> = vary.iter().map(|v| (*v).to_owned()).collect();
    Grid::new(&vary, &Config::default(), &TimingConfig::pynq())
}

#[test]
fn points_are_all_combinations_with_their_machines() {
    let grid = grid(&["LOG_BLOCK=4,5", "bus_bytes=8,16,32"]).unwrap();
    let points: Vec<_> = grid.points().collect();
    assert_eq!((grid.size(), points.len()), (6, 6));
    assert_eq!(points[0].values, ["4", "8"]);
    assert_eq!(points[5].values, ["5", "32"]);
    let (config, timing) = points[4].machine.as_ref().unwrap();
    assert_eq!((config.block(), timing.bus_bytes), (32, 16));
    assert_eq!(timing.burst_beats, TimingConfig::pynq().burst_beats);
    for (index, point) in points.iter().enumerate() {
        assert_eq!(grid.index_of(&point.values), Some(index));
    }
    assert_eq!(grid.index_of(&["4".to_owned(), "64".to_owned()]), None);
    assert_eq!(grid.index_of(&["4".to_owned()]), None);
}

#[test]
fn sets_of_extensions_are_added_to_the_base() {
    let grid = grid(&["EXTENSIONS=none,CLIP,CLIP+MUL"]).unwrap();
    let has = grid.points().map(|p| p.machine.unwrap().0.extensions());
    let [base, clip] = [
        Extensions::DEFAULT,
        Extensions::DEFAULT.with(Extension::Clip),
    ];
    assert_eq!(has.collect::<Vec<_>>(), [base, clip, clip]);
}

#[test]
fn other_axes_replace_what_a_preset_has() {
    let timings = |vary: &[&str]| {
        let points = grid(vary).unwrap();
        let timing = points.points().map(|p| p.machine.unwrap().1);
        timing.collect::<Vec<_>>()
    };
    let [de10, own] = [TimingConfig::de10(), TimingConfig::own()];
    assert_eq!(timings(&["preset=de10,own"]), [de10.clone(), own.clone()]);
    let wide = |timing: TimingConfig, bus_bytes| TimingConfig {
        bus_bytes,
        ..timing
    };
    assert_eq!(
        timings(&["bus_bytes=8,16", "preset=de10,own"]),
        [
            de10.clone(),
            own.clone(),
            wide(de10, 16),
            wide(own.clone(), 16)
        ]
    );
    let slow = TimingConfig {
        store_ahead: true,
        ..TimingConfig::pynq()
    };
    assert_eq!(timings(&["store_ahead=true"]), [slow]);
    let own = TimingConfig {
        tags: 3,
        ..TimingConfig::pynq()
    };
    let error = Grid::new(&["preset=own".to_owned()], &Config::default(), &own)
        .err()
        .unwrap();
    assert!(
        format!("{error:#}").contains("a time of its own"),
        "{error:#}"
    );
}

#[test]
fn a_point_that_cannot_be_built_says_why() {
    let points = grid(&["store_ahead=2,true"]).unwrap();
    let errors: Vec<_> = points.points().filter_map(|p| p.machine.err()).collect();
    assert!(
        matches!(&errors[..], [one] if one.contains("bool")),
        "{errors:?}"
    );
    let grid = grid(&["LOG_WGT_BUFF_SIZE=18,30", "bus_bytes=8,12"]).unwrap();
    let errors: Vec<_> = grid.points().filter_map(|p| p.machine.err()).collect();
    assert_eq!(errors.len(), 3);
    assert!(errors[0].contains("bus_bytes"), "{errors:?}");
    assert!(errors[1].contains("LOG_WGT_BUFF_SIZE"), "{errors:?}");
}

#[test]
fn bad_axes_are_named() {
    for (vary, part) in [
        (&["LOG_BLOCK"][..], "KEY=V1,V2"),
        (&["LOG_BLOCK=x"], "'x' is no number"),
        (&["LOG_BLOCK=4,4"], "4 is given twice"),
        (&["LOG_BLOCK=4", "LOG_BLOCK=5"], "LOG_BLOCK is given twice"),
        (&["LOG_BLOK=4"], "no such key"),
        (&["latency=4"], "memory_latency_cycles"),
        (&["tags="], "'' is no number"),
        (&["LOG_BLOCK=true"], "'true' is no number"),
        (
            &["preset=pac"],
            "there is no pac; there are pynq, de10, own",
        ),
        (&["EXTENSIONS=CLIP+DIV"], "there is no DIV"),
        (&["EXTENSIONS=1"], "there is no 1; there are ACC8"),
    ] {
        let error = format!("{:#}", grid(vary).err().unwrap());
        assert!(error.contains(part), "{vary:?}: {error}");
    }
    let long = (1..=400)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let (a, b) = (format!("tags={long}"), format!("queue_depth={long}"));
    assert!(grid(&[&a, &b]).unwrap().of_at_most(MAX_POINTS).is_err());
}

#[test]
fn boards_are_machines_whose_limits_hold() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    let write = |depth: u32| {
        let text = format!(
            "preset = 'de10'\ntags = 7\n[config]\nLOG_UOP_BUFF_SIZE = {depth}\nEXTENSIONS = ['CLIP']\n"
        );
        std::fs::write(&mine, text).unwrap();
        format!("board=pynq,{},own", mine.display())
    };
    let boards = write(14);
    let machines = |vary: &[&str]| -> Vec<_> {
        let grid = grid(vary).unwrap();
        let seen = |machine: Result<(Config, TimingConfig), String>| {
            let (config, timing) = machine?;
            let uops = config.depth(vta_isa::MemType::Uop);
            Ok((uops, config.extensions().to_string(), timing.tags))
        };
        grid.points().map(|point| seen(point.machine)).collect()
    };
    let board = |uops, has: &str, tags| Ok((uops, has.to_owned(), tags));
    let [pynq, own] = [TimingConfig::pynq().tags, TimingConfig::own().tags];
    let expected = [
        board(2048, "none", pynq),
        board(4096, "CLIP", 7),
        board(8192, "ACC8, MUL, SHL", own),
    ];
    assert_eq!(machines(&[&boards]), expected);
    let small = machines(&[&boards, "tags=9", "LOG_UOP_BUFF_SIZE=13,14"]);
    assert_eq!(small[0], board(2048, "none", 9));
    let excess =
        "the configuration doesn't fit the board pynq: uop scratchpad of 4096 elements, not 2048";
    assert_eq!(small[1], Err(excess.to_owned()));
    assert_eq!(small[3], board(4096, "CLIP", 9));
    let of_sets = machines(&[&boards, "EXTENSIONS=none,MOV"]);
    assert!(
        of_sets[3]
            .as_ref()
            .is_err_and(|e| e.ends_with("MOV, which it doesn't have"))
    );
    let refused = |vary: &[&str]| {
        grid(vary)
            .err()
            .map(|e| format!("{e:#}"))
            .unwrap_or_default()
    };
    assert!(refused(&["board=none.toml"]).contains("no such preset, and no such file"));
    assert!(refused(&["board=pynq", "preset=own"]).contains("both name a time"));
    // The file's contents tell one sweep from another.
    let before = grid(&[&boards]).unwrap().fingerprint();
    write(12);
    assert_ne!(grid(&[&boards]).unwrap().fingerprint(), before);
}

#[test]
fn the_fingerprint_is_of_what_is_not_varied() {
    let one = grid(&["tags=1,2"]).unwrap().fingerprint();
    assert_eq!(grid(&["tags=7"]).unwrap().fingerprint(), one);
    let vary = ["tags=1".to_owned()];
    let other = Grid::new(&vary, &Config::default(), &TimingConfig::de10()).unwrap();
    assert_ne!(other.fingerprint(), one);
    let on = |name| {
        grid(&["tags=1"])
            .unwrap()
            .on(Some(Board::preset(name).unwrap()))
    };
    assert!(
        on("pynq").fingerprint() != one && on("pynq").fingerprint() != on("de10").fingerprint()
    );
    let of = |bytes| grid(&["tags=1"]).unwrap().of_file(bytes).fingerprint();
    assert_eq!(of(b"net"), of(b"net"));
    assert!(of(b"net") != of(b"nut") && of(b"net") != one);
}
