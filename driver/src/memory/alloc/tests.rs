use proptest::prelude::*;

use super::*;

#[test]
fn the_first_gap_that_fits_is_taken() {
    let mut a = Allocator::new(PAGE_BYTES, 16 * PAGE_BYTES);
    assert_eq!(a.free_bytes(), 15 * PAGE_BYTES);
    let x = a.alloc(2 * PAGE_BYTES).unwrap();
    let y = a.alloc(1).unwrap();
    assert_eq!((x, y), (PhysAddr(4096), PhysAddr(3 * 4096)));
    assert_eq!(a.free_bytes(), 12 * PAGE_BYTES);
    a.free(x).unwrap();
    assert_eq!(a.alloc(3 * PAGE_BYTES).unwrap(), PhysAddr(4 * 4096));
    assert_eq!(a.alloc(PAGE_BYTES).unwrap(), x);
}

#[test]
fn frees_coalesce() {
    let mut a = Allocator::new(0, 4 * PAGE_BYTES);
    let all: Vec<_> = (0..4).map(|_| a.alloc(PAGE_BYTES).unwrap()).collect();
    a.free(all[1]).unwrap();
    a.free(all[3]).unwrap();
    let full = a.alloc(2 * PAGE_BYTES).unwrap_err();
    let expected = AllocError::Exhausted {
        requested_bytes: 8192,
        free_bytes: 8192,
        largest_bytes: 4096,
    };
    assert_eq!(full, expected);
    a.free(all[2]).unwrap();
    assert_eq!(a.alloc(3 * PAGE_BYTES).unwrap(), all[1]);
}

#[test]
fn bad_frees_and_fixed_ranges_are_refused() {
    let mut a = Allocator::default();
    assert!(a.alloc(0).is_err());
    assert!(a.alloc(u64::MAX).is_err());
    assert!(a.free(PhysAddr(4096)).is_err());
    a.alloc_at(PhysAddr(100), 50).unwrap();
    assert!(a.alloc_at(PhysAddr(149), 1).is_err());
    a.alloc_at(PhysAddr(150), 1).unwrap();
    assert!(a.alloc_at(PhysAddr(u32::MAX), 2).is_err());
}

proptest! {
    #[test]
    fn allocations_never_overlap(ops in prop::collection::vec((any::<bool>(), 1u64..40_000), 1..80)) {
        let mut a = Allocator::new(4096, 1 << 19);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for (free, n) in ops {
            if free && !live.is_empty() {
                let (addr, _) = live.swap_remove(n as usize % live.len());
                a.free(PhysAddr(addr as u32)).unwrap();
            } else if let Ok(addr) = a.alloc(n) {
                let s = u64::from(addr.0);
                prop_assert_eq!(s % PAGE_BYTES, 0);
                prop_assert!(s >= 4096 && s + n <= 1 << 19);
                prop_assert!(live.iter().all(|(b, m)| s + n <= *b || b + m <= s));
                live.push((s, n));
            }
        }
    }
}
