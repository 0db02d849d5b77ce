//! What the documentation shows is what happens.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/one_gemm.rs"]
#[expect(dead_code, reason = "its main function, which a test has no use for")]
mod one_gemm;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use vta_app::report::HostSpeed;
use vta_compiler::placement::Rules;
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::views::Costs;
use vta_sim::{Board, SimDevice};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The fenced blocks of a language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let (mut blocks, mut inside): (Vec<String>, bool) = (Vec::new(), false);
    for line in text.lines() {
        if inside && line.starts_with("```") {
            inside = false;
        } else if inside {
            let block = blocks.last_mut().unwrap();
            block.push_str(line);
            block.push('\n');
        } else if line.strip_prefix("```") == Some(language) && !language.is_empty() {
            inside = true;
            blocks.push(String::new());
        }
    }
    blocks
}

/// Runs the `$ ` lines of a block where the repository's examples and models are, and compares
/// what is printed with the lines below; a line `...` stands for any lines.
fn replay(block: &str, folder: &Path) {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push((command, Vec::new())),
            None => steps.last_mut().expect("a command first").1.push(line),
        }
    }
    assert!(!steps.is_empty(), "a block without a command");
    for (command, expected) in steps {
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "vta", "{command}");
        let mut vta = Command::cargo_bin("vta").unwrap();
        vta.env_remove("COLUMNS");
        let done = vta.current_dir(folder).args(&words[1..]).output().unwrap();
        let mut printed = String::from_utf8(done.stdout).unwrap();
        printed.push_str(&String::from_utf8(done.stderr).unwrap());
        let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
        assert!(matches(&lines, &expected), "$ {command}\n{printed}");
    }
}

/// The text with the lines of a diff replaced; those that go must be there once.
fn changed(text: &str, diff: &str) -> String {
    let mut text = text.to_owned();
    let mut gone: Option<&str> = None;
    for line in diff.lines() {
        if let Some(line) = line.strip_prefix('-') {
            assert_eq!(gone.replace(line), None, "each line is replaced by one");
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}");
        } else if let Some(line) = line.strip_prefix('+') {
            let gone = gone.take().expect("a line that goes before");
            text = text.replace(&format!("{gone}\n"), &format!("{line}\n"));
        }
    }
    text
}

fn matches(found: &[&str], expected: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((&"...", rest)) => (0..=found.len()).any(|n| matches(&found[n..], rest)),
        Some((first, rest)) => found.first() == Some(first) && matches(&found[1..], rest),
    }
}

#[test]
fn the_first_program_runs_as_shown() {
    let folder = tempfile::tempdir().unwrap();
    let shown = blocks("docs/first-program.md", "asm").concat();
    let example = std::fs::read_to_string(root().join("cli/examples/gemm.asm")).unwrap();
    assert_eq!(shown, example, "the document shows the example");
    let race = changed(&example, &blocks("docs/first-program.md", "diff").concat());
    std::fs::write(folder.path().join("gemm.asm"), example).unwrap();
    std::fs::write(folder.path().join("race.asm"), race).unwrap();
    let consoles = blocks("docs/first-program.md", "console");
    assert!(consoles.len() >= 4);
    // What the text announces is what follows.
    let text = std::fs::read_to_string(root().join("docs/first-program.md")).unwrap();
    let announced = text.split("`--hazards` says so:").nth(1).unwrap();
    let block = announced.split("```").nth(1).unwrap();
    assert!(block.contains("2 hazard(s)"), "{block}");
    for block in consoles {
        replay(&block, folder.path());
    }
}

#[test]
fn the_files_are_those_that_the_program_takes_as_its_defaults() {
    let json = blocks("docs/files.md", "json");
    let toml = blocks("docs/files.md", "toml");
    assert_eq!((json.len(), toml.len()), (1, 6));
    assert_eq!(Config::from_json(&json[0]).unwrap(), Config::default());
    let keys = |text: &str| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&json[0]), keys(&Config::default().to_json()));
    let board = Board::from_toml("pynq", &toml[0]).unwrap();
    assert_eq!(board, Board::preset("pynq").unwrap());
    let pynq = TimingConfig::pynq();
    assert_eq!(TimingConfig::from_toml(&toml[1]).unwrap(), pynq);
    for line in pynq.to_toml().lines().take_while(|l| !l.starts_with('[')) {
        let key = line.split(" =").next().unwrap();
        assert!(toml[1].contains(&format!("{key} =")), "{key} isn't shown");
    }
    assert!(TimingConfig::from_toml(&toml[2]).is_ok(), "the banked DRAM");
    assert_eq!(toml[3].trim(), Costs::default().to_toml().trim());
    let speed = HostSpeed::default();
    assert_eq!(HostSpeed::from_toml(&toml[4]).unwrap(), speed);
    assert!(Rules::from_toml(&toml[5]).is_ok());
}

/// Anchors, and links of the built book, are for `scripts/book`.
#[test]
fn every_document_is_in_the_book_and_names_files_that_exist() {
    let links = |document: &Path| -> Vec<PathBuf> {
        let text = std::fs::read_to_string(document).unwrap();
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|l| !l.is_empty() && !l.starts_with("http"));
        // The API documentation is beside the book alone.
        let links = links.filter(|l| !l.starts_with("../api/"));
        links.map(|l| document.parent().unwrap().join(l)).collect()
    };
    let contents = root().join("docs/SUMMARY.md");
    let book: Vec<PathBuf> = links(&contents)
        .iter()
        .map(|l| l.canonicalize().unwrap())
        .collect();
    for document in &book {
        for link in links(document) {
            assert!(
                link.exists(),
                "{} links to {}",
                document.display(),
                link.display()
            );
        }
    }
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    for page in pages.map(|entry| entry.unwrap().path().canonicalize().unwrap()) {
        let page_of_book =
            page.extension().is_some_and(|e| e == "md") && !page.ends_with("SUMMARY.md");
        assert!(
            !page_of_book || book.contains(&page),
            "SUMMARY.md lacks {}",
            page.display()
        );
    }
}

/// The example does what its first lines say.
#[test]
fn one_gemm_is_the_same_on_every_simulator() {
    let config = Config::default();
    let devices = [
        SimDevice::functional(config.clone()),
        SimDevice::oracle(config),
    ];
    for device in devices {
        let free = device.free_bytes();
        let found = one_gemm::gemm(&device).unwrap();
        // Quarters of 136 and -136, as in the first program.
        assert_eq!(found[..3], [34, -34, 0]);
        assert_eq!(found.len(), 16);
        assert_eq!(device.free_bytes(), free, "all memory is given back");
    }
}
