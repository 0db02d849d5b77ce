use vta_isa::Config;
use vta_sim::cycle::TimingConfig;

use super::*;

fn grid() -> Grid {
    let grid = Grid::new(
        &["tags=1,2,3".to_owned()],
        &Config::default(),
        &TimingConfig::pynq(),
    );
    grid.unwrap().of_layers("layer", ["a", "b"].into_iter())
}

fn row(layer: &str, tags: &str, cycles: Option<u64>) -> Row {
    let measured = |cycles| Measured {
        cycles,
        images: 1,
        bound_cycles: cycles / 2,
        pass_ms: cycles as f64 / 8.0,
        macs: 64,
        utilization: 16.0 / cycles as f64,
        dram_bytes: 10,
        energy_uj: 1.5,
        area_mm2: 7.0,
    };
    Row {
        values: vec![layer.to_owned(), tags.to_owned()],
        outcome: cycles.map(measured).ok_or("too wide".to_owned()),
    }
}

#[test]
fn layers_of_a_machine_are_added() {
    let grid = grid();
    let rows = [
        row("a", "1", Some(10)),
        row("a", "2", Some(20)),
        row("b", "1", Some(30)),
        row("b", "2", None),
        row("b", "3", Some(5)),
    ];
    let machines = Machines::of(&grid, &rows);
    assert_eq!(machines.keys, ["tags"]);
    let [one, two] = machines.rows.as_slice() else {
        panic!("the third machine lacks a layer")
    };
    assert_eq!(
        (&one.values, &two.values),
        (&vec!["1".to_owned()], &vec!["2".to_owned()])
    );
    let sum = one.outcome.as_ref().unwrap();
    assert_eq!(
        (sum.cycles, sum.bound_cycles, sum.macs, sum.dram_bytes),
        (40, 20, 128, 20)
    );
    assert_eq!((sum.images, sum.energy_uj, sum.area_mm2), (1, 3.0, 7.0));
    assert_eq!(sum.pass_ms, 5.0);
    // 128 multiply-adds of the 4 in each of 40 cycles.
    assert!((sum.utilization - 0.8).abs() < 1e-12, "{}", sum.utilization);
    assert_eq!(two.outcome, Err("b: too wide".to_owned()));
}

#[test]
fn rows_of_networks_stay_as_they_are() {
    let grid = Grid::new(
        &["tags=1,2".to_owned()],
        &Config::default(),
        &TimingConfig::pynq(),
    )
    .unwrap();
    let mut rows = [row("a", "1", Some(10)), row("b", "2", None)];
    rows.iter_mut().for_each(|row| drop(row.values.remove(0)));
    let machines = Machines::of(&grid, &rows);
    assert_eq!(
        (machines.keys, machines.rows),
        (vec!["tags"], rows.to_vec())
    );
}
