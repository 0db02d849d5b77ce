//! `vta bench --device opencl:SEL`: what submitting much at once, overlapping runs, and batches
//! gain on OpenCL devices.

mod asked;
mod scopes;
mod steps;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vta_app::run::counters_json;
use vta_driver::{Device, DeviceCounters, Program, QueueLimits, Session};
use vta_hw_opencl::{OpenClDevice, Options, Selector};
use vta_isa::Config;

use self::asked::{configs, names};
use self::steps::Steps;
use self::turns::{Rounds, Taken, turns};
use crate::args::BenchArgs;
use crate::bench::spread::median;
use crate::bench::subject;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// No more samples of one figure once they have taken so long together.
const PATIENCE: Duration = Duration::from_secs(4);
/// Samples of a figure at least.
const MIN_SAMPLES: usize = 3;
/// Runs of a pipeline that are timed together: the fewest that overlap, and the most.
const PIPELINE_RUNS: [u32; 2] = [3, 16];

/// One way of submitting: the median time of a run, and what a run counts.
struct Way {
    name: String,
    ms: f64,
    submissions: usize,
    counted: DeviceCounters,
}

impl Way {
    fn new(name: String, submissions: usize, taken: Taken) -> Self {
        Self {
            name,
            ms: median(taken.ms),
            submissions,
            counted: taken.counted,
        }
    }
}

/// Everything about one device, network and batch.
struct Figures {
    device: String,
    name: String,
    structure: String,
    model: String,
    batch: usize,
    ways: Ways,
    /// Images a second with one run in flight, and with two.
    flows: [f64; 2],
    /// Share of the time in which kernels ran, of a run of its own that takes their times.
    kernel_share: f64,
}

/// Measures every device, network and batch of the arguments; whether all outputs agree.
pub fn bench(args: &BenchArgs, devices: &str) -> Result<bool> {
    ensure!(args.samples > 0, "--samples must be at least 1");
    if args.scopes {
        return scopes::bench(args, devices);
    }
    let configs = configs(args)?;
    let mut all = Vec::new();
    for name in names(devices)? {
        for network in &args.model {
            for config in &configs {
                let figures = one(args, name, network, config)?;
                if !args.json {
                    print_text(&figures.text())?;
                }
                all.push(figures);
            }
        }
    }
    if args.json {
        let rows: Vec<Value> = all.iter().map(Figures::json).collect();
        print_json(&json!({ "opencl": rows }))?;
    }
    Ok(all.iter().all(|all| all.ways.mismatches.is_empty()))
}

/// Measures one network on one device.
fn one(args: &BenchArgs, device: &str, network: &str, config: &Config) -> Result<Figures> {
    let program = subject::program(network, config)?;
    let images = subject::images(&program)?;
    let images: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
    let rounds = Rounds {
        least: MIN_SAMPLES,
        most: args.samples.div_ceil(4).max(MIN_SAMPLES),
        patience: 2 * PATIENCE,
    };
    let open = |profile| open(device, &program.config, profile);
    let opened = open(false)?;
    let mut ways = Ways::measure(&opened, &program, &images, rounds, args.instructions)?;
    let shared: Arc<dyn Device> = opened.clone();
    let mut session = Session::new(
        Arc::clone(&program),
        Arc::clone(&shared),
        QueueLimits::default(),
    )?;
    let expected = session.run(&images)?.outputs;
    let started = Instant::now();
    session.run(&images)?;
    let [fewest, most] = PIPELINE_RUNS;
    let fit = PATIENCE.as_secs_f64() / started.elapsed().as_secs_f64().max(1e-9) / 8.0;
    let groups = vec![images.clone(); (fit as u32).clamp(fewest, most) as usize];
    let mut right = [true; 2];
    // A round takes many runs, so that one may have to do.
    let flow = turns(
        Rounds { least: 1, ..rounds },
        &[shared.clone(), shared],
        |way| {
            let outputs = session.run_many(&groups, way + 1)?;
            right[way] &= outputs.iter().all(|out| out.outputs == expected);
            Ok(())
        },
    )?;
    let in_flight = (1..).zip(right).filter(|(_, right)| !right);
    let wrong = in_flight.map(|(count, _)| format!("{count} runs in flight"));
    ways.mismatches.extend(wrong);
    let run_images = (groups.len() * images.len()) as f64;
    let rate = |taken: &Taken| 1e3 * run_images / median(taken.ms.clone());
    drop(session);
    let profiled = open(true)?;
    let kernel_share = kernel_share(&profiled, &program, &images, rounds.most)?;
    Ok(Figures {
        device: opened.entry().selector.clone(),
        name: opened.entry().facts.name.clone(),
        structure: opened.structure().to_string(),
        model: network.to_owned(),
        batch: program.config.batch(),
        ways,
        flows: [rate(&flow[0]), rate(&flow[1])],
        kernel_share,
    })
}

fn open(device: &str, config: &Config, profile: bool) -> Result<Arc<OpenClDevice>> {
    let selector: Selector = device.parse()?;
    let options = Options {
        profile,
        ..Options::from_env()
    };
    let device = OpenClDevice::open(&selector, config.clone(), options)?;
    Ok(Arc::new(device))
}

/// The ways of submitting, measured.
struct Ways {
    /// Everything at once, a submission for each layer.
    whole: Vec<Way>,
    /// The first layers: how many, at once, instruction by instruction.
    part: (usize, Vec<Way>),
    mismatches: Vec<String>,
    /// The first run, which plans.
    plan_ms: f64,
}

impl Ways {
    fn measure(
        opened: &Arc<OpenClDevice>,
        program: &Arc<Program>,
        images: &[&[i16]],
        rounds: Rounds,
        instructions: usize,
    ) -> Result<Self> {
        let device: Arc<dyn Device> = opened.clone();
        let steps = Steps::new(program, &device)?;
        let layers = program.layers.len();
        let last = layers.checked_sub(1).context("the network has no layer")?;
        let started = Instant::now();
        let mut all = steps.record(layers, layers)?;
        let plan_ms = started.elapsed().as_secs_f64() * 1e3;
        let mut each = steps.record(layers, 1)?;
        let devices = [Arc::clone(&device), device];
        let whole = turns(rounds, &devices, |way| match way {
            0 => steps.run(images, &mut all, last),
            _ => steps.run(images, &mut each, last),
        })?;
        drop((all, each));
        let few = first_layers(program, instructions);
        let mut all = steps.record(few, few)?;
        let each = all.one_by_one()?;
        let part = turns(rounds, &devices, |way| match way {
            0 => steps.run(images, &mut all, few - 1),
            _ => steps.run_each(images, &each, few - 1),
        })?;
        let [layer, insn] =
            ["layer", "instruction"].map(|of| format!("a submission for each {of}"));
        let differ = |taken: &[Taken]| taken.iter().any(|taken| !taken.same);
        let mut mismatches = Vec::new();
        if differ(&whole) {
            mismatches.push(layer.clone());
        }
        // Where a batch starts from empty scratchpads, one instruction has no operands.
        if opened.keeps_scratchpads() && differ(&part) {
            mismatches.push(insn.clone());
        }
        let ways = |names: [(String, usize); 2], taken: Vec<Taken>| {
            let ways = names.into_iter().zip(taken);
            let ways = ways.map(|((name, submissions), taken)| Way::new(name, submissions, taken));
            ways.collect()
        };
        let at_once = format!("the first {few} of {layers} layers at once");
        Ok(Self {
            whole: ways(
                [("the whole network at once".to_owned(), 1), (layer, layers)],
                whole,
            ),
            part: (few, ways([(at_once, 1), (insn, each.len())], part)),
            mismatches,
            plan_ms,
        })
    }
}

/// How many of the first layers have up to so many commands together; at least one.
fn first_layers(program: &Program, commands: usize) -> usize {
    let mut sum = 0;
    let fits = program.layers.iter().take_while(|layer| {
        sum += layer.commands.len();
        sum <= commands
    });
    fits.count().max(1)
}

/// The share of the time of runs one after the other in which kernels ran.
fn kernel_share(
    opened: &Arc<OpenClDevice>,
    program: &Arc<Program>,
    images: &[&[i16]],
    samples: usize,
) -> Result<f64> {
    let device: Arc<dyn Device> = opened.clone();
    let mut session = Session::new(
        Arc::clone(program),
        Arc::clone(&device),
        QueueLimits::default(),
    )?;
    session.run(images)?;
    let kernels = || device.counters().and_then(|c| c.kernel_ns).unwrap_or(0);
    let (before, started) = (kernels(), Instant::now());
    for done in 0..samples {
        if done >= MIN_SAMPLES && started.elapsed() > PATIENCE {
            break;
        }
        session.run(images)?;
    }
    let wall = started.elapsed();
    Ok((kernels() - before) as f64 / wall.as_nanos().max(1) as f64)
}

impl Figures {
    fn gain(&self) -> f64 {
        let [one, two] = self.flows;
        two / one.max(f64::MIN_POSITIVE)
    }

    fn json(&self) -> Value {
        let ways = |ways: &[Way]| {
            let way = |way: &Way| {
                let mut object = counters_json(&way.counted);
                object["way"] = json!(way.name);
                object["ms"] = json!(way.ms);
                object["submissions"] = json!(way.submissions);
                object["ratio"] = json!(way.ms / ways[0].ms);
                object
            };
            json!(ways.iter().map(way).collect::<Vec<_>>())
        };
        let [one, two] = self.flows;
        json!({
            "device": self.device,
            "name": self.name,
            "structure": self.structure,
            "model": self.model,
            "batch": self.batch,
            "images_per_s": one,
            "first_run_ms": self.ways.plan_ms,
            "whole": ways(&self.ways.whole),
            "part": {"layers": self.ways.part.0, "ways": ways(&self.ways.part.1)},
            "pipelines": [
                {"in_flight": 1, "images_per_s": one}, {"in_flight": 2, "images_per_s": two},
            ],
            "two_in_flight": self.gain(),
            "kernel_share": self.kernel_share,
            "mismatches": self.ways.mismatches,
        })
    }

    fn text(&self) -> String {
        let numbers = ["ms", "ratio", "submissions", "launches", "waits", "copies"];
        let columns = std::iter::once(Column::text(""));
        let mut table = Table::new(columns.chain(numbers.map(Column::number)));
        for ways in [&self.ways.whole, &self.ways.part.1] {
            for way in ways {
                let c = &way.counted;
                table.row([
                    way.name.clone(),
                    format!("{:.2}", way.ms),
                    format!("{:.2}", way.ms / ways[0].ms),
                    way.submissions.to_string(),
                    c.launches.to_string(),
                    c.waits.to_string(),
                    c.copies.to_string(),
                ]);
            }
        }
        let [one, two] = self.flows;
        let images = match self.batch {
            1 => "one image a run".to_owned(),
            n => format!("{n} images a run"),
        };
        let mut text = format!(
            "{} on {} ({}), {}, {images}\n{}{one:.2} images a second one run after the \
             other, {two:.2} with two in flight ({:.2} times)\nkernels run in {:.0} % of the time \
             (taken in runs of their own)\n",
            self.model,
            self.device,
            self.name,
            self.structure,
            table.text(),
            self.gain(),
            100.0 * self.kernel_share,
        );
        for way in &self.ways.mismatches {
            text.push_str(&format!("WRONG: other outputs from {way}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::{COLUMNS, wrapped};

    fn way(name: &str, ms: f64, submissions: usize) -> Way {
        Way {
            name: name.to_owned(),
            ms,
            submissions,
            counted: DeviceCounters::default(),
        }
    }

    fn figures() -> Figures {
        Figures {
            device: "opencl:pocl:0".to_owned(),
            name: "pthread-skylake-avx512-AMD EPYC 9654 96-Core Processor".to_owned(),
            structure: "throughput".to_owned(),
            model: "zoo:resnet152".to_owned(),
            batch: 16,
            ways: Ways {
                plan_ms: 12_345.6,
                whole: vec![way("at once", 250.0, 1), way("layer by layer", 500.0, 157)],
                part: (
                    3,
                    vec![way("few at once", 8.0, 1), way("each", 1234.5, 12_345)],
                ),
                mismatches: vec!["each".to_owned()],
            },
            flows: [40.0, 80.0],
            kernel_share: 0.875,
        }
    }

    #[test]
    fn the_table_has_each_way_beside_the_one_before_it() {
        let text = wrapped(&figures().text(), COLUMNS);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let cells = |name: &str| -> Vec<&str> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().collect()
        };
        assert_eq!(cells("at once")[..3], ["250.00", "1.00", "1"]);
        assert_eq!(cells("layer by layer")[..3], ["500.00", "2.00", "157"]);
        assert_eq!(cells("each")[..3], ["1234.50", "154.31", "12345"]);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for says in [
            "16 images a run",
            "80.00 with two in flight (2.00 times)",
            "kernels run in 88 % of the time",
            "WRONG: other outputs from each",
        ] {
            assert!(flat.contains(says), "{text}");
        }
    }

    #[test]
    fn json_has_what_the_table_has() {
        let json = figures().json();
        assert_eq!(json["whole"][1]["ratio"], 2.0);
        assert_eq!(json["part"]["ways"][1]["submissions"], 12_345);
        assert_eq!(json["two_in_flight"], 2.0);
        assert_eq!(json["mismatches"], json!(["each"]));
    }
}
