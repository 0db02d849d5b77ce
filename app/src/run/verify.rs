//! A run compared with the reference interpreter, layer by layer.

use vta_compiler::passes::Unfused;
use vta_compiler::qgraph::QGraph;
use vta_compiler::reference;

use crate::error::Result;
use crate::run::engine::Engine;

/// Layers of the run of some images that aren't as they should be, a line each; before the next run overwrites
/// them. The interpreter itself is compared with the model without fusions, of which it knows the same as the
/// devices.
///
/// # Errors
/// What can't be computed or read.
pub fn mismatches(
    engine: &mut Engine,
    graph: &QGraph,
    unfused: Option<&Unfused>,
    images: &[&[i16]],
    first: usize,
) -> Result<Vec<String>> {
    let expected = images.iter().map(|x| reference::run(graph, x));
    // Every tensor of each image.
    let expected: Vec<Vec<Vec<i16>>> = expected.collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for (name, tensor, got) in engine.outputs()? {
        for (image, (got, expected)) in (first..).zip(got.iter().zip(&expected)) {
            let mut pairs = got.iter().zip(&expected[tensor]).enumerate();
            if let Some((at, (a, b))) = pairs.find(|(_, (a, b))| a != b) {
                found.push(format!(
                    "image {image}, layer {name}, value {at}: {a}, not {b}"
                ));
            }
        }
    }
    let Some(unfused) = unfused else {
        return Ok(found);
    };
    for (image, values) in (first..).zip(&expected) {
        for differs in reference::compare(graph, values, unfused)? {
            let (name, at, a, b) = (differs.node, differs.at, differs.found, differs.expected);
            found.push(format!(
                "image {image}, layer {name}, value {at}: {a}, and without fusions {b}"
            ));
        }
    }
    Ok(found)
}
