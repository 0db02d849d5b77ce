//! The simulators as devices.

use thiserror::Error;
use vta_driver::{Budget, DeviceInfo, Runner, WorkerDevice};
use vta_isa::Config;

use crate::{Executor, Functional, GemmKernel, Oracle};

/// `VTA_KERNEL` names no kernel that this CPU can run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("VTA_KERNEL={name}: no such kernel on this CPU (there is {available})")]
pub struct KernelError {
    /// What the variable says.
    pub name: String,
    /// Kernels that can be named.
    pub available: String,
}

/// Makes simulators, each a device with a worker thread of its own.
pub struct SimDevice;

impl SimDevice {
    /// The fast functional simulator, with the best kernel of this CPU.
    pub fn functional(config: Config) -> WorkerDevice {
        Self::functional_with(config, GemmKernel::detect())
    }

    /// The fast functional simulator with a kernel of choice.
    pub fn functional_with(config: Config, kernel: GemmKernel) -> WorkerDevice {
        Self::of(Functional::with_kernel(config, kernel))
    }

    /// The fast functional simulator as it is set up. Its threads, the device's own among them, pack images, too, and end
    /// with the device.
    pub fn of(executor: Functional) -> WorkerDevice {
        let (config, threads) = (executor.config().clone(), executor.helpers());
        Self::with_executor("sim", config, executor).with_packing_threads(threads)
    }

    /// The fast functional simulator with the kernel that the environment variable
    /// `VTA_KERNEL` names, or else the best.
    ///
    /// # Errors
    /// [`KernelError`] when the variable names no kernel of this CPU.
    pub fn functional_from_env(config: Config) -> Result<WorkerDevice, KernelError> {
        Ok(Self::functional_with(config, Self::kernel_from_env()?))
    }

    /// The kernel that the environment variable `VTA_KERNEL` names, or else the best.
    ///
    /// # Errors
    /// [`KernelError`] when the variable names no kernel of this CPU.
    pub fn kernel_from_env() -> Result<GemmKernel, KernelError> {
        let Some(name) = std::env::var_os("VTA_KERNEL") else {
            return Ok(GemmKernel::detect());
        };
        let known = GemmKernel::ALL.into_iter().filter(|k| k.supported());
        let named = known.clone().find(|k| name == k.name());
        named.ok_or_else(|| KernelError {
            name: name.to_string_lossy().into_owned(),
            available: known.map(GemmKernel::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// The slow oracle.
    pub fn oracle(config: Config) -> WorkerDevice {
        Self::oracle_within(Budget::default(), config)
    }

    /// The slow oracle, with a budget of choice for each batch.
    pub fn oracle_within(budget: Budget, config: Config) -> WorkerDevice {
        let executor = Oracle::new(config.clone()).with_max_steps(budget.steps);
        Self::with_executor("oracle", config, executor)
    }

    /// Any executor.
    pub fn with_executor(
        name: &str,
        config: Config,
        mut executor: impl Executor + Send + 'static,
    ) -> WorkerDevice {
        let runner: Runner = Box::new(move |batch, memory| {
            executor.run_batch(batch, memory).map_err(|e| e.to_string())
        });
        WorkerDevice::new(
            DeviceInfo {
                name: name.to_owned(),
                config,
            },
            runner,
        )
        .without_words()
        .with_work_at_once()
    }
}
