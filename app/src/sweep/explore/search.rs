//! A search for points that no other beats, which says what it wants to know and is told.
//!
//! It is NSGA-II (Deb et al., 2002) over choices: of two random points the one of the better rank is a parent, of equal ones
//! the lonelier. A child takes each choice from one of its parents, and some change. Ranks and crowding are `heuropt`'s.

use std::collections::HashSet;

use heuropt::core::{Candidate, Evaluation, Objective, ObjectiveSpace};
use heuropt::pareto::{crowding_distance, non_dominated_sort};
use vta_compiler::zoo::Rng;

/// Points that are kept, and asked for at a time.
const POPULATION: usize = 24;
/// How often a child is made anew that is known, or has no place.
const TRIES: usize = 64;
/// Changes after which a point is given up that doesn't fit.
const STEPS: usize = 256;

/// A choice for each gene.
pub type Genome = Vec<usize>;

/// What one choice is among.
#[derive(Clone, Debug)]
pub struct Gene {
    /// Those that may be taken.
    allowed: Vec<usize>,
    /// For each choice those that differ from it least.
    near: Vec<Vec<usize>>,
}

impl Gene {
    /// So many choices, of which neighbours differ least.
    pub fn ordered(choices: usize) -> Self {
        let near = |at: usize| {
            let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
            beside.filter(|&at| at < choices).collect()
        };
        Self {
            allowed: (0..choices).collect(),
            near: (0..choices).map(near).collect(),
        }
    }

    /// Sets, each a bit for each of what it has.
    pub fn sets(sets: &[u64]) -> Self {
        let near = |set: &u64| {
            let apart = |other: &u64| (set ^ other).count_ones();
            let least = sets.iter().map(apart).filter(|&n| n > 0).min();
            let at = sets.iter().enumerate();
            let nearest = at.filter(|(_, other)| Some(apart(other)) == least);
            nearest.map(|(at, _)| at).collect()
        };
        Self {
            allowed: (0..sets.len()).collect(),
            near: sets.iter().map(near).collect(),
        }
    }

    /// The same with one choice alone.
    pub fn only(&mut self, choice: usize) {
        self.allowed = vec![choice];
        self.near.fill(Vec::new());
    }
}

/// How far a point is from where it may be: 0 for one that fits, infinite for what is none.
pub type Excess<'e> = dyn Fn(&[usize]) -> f64 + 'e;

/// The search; the same for the same seed, genes and answers.
pub struct Search {
    genes: Vec<Gene>,
    rng: Rng,
    objectives: ObjectiveSpace,
    /// Where it begins, if that fits.
    first: Option<Genome>,
    /// The best points, with rank and crowding.
    population: Vec<(Candidate<Genome>, usize, f64)>,
    asked: Vec<Genome>,
    seen: HashSet<Genome>,
    /// Points that it may still ask for.
    left: usize,
}

impl Search {
    /// A search for at most so many points, by so many figures, which are to be small.
    pub fn new(
        genes: Vec<Gene>,
        first: Option<Genome>,
        figures: usize,
        seed: u64,
        points: usize,
    ) -> Self {
        let objectives = (0..figures).map(|at| Objective::minimize(at.to_string()));
        Self {
            genes,
            rng: Rng::new(seed),
            objectives: ObjectiveSpace::new(objectives.collect()),
            first,
            population: Vec::new(),
            asked: Vec::new(),
            seen: HashSet::new(),
            left: points,
        }
    }

    /// The points that it wants to know next: each fits, and is asked for once. None when it is over: after so many points, or
    /// when it finds no other.
    pub fn ask(&mut self, excess: &Excess<'_>) -> &[Genome] {
        self.asked.clear();
        while self.asked.len() < POPULATION.min(self.left) {
            let Some(child) = self.child(excess) else {
                break;
            };
            self.asked.push(child);
        }
        // It stays over: how often it is asked again decides nothing.
        self.left = match self.asked.len() {
            0 => 0,
            asked => self.left - asked,
        };
        &self.asked
    }

    /// Takes the figures of what it asked for, in that order; `None` for a point that has none.
    pub fn tell(&mut self, figures: Vec<Option<Vec<f64>>>) {
        let asked = std::mem::take(&mut self.asked).into_iter().zip(figures);
        let children = asked.filter_map(|(genome, figures)| {
            Some(Candidate::new(genome, Evaluation::new(figures?)))
        });
        let parents = std::mem::take(&mut self.population).into_iter();
        let all: Vec<_> = parents.map(|(c, ..)| c).chain(children).collect();
        for (rank, front) in non_dominated_sort(&all, &self.objectives)
            .iter()
            .enumerate()
        {
            let crowding = crowding_distance(&all, front, &self.objectives);
            let mut order: Vec<(usize, f64)> = front.iter().copied().zip(crowding).collect();
            // The lonelier first.
            order.sort_by(|(i, a), (j, b)| b.total_cmp(a).then(i.cmp(j)));
            let room = POPULATION - self.population.len();
            let kept = order.into_iter().take(room);
            self.population
                .extend(kept.map(|(at, lonely)| (all[at].clone(), rank, lonely)));
        }
    }

    /// A point that fits and wasn't asked for.
    fn child(&mut self, excess: &Excess<'_>) -> Option<Genome> {
        for _ in 0..TRIES {
            let made = match self.first.take() {
                Some(first) => first,
                None if self.population.is_empty() => self.random(),
                None => self.offspring(),
            };
            let Some(child) = self.fitted(made, excess) else {
                continue;
            };
            if self.seen.insert(child.clone()) {
                return Some(child);
            }
        }
        None
    }

    fn below(&mut self, choices: usize) -> usize {
        (self.rng.next_u64() % choices.max(1) as u64) as usize
    }

    /// Any choice of a gene.
    fn any(&mut self, gene: usize) -> usize {
        let allowed = self.genes[gene].allowed.len();
        let at = self.below(allowed);
        self.genes[gene].allowed[at]
    }

    fn random(&mut self) -> Genome {
        (0..self.genes.len()).map(|gene| self.any(gene)).collect()
    }

    /// The better of two points.
    fn parent(&mut self) -> usize {
        let [a, b] = [(); 2].map(|()| self.below(self.population.len()));
        let ((_, rank, lonely), (_, other_rank, other_lonely)) =
            (&self.population[a], &self.population[b]);
        let order = rank.cmp(other_rank).then(other_lonely.total_cmp(lonely));
        if order.is_le() { a } else { b }
    }

    /// A child of two, with one change or more.
    fn offspring(&mut self) -> Genome {
        let parents = [(); 2].map(|()| self.parent());
        let genes = self.genes.len();
        let inherited = |gene: usize| {
            let parent = parents[self.below(2)];
            self.population[parent].0.decision[gene]
        };
        let mut child: Genome = (0..genes).map(inherited).collect();
        loop {
            let gene = self.below(child.len());
            child[gene] = self.changed(gene, child[gene]);
            // On average two.
            if self.below(2) == 0 {
                return child;
            }
        }
    }

    /// Another choice of a gene: mostly one that differs little.
    fn changed(&mut self, gene: usize, choice: usize) -> usize {
        let near = self.genes[gene].near[choice].len();
        if near == 0 || self.below(4) == 0 {
            return self.any(gene);
        }
        let at = self.below(near);
        self.genes[gene].near[choice][at]
    }

    /// A point that fits: the same if it does, else one that random choices lead to, each of which leaves less in excess.
    fn fitted(&mut self, mut genome: Genome, excess: &Excess<'_>) -> Option<Genome> {
        let mut far = excess(&genome);
        for _ in 0..STEPS {
            if far <= 0.0 {
                return Some(genome);
            }
            let gene = self.below(genome.len());
            let before = genome[gene];
            genome[gene] = self.any(gene);
            let now = excess(&genome);
            if now < far || far.is_infinite() {
                far = now;
            } else {
                genome[gene] = before;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
