//! Trained models from ONNX through the passes and the reference interpreter, compared with the
//! logits of another runtime.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use vta_compiler::{onnx, passes, reference};

fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = std::env::var_os("VTA_SHARED").map_or(root, PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "VTA_SHARED: {} is missing",
        path.display()
    );
    eprintln!(
        "SKIPPED: no test data at {} (set VTA_SHARED)",
        path.display()
    );
    None
}

fn array<T: npyz::Deserialize>(path: &Path, name: &str) -> Vec<T> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = npyz::npz::NpzArchive::new(std::io::BufReader::new(file)).unwrap();
    let array = archive
        .by_name(name)
        .unwrap()
        .unwrap_or_else(|| panic!("no array {name}"));
    array.into_vec().unwrap()
}

fn argmax<T: PartialOrd + Copy>(values: &[T]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

type Normalise = ([f32; 3], [f32; 3], f32);
const IMAGENET: Normalise = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], 1.0 / 255.0);
const CIFAR: Normalise = (
    [0.4914, 0.4822, 0.4465],
    [0.2470, 0.2435, 0.2616],
    1.0 / 255.0,
);
const RAW: Normalise = ([0.0; 3], [1.0; 3], 1.0);

fn check(dir: &str, model: &str, (mean, std, unit): Normalise) {
    let Some(shared) = shared() else { return };
    let models = shared.join("models");
    let bytes = std::fs::read(models.join(dir).join(model)).unwrap();
    let graph = passes::quantized(&onnx::load(&bytes).unwrap()).unwrap();
    let images: Vec<u8> = array(&models.join("cifar10_test200.npz"), "images");
    let labels: Vec<u8> = array(&models.join("cifar10_test200.npz"), "labels");
    let logits: Vec<f32> = array(
        &models.join(dir).join("reference_logits_test200.npz"),
        model.trim_end_matches(".onnx"),
    );
    let input = &graph.tensors[graph.inputs[0].0];
    let predict = |image: &[u8]| {
        let quantise = |(i, &x): (usize, &u8)| {
            let c = i / 1024;
            let value = (f32::from(x) * unit - mean[c]) / std[c] / input.scale;
            value.round_ties_even().clamp(-128.0, 127.0) as i8
        };
        let image: Vec<i8> = image.iter().enumerate().map(quantise).collect();
        let values = reference::run(&graph, &image).unwrap();
        argmax(&values[graph.outputs[0].0])
    };
    let ours: Vec<usize> = images.par_chunks(3072).map(predict).collect();
    let theirs: Vec<usize> = logits.chunks(10).map(argmax).collect();
    let right = |p: &[usize]| {
        p.iter()
            .zip(&labels)
            .filter(|(p, l)| **p == usize::from(**l))
            .count()
    };
    let agree = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    println!(
        "{model}: {} and {} right, {agree} of {} agree",
        right(&ours),
        right(&theirs),
        ours.len()
    );
    assert!(agree * 100 >= ours.len() * 98, "only {agree} labels agree");
    assert!(
        right(&ours).abs_diff(right(&theirs)) * 200 <= ours.len(),
        "top-1 differs by more than 0.5"
    );
}

#[test]
fn resnet20_per_tensor() {
    check("", "resnet20_cifar10_qdq_int8.onnx", IMAGENET);
}

#[test]
fn resnet8_per_tensor() {
    check("", "mlperf_resnet8_qdq_int8.onnx", RAW);
}

#[test]
fn resnet8_per_channel() {
    check("", "mlperf_resnet8_qdq_int8_perchan.onnx", RAW);
}

#[test]
fn own_resnet20_per_channel() {
    check("own", "resnet20_cifar10_qdq_int8_perchan.onnx", CIFAR);
}
