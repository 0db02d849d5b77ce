//! Images on their way to a device, which packs them itself.

use thiserror::Error;
use vta_isa::Config;

use super::bands::Packers;
use super::patches::Patches;
use super::value_bytes;
use super::write::{pack_all, packed_len};
use crate::{Packing, TensorSpec};

/// Images that a tensor can't be made of: how many there are, or their lengths.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ImagesError(pub String);

/// 1 to BATCH images of a tensor and how they become its tiles: what
/// `Work::Pack` gives to a device, which needs no other copy of them.
///
/// ```
/// use vta_program::packing::{TensorImages, unpack};
/// use vta_program::{BufferId, Packing, TensorSpec};
/// use vta_isa::Config;
///
/// let config = Config::default();
/// let mut spec = TensorSpec {
///     name: "x".into(), buffer: BufferId(0), offset_bytes: 0, chw: [2, 1, 3], scale: 1.0, zero: 0, packing: Packing::Tiles,
/// };
/// let image = [1, 2, 3, -1, -2, -3];
/// let pack = |spec: &TensorSpec| {
///     let images = TensorImages::new(spec, &config, &[&image])?;
///     let mut tiles = vec![0; images.packed_bytes() as usize];
///     images.pack_into(&mut tiles);
///     Ok(tiles)
/// };
///
/// // Tiles: one tile of sixteen channels for each of three pixels.
/// let tiles = pack(&spec)?;
/// assert_eq!(tiles.len(), 3 * 16);
/// assert_eq!(tiles[16..18], [2, -2i8 as u8]);
/// assert_eq!(unpack(&spec, &config, &tiles).expect("tiles can be unpacked"), [image]);
///
/// // Im2col of a 1x2 kernel: two columns for each of two channels, at each of two positions.
/// spec.packing = Packing::Im2col { kernel: [1, 2], stride: [1, 1], dilation: [1, 1], pads: [0; 4] };
/// let patches = pack(&spec)?;
/// assert_eq!(patches[..4], [1, 2, -1i8 as u8, -2i8 as u8]);
/// assert_eq!(patches[16..20], [2, 3, -2i8 as u8, -3i8 as u8]);
/// # Ok::<(), vta_program::packing::ImagesError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorImages {
    spec: TensorSpec,
    config: Config,
    packed_bytes: usize,
    /// One image behind the other, as inputs of the machine have them.
    values: Vec<u8>,
}

impl TensorImages {
    /// 1 to BATCH images of a tensor, each of [`TensorSpec::image_len`] values in CHW order.
    ///
    /// # Errors
    /// [`ImagesError`] for no or too many images, for another number of values, and for a
    /// tensor that can't be packed.
    pub fn new(spec: &TensorSpec, config: &Config, images: &[&[i16]]) -> Result<Self, ImagesError> {
        let mut made = Self {
            spec: spec.clone(),
            config: config.clone(),
            packed_bytes: 0,
            values: Vec::new(),
        };
        made.replace(images)?;
        Ok(made)
    }

    /// Other images of the same tensor in the place of these.
    ///
    /// # Errors
    /// As for [`Self::new`]; then these are left.
    pub fn replace(&mut self, images: &[&[i16]]) -> Result<(), ImagesError> {
        let (spec, config) = (&self.spec, &self.config);
        if images.is_empty() || images.len() > config.batch() {
            let (n, batch) = (images.len(), config.batch());
            let text = format!("{n} images, but 1 to {batch} fit a run");
            return Err(ImagesError(text));
        }
        self.packed_bytes = packed_len(spec, config, images).ok_or_else(|| {
            let lens: Vec<_> = images.iter().map(|x| x.len()).collect();
            let (need, [c, h, w]) = (spec.image_len(), spec.chw);
            ImagesError(format!(
                "{lens:?} values, but {c}x{h}x{w} = {need} are needed"
            ))
        })?;
        let is_tiles = spec.packing == Packing::Tiles;
        if !is_tiles && Patches::padded_bytes(spec, config, self.packed_bytes).is_none() {
            let [c, h, w] = spec.chw;
            let text = format!(
                "with its padding {c}x{h}x{w} has more than a MiB beyond its tiles and four images"
            );
            return Err(ImagesError(text));
        }
        let bytes = value_bytes(config);
        // Each value's distance from the lowest, of which int8 has no upper bits.
        let beyond = |image: &&[i16]| {
            image
                .iter()
                .fold(0, |all, &x| all | (x.wrapping_add(128) >> 8))
        };
        if bytes == 1 && images.iter().any(|image| beyond(image) != 0) {
            let text = "a value is outside -128 to 127, which inputs of 8 bits hold";
            return Err(ImagesError(text.to_owned()));
        }
        self.values.clear();
        for image in images {
            match bytes {
                1 => self.values.extend(image.iter().map(|&x| x as u8)),
                _ => self
                    .values
                    .extend(image.iter().flat_map(|x| x.to_le_bytes())),
            }
        }
        Ok(())
    }

    /// The tensor's shape, packing and zero point.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// How many images there are, 1 to BATCH.
    pub fn count(&self) -> usize {
        match self.spec.image_len() {
            0 => 1,
            len => self.values.len() / (len * value_bytes(&self.config)),
        }
    }

    /// The images' values as inputs of the machine, little-endian: one image behind the other, each in CHW order.
    pub fn bytes(&self) -> &[u8] {
        &self.values
    }

    /// Bytes of the tiles.
    pub fn packed_bytes(&self) -> u64 {
        self.packed_bytes as u64
    }

    /// Packs the images: every byte of the tiles is written, rows without an image and channels
    /// beyond C with zeros, padding with the tensor's zero point.
    ///
    /// # Panics
    /// When there are other than [`Self::packed_bytes`].
    pub fn pack_into(&self, tiles: &mut [u8]) {
        self.pack_by(&Packers::default(), tiles);
    }

    /// [`Self::pack_into`] on several threads where there is much to pack.
    ///
    /// # Panics
    /// As [`Self::pack_into`].
    pub fn pack_by(&self, packers: &Packers, tiles: &mut [u8]) {
        assert_eq!(tiles.len(), self.packed_bytes, "bytes of the tiles");
        let len = self.spec.image_len().max(1) * value_bytes(&self.config);
        let images: Vec<&[u8]> = if self.values.is_empty() {
            vec![&[]]
        } else {
            self.values.chunks_exact(len).collect()
        };
        pack_all(&self.spec, &self.config, &images, tiles, packers);
    }
}
