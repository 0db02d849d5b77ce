//! Where a layer lies between the bus and the matrix unit.

use serde::Serialize;
use vta_isa::Config;

use super::LayerCycles;
use crate::cycle::TimingConfig;

/// The two limits of an accelerator: multiply-adds a cycle and bytes read a cycle. Writes use a
/// channel of their own, so they don't count against the bus.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// MACs a cycle of the matrix unit.
    pub peak_macs: f64,
    /// Bytes a cycle of the read channel.
    pub bus_bytes: f64,
}

impl Roofline {
    /// The limits of an instance on a board.
    pub fn new(config: &Config, timing: &TimingConfig) -> Self {
        Self {
            peak_macs: config.macs_per_step() as f64,
            bus_bytes: f64::from(timing.bus_bytes),
        }
    }

    /// MACs for each byte read, above which the matrix unit is the limit.
    pub fn ridge(&self) -> f64 {
        self.peak_macs / self.bus_bytes
    }

    /// MACs a cycle that are possible at an intensity in MACs for each byte read.
    pub fn attainable(&self, intensity: f64) -> f64 {
        self.peak_macs.min(intensity * self.bus_bytes)
    }

    /// Intensity and attained MACs a cycle of a layer, those on padded channels included; `None`
    /// when it multiplies nothing or reads nothing.
    pub fn place(&self, layer: &LayerCycles) -> Option<(f64, f64)> {
        let read = layer.total_read_beats() as f64 * self.bus_bytes;
        let macs = layer.macs() as f64;
        (macs > 0.0 && read > 0.0 && layer.cycles > 0)
            .then(|| (macs / read, macs / layer.cycles as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roof_bends_at_the_ridge() {
        let roof = Roofline::new(&Config::default(), &TimingConfig::pynq());
        assert_eq!(
            (roof.peak_macs, roof.bus_bytes, roof.ridge()),
            (256.0, 8.0, 32.0)
        );
        assert_eq!(roof.attainable(4.0), 32.0);
        assert_eq!(roof.attainable(32.0), 256.0);
        assert_eq!(roof.attainable(1000.0), 256.0);
    }
}
