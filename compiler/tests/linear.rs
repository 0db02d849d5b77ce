//! What compiling allocates grows linearly with the number of nodes: allocations and bytes of each step for a
//! network and one of four times its nodes, which no other work on the machine changes. Time is a benchmark
//! (`cargo bench -p vta-compiler --bench linear`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/growth.rs"]
mod growth;

use allocation_counter::AllocationInfo;

const NODES: usize = 500;
/// Of four times the nodes; tables that double, too, stay below it, and quadratic ones reach 16.
const BOUND: u64 = 6;
/// Bytes and allocations that every step may take, whatever the number of nodes.
const ALWAYS: u64 = 4096;

#[test]
fn allocations_grow_linearly() {
    let measure = |step: &mut dyn FnMut()| allocation_counter::measure(step);
    for (network, make) in growth::NETWORKS {
        let small = growth::steps(&make(NODES), measure);
        let large = growth::steps(&make(4 * NODES), measure);
        let grown = |small: u64, large: u64| large > BOUND * small.max(ALWAYS);
        let more = |small: &AllocationInfo, large: &AllocationInfo| {
            grown(small.count_total, large.count_total)
                || grown(small.bytes_total, large.bytes_total)
        };
        for ((step, small), (_, large)) in small.iter().zip(&large) {
            assert!(
                !more(small, large),
                "{network}, {step}: {small:?}, of four times the nodes {large:?}"
            );
        }
        let bytes: u64 = small.iter().map(|(_, small)| small.bytes_total).sum();
        assert!(bytes > 1 << 20, "{network}: allocations are counted");
    }
}
