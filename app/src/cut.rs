//! The part of a model between named values.

use std::path::{Path, PathBuf};

use vta_compiler::onnx::{self, CutError, Part, ReadOptions};

use crate::error::{Context, Result, bail, ensure};
use crate::files;
use crate::options::{InputShape, hints};
use crate::room;

/// What is cut, and where.
#[derive(Clone, Debug, Default)]
pub struct CutOptions {
    /// An ONNX file, or the name of ONNX in memory.
    pub model: PathBuf,
    /// Values that the part begins at; without any it is those inputs of the model that it needs.
    pub inputs: Vec<String>,
    /// Values that it ends at; without any the model's outputs.
    pub outputs: Vec<String>,
    /// Shapes of inputs that the file leaves open.
    pub input_shape: Vec<InputShape>,
}

/// Cuts an ONNX file, or `onnx`, which the options' `model` names.
///
/// # Errors
/// [`crate::Error::Io`] for a file that can't be read, [`crate::Error::Usage`] for names that no value has and inputs
/// that don't determine the outputs, [`crate::Error::Model`] for what is no model.
pub fn cut(options: &CutOptions, onnx: Option<Vec<u8>>) -> Result<Part> {
    let name = || options.model.display().to_string();
    let folder = onnx.is_none().then(|| hints::folder(&options.model));
    let bytes = match onnx {
        Some(bytes) => bytes,
        None => files::read_file(&options.model)?,
    };
    ensure!(!bytes.is_empty(), "{}: the file is empty", name());
    // The message, its part, and what is read of both.
    room::ask(4 * bytes.len() as u64, name)?;
    let read = ReadOptions {
        shapes: options
            .input_shape
            .iter()
            .map(|s| (s.name.clone(), s.shape.clone()))
            .collect(),
        folder: folder.map(Path::as_ref),
        ask: &|bytes| room::ask(3 * bytes, name).map_err(|e| e.to_string()),
    };
    match onnx::cut(bytes, &options.inputs, &options.outputs, &read) {
        Ok(part) => Ok(part),
        Err(CutError::Onnx(error)) => Err(error).with_context(name),
        Err(CutError::Unknown {
            name: asked,
            values,
        }) => {
            let meant = hints::did_you_mean(&asked, values.iter().map(String::as_str));
            bail!(
                "{}: the model has no value '{}'{}",
                name(),
                vta_files::printable(&asked),
                meant
            )
        }
        Err(error) => bail!("{}: {}", name(), vta_files::printable(&error.to_string())),
    }
}
