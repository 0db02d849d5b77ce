//! What the compute module does with each of its cycles.

use serde::Serialize;
use vta_isa::{Insn, MemType};

use crate::cycle::{Edge, StallReason, TimingConfig, issue_cycles, window_cycles};

/// Cycles between the start of a GEMM or ALU instruction and its first step.
const DECODE: u64 = 2;

/// The use of one cycle of the compute module. Every cycle has exactly one, so the cycles of a
/// layer are the sum of its uses; all but [`Spend::Gemm`] are cycles that the matrix unit loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spend {
    /// A step of a GEMM that multiplies.
    Gemm,
    /// A step of a GEMM that clears an accumulator tile.
    Reset,
    /// A GEMM instruction fills or drains the pipeline.
    GemmPipeline,
    /// A step of an ALU instruction.
    Alu,
    /// An ALU instruction fills or drains the pipeline.
    AluPipeline,
    /// LOAD of accumulator tiles: bias, residual, int8 operands.
    LoadAcc,
    /// LOAD of micro-ops.
    LoadUop,
    /// Synchronisation and FINISH.
    Sync,
    /// Waits for a token of the load module.
    WaitLoad,
    /// Waits for a token of the store module.
    WaitStore,
    /// Its instruction queue is empty: fetch is behind.
    WaitFetch,
}

impl Spend {
    /// How many uses there are.
    pub const COUNT: usize = 11;

    /// Every use in the order of tables, with its name and words.
    const TABLE: [(Self, &'static str, &'static str); Self::COUNT] = [
        (Self::Gemm, "gemm", "multiplying"),
        (Self::Reset, "reset", "clearing accumulators"),
        (Self::GemmPipeline, "gemm_pipeline", "GEMM start and drain"),
        (Self::Alu, "alu", "ALU"),
        (Self::AluPipeline, "alu_pipeline", "ALU start and drain"),
        (Self::LoadAcc, "load_acc", "loading accumulators"),
        (Self::LoadUop, "load_uop", "loading micro-ops"),
        (Self::Sync, "sync", "synchronising"),
        (Self::WaitLoad, "wait_load", "waiting for load"),
        (Self::WaitStore, "wait_store", "waiting for store"),
        (Self::WaitFetch, "wait_fetch", "waiting for fetch"),
    ];

    /// Every use, in the order of tables.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Gemm; Self::COUNT];
        let mut at = 0;
        while at < Self::COUNT {
            all[at] = Self::TABLE[at].0;
            // Counters are indexed by the enum's order, which the table must have.
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    /// Key in JSON.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// A few words for legends and tables.
    pub const fn words(self) -> &'static str {
        Self::TABLE[self as usize].2
    }

    /// The use of a cycle in which the compute module has no instruction running.
    pub(super) const fn of_stall(reason: StallReason) -> Option<Self> {
        match reason {
            StallReason::Token(Edge::LoadToCompute) => Some(Self::WaitLoad),
            StallReason::Token(Edge::StoreToCompute) => Some(Self::WaitStore),
            StallReason::QueueEmpty => Some(Self::WaitFetch),
            StallReason::Ended => Some(Self::Sync),
            StallReason::Token(Edge::ComputeToLoad | Edge::ComputeToStore)
            | StallReason::QueueFull(_)
            | StallReason::MemoryLatency
            | StallReason::MemoryBusy(_)
            | StallReason::RequestSlot
            | StallReason::Dram
            | StallReason::Padding => None,
        }
    }
}

/// How an instruction that ran in `from..to` spent these cycles: up to three parts `from..to`.
pub(super) fn parts(
    insn: &Insn,
    timing: &TimingConfig,
    from: u64,
    to: u64,
) -> [(u64, u64, Spend); 3] {
    let whole = |spend| [(from, to, spend), (to, to, spend), (to, to, spend)];
    let pipeline = |cycles: u64, step, edge| {
        let first = (from + DECODE).min(to);
        let last = (first + cycles).min(to);
        [(from, first, edge), (first, last, step), (last, to, edge)]
    };
    match insn {
        Insn::Load(load) if load.is_sync() => whole(Spend::Sync),
        Insn::Load(load) => whole(match load.mem {
            MemType::Uop => Spend::LoadUop,
            MemType::Acc | MemType::Acc8 | MemType::Out => Spend::LoadAcc,
            MemType::Inp | MemType::Wgt | MemType::Wgt4 => Spend::LoadAcc,
        }),
        Insn::Gemm(gemm) if gemm.reset => pipeline(gemm.steps(), Spend::Reset, Spend::GemmPipeline),
        Insn::Gemm(gemm) => pipeline(gemm.steps(), Spend::Gemm, Spend::GemmPipeline),
        Insn::Depthwise(insn) => pipeline(window_cycles(insn), Spend::Gemm, Spend::GemmPipeline),
        Insn::Alu(alu) => pipeline(issue_cycles(alu, timing), Spend::Alu, Spend::AluPipeline),
        Insn::Store(_) | Insn::Finish(_) => whole(Spend::Sync),
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::asm;

    use super::*;

    #[test]
    fn uses_have_their_own_place_name_and_words() {
        for (i, spend) in Spend::ALL.into_iter().enumerate() {
            assert_eq!(spend as usize, i);
            for other in &Spend::ALL[..i] {
                assert_ne!(other.name(), spend.name());
                assert_ne!(other.words(), spend.words());
            }
        }
    }

    #[test]
    fn parts_cover_the_instruction_without_gaps() {
        let text = "gemm uop_bgn=0 uop_end=4 iter_out=3 iter_in=2
            gemm reset uop_bgn=0 uop_end=4 iter_out=1 iter_in=1
            alu.add uop_bgn=0 uop_end=2 iter_out=5 iter_in=1
            load.acc y_size=1 x_size=1 x_stride=1";
        let cases = [
            (24 + 7, Spend::Gemm, 24),
            (4 + 7, Spend::Reset, 4),
            (2 * 10 + 7, Spend::Alu, 20),
            (31, Spend::LoadAcc, 31),
        ];
        for (insn, (cycles, spend, expected)) in asm::parse(text).unwrap().iter().zip(cases) {
            let parts = parts(insn, &TimingConfig::pynq(), 100, 100 + cycles);
            assert_eq!((parts[0].0, parts[2].1), (100, 100 + cycles));
            assert!(parts.windows(2).all(|w| w[0].1 == w[1].0));
            let found: u64 = parts
                .iter()
                .filter(|p| p.2 == spend)
                .map(|p| p.1 - p.0)
                .sum();
            assert_eq!(found, expected, "{insn}");
        }
    }
}
