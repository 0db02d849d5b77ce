//! What happens in a run, and who wants to know: typed events and their [`Listener`].

use std::fmt;
use std::iter::once;

use serde::{Serialize, Serializer};
use vta_isa::Module;
pub use vta_isa::tokens::Edge;

/// One of the four parts that work concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Reads instructions and gives them to the other three.
    Fetch,
    /// LOAD of INP and WGT, and with `preload` of ACC and ACC8.
    Load,
    /// LOAD of UOP, ACC and ACC8; GEMM, ALU, FINISH.
    Compute,
    /// STORE.
    Store,
}

impl Unit {
    /// All four, from the instruction stream to memory.
    pub const ALL: [Self; 4] = [Self::Fetch, Self::Load, Self::Compute, Self::Store];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Load => "load",
            Self::Compute => "compute",
            Self::Store => "store",
        }
    }
}

impl From<Module> for Unit {
    fn from(module: Module) -> Self {
        match module {
            Module::Load => Self::Load,
            Module::Compute => Self::Compute,
            Module::Store => Self::Store,
        }
    }
}

/// Who uses the memory bus. All but the last read; a smaller one has priority over a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Instructions.
    Fetch,
    /// Micro-ops.
    Uop,
    /// Input tiles.
    Inp,
    /// Weight tiles.
    Wgt,
    /// Accumulator tiles, int32 and int8, for the compute module.
    Acc,
    /// The same for the load module.
    Preload,
    /// Output tiles, written by STORE.
    Out,
}

impl Client {
    /// The clients that read, by priority.
    pub const READERS: [Self; 6] = [
        Self::Fetch,
        Self::Uop,
        Self::Inp,
        Self::Wgt,
        Self::Acc,
        Self::Preload,
    ];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Uop => "uop",
            Self::Inp => "inp",
            Self::Wgt => "wgt",
            Self::Acc => "acc",
            Self::Preload => "preload",
            Self::Out => "out",
        }
    }

    /// The unit whose transfers these are.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Fetch => Unit::Fetch,
            Self::Inp | Self::Wgt | Self::Preload => Unit::Load,
            Self::Uop | Self::Acc => Unit::Compute,
            Self::Out => Unit::Store,
        }
    }
}

/// Why a unit doesn't do what it is for.
///
/// The first four and [`StallReason::Ended`] are cycles in which no instruction runs: with the
/// busy cycles they add up to the run's cycles. The others lie within the busy cycles of a LOAD
/// (or of a chunk's fetch, or of a STORE): cycles in which it neither moves a beat nor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallReason {
    /// The head instruction lacks a token. While it lacks two, the one of `pop_prev` is named.
    Token(Edge),
    /// The instruction queue is empty, and fetch has instructions for it yet to deliver.
    QueueEmpty,
    /// Fetch has an instruction for a module whose queue is full.
    QueueFull(Module),
    /// The unit has nothing to do until the end of the run.
    Ended,
    /// Before the first beat of a LOAD or a chunk: the time that an idle memory takes.
    MemoryLatency,
    /// The bus carries another client's beats at a time when the LOAD could use it.
    MemoryBusy(Client),
    /// Between beats of one LOAD on an idle bus: the next request came late, for want of a free
    /// tag, of a free command register or of an address cycle (none coincides with a last beat).
    RequestSlot,
    /// The banked DRAM opens a row or is being refreshed.
    Dram,
    /// All data has arrived, but padding tiles are still being written.
    Padding,
}

impl StallReason {
    /// How many reasons there are.
    pub const COUNT: usize = 19;

    /// Every reason, in the order of tables.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Token(Edge::LoadToCompute),
        Self::Token(Edge::ComputeToLoad),
        Self::Token(Edge::ComputeToStore),
        Self::Token(Edge::StoreToCompute),
        Self::QueueEmpty,
        Self::QueueFull(Module::Load),
        Self::QueueFull(Module::Compute),
        Self::QueueFull(Module::Store),
        Self::Ended,
        Self::MemoryLatency,
        Self::MemoryBusy(Client::Fetch),
        Self::MemoryBusy(Client::Uop),
        Self::MemoryBusy(Client::Inp),
        Self::MemoryBusy(Client::Wgt),
        Self::MemoryBusy(Client::Acc),
        Self::MemoryBusy(Client::Preload),
        Self::RequestSlot,
        Self::Dram,
        Self::Padding,
    ];

    /// Position in [`StallReason::ALL`]. `MemoryBusy(Out)` never happens, since writes don't
    /// disturb reads; it counts with `RequestSlot`.
    pub const fn index(self) -> usize {
        match self {
            Self::Token(edge) => edge as usize,
            Self::QueueEmpty => 4,
            Self::QueueFull(module) => 5 + module as usize,
            Self::Ended => 8,
            Self::MemoryLatency => 9,
            Self::MemoryBusy(client) => 10 + client as usize,
            Self::RequestSlot => 16,
            Self::Dram => 17,
            Self::Padding => 18,
        }
    }

    /// Whether no instruction runs in such a cycle, so that it isn't one of the busy cycles.
    pub const fn is_idle(self) -> bool {
        self.index() <= 8
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(edge) => write!(f, "token {}", edge.name()),
            Self::QueueEmpty => f.write_str("instruction queue empty"),
            Self::QueueFull(module) => write!(f, "{module} queue full"),
            Self::Ended => f.write_str("nothing left to do"),
            Self::MemoryLatency => f.write_str("memory latency"),
            Self::MemoryBusy(client) => write!(f, "memory busy with {}", client.name()),
            Self::RequestSlot => f.write_str("tag or command slot"),
            Self::Dram => f.write_str("dram row or refresh"),
            Self::Padding => f.write_str("padding"),
        }
    }
}

impl Serialize for StallReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A token taken or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenEvent {
    /// Which queue.
    pub edge: Edge,
    /// Index of the instruction that pops or pushes.
    pub insn: usize,
    /// The start cycle for a pop; the done cycle for a push, whose token can be used one later.
    pub cycle: u64,
}

/// Consecutive beats of one burst on the memory bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstEvent {
    /// Whose burst: [`Client::Out`] writes, all others read.
    pub client: Client,
    /// Index of the LOAD or STORE; for a fetch, of the chunk's first instruction.
    pub insn: usize,
    /// Byte address of the first beat.
    pub addr: u64,
    /// Cycle of the first beat.
    pub first_cycle: u64,
    /// Cycle of the last beat. Beats of a read have no gaps; a write pauses for every tile that
    /// it reads from the scratchpad.
    pub last_cycle: u64,
    /// How many beats, within the run.
    pub beats: u64,
}

/// Consecutive cycles lost for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallEvent {
    /// Who waits.
    pub unit: Unit,
    /// Why.
    pub reason: StallReason,
    /// The instruction that waits, if there is one.
    pub insn: Option<usize>,
    /// First lost cycle.
    pub from: u64,
    /// One past the last lost cycle; always over `from`.
    pub to: u64,
}

/// Hears what happens. It can't change the timing.
///
/// Every method does nothing by default. Events of one unit come in the order of time; those of
/// different units may come late by the length of a burst or a stall, because spans are reported
/// when their end is known.
#[allow(unused_variables, reason = "names say what implementations are told")]
pub trait Listener {
    /// Fetch gave instruction `insn` to its module's queue in `cycle`.
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {}

    /// `module` started instruction `insn` in `cycle`.
    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {}

    /// `module` was done with instruction `insn` in `cycle`; the next can start one later.
    /// FINISH has no such event: the run ends in the cycle in which it starts.
    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {}

    /// A token was taken.
    fn token_pop(&mut self, event: &TokenEvent) {}

    /// A token was given.
    fn token_push(&mut self, event: &TokenEvent) {}

    /// A burst used the bus.
    fn burst(&mut self, event: &BurstEvent) {}

    /// A unit lost cycles.
    fn stall(&mut self, event: &StallEvent) {}
}

/// Implements every method by passing the event on to each of some listeners.
macro_rules! forward {
    ([$($generics:tt)*] $kind:ty, $self:ident => $($to:expr),+) => {
        impl<$($generics)*> Listener for $kind {
            fn insn_dispatched(&mut $self, insn: usize, cycle: u64) {
                $(for to in $to { to.insn_dispatched(insn, cycle); })+
            }
            fn insn_start(&mut $self, module: Module, insn: usize, cycle: u64) {
                $(for to in $to { to.insn_start(module, insn, cycle); })+
            }
            fn insn_done(&mut $self, module: Module, insn: usize, cycle: u64) {
                $(for to in $to { to.insn_done(module, insn, cycle); })+
            }
            fn token_pop(&mut $self, event: &TokenEvent) {
                $(for to in $to { to.token_pop(event); })+
            }
            fn token_push(&mut $self, event: &TokenEvent) {
                $(for to in $to { to.token_push(event); })+
            }
            fn burst(&mut $self, event: &BurstEvent) {
                $(for to in $to { to.burst(event); })+
            }
            fn stall(&mut $self, event: &StallEvent) {
                $(for to in $to { to.stall(event); })+
            }
        }
    };
}
// By one macro: a method that one of the three forgot would do nothing, as listeners do by default.
forward!([L: Listener + ?Sized] &mut L, self => once(&mut **self));
forward!([A: Listener, B: Listener] (A, B), self => once(&mut self.0), once(&mut self.1));
forward!([L: Listener] Option<L>, self => self.iter_mut());

/// Hears nothing and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Listener for Silent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_text() {
        let mut texts = Vec::new();
        for (i, reason) in StallReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), i, "{reason}");
            texts.push(reason.to_string());
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), StallReason::COUNT);
    }
}
