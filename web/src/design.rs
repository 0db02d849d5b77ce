//! Machines: one at a time as sliders choose them, and those that a search chooses.

use serde_json::{Map, Value, json};
use vta_app::sweep::{Best, Explorer, Row, Sweeper, Walk, Workload};
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

/// A search for machines that no other one beats.
#[wasm_bindgen]
pub struct Exploration {
    explorer: Explorer,
    wanted: Vec<usize>,
}

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
        let explorer = explorer.map_err(|e| said(&e))?;
        Ok(Self {
            explorer,
            wanted: Vec::new(),
        })
    }

    /// Measures the next machine; `undefined` when the search is over.
    ///
    /// # Errors
    /// As [`Design::measure`].
    pub fn step(&mut self) -> Result<Option<String>, JsError> {
        if self.wanted.is_empty() {
            self.wanted = self.explorer.next_points();
            self.wanted.reverse();
        }
        let Some(point) = self.wanted.pop() else {
            return Ok(None);
        };
        let row = self
            .explorer
            .sweeper()
            .measure(point)
            .map_err(|e| said(&e))?;
        self.explorer.tell(point, row.outcome.clone());
        let keys = self.explorer.keys();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Ok(Some(row_json(&keys, &row).to_string()))
    }

    /// The machines that no other one beats so far.
    ///
    /// # Errors
    /// Never: nothing cancels.
    pub fn front(&self) -> Result<String, JsError> {
        let best = self.explorer.best(&()).map_err(|e| said(&e))?;
        let keys = self.explorer.keys();
        let rows: Vec<Map<String, Value>> = best.iter().map(|b: &Best| b.json(&keys)).collect();
        Ok(json!(rows).to_string())
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
