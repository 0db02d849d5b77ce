//! What the crate's tests share: a device that records and fails on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use vta_isa::{Config, INSN_BYTES, Insn, MemType, UOP_BYTES, Uop};
pub use vta_program::testing::*;

use crate::{
    Allocator, Batch, Device, DeviceInfo, DeviceMemory, DriverError, PAGE_BYTES, PhysAddr,
    RunReport, Ticket, Traffic, Work, WorkerDevice,
};

/// What lay in device memory when a batch ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The instructions' bytes, and what the batch says they are.
    pub words: (Vec<u8>, Vec<u8>),
    /// The micro-ops that each LOAD UOP fetched.
    pub uops: Vec<Vec<Uop>>,
}

/// A device of `pages` pages that records what its batches find in memory. The work item of
/// index `fail_at` isn't done and its ticket fails; from `refuse_at` on none is accepted.
pub struct Recorder {
    inner: WorkerDevice,
    seen: Arc<Mutex<Vec<Seen>>>,
    pub submitted: AtomicUsize,
    pub writes: AtomicUsize,
    pub fail_at: AtomicUsize,
    pub refuse_at: AtomicUsize,
}

impl Recorder {
    pub fn new(config: Config, pages: u64) -> Arc<Self> {
        let info = DeviceInfo {
            name: "recorder".into(),
            config: config.clone(),
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let allocator = Allocator::new(PAGE_BYTES, (1 + pages) * PAGE_BYTES);
        let runner = Box::new(move |batch: &Arc<Batch>, memory: &mut DeviceMemory| {
            let size = (batch.words.len() * INSN_BYTES) as u64;
            let found = memory
                .read(batch.insn_addr.0.into(), size)
                .unwrap()
                .to_vec();
            let said = batch.words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let fetch = |insn: &Insn| match insn {
                Insn::Load(l) if l.mem == MemType::Uop => {
                    let at = u64::from(l.dram_base) * UOP_BYTES as u64;
                    let bytes = memory.read(at, l.dram_elems() * UOP_BYTES as u64).unwrap();
                    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
                    Some(bytes.chunks(4).map(|b| Uop::decode(word(b))).collect())
                }
                _ => None,
            };
            let uops = batch.insns.iter().filter_map(fetch).collect();
            let words = (found, said);
            log.lock().unwrap().push(Seen { words, uops });
            Ok(RunReport {
                traffic: Traffic::of(&batch.insns, &config),
                ..RunReport::default()
            })
        });
        Arc::new(Self {
            inner: WorkerDevice::with_allocator(info, allocator, runner),
            seen,
            submitted: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            fail_at: AtomicUsize::new(usize::MAX),
            refuse_at: AtomicUsize::new(usize::MAX),
        })
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// Makes the work item after `skip` more fail.
    pub fn fail_after(&self, skip: usize) {
        let next = self.submitted.load(Ordering::Relaxed) + skip;
        self.fail_at.store(next, Ordering::Relaxed);
    }

    /// Refuses every work item after `skip` more.
    pub fn refuse_after(&self, skip: usize) {
        let next = self.submitted.load(Ordering::Relaxed).saturating_add(skip);
        self.refuse_at.store(next, Ordering::Relaxed);
    }
}

impl Device for Recorder {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.inner.alloc(size_bytes)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.inner.alloc_at(addr, size_bytes)
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.inner.free(addr)
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let index = self.submitted.fetch_add(1, Ordering::Relaxed);
        if matches!(work, Work::Write { .. } | Work::Pack { .. }) {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        let error = DriverError::Device {
            device: "recorder".into(),
            message: "on demand".into(),
        };
        if index >= self.refuse_at.load(Ordering::Relaxed) {
            return Err(error);
        }
        if index == self.fail_at.load(Ordering::Relaxed) {
            return Ok(Box::new(move || Err(error)));
        }
        self.inner.submit(work)
    }
}

/// Stores the tile that was loaded last, each byte doubled.
fn double(batch: &Batch, memory: &mut DeviceMemory) -> Result<RunReport, String> {
    let mut tile = Vec::new();
    for insn in &batch.insns {
        match insn {
            Insn::Load(load) if load.mem == MemType::Inp => {
                let at = u64::from(load.dram_base) * 16;
                tile = memory.read(at, 16).map_err(|e| e.to_string())?.to_vec();
            }
            Insn::Store(store) => {
                let at = u64::from(store.dram_base) * 16;
                let out = memory.write(at, 16).map_err(|e| e.to_string())?;
                for (to, from) in out.iter_mut().zip(&tile) {
                    *to = from.wrapping_mul(2);
                }
            }
            Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => {
            }
        }
    }
    Ok(RunReport::default())
}

/// A device whose batches copy each loaded tile to the next stored one, each byte doubled.
pub fn doubler(mut before: impl FnMut() -> Result<(), String> + Send + 'static) -> WorkerDevice {
    let info = DeviceInfo {
        name: "doubler".into(),
        config: Config::default(),
    };
    let runner = move |batch: &Arc<Batch>, memory: &mut DeviceMemory| {
        before()?;
        double(batch, memory)
    };
    WorkerDevice::new(info, Box::new(runner))
}

/// A batch of instructions that aren't in device memory.
pub fn batch(insns: Vec<Insn>) -> Work {
    Work::Run(Arc::new(Batch {
        words: vec![],
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    }))
}

/// Writes one byte.
pub fn write(addr: PhysAddr, value: u8) -> Work {
    Work::Write {
        addr,
        data: [value].into(),
    }
}

/// Reads one byte.
pub fn read(addr: PhysAddr) -> Work {
    let size_bytes = 1;
    Work::Read { addr, size_bytes }
}
