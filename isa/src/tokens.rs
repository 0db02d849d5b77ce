//! The order in which instructions may run: three in-order modules and four token queues.

use std::fmt;

use serde::{Serialize, Serializer};
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
    pub waits_for: Vec<Edge>,
}

impl Stuck {
    /// What an instruction at the head of its module's queue waits for, where `tokens` are there, in
    /// the order of [`Edge::ALL`].
    pub fn at(at: At, tokens: &[u32; 4]) -> Self {
        let module = at.insn.module();
        let missing = pops(module, at.insn.deps()).filter(|&edge| tokens[edge as usize] == 0);
        Self {
            module,
            waits_for: missing.collect(),
            at,
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: Vec<_> = self.waits_for.iter().map(Edge::to_string).collect();
        let (module, at, tokens) = (self.module, &self.at, tokens.join(" and "));
        write!(f, "{module} waits at {at} for {tokens}")
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

/// A token queue between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edge {
    /// Load pushes with `push_next`, compute pops with `pop_prev`.
    LoadToCompute,
    /// Compute pushes with `push_prev`, load pops with `pop_next`.
    ComputeToLoad,
    /// Compute pushes with `push_next`, store pops with `pop_prev`.
    ComputeToStore,
    /// Store pushes with `push_prev`, compute pops with `pop_next`.
    StoreToCompute,
}

impl Edge {
    /// All four, in the order in which tokens are counted.
    pub const ALL: [Self; 4] = [
        Self::LoadToCompute,
        Self::ComputeToLoad,
        Self::ComputeToStore,
        Self::StoreToCompute,
    ];

    /// Name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoadToCompute => "load->compute",
            Self::ComputeToLoad => "compute->load",
            Self::ComputeToStore => "compute->store",
            Self::StoreToCompute => "store->compute",
        }
    }

    /// The module that gives tokens to this queue, and the one that takes them.
    #[inline]
    const fn ends(self) -> (Module, Module) {
        match self {
            Self::LoadToCompute => (Module::Load, Module::Compute),
            Self::ComputeToLoad => (Module::Compute, Module::Load),
            Self::ComputeToStore => (Module::Compute, Module::Store),
            Self::StoreToCompute => (Module::Store, Module::Compute),
        }
    }

    /// The module that gives tokens to this queue.
    #[inline]
    pub const fn producer(self) -> Module {
        self.ends().0
    }

    /// The module that takes tokens from this queue.
    #[inline]
    pub const fn consumer(self) -> Module {
        self.ends().1
    }

    /// The flag of its producer that gives a token to this queue.
    #[inline]
    pub const fn push(self, deps: &mut Deps) -> &mut bool {
        match self {
            Self::LoadToCompute | Self::ComputeToStore => &mut deps.push_next,
            Self::ComputeToLoad | Self::StoreToCompute => &mut deps.push_prev,
        }
    }

    /// The flag of its consumer that takes a token from this queue.
    #[inline]
    pub const fn pop(self, deps: &mut Deps) -> &mut bool {
        match self {
            Self::LoadToCompute | Self::ComputeToStore => &mut deps.pop_prev,
            Self::ComputeToLoad | Self::StoreToCompute => &mut deps.pop_next,
        }
    }
}

impl fmt::Display for Edge {
    /// In words, as error messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.ends();
        write!(f, "a token from {from} to {to}")
    }
}

/// As [`Edge::name`].
impl Serialize for Edge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The neighbours of a module, left and right: for each where it pops and where it pushes;
/// `None` where there is none.
const fn neighbours(module: Module) -> [Option<(Edge, Edge)>; 2] {
    match module {
        Module::Load => [None, Some((Edge::ComputeToLoad, Edge::LoadToCompute))],
        Module::Compute => [
            Some((Edge::LoadToCompute, Edge::ComputeToLoad)),
            Some((Edge::StoreToCompute, Edge::ComputeToStore)),
        ],
        Module::Store => [Some((Edge::ComputeToStore, Edge::StoreToCompute)), None],
    }
}

/// By module, left and right: where it pops and where it pushes. Without a neighbour there is no flag, and any queue
/// will do.
const QUEUES: [[[usize; 2]; 2]; 3] = {
    let (mut queues, mut at) = ([[[0; 2]; 2]; 3], 0);
    while at < Module::ALL.len() {
        let module = Module::ALL[at];
        let mut side = 0;
        while side < 2 {
            if let Some((pop, push)) = neighbours(module)[side] {
                queues[module as usize][side] = [pop as usize, push as usize];
            }
            side += 1;
        }
        at += 1;
    }
    queues
};

/// The queues that an instruction of a module pops, `pop_prev` first.
#[inline]
pub fn pops(module: Module, deps: Deps) -> impl Iterator<Item = Edge> {
    let [prev, next] = neighbours(module);
    let prev = prev.filter(|_| deps.pop_prev).map(|(pop, _)| pop);
    let next = next.filter(|_| deps.pop_next).map(|(pop, _)| pop);
    prev.into_iter().chain(next)
}

/// The queues that an instruction of a module pushes, `push_prev` first.
#[inline]
pub fn pushes(module: Module, deps: Deps) -> impl Iterator<Item = Edge> {
    let [prev, next] = neighbours(module);
    let prev = prev.filter(|_| deps.push_prev).map(|(_, push)| push);
    let next = next.filter(|_| deps.push_next).map(|(_, push)| push);
    prev.into_iter().chain(next)
}

/// The first token flag towards a neighbour that the module doesn't have.
pub fn stray_flag(module: Module, deps: Deps) -> Option<&'static str> {
    let [no_prev, no_next] = neighbours(module).map(|edges| edges.is_none());
    match deps {
        Deps { pop_prev: true, .. } if no_prev => Some("pop_prev"),
        Deps { pop_next: true, .. } if no_next => Some("pop_next"),
        Deps {
            push_prev: true, ..
        } if no_prev => Some("push_prev"),
        Deps {
            push_next: true, ..
        } if no_next => Some("push_next"),
        _ => None,
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
    let mut queues = Queues::of(insns)?;
    let mut tokens = [0u32; 4];
    let mut left = insns.len();
    while left > 0 {
        let before = left;
        for module in Module::ALL {
            let [[pop_prev, push_prev], [pop_next, push_next]] = QUEUES[module as usize];
            while let Some(index) = queues.head(module) {
                let Item { next, deps } = queues.items[index];
                if deps.pop_prev && tokens[pop_prev] == 0 || deps.pop_next && tokens[pop_next] == 0
                {
                    break;
                }
                tokens[pop_prev] -= u32::from(deps.pop_prev);
                tokens[pop_next] -= u32::from(deps.pop_next);
                execute(index, &insns[index])?;
                // One push for each instruction of a run whose length fits memory.
                for (to, flag) in [(push_prev, deps.push_prev), (push_next, deps.push_next)] {
                    tokens[to] = tokens[to].saturating_add(flag.into());
                }
                queues.heads[module as usize] = next;
                left -= 1;
            }
        }
        if left == before {
            return Err(deadlock(insns, &queues, &tokens).into());
        }
    }
    Ok(tokens)
}

/// What each module has yet to do, in order.
struct Queues {
    /// The first instruction of each module.
    heads: [u32; 3],
    /// Of each instruction.
    items: Vec<Item>,
}

#[derive(Clone, Copy)]
struct Item {
    /// The next instruction of the same module.
    next: u32,
    deps: Deps,
}

/// No instruction: none of a run has this index, for no memory holds so many.
const NONE: u32 = u32::MAX;

impl Queues {
    /// Of a run that [`check_run`] has nothing against.
    fn of(insns: &[Insn]) -> Result<Self, TokenError> {
        let (next, deps) = (NONE, Deps::NONE);
        let mut items = vec![Item { next, deps }; insns.len()];
        let (mut heads, mut ends) = ([NONE; 3], 0);
        let mut sound = matches!(insns.last(), Some(Insn::Finish(_)));
        // From the last to the first, whose successors are known then.
        for (index, (insn, item)) in insns.iter().zip(&mut items).enumerate().rev() {
            let (module, deps) = (insn.module(), insn.deps());
            sound &= match module {
                Module::Load => !(deps.pop_prev | deps.push_prev),
                Module::Compute => true,
                Module::Store => !(deps.pop_next | deps.push_next),
            };
            ends += u32::from(matches!(insn, Insn::Finish(_)));
            let next = std::mem::replace(&mut heads[module as usize], index as u32);
            *item = Item { next, deps };
        }
        if !sound || ends != 1 {
            check_run(insns)?;
        }
        Ok(Self { heads, items })
    }

    fn head(&self, module: Module) -> Option<usize> {
        let head = self.heads[module as usize];
        (head != NONE).then_some(head as usize)
    }
}

/// An order in which instructions may run, and the tokens that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Every index of the run once: that of [`run_in_token_order`].
    pub indices: Vec<u32>,
    /// In the order of [`Edge::ALL`].
    pub leftover: [u32; 4],
}

/// The order in which [`run_in_token_order`] takes instructions.
///
/// # Errors
/// As there.
pub fn order(insns: &[Insn]) -> Result<Order, TokenError> {
    let mut indices = Vec::with_capacity(insns.len());
    let leftover = run_in_token_order(insns, |index, _| {
        indices.push(index as u32);
        Ok::<(), TokenError>(())
    })?;
    Ok(Order { indices, leftover })
}

/// Checks what holds in every run, whatever the order: FINISH is the last instruction and the only
/// one of its kind, and no token flag is towards a module that isn't there.
///
/// # Errors
/// The first that doesn't hold, never [`TokenError::Deadlock`].
pub fn check_run(insns: &[Insn]) -> Result<(), TokenError> {
    check_finish(insns)?;
    let mut indexed = insns.iter().enumerate();
    indexed.try_for_each(|(index, insn)| check_flags(index, insn))
}

fn check_finish(insns: &[Insn]) -> Result<(), TokenError> {
    let count = insns.len();
    let finish = |insn: &Insn| matches!(insn, Insn::Finish(_));
    match insns.iter().position(finish) {
        None => Err(TokenError::NoFinish { insns: count }),
        Some(index) if index + 1 != count => {
            let insn = insns[index];
            let at = Box::new(At { index, insn });
            Err(TokenError::EarlyFinish { at, insns: count })
        }
        Some(_) => Ok(()),
    }
}

fn check_flags(index: usize, insn: &Insn) -> Result<(), TokenError> {
    let module = insn.module();
    match stray_flag(module, insn.deps()) {
        None => Ok(()),
        Some(flag) => Err(TokenError::Flag {
            at: Box::new(At { index, insn: *insn }),
            flag,
            module,
        }),
    }
}

fn deadlock(insns: &[Insn], queues: &Queues, tokens: &[u32; 4]) -> TokenError {
    let first = |module: Module| {
        let index = queues.head(module)?;
        let insn = insns[index];
        Some(Stuck::at(At { index, insn }, tokens))
    };
    TokenError::Deadlock {
        stuck: Module::ALL.into_iter().filter_map(first).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_join_the_modules_that_push_and_pop_them() {
        let all = Deps {
            pop_prev: true,
            pop_next: true,
            push_prev: true,
            push_next: true,
        };
        for edge in Edge::ALL {
            let popped = |m: &Module| pops(*m, all).any(|e| e == edge);
            let pushed = |m: &Module| pushes(*m, all).any(|e| e == edge);
            let only = |of: &dyn Fn(&Module) -> bool| {
                let modules: Vec<_> = Module::ALL.into_iter().filter(of).collect();
                assert_eq!(modules.len(), 1, "{edge}");
                modules[0]
            };
            assert_eq!(only(&popped), edge.consumer());
            assert_eq!(only(&pushed), edge.producer());
            let flag = |set: fn(Edge, &mut Deps) -> &mut bool| {
                let mut deps = Deps::NONE;
                *set(edge, &mut deps) = true;
                deps
            };
            assert!(pops(edge.consumer(), flag(Edge::pop)).eq([edge]));
            assert!(pushes(edge.producer(), flag(Edge::push)).eq([edge]));
            let ends = [edge.producer(), edge.consumer()].map(Module::name);
            assert_eq!(edge.name(), ends.join("->"));
            assert_eq!(
                edge.to_string(),
                format!("a token from {}", ends.join(" to "))
            );
        }
        let stray = Module::ALL.map(|m| stray_flag(m, all));
        assert_eq!(stray, [Some("pop_prev"), None, Some("pop_next")]);
    }
}
