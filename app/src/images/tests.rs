//! Sources over real files.

use std::io::Write;
use std::path::{Path, PathBuf};

use npyz::WriterBuilder;
use proptest::prelude::*;
use tempfile::TempDir;
use zip::CompressionMethod;
use zip::write::FileOptions;

use super::{Picture, Pixels, Source, best_classes};
use crate::error::{Result, message};
use crate::options::names::Front;

fn asset(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    std::fs::read(folder.join(name)).unwrap()
}

fn all(paths: &[PathBuf], limit: Option<usize>) -> Result<Vec<Picture>> {
    let source = Source::open(paths, limit)?;
    let (mut reader, mut pictures) = (source.reader(), Vec::new());
    while let Some(item) = reader.next_item()? {
        assert_eq!(item.index, pictures.len());
        pictures.push(item.decode()?);
    }
    assert_eq!(pictures.len(), source.len());
    Ok(pictures)
}

fn error_of(path: &Path) -> String {
    let error = all(&[path.to_owned()], None).unwrap_err();
    let text = message(&error, Front::Library);
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// An npy file of a shape.
fn npy<T: npyz::AutoSerialize + Clone>(shape: &[u64], order: npyz::Order, values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().order(order);
    let mut writer = options.shape(shape).writer(&mut bytes).begin_nd().unwrap();
    writer.extend(values.iter().cloned()).unwrap();
    writer.finish().unwrap();
    bytes
}

fn npz(method: CompressionMethod, arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        let options = FileOptions::default().compression_method(method);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
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
            let mut bytes = asset(name);
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(cut.map_or(bytes.len(), |n| n % bytes.len()));
            for (at, value) in &early {
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte = *value;
                }
            }
            for name in [name, "x.npy"] {
                let path = put(&folder, name, &bytes);
                let _ = all(&[path], None);
            }
        }
    }
}

#[test]
fn every_order_store_and_type_gives_the_same_images() {
    let folder = tempfile::tempdir().unwrap();
    let (n, c, h, w) = (7usize, 3usize, 4usize, 5usize);
    let shape = [n as u64, c as u64, h as u64, w as u64];
    let value =
        |n: usize, c: usize, y: usize, x: usize| ((n * 61 + c * 37 + y * 11 + x) % 256) as u8;
    let at = |i: usize| value(i / (c * h * w), i / (h * w) % c, i / w % h, i % w);
    let in_order: Vec<u8> = (0..n * c * h * w).map(at).collect();
    let across = |i: usize| value(i % n, i / n % c, i / (n * c) % h, i / (n * c * h));
    let fortran: Vec<u8> = (0..n * c * h * w).map(across).collect();
    use npyz::Order::{C, Fortran};
    let wide = |values: &[u8]| -> Vec<i64> { values.iter().map(|v| i64::from(*v)).collect() };
    let arrays = [
        npy(&shape, C, &in_order),
        npy(&shape, Fortran, &fortran),
        npy(&shape, C, &wide(&in_order)),
        npy(&shape, Fortran, &wide(&fortran)),
    ];
    let labels = npy(&[n as u64], C, &[3i32, 1, 4, 1, 5, 9, 2]);
    for array in &arrays {
        let path = put(&folder, "x.npy", array);
        for (path, labelled) in [
            (path, false),
            (
                put(
                    &folder,
                    "s.npz",
                    &npz(CompressionMethod::Stored, &[("images", array.clone())]),
                ),
                false,
            ),
            (
                put(
                    &folder,
                    "d.npz",
                    &npz(
                        CompressionMethod::Deflated,
                        &[("labels", labels.clone()), ("images", array.clone())],
                    ),
                ),
                true,
            ),
        ] {
            for limit in [None, Some(4)] {
                let found = all(std::slice::from_ref(&path), limit).unwrap();
                assert_eq!(found.len(), limit.unwrap_or(n));
                for (i, picture) in found.iter().enumerate() {
                    let size = c * h * w;
                    let expected = in_order[i * size..(i + 1) * size].to_vec();
                    assert_eq!(picture.pixels, Pixels::Planar(expected));
                    assert_eq!(picture.name, format!("#{i}"));
                    let truth = labelled.then_some([3, 1, 4, 1, 5, 9, 2][i]);
                    assert_eq!(picture.label, truth);
                }
            }
        }
    }
    // A single image without its first dimension; floats of 64 bits.
    let reals: Vec<f64> = in_order[..c * h * w]
        .iter()
        .map(|v| f64::from(*v) / 3.0)
        .collect();
    let ready: Vec<f32> = reals.iter().map(|v| *v as f32).collect();
    let path = put(&folder, "one.npy", &npy(&shape[1..], C, &reals));
    assert_eq!(
        all(&[path], None).unwrap()[0].pixels,
        Pixels::Ready(ready.clone())
    );
    let across = |i: usize| reals[(i % c * h + i / c % h) * w + i / (c * h)];
    let turned: Vec<f64> = (0..c * h * w).map(across).collect();
    let path = put(&folder, "one.npy", &npy(&shape[1..], Fortran, &turned));
    assert_eq!(all(&[path], None).unwrap()[0].pixels, Pixels::Ready(ready));
}

#[test]
fn values_that_are_none_name_file_image_and_place() {
    let folder = tempfile::tempdir().unwrap();
    use npyz::Order::{C, Fortran};
    let mut values = vec![0.5f32; 2 * 3 * 4 * 5];
    values[60 + 20 + 5 + 3] = f32::NAN;
    let nan = put(&folder, "nan.npy", &npy(&[2, 3, 4, 5], C, &values));
    assert!(
        error_of(&nan)
            .contains("image 1: NaN in channel 1, row 1, column 3; values must be finite")
    );
    let mut values = vec![0.5f64; 12];
    values[7] = 1e300;
    // In Fortran order the channel runs fastest: 7 is channel 1 of row 0 and column 1.
    let large = put(&folder, "large.npy", &npy(&[3, 2, 2], Fortran, &values));
    let error = error_of(&large);
    assert!(error.contains("in channel 1, row 0, column 1"), "{error}");
    let wide = put(&folder, "wide.npy", &npy(&[1, 1, 1, 2], C, &[7i16, 300]));
    assert!(
        error_of(&wide).contains("image 0: 300 in channel 0, row 0, column 1; integers are pixels")
    );
    let below = put(&folder, "below.npy", &npy(&[1, 1, 1, 2], C, &[7i8, -1]));
    assert!(error_of(&below).contains("image 0: -1 in"));
}

#[test]
fn damaged_archives_and_arrays_are_named() {
    let folder = tempfile::tempdir().unwrap();
    use npyz::Order::C;
    let array = npy(&[40, 1, 8, 8], C, &vec![1u8; 40 * 64]);
    let short = put(&folder, "short.npy", &array[..array.len() - 1]);
    assert!(error_of(&short).contains("needs 2560 bytes, the file has 2559"));
    let mut stored = npz(CompressionMethod::Stored, &[("images", array.clone())]);
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    let damaged = put(&folder, "damaged.npz", &stored);
    assert!(error_of(&damaged).contains("checksum is wrong"));
    let other = npz(CompressionMethod::Deflated, &[("photos", array)]);
    let other = put(&folder, "other.npz", &other);
    assert!(error_of(&other).contains("no array 'images' (it has photos)"));
    for (name, bytes) in [
        ("a.npy", &b"junk"[..]),
        ("a.npz", b"junk"),
        ("a.png", b"junk"),
    ] {
        let path = put(&folder, name, bytes);
        assert!(error_of(&path).contains("not a"), "{name}");
    }
}

#[test]
fn class_folders_give_labels() {
    let folder = tempfile::tempdir().unwrap();
    let png = asset("cat.png");
    for name in [
        "t/dog/2.png",
        "t/cat/9.png",
        "t/cat/1.png",
        "t/.hidden/0.png",
        "u/cow/3.png",
    ] {
        put(&folder, name, &png);
    }
    let path = |name: &str| folder.path().join(name);
    let labels = |source: &Source| -> Vec<(String, Option<usize>)> {
        let mut reader = source.reader();
        let items = std::iter::from_fn(|| reader.next_item().unwrap());
        items.map(|item| (item.name, item.label)).collect()
    };
    let named = |list: [(&str, usize); 4]| list.map(|(n, l)| (n.to_owned(), Some(l))).to_vec();
    let mut both = Source::open(&[path("t"), path("u")], None).unwrap();
    let by_name = named([("1.png", 0), ("9.png", 0), ("2.png", 2), ("3.png", 1)]);
    assert_eq!(labels(&both), by_name);
    both.name_classes(&[], 3).unwrap();
    assert_eq!(labels(&both), by_name);
    let model = ["truck", "Dog", "cow", "cat"].map(str::to_owned);
    both.name_classes(&model, 4).unwrap();
    let of_model = named([("1.png", 3), ("9.png", 3), ("2.png", 1), ("3.png", 2)]);
    assert_eq!(labels(&both), of_model);
    let few = Source::open(&[path("t")], Some(2)).unwrap();
    assert_eq!(few.len(), 2);
    for (labels, classes, says) in [
        (
            &["cat", "bird"][..],
            2,
            "'cow' is no label of the model, but 'cat' is",
        ),
        (&["x", "y"], 2, "3 class folders for 2 classes"),
    ] {
        let labels: Vec<String> = labels.iter().map(|l| (*l).to_owned()).collect();
        let mut source = Source::open(&[path("t"), path("u")], None).unwrap();
        let error = source
            .name_classes(&labels, classes)
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    std::fs::create_dir(path("t/empty")).unwrap();
    let error = error_of_folder(&path("t"));
    assert!(
        error.contains("empty: a class folder without images"),
        "{error}"
    );
    std::fs::remove_dir(path("t/empty")).unwrap();
    put(&folder, "t/loose.png", &png);
    let error = error_of_folder(&path("t"));
    assert!(
        error.contains("both images and folders of images"),
        "{error}"
    );
}

fn error_of_folder(path: &Path) -> String {
    Source::open(&[path.to_owned()], None)
        .unwrap_err()
        .to_string()
}

#[cfg(unix)]
#[test]
fn special_files_are_no_images() {
    let folder = tempfile::tempdir().unwrap();
    for extension in ["png", "npy", "npz"] {
        let link = folder.path().join(format!("zero.{extension}"));
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(error_of(&link).contains("not a file"));
        let pipe = folder.path().join(format!("pipe.{extension}"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|s| s.success()) {
            assert!(error_of(&pipe).contains("not a file"));
        }
        let socket = folder.path().join(format!("socket.{extension}"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(error_of(&socket).contains("not a file"));
    }
}

#[test]
fn the_best_classes_of_logits_are_read_from_both_kinds_of_files() {
    let folder = tempfile::tempdir().unwrap();
    use npyz::Order::C;
    let rows = npy(
        &[3, 4],
        C,
        &[
            0.0f32, 2.0, 1.0, 2.0, 9.0, 8.0, 7.0, 6.0, -4.0, -3.0, -2.0, -1.0,
        ],
    );
    let plain = put(&folder, "a.npy", &rows).display().to_string();
    let arrays = [("logits", rows.clone()), ("other", rows)];
    let path = put(&folder, "a.npz", &npz(CompressionMethod::Deflated, &arrays));
    let path = path.display().to_string();
    assert_eq!(best_classes(&plain).unwrap(), [1, 0, 3]);
    assert_eq!(best_classes(&format!("{path}:logits")).unwrap(), [1, 0, 3]);
    let error = best_classes(&path).unwrap_err().to_string();
    assert!(error.contains("one of logits, other"), "{error}");
    let error = best_classes(&format!("{path}:x")).unwrap_err().to_string();
    assert!(error.contains("no array 'x'"), "{error}");
}
