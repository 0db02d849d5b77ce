//! What an operator that is computed here is given.

use crate::engine::Lent;
use crate::graph::Data;
use crate::onnx::proto;

/// A node and what it reads.
pub(crate) struct Asked<'t> {
    pub node: &'t proto::Node,
    /// As many values as their shapes say.
    pub inputs: Vec<Option<Lent<'t>>>,
}

impl<'t> Asked<'t> {
    pub fn input(&self, argument: usize) -> Option<Lent<'t>> {
        self.inputs.get(argument).copied().flatten()
    }

    pub fn required(&self, argument: usize) -> Result<Lent<'t>, String> {
        let input = self.input(argument);
        input.ok_or_else(|| format!("its input {argument} is missing"))
    }

    /// The floats of an argument.
    pub fn floats(&self, argument: usize) -> Result<Option<&'t [f32]>, String> {
        match self.input(argument).map(|lent| lent.data) {
            None => Ok(None),
            Some(Data::F32(floats)) => Ok(Some(floats)),
            Some(data) => Err(format!("its input {argument} is {:?}", data.element())),
        }
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.node.find(name).map_or(default, |a| a.i)
    }

    pub fn text(&self, name: &str, default: &'static str) -> String {
        let text = self.node.find(name).map(|a| String::from_utf8_lossy(&a.s));
        text.map_or(default.to_owned(), |text| text.into_owned())
    }
}
