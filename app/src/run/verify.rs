//! A run compared with the reference interpreter, layer by layer.

use vta_compiler::passes::Unfused;
use vta_compiler::qgraph::QGraph;
use vta_compiler::reference;

use crate::error::Result;
use crate::run::engine::Engine;

/// Every tensor of each image, as the reference interpreter has it.
type References = Vec<Vec<Vec<i8>>>;

/// Layers of the run of some images that aren't as they should be, a line each; before the next run overwrites
/// them.
///
/// # Errors
/// What can't be computed or read.
pub fn mismatches(
    engine: &mut Engine,
    graph: &QGraph,
    unfused: Option<&Unfused>,
    images: &[&[i8]],
    first: usize,
) -> Result<Vec<String>> {
    let expected = images.iter().map(|x| reference::run(graph, x));
    let expected: References = expected.collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    verify(engine, &expected, first, &mut found)?;
    if let Some(unfused) = unfused {
        found.extend(fusions(graph, unfused, &expected, first)?);
    }
    Ok(found)
}

/// Compares the interpreter's values with those of the model without fusions, of which it knows the same as the
/// devices.
fn fusions(
    graph: &QGraph,
    unfused: &Unfused,
    values: &References,
    first: usize,
) -> Result<Vec<String>> {
    let mut mismatches = Vec::new();
    for (image, values) in (first..).zip(values) {
        let told = reference::compare(graph, values, unfused)?
            .into_iter()
            .map(|found| {
                let (name, at, a, b) = (found.node, found.at, found.found, found.expected);
                format!("image {image}, layer {name}, value {at}: {a}, and without fusions {b}")
            });
        mismatches.extend(told);
    }
    Ok(mismatches)
}

/// Compares every layer's output with the reference interpreter's.
fn verify(
    engine: &mut Engine,
    expected: &References,
    first: usize,
    mismatches: &mut Vec<String>,
) -> Result<()> {
    for (name, tensor, got) in engine.outputs()? {
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            let expected = &expected[tensor];
            if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
                let image = first + i;
                let (a, b) = (got[at], expected[at]);
                mismatches.push(format!(
                    "image {image}, layer {name}, value {at}: {a}, not {b}"
                ));
            }
        }
    }
    Ok(())
}
