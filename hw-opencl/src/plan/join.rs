//! The third pass: neighbours that may run as one operation are joined.
//!
//! | join | pattern | file |
//! |---|---|---|
//! | products | GEMM instructions on the same accumulator tiles | `products.rs` |
//! | chains | ALU instructions, resets and STOREs on the same accumulator tiles | `chain.rs` |
//!
//! A few groups of each kind are open at a time. Something new joins the last one that takes it, or
//! opens another, which closes the first where there are too many. A STORE comes when the compute
//! module is already at the next tile, so that more than one chain is open.
//!
//! - *Condition*: a group that touches what the new one writes, or writes what it touches, is
//!   closed first, whatever its kind; what the joins themselves ask for is with
//!   [`Joined::append`] and [`Chain::append`].
//! - *Proof*: while a group is open, everything that was emitted since it began is apart from it,
//!   so that moving its parts behind all that is the same to the scratchpads and to DRAM.

use crate::plan::chain::Chain;
use crate::plan::ops::{Op, Touches};
use crate::plan::products::Joined;

/// Open groups of products, and of chains.
const MOST_OPEN: [usize; 2] = [1, 4];

/// Steps at their places that run as one operation: a chain with what it touches.
#[derive(Debug)]
pub(crate) enum Group {
    Products(Joined),
    Chain(Chain, Touches),
    Op(Box<Op>),
}

impl From<Chain> for Group {
    fn from(chain: Chain) -> Self {
        let touches = chain.touches();
        Self::Chain(chain, touches)
    }
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

/// The open groups, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    open: Vec<Group>,
}

impl Joiner {
    /// Takes the next step; groups that are done go to `emit`, in an order in which they may run.
    pub fn take(&mut self, next: Group, emit: &mut impl FnMut(Group)) {
        let own = next.kind();
        let conflicts = |open: &Group| open.touches().conflicts(next.touches());
        let mut ends: Vec<bool> = self.open.iter().map(conflicts).collect();
        let mut rest = Some(next);
        for (open, ends) in self.open.iter_mut().zip(&mut ends).rev() {
            if let Some(next) = rest.take_if(|next| next.kind() == open.kind()) {
                rest = open.append(next);
                *ends &= rest.is_some();
            }
        }
        let mut ends = ends.into_iter();
        let done = self.open.extract_if(.., |_| ends.next() == Some(true));
        done.for_each(&mut *emit);
        let Some(next) = rest else { return };
        let Some(kind) = own else {
            return emit(next);
        };
        self.open.push(next);
        let same = |open: &Group| open.kind() == Some(kind);
        if self.open.iter().filter(|open| same(open)).count() > MOST_OPEN[kind]
            && let Some(oldest) = self.open.iter().position(same)
        {
            emit(self.open.remove(oldest));
        }
    }

    /// Closes what is still open.
    pub fn finish(self, emit: &mut impl FnMut(Group)) {
        self.open.into_iter().for_each(emit);
    }
}
