//! Runs of tiles with their sources: what an ALU instruction does to each tile, without a list of
//! tiles.

use std::ops::Range;

use vta_isa::resolve::AluAccess;

/// Tiles beside each other and their sources: that of tile `dst + n` is `src + n * step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub dst: u32,
    pub src: u32,
    pub len: u32,
    /// 0 where all have one source; 1 otherwise, and where there is one tile.
    pub step: u32,
}

impl Run {
    /// A tile and its source.
    pub fn one(dst: u32, src: u32) -> Self {
        let (len, step) = (1, 1);
        Self {
            dst,
            src,
            len,
            step,
        }
    }

    /// Tiles that are written.
    pub fn written(&self) -> Range<u32> {
        self.dst..self.dst.wrapping_add(self.len)
    }

    /// Tiles that are read.
    pub fn read(&self) -> Range<u32> {
        let len = if self.step == 0 { 1 } else { self.len };
        self.src..self.src.wrapping_add(len)
    }

    /// What it does to some tiles.
    pub fn within(&self, tiles: &Range<u32>) -> Option<Self> {
        let (first, end) = (self.dst.max(tiles.start), self.written().end.min(tiles.end));
        let len = end.checked_sub(first).filter(|&len| len > 0)?;
        let step = if self.in_place() || len > 1 {
            self.step
        } else {
            1
        };
        Some(Self {
            dst: first,
            src: self.src + (first - self.dst) * self.step,
            len,
            step,
        })
    }

    /// Whether each tile is its own source.
    pub fn in_place(&self) -> bool {
        self.src == self.dst && self.step == 1
    }

    /// The step of the tiles of another run `apart` tiles behind this one, as long as that and
    /// with a source `by` tiles behind, and of this one's, if they are one run.
    fn step_with(&self, apart: u32, by: u32) -> Option<u32> {
        if apart != self.len {
            return None;
        }
        match by {
            0 if self.len == 1 || self.step == 0 => Some(0),
            by if by == self.len && self.step == 1 => Some(1),
            _ => None,
        }
    }
}

/// Adds a run to a list, to its last one where it goes on there.
pub(crate) fn push(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut()
        && last.written().end == run.dst
    {
        let goes_on = |step: u32| {
            let fits = |run: &Run| run.len == 1 || run.step == step;
            fits(last) && fits(&run) && last.src.wrapping_add(last.len * step) == run.src
        };
        if let Some(step) = [1, 0].into_iter().find(|step| goes_on(*step)) {
            (last.len, last.step) = (last.len + run.len, step);
            return;
        }
    }
    runs.push(run);
}

/// The tiles of an ALU instruction's steps and their sources, in an order in which there are few
/// runs: right where no tile is touched again.
pub(crate) fn runs(access: &AluAccess<'_>) -> Vec<Run> {
    let (dst, src) = (access.dst, access.src.unwrap_or(access.dst));
    let mut group: Vec<Run> = Vec::new();
    for (dst, src) in dst.starts().zip(src.starts()) {
        push(&mut group, Run::one(dst.into(), src.into()));
    }
    let mut trips = dst.loops.trips.map(u32::from);
    let [d, s] = [dst, src].map(|tiles| tiles.loops.factors.map(u32::from));
    // A loop is a part of the runs where each of its trips goes on where the one before ends.
    for axis in [1, 0, 1] {
        let step = |run: &Run| run.step_with(d[axis], s[axis]);
        if trips[axis] > 1 && group.iter().all(|run| step(run).is_some()) {
            for run in &mut group {
                run.step = step(run).unwrap_or(run.step);
                run.len *= trips[axis];
            }
            trips[axis] = 1;
        }
    }
    let mut runs = Vec::new();
    for run in &group {
        for (i, j) in (0..trips[0]).flat_map(|i| (0..trips[1]).map(move |j| (i, j))) {
            let run = Run {
                dst: run.dst + i * d[0] + j * d[1],
                src: run.src + i * s[0] + j * s[1],
                ..*run
            };
            push(&mut runs, run);
        }
    }
    runs
}

/// The n-th steps on each of `depth` tiles, for each n; `None` when one is touched more than `most`
/// times.
pub(crate) fn by_visit(access: &AluAccess<'_>, depth: usize, most: usize) -> Option<Vec<Vec<Run>>> {
    let mut times = vec![0; depth];
    let mut lists: Vec<Vec<Run>> = Vec::new();
    for (dst, src) in access.steps() {
        let time = &mut times[dst as usize];
        let at = *time;
        if at == lists.len() {
            if at == most {
                return None;
            }
            lists.push(Vec::new());
        }
        push(&mut lists[at], Run::one(dst as u32, src as u32));
        *time += 1;
    }
    for runs in &mut lists {
        runs.sort_unstable_by_key(|run| run.dst);
        let mut joined = Vec::with_capacity(runs.len());
        runs.iter().for_each(|run| push(&mut joined, *run));
        *runs = joined;
    }
    Some(lists)
}
