//! Trained models over 200 images on the functional device: labels are compared with another runtime's, and every layer of
//! every fourth image, or of fewer large ones, with the reference interpreter's.

use std::sync::Arc;

use rayon::prelude::*;
use vta_compiler::{lower, onnx, passes, reference};
use vta_driver::{QueueLimits, Session};
use vta_isa::Config;
use vta_sim::SimDevice;
use vta_tests::cifar::{CIFAR, IMAGENET, RAW, Recipe, argmax, array, right, to_int8};

fn check(folder: &str, model: &str, recipe: &Recipe) {
    let Some(shared) = vta_tests::shared(model) else {
        return;
    };
    let models = shared.join("models");
    let bytes = std::fs::read(models.join(folder).join(format!("{model}.onnx"))).unwrap();
    let graph = passes::quantized(&onnx::load(&bytes).unwrap()).unwrap();
    let options = lower::LowerOptions::default();
    let program = Arc::new(lower::compile(&graph, &Config::default(), &options).unwrap());
    let images: Vec<u8> = array(&models.join("cifar10_test200.npz"), "images");
    let labels: Vec<u8> = array(&models.join("cifar10_test200.npz"), "labels");
    let logits: Vec<f32> = array(
        &models.join(folder).join("reference_logits_test200.npz"),
        model,
    );
    let tensor = &graph.tensors[graph.inputs[0].0];
    // The reference takes most of the time, and for a large image much more.
    let compared = if tensor.chw[1] > 32 { 20 } else { 4 };
    let predict = |images: &[u8]| -> Vec<usize> {
        let device = Arc::new(SimDevice::functional_from_env(program.config.clone()).unwrap());
        let mut session =
            Session::keeping_tensors(Arc::clone(&program), device, QueueLimits::default()).unwrap();
        let one = |(index, image): (usize, &[u8])| {
            let input = to_int8(&recipe.input(image, tensor.chw[1]), tensor.scale);
            let out = session.run(&[&input]).unwrap();
            assert_eq!(session.counters().submissions, index as u64 + 1);
            if index.is_multiple_of(compared) {
                let expected = reference::run(&graph, &input).unwrap();
                for layer in &program.layers {
                    let got = session.read_tensor(layer.output).unwrap();
                    assert_eq!(
                        got[0], expected[layer.output as usize],
                        "{model} {}",
                        layer.name
                    );
                }
            }
            argmax(&out.outputs[0][0])
        };
        images.chunks(3072).enumerate().map(one).collect()
    };
    let ours: Vec<usize> = images.par_chunks(3072 * 50).flat_map(predict).collect();
    let theirs: Vec<usize> = logits.chunks(10).map(argmax).collect();
    let agree = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    let (right, reference) = (right(&ours, &labels), right(&theirs, &labels));
    println!("{model}: {right} and {reference} of 200 right, {agree} labels agree");
    assert_eq!(ours.len(), 200);
    // Only a value beside a tie can differ: the half percent is for those.
    assert!(agree >= 199, "{model}: only {agree} labels agree");
    assert!(
        right.abs_diff(reference) <= 1,
        "{model}: {right} right, the reference has {reference}"
    );
}

#[test]
fn resnet20_per_tensor() {
    check("", "resnet20_cifar10_qdq_int8", &IMAGENET);
}

#[test]
fn resnet8_per_tensor() {
    check("", "mlperf_resnet8_qdq_int8", &RAW);
}

#[test]
fn resnet8_per_channel() {
    check("", "mlperf_resnet8_qdq_int8_perchan", &RAW);
}

#[test]
fn own_resnet20_per_channel() {
    check("own", "resnet20_cifar10_qdq_int8_perchan", &CIFAR);
}

#[test]
fn own_resnet18_at_224_per_channel() {
    check("own", "resnet18_cifar224_qdq_int8_perchan", &CIFAR);
}
