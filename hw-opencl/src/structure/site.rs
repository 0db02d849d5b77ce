//! Where parts of batches are made and run.

use crate::arena::Arena;
use crate::cl::{Bytes, Ctx, Pending, Queue};
use crate::error::ClFault;
use crate::shared::Shared;

/// What a part needs of its device.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub ctx: &'a Ctx,
    pub arena: &'a Arena,
    pub queue: &'a Queue,
    pub shared: &'a Shared,
}

impl Site<'_> {
    /// Enqueues a copy of words to a buffer of their own.
    pub fn upload(self, words: Vec<u32>, uploads: &mut Vec<Pending>) -> Result<Bytes, ClFault> {
        let len = 4 * words.len() as u64;
        let mut buffer = self.ctx.buffer(len.max(16))?;
        if len > 0 {
            self.shared.stats.sent(len);
            uploads.push(self.queue.write_words(&mut buffer, words)?);
        }
        Ok(buffer)
    }
}
