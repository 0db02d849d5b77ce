//! `vta-web-bindings MODULE FOLDER`: the module as a page loads it, and its JavaScript.

use std::env::args;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, module, folder] = &args().collect::<Vec<_>>()[..] else {
        return Err("usage: vta-web-bindings MODULE FOLDER".into());
    };
    let mut bindings = Bindgen::new();
    bindings.input_path(module).web(true)?.typescript(true);
    bindings
        .remove_name_section(true)
        .remove_producers_section(true);
    Ok(bindings.generate(folder)?)
}
