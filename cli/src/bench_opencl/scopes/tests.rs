use super::*;

fn figures(rows: &[(&str, [f64; 3])]) -> Figures {
    let row = |(scopes, times): &(&str, [f64; 3])| Row {
        scopes: scopes.parse().unwrap(),
        found: Ok((*times, DeviceCounters::default())),
        same: true,
    };
    Figures {
        device: "opencl:pocl:0".to_owned(),
        name: "a CPU".to_owned(),
        model: "demo".to_owned(),
        batch: 1,
        rows: rows.iter().map(row).collect(),
    }
}

const BUFFER: (&str, [f64; 3]) = ("weights=buffer", [9.0, 10.0, 11.0]);

#[test]
fn what_is_clearly_faster_in_every_network_is_chosen() {
    let chosen = |networks: &[Figures]| choose(networks).to_string();
    let buffers = Scopes::default().to_string();
    let image = |times| ("weights=image", times);
    let constant = |times| ("activations=constant", times);
    let (fast, faster) = ([6.0, 7.0, 8.0], [5.0, 6.0, 8.9]);
    let two = figures(&[BUFFER, image(fast), constant(faster)]);
    assert_eq!(chosen(&[two]), "weights=buffer,activations=constant");
    // Below the median, but not below what buffers take at times.
    let near = figures(&[BUFFER, image([5.0, 6.0, 9.0])]);
    assert_eq!(chosen(&[near]), buffers);
    // Faster in one network and not in the other.
    let one = figures(&[BUFFER, image(fast)]);
    let other = figures(&[BUFFER, image([9.0, 10.0, 11.0])]);
    assert_eq!(chosen(&[one, other]), buffers);
    let mut wrong = figures(&[BUFFER, image(fast)]);
    wrong.rows[1].same = false;
    assert_eq!(chosen(&[wrong]), buffers);
    let mut refused = figures(&[BUFFER, image(fast)]);
    refused.rows[1].found = Err("too large".to_owned());
    assert_eq!(chosen(&[refused]), buffers);
}

#[test]
fn table_and_json_name_times_refusals_and_the_choice() {
    let mut all = figures(&[BUFFER, ("weights=image2d", [6.0, 7.0, 8.0])]);
    all.rows.push(Row {
        scopes: "weights=constant".parse().unwrap(),
        found: Err("they take 9 bytes".to_owned()),
        same: true,
    });
    all.rows[1].same = false;
    let text = all.text(Scopes::default());
    for says in [
        "6.00-8.00",
        "weights=constant,activations=buffer: they take 9 bytes",
        "WRONG: other outputs from weights=image2d,activations=buffer",
        "opened with weights=buffer,activations=buffer",
    ] {
        assert!(text.contains(says), "{text}");
    }
    let json = all.json(Scopes::default());
    assert_eq!(json["rows"][1]["ms"], 7.0);
    assert_eq!(json["rows"][1]["scope_copies"], 0);
    assert_eq!(json["rows"][2]["refused"], "they take 9 bytes");
    assert_eq!(json["chosen"], "weights=buffer,activations=buffer");
}
