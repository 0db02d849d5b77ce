//! `vta compile`.

use anyhow::Result;
use vta_app::compile::{self, listing};
use vta_driver::DramPlan;

use crate::args::CompileArgs;
use crate::bar::Bar;
use crate::terminal::{print_line, say_written};

/// Compiles a network and writes its bundle or flat image, or prints it after a pass.
pub fn compile(args: &CompileArgs) -> Result<bool> {
    if let Some(pass) = &args.dump_after {
        let model = args.target().open(&args.model, None)?;
        print_line(compile::passes(&model, pass)?.trim_end())?;
        return Ok(true);
    }
    let bundle = match &args.listing {
        None => compile::bundle(&args.model, &args.target(), &Bar::remarks())?,
        Some(file) => {
            listing::check_name(file)?;
            let (bundle, listed) = listing::compile(&args.model, &args.target(), &Bar::remarks())?;
            listing::write(file, &args.model, &listed)?;
            let uops: usize = listed.kernels.iter().map(Vec::len).sum();
            let line = format!(
                "{}: {} instructions, {uops} micro-ops",
                file.display(),
                listed.len()
            );
            say_written(file, &line)?;
            bundle
        }
    };
    let Some(output) = &args.output else {
        return Ok(true);
    };
    let size_bytes = match args.flat {
        None => bundle.save(output)?,
        Some(cut) => bundle.save_flat(output, cut)?,
    };
    let program = &*bundle.device_program()?;
    let commands: usize = program.layers.iter().map(|l| l.commands.len()).sum();
    let host = match bundle.host_ops() {
        0 => String::new(),
        n => format!(" and {n} operators of the host"),
    };
    let line = format!(
        "{}: {} layers{host}, {commands} instructions (a run adds loads of micro-ops, and at its ends \
         tokens and FINISH), {} micro-op kernels, {} bytes",
        output.display(),
        program.layers.len(),
        program.kernels.len(),
        size_bytes,
    );
    say_written(output, &line)?;
    say_written(output, &memory_line(&DramPlan::of(program)))?;
    Ok(true)
}

/// Device memory in words.
fn memory_line(plan: &DramPlan) -> String {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    format!(
        "{} KiB of device memory at most: {} KiB between layers ({} KiB without sharing), \
         {} KiB of constants, {} KiB of inputs and outputs",
        kib(plan.total_bytes()),
        kib(plan.scratch_bytes),
        kib(plan.unshared_bytes),
        kib(plan.constant_bytes),
        kib(plan.io_bytes),
    )
}
