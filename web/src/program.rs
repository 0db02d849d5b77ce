//! Programs written by hand: run as `vta exec` does, or stepped.

use serde_json::json;
use vta_app::options::RunOptions;
use vta_app::run::exec_text;
use vta_app::run::steps::{self, Steps};
use wasm_bindgen::prelude::*;

use crate::{said, target};

/// The first fault of a text as `{"line", "words"}`; `undefined` where it is a program.
#[wasm_bindgen]
pub fn fault(text: &str) -> Option<String> {
    let (line, words) = steps::fault(text)?;
    Some(json!({"line": line, "words": words}).to_string())
}

/// Runs a program on the device of a target: what `vta exec --json` prints.
///
/// # Errors
/// As `vta exec`.
#[wasm_bindgen]
pub fn exec(name: &str, text: &str, machine: &str) -> Result<String, JsError> {
    let mut options = RunOptions::new(name);
    options.target = target(machine)?;
    let done = exec_text(&options, text).map_err(|e| said(&e))?;
    Ok(done.json().to_string())
}

/// A program at one of its cycles.
#[wasm_bindgen]
pub struct Program(Steps);

#[wasm_bindgen]
impl Program {
    /// Times a program.
    ///
    /// # Errors
    /// As [`Steps::open`].
    #[wasm_bindgen(constructor)]
    pub fn open(text: &str, machine: &str) -> Result<Self, JsError> {
        let steps = Steps::open(text, &target(machine)?);
        steps.map(Self).map_err(|e| said(&e))
    }

    /// [`Steps::overview`].
    ///
    /// # Errors
    /// As there.
    pub fn overview(&self) -> Result<String, JsError> {
        let overview = self.0.overview().map_err(|e| said(&e))?;
        Ok(overview.to_string())
    }

    /// [`Steps::state`]; a negative cycle is before the first.
    pub fn state(&mut self, cycle: f64) -> String {
        let cycle = (cycle >= 0.0).then_some(cycle as u64);
        self.0.state(cycle).to_string()
    }
}
