use proptest::prelude::*;

use super::*;

fn row(area_mm2: f64, cycles: u64, images: u64) -> Row {
    Row {
        values: Vec::new(),
        outcome: Ok(Measured {
            cycles,
            images,
            area_mm2,
            ..Measured::default()
        }),
    }
}

#[test]
fn the_front_has_what_nothing_beats() {
    let failed = Row {
        values: Vec::new(),
        outcome: Err("no".to_owned()),
    };
    let rows = [
        row(3.0, 50, 1),
        row(1.0, 100, 1),
        failed,
        row(2.0, 100, 1),
        row(2.5, 120, 2),
        row(1.0, 130, 1),
        row(3.0, 50, 1),
    ];
    let axes = [Objective::Area, Objective::Cycles];
    assert_eq!(front(&rows, &axes), [1, 4, 0]);
    assert_eq!(front(&rows, &[Objective::Cycles]), [0]);
    assert!(front(&[], &axes).is_empty());
}

#[test]
fn figures_are_of_an_image_and_have_names() {
    let measured = Measured {
        cycles: 100,
        images: 4,
        pass_ms: 8.0,
        energy_uj: 12.0,
        dram_bytes: 40,
        area_mm2: 1.5,
        ..Measured::default()
    };
    for (name, value) in [
        ("cycles", 25.0),
        ("energy", 3.0),
        ("area", 1.5),
        ("time", 2.0),
        ("dram", 10.0),
    ] {
        let objective: Objective = name.parse().unwrap();
        assert_eq!((objective.name(), objective.of(&measured)), (name, value));
    }
    let error = "speed".parse::<Objective>().unwrap_err().to_string();
    assert!(
        error.ends_with("speed: there are cycles, energy, area, time, dram"),
        "{error}"
    );
}

/// Few values, so that many are equal.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let one = (
        0u64..5,
        1u64..3,
        0u32..4,
        0u32..4,
        prop::bool::weighted(0.9),
    );
    let row = |(cycles, images, energy, area, right)| Row {
        values: Vec::new(),
        outcome: if right {
            Ok(Measured {
                cycles: cycles * images,
                images,
                energy_uj: f64::from(energy) * images as f64,
                area_mm2: f64::from(area),
                ..Measured::default()
            })
        } else {
            Err("no".to_owned())
        },
    };
    prop::collection::vec(one.prop_map(row), 0..30)
}

proptest! {
    /// By the definition: every machine is on the front, or one of the front is no worse in anything; and of the front
    /// none is no worse in anything than another.
    #[test]
    fn the_front_is_what_the_definition_says(rows in rows(), wanted in prop::sample::subsequence(&Objective::ALL[..3], 1..=3)) {
        let front = front(&rows, &wanted);
        let no_worse = |a: usize, b: usize| {
            let (a, b) = (rows[a].outcome.as_ref().unwrap(), rows[b].outcome.as_ref().unwrap());
            wanted.iter().filter(|o| o.of(a) > o.of(b)).count() == 0
        };
        for (at, row) in rows.iter().enumerate() {
            prop_assert_eq!(row.outcome.is_ok(), row.outcome.is_ok() && front.iter().any(|&best| no_worse(best, at)));
        }
        for &a in &front {
            prop_assert!(rows[a].outcome.is_ok());
            prop_assert!(front.iter().all(|&b| a == b || !no_worse(a, b)));
        }
    }
}
