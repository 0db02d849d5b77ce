//! Files that come from elsewhere, and files that a user gets.
//!
//! [`open_input`] opens what is foreign without waiting for ever, [`printable`] shows foreign
//! names. [`output`] writes files that are whole or as they were before, whatever ends the program.
#![forbid(unsafe_code)]

mod input;
pub mod output;

pub use input::{open_input, printable, toml_message};
