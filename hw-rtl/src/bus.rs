//! The memory's side of the bus: bursts, one beat a clock, read answers in the order of their requests.

use std::collections::VecDeque;

use vta_driver::{DeviceMemory, MemoryError};

use crate::RtlError;

/// Reads that a design may have asked for and not got yet. The original asks for one at a time.
const MAX_READS: usize = 1024;
/// The widest bus: `wr_strb` has a bit for each byte.
pub const MAX_BEAT_BYTES: usize = 64;

/// What is left of a burst.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// What the answer carries.
    pub id: u8,
    /// Of the next beat.
    pub addr: u64,
    /// Beats, at least 1.
    pub beats: u32,
}

/// What a design moved in a run: by that one tells designs of another size, board or instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of a beat; 0 if none was moved.
    pub beat_bytes: u64,
    /// Beats of the first read, which is for instructions.
    pub fetched_beats: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// Bursts under way, and what went over the bus in a run.
#[derive(Debug, Default)]
pub struct Bus {
    reads: VecDeque<Burst>,
    write: Option<Burst>,
    /// Since the run began.
    pub moved: Moved,
}

impl Bus {
    /// Whether a read is under way.
    pub fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    /// A read request.
    ///
    /// # Errors
    /// In words, when there are too many.
    pub fn read(&mut self, burst: Burst) -> Result<(), RtlError> {
        if self.reads.len() == MAX_READS {
            return Err(RtlError::Misbehaved(format!(
                "the design has {MAX_READS} reads under way and asks for more"
            )));
        }
        if self.moved.fetched_beats == 0 {
            self.moved.fetched_beats = burst.beats.into();
        }
        self.reads.push_back(burst);
        Ok(())
    }

    /// A write request.
    ///
    /// # Errors
    /// In words, when the last one isn't over.
    pub fn write(&mut self, burst: Burst) -> Result<(), RtlError> {
        match self.write.replace(burst) {
            None => Ok(()),
            Some(before) => Err(RtlError::Misbehaved(format!(
                "the design asks to write at {:#x}, but {} beats are missing of a write before, at {:#x}",
                burst.addr, before.beats, before.addr
            ))),
        }
    }

    /// The beat that is on the bus, if there is one; it goes when the design is `ready`.
    ///
    /// # Errors
    /// In words, a beat of which no byte is allocated.
    pub fn beat(
        &mut self,
        memory: &DeviceMemory,
        ready: bool,
        beat: &mut [u8],
    ) -> Result<Option<u8>, RtlError> {
        let Some(burst) = self.reads.front_mut() else {
            return Ok(None);
        };
        self.moved.beat_bytes = beat.len() as u64;
        let (id, addr) = (burst.id, burst.addr);
        if ready {
            burst.addr = addr.wrapping_add(beat.len() as u64);
            burst.beats -= 1;
            if burst.beats == 0 {
                self.reads.pop_front();
            }
        }
        let found = fill(memory, addr, beat);
        found.map_err(|error| nowhere("reads", addr, error))?;
        Ok(Some(id))
    }

    /// A beat of the write that is under way: bytes whose bit of `strobes` is set.
    ///
    /// # Errors
    /// In words, a beat without a request, or a byte that isn't allocated.
    pub fn data(
        &mut self,
        memory: &mut DeviceMemory,
        strobes: u64,
        beat: &[u8],
    ) -> Result<(), RtlError> {
        let Some(burst) = &mut self.write else {
            let text = "the design writes a beat that it hasn't asked to write";
            return Err(RtlError::Misbehaved(text.to_owned()));
        };
        let addr = burst.addr;
        burst.addr = addr.wrapping_add(beat.len() as u64);
        burst.beats -= 1;
        if burst.beats == 0 {
            self.write = None;
        }
        let all = u64::MAX >> (64 - beat.len().clamp(1, MAX_BEAT_BYTES));
        self.moved.written_bytes += u64::from((strobes & all).count_ones());
        if strobes & all == all
            && let Ok(to) = memory.write(addr, beat.len() as u64)
        {
            to.copy_from_slice(beat);
            return Ok(());
        }
        for (i, byte) in beat.iter().enumerate() {
            if strobes >> i & 1 == 1 {
                let to = memory.write(addr.wrapping_add(i as u64), 1);
                to.map_err(|error| nowhere("writes", addr, error))?[0] = *byte;
            }
        }
        Ok(())
    }
}

fn nowhere(does: &'static str, addr: u64, error: MemoryError) -> RtlError {
    RtlError::Nowhere {
        does,
        addr,
        reason: error.to_string(),
    }
}

/// The bytes of a beat. A burst is whole beats, so that a beat may begin before an allocation and end
/// behind it: those bytes are zero.
fn fill(memory: &DeviceMemory, addr: u64, beat: &mut [u8]) -> Result<(), MemoryError> {
    let error = match memory.read(addr, beat.len() as u64) {
        Ok(bytes) => {
            beat.copy_from_slice(bytes);
            return Ok(());
        }
        Err(error) => error,
    };
    let mut found = false;
    for (i, byte) in beat.iter_mut().enumerate() {
        let one = memory.read(addr.wrapping_add(i as u64), 1);
        found |= one.is_ok();
        *byte = one.map_or(0, |one| one[0]);
    }
    if found { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(id: u8, addr: u64, beats: u32) -> Burst {
        Burst { id, addr, beats }
    }

    #[test]
    fn reads_answer_in_order_one_beat_a_clock_and_wait_until_the_design_is_ready() {
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 20).unwrap();
        let bytes: Vec<u8> = (1..=20).collect();
        memory.write(0x1000, 20).unwrap().copy_from_slice(&bytes);
        let mut bus = Bus::default();
        bus.read(burst(5, 0x1000, 2)).unwrap();
        bus.read(burst(6, 0x1010, 1)).unwrap();
        let mut beat = [0; 8];
        for (ready, id, first) in [(false, 5, 1), (true, 5, 1), (true, 5, 9), (true, 6, 17)] {
            assert_eq!(bus.beat(&memory, ready, &mut beat), Ok(Some(id)));
            assert_eq!(beat[0], first);
        }
        // The last beat goes beyond the allocation.
        assert_eq!(beat, [17, 18, 19, 20, 0, 0, 0, 0]);
        assert_eq!(bus.beat(&memory, true, &mut beat), Ok(None));
        bus.read(burst(0, 0x2000, 1)).unwrap();
        let error = bus.beat(&memory, true, &mut beat).unwrap_err();
        assert!(error.to_string().contains("0x2000"), "{error}");
    }

    #[test]
    fn writes_take_the_bytes_of_their_strobes() {
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 12).unwrap();
        let mut bus = Bus::default();
        let error = bus.data(&mut memory, 0xff, &[1; 8]).unwrap_err();
        assert!(error.to_string().contains("hasn't asked"), "{error}");
        bus.write(burst(0, 0x1000, 2)).unwrap();
        let error = bus.write(burst(0, 0x1000, 2)).unwrap_err();
        assert!(error.to_string().contains("2 beats are missing"), "{error}");
        bus.data(&mut memory, 0xff, &[1; 8]).unwrap();
        bus.data(&mut memory, 0x05, &[2; 8]).unwrap();
        let expected = [1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 2, 0];
        assert_eq!(memory.read(0x1000, 12).unwrap(), expected);
        bus.write(burst(0, 0x1008, 1)).unwrap();
        let error = bus.data(&mut memory, 0xff, &[3; 8]).unwrap_err();
        assert!(error.to_string().contains("0x100c"), "{error}");
        // Two beats and two bytes, and the beat that failed.
        assert_eq!((bus.moved.written_bytes, bus.moved.fetched_beats), (18, 0));
    }
}
