//! The static check of a program: what a device would refuse, found without running it.
//!
//! Extensions that the machine lacks, scratchpad bounds of every instruction over all its loops, micro-op ranges, 32-bit DRAM
//! addresses, token flags, FINISH, deadlock, tokens left over. The cost is linear in the
//! instructions (and the micro-ops of each), whatever the loops say.

use thiserror::Error;

use crate::resolve::{self, Fault, Resolved, Uops};
use crate::tokens::{self, At, Edge, TokenError};
use crate::{Config, Extension, Extensions, Insn, MemType, Uop};

/// A fault of a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Finding {
    /// An index leaves its scratchpad, or micro-ops end before they begin.
    #[error("{at}: {fault}")]
    Fault {
        /// Where.
        at: Box<At>,
        /// What is wrong.
        fault: Fault,
    },
    /// A DRAM access leaves the 32-bit address space.
    #[error("{at}: DRAM bytes up to {end:#x} leave the 32-bit address space")]
    Dram {
        /// Where.
        at: Box<At>,
        /// One past the last byte.
        end: u64,
    },
    /// An instruction or operation that the configuration's machine lacks.
    #[error("{at}: needs {extension}, which this machine doesn't have")]
    Extension {
        /// Where.
        at: Box<At>,
        /// What it needs.
        extension: Extension,
    },
    /// Token flags, FINISH, or a deadlock.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Tokens are left at the end: legal, but the next run never sees them.
    #[error("{count} token(s) left from {} to {} at the end", .edge.producer(), .edge.consumer())]
    Leftover {
        /// How many.
        count: u32,
        /// The queue.
        edge: Edge,
    },
    /// Bits outside every field are set (strict check of raw words).
    #[error("word {index} ({word:#034x}): bits {bits:#x} belong to no field")]
    Dirty {
        /// Which word.
        index: usize,
        /// The word.
        word: u128,
        /// The bits that should be zero.
        bits: u128,
    },
}

/// Checks a program whose micro-ops are unknown: loops are checked with tile indices of 0.
pub fn check(config: &Config, insns: &[Insn]) -> Vec<Finding> {
    check_with(config, insns, |_| None)
}

/// Checks a program; `uops(i)` is what `uop_bgn..uop_end` of instruction `i` index, if known.
pub fn check_with<'a>(
    config: &Config,
    insns: &[Insn],
    uops: impl Fn(usize) -> Option<&'a [Uop]>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, insn) in insns.iter().enumerate() {
        findings.extend(lacking(config.extensions(), (index, insn)).err());
        let at = At { index, insn: *insn };
        findings.extend(check_insn(config, at, uops(index)).err());
    }
    match tokens::run_in_token_order(insns, |_, _| Ok::<(), TokenError>(())) {
        Ok(left) => findings.extend(leftover(left)),
        Err(error) => findings.push(error.into()),
    }
    findings
}

/// Whether a configuration's machine has what every instruction needs.
///
/// # Errors
/// [`Finding::Extension`] for the first for which it hasn't.
pub fn extensions(config: &Config, insns: &[Insn]) -> Result<(), Finding> {
    let has = config.extensions();
    if has == Extensions::ALL {
        return Ok(());
    }
    let mut all = insns.iter().enumerate();
    all.try_for_each(|insn| lacking(has, insn))
}

fn lacking(has: Extensions, (index, insn): (usize, &Insn)) -> Result<(), Finding> {
    has.allow(insn).map_err(|extension| Finding::Extension {
        at: Box::new(At { index, insn: *insn }),
        extension,
    })
}

/// Words with bits set that no field covers; streams of the original runtime are full of them.
pub fn dirty(words: &[u128]) -> Vec<Finding> {
    let finding = |(index, &word): (usize, &u128)| {
        let clean = Insn::decode(word).ok()?.encode().ok()?;
        let bits = word & !clean;
        // A cleared memory type of a synchronisation STORE isn't a set bit.
        (bits != 0).then_some(Finding::Dirty { index, word, bits })
    };
    words.iter().enumerate().filter_map(finding).collect()
}

fn leftover(left: [u32; 4]) -> impl Iterator<Item = Finding> {
    let pairs = left.into_iter().zip(Edge::ALL);
    let left = pairs.filter(|(count, _)| *count > 0);
    left.map(|(count, edge)| Finding::Leftover { count, edge })
}

fn check_insn(config: &Config, at: At, kernel: Option<&[Uop]>) -> Result<(), Finding> {
    let known = match resolve::uop_range(&at.insn) {
        Some(range) => uop_slice(config, range, kernel),
        None => Ok(&[][..]),
    };
    if let Err(fault) = known.and_then(|uops| Resolved::of(config, &at.insn, Uops::of(uops))) {
        let at = Box::new(at);
        return Err(Finding::Fault { at, fault });
    }
    match at.insn.dram_rows(config).map(|rows| rows.span().end) {
        Some(end) if end > 1 << 32 => Err(Finding::Dram {
            at: Box::new(at),
            end,
        }),
        _ => Ok(()),
    }
}

/// Checks the range of micro-ops; the ones in it, if the kernel that they index is known.
fn uop_slice<'a>(
    config: &Config,
    (bgn, end): (u16, u16),
    kernel: Option<&'a [Uop]>,
) -> Result<&'a [Uop], Fault> {
    const UNKNOWN: &[Uop] = &[Uop {
        dst: 0,
        src: 0,
        wgt: 0,
    }];
    resolve::check_uop_range(bgn, end, config.depth(MemType::Uop))?;
    let Some(uops) = kernel else {
        return Ok(UNKNOWN);
    };
    let range = usize::from(bgn)..usize::from(end);
    uops.get(range).ok_or(Fault::Scratchpad {
        field: "uop_end",
        value: u64::from(end).saturating_sub(1),
        scratchpad: "kernel",
        depth: uops.len(),
    })
}

#[cfg(test)]
mod tests;
