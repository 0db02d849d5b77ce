//! `vta devices`: what this machine can run on.

#[cfg_attr(not(feature = "opencl"), path = "absent/opencl.rs")]
mod opencl;

use anyhow::{Result, ensure};
use serde_json::json;
use vta_app::open::Devices;

use crate::args::DevicesArgs;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// Lists the devices, or helps to build a bitstream for one.
pub fn devices(args: &DevicesArgs) -> Result<bool> {
    ensure!(
        args.config.is_none() || args.macros || args.save_bitstream.is_some(),
        "--config is for --save-bitstream and --macros"
    );
    if args.macros || args.save_bitstream.is_some() {
        return opencl::help(args);
    }
    let found = Devices::find()?;
    if args.json {
        let all = json!({ "devices": found.json(), "note": found.missing });
        print_json(&all)?;
        return Ok(true);
    }
    let row = |kind: &'static str| {
        move |(name, what): &(String, String)| {
            [&name[..], &what[..], kind, "", "", ""].map(str::to_owned)
        }
    };
    let built_in = found.built_in.iter().map(row("simulator"));
    let boards = found.boards.iter().map(row("board"));
    let opencl = found.opencl.iter().map(opencl::cells);
    let all = built_in.chain(boards).chain(opencl);
    print_text(table(all).text().trim_end())?;
    if let Some(note) = found.missing {
        print_text(&format!("\n{note}"))?;
    }
    Ok(true)
}

fn table(rows: impl Iterator<Item = [String; 6]>) -> Table {
    let mut table = Table::new([
        Column::words("--device"),
        Column::text("what"),
        Column::text("type"),
        Column::text("runs"),
        Column::number("memory"),
        Column::words("driver").optional(),
    ]);
    rows.for_each(|row| table.row(row));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::COLUMNS;

    #[test]
    fn long_names_of_opencl_fit() {
        let rows = [
            [
                "opencl:intel:1",
                "pthread-skylake-avx512-Intel(R) Xeon(R) Platinum 8488C (Portable Computing Language)",
                "accelerator, fpga",
                "throughput, from a bitstream (+core)",
                "1099.5 GB",
                "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-skylake-avx512, 5.0+debian",
            ],
            ["sim", "functional, fast", "simulator", "", "", ""],
        ];
        let rows = rows.map(|row| row.map(str::to_owned));
        let (text, missing) = table(rows.into_iter()).fitting(COLUMNS);
        assert_eq!(missing, ["driver"]);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains("pthread-") && flat.contains("1099.5 GB"),
            "{text}"
        );
    }
}
