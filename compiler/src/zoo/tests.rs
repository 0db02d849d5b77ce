use super::builder::Detail;
use super::scales::{recorded, word};
use super::{NAMES, build, sample_image};
use crate::quantize::{Mode, Options, ZeroPoints, choose, observe};

/// Rows and columns of the image that the scales were calibrated on.
const SIZE: usize = 128;

/// The image, with ImageNet's usual mean and standard deviation.
fn image() -> Vec<f32> {
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let value = |(i, &x): (usize, &u8)| {
        let c = i / (SIZE * SIZE);
        (f32::from(x) / 255.0 - mean[c]) / std[c]
    };
    sample_image(SIZE, 0)
        .iter()
        .enumerate()
        .map(value)
        .collect()
}

#[test]
fn every_network_has_scales_near_those_that_calibration_gives() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/zoo/scales.txt");
    let update = std::env::var_os("VTA_UPDATE_GENERATED").is_some();
    let images = [image()];
    let mut lines = Vec::new();
    for name in NAMES {
        let (graph, _) = build(name, SIZE, Detail::Whole).unwrap();
        let mut observed = None;
        for mode in [Mode::Multiply, Mode::Shift] {
            // The deeper networks take their time, and are of the blocks of the others.
            let deep = matches!(name, "resnet101" | "resnet152");
            if deep && !update {
                recorded(name, &graph, mode).unwrap();
                continue;
            }
            let observed = observed.get_or_insert_with(|| observe(&graph, &&images[..]).unwrap());
            let options = Options {
                zero_points: ZeroPoints::Symmetric,
                ..Options::new(mode)
            };
            let fresh = choose(&graph, observed, &options);
            let fresh = fresh.into_iter().map(|scale| scale.map(|s| s.step));
            let fresh: Vec<Option<f32>> = fresh.collect();
            let bits = fresh
                .iter()
                .flatten()
                .map(|s| format!(" {:08x}", s.to_bits()));
            lines.push(format!(
                "{name} {}{}\n",
                word(mode),
                bits.collect::<String>()
            ));
            if update {
                continue;
            }
            let listed = recorded(name, &graph, mode).unwrap();
            assert_eq!(listed.len(), fresh.len());
            for (a, b) in listed.iter().map(|scale| scale.map(|s| s.step)).zip(fresh) {
                // What is recorded stays, and with it bits and cycles. It was chosen over samples among which
                // the largest values count more often, so that it is up to half as large again.
                let near = match (a, b, mode) {
                    (Some(a), Some(b), Mode::Shift) => [1.0, 2.0].contains(&(a / b)),
                    (Some(a), Some(b), Mode::Multiply) => (0.95..1.5).contains(&(a / b)),
                    _ => a.is_none() && b.is_none(),
                };
                assert!(
                    near,
                    "{name} {mode:?}: {a:?} is recorded, calibration gives {b:?}"
                );
            }
        }
    }
    if update {
        std::fs::write(path, lines.concat()).unwrap();
    }
}
