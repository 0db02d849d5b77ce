//! Arrays of images, `[images, C, H, W]` or `[C, H, W]`, or of vectors, `[vectors, values]`, read one
//! by one.

use std::io::Read;
use std::path::Path;

use vta_compiler::graph::{self, Data};

use super::npy::{self, Array, Element, Store, Stream};
use super::picture::Pixels;
use crate::error::{Context, Error, Result, bail_input as bail, ensure_input as ensure};
use crate::open::preprocess::not_finite;

/// The largest image of an array, in values.
const MAX_VALUES: usize = 150_000_000;
/// Bytes that are held of an array whose images don't lie one after the other.
const BLOCK_BYTES: usize = 32 << 20;

/// The images of an array, with labels if the file has any.
#[derive(Clone, Debug)]
pub struct ImageArray {
    array: Array,
    /// How many there are.
    pub count: usize,
    chw: [usize; 3],
    /// None, or one for each image.
    labels: Option<Vec<usize>>,
}

impl ImageArray {
    /// The images of an npy file.
    ///
    /// # Errors
    /// No regular file, an array of another shape or type; each names the file.
    pub fn of_npy(path: &Path) -> Result<Self> {
        let array = Array::of_npy(path)?;
        Self::new(array, None).with_context(|| path.display().to_string())
    }

    /// The array `images` of an npz file, and the array `labels` if there is one.
    ///
    /// # Errors
    /// No regular file, no such array, arrays of another shape or type.
    pub fn of_npz(store: &Store) -> Result<Self> {
        let mut arrays = npy::arrays(store)?;
        let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
        let mut take = |name: &str| -> Result<Option<Array>> {
            let Some(at) = arrays.iter().position(|(known, _)| known == name) else {
                return Ok(None);
            };
            let (_, array) = arrays.swap_remove(at);
            array.map(Some).with_context(|| format!("array '{name}'"))
        };
        let (labels, images) = (take("labels")?, take("images")?);
        let images = images.with_context(|| {
            let names = names.join(", ");
            format!("the file has no array 'images' (it has {names})")
        })?;
        Self::new(images, labels)
    }

    /// Rows of values `[images, ..]` as images of one row and column.
    ///
    /// # Errors
    /// An array of another shape.
    pub fn of_rows(mut rows: Array) -> Result<Self> {
        let shape = rows.shape.clone();
        let [images, ref values @ ..] = shape[..] else {
            bail!("logits of shape {shape:?}, not [images, values]");
        };
        let width = values.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let wide = || format!("logits of shape {shape:?}: too many values");
        rows.shape = vec![images, width.with_context(wide)?, 1, 1];
        Self::new(rows, None)
    }

    fn new(array: Array, labels: Option<Array>) -> Result<Self> {
        let (count, chw) = match array.shape[..] {
            [n, c, h, w] => (n, [c, h, w]),
            [c, h, w] => (1, [c, h, w]),
            [n, values] => (n, [values, 1, 1]),
            // Whoever knows the network says what it means.
            [n, ref rest @ ..] => (n, plane(rest)),
            [] => (1, [1, 1, 1]),
        };
        check(&array.shape, chw)?;
        let labels = labels.map(|labels| integers(&labels, count).context("array 'labels'"));
        Ok(Self {
            array,
            count,
            chw,
            labels: labels.transpose()?,
        })
    }

    /// Divides the array into images of some dimensions, where it has these, whatever dimensions of
    /// 1 there are beside them.
    ///
    /// # Errors
    /// Images of too many values, or labels for another number of images.
    pub fn shape(&mut self, image: &[usize]) -> Result<()> {
        let wide = |shape: &[usize]| -> Vec<usize> {
            shape.iter().copied().filter(|&side| side != 1).collect()
        };
        let shape = &self.array.shape;
        let (count, chw) = match shape.split_first() {
            Some((&n, rest)) if wide(rest) == wide(image) => (n, plane(image)),
            _ if wide(shape) == wide(image) => (1, plane(image)),
            _ => {
                ensure!(
                    (2..=4).contains(&shape.len()),
                    "an array of shape {shape:?}, and the network takes {image:?}"
                );
                return Ok(());
            }
        };
        check(shape, chw)?;
        if let Some(labels) = &self.labels {
            let labels = labels.len();
            ensure!(labels == count, "{labels} labels for {count} images");
        }
        (self.count, self.chw) = (count, chw);
        Ok(())
    }

    /// Values of an image.
    pub fn values(&self) -> usize {
        self.chw.iter().product()
    }

    /// The images from the first.
    ///
    /// # Errors
    /// When the file can't be read any more.
    pub fn images(&self) -> Result<Images<'_>> {
        let source = if self.array.fortran && self.count > 1 {
            Rows::Blocks {
                first: 0,
                images: Vec::new(),
            }
        } else {
            Rows::InOrder(self.array.values()?)
        };
        Ok(Images {
            array: self,
            next: 0,
            source,
        })
    }

    /// The bytes of some images that lie across the whole array: the first index runs fastest.
    fn block(&self, first: usize, count: usize) -> Result<Vec<Vec<u8>>> {
        let [c, h, w] = self.chw;
        let size = self.array.element.bytes;
        let mut images = vec![vec![0; self.values() * size]; count];
        let mut data = self.array.values()?;
        let mut run = vec![0; count * size];
        let behind = (self.count - first - count) * size;
        for x in 0..w {
            for y in 0..h {
                for channel in 0..c {
                    npy::skip(&mut data, (first * size) as u64).map_err(Error::input)?;
                    data.read_exact(&mut run).map_err(Error::input)?;
                    npy::skip(&mut data, behind as u64).map_err(Error::input)?;
                    let at = ((channel * h + y) * w + x) * size;
                    for (image, element) in images.iter_mut().zip(run.chunks_exact(size)) {
                        image[at..at + size].copy_from_slice(element);
                    }
                }
            }
        }
        Ok(images)
    }
}

/// Dimensions as channels, rows and columns.
fn plane(image: &[usize]) -> [usize; 3] {
    let product = |sides: &[usize]| {
        let all = sides.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        all.unwrap_or(usize::MAX)
    };
    match *image {
        [c, h, w] => [c, h, w],
        [c, w] => [c, 1, w],
        _ => [product(image), 1, 1],
    }
}

/// Whether an image is neither empty nor too large.
fn check(shape: &[usize], chw: [usize; 3]) -> Result<()> {
    let values = chw
        .iter()
        .try_fold(1usize, |all, &side| all.checked_mul(side));
    let values = values.unwrap_or(usize::MAX);
    ensure!(values > 0, "an array of shape {shape:?} holds no pixel");
    ensure!(
        values <= MAX_VALUES,
        "images of {values} values; images up to {MAX_VALUES} values are read"
    );
    Ok(())
}

/// The integers of a list of labels.
fn integers(labels: &Array, images: usize) -> Result<Vec<usize>> {
    let shape = &labels.shape;
    ensure!(
        shape.iter().product::<usize>() == images && shape.len() == 1,
        "labels of shape {shape:?} for {images} images"
    );
    let element = &labels.element;
    ensure!(!element.is_float(), "labels are integers, not floats");
    let mut data = labels.values()?;
    let mut found = Vec::new();
    let mut bytes = vec![0; 4096 * element.bytes];
    while found.len() < images {
        let some = (images - found.len()).min(4096) * element.bytes;
        data.read_exact(&mut bytes[..some]).map_err(Error::input)?;
        for label in element.integers(&bytes[..some]) {
            let at = found.len();
            let label = usize::try_from(label);
            found.push(
                label
                    .ok()
                    .with_context(|| format!("the label of image {at} is no class"))?,
            );
        }
    }
    Ok(found)
}

/// Images of an array, one after the other.
pub struct Images<'a> {
    array: &'a ImageArray,
    next: usize,
    source: Rows,
}

/// How images are got.
enum Rows {
    /// They lie one after the other.
    InOrder(Stream),
    /// They lie across the array, which is read once for each block of them.
    Blocks { first: usize, images: Vec<Vec<u8>> },
}

/// An image of an array, as it lies in the file.
#[derive(Clone, Debug)]
pub struct RawImage {
    /// Its number in the array.
    pub index: usize,
    /// Channels, rows, columns.
    pub chw: [usize; 3],
    /// The true class, where the file says it.
    pub label: Option<usize>,
    element: Element,
    fortran: bool,
    bytes: Vec<u8>,
}

impl Images<'_> {
    /// The next image; `None` behind the last.
    ///
    /// # Errors
    /// A file that can't be read, ends early or is damaged.
    pub fn next_image(&mut self) -> Result<Option<RawImage>> {
        let Self {
            array,
            next,
            source,
        } = self;
        let index = *next;
        if index == array.count {
            return Ok(None);
        }
        let size = array.values() * array.array.element.bytes;
        let bytes = match source {
            Rows::InOrder(data) => {
                let mut bytes = vec![0; size];
                let read = data.read_exact(&mut bytes).map_err(Error::input);
                read.with_context(|| format!("image {index}"))?;
                bytes
            }
            Rows::Blocks { first, images } => {
                if index >= *first + images.len() {
                    let count = (BLOCK_BYTES / size).clamp(1, array.count - index);
                    *images = array.block(index, count)?;
                    *first = index;
                }
                std::mem::take(&mut images[index - *first])
            }
        };
        *next += 1;
        Ok(Some(RawImage {
            index,
            chw: array.chw,
            label: array.labels.as_ref().map(|labels| labels[index]),
            element: array.array.element.clone(),
            // Blocks are put in order already.
            fortran: array.array.fortran && array.count == 1,
            bytes,
        }))
    }
}

impl RawImage {
    /// Its values as whole numbers of a type, so many of them, in the order of the dimensions.
    ///
    /// # Errors
    /// Floats, a number that the type doesn't hold, another number of values.
    pub fn integers(self, element: graph::Element, count: usize) -> Result<Data> {
        let [c, h, w] = self.chw;
        let index = self.index;
        let name = element.name();
        ensure!(
            !self.element.is_float(),
            "image {index}: floats, but the network takes {name} here"
        );
        ensure!(
            c * h * w == count,
            "image {index}: {} values, but the network takes {count} here",
            c * h * w
        );
        let wide = self.element.integers(&self.bytes).map(i64::try_from);
        let wide: Vec<i64> = wide.collect::<Result<_, _>>()?;
        let wrong = |value: i64| Error::input(format!("image {index}: {value} is no {name}"));
        Data::of_integers(element, &self.in_order(wide)).map_err(wrong)
    }

    /// Its values: integers are pixels, floats are ready.
    ///
    /// # Errors
    /// A float that is not finite, an integer that is no pixel; each names where it is.
    pub fn decode(self) -> Result<Pixels> {
        let [c, h, w] = self.chw;
        // Where the value stands that is at this place of the bytes.
        let place = |at: usize| {
            if self.fortran {
                [at % c, at / c % h, at / (c * h)]
            } else {
                [at / (h * w), at / w % h, at % w]
            }
        };
        let wrong = |at: usize, value: &dyn std::fmt::Display, rule: &str| {
            let ([c, y, x], index) = (place(at), self.index);
            format!("image {index}: {value} in channel {c}, row {y}, column {x}; {rule}")
        };
        if self.element.is_float() {
            let values = self.element.reals(&self.bytes);
            if let Some(at) = not_finite(&values) {
                let rule = "values must be finite, and fit 32 bits";
                let value = self.element.floats(&self.bytes).nth(at);
                bail!("{}", wrong(at, &value.unwrap_or(f64::NAN), rule));
            }
            return Ok(Pixels::Ready(self.in_order(values)));
        }
        let mut pixels = Vec::with_capacity(c * h * w);
        for (at, value) in self.element.integers(&self.bytes).enumerate() {
            let rule = "integers are pixels, from 0 to 255";
            let pixel = u8::try_from(value).ok();
            pixels.push(pixel.with_context(|| wrong(at, &value, rule))?);
        }
        Ok(Pixels::Planar(self.in_order(pixels)))
    }

    /// Values as `[C][H][W]`.
    fn in_order<T: Copy>(&self, values: Vec<T>) -> Vec<T> {
        if !self.fortran {
            return values;
        }
        let [c, h, w] = self.chw;
        let at = |i: usize| values[i / (h * w) + c * (i / w % h + h * (i % w))];
        (0..c * h * w).map(at).collect()
    }
}
