use image::codecs::png::PngEncoder;
use image::{ImageEncoder, RgbImage};

use super::*;

/// A picture whose upper left corner is red, upper right green, the rest blue.
fn sample() -> RgbImage {
    RgbImage::from_fn(48, 32, |x, y| match (x < 24, y < 16) {
        (true, true) => image::Rgb([255, 0, 0]),
        (false, true) => image::Rgb([0, 255, 0]),
        _ => image::Rgb([0, 0, 255]),
    })
}

fn encoded(format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    sample().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

const FORMATS: [ImageFormat; 5] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
];

#[test]
fn every_format_is_read() {
    for format in FORMATS {
        let photo = decode(&encoded(format)).unwrap();
        assert_eq!(photo.hw, [32, 48], "{format:?}");
        let original = sample();
        let close = photo.rgb.iter().zip(original.as_raw());
        let close = close.filter(|(a, b)| a.abs_diff(**b) < 24).count();
        // JPEG smears colours over the edges.
        let least = if format == ImageFormat::Jpeg {
            4000
        } else {
            48 * 32 * 3
        };
        assert!(close >= least, "{format:?}: {close}");
    }
}

#[test]
fn no_truncated_file_is_an_image() {
    for format in FORMATS {
        let whole = encoded(format);
        // PNG and BMP may have padding or a trailer behind the last pixel.
        let last = if format == ImageFormat::Jpeg { 0 } else { 16 };
        for cut in 0..whole.len() - last {
            let found = decode(&whole[..cut]);
            let size = whole.len();
            assert!(found.is_err(), "{format:?} cut to {cut} of {size} bytes");
        }
    }
    let whole = encoded(ImageFormat::Jpeg);
    assert!(ends(&whole) && ends(&[&whole[..], b"and more"].concat()));
    let error = decode(&whole[..whole.len() - 2]).unwrap_err().to_string();
    assert!(error.contains("truncated jpeg"), "{error}");
}

/// An EXIF chunk that says nothing but the orientation.
fn exif(orientation: u8) -> Vec<u8> {
    let mut chunk = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    chunk.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    chunk
}

#[test]
fn photos_are_turned_as_their_exif_chunk_says() {
    let plain = encoded(ImageFormat::Jpeg);
    for (orientation, corners) in [
        // The colour of each corner: upper left, upper right, lower left, lower right.
        (1, "rgbb"),
        (2, "grbb"),
        (3, "bbgr"),
        (4, "bbrg"),
        (5, "rbgb"),
        (6, "brbg"),
        (7, "bgbr"),
        (8, "gbrb"),
    ] {
        let mut segment = b"Exif\0\0".to_vec();
        segment.extend(exif(orientation));
        let mut turned = plain[..2].to_vec();
        turned.extend([0xff, 0xe1]);
        turned.extend((segment.len() as u16 + 2).to_be_bytes());
        turned.extend(&segment);
        turned.extend(&plain[2..]);
        let Photo { hw: [h, w], rgb } = decode(&turned).unwrap();
        assert_eq!([h, w], if orientation < 5 { [32, 48] } else { [48, 32] });
        let colour = |(x, y): (usize, usize)| {
            let pixel = &rgb[(y * w + x) * 3..][..3];
            let strongest = (0..3).max_by_key(|c| pixel[*c]).unwrap();
            ['r', 'g', 'b'][strongest]
        };
        let at = [(4, 4), (w - 4, 4), (4, h - 4), (w - 4, h - 4)];
        let found: String = at.map(colour).into_iter().collect();
        assert_eq!(found, corners, "orientation {orientation}");
    }
}

/// A colour profile of zeros, which is a thousandth of its size in the file.
#[test]
fn a_colour_profile_takes_little_memory() {
    let picture = sample();
    for (profile, most) in [(3 << 20, 48 << 20), (64 << 20, 48 << 20)] {
        let mut bytes = Vec::new();
        let mut encoder = PngEncoder::new(&mut bytes);
        encoder.set_icc_profile(vec![0; profile]).unwrap();
        let (w, h) = picture.dimensions();
        let colours = image::ExtendedColorType::Rgb8;
        encoder
            .write_image(picture.as_raw(), w, h, colours)
            .unwrap();
        assert!(bytes.len() < profile / 100);
        let info = allocation_counter::measure(|| {
            assert_eq!(decode(&bytes).unwrap().rgb, *picture.as_raw());
        });
        assert!(info.bytes_max < most, "{profile}: {} bytes", info.bytes_max);
    }
}

#[test]
fn a_bomb_is_refused_by_its_header() {
    let mut bytes = encoded(ImageFormat::Png);
    // Behind the signature: length, "IHDR", width, height, five more bytes, checksum.
    for (w, h) in [(60_000u32, 60_000u32), (8192, 8192), (20_000, 1)] {
        bytes[16..20].copy_from_slice(&w.to_be_bytes());
        bytes[20..24].copy_from_slice(&h.to_be_bytes());
        let sum = crc32fast::hash(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        let error = decode(&bytes).unwrap_err().to_string();
        let says = format!("{w}x{h} pixels; images up to 50000000 pixels and 16384 a side");
        assert!(error.starts_with(&says), "{error}");
    }
}
