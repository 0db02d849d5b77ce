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
//!   [`Joined::append`] and [`Chain::append`].
//! - *Proof*: while a group is open, everything that was emitted since it began is apart from it,
//!   so that moving its parts behind all that is the same to the scratchpads. DRAM is touched by
//!   LOAD and STORE alone, which are never held back.

use crate::plan::chain::Chain;
use crate::plan::ops::{Op, Touches};
use crate::plan::products::Joined;

/// Steps at their places that run as one operation: a chain with what it touches.
#[derive(Debug)]
pub(crate) enum Group {
    Products(Joined),
    Chain(Chain, Touches),
    Op(Box<Op>),
}

impl Group {
    fn touches(&self) -> &Touches {
        match self {
            Self::Products(joined) => &joined.touches,
            Self::Chain(_, touches) => touches,
            Self::Op(op) => &op.touches,
        }
    }

    /// The place of its kind among the open groups; `None` for what nothing joins.
    fn kind(&self) -> Option<usize> {
        match self {
            Self::Products(_) => Some(0),
            Self::Chain(..) => Some(1),
            Self::Op(_) => None,
        }
    }

    /// Joins another of its kind to this one; gives it back when it can't.
    fn append(&mut self, more: Self) -> Option<Self> {
        match (self, more) {
            (Self::Products(open), Self::Products(more)) => open.append(more).map(Self::Products),
            (Self::Chain(open, all), Self::Chain(more, touches)) => {
                let rest = open.append(more);
                if rest.is_none() {
                    *all = open.touches();
                }
                rest.map(|more| Self::Chain(more, touches))
            }
            (_, more) => Some(more),
        }
    }
}

/// The open groups.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    open: [Option<Group>; 2],
}

impl Joiner {
    /// Takes the next step; groups that are done go to `emit`, in an order in which they may run.
    pub fn take(&mut self, next: Group, emit: &mut impl FnMut(Group)) {
        let own = next.kind();
        for (kind, open) in self.open.iter_mut().enumerate() {
            let ends = |open: &mut Group| open.touches().conflicts(next.touches());
            if own != Some(kind)
                && let Some(done) = open.take_if(ends)
            {
                emit(done);
            }
        }
        let Some(kind) = own else {
            return emit(next);
        };
        let rest = match &mut self.open[kind] {
            Some(open) => open.append(next),
            None => Some(next),
        };
        if let Some(next) = rest
            && let Some(done) = self.open[kind].replace(next)
        {
            emit(done);
        }
    }

    /// Closes what is still open.
    pub fn finish(self, emit: &mut impl FnMut(Group)) {
        self.open.into_iter().flatten().for_each(emit);
    }
}
