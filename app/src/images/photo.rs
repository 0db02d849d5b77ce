//! Photos: png, jpeg, webp, bmp and tiff files.
//!
//! A file of several images (tiff) or an animation (webp) is its first image.

use std::io::{Cursor, Read};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer, ImageDecoder, ImageFormat, ImageReader, Limits};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::error::{Context, Error, Result, bail_input as bail, ensure_input as ensure, from};
use crate::files;
use crate::room;

/// The largest side of an image file, in pixels.
const MAX_SIDE: u32 = 16_384;
/// The largest image file, in pixels.
const MAX_PIXELS: u64 = 50_000_000;
/// The largest image file, in bytes: uncompressed, 16 bits and four channels.
const MAX_BYTES: u64 = MAX_PIXELS * 8 + (1 << 20);
/// Bytes that chunks of a png file may take beside those of the file: its colour profile is unpacked when it is
/// opened, and ignored where it takes more.
const MAX_UNPACKED: u64 = 8 << 20;
from!(Input: image::ImageError);

const UNREADABLE: &str = if cfg!(feature = "tiff") {
    "not a readable png, jpeg, webp, bmp or tiff image"
} else {
    "not a readable png, jpeg, webp or bmp image"
};

/// An 8-bit image, upright.
#[derive(Debug)]
pub struct Photo {
    /// Rows and columns.
    pub hw: [usize; 2],
    /// Red, green and blue of each pixel, row by row.
    pub rgb: Vec<u8>,
}

/// Reads a photo and turns it as its EXIF orientation says. What kind of file it is, its first
/// bytes say.
///
/// # Errors
/// No regular file, one of another kind or too large, a damaged or truncated one; each names the
/// file.
pub fn read(path: &Path) -> Result<Photo> {
    let file = files::open_regular(path)?;
    let name = || path.display().to_string();
    let mut bytes = Vec::new();
    let size = file.metadata().with_context(name)?.len();
    ensure!(
        size <= MAX_BYTES,
        "{}: {size} bytes; images up to {MAX_BYTES} bytes are read",
        name()
    );
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .with_context(name)?;
    decode(&bytes).with_context(name)
}

/// Decodes a photo from memory.
///
/// # Errors
/// As for [`read`], without the name.
pub fn decode(bytes: &[u8]) -> Result<Photo> {
    let format = image::guess_format(bytes).ok();
    let upright = match format {
        Some(ImageFormat::Jpeg) => jpeg(bytes)?,
        Some(
            format @ (ImageFormat::Png | ImageFormat::WebP | ImageFormat::Bmp | ImageFormat::Tiff),
        ) => other(bytes, format)?,
        // The library knows others, too.
        _ => bail!("{UNREADABLE}"),
    };
    let rgb = upright.into_rgb8();
    Ok(Photo {
        hw: [rgb.height() as usize, rgb.width() as usize],
        rgb: rgb.into_raw(),
    })
}

/// Refuses an image before it is decoded by what its header says.
fn check_size(w: u32, h: u32) -> Result<()> {
    ensure!(
        w.max(h) <= MAX_SIDE && u64::from(w) * u64::from(h) <= MAX_PIXELS,
        "{w}x{h} pixels; images up to {MAX_PIXELS} pixels and {MAX_SIDE} a side are read"
    );
    // Decoded with up to 16 bits a sample, then as RGB.
    let bytes = u64::from(w) * u64::from(h) * 12;
    room::ask(bytes, || format!("an image of {w}x{h} pixels"))
}

/// A jpeg image. What cameras leave between its segments is passed over, but its pixels are decoded
/// strictly: what viewers paint grey is an error here.
fn jpeg(bytes: &[u8]) -> Result<DynamicImage> {
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let fault = |error| Error::input(format!("{UNREADABLE}: {error:?}"));
    decoder.decode_headers().map_err(fault)?;
    let (w, h) = decoder.dimensions().context(UNREADABLE)?;
    let (w, h) = (u32::try_from(w)?, u32::try_from(h)?);
    check_size(w, h)?;
    ensure!(
        ends(bytes),
        "a truncated jpeg image: its end-of-image marker is missing"
    );
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let space = if grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    let strict = options.set_strict_mode(true);
    decoder.set_options(strict.jpeg_set_out_colorspace(space));
    let pixels = decoder.decode().map_err(fault)?;
    let image = if grey {
        ImageBuffer::from_raw(w, h, pixels).map(DynamicImage::ImageLuma8)
    } else {
        ImageBuffer::from_raw(w, h, pixels).map(DynamicImage::ImageRgb8)
    };
    let mut image = image.context(UNREADABLE)?;
    let exif = decoder.exif();
    if let Some(orientation) = exif.and_then(|exif| Orientation::from_exif_chunk(exif)) {
        image.apply_orientation(orientation);
    }
    Ok(image)
}

/// Whether a jpeg file has the marker that ends its image, behind its segments and scans. A
/// decoder may not notice that it is missing: padding decodes to something, too.
fn ends(bytes: &[u8]) -> bool {
    const EOI: u8 = 0xd9;
    // Markers without a segment: fill bytes, stuffed zeros, TEM, restarts, start of image.
    let alone = |marker: u8| matches!(marker, 0xff | 0x00 | 0x01 | 0xd0..=0xd8);
    let mut at = 0;
    loop {
        // Entropy-coded bytes, and what some cameras leave between segments, are passed over.
        let Some(found) = bytes[at..].iter().position(|b| *b == 0xff) else {
            return false;
        };
        let Some(&marker) = bytes.get(at + found + 1) else {
            return false;
        };
        at += found + 1;
        match marker {
            EOI => return true,
            marker if alone(marker) => {
                // A fill byte may begin a marker.
                at += usize::from(marker != 0xff);
            }
            _ => {
                let Some(length) = bytes.get(at + 1..at + 3) else {
                    return false;
                };
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                at += 1 + length.max(2);
                if at >= bytes.len() {
                    return false;
                }
            }
        }
    }
}

/// An image of another format.
fn other(bytes: &[u8], format: ImageFormat) -> Result<DynamicImage> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    if format == ImageFormat::Png {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(bytes.len() as u64 + MAX_UNPACKED);
        reader.limits(limits);
    }
    let mut decoder = reader.into_decoder().context(UNREADABLE)?;
    let (w, h) = decoder.dimensions();
    check_size(w, h)?;
    let orientation = match format {
        // The file itself has the layout of an EXIF chunk.
        ImageFormat::Tiff => Orientation::from_exif_chunk(bytes),
        _ => Some(decoder.orientation().context(UNREADABLE)?),
    };
    let mut image = DynamicImage::from_decoder(decoder).context(UNREADABLE)?;
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image)
}

#[cfg(test)]
mod tests;
