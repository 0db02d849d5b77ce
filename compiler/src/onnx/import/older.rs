//! Operators of older operator sets in the form of opset 13.

use super::state::Arguments;
use crate::graph::{Data, OnnxAttribute};
use crate::operators::operator::WindowKind;

/// Attributes that became inputs: operator, attribute, input, first opset that has the input.
const MOVED: [(&str, &str, usize, i64); 13] = [
    ("Clip", "max", 2, 11),
    ("Clip", "min", 1, 11),
    ("DFT", "axis", 2, 20),
    ("Pad", "pads", 1, 11),
    ("Pad", "value", 2, 11),
    ("ReduceSum", "axes", 1, 13),
    ("Slice", "axes", 3, 10),
    ("Slice", "ends", 2, 10),
    ("Slice", "starts", 1, 10),
    ("Split", "split", 1, 13),
    ("Squeeze", "axes", 1, 13),
    ("TopK", "k", 1, 10),
    ("Unsqueeze", "axes", 1, 13),
];

/// An operator that is being brought up to date.
pub(super) struct Older<'n> {
    pub kind: &'n str,
    pub attributes: Vec<(String, OnnxAttribute)>,
    /// Inputs that its attributes become: which, a name's ending, shape, data.
    pub constants: Vec<(usize, &'static str, Vec<usize>, Data)>,
}

impl Older<'_> {
    /// Brings it to opset 13, or leaves it where that is older; `ranks` are those of its first two arguments.
    ///
    /// # Errors
    /// Attributes that can't be moved, in words, and what opset 6 has in another way than opset 7.
    pub(super) fn renew(
        &mut self,
        opset: i64,
        ranks: [usize; 2],
        arguments: &mut Arguments,
    ) -> Result<(), String> {
        if opset < 7 {
            self.check_opset_6(ranks)?;
            // What was checked means nothing later.
            let gone = match self.kind {
                "BatchNormalization" | "Dropout" => &["is_test", "consumed_inputs"][..],
                "Add" | "Sub" | "Mul" | "Div" | "Pow" | "And" | "Or" | "Xor" | "Equal" | "Less"
                | "Greater" => &["broadcast", "axis", "consumed_inputs"],
                "Gemm" => &["broadcast"],
                _ => &["consumed_inputs"],
            };
            self.attributes
                .retain(|(name, _)| !gone.contains(&&name[..]));
        }
        // Before opset 9 each position could have a mean of its own.
        if self.kind == "BatchNormalization" && opset < 9 {
            match self.remove("spatial") {
                None | Some(OnnxAttribute::Int(1)) => {}
                Some(_) => return Err("each position has a mean of its own".to_owned()),
            }
        }
        // Its input has another default.
        let is_given = self.attributes.iter().any(|(name, _)| name == "axis");
        if self.kind == "DFT" && opset < 20 && !is_given {
            self.attributes
                .push(("axis".to_owned(), OnnxAttribute::Int(1)));
        }
        for (kind, name, argument, since) in MOVED {
            let absent = arguments.get(argument).copied().flatten().is_none();
            if kind == self.kind && (opset < since || absent) {
                self.take(name, argument)?;
            }
        }
        match self.kind {
            "Softmax" | "LogSoftmax" if opset < 13 => self.softmax(opset, ranks[0])?,
            // It became Resize.
            "Upsample" => self.upsample(arguments)?,
            // Inputs are x and scales.
            "Resize" if opset < 11 => {
                arguments.insert(1.min(arguments.len()), None);
                self.nearest();
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the sizes of a window over `space` dimensions out that depend on their number, since
    /// the engine wants them.
    pub(super) fn windows(&mut self, kind: WindowKind, space: usize) {
        let same = self.attributes.iter().any(|(name, _)| name == "auto_pad");
        let wanted = match kind {
            WindowKind::Global => &[][..],
            WindowKind::Pool => &[("strides", 1), ("pads", 0)],
            WindowKind::Conv | WindowKind::ConvTranspose => {
                &[("strides", 1), ("dilations", 1), ("pads", 0)]
            }
        };
        for &(name, value) in wanted {
            let given = self.attributes.iter().any(|(n, _)| n == name);
            let count = if name == "pads" { 2 * space } else { space };
            let left_out = given || (same && name == "pads");
            if !left_out {
                let sizes = OnnxAttribute::Ints(vec![value; count]);
                self.attributes.push((name.to_owned(), sizes));
            }
        }
    }

    /// Checks that an operator of opset 6 means what it does in opset 7.
    ///
    /// # Errors
    /// An operand that isn't aligned at the last dimension, and operators that train.
    fn check_opset_6(&self, ranks: [usize; 2]) -> Result<(), String> {
        let int = |name: &str, default: i64| {
            let found = self.attributes.iter().find(|(n, _)| n == name);
            match found {
                Some((_, OnnxAttribute::Int(value))) => *value,
                _ => default,
            }
        };
        match self.kind {
            "BatchNormalization" | "Dropout" if int("is_test", 0) == 0 => {
                Err("it is in training mode, is_test is 0".to_owned())
            }
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "And" | "Or" | "Xor" | "Equal" | "Less"
            | "Greater" => {
                let last = ranks[0] as i64 - ranks[1] as i64;
                match int("axis", last) {
                    axis if axis == last => Ok(()),
                    axis => Err(format!(
                        "before opset 7 its second operand lies at axis {axis}, not at the last ones"
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    fn remove(&mut self, name: &str) -> Option<OnnxAttribute> {
        let at = self.attributes.iter().position(|(n, _)| n == name)?;
        Some(self.attributes.remove(at).1)
    }

    fn take(&mut self, name: &'static str, argument: usize) -> Result<(), String> {
        let (shape, data) = match self.remove(name) {
            None => return Ok(()),
            Some(OnnxAttribute::Ints(v)) => (vec![v.len()], Data::I64(v)),
            Some(OnnxAttribute::Int(v)) => (vec![1], Data::I64(vec![v])),
            Some(OnnxAttribute::Float(v)) => (vec![], Data::F32(vec![v])),
            Some(OnnxAttribute::Floats(v)) => (vec![v.len()], Data::F32(v)),
            Some(_) => return Err(format!("{name} is of another kind")),
        };
        self.constants.push((argument, name, shape, data));
        Ok(())
    }

    /// Softmax took all dimensions from its axis on together.
    fn softmax(&mut self, opset: i64, rank: usize) -> Result<(), String> {
        let axis = match self.remove("axis") {
            Some(OnnxAttribute::Int(axis)) if axis < 0 => axis + rank as i64,
            Some(OnnxAttribute::Int(axis)) => axis,
            _ => 1,
        };
        if axis + 1 != rank as i64 {
            return Err(format!(
                "opset {opset} takes all dimensions from {axis} on together; only opset 13 and later \
                 is supported here"
            ));
        }
        let last = OnnxAttribute::Int(-1);
        self.attributes.push(("axis".to_owned(), last));
        Ok(())
    }

    fn upsample(&mut self, arguments: &mut Arguments) -> Result<(), String> {
        self.take("scales", 2)?;
        if let [x, scales] = arguments[..] {
            *arguments = vec![x, None, scales];
        }
        self.nearest();
        Ok(())
    }

    /// Where values came from before attributes said it.
    fn nearest(&mut self) {
        for (name, value) in [
            ("coordinate_transformation_mode", "asymmetric"),
            ("nearest_mode", "floor"),
        ] {
            let value = OnnxAttribute::Text(value.to_owned());
            self.attributes.push((name.to_owned(), value));
        }
    }
}
