//! `vta bench --device opencl:SEL`: what submitting much at once, overlapping runs, and batches
//! gain on OpenCL devices.

mod scopes;
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vta_app::device;
use vta_app::run::counters_json;
use vta_driver::{Device, DeviceCounters, Program, QueueLimits, RunOutput, Session};
use vta_hw_opencl::{OpenClDevice, Options, Selector};
use vta_isa::Config;

use self::steps::{Steps, with_batch};
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
    let config = device::config(args.config.as_ref())?;
    let batches = match &args.batch[..] {
        [] => vec![config.batch()],
        given => given.to_vec(),
    };
    let mut all = Vec::new();
    for name in devices.split(',') {
        ensure!(
            device::is_opencl(name),
            "--device {name}: OpenCL devices are measured, opencl[:SEL]"
        );
        for network in &args.model {
            for &batch in &batches {
                let figures = one(args, name, network, &with_batch(&config, batch)?)?;
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
    let images: Vec<&[i8]> = images.iter().map(Vec::as_slice).collect();
    let samples = args.samples.div_ceil(4).max(MIN_SAMPLES);
    let open = |profile| open(device, &program.config, profile);
    let opened = open(false)?;
    let mut ways = Ways::measure(&opened, &program, &images, samples, args.instructions)?;
    let shared: Arc<dyn Device> = opened.clone();
    let mut session = Session::new(Arc::clone(&program), shared, QueueLimits::default())?;
    let expected = session.run(&images)?;
    let started = Instant::now();
    session.run(&images)?;
    let [fewest, most] = PIPELINE_RUNS;
    let fit = PATIENCE.as_secs_f64() / started.elapsed().as_secs_f64().max(1e-9) / 8.0;
    let groups = vec![images.clone(); (fit as u32).clamp(fewest, most) as usize];
    let found = flows_of(&mut session, &groups, samples, &expected)?;
    let flows = found.map(|(_, rates, same)| {
        ways.mismatches.extend(same.err());
        median(rates)
    });
    drop(session);
    let profiled = open(true)?;
    let kernel_share = kernel_share(&profiled, &program, &images, samples)?;
    Ok(Figures {
        device: opened.entry().selector.clone(),
        name: opened.entry().facts.name.clone(),
        structure: opened.structure().to_string(),
        model: network.to_owned(),
        batch: program.config.batch(),
        ways,
        flows,
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
    whole: [Way; 2],
    /// The first layers: how many, at once, instruction by instruction.
    part: (usize, [Way; 2]),
    mismatches: Vec<String>,
    /// The first run, which plans.
    plan_ms: f64,
}

impl Ways {
    fn measure(
        opened: &Arc<OpenClDevice>,
        program: &Arc<Program>,
        images: &[&[i8]],
        samples: usize,
        instructions: usize,
    ) -> Result<Self> {
        let device: Arc<dyn Device> = opened.clone();
        let steps = Steps::new(program, &device)?;
        let meter = Meter {
            device: &device,
            samples,
        };
        let layers = program.layers.len();
        let last = layers.checked_sub(1).context("the network has no layer")?;
        let started = Instant::now();
        let mut all = steps.record(layers, layers)?;
        let plan_ms = started.elapsed().as_secs_f64() * 1e3;
        let mut mismatches = Vec::new();
        let mut each = steps.record(layers, 1)?;
        let [whole_name, layer_name] = ["the whole network at once", "a submission for each layer"];
        let (whole, same) = meter.take(
            (whole_name, 1, &mut || steps.run(images, &mut all, last)),
            (layer_name, layers, &mut || {
                steps.run(images, &mut each, last)
            }),
        )?;
        if !same {
            mismatches.push(layer_name.to_owned());
        }
        drop((all, each));
        let few = first_layers(program, instructions);
        let mut part = steps.record(few, few)?;
        let batches = part.one_by_one()?;
        let part_name = format!("the first {few} of {layers} layers at once");
        let insn_name = "a submission for each instruction";
        let (ways, same) = meter.take(
            (&part_name, 1, &mut || steps.run(images, &mut part, few - 1)),
            (insn_name, batches.len(), &mut || {
                steps.run_each(images, &batches, few - 1)
            }),
        )?;
        // Where a batch starts from empty scratchpads, one instruction has no operands.
        if opened.keeps_scratchpads() && !same {
            mismatches.push(insn_name.to_owned());
        }
        Ok(Self {
            whole,
            part: (few, ways),
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

/// Takes times and counts on one device.
struct Meter<'a> {
    device: &'a Arc<dyn Device>,
    samples: usize,
}

/// A name, how often it submits, and a run that gives an output.
type Measured<'a> = (&'a str, usize, &'a mut dyn FnMut() -> Result<Vec<u8>>);

impl Meter<'_> {
    /// Two ways that take turns, so that whatever else the machine does meets both: the median
    /// times of runs after one that plans, what the last ones counted, and whether all outputs
    /// are the same.
    fn take<'a>(&self, one: Measured<'a>, many: Measured<'a>) -> Result<([Way; 2], bool)> {
        let expected = one.2()?;
        let mut same = many.2()? == expected;
        let mut found = [(one, Vec::new()), (many, Vec::new())];
        let mut counted = [DeviceCounters::default(); 2];
        let counters = || self.device.counters().unwrap_or_default();
        let started = Instant::now();
        for sample in 0..self.samples {
            if sample >= MIN_SAMPLES && started.elapsed() > 2 * PATIENCE {
                break;
            }
            for (((_, _, run), times), counted) in found.iter_mut().zip(&mut counted) {
                let before = counters();
                let begun = Instant::now();
                same &= run()? == expected;
                times.push(begun.elapsed().as_secs_f64() * 1e3);
                *counted = counters().since(&before);
            }
        }
        let mut counted = counted.into_iter();
        let ways = found.map(|((name, submissions, _), times)| Way {
            name: name.to_owned(),
            ms: median(times),
            submissions,
            counted: counted.next().unwrap_or_default(),
        });
        Ok((ways, same))
    }
}

/// How many runs are in flight, images a second, and which outputs aren't the expected.
type Flow = (usize, Vec<f64>, Result<(), String>);

/// Images a second with one and two runs in flight, in rounds that take turns, so that whatever else the
/// machine does meets both.
fn flows_of(
    session: &mut Session,
    groups: &[Vec<&[i8]>],
    samples: usize,
    expected: &RunOutput,
) -> Result<[Flow; 2]> {
    let mut found = [1, 2].map(|in_flight| (in_flight, Vec::new(), Ok(())));
    let started = Instant::now();
    for round in 0..=samples {
        if round > 1 && started.elapsed() > 2 * PATIENCE {
            break;
        }
        for (in_flight, rates, same) in &mut found {
            let begun = Instant::now();
            let outputs = session.run_many(groups, *in_flight)?;
            let seconds = begun.elapsed().as_secs_f64();
            if outputs.iter().any(|out| out.outputs != expected.outputs) {
                *same = Err(format!("{in_flight} runs in flight"));
            }
            // The first round plans.
            if round > 0 {
                let images: usize = groups.iter().map(Vec::len).sum();
                rates.push(images as f64 / seconds);
            }
        }
    }
    Ok(found)
}

/// The share of the time of runs one after the other in which kernels ran.
fn kernel_share(
    opened: &Arc<OpenClDevice>,
    program: &Arc<Program>,
    images: &[&[i8]],
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
        let ways = |[one, many]: &[Way; 2]| {
            let way = |way: &Way| {
                let mut object = counters_json(&way.counted);
                object["way"] = json!(way.name);
                object["ms"] = json!(way.ms);
                object["submissions"] = json!(way.submissions);
                object["ratio"] = json!(way.ms / one.ms);
                object
            };
            json!([way(one), way(many)])
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
        for [one, many] in [&self.ways.whole, &self.ways.part.1] {
            for way in [one, many] {
                let c = &way.counted;
                table.row([
                    way.name.clone(),
                    format!("{:.2}", way.ms),
                    format!("{:.2}", way.ms / one.ms),
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
                whole: [way("at once", 250.0, 1), way("layer by layer", 500.0, 157)],
                part: (3, [way("few at once", 8.0, 1), way("each", 1234.5, 12_345)]),
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
