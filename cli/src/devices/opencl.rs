//! What `vta devices` does for devices of OpenCL.

use anyhow::{Context, Result, ensure};
use vta_app::device;
use vta_hw_opencl::{DeviceEntry, Selector, Structure, config_macros, save_bitstream};

use crate::args::DevicesArgs;
use crate::terminal::{print_line, print_text};

/// Helps to build a bitstream for one.
pub fn help(args: &DevicesArgs) -> Result<bool> {
    if args.macros {
        print_line(&config_macros(&device::config(args.config.as_ref())?))?;
        return Ok(true);
    }
    if let (Some(path), Some(name)) = (&args.save_bitstream, &args.device) {
        let selector: Selector = name.parse()?;
        let structure = selector.structure().unwrap_or(Structure::Core);
        ensure!(
            structure != Structure::Throughput,
            "a bitstream holds the core, not the throughput structure"
        );
        let config = device::config(args.config.as_ref())?;
        save_bitstream(&selector.find()?, &config, structure, path)?;
        let size = std::fs::metadata(path)
            .with_context(|| path.display().to_string())?
            .len();
        print_text(&format!("{}: {structure}, {size} bytes", path.display()))?;
        return Ok(true);
    }
    Ok(true)
}

/// A device of OpenCL in the table.
pub fn cells(entry: &DeviceEntry) -> [String; 6] {
    [
        entry.selector.clone(),
        format!("{} ({})", entry.facts.name, entry.facts.platform),
        kind(entry),
        structures(entry),
        format!("{:.1} GB", entry.facts.global_bytes as f64 / 1e9),
        format!("{}, {}", entry.facts.version, entry.facts.driver),
    ]
}

fn kind(entry: &DeviceEntry) -> String {
    let fpga = if entry.fpga { ", fpga" } else { "" };
    format!("{}{fpga}", entry.kind.name())
}

/// The structure that the device gets first, then the others, as selectors name them.
fn structures(entry: &DeviceEntry) -> String {
    let others = entry.structures().into_iter();
    let others = others.filter(|s| *s != entry.structure);
    let others: Vec<String> = others.map(|s| format!("+{s}")).collect();
    let source = if entry.facts.takes_source {
        ""
    } else {
        ", from a bitstream"
    };
    format!("{}{source} ({})", entry.structure, others.join(" "))
}
