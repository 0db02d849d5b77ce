//! Photos in a build without the feature `images`.

use std::path::Path;

use crate::error::{Result, bail_input as bail};

/// No image.
#[derive(Debug)]
pub struct Photo {
    /// Rows and columns.
    pub hw: [usize; 2],
    /// Red, green and blue of each pixel, row by row.
    pub rgb: Vec<u8>,
}

/// # Errors
/// Always.
pub fn decode(_: &[u8]) -> Result<Photo> {
    bail!("images aren't decoded in this build, which lacks the feature `images`")
}

/// # Errors
/// Always.
pub fn read(path: &Path) -> Result<Photo> {
    bail!(
        "{}: images aren't decoded in this build, which lacks the feature `images`",
        path.display()
    )
}
