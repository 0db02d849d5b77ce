//! What designs took, and how that compares with the cycle model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// What designs are compared with.
pub(super) const AGAINST: &str = "cycle";

/// What was found of all runs so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Runs.
    pub batches: u64,
    /// Of the design's counter.
    pub cycles: u64,
    /// Of the cycle model, where the design is compared with it.
    pub compared_cycles: Option<u64>,
    /// Runs whose cycles differ, a line each as far as they are kept.
    pub differences: Vec<String>,
    /// All runs whose cycles differ.
    pub differing: u64,
}

/// Shared by a design's device and who asks.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Totals>>);

impl Log {
    pub fn lock(&self) -> MutexGuard<'_, Totals> {
        // Totals are added whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    /// As one object.
    pub fn json(&self) -> Value {
        let mut object = json!({"batches": self.batches, "cycles": self.cycles});
        if let Some(cycles) = self.compared_cycles {
            object["against"] = json!({
                "device": AGAINST,
                "cycles": cycles,
                "differing_batches": self.differing,
                "differences": self.differences,
            });
        }
        object
    }

    /// In a few lines.
    pub fn text(&self) -> String {
        let (batches, cycles) = (self.batches, self.cycles);
        let plural = if batches == 1 { "batch" } else { "batches" };
        let mut text = format!("{cycles} cycles by the design's counter, {batches} {plural}\n");
        let Some(model) = self.compared_cycles else {
            return text;
        };
        if self.differing == 0 {
            text.push_str(&format!("every byte and every cycle is {AGAINST}'s\n"));
            return text;
        }
        let more = 100.0 * (cycles as f64 / model.max(1) as f64 - 1.0);
        text.push_str(&format!(
            "every byte is {AGAINST}'s; {} of {batches} {plural} take other cycles: {cycles}, by {AGAINST} \
             {model} ({more:+.2} %)\n",
            self.differing
        ));
        for line in &self.differences {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }
}
