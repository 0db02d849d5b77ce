//! Float models, quantised with 128 calibration images, keep their accuracy on 200 others.

use rayon::prelude::*;
use vta_compiler::graph::Graph;
use vta_compiler::quantize::{self, Calibrated, Kept, Mode, Options};
use vta_compiler::{float, onnx, passes, reference};
use vta_tests::cifar::{IMAGENET, RAW, Recipe, argmax, array, right, to_int8};

/// Labels of the network on the integer reference interpreter, which every device equals.
fn labels_of(graph: &Graph, images: &[Vec<f32>]) -> Vec<usize> {
    // Through a file, as `vta quantize` and `vta run` do it.
    let graph = passes::quantized(&onnx::load(&onnx::save(graph)).unwrap()).unwrap();
    let scale = graph.tensors[graph.inputs[0].0].scale;
    let output = graph.outputs[0].0;
    let predict =
        |image: &Vec<f32>| argmax(&reference::run(&graph, &to_int8(image, scale)).unwrap()[output]);
    images.par_iter().map(predict).collect()
}

fn check(model: &str, recipe: &Recipe) {
    let Some(shared) = vta_tests::shared(model) else {
        return;
    };
    let models = shared.join("models");
    let bytes = std::fs::read(models.join(format!("{model}.onnx"))).unwrap();
    let graph = onnx::load(&bytes).unwrap();
    let images = |file: &str| -> Vec<Vec<f32>> {
        let pixels: Vec<u8> = array(&models.join(file), "images");
        let chunks = pixels.par_chunks(3072);
        chunks.map(|image| recipe.input(image, 32)).collect()
    };
    let test = images("cifar10_test200.npz");
    let calibration = images("cifar10_calib128.npz");
    let labels: Vec<u8> = array(&models.join("cifar10_test200.npz"), "labels");
    let predict = |image: &Vec<f32>| argmax(&float::run(&graph, image).unwrap()[0]);
    let real = right(&test.par_iter().map(predict).collect::<Vec<_>>(), &labels);
    // Points of top-1 that each mode may lose, in images of 200.
    for (mode, may_lose) in [(Mode::Multiply, 1), (Mode::Shift, 2)] {
        let quantized = quantize::quantize(&graph, &calibration, mode).unwrap();
        let ours = right(&labels_of(&quantized, &test), &labels);
        println!("{model} {mode:?}: {ours} of 200 right, float {real}");
        assert!(
            ours + may_lose >= real,
            "{model} {mode:?}: {ours}, float {real}"
        );
    }
    // The last layers have most of the weights: with 4 bits each they may lose 1.5 points.
    let options = Options::new(Mode::Multiply);
    let int4 = Calibrated::new(&graph, &&calibration[..], &options, &[]).unwrap();
    let int4 = int4.with_int4(&["last:4".to_owned()]).unwrap();
    let quantized = int4.quantize(&options, &Kept::new()).unwrap();
    assert_eq!(quantized.int4.len(), 4);
    let ours = right(&labels_of(&quantized.graph, &test), &labels);
    println!("{model} int4: {ours} of 200 right, float {real}");
    assert!(ours + 3 >= real, "{model} int4: {ours}, float {real}");
}

#[test]
fn resnet20_keeps_its_accuracy() {
    check("resnet20_cifar10_f32", &IMAGENET);
}

#[test]
fn resnet8_keeps_its_accuracy() {
    check("mlperf_resnet8_f32", &RAW);
}
