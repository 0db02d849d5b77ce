//! A proxy for silicon area.
//!
//! Not a layout: a sum of parts at prices for a 45 nm process, good for ranking configurations.
//!
//! | part | mm2 | source |
//! |---|---|---|
//! | int8 multiply and int32 add | 282e-6 + 137e-6 | operation areas by W. Dally after M. Horowitz, ISSCC 2014 |
//! | ALU lane: int32 multiply, add, compare, shift | 3495e-6 + 3 * 137e-6 | the same |
//! | CLIP, for each ALU lane: a second compare, shifts of both bounds | 3 * 137e-6 | the same |
//! | MOV, for each ALU lane: a choice of two before the write port | 32 * 1.9e-6 | a multiplexer cell of an open 45 nm library |
//! | OVERWRITE, for each sum: a gate before the adder | 32 * 1.1e-6 | the same |
//! | REQUANT, for each lane of a tile: a 32x24 and two 8x24 multiplies, three 48-bit adds, two 64-bit shifts, four compares | 3495e-6 * 3/4 + 6 * 282e-6 + 12.5 * 137e-6 | operation areas as above, by bits |
//! | REQUANT, for each lane: registers of an entry | 7 * 32 * 4.5e-6 | a flip-flop cell of an open 45 nm library |
//! | REQUANT, for each accumulator: an output buffer of 4 bytes instead of 1 | 3 bytes | a scratchpad byte each |
//! | scratchpad byte | 8 * 0.55e-6 | a 0.38 um2 cell at 70 % array efficiency |
//! | bus, for each byte of its width | 2e-3 | an assumption: buffers for data and alignment |

use vta_isa::{Config, Extension, MemType};
use vta_sim::cycle::TimingConfig;

const INT8_MUL_MM2: f64 = 282e-6;
const MAC_MM2: f64 = INT8_MUL_MM2 + ADD_MM2;
const ADD_MM2: f64 = 137e-6;
const MUL_MM2: f64 = 3495e-6;
const ALU_LANE_MM2: f64 = MUL_MM2 + 3.0 * ADD_MM2;
/// 32 gates of two inputs.
const AND_MM2: f64 = 32.0 * 1.1e-6;
/// A 32-bit choice of two.
const MUX_MM2: f64 = 32.0 * 1.9e-6;
/// A flip-flop.
const BIT_MM2: f64 = 4.5e-6;
const SRAM_BYTE_MM2: f64 = 8.0 * 0.55e-6;
const BUS_BYTE_MM2: f64 = 2e-3;

/// What an extension adds to each lane of a tile.
const fn lane_mm2(extension: Extension) -> f64 {
    match extension {
        // The lane above has their parts.
        Extension::Acc8 | Extension::Mul | Extension::Shl => 0.0,
        // A multiplexer before the write port.
        Extension::Mov => MUX_MM2,
        // An AND before the adder of each sum.
        Extension::Overwrite => AND_MM2,
        Extension::Clip => 3.0 * ADD_MM2,
        Extension::Requant => {
            0.75 * MUL_MM2 + 6.0 * INT8_MUL_MM2 + 12.5 * ADD_MM2 + 7.0 * 32.0 * BIT_MM2
        }
    }
}

/// Square millimetres of the parts that a sweep can vary: the matrix unit has one MAC for each of a step's, the ALU
/// a lane for each element of a tile, and the output buffer a byte for each accumulator, or with REQUANT all four.
pub fn estimate_mm2(config: &Config, timing: &TimingConfig) -> f64 {
    let bytes = |mem| (config.depth(mem) * config.elem_bytes(mem)) as f64;
    let scratchpads = [
        MemType::Uop,
        MemType::Inp,
        MemType::Wgt,
        MemType::Acc,
        MemType::Out,
    ];
    let mirrored = match config.extensions().contains(Extension::Requant) {
        true => 3.0 * bytes(MemType::Out),
        false => 0.0,
    };
    let lane = config.extensions().iter().map(lane_mm2).sum::<f64>() + ALU_LANE_MM2;
    config.macs_per_step() as f64 * MAC_MM2
        + config.lanes() as f64 * lane
        + (scratchpads.map(bytes).iter().sum::<f64>() + mirrored) * SRAM_BYTE_MM2
        + f64::from(timing.bus_bytes) * BUS_BYTE_MM2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_grows_with_what_it_is_for() {
        let area = |json: &str, timing| {
            estimate_mm2(
                &Config::from_json(json).unwrap(),
                &TimingConfig::from_toml(timing).unwrap(),
            )
        };
        let base = area("{}", "");
        let scratchpads = f64::from((32 + 32 + 256 + 128 + 32) * 1024) * SRAM_BYTE_MM2;
        let (matrix, alu) = (256.0 * MAC_MM2, 16.0 * ALU_LANE_MM2);
        let bus = 8.0 * BUS_BYTE_MM2;
        assert!((base - matrix - alu - scratchpads - bus).abs() < 1e-12);
        // Four times the MACs and twice the lanes.
        let wide = area("{\"LOG_BLOCK\": 5}", "") - base;
        assert!((wide - 3.0 * matrix - alu).abs() < 1e-12);
        assert!(area("{}", "bus_bytes = 16") > base);
        assert!(area("{\"LOG_WGT_BUFF_SIZE\": 17}", "") < base);
        assert!(area(r#"{"EXTENSIONS": ["ACC8", "CLIP", "MUL", "SHL"]}"#, "") > base);
        let requant = |depth| {
            let of = |more: &str| {
                format!(r#"{{"EXTENSIONS": ["MUL"{more}], "LOG_ACC_BUFF_SIZE": {depth}}}"#)
            };
            area(&of(r#", "REQUANT""#), "") - area(&of(""), "")
        };
        let mirror = f64::from(3 * 32 * 1024) * SRAM_BYTE_MM2;
        assert!((requant(17) - requant(16) - mirror / 2.0).abs() < 1e-12);
        assert!(requant(17) > mirror + 16.0 * ALU_LANE_MM2);
    }
}
