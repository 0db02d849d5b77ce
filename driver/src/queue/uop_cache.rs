//! Which kernels are in the micro-op scratchpad.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::KernelId;

/// Which kernels are in the micro-op scratchpad, placed as in a ring.
///
/// The compute module runs LOAD UOP, GEMM and ALU strictly in order, so overwriting an evicted
/// kernel can't disturb an instruction before it.
#[derive(Debug)]
pub(crate) struct UopCache {
    depth: usize,
    cursor: usize,
    resident: FxHashMap<KernelId, Range<usize>>,
}

impl UopCache {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            cursor: 0,
            resident: FxHashMap::default(),
        }
    }

    /// Forgets everything: the scratchpad means nothing at the start of a run.
    pub(crate) fn clear(&mut self) {
        self.cursor = 0;
        self.resident.clear();
    }

    /// Where the kernel lies now, and whether it must be loaded there first. `len` is at least 1
    /// and at most the depth.
    pub(crate) fn place(&mut self, kernel: KernelId, len: usize) -> (usize, bool) {
        if let Some(range) = self.resident.get(&kernel) {
            return (range.start, false);
        }
        if self.cursor + len > self.depth {
            self.cursor = 0;
        }
        let range = self.cursor..self.cursor + len;
        self.resident
            .retain(|_, r| r.end <= range.start || range.end <= r.start);
        self.cursor = range.end;
        self.resident.insert(kernel, range.clone());
        (range.start, true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kernels_stay_until_the_ring_comes_round() {
        let mut cache = UopCache::new(8);
        let k = KernelId;
        assert_eq!(cache.place(k(0), 3), (0, true));
        assert_eq!(cache.place(k(1), 4), (3, true));
        assert_eq!(cache.place(k(0), 3), (0, false));
        // Two micro-ops don't fit behind, so the ring starts again and evicts kernel 0 only.
        assert_eq!(cache.place(k(2), 2), (0, true));
        assert_eq!(cache.place(k(1), 4), (3, false));
        assert_eq!(cache.place(k(0), 3), (2, true));
        assert_eq!(cache.place(k(1), 4), (0, true));
        cache.clear();
        assert_eq!(cache.place(k(1), 8), (0, true));
    }

    proptest! {
        #[test]
        fn a_resident_kernel_is_where_it_was_loaded(uses in prop::collection::vec(0u32..12, 1..200)) {
            // What each slot of the scratchpad holds, kept by hand.
            let mut slots = [None; 16];
            let mut cache = UopCache::new(slots.len());
            for id in uses {
                let len = 1 + id as usize % 7;
                let (start, load) = cache.place(KernelId(id), len);
                prop_assert!(start + len <= slots.len());
                if load {
                    (0..len).for_each(|i| slots[start + i] = Some((id, i)));
                }
                for i in 0..len {
                    prop_assert_eq!(slots[start + i], Some((id, i)));
                }
            }
        }
    }
}
