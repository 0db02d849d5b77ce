//! What the libraries say, in the words of the command line.
//!
//! They name options and what else a caller may do as their own fields and functions, in backquotes:
//! `` `timing_only` `` and `` `quantize` ``. Here these are `--timing-only` and `vta quantize`.

use clap::CommandFactory;
use vta_app::Error;
use vta_app::error::message;

use crate::args::Cli;

/// An error with its causes. What a file says of itself stays as it is.
pub fn of_error(error: &anyhow::Error) -> String {
    let text = message(error.as_ref());
    match error.downcast_ref() {
        Some(Error::Input { .. }) => text,
        _ => of_command_line(&text),
    }
}

/// A text with the options and commands that it names as one types them.
pub fn of_command_line(text: &str) -> String {
    if !text.contains('`') {
        return text.to_owned();
    }
    let command = Cli::command();
    let mut said = String::new();
    let mut rest = text;
    while let Some((before, quoted)) = rest.split_once('`') {
        said.push_str(before);
        let Some((name, after)) = quoted.split_once('`') else {
            rest = &rest[before.len()..];
            break;
        };
        match typed(&command, name) {
            Some(typed) => said.push_str(&typed),
            None => said.push_str(&format!("`{name}`")),
        }
        rest = after;
    }
    said + rest
}

/// How an option or a command is typed; `None` when there is none of that name.
fn typed(command: &clap::Command, name: &str) -> Option<String> {
    let flag = name.replace("budget.", "limit_").replace('_', "-");
    let has = |c: &clap::Command| c.get_arguments().any(|a| a.get_long() == Some(&flag[..]));
    if command.get_subcommands().any(has) {
        return Some(format!("--{flag}"));
    }
    let known = command.find_subcommand(name).is_some();
    known.then(|| format!("vta {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_functions_are_options_and_commands() {
        for (said, typed) in [
            ("nothing to say", "nothing to say"),
            (
                "`timing_only` computes nothing",
                "--timing-only computes nothing",
            ),
            ("`budget.steps` raises it", "--limit-steps raises it"),
            ("run `quantize` on it", "run vta quantize on it"),
            (
                "`zoo:NAME:shift` with `mode` shift",
                "`zoo:NAME:shift` with --mode shift",
            ),
            ("a quote ` alone, `top", "a quote ` alone, `top"),
            ("`threads` 1 `", "--threads 1 `"),
        ] {
            assert_eq!(of_command_line(said), typed);
        }
    }
}
