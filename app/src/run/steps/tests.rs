use super::*;

const PROGRAM: &str = include_str!("../../../../cli/examples/gemm.asm");

fn steps(text: &str) -> Steps {
    Steps::open(text, &Target::named("cycle")).unwrap()
}

#[test]
fn a_fault_is_told_with_its_line() {
    assert_eq!(fault(PROGRAM), None);
    for (text, line) in [
        ("finish\nfoo", 2),
        ("# data\n.inp 0 300\nfinish", 2),
        ("\n\ngemm uop_end=99999", 3),
    ] {
        let (at, words) = fault(text).unwrap();
        assert_eq!(at, line, "{words}");
    }
}

#[test]
fn what_is_told_of_a_program_is_what_exec_says() {
    let overview = steps(PROGRAM).overview().unwrap();
    assert_eq!(overview["cycles"], 143);
    assert_eq!(overview["hazards"], json!([]));
    assert_eq!(overview["stopped"], Value::Null);
    let first = &overview["insns"][0];
    let line = PROGRAM
        .lines()
        .position(|line| line.starts_with("load.uop"));
    assert_eq!(first["line"], json!(line.unwrap() + 1));
    assert_eq!((&first["start"], &first["done"]), (&json!(38), &json!(60)));
}

#[test]
fn values_and_expected_ones_stand_side_by_side() {
    let mut steps = steps(PROGRAM);
    let before = steps.state(None);
    assert_eq!(before["pads"]["inp"]["count"], 0);
    assert_eq!(before["out"][0]["values"], json!(vec![0; 16]));
    let end = steps.state(Some(142));
    assert_eq!(end["pads"]["acc"]["tiles"][0]["values"][0], 34);
    let writer = PROGRAM
        .lines()
        .filter(|l| !l.starts_with(['.', '#']) && !l.is_empty());
    let writer = writer.take_while(|l| !l.starts_with("alu")).count();
    assert_eq!(end["pads"]["acc"]["tiles"][0]["writer"], json!(writer));
    assert_eq!(end["out"][0]["values"], end["out"][0]["expected"]);
    let again = steps.state(None);
    assert_eq!(before, again, "back at the beginning");
}

#[test]
fn a_race_names_both_lines_and_a_deadlock_the_one_that_waits() {
    let race = PROGRAM
        .replace(" push_next     # token", " # token")
        .replace(" pop_prev\nalu", "\nalu");
    assert_ne!(race, PROGRAM);
    let overview = steps(&race).overview().unwrap();
    let lines = |word: &str| PROGRAM.lines().position(|l| l.starts_with(word)).unwrap() + 1;
    let gemm = lines("gemm uop_end");
    let named = overview["hazards"].as_array().unwrap().iter();
    let named: Vec<_> = named.map(|h| h["lines"].clone()).collect();
    let expected = [
        json!([lines("load.inp"), gemm]),
        json!([lines("load.wgt"), gemm]),
    ];
    assert_eq!(named, expected);

    let stuck = PROGRAM.replace("pop_prev push_prev\nfinish", "pop_prev\nfinish");
    let overview = steps(&stuck).overview().unwrap();
    assert_eq!(overview["cycles"], Value::Null);
    assert_eq!(overview["stuck_lines"], json!([lines("finish")]));
    let words = overview["stopped"].as_str().unwrap();
    assert!(
        words.starts_with("deadlock in cycle ") && words.contains("from store to compute"),
        "{words}"
    );
}

#[test]
fn programs_that_are_too_large_are_refused_with_the_limit() {
    let many = "load.inp\n".repeat(MAX_INSNS + 1);
    let error = Steps::open(&many, &Target::named("cycle")).err().unwrap();
    assert!(error.to_string().contains("at most 20000"), "{error}");
    let none = Steps::open("# nothing", &Target::named("cycle"))
        .err()
        .unwrap();
    assert_eq!(none.to_string(), "the program has no instruction");
    let long = "gemm uop_end=1024 iter_out=16383 iter_in=16383\nfinish";
    let overview = steps(long).overview().unwrap();
    let words = overview["stopped"].as_str().unwrap();
    assert!(words.contains("budget"), "{words}");
}
