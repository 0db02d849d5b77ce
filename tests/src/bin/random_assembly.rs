//! Writes random legal programs as assembly text with their data, each beside the configuration of its machine:
//!
//! ```text
//! cargo run -p vta-tests --bin random_assembly -- FOLDER COUNT
//! ```
//!
//! The playground's tests run them as WebAssembly and by `vta exec`.
#![allow(clippy::unwrap_used, reason = "it is part of a test")]

use std::fmt::Write as _;
use std::path::Path;

use vta_isa::resolve::merge;
use vta_isa::{Config, Insn, MemType, Uop};
use vta_tests::extended;
use vta_tests::programs::{RandomProgram, generate};

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 17}"#,
    r#"{"LOG_BLOCK": 5}"#,
    r#"{"LOG_BLOCK": 3, "LOG_INP_BUFF_SIZE": 14, "LOG_WGT_BUFF_SIZE": 16, "LOG_ACC_BUFF_SIZE": 16}"#,
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, count] = &args[..] else {
        panic!("random_assembly FOLDER COUNT");
    };
    for seed in 0..count.parse().unwrap() {
        let config = extended(CONFIGS[seed as usize % CONFIGS.len()], seed / 4);
        let program = generate(&config, seed, 1 + seed as usize % 6);
        let path = Path::new(folder).join(format!("{seed:03}"));
        std::fs::write(path.with_extension("asm"), assembly(&config, &program)).unwrap();
        std::fs::write(path.with_extension("json"), config.to_json()).unwrap();
    }
}

/// The program with the bytes that it loads. Each memory type has a space of its own, which begins at element 0.
fn assembly(config: &Config, program: &RandomProgram) -> String {
    let mut text = String::new();
    for (mem, (_, bytes)) in MemType::ALL.into_iter().zip(program.regions()) {
        let elem = config.elem_bytes(mem) as u64;
        let base = RandomProgram::region(mem);
        let loads = program.insns.iter().filter_map(|insn| match insn {
            Insn::Load(load) if load.mem == mem => load.dram_rows(config),
            _ => None,
        });
        let mut spans: Vec<_> = loads.flat_map(|rows| rows.iter()).collect();
        merge(&mut spans);
        for span in spans {
            let bytes = &bytes[(span.start - base) as usize..(span.end - base) as usize];
            data(&mut text, config, mem, (span.start - base) / elem, bytes);
        }
    }
    for mut insn in program.insns.iter().copied() {
        if insn.dram_rows(config).is_some()
            && let Some((mem, base)) = insn.dram_base_mut()
        {
            *base -= (RandomProgram::region(mem) / config.elem_bytes(mem) as u64) as u32;
        }
        writeln!(text, "{insn}").unwrap();
    }
    text
}

fn data(text: &mut String, config: &Config, mem: MemType, element: u64, bytes: &[u8]) {
    if mem == MemType::Uop {
        for (at, word) in (element..).zip(bytes.as_chunks::<4>().0) {
            let Uop { dst, src, wgt } = Uop::decode(u32::from_le_bytes(*word));
            writeln!(text, ".uop {at} dst={dst} src={src} wgt={wgt}").unwrap();
        }
        return;
    }
    let values: Vec<i32> = match mem {
        // Two in a byte, the lower half first.
        MemType::Wgt4 => {
            let halves = bytes.iter().flat_map(|byte| [byte << 4, *byte]);
            halves.map(|half| i32::from(half as i8 >> 4)).collect()
        }
        _ => config.numbers(mem, bytes).collect(),
    };
    let values: Vec<String> = values.iter().map(i32::to_string).collect();
    writeln!(text, ".{mem} {element} {}", values.join(" ")).unwrap();
}
