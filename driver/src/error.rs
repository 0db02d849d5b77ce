//! The driver's errors.

use thiserror::Error;

/// What can go wrong between a program and a device.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A device failed while running; the text names the instruction, field and bound.
    #[error("device {device}: {message}")]
    Device {
        /// The device's name.
        device: String,
        /// The cause.
        message: String,
    },
}
