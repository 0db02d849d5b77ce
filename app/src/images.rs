//! Images from files: png and jpeg, folders of them, npy and npz arrays.

use std::io::{BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use npyz::npz::NpzArchive;
use vta_driver::{open_input, output};

use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};

/// The largest side of an image file, in pixels.
const MAX_SIDE: u32 = 16_384;
/// The largest image file, in pixels: its values take twelve bytes each.
const MAX_PIXELS: u64 = 50_000_000;
/// The largest array, in elements.
const MAX_ELEMENTS: u64 = 1 << 30;

/// An RGB (or any-channel) image of 8-bit values, `[C][H][W]`.
pub struct Picture {
    /// For listings: the file's name, or the array's index.
    pub name: String,
    /// Channels, rows, columns.
    pub chw: [usize; 3],
    /// `chw` values, 0 to 255 unless they are final.
    pub pixels: Vec<f32>,
    /// The true class, where the file says it.
    pub label: Option<usize>,
    /// Values are final already (float arrays): no preprocessing.
    pub ready: bool,
}

/// Reads all inputs in the order given; folders in the order of their file names.
pub fn load_all(paths: &[PathBuf], limit: Option<usize>) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    let limit = limit.unwrap_or(usize::MAX);
    for path in paths {
        if pictures.len() >= limit {
            break;
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
            let files = entries
                .map(|e| e.map(|e| e.path()))
                .collect::<Result<Vec<_>, _>>();
            let mut files = files.with_context(|| path.display().to_string())?;
            files.retain(|f| f.is_file() && is_image(f));
            files.sort();
            ensure!(
                !files.is_empty(),
                "{}: the folder has no png or jpeg image",
                path.display()
            );
            for file in files.iter().take(limit - pictures.len()) {
                pictures.push(photo(file)?);
            }
        } else {
            let found = load(path, limit - pictures.len())?;
            pictures.extend(found);
        }
    }
    ensure!(!pictures.is_empty(), "there is no image to run");
    Ok(pictures)
}

fn extension(path: &Path) -> String {
    path.extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase()
}

/// Whether a path is an image by its extension.
pub fn is_image(path: &Path) -> bool {
    matches!(extension(path).as_str(), "png" | "jpg" | "jpeg")
}

fn load(path: &Path, limit: usize) -> Result<Vec<Picture>> {
    match extension(path).as_str() {
        "npz" => {
            let file = open_input(path).with_context(|| path.display().to_string())?;
            npz(BufReader::new(file), limit).with_context(|| path.display().to_string())
        }
        "npy" => {
            let file = open_input(path).with_context(|| path.display().to_string())?;
            let array = npyz::NpyFile::new(BufReader::new(file));
            let array = array.with_context(|| format!("{}: not a .npy file", path.display()))?;
            arrays(array, None, limit).with_context(|| path.display().to_string())
        }
        _ => Ok(vec![photo(path)?]),
    }
}

fn photo(path: &Path) -> Result<Picture> {
    let file = open_input(path).with_context(|| path.display().to_string())?;
    let mut reader = ImageReader::new(BufReader::new(file))
        .with_guessed_format()
        .with_context(|| path.display().to_string())?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    reader.limits(limits);
    let unreadable = || format!("{}: not a readable png or jpeg image", path.display());
    let decoder = reader.into_decoder().with_context(unreadable)?;
    let (w, h) = decoder.dimensions();
    ensure!(
        u64::from(w) * u64::from(h) <= MAX_PIXELS,
        "{}: {w}x{h} pixels; images up to {MAX_PIXELS} pixels are read",
        path.display()
    );
    let rgb = DynamicImage::from_decoder(decoder)
        .with_context(unreadable)?
        .into_rgb8();
    let (w, h) = (rgb.width() as usize, rgb.height() as usize);
    let bytes = rgb.into_raw();
    let pixels = (0..3)
        .flat_map(|c| bytes.iter().skip(c).step_by(3))
        .map(|&b| b.into())
        .collect();
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Picture {
        name,
        chw: [3, h, w],
        pixels,
        label: None,
        ready: false,
    })
}

/// Images of an npz in memory.
pub fn npz_bytes(bytes: &[u8], limit: usize) -> Result<Vec<Picture>> {
    npz(Cursor::new(bytes), limit)
}

fn npz<R: Read + Seek>(reader: R, limit: usize) -> Result<Vec<Picture>> {
    let mut archive = NpzArchive::new(reader).context("not an .npz file")?;
    let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
    let labels = match archive.by_name("labels").context("array 'labels'")? {
        Some(array) => Some(integers(array).context("array 'labels'")?),
        None => None,
    };
    let Some(array) = archive.by_name("images").context("array 'images'")? else {
        bail!(
            "the file has no array 'images' (it has {})",
            names.join(", ")
        );
    };
    arrays(array, labels, limit)
}

fn integers<R: Read>(array: npyz::NpyFile<R>) -> Result<Vec<usize>> {
    ensure!(
        array.len() <= MAX_ELEMENTS,
        "more than {MAX_ELEMENTS} elements"
    );
    let values: Vec<i64> = match array.dtype().descr().trim_matches('\'') {
        "|u1" => array.into_vec::<u8>()?.into_iter().map(i64::from).collect(),
        "<i4" => array
            .into_vec::<i32>()?
            .into_iter()
            .map(i64::from)
            .collect(),
        "<i8" => array.into_vec::<i64>()?,
        other => bail!("elements of type {other}; uint8, int32 and int64 are supported"),
    };
    let label = |v: i64| usize::try_from(v).with_context(|| format!("label {v} is negative"));
    values.into_iter().map(label).collect()
}

fn arrays<R: Read>(
    array: npyz::NpyFile<R>,
    labels: Option<Vec<usize>>,
    limit: usize,
) -> Result<Vec<Picture>> {
    let shape: Vec<usize> = array.shape().iter().map(|&d| d as usize).collect();
    ensure!(
        array.len() <= MAX_ELEMENTS,
        "more than {MAX_ELEMENTS} elements"
    );
    ensure!(
        array.order() == npyz::Order::C,
        "arrays in Fortran order are not supported"
    );
    let (count, chw) = match shape[..] {
        [n, c, h, w] => (n, [c, h, w]),
        [c, h, w] => (1, [c, h, w]),
        _ => bail!("an array of shape {shape:?}, not [images, C, H, W]"),
    };
    if let Some(labels) = &labels {
        ensure!(
            labels.len() == count,
            "{} labels for {count} images",
            labels.len()
        );
    }
    let size: usize = chw.iter().product();
    ensure!(size > 0, "an array of shape {shape:?} holds no pixel");
    let keep = count.min(limit) * size;
    let (values, ready): (Vec<f32>, bool) = match array.dtype().descr().trim_matches('\'') {
        "|u1" => {
            let bytes = array
                .data::<u8>()?
                .take(keep)
                .collect::<Result<Vec<_>, _>>()?;
            (bytes.into_iter().map(f32::from).collect(), false)
        }
        "<f4" => (
            array
                .data::<f32>()?
                .take(keep)
                .collect::<Result<Vec<_>, _>>()?,
            true,
        ),
        other => bail!(
            "elements of type {other}; uint8 (pixels) and float32 (already preprocessed) are supported"
        ),
    };
    let picture = |(i, pixels): (usize, &[f32])| Picture {
        name: format!("#{i}"),
        chw,
        pixels: pixels.to_vec(),
        label: labels.as_ref().map(|l| l[i]),
        ready,
    };
    Ok(values.chunks_exact(size).enumerate().map(picture).collect())
}

/// Reads float32 logits `[images, values]` for comparison: `FILE.npy` or `FILE.npz:ARRAY`.
pub fn logits(spec: &str) -> Result<Vec<Vec<f32>>> {
    let (path, name) = match spec.rsplit_once(".npz:") {
        Some((path, name)) => (format!("{path}.npz"), Some(name)),
        None => (spec.to_owned(), None),
    };
    let file = open_input(Path::new(&path)).with_context(|| path.clone())?;
    let rows = |array: npyz::NpyFile<_>| rows(array).with_context(|| spec.to_owned());
    if path.ends_with(".npy") {
        let boxed: Box<dyn Read> = Box::new(BufReader::new(file));
        return rows(
            npyz::NpyFile::new(boxed).with_context(|| format!("{path}: not a .npy file"))?,
        );
    }
    let mut archive = NpzArchive::new(BufReader::new(file))
        .with_context(|| format!("{path}: not an .npz file"))?;
    let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
    let listed = names.join(", ");
    let name = match (name, &names[..]) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => bail!("{path} has several arrays; write {path}:ARRAY (one of {listed})"),
    };
    let array = archive.by_name(&name).with_context(|| spec.to_owned())?;
    let array = array.with_context(|| format!("{path} has no array '{name}' (it has {listed})"))?;
    self::rows(array).with_context(|| spec.to_owned())
}

fn rows<R: Read>(array: npyz::NpyFile<R>) -> Result<Vec<Vec<f32>>> {
    let &[_, width] = array.shape() else {
        bail!("logits of shape {:?}, not [images, values]", array.shape());
    };
    ensure!(
        array.len() <= MAX_ELEMENTS && width > 0,
        "logits of an impossible size"
    );
    let values: Vec<f32> = array.into_vec().context("logits must be float32")?;
    Ok(values.chunks(width as usize).map(<[f32]>::to_vec).collect())
}

/// Writes float32 rows `[images, values]`.
pub fn save_rows(path: &Path, rows: &[Vec<f32>]) -> Result<()> {
    use npyz::WriterBuilder;
    let shape = [
        rows.len() as u64,
        rows.first().map_or(0, |r| r.len() as u64),
    ];
    Ok(output::write_with(path, |out| {
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&shape)
            .writer(out)
            .begin_nd()?;
        writer.extend(rows.iter().flatten().copied())?;
        writer.finish()
    })?)
}

/// Fits a picture to a network's input: the shorter side is scaled to cover it (bilinear,
/// half-pixel centres, edges clamped), the middle is cut out.
pub fn fit(picture: &Picture, [c, h, w]: [usize; 3]) -> Result<Vec<f32>> {
    let [pc, ph, pw] = picture.chw;
    ensure!(
        pc == c,
        "{}: {pc} channels, but the network takes {c}",
        picture.name
    );
    if [ph, pw] == [h, w] {
        return Ok(picture.pixels.clone());
    }
    ensure!(
        !picture.ready,
        "{}: {ph}x{pw} values, but the network takes {h}x{w}",
        picture.name
    );
    let scale = (ph as f32 / h as f32).min(pw as f32 / w as f32);
    let axis = |out: usize, size: usize| -> Vec<(usize, usize, f32)> {
        let margin = (size as f32 - out as f32 * scale) / 2.0;
        let at = |i: usize| {
            let x = ((i as f32 + 0.5) * scale - 0.5 + margin).clamp(0.0, (size - 1) as f32);
            let low = x.floor() as usize;
            (low, (low + 1).min(size - 1), x - low as f32)
        };
        (0..out).map(at).collect()
    };
    let (rows, cols) = (axis(h, ph), axis(w, pw));
    let mut out = Vec::with_capacity(c * h * w);
    for plane in picture.pixels.chunks_exact(ph * pw) {
        for &(top, bottom, fy) in &rows {
            for &(left, right, fx) in &cols {
                let blend =
                    |row: usize| plane[row * pw + left] * (1.0 - fx) + plane[row * pw + right] * fx;
                out.push(blend(top) * (1.0 - fy) + blend(bottom) * fy);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asset(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
        std::fs::read(folder.join(name)).unwrap()
    }

    fn corrupt(
        mut bytes: Vec<u8>,
        flips: &[(prop::sample::Index, u8)],
        cut: Option<usize>,
    ) -> Vec<u8> {
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        bytes.truncate(cut.map_or(bytes.len(), |n| n % bytes.len()));
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(120))]

        #[test]
        fn corrupted_images_and_arrays_are_read_or_refused(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            early in prop::collection::vec((0usize..160, any::<u8>()), 0..4),
            cut in prop::option::of(any::<usize>()),
        ) {
            let folder = tempfile::tempdir().unwrap();
            for name in ["cat.png", "cifar10_test200.npz"] {
                let mut bytes = corrupt(asset(name), &flips, cut);
                for (at, value) in &early {
                    if let Some(byte) = bytes.get_mut(*at) {
                        *byte = *value;
                    }
                }
                let path = folder.path().join(name);
                std::fs::write(&path, &bytes).unwrap();
                let _ = load_all(std::slice::from_ref(&path), None);
                let npy = folder.path().join("x.npy");
                std::fs::write(&npy, &bytes).unwrap();
                let _ = load_all(&[npy], None);
            }
        }
    }

    /// The checksum of a PNG chunk.
    fn crc(bytes: &[u8]) -> u32 {
        let step = |crc: u32, byte: &u8| {
            (0..8).fold(crc ^ u32::from(*byte), |c, _| {
                (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
            })
        };
        !bytes.iter().fold(!0, step)
    }

    #[test]
    fn a_picture_of_too_many_pixels_is_refused_before_it_is_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.png");
        let mut bytes = asset("cat.png");
        // Behind the signature: length, "IHDR", width, height, five more bytes, checksum.
        bytes[16..24].copy_from_slice(&[0, 0, 0x20, 0, 0, 0, 0x20, 0]);
        let sum = crc(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        std::fs::write(&path, bytes).unwrap();
        let error = load_all(&[path], None).err().unwrap().to_string();
        assert!(error.contains("8192x8192 pixels"), "{error}");
    }

    #[test]
    fn a_picture_is_scaled_to_cover_and_cut_in_the_middle() {
        let pixels: Vec<f32> = (0..3 * 2 * 4).map(|i| (i % 4) as f32).collect();
        let picture = Picture {
            name: "x".into(),
            chw: [3, 2, 4],
            pixels,
            label: None,
            ready: false,
        };
        // Columns 1 and 2 of four remain.
        assert_eq!(fit(&picture, [3, 2, 2]).unwrap()[..4], [1.0, 2.0, 1.0, 2.0]);
        // Twice the size: half-pixel centres, edges clamped.
        let row = &fit(&picture, [3, 4, 4]).unwrap()[..4];
        assert_eq!(row, [0.75, 1.25, 1.75, 2.25]);
        assert!(fit(&picture, [1, 2, 2]).is_err());
    }
}
