//! An order in which everything comes after what it needs.

use std::collections::BTreeSet;

/// The numbers of all items so that each comes after those that it needs, of which any may be named twice. Of those
/// that are ready `next` says which one follows.
pub(crate) fn ordered(
    needs: &[BTreeSet<usize>],
    mut next: impl FnMut(&BTreeSet<usize>) -> Option<usize>,
) -> Vec<usize> {
    let mut readers = vec![Vec::new(); needs.len()];
    let mut missing: Vec<usize> = needs.iter().map(BTreeSet::len).collect();
    for (item, needs) in needs.iter().enumerate() {
        needs.iter().for_each(|&need| readers[need].push(item));
    }
    let mut ready: BTreeSet<usize> = (0..needs.len()).filter(|&i| missing[i] == 0).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(item) = next(&ready) {
        ready.remove(&item);
        order.push(item);
        for &reader in &readers[item] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    order
}
