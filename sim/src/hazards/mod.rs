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
//! [`deviations()`] lists what does something else on the original RTL.
//!
//! The accumulator scratchpad is written by compute, and by load where a program preloads. The micro-op scratchpad is written and read by compute alone, so it has no races; the DRAM
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
mod deviations;
mod dram;
mod order;
mod program;
mod races;
mod report;
mod uops;

use vta_isa::resolve::{
    AluAccess, DepthwiseAccess, GemmAccess, LoadAccess, Resolved, StoreAccess, TileSet,
};
use vta_isa::tokens::{At, TokenError, run_in_token_order};
use vta_isa::{Alu, AluOperand, Config, Insn, MemType, Uop};

use self::dram::Dram;
use self::order::{Clocks, Turn};
use self::races::{Conflicts, Pad};
use self::uops::KnownUops;

pub use deviations::{
    Deviation, DeviationAt, case_deviations, counts_on_rtl, deviation, deviations,
};
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
    let mut followed = KnownUops::new(uops, config, insns);
    let mut checker = Checker::new(config, insns);
    run_in_token_order(insns, |index, insn| {
        let turn = checker.clocks.start(index, insn);
        let resolved = followed.next(insn).and_then(|uops| {
            if uops.some_unknown {
                checker.note(Unchecked::UnknownUops, index);
            }
            Resolved::of(config, insn, uops)
        });
        match resolved {
            Ok(resolved) => checker.touch(&turn, insn, &resolved),
            Err(_) => checker.note(Unchecked::OutOfRange, index),
        }
        checker.clocks.done(insn);
        checker.dram.prune(&checker.clocks);
        Ok::<(), TokenError>(())
    })?;
    let mut report = checker.report;
    report.hazards.sort_by_key(Hazard::key);
    Ok(report)
}

/// The first ALU instruction, in program order, on which the RTL aborts.
pub fn first_alu_hazard(config: &Config, insns: &[Insn], uops: UopSource<'_>) -> Option<AluHazard> {
    let mut followed = KnownUops::new(uops, config, insns);
    insns.iter().enumerate().find_map(|(index, insn)| {
        let uops = followed.next(insn).ok()?;
        let Insn::Alu(alu) = insn else { return None };
        let at = At { index, insn: *insn };
        (!uops.some_unknown).then(|| alu_hazard(at, alu, uops.known))?
    })
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
    insns: &'a [Insn],
    clocks: Clocks,
    inp: Pad,
    wgt: Pad,
    acc: Pad,
    /// Whether the load module fills accumulators, so that it matters what else compute reads of them.
    preloads: bool,
    dram: Dram,
    /// FINISH, once it has run.
    finish: Option<u32>,
    report: Report,
}

impl<'a> Checker<'a> {
    fn new(config: &Config, insns: &'a [Insn]) -> Self {
        let pad = |mem| Pad::new(config.depth(mem));
        Self {
            insns,
            clocks: Clocks::default(),
            inp: pad(MemType::Inp),
            wgt: pad(MemType::Wgt),
            acc: pad(MemType::Acc),
            preloads: (insns.iter()).any(|insn| matches!(insn, Insn::Load(load) if load.preload)),
            dram: Dram::default(),
            finish: None,
            report: Report {
                insns: insns.len(),
                ..Report::default()
            },
        }
    }

    fn touch(&mut self, turn: &Turn, insn: &Insn, resolved: &Resolved<'_>) {
        match resolved {
            Resolved::Load(access) => self.load(turn, access),
            Resolved::Store(access) => self.store(turn, access),
            Resolved::Gemm(access) => self.gemm(turn, access),
            Resolved::Depthwise(access) => self.depthwise(turn, access),
            Resolved::Alu(access) => self.alu(turn, access),
            Resolved::Sync if matches!(insn, Insn::Finish(_)) => self.finish(turn),
            Resolved::Sync => {}
        }
    }

    fn load(&mut self, turn: &Turn, access: &LoadAccess) {
        let mut conflicts = Conflicts::default();
        self.dram.read(turn, access.rows.apart(), &mut conflicts);
        let kinds = [AccessKind::Write, AccessKind::Read];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        let memory = match access.load.mem {
            // Compute alone loads and reads micro-ops.
            MemType::Uop => return,
            MemType::Inp => SharedMemory::Inp,
            MemType::Wgt | MemType::Wgt4 => SharedMemory::Wgt,
            // Decoding refuses a LOAD of OUT; its scratchpad is the accumulators'.
            MemType::Acc | MemType::Acc8 | MemType::Out => SharedMemory::Acc,
        };
        self.write(turn, memory, &TileSet::range(access.entries.clone()));
    }

    fn store(&mut self, turn: &Turn, access: &StoreAccess) {
        let mut tiles = TileSet::range(access.tiles.clone());
        let operands = access.operands.iter();
        operands.for_each(|range| tiles.add(&TileSet::range(range.clone())));
        self.read(turn, SharedMemory::Acc, &tiles);
        let mut conflicts = Conflicts::default();
        self.dram.write(turn, access.rows.apart(), &mut conflicts);
        let kinds = [AccessKind::Read, AccessKind::Write];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        if let Some(finish) = self.finish {
            // An order in which FINISH was first is one that the tokens allow.
            let mut conflicts = Conflicts::default();
            let rows = access.rows.apart();
            rows.for_each(|row| conflicts.add(finish, row));
            let kinds = [AccessKind::HandOver, AccessKind::Write];
            self.races(turn, SharedMemory::Dram, kinds, conflicts);
        }
    }

    fn gemm(&mut self, turn: &Turn, access: &GemmAccess<'_>) {
        if let Some([src, wgt]) = access.operands {
            self.read(turn, SharedMemory::Inp, &src.set());
            self.read(turn, SharedMemory::Wgt, &wgt.set());
        }
        self.write(turn, SharedMemory::Acc, &access.dst.set());
    }

    fn depthwise(&mut self, turn: &Turn, access: &DepthwiseAccess<'_>) {
        self.read(turn, SharedMemory::Inp, &access.inputs());
        self.read(turn, SharedMemory::Wgt, &access.wgt.set());
        self.write(turn, SharedMemory::Acc, &access.dst.set());
    }

    /// The second operand's tiles are compute's own, unless the load module fills some: only their bound matters then.
    fn alu(&mut self, turn: &Turn, access: &AluAccess<'_>) {
        if let Some(src) = access.src.filter(|_| self.preloads) {
            self.read(turn, SharedMemory::Acc, &src.set());
        }
        self.write(turn, SharedMemory::Acc, &access.dst.set());
        let uops = access.uops;
        let known = !uops.some_unknown;
        let hazard = |at| alu_hazard(at, &access.alu, uops.known);
        if let Some(hazard) = known.then(|| hazard(self.at(turn.stamp.insn))).flatten() {
            self.found(Hazard::Alu(hazard));
        }
    }

    fn finish(&mut self, turn: &Turn) {
        let mut conflicts = Conflicts::default();
        self.dram.hand_over(turn, &mut conflicts);
        let kinds = [AccessKind::Write, AccessKind::HandOver];
        self.races(turn, SharedMemory::Dram, kinds, conflicts);
        self.finish = Some(turn.stamp.insn);
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
        let theirs = [AccessKind::Read, AccessKind::Write];
        for (kind, conflicts) in theirs.into_iter().zip(conflicts.unwrap_or_default()) {
            self.races(turn, memory, [kind, AccessKind::Write], conflicts);
        }
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
