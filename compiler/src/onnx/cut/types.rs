//! The types of values that a part begins and ends at.

use std::cell::OnceCell;
use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use vta_files::printable;

use crate::graph::{Graph, ValueId};
use crate::onnx::wire::{Field, text_in};
use crate::onnx::{ReadOptions, batch, export, load_part, proto};

// Numbers of a graph's fields, from the public onnx.proto.
pub(super) const GRAPH_INPUT: u32 = 11;
pub(super) const GRAPH_OUTPUT: u32 = 12;
pub(super) const GRAPH_VALUE_INFO: u32 = 13;
/// The name of a value's type, of the tensor of an annotation.
pub(super) const FIRST: u32 = 1;

/// The types of values: as the file says, or as reading it finds.
pub(super) struct Types<'a> {
    said: HashMap<String, Bytes>,
    found: OnceCell<Option<Graph>>,
    read: Box<dyn Fn() -> Option<Graph> + 'a>,
}

impl<'a> Types<'a> {
    pub(super) fn new(graph: &[Field], model: &'a Bytes, options: &'a ReadOptions<'a>) -> Self {
        let infos = [GRAPH_VALUE_INFO, GRAPH_OUTPUT, GRAPH_INPUT];
        let infos = graph.iter().filter(|field| infos.contains(&field.tag));
        let typed = infos.filter(|field| {
            let info = proto::ValueInfo::decode(field.body.clone());
            info.is_ok_and(|info| {
                let kind = info.r#type.and_then(|kind| kind.tensor_type);
                kind.is_some_and(|kind| kind.elem_type > 0 && kind.shape.is_some())
            })
        });
        Self {
            said: typed
                .map(|f| (text_in(&f.body, FIRST), f.body.clone()))
                .collect(),
            found: OnceCell::new(),
            read: Box::new(|| Some(load_part(model.to_vec(), options).ok()?.graph)),
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<Bytes> {
        if let Some(said) = self.said.get(name) {
            return Some(said.clone());
        }
        let graph = self.found.get_or_init(|| (self.read)()).as_ref()?;
        let shown = printable(name);
        let at = graph.values.iter().position(|value| value.name == shown)?;
        let open = batch::open(graph).filter(|_| graph.values[at].shape.first() == Some(&1));
        let mut info = export::value_info(graph, ValueId(at), open);
        info.name = name.to_owned();
        Some(info.encode_to_vec().into())
    }
}
