//! `vta boards`.

use anyhow::Result;
use serde_json::{Value, json};
use vta_app::open;
use vta_isa::MemType;

use crate::args::BoardsArgs;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// Lists the boards that `--board` knows by name.
///
/// # Errors
/// When nothing can be printed.
pub fn boards(args: &BoardsArgs) -> Result<bool> {
    let boards = open::boards()?;
    if args.json {
        let list: Vec<Value> = boards.iter().map(open::board_json).collect();
        print_json(&json!({ "boards": list }))?;
        return Ok(true);
    }
    let words = [
        "board", "unit", "uops", "inp", "wgt", "acc", "clock", "core",
    ];
    let columns = words.map(Column::words).into_iter();
    let mut table = Table::new(columns.chain([Column::text("extensions")]));
    for board in &boards {
        let depth = |mem| board.config.depth(mem).to_string();
        table.row([
            board.name.clone(),
            open::unit(board),
            depth(MemType::Uop),
            depth(MemType::Inp),
            depth(MemType::Wgt),
            depth(MemType::Acc),
            format!("{} MHz", board.timing.clock_mhz),
            board.core.name().to_owned(),
            board.config.extensions().to_string(),
        ]);
    }
    print_text(table.text().trim_end())?;
    print_text("--board also takes a file that describes another: docs/files.md")?;
    Ok(true)
}
