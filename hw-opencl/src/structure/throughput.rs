//! The throughput structure on a device: a batch's operations, level by level, in as few
//! launches as it takes.

use std::sync::Arc;

use super::packer::Packer;
use super::site::Site;
use crate::build::program::{Builder, GROUPS_PER_UNIT};
use crate::cl::{Arg, Bytes, CoreKernel, Image, Pending, Queue};
use crate::error::{ClFault, EngineError, OpenClError};
use crate::plan::decoder::Decoder;
use crate::plan::schedule::{Launch, Scheduled};
use crate::plan::target::{Cut, Room, Shape, Target};
use crate::plan::versions::Scratchpad;
use crate::plan::views::{ROW_BYTES, Refresh};
use crate::scopes::Scope;
use crate::select::Structure;
use crate::words::{TEXEL_BYTES, TEXTURE_WIDTH};

/// The throughput structure.
pub(crate) struct Throughput {
    kernel: CoreKernel,
    one_launch: Option<OneLaunch>,
    /// Missing where the host packs.
    packer: Option<Packer>,
    /// Without its memory, which grows.
    target: Target,
    /// In [`Scratchpad`]'s order.
    scratchpads: [Tiles; 3],
    /// Whether the times of all launches are taken.
    profile: bool,
}

/// A scratchpad on the device.
struct Tiles {
    scope: Scope,
    // Dropped before the buffer whose memory it may be.
    image: Option<Image>,
    bytes: Bytes,
}

impl Tiles {
    /// At least so many bytes, all zero. A 2D image holds what the buffer does.
    fn new(
        builder: &Builder<'_>,
        queue: &Queue,
        scope: Scope,
        size_bytes: u64,
    ) -> Result<Self, ClFault> {
        let whole = match scope {
            Scope::Buffer | Scope::Constant => 1,
            Scope::Image => TEXEL_BYTES.into(),
            Scope::Image2d => ROW_BYTES,
        };
        let size = size_bytes.next_multiple_of(whole);
        let mut bytes = builder.ctx.buffer(size)?;
        queue.zero(&mut bytes, 0, size)?;
        let image = match scope {
            Scope::Buffer | Scope::Constant => None,
            Scope::Image => Some(builder.ctx.image_of(&bytes)?),
            Scope::Image2d => {
                let rows = (size / ROW_BYTES) as usize;
                let mut image = builder.ctx.image_2d(TEXTURE_WIDTH as usize, rows)?;
                queue.copy_rows(&bytes, &mut image, 0..rows)?;
                Some(image)
            }
        };
        Ok(Self {
            scope,
            image,
            bytes,
        })
    }

    /// What products read it through.
    fn view(&self) -> Arg<'_> {
        let image = self.image.as_ref();
        image.map_or(Arg::Buffer(&self.bytes), Arg::Image)
    }
}

/// A batch as one launch, whose work-groups wait for each other.
struct OneLaunch {
    kernel: CoreKernel,
    groups: u32,
    /// Counts work-groups that have come to where they wait.
    arrived: Bytes,
}

/// A batch on the device.
pub(crate) struct Launches {
    /// Operations, blocks, levels, tables.
    buffers: [Bytes; 4],
    launches: Vec<Launch>,
    /// What is copied to 2D images before each launch, and at the end.
    refreshes: Vec<Vec<Refresh>>,
    /// Where in the tables the levels of the launches are.
    phases: u32,
}

impl Launches {
    /// Bytes of device memory.
    pub fn size_bytes(&self) -> u64 {
        self.buffers.iter().map(Bytes::size_bytes).sum()
    }
}

impl Throughput {
    /// Builds the kernels and makes the scratchpads.
    pub fn new(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        let refuse = |reason| builder.no_structure(Structure::Throughput, reason);
        if builder.options.bitstream.is_some() {
            return Err(refuse("a bitstream holds the core"));
        }
        if !builder.entry.structures().contains(&Structure::Throughput) {
            return Err(refuse("it is made for CPUs and GPUs, from source"));
        }
        let (config, scopes) = (builder.config, builder.scopes);
        let (build, built, groups) = builder.throughput_build()?;
        if builder.entry.facts.max_group < build.shape.group as usize {
            return Err(refuse("its work-groups are too small"));
        }
        let tile_bytes = build.tile_bytes(config);
        let bytes_of = |room: Room, scratchpad| {
            room.tiles(config, scratchpad) as u64 * tile_bytes[scratchpad as usize]
        };
        let least = Scratchpad::ALL.map(|scratchpad| bytes_of(Room::default(), scratchpad));
        let limits = scopes.limits(&builder.entry.facts, least);
        let limits = limits.map_err(|reason| builder.no_scopes(reason))?;
        let room = build.room(config, limits);
        let tiles = |scratchpad| {
            let size_bytes = bytes_of(room, scratchpad);
            Tiles::new(builder, queue, scopes.of(scratchpad), size_bytes)
        };
        let make = || -> Result<Self, ClFault> {
            let one_launch = || -> Result<OneLaunch, ClFault> {
                Ok(OneLaunch {
                    kernel: built.kernel("vta_phases")?,
                    groups,
                    arrived: builder.ctx.buffer(4)?,
                })
            };
            let (parallel, units) = (build.shape.group > 1, builder.entry.facts.compute_units);
            let packs = builder.options.pack.unwrap_or(!builder.entry.facts.unified);
            let packer = || Packer::new(&built, config, parallel, units);
            let mut made = Self {
                kernel: built.kernel("vta_levels")?,
                packer: packs.then(packer).transpose()?,
                one_launch: (groups > 0).then(one_launch).transpose()?,
                target: Target {
                    config: Arc::new(config.clone()),
                    shape: build.shape,
                    room,
                    cut: cut(build.shape, builder.entry.facts.compute_units),
                    scopes,
                    tile_bytes,
                    dram: (0, 0),
                },
                scratchpads: [
                    tiles(Scratchpad::Inp)?,
                    tiles(Scratchpad::Wgt)?,
                    tiles(Scratchpad::Acc)?,
                ],
                profile: builder.options.profile,
            };
            let nothing = Scheduled {
                launches: vec![Launch {
                    first_level: 0,
                    last_level: 0,
                    groups: 1,
                }],
                ..Scheduled::default()
            };
            let nothing = Self::make(nothing, |_| {
                let mut zeros = builder.ctx.buffer(16)?;
                queue.zero(&mut zeros, 0, 16)?;
                Ok(zeros)
            })?;
            made.launch(&nothing, None, queue)?;
            queue.finish()?;
            Ok(made)
        };
        make().map_err(|fault| builder.call(fault))
    }

    /// What packs images, where the device does.
    pub fn packer(&mut self) -> Option<&mut Packer> {
        self.packer.as_mut()
    }

    /// What takes a batch's instructions. `dram` is base and size of device memory.
    pub fn decoder(&self, dram: (u64, u64)) -> Decoder {
        Decoder::new(Target {
            dram,
            ..self.target.clone()
        })
    }

    /// Copies a schedule to the device, each list by `upload`.
    pub fn make(
        mut scheduled: Scheduled,
        mut upload: impl FnMut(Vec<u32>) -> Result<Bytes, ClFault>,
    ) -> Result<Launches, ClFault> {
        let phases = scheduled.tables.len() as u32;
        let levels = |l: &Launch| [l.first_level, l.last_level];
        let levels = scheduled.launches.iter().flat_map(levels);
        scheduled.tables.extend(levels);
        Ok(Launches {
            buffers: [
                upload(scheduled.ops)?,
                upload(scheduled.blocks)?,
                upload(scheduled.levels)?,
                upload(scheduled.tables)?,
            ],
            launches: scheduled.launches,
            refreshes: scheduled.refreshes,
            phases,
        })
    }

    /// Enqueues a batch. What it returns is finished when the batch is.
    pub fn run(&mut self, batch: &Launches, site: Site<'_>) -> Result<Vec<Pending>, EngineError> {
        let pending = self.launch(batch, site.arena.buffer(), site.queue)?;
        let launched = match self.one_launch {
            Some(_) => batch.launches.len().min(1),
            None => batch.launches.len(),
        };
        let copied: usize = batch.refreshes.iter().map(Vec::len).sum();
        site.shared.stats.add(|s| {
            s.launches += launched as u64;
            s.scope_copies += copied as u64;
        });
        Ok(pending)
    }

    /// Enqueues launches; the last, or all where their times are taken.
    fn launch(
        &mut self,
        batch: &Launches,
        dram: Option<&Bytes>,
        queue: &Queue,
    ) -> Result<Vec<Pending>, ClFault> {
        let launches = &batch.launches;
        let group = self.target.shape.group as usize;
        // A batch that touches no memory needs none; any buffer will do.
        let [inp, wgt, acc] = self.scratchpads.each_ref().map(|tiles| &tiles.bytes);
        let memory = [dram.unwrap_or(acc), inp, wgt, acc].map(Arg::Buffer);
        let set = |kernel: &CoreKernel| {
            kernel.set(2, &batch.buffers.each_ref().map(Arg::Buffer))?;
            kernel.set(6, &memory)
        };
        if let Some(one) = &mut self.one_launch {
            if launches.is_empty() {
                return Ok(Vec::new());
            }
            queue.zero(&mut one.arrived, 0, 4)?;
            let count = launches.len() as u32;
            set(&one.kernel)?;
            let head = [batch.phases, count].map(Arg::U32);
            one.kernel.set(0, &head)?;
            one.kernel.set(10, &[Arg::Buffer(&one.arrived)])?;
            return Ok(vec![queue.launch(
                &one.kernel,
                one.groups as usize,
                group,
            )?]);
        }
        set(&self.kernel)?;
        self.set_views()?;
        let mut pending = Vec::new();
        let mut refreshes = batch.refreshes.iter();
        for launch in launches {
            self.refresh(refreshes.next(), queue)?;
            let levels = [launch.first_level, launch.last_level].map(Arg::U32);
            self.kernel.set(0, &levels)?;
            let next = queue.launch(&self.kernel, launch.groups as usize, group)?;
            if !self.profile {
                // Events that nobody releases slow some runtimes down.
                pending.clear();
            }
            pending.push(next);
        }
        self.refresh(refreshes.next(), queue)?;
        Ok(pending)
    }

    /// Gives the kernel what products read inputs and weights through, where that isn't the
    /// buffers: arguments behind the others, as `VTA_VIEW_PARAMS` has them.
    fn set_views(&self) -> Result<(), ClFault> {
        let others = self.scratchpads.iter();
        let others = others.filter(|tiles| tiles.scope != Scope::Buffer);
        let views: Vec<Arg<'_>> = others.map(Tiles::view).collect();
        self.kernel.set(10, &views)
    }

    /// Enqueues copies to 2D images.
    fn refresh(&mut self, copies: Option<&Vec<Refresh>>, queue: &Queue) -> Result<(), ClFault> {
        for Refresh { scratchpad, rows } in copies.into_iter().flatten() {
            let Tiles { image, bytes, .. } = &mut self.scratchpads[*scratchpad as usize];
            if let Some(image) = image {
                queue.copy_rows(bytes, image, rows.clone())?;
            }
        }
        Ok(())
    }
}

/// How work is cut: for work-items that are vectors of a CPU, or for groups of a GPU's lanes.
fn cut(shape: Shape, units: u32) -> Cut {
    if shape.group == 1 {
        // A block takes some microseconds, so that a launch and its hand-over don't matter.
        return Cut {
            items: units,
            block_cost: 100_000,
            max_blocks: units.saturating_mul(8).max(8),
            small_cost: 60_000,
            stripes: 8,
        };
    }
    // One block for each work-group; a level that one group does in no time isn't shared.
    Cut {
        items: units.saturating_mul(GROUPS_PER_UNIT * shape.group),
        block_cost: 1,
        max_blocks: u32::MAX,
        small_cost: 8_192,
        stripes: 1,
    }
}
