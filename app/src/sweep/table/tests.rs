use vta_isa::Config;
use vta_sim::cycle::TimingConfig;

use super::*;
use crate::sweep::row::tests::row;

fn grid() -> Grid {
    let vary = ["LOG_BLOCK=4,5".to_owned(), "tags=1,2".to_owned()];
    Grid::new(&vary, &Config::default(), &TimingConfig::pynq()).unwrap()
}

#[test]
fn a_stopped_sweep_goes_on_and_ends_in_the_grids_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut table = Table::open(&path, "demo", &grid(), None).unwrap();
    table.append(row(&["5", "2"], Ok(52))).unwrap();
    table
        .append(row(&["4", "1"], Err("too, \"wide\"\n")))
        .unwrap();
    drop(table);
    // The writer was stopped within a line.
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all("4,2,77,\u{00e9}".as_bytes().split_last().unwrap().1)
        .unwrap();
    let mut table = Table::open(&path, "demo", &grid(), None).unwrap();
    let second = Table::open(&path, "demo", &grid(), None).err().unwrap();
    let busy = "another process is writing this file";
    assert!(second.to_string().ends_with(busy), "{second}");
    let done = |a: &str, b: &str| table.has(&[a.to_owned(), b.to_owned()]);
    assert!(done("5", "2") && done("4", "1") && !done("4", "2") && !done("5", "1"));
    table.append(row(&["5", "1"], Ok(51))).unwrap();
    table.append(row(&["4", "2"], Ok(42))).unwrap();
    let rows = table.finish(&grid()).unwrap();
    let cycles = |r: &Row| r.outcome.as_ref().ok().map(|m| m.cycles);
    let found: Vec<_> = rows.iter().map(cycles).collect();
    assert_eq!(found, [None, Some(42), Some(51), Some(52)]);
    assert_eq!(rows[0].outcome, Err("too, \"wide\" ".to_owned()));
    assert_eq!(rows[1], row(&["4", "2"], Ok(42)));
    let text = std::fs::read_to_string(&path).unwrap();
    let head = "LOG_BLOCK,tags,cycles,images,bound_cycles,pass_ms,macs,utilization,dram_bytes,\
                    energy_uj,area_mm2,error,sweep,check\n4,1,,,,,,,,,,\"too, \"\"wide\"\" \",\"demo, base ";
    assert!(text.starts_with(head), "{text}");
    assert_eq!(text.lines().count(), 1 + 4);
}

#[test]
fn rows_that_cannot_be_are_refused_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut table = Table::open(&path, "demo", &grid(), None).unwrap();
    table.append(row(&["4", "1"], Ok(1622))).unwrap();
    table.append(row(&["4", "2"], Ok(42))).unwrap();
    table.finish(&grid()).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = Table::open(&path, "demo", &grid(), None)
            .err()
            .unwrap()
            .to_string();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        error.replace(&format!("{}/", folder.path().display()), "")
    };
    let error = refused(&good.replace(",1622,", ",7,"));
    assert!(
        error.starts_with("t.csv:2: the row isn't as it was written"),
        "{error}"
    );
    // A point twice: once as it is, once by another sweep of the same name that was as honest.
    let second = folder.path().join("u.csv");
    let mut table = Table::open(&second, "demo", &grid(), None).unwrap();
    table.append(row(&["4", "1"], Ok(1623))).unwrap();
    table.finish(&grid()).unwrap();
    let other = std::fs::read_to_string(&second).unwrap();
    assert_eq!(
        refused(&(good.clone() + other.lines().last().unwrap() + "\n")),
        "t.csv:4: another result for the point of t.csv:2: cycles is '1623', not '1622'"
    );
    let twice = good.clone() + good.lines().last().unwrap() + "\n";
    std::fs::write(&path, twice).unwrap();
    let table = Table::open(&path, "demo", &grid(), None).unwrap();
    assert_eq!(table.finish(&grid()).unwrap().len(), 2);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), good);
}

#[test]
fn another_sweeps_table_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut table = Table::open(&path, "demo", &grid(), None).unwrap();
    table.append(row(&["4", "1"], Ok(41))).unwrap();
    drop(table);
    let text = std::fs::read_to_string(&path).unwrap();
    let error = Table::open(&path, "zoo:resnet18", &grid(), None)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("t.csv:2: not the table of this sweep")
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    for text in ["a,b\n1,2\n", "notes without an end"] {
        std::fs::write(&path, text).unwrap();
        assert!(Table::open(&path, "demo", &grid(), None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
