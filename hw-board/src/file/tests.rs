use super::*;

const MINE: &str =
    "[registers]\npath = \"r\"\n[memory]\npath = \"m\"\naddress = 4096\nbytes = 8192\n";

#[test]
fn presets_are_boards_and_files_have_defaults() {
    for name in BoardFile::PRESETS {
        BoardFile::named(name).unwrap();
    }
    let mine = BoardFile::from_toml("mine", MINE).unwrap();
    assert_eq!(
        (mine.registers.bytes, mine.registers.address_bits),
        (4096, Layout::Bits32)
    );
    assert_eq!(
        (mine.deadline_ms, mine.reset, mine.clock_mhz),
        (10_000, None, None)
    );
}

#[test]
fn what_is_no_board_says_where_and_why() {
    let error = |text: &str| {
        BoardFile::from_toml("b.toml", text)
            .unwrap_err()
            .to_string()
    };
    for (find, put, told) in [
        (
            "bytes = 8192",
            "byts = 8192",
            "b.toml: TOML parse error at line 6",
        ),
        ("bytes = 8192", "", "neither `attributes` nor both"),
        (
            "path = \"r\"",
            "path = \"r\"\noffset = 2",
            "registers.offset 0x2 is no multiple of 4",
        ),
        (
            "path = \"r\"",
            "path = \"r\"\nbytes = 16",
            "registers.bytes is 16, but it must be 40 to",
        ),
        (
            "path = \"r\"",
            "path = \"r\"\naddress_bits = 48",
            "address_bits is 48, but it must be 32 or 64",
        ),
        (
            "[registers]",
            "deadline_ms = 0\n[registers]",
            "deadline_ms is 0",
        ),
        (
            "[registers]",
            "clock_mhz = nan\n[registers]",
            "clock_mhz is NaN",
        ),
        (
            "[memory]",
            "[reset]\noffset = 4096\nassert = 1\n[memory]",
            "reset.offset 0x1000 is no register",
        ),
    ] {
        let found = error(&MINE.replacen(find, put, 1));
        assert!(
            found.starts_with("b.toml: ") && found.contains(told),
            "{found}"
        );
    }
    let found = BoardFile::named("pinq").unwrap_err().to_string();
    assert_eq!(
        found,
        "there is no board 'pinq' (there are pynq, de10, or a file in TOML)"
    );
    let found = BoardFile::named("gone.toml").unwrap_err().to_string();
    assert!(found.starts_with("gone.toml: can't be read"), "{found}");
}
