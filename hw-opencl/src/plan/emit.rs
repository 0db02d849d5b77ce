//! From steps to operations: the passes behind the first, one after the other for each step, so
//! that a batch's chains and products are never all there at once.
//!
//! | pass | takes | gives | what it does |
//! |---|---|---|---|
//! | list (`decoder.rs`) | resolved instructions | steps | notes what each does and whose tiles it needs |
//! | place (`place.rs`) | steps | placed steps | gives what is overwritten a place of its own |
//! | join (`join.rs`) | placed steps | groups | joins neighbours that may run as one |
//! | encode (here) | groups | operations and tables | writes the words that the kernel reads |
//! | level (`schedule.rs`) | operations | launches | finds out what may run side by side |

use crate::error::EngineError;
use crate::plan::chain::Chain;
use crate::plan::join::{Group, Joiner};
use crate::plan::ops::{Kind, Op, Tables};
use crate::plan::place::{Placer, Step};
use crate::plan::products::Products;
use crate::plan::target::Target;

/// Makes operations of all steps, in an order in which they may run one after the other; the
/// tables that they share.
///
/// # Errors
/// [`EngineError::Internal`], as for [`Placer::place`].
pub(crate) fn emit(
    steps: Vec<Step>,
    mut placer: Placer<'_>,
    mut encoder: Encoder<'_>,
    mut take: impl FnMut(Op),
) -> Result<Vec<u32>, EngineError> {
    let mut joiner = Joiner::default();
    for (number, step) in steps.into_iter().enumerate() {
        let placed = placer.place(number, step)?;
        joiner.take(placed, &mut |group| encoder.encode(group, &mut take));
    }
    joiner.finish(&mut |group| encoder.encode(group, &mut take));
    Ok(encoder.tables.words)
}

/// Writes groups as operations.
pub(crate) struct Encoder<'a> {
    pub target: &'a Target,
    pub products: Products,
    pub tables: Tables,
}

impl Encoder<'_> {
    fn encode(&mut self, group: Group, take: &mut impl FnMut(Op)) {
        match group {
            Group::Op(op) => take(*op),
            Group::Products(joined) => {
                let ops = joined.encode(&mut self.products, &mut self.tables, self.target);
                ops.into_iter().for_each(take);
            }
            Group::Chain(chain, _) => {
                for part in chain.parts() {
                    take(self.chain(&part));
                }
            }
        }
    }

    fn chain(&mut self, chain: &Chain) -> Op {
        let args = chain.encode(|list| self.tables.list(list));
        let tiles = chain.len() as u32;
        let lanes = self.target.lanes();
        Op {
            kind: Kind::Chain,
            units: tiles * (lanes / self.target.shape.lanes),
            cost: u64::from(tiles * lanes) * (2 + u64::from(args[1])),
            args,
            touches: chain.touches(),
        }
    }
}
