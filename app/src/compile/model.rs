//! Models compiled for what they run on.

use std::sync::Arc;

use vta_compiler::{lower, passes};

use super::{Compiled, for_target, same_config};
use crate::device::Machine;
use crate::error::{Context, Error, Result, ensure};
use crate::open::model::{Model, Network, is_quantized, tell};
use crate::options::Target;
use crate::watch::Watch;

impl Model {
    /// As [`Self::compile`], with the model without fusions where there is one, to compare layers with.
    ///
    /// # Errors
    /// As for [`Self::compile`].
    pub fn compile_to_compare(self, target: &Target, watch: &dyn Watch) -> Result<Compiled> {
        let unfused = match self.network() {
            Network::Graph(graph) if is_quantized(graph) => {
                let unfused = passes::unfused(graph);
                let mut unfused = unfused.with_context(|| self.name().to_owned())?;
                let config = Machine::read(target)?.config;
                unfused.graph = lower::stored(&unfused.graph, &config).into_owned();
                Some(Arc::new(unfused))
            }
            _ => None,
        };
        let compiled = self.compile(target, watch)?;
        Ok(Compiled {
            unfused,
            ..compiled
        })
    }

    /// Compiles it for a target. A bundle is compiled already, for its configuration.
    ///
    /// # Errors
    /// [`Error::Float`] for a float network, [`Error::Usage`] for a bundle whose configuration isn't
    /// the target's or that was to run on several devices, [`Error::Model`] for what can't be
    /// lowered, [`Error::Cancelled`] when `watch` says so between two steps.
    pub fn compile(self, target: &Target, watch: &dyn Watch) -> Result<Compiled> {
        let config = Machine::read(target)?.config;
        let name = self.name().to_owned();
        let compiled = match self.into_network() {
            Network::Graph(graph) => {
                if !is_quantized(&graph) {
                    return Err(Error::Float(name));
                }
                let name = || name.clone();
                let mut integer = passes::quantized(&graph).with_context(name)?;
                tell(&graph, &mut integer.metadata);
                // Its weights are those of the integer graph now.
                drop(graph);
                if watch.cancelled() {
                    return Err(Error::Cancelled);
                }
                return for_target(target, integer, &config).with_context(name);
            }
            Network::Compiled(compiled) => *compiled,
        };
        if target.config.is_some() {
            same_config(&compiled.program, &config)?;
        }
        ensure!(
            target.placement.is_none() && target.devices().len() == 1,
            "several devices need the model, not a compiled bundle"
        );
        Ok(compiled)
    }
}
