//! How a network is opened, compiled and run, set by name: the options of Python and C.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vta_compiler::semantics::Requant;

use super::names::{self, Front, Name};
use super::{ConfigSource, Target};
use crate::error::Result;
use crate::open::model::Model;
use crate::options::hints::did_you_mean;

/// Where the value of an option goes.
#[derive(Debug)]
pub enum Slot<'a> {
    /// A name, or a path as text.
    Text(&'a mut Option<String>),
    /// A file.
    Path(&'a mut Option<PathBuf>),
    /// A number of at least 1.
    Count(&'a mut Option<usize>),
    /// Whether or not.
    Flag(&'a mut bool),
    /// A configuration: a file, or its keys.
    Config(&'a mut Option<ConfigSource>),
    /// Shapes of inputs.
    Shapes(&'a mut BTreeMap<String, Vec<usize>>),
    /// How int32 sums become int8.
    Requant(&'a mut Option<Requant>),
}

impl Target {
    /// What can be set, beside the device.
    pub const NAMES: [Name; 15] = [
        names::CONFIG,
        names::BOARD,
        names::TIMING,
        names::THREADS,
        names::BATCH,
        names::ALLOW_HOST,
        names::INPUT_SHAPE,
        names::REQUANT,
        names::TIMING_ONLY,
        names::PLACEMENT,
        names::TILES,
        names::COSTS,
        names::HOST_SPEED,
        names::SCOPE,
        names::BITSTREAM,
    ];

    /// Where the value of an option goes; `None` for one that networks don't have.
    pub fn slot(&mut self, option: Name) -> Option<Slot<'_>> {
        Some(match option {
            names::CONFIG => Slot::Config(&mut self.config),
            names::BOARD => Slot::Text(&mut self.board),
            names::TIMING => Slot::Text(&mut self.timing),
            names::THREADS => Slot::Count(&mut self.threads),
            names::BATCH => Slot::Count(&mut self.batch),
            names::ALLOW_HOST => Slot::Flag(&mut self.allow_host),
            names::INPUT_SHAPE => Slot::Shapes(&mut self.shapes),
            names::REQUANT => Slot::Requant(&mut self.requant),
            names::TIMING_ONLY => Slot::Flag(&mut self.timing_only),
            names::PLACEMENT => Slot::Path(&mut self.placement),
            names::TILES => Slot::Path(&mut self.tiles),
            names::COSTS => Slot::Path(&mut self.costs),
            names::HOST_SPEED => Slot::Path(&mut self.host_speed),
            names::SCOPE => Slot::Text(&mut self.scope),
            names::BITSTREAM => Slot::Path(&mut self.bitstream),
            _ => return None,
        })
    }

    /// Opens a network by name, or reads one that is in memory.
    ///
    /// # Errors
    /// As for [`Model::open`] and [`Model::from_onnx`], and for a shape that the model excludes, or of an input
    /// that it hasn't.
    pub fn open(&self, name: &str, bytes: Option<Vec<u8>>) -> Result<Model> {
        let mut model = match bytes {
            Some(bytes) => Model::from_onnx_with(name, bytes, &self.shapes)?,
            None => Model::open_with(name, &self.shapes)?,
        };
        if let Some(requant) = self.requant {
            model.set_requant(requant);
        }
        Ok(model)
    }
}

/// The option of `all` that a front calls so.
///
/// # Errors
/// In words: what is meant, and what there is.
pub fn named(name: &str, all: &[Name], front: Front) -> Result<Name, String> {
    let bare = |option: &Name| option.bare(front);
    let found = all.iter().copied().find(|option| bare(option) == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(bare).collect();
        let meant = did_you_mean(name, names.iter().copied());
        format!("no option '{name}'{meant} (there are {})", names.join(", "))
    })
}
