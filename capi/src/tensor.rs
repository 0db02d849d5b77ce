//! `vta_tensor`: what a network takes or gives.

use std::ffi::CString;

use vta_app::Tensor as AppTensor;
use vta_app::open::Port;
use vta_compiler::graph::Element;

use crate::error::Failure;

/// Types of elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 32-bit floats.
    F32 = 0,
    /// 8-bit integers with a sign. Of a tensor with a scale they are the device's own steps.
    I8 = 1,
    /// 8-bit integers without a sign.
    U8 = 2,
    /// 32-bit integers.
    I32 = 3,
    /// 64-bit integers.
    I64 = 4,
    /// Bytes of 0 for false, and of 1 for true.
    Bool = 5,
    /// 16-bit integers with a sign.
    I16 = 6,
    /// 16-bit integers without a sign.
    U16 = 7,
}

impl Type {
    /// What each is in a model, in the order of their numbers.
    const ELEMENTS: [Element; 8] = [
        Element::F32,
        Element::I8,
        Element::U8,
        Element::I32,
        Element::I64,
        Element::Bool,
        Element::I16,
        Element::U16,
    ];

    /// What the type of a number is in a model.
    ///
    /// # Errors
    /// No type has the number.
    pub(crate) fn element(number: i32) -> Result<Element, Failure> {
        let found = usize::try_from(number).ok();
        let found = found.and_then(|at| Self::ELEMENTS.get(at).copied());
        found.ok_or_else(|| Failure::usage(format!("`type`: {number} is no vta_type")))
    }
}

impl From<Element> for Type {
    fn from(element: Element) -> Self {
        match element {
            Element::F32 => Self::F32,
            Element::I8 => Self::I8,
            Element::U8 => Self::U8,
            Element::I32 => Self::I32,
            Element::I64 => Self::I64,
            Element::Bool => Self::Bool,
            Element::I16 => Self::I16,
            Element::U16 => Self::U16,
        }
    }
}

/// An input or output of a network. It belongs to its session, and never changes.
#[derive(Debug)]
pub struct Tensor {
    /// The model's name for it, for C.
    pub(crate) name: CString,
    /// As devices have it, and as the model has it.
    pub(crate) of_device: AppTensor,
}

impl Tensor {
    pub(crate) fn new(of_device: AppTensor) -> Self {
        Self {
            // Names are printable.
            name: CString::new(&*of_device.port.name).unwrap_or_default(),
            of_device,
        }
    }

    /// As the model has it.
    pub(crate) fn port(&self) -> &Port {
        &self.of_device.port
    }

    /// Whether devices have it, as int8.
    pub(crate) fn is_scaled(&self) -> bool {
        self.of_device.scale.is_some()
    }
}

/// The inputs of a network, or its outputs.
#[derive(Debug)]
pub struct Tensors {
    /// For messages.
    kind: &'static str,
    pub(crate) all: Vec<Tensor>,
}

impl Tensors {
    pub(crate) fn new(kind: &'static str, of_device: &[AppTensor]) -> Self {
        let all = of_device.iter().cloned().map(Tensor::new).collect();
        Self { kind, all }
    }

    /// The one of a number.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn at(&self, index: usize) -> Result<&Tensor, Failure> {
        self.all.get(index).ok_or_else(|| {
            let names = self.all.iter().enumerate();
            let names = names.map(|(at, tensor)| format!("{at} {}", tensor.port().name));
            self.none(&index.to_string(), names)
        })
    }

    /// The number of the one of a name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Failure> {
        let found = self.all.iter().position(|t| t.port().name == name);
        found.ok_or_else(|| {
            let names = self.all.iter().map(|tensor| tensor.port().name.clone());
            self.none(&format!("'{name}'"), names)
        })
    }

    fn none(&self, asked: &str, names: impl Iterator<Item = String>) -> Failure {
        let (kind, names) = (self.kind, names.collect::<Vec<_>>().join(", "));
        Failure::usage(format!("no {kind} {asked} (there is {names})"))
    }
}
