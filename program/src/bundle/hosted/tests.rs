use proptest::prelude::*;

use super::super::tests::image;
use super::*;
use crate::testing::{program, tensor};

/// Adds a constant.
#[derive(Debug)]
struct Plus(i16);

impl HostKernel for Plus {
    fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, String> {
        Ok(vec![
            inputs[0].iter().map(|x| x.wrapping_add(self.0)).collect(),
        ])
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        (self.0 != 99).then(|| self.0.to_string().into_bytes())
    }

    fn sizes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        Some((vec![6], vec![6]))
    }
}

fn read(bytes: &[u8]) -> Result<Arc<dyn HostKernel>, String> {
    let text = String::from_utf8_lossy(bytes);
    match text.parse() {
        Ok(constant) => Ok(Arc::new(Plus(constant))),
        Err(_) => Err(format!("'{text}' is no constant")),
    }
}

const fn place(tensor: u32) -> Place {
    Place { part: 0, tensor }
}

fn host(name: &str, constant: i16, input: u32, output: u32) -> Step {
    Step::Host(HostStep {
        name: name.to_owned(),
        op: "Plus".to_owned(),
        kernel: Arc::new(Plus(constant)),
        inputs: vec![place(input)],
        outputs: vec![HostOutput {
            places: vec![place(output)],
            network_tensor: 3 * output,
        }],
    })
}

/// The host, a layer that writes tensor 1, the host, and the other layer.
fn sample() -> MultiProgram {
    let mut program = program(&[3, 5]);
    program.tensors.push(tensor("a", 0, [3, 1, 2]));
    program.tensors.push(tensor("b", 1, [3, 1, 2]));
    let run = |layers| Step::Run { part: 0, layers };
    MultiProgram {
        parts: vec![Part {
            target: 0,
            program: Arc::new(program),
            network_tensors: vec![0, 3, 6, 9],
        }],
        steps: vec![
            host("h", 1, 0, 2),
            run(0..1),
            host("g", -7, 1, 3),
            run(1..2),
        ],
        inputs: vec![vec![place(0)]],
        ends: b"ends".to_vec(),
        outputs: vec![place(1), place(3)],
    }
}

fn open(bytes: &[u8]) -> Result<Bundle, BundleError> {
    Bundle::from_bytes(bytes, &read)
}

/// The bytes of a bundle whose steps were edited as JSON, with right checksums.
fn edited(edit: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let network = sample();
    let bytes = network.to_bytes().unwrap();
    let (_, steps) = all_sections(&bytes).unwrap();
    let section = &bytes[steps.unwrap()];
    let (_, kernels) = split_steps(section).unwrap();
    let json = &section[8..section.len() - kernels.len()];
    let mut meta = serde_json::from_slice(json).unwrap();
    edit(&mut meta);
    let json = serde_json::to_vec(&meta).unwrap();
    let steps = [&(json.len() as u64).to_le_bytes()[..], &json, kernels].concat();
    assembled(&network, &steps)
}

/// A network's bundle with another section of steps.
fn assembled(network: &MultiProgram, steps: &[u8]) -> Vec<u8> {
    let sections = network.parts[0].program.sections().unwrap();
    let sections = sections.map(|pieces| pieces.concat());
    image(sections.each_ref().map(|bytes| &bytes[..]), Some(steps))
}

#[test]
fn a_network_with_layers_of_the_host_comes_back_as_it_was() {
    let network = sample();
    let bytes = network.to_bytes().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.vta");
    network.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let expected = Bundle::Network(Box::new(network));
    assert_eq!(open(&bytes).unwrap(), expected);
    assert_eq!(Bundle::load(&path, &read).unwrap(), expected);
    // It is no program alone, and programs alone are read as before.
    for found in [Program::from_bytes(&bytes), Program::load(&path)] {
        let error = found.unwrap_err().to_string();
        assert!(error.contains("the host computes some layers"), "{error}");
    }
    let alone = program(&[3]);
    let found = open(&alone.to_bytes().unwrap()).unwrap();
    assert_eq!(found, Bundle::Program(Box::new(alone)));
}

#[test]
fn what_a_bundle_cannot_hold_is_not_written() {
    let mut two = sample();
    two.parts.push(two.parts[0].clone());
    two.steps.push(Step::Run {
        part: 1,
        layers: 0..2,
    });
    let mut kernel = sample();
    kernel.steps[0] = host("h", 99, 0, 2);
    let mut wrong = sample();
    wrong.steps.pop();
    for (network, says) in [
        (two, "one device's program, not 2"),
        (kernel, "h can't be written"),
        (wrong, "program: "),
        (MultiProgram::default(), "one device's program, not 0"),
    ] {
        let error = network.to_bytes().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn bundles_of_the_version_before_say_what_to_do() {
    let mut bytes = sample().to_bytes().unwrap();
    bytes[8] = 2;
    let error = open(&bytes).unwrap_err().to_string();
    assert!(error.contains("compile the model again"), "{error}");
}

#[test]
fn hostile_steps_are_refused() {
    type Edit = fn(&mut serde_json::Value);
    let cases: [(&str, Edit, &str); 20] = [
        ("not a map", |m| *m = 1.into(), "invalid type"),
        ("more", |m| m["more"] = 1.into(), "unknown field `more`"),
        (
            "fewer numbers",
            |m| m["network_tensors"] = vec![0, 3, 6].into(),
            "the numbers of 4 tensors",
        ),
        (
            "a number twice",
            |m| m["network_tensors"] = vec![0, 3, 3, 9].into(),
            "the numbers of 4 tensors",
        ),
        (
            "a large number",
            |m| m["network_tensors"] = vec![0, 3, 6, u32::MAX].into(),
            "ascend below 1048576",
        ),
        (
            "an unknown kernel",
            |m| m["steps"][0]["host"]["kernel"] = 0.into(),
            "h: '' is no constant",
        ),
        (
            "a kernel that is cut off",
            |m| m["steps"][0]["host"]["kernel"] = usize::MAX.into(),
            "h: its kernel is cut off",
        ),
        (
            "bytes behind the kernels",
            |m| m["steps"][2]["host"]["kernel"] = 1.into(),
            "g: '-' is no constant",
        ),
        (
            "a tensor that isn't there",
            |m| m["steps"][0]["host"]["inputs"] = vec![4].into(),
            "there is no tensor 4",
        ),
        (
            "no output",
            |m| m["steps"][0]["host"]["outputs"] = Vec::<u32>::new().into(),
            "goes nowhere",
        ),
        (
            "an output without a place",
            |m| m["steps"][0]["host"]["outputs"][0]["tensors"] = Vec::<u32>::new().into(),
            "goes nowhere",
        ),
        (
            "two inputs",
            |m| m["steps"][0]["host"]["inputs"] = vec![0, 0].into(),
            "aren't of its operator's sizes",
        ),
        (
            "another number",
            |m| m["steps"][0]["host"]["outputs"][0]["network_tensor"] = 5.into(),
            "h writes a tensor of another number",
        ),
        (
            "too early",
            |m| m["steps"][0]["host"]["inputs"] = vec![1].into(),
            "h reads what nothing before it computes",
        ),
        (
            "layers twice",
            |m| m["steps"][3]["run"] = vec![0, 2].into(),
            "don't follow",
        ),
        (
            "layers that aren't there",
            |m| m["steps"][3]["run"] = vec![1, 9].into(),
            "steps: ",
        ),
        (
            "no input",
            |m| m["inputs"] = Vec::<Vec<u32>>::new().into(),
            "reads what nothing",
        ),
        (
            "an input that goes nowhere",
            |m| m["inputs"] = vec![Vec::<u32>::new()].into(),
            "an input of the network goes nowhere",
        ),
        (
            "longer ends",
            |m| m["ends"] = 5.into(),
            "4 bytes belong to no kernel",
        ),
        (
            "an output that nothing computes",
            |m| {
                let output = &mut m["steps"][2]["host"]["outputs"][0];
                output["tensors"] = vec![2].into();
                output["network_tensor"] = 6.into();
            },
            "an output is computed by nothing",
        ),
    ];
    assert_eq!(edited(|_| {}), sample().to_bytes().unwrap());
    for (name, edit, says) in cases {
        let error = open(&edited(edit)).unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}

proptest! {
    #[test]
    fn any_steps_with_right_checksums_are_read_or_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(), truncate in any::<bool>(),
    ) {
        let network = sample();
        let bytes = network.to_bytes().unwrap();
        let (_, steps) = all_sections(&bytes).unwrap();
        let mut steps = bytes[steps.unwrap()].to_vec();
        for (at, value) in flips {
            let at = at.index(steps.len());
            steps[at] = value;
        }
        if truncate {
            steps.truncate(cut.index(steps.len()));
        }
        if let Ok(Bundle::Network(found)) = open(&assembled(&network, &steps)) {
            prop_assert_eq!(found.validate(), Ok(()));
            prop_assert_eq!(open(&found.to_bytes().unwrap()).unwrap(), Bundle::Network(found));
        }
    }

    #[test]
    fn truncated_networks_are_refused(cut in any::<prop::sample::Index>()) {
        let bytes = sample().to_bytes().unwrap();
        prop_assert!(open(&bytes[..cut.index(bytes.len())]).is_err());
    }
}
