use super::*;
use crate::sweep::row::tests as row;

const BASE: &str = "demo, base 00000000000000ff";
const GRID: &str = "0123456789abcdef";

fn heading() -> String {
    head(["tags"].into_iter()).unwrap()
}

fn labelled(tags: u64, cycles: u64, label: &str) -> String {
    line(&row::row(&[&tags.to_string()], Ok(cycles)), label).unwrap()
}

fn row(tags: u64, number: usize) -> String {
    let label = format!("{BASE}, point {number} of 4 in grid {GRID}");
    labelled(tags, tags * 10, &label)
}

fn whole(tags: u64) -> String {
    labelled(tags, tags * 10, BASE)
}

fn table(tags: &[u64]) -> String {
    heading() + &tags.iter().map(|t| whole(*t)).collect::<String>()
}

fn merged(tables: &[String]) -> Result<((usize, Vec<usize>), String), String> {
    let folder = tempfile::tempdir().unwrap();
    let name = |i| folder.path().join(format!("{i}.csv"));
    for (i, text) in tables.iter().enumerate() {
        std::fs::write(name(i), heading() + text).unwrap();
    }
    let (paths, all) = (
        (0..tables.len()).map(name).collect::<Vec<_>>(),
        folder.path().join("all"),
    );
    let found = merge(&paths, &all);
    assert_eq!(found.is_ok(), all.exists());
    let folder = format!("{}/", folder.path().display());
    let found = found.map_err(|e| e.to_string().replace(&folder, ""))?;
    Ok((found, std::fs::read_to_string(all).unwrap()))
}

#[test]
fn rows_are_in_the_grids_order_whatever_the_tables() {
    // Not ascending: the grid is 9, 3, 7, 5.
    let (a, b) = (row(9, 1) + &row(7, 3), row(3, 2) + &row(5, 4));
    for tables in [[a.clone(), b.clone()], [b, a]] {
        let (found, text) = merged(&tables).unwrap();
        assert_eq!(found, (4, vec![]));
        assert_eq!(text, table(&[9, 3, 7, 5]));
    }
    let some = [row(5, 4), whole(8), row(9, 1) + &row(5, 4), whole(9)];
    let (found, text) = merged(&some).unwrap();
    assert_eq!(found, (3, vec![2, 3]));
    assert_eq!(text, table(&[9, 5, 8]));
    let (found, text) = merged(&[whole(8) + &whole(2), whole(4) + &whole(2)]).unwrap();
    assert_eq!(found, (3, vec![]));
    assert_eq!(text, table(&[8, 2, 4]));
}

#[test]
fn what_does_not_fit_names_file_and_line_and_writes_nothing() {
    let of = |base: &str, point: &str, grid: &str| {
        labelled(3, 30, &format!("{base}, point {point} in grid {grid}"))
    };
    let other =
        "1.csv:2: a shard of another grid, or by another version of vta, than that of 0.csv:2";
    let sweep =
        |name: &str| format!("1.csv:2: a row of the sweep '{name}'; that of 0.csv:2 is '{BASE}'");
    let (net, base) = (BASE.replace("demo", "net"), BASE.replace("ff", "fe"));
    let changed = row(3, 2).replace("3,30,", "3,7,");
    let written = changed.trim_end().rsplit(',').next().unwrap();
    for (second, error) in [
        (row(9, 2), "1.csv:2: point 2, which 0.csv:2 says is 1"),
        (row(3, 1), "1.csv:2: another point 1 than that of 0.csv:2"),
        (
            labelled(9, 91, &format!("{BASE}, point 1 of 4 in grid {GRID}")),
            "1.csv:2: another result for the point of 0.csv:2: cycles is '91', not '90'",
        ),
        (of(&net, "2 of 4", GRID), &sweep(&net)),
        (of(&base, "2 of 4", GRID), &sweep(&base)),
        (of(BASE, "2 of 4", "f123456789abcdef"), other),
        (of(BASE, "2 of 5", GRID), other),
        (row(3, 2) + "5,1\n", "1.csv:3: 2 cells, not 13"),
        (
            row(3, 2) + "5,1",
            "1.csv: the last row has no end: the sweep hasn't finished it",
        ),
    ] {
        assert_eq!(merged(&[row(9, 1), second]).unwrap_err(), error);
    }
    let error = merged(&[row(9, 1), changed.clone()]).unwrap_err();
    let part = format!("1.csv:2: the row isn't as it was written: its check is '{written}'");
    assert!(error.starts_with(&part), "{error}");
    let error = merged(&[String::new(), String::new()]).unwrap_err();
    assert_eq!(error.matches(".csv").count(), 2, "{error}");
}

#[test]
fn numbers_that_no_grid_has_are_part_of_the_sweeps_name() {
    for wrong in ["0 of 4", "5 of 4", "1 of 100001", "-1 of 4", "x of 4", "1"] {
        let text = labelled(3, 30, &format!("{BASE}, point {wrong} in grid {GRID}"));
        let error = merged(&[row(9, 1), text]).unwrap_err();
        assert!(error.contains(&format!("point {wrong} in grid")), "{error}");
    }
}

#[test]
fn other_files_are_no_tables() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, all] = ["a.csv", "b.csv", "all"].map(|name| folder.path().join(name));
    std::fs::write(&a, table(&[1])).unwrap();
    for (text, part) in [
        ("", "b.csv:1: not the table of a sweep"),
        ("a,b\n1,2\n", "b.csv:1: not the table of a sweep"),
        (
            &heading().replace("tags", "LOG_BLOCK"),
            "b.csv:1: other headings than those of",
        ),
    ] {
        std::fs::write(&b, text).unwrap();
        let error = merge(&[a.clone(), b.clone()], &all).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let gone = merge(&[a, folder.path().join("gone.csv")], &all).unwrap_err();
    assert!(gone.to_string().contains("gone.csv"), "{gone}");
    assert!(merge(&[], &all).is_err() && !all.exists());
}
