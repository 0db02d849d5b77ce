//! The driver's errors.

use thiserror::Error;

use crate::{AllocError, BundleError, MemoryError, ProgramError, TimelineError};

/// What can go wrong between a program and a device.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A run failed; the text names the instruction, field and bound.
    #[error("device {device}: {message}")]
    Device {
        /// The device's name.
        device: String,
        /// The cause.
        message: String,
    },
    /// The device stopped and answers no more.
    #[error("device {device} has stopped")]
    Lost {
        /// The device's name.
        device: String,
    },
    /// A layer that the host computes failed.
    #[error("host layer {layer}: {reason}")]
    Host {
        /// The layer.
        layer: String,
        /// Why.
        reason: String,
    },
    /// Device memory can't be allocated or freed as asked.
    #[error("device {device}: {source}")]
    Alloc {
        /// The device's name.
        device: String,
        /// The cause.
        source: AllocError,
    },
    /// The host touched device memory that isn't allocated.
    #[error("device {device}: {source}")]
    Memory {
        /// The device's name.
        device: String,
        /// The cause.
        source: MemoryError,
    },
    /// The program contradicts itself or the device.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A bundle file can't be read or written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A program was compiled for another configuration than the device has.
    #[error("the program was compiled for another configuration than device {device} has: {what}")]
    Config {
        /// The device's name.
        device: String,
        /// The first difference.
        what: String,
    },
    /// One uncuttable run of instructions or micro-ops is larger than its queue.
    #[error("layer {layer}: {need} {what} between two cut points, but the queue holds {limit}")]
    SegmentTooLarge {
        /// The layer.
        layer: String,
        /// `instructions` or `micro-ops`.
        what: &'static str,
        /// How many there are.
        need: usize,
        /// How many the queue holds.
        limit: usize,
    },
    /// A recording that this queue can't run again.
    #[error("the recording can't be replayed: {reason}")]
    Recording {
        /// Why.
        reason: &'static str,
    },
    /// A wait that can't be satisfied, or a signal that can't be given.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// Inputs of a run don't have the program's shape.
    #[error("input: {0}")]
    Input(String),
}
