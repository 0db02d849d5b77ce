//! `vta costs`.

use anyhow::Result;
use vta_app::device;

use crate::args::CostsArgs;
use crate::terminal::print_line;

/// Prints what operations and parts cost, as the file that `--costs` takes.
///
/// # Errors
/// A file that can't be read or used, and when nothing can be printed.
pub fn costs(args: &CostsArgs) -> Result<bool> {
    let costs = device::costs(args.file.as_deref())?;
    print_line(costs.to_toml().trim_end())?;
    Ok(true)
}
