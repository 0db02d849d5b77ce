//! From a quantised model to a program bundle.

use std::path::Path;
use std::sync::Arc;

use vta_driver::{FlatCut, Program, flat_image};
use vta_files::output;

use crate::compile::Compiled;
use crate::error::{Error, Result, ensure};
use crate::files;
use crate::open::{Model, Preprocess};
use crate::options::BundleOptions;
use crate::options::names::{ALLOW_HOST, FLAT};
use crate::watch::Watch;

/// A compiled network that a file can hold.
pub struct Bundle {
    pub(crate) compiled: Compiled,
    /// What the device runs of it.
    pub program: Arc<Program>,
    /// Operators that the host computes.
    pub host_ops: usize,
}

impl Bundle {
    /// The bytes of the file.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network over several devices, [`Error::Model`] for what no bundle can hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.compiled.to_bundle()
    }

    /// Writes the file, whole or not at all, or to the standard output for `-`; its bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network over several devices, [`Error::Model`] for what no bundle can hold,
    /// [`Error::Io`] for what can't be written.
    pub fn save(&self, path: &Path) -> Result<u64> {
        self.compiled.with_bundle(|image| {
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
        ensure!(
            self.host_ops == 0,
            "{}: the host would compute {} operators, but a controller has no host: \
             compile without {} to see which, and let the model end before them";
            FLAT, self.host_ops, ALLOW_HOST
        );
        let programs = self.compiled.programs().len();
        ensure!(
            programs == 1,
            "{}: an image is for one device, the network runs on {}";
            FLAT, programs
        );
        let image = flat_image(&self.program, cut)?;
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
pub fn bundle(args: &BundleOptions, watch: &dyn Watch) -> Result<Bundle> {
    of_model(args.network().open(&args.model, None)?, args, watch)
}

/// As [`bundle()`], of a model that is open: the options' `model` names it, and shapes are what they are.
///
/// # Errors
/// As for [`bundle()`].
pub fn of_model(model: Model, args: &BundleOptions, watch: &dyn Watch) -> Result<Bundle> {
    let mut bundle = compiled(model, args, watch)?;
    // No comparison needs it.
    bundle.compiled.graph = None;
    Ok(bundle)
}

/// A bundle that knows its network.
pub(crate) fn compiled(
    mut model: Model,
    args: &BundleOptions,
    watch: &dyn Watch,
) -> Result<Bundle> {
    ensure!(!model.is_compiled(), "{} is compiled already", args.model);
    if let Some(requant) = args.requant {
        model.set_requant(requant);
    }
    if model.is_float() {
        return Err(Error::Float(args.model.clone()));
    }
    let stated = model.metadata().get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess, stated, watch)?;
    model.tell("preprocess", preprocess.to_json());
    model.tell("model", files::name(&args.model));
    let compiled = model.compile(&args.network().target, watch)?;
    Ok(Bundle {
        host_ops: compiled.host_ops(),
        program: compiled.device_program()?,
        compiled,
    })
}
