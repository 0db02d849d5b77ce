//! The examples do what their first lines say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/one_gemm.rs"]
#[expect(dead_code, reason = "its main function, which a test has no use for")]
mod one_gemm;

use vta_isa::Config;
use vta_sim::SimDevice;

#[test]
fn one_gemm_is_the_same_on_every_simulator() {
    let config = Config::default();
    let devices = [
        SimDevice::functional(config.clone()),
        SimDevice::oracle(config),
    ];
    for device in devices {
        let free = device.free_bytes();
        let found = one_gemm::gemm(&device).unwrap();
        // 136 is clamped to what an int8 holds, and -136, too.
        assert_eq!(found[..3], [127, -128, 0]);
        assert_eq!(found.len(), 16);
        assert_eq!(device.free_bytes(), free, "all memory is given back");
    }
}
