//! The hazard checker: what a device may do in an order that the program doesn't fix.
//!
//! Load, compute and store run side by side; only tokens, and program order inside a module,
//! say which access comes first. [`check`] follows both with vector clocks and reports
//!
//! - every pair of instructions of different modules that touch one scratchpad tile or one DRAM
//!   byte, at least one of them writing, and that nothing orders ([`Race`]);
//! - STOREs that FINISH doesn't wait for: the host may read too early (a [`Race`] with
//!   [`AccessKind::HandOver`]);
//! - ALU instructions on which the RTL aborts, since a step reads what the step before has not
//!   written back ([`AluHazard`]).
//!
//! [`edges`] lists what does something else on the original RTL.
//!
//! The micro-op scratchpad is written and read by compute alone, so it has no races; the DRAM
//! that micro-ops are loaded from may. STORE reads the accumulator scratchpad, as the
//! instruction set defines it. A race is found if there is one, whatever order a run happens to
//! take, but of several accesses of one module to one place only the last before the other
//! instruction is named. Fetching instructions from DRAM isn't an access here.
//!
//! ```
//! use vta_isa::{Config, asm};
//! use vta_sim::hazards::{self, UopSource};
//!
//! let insns = asm::parse(
//!     "load.acc y_size=1 x_size=4 x_stride=4
//!      store dram_base=64 y_size=1 x_size=4 x_stride=4 push_prev
//!      finish pop_next",
//! )?;
//! let report = hazards::check(&Config::default(), &insns, UopSource::Unknown)?;
//! let text = report.hazards[0].to_string();
//! assert!(text.starts_with("acc tiles 0..4: instruction 0 (load.acc"), "{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod alu;
mod dram;
mod edges;
mod order;
mod program;
mod races;
mod report;
mod tiles;
mod uops;

use std::ops::Range;

use vta_isa::tokens::{At, TokenError, run_in_token_order};
use vta_isa::{Alu, AluOperand, Config, Gemm, Insn, Load, MemType, Module, Store, Uop};

use self::dram::{Dram, rows};
use self::order::{Clocks, Turn};
use self::races::{Conflicts, Pad};
use self::tiles::{Affine, TileSet};
use self::uops::{UopPad, dram_rows};

pub use edges::{Deviation, Edge, case_edges, counts_on_rtl, deviation, edges};
pub use program::{BatchReport, HazardError, check_case, check_program};
pub use report::{
    Access, AccessKind, AluHazard, Hazard, MAX_HAZARDS, Note, Race, Report, SharedMemory, Unchecked,
};
pub use uops::UopSource;

/// Checks one run. The cost is that of the tiles and DRAM rows touched, not of the loop trips.
///
/// # Errors
/// [`TokenError`] for a program without an order to check: a deadlock, a wrong flag, no FINISH.
pub fn check(config: &Config, insns: &[Insn], uops: UopSource<'_>) -> Result<Report, TokenError> {
    let mut checker = Checker::new(config, insns, uops);
    run_in_token_order(insns, |index, insn| {
        checker.insn(index, insn);
        Ok::<(), TokenError>(())
    })?;
    let mut report = checker.report;
    report.hazards.sort_by_key(Hazard::key);
    Ok(report)
}

/// The first ALU instruction, in program order, on which the RTL aborts.
pub fn first_alu_hazard(config: &Config, insns: &[Insn], uops: UopSource<'_>) -> Option<AluHazard> {
    let mut pad = UopPad::new(uops, config.depth(MemType::Uop), uop_loads(insns));
    for (index, insn) in insns.iter().enumerate() {
        match insn {
            Insn::Load(load) if load.mem == MemType::Uop => pad.load(load),
            Insn::Store(store) => pad.stored(&stored_rows(config, store)),
            Insn::Alu(alu) => {
                let known = pad.range(alu.uop_bgn, alu.uop_end);
                let uops = known.filter(|(_, some_unknown)| !some_unknown);
                let at = At { index, insn: *insn };
                if let Some(hazard) = uops.and_then(|(uops, _)| alu_hazard(at, alu, &uops)) {
                    return Some(hazard);
                }
            }
            Insn::Load(_) | Insn::Gemm(_) | Insn::Finish(_) => {}
        }
    }
    None
}

fn uop_loads(insns: &[Insn]) -> impl Iterator<Item = &Load> {
    insns.iter().filter_map(|insn| match insn {
        Insn::Load(load) if load.mem == MemType::Uop => Some(load),
        Insn::Load(_) | Insn::Store(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => None,
    })
}

fn stored_rows(config: &Config, store: &Store) -> Vec<Range<u64>> {
    rows(
        config.elem_bytes(MemType::Out),
        store.dram_base,
        [store.y_size, store.x_size, store.x_stride],
    )
}

fn alu_hazard(at: At, alu: &Alu, uops: &[Uop]) -> Option<AluHazard> {
    let clash = alu::clash(alu, uops)?;
    let index = match alu.operand {
        AluOperand::Imm(_) => "dst",
        AluOperand::Acc => "src",
    };
    Some(AluHazard {
        at,
        step: clash.step,
        tile: clash.tile,
        index,
    })
}

struct Checker<'a> {
    config: &'a Config,
    insns: &'a [Insn],
    clocks: Clocks,
    inp: Pad,
    wgt: Pad,
    acc: Pad,
    dram: Dram,
    uops: UopPad<'a>,
    /// FINISH, once it has run.
    finish: Option<u32>,
    report: Report,
}

impl<'a> Checker<'a> {
    fn new(config: &'a Config, insns: &'a [Insn], uops: UopSource<'a>) -> Self {
        let pad = |writer, reader, mem| Pad::new(writer, reader, config.depth(mem));
        Self {
            config,
            insns,
            clocks: Clocks::default(),
            inp: pad(Module::Load, Module::Compute, MemType::Inp),
            wgt: pad(Module::Load, Module::Compute, MemType::Wgt),
            acc: pad(Module::Compute, Module::Store, MemType::Acc),
            dram: Dram::default(),
            uops: UopPad::new(uops, config.depth(MemType::Uop), uop_loads(insns)),
            finish: None,
            report: Report {
                insns: insns.len(),
                ..Report::default()
            },
        }
    }

    fn insn(&mut self, index: usize, insn: &Insn) {
        let turn = self.clocks.start(index, insn);
        let done = match insn {
            Insn::Load(load) => self.load(&turn, load),
            Insn::Store(store) => self.store(&turn, store),
            Insn::Gemm(gemm) => self.gemm(&turn, gemm),
            Insn::Alu(alu) => self.alu(&turn, alu),
            Insn::Finish(_) => {
                self.finish(&turn);
                Some(())
            }
        };
        if done.is_none() {
            self.note(Unchecked::OutOfRange, index);
        }
        self.clocks.done(insn);
        self.dram.prune(&self.clocks);
    }

    /// `None`, here and below: the instruction leaves a scratchpad and was left out.
    fn load(&mut self, turn: &Turn, load: &Load) -> Option<()> {
        if load.is_sync() {
            return Some(());
        }
        let tiles = self.sram(load.mem, load.sram_base, load.sram_tiles())?;
        let bytes = match load.mem {
            MemType::Uop => dram_rows(load),
            MemType::Wgt | MemType::Inp | MemType::Acc | MemType::Out | MemType::Acc8 => rows(
                self.config.elem_bytes(load.mem),
                load.dram_base,
                [load.y_size, load.x_size, load.x_stride],
            ),
        };
        let mut conflicts = Conflicts::default();
        self.dram.read(turn, &bytes, &mut conflicts);
        let kinds = [AccessKind::Write, AccessKind::Read];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        match load.mem {
            MemType::Uop => self.uops.load(load),
            MemType::Inp => self.write(turn, SharedMemory::Inp, &TileSet::range(tiles)),
            MemType::Wgt => self.write(turn, SharedMemory::Wgt, &TileSet::range(tiles)),
            // Decoding refuses a LOAD of OUT; its scratchpad is the accumulators'.
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                self.write(turn, SharedMemory::Acc, &TileSet::range(tiles));
            }
        }
        Some(())
    }

    fn store(&mut self, turn: &Turn, store: &Store) -> Option<()> {
        if store.is_sync() {
            return Some(());
        }
        let tiles = self.sram(MemType::Out, store.sram_base, store.tiles())?;
        self.read(turn, SharedMemory::Acc, &TileSet::range(tiles));
        let bytes = stored_rows(self.config, store);
        let mut conflicts = Conflicts::default();
        self.dram.write(turn, &bytes, &mut conflicts);
        let kinds = [AccessKind::Read, AccessKind::Write];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        if let Some(finish) = self.finish {
            // An order in which FINISH was first is one that the tokens allow.
            let mut conflicts = Conflicts::default();
            bytes
                .iter()
                .for_each(|row| conflicts.add(finish, row.clone()));
            let kinds = [AccessKind::HandOver, AccessKind::Write];
            self.races(turn, SharedMemory::Dram, kinds, conflicts);
        }
        self.uops.stored(&bytes);
        Some(())
    }

    fn gemm(&mut self, turn: &Turn, gemm: &Gemm) -> Option<()> {
        let uops = self.known_uops(turn, gemm.uop_bgn, gemm.uop_end)?;
        let iter = [gemm.iter_out, gemm.iter_in];
        let affine = |factor| Affine { iter, factor };
        let depth = |mem| self.config.depth(mem);
        let dst = affine([gemm.dst_factor_out, gemm.dst_factor_in])
            .tiles(uops.iter().map(|u| u.dst), depth(MemType::Acc))?;
        if !gemm.reset {
            let src = affine([gemm.src_factor_out, gemm.src_factor_in])
                .tiles(uops.iter().map(|u| u.src), depth(MemType::Inp))?;
            let wgt = affine([gemm.wgt_factor_out, gemm.wgt_factor_in])
                .tiles(uops.iter().map(|u| u.wgt), depth(MemType::Wgt))?;
            self.read(turn, SharedMemory::Inp, &src);
            self.read(turn, SharedMemory::Wgt, &wgt);
        }
        self.write(turn, SharedMemory::Acc, &dst);
        Some(())
    }

    fn alu(&mut self, turn: &Turn, alu: &Alu) -> Option<()> {
        let uops = self.known_uops(turn, alu.uop_bgn, alu.uop_end)?;
        let iter = [alu.iter_out, alu.iter_in];
        let affine = |factor| Affine { iter, factor };
        let depth = self.config.depth(MemType::Acc);
        let dst = affine([alu.dst_factor_out, alu.dst_factor_in])
            .tiles(uops.iter().map(|u| u.dst), depth)?;
        if alu.operand == AluOperand::Acc {
            // Compute's own tiles: only the bound matters.
            affine([alu.src_factor_out, alu.src_factor_in])
                .tiles(uops.iter().map(|u| u.src), depth)?;
        }
        self.write(turn, SharedMemory::Acc, &dst);
        let all_known = uops.len() as u64 == alu.uop_count();
        if all_known && let Some(hazard) = alu_hazard(self.at(turn.stamp.insn), alu, &uops) {
            self.found(Hazard::Alu(hazard));
        }
        Some(())
    }

    fn finish(&mut self, turn: &Turn) {
        let mut conflicts = Conflicts::default();
        self.dram.hand_over(turn, &mut conflicts);
        let kinds = [AccessKind::Write, AccessKind::HandOver];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        self.finish = Some(turn.stamp.insn);
    }

    /// The tiles of a LOAD or STORE, if they are all in the scratchpad.
    fn sram(&self, mem: MemType, base: u16, tiles: u64) -> Option<Range<usize>> {
        let end = u64::from(base) + tiles;
        (end <= self.config.depth(mem) as u64).then(|| usize::from(base)..end as usize)
    }

    /// The known micro-ops of a range, with a note when some are unknown.
    fn known_uops(&mut self, turn: &Turn, bgn: u16, end: u16) -> Option<Vec<Uop>> {
        let (uops, some_unknown) = self.uops.range(bgn, end)?;
        if some_unknown {
            self.note(Unchecked::UnknownUops, turn.stamp.insn as usize);
        }
        Some(uops)
    }

    fn pad(&mut self, memory: SharedMemory) -> Option<&mut Pad> {
        match memory {
            SharedMemory::Inp => Some(&mut self.inp),
            SharedMemory::Wgt => Some(&mut self.wgt),
            SharedMemory::Acc => Some(&mut self.acc),
            SharedMemory::Dram => None,
        }
    }

    fn write(&mut self, turn: &Turn, memory: SharedMemory, tiles: &TileSet) {
        let conflicts = self.pad(memory).map(|pad| pad.write(turn, tiles));
        let kinds = [AccessKind::Read, AccessKind::Write];
        self.races(turn, memory, kinds, conflicts.unwrap_or_default());
    }

    fn read(&mut self, turn: &Turn, memory: SharedMemory, tiles: &TileSet) {
        let conflicts = self.pad(memory).map(|pad| pad.read(turn, tiles));
        let kinds = [AccessKind::Write, AccessKind::Read];
        self.races(turn, memory, kinds, conflicts.unwrap_or_default());
    }

    /// Reports the races of one instruction; `theirs` is what the others do, `ours` what it does.
    fn races(
        &mut self,
        turn: &Turn,
        memory: SharedMemory,
        [theirs, ours]: [AccessKind; 2],
        conflicts: Conflicts,
    ) {
        for (insn, shared) in conflicts.0 {
            let access = |insn, kind| Access {
                at: self.at(insn),
                kind,
            };
            let (mut first, mut second) = (access(insn, theirs), access(turn.stamp.insn, ours));
            if first.at.index > second.at.index {
                std::mem::swap(&mut first, &mut second);
            }
            self.found(Hazard::Race(Race {
                memory,
                ranges: shared.ranges,
                count: shared.count,
                first,
                second,
            }));
        }
    }

    fn at(&self, insn: u32) -> At {
        let index = insn as usize;
        At {
            index,
            insn: self.insns[index],
        }
    }

    fn found(&mut self, hazard: Hazard) {
        self.report.found += 1;
        if self.report.hazards.len() < MAX_HAZARDS {
            self.report.hazards.push(hazard);
        }
    }

    fn note(&mut self, what: Unchecked, index: usize) {
        match self.report.notes.iter_mut().find(|n| n.what == what) {
            Some(note) => note.count += 1,
            None => {
                let first = self.at(index as u32);
                let count = 1;
                self.report.notes.push(Note { what, first, count });
            }
        }
    }
}
