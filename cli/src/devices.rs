//! `vta devices`: what this machine can run on.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vta_app::device;
use vta_hw_opencl::{
    DeviceEntry, OpenClError, Selector, Structure, config_macros, devices as list, save_bitstream,
};

use crate::args::DevicesArgs;
use crate::report::{lines, print_line};

/// The devices that are part of the program.
const BUILT_IN: [(&str, &str); 3] = [
    ("sim", "functional simulator, fast"),
    ("cycle", "its results with the cycles of the hardware"),
    ("oracle", "functional simulator, slow and obvious"),
];

/// Lists the devices, or helps to build a bitstream for one.
pub fn devices(args: &DevicesArgs) -> Result<bool> {
    ensure!(
        args.config.is_none() || args.macros || args.save_bitstream.is_some(),
        "--config is for --save-bitstream and --macros"
    );
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
        print_line(&format!("{}: {structure}, {size} bytes", path.display()))?;
        return Ok(true);
    }
    let (entries, missing) = match list() {
        Ok(entries) => (entries, None),
        Err(error @ (OpenClError::NoLoader | OpenClError::NoPlatform)) => {
            (Vec::new(), Some(error.to_string()))
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        let built_in = BUILT_IN.map(|(name, what)| json!({ "device": name, "name": what }));
        let all = built_in.into_iter().chain(entries.iter().map(object));
        let all: Vec<Value> = all.collect();
        let text = serde_json::to_string_pretty(&json!({ "devices": all, "note": missing }))?;
        print_line(&text)?;
        return Ok(true);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["--device", "what", "type", "runs", "memory", "driver"]);
    for (name, what) in BUILT_IN {
        table.add_row([name, what, "simulator", "", "", ""]);
    }
    for e in &entries {
        let memory = format!("{:.1} GB", e.global_bytes() as f64 / 1e9);
        let driver = format!("{}, {}", e.version(), e.driver());
        table.add_row([
            e.selector.clone(),
            format!("{} ({})", e.name(), e.platform()),
            kind(e),
            structures(e),
            memory,
            driver,
        ]);
    }
    print_line(lines(&table).trim_end())?;
    if let Some(note) = missing {
        print_line(&format!("\n{note}"))?;
    }
    Ok(true)
}

fn kind(entry: &DeviceEntry) -> String {
    let fpga = if entry.fpga { ", fpga" } else { "" };
    format!("{}{fpga}", entry.kind)
}

/// The structure that the device gets first, then the others, as selectors name them.
fn structures(entry: &DeviceEntry) -> String {
    let others = entry.structures().into_iter();
    let others = others.filter(|s| *s != entry.structure);
    let others: Vec<String> = others.map(|s| format!("+{s}")).collect();
    let source = if entry.compiles() {
        ""
    } else {
        ", from a bitstream"
    };
    format!("{}{source} ({})", entry.structure, others.join(" "))
}

fn object(e: &DeviceEntry) -> Value {
    let structures: Vec<&str> = e.structures().into_iter().map(Structure::name).collect();
    json!({
        "device": e.selector, "name": e.name(), "platform": e.platform(), "type": e.kind.name(),
        "fpga": e.fpga, "version": e.version(), "driver": e.driver(),
        "structure": e.structure.name(), "structures": structures,
        "takes_source": e.compiles(), "compute_units": e.compute_units(),
        "memory_bytes": e.global_bytes(), "max_buffer_bytes": e.max_alloc_bytes(),
        "local_bytes": e.local_bytes(),
    })
}
