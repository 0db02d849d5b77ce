//! Between numpy's arrays and the values of inputs and outputs.

use std::borrow::Cow;

use numpy::ndarray::{ArrayD, IxDyn};
use numpy::{
    Element as Numpy, IntoPyArray, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods,
    PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use vta_app::open::Port;
use vta_app::{Feed, Output, Tensor, Values};
use vta_compiler::graph::Element;
use vta_compiler::qgraph::Numbers;

use crate::error::input;
use crate::given::{kind, text};

/// What callers give and take of tensors that devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Values in the model's own unit and type.
    Model,
    /// Steps of the tensor's scale, int8 or int16, as the device has them; of other tensors the model's.
    Steps,
}

/// An input's array, borrowed from Python where it lies as Rust reads it.
pub enum Array<'py> {
    Real(PyReadonlyArrayDyn<'py, f32>),
    /// As devices have them: uint8 is 128 less.
    Steps(Vec<i16>),
    Whole(PyReadonlyArrayDyn<'py, i64>),
}

/// An array for an input.
pub struct Taken<'py> {
    pub array: Array<'py>,
    /// Whether it has a dimension for them that the model hasn't.
    pub batched: bool,
}

impl<'py> Taken<'py> {
    /// Takes an array for an input, which is copied only if it isn't contiguous or of another width.
    ///
    /// # Errors
    /// `InputError` for another type or shape than the input's, and what isn't an array.
    pub fn of(value: &Bound<'py, PyAny>, tensor: &Tensor, unit: Unit) -> PyResult<Self> {
        let (given, port) = (untyped(value)?, &tensor.port);
        // What no number can be made of.
        if matches!(given.dtype().kind(), b'O' | b'S' | b'U') {
            let (name, takes, kind) = (&port.name, port.element.name(), kind(value));
            return Err(input(format!("input '{name}' takes {takes}, not {kind}")));
        }
        let batched = is_batched(given.shape(), port)?;
        let array = array(&given, tensor, unit)?;
        Ok(Self { array, batched })
    }

    /// The values for a run.
    ///
    /// # Errors
    /// None for what [`Taken::of`] made.
    pub fn values(&self) -> PyResult<Values<'_>> {
        let lost = |_| input("the array isn't contiguous");
        Ok(match &self.array {
            Array::Real(array) => Values::Real(Cow::Borrowed(array.as_slice().map_err(lost)?)),
            Array::Steps(values) => Values::Steps(Cow::Borrowed(values)),
            Array::Whole(array) => Values::Whole(Cow::Borrowed(array.as_slice().map_err(lost)?)),
        })
    }
}

/// An array, of whatever numpy makes one of. Tensors of PyTorch's leave their graph and their device.
pub fn untyped<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let batches = value.py().import("pyvta._batches")?;
    Ok(batches.call_method1("array_of", (value,))?.cast_into()?)
}

/// The arrays of a mapping by the names that devices know, or the array of the only input.
///
/// # Errors
/// As for [`Taken::of`], a name that no input has, `TypeError` for what is no mapping where there are
/// several inputs.
pub fn take<'py>(
    feed: &Bound<'py, PyAny>,
    tensors: &[Tensor],
    unit: Unit,
) -> PyResult<Vec<(String, Taken<'py>)>> {
    let Ok(feed) = feed.cast::<PyMapping>() else {
        let [tensor] = tensors else {
            return Err(no_dict(tensors));
        };
        return Ok(vec![(tensor.name.clone(), Taken::of(feed, tensor, unit)?)]);
    };
    let mut taken = Vec::with_capacity(tensors.len());
    for pair in feed.items()?.iter() {
        let (name, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
        let name = text("an input's name", &name)?;
        let tensor = tensors.iter().find(|tensor| tensor.port.name == name);
        let missing = || input(format!("no input '{name}' (there is {})", list(tensors)));
        let tensor = tensor.ok_or_else(missing)?;
        taken.push((tensor.name.clone(), Taken::of(&value, tensor, unit)?));
    }
    Ok(taken)
}

/// What has no arrays by name.
pub fn no_dict(tensors: &[Tensor]) -> PyErr {
    let names = list(tensors);
    PyTypeError::new_err(format!("inputs are a dict: {{name: array}} of {names}"))
}

/// The values of arrays for a run.
///
/// # Errors
/// As for [`Taken::values`].
pub fn feeds<'a>(taken: &'a [(String, Taken<'_>)]) -> PyResult<Vec<Feed<'a>>> {
    let feed = |(name, taken): &'a (String, Taken<'_>)| {
        let values = taken.values()?;
        Ok(Feed { name, values })
    };
    taken.iter().map(feed).collect()
}

/// Names for messages.
pub fn list(tensors: &[Tensor]) -> String {
    let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.port.name).collect();
    names.join(", ")
}

/// Whether an array has a dimension for images that the model hasn't.
fn is_batched(shape: &[usize], port: &Port) -> PyResult<bool> {
    let image = port.image();
    let has_batch = image.len() < port.shape.len();
    match shape {
        _ if shape == image && !has_batch => Ok(false),
        [_, rest @ ..] if rest == image => Ok(!has_batch),
        _ => Err(input(format!(
            "input '{}': an array of shape {shape:?}; the shape is {}",
            port.name,
            shape_text(port)
        ))),
    }
}

/// A port's shape as messages have it.
fn shape_text(port: &Port) -> String {
    let image = port.image();
    let sizes: Vec<String> = image.iter().map(usize::to_string).collect();
    let rest = sizes.join(", ");
    match (image.len() == port.shape.len(), rest.is_empty()) {
        (true, _) => format!("[{rest}]"),
        (false, true) => "[batch]".to_owned(),
        (false, false) => format!("[batch, {rest}]"),
    }
}

fn array<'py>(
    value: &Bound<'py, PyUntypedArray>,
    tensor: &Tensor,
    unit: Unit,
) -> PyResult<Array<'py>> {
    let port = &tensor.port;
    let kind = value.dtype().kind();
    let is_int8 = value.cast::<PyArrayDyn<i8>>().is_ok();
    let are_steps = match tensor.numbers {
        Numbers::Int8 => is_int8,
        Numbers::Int16 => value.cast::<PyArrayDyn<i16>>().is_ok(),
    };
    let is_uint8 = value.cast::<PyArrayDyn<u8>>().is_ok();
    let steps = tensor.scale.is_some();
    match port.element {
        Element::F32 if steps && unit == Unit::Steps && are_steps => {
            let values = borrow::<i16>(value)?;
            Ok(Array::Steps(values.as_array().iter().copied().collect()))
        }
        Element::F32 if kind == b'f' => Ok(Array::Real(borrow(value)?)),
        Element::I8 if is_int8 => {
            let values = borrow::<i16>(value)?;
            Ok(Array::Steps(values.as_array().iter().copied().collect()))
        }
        Element::U8 if is_uint8 && steps => {
            let values = borrow::<u8>(value)?;
            let values = values.as_array();
            let steps = values.iter().map(|&v| i16::from(v) - 128);
            Ok(Array::Steps(steps.collect()))
        }
        Element::U8 if is_uint8 => Ok(Array::Whole(borrow(value)?)),
        Element::I16 | Element::U16 | Element::I32 | Element::I64 | Element::Bool
            if matches!(kind, b'i' | b'u' | b'b') =>
        {
            Ok(Array::Whole(borrow(value)?))
        }
        takes => Err(input(format!(
            "input '{}' takes {}, not {}",
            port.name,
            takes.name(),
            value.dtype()
        ))),
    }
}

/// The array as it is, if its elements are of this type and lie one behind the other; a copy that is so, if not.
fn borrow<'py, T: Numpy>(
    value: &Bound<'py, PyUntypedArray>,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let busy = |error| input(format!("an array can't be read: {error}"));
    if let Ok(array) = value.cast::<PyArrayDyn<T>>()
        && array.is_c_contiguous()
    {
        let array = array.try_readonly().map_err(busy)?;
        // It must be aligned, too.
        if array.as_slice().is_ok() {
            return Ok(array);
        }
    }
    let py = value.py();
    let how = PyDict::new(py);
    how.set_item("dtype", T::get_dtype(py))?;
    how.set_item("order", "C")?;
    let copy = py
        .import("numpy")?
        .call_method("array", (value,), Some(&how))?;
    copy.cast::<PyArrayDyn<T>>()?.try_readonly().map_err(busy)
}

/// Makes an array of a shape, without a copy of its values.
pub type Made =
    Box<dyn for<'py> FnOnce(Python<'py>, &[usize]) -> PyResult<Bound<'py, PyAny>> + Send>;

/// An output in a unit, in the type that Python gets. It is made while others have Python.
pub fn made(output: Output, unit: Unit) -> Made {
    let steps = unit == Unit::Steps;
    match (output.tensor.port.element, output.values) {
        (element, Values::Steps(values))
            if steps || matches!(element, Element::I8 | Element::I16) =>
        {
            match output.tensor.numbers {
                Numbers::Int8 => of(&values, |v| v as i8),
                Numbers::Int16 => of_values(values.into_owned()),
            }
        }
        (Element::U8, Values::Steps(values)) => of(&values, |v| v as u8 ^ 0x80),
        (Element::U16, Values::Steps(values)) => of(&values, |v| v as u16 ^ 0x8000),
        (Element::I8, Values::Whole(values)) => of(&values, |v| v as i8),
        (Element::U8, Values::Whole(values)) => of(&values, |v| v as u8),
        (Element::I16, Values::Whole(values)) => of(&values, |v| v as i16),
        (Element::U16, Values::Whole(values)) => of(&values, |v| v as u16),
        (Element::I32, Values::Whole(values)) => of(&values, |v| v as i32),
        (Element::Bool, Values::Whole(values)) => of(&values, |v| v != 0),
        (_, Values::Whole(values)) => of_values(values.into_owned()),
        (_, Values::Real(values)) => of_values(values.into_owned()),
        (_, values @ Values::Steps(_)) => of_values(Output { values, ..output }.real()),
    }
}

fn of<V: Copy, T: Numpy + 'static>(values: &[V], value: impl Fn(V) -> T) -> Made {
    of_values(values.iter().map(|v| value(*v)).collect())
}

fn of_values<T: Numpy + 'static>(values: Vec<T>) -> Made {
    Box::new(move |py, shape| {
        let array = ArrayD::from_shape_vec(IxDyn(shape), values);
        let array = array.map_err(|error| input(format!("an output has another size: {error}")))?;
        Ok(array.into_pyarray(py).into_any())
    })
}
