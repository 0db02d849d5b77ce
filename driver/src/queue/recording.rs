//! Encoded batches that can be submitted, also again, and what still lies in device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Batch, Bytes, FlushReason, Ticket, Traffic};

/// One encoded batch with what has to lie in device memory before it runs.
#[derive(Clone, Debug)]
pub struct RecordedBatch {
    /// The instructions.
    pub batch: Arc<Batch>,
    /// Encoded instructions for `batch.insn_addr`.
    pub(crate) insn_bytes: Bytes,
    /// Micro-ops for the micro-op queue.
    pub(crate) uop_bytes: Bytes,
    /// What the instructions move and compute.
    pub(crate) traffic: Traffic,
    /// Why it was submitted.
    pub(crate) reason: FlushReason,
    /// That of the queue whose addresses the instructions name; no other queue has the same.
    pub(crate) origin: Arc<()>,
    /// Counts the batches that the queue has encoded.
    pub(crate) serial: u64,
}

/// The batches of one pass over a program, ready to be submitted again without encoding.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In order of submission.
    pub batches: Vec<RecordedBatch>,
    /// Whether batches are missing because there were too many bytes to keep.
    truncated: bool,
    bytes: usize,
}

impl Recording {
    /// Whether every batch was kept: a queue stops recording beyond 1 GiB of instructions and
    /// micro-ops, and refuses to replay what isn't whole.
    pub fn is_complete(&self) -> bool {
        !self.truncated
    }

    pub(crate) fn push(&mut self, recorded: RecordedBatch, limit_bytes: usize) {
        // A decoded instruction takes at least twice its encoded bytes on the host.
        let bytes = 3 * recorded.insn_bytes.len() + recorded.uop_bytes.len();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.truncated || self.bytes > limit_bytes {
            self.truncated = true;
            self.batches.clear();
        } else {
            self.batches.push(recorded);
        }
    }
}

/// Which batch's bytes the two queues in device memory hold.
#[derive(Debug)]
pub(crate) struct Resident {
    serial: u64,
    /// Writes that haven't been seen to succeed.
    unconfirmed: Arc<AtomicUsize>,
}

impl Resident {
    pub(crate) fn new(serial: u64) -> Self {
        Self {
            serial,
            unconfirmed: Arc::default(),
        }
    }

    /// Whether the batch's bytes are there for certain: a write that failed, or that nobody
    /// waited for, doesn't count.
    pub(crate) fn holds(&self, serial: u64) -> bool {
        self.serial == serial && self.unconfirmed.load(Ordering::Acquire) == 0
    }

    /// Wraps the ticket of one of the batch's writes.
    pub(crate) fn watch(&self, ticket: Box<dyn Ticket>) -> Box<dyn Ticket> {
        self.unconfirmed.fetch_add(1, Ordering::Release);
        let unconfirmed = Arc::clone(&self.unconfirmed);
        Box::new(move || {
            let done = ticket.wait()?;
            unconfirmed.fetch_sub(1, Ordering::Release);
            Ok(done)
        })
    }
}
