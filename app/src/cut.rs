//! The part of a model between named values.

use std::collections::BTreeMap;
use std::path::Path;

use vta_compiler::onnx::{self, CutError, Part, ReadOptions};

use crate::error::{Context, Result, bail, ensure};
use crate::files;
use crate::options::hints;
use crate::room;

/// Where a model is cut.
#[derive(Clone, Debug, Default)]
pub struct CutOptions {
    /// Values that the part begins at; without any it is those inputs of the model that it needs.
    pub inputs: Vec<String>,
    /// Values that it ends at; without any the model's outputs.
    pub outputs: Vec<String>,
    /// Shapes of inputs that the file leaves open.
    pub shapes: BTreeMap<String, Vec<usize>>,
}

/// Cuts an ONNX file, or `onnx`, which `model` names.
///
/// # Errors
/// [`crate::Error::Io`] for a file that can't be read, [`crate::Error::Usage`] for names that no value has and inputs
/// that don't determine the outputs, [`crate::Error::Model`] for what is no model.
pub fn cut(model: &Path, onnx: Option<Vec<u8>>, options: CutOptions) -> Result<Part> {
    let name = || model.display().to_string();
    let folder = onnx.is_none().then(|| hints::folder(model));
    let bytes = match onnx {
        Some(bytes) => bytes,
        None => files::read_file(model)?,
    };
    ensure!(!bytes.is_empty(), "{}: the file is empty", name());
    // The message, its part, and what is read of both.
    room::ask(4 * bytes.len() as u64, name)?;
    let CutOptions {
        inputs,
        outputs,
        shapes,
    } = options;
    let read = ReadOptions {
        shapes,
        folder,
        ask: &|bytes| room::ask(3 * bytes, name).map_err(|e| e.to_string()),
    };
    match onnx::cut(bytes, &inputs, &outputs, &read) {
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
