//! What the program prints, word for word. After a wanted change: `TRYCMD=overwrite cargo test
//! -p vta --test snapshots`, then read the difference.

#[test]
fn help_and_errors_read_as_recorded() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
