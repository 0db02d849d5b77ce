//! What reading a model may compute.

use std::collections::HashMap;

use crate::graph::{Data, Element, ValueId};

/// What any file may ask for: elements and multiply-adds, and bytes at a time. Networks that make their weights by
/// ConstantOfShape, as ONNX's own tests do, need so many: those of VGG-19 are 575 MB.
const BASE: [u64; 2] = [1 << 28, 640 << 20];
/// How much more for each element and byte of the file's constants.
const CONSTANTS: [u64; 2] = [16, 4];
/// How much more for each element and byte of the model's inputs.
const INPUTS: [u64; 2] = [64, 8];
/// The most nodes that loops become, unrolled.
const MAX_UNROLLED: usize = 1 << 13;
/// Elements of inputs that count.
const MAX_INPUTS: u64 = 1 << 22;

/// What folding constants and asking the engine for shapes may take together, so that a small file can't make its
/// reader work for long or take much memory. It grows with what the file and its inputs hold, in proportion
/// to which real models are folded.
pub(crate) struct Budget {
    limits: [u64; 2],
    inputs: u64,
    /// Elements and multiply-adds that are left.
    pub work: u64,
    /// Nodes of loops so far.
    unrolled: usize,
    /// Bytes of folded constants that something still reads.
    pub held: u64,
    /// How often each of them is still read.
    pub folded: HashMap<ValueId, usize>,
    /// Shapes that were asked for, by what they depend on.
    pub answers: HashMap<String, Vec<Vec<usize>>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            limits: BASE,
            inputs: 0,
            work: BASE[0],
            unrolled: 0,
            held: 0,
            folded: HashMap::new(),
            answers: HashMap::new(),
        }
    }
}

impl Budget {
    /// A constant that the file holds.
    pub fn add_constant(&mut self, data: &Data) {
        let [elements, size] = CONSTANTS;
        let len = data.len() as u64;
        self.grow(len * elements, len * data.element().bytes() * size);
    }

    /// An input of the model.
    pub fn add_input(&mut self, shape: &[usize], element: Element) {
        let len = count(shape).min(MAX_INPUTS - self.inputs);
        self.inputs += len;
        let [elements, size] = INPUTS;
        self.grow(len * elements, len * element.bytes() * size);
    }

    fn grow(&mut self, work: u64, bytes: u64) {
        self.work = self.work.saturating_add(work);
        let [most, most_bytes] = &mut self.limits;
        *most = most.saturating_add(work);
        *most_bytes = most_bytes.saturating_add(bytes);
    }

    /// Counts the nodes of a loop's trip.
    ///
    /// # Errors
    /// More than loops may become, in words.
    pub fn unroll(&mut self, nodes: usize) -> Result<(), String> {
        self.unrolled = self.unrolled.saturating_add(nodes.max(1));
        if self.unrolled > MAX_UNROLLED {
            return Err(format!(
                "unrolled, the model's loops have more than {MAX_UNROLLED} nodes"
            ));
        }
        Ok(())
    }

    /// Takes the work of an operator, which holds so many bytes beside the folded constants.
    ///
    /// # Errors
    /// More than is left, in words.
    pub fn spend(&mut self, work: u64, bytes: u64) -> Result<(), String> {
        let [most, most_bytes] = self.limits;
        let held = self.held.saturating_add(bytes);
        if held > most_bytes {
            return Err(format!(
                "with it, reading the model takes {held} bytes; the most for this file is {most_bytes}"
            ));
        }
        let left = self.work.checked_sub(work);
        self.work = left.ok_or_else(|| {
            format!("with it, reading the model computes more than {most} elements, the most for this file")
        })?;
        Ok(())
    }
}

/// Bytes of a tensor.
pub(crate) fn bytes(shape: &[usize], element: Element) -> u64 {
    count(shape).saturating_mul(element.bytes())
}

fn count(shape: &[usize]) -> u64 {
    shape.iter().fold(1, |n, &d| n.saturating_mul(d as u64))
}
