//! A compiled network written down so that others can check it: every instruction and micro-op with what it
//! touches, and what each layer computes.
//!
//! DRAM addresses are those of a layout in which scratch buffers lie as in [`crate::DramPlan`], from address 0 on,
//! inputs and outputs behind them, and constants at the end. A session's addresses differ from it by where its
//! allocator puts each of these. What the driver adds is not in it: loads of micro-ops, the tokens at the ends
//! of batches, FINISH.

mod check;
mod columns;
mod geometry;
mod model;
mod program;
mod text;

pub use columns::Columns;
pub(crate) use columns::find;
pub use geometry::{
    ChannelsGeometry, ConvGeometry, Geometry, LayerForm, Region, ResidualBy, Role, WindowGeometry,
};
pub use model::{
    BufferUse, ListedBuffer, ListedInsn, ListedLayer, ListedTensor, Listing, ListingError,
};
pub use text::HEADER;
