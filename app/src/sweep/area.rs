//! A proxy for silicon area.
//!
//! Not a layout: a sum of parts at prices for a 45 nm process, good for ranking configurations.
//!
//! | part | mm2 | source |
//! |---|---|---|
//! | int8 multiply and int32 add | 282e-6 + 137e-6 | operation areas by W. Dally after M. Horowitz, ISSCC 2014 |
//! | ALU lane: int32 multiply, add, compare, shift | 3495e-6 + 3 * 137e-6 | the same |
//! | scratchpad byte | 8 * 0.55e-6 | a 0.38 um2 cell at 70 % array efficiency |
//! | bus, for each byte of its width | 2e-3 | an assumption: buffers for data and alignment |

use vta_isa::{Config, MemType};
use vta_sim::cycle::TimingConfig;

const MAC_MM2: f64 = (282.0 + 137.0) * 1e-6;
const ALU_LANE_MM2: f64 = (3495.0 + 3.0 * 137.0) * 1e-6;
const SRAM_BYTE_MM2: f64 = 8.0 * 0.55e-6;
const BUS_BYTE_MM2: f64 = 2e-3;

/// The area of the parts that a sweep can vary.
pub struct Area {
    matrix: f64,
    alu: f64,
    scratchpads: f64,
    bus: f64,
}

impl Area {
    /// Everything together.
    pub fn total_mm2(&self) -> f64 {
        self.matrix + self.alu + self.scratchpads + self.bus
    }
}

/// Adds up the parts: the matrix unit has one MAC for each of a step's, the ALU a lane for each
/// element of a tile, and the output buffer a byte for each accumulator.
pub fn estimate(config: &Config, timing: &TimingConfig) -> Area {
    let bytes = |mem| (config.depth(mem) * config.elem_bytes(mem)) as f64;
    let scratchpads = [
        MemType::Uop,
        MemType::Inp,
        MemType::Wgt,
        MemType::Acc,
        MemType::Out,
    ];
    Area {
        matrix: config.macs_per_step() as f64 * MAC_MM2,
        alu: config.lanes() as f64 * ALU_LANE_MM2,
        scratchpads: scratchpads.map(bytes).iter().sum::<f64>() * SRAM_BYTE_MM2,
        bus: f64::from(timing.bus_bytes) * BUS_BYTE_MM2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_grows_with_what_it_is_for() {
        let area = |json: &str, timing| {
            estimate(
                &Config::from_json(json).unwrap(),
                &TimingConfig::from_toml(timing).unwrap(),
            )
        };
        let base = area("{}", "");
        let scratchpads = (32 + 32 + 256 + 128 + 32) * 1024;
        assert!((base.scratchpads - f64::from(scratchpads) * SRAM_BYTE_MM2).abs() < 1e-12);
        let wide = area("{\"LOG_BLOCK\": 5}", "");
        assert!((wide.matrix / base.matrix - 4.0).abs() < 1e-12);
        assert!((wide.alu / base.alu - 2.0).abs() < 1e-12);
        assert_eq!(wide.scratchpads, base.scratchpads);
        assert!(area("{}", "bus_bytes = 16").total_mm2() > base.total_mm2());
        assert!(area("{\"LOG_WGT_BUFF_SIZE\": 17}", "").total_mm2() < base.total_mm2());
    }
}
