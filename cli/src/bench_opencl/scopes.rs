//! `vta bench --device opencl:SEL --scopes`: the memory scopes of weights and activations against
//! time, and the choice that the device is opened with afterwards.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use vta_driver::{Device, DeviceCounters, QueueLimits, Session};
use vta_hw_opencl::{
    DeviceEntry, OpenClDevice, OpenClError, Options, Scopes, Selector, remember_scopes,
};
use vta_isa::Config;

use super::asked::{configs, names};
use super::turns::{Rounds, turns};
use crate::args::BenchArgs;
use crate::bench::spread::quartiles;
use crate::bench::subject;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// No more rounds once they have taken so long together.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds at least.
const MIN_ROUNDS: usize = 5;

/// A pair of scopes on one network.
struct Row {
    scopes: Scopes,
    /// First quartile, median and third quartile of a run in milliseconds, and what the last one
    /// counted; or why the device can't.
    found: Result<([f64; 3], DeviceCounters), String>,
    same: bool,
}

/// All pairs on one device and network.
struct Figures {
    device: String,
    name: String,
    model: String,
    batch: usize,
    rows: Vec<Row>,
}

/// Measures every device and number of images, and remembers the fastest scopes of each; whether
/// all outputs agree.
pub fn bench(args: &BenchArgs, devices: &str) -> Result<bool> {
    let configs = configs(args)?;
    let (mut all, mut same) = (Vec::new(), true);
    for name in names(devices)? {
        let entry = name.parse::<Selector>()?.find()?;
        for config in &configs {
            let networks = args.model.iter();
            let measured = networks.map(|network| one(args, name, &entry, network, config));
            let measured = measured.collect::<Result<Vec<_>>>()?;
            let chosen = choose(&measured);
            remember_scopes(&entry, config, &Options::from_env(), chosen);
            for figures in measured {
                same &= figures.rows.iter().all(|row| row.same);
                if args.json {
                    all.push(figures.json(chosen));
                } else {
                    print_text(&figures.text(chosen))?;
                }
            }
        }
    }
    if args.json {
        print_json(&json!({ "scopes": all }))?;
    }
    Ok(same)
}

/// Measures one network: runs of all pairs in turns, so that whatever else the machine does meets
/// all of them.
fn one(
    args: &BenchArgs,
    name: &str,
    entry: &DeviceEntry,
    network: &str,
    config: &Config,
) -> Result<Figures> {
    let program = subject::program(network, config)?;
    ensure!(
        program.config == *config,
        "{network} was compiled for another configuration: give it with --config"
    );
    let images = subject::images(&program)?;
    let images: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
    let selector: Selector = name.parse()?;
    let (mut rows, mut sessions, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for scopes in Scopes::all() {
        let options = Options {
            scopes: Some(scopes),
            ..Options::from_env()
        };
        let mut row = Row {
            scopes,
            found: Err(String::new()),
            same: true,
        };
        match OpenClDevice::open(&selector, config.clone(), options) {
            Ok(device) => {
                let device: Arc<dyn Device> = Arc::new(device);
                devices.push(Arc::clone(&device));
                let session = Session::new(Arc::clone(&program), device, QueueLimits::default())?;
                sessions.push((rows.len(), session));
            }
            // A device may lack images or constants, but has buffers.
            Err(OpenClError::Scope { reason, .. }) if scopes != Scopes::default() => {
                row.found = Err(reason);
            }
            Err(error) => return Err(error.into()),
        }
        rows.push(row);
    }
    let rounds = Rounds {
        least: MIN_ROUNDS,
        most: args.samples.div_ceil(4).max(MIN_ROUNDS),
        patience: PATIENCE,
    };
    let taken = turns(rounds, &devices, |way| {
        Ok(sessions[way].1.run(&images)?.outputs)
    })?;
    for ((row, _), taken) in sessions.iter().zip(taken) {
        rows[*row].same = taken.same;
        rows[*row].found = Ok((quartiles(taken.ms), taken.counted));
    }
    Ok(Figures {
        device: entry.selector.clone(),
        name: entry.facts.name.clone(),
        model: network.to_owned(),
        batch: config.batch(),
        rows,
    })
}

/// The scopes of the least time in all networks together, among those whose third quartile is below
/// the first of buffers in each of them and whose outputs are right; else buffers.
fn choose(networks: &[Figures]) -> Scopes {
    let time = |figures: &Figures, scopes: Scopes| -> Option<[f64; 3]> {
        let row = figures.rows.iter().find(|row| row.scopes == scopes)?;
        let (times, _) = row.found.as_ref().ok().filter(|_| row.same)?;
        Some(*times)
    };
    let total = |scopes: &Scopes| -> Option<f64> {
        let medians = networks.iter().map(|figures| {
            let ([_, median, last], [first, ..]) =
                (time(figures, *scopes)?, time(figures, Scopes::default())?);
            (last < first).then_some(median)
        });
        medians.sum()
    };
    let faster = Scopes::all().filter_map(|scopes| Some((scopes, total(&scopes)?)));
    let best = faster.min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or_else(Scopes::default, |(scopes, _)| scopes)
}

impl Figures {
    fn json(&self, chosen: Scopes) -> Value {
        let row = |row: &Row| {
            let mut object = json!({
                "weights": row.scopes.weights.name(),
                "activations": row.scopes.activations.name(),
                "same": row.same,
            });
            match &row.found {
                Ok(([first, median, third], counted)) => {
                    object["ms"] = json!(median);
                    object["quartiles_ms"] = json!([first, third]);
                    object["launches"] = json!(counted.launches);
                    object["scope_copies"] = json!(counted.scope_copies);
                }
                Err(reason) => object["refused"] = json!(reason),
            }
            object
        };
        json!({
            "device": self.device,
            "name": self.name,
            "model": self.model,
            "batch": self.batch,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "chosen": chosen.to_string(),
        })
    }

    fn text(&self, chosen: Scopes) -> String {
        let columns = ["weights", "activations"].map(Column::text);
        let numbers = ["ms", "quartiles", "launches", "copies"].map(Column::number);
        let mut table = Table::new(columns.into_iter().chain(numbers));
        let (mut refused, mut wrong) = (String::new(), String::new());
        for Row {
            scopes,
            found,
            same,
        } in &self.rows
        {
            match found {
                Ok(([first, median, third], counted)) => table.row([
                    scopes.weights.to_string(),
                    scopes.activations.to_string(),
                    format!("{median:.2}"),
                    format!("{first:.2}-{third:.2}"),
                    counted.launches.to_string(),
                    counted.scope_copies.to_string(),
                ]),
                Err(reason) => refused.push_str(&format!("{scopes}: {reason}\n")),
            }
            if !same {
                wrong.push_str(&format!("WRONG: other outputs from {scopes}\n"));
            }
        }
        format!(
            "{} on {} ({}), images a run: {}\n{}{refused}{wrong}opened with {chosen} from now on\n",
            self.model,
            self.device,
            self.name,
            self.batch,
            table.text(),
        )
    }
}

#[cfg(test)]
mod tests;
