//! Programs in C over `vta/runtime.h`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "another test links programs in more ways")]

mod gcc;

use std::path::PathBuf;

use gcc::{Linked, Program, capi};

fn program() -> PathBuf {
    capi().join("tests/programs/instructions.c")
}

/// As the original's instruction tests: a padded load, ALU chains, products; and what is refused.
#[test]
fn programs_of_the_originals_instruction_tests_run_from_c() {
    for linked in [Linked::Dynamic, Linked::Static] {
        let output = Program::new(&program(), linked).run(&[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("insn 0: load.uop sram_base=0 "), "{said}");
        assert!(said.contains("uop 0: dst=0 src=0 wgt=0"), "{said}");
        let told = String::from_utf8_lossy(&output.stdout);
        let checks: usize = told.trim().trim_end_matches(" checks").parse().unwrap();
        assert!(checks > 1900, "{told}");
    }
}

#[test]
fn they_leave_no_fault_in_memory() {
    let output = Program::checked(&program(), Linked::Dynamic, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn runtime_h_is_a_header_of_c_and_cpp() {
    gcc::compile_alone(&capi().join("include/vta/runtime.h"));
}
