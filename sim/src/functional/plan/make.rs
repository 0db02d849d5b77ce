//! Making the plan of a batch.

use std::sync::OnceLock;

use vta_driver::{DeviceMemory, LayerMark, RunReport};
use vta_isa::resolve::merge;
use vta_isa::{Config, Insn};

use super::super::run::scratchpads::Scratchpads;
use super::build::{self, Limits};
use super::emit::{self, Emitted, Products};
use super::passes::{self, Context, List};
use super::unplanned::Unplanned;
#[cfg(debug_assertions)]
use super::verify;
use super::{Constant, Plan};

/// What plans depend on beside their batches.
pub(crate) struct Maker<'a> {
    pub config: &'a Config,
    /// As they are before the batch; of input and accumulator tiles only how many there are counts.
    pub pads: &'a Scratchpads,
    pub limits: Limits,
}

/// A batch, and what it finds in memory.
pub(crate) struct Subject<'a> {
    pub insns: &'a [Insn],
    pub marks: &'a [LayerMark],
    pub memory: &'a DeviceMemory,
    /// Whether inputs that it doesn't store may be taken as constants.
    pub fixed_inputs: bool,
}

impl Maker<'_> {
    /// Makes the plan, as long as `go_on` says so.
    ///
    /// # Errors
    /// When the batch is faulty, or has something that no plan has a form for, or at the word of `go_on`.
    pub fn make(&self, subject: &Subject<'_>, go_on: &dyn Fn() -> bool) -> Result<Plan, Unplanned> {
        let &Subject {
            insns,
            marks,
            memory,
            fixed_inputs,
        } = subject;
        let (config, pads) = (self.config, self.pads);
        let mut trace = build::trace(insns, marks, config, memory, &pads.uop, self.limits)?;
        let context = Context {
            config,
            memory,
            stored: &trace.stored,
            fixed_inputs,
            columns: pads.kernel.columns(),
        };
        let mut list = List::new(std::mem::take(&mut trace.drafts));
        for pass in &passes::PASSES {
            if !go_on() {
                return Err(Unplanned::Unwanted);
            }
            list = (pass.run)(list, &context);
        }
        let mut spans = std::mem::take(&mut list.constants);
        let drafts = list.into_drafts();
        let mut products = Products::new(memory, pads, self.limits.plan_bytes);
        let Emitted { ops, origins, .. } = emit::emit(drafts, &mut products)?;
        spans.append(&mut products.constants);
        spans.append(&mut trace.constants);
        merge(&mut spans);
        let constants = Constant::new(&spans, memory);
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
        if plan.bytes > self.limits.plan_bytes {
            return Err(Unplanned::Memory);
        }
        #[cfg(debug_assertions)]
        if pads.kernel.supported() {
            verify::Subject {
                insns,
                config,
                memory,
                constants: &spans,
                pads,
            }
            .check(&plan);
        }
        Ok(plan)
    }
}
