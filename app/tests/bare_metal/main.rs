//! The runtime for controllers, on a model of the registers: labels, counts, hostile images,
//! boards that break.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod c;
mod hostile;
mod model;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use vta_app::Target;
use vta_app::open::{self, Preprocess};
use vta_app::options::{ConfigSource, QuantizeOptions};
use vta_app::{compile, images, quantize};
use vta_compiler::qgraph::Numbers;
use vta_driver::{FlatCut, Program, QueueLimits, Session, flat_image};
use vta_isa::{Extension, Extensions};
use vta_rt::{BatchStats, Fault, Image, Runtime, Status, Visibility};
use vta_sim::SimDevice;

use self::model::{Breaks, Model};

const BUS: u32 = 0x1000_0000;
const FLASH: u32 = 0x0800_0000;

/// A network, its flat images and pictures with what the driver says of them.
struct Sample {
    program: Arc<Program>,
    layers: Vec<u8>,
    network: Vec<u8>,
    /// int8 values, outputs, and which class it is.
    pictures: Vec<(Vec<i8>, Vec<i8>, Option<usize>)>,
}

impl Sample {
    fn of(name: &str) -> Self {
        Self::on(name, &Target::default())
    }

    fn on(name: &str, target: &Target) -> Self {
        let made = compile::bundle(name, target, &()).unwrap();
        let program = made.program;
        let device = Arc::new(SimDevice::functional(program.config.clone()));
        let limits = QueueLimits::default();
        let mut session = Session::new(Arc::clone(&program), device, limits).unwrap();
        let input = &program.tensors[program.inputs[0] as usize];
        let chw = input.chw.map(|d| d as usize);
        let stated = program.metadata.get("preprocess");
        let recipe = Preprocess::choose(&Preprocess::default(), stated, &()).unwrap();
        // Files are networks for the demo's pictures.
        let of = if Path::new(name).exists() {
            "demo"
        } else {
            name
        };
        let pictures = images::default_images(of, chw).unwrap();
        let pictures = pictures.iter().map(|picture| {
            let real = recipe.apply(picture.clone(), chw).unwrap();
            let values = open::to_steps(&real, input.scale, input.zero, Numbers::Int8);
            let output = session.run(&[&values]).unwrap().outputs.remove(0).remove(0);
            let bytes = |steps: Vec<i16>| steps.into_iter().map(|step| step as i8).collect();
            (bytes(values), bytes(output), picture.label)
        });
        Self {
            pictures: pictures.collect(),
            layers: flat_image(&program, FlatCut::Layers).unwrap(),
            network: flat_image(&program, FlatCut::Nowhere).unwrap(),
            program,
        }
    }
}

fn demo() -> &'static Sample {
    static DEMO: LazyLock<Sample> = LazyLock::new(|| Sample::of("demo"));
    &DEMO
}

/// A board with a window that the image just fits.
fn board(sample: &Sample, image: &[u8], constants: Visibility) -> Model {
    let needs = Image::read(image).unwrap().needs(constants);
    Model::new(&sample.program.config, BUS, needs.window_bytes)
}

fn open<'i>(sample: &Sample, image: &'i [u8]) -> Runtime<'i, Model> {
    let board = board(sample, image, Visibility::Copied);
    Runtime::open(image, board, Visibility::Copied).unwrap()
}

fn classify(runtime: &mut Runtime<'_, Model>, values: &[i8], len: usize) -> Vec<i8> {
    let mut found = vec![0; len];
    runtime.write_input(0, 0, values).unwrap();
    runtime.run(&mut []).unwrap();
    runtime.read_output(0, 0, &mut found).unwrap();
    found
}

#[test]
fn the_demo_gets_its_labels() {
    let demo = demo();
    let mut right = 0;
    let mut runtime = open(demo, &demo.layers);
    for (values, expected, label) in &demo.pictures {
        let found = classify(&mut runtime, values, expected.len());
        assert_eq!(found, *expected);
        let real: Vec<f32> = found.iter().map(|&v| v.into()).collect();
        right += usize::from(Some(images::first_largest(&real)) == *label);
    }
    assert_eq!((right, demo.pictures.len()), (10, 10));
}

#[test]
fn images_in_one_batch_in_place_and_on_wide_registers_give_the_same() {
    let demo = demo();
    let (values, expected, _) = &demo.pictures[3];
    let place = Visibility::InPlace(FLASH.into());
    let small = board(demo, &demo.network, place);
    let small = small.wide().show(FLASH, &demo.network);
    let (all, rest) = (
        Image::read(&demo.network)
            .unwrap()
            .needs(Visibility::Copied)
            .window_bytes,
        Image::read(&demo.network)
            .unwrap()
            .needs(place)
            .window_bytes,
    );
    assert!(rest < all / 2, "{rest} of {all}");
    let mut runtime = Runtime::open(&demo.network, small, place).unwrap();
    assert_eq!(classify(&mut runtime, values, expected.len()), *expected);
    // A second window of other bytes: nothing is read before it is written.
    let mut runtime = open(demo, &demo.network);
    assert_eq!(classify(&mut runtime, values, expected.len()), *expected);
    assert_eq!(runtime.board().accelerator.batches, 1);
}

#[test]
fn a_network_of_the_zoo_gives_what_the_driver_gives() {
    let sample = Sample::of("zoo:resnet18");
    let (values, expected, _) = &sample.pictures[0];
    let mut runtime = open(&sample, &sample.layers);
    runtime.board().accelerator.timed = false;
    assert_eq!(expected.len(), 1000);
    assert_eq!(classify(&mut runtime, values, 1000), *expected);
}

/// A network, and one whose weights have 4 bits.
#[test]
fn a_machine_with_all_extensions_gives_what_the_driver_gives() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let calibration = models.join("cifar10_calib128.npz");
    let mut options = QuantizeOptions::new(models.join("resnet20_f32.onnx"), calibration);
    options.limit = Some(8);
    options.quantize.int4 = vec!["all".to_owned()];
    let int4 = quantize::quantize(&options, &()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("int4.onnx");
    std::fs::write(&file, &int4.onnx).unwrap();
    on_all_extensions("demo", &[]);
    on_all_extensions(file.to_str().unwrap(), &[Extension::Wgt4]);
}

fn on_all_extensions(model: &str, more: &[Extension]) {
    let extensions = serde_json::json!(Extension::ALL.map(Extension::name));
    let keys = [("EXTENSIONS".to_owned(), extensions)].into_iter();
    let target = Target {
        config: Some(ConfigSource::Keys(keys.collect())),
        ..Target::default()
    };
    let sample = Sample::on(model, &target);
    let needed = sample
        .program
        .layers
        .iter()
        .flat_map(|layer| &layer.commands);
    let needed = Extensions::needed(needed.map(|command| &command.insn));
    let always = [Extension::Preload, Extension::Requant, Extension::Overwrite];
    for one in always.iter().chain(more) {
        assert!(needed.contains(*one), "{needed}");
    }
    let (values, expected, _) = &sample.pictures[0];
    let mut runtime = open(&sample, &sample.layers);
    runtime.board().accelerator.timed = false;
    assert_eq!(classify(&mut runtime, values, expected.len()), *expected);
}

#[test]
fn counts_add_up_to_the_cycle_models() {
    let demo = demo();
    let mut runtime = open(demo, &demo.layers);
    let image = *runtime.image();
    let mut batches = vec![BatchStats::default(); image.batches() as usize];
    for _ in 0..2 {
        runtime.write_input(0, 0, &demo.pictures[0].0).unwrap();
        runtime.run(&mut batches).unwrap();
    }
    let (cycles, ran) = (
        runtime.board().accelerator.cycles,
        runtime.board().accelerator.batches,
    );
    let stats = runtime.stats();
    assert_eq!((stats.runs, stats.batches, stats.cycles), (2, ran, cycles));
    assert_eq!(batches.iter().map(|b| b.cycles).sum::<u64>(), cycles);
    assert_eq!(batches.iter().map(|b| b.ticks).sum::<u64>(), stats.ticks);
    let loaded: u64 = batches.iter().map(|b| b.loaded_bytes * b.runs).sum();
    let stored: u64 = batches.iter().map(|b| b.stored_bytes * b.runs).sum();
    assert_eq!((stats.loaded_bytes, stats.stored_bytes), (loaded, stored));
    // A batch for each layer, by its name; all of the network's multiply-adds are some layer's.
    let layers = &demo.program.layers;
    let layers: Vec<_> = layers.iter().filter(|l| !l.commands.is_empty()).collect();
    assert_eq!(layers.len(), batches.len());
    for (index, (batch, layer)) in batches.iter().zip(&layers).enumerate() {
        let name = image.batch(index as u32).unwrap().name;
        assert_eq!((name.to_str(), batch.layers), (Ok(&layer.name[..]), 1));
        assert_eq!((batch.runs, batch.macs), (2, layer.macs));
        assert!(batch.cycles > 0 && batch.stored_bytes > 0 && batch.insns > 0);
    }
    let whole = Image::read(&demo.network).unwrap().batch(0).unwrap();
    assert_eq!(whole.stats.layers as usize, layers.len());
    let macs: u64 = batches.iter().map(|b| b.macs).sum();
    assert_eq!(whole.stats.macs, macs);
    runtime.clear_stats();
    assert_eq!(runtime.stats().cycles, 0);
}

#[test]
fn steps_run_one_batch_each() {
    let demo = demo();
    let (values, expected, _) = &demo.pictures[1];
    let mut runtime = open(demo, &demo.layers);
    runtime.write_input(0, 0, values).unwrap();
    let all = runtime.image().batches();
    for left in (0..all).rev() {
        assert_eq!(runtime.step(&mut []), Ok(left));
    }
    let mut found = vec![0; expected.len()];
    runtime.read_output(0, 0, &mut found).unwrap();
    assert_eq!((found, runtime.stats().runs), (expected.clone(), 1));
}

/// What a run on a board that breaks comes to.
fn broken(breaks: Breaks) -> (Fault, vta_rt::Stats) {
    let mut runtime = open(demo(), &demo().layers);
    runtime.board().breaks = breaks;
    let fault = runtime.run(&mut []).unwrap_err();
    (fault, runtime.stats())
}

#[test]
fn boards_that_break_are_told_of() {
    let (fault, stats) = broken(Breaks::Hangs);
    assert_eq!(
        (fault.status, fault.at, fault.limit),
        (Status::Hung, 0, 100)
    );
    assert!(fault.value > 100 && stats.hung == 1 && stats.batches == 0);
    let least = Image::read(&demo().layers).unwrap().batch(0).unwrap();
    let least = u64::from(least.stats.insns);
    for (breaks, value) in [(Breaks::CounterStands, 0), (Breaks::CounterLags, least - 1)] {
        let (fault, stats) = broken(breaks);
        assert_eq!((fault.status, fault.value), (Status::Counter, value));
        assert_eq!((fault.limit, stats.wrong_counters), (least, 1));
    }
    let (fault, stats) = broken(Breaks::Bus);
    let ones = u64::from(u32::MAX);
    assert_eq!(
        (fault.status, fault.at, fault.value),
        (Status::Bus, 0, ones)
    );
    assert_eq!(stats.bus_errors, 1);
    let (fault, _) = broken(Breaks::Address);
    assert_eq!((fault.status, fault.at), (Status::Bus, 0x0c));
    assert_ne!(fault.value, fault.limit);
}

#[test]
fn a_board_that_hung_runs_again_after_a_reset() {
    let demo = demo();
    let (values, expected, _) = &demo.pictures[2];
    let mut runtime = open(demo, &demo.layers);
    runtime.board().breaks = Breaks::Hangs;
    assert_eq!(runtime.run(&mut []).unwrap_err().status, Status::Hung);
    assert_eq!(runtime.run(&mut []).unwrap_err().status, Status::Busy);
    assert_eq!(runtime.stats().busy, 1);
    runtime.board().reset();
    // Nobody has said so.
    assert_eq!(runtime.run(&mut []).unwrap_err().status, Status::Busy);
    runtime.recover().unwrap();
    assert_eq!(classify(&mut runtime, values, expected.len()), *expected);
}

#[test]
fn memory_that_does_not_do_is_refused_with_what_would() {
    let demo = demo();
    let needs = Image::read(&demo.layers).unwrap().needs(Visibility::Copied);
    let open = |bus: u32, bytes: u64, constants| {
        let board = Model::new(&demo.program.config, bus, bytes);
        Runtime::open(&demo.layers, board, constants).err().unwrap()
    };
    let short = needs.window_bytes - 1;
    let fault = open(BUS, short, Visibility::Copied);
    assert_eq!((fault.status, fault.value), (Status::Window, short));
    assert_eq!(fault.limit, needs.window_bytes);
    let fault = open(BUS, needs.window_bytes, Visibility::InPlace(8));
    assert_eq!((fault.status, fault.limit), (Status::Alignment, 256));
    let far = Visibility::InPlace((1 << 32) - 256);
    let fault = open(BUS, needs.window_bytes, far);
    assert_eq!((fault.status, fault.limit), (Status::Address, 1 << 32));
}

#[test]
fn tensors_and_values_that_are_not_there_are_refused() {
    let demo = demo();
    let mut runtime = open(demo, &demo.layers);
    let input = runtime.input(0).unwrap();
    assert_eq!((input.chw, input.len()), ([3, 32, 32], 3072));
    let spec = &demo.program.tensors[demo.program.inputs[0] as usize];
    assert_eq!(input.name.to_str(), Ok(&spec.name[..]));
    assert_eq!(input.scale_bits, spec.scale.to_bits());
    let mut status = |index, row, len: usize| {
        let values = vec![0; len];
        runtime.write_input(index, row, &values).unwrap_err()
    };
    assert_eq!(
        status(1, 0, 3072),
        Fault {
            status: Status::Index,
            at: 0,
            value: 1,
            limit: 1
        }
    );
    assert_eq!(status(0, 1, 3072).status, Status::Index);
    let fault = status(0, 0, 3071);
    assert_eq!(
        (fault.status, fault.value, fault.limit),
        (Status::Length, 3071, 3072)
    );
    let fault = runtime.read_output(0, 0, &mut [0; 11]).unwrap_err();
    assert_eq!((fault.status, fault.limit), (Status::Length, 10));
}
