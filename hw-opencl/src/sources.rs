//! The kernels' sources, and what they must have.

use vta_isa::{AluOp, Opcode};

use crate::words::KINDS;

/// The single-work-item core, in OpenCL C.
pub const CORE_SOURCE: &str = include_str!("../kernels/vta_core.cl");
/// The throughput structure, in OpenCL C.
pub const THROUGHPUT_SOURCE: &str = include_str!("../kernels/vta_throughput.cl");

/// The kernel that packs images, which belongs to the throughput structure, in OpenCL C.
pub const PACK_SOURCE: &str = include_str!("../kernels/vta_pack.cl");

/// Whether `text` goes on at `at` with `part`.
const fn continues(text: &[u8], at: usize, part: &[u8]) -> bool {
    let mut n = 0;
    while n < part.len() && at + n < text.len() && text[at + n].eq_ignore_ascii_case(&part[n]) {
        n += 1;
    }
    n == part.len()
}

/// Whether a source has a line that begins with `before`, `name`, `after` for each of the names,
/// in capitals or not. One pass over the source, since the compiler runs it.
const fn has_all(source: &str, before: &str, names: &[&str], after: &str) -> bool {
    let (text, before, after) = (source.as_bytes(), before.as_bytes(), after.as_bytes());
    let (mut at, mut begins, mut found) = (0, true, 0u64);
    while at < text.len() {
        if begins && continues(text, at, before) {
            let at = at + before.len();
            let mut n = 0;
            while n < names.len() {
                let name = names[n].as_bytes();
                if continues(text, at, name) && continues(text, at + name.len(), after) {
                    found |= 1 << n;
                }
                n += 1;
            }
        }
        begins = text[at] == b'\n';
        at += 1;
    }
    found == (1 << names.len()) - 1
}

// The kernels' switches are made of the headers' lists, so that OpenCL C doesn't compile without
// the functions either. This says it where there is no OpenCL.
const _: () = assert!(
    has_all(CORE_SOURCE, "static int vta_", &AluOp::NAMES, "("),
    "vta_core.cl has no function vta_<name> for an ALU operation"
);
const _: () = assert!(
    has_all(
        THROUGHPUT_SOURCE,
        "static vta_ints vta_",
        &AluOp::NAMES,
        "("
    ),
    "vta_throughput.cl has no function vta_<name> for an ALU operation"
);
const _: () = assert!(
    has_all(CORE_SOURCE, "#define VTA_RUN_", &Opcode::NAMES, " "),
    "vta_core.cl has no VTA_RUN_<NAME> for a kind of instruction"
);
const _: () = assert!(
    has_all(THROUGHPUT_SOURCE, "static void vta_", &KINDS, "("),
    "vta_throughput.cl has no function vta_<name> for a kind of operation"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let source = "static int vta_mint(int x);\n/* static int vta_max( */\n";
        let has = |name| has_all(source, "static int vta_", &[name], "(");
        assert!(has("mint"));
        assert!(!has("min") && !has("max"));
        assert!(!has_all(source, "static int vta_", &["mint", "min"], "("));
    }
}
