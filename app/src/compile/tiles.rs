//! `--tiles`: the cache of `vta tune` where a program is compiled.

use std::path::Path;

use vta_compiler::lower::{self, LowerError, LowerOptions, Tiles};
use vta_compiler::qgraph::QGraph;
use vta_compiler::tune::{self, Cache};
use vta_driver::Program;
use vta_isa::Config;

use crate::error::{Context, Result, ensure};
use crate::files;
use crate::options::Target;
use crate::options::names::{TILES, TUNE};

/// The board whose tiles are taken when nothing names another: schedules don't depend on it.
const TUNED_FOR: &str = "pynq";

/// Tiles that were measured.
pub struct Measured {
    /// Those that come with the compiler.
    shipped: Cache,
    /// Those of `--tiles`, and which of its machines is meant.
    given: Option<(Cache, String)>,
}

impl Measured {
    /// The shipped tiles, and those of the target for the board that it names.
    ///
    /// # Errors
    /// A cache that can't be read or has nothing for this configuration.
    pub fn read(target: &Target, config: &Config) -> Result<Self> {
        let board = target.board.as_deref().or(target.timing.as_deref());
        let given = target.tiles.as_ref();
        Ok(Self {
            shipped: tune::shipped()?,
            given: given.map(|path| read(path, config, board)).transpose()?,
        })
    }

    /// The tiles of a network's convolutions: the given ones before those that come with the
    /// compiler. The search chooses the others.
    ///
    /// # Errors
    /// What can't be lowered.
    pub fn tiles(&self, graph: &QGraph, config: &Config) -> Result<Tiles, LowerError> {
        let options = LowerOptions::default();
        let mut tiles = tune::tiles(&self.shipped, graph, config, &options, TUNED_FOR)?;
        if let Some((cache, machine)) = &self.given {
            for (_, shape, _) in lower::conv_tiles(graph, config, &options, &tiles)? {
                if let Some(entry) = cache.get(machine, &shape) {
                    tiles.insert(shape, entry.tile);
                }
            }
        }
        Ok(tiles)
    }
}

/// Lowers a network with measured tiles.
///
/// # Errors
/// As for [`Measured::read`] and [`Measured::tiles`], and what can't be lowered.
pub fn lower(graph: &QGraph, config: &Config, target: &Target) -> Result<Program> {
    let tiles = Measured::read(target, config)?.tiles(graph, config)?;
    let options = LowerOptions::default();
    Ok(lower::compile_with(graph, config, &options, &tiles)?)
}

/// The cache, and which of its machines is meant: that of the board, else the only one of this
/// configuration.
fn read(path: &Path, config: &Config, board: Option<&str>) -> Result<(Cache, String)> {
    let name = || path.display().to_string();
    let text = files::read_text(path)?;
    let cache = Cache::from_json(&text).with_context(name)?;
    let json: serde_json::Value = serde_json::from_str(&text).with_context(name)?;
    let machines = json["machines"].as_object();
    let all: Vec<&str> = machines
        .into_iter()
        .flat_map(|m| m.keys().map(String::as_str))
        .collect();
    let of_config = tune::machine(config, "");
    let wanted = tune::machine(config, board.unwrap_or(TUNED_FOR));
    let fitting: Vec<&str> = all
        .iter()
        .copied()
        .filter(|machine| machine.starts_with(&of_config))
        .collect();
    let found = match fitting[..] {
        _ if all.contains(&wanted.as_str()) => Some(wanted.as_str()),
        [only] if board.is_none() => Some(only),
        _ => None,
    };
    let listed = if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join("; ")
    };
    ensure!(
        found.is_some(),
        "{} {}: no tiles for {} (there is {}); {} measures them";
        TILES, name(), wanted, listed, TUNE
    );
    let machine = found.unwrap_or_default().to_owned();
    Ok((cache, machine))
}
