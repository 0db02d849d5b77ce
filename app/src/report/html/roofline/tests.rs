use vta_isa::Config;
use vta_sim::cycle::TimingConfig;

use super::*;

/// The value of an attribute in a tag.
fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

fn number(tag: &str, name: &str) -> f64 {
    attribute(tag, name).unwrap().parse().unwrap()
}

/// The boxes of all level texts, and of all dots.
fn boxes(svg: &str) -> (Vec<(String, Area)>, Vec<Area>) {
    let text = |part: &str| {
        let (tag, rest) = part.split_once('>').unwrap();
        attribute(tag, "x")?;
        let text = rest.split('<').next().unwrap().to_owned();
        let x = number(tag, "x");
        let x = match attribute(tag, "text-anchor") {
            Some("end") => x - width(&text) / 2.0,
            Some("middle") => x,
            other => panic!("{other:?}"),
        };
        let area = Area::of_text(&text, (x, number(tag, "y")));
        Some((text, area))
    };
    let dot = |part: &str| {
        let tag = part.split_once('>').unwrap().0;
        Area::of_dot((number(tag, "cx"), number(tag, "cy")), number(tag, "r"))
    };
    (
        svg.split("<text").skip(1).filter_map(text).collect(),
        svg.split("<circle").skip(1).map(dot).collect(),
    )
}

/// Layers as they lie in ResNets: most of them close together under the roof.
fn layers(count: u64, spread: u64) -> Vec<LayerCycles> {
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    (0..count)
        .map(|_| {
            let steps = 100_000 + random(400_000);
            LayerCycles {
                cycles: steps + steps * random(spread) / 100,
                gemm_uops: steps,
                read_beats: [0, steps * (10 + random(spread)) / 100, 0, 0, 0, 0],
                bus_bytes: 8,
                macs_per_step: 256,
                ..LayerCycles::default()
            }
        })
        .collect()
}

#[test]
fn no_text_lies_on_another_or_on_a_dot() {
    let roof = Roofline::new(&Config::default(), &TimingConfig::pynq());
    for (count, spread) in [
        (0, 1),
        (1, 1),
        (20, 1),
        (55, 60),
        (158, 30),
        (60, 40_000_000),
    ] {
        let svg = roofline(&roof, &layers(count, spread)).into_string();
        let (texts, dots) = boxes(&svg);
        assert_eq!(dots.len(), count as usize);
        for (i, (text, area)) in texts.iter().enumerate() {
            for (other, its) in &texts[..i] {
                assert!(!area.meets(its), "{count} {spread}: {text} on {other}");
            }
            let covered = dots.iter().any(|dot| area.meets(dot));
            assert!(!covered, "{count} {spread}: {text} under a dot");
        }
    }
    let alone = roofline(&roof, &layers(1, 1)).into_string();
    assert!(
        boxes(&alone).0.iter().any(|(text, _)| text == "1"),
        "{alone}"
    );
}

#[test]
fn powers_below_one_are_fractions() {
    assert_eq!([power(-2), power(0), power(10)], ["1/4", "1", "1024"]);
}
