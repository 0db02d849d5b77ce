//! `vta asm` and `vta disasm`.

use anyhow::{Context, Result, ensure};
use vta_app::compile::listing;
use vta_app::files::{decode, read_words};
use vta_app::{device, open};
use vta_driver::{Program, Symbol};
use vta_files::output;
use vta_isa::original::Layout;
use vta_isa::{INSN_BYTES, Uop};

use crate::args::{AsmArgs, DisasmArgs, LayoutArgs, Packing, PlaygroundArgs};
use crate::terminal::{print_line, say_written};

/// Writes the instructions of assembly text.
pub fn asm(args: &AsmArgs) -> Result<bool> {
    let layout = original(&args.layout)?;
    let insns = open::assembly(&args.file)?;
    let mut bytes = Vec::with_capacity(insns.len() * INSN_BYTES);
    for (i, insn) in insns.iter().enumerate() {
        let word = insn.encode().and_then(|word| match &layout {
            None => Ok(word),
            Some(layout) => layout.of_ours(word),
        });
        let word =
            word.with_context(|| format!("{}: instruction {i} ({insn})", args.file.display()))?;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    output::write(&args.output, bytes)?;
    let line = format!("{}: {} instructions", args.output.display(), insns.len());
    say_written(&args.output, &line)?;
    Ok(true)
}

/// Prints the link to a program.
pub fn playground(args: &PlaygroundArgs) -> Result<bool> {
    print_line(&open::playground(&args.file, &args.base)?)?;
    Ok(true)
}

/// Prints instructions, or a bundle, as text.
pub fn disasm(args: &DisasmArgs) -> Result<bool> {
    let layout = original(&args.layout)?;
    let mut text = String::new();
    if open::is_bundle(&args.file) {
        ensure!(
            layout.is_none(),
            "--layout original: {} is a bundle",
            args.file.display()
        );
        list_program(&*open::bundle_program(&args.file)?, &mut text);
    } else {
        let words = read_words(&args.file, layout.as_ref())?;
        for (i, insn) in decode(&args.file, &words)?.iter().enumerate() {
            text.push_str(&format!("{insn}  # {i}\n"));
        }
    }
    if !text.is_empty() {
        print_line(text.trim_end())?;
    }
    Ok(true)
}

/// The original's layout, if raw instructions have that.
fn original(args: &LayoutArgs) -> Result<Option<Layout>> {
    if args.layout == Packing::Vta {
        ensure!(
            args.config.is_none(),
            "--config: without --layout original all configurations have one layout"
        );
        return Ok(None);
    }
    let layout = Layout::of(&device::config(args.config.as_ref())?);
    Ok(Some(layout.context("--layout original")?))
}

/// The instructions of each layer, then the micro-ops of each kernel.
fn list_program(program: &Program, text: &mut String) {
    text.push_str(&format!("# {}\n", listing::LEGEND));
    for layer in &program.layers {
        text.push_str(&format!("# {} ({})\n", layer.name, layer.kind));
        for command in &layer.commands {
            let symbol = match command.symbol {
                Symbol::None => String::new(),
                Symbol::Buffer(id) => format!("  # {}", program.buffers[id.0 as usize].name),
                Symbol::Kernel(id) => format!("  # kernel {}", id.0),
            };
            text.push_str(&format!("{}{symbol}\n", command.insn));
        }
    }
    for (id, kernel) in program.kernels.iter().enumerate() {
        text.push_str(&format!("# kernel {id}\n"));
        for uop in &kernel.uops {
            let Uop { dst, src, wgt } = uop;
            text.push_str(&format!("#   dst={dst} src={src} wgt={wgt}\n"));
        }
    }
}
