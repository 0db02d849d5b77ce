//! Cases of the fuzz target from random bytes, a few of each length.

use vta_compiler::zoo::Rng;
use vta_tests::fuzzing;

#[test]
fn random_bytes_find_no_difference() {
    let mut rng = Rng::new(7);
    for case in 0..1500 {
        let bytes: Vec<u8> = (0..8 + case % 160).map(|_| rng.next_u64() as u8).collect();
        fuzzing::run(&bytes);
    }
}
