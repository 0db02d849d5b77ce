//! What is counted, as C sees it too.

/// What one batch, a layer of an image made with `--flat layers`, takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Runs that finished since the counts were cleared.
    pub runs: u64,
    /// Cycles of these by the accelerator's counter.
    pub cycles: u64,
    /// Ticks of these by the board's clock.
    pub ticks: u64,
    /// Bytes that one run loads.
    pub loaded_bytes: u64,
    /// Bytes that one run stores.
    pub stored_bytes: u64,
    /// Steps of the matrix unit in one run.
    pub gemm_steps: u64,
    /// Steps of the ALU in one run.
    pub alu_steps: u64,
    /// Multiply-adds of the layers' mathematics in one run.
    pub macs: u64,
    /// Instructions of one run.
    pub insns: u32,
    /// Layers of the network in this batch.
    pub layers: u32,
}

/// All batches together, since the counts were cleared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Passes through the whole network that finished.
    pub runs: u64,
    /// Batches that finished.
    pub batches: u64,
    /// Their cycles by the accelerator's counter.
    pub cycles: u64,
    /// Their ticks by the board's clock.
    pub ticks: u64,
    /// Bytes that they loaded.
    pub loaded_bytes: u64,
    /// Bytes that they stored.
    pub stored_bytes: u64,
    /// Instructions that they ran.
    pub insns: u64,
    /// Batches that didn't finish in time.
    pub hung: u32,
    /// Batches whose cycle counter was wrong.
    pub wrong_counters: u32,
    /// Batches for which a register read what it can't hold.
    pub bus_errors: u32,
    /// Batches that found the accelerator still at work.
    pub busy: u32,
}

impl Stats {
    pub(crate) fn add(&mut self, batch: &BatchStats, cycles: u64, ticks: u64) {
        let grow = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        grow(&mut self.batches, 1);
        grow(&mut self.cycles, cycles);
        grow(&mut self.ticks, ticks);
        grow(&mut self.loaded_bytes, batch.loaded_bytes);
        grow(&mut self.stored_bytes, batch.stored_bytes);
        grow(&mut self.insns, batch.insns.into());
    }
}
