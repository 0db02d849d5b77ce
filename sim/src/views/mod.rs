//! Pictures of a timed run: listeners of the cycle model, and what follows from their totals.
//!
//! | view | tells |
//! |---|---|
//! | [`LayerTotals`] | for each layer its cycles, how the compute module spent them, stalls of every unit, beats, steps, the bound that no schedule of these instructions beats |
//! | [`Timeline`] | how busy each unit and the bus were over time, in a bounded number of buckets |
//! | [`TraceWriter`] | every instruction, burst, wait and token as a trace that Perfetto opens |
//! | [`Costs`] | estimates of energy and area, from a table that can be replaced |
//! | [`Roofline`] | where a layer lies between the bus and the matrix unit |
//! | [`Verdict`] | why a layer is slow, in words |
//!
//! Listeners can't change the timing. All but the trace keep memory that doesn't grow with the
//! program; the trace is written as it arises. Several listen at once as a tuple:
//!
//! ```
//! use vta_isa::{Config, asm};
//! use vta_sim::cycle::{TimingConfig, simulate};
//! use vta_sim::views::{LayerTotals, Timeline};
//!
//! let program = asm::parse(
//!     "load.inp y_size=1 x_size=16 x_stride=16 push_next
//!      load.uop y_size=1 x_size=1 x_stride=1 pop_prev
//!      finish",
//! )?;
//! let (config, timing) = (Config::default(), TimingConfig::pynq());
//! let mut views = (
//!     LayerTotals::new(&program, &[], &config, &timing),
//!     Timeline::new(&program, 64),
//! );
//! let report = simulate(&timing, &config, &program, 0, &mut views)?;
//! let layers = views.0.finish(&report);
//! assert_eq!(layers.iter().map(|l| l.cycles).sum::<u64>(), report.cycles);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bound;
mod costs;
mod layers;
mod perfetto;
mod roofline;
mod spend;
mod timeline;
mod verdict;
mod windows;

pub use bound::Bound;
pub use costs::{Costs, CostsError, Energy, Work};
pub use layers::{LayerCycles, LayerTotals};
pub use perfetto::{TraceRun, TraceWriter};
pub use roofline::Roofline;
pub use spend::Spend;
pub use timeline::{Buckets, Lane, Timeline};
pub use verdict::{Loss, Verdict, losses};
