//! `vta`: run, compile and inspect networks on the Versatile Tensor Accelerator.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "opencl"),
    allow(dead_code, reason = "options of devices that are left out")
)]

mod args;
mod bar;
mod bench;
mod bench_cycles;
mod bench_first;
#[cfg_attr(not(feature = "opencl"), path = "absent/bench_opencl.rs")]
mod bench_opencl;
mod commands;
mod devices;
mod report;
mod table;
mod terminal;
mod tune;
mod verdicts;

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ColorChoice, CommandFactory, FromArgMatches};
use vta_app::Error;
use vta_app::message;
use vta_app::options::names::Front;
use vta_driver::DriverError;
use vta_files::output::{self, FileError, Promise};
use vta_files::printable;

use crate::args::{Cli, Command};
use crate::commands::{
    boards, check, compile, costs, cut, exec, explore, layer, listing, models, quantize, replay,
    run, shell, sweep,
};
use crate::terminal::say;

/// Exit status: 0 right, 1 a result didn't match or a run failed, 2 bad usage or input.
fn main() -> ExitCode {
    end_as_failed();
    let (cli, outputs) = parse();
    let done = output::promise(&outputs).map_err(anyhow::Error::from);
    let done = done.and_then(|()| start_threads());
    let done = done.and_then(|()| command(&cli.command));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let text = message(error.as_ref(), Front::CommandLine);
            say(&format!("error: {}", one_line(&text)));
            ExitCode::from(status(&error))
        }
    }
}

/// The arguments, and what they ask to be written. Help is plain where the rest is: clap alone takes a build server for a terminal
/// with colours, whatever TERM says.
fn parse() -> (Cli, Vec<Promise>) {
    let colours = if terminal::is_plain() {
        ColorChoice::Never
    } else {
        ColorChoice::Auto
    };
    let matches = Cli::command().color(colours).try_get_matches();
    let matches = matches.unwrap_or_else(|error| leave(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| leave(&error));
    (cli, args::outputs(&matches))
}

/// Prints help, or what is wrong with arguments. Help that can't be written is a failure.
fn leave(error: &clap::Error) -> ! {
    let status = match error.print() {
        Err(fault) if !error.use_stderr() && fault.kind() != ErrorKind::BrokenPipe => {
            say(&format!("error: standard output: {fault}"));
            1
        }
        _ => error.exit_code(),
    };
    std::process::exit(status)
}

/// Has an allocation that fails end the program as any failure does, with status 1, after the line
/// that the standard library writes; by itself it would be a signal. Large ones are asked for
/// before, and are errors.
fn end_as_failed() {
    // A design's thread aborts on its own, and ends no program.
    vta_app::device::end_on_abort(1);
}

/// Starts the threads that compiling, calibrating and reference runs share, which would otherwise
/// panic where there are none to be had.
fn start_threads() -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().build_global();
    pool.context("the system gives no more threads")
}

/// An error as one line without control characters, whatever a library or a file put into it.
fn one_line(text: &str) -> String {
    let words = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    printable(&line).into_owned()
}

fn command(command: &Command) -> anyhow::Result<bool> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Exec(args) => exec::exec(args),
        Command::Layer(args) => layer::layer(args),
        Command::Quantize(args) => quantize::quantize(args),
        Command::Compile(args) => compile::compile(args),
        Command::Cut(args) => cut::cut(args),
        Command::Replay(args) => replay::replay(args),
        Command::Asm(args) => listing::asm(args),
        Command::Playground(args) => listing::playground(args),
        Command::Disasm(args) => listing::disasm(args),
        Command::Check(args) => check::check(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Explore(args) => explore::explore(args),
        Command::Merge(args) => sweep::merge(args),
        Command::Bench(args) if args.cycles => bench_cycles::bench(args),
        Command::Bench(args) if args.first => bench_first::bench(args),
        Command::Bench(args) => match &args.device {
            None => bench::bench(args),
            Some(devices) => bench_opencl::bench(args, devices),
        },
        Command::Tune(args) => tune::tune(args),
        Command::Models => models::models(),
        Command::Boards(args) => boards::boards(args),
        Command::Costs(args) => costs::costs(args),
        Command::Devices(args) => devices::devices(args),
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man { folder } => shell::man(folder),
    }
}

/// A run that began and failed, or an output that can't be written to its end, is 1, everything else
/// bad usage or input.
fn status(error: &anyhow::Error) -> u8 {
    let unwritten = |cause: &(dyn StdError + 'static)| {
        let fault = cause.downcast_ref::<FileError>();
        matches!(fault, Some(FileError::Write { .. }))
    };
    let of_driver = error.downcast_ref::<DriverError>().cloned();
    let of_driver = of_driver.map(Error::from);
    let failed = match error.downcast_ref().or(of_driver.as_ref()) {
        Some(Error::Run { .. } | Error::Memory { .. }) => true,
        // A system without memory or threads.
        Some(Error::Io { source, .. }) => matches!(
            source.kind(),
            ErrorKind::OutOfMemory | ErrorKind::WouldBlock
        ),
        _ => error.is::<rayon::ThreadPoolBuildError>(),
    };
    if failed || error.chain().any(unwritten) {
        1
    } else {
        2
    }
}
