//! Tokens by name: who waits for what.
//!
//! Modules run side by side and tokens alone order them. Lowering never sets their flags. Where something is done that
//! another module waits for, it tells so by name ([`Done`]), and in front of what relies on it, it waits for that name.
//! Here the name gives the queue, and the queue the flags: the module's last command pushes, the taker's next one
//! pops. A queue hands tokens out in the order in which they came, so each wait must name the oldest one: an edge
//! that is forgotten at either end is an error of the compiler, not a race.
//!
//! Every wait follows what it waits for in the order of the commands, so that no layer can deadlock.

use std::collections::VecDeque;

use vta_isa::tokens::Edge;
use vta_isa::{Deps, Module};

use super::seam;

/// What a module has done, as the one that waits for it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// What the next products read is in the input and weight scratchpads.
    Loaded,
    /// The bias is there, before the first inputs.
    BiasLoaded,
    /// What comes ahead of a tile's end is in the accumulators.
    Preloaded,
    /// A part of the input and weight scratchpads is read for the last time.
    Multiplied,
    /// The load module may fill accumulators of a tile.
    Freed,
    /// Output tiles are ready in the accumulators.
    Computed,
    /// A part of the accumulators is in memory.
    Stored,
    /// The layer before reads of the weight scratchpad only [`seam::Seam::wgt`].
    EarlyMultiplied,
    /// The layer before reads neither the input nor the weight scratchpad any more.
    LastMultiplied,
    /// The layer before reads of the accumulators only [`seam::Seam::acc`].
    EarlyStored,
    /// All outputs of the layer before are in memory.
    LastStored,
    /// As [`Done::LastStored`], which compute hands on to the load module.
    InMemory,
}

impl Done {
    /// The queue of its tokens.
    pub const fn edge(self) -> Edge {
        match self {
            Self::Loaded | Self::BiasLoaded | Self::Preloaded => Edge::LoadToCompute,
            Self::Multiplied
            | Self::Freed
            | Self::EarlyMultiplied
            | Self::LastMultiplied
            | Self::InMemory => Edge::ComputeToLoad,
            Self::Computed => Edge::ComputeToStore,
            Self::Stored | Self::EarlyStored | Self::LastStored => Edge::StoreToCompute,
        }
    }

    /// What a layer finds, in the order of the tokens.
    const SEAM: [Self; 4] = [
        Self::EarlyMultiplied,
        Self::LastMultiplied,
        Self::EarlyStored,
        Self::LastStored,
    ];
}

/// The tokens of a layer.
#[derive(Default)]
pub(super) struct Tokens {
    /// What was told and not waited for, by queue.
    told: [VecDeque<Done>; Edge::ALL.len()],
    /// How many were waited for.
    taken: [usize; Edge::ALL.len()],
    /// Queues from which the next command of their taker takes a token.
    waits: Vec<Edge>,
}

impl Tokens {
    /// At the seam to the layer before.
    pub fn new() -> Self {
        let mut tokens = Self::default();
        Done::SEAM.into_iter().for_each(|done| tokens.tell(done));
        tokens
    }

    pub fn tell(&mut self, done: Done) {
        self.told[done.edge() as usize].push_back(done);
    }

    /// What is told next in the queue, if it isn't what is waited for, is the error.
    pub fn wait(&mut self, done: Done) -> Result<(), String> {
        self.waits.push(done.edge());
        self.taken[done.edge() as usize] += 1;
        match self.told[done.edge() as usize].pop_front() {
            Some(told) if told == done => Ok(()),
            told => Err(format!("it waits for {done:?} where {told:?} is told")),
        }
    }

    /// What comes next in a queue, unless so many of its tokens were waited for.
    pub fn before(&self, edge: Edge, number: usize) -> Option<Done> {
        let next = self.told[edge as usize].front();
        next.filter(|_| self.taken[edge as usize] < number).copied()
    }

    /// How many tokens a queue has, and how many it ever had.
    pub fn count(&self, edge: Edge) -> [usize; 2] {
        let left = self.told[edge as usize].len();
        [left, self.taken[edge as usize] + left]
    }

    /// Whether the next command of a queue's taker takes a token from it.
    pub fn is_awaited(&self, edge: Edge) -> bool {
        self.waits.contains(&edge)
    }

    /// Whether the next command of a module takes any token.
    pub fn waits(&self, module: Module) -> bool {
        self.waits.iter().any(|edge| edge.consumer() == module)
    }

    /// The flags of a module's next command.
    pub fn pops(&mut self, module: Module, deps: &mut Deps) {
        for edge in self.waits.extract_if(.., |edge| edge.consumer() == module) {
            *edge.pop(deps) = true;
        }
    }

    /// What is wrong at the end of a layer, which leaves as many tokens at its seam as it found.
    pub fn fault(&self) -> Option<String> {
        let left = |tokens: &Self| tokens.told.each_ref().map(VecDeque::len);
        let sound = left(self) == left(&Self::new()) && self.waits.is_empty();
        (!sound).then(|| format!("tokens left: {:?}; awaited: {:?}", self.told, self.waits))
    }
}

const _: () = assert!(Done::SEAM.len() == 2 * seam::TOKENS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_an_edge_have_its_name() {
        let mut tokens = Tokens::new();
        tokens.tell(Done::BiasLoaded);
        tokens.tell(Done::Loaded);
        assert!(tokens.fault().is_some());
        // The bias comes first.
        let error = tokens.wait(Done::Loaded).unwrap_err();
        assert!(error.contains("Loaded where Some(BiasLoaded)"), "{error}");
        assert!(Tokens::new().wait(Done::Computed).is_err());
    }

    #[test]
    fn a_layer_ends_with_what_it_found() {
        let mut tokens = Tokens::new();
        assert_eq!(tokens.fault(), None);
        tokens.wait(Done::EarlyStored).unwrap();
        tokens.tell(Done::Stored);
        // Nobody has taken the token.
        assert!(tokens.fault().is_some());
        let [mut load, mut compute] = [Deps::NONE; 2];
        tokens.pops(Module::Load, &mut load);
        tokens.pops(Module::Compute, &mut compute);
        assert_eq!(load, Deps::NONE);
        assert_eq!((compute.pop_next, compute.pop_prev), (true, false));
        assert_eq!(tokens.fault(), None);
        tokens.tell(Done::Stored);
        assert!(tokens.fault().is_some());
    }
}
