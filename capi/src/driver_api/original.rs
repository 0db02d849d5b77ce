//! Micro-ops in the original's layout that a stream loads: the device has a copy of them in its own.

use std::sync::Arc;

use vta_driver::{Allocations, Device, PhysAddr, Work};
use vta_isa::original::{Layout, UopCopies};
use vta_isa::{Insn, UOP_BYTES};

use super::memory::Memory;
use crate::error::Failure;

pub struct Uops {
    copies: UopCopies,
    /// What the host's buffers held when the device got its copy.
    seen: Vec<u8>,
    addr: PhysAddr,
    _copy: Allocations,
}

impl Uops {
    /// Lets instructions load a copy of their micro-ops; `None` if they load none.
    ///
    /// # Errors
    /// Micro-ops that the instructions themselves store, no memory for the copy.
    pub fn copied(device: &Arc<dyn Device>, insns: &mut [Insn]) -> Result<Option<Self>, Failure> {
        let copies = UopCopies::of(&device.info().config, insns);
        let copies = copies.map_err(|error| Failure::input(error.to_string()))?;
        if copies.size_bytes() == 0 {
            return Ok(None);
        }
        let mut copy = Allocations::new(Arc::clone(device));
        let addr = copy.alloc(copies.size_bytes(), UOP_BYTES as u64)?;
        copies.redirect(insns, addr.0);
        Ok(Some(Self {
            copies,
            seen: Vec::new(),
            addr,
            _copy: copy,
        }))
    }

    /// Translates the micro-ops again if the host changed them since the last run.
    ///
    /// # Errors
    /// Micro-ops that are in no buffer, with the instruction that loads them; a device that refuses a copy.
    pub fn refresh(
        &mut self,
        layout: &Layout,
        memory: &Memory,
        device: &dyn Device,
    ) -> Result<(), Failure> {
        let mut now = Vec::with_capacity(self.copies.size_bytes() as usize);
        for (index, row) in self.copies.rows() {
            let found = memory.at_phys(row.start, row.end - row.start);
            now.extend_from_slice(found.map_err(|failure| Failure {
                text: format!("instruction {index}: {}", failure.text),
                ..failure
            })?);
        }
        if now == self.seen {
            return Ok(());
        }
        // The device's copy isn't known after a write that failed.
        self.seen.clear();
        let mut data = now.clone();
        layout.uops_to_ours(data.as_chunks_mut::<UOP_BYTES>().0);
        let (addr, data) = (self.addr, data.into());
        device.submit(Work::Write { addr, data })?.wait()?;
        self.seen = now;
        Ok(())
    }
}
