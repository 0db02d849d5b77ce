//! What is stored: once, complete, and where it belongs.

use vta_isa::resolve::StoreAccess;
use vta_isa::{MemType, Requantize};

use super::expect::{Expect, Terms};
use super::found::FaultKind;
use super::machine::Machine;
use super::term::Term;
use crate::listing::ListedTensor;

impl<'l> Machine<'l> {
    pub(super) fn store(&mut self, expects: &[Expect<'l>], access: &StoreAccess) {
        let listing = self.listing;
        let elem = listing.config.elem_bytes(MemType::Out) as u64;
        let addrs = access
            .rows
            .iter()
            .flat_map(|row| row.step_by(elem as usize));
        let columns = usize::from(access.store.x_size).max(1);
        for (entry, addr) in access.tiles.clone().zip(addrs) {
            self.count().stored_bytes += elem;
            let tile = addr / self.tile;
            let mut all = expects.iter();
            let expect = all.find(|expect| self.tiles(expect.output).contains(&tile));
            let expect = expect.unwrap_or(&expects[0]);
            let (output, tiles) = (expect.output, self.tiles(expect.output));
            if !tiles.contains(&tile) {
                self.fault(FaultKind::StoredBeside, self.at, |_| {
                    let name = vta_files::printable(&output.name);
                    format!(
                        "it stores to DRAM at 0x{addr:x}, which isn't {name}, the layer's output"
                    )
                });
                continue;
            }
            let index = tile - tiles.start;
            let place = place(output, index);
            if !self.acc[entry].known {
                self.undefined(&format!("acc[{entry}]"));
            }
            self.mark(output, (index, place), addr..addr + elem);
            self.contents[tile as usize] = output.buffer + 1;
            let row = (entry - access.tiles.start) / columns;
            let more = access.store.requantize;
            let more = more.map(|how| self.operands(&how, row, entry));
            self.compare(expect, entry, place, more.unwrap_or_default());
        }
    }

    /// The terms of what a STORE that requantises reads beside a sum.
    fn operands(&mut self, how: &Requantize, row: usize, sum: usize) -> Vec<Term> {
        let words = how.entry(row)..how.entry(row) + how.entry_tiles();
        let residual = how.distance().map(|distance| sum + distance);
        let mut terms = Vec::new();
        for tile in words.chain(residual) {
            if !self.acc[tile].known {
                self.undefined(&format!("acc[{tile}]"));
            }
            terms.extend(&self.acc[tile].terms);
        }
        terms
    }

    /// Notes that a tile is stored, which it may be once.
    fn mark(
        &mut self,
        output: &ListedTensor,
        (index, place): (u64, [u32; 3]),
        bytes: std::ops::Range<u64>,
    ) {
        let buffer = &self.listing.buffers[output.buffer as usize];
        let count = buffer.bytes.div_ceil(self.tile) as usize;
        let at = (output.start - buffer.start) / self.tile + index;
        let stored = self
            .stored
            .entry(output.buffer)
            .or_insert_with(|| vec![0; count]);
        let before = std::mem::replace(&mut stored[at as usize], self.at.unwrap_or_default() + 1);
        if before > 0 {
            self.fault(FaultKind::StoredTwice, self.at, |machine| {
                format!(
                    "bytes 0x{:x}..0x{:x} of {}, output {}, are stored twice, by instructions {} and {}",
                    bytes.start,
                    bytes.end,
                    vta_files::printable(&output.name),
                    shown(place),
                    before - 1,
                    machine.at.unwrap_or_default(),
                )
            });
        }
    }

    /// Compares what is stored with what the output is made of.
    fn compare(&mut self, expect: &Expect<'l>, entry: usize, at: [u32; 3], more: Vec<Term>) {
        let mut terms = std::mem::take(&mut self.terms);
        expect.terms(at, &mut terms);
        let mut have = std::mem::take(&mut self.acc[entry].terms);
        have.sort_unstable();
        let mut all = more;
        if !all.is_empty() {
            all.extend(&have);
            all.sort_unstable();
        }
        let all = if all.is_empty() { &have } else { &all };
        if *all != terms.wanted {
            self.differ(expect, at, all, &terms);
        }
        self.acc[entry].terms = have;
        self.terms = terms;
    }

    fn differ(&mut self, expect: &Expect<'l>, at: [u32; 3], have: &[Term], terms: &Terms) {
        let (listing, layer) = (self.listing, expect.layer);
        let place = || {
            format!(
                "output {} of layer {}",
                shown(at),
                vta_files::printable(&layer.name)
            )
        };
        let (mut wanted, mut have) = (terms.wanted.clone(), have.to_vec());
        if expect.geometry.reads_twice() {
            // A tensor that meets itself is one operand or two.
            wanted.dedup();
            have.dedup();
        }
        // All lists are sorted.
        let mut missing = wanted.iter().filter(|t| have.binary_search(t).is_err());
        if let Some(first) = missing.next() {
            let all = 1 + missing.count();
            self.fault(FaultKind::Missing, self.at, |_| {
                let what = first.show(listing, layer);
                let all = if all > 1 {
                    format!(" (first missing of this output; {all} in all)")
                } else {
                    String::new()
                };
                format!("{what} of {} is never computed{all}", place())
            });
        }
        have.dedup_by(|a, b| {
            let again = a == b;
            if again {
                self.fault(FaultKind::Repeated, self.at, |_| {
                    format!(
                        "{} of {} is computed more than once",
                        b.show(listing, layer),
                        place()
                    )
                });
            }
            again
        });
        let known = [&wanted, &terms.allowed];
        let is_known = |t: &Term| known.iter().any(|list| list.binary_search(t).is_ok());
        for term in have.iter().filter(|term| !is_known(term)) {
            self.fault(FaultKind::Foreign, self.at, |_| {
                format!(
                    "{} is computed into {}, which has no such part",
                    term.show(listing, layer),
                    place()
                )
            });
        }
    }

    /// Finds what is never stored.
    pub(super) fn check_stored(&mut self, expect: &Expect<'l>) {
        let output = expect.output;
        let tiles = self.tiles(output);
        let plane = u64::from(output.tiles[1]) * u64::from(output.tiles[2]);
        let mut shared = 0;
        let mut missing: Option<u64> = None;
        let mut count = 0;
        for block in 0..output.tiles[0] {
            let lies = expect.is_shared(block);
            let first = u64::from(block) * plane;
            for index in first..first + plane {
                let held = self.contents[(tiles.start + index) as usize] == output.buffer + 1;
                // Where its memory is another's by now nobody reads it: a reader would be told.
                let done = if lies {
                    self.last_store(output, index) > 0
                } else {
                    held && self.is_stored(output, index)
                };
                shared += u64::from(lies && done);
                if !done {
                    missing = missing.or(Some(index));
                    count += 1;
                }
            }
        }
        self.count().tiles[1] += shared;
        if let Some(index) = missing {
            let name = vta_files::printable(&output.name).into_owned();
            let at = output.start + index * self.tile;
            let end = at + self.tile;
            let place = shown(place(output, index));
            let all = if count > 1 {
                format!(" (first of {count} tiles)")
            } else {
                String::new()
            };
            self.fault(FaultKind::NeverStored, None, |_| {
                format!(
                    "bytes 0x{at:x}..0x{end:x} of {name}, output {place}, are never stored{all}"
                )
            });
        }
    }

    /// Whether a tile of the layer's output was stored by an instruction of the layer.
    fn is_stored(&self, output: &ListedTensor, index: u64) -> bool {
        let first = self.insns - self.listing.layers[self.layer].insns.len() as u64;
        self.last_store(output, index) > first
    }

    /// The instruction, and one, that stored a tile of a tensor; 0 for none.
    fn last_store(&self, output: &ListedTensor, index: u64) -> u64 {
        let buffer = &self.listing.buffers[output.buffer as usize];
        let at = (output.start - buffer.start) / self.tile + index;
        let stored = self.stored.get(&output.buffer);
        stored.map_or(0, |stored| stored[at as usize])
    }
}

fn place(tensor: &ListedTensor, index: u64) -> [u32; 3] {
    let [_, rows, cols] = tensor.tiles.map(u64::from);
    let plane = (rows * cols).max(1);
    let at = [
        index / plane,
        index % plane / cols.max(1),
        index % cols.max(1),
    ];
    at.map(|at| at as u32)
}

fn shown([o, y, x]: [u32; 3]) -> String {
    format!("[o {o}, y {y}, x {x}]")
}
