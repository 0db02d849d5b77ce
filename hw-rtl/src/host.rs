//! The host's side of the register block: what is written and read in a run, one access after the other.

use std::collections::VecDeque;

/// Byte offsets of the registers of the original RTL.
pub mod register {
    /// Write 1: launch. Bit 1 of what is read: FINISH has ended.
    pub const CONTROL: u8 = 0x00;
    /// Cycles of the last run.
    pub const CYCLES: u8 = 0x04;
    /// Instructions of the run.
    pub const INSN_COUNT: u8 = 0x08;
    /// Where they lie.
    pub const INSN_ADDR: u8 = 0x0c;
    /// Added to what instructions address: micro-ops, inputs, weights, accumulators, outputs.
    pub const BASES: [u8; 5] = [0x10, 0x14, 0x18, 0x1c, 0x20];
    /// Written to [`CONTROL`].
    pub const LAUNCH: u32 = 1;
    /// A bit of [`CONTROL`].
    pub const FINISHED: u32 = 2;
}

/// One access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its answer comes later.
    Read(u8),
    /// Register and value.
    Write(u8, u32),
}

/// The accesses of one run: registers, launch, polling, the counter.
#[derive(Debug, Default)]
pub struct Host {
    offered: VecDeque<Access>,
    /// The register whose answer is awaited.
    awaited: Option<u8>,
    cycles: Option<u32>,
}

impl Host {
    /// What starts a run of so many instructions at an address.
    pub fn launch(insn_addr: u32, insns: u32) -> Self {
        let bases = register::BASES.map(|base| (base, 0));
        let first = [
            (register::CYCLES, 0),
            (register::INSN_COUNT, insns),
            (register::INSN_ADDR, insn_addr),
        ];
        let launch = [(register::CONTROL, register::LAUNCH)];
        let writes = first.into_iter().chain(bases).chain(launch);
        let mut offered: VecDeque<_> = writes.map(|(at, value)| Access::Write(at, value)).collect();
        offered.push_back(Access::Read(register::CONTROL));
        Self {
            offered,
            awaited: None,
            cycles: None,
        }
    }

    /// What the counter said, once the run is over.
    pub fn cycles(&self) -> Option<u32> {
        self.cycles
    }

    /// One clock: an answer that came, what is offered, which is `taken` by the design if it says so.
    ///
    /// # Errors
    /// In words, an answer that nobody asked for.
    pub fn clock(&mut self, taken: bool, answer: Option<u32>) -> Result<Option<Access>, String> {
        let offered = self.offered.front().copied();
        if taken && let Some(access) = self.offered.pop_front() {
            match access {
                Access::Read(at) => self.awaited = Some(at),
                Access::Write(..) => {}
            }
        }
        match (answer, self.awaited) {
            (None, _) => {}
            (Some(value), Some(at)) => self.answered(at, value),
            (Some(value), None) => {
                return Err(format!("the design answers {value:#x} to no register read"));
            }
        }
        Ok(offered)
    }

    fn answered(&mut self, at: u8, value: u32) {
        self.awaited = None;
        match at {
            register::CYCLES => self.cycles = Some(value),
            _ if value & register::FINISHED != 0 => {
                self.offered.push_back(Access::Read(register::CYCLES));
            }
            _ => self.offered.push_back(Access::Read(register::CONTROL)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_registers_launch_polls_and_the_counter() {
        let mut host = Host::launch(0x4000, 7);
        let mut written = Vec::new();
        let mut polls = 0;
        while host.cycles().is_none() {
            let Some(access) = host.clock(false, None).unwrap() else {
                panic!("nothing is offered");
            };
            assert_eq!(host.clock(true, None).unwrap(), Some(access));
            match access {
                Access::Write(at, value) => written.push((at, value)),
                Access::Read(register::CYCLES) => drop(host.clock(false, Some(99)).unwrap()),
                Access::Read(at) => {
                    assert_eq!(at, register::CONTROL);
                    polls += 1;
                    let finished = if polls == 3 { register::FINISHED } else { 0 };
                    host.clock(false, Some(finished)).unwrap();
                }
            }
        }
        assert_eq!((host.cycles(), polls), (Some(99), 3));
        assert_eq!(written[..3], [(4, 0), (8, 7), (12, 0x4000)]);
        assert_eq!(written.last(), Some(&(register::CONTROL, register::LAUNCH)));
        assert_eq!(host.clock(false, None), Ok(None));
        let error = host.clock(false, Some(1)).unwrap_err();
        assert!(error.contains("no register read"), "{error}");
    }
}
