use super::*;

fn open(vary: &[&str], threads: usize) -> Sweeper {
    let work = vec!["conv:1,16,7,7,32,3,1,1".to_owned()].into();
    let vary: Vec<String> = vary.iter().map(|v| (*v).to_owned()).collect();
    let target = Target {
        threads: Some(threads),
        ..Target::default()
    };
    Sweeper::open(&work, &vary, &target, &()).unwrap()
}

#[test]
fn points_are_the_same_in_any_order_from_any_thread() {
    let axes = ["bus_bytes=8,12,16", "LOG_WGT_BUFF_SIZE=16,17,18"];
    let one = open(&axes, 1);
    let rows: Vec<Row> = (0..9).map(|i| one.measure(i).unwrap()).collect();
    let many = open(&axes, 3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (many, rows) = (&many, &rows);
            scope.spawn(move || {
                for i in (0..9).rev().map(|i| (i + 3 * thread) % 9) {
                    assert_eq!(many.measure(i).unwrap(), rows[i]);
                }
            });
        }
    });
    let failed: Vec<bool> = rows.iter().map(|row| row.outcome.is_err()).collect();
    assert_eq!(failed, [0, 0, 0, 1, 1, 1, 0, 0, 0].map(|f| f == 1));
    assert_eq!(rows[4].values, ["12", "17"]);
    let error = one.measure(9).err().unwrap().to_string();
    assert_eq!(error, "point 9 of a grid of 9: the last is 8");
}

#[test]
fn few_programs_are_kept_and_points_share_them() {
    let sweeper = open(&["tags=1,2", "LOG_WGT_BUFF_SIZE=16,17,18"], 1);
    let slots = || {
        let slots = sweeper.programs.slots.lock().unwrap();
        slots
            .iter()
            .map(|(_, s)| Arc::as_ptr(s))
            .collect::<Vec<_>>()
    };
    sweeper.measure(0).unwrap();
    let first = slots();
    sweeper.measure(3).unwrap();
    assert_eq!(slots(), first, "the same configuration");
    sweeper.measure(1).unwrap();
    sweeper.measure(0).unwrap();
    let both = slots();
    assert_eq!((both.len(), both[1]), (2, first[0]));
    sweeper.measure(2).unwrap();
    let next = slots();
    assert_eq!(next.len(), 2);
    assert_eq!(next[0], first[0], "the one that was used longest ago goes");
    assert!(
        sweeper
            .programs
            .slots
            .lock()
            .unwrap()
            .iter()
            .all(|(_, s)| s.get().is_some())
    );
}

#[test]
fn networks_are_the_first_axis() {
    let names = ["gemm:8,16,16", "conv:1,16,7,7,32,3,1,1"].map(str::to_owned);
    let vary = ["EXTENSIONS=none,CLIP+MOV+OVERWRITE".to_owned()];
    let all = Sweeper::open(&names.to_vec().into(), &vary, &Target::default(), &()).unwrap();
    assert_eq!(all.points(), 4);
    for (at, name) in names.iter().enumerate() {
        let alone = vec![name.clone()].into();
        let alone = Sweeper::open(&alone, &vary, &Target::default(), &()).unwrap();
        for point in 0..2 {
            let found = all.measure(2 * at + point).unwrap();
            assert_eq!(found.values[0], *name);
            assert_eq!(found.outcome, alone.measure(point).unwrap().outcome);
        }
    }
    let twice = vec![names[0].clone(), names[0].clone()].into();
    let error = Sweeper::open(&twice, &vary, &Target::default(), &())
        .err()
        .unwrap();
    assert!(error.to_string().contains("given twice"));
}
