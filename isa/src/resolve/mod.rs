//! What instructions touch, found out once for everybody who plans, checks or orders them.
//!
//! [`UopScratchpad::resolve`] takes an instruction and gives it back with its micro-ops, the
//! tiles that it reads and writes and the DRAM rows that it moves, or the index that leaves its
//! scratchpad. [`tokens`](crate::tokens) has the order in which instructions come. Tiles are
//! affine loops that nobody writes out unless asked ([`AffineTiles`]): a GEMM of 2^40 steps costs
//! what its micro-ops cost.
//!
//! The static check, the hazard checker, the planners and the footprints of batches work on
//! this. The oracle of `vta-sim` does not: it is what all of them are compared with.
//!
//! ```
//! use vta_isa::resolve::{Resolved, UopScratchpad};
//! use vta_isa::tokens::{TokenError, run_in_token_order};
//! use vta_isa::{Config, asm};
//!
//! let insns = asm::parse(
//!     "load.inp sram_base=4 dram_base=0x100 y_size=2 x_size=3 x_stride=8\nfinish",
//! )?;
//! let config = Config::default();
//! let mut uops = UopScratchpad::unknown(&config);
//! run_in_token_order(&insns, |_, insn| {
//!     if let Ok(Resolved::Load(load)) = uops.resolve(&config, insn) {
//!         assert_eq!(load.entries, 4..10);
//!         assert!(load.rows.iter().eq([0x1000..0x1030, 0x1080..0x10b0]));
//!     }
//!     Ok::<(), TokenError>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod access;
mod loops;
mod ranges;
mod rows;
mod tiles;
mod touches;
mod uops;

pub(crate) use access::check_uop_range;
pub use access::{
    AluAccess, DepthwiseAccess, Fault, GemmAccess, LoadAccess, Resolved, StoreAccess, Uops,
    furthest, uop_range,
};
pub use loops::{AffineTiles, Loops, UopIndex};
pub use ranges::{Interval, covers, disjoint, meet, merge};
pub use rows::{Changed, Filled, Rows, stored_bytes};
pub use tiles::{MAX_TILES, TileSet};
pub use touches::Touches;
pub use uops::{UopDram, UopScratchpad};
