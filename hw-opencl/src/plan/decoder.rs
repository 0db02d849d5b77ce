//! The first pass of planning for the throughput structure: notes what each checked instruction
//! does and whose tiles it needs. The others follow in [`emit`](crate::plan::emit).

use vta_isa::MemType;
use vta_isa::resolve::{
    AffineTiles, AluAccess, GemmAccess, LoadAccess, Resolved, StoreAccess, Uops,
};
use vta_isa::tokens::At;

use crate::batch::Sink;
use crate::error::EngineError;
use crate::plan::chain::Chain;
use crate::plan::emit::{Encoder, emit};
use crate::plan::looped::{Looped, alu_in_order, windows};
use crate::plan::ops::{Op, Tables, narrow};
use crate::plan::place::{Placer, Step, loaded};
use crate::plan::products::Products;
use crate::plan::schedule::{Scheduled, Scheduler};
use crate::plan::target::{Target, depth};
use crate::plan::versions::{Scratchpad, Versions};

/// ALU steps that are written out one by one; a longer instruction runs in order.
const MAX_LISTED_STEPS: u64 = 1 << 16;

/// GEMM steps that are written out; later instructions run with their own loops. Networks have
/// far fewer, and repeat them.
const MAX_LISTED_PRODUCTS: u64 = 1 << 27;

/// Makes operations of checked instructions.
#[derive(Debug)]
pub(crate) struct Decoder {
    target: Target,
    steps: Vec<Step>,
    /// GEMM steps among them.
    listed: u64,
    versions: Versions,
    products: Products,
    looped: Looped,
    tables: Tables,
}

impl Decoder {
    /// Without an instruction.
    pub fn new(target: Target) -> Self {
        let depths = Scratchpad::ALL.map(|scratchpad| depth(&target.config, scratchpad));
        Self {
            target,
            steps: Vec::new(),
            listed: 0,
            versions: Versions::new(depths),
            products: Products::default(),
            looped: Looped::default(),
            tables: Tables::default(),
        }
    }

    /// The launches of what came.
    ///
    /// # Errors
    /// [`EngineError::Internal`], as for [`emit`].
    pub fn schedule(self) -> Result<Scheduled, EngineError> {
        let mut scheduler = Scheduler::new(self.target.clone());
        let tables = self.finish(|op| scheduler.add(&op))?;
        Ok(scheduler.finish(tables))
    }

    /// Gives the operations to `take`, in an order in which they may run one after the other; the
    /// tables that they share.
    fn finish(self, take: impl FnMut(Op)) -> Result<Vec<u32>, EngineError> {
        let placer = Placer {
            target: &self.target,
            places: self.versions.places(self.target.room.0),
        };
        let encoder = Encoder {
            target: &self.target,
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
            rows = (0..access.store.y_size).map(|y| access.row(y)).collect();
        }
        for access in rows {
            // What is read beside the sums needn't lie where they lie.
            for tiles in [&access.tiles].into_iter().chain(&access.operands) {
                let step = self.steps.len();
                self.versions.join(Scratchpad::Acc, [narrow(tiles)], step);
            }
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
        if access.gemm.overwrite {
            self.reset(access);
            if let Some((gemm, uops)) = access.last_steps() {
                self.product(&GemmAccess::of(gemm, Uops::of(&uops)));
                return;
            }
        }
        self.product(access);
    }

    fn product(&mut self, access: &GemmAccess<'_>) {
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
                let op = self.looped.gemm(&self.target, access, &mut self.tables);
                self.at_home(op);
            }
        }
    }

    fn alu(&mut self, access: &AluAccess<'_>) {
        if access.alu.steps() == 0 {
            return;
        }
        let depth = depth(&self.target.config, Scratchpad::Acc) as usize;
        let chain = (access.alu.steps() <= MAX_LISTED_STEPS)
            .then(|| Chain::of(access, depth))
            .flatten();
        let Some(chain) = chain else {
            let op = alu_in_order(&self.target, access, &mut self.tables);
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

impl Sink for Decoder {
    fn take(&mut self, _: &At, resolved: &Resolved<'_>) -> Result<(), EngineError> {
        match resolved {
            Resolved::Load(access) => self.load(access),
            Resolved::Store(access) => self.store(access),
            Resolved::Gemm(access) => self.gemm(access),
            Resolved::Alu(access) => self.alu(access),
            Resolved::Depthwise(access) if access.insn.steps() == 0 => {}
            Resolved::Depthwise(access) => {
                let op = windows(&self.target, access, &mut self.tables);
                self.at_home(op);
            }
            Resolved::Sync => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
