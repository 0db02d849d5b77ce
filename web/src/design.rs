//! Machines: one at a time as sliders choose them, and those that a search chooses.

use serde_json::{Map, Value, json};
use vta_app::sweep::{Explorer, Row, Sweeper, Walk, Workload};
use wasm_bindgen::prelude::*;

use crate::{Tab, said, target};

/// A network on any machine of a grid.
#[wasm_bindgen]
pub struct Design(Sweeper);

#[wasm_bindgen]
impl Design {
    /// Reads a network by name and the axes, `KEY=V1,V2,..` each in a line.
    ///
    /// # Errors
    /// A network that isn't there, an axis of another form.
    #[wasm_bindgen(constructor)]
    pub fn open(network: &str, axes: &str, machine: &str) -> Result<Self, JsError> {
        let work = Workload::from(vec![network.to_owned()]);
        let sweeper = Sweeper::open(&work, &lines(axes), &target(machine)?, &Tab);
        sweeper.map(Self).map_err(|e| said(&e))
    }

    /// How many machines there are.
    pub fn points(&self) -> usize {
        self.0.points()
    }

    /// Compiles and times the network on a machine of the grid: its figures, or `error`.
    ///
    /// # Errors
    /// An index that no machine has.
    pub fn measure(&self, point: usize) -> Result<String, JsError> {
        let row = self.0.measure(point).map_err(|e| said(&e))?;
        let keys = self.0.point(point).map_err(|e| said(&e))?;
        let keys: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
        Ok(row_json(&keys, &row).to_string())
    }
}

/// A search for machines that no other one beats. Several workers open the same one: one of them asks which machines
/// are wanted and is told of them, all may measure.
#[wasm_bindgen]
pub struct Exploration(Explorer);

#[wasm_bindgen]
impl Exploration {
    /// Of at most so many machines.
    ///
    /// # Errors
    /// As [`Design::open`].
    #[wasm_bindgen(constructor)]
    pub fn open(network: &str, axes: &str, machine: &str, most: usize) -> Result<Self, JsError> {
        let work = Workload::from(vec![network.to_owned()]);
        let walk = Walk {
            points: most,
            ..Walk::default()
        };
        let explorer = Explorer::open(&work, &lines(axes), &target(machine)?, &walk, &Tab);
        explorer.map(Self).map_err(|e| said(&e))
    }

    /// The machines that are wanted next, a list; an empty one when the search is over. All must be told before it is
    /// asked again.
    pub fn wanted(&mut self) -> String {
        json!(self.0.next_points()).to_string()
    }

    /// Measures a machine.
    ///
    /// # Errors
    /// As [`Design::measure`].
    pub fn measure(&self, point: usize) -> Result<String, JsError> {
        let row = self.0.sweeper().measure(point).map_err(|e| said(&e))?;
        let keys = self.0.keys();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Ok(row_json(&keys, &row).to_string())
    }

    /// Tells what [`Self::measure`] gave.
    ///
    /// # Errors
    /// A text that isn't what it gave.
    pub fn tell(&mut self, point: usize, measured: &str) -> Result<(), JsError> {
        let mut row: Value = serde_json::from_str(measured)?;
        let outcome = match row["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(serde_json::from_value(row["figures"].take())?),
        };
        self.0.tell(point, outcome);
        Ok(())
    }
}

fn lines(axes: &str) -> Vec<String> {
    axes.lines().map(str::to_owned).collect()
}

fn row_json(keys: &[&str], row: &Row) -> Value {
    let point = keys.iter().zip(&row.values);
    let point: Map<String, Value> = point.map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    match &row.outcome {
        Ok(measured) => json!({"point": point, "figures": measured.figures()}),
        Err(error) => json!({"point": point, "error": error}),
    }
}
