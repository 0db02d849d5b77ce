//! The write side: bursts one after the other.

use vta_isa::resolve::Rows;
use vta_isa::{MemType, Store};

use super::Stepper;
use crate::cycle::bursts::{Burst, Bursts, Cuts};
use crate::cycle::events::{StallReason, Unit};

/// What the write side does in a cycle.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Write {
    Command(Burst),
    Start,
    Dram,
    Address,
    Read,
    Stage,
    Data,
    Ack,
}

impl Stepper<'_> {
    pub(super) fn begin_store(&mut self, store: &Store) {
        let tile = self.config.elem_bytes(MemType::Out) as u64;
        let bus = u64::from(self.timing.bus_bytes);
        let rows = Rows {
            first: u64::from(store.dram_base) * tile,
            row_bytes: u64::from(store.x_size) * tile,
            stride_bytes: u64::from(store.x_stride) * tile,
            rows: store.y_size,
        };
        // The start cycle itself.
        self.writing.push_back(Write::Start);
        for row in 0..rows.rows {
            let row_of = Rows {
                first: rows.first + u64::from(row) * rows.stride_bytes,
                rows: 1,
                ..rows
            };
            self.begin_row(store, row);
            for burst in Bursts::new(Cuts::new(self.timing), row_of) {
                self.writing.extend([Write::Command(burst), Write::Address]);
                self.read_tile(store);
                for beat in 0..burst.beats {
                    let at = burst.start / bus + beat;
                    let next = beat > 0 && (tile <= bus || at.is_multiple_of(tile / bus));
                    if next && tile > bus && !self.timing.store_ahead {
                        self.read_tile(store);
                    } else if next && self.has_residual(store) {
                        self.writing.push_back(Write::Read);
                    }
                    self.writing.push_back(Write::Data);
                }
                self.writing.push_back(Write::Ack);
            }
        }
        // The STORE is done in the cycle before the one in which the next could give a command.
        self.writing.pop_back();
    }

    fn has_residual(&self, store: &Store) -> bool {
        store.requantize.is_some_and(|how| how.residual > 0)
    }

    /// Sums, and then what is added to them.
    fn read_tile(&mut self, store: &Store) {
        self.writing.push_back(Write::Read);
        if self.has_residual(store) {
            self.writing.push_back(Write::Read);
        }
    }

    /// Constants are read when a STORE starts or each row has its own; at its start the stages are empty.
    fn begin_row(&mut self, store: &Store, row: u16) {
        let Some(how) = store.requantize else {
            return;
        };
        let (tiles, stages) = if how.residual > 0 { (7, 6) } else { (3, 4) };
        if row == 0 || how.by_row {
            self.writing.extend([Write::Read; 7].iter().take(tiles));
        }
        if row == 0 {
            self.writing.extend([Write::Stage; 6].iter().take(stages));
        }
    }

    /// The write side of the memory in this cycle.
    pub(super) fn write_side(&mut self) {
        if self.requests.front() == Some(&self.now) {
            self.requests.pop_front();
            self.out.write_requests += 1;
        }
        match self.writing.front() {
            Some(Write::Command(burst)) => {
                let extra = self.dram.access(burst.start, self.now);
                self.writing.pop_front();
                for _ in 0..extra {
                    self.writing.push_front(Write::Dram);
                }
                self.requests.push_back(self.now + 2);
            }
            Some(Write::Dram) => {
                self.stall(Unit::Store, StallReason::Dram);
                self.writing.pop_front();
            }
            Some(Write::Data) => {
                self.out.write_beats += 1;
                self.writing.pop_front();
            }
            Some(_) => {
                self.writing.pop_front();
            }
            None => {}
        }
    }
}
