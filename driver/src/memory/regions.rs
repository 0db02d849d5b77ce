//! Allocations of a simulated device, each with one owner at a time.
//!
//! Work names the allocations that it touches when it is submitted. The lane that runs it takes
//! their bytes out of the device, works on them alone, and puts them back: lanes that touch
//! different allocations run at the same time, the others take turns, and no memory is shared.
//! Those of a batch stay out until somebody wants one or another piece of work comes.
//! A freed allocation lives until the last work that names it is done.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crossbeam_utils::atomic::AtomicCell;

use vta_isa::resolve::merge;
use vta_isa::{Config, INSN_BYTES};

use crate::memory::{self, HostBytes, InPlace, next_layout};
use crate::{Batch, DeviceMemory, PAGE_BYTES, Work};

/// Batches whose footprint is kept: those of a recording that is replayed.
const KEPT_FOOTPRINTS: usize = 64;
/// Pages that are remembered while spans are rounded to pages.
const SEEN_PAGES: usize = 256;

/// One allocation.
pub(crate) struct Allocation {
    addr: u32,
    /// Counts allocations: the order in which a lane takes them.
    serial: u64,
    contents: Mutex<Contents>,
    returned: Condvar,
}

struct Contents {
    /// Missing while a lane has it.
    region: Option<memory::Region>,
    /// Who waits for it: to wake nobody is a call of the system.
    waiting: usize,
}

impl Allocation {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> memory::Region {
        let mut contents = self.contents();
        loop {
            if let Some(mut region) = contents.region.take() {
                region.begin();
                return region;
            }
            contents.waiting += 1;
            let woken = self.returned.wait(contents);
            contents = woken.unwrap_or_else(PoisonError::into_inner);
            contents.waiting -= 1;
        }
    }

    fn give_back(&self, given: memory::Region) {
        let mut contents = self.contents();
        contents.region = Some(given);
        if contents.waiting > 0 {
            self.returned.notify_one();
        }
    }
}

/// The live allocations by address.
#[derive(Default)]
pub(crate) struct Regions {
    live: BTreeMap<u32, Arc<Allocation>>,
    next: u64,
}

impl Regions {
    /// Adds an allocation; the allocator hands out disjoint ones.
    pub(crate) fn insert(&mut self, addr: u32, bytes: HostBytes) {
        let region = Allocation {
            addr,
            serial: self.next,
            contents: Mutex::new(Contents {
                region: Some(memory::Region::new(addr, bytes)),
                waiting: 0,
            }),
            returned: Condvar::new(),
        };
        self.next += 1;
        self.live.insert(addr, Arc::new(region));
    }

    /// Lets the host write to an allocation in place, once no lane has it.
    pub(crate) fn in_place(&self, addr: u32) -> Option<InPlace> {
        let allocation = self.live.get(&addr)?;
        let mut region = allocation.take();
        let bytes = region.in_place();
        allocation.give_back(region);
        bytes
    }

    /// Forgets an allocation; work that names it keeps it.
    pub(crate) fn remove(&mut self, addr: u32) {
        self.live.remove(&addr);
    }

    /// The allocations that the spans touch, in ascending order of their age. For a span that
    /// starts outside of all, the one below it is among them, since errors name it.
    pub(crate) fn touched(&self, spans: &[Range<u64>]) -> Vec<Arc<Allocation>> {
        let mut found: Vec<Arc<Allocation>> = Vec::new();
        for span in spans {
            let clamp = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
            let below = self.live.range(..=clamp(span.start)).next_back();
            let behind = clamp(span.start).saturating_add(1);
            let inside = self.live.range(behind..clamp(span.end).max(behind));
            found.extend(
                below
                    .into_iter()
                    .chain(inside)
                    .map(|(_, region)| Arc::clone(region)),
            );
        }
        found.sort_unstable_by_key(|region| region.serial);
        found.dedup_by_key(|region| region.serial);
        found
    }
}

/// The numbers of the layouts that a lane has had: the same allocations again are the same
/// layout, so that what was worked out for it holds.
#[derive(Default)]
pub(crate) struct Layouts {
    known: Vec<(Vec<u64>, u64)>,
}

impl Layouts {
    fn of(&mut self, regions: &[Arc<Allocation>]) -> u64 {
        let serials = || regions.iter().map(|r| r.serial);
        let same = |(known, _): &&(Vec<u64>, u64)| known.iter().copied().eq(serials());
        if let Some((_, layout)) = self.known.iter().find(same) {
            return *layout;
        }
        if self.known.len() == KEPT_FOOTPRINTS {
            self.known.remove(0);
        }
        let layout = next_layout();
        self.known.push((serials().collect(), layout));
        layout
    }
}

/// What a piece of work touches of the allocations that there were when it was submitted.
pub(crate) struct Claim {
    regions: Vec<Arc<Allocation>>,
    /// How often allocations had come or gone.
    changes: u64,
}

/// Allocations that a lane has taken; dropped, even by a panic, they go back.
pub(crate) struct Held {
    claim: Claim,
    /// The memory's layout when they were taken.
    layout: u64,
    pub(crate) memory: DeviceMemory,
    /// Whose they are while they are kept.
    batch: Weak<Batch>,
}

impl Held {
    /// Waits until no other lane has any of them. All lanes take in the order of age, so two
    /// can't wait for each other.
    pub(crate) fn take(mut claim: Claim, layouts: &mut Layouts) -> Box<Self> {
        let layout = layouts.of(&claim.regions);
        let taken = claim.regions.iter().map(|r| r.take()).collect();
        // The order in which they go back.
        claim.regions.sort_unstable_by_key(|r| r.addr);
        Box::new(Self {
            claim,
            layout,
            memory: DeviceMemory::of_regions(taken, layout),
            batch: Weak::new(),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut contents = self.memory.take_regions().into_iter().peekable();
        for region in &self.claim.regions {
            while contents.next_if(|c| c.addr() < region.addr).is_some() {}
            let given = contents.next_if(|c| c.addr() == region.addr);
            // A runner may have unmapped it: what is left has no bytes, and nobody waits for it.
            let empty = || memory::Region::new(region.addr, HostBytes::default());
            region.give_back(given.unwrap_or_else(empty));
        }
    }
}

/// Allocations as the last batch left them: the same batch mostly comes again, and to give back and take each of them
/// would take as long as a short batch. They are nobody's who works, so whoever wants one of them gets it.
#[derive(Default)]
pub(crate) struct Kept {
    held: AtomicCell<Option<Box<Held>>>,
    /// Who is about to take allocations, so that nothing is kept from them.
    takers: AtomicUsize,
    /// How often allocations came or went.
    changes: AtomicU64,
}

impl Kept {
    pub(crate) fn claim(&self, regions: impl FnOnce() -> Vec<Arc<Allocation>>) -> Claim {
        let changes = self.changes.load(Ordering::SeqCst);
        let regions = regions();
        Claim { regions, changes }
    }

    /// What is kept, if the same batch comes again; else it goes back.
    pub(crate) fn again(&self, batch: &Arc<Batch>) -> Option<Box<Held>> {
        let held = self.held.take();
        let mut held = held.filter(|held| held.batch.as_ptr() == Arc::as_ptr(batch))?;
        held.memory.begin();
        Some(held)
    }

    /// Has somebody take allocations, of which none is kept meanwhile.
    pub(crate) fn taking<T>(&self, take: impl FnOnce() -> T) -> T {
        self.takers.fetch_add(1, Ordering::SeqCst);
        drop(self.held.take());
        let taken = take();
        self.takers.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// Keeps what a batch held, unless somebody waits for it, or allocations or a runner's regions aren't what they were.
    pub(crate) fn keep(&self, batch: &Arc<Batch>, mut held: Box<Held>) {
        // A weak pointer keeps its address from being used again.
        if held.batch.as_ptr() != Arc::as_ptr(batch) {
            held.batch = Arc::downgrade(batch);
        }
        let claimed = held.claim.changes;
        if held.memory.layout() != held.layout {
            return;
        }
        drop(self.held.swap(Some(held)));
        // Looked at once it is there: whoever comes later finds it.
        let takers = self.takers.load(Ordering::SeqCst);
        if takers > 0 || self.changes.load(Ordering::SeqCst) != claimed {
            drop(self.held.take());
        }
    }

    /// Allocations came or went.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        drop(self.held.take());
    }
}

/// What pieces of work touch of a device's memory. Those of batches are worked out once.
///
/// ```
/// use vta_driver::{Footprints, PhysAddr, Work};
/// use vta_isa::Config;
///
/// let read = Work::Read { addr: PhysAddr(0x1000), size_bytes: 16 };
/// let spans = Footprints::default().of(&read, &Config::default());
/// assert_eq!(spans[..], [0x1000..0x1010]);
/// ```
#[derive(Default)]
pub struct Footprints {
    known: Mutex<Vec<Known>>,
}

/// A batch and its spans.
type Known = (Weak<Batch>, Arc<[Range<u64>]>);

impl Footprints {
    /// Spans in bytes: of a copy, or the pages of a batch's words and of all that its instructions'
    /// fields reach. They are disjoint and in ascending order.
    pub fn of(&self, work: &Work, config: &Config) -> Arc<[Range<u64>]> {
        let span = |start: u64, size: u64| {
            let one = start..start.saturating_add(size);
            Arc::from(std::slice::from_ref(&one))
        };
        match work {
            Work::Write { addr, data } => span(addr.0.into(), data.len() as u64),
            Work::Pack { addr, images } => span(addr.0.into(), images.packed_bytes()),
            Work::Read { addr, size_bytes } => span(addr.0.into(), *size_bytes),
            Work::Run(batch) => self.of_batch(batch, config),
        }
    }

    fn of_batch(&self, batch: &Arc<Batch>, config: &Config) -> Arc<[Range<u64>]> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(weak, _): &&Known| weak.as_ptr() == Arc::as_ptr(batch);
        // A weak pointer keeps its address from being used again.
        if let Some((_, spans)) = known.iter().find(same) {
            return Arc::clone(spans);
        }
        let spans: Arc<[Range<u64>]> = spans(batch, config).into();
        known.retain(|(weak, _)| weak.strong_count() > 0);
        if known.len() == KEPT_FOOTPRINTS {
            known.remove(0);
        }
        known.push((Arc::downgrade(batch), Arc::clone(&spans)));
        spans
    }
}

/// Disjoint spans in ascending order.
fn spans(batch: &Batch, config: &Config) -> Vec<Range<u64>> {
    let words = (batch.words.len() * INSN_BYTES) as u64;
    let first = u64::from(batch.insn_addr.0);
    let fetched = (words > 0).then(|| first..first + words);
    let moved = batch.insns.iter().filter_map(|i| i.dram_rows(config));
    pages(fetched.into_iter().chain(moved.map(|rows| rows.span())))
}

/// The whole pages that spans of bytes touch, disjoint and ascending: allocations begin on pages.
///
/// ```
/// let spans = [0x1ff0..0x2010, 0x1200..0x1300, 0x8000..0x8001];
/// assert_eq!(vta_driver::pages(spans), [0x1000..0x3000, 0x8000..0x9000]);
/// ```
pub fn pages(spans: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    // Most instructions move a few tiles in pages that others touched a moment ago.
    let mut seen = [u64::MAX; SEEN_PAGES];
    for span in spans.into_iter().filter(|span| !span.is_empty()) {
        let (first, last) = (span.start / PAGE_BYTES, (span.end - 1) / PAGE_BYTES);
        let seen = &mut seen[first as usize % SEEN_PAGES];
        if (*seen, first) != (first, last) {
            *seen = first;
            found.push(first * PAGE_BYTES..(last + 1) * PAGE_BYTES);
        }
    }
    merge(&mut found);
    found
}

#[cfg(test)]
mod tests;
