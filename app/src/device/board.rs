//! `--device board:NAME`.

use std::sync::Arc;

use vta_driver::Device;
use vta_hw_board::{BoardDevice, BoardError, BoardFile};
use vta_isa::Config;

use super::kind::Opened;
use crate::error::{Result, bail, from};
use crate::options::Target;
use crate::options::names::DEVICE;

pub(super) const OPENED: Option<Opened> = Some(Opened {
    check: |name| file(name).map(drop),
    open,
});

from!(Device: BoardError);

/// The board's name, or its file.
fn file(name: &str) -> Result<&str> {
    let Some(board) = name.strip_prefix("board:").filter(|name| !name.is_empty()) else {
        bail!(
            "{} board:NAME names a board, pynq or de10, or its file in TOML, as \
             docs/boards.md says";
            DEVICE
        );
    };
    Ok(board)
}

fn open(name: &str, config: &Config, _: &Target, _: usize) -> Result<Arc<dyn Device>> {
    let device = BoardDevice::open(file(name)?, config.clone())?;
    Ok(Arc::new(device))
}

/// The preset of a board's machine that the preset of its registers comes with, for a list of devices.
pub(crate) fn preset(list: &str) -> Option<&str> {
    let mut boards = list
        .split(',')
        .filter_map(|name| name.strip_prefix("board:"));
    boards.find(|name| BoardFile::PRESETS.contains(name))
}

/// The presets whose memory is here, by their devices' names, and what they are.
pub(crate) fn found() -> Vec<(String, String)> {
    let here = |name: &&'static str| Some((*name, BoardFile::named(name).ok()?));
    let boards = BoardFile::PRESETS.iter().filter_map(here);
    let boards = boards.filter(|(_, file)| file.memory.path.exists());
    let row = |(name, file): (&str, BoardFile)| {
        let what = format!("VTA behind registers at {:#x}", file.registers.offset);
        (format!("board:{name}"), what)
    };
    boards.map(row).collect()
}
