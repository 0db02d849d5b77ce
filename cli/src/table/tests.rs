use super::*;

fn table() -> Table {
    let mut table = Table::new([
        Column::name("layer"),
        Column::words("kind").optional(),
        Column::number("cycles"),
        Column::number("bytes").optional(),
        Column::text("why"),
    ]);
    let cells = [
        "a.very.long.name.of.a.layer",
        "conv",
        "12345",
        "7",
        "it waits for the memory",
    ];
    table.row(cells.map(str::to_owned));
    table.row(["b", "add", "1", "1234567", ""].map(str::to_owned));
    table
}

#[test]
fn what_fits_is_shown_whole() {
    let (text, missing) = table().fitting(80);
    let expected = "layer                        kind  cycles    bytes  why\n\
            a.very.long.name.of.a.layer  conv   12345        7  it waits for the memory\n\
            b                            add        1  1234567\n";
    assert_eq!((text.as_str(), missing.len()), (expected, 0));
}

#[test]
fn columns_go_then_names_are_cut_and_words_wrapped() {
    for width in (52..80).rev() {
        let (text, missing) = table().fitting(width);
        assert!(
            text.lines().all(|line| line.width() <= width),
            "{width}:\n{text}"
        );
        let all = ["kind", "bytes"];
        assert_eq!(
            missing,
            all[all.len() - missing.len()..],
            "the last go first"
        );
    }
    let (text, missing) = table().fitting(54);
    assert_eq!(missing, ["kind", "bytes"]);
    assert!(
        text.contains("a.very.lon..f.a.layer") || text.contains(".."),
        "{text}"
    );
    assert!(
        text.contains("\n") && text.contains("it waits for the"),
        "{text}"
    );
}

#[test]
fn long_words_are_broken_where_a_column_ends() {
    for (text, lines) in [
        ("abc", &["abc"][..]),
        ("abcdefg\nhi", &["abcd", "efg", "hi"]),
        ("ab-cd-efghij", &["ab-", "cd-", "efgh", "ij"]),
        ("", &[]),
    ] {
        assert_eq!(chunks(text, 4), lines, "{text}");
    }
}

#[test]
fn names_keep_both_ends() {
    for (name, width, expected) in [
        ("abc", 3, "abc"),
        ("abcdefgh", 6, "ab..gh"),
        ("abcdefgh", 7, "abc..gh"),
        ("\u{6f22}\u{5b57}\u{6f22}\u{5b57}", 6, "\u{6f22}..\u{5b57}"),
    ] {
        assert_eq!(cut(name, width), expected, "{name} {width}");
    }
}
