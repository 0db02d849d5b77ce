//! The structures behind one face: drafting what a batch's instructions become, making it ready
//! on the device, launching it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vta_isa::resolve::Resolved;
use vta_isa::tokens::At;
use vta_isa::{Config, Insn};

use crate::arena::Arena;
use crate::batch::Sink;
use crate::cl::{Arg, Bytes, CoreKernel, Ctx, Pending, Queue};
use crate::core_stream::{Stream, StreamBuilder};
use crate::decoder::{Decoder, Room};
use crate::device::Shared;
use crate::engine::EngineError;
use crate::error::{BatchError, ClFault, OpenClError};
use crate::ops::Shape;
use crate::program::{Builder, LanesBuild, pad_bytes};
use crate::schedule::{Cut, Goal, Launch, Scheduled, schedule};
use crate::select::Structure;
use crate::versions::Pad;

/// Kernels and scratchpads of a structure.
pub(crate) enum Runner {
    Lanes(Lanes),
    Core(Core),
    Channels(Channels),
}

/// The throughput structure.
pub(crate) struct Lanes {
    kernel: CoreKernel,
    one_launch: Option<OneLaunch>,
    shape: Shape,
    room: Room,
    cut: Cut,
    inp: Bytes,
    wgt: Bytes,
    acc: Bytes,
}

/// A batch as one launch, whose work-groups wait for each other.
struct OneLaunch {
    kernel: CoreKernel,
    groups: u32,
    /// Counts work-groups that have come to where they wait.
    arrived: Bytes,
}

/// The single-work-item core.
pub(crate) struct Core {
    kernel: CoreKernel,
    pads: Bytes,
    on_chip: bool,
}

/// The core as three kernels, each on a queue of its own.
pub(crate) struct Channels {
    kernels: [CoreKernel; 3],
    queues: [Queue; 3],
}

/// What a batch became, still on the host.
pub(crate) enum Draft {
    Lanes(Scheduled),
    Stream(Stream),
}

/// What a batch became, on the device.
pub(crate) enum Part {
    Lanes {
        /// Operations, blocks, levels, tables.
        buffers: [Bytes; 4],
        launches: Vec<Launch>,
        /// Where in the tables the levels of the launches are.
        phases: u32,
    },
    Stream {
        insns: Bytes,
        fences: Bytes,
        count: u32,
        stores: u32,
    },
}

impl Part {
    /// Bytes of device memory.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Lanes { buffers, .. } => buffers.iter().map(Bytes::size_bytes).sum(),
            Self::Stream { insns, fences, .. } => insns.size_bytes() + fences.size_bytes(),
        }
    }
}

/// Passes checked instructions on to the structure's own sink.
pub(crate) enum AnySink<'a> {
    Lanes(Box<Decoder<'a>>),
    Stream(StreamBuilder),
}

impl Sink for AnySink<'_> {
    fn take(&mut self, resolved: &Resolved<'_>) {
        match self {
            Self::Lanes(sink) => sink.take(resolved),
            Self::Stream(sink) => sink.take(resolved),
        }
    }
}

impl Runner {
    /// Builds the kernels, makes the scratchpads, and runs each kernel once on nothing: some
    /// runtimes compile only then.
    pub fn new(
        builder: &Builder<'_>,
        structure: Structure,
        queue: &Queue,
    ) -> Result<Self, OpenClError> {
        match structure {
            Structure::Throughput => Self::lanes(builder, queue),
            Structure::Core => Self::core(builder, queue),
            Structure::Channels => Self::channels(builder, queue),
        }
    }

    fn lanes(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        let refuse = |reason: &str| OpenClError::Structure {
            device: builder.entry.selector.clone(),
            structure: Structure::Throughput.name(),
            reason: reason.to_owned(),
        };
        if builder.options.bitstream.is_some() {
            return Err(refuse("a bitstream holds the core"));
        }
        if !builder.entry.structures().contains(&Structure::Throughput) {
            return Err(refuse("it is made for CPUs and GPUs, from source"));
        }
        let config = builder.config;
        let build = LanesBuild::new(builder.entry.kind, config, builder.options.math);
        if builder.entry.raw.max_group < build.shape.group as usize {
            return Err(refuse("its work-groups are too small"));
        }
        let (built, groups) = builder.lanes(&build)?;
        let (lanes, area) = (config.lanes() as u64, (config.block() as u64).pow(2));
        let limit = builder.entry.max_alloc_bytes();
        let room = build.room(config, limit);
        let pad = |pad, elems: u64| -> Result<Bytes, ClFault> {
            let size = room.tiles(config, pad) as u64 * elems;
            let mut bytes = builder.ctx.buffer(size)?;
            queue.zero(&mut bytes, 0, size)?;
            Ok(bytes)
        };
        let make = || -> Result<Lanes, ClFault> {
            let one_launch = || -> Result<OneLaunch, ClFault> {
                Ok(OneLaunch {
                    kernel: built.kernel("vta_phases")?,
                    groups,
                    arrived: builder.ctx.buffer(4)?,
                })
            };
            let mut lanes = Lanes {
                kernel: built.kernel("vta_levels")?,
                one_launch: (groups > 0).then(one_launch).transpose()?,
                shape: build.shape,
                room,
                cut: cut(build.shape, builder.entry.compute_units()),
                inp: pad(Pad::Inp, lanes * build.elem_bytes())?,
                wgt: pad(Pad::Wgt, area * build.elem_bytes())?,
                acc: pad(Pad::Acc, lanes * 4)?,
            };
            let mut nothing = builder.ctx.buffer(16)?;
            queue.zero(&mut nothing, 0, 16)?;
            lanes.run(&[&nothing; 4], None, &[NOTHING], 0, queue, false)?;
            queue.finish()?;
            Ok(lanes)
        };
        make().map(Self::Lanes).map_err(|fault| builder.call(fault))
    }

    fn core(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        let built = builder.core(Structure::Core)?;
        builder.check_identity(&built, queue)?;
        // What a bitstream does is the FPGA's way, wherever it runs.
        let on_chip = builder.on_chip() || builder.options.bitstream.is_some();
        let make = || -> Result<Core, ClFault> {
            let size = if on_chip {
                16
            } else {
                pad_bytes(builder.config) as u64
            };
            let mut pads = builder.ctx.buffer(size)?;
            queue.zero(&mut pads, 0, size)?;
            let kernel = built.kernel("vta_core")?;
            let nothing = builder.ctx.buffer(16)?;
            let buffers = [&nothing, &nothing, &pads].map(Arg::Buffer);
            kernel.set(0, &[Arg::U32(0), Arg::U64(0)])?;
            kernel.set(2, &buffers)?;
            queue.launch(&kernel, 1, 1)?;
            queue.finish()?;
            Ok(Core {
                kernel,
                pads,
                on_chip,
            })
        };
        make().map(Self::Core).map_err(|fault| builder.call(fault))
    }

    fn channels(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        if !builder.entry.has_channels() {
            return Err(OpenClError::Structure {
                device: builder.entry.selector.clone(),
                structure: Structure::Channels.name(),
                reason: "it has no channels between kernels".to_owned(),
            });
        }
        let built = builder.core(Structure::Channels)?;
        builder.check_identity(&built, queue)?;
        let make = || -> Result<Channels, ClFault> {
            Ok(Channels {
                kernels: [
                    built.kernel("vta_load")?,
                    built.kernel("vta_compute")?,
                    built.kernel("vta_store")?,
                ],
                queues: [
                    builder.ctx.queue(false)?,
                    builder.ctx.queue(false)?,
                    builder.ctx.queue(false)?,
                ],
            })
        };
        make()
            .map(Self::Channels)
            .map_err(|fault| builder.call(fault))
    }

    /// Whether a batch starts from scratchpads of zeros; else it finds what the last one left.
    pub fn clears_scratchpads(&self) -> bool {
        match self {
            Self::Lanes(_) => false,
            Self::Core(core) => core.on_chip,
            Self::Channels(_) => true,
        }
    }

    /// Gives a sink to a walk and makes a draft of what it collected. `arena` is base and size of
    /// device memory.
    pub fn draft<T>(
        &self,
        config: &Config,
        arena: (u64, u64),
        walk: impl FnOnce(&mut AnySink<'_>) -> Result<T, BatchError>,
    ) -> Result<(T, Draft), BatchError> {
        let mut sink = match self {
            Self::Lanes(lanes) => {
                let decoder = Decoder::new(config, lanes.shape, lanes.room, arena.0);
                AnySink::Lanes(Box::new(decoder))
            }
            Self::Core(_) | Self::Channels(_) => AnySink::Stream(StreamBuilder::default()),
        };
        let walked = walk(&mut sink)?;
        let draft = match (sink, self) {
            (AnySink::Lanes(decoder), Self::Lanes(lanes)) => {
                let decoded = decoder.finish();
                let goal = Goal {
                    config,
                    shape: lanes.shape,
                    room: lanes.room,
                    cut: lanes.cut,
                    dram: arena,
                };
                Draft::Lanes(schedule(decoded, goal))
            }
            (AnySink::Lanes(_), _) => Draft::Stream(Stream::default()),
            (AnySink::Stream(builder), _) => Draft::Stream(builder.finish()),
        };
        Ok((walked, draft))
    }

    /// Enqueues the copies of a draft to the device, which are finished when the first run is.
    /// `insns` are its instructions in the order in which they run, with their places in the
    /// batch.
    pub fn make(
        &self,
        draft: Draft,
        insns: impl Iterator<Item = (usize, Insn)>,
        ctx: &Ctx,
        queue: &Queue,
        shared: &Shared,
    ) -> Result<(Part, Vec<Pending>), EngineError> {
        let mut uploads = Vec::new();
        let mut upload = |words: &[u32]| -> Result<Bytes, ClFault> {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            let len = bytes.len() as u64;
            let mut buffer = ctx.buffer(len.max(16))?;
            if len > 0 {
                shared.stats.copied(&shared.stats.plan_bytes, len);
                uploads.push(queue.write(&mut buffer, 0, Arc::from(bytes))?);
            }
            Ok(buffer)
        };
        let part = match draft {
            Draft::Lanes(mut s) => {
                let phases = s.tables.len() as u32;
                let levels = |l: &Launch| [l.first_level, l.last_level];
                s.tables.extend(s.launches.iter().flat_map(levels));
                let buffers = [
                    upload(&s.ops)?,
                    upload(&s.blocks)?,
                    upload(&s.levels)?,
                    upload(&s.tables)?,
                ];
                Part::Lanes {
                    buffers,
                    launches: s.launches,
                    phases,
                }
            }
            Draft::Stream(stream) => {
                let mut words = Vec::new();
                for (index, insn) in insns {
                    let word = insn.encode().map_err(|error| BatchError::Encode {
                        at: Box::new(At { index, insn }),
                        reason: error.to_string(),
                    })?;
                    words.extend((0..4).map(|i| (word >> (32 * i)) as u32));
                }
                Part::Stream {
                    count: words.len() as u32 / 4,
                    insns: upload(&words)?,
                    fences: upload(&stream.fences)?,
                    stores: stream.stores,
                }
            }
        };
        Ok((part, uploads))
    }

    /// Enqueues a part. What it returns is finished when the part is.
    pub fn run(
        &mut self,
        part: &Part,
        arena: &Arena,
        queue: &Queue,
        shared: &Shared,
    ) -> Result<Vec<Pending>, EngineError> {
        let launched = |n: u64| shared.stats.launches.fetch_add(n, Ordering::Relaxed);
        match (self, part) {
            (
                Self::Lanes(lanes),
                Part::Lanes {
                    buffers,
                    launches,
                    phases,
                },
            ) => {
                let pending = lanes.run(
                    &buffers.each_ref(),
                    arena.buffer(),
                    launches,
                    *phases,
                    queue,
                    shared.profile,
                )?;
                launched(match lanes.one_launch {
                    Some(_) => launches.len().min(1) as u64,
                    None => launches.len() as u64,
                });
                Ok(pending)
            }
            (Self::Core(core), Part::Stream { insns, count, .. }) => {
                let dram = arena.buffer().unwrap_or(&core.pads);
                let buffers = [insns, dram, &core.pads].map(Arg::Buffer);
                core.kernel
                    .set(0, &[Arg::U32(*count), Arg::U64(arena.base())])?;
                core.kernel.set(2, &buffers)?;
                launched(1);
                Ok(vec![queue.launch(&core.kernel, 1, 1)?])
            }
            (Self::Channels(channels), Part::Stream { .. }) => {
                launched(3);
                shared.stats.stalled();
                channels.run(part, arena, queue)?;
                Ok(Vec::new())
            }
            // A part is run by the runner that made it.
            (Self::Lanes(_), Part::Stream { .. })
            | (Self::Core(_) | Self::Channels(_), Part::Lanes { .. }) => Ok(Vec::new()),
        }
    }
}

impl Lanes {
    /// Enqueues launches. `plan` is operations, blocks, levels, tables; `phases` where in these
    /// the launches' levels are. The events are the last one's, or all with `profile`.
    fn run(
        &mut self,
        plan: &[&Bytes; 4],
        dram: Option<&Bytes>,
        launches: &[Launch],
        phases: u32,
        queue: &Queue,
        profile: bool,
    ) -> Result<Vec<Pending>, ClFault> {
        let group = self.shape.group as usize;
        // A batch that touches no memory needs none; any buffer will do.
        let dram = dram.unwrap_or(&self.acc);
        let memory = [dram, &self.inp, &self.wgt, &self.acc].map(Arg::Buffer);
        let set = |kernel: &CoreKernel| {
            kernel.set(2, &plan.map(Arg::Buffer))?;
            kernel.set(6, &memory)
        };
        if let Some(one) = &mut self.one_launch {
            if launches.is_empty() {
                return Ok(Vec::new());
            }
            queue.zero(&mut one.arrived, 0, 4)?;
            let count = launches.len() as u32;
            set(&one.kernel)?;
            one.kernel.set(0, &[Arg::U32(phases), Arg::U32(count)])?;
            one.kernel.set(10, &[Arg::Buffer(&one.arrived)])?;
            return Ok(vec![queue.launch(
                &one.kernel,
                one.groups as usize,
                group,
            )?]);
        }
        set(&self.kernel)?;
        let mut pending = Vec::new();
        for launch in launches {
            let levels = [launch.first_level, launch.last_level].map(Arg::U32);
            self.kernel.set(0, &levels)?;
            let next = queue.launch(&self.kernel, launch.groups as usize, group)?;
            if !profile {
                // Events that nobody releases slow some runtimes down.
                pending.clear();
            }
            pending.push(next);
        }
        Ok(pending)
    }
}

impl Channels {
    /// Runs the three kernels side by side and waits: queues don't order each other.
    fn run(&self, part: &Part, arena: &Arena, queue: &Queue) -> Result<(), EngineError> {
        let Part::Stream {
            insns,
            fences,
            count,
            stores,
        } = part
        else {
            return Ok(());
        };
        let dram = arena.buffer().unwrap_or(fences);
        let head = [Arg::U32(*count), Arg::U64(arena.base())];
        let [load, compute, store] = &self.kernels;
        load.set(0, &head)?;
        load.set(2, &[insns, fences, dram].map(Arg::Buffer))?;
        load.set(5, &[Arg::U32(*stores)])?;
        compute.set(0, &[Arg::U32(*count), Arg::Buffer(insns)])?;
        store.set(0, &head)?;
        store.set(2, &[insns, dram].map(Arg::Buffer))?;
        queue.finish()?;
        let mut pending = Vec::new();
        for (kernel, own) in self.kernels.iter().zip(&self.queues) {
            pending.push(own.launch(kernel, 1, 1)?);
            own.flush()?;
        }
        for mut pending in pending {
            pending.wait()?;
        }
        Ok(())
    }
}

/// A launch that has nothing to do.
const NOTHING: Launch = Launch {
    first_level: 0,
    last_level: 0,
    groups: 1,
};

/// How work is cut: for work-items that are vectors of a CPU, or for groups of a GPU's lanes.
fn cut(shape: Shape, units: u32) -> Cut {
    if shape.group == 1 {
        // A block takes some microseconds, so that a launch and its hand-over don't matter.
        return Cut {
            block_cost: 100_000,
            max_blocks: units.saturating_mul(8).max(8),
            small_cost: 60_000,
            stripes: 8,
        };
    }
    // One block for each work-group; a level that one group does in no time isn't shared.
    Cut {
        block_cost: 1,
        max_blocks: u32::MAX,
        small_cost: 8_192,
        stripes: 1,
    }
}
