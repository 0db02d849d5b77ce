//! The device behind the driver interface: opened by the environment, run on the caller's instructions.

mod warm_up;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use vta_app::Target;
use vta_app::device::Setup;
use vta_app::options::ConfigSource;
use vta_driver::{
    Allocations, Batch, Device, Footprints, PhysAddr, Traffic, Work, WorkDone, pages,
};
use vta_isa::original::{Layout, LayoutError};
use vta_isa::tokens::{Edge, TokenError, pops, pushes, run_in_token_order};
use vta_isa::{Config, Deps, INSN_BYTES, Insn, Load, MemType, Module, Store};

pub(super) use self::warm_up::WarmUp;
use super::memory::{Memory, align_bytes};
use super::original::Uops;
use crate::error::Failure;

/// Streams whose decoded form is kept.
const KEPT_STREAMS: usize = 32;
/// Instructions at most of a stream that is kept at once. Longer ones are kept when they seem to come again: what is
/// kept is new memory, which costs up to a third of a run, and the first run may be the only one.
const KEPT_AT_ONCE: usize = 4096;
/// The most instructions of one run: 1 GiB.
const MOST_INSNS: u32 = 1 << 26;
/// What `VTA_DEVICE` is by default.
const SIMULATOR: &str = "sim";
/// Words that are compared bit for bit at once.
const COMPARED_WORDS: usize = 256;

/// What runs counted, since it was last cleared.
#[derive(Clone, Debug, Default)]
pub struct Stats(Traffic);

impl Stats {
    /// With the original profiler's names: an ACC8 load counts as the int32 that it becomes, and a reset isn't
    /// a GEMM.
    pub fn json(&self) -> String {
        let bytes = |mem: MemType| self.0.bytes[mem.index()];
        let acc = bytes(MemType::Acc).saturating_add(bytes(MemType::Acc8).saturating_mul(4));
        serde_json::json!({
            "inp_load_nbytes": bytes(MemType::Inp),
            "wgt_load_nbytes": bytes(MemType::Wgt).saturating_add(bytes(MemType::Wgt4)),
            "acc_load_nbytes": acc,
            "uop_load_nbytes": bytes(MemType::Uop),
            "out_store_nbytes": bytes(MemType::Out),
            "gemm_counter": self.0.gemm_steps,
            "alu_counter": self.0.alu_steps,
        })
        .to_string()
    }
}

/// A stream that ran, which is recognised when it comes again.
struct Stream {
    /// Where the caller's words lie, unless it came as instructions.
    addr: Option<u32>,
    /// The words as the caller wrote them.
    words: Vec<[u8; INSN_BYTES]>,
    /// Whether it is kept.
    keeps: bool,
    /// Tokens that stand before it.
    tokens: [u32; 4],
    /// How many instructions of the batch give them.
    before: usize,
    batch: Arc<Batch>,
    /// To run it.
    work: Work,
    /// The pages that it writes to, once somebody asked.
    stores: OnceCell<Vec<Range<u64>>>,
    /// The micro-ops that it loads, where the device reads others than the caller writes.
    uops: Option<Uops>,
    /// Keeps the batch's words in device memory, where they aren't the caller's.
    _staged: Option<Allocations>,
}

/// A device with the memory that it shares with the host.
pub struct Machine {
    pub memory: Memory,
    pub device: Arc<dyn Device>,
    pub stats: Stats,
    /// Tokens that the runs so far left, in the order of [`Edge::ALL`].
    tokens: [u32; 4],
    streams: VecDeque<Box<Stream>>,
    /// Where streams lay that weren't kept, and how many instructions they were.
    once: VecDeque<(Option<u32>, usize)>,
    /// Memory of such instructions.
    spare: Vec<Insn>,
    footprints: Footprints,
    /// How the original packs instructions for the caller's configuration, if otherwise than the device reads them.
    layout: Result<Option<Layout>, LayoutError>,
}

impl Machine {
    /// The device that the environment names.
    ///
    /// # Errors
    /// It names none, or what it names can't be opened.
    pub fn from_env(bitstream: Option<PathBuf>) -> Result<Self, Failure> {
        let setup = Setup::new(&target(bitstream)?, "libvta")?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut machine = Self::new(setup.device(&setup.machine.config, threads)?);
        // Without a file the caller's is the default one, whatever the board has.
        if let Some(ConfigSource::File(path)) = &setup.target.config {
            let layout = Layout::of(&vta_app::device::config(Some(path))?);
            machine.layout = layout.map(|layout| Some(layout).filter(|layout| !layout.is_ours()));
        }
        Ok(machine)
    }

    /// Whether the original has instructions for the configuration.
    ///
    /// # Errors
    /// The key of the configuration, and a field that would have no bit.
    pub fn reads_instructions(&self) -> Result<(), Failure> {
        let wrong = |error: &LayoutError| Failure::usage(format!("VTA_CONFIG: {error}"));
        self.layout.as_ref().map(|_| ()).map_err(wrong)
    }

    fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref().ok()?.as_ref()
    }

    fn new(device: Arc<dyn Device>) -> Self {
        Self {
            memory: Memory::default(),
            device,
            stats: Stats::default(),
            tokens: [0; 4],
            streams: VecDeque::new(),
            once: VecDeque::new(),
            spare: Vec::new(),
            footprints: Footprints::default(),
            layout: Ok(None),
        }
    }

    /// The instance that the device implements.
    pub fn config(&self) -> &Config {
        &self.device.info().config
    }

    /// A buffer of so many bytes.
    ///
    /// # Errors
    /// As for [`Memory::alloc`].
    pub fn alloc(&mut self, size: usize) -> Result<*mut c_void, Failure> {
        Ok(self.memory.alloc(&self.device, size)?.cast())
    }

    /// Runs instructions that lie at an address of the device.
    ///
    /// # Errors
    /// Instructions that aren't there or aren't any, and what the device refuses: the token queues are empty
    /// afterwards.
    pub fn run(&mut self, addr: u32, count: u32) -> Result<(), Failure> {
        let stream = self.stream(addr, count);
        self.run_found(stream)
    }

    /// Runs instructions, whose words needn't lie anywhere. The caller has the memory of as many afterwards.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_insns(&mut self, insns: &mut Vec<Insn>) -> Result<(), Failure> {
        let same = |s: &Stream| s.addr.is_none() && s.batch.insns.get(s.before..) == Some(&*insns);
        let kept = self.find(same).and_then(|at| self.streams.remove(at));
        let stream = match kept {
            Some(kept) => Ok(kept),
            None => {
                let insns = match self.keeps(None, insns.len()) {
                    true => Cow::Borrowed(&insns[..]),
                    false => Cow::Owned(std::mem::take(insns)),
                };
                self.new_stream(&[], insns, None)
            }
        };
        self.run_found(stream)?;
        if insns.is_empty() {
            *insns = std::mem::take(&mut self.spare);
        }
        Ok(())
    }

    fn run_found(&mut self, stream: Result<Box<Stream>, Failure>) -> Result<(), Failure> {
        let ran = stream.and_then(|mut stream| self.run_stream(&mut stream).map(|()| stream));
        match ran {
            // One that failed may run with tokens that it lacked, and isn't kept.
            Ok(stream) if stream.keeps => self.streams.push_back(stream),
            Ok(stream) => {
                let Stream { work, batch, .. } = *stream;
                let insns = batch.insns.len() - stream.before;
                self.once.push_back((stream.addr, insns));
                drop(work);
                if let Ok(batch) = Arc::try_unwrap(batch) {
                    self.spare = batch.insns;
                    self.spare.clear();
                }
            }
            Err(failure) => {
                self.tokens = [0; 4];
                return Err(failure);
            }
        }
        if self.streams.len() > KEPT_STREAMS {
            self.streams.pop_front();
        }
        if self.once.len() > KEPT_STREAMS {
            self.once.pop_front();
        }
        Ok(())
    }

    fn run_stream(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        if let (Some(uops), Some(layout)) = (&mut stream.uops, self.layout()) {
            uops.refresh(layout, &self.memory, &*self.device)?;
        }
        let copies = self.memory.copies();
        if copies {
            let spans = self.footprints.of(&stream.work, self.config());
            self.memory.push(&*self.device, &spans)?;
        }
        let done = match self.device.perform(&stream.work) {
            Some(done) => done,
            None => self.device.submit(stream.work.clone())?.wait(),
        };
        // What ran before a fault has its effect.
        let pulled = if copies {
            let stores = || stores(&stream.batch.insns, self.config());
            let stores = stream.stores.get_or_init(stores);
            self.memory.pull(&*self.device, stores)
        } else {
            Ok(())
        };
        let WorkDone::Ran(report) = done? else {
            return Err(Failure::internal("a run gave no report"));
        };
        pulled?;
        self.stats.0.add(&report.traffic);
        self.tokens = std::array::from_fn(|at| {
            let left = self.tokens[at].saturating_sub(stream.tokens[at]);
            left.saturating_add(report.leftover_tokens[at])
        });
        Ok(())
    }

    /// Where a stream that ran before is kept and has the tokens that it takes.
    fn find(&self, same: impl Fn(&Stream) -> bool) -> Option<usize> {
        // The newest first: programs run one again and again.
        (0..self.streams.len()).rev().find(|&at| {
            let s = &self.streams[at];
            let mut tokens = s.tokens.iter().zip(self.tokens);
            tokens.all(|(need, have)| *need <= have) && same(s)
        })
    }

    /// Whether a new stream is kept after it has run.
    fn keeps(&self, addr: Option<u32>, insns: usize) -> bool {
        insns <= KEPT_AT_ONCE || self.once.contains(&(addr, insns))
    }

    /// What to run for the words at an address: known, or decoded.
    fn stream(&mut self, addr: u32, count: u32) -> Result<Box<Stream>, Failure> {
        if count > MOST_INSNS {
            let text = format!("{count} instructions are more than the {MOST_INSNS} of one run");
            return Err(Failure::input(text));
        }
        let size = u64::from(count) * INSN_BYTES as u64;
        let (words, _) = self.memory.at_phys(addr.into(), size)?.as_chunks();
        // Where the layout is another, what no field of ours covers may be a field of theirs.
        let ours: Option<Vec<_>> = self.layout().map(|layout| {
            let ours = |word: &[u8; INSN_BYTES]| layout.to_ours(u128::from_le_bytes(*word));
            words.iter().map(|word| ours(word).to_le_bytes()).collect()
        });
        let words = ours.as_deref().unwrap_or(words);
        let same = |s: &Stream| s.addr == Some(addr) && same_words(&s.words, words);
        if let Some(kept) = self.find(same).and_then(|at| self.streams.remove(at)) {
            return Ok(kept);
        }
        // For the words, and what gives tokens before them.
        let left = self.tokens.into_iter().fold(0, u32::saturating_add);
        let room = words.len() + KEPT_AT_ONCE.min(left as usize);
        let mut insns = if words.len() <= KEPT_AT_ONCE {
            Vec::with_capacity(room)
        } else {
            let mut spare = std::mem::take(&mut self.spare);
            spare.reserve(room);
            spare
        };
        for (index, word) in words.iter().enumerate() {
            let wrong = |e| Failure::input(format!("instruction {index}: {e}"));
            Insn::decode_onto(u128::from_le_bytes(*word), &mut insns).map_err(wrong)?;
        }
        self.new_stream(words, insns.into(), Some(addr))
    }

    /// A stream of instructions whose words lie at an address, if they lie anywhere.
    fn new_stream(
        &self,
        words: &[[u8; INSN_BYTES]],
        insns: Cow<'_, [Insn]>,
        addr: Option<u32>,
    ) -> Result<Box<Stream>, Failure> {
        let keeps = self.keeps(addr, insns.len());
        let tokens = needed(&insns, self.tokens);
        let given = giving(tokens);
        let before = given.len();
        let translated = addr.is_some() && self.layout().is_some();
        let (insns, uops) = match insns {
            Cow::Borrowed(insns) => ([&given, insns].concat(), None),
            Cow::Owned(mut insns) => {
                let uops = match translated {
                    true => Uops::copied(&self.device, &mut insns)?,
                    false => None,
                };
                if before > 0 {
                    insns.splice(0..0, given);
                }
                (insns, uops)
            }
        };
        let mut batch = Batch {
            words: Vec::new(),
            insns,
            insn_addr: PhysAddr(addr.unwrap_or_default()),
            marks: Vec::new(),
        };
        let as_they_lie = before == 0 && addr.is_some() && !translated;
        let staged = match self.device.fetches() {
            false => None,
            true if as_they_lie => {
                let words = words.iter().map(|word| u128::from_le_bytes(*word));
                batch.words = words.collect();
                None
            }
            true => Some(self.staged(&mut batch)?),
        };
        let batch = Arc::new(batch);
        Ok(Box::new(Stream {
            addr,
            words: if keeps { words.to_vec() } else { Vec::new() },
            keeps,
            tokens,
            before,
            work: Work::Run(Arc::clone(&batch)),
            batch,
            stores: OnceCell::new(),
            uops,
            _staged: staged,
        }))
    }

    /// Puts a batch's words into memory, where the device fetches them from.
    fn staged(&self, batch: &mut Batch) -> Result<Allocations, Failure> {
        let words = batch.insns.iter().map(Insn::encode);
        batch.words = words.collect::<Result<Vec<_>, _>>()?;
        let bytes: Vec<u8> = batch.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut staged = Allocations::new(Arc::clone(&self.device));
        let addr = staged.alloc(bytes.len() as u64, INSN_BYTES as u64)?;
        let data = bytes.into();
        self.device.submit(Work::Write { addr, data })?.wait()?;
        batch.insn_addr = addr;
        Ok(staged)
    }
}

/// The pages that instructions write to.
fn stores(insns: &[Insn], config: &Config) -> Vec<Range<u64>> {
    pages(insns.iter().filter_map(|insn| match insn {
        Insn::Store(store) => Some(store.dram_rows(config)?.span()),
        Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => None,
    }))
}

/// Whether words are the same instructions: what no field covers is garbage in streams of the original's runtime.
fn same_words(known: &[[u8; INSN_BYTES]], words: &[[u8; INSN_BYTES]]) -> bool {
    let same = |(a, b): (&[_], &[_])| {
        let same = |(a, b): (&[u8; INSN_BYTES], &[u8; INSN_BYTES])| {
            Insn::same_word(u128::from_le_bytes(*a), u128::from_le_bytes(*b))
        };
        a == b || a.iter().zip(b).all(same)
    };
    let chunks = [known, words].map(|words| words.chunks(COMPARED_WORDS));
    let [known_chunks, chunks] = chunks;
    known.len() == words.len() && known_chunks.zip(chunks).all(same)
}

/// An instruction of a module that only takes and gives tokens.
pub(crate) fn only_tokens(module: Module, deps: Deps) -> Insn {
    let mem = match module {
        Module::Load => MemType::Inp,
        Module::Compute => MemType::Uop,
        Module::Store => {
            let nothing = Store::default();
            return Store { deps, ..nothing }.into();
        }
    };
    let nothing = Load::default();
    Load {
        deps,
        mem,
        ..nothing
    }
    .into()
}

/// What gives these tokens, where a device starts with empty queues.
fn giving(tokens: [u32; 4]) -> Vec<Insn> {
    if tokens == [0; 4] {
        return Vec::new();
    }
    let given = Edge::ALL.into_iter().zip(tokens);
    let given = given.flat_map(|(edge, count)| {
        let mut deps = Deps::NONE;
        *edge.push(&mut deps) = true;
        (0..count).map(move |_| only_tokens(edge.producer(), deps))
    });
    given.collect()
}

/// Which of the tokens that are left a stream takes: none that it can do without, since a module that finds a
/// token of an earlier run may start too soon. A stream that can't run alone gets what it lacks in its own order.
fn needed(insns: &[Insn], left: [u32; 4]) -> [u32; 4] {
    if left == [0; 4] {
        return [0; 4];
    }
    let (mut there, mut need) = ([0u32; 4], [0u32; 4]);
    for insn in insns.iter().filter(|insn| insn.deps() != Deps::NONE) {
        for edge in pops(insn.module(), insn.deps()) {
            let at = edge as usize;
            match there[at].checked_sub(1) {
                Some(fewer) => there[at] = fewer,
                None => need[at] += 1,
            }
        }
        for edge in pushes(insn.module(), insn.deps()) {
            there[edge as usize] += 1;
        }
    }
    let alone = || run_in_token_order(insns, |_, _| Ok::<(), TokenError>(()));
    if need == [0; 4] || !matches!(alone(), Err(TokenError::Deadlock { .. })) {
        return [0; 4];
    }
    std::array::from_fn(|at| need[at].min(left[at]))
}

/// What the environment says.
fn target(bitstream: Option<PathBuf>) -> Result<Target, Failure> {
    let text = |name: &str| {
        let given = std::env::var_os(name).filter(|value| !value.is_empty());
        let wrong = |_| Failure::usage(format!("{name} is no UTF-8"));
        given
            .map(|value| value.into_string().map_err(wrong))
            .transpose()
    };
    let device = text("VTA_DEVICE")?.unwrap_or_else(|| SIMULATOR.to_owned());
    if device.contains(',') {
        let several = format!("VTA_DEVICE={device}: the driver interface has one device");
        return Err(Failure::usage(several));
    }
    Ok(Target {
        device,
        bitstream,
        untimed: true,
        board: text("VTA_BOARD")?,
        config: text("VTA_CONFIG")?.map(|path| ConfigSource::File(path.into())),
        ..Target::default()
    })
}

#[cfg(test)]
mod tests;
