//! Whose words each scratchpad tile holds, and where on the device they are kept.
//!
//! A program fills a scratchpad's few tiles over and over, and each time must wait for the last
//! reader. The device has room for more, so what a LOAD or a reset writes may get a place of its
//! own, as registers are renamed in a processor. Writers whose tiles are read together form a
//! group, which is moved as one: every tile by the same distance. What the batch finds and what
//! it leaves stays at home, the scratchpad's own tiles, and so does whatever finds no room.

use std::ops::Range;

use crate::plan::sets::Sets;

/// A scratchpad that the device holds. Micro-ops stay on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scratchpad {
    Inp,
    Wgt,
    Acc,
}

impl Scratchpad {
    pub const ALL: [Self; 3] = [Self::Inp, Self::Wgt, Self::Acc];
}

/// Something that wrote tiles, in the order in which the writes come; also the group whose first
/// one it is. Those of [`Writer::home`] stand for what the batch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Writer(u32);

impl Writer {
    const fn home(scratchpad: Scratchpad) -> Self {
        Self(scratchpad as u32)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// From a tile on, up to the next segment, one writer's words.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u32,
    writer: Writer,
}

/// The writer of every tile of a scratchpad, as segments in ascending order.
#[derive(Clone, Debug)]
struct Written {
    segments: Vec<Segment>,
    depth: u32,
}

impl Written {
    fn new(depth: u32, writer: Writer) -> Self {
        Self {
            segments: vec![Segment { first: 0, writer }],
            depth,
        }
    }

    /// The segments that meet a span which isn't empty.
    fn over(&self, span: &Range<u32>) -> &[Segment] {
        let first = self.segments.partition_point(|s| s.first <= span.start);
        let end = self.segments.partition_point(|s| s.first < span.end);
        &self.segments[first.saturating_sub(1)..end]
    }

    /// Everything in the segments that meet a span; the span itself if it is empty.
    fn around(&self, span: &Range<u32>) -> Range<u32> {
        let end = self.segments.partition_point(|s| s.first < span.end);
        let behind = self.segments.get(end).map_or(self.depth, |s| s.first);
        match self.over(span).first() {
            Some(first) if !span.is_empty() => first.first..behind,
            _ => span.clone(),
        }
    }

    fn set(&mut self, range: &Range<u32>, writer: Writer) {
        if range.is_empty() {
            return;
        }
        let first = self.segments.partition_point(|s| s.first < range.start);
        let end = self.segments.partition_point(|s| s.first < range.end);
        let behind = self.segments.get(end).map_or(self.depth, |s| s.first);
        let cut = self.segments[..end].last().filter(|_| behind > range.end);
        let segment = |first, writer| Segment { first, writer };
        let rest = cut.map(|s| segment(range.end, s.writer));
        let new = std::iter::once(segment(range.start, writer)).chain(rest);
        drop(self.segments.splice(first..end, new.collect::<Vec<_>>()));
    }
}

/// One pass over a batch that finds which writers belong together and for how long.
#[derive(Debug)]
pub(crate) struct Versions {
    depths: [u32; 3],
    scratchpads: [Written; 3],
    /// Of writers.
    groups: Sets,
    /// Of groups, by the first writer.
    extents: Vec<Extent>,
}

/// What a group needs of a scratchpad.
#[derive(Clone, Debug)]
struct Extent {
    /// From its lowest tile to its highest.
    hull: Range<u32>,
    /// The last step that touches it.
    last: usize,
}

/// Makes one group of those of two writers. The first writer stands for the group, so home stays
/// home.
fn unite(groups: &mut Sets, extents: &mut [Extent], a: Writer, b: Writer) -> Writer {
    let [first, other] = groups.unite(a.0, b.0);
    if first == other {
        return Writer(first);
    }
    let more = extents[other as usize].clone();
    let all = &mut extents[first as usize];
    all.hull = all.hull.start.min(more.hull.start)..all.hull.end.max(more.hull.end);
    all.last = all.last.max(more.last);
    Writer(first)
}

impl Versions {
    /// `depths` are the scratchpads' tiles, in [`Scratchpad`]'s order.
    pub fn new(depths: [u32; 3]) -> Self {
        Self {
            depths,
            scratchpads: at_home(depths),
            groups: Sets::new(Scratchpad::ALL.len() as u32),
            extents: depths
                .map(|depth| Extent {
                    hull: 0..depth,
                    last: 0,
                })
                .to_vec(),
        }
    }

    /// A step overwrites tiles, whatever they held.
    pub fn write(&mut self, scratchpad: Scratchpad, runs: &[Range<u32>], step: usize) {
        let writer = Writer(self.groups.push());
        let first = runs.iter().map(|r| r.start).min().unwrap_or(0);
        let end = runs.iter().map(|r| r.end).max().unwrap_or(0);
        let hull = first..end;
        self.extents.push(Extent { hull, last: step });
        for run in runs {
            self.scratchpads[scratchpad as usize].set(run, writer);
        }
    }

    /// A step needs the tiles of each of these spans in places beside each other: a span moves
    /// together, others may go elsewhere.
    pub fn join_each(
        &mut self,
        scratchpad: Scratchpad,
        spans: impl IntoIterator<Item = Range<u32>>,
        step: usize,
    ) {
        // What follows each other is mostly in one group that is known to be one.
        let mut joined = 0..0;
        for span in spans {
            if joined.start <= span.start && span.end <= joined.end {
                continue;
            }
            self.join(scratchpad, [span.clone()], step);
            joined = self.scratchpads[scratchpad as usize].around(&span);
        }
    }

    /// A step needs tiles in places beside each other: all of these spans move together.
    pub fn join(
        &mut self,
        scratchpad: Scratchpad,
        spans: impl IntoIterator<Item = Range<u32>>,
        step: usize,
    ) {
        let mut group = None;
        for span in spans.into_iter().filter(|span| !span.is_empty()) {
            for segment in self.scratchpads[scratchpad as usize].over(&span) {
                let with = group.unwrap_or(segment.writer);
                group = Some(unite(
                    &mut self.groups,
                    &mut self.extents,
                    segment.writer,
                    with,
                ));
            }
        }
        if let Some(group) = group {
            self.extents[group.index()].last = step;
        }
    }

    /// A step reads tiles, each wherever it is.
    pub fn touch(&mut self, scratchpad: Scratchpad, span: &Range<u32>, step: usize) {
        for segment in self.scratchpads[scratchpad as usize].over(span) {
            let group = self.groups.least(segment.writer.0);
            self.extents[group as usize].last = step;
        }
    }

    /// A step needs tiles at home.
    pub fn pin(&mut self, scratchpad: Scratchpad, span: &Range<u32>) {
        for segment in self.scratchpads[scratchpad as usize].over(span) {
            let home = Writer::home(scratchpad);
            unite(&mut self.groups, &mut self.extents, segment.writer, home);
        }
    }

    /// Ends the pass; what is left in the scratchpads must be at home. `room` is the device's
    /// tiles beyond each scratchpad's own.
    pub fn places(mut self, room: [u32; 3]) -> Places {
        for scratchpad in Scratchpad::ALL {
            self.pin(scratchpad, &(0..self.depths[scratchpad as usize]));
        }
        let writers = 0..self.groups.len();
        let groups: Vec<Writer> = writers.map(|w| Writer(self.groups.least(w))).collect();
        let mut shifts = vec![None; groups.len()];
        shifts[..3].fill(Some(0));
        Places {
            scratchpads: at_home(self.depths),
            groups,
            extents: self.extents,
            shifts,
            next: Writer(Scratchpad::ALL.len() as u32),
            rings: Scratchpad::ALL.map(|scratchpad| Ring {
                first: self.depths[scratchpad as usize],
                size: room[scratchpad as usize],
                cursor: 0,
                live: Vec::new(),
            }),
        }
    }
}

fn at_home(depths: [u32; 3]) -> [Written; 3] {
    Scratchpad::ALL
        .map(|scratchpad| Written::new(depths[scratchpad as usize], Writer::home(scratchpad)))
}

/// The second pass: the same writes in the same order, each with its place.
#[derive(Debug)]
pub(crate) struct Places {
    scratchpads: [Written; 3],
    /// Of each writer.
    groups: Vec<Writer>,
    extents: Vec<Extent>,
    /// How far a group's tiles lie behind home, modulo 2^32.
    shifts: Vec<Option<u32>>,
    next: Writer,
    rings: [Ring; 3],
}

impl Places {
    /// The next write of the first pass; how far its tiles lie behind home.
    pub fn write(&mut self, scratchpad: Scratchpad, runs: &[Range<u32>], step: usize) -> u32 {
        let writer = self.next;
        self.next = Writer(writer.0 + 1);
        for run in runs {
            self.scratchpads[scratchpad as usize].set(run, writer);
        }
        let group = self.groups[writer.index()].index();
        let Extent { hull, last } = &self.extents[group];
        let ring = &mut self.rings[scratchpad as usize];
        *self.shifts[group].get_or_insert_with(|| {
            let place = ring.take(hull.len() as u32, step, *last);
            // Home is right for any group, only later than elsewhere.
            place.map_or(0, |place| place.wrapping_sub(hull.start))
        })
    }

    /// How far what a tile now holds lies behind home.
    pub fn shift(&self, scratchpad: Scratchpad, tile: u32) -> u32 {
        let mut parts = self.parts(scratchpad, tile..tile + 1);
        parts.next().map_or(0, |(_, shift)| shift)
    }

    /// The parts of a span whose tiles now hold words of one writer, in their order: each with
    /// how far these lie behind home.
    pub fn parts(
        &self,
        scratchpad: Scratchpad,
        span: Range<u32>,
    ) -> impl Iterator<Item = (Range<u32>, u32)> {
        let segments = self.scratchpads[scratchpad as usize].over(&span);
        let ends = segments.iter().skip(1).map(|s| s.first);
        let ends = ends.chain([span.end]);
        segments.iter().zip(ends).map(move |(segment, end)| {
            let group = self.groups[segment.writer.index()];
            let shift = self.shifts[group.index()].unwrap_or(0);
            (segment.first.max(span.start)..end, shift)
        })
    }

    /// [`Self::shift`] for tiles one after the other, of which neighbours mostly hold words of
    /// one writer.
    pub fn shifts(&self, scratchpad: Scratchpad) -> impl FnMut(u32) -> u32 {
        let (mut known, mut shift) = (0..0, 0);
        move |tile| {
            if !known.contains(&tile) {
                let tile = tile..tile + 1;
                known = self.scratchpads[scratchpad as usize].around(&tile);
                shift = self.shift(scratchpad, tile.start);
            }
            shift
        }
    }
}

/// Places beyond home, used in turn.
#[derive(Debug)]
struct Ring {
    first: u32,
    size: u32,
    cursor: u32,
    /// Places that are needed, and until which step.
    live: Vec<(Range<u32>, usize)>,
}

impl Ring {
    fn take(&mut self, len: u32, step: usize, last: usize) -> Option<u32> {
        self.live.retain(|l| l.1 >= step);
        let mut from = self.cursor;
        let mut wrapped = false;
        loop {
            let end = from.checked_add(len)?;
            if end > self.size {
                if wrapped {
                    return None;
                }
                (from, wrapped) = (0, true);
                if len > self.size {
                    return None;
                }
                continue;
            }
            match self.live.iter().find(|l| l.0.start < end && from < l.0.end) {
                Some(live) => from = live.0.end,
                None => {
                    self.live.push((from..end, last));
                    self.cursor = end;
                    return Some(self.first + from);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests;
