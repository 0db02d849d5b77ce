//! What happens between a model and a device, as text: the network after each pass, and what the
//! fast executor makes of a batch.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use vta_compiler::passes;
use vta_driver::{Device, Program};
use vta_sim::{GemmKernel, PlanLine, PlanListing, PlanLog, Planner, SimDevice};

use crate::compile::Compiled;
use crate::error::{Error, Result, bail, ensure};
use crate::open::model::{Model, Network};
use crate::run::engine::Engine;

/// The network after a pass, or after each when `pass` is `all`.
///
/// # Errors
/// [`Error::Usage`] for a pass that doesn't exist, which names those that do, and for a network
/// that is compiled already; [`Error::Float`] for a float model; [`Error::Model`] for what the
/// passes refuse.
pub fn passes(model: &Model, pass: &str) -> Result<String> {
    let Network::Graph(graph) = model.network() else {
        bail!("{} is compiled already", model.name());
    };
    if model.is_float() {
        return Err(Error::Float(model.name().to_owned()));
    }
    let names = passes::names();
    ensure!(
        pass == "all" || names.contains(&pass),
        "there is no pass '{pass}' (there are {} and all)",
        names.join(", ")
    );
    let mut text = String::new();
    passes::quantized_with(graph, &mut |name, listing| {
        if pass == "all" {
            text.push_str(&format!("== {name}\n{}", listing()));
        } else if pass == name {
            text.push_str(&listing());
        }
    })?;
    Ok(text)
}

/// The plans of all batches of one pass over a network, in the order in which they are submitted.
/// `Display` lists every operation; [`Self::summary`] each different one once.
#[derive(Clone, Debug)]
pub struct Plans {
    /// The kernel that they are made for.
    kernel: GemmKernel,
    /// Of each device, in the order of their names, with that name; `None` for a batch that is run one
    /// instruction at a time.
    batches: Vec<(String, Option<PlanListing>)>,
}

impl Plans {
    /// Every different operation of each batch once, with how often it stands there; without places
    /// in DRAM.
    pub fn summary(&self) -> String {
        self.text(PlanListing::summary)
    }

    /// One object: the kernel, and of each batch every operation with its places in DRAM and, by
    /// the fusion that brought them there, the instructions that it stands for. What the operation
    /// was made of has no fusion. `operations` is null for a batch that is run one instruction at
    /// a time.
    pub fn json(&self) -> Value {
        let batch = |(device, plan): &(String, Option<PlanListing>)| {
            let plan = plan.as_ref();
            let operations = plan.map(|plan| plan.lines().iter().map(line).collect::<Vec<_>>());
            json!({"device": device, "operations": operations})
        };
        let batches: Vec<Value> = self.batches.iter().map(batch).collect();
        json!({"kernel": self.kernel.name(), "batches": batches})
    }

    fn text(&self, list: impl Fn(&PlanListing) -> String) -> String {
        let mut text = String::new();
        for (index, (device, plan)) in self.batches.iter().enumerate() {
            let kernel = self.kernel.name();
            text += &format!("== batch {index} on {device}, kernel {kernel}\n");
            match plan {
                Some(plan) => text += &list(plan),
                None => text += "one instruction at a time\n",
            }
        }
        text
    }
}

impl fmt::Display for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(PlanListing::to_string))
    }
}

fn line(line: &PlanLine) -> Value {
    let from = line.origin.iter().map(|(pass, insns)| {
        let insns = insns.iter();
        let insns = insns.map(|(name, index)| json!({"index": index, "mnemonic": name}));
        let pass = Some(pass).filter(|pass| !pass.is_empty());
        json!({"fusion": pass, "insns": insns.collect::<Vec<_>>()})
    });
    json!({
        "what": line.what,
        "places": line.place.trim_start_matches("; "),
        "from": from.collect::<Vec<_>>(),
    })
}

/// [`Session::plans`](crate::Session::plans) of devices of some names, the target's in order.
///
/// # Errors
/// As there.
pub(crate) fn plans(network: &Compiled, devices: &[&str]) -> Result<Plans> {
    for name in devices {
        ensure!(
            matches!(*name, "sim" | "cycle"),
            "the plan is that of the devices sim and cycle, not of {name}"
        );
    }
    let kernel = SimDevice::kernel_from_env()?;
    let config = &network.program.config;
    let logs: Vec<PlanLog> = devices.iter().map(|_| PlanLog::default()).collect();
    let planner = |(name, log): (&&str, &PlanLog)| -> Arc<dyn Device> {
        let planner = Planner::new(config.clone(), kernel, log.clone());
        Arc::new(SimDevice::with_executor(name, config.clone(), planner))
    };
    let planners = devices.iter().zip(&logs).map(planner).collect();
    // Planners run nothing, so that the values of the image don't matter.
    Engine::on(network, planners, 1)?.run(&[&zeros(&network.program)?])?;
    let mut batches = Vec::new();
    for (name, log) in devices.iter().zip(logs) {
        let plans = log.take().into_iter();
        batches.extend(plans.map(|plan| ((*name).to_owned(), plan)));
    }
    Ok(Plans { kernel, batches })
}

/// An image for the network's input.
pub(crate) fn zeros(program: &Program) -> Result<Vec<i16>> {
    Ok(vec![0; program.input_len()?])
}
