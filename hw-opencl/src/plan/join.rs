//! The third pass: neighbours that may run as one operation are joined.
//!
//! | join | pattern | file |
//! |---|---|---|
//! | products | GEMM instructions on the same accumulator tiles | `products.rs` |
//! | chains | ALU instructions and resets on the same accumulator tiles | `chain.rs` |
//!
//! One group of each kind is open at a time. Something new joins the open group of its kind, or
//! closes it and opens the next.
//!
//! - *Condition*: a group that touches what the new one writes, or writes what it touches, is
//!   closed first, whatever its kind; what the joins themselves ask for is with
//!   [`Joined::take`] and [`Chain::append`].
//! - *Proof*: while a group is open, everything that was emitted since it began is apart from it,
//!   so that moving its parts behind all that is the same to the scratchpads. DRAM is touched by
//!   LOAD and STORE alone, which are never held back.

use crate::plan::chain::Chain;
use crate::plan::ops::{Op, Touches};
use crate::plan::place::Placed;
use crate::plan::products::Joined;

/// What becomes of neighbours: of a chain also what it touches.
#[derive(Debug)]
pub(crate) enum Group {
    Products(Joined),
    Chain(Chain, Touches),
    Op(Op),
}

/// The open groups.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    products: Option<Joined>,
    chain: Option<(Chain, Touches)>,
}

impl Joiner {
    /// Takes the next step; groups that are done go to `emit`, in an order in which they may run.
    pub fn take(&mut self, placed: Placed, emit: &mut impl FnMut(Group)) {
        match placed {
            Placed::Op(op) => {
                self.close_products(emit, |open| open.conflicts(&op.touches));
                self.close_chain(emit, |open| open.conflicts(&op.touches));
                emit(Group::Op(*op));
            }
            Placed::Product(product) => {
                let touches = product.touches();
                self.close_chain(emit, |open| open.conflicts(&touches));
                let rest = match &mut self.products {
                    Some(open) => open.take(product, &touches),
                    None => Some(product),
                };
                if let Some(product) = rest {
                    self.close_products(emit, |_| true);
                    self.products = Some(Joined::new(product, touches));
                }
            }
            Placed::Chain(more) => {
                let touches = more.touches();
                self.close_products(emit, |open| open.conflicts(&touches));
                let rest = match &mut self.chain {
                    Some((open, all)) => {
                        let rest = open.append(more);
                        if rest.is_none() {
                            *all = open.touches();
                        }
                        rest
                    }
                    None => Some(more),
                };
                if let Some(more) = rest {
                    self.close_chain(emit, |_| true);
                    self.chain = Some((more, touches));
                }
            }
        }
    }

    /// Closes what is still open.
    pub fn finish(mut self, emit: &mut impl FnMut(Group)) {
        self.close_products(emit, |_| true);
        self.close_chain(emit, |_| true);
    }

    fn close_products(&mut self, emit: &mut impl FnMut(Group), when: impl Fn(&Touches) -> bool) {
        let open = self.products.take_if(|open| when(&open.touches));
        open.into_iter()
            .for_each(|open| emit(Group::Products(open)));
    }

    fn close_chain(&mut self, emit: &mut impl FnMut(Group), when: impl Fn(&Touches) -> bool) {
        let open = self.chain.take_if(|(_, touches)| when(touches));
        open.into_iter()
            .for_each(|(chain, touches)| emit(Group::Chain(chain, touches)));
    }
}
