//! `vta`: run, compile and inspect networks on the Versatile Tensor Accelerator.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod bench;
mod bench_cycles;
mod bench_opencl;
mod commands;
mod devices;
mod report;
mod tools;
mod tune;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::commands::{boards, check, exec, run, sweep};

/// Exit status: 0 right, 1 a result didn't match or a run failed, 2 bad usage or input.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Exec(args) => exec::exec(args),
        Command::Layer(args) => tools::layer(args),
        Command::Quantize(args) => tools::quantize(args),
        Command::Compile(args) => tools::compile(args),
        Command::Replay(args) => tools::replay(args),
        Command::Asm(args) => tools::asm(args),
        Command::Disasm(args) => tools::disasm(args),
        Command::Check(args) => check::check(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Bench(args) if args.cycles => bench_cycles::bench(args),
        Command::Bench(args) => match &args.device {
            None => bench::bench(args),
            Some(devices) => bench_opencl::bench(args, devices),
        },
        Command::Tune(args) => tune::tune(args),
        Command::Models => tools::models(),
        Command::Boards(args) => boards::boards(args),
        Command::Devices(args) => devices::devices(args),
        Command::Completions { shell } => tools::completions(*shell),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {}", message(&error));
            ExitCode::from(status(&error))
        }
    }
}

/// An error with its causes; many tell theirs already.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !tells(&text, &cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Whether the text has the cause as words of its own: a file `d` isn't told by "demo".
fn tells(text: &str, cause: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    text.match_indices(cause).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + cause.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// A fault of a device, or of a layer of the host, is a failed run; everything else is bad usage or input.
fn status(error: &anyhow::Error) -> u8 {
    use vta_driver::DriverError;
    match error.downcast_ref::<DriverError>() {
        Some(
            DriverError::Device { .. }
            | DriverError::Host { .. }
            | DriverError::Lost { .. }
            | DriverError::Memory { .. },
        ) => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::message;

    #[test]
    fn every_cause_is_told_once() {
        let error = |texts: [&'static str; 3]| {
            let [outer, middle, inner] = texts;
            message(&anyhow!(inner).context(middle).context(outer))
        };
        assert_eq!(
            error(["demo", "d", "a folder"]),
            "demo: d: a folder",
            "a name within another one"
        );
        assert_eq!(
            error(["x.vta: bundle: too short", "bundle: too short", "too short"]),
            "x.vta: bundle: too short"
        );
        assert_eq!(error(["a", "b (c)", "c"]), "a: b (c)");
    }
}
