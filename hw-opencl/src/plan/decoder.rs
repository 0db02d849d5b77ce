//! The first pass of planning for the throughput structure: notes what each checked instruction
//! does and whose tiles it needs. The others follow in [`emit`](crate::plan::emit).

use std::ops::Range;

use vta_isa::resolve::{
    AffineTiles, AluAccess, GemmAccess, LoadAccess, Resolved, Rows, StoreAccess,
};
use vta_isa::{Config, MemType, Store};

use crate::batch::Sink;
use crate::error::EngineError;
use crate::plan::chain::Chain;
use crate::plan::emit::{Encoder, emit};
use crate::plan::looped::Looped;
use crate::plan::ops::{Op, Room, Shape, Tables, Target, depth, narrow};
use crate::plan::place::Placer;
use crate::plan::products::Products;
use crate::plan::steps::{Step, loaded};
use crate::plan::versions::{Scratchpad, Versions};

/// ALU steps that are written out one by one; a longer instruction runs in order.
const MAX_LISTED_STEPS: u64 = 1 << 16;

/// GEMM steps that are written out; later instructions run with their own loops. Networks have
/// far fewer, and repeat them.
const MAX_LISTED_PRODUCTS: u64 = 1 << 27;

/// Makes operations of checked instructions.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    config: &'a Config,
    shape: Shape,
    room: Room,
    dram_base: u64,
    steps: Vec<Step>,
    /// GEMM steps among them.
    listed: u64,
    versions: Versions,
    products: Products,
    looped: Looped<'a>,
    tables: Tables,
}

impl<'a> Decoder<'a> {
    /// `dram_base` is the address of the first byte of the device's memory buffer.
    pub fn new(config: &'a Config, shape: Shape, room: Room, dram_base: u64) -> Self {
        Self {
            config,
            shape,
            room,
            dram_base,
            steps: Vec::new(),
            listed: 0,
            versions: Versions::new(Scratchpad::ALL.map(|scratchpad| depth(config, scratchpad))),
            products: Products::default(),
            looped: Looped::new(config, shape),
            tables: Tables::default(),
        }
    }

    /// Gives the operations to `take`, in an order in which they may run one after the other; the
    /// tables that they share.
    ///
    /// # Errors
    /// [`EngineError::Internal`], as for [`emit`].
    pub fn finish(self, take: impl FnMut(Op)) -> Result<Vec<u32>, EngineError> {
        let target = Target {
            shape: self.shape,
            batch: self.config.batch() as u32,
            block: self.config.block() as u32,
            zeros: self.room.zeros(self.config),
        };
        let places = self.versions.places(self.room.0);
        let placer = Placer::new(self.config, target, self.dram_base, places);
        let encoder = Encoder {
            target,
            products: self.products,
            tables: self.tables,
        };
        emit(self.steps, placer, encoder, take)
    }

    /// An instruction that runs with its own loops needs its tiles at home.
    fn at_home(&mut self, op: Op) {
        for scratchpad in Scratchpad::ALL {
            let touched = [&op.touches.reads, &op.touches.writes];
            for range in touched.iter().flat_map(|t| &t[scratchpad as usize]) {
                let span = range.start as u32..range.end as u32;
                self.versions.pin(scratchpad, &span);
            }
        }
        self.steps.push(Step::Op(Box::new(op)));
    }

    fn load(&mut self, access: &LoadAccess) {
        // The host has decoded the micro-ops.
        if access.load.mem == MemType::Uop {
            return;
        }
        let (scratchpad, tiles) = loaded(access);
        self.versions.write(scratchpad, &[tiles], self.steps.len());
        self.steps.push(Step::Load(access.clone()));
    }

    fn store(&mut self, access: &StoreAccess) {
        let mut rows = vec![access.clone()];
        if access.rows.overlap() {
            // Rows that overlap in DRAM are written in order.
            let cols = usize::from(access.store.x_size);
            let all = access.rows.iter().zip(access.tiles.clone().step_by(cols));
            let row = |(bytes, first): (Range<u64>, usize)| StoreAccess {
                store: Store {
                    y_size: 1,
                    ..access.store
                },
                tiles: first..first + cols,
                rows: Rows {
                    first: bytes.start,
                    rows: 1,
                    ..access.rows
                },
            };
            rows = all.map(row).collect();
        }
        for access in rows {
            let tiles = narrow(&access.tiles);
            self.versions
                .join(Scratchpad::Acc, [tiles], self.steps.len());
            self.steps.push(Step::Store(access));
        }
    }

    fn reset(&mut self, access: &GemmAccess<'_>) {
        let tiles = access.dst.set();
        let runs: Vec<_> = tiles.runs().map(|run| narrow(&run)).collect();
        self.versions
            .write(Scratchpad::Acc, &runs, self.steps.len());
        self.steps.push(Step::Clear(runs));
    }

    fn gemm(&mut self, access: &GemmAccess<'_>) {
        if access.gemm.steps() == 0 {
            return;
        }
        if access.gemm.reset {
            self.reset(access);
            return;
        }
        let listed = self.listed.saturating_add(access.gemm.steps());
        let product = (listed <= MAX_LISTED_PRODUCTS)
            .then(|| self.products.of(access))
            .flatten();
        match product {
            Some(product) => {
                self.listed = listed;
                product.join(&mut self.versions, self.steps.len());
                self.steps.push(Step::Product(product));
            }
            None => {
                let op = self.looped.gemm(access, &mut self.tables);
                self.at_home(op);
            }
        }
    }

    fn alu(&mut self, access: &AluAccess<'_>) {
        if access.alu.steps() == 0 {
            return;
        }
        let depth = depth(self.config, Scratchpad::Acc) as usize;
        let chain = (access.alu.steps() <= MAX_LISTED_STEPS)
            .then(|| Chain::of(access, depth))
            .flatten();
        let Some(chain) = chain else {
            let op = self.looped.alu_in_order(access, &mut self.tables);
            self.at_home(op);
            return;
        };
        let step = self.steps.len();
        self.versions
            .join(Scratchpad::Acc, chain.written_runs(), step);
        for span in access.src.iter().flat_map(AffineTiles::spans) {
            let span = span.start as u32..span.end as u32;
            self.versions.touch(Scratchpad::Acc, &span, step);
        }
        let uops = access.uops.known.to_vec();
        self.steps.push(Step::Chain(access.alu, uops));
    }
}

impl Sink for Decoder<'_> {
    fn take(&mut self, resolved: &Resolved<'_>) {
        match resolved {
            Resolved::Load(access) => self.load(access),
            Resolved::Store(access) => self.store(access),
            Resolved::Gemm(access) => self.gemm(access),
            Resolved::Alu(access) => self.alu(access),
            Resolved::Sync => {}
        }
    }
}

#[cfg(test)]
mod tests;
