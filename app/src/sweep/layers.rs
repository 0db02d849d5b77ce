//! The points of a table's layers, together for each machine.

use super::grid::Grid;
use super::row::{Measured, Row};

/// The rows of a sweep by machine: those of a table's layers added up.
pub struct Machines<'g> {
    /// The keys of the rows' values.
    pub keys: Vec<&'g str>,
    /// One for each machine of which there is a row of every layer, in the grid's order.
    pub rows: Vec<Row>,
}

impl<'g> Machines<'g> {
    /// Adds layers up. A machine on which one has no result has the first one's reason. `rows` are in the
    /// grid's order, and some may be missing.
    pub fn of(grid: &'g Grid, rows: &[Row]) -> Self {
        if !grid.has_layers() {
            return Self {
                keys: grid.keys().collect(),
                rows: rows.to_vec(),
            };
        }
        let layers = grid.layers();
        let machines = grid.size() / layers;
        // Rows are some of the points in their order.
        let mut found: Vec<Vec<&Row>> = vec![Vec::new(); machines];
        let mut rows = rows.iter().peekable();
        for (index, point) in grid.points().enumerate() {
            if let Some(row) = rows.next_if(|row| row.values == point.values) {
                found[index % machines].push(row);
            }
        }
        found.retain(|of| of.len() == layers);
        Self {
            keys: grid.keys().skip(1).collect(),
            rows: found.iter().map(|of| together(of)).collect(),
        }
    }
}

/// The layers of one machine as one row.
pub fn together(layers: &[&Row]) -> Row {
    let values = layers.first().map_or(&[][..], |row| &row.values[1..]);
    Row {
        values: values.to_vec(),
        outcome: sum(layers),
    }
}

fn sum(layers: &[&Row]) -> Result<Measured, String> {
    let mut all = Measured::default();
    // Multiply-adds that the matrix unit could do in all the cycles.
    let mut most = 0.0;
    for row in layers {
        let name = row.values.first().map_or("", String::as_str);
        let one = row
            .outcome
            .as_ref()
            .map_err(|error| format!("{name}: {error}"))?;
        most += one.most_macs();
        all = Measured {
            cycles: all.cycles + one.cycles,
            bound_cycles: all.bound_cycles + one.bound_cycles,
            pass_ms: all.pass_ms + one.pass_ms,
            macs: all.macs + one.macs,
            dram_bytes: all.dram_bytes + one.dram_bytes,
            energy_uj: all.energy_uj + one.energy_uj,
            // The machine's.
            ..one.clone()
        };
    }
    if most > 0.0 {
        all.utilization = all.macs as f64 / most;
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
