//! What layers took in a run, and where the time before its first results went.

use std::collections::BTreeMap;
use std::time::Duration;

use vta_driver::{RunReport, Traffic};

/// Where the time before a run's first results went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// Opening the devices, also while the network was compiled.
    pub opening: Duration,
    /// From the run's beginning until the network lay on all its devices: what was left of
    /// opening, and writing constants.
    pub loading: Duration,
    /// From the run's beginning to its first results.
    pub first: Duration,
}

/// What layers took, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(super) layers: BTreeMap<String, (Traffic, Duration)>,
    cycles: Option<u64>,
}

impl Marks {
    /// Adds the layers of a batch.
    pub fn add_report(&mut self, report: &RunReport) {
        for mark in &report.marks {
            self.add(&mark.name, &mark.traffic, mark.wall);
        }
        self.count(report.cycles);
    }

    /// What the devices' own counters said of all runs, where they have one.
    pub fn cycles(&self) -> Option<u64> {
        self.cycles
    }

    fn count(&mut self, cycles: Option<u64>) {
        if let Some(more) = cycles {
            self.cycles = Some(self.cycles.unwrap_or(0).saturating_add(more));
        }
    }

    /// Adds those of another device.
    pub fn add_all(&mut self, other: &Self) {
        for (name, (traffic, wall)) in &other.layers {
            self.add(name, traffic, *wall);
        }
        self.count(other.cycles);
    }

    fn add(&mut self, name: &str, traffic: &Traffic, wall: Duration) {
        if !self.layers.contains_key(name) {
            self.layers.insert(name.to_owned(), Default::default());
        }
        if let Some((all, time)) = self.layers.get_mut(name) {
            all.add(traffic);
            *time += wall;
        }
    }
}
