//! Boards: what a machine that exists has, and how long it takes.

use serde::de::Error as _;
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
    pub const PRESETS: [&'static str; 4] = ["pynq", "de10", "f1", "pac"];

    /// The board of a name: `pynq`, `de10` and `f1` with the RTL's default core, which has 2048
    /// micro-ops and no extension; `pac`, an accelerator card with this project's OpenCL core,
    /// which has what the default configuration has. The cycle model describes the RTL: of `f1`
    /// and `pac` the timing is that of `pynq`, and that of `pac` an estimate.
    ///
    /// # Errors
    /// [`BoardError::Preset`] for any other name.
    pub fn preset(name: &str) -> Result<Self, BoardError> {
        let (core, timing) = match name {
            "pynq" | "f1" => (Core::Rtl, TimingConfig::pynq()),
            "de10" => (Core::Rtl, TimingConfig::de10()),
            "pac" => (Core::Own, TimingConfig::pynq()),
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
    let Some(value) = table.remove(key) else {
        return Ok(None);
    };
    let value: Result<T, toml::de::Error> = value.try_into();
    let named = |e: toml::de::Error| toml::de::Error::custom(format!("{key}: {}", e.message()));
    let value = value.map_err(|e| BoardError::Toml(named(e).message().to_owned()));
    value.map(Some)
}

#[cfg(test)]
mod tests {
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
                "no board 'zcu' (there are pynq, de10, f1, pac)",
            ),
            ("preset = 3", "preset: invalid type"),
            ("core = \"hls\"", "core is 'hls', but it must be rtl or own"),
            ("tags = 0", "tags is 0"),
            ("latency = 3", "unknown field `latency`"),
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
}
