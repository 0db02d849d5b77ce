//! Where the tiles of the input scratchpad come from, while a batch is followed.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_driver::Span;
use vta_isa::resolve::LoadAccess;
use vta_isa::{Config, Load, MemType};

use super::places::{Lists, Places, Same};
use crate::kernels::PADDING;

/// A LOAD INP, or a part of it that no later one has overwritten.
#[derive(Clone)]
struct Held {
    tiles: Range<usize>,
    access: Rc<LoadAccess>,
    span: Span,
    /// Operations that had been done before.
    since: usize,
}

/// What counts of a load, beside others: its tiles, its form, and how far it lies behind the first.
type Form = (Range<usize>, Load, [usize; 2]);

/// Where a list of tiles lies, from the byte where the first of the loads begins.
#[derive(Clone)]
struct Found {
    list: Rc<[u32]>,
    low: usize,
    len: usize,
    /// Which of the loads it reads.
    read: Rc<[usize]>,
}

/// A tile of the scratchpad.
#[derive(Clone, Copy)]
enum Tile {
    Unknown,
    Padding,
    /// A byte of a load's region, whose addresses have 32 bits.
    Byte {
        load: u32,
        start: u32,
    },
}

/// What the input scratchpad holds.
pub(super) struct InputTiles<'a> {
    config: &'a Config,
    /// The latest last.
    held: Vec<Held>,
    /// Lists whose tiles were loaded by loads of the same form before.
    known: FxHashMap<Same<u32>, FxHashMap<Vec<Form>, Option<Found>>>,
    /// Those that may have the tiles that are asked for, with their forms.
    asked: (Vec<usize>, Vec<Form>),
    lists: Lists<u32>,
    /// Where tiles come from, while that is found out.
    tiles: Vec<Tile>,
}

impl<'a> InputTiles<'a> {
    pub fn new(config: &'a Config) -> Self {
        Self {
            config,
            held: Vec::new(),
            known: FxHashMap::default(),
            asked: Default::default(),
            lists: Lists::default(),
            tiles: vec![Tile::Unknown; config.depth(MemType::Inp)],
        }
    }

    /// Notes a load from a span, after so many operations.
    pub fn load(&mut self, access: &LoadAccess, span: Span, since: usize) {
        let tiles = access.entries.clone();
        let mut at = 0;
        while let Some(old) = self.held.get_mut(at) {
            at += 1;
            let left = old.tiles.start..old.tiles.end.min(tiles.start);
            let right = old.tiles.start.max(tiles.end)..old.tiles.end;
            match [left.is_empty(), right.is_empty()] {
                [true, true] => {
                    at -= 1;
                    self.held.remove(at);
                }
                [false, true] => old.tiles = left,
                [true, false] => old.tiles = right,
                [false, false] => {
                    let part = Held {
                        tiles: right,
                        ..old.clone()
                    };
                    old.tiles = left;
                    self.held.insert(at, part);
                    at += 1;
                }
            }
        }
        self.held.push(Held {
            tiles,
            access: Rc::new(access.clone()),
            span,
            since,
        });
    }

    /// Where some tiles, of which these are the lowest and the highest, lie in DRAM, if all that aren't padding were
    /// loaded from one region; and how many operations had been done before the first of these loads.
    pub fn find(
        &mut self,
        tiles: &Rc<[u32]>,
        ends: &Range<usize>,
    ) -> Option<(Places, Span, usize)> {
        let (asked, forms) = &mut self.asked;
        let overlaps = |held: &Held| held.tiles.start < ends.end && ends.start < held.tiles.end;
        asked.clear();
        asked.extend((0..self.held.len()).filter(|&at| overlaps(&self.held[at])));
        let held = |at: usize| &self.held[asked[at]];
        let first = self.held[*asked.first()?].span;
        let form = |at: usize| {
            let held = held(at);
            let load = Load {
                dram_base: 0,
                deps: Default::default(),
                ..held.access.load
            };
            let behind = [
                held.span.region.wrapping_sub(first.region),
                held.span.start.wrapping_sub(first.start),
            ];
            (held.tiles.clone(), load, behind)
        };
        forms.clear();
        forms.extend((0..asked.len()).map(form));
        let known = self.known.entry(Same(Rc::clone(tiles))).or_default();
        let found = match known.get(&forms[..]) {
            Some(found) => found.as_ref()?,
            None => {
                let held: Vec<&Held> = (0..asked.len()).map(held).collect();
                self.tiles[ends.clone()].fill(Tile::Unknown);
                fill_all(self.config, &held, &mut self.tiles);
                let found = of_tiles(self.config, &held, tiles, &self.tiles, &mut self.lists);
                known.entry(forms.clone()).or_insert(found).as_ref()?
            }
        };
        let start = first.start.wrapping_add(found.low);
        let span = Span {
            region: held(*found.read.first()?).span.region,
            start,
            len: found.len,
        };
        let last = start + found.len - self.config.lanes();
        let since = found.read.iter().map(|&load| held(load).since).min()?;
        // Regions end below 2^32, and only a tile of one byte can be the last.
        let fits = last < PADDING as usize;
        fits.then(|| {
            (
                Places::at(Rc::clone(&found.list), start as u32),
                span,
                since,
            )
        })
    }
}

/// Notes where each element that a LOAD fills comes from: `padding`, or what `of` makes of its
/// first byte in the span's region.
pub(super) fn fill<T: Clone>(
    config: &Config,
    (access, span): (&LoadAccess, Span),
    elements: &mut [T],
    padding: T,
    of: impl Fn(usize) -> T,
) {
    let elem = config.elem_bytes(access.load.mem);
    for piece in access.load.fills(config) {
        let elements = &mut elements[piece.entries];
        let Some(row) = piece.from else {
            elements.fill(padding.clone());
            continue;
        };
        let first = span.start + (row.start - access.rows.first) as usize;
        for (element, start) in elements.iter_mut().zip((first..).step_by(elem)) {
            *element = of(start);
        }
    }
}

/// Notes where all tiles come from that loads fill one after the other.
fn fill_all(config: &Config, held: &[&Held], all: &mut [Tile]) {
    for (load, held) in (0..).zip(held) {
        let from = (&*held.access, held.span);
        let byte = |start| Tile::Byte {
            load,
            start: start as u32,
        };
        // Products know padding of zeros alone.
        let padding = match held.access.load.pad_value {
            0 => Tile::Padding,
            _ => Tile::Unknown,
        };
        fill(config, from, all, padding, byte);
    }
}

/// Where some tiles lie, all of which come from one region.
fn of_tiles(
    config: &Config,
    held: &[&Held],
    tiles: &[u32],
    all: &[Tile],
    lists: &mut Lists<u32>,
) -> Option<Found> {
    let mut read = vec![false; held.len()];
    let (mut low, mut high) = (PADDING, 0);
    let mut list = Vec::with_capacity(tiles.len());
    for &tile in tiles {
        list.push(match all[tile as usize] {
            Tile::Unknown => return None,
            Tile::Padding => PADDING,
            Tile::Byte { load, start } => {
                read[load as usize] = true;
                (low, high) = (low.min(start), high.max(start));
                start
            }
        });
    }
    // Only a tile of one byte can begin there.
    if high == PADDING {
        return None;
    }
    list.iter_mut()
        .filter(|start| **start != PADDING)
        .for_each(|start| *start -= low);
    let read: Rc<[usize]> = (0..held.len()).filter(|&load| read[load]).collect();
    let region = held[*read.first()?].span.region;
    let same = read.iter().all(|&load| held[load].span.region == region);
    same.then(|| Found {
        list: lists.one(&list),
        low: (low as usize).wrapping_sub(held[0].span.start),
        len: (high - low) as usize + config.lanes(),
        read,
    })
}

#[cfg(test)]
mod tests;
