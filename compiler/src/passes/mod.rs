//! From a QDQ graph to the integer graph: a list of small passes over [`Net`].
//!
//! The import reads the QDQ pattern into a net whose nodes carry real scales; the
//! passes of [`PASSES`] rewrite it in order; the last step plans the lane operations. After each
//! step a listing can be printed.

mod ends;
mod error;
mod fuse;
pub(crate) mod import;
mod net;
mod plan;
mod rows;
mod segments;
mod tables;
mod verdict;
mod views;

use crate::graph::Graph;
use crate::qgraph::{Numbers, QGraph};

pub use error::PassError;
pub use net::{Entry, Net, NetConv, NetEnds, NetNode, NetOp, NetOutput, NetRead, NetTensor};
pub use verdict::{Judged, Verdict, judged};

/// A rewriting pass.
pub type Pass = fn(&mut Net);

/// The pass that gives the host what the device could compute.
const TABLES: &str = "join-tables";

/// The passes in order. `import` before them and `plan` after them change the representation.
pub const PASSES: [(&str, Pass); 6] = [
    (TABLES, tables::join_tables),
    ("join-channels", fuse::join_channels),
    ("merge-clamps", fuse::merge_clamps),
    ("fuse-residuals", fuse::fuse_residuals),
    ("merge-clamps-again", fuse::merge_clamps),
    ("order-rows", rows::order_rows),
];

/// The names of all steps, for listings.
pub fn names() -> Vec<&'static str> {
    let mut names = vec!["import"];
    names.extend(PASSES.iter().map(|(name, _)| *name));
    names.push("plan");
    names
}

/// Turns a QDQ graph into the fused integer graph.
///
/// # Errors
/// [`PassError`] naming the node.
pub fn quantized(graph: &Graph) -> Result<QGraph, PassError> {
    quantized_with(graph, &mut |_, _| {})
}

/// As [`quantized`], calling `observe` with each step's name and listing.
///
/// # Errors
/// [`PassError`] naming the node.
pub fn quantized_with(
    graph: &Graph,
    observe: &mut dyn FnMut(&str, &dyn Fn() -> String),
) -> Result<QGraph, PassError> {
    let net = import::import(graph).net?;
    let planned = planned(net, &mut |name, net| observe(name, &|| net.to_string()))?;
    observe("plan", &|| planned.to_string());
    Ok(planned)
}

/// A network as its model says it, without fusions: what the values of one with them are compared with.
#[derive(Clone, Debug)]
pub struct Unfused {
    /// Each of its nodes is one of the import's.
    pub graph: QGraph,
    /// How far a value of a node may be from it, given the same inputs: what fusions may cost, in precise networks
    /// beside a tie.
    pub most: u16,
}

/// A QDQ graph without the passes that join nodes.
///
/// # Errors
/// [`PassError`] naming the node.
pub fn unfused(graph: &Graph) -> Result<Unfused, PassError> {
    let mut net = import::import(graph).net?;
    // The host rounds between its nodes as the model does.
    tables::join_tables(&mut net);
    if net.wide_sums {
        // It is the model's meaning.
        fuse::fuse_residuals(&mut net);
    }
    Ok(Unfused {
        graph: plan::plan(&net)?,
        most: match net.numbers {
            Numbers::Int8 => 1,
            // Each may be 8 steps from the reals before it is rounded (docs/exactness.md).
            Numbers::Int16 => 17,
        },
    })
}

/// The passes over a net, each of which `each` sees with its name, and the plan.
fn planned(mut net: Net, each: &mut dyn FnMut(&str, &Net)) -> Result<QGraph, PassError> {
    each("import", &net);
    for (name, pass) in PASSES {
        pass(&mut net);
        net.verify()?;
        each(name, &net);
    }
    plan::plan(&net)
}
