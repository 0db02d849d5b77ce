//! The order in which instructions may run: three in-order modules and four token queues.

use std::collections::VecDeque;
use std::fmt;

use thiserror::Error;

use crate::{Deps, Insn, Module};

/// Where something is: an instruction's index in the run and its assembly text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Index in the run, from 0.
    pub index: usize,
    /// The instruction.
    pub insn: Insn,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {} ({})", self.index, self.insn)
    }
}

/// An instruction that waits for tokens that never come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which module waits.
    pub module: Module,
    /// At which instruction.
    pub at: At,
    /// What it waits for; empty if it only stands behind FINISH.
    pub waits_for: Vec<&'static str>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} waits at {} for {}",
            self.module,
            self.at,
            self.waits_for.join(" and ")
        )
    }
}

/// A program whose tokens or end are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A token flag towards a module that isn't there.
    #[error("{at}: {flag} in the {module} module, which has no neighbour there")]
    Flag {
        /// Where.
        at: Box<At>,
        /// The flag.
        flag: &'static str,
        /// The module.
        module: Module,
    },
    /// No module can go on.
    #[error("deadlock: {}", .stuck.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Deadlock {
        /// The modules that have instructions left.
        stuck: Vec<Stuck>,
    },
    /// The run doesn't end in FINISH.
    #[error("the run of {insns} instructions does not end in FINISH")]
    NoFinish {
        /// How many instructions there are.
        insns: usize,
    },
    /// Instructions after FINISH.
    #[error("{at}: FINISH must be the last of the {insns} instructions")]
    EarlyFinish {
        /// Where.
        at: Box<At>,
        /// How many instructions there are.
        insns: usize,
    },
}

/// The queues: load->compute, compute->load, compute->store, store->compute.
const QUEUES: [&str; 4] = [
    "a token from load to compute",
    "a token from compute to load",
    "a token from compute to store",
    "a token from store to compute",
];

/// Which queue each flag of a module means; `None` where there is no neighbour.
struct Ports {
    pop_prev: Option<usize>,
    pop_next: Option<usize>,
    push_prev: Option<usize>,
    push_next: Option<usize>,
}

const fn ports(module: Module) -> Ports {
    match module {
        Module::Load => Ports {
            pop_prev: None,
            pop_next: Some(1),
            push_prev: None,
            push_next: Some(0),
        },
        Module::Compute => Ports {
            pop_prev: Some(0),
            pop_next: Some(3),
            push_prev: Some(1),
            push_next: Some(2),
        },
        Module::Store => Ports {
            pop_prev: Some(2),
            pop_next: None,
            push_prev: Some(3),
            push_next: None,
        },
    }
}

/// Runs every instruction once, in an order that the tokens allow: load as far as it can, then
/// compute, then store, and again. Every queue starts empty; what is left in the queues at the
/// end is returned.
///
/// # Errors
/// A token flag without a neighbour, a missing or early FINISH, a deadlock (with the stuck
/// instruction of each module), and whatever `execute` reports.
pub fn run_in_token_order<E: From<TokenError>>(
    insns: &[Insn],
    mut execute: impl FnMut(usize, &Insn) -> Result<(), E>,
) -> Result<[u32; 4], E> {
    check_finish(insns)?;
    let mut pending: [VecDeque<u32>; 3] = Default::default();
    for (index, insn) in insns.iter().enumerate() {
        check_flags(index, insn)?;
        pending[insn.module() as usize].push_back(index as u32);
    }
    let mut tokens = [0u32; 4];
    let mut left = insns.len();
    while left > 0 {
        let before = left;
        for module in Module::ALL {
            let ports = ports(module);
            let queue = &mut pending[module as usize];
            while let Some(&index) = queue.front() {
                let insn = &insns[index as usize];
                if !pop(&mut tokens, &ports, insn.deps()) {
                    break;
                }
                execute(index as usize, insn)?;
                push(&mut tokens, &ports, insn.deps());
                queue.pop_front();
                left -= 1;
            }
        }
        if left == before {
            return Err(deadlock(insns, &pending, &tokens).into());
        }
    }
    Ok(tokens)
}

/// Takes the tokens that the flags ask for, all or none.
fn pop(tokens: &mut [u32; 4], ports: &Ports, deps: Deps) -> bool {
    let prev = ports.pop_prev.filter(|_| deps.pop_prev);
    let next = ports.pop_next.filter(|_| deps.pop_next);
    if prev.is_some_and(|q| tokens[q] == 0) || next.is_some_and(|q| tokens[q] == 0) {
        return false;
    }
    for queue in prev.into_iter().chain(next) {
        tokens[queue] -= 1;
    }
    true
}

fn push(tokens: &mut [u32; 4], ports: &Ports, deps: Deps) {
    let prev = ports.push_prev.filter(|_| deps.push_prev);
    let next = ports.push_next.filter(|_| deps.push_next);
    for queue in prev.into_iter().chain(next) {
        // One push for each instruction of a run whose length fits memory.
        tokens[queue] = tokens[queue].saturating_add(1);
    }
}

fn check_finish(insns: &[Insn]) -> Result<(), TokenError> {
    let count = insns.len();
    match insns
        .iter()
        .position(|insn| matches!(insn, Insn::Finish(_)))
    {
        None => Err(TokenError::NoFinish { insns: count }),
        Some(index) if index + 1 != count => {
            let at = Box::new(At {
                index,
                insn: insns[index],
            });
            Err(TokenError::EarlyFinish { at, insns: count })
        }
        Some(_) => Ok(()),
    }
}

fn check_flags(index: usize, insn: &Insn) -> Result<(), TokenError> {
    let (deps, module) = (insn.deps(), insn.module());
    let ports = ports(module);
    let flags = [
        (deps.pop_prev && ports.pop_prev.is_none(), "pop_prev"),
        (deps.pop_next && ports.pop_next.is_none(), "pop_next"),
        (deps.push_prev && ports.push_prev.is_none(), "push_prev"),
        (deps.push_next && ports.push_next.is_none(), "push_next"),
    ];
    match flags.iter().find(|(bad, _)| *bad) {
        None => Ok(()),
        Some((_, flag)) => Err(TokenError::Flag {
            at: Box::new(At { index, insn: *insn }),
            flag,
            module,
        }),
    }
}

fn deadlock(insns: &[Insn], pending: &[VecDeque<u32>; 3], tokens: &[u32; 4]) -> TokenError {
    let stuck = |module: Module| {
        let index = *pending[module as usize].front()? as usize;
        let (insn, ports) = (insns[index], ports(module));
        let waits = [
            ports.pop_prev.filter(|_| insn.deps().pop_prev),
            ports.pop_next.filter(|_| insn.deps().pop_next),
        ];
        let waits_for = waits.into_iter().flatten().filter(|&q| tokens[q] == 0);
        let waits_for = waits_for.map(|q| QUEUES[q]).collect();
        Some(Stuck {
            module,
            at: At { index, insn },
            waits_for,
        })
    };
    TokenError::Deadlock {
        stuck: Module::ALL.into_iter().filter_map(stuck).collect(),
    }
}
