//! The tables of `docs/isa.md`, generated from the declared fields and codes.

use std::fmt::Write;

use crate::{
    AluOp, Deps, Extension, Field, Load, MemType, Notation, Opcode, Requantize, Store, Uop,
};

/// Markdown: the fields of instructions and micro-ops, the memory types and the ALU operations.
///
/// ```
/// let tables = vta_isa::reference::tables();
/// assert!(tables.contains("| `wgt_factor_out` | GEMM | 1 | 53:44 | 0..1023 |"));
/// ```
pub fn tables() -> String {
    let mut text = String::from(
        "| field | of | word | bits | values | unit | meaning |\n|---|---|---|---|---|---|---|\n",
    );
    let head = [Opcode::FIELD].into_iter().chain(Deps::LIST.to_vec());
    let head = head.map(|field| (field, "all".to_owned()));
    let (mut rows, mut kinds): (Vec<Field>, Vec<String>) = head.unzip();
    let kinds_of = Opcode::ALL.map(|opcode| (opcode.name().to_ascii_uppercase(), opcode.fields()));
    let requantizing = ("STORE, if it requantises".to_owned(), Requantize::LIST);
    let padded = ("LOAD of `inp` with `pad_value`".to_owned(), Load::PADDED);
    let extended: &[Field] = &[Load::WGT4];
    let extended = ("LOAD of memory type 4".to_owned(), extended);
    let saturate: &[Field] = &[Store::SATURATE];
    let saturate = ("STORE, unless it requantises".to_owned(), saturate);
    let more = [padded, extended, saturate, requantizing];
    for (kind, fields) in kinds_of.into_iter().chain(more) {
        for field in fields {
            match rows.iter().position(|row| row == field) {
                Some(at) => kinds[at] = format!("{}, {kind}", kinds[at]),
                None => {
                    rows.push(*field);
                    kinds.push(kind.clone());
                }
            }
        }
    }
    for (field, kinds) in rows.iter().zip(&kinds) {
        row(
            &mut text,
            field,
            &format!("{kinds} | {}", field.first_bit / 64),
        );
    }
    for field in Uop::LIST {
        row(&mut text, field, "micro-op | 0");
    }
    let opcodes = Opcode::ALL.map(|c| (c.name(), c.code(), c.extension(), c.meaning()));
    codes(&mut text, "opcode", &opcodes);
    let mems = MemType::ALL.map(|c| (c.name(), c.code(), c.extension(), c.meaning()));
    codes(&mut text, "memory_type", &mems);
    let padded = "As `inp`, with padding of `pad_value`; of a LOAD";
    let name = format!("{} {}", MemType::Inp, Load::PAD_VALUE.name);
    code(
        &mut text,
        (&name, MemType::PADDED, Some(Extension::Pad), padded),
    );
    let saturated = "As `out`, clamped to int8; of a STORE";
    let name = format!("{} {}", MemType::Out, Store::SATURATE.name);
    let extension = Some(Extension::Saturate);
    code(&mut text, (&name, Store::SATURATED, extension, saturated));
    for (mem, value, meaning) in MemType::PRELOADED {
        let name = format!("{mem} {}", Load::PRELOAD);
        code(&mut text, (&name, value, Some(Extension::Preload), meaning));
    }
    let ops = AluOp::ALL.map(|c| (c.name(), c.code(), c.extension(), c.meaning()));
    codes(&mut text, "alu_opcode", &ops);
    text
}

fn row(text: &mut String, field: &Field, place: &str) {
    let first = field.first_bit % 64;
    let bits = match field.bits {
        1 => first.to_string(),
        bits => format!("{}:{first}", first + bits - 1),
    };
    let values = match field.notation {
        Notation::Flag => "0, 1".to_owned(),
        Notation::Number | Notation::Shown | Notation::Signed | Notation::Code => {
            let (low, high) = field.range();
            format!("{low}..{high}")
        }
    };
    let (name, unit, meaning) = (field.name, field.unit, field.meaning);
    // Writing to a string never fails.
    let _ = writeln!(
        text,
        "| `{name}` | {place} | {bits} | {values} | {unit} | {meaning} |"
    );
}

fn codes(text: &mut String, field: &str, codes: &[(&str, u8, Option<Extension>, &str)]) {
    let head = format!("| `{field}` | value | extension | meaning |");
    let _ = writeln!(text, "\n{head}\n|---|---|---|---|");
    codes.iter().for_each(|row| code(text, *row));
}

fn code(text: &mut String, (name, value, extension, meaning): (&str, u8, Option<Extension>, &str)) {
    let extension = extension.map_or("", Extension::name);
    // Writing to a string never fails.
    let _ = writeln!(text, "| `{name}` | {value} | {extension} | {meaning} |");
}
