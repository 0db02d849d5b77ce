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
        for burst in Bursts::new(Cuts::new(self.timing), rows) {
            let front = [Write::Command(burst), Write::Address, Write::Read];
            self.writing.extend(front);
            for beat in 0..burst.beats {
                let at = burst.start / bus + beat;
                if beat > 0 && tile > bus && at.is_multiple_of(tile / bus) {
                    self.writing.push_back(Write::Read);
                }
                self.writing.push_back(Write::Data);
            }
            self.writing.push_back(Write::Ack);
        }
        // The STORE is done in the cycle before the one in which the next could give a command.
        self.writing.pop_back();
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
