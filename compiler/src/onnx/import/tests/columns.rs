//! Col2Im, against its definition: each row of the input is a tap, which is added where its windows have it.

use proptest::prelude::*;

use super::model::{Model, ints};
use super::{Op, load};
use crate::float;

/// Sizes of a Col2Im over rows and columns.
#[derive(Clone, Debug)]
struct Fold {
    channels: usize,
    image: [i64; 2],
    kernel: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    /// Top, left, bottom and right.
    pads: [i64; 4],
}

impl Fold {
    /// Windows along a dimension, if there is one.
    fn count(&self, axis: usize) -> Option<i64> {
        let wide = self.dilations[axis] * (self.kernel[axis] - 1) + 1;
        let room = self.image[axis] + self.pads[axis] + self.pads[axis + 2] - wide;
        (room >= 0).then_some(room / self.strides[axis] + 1)
    }

    fn rows(&self) -> i64 {
        self.channels as i64 * self.kernel[0] * self.kernel[1]
    }

    fn model(&self, places: i64) -> Vec<u8> {
        let attributes = [
            ints("strides", &self.strides),
            ints("dilations", &self.dilations),
            ints("pads", &self.pads),
        ];
        Model::default()
            .longs("image", &self.image)
            .longs("block", &self.kernel)
            .node("Col2Im", &["x", "image", "block"], "y", &attributes)
            .with_input(18, &[1, self.rows(), places].map(Some))
    }

    /// What each value of the input is added to.
    fn defined(&self, x: &[f32], counts: [i64; 2]) -> Vec<f32> {
        let [h, w] = self.image;
        let mut image = vec![0f32; self.channels * (h * w) as usize];
        let taps = (self.kernel[0] * self.kernel[1]) as usize;
        let places = (counts[0] * counts[1]) as usize;
        for (at, value) in x.iter().enumerate() {
            let (row, place) = (at / places, (at % places) as i64);
            let (channel, tap) = (row / taps, (row % taps) as i64);
            let along = |axis: usize, place: i64, tap: i64| {
                place * self.strides[axis] + tap * self.dilations[axis] - self.pads[axis]
            };
            let y = along(0, place / counts[1], tap / self.kernel[1]);
            let x = along(1, place % counts[1], tap % self.kernel[1]);
            if (0..h).contains(&y) && (0..w).contains(&x) {
                image[channel * (h * w) as usize + (y * w + x) as usize] += value;
            }
        }
        image
    }
}

fn folds() -> impl Strategy<Value = Fold> {
    let pair = |from: i64, to: i64| prop::array::uniform2(from..=to);
    let pads = prop::array::uniform4(0..=2i64);
    let windows = (pair(1, 3), pair(1, 4), pair(1, 2), pads);
    (1..4usize, pair(1, 9), windows).prop_map(
        |(channels, image, (kernel, strides, dilations, pads))| Fold {
            channels,
            image,
            kernel,
            strides,
            dilations,
            pads,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn columns_are_added_to_an_image(fold in folds()) {
        let (Some(rows), Some(columns)) = (fold.count(0), fold.count(1)) else {
            return Ok(());
        };
        // Eighths, whose sums are exact in any order.
        let count = fold.rows() * rows * columns;
        let x: Vec<f32> = (0..count).map(|i| ((i * 37) % 41) as f32 / 8.0 - 2.0).collect();
        let graph = load(&fold.model(rows * columns)).unwrap();
        let shape = &graph.values[graph.outputs[0].0].shape;
        let [h, w] = fold.image.map(|size| size as usize);
        prop_assert_eq!(shape, &[1, fold.channels, h, w]);
        let made = float::run(&graph, &x).unwrap().remove(0);
        prop_assert_eq!(made, fold.defined(&x, [rows, columns]));
        // One place more has no window.
        let error = load(&fold.model(rows * columns + 1)).err().map(|e| e.to_string());
        prop_assert!(error.is_some_and(|e| e.contains("for an image of")));
    }
}

#[test]
fn an_image_of_a_size_that_a_run_says_is_refused() {
    let model = Model::default()
        .longs("block", &[1, 1])
        .node("Cast", &["x"], "image", &[super::int("to", 7)])
        .node("Col2Im", &["x", "image", "block"], "y", &[]);
    let error = model.refused(18);
    assert!(error.contains("image shape isn't constant"), "{error}");
}

#[test]
fn a_fold_is_a_transposed_convolution_of_the_device() {
    let fold = Fold {
        channels: 2,
        image: [6, 6],
        kernel: [3, 3],
        strides: [2, 2],
        dilations: [1, 1],
        pads: [1; 4],
    };
    let graph = load(&fold.model(9)).unwrap();
    let is_fold = |op: &Op| matches!(op, Op::ConvTranspose { group: 2, .. });
    assert!(graph.nodes.iter().any(|node| is_fold(&node.op)));
}
