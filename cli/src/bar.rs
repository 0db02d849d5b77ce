//! A bar that shows how far long work is, and its remarks.

use std::sync::OnceLock;

use indicatif::{ProgressBar, ProgressStyle};
use vta_app::Watch;
use vta_app::options::names::{Front, Said};
use vta_files::printable;

use crate::terminal::{COLUMNS, is_plain, say, wrapped};

/// A bar on standard error, if that is a terminal.
pub struct Bar {
    /// What is counted.
    unit: &'static str,
    /// Fewer are not worth a bar.
    least: usize,
    quiet: bool,
    bar: OnceLock<ProgressBar>,
}

impl Bar {
    /// A bar of so many `unit` or more; a `quiet` one never shows.
    pub fn new(unit: &'static str, least: usize, quiet: bool) -> Self {
        Self {
            unit,
            least,
            quiet,
            bar: OnceLock::new(),
        }
    }

    /// No bar: remarks alone are shown.
    pub fn remarks() -> Self {
        Self::new("", usize::MAX, true)
    }

    /// Takes the bar away, for what is printed next.
    pub fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn make(&self, all: usize) -> ProgressBar {
        if self.quiet || is_plain() || all < self.least {
            return ProgressBar::hidden();
        }
        let template = format!("{{bar:40}} {{pos}}/{{len}} {}, {{eta}} left", self.unit);
        let style = ProgressStyle::with_template(&template);
        ProgressBar::new(all as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}

impl Watch for Bar {
    fn progress(&self, done: usize, all: usize) {
        let bar = self.bar.get_or_init(|| self.make(all));
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    }

    fn note(&self, text: &Said) {
        let text = format!("note: {}", printable(&text.to(Front::CommandLine)));
        say(&wrapped(&text, COLUMNS));
    }
}
