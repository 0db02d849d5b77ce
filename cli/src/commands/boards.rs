//! `vta boards`.

use anyhow::Result;
use serde_json::{Value, json};
use vta_isa::{Extension, MemType};
use vta_sim::Board;

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
    let boards = Board::PRESETS.map(Board::preset);
    let boards = boards.into_iter().collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let list: Vec<Value> = boards.iter().map(json_of).collect();
        print_line(&serde_json::to_string_pretty(&json!({ "boards": list }))?)?;
        return Ok(true);
    }
    let head = COLUMNS.map(|(name, _)| name.to_owned());
    print_text(&line(&head, "extensions"))?;
    for board in &boards {
        let depth = |mem| board.config.depth(mem).to_string();
        let cells = [
            board.name.clone(),
            unit(board),
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

fn unit(board: &Board) -> String {
    let (batch, block) = (board.config.batch(), board.config.block());
    format!("{batch}x{block}x{block}")
}

fn json_of(board: &Board) -> Value {
    let depth = |mem| board.config.depth(mem);
    let extensions: Vec<_> = board
        .config
        .extensions()
        .iter()
        .map(Extension::name)
        .collect();
    json!({
        "name": board.name, "unit": unit(board), "core": board.core.name(),
        "uops": depth(MemType::Uop), "inp_tiles": depth(MemType::Inp),
        "wgt_tiles": depth(MemType::Wgt), "acc_tiles": depth(MemType::Acc),
        "extensions": extensions, "clock_mhz": board.timing.clock_mhz,
    })
}
