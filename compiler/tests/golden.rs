//! The bytes of programs: what a change of the lowering leaves as it was, and what it doesn't.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::QGraph;
use vta_compiler::{layer, onnx, passes};
use vta_driver::Program;
use vta_isa::Config;

/// A machine as it comes, one with other blocks and small scratchpads, and one without extensions.
const CONFIGS: [&str; 3] = [
    "{}",
    r#"{"LOG_BLOCK": 5, "LOG_INP_BUFF_SIZE": 14, "LOG_WGT_BUFF_SIZE": 17, "LOG_ACC_BUFF_SIZE": 15}"#,
    r#"{"EXTENSIONS": []}"#,
];

const DEMO: &[u8] = include_bytes!("../../models/demo/resnet20.onnx");

/// A checksum of all commands with what they name, and of all micro-ops.
fn checksum(program: &Program) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for layer in &program.layers {
        sum.update(layer.name.as_bytes());
        for command in &layer.commands {
            sum.update(&command.insn.encode().unwrap().to_le_bytes());
            sum.update(format!("{:?}", command.symbol).as_bytes());
        }
    }
    for uop in program.kernels.iter().flat_map(|kernel| &kernel.uops) {
        sum.update(&uop.encode().unwrap().to_le_bytes());
    }
    sum.finalize()
}

#[test]
fn programs_have_the_bytes_that_they_had() {
    let demo = passes::quantized(&onnx::load(DEMO).unwrap()).unwrap();
    let mut graphs: Vec<(String, QGraph)> = vec![("demo".to_owned(), demo)];
    let specs = [
        "resnet18.C2",
        "resnet18.C8",
        "resnet18.C11",
        "gemm:3,64,100",
        "conv:1,3,9,11,5,3,2,1",
    ];
    graphs.extend(specs.map(|spec| {
        let parsed = layer::parse(spec).unwrap();
        (spec.to_owned(), layer::build(&parsed, 1).unwrap())
    }));
    let mut lines = Vec::new();
    for (name, graph) in &graphs {
        for (machine, text) in ["default", "small", "bare"].iter().zip(CONFIGS) {
            let config = Config::from_json(text).unwrap();
            let program = lower::compile(graph, &config, &LowerOptions::default());
            lines.push(match program {
                Ok(program) => {
                    let commands: usize = program.layers.iter().map(|l| l.commands.len()).sum();
                    let sum = checksum(&program);
                    format!("{name} on {machine}: {commands} commands, {sum:08x}")
                }
                Err(_) => format!("{name} on {machine}: refused"),
            });
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
