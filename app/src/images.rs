//! Images from files: photos, folders of them, npy and npz arrays.

mod array;
mod header;
mod npy;
#[cfg_attr(not(feature = "images"), path = "absent/photo.rs")]
mod photo;
mod picture;
mod samples;
mod source;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::array::ImageArray;
use self::npy::{Array, Store};
use crate::error::{Context, Result, bail_input as bail};

pub(crate) use self::header::Header;
pub(crate) use self::picture::Pixels;
pub use self::picture::{Picture, fit};
pub use self::samples::default_images;
pub(crate) use self::samples::has_images;
pub(crate) use self::source::{Item, Reader, Source, is_image};

/// The first image of a file or folder.
///
/// # Errors
/// A path that can't be read, or holds no image; an image that is damaged.
pub fn open(path: &Path) -> Result<Picture> {
    let source = Source::open(&[path.to_owned()], Some(1))?;
    let item = source.reader().next_item()?;
    item.context("there is no image")?.decode()
}

/// A photo in memory, upright.
///
/// # Errors
/// Bytes that are no photo, or a damaged or too large one.
pub fn of_photo(name: &str, bytes: &[u8]) -> Result<Picture> {
    let photo = photo::decode(bytes).with_context(|| name.to_owned())?;
    let [h, w] = photo.hw;
    Ok(Picture {
        name: name.to_owned(),
        chw: [3, h, w],
        label: None,
        pixels: Pixels::Interleaved(photo.rgb),
    })
}

/// Images of an npz in memory.
///
/// # Errors
/// Bytes that are no such archive.
fn of_npz(bytes: &'static [u8]) -> Result<Vec<Picture>> {
    let array = ImageArray::of_npz(&Store::Memory(bytes))?;
    let mut images = array.images()?;
    let mut pictures = Vec::with_capacity(array.count);
    while let Some(image) = images.next_image()? {
        pictures.push(Picture {
            name: format!("#{}", image.index),
            chw: image.chw,
            label: image.label,
            pixels: image.decode()?,
        });
    }
    Ok(pictures)
}

/// The best classes of another runtime's logits `[images, values]`, of images in order: the first
/// of equal ones. `FILE.npy` or `FILE.npz:ARRAY`.
///
/// # Errors
/// No such file or array, one of another shape or type, values that aren't finite.
pub(crate) fn best_classes(spec: &str) -> Result<Vec<usize>> {
    let (path, name) = match spec.rsplit_once(".npz:") {
        Some((path, name)) => (format!("{path}.npz"), Some(name)),
        None => (spec.to_owned(), None),
    };
    let array = if path.ends_with(".npy") {
        Array::of_npy(Path::new(&path))?
    } else {
        member(&path, name)?
    };
    let best = || -> Result<Vec<usize>> {
        let rows = ImageArray::of_rows(array)?;
        let (mut images, mut best) = (rows.images()?, Vec::with_capacity(rows.count));
        while let Some(row) = images.next_image()? {
            let Pixels::Ready(values) = row.decode()? else {
                bail!("logits must be floats");
            };
            best.push(first_largest(&values));
        }
        Ok(best)
    };
    best().with_context(|| spec.to_owned())
}

/// An array of an npz file: the one that is named, else the only one.
fn member(path: &str, name: Option<&str>) -> Result<Array> {
    let store = Store::File(path.into());
    let mut arrays = npy::arrays(&store).with_context(|| path.to_owned())?;
    let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
    let listed = names.join(", ");
    let at = match (name, &names[..]) {
        (Some(name), _) => names.iter().position(|known| known == name),
        (None, [_]) => Some(0),
        (None, _) => bail!("{path} has several arrays; write {path}:ARRAY (one of {listed})"),
    };
    let at = at.with_context(|| {
        let name = name.unwrap_or_default();
        format!("{path} has no array '{name}' (it has {listed})")
    })?;
    let (name, array) = arrays.swap_remove(at);
    array.with_context(|| format!("{path}:{name}"))
}

/// The index of the largest value, the first of equal ones.
pub fn first_largest(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}
