//! `vta models`.

use anyhow::Result;
use vta_app::open;

use crate::table::{Column, Table};
use crate::terminal::print_text;

/// Lists the built-in networks.
pub fn models() -> Result<bool> {
    let mut table = Table::new([
        Column::words("name"),
        Column::words("input"),
        Column::number("layers"),
        Column::number("MACs"),
        Column::number("weights"),
        Column::text("what"),
    ]);
    for (name, outline, what) in open::models()? {
        let [c, h, w] = outline.input;
        table.row([
            name,
            format!("{c}x{h}x{w}"),
            outline.layers.to_string(),
            format!("{:.2} G", outline.macs as f64 / 1e9),
            format!("{:.2} M", outline.weights as f64 / 1e6),
            what.to_owned(),
        ]);
    }
    print_text(table.text().trim_end())?;
    Ok(true)
}
