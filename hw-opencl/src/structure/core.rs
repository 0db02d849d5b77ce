//! The single-work-item core on a device, as one kernel or as three joined by channels.

use super::site::Site;
use super::stream::Stream;
use crate::build::program::{Builder, scratchpad_bytes};
use crate::cl::{Arg, Bytes, CoreKernel, Pending, Queue};
use crate::error::{ClFault, EngineError, OpenClError};
use crate::select::Structure;

/// The single-work-item core.
pub(crate) struct Core {
    kernel: CoreKernel,
    scratchpads: Bytes,
    on_chip: bool,
}

/// The core as three kernels, each on a queue of its own.
pub(crate) struct Channels {
    kernels: [CoreKernel; 3],
    queues: [Queue; 3],
}

/// A batch on the device.
pub(crate) struct StreamOnDevice {
    insns: Bytes,
    fences: Bytes,
    count: u32,
    stores: u32,
}

impl StreamOnDevice {
    /// Copies a stream to the device by `upload`.
    pub fn make(
        stream: Stream,
        mut upload: impl FnMut(Vec<u32>) -> Result<Bytes, ClFault>,
    ) -> Result<Self, ClFault> {
        Ok(Self {
            count: stream.insns.len() as u32 / 4,
            insns: upload(stream.insns)?,
            fences: upload(stream.fences)?,
            stores: stream.stores,
        })
    }

    /// Bytes of device memory.
    pub fn size_bytes(&self) -> u64 {
        self.insns.size_bytes() + self.fences.size_bytes()
    }
}

impl Core {
    /// Builds the kernel and makes the scratchpads.
    pub fn new(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        let built = builder.core(Structure::Core)?;
        builder.check_identity(&built, queue)?;
        // What a bitstream does is the FPGA's way, wherever it runs.
        let on_chip = builder.on_chip() || builder.options.bitstream.is_some();
        let make = || -> Result<Self, ClFault> {
            let size = if on_chip {
                16
            } else {
                scratchpad_bytes(builder.config) as u64
            };
            let mut scratchpads = builder.ctx.buffer(size)?;
            queue.zero(&mut scratchpads, 0, size)?;
            let kernel = built.kernel("vta_core")?;
            let nothing = builder.ctx.buffer(16)?;
            let buffers = [&nothing, &nothing, &scratchpads].map(Arg::Buffer);
            kernel.set(0, &[Arg::U32(0), Arg::U64(0)])?;
            kernel.set(2, &buffers)?;
            queue.launch(&kernel, 1, 1)?;
            queue.finish()?;
            Ok(Self {
                kernel,
                scratchpads,
                on_chip,
            })
        };
        make().map_err(|fault| builder.call(fault))
    }

    /// Whether a batch starts from scratchpads of zeros.
    pub fn clears_scratchpads(&self) -> bool {
        self.on_chip
    }

    /// Enqueues a batch. What it returns is finished when the batch is.
    pub fn run(
        &self,
        stream: &StreamOnDevice,
        site: Site<'_>,
    ) -> Result<Vec<Pending>, EngineError> {
        let Site { arena, queue, .. } = site;
        let dram = arena.buffer().unwrap_or(&self.scratchpads);
        let buffers = [&stream.insns, dram, &self.scratchpads].map(Arg::Buffer);
        let head = [Arg::U32(stream.count), Arg::U64(arena.base())];
        self.kernel.set(0, &head)?;
        self.kernel.set(2, &buffers)?;
        site.shared.stats.add(|s| s.launches += 1);
        Ok(vec![queue.launch(&self.kernel, 1, 1)?])
    }
}

impl Channels {
    /// Builds the kernels, each with a queue of its own.
    pub fn new(builder: &Builder<'_>, queue: &Queue) -> Result<Self, OpenClError> {
        if !builder.entry.has_channels() {
            let reason = "it has no channels between kernels";
            return Err(builder.no_structure(Structure::Channels, reason));
        }
        let built = builder.core(Structure::Channels)?;
        builder.check_identity(&built, queue)?;
        let make = || -> Result<Self, ClFault> {
            Ok(Self {
                kernels: [
                    built.kernel("vta_load")?,
                    built.kernel("vta_compute")?,
                    built.kernel("vta_store")?,
                ],
                queues: [
                    Queue::new(builder.ctx, false)?,
                    Queue::new(builder.ctx, false)?,
                    Queue::new(builder.ctx, false)?,
                ],
            })
        };
        make().map_err(|fault| builder.call(fault))
    }

    /// Runs the three kernels side by side and waits: queues don't order each other.
    pub fn run(&self, stream: &StreamOnDevice, site: Site<'_>) -> Result<(), EngineError> {
        let Site { arena, queue, .. } = site;
        let stats = &site.shared.stats;
        stats.add(|s| s.launches += 3);
        stats.stalled();
        let StreamOnDevice {
            insns,
            fences,
            count,
            stores,
        } = stream;
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
