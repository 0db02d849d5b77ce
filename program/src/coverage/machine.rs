//! The machine that holds what numbers are made of.

use std::collections::BTreeMap;

use vta_isa::MemType;
use vta_isa::resolve::{LoadAccess, Resolved, Uops};

use super::expect::{Expect, Terms};
use super::found::{Coverage, CoverageError, Fault, FaultKind, LayerCoverage, proof};
use super::term::Term;
use crate::listing::{BufferUse, LayerForm, ListedInsn, ListedTensor, Listing, Role};

/// The most steps of GEMM and ALU instructions that are followed.
pub(super) const MAX_STEPS: u64 = 1 << 33;
/// The most terms that accumulators hold at once.
pub(super) const MAX_TERMS: u64 = 1 << 26;

/// What an accumulator tile holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Acc {
    /// Whether its terms are known, else it may hold anything.
    pub(super) known: bool,
    pub(super) terms: Vec<Term>,
    /// What it is at most, after a MIN.
    pub(super) most: Option<i16>,
}

/// What an input tile holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inp {
    #[default]
    Nothing,
    Padding,
    /// A tile, by its index in DRAM.
    Tile(u32),
}

/// What a weight tile holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wgt {
    #[default]
    Nothing,
    /// Products with it are nothing.
    Padding,
    /// Products with it are the input tiles.
    Identity,
    /// A tile, by its index in DRAM.
    Tile(u32),
}

pub struct Machine<'l> {
    pub(super) listing: &'l Listing,
    /// Bytes of a tile of int8 values.
    pub(super) tile: u64,
    /// The buffer whose contents each tile of DRAM has, and one; constants are not among them.
    pub(super) contents: Vec<u32>,
    /// The instruction, and one, that stored each tile of each buffer.
    pub(super) stored: BTreeMap<u32, Vec<u64>>,
    /// Constants in order of their places.
    pub(super) constants: Vec<(u64, u64, u32)>,
    pub(super) inp: Vec<Inp>,
    pub(super) wgt: Vec<Wgt>,
    pub(super) acc: Vec<Acc>,
    pub(super) steps: u64,
    /// Terms in all accumulators.
    pub(super) live: u64,
    pub(super) insns: u64,
    /// The instruction that is being followed, and its layer.
    pub(super) at: Option<u64>,
    pub(super) layer: usize,
    pub(super) faults: BTreeMap<(usize, FaultKind), Fault>,
    pub(super) layers: Vec<LayerCoverage>,
    pub(super) terms: Terms,
}

impl<'l> Machine<'l> {
    pub fn new(listing: &'l Listing) -> Self {
        let config = &listing.config;
        let tile = config.elem_bytes(MemType::Inp) as u64;
        let of_layers = listing
            .buffers
            .iter()
            .filter(|b| b.kind != BufferUse::Constant);
        let end = of_layers.map(|b| (b.start + b.bytes).div_ceil(tile)).max();
        let mut constants: Vec<_> = (0..)
            .zip(&listing.buffers)
            .filter(|(_, buffer)| buffer.kind == BufferUse::Constant && buffer.bytes > 0)
            .map(|(at, buffer)| (buffer.start, buffer.start + buffer.bytes, at))
            .collect();
        constants.sort_unstable();
        let mut machine = Self {
            listing,
            tile,
            contents: vec![0; end.unwrap_or_default() as usize],
            stored: BTreeMap::new(),
            constants,
            inp: Vec::new(),
            wgt: Vec::new(),
            acc: Vec::new(),
            steps: 0,
            live: 0,
            insns: 0,
            at: None,
            layer: 0,
            faults: BTreeMap::new(),
            layers: Vec::new(),
            terms: Terms::default(),
        };
        for tensor in listing.tensors.iter().filter(|tensor| tensor.input) {
            let tiles = machine.tiles(tensor);
            machine.contents[tiles.start as usize..tiles.end as usize].fill(tensor.buffer + 1);
        }
        machine
    }

    /// A tensor's tiles in DRAM.
    pub(super) fn tiles(&self, tensor: &ListedTensor) -> std::ops::Range<u64> {
        let first = tensor.start / self.tile;
        first
            ..first
                + tensor
                    .tiles
                    .iter()
                    .map(|&size| u64::from(size))
                    .product::<u64>()
    }

    pub(super) fn fault(
        &mut self,
        kind: FaultKind,
        insn: Option<u64>,
        text: impl FnOnce(&Self) -> String,
    ) {
        let key = (self.layer, kind);
        if let Some(fault) = self.faults.get_mut(&key) {
            fault.count += 1;
            return;
        }
        let fault = Fault {
            layer: self.layer,
            kind,
            insn,
            text: text(self),
            count: 1,
        };
        self.faults.insert(key, fault);
    }

    pub(super) fn limit(&self, limit: u64, what: &'static str) -> CoverageError {
        CoverageError::Limit {
            layer: self.listing.layers[self.layer].name.clone(),
            limit,
            what,
        }
    }

    /// Forgets what scratchpads hold.
    fn clear(&mut self) {
        let config = &self.listing.config;
        let depth = |mem: MemType| config.depth(mem);
        self.inp = vec![Inp::Nothing; depth(MemType::Inp)];
        self.wgt = vec![Wgt::Nothing; depth(MemType::Wgt)];
        self.acc.clear();
        self.acc.resize(depth(MemType::Acc), Acc::default());
        self.live = 0;
    }

    /// Follows a layer.
    pub fn layer(&mut self, at: usize) -> Result<(), CoverageError> {
        let layer = &self.listing.layers[at];
        let of = |geometry| Expect::of(self.listing, layer, geometry);
        let expects: Vec<Expect<'l>> = layer.geometry.all().map(of).collect();
        let tiles = expects.iter().map(|expect| self.tiles(expect.output));
        let tiles = tiles.map(|tiles| tiles.end - tiles.start).sum();
        self.layer = at;
        self.layers.push(LayerCoverage {
            name: layer.name.clone(),
            kind: layer.kind.clone(),
            proof: proof(&layer.geometry.form),
            insns: layer.insns.len() as u64,
            tiles: [tiles, 0],
            ..LayerCoverage::default()
        });
        self.clear();
        for listed in &layer.insns {
            self.at = Some(self.insns);
            self.insns += 1;
            if listed.cut {
                self.clear();
            }
            self.insn(&expects, listed)?;
        }
        self.at = None;
        expects.iter().for_each(|expect| self.check_stored(expect));
        Ok(())
    }

    pub(super) fn count(&mut self) -> &mut LayerCoverage {
        // Each layer pushes its own before it is followed.
        let last = self.layers.len() - 1;
        &mut self.layers[last]
    }

    fn insn(&mut self, expects: &[Expect<'l>], listed: &ListedInsn) -> Result<(), CoverageError> {
        let listing = self.listing;
        let Some(uops) = listing.uops(&listed.insn, listed.kernel) else {
            self.fault(FaultKind::Outside, self.at, |_| {
                "it names micro-ops that its kernel doesn't have".to_owned()
            });
            return Ok(());
        };
        match Resolved::of(&listing.config, &listed.insn, Uops::of(uops)) {
            Err(outside) => {
                self.fault(FaultKind::Outside, self.at, |_| format!("its {outside}"));
                Ok(())
            }
            Ok(Resolved::Sync) => Ok(()),
            Ok(Resolved::Load(access)) => self.load(expects, &access),
            Ok(Resolved::Store(access)) => {
                self.store(expects, &access);
                Ok(())
            }
            Ok(Resolved::Gemm(access)) => self.gemm(&access),
            Ok(Resolved::Alu(access)) => self.alu(expects, &access),
            Ok(Resolved::Depthwise(access)) => self.depthwise(&access),
        }
    }

    /// The constant that has an address.
    fn constant(&self, addr: u64) -> Option<u32> {
        let after = self.constants.partition_point(|(start, ..)| *start <= addr);
        let &(_, end, buffer) = self.constants.get(after.checked_sub(1)?)?;
        (addr < end).then_some(buffer)
    }

    fn load(&mut self, expects: &[Expect<'l>], access: &LoadAccess) -> Result<(), CoverageError> {
        let load = &access.load;
        let elem = self.listing.config.elem_bytes(load.mem) as u64;
        for fill in load.fills(&self.listing.config) {
            for (at, entry) in fill.entries.enumerate() {
                let addr = fill.from.as_ref().map(|from| from.start + at as u64 * elem);
                let (expect, role) = match addr {
                    None => (&expects[0], None),
                    Some(addr) => match self.source(expects, load.mem, addr) {
                        None => continue,
                        Some((expect, role)) => (expect, Some(role)),
                    },
                };
                let from = role.zip(addr.map(|addr| expect.place(load.mem, addr)));
                self.fill(expect, (load.mem, entry), from);
            }
        }
        if self.live > MAX_TERMS {
            Err(self.limit(MAX_TERMS, "terms"))
        } else {
            Ok(())
        }
    }

    /// What a LOAD reads at an address, and whose it is: a constant, or `None` for a tensor. Faults are no answer.
    fn source<'e>(
        &mut self,
        expects: &'e [Expect<'l>],
        mem: MemType,
        addr: u64,
    ) -> Option<(&'e Expect<'l>, Option<Role>)> {
        let listing = self.listing;
        if let Some(buffer) = self.constant(addr) {
            let role = |expect: &'e Expect<'l>| {
                let mut constants = expect.geometry.constants.iter();
                let (role, _) = constants.find(|(_, own)| *own == buffer)?;
                (role.mem() == mem).then_some((expect, Some(*role)))
            };
            let found = expects.iter().find_map(role);
            return found.or_else(|| self.foreign(buffer, mem, addr));
        }
        let content = self.contents.get((addr / self.tile) as usize).copied();
        let Some(buffer) = content.and_then(|content| content.checked_sub(1)) else {
            self.fault(FaultKind::ReadUnwritten, self.at, |_| {
                format!("it reads DRAM at 0x{addr:x}, which nothing has written")
            });
            return None;
        };
        let reads = |expect: &&Expect<'l>| {
            let mut inputs = expect.geometry.inputs.iter();
            inputs.any(|input| listing.tensors[*input as usize].buffer == buffer)
        };
        let int8 = matches!(mem, MemType::Inp | MemType::Acc8);
        let found = expects.iter().find(reads).filter(|_| int8);
        let found = found.map(|expect| (expect, None));
        found.or_else(|| self.foreign(buffer, mem, addr))
    }

    /// Notes that a buffer is read that isn't the layer's, or isn't that to it.
    fn foreign<T>(&mut self, buffer: u32, mem: MemType, addr: u64) -> Option<T> {
        self.fault(FaultKind::ReadForeign, self.at, |machine| {
            let name = vta_files::printable(&machine.listing.buffers[buffer as usize].name);
            let what = mem.name();
            format!("it reads {name} at 0x{addr:x} as {what}, which the layer doesn't")
        });
        None
    }

    /// Fills an entry: `from` is what it is and its index in DRAM, `None` padding.
    fn fill(
        &mut self,
        expect: &Expect<'l>,
        (mem, entry): (MemType, usize),
        from: Option<(Option<Role>, u64)>,
    ) {
        match mem {
            MemType::Inp => {
                self.inp[entry] = from.map_or(Inp::Padding, |(_, at)| Inp::Tile(at as u32));
            }
            MemType::Wgt | MemType::Wgt4 => {
                let pool = matches!(expect.geometry.form, LayerForm::Pool(_));
                self.wgt[entry] = match from {
                    None => Wgt::Padding,
                    Some((Some(Role::Identity), _)) => Wgt::Identity,
                    Some((Some(Role::Weights), _)) if pool => Wgt::Identity,
                    Some((Some(Role::Selection), at)) => Wgt::Tile(expect.selection(at) as u32),
                    Some((_, at)) => Wgt::Tile(at as u32),
                };
            }
            MemType::Acc | MemType::Acc8 => {
                let term = match from {
                    None => Term::PADDING,
                    Some((Some(_), at)) => Term::constant(at),
                    Some((None, at)) => Term::copy(at),
                };
                if matches!(from, Some((None, _))) {
                    self.count().copies += 1;
                }
                self.set(entry, Some(term));
            }
            MemType::Uop | MemType::Out => {
                self.fault(FaultKind::Outside, self.at, |_| {
                    format!("a layer has no LOAD of {}", mem.name())
                });
            }
        }
    }

    /// What was found, once outputs of the network are seen to be there.
    pub fn finish(mut self) -> Coverage {
        for tensor in self.listing.tensors.iter().filter(|tensor| tensor.output) {
            let tiles = self.tiles(tensor);
            let held = &self.contents[tiles.start as usize..tiles.end as usize];
            let lost = held
                .iter()
                .position(|content| *content != tensor.buffer + 1);
            if let Some(index) = lost {
                self.layer = self.layers.len().saturating_sub(1);
                let at = tensor.start + index as u64 * self.tile;
                let name = vta_files::printable(&tensor.name).into_owned();
                self.fault(FaultKind::Lost, None, |_| {
                    format!("output {name} of the network isn't in DRAM at 0x{at:x} in the end")
                });
            }
        }
        let faults: Vec<Fault> = self.faults.into_values().collect();
        for fault in &faults {
            if let Some(layer) = self.layers.get_mut(fault.layer) {
                layer.faults += fault.count;
            }
        }
        Coverage {
            layers: self.layers,
            faults,
        }
    }
}
