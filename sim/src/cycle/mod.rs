//! Cycle-exact timing of a program on the VTA hardware: time only, no data.
//!
//! [`simulate`] runs fetch, load, compute and store with their instruction queues, token counters
//! and the memory between them, and gives the very cycle count that the public RTL takes, for its
//! two 64-bit configurations ([`TimingConfig::pynq`], [`TimingConfig::de10`]), and that of wider
//! buses where it was measured. Results of instructions come from the executors of this crate;
//! no timing depends on data.
//!
//! ```
//! use vta_isa::{Config, asm};
//! use vta_sim::cycle::{Silent, TimingConfig, simulate};
//!
//! let program = asm::parse(
//!     "load.inp y_size=1 x_size=16 x_stride=16 push_next
//!      load.uop y_size=1 x_size=1 x_stride=1 pop_prev
//!      finish",
//! )?;
//! let report = simulate(&TimingConfig::pynq(), &Config::default(), &program, 0, &mut Silent)?;
//! // The first instruction starts in cycle 28 and takes 23 + 32, the micro-op 23, FINISH 1.
//! assert_eq!((report.cycles, report.read_requests, report.read_beats), (107, 3, 39));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//! Cycle 0 is that of the launch. An instruction that starts in cycle `s` and is done in cycle `d`
//! takes its tokens in `s`, gives its tokens in `d`, and what follows can start in `d + 1`; it
//! leaves its queue in `d`. The rules of each part are written at its file: fetch, read port, load,
//! compute, store. Cost grows with instructions and bursts, never with cycles; memory is bounded by
//! the queues.
//!
//! The units of one cycle see the state at its beginning, so the order in which they are evaluated
//! can't change a result.
//!
//! Not measured, but inferred: a fetch of several chunks over a bus wider than 64 bits, padding of
//! loads over such a bus, and padding of micro-ops. The [extensions](vta_isa::Extension) are
//! not in the RTL: an ACC8 load counts as an ACC load of a quarter of the bytes that writes at most
//! one tile per cycle; their ALU operations count as any other.
//!
//! The program should be one that [`vta_isa::check`] accepts: indices into scratchpads are not
//! looked at here.

mod arrival;
mod bursts;
mod compute;
mod dram;
mod engine;
mod error;
mod events;
mod fetch;
mod load;
mod memory;
mod module;
mod report;
mod store;
#[cfg(test)]
mod tests;
mod timing;

use vta_driver::Budget;
use vta_isa::{Config, Insn, tokens};

pub(crate) use compute::{issue_cycles, window_cycles, window_tiles};
pub use dram::DramModel;
pub use engine::Run;
pub use error::{CycleError, TimingError};
pub use events::{
    BurstEvent, Client, Edge, Listener, Silent, StallEvent, StallReason, TokenEvent, Unit,
};
pub use module::MAX_CYCLES;
pub use report::{CycleReport, StallTotal};
pub(crate) use store::store_cycles;
pub use timing::TimingConfig;

/// Times a run of `insns` that are fetched from the physical address `insn_addr` (bytes), and
/// tells `listener` what happens. A program whose FINISH is reached while a module waits for ever
/// is timed, as on the RTL: [`CycleReport::stuck`] has what waits.
///
/// # Errors
/// [`CycleError`]: timing parameters that can't be used, a token flag without a neighbour, a
/// missing or early FINISH, a deadlock with what each module waits for, a token that a full
/// counter would lose, or a run beyond the default [`Budget`] of cycles or bytes.
pub fn simulate<L: Listener>(
    timing: &TimingConfig,
    config: &Config,
    insns: &[Insn],
    insn_addr: u32,
    listener: &mut L,
) -> Result<CycleReport, CycleError> {
    let run = Run { insns, insn_addr };
    simulate_within(&Budget::default(), timing, config, run, listener)
}

/// As [`simulate`], with a budget of choice: at most [`Budget::cycles`], and never more than
/// [`MAX_CYCLES`]; [`Budget::bytes`] is checked before the first cycle, since the cost of a
/// simulation grows with them.
///
/// # Errors
/// As for [`simulate`].
pub fn simulate_within<L: Listener>(
    budget: &Budget,
    timing: &TimingConfig,
    config: &Config,
    run: Run<'_>,
    listener: &mut L,
) -> Result<CycleReport, CycleError> {
    timing.validate()?;
    check(run.insns)?;
    budget.check_bytes(config, run.insns)?;
    let engine = engine::Engine::new(timing, config, run, listener);
    engine.within(*budget).run(Unit::ALL)
}

/// What must hold before the first cycle.
fn check(insns: &[Insn]) -> Result<(), CycleError> {
    if u32::try_from(insns.len()).is_err() {
        return Err(CycleError::TooManyInsns { insns: insns.len() });
    }
    Ok(tokens::check_run(insns)?)
}
