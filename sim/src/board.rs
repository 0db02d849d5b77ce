//! Boards: what a machine that exists has, and how long it takes.

use thiserror::Error;
use vta_isa::{Config, ConfigError, Excess};

use crate::cycle::{TimingConfig, TimingError};

/// Whose design a board's core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// The original RTL: what it does differently ([`crate::hazards::deviations`]) is refused.
    Rtl,
    /// This project's: what the instruction set says.
    Own,
}

impl Core {
    /// Both, by name: `rtl` and `own`.
    pub const ALL: [Self; 2] = [Self::Rtl, Self::Own];

    /// The name in a board's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtl => "rtl",
            Self::Own => "own",
        }
    }
}

/// A board: the scratchpads and extensions of its hardware, its timing with the clock, and whose
/// core it has.
///
/// A configuration without a board is a machine of one's own. In TOML a board is a timing file
/// ([`TimingConfig::from_toml`]) whose `preset` may be any of [`Board::PRESETS`], with two more
/// keys: `core`, and a table `config` with keys of a `vta_config.json`. A timing file is therefore
/// a board, with the hardware of its preset.
///
/// ```
/// use vta_isa::{Extension, MemType};
/// use vta_sim::{Board, Core};
///
/// let board = Board::from_toml(
///     "mine",
///     "preset = \"pynq\"
///      clock_mhz = 142.0
///      [config]
///      LOG_UOP_BUFF_SIZE = 14
///      EXTENSIONS = [\"SHL\"]",
/// )?;
/// assert_eq!((board.config.depth(MemType::Uop), board.core), (4096, Core::Rtl));
/// assert!(board.config.extensions().contains(Extension::Shl));
/// # Ok::<(), vta_sim::BoardError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// The preset's name, or the file's.
    pub name: String,
    /// What its hardware has: programs for a smaller configuration run on it, too.
    pub config: Config,
    /// Cycles, and the clock that turns them into time.
    pub timing: TimingConfig,
    /// Whose core.
    pub core: Core,
}

/// A board that can't be used, or a configuration that doesn't fit one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BoardError {
    /// The preset's name is unknown.
    #[error("there is no board '{name}' (there are {})", Board::PRESETS.join(", "))]
    Preset {
        /// The name.
        name: String,
    },
    /// Not TOML of the expected form.
    #[error("board file: {0}")]
    Toml(String),
    /// The name of a core is unknown.
    #[error("board file: core is '{0}', but it must be rtl or own")]
    Core(String),
    /// Its timing.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A configuration asks for more than the board has.
    #[error("the configuration doesn't fit the board {board}: {excess}")]
    Excess {
        /// The board.
        board: String,
        /// The first thing that it hasn't.
        excess: Excess,
    },
}

impl Board {
    /// Names that [`Board::preset`] knows.
    pub const PRESETS: [&'static str; 5] = ["pynq", "de10", "f1", "pac", "own"];

    /// The board of a name: `pynq`, `de10` and `f1` with the RTL's default core, which has 2048
    /// micro-ops and no extension; `pac`, an accelerator card with this project's OpenCL core,
    /// which has what the default configuration has; `own`, that core in gates of its own
    /// ([`TimingConfig::own`]). The cycle model describes the RTL: of `f1` and `pac` the timing is
    /// that of `pynq`, and those of `pac` and `own` are estimates.
    ///
    /// # Errors
    /// [`BoardError::Preset`] for any other name.
    pub fn preset(name: &str) -> Result<Self, BoardError> {
        let (core, timing) = match name {
            "pynq" | "f1" => (Core::Rtl, TimingConfig::pynq()),
            "de10" => (Core::Rtl, TimingConfig::de10()),
            "pac" => (Core::Own, TimingConfig::pynq()),
            "own" => (Core::Own, TimingConfig::own()),
            _ => {
                let name = name.to_owned();
                return Err(BoardError::Preset { name });
            }
        };
        let config = match core {
            Core::Rtl => Config::from_json(RTL_CONFIG)?,
            Core::Own => Config::default(),
        };
        Ok(Self {
            name: name.to_owned(),
            config,
            timing,
            core,
        })
    }

    /// Reads a board's file; `name` is what errors and reports call the board.
    ///
    /// # Errors
    /// [`BoardError`] for text that isn't TOML, an unknown key, preset or core, a value out of
    /// range.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, BoardError> {
        let toml = |e: toml::de::Error| {
            let at = e.span().map(|span| span.start);
            BoardError::Toml(vta_files::toml_message(text, e.message(), at))
        };
        let mut table: toml::Table = toml::from_str(text).map_err(toml)?;
        let preset: String = take(&mut table, "preset")?.unwrap_or_else(|| "pynq".to_owned());
        let base = Self::preset(&preset)?;
        let core = match take::<String>(&mut table, "core")? {
            None => base.core,
            Some(name) => {
                let mut all = Core::ALL.into_iter();
                let core = all.find(|core| core.name() == name);
                core.ok_or(BoardError::Core(name))?
            }
        };
        let config = match take::<toml::Table>(&mut table, "config")? {
            None => base.config,
            Some(keys) => {
                let json = serde_json::to_string(&keys);
                let json = json.map_err(|e| BoardError::Toml(e.to_string()))?;
                Config::from_json_over(&base.config, &json)?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            config,
            // Last: it refuses what no other has taken out of the table.
            timing: TimingConfig::from_table(table, base.timing)?,
            core,
        })
    }

    /// Whether the board has what a configuration asks for.
    ///
    /// # Errors
    /// [`BoardError::Excess`] naming the first thing that it hasn't.
    pub fn admit(&self, config: &Config) -> Result<(), BoardError> {
        match config.excess(&self.config) {
            None => Ok(()),
            Some(excess) => Err(BoardError::Excess {
                board: self.name.clone(),
                excess,
            }),
        }
    }

    /// The part of the board that a `vta_config.json` describes. Keys that are absent have the
    /// board's values.
    ///
    /// # Errors
    /// [`BoardError::Config`] for a bad file, [`BoardError::Excess`] when the board has less.
    pub fn config_from_json(&self, text: &str) -> Result<Config, BoardError> {
        let config = Config::from_json_over(&self.config, text)?;
        self.admit(&config)?;
        Ok(config)
    }
}

/// What the RTL's default core has beside the defaults: `LOG_UOP_BUFF_SIZE` of its headers.
const RTL_CONFIG: &str = r#"{"LOG_UOP_BUFF_SIZE": 13, "EXTENSIONS": []}"#;

/// A key of a table, which then isn't there any more.
fn take<T: serde::de::DeserializeOwned>(
    table: &mut toml::Table,
    key: &str,
) -> Result<Option<T>, BoardError> {
    let value = table.remove(key).map(toml::Value::try_into);
    let value: Result<Option<T>, toml::de::Error> = value.transpose();
    value.map_err(|e| BoardError::Toml(format!("{key}: {}", e.message())))
}

#[cfg(test)]
mod tests;
