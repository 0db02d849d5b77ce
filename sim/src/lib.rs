//! Functional simulators of VTA: a slow, obvious oracle and a fast executor with the same bits.
//!
//! Both are [`Executor`]s over a [`DeviceMemory`], and, wrapped in a [`SimDevice`], devices with
//! a worker thread. Tokens are respected: an instruction runs only when its tokens are there,
//! and a program in which no module can go on is a [`SimError::Token`].
//!
//! ```
//! use vta_driver::DeviceMemory;
//! use vta_isa::{Config, asm};
//! use vta_sim::{Executor, Functional};
//!
//! let mut memory = DeviceMemory::new();
//! memory.map(0x1000, 64)?;
//! memory.write(0x1000, 16)?.fill(5);
//! let program = asm::parse(
//!     "load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1 push_next
//!      store sram_base=3 dram_base=0x101 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
//!      finish pop_next",
//! )?;
//! let report = Functional::new(Config::default()).run(&program, &[], &mut memory)?;
//! assert_eq!(memory.read(0x1010, 16)?, [5; 16]);
//! assert_eq!(report.leftover_tokens, [0; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! They count no cycles. [`cycle`] does, and nothing else: exactly those of the RTL; [`views`] turns
//! what it tells into tables and traces, and [`SimDevice::cycle`] joins both into a device.
//! [`stepper`] stands at one cycle of a program, with its values. [`hazards`] finds what a program leaves unordered, without running it; a [`Board`] is a machine
//! that exists.
mod board;
pub mod cycle;
mod cycle_device;
mod device;
mod error;
mod functional;
pub mod hazards;
mod kernels;
mod oracle;
pub mod stepper;
pub mod views;

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory, LayerMark, RunReport};
use vta_isa::Insn;

pub use board::{Board, BoardError, Core};
pub use cycle_device::{CycleLog, CycleMachine, Execution, TimedRun};
pub use device::{KernelError, SimDevice};
pub use error::SimError;
pub use functional::{Functional, PlanLine, PlanListing, PlanLog, Planner, Planning};
pub use kernels::{GemmKernel, Rounding};
pub use oracle::{Oracle, Pads};

/// Runs instructions over device memory.
pub trait Executor {
    /// Runs until FINISH, from empty token queues. `marks` only attribute time and traffic.
    ///
    /// # Errors
    /// [`SimError`] naming the instruction, the field and the bound. Memory then holds what the
    /// instructions before the fault wrote.
    fn run(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError>;

    /// Runs a batch that may be submitted again: an executor may keep what it has worked out of
    /// it for as long as it keeps the batch.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_batch(
        &mut self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        self.run(&batch.insns, &batch.marks, memory)
    }
}
