//! From a quantised model to a program bundle.

use std::path::Path;

use vta_driver::{FlatCut, flat_image};
use vta_files::output;

use crate::compile::Compiled;
use crate::error::{Error, Result, ensure};
use crate::files;
use crate::open::{Model, Preprocess};
use crate::options::Target;
use crate::options::names::{ALLOW_HOST, FLAT};
use crate::watch::Watch;

impl Compiled {
    /// Writes its bundle, whole or not at all, or to the standard output for `-`; its bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network over several devices, [`Error::Model`] for what no bundle can hold,
    /// [`Error::Io`] for what can't be written.
    pub fn save(&self, path: &Path) -> Result<u64> {
        self.with_bundle(|image| {
            output::write_with(path, |out| image.write_to(out))?;
            Ok(image.size_bytes())
        })
    }

    /// Writes it as a flat image for controllers without an operating system, as [`Self::save`]
    /// writes bundles; its bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network over several devices, or of which the host computes a part,
    /// [`Error::Model`] for what no flat image can hold, [`Error::Io`] for what can't be written.
    pub fn save_flat(&self, path: &Path, cut: FlatCut) -> Result<u64> {
        let host_ops = self.host_ops();
        ensure!(
            host_ops == 0,
            "{}: the host would compute {} operators, but a controller has no host: \
             compile without {} to see which, and let the model end before them";
            FLAT, host_ops, ALLOW_HOST
        );
        let programs = self.programs().len();
        ensure!(
            programs == 1,
            "{}: an image is for one device, the network runs on {}";
            FLAT, programs
        );
        let image = flat_image(&*self.device_program()?, cut)?;
        output::write(path, &image)?;
        Ok(image.len() as u64)
    }
}

/// Compiles a network for a machine. The bundle knows the recipe for images and the model's name,
/// not its path: the same model gives the same bytes wherever it lies.
///
/// # Errors
/// [`Error::Float`] for a float model, [`Error::Usage`] for one that is compiled already,
/// [`Error::Model`] for what can't be lowered, [`Error::Cancelled`] when `watch` says so.
pub fn bundle(name: &str, target: &Target, watch: &dyn Watch) -> Result<Compiled> {
    of_model(target.open(name, None)?, target, watch)
}

/// As [`bundle()`], of a model that is open: shapes and scales are what they are.
///
/// # Errors
/// As for [`bundle()`].
pub fn of_model(model: Model, target: &Target, watch: &dyn Watch) -> Result<Compiled> {
    Ok(Compiled {
        // No comparison needs it.
        graph: None,
        ..compiled(model, target, watch)?
    })
}

/// As [`of_model`], and it still knows its network.
pub(crate) fn compiled(mut model: Model, target: &Target, watch: &dyn Watch) -> Result<Compiled> {
    ensure!(!model.is_compiled(), "{} is compiled already", model.name());
    if model.is_float() {
        return Err(Error::Float(model.name().to_owned()));
    }
    let stated = model.metadata().get("preprocess");
    let preprocess = Preprocess::choose(&target.preprocess, stated, watch)?;
    model.tell("preprocess", preprocess.to_json());
    model.tell("model", files::name(model.name()));
    model.compile(target, watch)
}
