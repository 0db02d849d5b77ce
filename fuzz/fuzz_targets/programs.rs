//! Programs from bytes: the fast executor against the oracle, with every kernel of this CPU.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vta_tests::fuzzing::run(data));
