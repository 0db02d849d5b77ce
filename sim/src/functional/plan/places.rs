//! Lists that operations of the same shape share.
//!
//! A batch does few different things in many places. What they read, tile by tile, is listed once for each of them,
//! and stands elsewhere by how far it lies from there.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::FxHashSet;

use crate::kernels::PADDING;

/// A shared list as a key: that list, not one that is equal.
#[derive(Debug)]
pub(crate) struct Same<T>(pub Rc<[T]>);

impl<T> Clone for Same<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> PartialEq for Same<T> {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Same<T> {}

impl<T> Hash for Same<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().addr().hash(state);
    }
}

/// Lists, none of which is equal to another.
#[derive(Debug)]
pub(crate) struct Lists<T>(FxHashSet<Rc<[T]>>);

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self(FxHashSet::default())
    }
}

impl<T: Hash + Eq + Copy> Lists<T> {
    /// The list that is equal to one, which is a copy of this one if there was none.
    pub fn one(&mut self, list: &[T]) -> Rc<[T]> {
        if let Some(known) = self.0.get(list) {
            return Rc::clone(known);
        }
        let list: Rc<[T]> = list.into();
        self.0.insert(Rc::clone(&list));
        list
    }
}

/// Bytes where the input tile of each tap and position lies, `[tap][position]`, or [`PADDING`]. As a key it is the same
/// lists in the same places, not those that happen to hold the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places(Vec<Stretch>);

/// Some taps: a list, and the byte that it counts from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stretch {
    list: Same<u32>,
    first: u32,
}

fn moved(offset: u32, by: u32) -> u32 {
    match offset {
        PADDING => PADDING,
        offset => offset + by,
    }
}

impl From<Vec<u32>> for Places {
    fn from(list: Vec<u32>) -> Self {
        Self::at(list.into(), 0)
    }
}

impl Places {
    /// Those of a list that counts from a byte.
    pub fn at(list: Rc<[u32]>, first: u32) -> Self {
        let list = Same(list);
        Self(vec![Stretch { list, first }])
    }

    /// How many there are, over all taps.
    pub fn len(&self) -> usize {
        self.0.iter().map(|s| s.list.0.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|s| s.list.0.is_empty())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        let stretches = self.0.iter();
        stretches.flat_map(|s| s.list.0.iter().map(|&offset| moved(offset, s.first)))
    }

    /// A list of all of them.
    pub fn to_vec(&self) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.len());
        for Stretch { list, first } in &self.0 {
            all.extend(list.0.iter().map(|&offset| moved(offset, *first)));
        }
        all
    }

    /// Those of each tap, counted from a byte that is given beside them.
    pub fn taps(&self, positions: usize) -> impl Iterator<Item = (&[u32], u32)> {
        let stretches = self.0.iter();
        stretches.flat_map(move |s| s.list.0.chunks_exact(positions).map(|tap| (tap, s.first)))
    }

    /// The lists, in places of their own.
    pub fn lists(&self) -> impl Iterator<Item = &Rc<[u32]>> {
        self.0.iter().map(|s| &s.list.0)
    }

    /// Whether both hold the same.
    pub fn hold_same(&self, other: &Self) -> bool {
        self == other || self.len() == other.len() && self.iter().eq(other.iter())
    }

    /// How far others lie behind these, if they are the same lists.
    pub fn distance(&self, others: &Self) -> Option<u32> {
        let pairs = || self.0.iter().zip(&others.0);
        let same = self.0.len() == others.0.len() && pairs().all(|(a, b)| a.list == b.list);
        let mut distances = pairs().map(|(a, b)| b.first.checked_sub(a.first));
        let distance = distances.next()??;
        (same && distances.all(|by| by == Some(distance))).then_some(distance)
    }

    /// Adds taps.
    pub fn append(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Adds what a function makes of each list of others, in the places where they lie.
    pub fn append_mapped(&mut self, more: &Self, of: impl FnMut(&Rc<[u32]>) -> Rc<[u32]>) {
        self.0.extend(more.mapped(of));
    }

    /// The same, counted from a byte before all of them.
    pub fn behind(&self, byte: u32) -> Self {
        let stretch = |s: &Stretch| Stretch {
            list: s.list.clone(),
            first: s.first - byte,
        };
        Self(self.0.iter().map(stretch).collect())
    }

    /// What a function makes of each list, in the places where they lie.
    #[must_use]
    pub fn map(&self, of: impl FnMut(&Rc<[u32]>) -> Rc<[u32]>) -> Self {
        Self(self.mapped(of).collect())
    }

    fn mapped(&self, mut of: impl FnMut(&Rc<[u32]>) -> Rc<[u32]>) -> impl Iterator<Item = Stretch> {
        self.0.iter().map(move |s| Stretch {
            list: Same(of(&s.list.0)),
            first: s.first,
        })
    }
}
