//! What the nodes of a network say of themselves, in the form that listings, JSON, bundles and
//! errors share. Compilers write it; a layer of a program has it for the nodes that it computes.

use std::borrow::Cow;
use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, from_value};

use vta_files::printable;

/// The value of an attribute. JSON has it bare; an [`Attribute`] has its kind beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// A truth.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A real number.
    Float(f64),
    /// A list of texts.
    Texts(Vec<String>),
}

impl AttributeValue {
    /// The type's name: `flag`, `int`, `ints`, `float` or `texts`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Int(_) => "int",
            Self::Ints(_) => "ints",
            Self::Float(_) => "float",
            Self::Texts(_) => "texts",
        }
    }

    /// Sizes as a list of whole numbers.
    pub fn ints(values: &[usize]) -> Self {
        Self::Ints(values.iter().map(|&v| v as i64).collect())
    }

    /// What is written of each of a list.
    pub fn texts(values: &[impl fmt::Display]) -> Self {
        Self::Texts(values.iter().map(ToString::to_string).collect())
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Ints(values) => write!(f, "{values:?}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Texts(texts) => write!(f, "{{{}}}", texts.join("; ")),
        }
    }
}

/// What a node is told beside its tensors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Attribute {
    /// The name, unique in its node.
    pub name: Cow<'static, str>,
    /// The value; in JSON `kind`, as [`AttributeValue::kind`] names it, and `value`.
    pub value: AttributeValue,
    /// What it means, with units.
    pub meaning: Cow<'static, str>,
}

/// An attribute as JSON has it. Not by serde's `flatten`, which keeps all fields aside before it reads one: bundles have
/// thousands of attributes.
#[derive(Deserialize)]
struct Written {
    name: String,
    kind: Kind,
    /// Not `untagged`, which makes the text of an error for every kind that it isn't.
    value: Value,
    meaning: String,
}

/// As [`AttributeValue::kind`].
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Flag,
    Int,
    Ints,
    Float,
    Texts,
}

impl TryFrom<Written> for Attribute {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { kind, value, .. } = written;
        let value = match kind {
            Kind::Flag => from_value(value).map(AttributeValue::Flag),
            Kind::Int => from_value(value).map(AttributeValue::Int),
            Kind::Ints => from_value(value).map(AttributeValue::Ints),
            Kind::Float => from_value(value).map(AttributeValue::Float),
            Kind::Texts => from_value(value).map(AttributeValue::Texts),
        };
        let name = &written.name;
        let value = value.map_err(|e| format!("attribute '{}': {e}", printable(name)))?;
        Ok(Self {
            name: written.name.into(),
            value,
            meaning: written.meaning.into(),
        })
    }
}

impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Attribute", 4)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("kind", self.value.kind())?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("meaning", &self.meaning)?;
        fields.end()
    }
}

impl Attribute {
    /// An attribute of a compiler.
    pub const fn new(name: &'static str, value: AttributeValue, meaning: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            value,
            meaning: Cow::Borrowed(meaning),
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

/// A tensor beside a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// The model's name for it.
    pub name: String,
    /// Dimensions: channels, rows and columns; with the batch in front in an imported graph.
    pub shape: Vec<usize>,
}

impl fmt::Display for TensorInfo {
    /// The shape, as in `16x32x32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        f.write_str(&sizes.join("x"))
    }
}

/// A node with all that it says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The model's name.
    pub name: String,
    /// What it is.
    pub kind: Cow<'static, str>,
    /// In a fixed order.
    pub attributes: Vec<Attribute>,
    /// What it reads; in an imported graph constants are among it.
    pub inputs: Vec<TensorInfo>,
    /// What it writes.
    pub output: TensorInfo,
}

impl fmt::Display for NodeInfo {
    /// Kind and shapes, as in `conv 3x32x32 to 16x32x32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} {} to {}",
            self.kind,
            inputs.join(" and "),
            self.output
        )
    }
}

impl NodeInfo {
    /// Makes foreign texts fit to be shown, as [`printable`] does.
    pub(crate) fn escape(&mut self) {
        escape(&mut self.name);
        escape(&mut self.kind);
        for tensor in self.inputs.iter_mut().chain([&mut self.output]) {
            escape(&mut tensor.name);
        }
        for attribute in &mut self.attributes {
            escape(&mut attribute.name);
            escape(&mut attribute.meaning);
            match &mut attribute.value {
                AttributeValue::Texts(texts) => texts.iter_mut().for_each(escape),
                AttributeValue::Flag(_)
                | AttributeValue::Int(_)
                | AttributeValue::Ints(_)
                | AttributeValue::Float(_) => {}
            }
        }
    }
}

/// Makes a foreign text fit to be shown.
pub(crate) fn escape<T: AsRef<str> + From<String>>(text: &mut T) {
    if let Cow::Owned(shown) = printable(text.as_ref()) {
        *text = shown.into();
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, AttributeValue};

    /// What bundles hold, and have held.
    #[test]
    fn attributes_are_written_as_ever_and_read_in_any_order() {
        let texts = AttributeValue::Texts;
        for (value, kind, json) in [
            (AttributeValue::Flag(true), "flag", "true"),
            (AttributeValue::Int(i64::MIN), "int", "-9223372036854775808"),
            (AttributeValue::Ints(vec![1, -2]), "ints", "[1,-2]"),
            (AttributeValue::Ints(vec![]), "ints", "[]"),
            (AttributeValue::Float(1.0), "float", "1.0"),
            (texts(vec!["a".to_owned()]), "texts", r#"["a"]"#),
            (texts(vec![]), "texts", "[]"),
        ] {
            let attribute = Attribute::new("n", value, "m");
            let written = format!(r#"{{"name":"n","kind":"{kind}","value":{json},"meaning":"m"}}"#);
            assert_eq!(serde_json::to_string(&attribute).unwrap(), written);
            let turned = format!(r#"{{"value":{json},"meaning":"m","kind":"{kind}","name":"n"}}"#);
            for text in [written, turned] {
                let read: Attribute = serde_json::from_str(&text).unwrap();
                assert_eq!(read, attribute, "{text}");
            }
        }
    }

    #[test]
    fn a_value_is_of_the_kind_that_is_beside_it() {
        let read = |kind: &str, value: &str| {
            let text = format!(r#"{{"name":"n","kind":"{kind}","value":{value},"meaning":"m"}}"#);
            serde_json::from_str::<Attribute>(&text).map(|attribute| attribute.value)
        };
        assert_eq!(read("float", "2").unwrap(), AttributeValue::Float(2.0));
        for (kind, value) in [
            ("flag", "1"),
            ("int", "1.5"),
            ("int", "18446744073709551615"),
            ("ints", "1"),
            ("ints", r#"["a"]"#),
            ("texts", "[1]"),
            ("float", "null"),
            ("text", r#""a""#),
        ] {
            assert!(read(kind, value).is_err(), "{kind} {value}");
        }
    }
}
