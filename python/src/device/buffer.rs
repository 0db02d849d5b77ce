//! `Buffer`: bytes of a device's memory.

use std::sync::Arc;

use numpy::{
    IntoPyArray, PyArray1, PyArrayDescr, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyTuple};
use vta_driver::PhysAddr;
use vta_isa::{Config, MemType};

use crate::arrays::untyped;
use crate::device::opened::{Open, Opened};
use crate::error::{input, usage};
use crate::given::{kind, sizes, text, whole};

/// Bytes of a device's memory: what `Device.alloc` gives. They are freed with it.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Buffer {
    /// Whose it is.
    pub owner: Arc<Opened>,
    /// Its number on the device.
    pub id: u64,
    /// The first byte in the device's memory, a multiple of the size of every element.
    #[pyo3(get)]
    pub address: u32,
    /// Its size in bytes.
    #[pyo3(get)]
    pub nbytes: u64,
}

#[pymethods]
impl Buffer {
    /// The number of its first element of a memory type, `"uop"`, `"wgt"`, `"inp"`, `"acc"`, `"out"` or
    /// `"acc8"`, as `dram_base` has it; that of the element at byte `offset`, which must begin one.
    #[pyo3(signature = (mem, offset = None), text_signature = "($self, mem, offset=0)")]
    fn element(&self, mem: &Bound<'_, PyAny>, offset: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let mem = text("mem", mem)?;
        let known = MemType::ALL.into_iter().find(|m| m.name() == mem);
        let known = known.ok_or_else(|| {
            let all = MemType::NAMES.join(", ");
            usage(format!("no memory type '{mem}' (there are {all})"))
        })?;
        let size = self.owner.config.elem_bytes(known) as u64;
        let (addr, offset) = self.range(offset, 0)?;
        let at = u64::from(addr.0);
        if !at.is_multiple_of(size) {
            return Err(input(format!(
                "byte {offset} doesn't begin an element of {mem}, which has {size} bytes"
            )));
        }
        Ok(at / size)
    }

    fn __repr__(&self) -> String {
        let (address, nbytes) = (self.address, self.nbytes);
        format!("Buffer(address={address:#x}, nbytes={nbytes})")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // It may be freed already, or its device closed.
        let _ = self.owner.with(|open| Ok(open.buffers.remove(&self.id)));
    }
}

impl Buffer {
    /// The address of a part of it, from an offset that is 0 by default; and that offset.
    ///
    /// # Errors
    /// `InputError` for one that leaves it.
    pub fn range(&self, offset: Option<&Bound<'_, PyAny>>, size: u64) -> PyResult<(PhysAddr, u64)> {
        let offset = offset.map_or(Ok(0), |offset| whole("offset", offset, input))?;
        let nbytes = self.nbytes;
        if offset.saturating_add(size) > nbytes {
            return Err(input(format!(
                "{size} bytes at offset {offset} of a buffer of {nbytes}"
            )));
        }
        // The end of the last buffer of all may be that of the memory.
        let at = u64::from(self.address) + offset;
        let beyond = |_| input(format!("byte {at} is beyond the device's memory"));
        Ok((PhysAddr(u32::try_from(at).map_err(beyond)?), offset))
    }

    /// Whether it is a device's, and not freed.
    ///
    /// # Errors
    /// `UsageError` when it isn't.
    pub fn check(&self, owner: &Arc<Opened>, open: &Open) -> PyResult<()> {
        if !Arc::ptr_eq(&self.owner, owner) {
            let (mine, theirs) = (&owner.name, &self.owner.name);
            return Err(usage(format!(
                "a buffer of another device ({theirs}), not of this one ({mine})"
            )));
        }
        if !open.buffers.contains_key(&self.id) {
            return Err(usage(format!("{} is freed", self.__repr__())));
        }
        Ok(())
    }
}

/// The bytes of an array of a machine's elements, in C order: of 8 or 32 bits, or of a width that it has.
///
/// # Errors
/// `TypeError` for what has no type of elements, as a list, `InputError` for another type.
pub fn flat(value: &Bound<'_, PyAny>, config: &Config) -> PyResult<Vec<u8>> {
    let numpy = value.py().import("numpy")?;
    let is_bytes = value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>();
    let is_array = is_bytes || value.hasattr("__array__")? || PyMemoryView::from(value).is_ok();
    if !is_array {
        let kind = kind(value);
        return Err(PyTypeError::new_err(format!(
            "a {kind} has no type of elements: write an array, as np.array(.., np.int8)"
        )));
    }
    let array = if is_bytes {
        numpy.call_method1("frombuffer", (value, "uint8"))?
    } else {
        numpy.call_method1("ascontiguousarray", (untyped(value)?,))?
    };
    let dtype = array.cast::<PyUntypedArray>()?.dtype();
    let has = |bytes: &usize| {
        [1, 4].contains(bytes)
            || MemType::ALL
                .iter()
                .any(|&mem| config.width(mem) == 8 * bytes)
    };
    let sizes: Vec<usize> = [1, 2, 4].into_iter().filter(has).collect();
    let is_element = matches!(dtype.kind(), b'i' | b'u') && sizes.contains(&dtype.itemsize());
    if !is_element || dtype.byteorder() == b'>' {
        return Err(input(format!(
            "{dtype} is no type of a device's elements, which are whole numbers of {} bits: \
             convert the array, or write its bytes, array.view(np.uint8)",
            sizes
                .iter()
                .map(|size| (8 * size).to_string())
                .collect::<Vec<_>>()
                .join(" or ")
        )));
    }
    let line = array.call_method1("reshape", (-1,))?;
    let line = line.call_method1("view", ("uint8",))?;
    Ok(line.cast_into::<PyArray1<u8>>()?.to_vec()?)
}

/// An array's shape and type, for reading it from a device's memory.
pub struct ArrayForm {
    shape: Vec<u64>,
    item_bytes: u64,
    dtype: Py<PyArrayDescr>,
}

impl ArrayForm {
    /// Of what `numpy` makes arrays of.
    ///
    /// # Errors
    /// `TypeError` for what is neither shape nor type, `InputError` for sizes below 0 and for types whose
    /// values aren't the bytes that they lie in.
    pub fn of(shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dtype = PyArrayDescr::new(shape.py(), dtype)?;
        if dtype.has_object() || dtype.itemsize() == 0 {
            return Err(input(format!("{dtype} has no bytes")));
        }
        Ok(Self {
            shape: sizes("shape", shape, input)?,
            item_bytes: dtype.itemsize() as u64,
            dtype: dtype.unbind(),
        })
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> u64 {
        let sizes = self.shape.iter().copied();
        sizes.fold(self.item_bytes, u64::saturating_mul)
    }

    /// The array of its bytes.
    ///
    /// # Errors
    /// None for as many as [`Self::size_bytes`].
    pub fn array<'py>(&self, py: Python<'py>, bytes: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        let array = bytes
            .into_pyarray(py)
            .call_method1("view", (&self.dtype,))?;
        array.call_method1("reshape", (PyTuple::new(py, &self.shape)?,))
    }
}
