//! Putting units together that need much of the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::flow::Flow;

/// A cluster begins anew rather than to grow when what it does again is a smaller share of it, for
/// up to six threads.
const REPEATED_SHARE: usize = 12;
/// For more threads this over their number, but at least the least: a pooling layer whose threads
/// wait for a few large clusters takes longer than one that does some rows again.
const REPEATED_BY_THREADS: usize = 80;
const LEAST_REPEATED_SHARE: usize = 3;
/// Units that a cluster may do again.
const MOST_REPEATED: usize = 64;

/// Units that are done together: those with an effect, and all that they need.
pub(crate) struct Cluster {
    /// Units that store, or whose cells remain after the batch.
    pub sinks: Vec<u32>,
    pub units: HashSet<u32>,
    cost_ns: u64,
    /// The first unit that no earlier cluster has.
    pub first: u32,
}

/// Clusters as they are found.
pub(crate) struct Clusters<'a> {
    flow: &'a Flow,
    /// What a cluster does again is at most its cost over this.
    repeated_share: u64,
    /// `None` for those that were joined to others.
    pub list: Vec<Option<Cluster>>,
    /// What each was joined to, or itself.
    into: Vec<usize>,
    /// The last cluster that has the unit.
    of: Vec<Option<usize>>,
}

impl<'a> Clusters<'a> {
    pub fn new(flow: &'a Flow, threads: usize) -> Self {
        let share = REPEATED_BY_THREADS / threads.max(1);
        let mut clusters = Self {
            flow,
            repeated_share: share.clamp(LEAST_REPEATED_SHARE, REPEATED_SHARE) as u64,
            list: Vec::new(),
            into: Vec::new(),
            of: vec![None; flow.units.len()],
        };
        for (number, unit) in flow.units.iter().enumerate() {
            let sink = number as u32;
            if !unit.dram_writes.is_empty() || flow.after.contains_key(&sink) {
                clusters.add(sink);
            }
        }
        clusters
    }

    /// Adds a unit with an effect, to the cluster that has most of what it needs or to a new one.
    fn add(&mut self, sink: u32) {
        let (new, known) = self.needs(sink);
        let mut shares: BTreeMap<usize, u64> = BTreeMap::new();
        for &unit in &known {
            if let Some(cluster) = self.of[unit as usize] {
                *shares.entry(cluster).or_default() += self.flow.units[unit as usize].cost_ns;
            }
        }
        let Some((&target, _)) = shares.iter().max_by_key(|s| s.1) else {
            return self.put(None, sink, new);
        };
        if let Some(again) = self.repeated(&known, target, &new) {
            return self.put(None, sink, [new, again].concat());
        }
        let missing = |unit: &u32| {
            let cluster = self.list[target].as_ref();
            cluster.is_some_and(|g| !g.units.contains(unit))
        };
        let missing: Vec<u32> = known.into_iter().filter(missing).collect();
        if let Some(again) = self.repeated(&missing, target, &new) {
            return self.put(Some(target), sink, [new, again].concat());
        }
        for other in shares.into_keys() {
            self.join(target, other);
        }
        self.put(Some(target), sink, new);
    }

    /// What a unit needs, itself included: units that no cluster has, and, not going further, those
    /// that one has.
    fn needs(&self, sink: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut new, mut known) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::from([sink]);
        let mut open = vec![sink];
        while let Some(unit) = open.pop() {
            if self.of[unit as usize].is_some() {
                known.push(unit);
                continue;
            }
            new.push(unit);
            let sources = self.flow.sources[unit as usize].iter();
            open.extend(sources.filter(|&&source| seen.insert(source)));
        }
        (new, known)
    }

    /// All that some units need, themselves included, if it is worth doing that again rather than
    /// to wait for the cluster that has done it: less than a share of that cluster, or of what is new.
    fn repeated(&self, units: &[u32], cluster: usize, new: &[u32]) -> Option<Vec<u32>> {
        let cost = |unit: u32| self.flow.units[unit as usize].cost_ns;
        let of_cluster = self.list[cluster].as_ref().map_or(0, |g| g.cost_ns);
        let of_new = new.iter().map(|&unit| cost(unit)).sum();
        let most = of_cluster.max(of_new) / self.repeated_share;
        let mut seen: BTreeSet<u32> = units.iter().copied().collect();
        let (mut open, mut again, mut sum) = (units.to_vec(), Vec::new(), 0);
        while let Some(unit) = open.pop() {
            sum += cost(unit);
            if sum > most || again.len() == MOST_REPEATED {
                return None;
            }
            again.push(unit);
            let sources = self.flow.sources[unit as usize].iter();
            open.extend(sources.filter(|&&source| seen.insert(source)));
        }
        // A store isn't done twice.
        let pure = |unit: &u32| self.flow.units[*unit as usize].dram_writes.is_empty();
        again.iter().all(pure).then_some(again)
    }

    /// Puts a unit with an effect and what it needs into a cluster, or into a new one.
    fn put(&mut self, cluster: Option<usize>, sink: u32, units: Vec<u32>) {
        let number = cluster.unwrap_or(self.list.len());
        if number == self.list.len() {
            self.into.push(number);
            self.list.push(Some(Cluster {
                sinks: Vec::new(),
                units: HashSet::new(),
                cost_ns: 0,
                first: u32::MAX,
            }));
        }
        let Some(cluster) = &mut self.list[number] else {
            return;
        };
        cluster.sinks.push(sink);
        for unit in units {
            if self.of[unit as usize].is_none() {
                cluster.first = cluster.first.min(unit);
            }
            if cluster.units.insert(unit) {
                cluster.cost_ns += self.flow.units[unit as usize].cost_ns;
            }
            self.of[unit as usize] = Some(number);
        }
    }

    /// The cluster that a cluster has become.
    fn now(&self, mut cluster: usize) -> usize {
        while self.into[cluster] != cluster {
            cluster = self.into[cluster];
        }
        cluster
    }

    /// Makes two clusters one: what the first has become.
    pub fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.now(a), self.now(b));
        if a == b {
            return;
        }
        self.into[b] = a;
        let (Some(from), Some(to)) = (self.list[b].take(), &mut self.list[a]) else {
            return;
        };
        to.sinks.extend(from.sinks);
        to.first = to.first.min(from.first);
        for unit in from.units {
            if to.units.insert(unit) {
                to.cost_ns += self.flow.units[unit as usize].cost_ns;
            }
            let of = &mut self.of[unit as usize];
            if *of == Some(b) {
                *of = Some(a);
            }
        }
    }
}
