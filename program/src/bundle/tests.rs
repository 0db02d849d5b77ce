use proptest::prelude::*;
use vta_isa::MemType;

use super::container::{ENTRY_BYTES, HEADER_BYTES, SECTIONS, all_sections};
use super::*;
use crate::Packing;
use crate::testing::{program, tensor};
use crate::{Attribute, AttributeValue, TensorInfo};

/// A bundle of four sections.
fn assemble(sections: [&[u8]; 4]) -> Vec<u8> {
    image(sections, None)
}

/// A bundle of four sections, and maybe steps.
pub(super) fn image(sections: [&[u8]; 4], steps: Option<&[u8]>) -> Vec<u8> {
    let pieces = |bytes| vec![Cow::Borrowed(bytes)];
    BundleImage::assemble(sections.map(pieces), steps.map(pieces)).to_vec()
}

fn sections(bytes: &[u8]) -> Result<[Range<usize>; 4], BundleError> {
    all_sections(bytes).map(|(sections, _)| sections)
}

fn sample() -> Program {
    let mut program = program(&[3, 5]);
    let mut patches = tensor("p", 0, [2, 1, 2]);
    patches.packing = Packing::Im2col {
        kernel: [1, 2],
        stride: [3, 4],
        dilation: [5, 6],
        pads: [0, 2, 2, 3],
    };
    patches.scale = f32::from_bits(0x3eaa_aaab);
    patches.zero = -128;
    program.tensors.push(patches);
    program.layers[1].cuts = vec![1, 2];
    program.layers[1].macs = u64::MAX;
    let tensor = |name: &str| TensorInfo {
        name: name.to_owned(),
        shape: vec![2, 1, 2],
    };
    program.layers[1].nodes = vec![NodeInfo {
        name: "pool".to_owned(),
        kind: "maxpool".into(),
        attributes: vec![
            Attribute::new(
                "none",
                AttributeValue::Texts(vec![]),
                "an empty list of texts",
            ),
            Attribute::new(
                "whole",
                AttributeValue::Float(1.0),
                "a real number without a fraction",
            ),
            Attribute::new("kernel", AttributeValue::ints(&[3, 3]), "rows and columns"),
        ],
        inputs: vec![tensor("x")],
        output: tensor("y"),
    }];
    program.metadata.insert("labels".into(), "[\"ä\"]".into());
    let sync = vta_isa::Load {
        mem: MemType::Acc,
        ..vta_isa::Load::default()
    };
    program.layers[0].commands.push(Command {
        insn: sync.into(),
        symbol: Symbol::None,
    });
    program
}

/// The bytes of a bundle whose meta section was edited as JSON, with right checksums.
fn edited(edit: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let bytes = sample().to_bytes().unwrap();
    let ranges = sections(&bytes).unwrap();
    let mut meta = serde_json::from_slice(&bytes[ranges[0].clone()]).unwrap();
    edit(&mut meta);
    let meta = serde_json::to_vec(&meta).unwrap();
    let [_, commands, uops, data] = ranges.map(|r| bytes[r].to_vec());
    assemble([&meta, &commands, &uops, &data])
}

/// Rewrites the header and table of a bundle and repairs the table's checksum.
fn patched(patch: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = sample().to_bytes().unwrap();
    patch(&mut bytes);
    let table = HEADER_BYTES..HEADER_BYTES + SECTIONS.len() * ENTRY_BYTES;
    let crc = crc32fast::hash(&bytes[table]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn error(bytes: &[u8]) -> String {
    Program::from_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn a_program_comes_back_as_it_was() {
    let program = sample();
    let bytes = program.to_bytes().unwrap();
    let back = Program::from_bytes(&bytes).unwrap();
    assert_eq!(back, program);
    assert_eq!(back.to_bytes().unwrap(), bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    program.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let loaded = Program::load(&path).unwrap();
    // What is loaded stays whole when the file is replaced.
    Program::default().save(&path).unwrap();
    assert_eq!(loaded, program);
    assert_eq!(Program::load(&path).unwrap(), Program::default());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_inconsistent_program_is_not_written() {
    let mut bad = sample();
    bad.outputs = vec![9];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    let error = bad.save(&path).unwrap_err().to_string();
    assert_eq!(error, "bundle: program: program: there is no tensor 9");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failed_save_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    // A folder can't be renamed over.
    let path = folder.path().join("taken");
    std::fs::create_dir_all(path.join("inside")).unwrap();
    assert!(matches!(sample().save(&path), Err(BundleError::Write(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(
        sample()
            .save(&folder.path().join("absent/net.vta"))
            .is_err()
    );
    assert!(sample().save(Path::new("..")).is_err());
}

#[test]
fn concurrent_saves_never_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    std::thread::scope(|scope| {
        for size in 1..5u16 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    program(&[size * 500]).save(path).unwrap();
                    Program::load(path).unwrap();
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn a_bundle_replaces_files_only() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("a.vta"), folder.path().join("b.vta"));
    std::fs::write(&file, "before").unwrap();
    symlink(&file, &link).unwrap();
    sample().save(&link).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Program::load(&file).unwrap(), sample());
    // A link to a device: were it replaced, it would be no link any more.
    for (device, works) in [("/dev/null", true), ("/dev/full", false)] {
        std::fs::remove_file(&link).unwrap();
        symlink(device, &link).unwrap();
        assert_eq!(sample().save(&link).is_ok(), works, "{device}");
        let kind = std::fs::metadata(&link).unwrap().file_type();
        assert!(kind.is_char_device(), "{device}");
    }
    assert!(sample().save(folder.path()).is_err(), "a folder");
}

#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let error = Program::load(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("not a file"), "{error}");
    let absent = Program::load(&folder.path().join("absent"));
    assert!(matches!(absent, Err(BundleError::Io { .. })));
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(matches!(Program::load(&empty), Err(BundleError::Magic)));
    #[cfg(unix)]
    {
        // Opening a pipe that nobody writes would wait for ever.
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|s| s.success()) {
            assert!(matches!(Program::load(&pipe), Err(BundleError::Io { .. })));
        }
    }
}

#[test]
fn wrong_headers_and_tables_are_named() {
    let table = |entry: usize, at: usize| HEADER_BYTES + entry * ENTRY_BYTES + at;
    let put = |b: &mut [u8], at: usize, v: u64| b[at..at + 8].copy_from_slice(&v.to_le_bytes());
    let sound = sample().to_bytes().unwrap();
    let (len, data_start) = (sound.len(), sections(&sound).unwrap()[3].start);
    for (bytes, expected) in [
        (vec![], "bundle: this is no .vta program".to_owned()),
        (
            b"VTAPROG\n".to_vec(),
            "bundle: header: bytes 0..24 of a file of 8".into(),
        ),
        (
            patched(|b| b[0] = b'v'),
            "bundle: this is no .vta program".into(),
        ),
        (patched(|b| b[8] = 5), "bundle: format version 5".into()),
        (
            patched(|b| b[8] = 2),
            "bundle: format version 2 of an earlier build".into(),
        ),
        (
            patched(|b| b[8] = 3),
            "bundle: format version 3 of an earlier build".into(),
        ),
        (
            patched(|b| b[8] = 4),
            "bundle: header: 4 sections, not 5".into(),
        ),
        (patched(|b| b[12] = 5), "bundle: header: 5 sections".into()),
        (
            patched(|b| b[20] = 1),
            "bundle: header: the reserved word is 0x1".into(),
        ),
        (
            patched(|b| b[table(0, 0)] = 2),
            "bundle: table: section 0 is of kind 2".into(),
        ),
        (
            patched(|b| b[table(1, 4)] ^= 1),
            "bundle: commands: checksum".into(),
        ),
        (
            patched(|b| put(b, table(3, 16), u64::MAX)),
            format!(
                "bundle: data: bytes {data_start}..{} of a file of {len} bytes",
                u64::MAX
            ),
        ),
        (
            patched(|b| put(b, table(2, 8), u64::MAX)),
            "bundle: micro-ops: bytes 18446744073709551615..18446744073709551615".into(),
        ),
    ] {
        let found = error(&bytes);
        assert!(found.starts_with(&expected), "{found}");
    }
    let mut bytes = sample().to_bytes().unwrap();
    bytes[HEADER_BYTES + 8] ^= 1;
    assert!(error(&bytes).starts_with("bundle: table: checksum"));
}

#[test]
fn hostile_meta_sections_are_refused() {
    type Edit = fn(&mut serde_json::Value);
    let cases: [(&str, Edit, &str); 11] = [
        ("not a map", |m| *m = 1.into(), "meta: invalid type"),
        (
            "deep",
            |m| {
                m["metadata"]["x"] =
                    (0..120).fold(1.into(), |v: serde_json::Value, _| vec![v].into())
            },
            "meta: invalid type",
        ),
        (
            "configuration",
            |m| m["config"]["LOG_BLOCK"] = 60.into(),
            "meta: configuration key LOG_BLOCK is 60",
        ),
        (
            "constant outside",
            |m| m["buffers"][2]["kind"]["constant"] = u64::MAX.into(),
            "data: constant w: 100 bytes at 18446744073709551615 of 100",
        ),
        (
            "constant as large as memory",
            |m| m["buffers"][2]["size_bytes"] = u64::MAX.into(),
            "data: constant w: 18446744073709551615 bytes at 0 of 100",
        ),
        (
            "kernels",
            |m| m["kernel_uops"] = vec![u32::MAX; 5].into(),
            "micro-ops: 32 bytes for 21474836475 micro-ops",
        ),
        (
            "commands whose sum wraps to the right one",
            |m| m["layer_commands"] = vec![1u64 << 63, (1 << 63) + 7].into(),
            "commands: 168 bytes for 18446744073709551623 commands",
        ),
        (
            "another number of layers",
            |m| m["layer_commands"] = vec![7u64].into(),
            "commands: 168 bytes for 7 commands of 1 layers, there are 2",
        ),
        (
            "scratch beyond the address space",
            |m| m["buffers"][0]["size_bytes"] = (1u64 << 40).into(),
            "program: program: buffers up to x have more than 4294967296 bytes together",
        ),
        (
            "shape",
            |m| m["tensors"][1]["chw"] = vec![u32::MAX; 3].into(),
            "program: program: tensor y has more than 1073741824 values in an image",
        ),
        (
            "scale",
            |m| m["tensors"][1]["scale_bits"] = f32::INFINITY.to_bits().into(),
            "program: program: tensor y has an impossible shape or window",
        ),
    ];
    assert_eq!(edited(|_| {}), sample().to_bytes().unwrap());
    for (name, edit, expected) in cases {
        let found = error(&edited(edit));
        assert!(
            found.starts_with(&format!("bundle: {expected}")),
            "{name}: {found}"
        );
    }
}

/// Bundles before there was a list of them say the numbers of commands in the layers alone.
#[test]
fn numbers_of_commands_may_stand_in_the_layers() {
    let former = edited(|meta| drop(meta.as_object_mut().unwrap().remove("layer_commands")));
    assert_eq!(Program::from_bytes(&former).unwrap(), sample());
}

#[test]
fn a_command_needs_a_known_symbol_and_instruction() {
    let bytes = sample().to_bytes().unwrap();
    let [meta, commands, uops, data] = sections(&bytes).unwrap().map(|r| bytes[r].to_vec());
    for (at, value, expected) in [
        (INSN_BYTES, 3, "bundle: commands: command 1: symbol kind 3"),
        (
            0,
            7,
            "bundle: program: program: layer l0, command 1: it needs DEPTHWISE",
        ),
        (
            INSN_BYTES + 5,
            1,
            "bundle: program: program: there is no micro-op kernel 256",
        ),
    ] {
        let mut commands = commands.clone();
        commands[COMMAND_BYTES + at] = value;
        let found = error(&assemble([&meta, &commands, &uops, &data]));
        assert!(found.starts_with(expected), "{found}");
    }
}

proptest! {
    #[test]
    fn sections_with_right_checksums_and_any_bytes_are_read_or_refused(
        section in 0usize..4,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let bytes = sample().to_bytes().unwrap();
        let mut parts = sections(&bytes).unwrap().map(|r| bytes[r].to_vec());
        let part = &mut parts[section];
        for (at, value) in flips {
            let at = at.index(part.len());
            part[at] = value;
        }
        if truncate {
            part.truncate(cut.index(part.len()));
        }
        let [meta, commands, uops, data] = &parts;
        if let Ok(program) = Program::from_bytes(&assemble([meta, commands, uops, data])) {
            prop_assert_eq!(program.validate(), Ok(()));
            prop_assert_eq!(Program::from_bytes(&program.to_bytes().unwrap()).unwrap(), program);
        }
    }

    #[test]
    fn truncated_files_are_refused(cut in any::<prop::sample::Index>()) {
        let bytes = sample().to_bytes().unwrap();
        prop_assert!(Program::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

#[test]
fn a_program_is_what_was_checked_whatever_becomes_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    for spoil in [
        |path: &Path| {
            let size = std::fs::metadata(path).unwrap().len() as usize;
            let file = std::fs::OpenOptions::new().write(true).open(path);
            // In place, as no `Output` does it.
            io::Write::write_all(&mut file.unwrap(), &vec![77; size]).unwrap();
        },
        |path: &Path| {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.unwrap().set_len(0).unwrap();
        },
    ] {
        sample().save(&path).unwrap();
        let program = Program::load(&path).unwrap();
        spoil(&path);
        assert_eq!(program, sample());
        assert!(Program::load(&path).is_err());
    }
}

#[test]
fn names_that_could_move_a_cursor_are_escaped() {
    let mut foreign = sample();
    foreign.layers[0].name = "conv\u{1b}[2J".into();
    foreign.layers[0].kind = "\r".into();
    foreign.buffers[0].name = "\u{9b}31m".into();
    foreign.tensors[0].name = "t\n".into();
    let read = Program::from_bytes(&foreign.to_bytes().unwrap()).unwrap();
    assert_eq!(read.layers[0].name, "conv\\u{1b}[2J");
    assert_eq!(read.layers[0].kind, "\\r");
    assert_eq!(read.buffers[0].name, "\\u{9b}31m");
    assert_eq!(read.tensors[0].name, "t\\n");
}
