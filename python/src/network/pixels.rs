//! Pictures as networks take them.

use numpy::ndarray::Array4;
use numpy::{IntoPyArray, PyArray4, PyReadonlyArray4, PyUntypedArrayMethods};
use pyo3::prelude::*;
use vta_app::images::Picture;
use vta_app::open::Preprocess;
use vta_app::{Error, Tensor, Watch};

use crate::error::input;
use crate::network::compile::preset;
use crate::watch::watched;

/// The input of the only port, by a preset, or as the model says.
///
/// # Errors
/// `InputError` for arrays that are no pictures and networks that take none.
pub fn prepared<'py>(
    images: &Bound<'py, PyAny>,
    inputs: &[Tensor],
    recipe: Option<&String>,
    name: Option<&str>,
) -> PyResult<Bound<'py, PyArray4<f32>>> {
    let py = images.py();
    let chw = match inputs {
        [tensor] => <[usize; 3]>::try_from(tensor.port.image()).ok(),
        _ => None,
    };
    let chw = chw.ok_or_else(|| input("the network has no input of pictures, [C, H, W]"))?;
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("ascontiguousarray", (images,))?;
    let array: PyReadonlyArray4<'_, u8> = array.extract().map_err(|_| {
        input("pictures are an array of uint8, [images, C, H, W], of values from 0 to 255")
    })?;
    let &[count, c, h, w] = array.shape() else {
        return Err(input("pictures are an array [images, C, H, W]"));
    };
    if c * h * w == 0 {
        return Err(input("the pictures have no pixels"));
    }
    let bytes = array.as_slice()?;
    let given = name.map(preset).transpose()?.unwrap_or_default();
    let values = watched(py, None, |watch| {
        let how = Preprocess::choose(&given, recipe, watch)?;
        let mut values = Vec::new();
        for (index, picture) in bytes.chunks_exact(c * h * w).enumerate() {
            watch.waiting();
            if watch.cancelled() {
                return Err(Error::Cancelled);
            }
            let name = format!("picture {index}");
            let picture = Picture::planar(name, [c, h, w], picture.to_vec());
            values.extend(how.apply(picture, chw)?);
        }
        Ok(values)
    })?;
    let [c, h, w] = chw;
    let shaped = Array4::from_shape_vec((count, c, h, w), values);
    let shaped = shaped.map_err(|error| input(error.to_string()))?;
    Ok(shaped.into_pyarray(py))
}
