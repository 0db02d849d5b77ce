//! Outputs of a run as arrays in a file.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Write};
use std::path::Path;

use vta_compiler::graph::Element;
use vta_files::output;
use zip::write::FileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::{Error, Result};
use crate::images::Header;
use crate::open::model::Tensor;
use crate::run::outcome::ImageOutcome;

/// Writes the outputs of a run, each of the model's type and dimensions with the images in front: one in the npy
/// format; several, or into a file whose name ends in .npz, by their names.
///
/// # Errors
/// When the file can't be written.
pub fn save(path: &Path, outputs: &[Tensor], images: &[ImageOutcome]) -> Result<()> {
    let archive = path.extension().is_some_and(|e| e == "npz");
    if let ([tensor], false) = (outputs, archive) {
        return Ok(output::write_with(path, |out| {
            array(out, tensor, 0, images)
        })?);
    }
    let mut file = ZipWriter::new(Cursor::new(Vec::new()));
    let mut names = BTreeSet::new();
    for (index, tensor) in outputs.iter().enumerate() {
        // Names of values may be paths; that of an entry leads nowhere else.
        let plain = tensor.name.trim_start_matches('/').replace("..", "__");
        let name = if names.insert(plain.clone()) {
            plain
        } else {
            format!("{plain}.{index}")
        };
        let stored = FileOptions::default().compression_method(CompressionMethod::Stored);
        let stored = stored.large_file(true);
        file.start_file(format!("{name}.npy"), stored)
            .map_err(Error::input)?;
        array(&mut file, tensor, index, images).map_err(Error::input)?;
    }
    let bytes = file.finish().map_err(Error::input)?.into_inner();
    Ok(output::write(path, bytes)?)
}

/// Writes an output of all images.
fn array(
    out: impl Write,
    tensor: &Tensor,
    index: usize,
    images: &[ImageOutcome],
) -> io::Result<()> {
    let dimensions = tensor.shape.iter().map(|&d| d as u64);
    let shape: Vec<u64> = std::iter::once(images.len() as u64)
        .chain(dimensions)
        .collect();
    let values = images.iter().filter_map(|image| image.outputs.get(index));
    let values = values.flatten().copied();
    // uint8 is held as int8, 128 less.
    let zero = f32::from(tensor.zero)
        + match tensor.element {
            Element::U8 => 128.0,
            Element::U16 => 32768.0,
            _ => 0.0,
        };
    let whole = |value: f32| match tensor.scale {
        Some(scale) => (value / scale + zero).round(),
        None => value,
    };
    match tensor.element {
        Element::F32 => write(out, "<f4", shape, values.map(f32::to_le_bytes)),
        Element::I8 => write(out, "|i1", shape, values.map(|v| [whole(v) as i8 as u8])),
        Element::U8 => write(out, "|u1", shape, values.map(|v| [whole(v) as u8])),
        Element::I16 => write(
            out,
            "<i2",
            shape,
            values.map(|v| (whole(v) as i16).to_le_bytes()),
        ),
        Element::U16 => write(
            out,
            "<u2",
            shape,
            values.map(|v| (whole(v) as u16).to_le_bytes()),
        ),
        Element::I32 => write(out, "<i4", shape, values.map(|v| (v as i32).to_le_bytes())),
        Element::I64 => write(out, "<i8", shape, values.map(|v| (v as i64).to_le_bytes())),
        Element::Bool => write(out, "|b1", shape, values.map(|v| [u8::from(v != 0.0)])),
    }
}

/// Writes an array of elements, each so many bytes.
fn write<const N: usize>(
    mut out: impl Write,
    descr: &str,
    shape: Vec<u64>,
    mut elements: impl Iterator<Item = [u8; N]>,
) -> io::Result<()> {
    let header = Header {
        descr: descr.to_owned(),
        fortran: false,
        shape,
    };
    out.write_all(&header.bytes())?;
    elements.try_for_each(|element| out.write_all(&element))
}
