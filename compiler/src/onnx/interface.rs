//! What a model takes and gives, without its nodes.

use std::collections::BTreeMap;

use prost::Message;

use super::{OnnxError, element, proto};
use crate::graph::Element;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub element: Element,
    /// Dimensions, all known.
    pub shape: Vec<usize>,
}

/// What a model takes and gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Inputs, in order.
    pub inputs: Vec<Port>,
    /// Outputs, in order.
    pub outputs: Vec<Port>,
    /// `metadata_props` whose keys start with `vta.`, without that prefix.
    pub metadata: BTreeMap<String, String>,
}

/// The interface of a model that [`super::save`] wrote.
///
/// # Errors
/// Bytes that are no model, an input or output without a type or with unknown dimensions.
pub fn interface(bytes: &[u8]) -> Result<Interface, OnnxError> {
    let model = proto::Model::decode(bytes).map_err(|e| OnnxError::Decode(e.to_string()))?;
    let graph = model.graph.unwrap_or_default();
    let all = |infos: &[proto::ValueInfo]| infos.iter().map(port).collect::<Result<_, _>>();
    Ok(Interface {
        inputs: all(&graph.input)?,
        outputs: all(&graph.output)?,
        metadata: own(model.metadata_props),
    })
}

/// Entries whose keys start with `vta.`, without that prefix.
pub(super) fn own(entries: Vec<proto::StringEntry>) -> BTreeMap<String, String> {
    let entries = entries.into_iter();
    let own = entries.filter_map(|e| Some((e.key.strip_prefix("vta.")?.to_owned(), e.value)));
    own.collect()
}

fn port(info: &proto::ValueInfo) -> Result<Port, OnnxError> {
    let fail = |reason: &str| OnnxError::Tensor {
        tensor: info.name.clone(),
        reason: reason.to_owned(),
    };
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| fail("it has no type"))?;
    let element = element(tensor.elem_type).map_err(|e| fail(&e))?;
    let shape = tensor.shape.as_ref().ok_or_else(|| fail("no shape"))?;
    let size = |d: &proto::Dimension| d.dim_value.and_then(|d| usize::try_from(d).ok());
    let shape = shape.dim.iter().map(size).collect::<Option<_>>();
    Ok(Port {
        name: info.name.clone(),
        element,
        shape: shape.ok_or_else(|| fail("a dimension is unknown"))?,
    })
}
