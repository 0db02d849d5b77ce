//! What the playground's worker asks for: translation between JSON and `vta-app`, nothing else.
//!
//! Machines are given as `vta_app::Target` in JSON. Errors are exceptions with the message that the command line has.
//! Built by `scripts/web` for `wasm32-unknown-unknown`; natively it is compiled only to be checked.
#![forbid(unsafe_code)]

mod design;
mod network;
mod program;

use vta_app::options::names::{Front, Said};
use vta_app::{Error, Target, Watch, message};
use wasm_bindgen::prelude::*;

pub use design::{Design, Exploration};
pub use network::{Network, Quantizer, check_model, layer};
pub use program::{Program, exec, fault};

#[wasm_bindgen]
extern "C" {
    /// Writes to the worker's console, which the page reads when the worker is gone.
    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);

    /// A function that the worker has.
    #[wasm_bindgen(js_name = vtaProgress)]
    fn progress(done: f64, all: f64);

    /// Likewise.
    #[wasm_bindgen(js_name = vtaNote)]
    fn note(text: &str);
}

/// Lets a panic say where it was before the worker ends.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| error(&info.to_string())));
}

/// The version of all crates.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Ends the module as a fault of its own does: for tests.
#[wasm_bindgen]
pub fn crash() {
    std::process::abort()
}

/// An error as JavaScript gets it.
fn said(error: &Error) -> JsError {
    JsError::new(&message(error, Front::Library))
}

fn target(json: &str) -> Result<Target, JsError> {
    serde_json::from_str(json).map_err(|error| JsError::new(&format!("the machine: {error}")))
}

/// Tells the worker how far work is. Nothing is cancelled here: the page ends the worker, and starts another.
struct Tab;

impl Watch for Tab {
    fn progress(&self, done: usize, all: usize) {
        progress(done as f64, all as f64);
    }

    fn note(&self, text: &Said) {
        note(&text.to(Front::Library));
    }
}
