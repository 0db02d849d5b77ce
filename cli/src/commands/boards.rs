//! `vta boards`.

use anyhow::Result;
use serde_json::{Value, json};
use vta_app::open;
use vta_isa::MemType;

use crate::args::BoardsArgs;
use crate::terminal::{print_line, print_text};

/// Columns of the table.
const COLUMNS: [(&str, usize); 8] = [
    ("board", 7),
    ("unit", 9),
    ("uops", 6),
    ("inp", 6),
    ("wgt", 6),
    ("acc", 6),
    ("clock", 9),
    ("core", 5),
];

/// Lists the boards that `--board` knows by name.
///
/// # Errors
/// When nothing can be printed.
pub fn boards(args: &BoardsArgs) -> Result<bool> {
    let boards = open::boards()?;
    if args.json {
        let list: Vec<Value> = boards.iter().map(open::board_json).collect();
        print_line(&serde_json::to_string_pretty(&json!({ "boards": list }))?)?;
        return Ok(true);
    }
    let head = COLUMNS.map(|(name, _)| name.to_owned());
    print_text(&line(&head, "extensions"))?;
    for board in &boards {
        let depth = |mem| board.config.depth(mem).to_string();
        let cells = [
            board.name.clone(),
            open::unit(board),
            depth(MemType::Uop),
            depth(MemType::Inp),
            depth(MemType::Wgt),
            depth(MemType::Acc),
            format!("{} MHz", board.timing.clock_mhz),
            board.core.name().to_owned(),
        ];
        print_text(&line(&cells, &board.config.extensions().to_string()))?;
    }
    print_text("--board also takes a file that describes another: docs/files.md")?;
    Ok(true)
}

fn line(cells: &[String; 8], last: &str) -> String {
    let padded = cells
        .iter()
        .zip(COLUMNS)
        .map(|(c, (_, width))| format!("{c:width$}"));
    padded.collect::<String>() + last
}
