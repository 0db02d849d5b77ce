//! Making the plan of a batch.

use std::sync::OnceLock;

use vta_driver::RunReport;
use vta_isa::resolve::merge;

use super::build;
use super::emit::{self, Emitted, Products};
use super::passes::{self, Context, List};
use super::unplanned::{GoOn, Unplanned};
use super::{Constant, Plan, Subject};

impl Subject<'_> {
    /// Makes the plan, as long as `go_on` says so.
    ///
    /// # Errors
    /// When the batch is faulty, or has something that no plan has a form for, or at the word of `go_on`.
    pub fn plan(&self, go_on: GoOn<'_>) -> Result<Plan, Unplanned> {
        let &Self {
            config,
            pads,
            limits,
            insns,
            marks,
            memory,
            fixed_inputs,
            kept,
            ..
        } = self;
        let mut trace = build::trace(self, go_on)?;
        let context = Context {
            config,
            memory,
            stored: &trace.stored,
            fixed_inputs,
            columns: pads.kernel.columns(),
        };
        let mut list = List::new(std::mem::take(&mut trace.drafts), go_on);
        for pass in &passes::PASSES {
            if !go_on() {
                return Err(Unplanned::Unwanted);
            }
            (pass.run)(&mut list, &context);
        }
        let List {
            slots,
            constants: mut spans,
            ..
        } = list;
        let mut products = Products::new(memory, pads, limits.plan_bytes);
        let Emitted { ops, origins, .. } = emit::emit(slots, &mut products, go_on)?;
        if !go_on() {
            return Err(Unplanned::Unwanted);
        }
        spans.append(&mut products.constants);
        spans.append(&mut trace.constants);
        merge(&mut spans);
        let constants = Constant::new(&spans, memory, kept);
        let weights = trace.weights.iter().enumerate();
        let loaded = weights.filter(|(_, weight)| !weight.is_held());
        let report = RunReport::of(insns, marks, config);
        let mut plan = Plan {
            ops,
            origins,
            constants,
            bytes: products.kept_bytes,
            once: trace.once,
            uops: trace.uops,
            weights: loaded.map(|(i, w)| (i, products.tile(w).into())).collect(),
            traffic: report.traffic,
            marks: report.marks,
            leftover_tokens: trace.leftover_tokens,
            schedule: OnceLock::new(),
        };
        plan.bytes += plan.own_bytes();
        if plan.bytes > limits.plan_bytes {
            return Err(Unplanned::Memory);
        }
        #[cfg(debug_assertions)]
        if pads.kernel.supported() {
            self.check(&plan, &spans);
        }
        Ok(plan)
    }
}
