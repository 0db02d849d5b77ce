//! Images packed by the device: the kernel, and where images lie before.

use std::sync::Arc;

use vta_driver::packing::TensorImages;
use vta_driver::{Lane, Packing, TensorSpec};
use vta_isa::Config;

use super::site::Site;
use crate::cl::{Arg, Built, Bytes, CoreKernel, Pending};
use crate::error::ClFault;
use crate::words::{PACK_WORDS, PackWord};

/// Work-items of a work-group on a device whose lanes work side by side.
const GROUP: usize = 256;
/// Work-items for each compute unit of a device whose work-items are long.
const ITEMS_PER_UNIT: usize = 8;

/// The kernel that packs images, and memory of the device for them.
pub(crate) struct Packer {
    kernel: CoreKernel,
    config: Config,
    /// Work-items at most; `None` is one for each piece.
    items: Option<usize>,
    /// By lane. A lane is in order, so the next images may overwrite the last.
    lanes: [Option<Sources>; 2],
}

/// What the kernel reads.
struct Sources {
    sizes: Bytes,
    /// What `sizes` holds.
    words: [u32; PACK_WORDS],
    images: Bytes,
}

impl Packer {
    /// For a device of so many compute units, `parallel` when their lanes work side by side.
    pub fn new(
        built: &Built,
        config: &Config,
        parallel: bool,
        units: u32,
    ) -> Result<Self, ClFault> {
        let items = (units as usize).saturating_mul(ITEMS_PER_UNIT).max(1);
        Ok(Self {
            kernel: built.kernel("vta_pack")?,
            config: config.clone(),
            items: (!parallel).then_some(items),
            lanes: [None, None],
        })
    }

    /// Copies images to the device by a lane, whose queue the site has, and packs them into a
    /// buffer from a byte on. `None` for a tensor that the kernel's words can't tell: the host
    /// packs it.
    pub fn pack(
        &mut self,
        site: Site<'_>,
        lane: Lane,
        images: &Arc<TensorImages>,
        (to, offset): (&Bytes, u64),
    ) -> Result<Option<Pending>, ClFault> {
        let Some(words) = words(images.spec(), &self.config, images.count()) else {
            return Ok(None);
        };
        let Site {
            ctx, queue, shared, ..
        } = site;
        // The images of a run fit the device beside its tiles, or the runtime says so.
        to.range(offset, images.packed_bytes(), "packing images")?;
        let sources = &mut self.lanes[lane as usize];
        let len = images.bytes().len() as u64;
        let sources = match sources {
            Some(sources) if sources.images.size_bytes() >= len => sources,
            other => other.insert(Sources {
                sizes: ctx.buffer(4 * PACK_WORDS as u64)?,
                words: [0; PACK_WORDS],
                images: ctx.buffer(len)?,
            }),
        };
        let mut before = Vec::new();
        if sources.words != words {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            shared.stats.sent(bytes.len() as u64);
            before.push(queue.write(&mut sources.sizes, 0, bytes.into())?);
            sources.words = words;
        }
        shared.stats.sent(len);
        before.push(queue.write_images(&mut sources.images, Arc::clone(images))?);
        let pieces = [PackWord::Blocks, PackWord::Positions].map(|w| u64::from(words[w as usize]));
        // The tiles are in memory, so their number is a size.
        let pieces = (pieces[0] * pieces[1]) as usize * self.config.batch();
        let (items, group) = match self.items {
            None => (pieces, GROUP),
            Some(items) => (items.min(pieces), 1),
        };
        let share = pieces.div_ceil(items.max(1)).max(1);
        let args = [
            Arg::Buffer(&sources.sizes),
            Arg::Buffer(&sources.images),
            Arg::Buffer(to),
            Arg::U64(offset),
            Arg::U32(share as u32),
        ];
        self.kernel.set(0, &args)?;
        let groups = pieces.div_ceil(share).div_ceil(group).max(1);
        let mut packed = queue.launch(&self.kernel, groups, group)?;
        packed.follow(before);
        Ok(Some(packed))
    }
}

/// The kernel's words for so many images of a tensor, in the order of [`PackWord`].
fn words(spec: &TensorSpec, config: &Config, images: usize) -> Option<[u32; PACK_WORDS]> {
    let [channels, height, width] = spec.chw;
    let (kernel, stride, dilation, first) = match &spec.packing {
        Packing::Tiles => ([1; 2], [1; 2], [1; 2], [0; 2]),
        Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        } => (*kernel, *stride, *dilation, [pads[0], pads[1]]),
    };
    let [_, out_width] = spec.positions()?;
    let (blocks, positions) = spec.packed_dims(config)?;
    kernel[0].checked_mul(kernel[1])?;
    let mut words = [0; PACK_WORDS];
    for (word, value) in [
        (PackWord::Images, u32::try_from(images).ok()?),
        (PackWord::Channels, channels),
        (PackWord::Height, height),
        (PackWord::Width, width),
        (PackWord::KernelHeight, kernel[0]),
        (PackWord::KernelWidth, kernel[1]),
        (PackWord::StrideY, stride[0]),
        (PackWord::StrideX, stride[1]),
        (PackWord::DilationY, dilation[0]),
        (PackWord::DilationX, dilation[1]),
        (PackWord::Top, first[0]),
        (PackWord::Left, first[1]),
        (PackWord::OutWidth, u32::try_from(out_width).ok()?),
        (PackWord::Positions, u32::try_from(positions).ok()?),
        (PackWord::Blocks, u32::try_from(blocks).ok()?),
        (PackWord::Zero, u32::from(spec.zero as u8)),
    ] {
        words[word as usize] = value;
    }
    Some(words)
}
