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
}

impl Type {
    /// That of a number.
    pub fn of(number: i32) -> Option<Self> {
        let all = [
            Self::F32,
            Self::I8,
            Self::U8,
            Self::I32,
            Self::I64,
            Self::Bool,
        ];
        all.into_iter().find(|t| *t as i32 == number)
    }

    /// numpy's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => Element::F32.name(),
            Self::I8 => Element::I8.name(),
            Self::U8 => Element::U8.name(),
            Self::I32 => Element::I32.name(),
            Self::I64 => Element::I64.name(),
            Self::Bool => Element::Bool.name(),
        }
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
        }
    }
}

/// An input or output of a network. It belongs to its session, and never changes.
#[derive(Debug)]
pub struct Tensor {
    /// The model's name for it, for C.
    pub(crate) name: CString,
    /// As the model has it.
    pub(crate) port: Port,
    /// As devices have it.
    pub(crate) of_device: AppTensor,
}

impl Tensor {
    pub(crate) fn new((port, of_device): (Port, AppTensor)) -> Self {
        Self {
            // Names are printable.
            name: CString::new(&*port.name).unwrap_or_default(),
            port,
            of_device,
        }
    }

    /// The number of the one of a name; `kind` is for messages.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(kind: &str, tensors: &[Self], name: &str) -> Result<usize, Failure> {
        let found = tensors.iter().position(|t| t.port.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = tensors.iter().map(|t| &*t.port.name).collect();
            let names = names.join(", ");
            Failure::usage(format!("no {kind} '{name}' (there is {names})"))
        })
    }

    /// The type of the model.
    pub(crate) fn kind(&self) -> Type {
        self.port.element.into()
    }

    /// Whether devices have it, as int8.
    pub(crate) fn is_scaled(&self) -> bool {
        self.of_device.scale.is_some()
    }
}
