//! `vta completions` and `vta man`.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::Cli;
use crate::terminal::{print_line, print_text};

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vta", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(true)
}

/// Writes a page for the program and each of its commands, in man's format.
pub fn man(folder: &Path) -> Result<bool> {
    let name = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(name)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(name)?;
    print_text(&format!(
        "{}: man pages of vta and its commands; read one with man {}/vta-run.1",
        name(),
        name()
    ))?;
    Ok(true)
}
