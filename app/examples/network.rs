//! From a network and a picture to a label through the library: open, compile, load, run, compare.
//!
//! `cargo run --release -p vta-app --example network` prints `cat, bit for bit the reference's`.

use std::path::Path;

use vta_app::{Error, Feed, Model, Session, Target, Values, images};

/// Runs the demo's network on its picture of a cat.
fn main() -> Result<(), Error> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let (label, same) = classify("demo", &demo.join("cat.png"))?;
    let verdict = if same {
        "bit for bit the reference's"
    } else {
        "NOT the reference's"
    };
    println!("{label}, {verdict}");
    Ok(())
}

/// The best label, and whether every layer's output is the reference interpreter's.
pub fn classify(model: &str, picture: &Path) -> Result<(String, bool), Error> {
    let model = Model::open(model)?;
    let labels = model.labels()?;
    let recipe = model.preprocess()?;
    let recipe = recipe.ok_or_else(|| Error::Usage("the model has no recipe".into()))?;

    // A session compiles the network and loads it where it runs.
    let mut session = Session::verifying(model, &Target::named("sim"), &())?;
    let input = session.inputs()[0].clone();

    // The picture, cut to the network's size, by the recipe that it was trained with.
    let picture = images::open(picture)?;
    let feed = Feed {
        name: &input.name,
        values: Values::Real(recipe.apply(picture, input.chw)?.into()),
    };

    let found = session.run(&[feed], &())?;
    let values = found.outputs[0].real();
    let best = (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b]));
    let label = best.and_then(|class| labels.get(class)).cloned();
    Ok((label.unwrap_or_default(), found.mismatches.is_empty()))
}
