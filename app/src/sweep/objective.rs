//! What machines are compared by, and the machines that no other one beats.

use std::str::FromStr;

use super::row::{Measured, Row};
use crate::error::Error;
use crate::options::names::{OBJECTIVE, said};

/// A figure that is to be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Cycles an image.
    Cycles,
    /// Microjoules an image, an estimate.
    Energy,
    /// Square millimetres, an estimate.
    Area,
    /// Milliseconds an image, by the machine's clock.
    Time,
    /// Bytes an image over the memory bus.
    Dram,
}

impl Objective {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Cycles,
        Self::Energy,
        Self::Area,
        Self::Time,
        Self::Dram,
    ];

    /// What it is called on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Energy => "energy",
            Self::Area => "area",
            Self::Time => "time",
            Self::Dram => "dram",
        }
    }

    /// In a heading.
    pub(super) const fn short(self) -> &'static str {
        match self {
            Self::Cycles => "cycles an image",
            Self::Energy => "energy an image",
            Self::Area => "area",
            Self::Time => "time of an image",
            Self::Dram => "bytes an image",
        }
    }

    /// The axis of a picture.
    pub(super) const fn axis(self) -> &'static str {
        match self {
            Self::Cycles => "cycles an image",
            Self::Energy => "energy an image in µJ (45 nm: operations, scratchpads, DRAM)",
            Self::Area => "area proxy in mm² (45 nm: MACs, ALU lanes, scratchpads, bus)",
            Self::Time => "milliseconds an image",
            Self::Dram => "bytes an image over the memory bus",
        }
    }

    /// With its unit.
    pub(super) fn told(self, measured: &Measured) -> String {
        let value = self.of(measured);
        match self {
            Self::Cycles => format!("{value:.0} cycles"),
            Self::Energy => format!("{value:.0} µJ"),
            Self::Area => format!("{value:.2} mm²"),
            Self::Time => format!("{value:.3} ms"),
            Self::Dram => format!("{value:.0} bytes"),
        }
    }

    /// The figure of a machine.
    pub fn of(self, measured: &Measured) -> f64 {
        let an_image = |pass: f64| pass / measured.images.max(1) as f64;
        match self {
            Self::Cycles => measured.cycles_per_image(),
            Self::Energy => an_image(measured.energy_uj),
            Self::Area => measured.area_mm2,
            Self::Time => an_image(measured.pass_ms),
            Self::Dram => an_image(measured.dram_bytes as f64),
        }
    }
}

impl FromStr for Objective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|one| one.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Usage(said!("{} {}: there are {}"; OBJECTIVE, text, names))
        })
    }
}

/// Rows that no other row beats: none is at least as good in all objectives. Of equal ones the first counts. They are
/// indices into `rows`, by the first objective, those that are equal in it by the next.
pub fn front(rows: &[Row], objectives: &[Objective]) -> Vec<usize> {
    let values = |m: &Measured| objectives.iter().map(|o| o.of(m)).collect();
    let measured = rows.iter().enumerate();
    let mut order: Vec<(usize, Vec<f64>)> = measured
        .filter_map(|(i, row)| Some((i, values(row.outcome.as_ref().ok()?))))
        .collect();
    order.sort_by(|(i, a), (j, b)| {
        let mut both = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
        both.find(|o| o.is_ne()).unwrap_or_else(|| i.cmp(j))
    });
    // What beats a row stands before it, or is beaten by one that does.
    let mut kept: Vec<(usize, Vec<f64>)> = Vec::new();
    for (at, values) in order {
        let beats = |(_, other): &(usize, Vec<f64>)| other.iter().zip(&values).all(|(o, v)| o <= v);
        if !kept.iter().any(beats) {
            kept.push((at, values));
        }
    }
    kept.into_iter().map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests;
