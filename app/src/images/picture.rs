//! A decoded image, and how it is fitted to a network.

use crate::error::{Result, ensure_input as ensure};

/// An image of any number of channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// For listings: the file's name, or the array's index.
    pub name: String,
    /// Channels, rows, columns.
    pub chw: [usize; 3],
    /// Its values.
    pub(crate) pixels: Pixels,
    /// The true class, where it is known.
    pub label: Option<usize>,
}

/// Values of an image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pixels {
    /// 0 to 255, all channels of a pixel side by side: `[H][W][C]`.
    Interleaved(Vec<u8>),
    /// 0 to 255, channel after channel: `[C][H][W]`.
    Planar(Vec<u8>),
    /// The network's input itself, `[C][H][W]`: no preprocessing.
    Ready(Vec<f32>),
}

impl Picture {
    /// Of values from 0 to 255, channel after channel.
    pub fn planar(name: String, chw: [usize; 3], pixels: Vec<u8>) -> Self {
        Self {
            name,
            chw,
            pixels: Pixels::Planar(pixels),
            label: None,
        }
    }

    /// Red, green and blue of each pixel, row by row; `None` for what is no picture of three channels from 0 to 255.
    pub fn rgb(&self) -> Option<Vec<u8>> {
        let [c, h, w] = self.chw;
        match &self.pixels {
            Pixels::Interleaved(bytes) if c == 3 => Some(bytes.clone()),
            Pixels::Planar(bytes) if c == 3 => {
                let at = |i: usize| bytes[i % 3 * h * w + i / 3];
                Some((0..3 * h * w).map(at).collect())
            }
            Pixels::Interleaved(_) | Pixels::Planar(_) | Pixels::Ready(_) => None,
        }
    }

    /// Whether the values are the network's input already.
    pub fn is_ready(&self) -> bool {
        matches!(self.pixels, Pixels::Ready(_))
    }
}

/// Fits a picture to a network's input: the shorter side is scaled to cover it (bilinear,
/// half-pixel centres, edges clamped), the middle is cut out. Gives `[C][H][W]`.
///
/// # Errors
/// Another number of channels, ready values of another size.
pub fn fit(picture: Picture, [c, h, w]: [usize; 3]) -> Result<Vec<f32>> {
    let [pc, ph, pw] = picture.chw;
    ensure!(
        pc == c,
        "{}: {pc} channels, but the network takes {c}",
        picture.name
    );
    let (area, from, to) = (ph * pw, [ph, pw], [h, w]);
    Ok(match picture.pixels {
        Pixels::Interleaved(bytes) => scale(c, from, to, |c, at| f32::from(bytes[at * pc + c])),
        Pixels::Planar(bytes) => scale(c, from, to, |c, at| f32::from(bytes[c * area + at])),
        Pixels::Ready(values) => {
            ensure!(
                from == to,
                "{}: {ph}x{pw} values, but the network takes {h}x{w}",
                picture.name
            );
            values
        }
    })
}

/// Scales channels of so many rows and columns, whose values are given by channel and position, row by row.
fn scale(
    channels: usize,
    [ph, pw]: [usize; 2],
    [h, w]: [usize; 2],
    value: impl Fn(usize, usize) -> f32,
) -> Vec<f32> {
    if [ph, pw] == [h, w] {
        let all = (0..channels).flat_map(|c| (0..h * w).map(move |at| (c, at)));
        return all.map(|(c, at)| value(c, at)).collect();
    }
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
    let mut out = Vec::with_capacity(channels * h * w);
    for c in 0..channels {
        for &(top, bottom, fy) in &rows {
            for &(left, right, fx) in &cols {
                let blend = |row: usize| {
                    value(c, row * pw + left) * (1.0 - fx) + value(c, row * pw + right) * fx
                };
                out.push(blend(top) * (1.0 - fy) + blend(bottom) * fy);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_scaled_to_cover_and_cut_in_the_middle() {
        let columns = |i: usize| (i % 4) as u8;
        let planar: Vec<u8> = (0..3 * 2 * 4).map(columns).collect();
        let interleaved: Vec<u8> = (0..3 * 2 * 4).map(|i| columns(i / 3)).collect();
        for pixels in [Pixels::Planar(planar), Pixels::Interleaved(interleaved)] {
            let picture = Picture {
                name: "x".into(),
                chw: [3, 2, 4],
                pixels,
                label: None,
            };
            // Columns 1 and 2 of four remain.
            assert_eq!(
                fit(picture.clone(), [3, 2, 2]).unwrap()[..4],
                [1.0, 2.0, 1.0, 2.0]
            );
            // Twice the size: half-pixel centres, edges clamped.
            let row = &fit(picture.clone(), [3, 4, 4]).unwrap()[..4];
            assert_eq!(row, [0.75, 1.25, 1.75, 2.25]);
            assert_eq!(
                fit(picture.clone(), [3, 2, 4]).unwrap()[3..6],
                [3.0, 0.0, 1.0]
            );
            assert!(fit(picture, [1, 2, 2]).is_err());
        }
    }

    #[test]
    fn ready_values_are_taken_as_they_are_or_not_at_all() {
        let picture = Picture {
            name: "x".into(),
            chw: [1, 1, 2],
            pixels: Pixels::Ready(vec![-1.5, 2.0]),
            label: None,
        };
        assert_eq!(fit(picture.clone(), [1, 1, 2]).unwrap(), [-1.5, 2.0]);
        let error = fit(picture, [1, 2, 2]).unwrap_err().to_string();
        assert_eq!(error, "x: 1x2 values, but the network takes 2x2");
    }
}
