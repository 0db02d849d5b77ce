//! Outputs of a run as arrays in a file.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

use npyz::WriterBuilder;
use vta_files::output;
use zip::write::FileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::{Error, Result};
use crate::model::Tensor;
use crate::outcome::ImageOutcome;

/// Writes the outputs of a run: one as float32 `[images, values]` in the npy format; several, or into a
/// file whose name ends in .npz, as arrays by their names, `[images, C, H, W]`, `[images, values]`, or
/// the model's dimensions behind the images for what the host gives.
///
/// # Errors
/// When the file can't be written.
pub fn save(path: &Path, outputs: &[Tensor], images: &[ImageOutcome]) -> Result<()> {
    let archive = path.extension().is_some_and(|e| e == "npz");
    if let ([_], false) = (outputs, archive) {
        let rows = images
            .iter()
            .map(|image| image.outputs.first().map_or(&[][..], Vec::as_slice));
        return save_rows(path, rows);
    }
    let mut file = ZipWriter::new(Cursor::new(Vec::new()));
    let mut names = BTreeSet::new();
    for (index, tensor) in outputs.iter().enumerate() {
        // Names of values may be paths; that of an entry leads nowhere else.
        let plain = tensor.name.trim_start_matches('/').replace("..", "__");
        let name = match names.insert(plain.clone()) {
            true => plain,
            false => format!("{plain}.{index}"),
        };
        let stored = FileOptions::default().compression_method(CompressionMethod::Stored);
        let stored = stored.large_file(true);
        file.start_file(format!("{name}.npy"), stored)
            .map_err(Error::input)?;
        let count = images.len() as u64;
        let shape: Vec<u64> = match (tensor.scale, tensor.chw) {
            (Some(_), [c, 1, 1]) => vec![count, c as u64],
            _ => {
                let dimensions = tensor.shape.iter().map(|&d| d as u64);
                std::iter::once(count).chain(dimensions).collect()
            }
        };
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&shape)
            .writer(&mut file)
            .begin_nd()
            .map_err(Error::input)?;
        let values = images.iter().filter_map(|image| image.outputs.get(index));
        writer
            .extend(values.flatten().copied())
            .map_err(Error::input)?;
        writer.finish().map_err(Error::input)?;
    }
    let bytes = file.finish().map_err(Error::input)?.into_inner();
    Ok(output::write(path, bytes)?)
}

/// Writes float32 rows `[images, values]`, all of the same length.
///
/// # Errors
/// When the file can't be written.
fn save_rows<'a>(
    path: &Path,
    rows: impl ExactSizeIterator<Item = &'a [f32]> + Clone,
) -> Result<()> {
    let width = rows.clone().next().map_or(0, <[f32]>::len);
    let shape = [rows.len() as u64, width as u64];
    Ok(output::write_with(path, |out| {
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&shape)
            .writer(out)
            .begin_nd()?;
        writer.extend(rows.flatten().copied())?;
        writer.finish()
    })?)
}
