//! What is generated from the declarations and committed is what they say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write;

use vta_isa::{Field, INSN_BYTES, Load, MemType, Opcode, Store, header, reference};

/// Compares a file of the repository with its text, or writes it, if `VTA_UPDATE_GENERATED` is set.
fn fresh(file: &str, expected: impl Fn(&str) -> String) {
    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&found);
    if std::env::var_os("VTA_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        found == expected,
        "{file} is stale: run VTA_UPDATE_GENERATED=1 cargo test -p vta-isa --test generated"
    );
}

#[test]
fn the_opencl_header_is_fresh() {
    fresh("hw-opencl/kernels/vta_isa.h", |_| header::opencl_header());
}

#[test]
fn the_tables_of_the_documentation_are_fresh() {
    let (begin, end) = ("<!-- generated: tables -->\n", "<!-- end of generated -->");
    fresh("docs/isa.md", |found| {
        let (before, rest) = found.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        format!("{before}{begin}{}{end}{after}", reference::tables())
    });
}

/// The runtime for controllers has no standard library, so that it can't use this crate.
#[test]
fn the_bits_of_the_bare_metal_runtime_are_fresh() {
    let transfer = Load::FIELDS;
    let fields: [Field; 6] = [
        Opcode::FIELD,
        transfer.memory_type,
        transfer.dram_base,
        transfer.y_size,
        transfer.x_size,
        transfer.x_stride,
    ];
    // It reads a STORE as it reads a LOAD.
    assert!(
        fields[1..]
            .iter()
            .all(|f| Opcode::Store.fields().contains(f))
    );
    fresh("rt/src/isa.rs", |_| {
        let mut text = String::from(
            "//! What the runtime knows of the instruction set. The tests of `vta-isa` write it from the declared\n\
             //! fields and codes; do not edit.\n\n\
             /// A field's first bit and its width. None crosses the two halves of a word.\n\
             pub(crate) type Field = (u32, u32);\n\n",
        );
        let opcodes = Opcode::ALL.map(|c| (c.name(), c.code().into()));
        let mems = MemType::ALL.map(|c| (c.name(), c.code().into()));
        let overwriting = ("overwriting", Opcode::OVERWRITING.into());
        let numbers = [("insn_bytes", INSN_BYTES)].into_iter().chain(opcodes);
        let requantizing = ("requantizing", Opcode::REQUANTIZING.into());
        let numbers = numbers.chain([overwriting, requantizing]);
        let numbers = numbers.chain(mems);
        let numbers = numbers.chain([("saturated", Store::SATURATED.into())]);
        let numbers = numbers.map(|(name, number)| (name.to_ascii_uppercase(), number));
        let preloaded = MemType::PRELOADED.map(|(mem, code, _)| {
            let name = format!("preload_{}", mem.name());
            (name.to_ascii_uppercase(), code.into())
        });
        for (name, number) in numbers.chain(preloaded) {
            writeln!(text, "pub(crate) const {name}: u32 = {number};").unwrap();
        }
        let named = fields.map(|field| (field.name.to_ascii_uppercase(), field));
        let rows = ("PADDED_Y_SIZE".to_owned(), Load::PADDED_ROWS);
        let wgt4 = ("WGT4_FLAG".to_owned(), Load::WGT4);
        for (name, field) in named.into_iter().chain([rows, wgt4]) {
            let (first, bits) = (field.first_bit, field.bits);
            writeln!(text, "pub(crate) const {name}: Field = ({first}, {bits});").unwrap();
        }
        text
    });
}
