//! `--config`, `--board` and `--timing`: the machine that programs are for, and its time.

use std::path::Path;

use serde_json::Value;
use vta_driver::{Budget, DeviceInfo, Program, Runner, WorkerDevice};
use vta_isa::{Config, Excess, Insn, MemType};
use vta_sim::cycle::TimingConfig;
use vta_sim::{Board, BoardError, Core, CycleLog, CycleMachine, Execution};

use crate::device::board as device_board;
use crate::error::{Context, Error, Result, ensure};
use crate::files;
use crate::options::names::{BOARD, Name, Said, TIMING, said};
use crate::options::{ConfigSource, Target};

/// Whose timing is taken when nothing names another.
const USUAL_TIMING: &str = "pynq";

/// The machine that programs are for, and how long it takes.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What programs are compiled for.
    pub config: Config,
    /// Cycles and clock.
    pub timing: TimingConfig,
    /// Whose timing it is: the board's name, or a file's.
    pub name: String,
    /// The board of `--board`, whose limits hold.
    pub board: Option<Board>,
    /// What a batch may ask for.
    pub budget: Budget,
    /// The board whose timing `--timing` borrows for a machine of one's own.
    lender: Option<Board>,
}

/// The JSON text of a configuration, and what messages call it.
fn read(config: &ConfigSource) -> Result<(String, String)> {
    Ok(match config {
        ConfigSource::File(path) => (files::read_text(path)?, path.display().to_string()),
        ConfigSource::Keys(keys) => (Value::from(keys.clone()).to_string(), "config".to_owned()),
    })
}

/// The board of a name, or of a file, that an option asks for.
///
/// # Errors
/// A name that is neither, a file with a wrong key or value.
pub fn board(option: Name, name: &str) -> Result<Board> {
    let known = Board::PRESETS.contains(&name);
    if known || !Path::new(name).exists() {
        let neither = |error: BoardError| {
            Error::Usage(said!("{} {}: no such preset, and no such file: {}"; option, name, error))
        };
        return Board::preset(name).map_err(neither);
    }
    Board::from_toml(name, &files::read_text(Path::new(name))?).with_context(|| name.to_owned())
}

impl Machine {
    /// Reads the configuration, the board and the timing that a target names.
    ///
    /// # Errors
    /// A board or file that isn't there or is wrong, a configuration that asks for more than the
    /// board has, a board with a timing beside it.
    pub fn read(target: &Target) -> Result<Self> {
        // The device `board:pynq` is that board, unless a configuration is given.
        let behind = || match target.config {
            None => device_board::preset(&target.device),
            Some(_) => None,
        };
        let given = target.board.as_deref().or_else(behind);
        let timing = target.timing.as_deref();
        ensure!(
            given.is_none() || timing.is_none(),
            "{} brings its own timing: leave {} out";
            BOARD, TIMING
        );
        let given = given.map(|name| board(BOARD, name)).transpose()?;
        let config = match &target.config {
            None => given
                .as_ref()
                .map_or_else(Config::default, |b| b.config.clone()),
            Some(source) => {
                let (text, name) = read(source)?;
                let config = match &given {
                    None => Config::from_json(&text).map_err(Error::from),
                    Some(board) => board.config_from_json(&text).map_err(Error::from),
                };
                config.context(name)?
            }
        };
        let lender = timing.map(|name| board(TIMING, name)).transpose()?;
        let timed = match given.as_ref().or(lender.as_ref()) {
            Some(board) => board.clone(),
            None => Board::preset(USUAL_TIMING)?,
        };
        Ok(Self {
            config,
            timing: timed.timing,
            name: timed.name,
            board: given,
            budget: target.budget,
            lender,
        })
    }

    /// Whose core it is.
    pub fn core(&self) -> Core {
        self.board.as_ref().map_or(Core::Own, |board| board.core)
    }

    /// Whether the board, if there is one, has what a configuration asks for.
    ///
    /// # Errors
    /// The first thing that it hasn't.
    pub fn admit(&self, config: &Config) -> Result<()> {
        match &self.board {
            Some(board) => Ok(board.admit(config)?),
            None => Ok(()),
        }
    }

    /// The cycle-level simulator for a configuration.
    ///
    /// # Errors
    /// As [`Machine::admit`].
    pub fn cycle(
        &self,
        config: Config,
        execution: Execution,
        log: CycleLog,
    ) -> Result<WorkerDevice> {
        let info = DeviceInfo {
            name: "cycle".to_owned(),
            config: config.clone(),
        };
        let runner = self.runner(config, execution, log)?;
        Ok(WorkerDevice::new(info, runner))
    }

    /// What [`Machine::cycle`]'s device runs batches with.
    ///
    /// # Errors
    /// As [`Machine::admit`].
    pub(super) fn runner(
        &self,
        config: Config,
        execution: Execution,
        log: CycleLog,
    ) -> Result<Runner> {
        self.admit(&config)?;
        let machine = CycleMachine {
            config,
            timing: self.timing.clone(),
            core: self.core(),
            budget: self.budget,
        };
        Ok(machine.runner(execution, log))
    }

    /// In words, why a program isn't one for the board whose timing is borrowed; `None` when it
    /// is, or the machine is a board, or no option named a timing.
    pub fn misfit(&self, program: &Program) -> Option<Said> {
        let commands = program.layers.iter().flat_map(|layer| &layer.commands);
        let uops = program.kernels.iter().map(|kernel| kernel.uops.len()).sum();
        self.misfit_of(&program.config, uops, commands.map(|command| &command.insn))
    }

    /// As [`Machine::misfit`] for programs of which only the configuration is known.
    pub fn misfit_of_config(&self) -> Option<Said> {
        self.misfit_of(&self.config, usize::MAX, std::iter::empty())
    }

    /// As [`Machine::misfit`] for instructions with at most `uops` micro-ops.
    pub fn misfit_of<'i>(
        &self,
        config: &Config,
        uops: usize,
        mut insns: impl Iterator<Item = &'i Insn>,
    ) -> Option<Said> {
        let (lender, name) = (self.lender.as_ref()?, &self.name);
        let there = &lender.config;
        let lacks = insns.find_map(|insn| there.extensions().allow(insn).err());
        let used = uops.min(config.depth(MemType::Uop));
        let why = match config.excess(there) {
            Some(Excess::MatrixUnit { .. }) => "its matrix unit is another".to_owned(),
            _ if used > there.depth(MemType::Uop) => {
                let depth = there.depth(MemType::Uop);
                format!("it has {depth} micro-ops, and up to {used} are used")
            }
            _ => match (lacks, deeper(config, there)) {
                (Some(extension), _) => format!("it has no {extension}"),
                (None, Some((mem, depth))) => format!("its {mem} scratchpad has {depth} tiles"),
                (None, None) => return None,
            },
        };
        Some(said!(
            "{} {} only takes that board's time: {}; {} {} is the whole board";
            TIMING, name, why, BOARD, name
        ))
    }
}

/// A scratchpad beside that of micro-ops that is deeper than there.
fn deeper(config: &Config, there: &Config) -> Option<(MemType, usize)> {
    let mut all = MemType::ALL.into_iter();
    let deeper = |mem: &MemType| *mem != MemType::Uop && config.depth(*mem) > there.depth(*mem);
    all.find(deeper).map(|mem| (mem, there.depth(mem)))
}

#[cfg(test)]
mod tests;
