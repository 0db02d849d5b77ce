//! Putting units together into tasks, by what flows between them through the scratchpads.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use vta_driver::Span;

use super::cells::{Cells, Dims};
use super::plan::Op;
use super::unit::{Cutter, Unit};
use crate::kernels::shared::Footprint;

/// A task begins anew rather than to grow when what it does again is a smaller share of it.
const REPEATED_SHARE: u64 = 12;
/// Units of a schedule: bounds the time that making one takes.
const MOST_UNITS: usize = 1 << 17;
/// Units that a task may do again.
const MOST_REPEATED: usize = 64;
/// Rounds of joining tasks that would wait for each other.
const MOST_ROUNDS: usize = 8;
/// Nobody has written the cell yet.
const BEFORE: u32 = u32::MAX;

/// A task with what it touches.
pub(super) struct Draft {
    group: usize,
    /// The first unit that no earlier group has; tasks are in its order.
    pub first: u32,
    /// The first and the last of all units.
    ends: [u32; 2],
    pub units: Vec<u32>,
    pub before: Cells,
    pub after: Cells,
    pub footprint: Footprint,
}

/// Units with what flows between them through the scratchpads.
pub(super) struct Flow {
    pub units: Vec<Unit>,
    footprints: Vec<Footprint>,
    /// Units whose results each reads.
    sources: Vec<Vec<u32>>,
    /// Cells that each reads as they were before the batch.
    before: Vec<Cells>,
    /// Cells that each wrote last.
    after: BTreeMap<u32, Cells>,
}

impl Flow {
    /// Cuts all operations, products that take longer than the grain into more than one unit;
    /// `None` if there is a form that only one thread runs.
    pub fn new(ops: &[Op], dims: Dims, grain_ns: u64) -> Option<Self> {
        let mut cutter = Cutter::new(dims, grain_ns);
        // Who wrote each cell last.
        let mut owners = vec![BEFORE; dims.cells()];
        let mut units = Vec::with_capacity(ops.len());
        let (mut sources, mut before) = (Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            if !cutter.cut(index, op, |cell| owners[cell], &mut units) || units.len() > MOST_UNITS {
                return None;
            }
            for (number, unit) in units.iter().enumerate().skip(sources.len()) {
                let (mut from, mut held) = (BTreeSet::new(), Vec::new());
                for cell in unit.reads.iter() {
                    match owners[cell] {
                        BEFORE => held.push(cell..cell + 1),
                        owner => {
                            from.insert(owner);
                        }
                    }
                }
                sources.push(from.into_iter().collect());
                before.push(Cells::new(held));
                for cell in unit.writes.iter() {
                    owners[cell] = number as u32;
                }
            }
        }
        let mut after: BTreeMap<u32, Vec<Range<usize>>> = BTreeMap::new();
        for (cell, owner) in owners.into_iter().enumerate().filter(|o| o.1 != BEFORE) {
            after.entry(owner).or_default().push(cell..cell + 1);
        }
        let after = after
            .into_iter()
            .map(|(unit, runs)| (unit, Cells::new(runs)));
        let span = |u: &Unit| Footprint::new(u.dram_reads.clone(), u.dram_writes.clone());
        Some(Self {
            footprints: units.iter().map(span).collect(),
            units,
            sources,
            before,
            after: after.collect(),
        })
    }

    /// All tasks with an effect, in order, each waiting for earlier ones only; `None` if joining
    /// them until that is so doesn't come to an end.
    pub fn tasks(&self) -> Option<Vec<Draft>> {
        let mut groups = Groups::new(self);
        for _ in 0..MOST_ROUNDS {
            let drafts = self.drafts(&groups);
            let backward = self.backward(&drafts);
            if backward.is_empty() {
                return Some(drafts);
            }
            for (a, b) in backward {
                groups.join(a, b);
            }
        }
        None
    }

    fn drafts(&self, groups: &Groups<'_>) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::with_capacity(groups.list.len());
        for (number, group) in groups.list.iter().enumerate() {
            let Some(group) = group else { continue };
            let mut units: Vec<u32> = group.units.iter().copied().collect();
            units.sort_unstable();
            let cells = |unit: &u32| self.before[*unit as usize].runs().iter().cloned();
            let before = Cells::new(units.iter().flat_map(cells).collect());
            let left = group.sinks.iter().filter_map(|sink| self.after.get(sink));
            let after = Cells::new(left.flat_map(|c| c.runs().iter().cloned()).collect());
            let spans = |of: fn(&Unit) -> &Vec<Span>| -> Vec<Span> {
                let units = units.iter().map(|&unit| &self.units[unit as usize]);
                units.flat_map(|unit| of(unit).iter().copied()).collect()
            };
            drafts.push(Draft {
                group: number,
                first: group.first,
                ends: [
                    units.first().copied().unwrap_or(0),
                    units.last().copied().unwrap_or(0),
                ],
                footprint: Footprint::new(spans(|u| &u.dram_reads), spans(|u| &u.dram_writes)),
                units,
                before,
                after,
            });
        }
        drafts.sort_by_key(|d| d.first);
        drafts
    }

    /// Groups of which the one in front has a unit that must come after a unit of the other.
    fn backward(&self, drafts: &[Draft]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        // The last unit of all tasks so far.
        let mut reach: Vec<u32> = Vec::with_capacity(drafts.len());
        for (index, draft) in drafts.iter().enumerate() {
            for (before, other) in drafts[..index].iter().enumerate().rev() {
                if reach[before] < draft.ends[0] {
                    break;
                }
                if other.ends[1] > draft.ends[0]
                    && other.footprint.conflicts(&draft.footprint)
                    && self.reversed(other, draft)
                {
                    found.push((other.group, draft.group));
                }
            }
            let before = reach.last().copied().unwrap_or(0);
            reach.push(before.max(draft.ends[1]));
        }
        found
    }

    /// Whether a unit of `first` that comes after one of `second` conflicts with it.
    fn reversed(&self, first: &Draft, second: &Draft) -> bool {
        let footprint = |unit: u32| &self.footprints[unit as usize];
        second.units.iter().any(|&b| {
            let later = first.units.partition_point(|&a| a <= b);
            let mut later = first.units[later..].iter();
            later.any(|&a| footprint(a).conflicts(footprint(b)))
        })
    }
}

/// Units that are done together: those with an effect, and all that they need.
struct Group {
    /// Units that store, or whose cells remain after the batch.
    sinks: Vec<u32>,
    units: HashSet<u32>,
    cost_ns: u64,
    /// The first unit that no earlier group has.
    first: u32,
}

/// Groups as they are found.
struct Groups<'a> {
    flow: &'a Flow,
    /// `None` for those that were joined to others.
    list: Vec<Option<Group>>,
    /// What each was joined to, or itself.
    into: Vec<usize>,
    /// The last group that has the unit.
    of: Vec<Option<usize>>,
}

impl<'a> Groups<'a> {
    fn new(flow: &'a Flow) -> Self {
        let mut groups = Self {
            flow,
            list: Vec::new(),
            into: Vec::new(),
            of: vec![None; flow.units.len()],
        };
        for (number, unit) in flow.units.iter().enumerate() {
            let sink = number as u32;
            if !unit.dram_writes.is_empty() || flow.after.contains_key(&sink) {
                groups.add(sink);
            }
        }
        groups
    }

    /// Adds a unit with an effect, to the group that has most of what it needs or to a new one.
    fn add(&mut self, sink: u32) {
        let (new, known) = self.needs(sink);
        let mut shares: BTreeMap<usize, u64> = BTreeMap::new();
        for &unit in &known {
            if let Some(group) = self.of[unit as usize] {
                *shares.entry(group).or_default() += self.flow.units[unit as usize].cost_ns;
            }
        }
        let Some((&target, _)) = shares.iter().max_by_key(|s| s.1) else {
            return self.put(None, sink, new);
        };
        if let Some(again) = self.repeated(&known, target, &new) {
            return self.put(None, sink, [new, again].concat());
        }
        let missing = |unit: &u32| {
            let group = self.list[target].as_ref();
            group.is_some_and(|g| !g.units.contains(unit))
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

    /// What a unit needs, itself included: units that no group has, and, not going further, those
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
    /// to wait for the group that has done it: less than a share of that group, or of what is new.
    fn repeated(&self, units: &[u32], group: usize, new: &[u32]) -> Option<Vec<u32>> {
        let cost = |unit: u32| self.flow.units[unit as usize].cost_ns;
        let of_group = self.list[group].as_ref().map_or(0, |g| g.cost_ns);
        let of_new = new.iter().map(|&unit| cost(unit)).sum();
        let most = of_group.max(of_new) / REPEATED_SHARE;
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

    /// Puts a unit with an effect and what it needs into a group, or into a new one.
    fn put(&mut self, group: Option<usize>, sink: u32, units: Vec<u32>) {
        let number = group.unwrap_or(self.list.len());
        if number == self.list.len() {
            self.into.push(number);
            self.list.push(Some(Group {
                sinks: Vec::new(),
                units: HashSet::new(),
                cost_ns: 0,
                first: u32::MAX,
            }));
        }
        let Some(group) = &mut self.list[number] else {
            return;
        };
        group.sinks.push(sink);
        for unit in units {
            if self.of[unit as usize].is_none() {
                group.first = group.first.min(unit);
            }
            if group.units.insert(unit) {
                group.cost_ns += self.flow.units[unit as usize].cost_ns;
            }
            self.of[unit as usize] = Some(number);
        }
    }

    /// The group that a group has become.
    fn now(&self, mut group: usize) -> usize {
        while self.into[group] != group {
            group = self.into[group];
        }
        group
    }

    /// Makes two groups one: what the first has become.
    fn join(&mut self, a: usize, b: usize) {
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
