//! The grid: axes by key, points as configurations and boards.

use serde_json::{Map, Value};
use vta_isa::{Config, Extension, Extensions};
use vta_sim::Board;
use vta_sim::cycle::TimingConfig;

use crate::device::machine;
use crate::error::{Context, Error, Result, ensure};
use crate::options::names::{VARY, said};

/// Points that a grid may have.
pub(super) const MAX_POINTS: usize = 100_000;

/// The key of the configuration's extensions, of which a value of an axis is a set.
pub const EXTENSIONS: &str = "EXTENSIONS";

/// The key of the preset of a board's time, whose values other axes replace.
const PRESET: &str = "preset";

/// The key of an axis of boards, by name or file: of a machine's configuration and time, what other axes don't name.
const BOARDS: &str = "board";

/// The key of the axis of a table's layers.
pub const LAYER: &str = "layer";

/// That of an axis of networks.
pub const MODEL: &str = "model";

/// One axis.
struct Axis {
    key: String,
    values: Vec<String>,
    /// Those that the values name, of an axis of boards.
    boards: Vec<Board>,
}

/// All combinations of the axes' values, the last axis fastest.
pub struct Grid {
    axes: Vec<Axis>,
    config: Map<String, Value>,
    /// Those that the base has.
    extensions: Extensions,
    timing: toml::Table,
    base: String,
    /// The board whose limits hold.
    limits: Option<Board>,
    /// Whether the first axis is of layers, which are no part of the machine.
    layers: bool,
}

/// One combination.
pub struct Point {
    /// A value for each axis.
    pub values: Vec<String>,
    /// Which of a table's layers; 0 where there is no axis of layers.
    pub layer: usize,
    /// The machine, or why there is none with these values.
    pub machine: Result<(Config, TimingConfig), String>,
}

impl Grid {
    /// Reads `KEY=V1,V2,..` for each axis. Keys in capitals belong to the configuration, the
    /// others to the board. Values of `EXTENSIONS` are names with `+` between, which the machine has
    /// beside those of the configuration, or `none`. Values of `preset` are names of boards' times. Values of
    /// `board` are boards or their files, whose limits hold for their points.
    ///
    /// # Errors
    /// An axis of another form, a key that is unknown or given twice, a value that isn't a number, a set, a preset or a
    /// board; presets or boards beside a time that is none, and both.
    pub fn new(vary: &[String], config: &Config, timing: &TimingConfig) -> Result<Self> {
        let axes: Vec<Axis> = vary.iter().map(|text| axis(text)).collect::<Result<_>>()?;
        for (i, axis) in axes.iter().enumerate() {
            let twice = axes[..i].iter().any(|other| other.key == axis.key);
            ensure!(!twice, "{} {} is given twice"; VARY, axis.key);
        }
        let known = |name: &str| TimingConfig::preset(name).is_ok_and(|preset| preset == *timing);
        let is_known = TimingConfig::PRESETS.into_iter().any(known);
        let mut replacing = axes
            .iter()
            .filter(|axis| [PRESET, BOARDS].contains(&&*axis.key));
        if let Some(axis) = replacing.next() {
            let what = &axis.key;
            ensure!(
                is_known,
                "{} {}: the machine has a time of its own, which a {} would replace"; VARY, what, what
            );
            ensure!(replacing.next().is_none(), "{} {} and {} both name a time"; VARY, PRESET, BOARDS);
        }
        let boards = axes.iter().map(|axis| &axis.boards);
        let boards: String = boards
            .filter(|of| !of.is_empty())
            .map(|of| format!("{of:?}"))
            .collect();
        let config_json = config.to_json();
        let grid = Self {
            config: serde_json::from_str(&config_json).context("configuration")?,
            extensions: config.extensions(),
            timing: timing.to_toml().parse().map_err(Error::input)?,
            base: format!("{config_json} {}{boards}", timing.to_toml()),
            limits: None,
            layers: false,
            axes,
        };
        grid.check_keys()?;
        Ok(grid)
    }

    /// The grid for each of a table's layers, or of several networks, of which no two have one name: these are its
    /// first axis.
    #[must_use]
    pub fn of_layers<'n>(mut self, key: &str, names: impl Iterator<Item = &'n str>) -> Self {
        let axis = Axis {
            key: key.to_owned(),
            values: names.map(str::to_owned).collect(),
            boards: Vec::new(),
        };
        self.axes.insert(0, axis);
        self.layers = true;
        self
    }

    /// The grid, if it has at most so many points.
    ///
    /// # Errors
    /// One of more.
    pub fn of_at_most(self, most: usize) -> Result<Self> {
        let points = self.axes.iter().try_fold(1usize, |n, axis| {
            n.checked_mul(axis.values.len()).filter(|&n| n <= most)
        });
        ensure!(points.is_some(), "the grid has more than {most} points");
        Ok(self)
    }

    /// Whether the first axis is of layers.
    pub fn has_layers(&self) -> bool {
        self.layers
    }

    /// Whether there is an axis of boards.
    pub fn has_boards(&self) -> bool {
        self.axes.iter().any(|axis| axis.key == BOARDS)
    }

    /// Layers that each machine runs, one by one; 1 without an axis of them.
    pub fn layers(&self) -> usize {
        match self.axes.first() {
            Some(axis) if self.layers => axis.values.len(),
            _ => 1,
        }
    }

    /// The axes of the machine.
    fn machines(&self) -> &[Axis] {
        &self.axes[usize::from(self.layers)..]
    }

    /// The axes of the machine: their keys and values.
    pub fn of_machine(&self) -> impl ExactSizeIterator<Item = (&str, &[String])> {
        let axes = self.machines().iter();
        axes.map(|axis| (axis.key.as_str(), &axis.values[..]))
    }

    /// The grid of a board, whose limits hold for every point.
    pub fn on(mut self, board: Option<Board>) -> Self {
        if let Some(board) = &board {
            self = self.of_file(format!("{board:?}").as_bytes());
        }
        self.limits = board;
        self
    }

    /// A key that no file knows would make every point fail: name it at once.
    fn check_keys(&self) -> Result<()> {
        for axis in &self.axes {
            let config = self.config.iter().filter(|(_, v)| v.is_number());
            let timing = self.timing.iter().filter(|(_, v)| !v.is_table());
            let keys = config.map(|(k, _)| k.as_str());
            let keys = keys.chain([EXTENSIONS, PRESET, BOARDS]);
            let keys: Vec<&str> = keys.chain(timing.map(|(k, _)| k.as_str())).collect();
            ensure!(
                keys.contains(&axis.key.as_str()),
                "{} {}: there is no such key; there are {}";
                VARY, axis.key, keys.join(", ")
            );
        }
        Ok(())
    }

    /// Number of points.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|a| a.values.len()).product()
    }

    /// The points of a machine, by its number: one for each layer.
    pub fn points_of(&self, machine: usize) -> impl Iterator<Item = usize> + use<> {
        let machines = self.size() / self.layers();
        (0..self.layers()).map(move |layer| layer * machines + machine)
    }

    /// The number of a point's machine.
    pub fn machine_of(&self, point: usize) -> usize {
        point % (self.size() / self.layers())
    }

    /// The axes' keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|a| a.key.as_str())
    }

    /// The grid of a model that a file holds: another file of the same name is another sweep.
    pub fn of_file(mut self, bytes: &[u8]) -> Self {
        self.base.push_str(&hash(bytes));
        self
    }

    /// What isn't varied, the board's limits and the model's file, to tell one sweep's table from another's.
    pub fn fingerprint(&self) -> String {
        hash(self.base.as_bytes())
    }

    /// Tells this grid, with its values and their order, from others and from those of other versions of
    /// `vta`.
    pub fn identity(&self) -> String {
        let axis = |axis: &Axis| format!("{}={};", axis.key, axis.values.join(","));
        let axes: String = self.axes.iter().map(axis).collect();
        let version = env!("CARGO_PKG_VERSION");
        hash(format!("{axes} {} {version}", self.base).as_bytes())
    }

    /// Every point, in order.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        (0..self.size()).map(|index| self.nth(index))
    }

    /// The point of an index below [`size`](Self::size).
    ///
    /// # Errors
    /// An index that no point has.
    pub fn point(&self, index: usize) -> Result<Point> {
        let size = self.size();
        ensure!(
            index < size,
            "point {index} of a grid of {size}: the last is {}",
            size - 1
        );
        Ok(self.nth(index))
    }

    /// The index of a point by its values.
    pub fn index_of(&self, values: &[String]) -> Option<usize> {
        if values.len() != self.axes.len() {
            return None;
        }
        let mut axes = self.axes.iter().zip(values);
        axes.try_fold(0, |index, (axis, value)| {
            let at = axis.values.iter().position(|known| known == value)?;
            Some(index * axis.values.len() + at)
        })
    }

    fn nth(&self, mut index: usize) -> Point {
        let of_layer: usize = self.machines().iter().map(|a| a.values.len()).product();
        let layer = if self.layers { index / of_layer } else { 0 };
        let mut values = vec![String::new(); self.axes.len()];
        for (value, axis) in values.iter_mut().zip(&self.axes).rev() {
            value.clone_from(&axis.values[index % axis.values.len()]);
            index /= axis.values.len();
        }
        let machine = self.machine(&values[usize::from(self.layers)..]);
        Point {
            values,
            layer,
            machine: machine.map_err(|e| format!("{e:#}")),
        }
    }

    fn machine(&self, values: &[String]) -> Result<(Config, TimingConfig)> {
        let axes = || self.machines().iter().zip(values);
        let board = axes().find_map(|(axis, value)| axis.board(value));
        let (mut config, mut timing, has) = match board {
            Some(board) => (
                serde_json::from_str(&board.config.to_json()).context("configuration")?,
                board.timing.to_toml().parse().map_err(Error::input)?,
                board.config.extensions(),
            ),
            None => (self.config.clone(), self.timing.clone(), self.extensions),
        };
        if self.machines().iter().any(|axis| axis.key == PRESET) {
            timing = toml::Table::new();
        }
        for (axis, value) in axes() {
            if axis.key == BOARDS {
                // It is below the others.
            } else if axis.key == PRESET {
                timing.insert(axis.key.clone(), value.clone().into());
            } else if axis.key == EXTENSIONS {
                let all = has.iter().chain(extensions(value)?);
                let names = all.map(Extension::name).collect();
                config.insert(axis.key.clone(), names);
            } else if is_config(&axis.key) {
                let number: u64 = value.parse().map_err(|_| {
                    Error::input(format!("{}={value}: not a whole number from 0", axis.key))
                })?;
                config.insert(axis.key.clone(), Value::from(number));
            } else {
                // As a number and not as text: `.5` is one, but not in TOML.
                let switch = value.parse::<bool>().map(toml::Value::from);
                let whole = || value.parse::<i64>().map(toml::Value::from);
                let number = || value.parse::<f64>().map(toml::Value::from);
                let parsed = switch.or_else(|_| whole()).or_else(|_| number())?;
                timing.insert(axis.key.clone(), parsed);
            }
        }
        let config = Config::from_json(&Value::Object(config).to_string())?;
        for limits in self.limits.iter().chain(board) {
            limits.admit(&config)?;
        }
        Ok((config, TimingConfig::from_toml(&timing.to_string())?))
    }
}

impl Axis {
    /// The board that a value names.
    fn board(&self, value: &str) -> Option<&Board> {
        let at = self.values.iter().position(|known| known == value)?;
        self.boards.get(at)
    }
}

/// FNV-1a, which is the same everywhere.
fn hash(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn is_config(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_uppercase())
}

/// The extensions of an axis' value.
pub fn extensions(value: &str) -> Result<Vec<Extension>> {
    let names = value.split('+').filter(|_| value != "none");
    let known = |name: &str| {
        let unknown = || format!("there is no {name}; there are {}, or none", Extensions::ALL);
        Extension::from_name(name).ok_or_else(|| Error::input(unknown()))
    };
    names.map(known).collect()
}

/// The boards of an axis of them, if there is one.
pub fn boards(axes: &[String]) -> Result<Vec<Board>> {
    let of_boards = axes
        .iter()
        .find(|text| text.split('=').next() == Some(BOARDS));
    Ok(of_boards
        .map(|text| axis(text))
        .transpose()?
        .map_or_else(Vec::new, |axis| axis.boards))
}

fn axis(text: &str) -> Result<Axis> {
    let form = || Error::Usage(said!("{} {}: write KEY=V1,V2,.."; VARY, text));
    let (key, values) = text.split_once('=').ok_or_else(form)?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
    let key = key.trim().to_owned();
    let mut boards = Vec::new();
    for (i, value) in values.iter().enumerate() {
        if key == EXTENSIONS {
            let set = extensions(value).map_err(|e| format!("{e:#}"));
            ensure!(set.is_ok(), "{} {}: {}"; VARY, text, set.err().unwrap_or_default());
        } else if key == PRESET {
            let known = TimingConfig::PRESETS;
            ensure!(
                known.contains(&value.as_str()),
                "{} {}: there is no {}; there are {}"; VARY, text, value, known.join(", ")
            );
        } else if key == BOARDS {
            boards.push(machine::board(VARY, value)?);
        } else {
            let switch = !is_config(&key) && value.parse::<bool>().is_ok();
            let number = value.parse::<f64>().is_ok_and(f64::is_finite);
            ensure!(switch || number, "{} {}: '{}' is no number"; VARY, text, value);
        }
        ensure!(!values[..i].contains(value), "{} {}: {} is given twice"; VARY, text, value);
    }
    Ok(Axis {
        key,
        values,
        boards,
    })
}

#[cfg(test)]
mod tests;
