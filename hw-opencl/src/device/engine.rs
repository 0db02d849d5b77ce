//! What the enqueuing thread owns: queues, kernels, memory, plans.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Instant;

use vta_driver::packing::TensorImages;
use vta_driver::{Batch, Footprints, Lane, RunReport, StepBudget, Work};
use vta_isa::resolve::{UopScratchpad, meet, stored_bytes};
use vta_isa::{Config, MemType, Uop, check, tokens};

use crate::arena::Arena;
use crate::batch::{Stop, Walk};
use crate::build::program::Builder;
use crate::cl::{Ctx, Marker, Pending, Queue, Staging};
use crate::error::{ClFault, EngineError, OpenClError};
use crate::mirror::Mirror;
use crate::select::Structure;
use crate::shared::Shared;
use crate::structure::{Part, Runner, Site};

/// Plans that are kept for batches that are still alive.
const MAX_PLANS: usize = 4096;
/// Bytes of the plans that are kept.
const MAX_PLAN_BYTES: u64 = 256 << 20;

/// The queue that runs batches.
const COMPUTE: usize = Lane::Compute as usize;

/// A batch made ready to run, and what must still hold for it to be run again.
struct Plan {
    batch: Weak<Batch>,
    part: Part,
    report: RunReport,
    /// Bytes that the device writes.
    writes: Vec<Range<u64>>,
    /// Of the host's copy of device memory.
    layout: u64,
    arena: (u64, u64),
    /// Where micro-ops were read, and what they were.
    uop_sources: Vec<(u64, Vec<u8>)>,
    /// What of the micro-op scratchpad the batch found and used.
    uops_before: Vec<(usize, Uop)>,
    /// What the micro-op scratchpad holds afterwards.
    uops: Vec<(usize, Uop)>,
}

/// Work that is enqueued on one of the queues: what it touches, and its end.
struct InFlight {
    spans: Arc<[Range<u64>]>,
    end: Marker,
}

/// Queues, kernels and memory of one device.
pub(crate) struct Engine {
    // Dropped in this order: what is enqueued holds references of its own to what it uses.
    /// By the address of the batch, which the plan's weak pointer keeps from being used again.
    plans: HashMap<usize, Plan>,
    runner: Runner,
    arena: Arena,
    /// By lane.
    queues: [Queue; 2],
    ctx: Arc<Ctx>,
    /// By lane, for the other lane.
    in_flight: [Vec<InFlight>; 2],
    footprints: Footprints,
    config: Config,
    mirror: Mirror,
    uops: UopScratchpad,
    max_steps: u64,
    shared: Arc<Shared>,
}

impl Engine {
    /// An engine with the kernels of a structure.
    pub fn new(
        builder: &Builder<'_>,
        structure: Structure,
        shared: &Arc<Shared>,
    ) -> Result<Self, OpenClError> {
        let (facts, options, ctx) = (&builder.entry.facts, builder.options, builder.ctx);
        let call = |fault: ClFault| fault.of(&shared.device);
        let mut queue = Queue::new(ctx, options.profile).map_err(call)?;
        let mut copies = Queue::new(ctx, false).map_err(call)?;
        if options.pinned.unwrap_or(!facts.unified) {
            let staging = Staging::new(ctx).map_err(call)?;
            queue.stage(staging.clone());
            copies.stage(staging);
        }
        let runner = Runner::new(builder, structure, &queue)?;
        let config = builder.config.clone();
        Ok(Self {
            plans: HashMap::new(),
            runner,
            arena: Arena::new(facts.max_alloc_bytes),
            queues: [queue, copies],
            ctx: Arc::clone(ctx),
            in_flight: [Vec::new(), Vec::new()],
            footprints: Footprints::default(),
            mirror: Mirror::new(),
            uops: UopScratchpad::holding(vec![Uop::default(); config.depth(MemType::Uop)]),
            config,
            max_steps: options.max_steps,
            shared: Arc::clone(shared),
        })
    }

    pub fn map(&mut self, addr: u32, size_bytes: u64) {
        // The allocator hands out disjoint ranges, so mapping can't fail.
        if let Err(error) = self.mirror.map(addr, size_bytes) {
            tracing::error!(device = self.shared.device, %error, "mapping device memory");
        }
        self.arena.map(addr, size_bytes);
    }

    pub fn unmap(&mut self, addr: u32) {
        self.mirror.unmap(addr);
        self.arena.unmap(addr);
    }

    pub fn clears_scratchpads(&self) -> bool {
        self.runner.clears_scratchpads()
    }

    pub fn finish(&self) -> Result<(), ClFault> {
        self.queues.iter().try_for_each(Queue::finish)
    }

    /// Puts what is enqueued next on a lane behind what touches the same bytes on the other;
    /// the bytes.
    pub fn order(&mut self, lane: Lane, work: &Work) -> Result<Arc<[Range<u64>]>, EngineError> {
        self.prepare()?;
        let spans = self.footprints.of(work, &self.config);
        let other = &mut self.in_flight[1 - lane as usize];
        other.retain(|earlier| !earlier.end.is_reached());
        let meets = other.iter().filter(|earlier| meet(&earlier.spans, &spans));
        let ends: Vec<Marker> = meets.map(|earlier| earlier.end.clone()).collect();
        self.queues[lane as usize].wait_for(&ends)?;
        Ok(spans)
    }

    /// Notes what was enqueued on a lane.
    pub fn note(&mut self, lane: Lane, spans: Arc<[Range<u64>]>, last: Option<&Pending>) {
        let mine = &mut self.in_flight[lane as usize];
        mine.retain(|earlier| !earlier.end.is_reached());
        mine.extend(last.map(|last| InFlight {
            spans,
            end: last.marker(),
        }));
    }

    /// Gives the allocations their memory, which both lanes then see.
    fn prepare(&mut self) -> Result<(), EngineError> {
        if self.arena.is_ready() {
            return Ok(());
        }
        // The buffer may be a new one, which takes over the bytes of the old.
        let [queue, copies] = &self.queues;
        queue.wait_for(&[copies.marker()?])?;
        self.arena.prepare(&self.ctx, queue)?;
        Ok(copies.wait_for(&[queue.marker()?])?)
    }

    pub fn write(
        &mut self,
        lane: Lane,
        addr: u32,
        data: vta_driver::Bytes,
    ) -> Result<Vec<Pending>, EngineError> {
        self.mirror.host_writes(addr, &data)?;
        let offset = u64::from(addr) - self.arena.base();
        let queue = &self.queues[lane as usize];
        let Some(buffer) = self.arena.buffer_mut().filter(|_| !data.is_empty()) else {
            return Ok(Vec::new());
        };
        let pending = queue.write(buffer, offset, data)?;
        queue.flush()?;
        Ok(vec![pending])
    }

    /// Writes the tiles of images, which the device packs if it can.
    pub fn pack(
        &mut self,
        lane: Lane,
        addr: u32,
        images: Arc<TensorImages>,
    ) -> Result<Vec<Pending>, EngineError> {
        let (first, size) = (u64::from(addr), images.packed_bytes());
        self.mirror.memory().read(first, size)?;
        let stats = &self.shared.stats;
        if let (Some(packer), Some(to)) = (self.runner.packer(), self.arena.buffer()) {
            let site = Site {
                ctx: &self.ctx,
                arena: &self.arena,
                queue: &self.queues[lane as usize],
                shared: &self.shared,
            };
            let to = (to, first - self.arena.base());
            if let Some(packed) = packer.pack(site, lane, &images, to)? {
                site.queue.flush()?;
                self.mirror.device_writes(&(first..first + size));
                return Ok(vec![packed]);
            }
        }
        stats.sent(size);
        let mut tiles = vec![0; size as usize];
        images.pack_into(&mut tiles);
        self.write(lane, addr, tiles.into())
    }

    pub fn read(
        &mut self,
        lane: Lane,
        addr: u32,
        size_bytes: u64,
    ) -> Result<Vec<Pending>, EngineError> {
        self.mirror.memory().read(addr.into(), size_bytes)?;
        let offset = u64::from(addr) - self.arena.base();
        let Some(buffer) = self.arena.buffer().filter(|_| size_bytes > 0) else {
            return Ok(Vec::new());
        };
        let pending = self.queues[lane as usize].read(buffer, offset, size_bytes)?;
        self.queues[lane as usize].flush()?;
        Ok(vec![pending])
    }

    /// Enqueues a batch: from an earlier plan, if it still holds, else from a new one.
    pub fn run(&mut self, batch: &Arc<Batch>) -> Result<(Vec<Pending>, RunReport), EngineError> {
        self.shared.stats.add(|s| s.batches += 1);
        let key = Arc::as_ptr(batch) as usize;
        let done = match self.plans.get(&key) {
            Some(plan) if self.still_holds(plan) => {
                self.uops.restore(&plan.uops);
                plan.writes
                    .iter()
                    .for_each(|bytes| self.mirror.device_writes(bytes));
                let site = Site {
                    ctx: &self.ctx,
                    arena: &self.arena,
                    queue: &self.queues[COMPUTE],
                    shared: &self.shared,
                };
                (self.runner.run(&plan.part, site)?, plan.report.clone())
            }
            _ => {
                self.plans.remove(&key);
                let began = Instant::now();
                let done = self.plan_and_run(batch)?;
                let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.shared.stats.add(|s| s.plan_ns += took);
                done
            }
        };
        self.queues[COMPUTE].flush()?;
        Ok(done)
    }

    fn still_holds(&self, plan: &Plan) -> bool {
        let arena = (self.arena.base(), self.arena.size_bytes());
        let same_memory = plan.layout == self.mirror.memory().layout() && plan.arena == arena;
        if !same_memory || !self.uops.holds(&plan.uops_before) {
            return false;
        }
        let memory = self.mirror.memory();
        plan.uop_sources.iter().all(|(addr, bytes)| {
            let len = bytes.len() as u64;
            !self.mirror.is_stale(&(*addr..addr + len))
                && memory.read(*addr, len).is_ok_and(|now| now == *bytes)
        })
    }

    fn plan_and_run(
        &mut self,
        batch: &Arc<Batch>,
    ) -> Result<(Vec<Pending>, RunReport), EngineError> {
        self.shared.stats.add(|s| s.plans += 1);
        check::extensions(&self.config, &batch.insns).map_err(EngineError::refused)?;
        let order = tokens::order(&batch.insns).map_err(EngineError::refused)?;
        let leftover_tokens = order.leftover;
        let order = order.indices;
        if self.runner.clears_scratchpads() {
            self.uops.begin_cleared();
        } else {
            self.uops.begin();
        }
        let mut walk = Walk {
            config: &self.config,
            batch,
            order: &order,
            uops: &mut self.uops,
            steps: StepBudget::new(self.max_steps),
            uop_sources: Vec::new(),
        };
        let arena = (self.arena.base(), self.arena.size_bytes());
        let (mut from, mut fresh) = (0, None);
        let mut all = Vec::new();
        loop {
            let site = Site {
                ctx: &self.ctx,
                arena: &self.arena,
                queue: &self.queues[COMPUTE],
                shared: &self.shared,
            };
            let (stop, part, uploads) = self
                .runner
                .make(site, |sink| walk.run(&mut self.mirror, from, fresh, sink))?;
            let pending = self.runner.run(&part, site)?;
            all.extend(uploads.into_iter().chain(pending));
            let Stop::ReadBack { position, ranges } = stop else {
                // Layers overlap on the device, so no time is attributed to one.
                let report = RunReport {
                    leftover_tokens,
                    ..RunReport::of(&batch.insns, &batch.marks, &self.config)
                };
                let whole = fresh.is_none();
                let sources = std::mem::take(&mut walk.uop_sources);
                if whole {
                    self.keep(batch, part, &report, sources);
                }
                return Ok((all, report));
            };
            let stats = &self.shared.stats;
            stats.stalled();
            for (addr, len) in ranges {
                if let Some(buffer) = self.arena.buffer() {
                    stats.received(len);
                    let mut read =
                        self.queues[COMPUTE].read(buffer, u64::from(addr) - arena.0, len)?;
                    self.mirror.refresh(addr, &read.wait()?)?;
                }
            }
            (from, fresh) = (position, Some(position));
        }
    }

    /// Keeps a plan for the batch's next run, unless that could differ.
    fn keep(
        &mut self,
        batch: &Arc<Batch>,
        part: Part,
        report: &RunReport,
        uop_sources: Vec<(u32, u32)>,
    ) {
        let memory = self.mirror.memory();
        let source = |&(addr, len): &(u32, u32)| {
            let (addr, len) = (u64::from(addr), u64::from(len));
            Some((addr, memory.read(addr, len).ok()?.to_vec()))
        };
        let Some(uop_sources) = uop_sources.iter().map(source).collect() else {
            return;
        };
        let bytes = |plans: &HashMap<usize, Plan>| -> u64 {
            plans.values().map(|plan| plan.part.size_bytes()).sum()
        };
        self.plans.retain(|_, plan| plan.batch.strong_count() > 0);
        if self.plans.len() >= MAX_PLANS || bytes(&self.plans) >= MAX_PLAN_BYTES {
            self.plans.clear();
        }
        let plan = Plan {
            batch: Arc::downgrade(batch),
            part,
            report: report.clone(),
            writes: stored_bytes(&self.config, &batch.insns),
            layout: self.mirror.memory().layout(),
            arena: (self.arena.base(), self.arena.size_bytes()),
            uop_sources,
            uops_before: self.uops.found(),
            uops: self.uops.loaded().collect(),
        };
        self.plans.insert(Arc::as_ptr(batch) as usize, plan);
    }
}
