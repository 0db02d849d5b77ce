//! Col2Im as a transposed convolution, each weight of which is 1 for one tap and 0 for the others: sums of floats with
//! zeros among them are the same.

use super::super::order::node_error;
use super::super::state::{Arguments, Import};
use super::{Parts, attribute, int, ints};
use crate::graph::Data;
use crate::onnx::proto::{ATTRIBUTE_INTS, Attribute, Node};
use crate::onnx::{OnnxError, elements};

/// The most that a size, a step or a pad may be.
const MAX_SIZE: i64 = 65535;

/// What a Col2Im says of one dimension of its image.
struct Along {
    kernel: i64,
    stride: i64,
    dilation: i64,
    pads: [i64; 2],
    /// Places of the window.
    count: i64,
    /// Entries behind those that any place reaches.
    more: i64,
}

impl Along {
    /// `None` for a window that doesn't fit.
    fn new(image: i64, [kernel, stride, dilation]: [i64; 3], pads: [i64; 2]) -> Option<Self> {
        let is_size = |v: &i64| (1..=MAX_SIZE).contains(v);
        if ![image, kernel, stride, dilation].iter().all(is_size)
            || pads.iter().any(|p| !(0..=MAX_SIZE).contains(p))
        {
            return None;
        }
        let room = image + pads[0] + pads[1] - dilation * (kernel - 1) - 1;
        (room >= 0).then_some(Self {
            kernel,
            stride,
            dilation,
            pads,
            count: room / stride + 1,
            more: room % stride,
        })
    }
}

impl Import<'_> {
    /// What stands for a Col2Im whose image and blocks are constants, its weights among the values.
    ///
    /// # Errors
    /// Sizes that don't fit each other, and others than constant ones.
    pub(super) fn columns(
        &mut self,
        parts: &mut Parts<'_>,
        arguments: &Arguments,
    ) -> Result<Option<()>, OnnxError> {
        let node = parts.node;
        let fail = |text: String| node_error(node, text);
        let given = |at: usize| arguments.get(at).copied().flatten();
        let list = |at: usize, name: &str| {
            let data = given(at).and_then(|id| self.graph.values[id.0].data.as_ref());
            let list = data.and_then(Data::integers);
            list.ok_or_else(|| fail(format!("its {name} isn't constant")))
        };
        let (image, kernel) = (list(1, "image shape")?, list(2, "block shape")?);
        let x = given(0).map_or(&[][..], |id| &self.graph.values[id.0].shape);
        let &[batch, rows, places] = x else {
            return Err(fail(format!("input of shape {x:?}, not [N, C, L]")));
        };
        let along = window(node, &image, &kernel).map_err(&fail)?;
        let product = |of: fn(&Along) -> i64| {
            let mut sizes = along.iter().map(of);
            let product = sizes.try_fold(1i64, i64::checked_mul);
            product.and_then(|size| usize::try_from(size).ok())
        };
        let taps = product(|of| of.kernel).filter(|taps| rows % taps == 0 && rows > 0);
        let (Some(taps), true) = (taps, product(|of| of.count) == Some(places)) else {
            return Err(fail(format!(
                "an input of shape {x:?} for an image of {image:?} and blocks of {kernel:?}"
            )));
        };
        let shape = [
            &[rows, 1][..],
            &along
                .iter()
                .map(|of| of.kernel as usize)
                .collect::<Vec<_>>(),
        ];
        let shape = shape.concat();
        let weights = format!("{}/weights", node.output.first().map_or("", String::as_str));
        elements(&weights, &shape)?;
        let mut data = vec![0f32; rows * taps];
        for (row, weights) in data.chunks_exact_mut(taps).enumerate() {
            weights[row % taps] = 1.0;
        }
        let data = Data::F32(data);
        self.budget.add_constant(&data);
        self.define(&weights, shape, Some(data))?;
        Ok(parts.spread(&along, weights, [batch, rows], rows / taps))
    }
}

/// The window over each dimension of an image.
fn window(node: &Node, image: &[i64], kernel: &[i64]) -> Result<Vec<Along>, String> {
    let axes = image.len();
    let list = |name: &str, count: usize, default: i64| {
        let list = node.find(name).map(|a| a.ints.clone());
        let list = list.filter(|list| !list.is_empty());
        let list = list.unwrap_or_else(|| vec![default; count]);
        let fits = list.len() == count;
        fits.then_some(list)
            .ok_or_else(|| format!("{name} isn't {count} sizes"))
    };
    let (strides, dilations) = (list("strides", axes, 1)?, list("dilations", axes, 1)?);
    let pads = list("pads", 2 * axes, 0)?;
    if !(1..=3).contains(&axes) || kernel.len() != axes {
        return Err(format!(
            "an image of {image:?} and blocks of {kernel:?}; images have 1 to 3 dimensions"
        ));
    }
    let along = |axis: usize| {
        let sizes = [kernel[axis], strides[axis], dilations[axis]];
        Along::new(image[axis], sizes, [pads[axis], pads[axes + axis]])
    };
    let all: Option<Vec<Along>> = (0..axes).map(along).collect();
    all.ok_or_else(|| format!("blocks of {kernel:?} don't fit an image of {image:?}"))
}

impl Parts<'_> {
    fn spread(
        &mut self,
        along: &[Along],
        weights: String,
        [batch, rows]: [usize; 2],
        group: usize,
    ) -> Option<()> {
        let x = self.input(0)?;
        let list =
            |name: &str, of: &dyn Fn(&Along) -> i64| ints(name, along.iter().map(of).collect());
        let counts = along.iter().map(|of| of.count);
        let shape = [batch, rows]
            .map(|size| size as i64)
            .into_iter()
            .chain(counts);
        let shape = Attribute {
            ints: shape.collect(),
            ..attribute("value_ints", ATTRIBUTE_INTS)
        };
        let shape = self.push("Constant", vec![], vec![shape]);
        let image = self.push("Reshape", vec![x, shape], vec![]);
        let pads = [0, 1]
            .iter()
            .flat_map(|&end| along.iter().map(move |of| of.pads[end]));
        let attributes = vec![
            list("kernel_shape", &|of| of.kernel),
            list("strides", &|of| of.stride),
            list("dilations", &|of| of.dilation),
            ints("pads", pads.collect()),
            list("output_padding", &|of| of.more),
            int("group", group as i64),
        ];
        self.last("ConvTranspose", vec![image, weights], attributes)
    }
}
