use vta_isa::{Extensions, MemType};

use super::*;

#[test]
fn boards_with_the_rtl_have_its_scratchpads_and_no_extension() {
    for name in ["pynq", "de10", "f1"] {
        let board = Board::preset(name).unwrap();
        let depths = [
            MemType::Uop,
            MemType::Inp,
            MemType::Wgt,
            MemType::Acc,
            MemType::Out,
        ];
        let depths = depths.map(|mem| board.config.depth(mem));
        assert_eq!(depths, [2048, 2048, 1024, 2048, 2048], "{name}");
        assert_eq!(board.config.extensions(), Extensions::NONE);
        assert_eq!(board.core, Core::Rtl);
    }
    let pac = Board::preset("pac").unwrap();
    assert_eq!((pac.config, pac.core), (Config::default(), Core::Own));
}

#[test]
fn a_timing_file_is_a_board_with_the_hardware_of_its_preset() {
    for name in TimingConfig::PRESETS {
        let timing = TimingConfig::preset(name).unwrap();
        let text = format!("preset = \"{name}\"\nclock_mhz = 50.0\n");
        let board = Board::from_toml("b", &text).unwrap();
        let expected = Board::preset(name).unwrap();
        assert_eq!((board.config, board.core), (expected.config, expected.core));
        let clock_mhz = 50.0;
        assert_eq!(
            board.timing,
            TimingConfig {
                clock_mhz,
                ..timing.clone()
            }
        );
        // The whole of a timing, too.
        assert_eq!(
            Board::from_toml("b", &timing.to_toml()).unwrap().timing,
            timing
        );
    }
}

#[test]
fn files_change_hardware_and_core() {
    let text = "preset = \"pac\"\ncore = \"rtl\"\n[config]\nLOG_INP_BUFF_SIZE = 14\n\
                    EXTENSIONS = [\"MUL\"]";
    let board = Board::from_toml("mine", text).unwrap();
    assert_eq!(board.config.depth(MemType::Inp), 1024);
    assert_eq!(board.config.depth(MemType::Uop), 8192);
    assert_eq!(board.config.extensions().to_string(), "MUL");
    assert_eq!((board.core, &board.name[..]), (Core::Rtl, "mine"));
}

#[test]
fn bad_files_name_key_and_value() {
    for (text, part) in [
        (
            "preset = \"zcu\"",
            "no board 'zcu' (there are pynq, de10, f1, pac, own)",
        ),
        ("preset = 3", "preset: invalid type"),
        ("core = \"hls\"", "core is 'hls', but it must be rtl or own"),
        ("tags = 0", "tags is 0"),
        ("latency = 3", "unknown field `latency`"),
        ("store_ahead = 3", "store_ahead: invalid type: integer `3`"),
        ("config = 3", "config: invalid type"),
        ("[config]\nLOG_BLOK = 3", "LOG_BLOK"),
        ("[config]\nEXTENSIONS = [\"DIV\"]", "'DIV'"),
        ("[config]\nLOG_UOP_BUFF_SIZE = 16", "LOG_UOP_BUFF_SIZE = 16"),
        ("preset = ", "board file"),
    ] {
        let error = Board::from_toml("b", text).unwrap_err().to_string();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_board_admits_what_it_has() {
    let pynq = Board::preset("pynq").unwrap();
    let smaller = pynq
        .config_from_json(r#"{"LOG_INP_BUFF_SIZE": 14}"#)
        .unwrap();
    assert_eq!(
        (smaller.depth(MemType::Inp), smaller.depth(MemType::Uop)),
        (1024, 2048)
    );
    for (text, part) in [
        (
            r#"{"LOG_UOP_BUFF_SIZE": 15}"#,
            "board pynq: uop scratchpad of 8192 elements, not 2048",
        ),
        (r#"{"LOG_BLOCK": 5}"#, "matrix unit 1x32x32, not 1x16x16"),
        (r#"{"EXTENSIONS": ["MUL"]}"#, "MUL, which it doesn't have"),
        (r#"{"LOG_BLOK": 5}"#, "LOG_BLOK"),
    ] {
        let error = pynq.config_from_json(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
