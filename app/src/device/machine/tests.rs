use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::{passes, zoo};

use super::*;

fn target(board: Option<&str>, timing: Option<&str>) -> Target {
    Target {
        board: board.map(str::to_owned),
        timing: timing.map(str::to_owned),
        ..Target::default()
    }
}

fn machine(board: Option<&str>, timing: Option<&str>) -> Machine {
    Machine::read(&target(board, timing)).unwrap()
}

#[test]
fn a_timing_alone_leaves_the_machine_as_it_is_and_says_what_does_not_fit() {
    let spec = vta_compiler::layer::parse("resnet18.C2").unwrap();
    let graph = vta_compiler::layer::build(&spec, 1).unwrap();
    let program = |machine: &Machine| {
        lower::compile(&graph, &machine.config, &LowerOptions::default()).unwrap()
    };
    let plain = machine(None, None);
    assert_eq!(plain.name, "pynq");
    assert_eq!(plain.misfit(&program(&plain)), None);
    let timed = machine(None, Some("de10"));
    assert_eq!(
        (&timed.config, &timed.name[..]),
        (&Config::default(), "de10")
    );
    // A layer by shifts and with few micro-ops is one for the board.
    assert_eq!(timed.misfit(&program(&timed)), None);
    let own = machine(None, Some("pac"));
    assert_eq!(own.misfit(&program(&own)), None);
    let board = machine(Some("de10"), None);
    assert_eq!(board.misfit(&program(&board)), None);
    assert_eq!(board.config.depth(MemType::Uop), 2048);
}

#[test]
fn a_network_of_multiplications_does_not_fit_the_rtl() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let timed = machine(None, Some("pynq"));
    let program = lower::compile(&graph, &timed.config, &LowerOptions::default()).unwrap();
    let text = timed.misfit(&program).unwrap();
    assert!(
        text.to_string()
            .starts_with("`timing` pynq only takes that board's time: it has")
            && text
                .to_string()
                .ends_with("`board` pynq is the whole board"),
        "{text}"
    );
}

#[test]
fn boards_and_timings_exclude_each_other_and_must_exist() {
    for (board, timing, part) in [
        (Some("pynq"), Some("de10"), "leave `timing` out"),
        (
            Some("zcu"),
            None,
            "`board` zcu: no such preset, and no such file",
        ),
        (
            None,
            Some("zcu"),
            "`timing` zcu: no such preset, and no such file",
        ),
    ] {
        let error = Machine::read(&target(board, timing))
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}
