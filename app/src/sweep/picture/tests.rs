use super::*;

const AXES: [Objective; 2] = [Objective::Area, Objective::Cycles];

fn row(area_mm2: f64, cycles: u64, images: u64) -> Row {
    Row {
        values: vec!["<8>".to_owned()],
        outcome: Ok(Measured {
            cycles,
            images,
            area_mm2,
            ..Measured::default()
        }),
    }
}

#[test]
fn the_picture_is_escaped_and_has_every_point() {
    for rows in [
        vec![],
        vec![row(1.0, 5, 1)],
        vec![row(1.0, 5, 1), row(2.0, 9, 1)],
    ] {
        let text = pareto("vta", "a<b", &["tags"], &rows, AXES);
        assert_eq!(text.matches("<circle").count(), rows.len());
        assert!(text.contains("a&lt;b") && !text.contains("<8>"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn values_far_apart_are_on_a_logarithmic_axis() {
    let near = Axis::new([10.0, 50.0].into_iter());
    assert!(!near.log && near.low == 0.0 && near.high >= 50.0);
    let far = Axis::new([30.0, 700.0].into_iter());
    assert_eq!(
        (far.log, &far.ticks[..]),
        (true, &[20.0, 50.0, 100.0, 200.0, 500.0, 1000.0][..])
    );
    assert_eq!((far.place(20.0), far.place(1000.0)), (0.0, 1.0));
    assert!(far.place(100.0) > 0.4 && far.place(100.0) < 0.5);
}

#[test]
fn what_the_best_have_in_common_is_told_once_and_lines_end_in_the_picture() {
    let best = |value: &str, area, cycles| Row {
        values: vec![value.to_owned(), "7".to_owned()],
        ..row(area, cycles, 1)
    };
    let long = "x".repeat(WIDE - 4);
    let rows = [best(&long, 1.0, 9), best("b", 2.0, 5)];
    let text = pareto("vta", "m", &["k", "same"], &rows, AXES);
    assert_eq!(text.matches(">same 7<").count(), 1, "{text}");
    assert!(text.contains("all of these") && text.contains(">k b<"));
    let words = [long, "short".to_owned(), "one".to_owned()];
    assert_eq!(
        lines(&words),
        [format!("{},", words[0]), "short, one".to_owned()]
    );
    // One alone is told whole.
    let text = pareto("vta", "m", &["k", "same"], &rows[1..], AXES);
    assert!(
        text.contains(">k b, same 7<") && !text.contains("all of these"),
        "{text}"
    );
}

#[test]
fn numbers_do_not_lie_on_each_other() {
    let places = [(10.0, 50.0), (15.0, 52.0), (30.0, 52.0), (31.0, 70.0)];
    let free: Vec<bool> = numbered(&places).iter().map(Option::is_some).collect();
    assert_eq!(free, [true, false, true, true]);
}

#[test]
fn ticks_are_short() {
    assert_eq!(
        [round(0.0), round(2.5), round(1.5e6)],
        ["0", "2.5", "1.5 M"]
    );
}
