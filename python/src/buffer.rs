//! `Buffer`: bytes of a device's memory.

use std::sync::Arc;

use pyo3::prelude::*;
use vta_driver::PhysAddr;
use vta_isa::MemType;

use crate::error::{input, usage};
use crate::opened::{Open, Opened, count};

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Buffer>()
}

/// Bytes of a device's memory: what `Device.alloc` gives.
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
    #[pyo3(signature = (mem, offset = 0))]
    fn element(&self, mem: &str, offset: i64) -> PyResult<u64> {
        let known = MemType::ALL.into_iter().find(|m| m.name() == mem);
        let known = known.ok_or_else(|| {
            let all = MemType::NAMES.join(", ");
            usage(format!("no memory type '{mem}' (there are {all})"))
        })?;
        let size = self.owner.config.elem_bytes(known) as u64;
        let offset = count(offset, "offset")?;
        let at = u64::from(self.range(offset, 0)?.0);
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

impl Buffer {
    /// The address of a part of it.
    ///
    /// # Errors
    /// `InputError` for one that leaves it.
    pub fn range(&self, offset: u64, size: u64) -> PyResult<PhysAddr> {
        let nbytes = self.nbytes;
        if offset.saturating_add(size) > nbytes {
            return Err(input(format!(
                "{size} bytes at offset {offset} of a buffer of {nbytes}"
            )));
        }
        // The end of the last buffer of all may be that of the memory.
        let at = u64::from(self.address) + offset;
        let beyond = |_| input(format!("byte {at} is beyond the device's memory"));
        Ok(PhysAddr(u32::try_from(at).map_err(beyond)?))
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
        match open.buffers.contains_key(&self.id) {
            true => Ok(()),
            false => Err(usage(format!("{} is freed", self.__repr__()))),
        }
    }
}
