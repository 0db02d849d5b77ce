//! Files of every operator, changed at random as only hostile ones are: each is read and compiled, or
//! refused, and nothing panics, hangs or fills the memory.
//!
//! `VTA_MUTATIONS=20000 cargo test --release -p vta-compiler --lib mutated -- --nocapture` tries more of
//! them and says what memory they took.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use vta_isa::Config;

use super::model::{Model, int, ints, text};
use crate::onnx::{load, proto};
use crate::quantize::Mode;
use crate::{lower, passes, quantize};

/// Files that are tried where the environment asks for no other number.
const FILES: usize = 1500;
/// The longest that a file may take, on whatever machine.
const LONGEST: Duration = Duration::from_secs(60);
/// Larger inputs than this are read and not run.
const LARGEST_INPUT: usize = 1 << 12;

/// Numbers that come of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }

    fn at<'t, T>(&mut self, all: &'t mut [T]) -> Option<&'t mut T> {
        let at = self.below(all.len());
        all.get_mut(at)
    }
}

/// Operators, what they read beside `x` (of 1x2x5x6) and their attributes, all of which are read.
fn seeds() -> Vec<(&'static str, &'static [&'static str], Vec<proto::Attribute>)> {
    let window = || vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])];
    let axis = |at: i64| vec![int("axis", at)];
    let elementwise = [
        "Abs",
        "Neg",
        "Erf",
        "Exp",
        "Tanh",
        "Sigmoid",
        "Softplus",
        "Elu",
        "Relu",
        "HardSwish",
        "HardSigmoid",
        "LeakyRelu",
        "Identity",
        "Floor",
        "Round",
        "Sqrt",
        "Gelu",
        "Swish",
        "Selu",
        "Celu",
        "Mish",
    ];
    let mut all: Vec<(&'static str, &'static [&'static str], Vec<proto::Attribute>)> =
        elementwise.map(|op| (op, &[][..], vec![])).into();
    let pairs = [
        "Add", "Mul", "Sub", "Div", "Pow", "Max", "Min", "Mod", "PRelu",
    ];
    all.extend(pairs.map(|op| (op, &["plane"][..], vec![])));
    all.extend(["Add", "Mul", "Sub"].map(|op| (op, &["x"][..], vec![])));
    let reduce = [
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceL2",
    ];
    all.extend(reduce.map(|op| (op, &[][..], vec![ints("axes", &[2, 3]), int("keepdims", 1)])));
    all.extend([
        ("Conv", &["w"][..], window()),
        (
            "Conv",
            &["w", "bias"],
            vec![text("auto_pad", "SAME_UPPER"), ints("strides", &[2, 1])],
        ),
        (
            "ConvTranspose",
            &["wt"],
            vec![ints("strides", &[2, 2]), ints("output_padding", &[1, 1])],
        ),
        (
            "MaxPool",
            &[],
            vec![ints("kernel_shape", &[2, 2]), int("ceil_mode", 1)],
        ),
        (
            "AveragePool",
            &[],
            vec![ints("kernel_shape", &[2, 3]), int("count_include_pad", 1)],
        ),
        ("GlobalAveragePool", &[], vec![]),
        ("GlobalMaxPool", &[], vec![]),
        ("BatchNormalization", &["two", "two", "two", "two"], vec![]),
        ("LRN", &[], vec![int("size", 3)]),
        (
            "GroupNormalization",
            &["two", "two"],
            vec![int("num_groups", 2)],
        ),
        ("InstanceNormalization", &["two", "two"], vec![]),
        ("LayerNormalization", &["row"], axis(-1)),
        ("Clip", &["low", "high"], vec![]),
        ("Concat", &["x"], axis(1)),
        ("Split", &["halves"], axis(1)),
        ("Slice", &["zero", "five", "three"], vec![]),
        ("Gather", &["index"], axis(1)),
        ("GatherElements", &["places"], axis(3)),
        ("ScatterND", &["point", "value"], vec![]),
        ("Reshape", &["to"], vec![]),
        ("Flatten", &[], axis(1)),
        ("Squeeze", &["zero"], vec![]),
        ("Unsqueeze", &["zero"], vec![]),
        ("Transpose", &[], vec![ints("perm", &[0, 2, 3, 1])]),
        ("Expand", &["to4"], vec![]),
        ("Tile", &["repeats"], vec![]),
        ("Pad", &["pads"], vec![]),
        ("Resize", &["", "twice"], vec![text("mode", "nearest")]),
        ("Resize", &["", "twice"], vec![text("mode", "linear")]),
        ("Upsample", &["twice"], vec![]),
        ("DepthToSpace", &[], vec![int("blocksize", 1)]),
        ("SpaceToDepth", &[], vec![int("blocksize", 1)]),
        ("MatMul", &["square"], vec![]),
        ("Gemm", &["square"], vec![int("transB", 1)]),
        ("Gemm", &["square"], vec![int("transA", 1)]),
        (
            "Einsum",
            &["square"],
            vec![text("equation", "abcd,de->abce")],
        ),
        ("Softmax", &[], axis(-1)),
        ("LogSoftmax", &[], axis(1)),
        ("ArgMax", &[], vec![int("axis", 1), int("keepdims", 0)]),
        ("TopK", &["one"], axis(3)),
        ("CumSum", &["axis"], vec![]),
        ("Cast", &[], vec![int("to", 1)]),
        ("OneHot", &["depth", "ends"], vec![]),
        ("Range", &["start", "limit", "step"], vec![]),
        ("ConstantOfShape", &["to"], vec![]),
        ("EyeLike", &[], vec![]),
        ("Trilu", &[], vec![int("upper", 1)]),
        ("Where", &["x", "plane"], vec![]),
        ("QuantizeLinear", &["s", "z"], vec![]),
        ("LpNormalization", &[], axis(1)),
    ]);
    all
}

/// A file that begins with a rounded convolution, so that there is something to compile.
fn seed(random: &mut Random) -> proto::Model {
    let all = seeds();
    let mut model = Model::default()
        .floats(
            "plane",
            &[5, 6],
            (0..30).map(|i| i as f32 / 8.0 - 1.0).collect(),
        )
        .floats("two", &[2], vec![0.5, 1.5])
        .floats("row", &[6], vec![0.25; 6])
        .floats(
            "square",
            &[6, 6],
            (0..36).map(|i| i as f32 / 20.0 - 0.5).collect(),
        )
        .floats(
            "w",
            &[2, 2, 3, 3],
            (0..36).map(|i| (i % 7) as f32 / 8.0 - 0.4).collect(),
        )
        .floats(
            "wt",
            &[2, 2, 2, 2],
            (0..16).map(|i| i as f32 / 9.0 - 0.6).collect(),
        )
        .floats("bias", &[2], vec![0.1, -0.2])
        .floats("low", &[], vec![-1.0])
        .floats("high", &[], vec![2.0])
        .floats("value", &[1], vec![3.0])
        .floats("ends", &[2], vec![0.0, 1.0])
        .floats("twice", &[4], vec![1.0, 1.0, 2.0, 2.0])
        .floats("s", &[], vec![0.0625])
        .int8("z", &[], &[0])
        .longs("zero", &[0])
        .longs("one", &[1])
        .longs("three", &[3])
        .longs("five", &[5])
        .longs("halves", &[1, 1])
        .longs("index", &[1, 0])
        .longs("point", &[0, 0, 0, 0])
        .longs("to", &[1, 10, 6])
        .longs("to4", &[1, 2, 5, 6])
        .longs("repeats", &[1, 1, 2, 1])
        .longs("pads", &[0, 0, 1, 1, 0, 0, 1, 1])
        .longs("axis", &[1])
        .long("depth", 4)
        .long("start", 0)
        .long("limit", 9)
        .long("step", 2);
    if random.below(2) == 0 {
        model = model
            .rounded("x", "x8")
            .node("Conv", &["x8", "w"], "c", &[ints("pads", &[1, 1, 1, 1])])
            .rounded("c", "x0");
    } else {
        model = model.node("Conv", &["x", "w"], "x0", &[ints("pads", &[1, 1, 1, 1])]);
    }
    let count = 1 + random.below(3);
    for index in 0..count {
        let (op, others, attributes) = random.of(&all);
        let from = format!("x{index}");
        let mut inputs = vec![&from[..]];
        inputs.extend(
            others
                .iter()
                .map(|&name| if name == "x" { "x0" } else { name }),
        );
        let to = match index + 1 == count {
            true => "y".to_owned(),
            false => format!("x{}", index + 1),
        };
        model = model.node(op, &inputs, &to, attributes);
    }
    proto::Model::decode(&model.encoded(17)[..]).unwrap()
}

const NUMBERS: [i64; 22] = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    4,
    7,
    255,
    256,
    65535,
    65536,
    1 << 20,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
    -(1 << 31),
    -65536,
];
const FLOATS: [f32; 11] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-45,
    1e30,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Changes one thing of a file.
fn mutate(model: &mut proto::Model, random: &mut Random) {
    if random.below(24) == 0 {
        let opset = i64::from(random.below(28) as u8);
        if let Some(import) = model.opset_import.first_mut() {
            import.version = opset;
        }
        return;
    }
    let Some(graph) = &mut model.graph else {
        return;
    };
    let names: Vec<String> = graph
        .initializer
        .iter()
        .map(|t| t.name.clone())
        .chain(graph.node.iter().flat_map(|n| n.output.clone()))
        .chain(["x".to_owned(), String::new()])
        .collect();
    match random.below(10) {
        0..4 => {
            let node = random.below(graph.node.len());
            if let Some(node) = graph.node.get_mut(node) {
                change_attribute(node, random);
            }
        }
        4..7 => {
            if let Some(node) = random.at(&mut graph.node) {
                change_node(node, &names, random);
            }
        }
        7 => {
            if let Some(tensor) = random.at(&mut graph.initializer) {
                change_tensor(tensor, random);
            }
        }
        8 => {
            let input = graph.input.first_mut().and_then(|i| i.r#type.as_mut());
            let shape = input.and_then(|t| t.tensor_type.as_mut());
            if let Some(tensor) = shape {
                match (random.below(3), &mut tensor.shape) {
                    (0, _) => tensor.elem_type = random.below(24) as i32,
                    (1, Some(shape)) => {
                        shape.dim.pop();
                    }
                    (_, Some(shape)) => {
                        let size = *random.of(&NUMBERS);
                        if let Some(dim) = random.at(&mut shape.dim) {
                            dim.dim_value = Some(size);
                        }
                    }
                    (_, none) => *none = None,
                }
            }
        }
        _ => match graph.node.len() {
            0 => {}
            n if random.below(2) == 0 => {
                let again = graph.node[random.below(n)].clone();
                graph.node.push(again);
            }
            n => {
                graph.node.remove(random.below(n));
            }
        },
    }
}

fn change_attribute(node: &mut proto::Node, random: &mut Random) {
    let names = [
        "axis",
        "axes",
        "keepdims",
        "pads",
        "strides",
        "dilations",
        "group",
        "kernel_shape",
        "perm",
        "to",
        "mode",
        "auto_pad",
        "blocksize",
        "ceil_mode",
        "alpha",
        "beta",
        "epsilon",
        "transA",
        "output_shape",
        "split",
        "num_outputs",
        "equation",
        "value",
        "largest",
        "k",
        "scales",
    ];
    if random.below(4) == 0 || node.attribute.is_empty() {
        let name = *random.of(&names);
        let number = *random.of(&NUMBERS);
        let count = random.below(6);
        node.attribute.push(match random.below(3) {
            0 => int(name, number),
            1 => ints(name, &vec![number; count]),
            _ => text(
                name,
                random.of::<&str>(&["", "linear", "cubic", "SAME_LOWER", "ij,jk", "\u{1b}[2J"]),
            ),
        });
        return;
    }
    let (number, float) = (*random.of(&NUMBERS), *random.of(&FLOATS));
    let choice = random.below(7);
    let at = random.below(node.attribute.len());
    let attribute = &mut node.attribute[at];
    match choice {
        0 => attribute.i = number,
        1 => attribute.f = float,
        2 => attribute.kind = (number & 15) as i32,
        3 => attribute.ints.push(number),
        4 => {
            attribute.ints.pop();
        }
        5 => match random.at(&mut attribute.ints) {
            Some(one) => *one = number,
            None => attribute.i = number,
        },
        _ => attribute.name = (*random.of(&names)).to_owned(),
    }
}

fn change_node(node: &mut proto::Node, names: &[String], random: &mut Random) {
    match random.below(6) {
        0 => {
            let all = seeds();
            node.op_type = random.of(&all).0.to_owned();
        }
        1 => node.input.push(random.of(names).clone()),
        2 => {
            node.input.pop();
        }
        3 => node.output.push(random.of(names).clone()),
        4 => {
            node.domain = (*random.of(&["com.microsoft", "ai.onnx.ml", "own"])).to_owned();
        }
        _ => {
            let name = random.of(names).clone();
            if let Some(input) = random.at(&mut node.input) {
                *input = name;
            }
        }
    }
}

fn change_tensor(tensor: &mut proto::Tensor, random: &mut Random) {
    let (number, float) = (*random.of(&NUMBERS), *random.of(&FLOATS));
    match random.below(7) {
        0 => tensor.data_type = random.below(24) as i32,
        1 => tensor.dims.push(number),
        2 => {
            tensor.dims.pop();
        }
        3 => match random.at(&mut tensor.dims) {
            Some(dim) => *dim = number,
            None => tensor.dims.push(1),
        },
        4 => match random.at(&mut tensor.int64_data) {
            Some(value) => *value = number,
            None => tensor.int64_data.push(number),
        },
        5 => match random.at(&mut tensor.float_data) {
            Some(value) => *value = float,
            None => tensor.float_data.push(float),
        },
        _ => {
            let length = random.below(9);
            tensor.raw_data = bytes::Bytes::from(vec![number as u8; length]);
        }
    }
}

/// How far a file gets: read, quantised, compiled.
fn tried(bytes: &[u8]) -> usize {
    let Ok(graph) = load(bytes) else {
        return 0;
    };
    let len = |at: usize| graph.values[at].shape.iter().product::<usize>();
    let [input] = graph.inputs[..] else {
        return 1;
    };
    if len(input.0) > LARGEST_INPUT {
        return 1;
    }
    let rounded = passes::quantized(&graph).or_else(|error| {
        let image = vec![
            (0..len(input.0))
                .map(|i| (i % 13) as f32 / 8.0 - 0.75)
                .collect(),
        ];
        let quantized = quantize::quantize(&graph, &image, Mode::Multiply);
        quantized.map_or(Err(error), |graph| passes::quantized(&graph))
    });
    let Ok(network) = rounded else {
        return 1;
    };
    let compiled = lower::compile(
        &network,
        &Config::default(),
        &lower::LowerOptions::default(),
    );
    if compiled.is_ok() { 3 } else { 2 }
}

/// The largest memory of this process, in MiB, where the system says it.
fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? >> 10)
}

#[test]
fn mutated_models_are_compiled_or_refused() {
    let asked = std::env::var("VTA_MUTATIONS").ok();
    let files = asked.as_ref().map_or(FILES, |n| n.parse().unwrap());
    let (begun, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let mut reached = [0usize; 4];
    std::thread::scope(|scope| {
        // A file that hangs ends the process, and is named.
        scope.spawn(|| {
            let (mut last, mut since) = (0, Instant::now());
            while !done.load(Ordering::Relaxed) {
                let now = begun.load(Ordering::Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                }
                if since.elapsed() > LONGEST {
                    eprintln!("file {last} takes longer than {LONGEST:?}");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for file in 0..files {
            begun.store(file, Ordering::Relaxed);
            let mut random = Random(file as u64);
            let mut model = seed(&mut random);
            for _ in 0..random.below(5) {
                mutate(&mut model, &mut random);
            }
            let mut bytes = model.encode_to_vec();
            if random.below(8) == 0 {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            let tried = catch_unwind(AssertUnwindSafe(|| tried(&bytes)));
            if tried.is_err() {
                done.store(true, Ordering::Relaxed);
            }
            reached[tried.unwrap_or_else(|_| panic!("file {file} panics"))] += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    // Mutations that break everything, or nothing, would show little.
    assert!(reached.iter().all(|&n| n > files / 200), "{reached:?}");
    let peak = peak();
    if asked.is_some() {
        let seconds = started.elapsed().as_secs();
        println!(
            "{files} files in {seconds} s, {peak:?} MiB: {reached:?} refused, read, quantised, compiled"
        );
    }
    assert!(peak.is_none_or(|peak| peak < 4096), "{peak:?} MiB");
}
