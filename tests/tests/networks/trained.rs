//! The trained networks of depthwise convolutions, quantised and run on the functional device: labels are
//! those of the float network, and every layer is the reference interpreter's.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{float, lower, onnx, passes, reference};
use vta_driver::{QueueLimits, Session};
use vta_isa::Config;
use vta_sim::SimDevice;
use vta_tests::cifar::{CIFAR, argmax, array, right, to_int8};

/// Rows and columns of an image.
const SIZE: usize = 224;

/// Every so-many-th image of a file, and its label.
fn images(file: &str, step: usize) -> (Vec<Vec<f32>>, Vec<u8>) {
    let path = models().join(file);
    let pixels: Vec<u8> = array(&path, "images");
    let labels: Vec<u8> = array(&path, "labels");
    let images: Vec<&[u8]> = pixels.chunks(3072).step_by(step).collect();
    let images = images.into_par_iter().map(|image| CIFAR.input(image, SIZE));
    (images.collect(), labels.into_iter().step_by(step).collect())
}

fn models() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo")
}

fn check(model: &str) {
    let graph = onnx::load(&std::fs::read(models().join(model)).unwrap()).unwrap();
    let (calibration, _) = images("cifar10_calib128.npz", 8);
    let (test, labels) = images("cifar10_test200.npz", 10);
    let quantized = quantize::quantize(&graph, &calibration, Mode::Multiply).unwrap();
    // Through a file, as `vta quantize` and `vta run` do it.
    let quantized = onnx::load(&onnx::save(&quantized)).unwrap();
    let network = passes::quantized(&quantized).unwrap();
    let options = lower::LowerOptions::default();
    let program = Arc::new(lower::compile(&network, &Config::default(), &options).unwrap());
    let scale = network.tensors[network.inputs[0].0].scale;
    let device = Arc::new(SimDevice::functional_from_env(program.config.clone()).unwrap());
    let mut session =
        Session::keeping_tensors(Arc::clone(&program), device, QueueLimits::default()).unwrap();
    let mut found = Vec::new();
    for (index, image) in test.iter().enumerate() {
        let input = to_int8(image, scale);
        let out = session.run(&[&input]).unwrap();
        found.push(argmax(&out.outputs[0][0]));
        if index > 0 {
            continue;
        }
        let expected = reference::run(&network, &input).unwrap();
        for layer in &program.layers {
            let got = session.read_tensor(layer.output).unwrap();
            let expected = &expected[layer.output as usize];
            assert_eq!(&got[0], expected, "{model} {}", layer.name);
        }
    }
    let real = |image: &Vec<f32>| argmax(&float::run(&graph, image).unwrap()[0]);
    let real: Vec<usize> = test.par_iter().map(real).collect();
    let agree = found.iter().zip(&real).filter(|(a, b)| a == b).count();
    let (ours, floats) = (right(&found, &labels), right(&real, &labels));
    println!("{model}: {ours} and in floats {floats} of 20 right, {agree} labels agree");
    assert_eq!(found.len(), 20);
    // Few images calibrate it: one on the border may fall to either side.
    assert!(floats >= 16, "{model}: {floats} right in floats");
    assert!(agree >= 17, "{model}: {agree} labels agree");
    assert!(
        ours + 2 >= floats,
        "{model}: {ours} right, {floats} in floats"
    );
}

#[test]
fn mobilenet_v2_keeps_its_labels() {
    check("mobilenet_v2_cifar224_f16.onnx");
}

#[test]
fn efficientnet_lite0_keeps_its_labels() {
    check("efficientnet_lite0_cifar224_f16.onnx");
}
