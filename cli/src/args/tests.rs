//! Every command that a document shows is one.

use clap::CommandFactory;

use super::*;

/// The lines of fenced blocks that call `vta`, continued lines joined, without comments.
fn commands(text: &str) -> Vec<String> {
    let (mut found, mut inside, mut open) = (Vec::<String>::new(), false, false);
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            inside = !inside;
            continue;
        }
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let words = line.split(" #").next().unwrap_or_default().trim_end();
        let words = words.split_once("vta ").filter(|(before, _)| {
            // Variables may stand before it, and cargo.
            before.is_empty() || before.split_whitespace().all(|w| w.contains('='))
        });
        match (inside, words, open, found.last_mut()) {
            (true, _, true, Some(last)) => last.push_str(line),
            (true, Some((_, rest)), ..) => found.push(rest.to_owned()),
            _ => continue,
        }
        open = line.ends_with('\\');
    }
    found
        .iter()
        .map(|c| c.replace("\\", " ").replace("...", "x"))
        .collect()
}

#[test]
fn every_command_of_the_documents_is_one() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    let documents = std::fs::read_dir(root.join("docs")).unwrap();
    let documents = documents.map(|entry| entry.unwrap().path());
    for path in documents.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
        if path.extension().is_none_or(|e| e != "md") {
            continue;
        }
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            let words = command.split_whitespace();
            let parsed = Cli::try_parse_from(["vta"].into_iter().chain(words));
            let error = parsed.err().map(|e| e.to_string());
            assert!(error.is_none(), "{}: {command}: {error:?}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} commands");
}

#[test]
fn every_option_and_command_that_messages_name_is_one() {
    use vta_app::options::names::{COMMANDS, Front, OPTIONS, TOOLS};
    let command = Cli::command();
    let flags: Vec<_> = command
        .get_subcommands()
        .flat_map(|c| c.get_arguments())
        .collect();
    for option in OPTIONS {
        let told = option.to(Front::CommandLine);
        let is = |arg: &&clap::Arg| {
            arg.get_long()
                .is_some_and(|long| format!("--{long}") == told)
        };
        assert!(flags.iter().any(is), "{told}");
    }
    for name in COMMANDS.iter().chain(TOOLS) {
        let told = name.to(Front::CommandLine);
        let is = |c: &clap::Command| format!("vta {}", c.get_name()) == told;
        assert!(command.get_subcommands().any(is), "{told}");
    }
}

/// Paths that are read, and the folder of man pages, which is no file.
const READ: [&str; 17] = [
    "bitstream",
    "cache",
    "calibration",
    "case",
    "cases",
    "config",
    "costs",
    "file",
    "folder",
    "held_out",
    "host_speed",
    "input",
    "layers",
    "model",
    "placement",
    "tables",
    "tiles",
];

#[test]
fn every_path_among_the_arguments_is_known_as_read_or_written() {
    use std::any::TypeId;
    let command = Cli::command();
    let all = command.get_subcommands().flat_map(|c| c.get_arguments());
    let path = TypeId::of::<PathBuf>();
    let mut written = Vec::new();
    for arg in all.filter(|arg| arg.get_value_parser().type_id() == path) {
        let id = arg.get_id().as_str();
        match OUTPUTS.contains(&id) {
            true => written.push(id),
            false => assert!(READ.contains(&id), "{id}"),
        }
    }
    assert!(OUTPUTS.iter().all(|id| written.contains(id)), "{written:?}");
}
