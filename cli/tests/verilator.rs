//! A design that isn't this project's model of one: SystemVerilog, built by a stock Verilator with the command of
//! docs/rtl.md, which decodes instructions by itself and fails as designs do.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{file, root, succeeds, vta};
use tempfile::TempDir;

/// The device, which the first test that needs it builds; `None` where there is no Verilator, which CI has.
fn design() -> Option<&'static str> {
    static DEVICE: OnceLock<Option<String>> = OnceLock::new();
    let made = DEVICE.get_or_init(|| {
        let found = Command::new("verilator").arg("--version").output();
        let Ok(version) = found else {
            let text = "there is no Verilator (Debian: apt-get install verilator)";
            assert!(std::env::var_os("CI").is_none(), "{text}");
            let _ = writeln!(std::io::stderr(), "SKIPPED {text}");
            return None;
        };
        eprint!("{}", String::from_utf8_lossy(&version.stdout));
        Some(format!("rtl:{}", build().display()))
    });
    made.as_deref()
}

/// Runs the block of docs/rtl.md behind `<!-- recipe -->`, with other files.
fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verilator");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let page = std::fs::read_to_string(root().join("docs/rtl.md")).unwrap();
    let (_, block) = page.split_once("<!-- recipe -->\n```\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let root = root().canonicalize().unwrap();
    let sources = root.join("hw-rtl/tests");
    let mut script = String::new();
    let mut replaced = 0;
    for line in block.lines() {
        let own = match line.split_once('=').map(|(name, _)| name) {
            Some("VTA") => format!("VTA='{}'", root.display()),
            Some("DESIGN") => format!("DESIGN='{0}/design.sv {0}/dpi.sv'", sources.display()),
            _ => {
                script.push_str(&format!("{line}\n"));
                continue;
            }
        };
        replaced += 1;
        script.push_str(&format!("{own}\n"));
    }
    assert_eq!(replaced, 2, "{block}");
    let built = Command::new("sh")
        .args(["-e", "-c", &script])
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        built.status.success(),
        "{}{}",
        text(&built.stdout),
        text(&built.stderr)
    );
    folder.join("libvta_hw.so")
}

/// Three tiles of accumulators, to which something is added before they are halved, rounded down.
fn program(added: i16) -> String {
    format!(
        ".acc 0 1..16 -20*16 100*16
.uop 0 dst=0 src=0 wgt=0
.out 0 3*2 4*2 5*2 6*2 7*2 8*2 9*2 10*2 -8*16 52*16
load.uop x_size=1 y_size=1 x_stride=1
load.acc x_size=3 y_size=1 x_stride=3
alu.add imm={added} uop_end=1 iter_out=1 iter_in=3 dst_factor_in=1 src_factor_in=1
alu.shr imm=1 uop_end=1 iter_out=1 iter_in=3 dst_factor_in=1 src_factor_in=1 push_next
store x_size=3 y_size=1 x_stride=3 pop_prev push_prev
finish pop_next
"
    )
}

#[test]
fn a_program_by_hand_runs_on_a_design_that_fetches_its_instructions() {
    let Some(device) = design() else { return };
    let folder = TempDir::new().unwrap();
    let path = file(&folder, "program.asm", program(5).as_bytes());
    for device in ["sim", device] {
        succeeds(&["exec", &path, "--device", device]);
    }
    // Its bytes are the model's; its bus is none of a board's.
    let (status, out, err) = vta(&["exec", &path, "--device", device, "--against", "cycle"]);
    assert_eq!(status, 1, "{out}{err}");
    assert!(out.contains("every byte is cycle's"), "{out}");
    assert!(
        out.contains("the design is another board's: its first read has 2 beats, pynq's 12"),
        "{out}"
    );
}

#[test]
fn what_ends_a_design_is_told_and_ends_no_process() {
    let Some(device) = design() else { return };
    let folder = TempDir::new().unwrap();
    for (added, told) in [
        (
            -32001,
            &[
                "ended itself after ",
                "the tiles of 24 are taken",
                "design.sv:",
            ][..],
        ),
        (-32002, &["ended itself after ", "out of order"]),
        (-32003, &["ended itself after ", "$stop at ", "design.sv:"]),
        (-32004, &["ended itself after ", "$finish at "]),
        (-32005, &["hasn't finished after ", "20000 at most"]),
        (
            -32006,
            &[
                "ended itself after ",
                "Assertion failed: as Chisel prints it",
            ],
        ),
        (-32007, &["called abort after "]),
    ] {
        let path = file(&folder, "program.asm", program(added).as_bytes());
        let args = ["exec", &path, "--device", device, "--limit-cycles", "20000"];
        let (status, out, err) = vta(&args);
        assert_eq!(status, 1, "{added}: {out}{err}");
        let error = err.lines().find(|line| line.starts_with("error: "));
        let error = error.unwrap_or_else(|| panic!("{added}: {err}"));
        for told in told {
            assert!(error.contains(told), "{added}: {err}");
        }
    }
}

#[test]
fn a_design_of_another_size_is_named() {
    let Some(device) = design() else { return };
    let folder = TempDir::new().unwrap();
    let config = file(&folder, "wide.json", br#"{"LOG_BLOCK": 5}"#);
    let load = "load.acc x_size=3 y_size=1 x_stride=3\nfinish\n";
    let store = "store x_size=3 y_size=1 x_stride=3 push_prev\nfinish pop_next\n";
    for (text, told) in [
        (load, "if acc elements had 64 bytes, not 128"),
        (store, "if out elements had 16 bytes, not 32"),
    ] {
        let path = file(&folder, "program.asm", text.as_bytes());
        let args = ["exec", &path, "--device", device, "--config", &config];
        let (status, out, err) = vta(&args);
        assert_eq!(status, 1, "{out}{err}");
        assert!(err.contains("where nothing is allocated"), "{err}");
        assert!(err.contains(told), "{err}");
        assert!(err.contains("another block size?"), "{err}");
    }
}

#[test]
fn a_library_that_lacks_a_function_is_refused_when_it_is_opened() {
    let folder = TempDir::new().unwrap();
    let source = file(
        &folder,
        "half.c",
        b"void nowhere(void);
void VTADPIInit(void *c, void *s, void *h, void *m) { (void)c, (void)s, (void)h, (void)m; }
int VTADPISim(void) { nowhere(); return 0; }
void *svGetArrElemPtr1(void *a, int i) { (void)i; return a; }
int svSize(void *a, int d) { (void)a; return d; }
int svLow(void *a, int d) { (void)a; return d; }
",
    );
    let library = folder.path().join("half.so");
    let cc = std::env::var_os("CC").unwrap_or_else(|| "gcc".into());
    let built = Command::new(cc)
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, Path::new(&source)])
        .status();
    assert!(built.unwrap().success());
    let device = format!("rtl:{}", library.display());
    let (status, _, err) = vta(&["run", "demo", "--limit", "1", "--device", &device]);
    assert!(status != 0, "{err}");
    assert!(err.contains("it can't be loaded: "), "{err}");
    assert!(err.contains("undefined symbol: nowhere"), "{err}");
}

#[test]
fn a_fifo_or_a_folder_as_library_is_refused_at_once() {
    let folder = TempDir::new().unwrap();
    let fifo = folder.path().join("fifo.so");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for path in [&fifo, folder.path()] {
        let device = format!("rtl:{}", path.display());
        let (status, _, err) = vta(&["run", "demo", "--limit", "1", "--device", &device]);
        assert!(status != 0, "{err}");
        assert!(err.contains("it is no regular file"), "{err}");
    }
}
