//! What an exploration may choose: axes, as genes of a search.

use vta_isa::{Config, Extension};
use vta_sim::Board;

use super::search::{Excess, Gene, Genome};
use crate::device::machine::Machine;
use crate::error::{Result, ensure};
use crate::options::names::VARY;
use crate::sweep::grid::{EXTENSIONS, Grid, boards, extensions};

/// Points that may be chosen from: fewer where addresses have 32 bits.
pub const MAX_SPACE: usize = match 1_usize.checked_shl(48) {
    Some(points) => points,
    None => usize::MAX,
};
/// Extensions of which every set is a value: the search knows for each which others are near.
const MAX_EXTENSIONS: usize = 10;
/// The set of the base's extensions alone.
pub const NONE: &str = "none";

/// Keys of the configuration with the values that are looked at.
const CONFIG: [(&str, &[u32]); 6] = [
    ("LOG_BATCH", &[0, 1, 2, 3]),
    ("LOG_BLOCK", &[3, 4, 5, 6]),
    ("LOG_UOP_BUFF_SIZE", &[12, 13, 14, 15]),
    ("LOG_INP_BUFF_SIZE", &[12, 13, 14, 15, 16, 17, 18]),
    ("LOG_WGT_BUFF_SIZE", &[13, 14, 15, 16, 17, 18, 19, 20]),
    ("LOG_ACC_BUFF_SIZE", &[12, 13, 14, 15, 16, 17, 18, 19]),
];
/// Bytes of the bus, where no board has it.
const BUS: &str = "bus_bytes=8,16,32,64";

/// The axes: `given` ones, and of others all that a machine may have, or its board, or any of those that are given.
///
/// # Errors
/// More extensions than there can be sets of, boards that there aren't.
pub fn axes(machine: &Machine, given: &[String]) -> Result<Vec<String>> {
    let boards = boards(given)?;
    let mut bases: Vec<_> = boards.iter().map(|b| (&b.config, Some(b))).collect();
    if bases.is_empty() {
        bases.push((&machine.config, machine.board.as_ref()));
    }
    let admits =
        |board: Option<&Board>, config: &Config| board.is_none_or(|b| b.admit(config).is_ok());
    let mut axes = Vec::new();
    for (key, values) in CONFIG {
        let had = |value: &&u32| {
            let json = format!("{{\"{key}\": {value}}}");
            bases.iter().any(|(base, board)| {
                let config = Config::from_json_over(base, &json);
                board.is_none() || config.is_ok_and(|config| admits(*board, &config))
            })
        };
        let values: Vec<String> = values.iter().filter(had).map(u32::to_string).collect();
        if !values.is_empty() {
            axes.push(format!("{key}={}", values.join(",")));
        }
    }
    let adds = |e: Extension| {
        bases.iter().any(|(base, board)| {
            let has = base.extensions();
            let config = (*base).clone().with_extensions(has.with(e));
            !has.contains(e) && admits(*board, &config)
        })
    };
    let more: Vec<Extension> = Extension::ALL.into_iter().filter(|&e| adds(e)).collect();
    let vary = |key: &str| given.iter().any(|g| g.split('=').next() == Some(key));
    if !more.is_empty() && !vary(EXTENSIONS) {
        ensure!(
            more.len() <= MAX_EXTENSIONS,
            "{} extensions have too many sets: name some with {} EXTENSIONS=none,..";
            more.len(), VARY
        );
        let sets = (0..1u32 << more.len()).map(|set| {
            let names = (0..).zip(&more).filter(|(at, _)| set >> at & 1 == 1);
            let names: Vec<&str> = names.map(|(_, e)| e.name()).collect();
            if names.is_empty() {
                NONE.to_owned()
            } else {
                names.join("+")
            }
        });
        axes.push(format!(
            "{EXTENSIONS}={}",
            sets.collect::<Vec<_>>().join(",")
        ));
    }
    if bases.iter().all(|(_, board)| board.is_none()) {
        axes.push(BUS.to_owned());
    }
    axes.retain(|axis| axis.split('=').next().is_some_and(|key| !vary(key)));
    axes.extend_from_slice(given);
    Ok(axes)
}

/// A gene for each axis of the machine.
///
/// # Errors
/// Extensions that there aren't.
pub fn genes(grid: &Grid) -> Result<Vec<Gene>> {
    let gene = |(key, values): (&str, &[String])| {
        if key != EXTENSIONS {
            return Ok(Gene::ordered(values.len()));
        }
        let bits = |value: &String| {
            let known = extensions(value)?;
            let all = (0..).zip(Extension::ALL).filter(|(_, e)| known.contains(e));
            Ok(all.map(|(at, _)| 1u64 << at).sum())
        };
        let sets: Vec<u64> = values.iter().map(bits).collect::<Result<_>>()?;
        Ok(Gene::sets(&sets))
    };
    grid.of_machine().map(gene).collect()
}

/// Which axis is of extensions, and which of its values adds none.
pub fn plain(grid: &Grid) -> Option<(usize, usize)> {
    let axis = grid.of_machine().position(|(key, _)| key == EXTENSIONS)?;
    let (_, values) = grid.of_machine().nth(axis)?;
    Some((axis, values.iter().position(|value| value == NONE)?))
}

/// The machine of the configuration that isn't varied, if the axes have its values.
pub fn first(grid: &Grid, machine: &Machine) -> Option<Genome> {
    let config: serde_json::Value = serde_json::from_str(&machine.config.to_json()).ok()?;
    let timing: toml::Table = machine.timing.to_toml().parse().ok()?;
    let choice = |(key, values): (&str, &[String])| {
        let base = match (config.get(key), timing.get(key)) {
            _ if key == EXTENSIONS => NONE.to_owned(),
            (Some(value), _) => value.to_string(),
            (None, Some(value)) => value.to_string(),
            (None, None) => return None,
        };
        values.iter().position(|value| *value == base)
    };
    grid.of_machine().map(choice).collect()
}

/// The index of a machine among all, the last axis fastest.
pub fn index(grid: &Grid, genome: &[usize]) -> usize {
    let axes = grid.of_machine().zip(genome);
    axes.fold(0, |index, ((_, values), choice)| {
        index * values.len() + choice
    })
}

/// By how many square millimetres a machine is too large; infinite where there is none.
pub fn excess<'e>(
    area: &'e dyn Fn(usize) -> Option<f64>,
    grid: &'e Grid,
    most_mm2: f64,
) -> Box<Excess<'e>> {
    Box::new(move |genome| {
        let area = area(index(grid, genome));
        area.map_or(f64::INFINITY, |mm2| (mm2 - most_mm2).max(0.0))
    })
}
