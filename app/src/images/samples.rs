//! Images of networks without a file: what the demo shows, and a synthetic one for the zoo.

use vta_compiler::zoo;

use super::{Picture, of_npz};
use crate::error::{Context, Result, bail};
use crate::options::names::INPUT;

/// The labelled images that the demo shows: one of each class.
const DEMO_IMAGES: &[u8] = include_bytes!("../../demo/cifar10_shown10.npz");
/// Their indices in `cifar10_test200.npz`, whose names they have.
const DEMO_CHOICE: [usize; 10] = [1, 3, 4, 5, 12, 14, 15, 18, 23, 35];
/// Images for a model that was given none: one of each class for the demo, a synthetic one
/// otherwise.
pub fn default_images(model: &str, chw: [usize; 3]) -> Result<Vec<Picture>> {
    if model == "demo" {
        let all = of_npz(DEMO_IMAGES).context("the demo's images")?;
        let named = |(picture, index)| Picture {
            name: format!("#{index}"),
            ..picture
        };
        let mut chosen: Vec<Picture> = all.into_iter().zip(DEMO_CHOICE).map(named).collect();
        chosen.sort_by_key(|p| p.label);
        return Ok(chosen);
    }
    let [c, h, w] = chw;
    if model.starts_with("zoo:") && c == 3 && h == w {
        let pixels = zoo::sample_image(h, 0);
        return Ok(vec![Picture::planar("synthetic".to_owned(), chw, pixels)]);
    }
    bail!("which images? Give a file, a folder, .npy or .npz as {}"; INPUT)
}

/// Whether [`default_images`] may have images for a model.
pub fn has_images(model: &str) -> bool {
    model == "demo" || model.starts_with("zoo:")
}
