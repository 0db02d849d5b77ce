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

use vta_isa::Config;

use crate::chain::Chain;
use crate::error::EngineError;
use crate::join::{Group, Joiner};
use crate::ops::{Decoded, Kind, Op, Tables, Touches};
use crate::place::Placer;
use crate::products::{Products, Target};
use crate::steps::Step;
use crate::versions::{Pad, Places};

/// What the passes start from.
pub(crate) struct Source<'a> {
    pub config: &'a Config,
    pub target: Target,
    /// The address of the first byte of the device's memory buffer.
    pub dram_base: u64,
    pub places: Places,
    pub products: Products,
    pub tables: Tables,
}

/// Makes operations of all steps.
///
/// # Errors
/// [`EngineError::Internal`], as for [`Placer::place`].
pub(crate) fn emit(source: Source<'_>, steps: Vec<Step>) -> Result<Decoded, EngineError> {
    let Source {
        config,
        target,
        dram_base,
        places,
        products,
        tables,
    } = source;
    let mut placer = Placer::new(config, target, dram_base, places);
    let mut joiner = Joiner::default();
    let mut encoder = Encoder {
        target,
        products,
        tables,
        ops: Vec::new(),
    };
    for (number, step) in steps.into_iter().enumerate() {
        let placed = placer.place(number, step)?;
        joiner.take(placed, &mut |group| encoder.encode(group));
    }
    joiner.finish(&mut |group| encoder.encode(group));
    Ok(Decoded {
        ops: encoder.ops,
        tables: encoder.tables.words,
    })
}

/// Writes groups as operations.
struct Encoder {
    target: Target,
    products: Products,
    tables: Tables,
    ops: Vec<Op>,
}

impl Encoder {
    fn encode(&mut self, group: Group) {
        match group {
            Group::Op(op) => self.ops.push(op),
            Group::Products(joined) => {
                let ops = joined.encode(&mut self.products, &mut self.tables, &self.target);
                self.ops.extend(ops);
            }
            Group::Chain(chain, touches) => {
                let op = self.chain(&chain, touches);
                self.ops.push(op);
            }
        }
    }

    fn chain(&mut self, chain: &Chain, touches: Touches) -> Op {
        let args = chain.encode(|list| self.tables.list(list));
        let written = &touches.writes[Pad::Acc as usize];
        let tiles: u32 = written.iter().map(|r| r.len() as u32).sum();
        let lanes = self.target.batch * self.target.block;
        Op {
            kind: Kind::Chain,
            units: tiles * (lanes / self.target.shape.lanes),
            cost: u64::from(tiles * lanes) * (2 + u64::from(args[1])),
            args,
            touches,
        }
    }
}
