//! Products over inputs that all sums share become additions of constants.
//!
//! Pattern: a product each of whose taps multiplies the same input tile for all positions.
//!
//! Condition: more than one position, or inputs that another such product reads (a single one rather reads data);
//! inputs and weights lie in DRAM that the batch stores nothing to; the input's batch rows are the same.
//!
//! Proof: then what each group adds is one vector. The inputs are constants of the plan, which is
//! made anew when they change.

use rustc_hash::FxHashSet;
use vta_driver::Span;
use vta_isa::resolve::meet;

use super::super::draft::Kind;
use super::super::elementwise::TileReader;
use super::list::{Context, List, Pass};

pub(super) const PASS: Pass = Pass {
    name: "biases",
    run: fix,
};

fn fix(list: &mut List<'_>, context: &Context<'_>) {
    if !context.fixed_inputs {
        return;
    }
    let tiles = TileReader {
        config: context.config,
        memory: context.memory,
    };
    let mut fixed: FxHashSet<Span> = FxHashSet::default();
    for alone in [false, true] {
        for draft in list.slots.iter_mut().flatten() {
            if let Kind::Matmul(matmul) = &mut draft.kind
                && (matmul.positions.len() == 1) == alone
            {
                let is_constant = |span: &Span| match alone {
                    true => fixed.contains(span),
                    false => !meet(context.stored, &[*span]),
                };
                let spans = tiles.fix(matmul, is_constant);
                fixed.extend(spans.into_iter().flatten());
            }
        }
    }
    list.constants.extend(fixed);
}
