//! What the last cell of each row of a table says: which sweep it belongs to, and in tables of shards which
//! point of which grid it is.

use std::borrow::Cow;
use std::collections::HashMap;

use super::grid::{Grid, MAX_POINTS};
use super::shard::Shard;

/// What the last cell of each row says.
pub(super) struct Labels {
    /// The model, and all that isn't varied.
    pub sweep: String,
    /// `None` in the table of a whole sweep.
    pub numbers: Option<Numbers>,
}

/// Which point of which grid each row is, in tables of shards.
pub(super) struct Numbers {
    /// From 1, by the point's values.
    of: HashMap<Vec<String>, usize>,
    grid: String,
}

impl Labels {
    /// Of the table of a whole sweep, or of a shard.
    pub fn new(model: &str, grid: &Grid, shard: Option<Shard>) -> Self {
        Self {
            sweep: format!(
                "{}, base {}",
                model.replace(['\n', '\r'], " "),
                grid.fingerprint()
            ),
            numbers: shard.map(|_| Numbers {
                of: grid.points().map(|p| p.values).zip(1..).collect(),
                grid: grid.identity(),
            }),
        }
    }

    /// The label of a point; `None` for one that the grid of these numbers hasn't.
    pub fn of(&self, values: &[String]) -> Option<Cow<'_, str>> {
        let Some(numbers) = &self.numbers else {
            return Some(Cow::Borrowed(&self.sweep));
        };
        let number = numbers.of.get(values)?;
        let (points, grid) = (numbers.of.len(), &numbers.grid);
        Some(format!("{}, point {number} of {points} in grid {grid}", self.sweep).into())
    }
}

/// A label's sweep, and of a shard's row the point's number, how many there are, and the grid.
pub(super) fn split(label: &str) -> (&str, Option<(usize, usize, &str)>) {
    let numbers = |text: &str| -> Option<(usize, usize)> {
        let (number, points) = text.split_once(" of ")?;
        let (number, points) = (number.parse().ok()?, points.parse().ok()?);
        let legal = points <= MAX_POINTS && (1..=points).contains(&number);
        legal.then_some((number, points))
    };
    let parts = label.rsplit_once(" in grid ").and_then(|(rest, grid)| {
        let (sweep, point) = rest.rsplit_once(", point ")?;
        let (number, points) = numbers(point)?;
        Some((sweep, Some((number, points, grid))))
    });
    parts.unwrap_or((label, None))
}
