//! What an instruction reads, and which LOADs brought it.

use std::collections::BTreeMap;

use vta_driver::DeviceMemory;
use vta_isa::resolve::{Resolved, TileSet, UopScratchpad, uop_range};
use vta_isa::{Config, Insn, MemType};

use super::tail::Tail;

/// A batch's instructions in an order in which they may run, with what each touches.
pub struct Slice<'a> {
    pub config: &'a Config,
    insns: Vec<Insn>,
    memory: &'a DeviceMemory,
}

/// Accumulators that an instruction reads and writes, and entries of the other scratchpads that it reads.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Tiles that it changes.
    pub written: TileSet,
    /// Tiles of a second operand.
    pub operand: TileSet,
    reads: Vec<(MemType, Vec<usize>)>,
}

/// Entries of a scratchpad with what a LOAD brought there.
pub struct Brought {
    /// Where the LOAD stands in the order.
    pub position: usize,
    mem: MemType,
    entries: BTreeMap<usize, Vec<u8>>,
}

impl<'a> Slice<'a> {
    /// Instructions in their order, and the memory before the first.
    pub fn new(config: &'a Config, insns: Vec<Insn>, memory: &'a DeviceMemory) -> Self {
        Self {
            config,
            insns,
            memory,
        }
    }

    /// What the instruction at a position touches; `None` if it isn't known.
    pub fn touched(&self, position: usize) -> Option<Touched> {
        let mut all = None;
        self.each(position + 1, |at, touched| {
            if at == position {
                all = touched;
            }
        });
        all
    }

    /// The accumulators that the first instructions change, as far as that is known.
    pub fn written(&self, count: usize) -> TileSet {
        let mut written = TileSet::EMPTY;
        self.each(count, |_, touched| {
            if let Some(touched) = touched {
                written.add(&touched.written);
            }
        });
        written
    }

    /// What each of the first instructions touches.
    fn each(&self, count: usize, mut told: impl FnMut(usize, Option<Touched>)) {
        let mut uops = UopScratchpad::unknown(self.config);
        for (position, insn) in self.insns[..count].iter().enumerate() {
            if let Insn::Load(load) = insn {
                uops.fill(self.config, load, self.memory);
            }
            let known = uops.uops_of(insn).ok().filter(|known| !known.some_unknown);
            let resolved = known.and_then(|known| Resolved::of(self.config, insn, known).ok());
            told(position, resolved.map(|resolved| touched(insn, &resolved)));
        }
    }

    /// The LOADs that brought what the instruction at a position reads from other scratchpads than the
    /// accumulators', in their order. Bytes are those of the memory before the first instruction, so that a LOAD
    /// of what a STORE wrote takes them from `now`.
    pub fn brought(&self, position: usize, touched: &Touched, now: &DeviceMemory) -> Vec<Brought> {
        let mut found: Vec<Brought> = Vec::new();
        for (mem, wanted) in &touched.reads {
            let mut wanted = wanted.clone();
            // From the last LOAD back: entries that a later one brought hide those of an earlier one.
            for at in (0..position).rev() {
                let Insn::Load(load) = self.insns[at] else {
                    continue;
                };
                if load.mem != *mem || wanted.is_empty() {
                    continue;
                }
                let mut entries = BTreeMap::new();
                for piece in load.fills(self.config) {
                    let elem = self.config.elem_bytes(*mem) as u64;
                    let inside = |entry: &usize| piece.entries.contains(entry);
                    for entry in wanted.extract_if(.., |entry| inside(entry)) {
                        let bytes = piece.from.as_ref().map(|from| {
                            let first = from.start + (entry - piece.entries.start) as u64 * elem;
                            now.read(first, elem).map(<[u8]>::to_vec)
                        });
                        let zeros = Ok(vec![0; elem as usize]);
                        if let Ok(bytes) = bytes.unwrap_or(zeros) {
                            entries.insert(entry, bytes);
                        }
                    }
                }
                if !entries.is_empty() {
                    found.push(Brought {
                        position: at,
                        mem: *mem,
                        entries,
                    });
                }
            }
        }
        found.sort_by_key(|brought| brought.position);
        found
    }
}

impl Brought {
    /// Brings the same from elsewhere.
    pub fn again(&self, tail: &mut Tail<'_>) {
        let mut run: Option<(usize, Vec<u8>)> = None;
        let mut next = 0;
        for (&entry, bytes) in &self.entries {
            match &mut run {
                Some((_, all)) if entry == next => all.extend_from_slice(bytes),
                _ => {
                    if let Some((first, all)) = run.replace((entry, bytes.clone())) {
                        tail.load(self.mem, first, &all);
                    }
                }
            }
            next = entry + 1;
        }
        if let Some((first, all)) = run {
            tail.load(self.mem, first, &all);
        }
    }
}

fn touched(insn: &Insn, resolved: &Resolved<'_>) -> Touched {
    let touches = resolved.touches();
    let written = touches.writes.filter(|(mem, _)| *mem == MemType::Acc);
    let mut all = Touched {
        written: written.map_or(TileSet::EMPTY, |(_, tiles)| tiles),
        operand: TileSet::EMPTY,
        reads: Vec::new(),
    };
    if let Some((first, end)) = uop_range(insn) {
        let uops = usize::from(first)..usize::from(end);
        all.reads.push((MemType::Uop, uops.collect()));
    }
    for (mem, tiles) in touches.reads {
        match mem {
            MemType::Acc => all.operand = tiles,
            MemType::Uop
            | MemType::Inp
            | MemType::Wgt
            | MemType::Wgt4
            | MemType::Acc8
            | MemType::Out => {
                all.reads.push((mem, tiles.iter().collect()));
            }
        }
    }
    all
}
