//! Fresh plans against the instructions that they stand for, in builds with debug assertions.
//!
//! The batch is run twice on memory and scratchpads of the check's own: one instruction at a time
//! by the [oracle](crate::oracle), and by its plan. Both must leave every byte that the batch names and all of
//! the scratchpads the same. Whatever the plan didn't take as constants is random, so that values
//! that went to the wrong place show even where the caller's bytes are all zero.

use vta_driver::{DeviceMemory, Span};
use vta_isa::resolve::merge;
use vta_isa::tokens::{self, At};
use vta_isa::{Insn, MemType};

use super::super::run::scratchpads::Scratchpads;
use super::build;
use super::{Plan, Subject};
use crate::functional::run;

/// Multiplications and ALU lanes of the largest batch that is checked: some milliseconds.
const MOST_WORK: u64 = 1 << 21;
/// Bytes of DRAM that the largest batch names.
const MOST_BYTES: usize = 1 << 22;

/// Where two runs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differing {
    /// Accumulator or input tile.
    Tile(MemType, usize),
    /// Micro-op or weight tile that the batch should leave.
    Constant(MemType, usize),
    /// Region and byte.
    Dram(usize, usize),
}

/// Memory and scratchpads of one run.
struct State {
    memory: DeviceMemory,
    pads: Scratchpads,
}

impl Subject<'_> {
    /// Compares the plan with the instructions, if they are few.
    ///
    /// # Panics
    /// When they differ: names the place and the last instruction that changes it.
    pub(super) fn check(&self, plan: &Plan, constants: &[Span]) {
        let spans = self.touched();
        let bytes: usize = spans.iter().map(|s| s.len).sum();
        if self.work() > MOST_WORK || bytes > MOST_BYTES {
            return;
        }
        let state = || self.state(&spans, constants);
        let (Some(mut expected), Some(mut found)) = (state(), state()) else {
            return;
        };
        self.run_oracle(&mut expected, |_, _| {});
        run::run(plan, &mut found.pads, &mut found.memory);
        plan.settle(&mut found.pads);
        if let Some(place) = difference(&expected, &found, &spans) {
            let last = state().map(|state| self.last_change(place, state));
            let last = last.flatten().unwrap_or("no instruction".to_owned());
            panic!("the plan differs from its batch in {place:?}, which is last changed by {last}");
        }
    }

    /// Multiplications and ALU lanes.
    fn work(&self) -> u64 {
        let lanes = self.config.lanes() as u64;
        let of = |insn: &Insn| match insn {
            Insn::Gemm(gemm) => gemm
                .steps()
                .saturating_mul(lanes * self.config.block() as u64),
            Insn::Alu(alu) => alu.steps().saturating_mul(lanes),
            Insn::Depthwise(insn) => insn.steps().saturating_mul(lanes * insn.taps() as u64),
            Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
        };
        self.insns.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The bytes that loads and stores name, from the first of each to its last.
    fn touched(&self) -> Vec<Span> {
        let rows = self.insns.iter().filter_map(|i| i.dram_rows(self.config));
        let mut spans = rows
            .filter_map(|rows| build::span(self.memory, &rows).ok())
            .collect();
        merge(&mut spans);
        spans
    }

    /// The same each time: constants as they are, everything else random. `None` when the host
    /// has no memory for it.
    fn state(&self, spans: &[Span], constants: &[Span]) -> Option<State> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut memory = DeviceMemory::new();
        for region in 0.. {
            let Some(address) = self.memory.address(region) else {
                break;
            };
            let size = self.memory.region(region).len() as u64;
            memory.map(address, size).ok()?;
        }
        for span in spans {
            let bytes = memory.region_mut(span.region);
            random.bytes(&mut bytes[span.start..span.start + span.len]);
        }
        for span in constants {
            let range = span.start..span.start + span.len;
            let bytes = &self.memory.region(span.region)[range.clone()];
            memory.region_mut(span.region)[range].copy_from_slice(bytes);
        }
        let mut pads = Scratchpads {
            staged_inputs: self.pads.staged_inputs,
            ..Scratchpads::new(self.config, self.pads.kernel)
        };
        if self.once {
            pads.uop.clone_from(&self.pads.uop);
            pads.wgt.clone_from(&self.pads.wgt);
        }
        random.bytes(&mut pads.inp);
        pads.acc.iter_mut().for_each(|x| *x = random.next() as i32);
        Some(State { memory, pads })
    }

    /// Runs the instructions; tells the state after each.
    ///
    /// # Panics
    /// When they can't be run, since planning should have refused them.
    fn run_oracle(&self, state: &mut State, mut tell: impl FnMut(&At, &State)) {
        let ran = tokens::run_in_token_order(self.insns, |index, insn| {
            let at = At { index, insn: *insn };
            let mut machine = state.pads.machine(self.config);
            machine.execute(&at, &mut state.memory)?;
            tell(&at, state);
            Ok::<(), crate::SimError>(())
        });
        if let Err(error) = ran {
            panic!("a batch was planned that can't be run: {error}");
        }
    }

    /// The last instruction that changes a place of a state.
    fn last_change(&self, place: Differing, mut state: State) -> Option<String> {
        let (mut held, mut last) = (state.held(place), None);
        self.run_oracle(&mut state, |at, state| {
            let now = state.held(place);
            if now != held {
                last = Some(at.to_string());
            }
            held = now;
        });
        last
    }
}

impl State {
    /// The bytes of a place.
    fn held(&self, place: Differing) -> Vec<u8> {
        let pads = &self.pads;
        let tile = |bytes: &[u8], size: usize, tile: usize| bytes[tile * size..][..size].to_vec();
        match place {
            Differing::Tile(MemType::Inp, at) => tile(&pads.inp, pads.lanes, at),
            Differing::Tile(_, at) => {
                let lanes = &pads.acc[at * pads.lanes..][..pads.lanes];
                lanes.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
            Differing::Constant(MemType::Wgt, at) => tile(&pads.wgt, pads.weight_tile_bytes(), at),
            Differing::Constant(_, at) => format!("{:?}", pads.uop[at]).into(),
            Differing::Dram(region, at) => vec![self.memory.region(region)[at]],
        }
    }
}

/// The first place where two runs differ.
fn difference(expected: &State, found: &State, spans: &[Span]) -> Option<Differing> {
    fn first<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
        // Equal slices, nearly always, are compared quickly.
        (a != b).then(|| a.iter().zip(b).position(|(a, b)| a != b))?
    }
    let (a, b) = (&expected.pads, &found.pads);
    for span in spans {
        let of = |state: &State| {
            let bytes = state.memory.region(span.region);
            bytes[span.start..span.start + span.len].to_vec()
        };
        if let Some(at) = first(&of(expected), &of(found)) {
            return Some(Differing::Dram(span.region, span.start + at));
        }
    }
    let acc = first(&a.acc, &b.acc).map(|at| Differing::Tile(MemType::Acc, at / a.lanes));
    let inp = || first(&a.inp, &b.inp).map(|at| Differing::Tile(MemType::Inp, at / a.lanes));
    let uop = || first(&a.uop, &b.uop).map(|at| Differing::Constant(MemType::Uop, at));
    let size = a.weight_tile_bytes();
    let wgt = || first(&a.wgt, &b.wgt).map(|at| Differing::Constant(MemType::Wgt, at / size));
    acc.or_else(inp).or_else(uop).or_else(wgt)
}

/// Numbers that look random (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&(self.next() as u32).to_le_bytes()[..chunk.len()]);
        }
    }
}
