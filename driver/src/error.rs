//! The driver's errors.

use std::time::Duration;

use thiserror::Error;

use vta_program::packing::ImagesError;

use crate::{AllocError, BundleError, MemoryError, ProgramError};

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
    /// One uncuttable run of instructions or micro-ops that is larger than its queue, or a recording that a
    /// queue can't run again.
    #[error("{0}")]
    Queue(String),
    /// A wait that can't be satisfied, or a signal that can't be given.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// Inputs of a run don't have the program's shape.
    #[error("input: {0}")]
    Input(String),
}

impl DriverError {
    /// Of a device that answers no more.
    pub fn lost(device: &str) -> Self {
        let device = device.to_owned();
        Self::Lost { device }
    }
}

impl From<ImagesError> for DriverError {
    fn from(ImagesError(text): ImagesError) -> Self {
        Self::Input(text)
    }
}

/// A wait that can't be satisfied, or a signal that can't be given.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TimelineError {
    /// A promise of a value that isn't above all promised before.
    #[error("timeline {timeline}: {value} can't be promised after {promised}")]
    NotIncreasing {
        /// The timeline.
        timeline: String,
        /// The value asked for.
        value: u64,
        /// The largest value promised so far.
        promised: u64,
    },
    /// Nothing outstanding will ever signal the value.
    #[error("timeline {timeline} is at {reached} and nothing outstanding signals {value}")]
    NoSignaller {
        /// The timeline.
        timeline: String,
        /// The value waited for.
        value: u64,
        /// The value reached.
        reached: u64,
    },
    /// The work that was to signal the value, or an earlier one, failed.
    #[error("timeline {timeline} never reaches {value}: {cause}")]
    Failed {
        /// The timeline.
        timeline: String,
        /// The value waited for.
        value: u64,
        /// What failed first.
        cause: Box<DriverError>,
    },
    /// A promise was dropped without being kept.
    #[error("the promise of {value} on timeline {timeline} was dropped")]
    Broken {
        /// The timeline.
        timeline: String,
        /// The value promised.
        value: u64,
    },
    /// Work would wait, directly or through other work, for its own signal.
    #[error("work waits for {value} on timeline {timeline}, which waits for that work")]
    Cycle {
        /// The timeline.
        timeline: String,
        /// The value waited for.
        value: u64,
    },
    /// The deadline passed.
    #[error("timeline {timeline} is at {reached} after {waited:?}, not at {value}")]
    Timeout {
        /// The timeline.
        timeline: String,
        /// The value waited for.
        value: u64,
        /// The value reached.
        reached: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// A stream's queue is full and nothing leaves it before the host keeps a promise.
    #[error("stream {stream}: {depth} pieces of work wait for a promise that the host holds")]
    Full {
        /// The stream.
        stream: String,
        /// Pieces of work in the queue.
        depth: usize,
    },
    /// The stream was dropped while its work waited for the host.
    #[error("stream {stream} was dropped while its work waited for the host")]
    Closed {
        /// The stream.
        stream: String,
    },
}
