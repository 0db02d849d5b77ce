//! What operations and parts cost: energy and area, from one table.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vta_isa::{AluOp, Config, Extension, Insn, MemType, UOP_BYTES};

use crate::cycle::{TimingConfig, window_tiles};

/// The table: each price with where it comes from, which is its documentation and a comment of its TOML.
macro_rules! costs {
    ($($(#[doc = $source:literal])+ $key:ident: $price:literal,)+) => {
        /// Prices of operations in picojoules, and of parts in square millimetres.
        ///
        /// They are estimates for a 45 nm process at 0.9 V, put together from the figures that M. Horowitz gave at ISSCC 2014
        /// ("Computing's energy problem") and W. Dally after him: int8 multiply 0.2 pJ, int32 add 0.1, int32 multiply 3.1, 32
        /// bits from an 8 KiB SRAM 5, 64 bits from a 32 KiB SRAM 20, 32 bits from DRAM 640. They rank designs and schedules;
        /// they are no measurement of any chip and no layout. In TOML every key is optional and overrides its default:
        ///
        /// ```
        /// use vta_sim::views::Costs;
        ///
        /// let costs = Costs::from_toml("dram_byte_pj = 40.0  # LPDDR4")?;
        /// assert_eq!((costs.dram_byte_pj, costs.mac_pj), (40.0, 0.3));
        /// # Ok::<(), vta_sim::views::CostsError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Costs {$(
            $(#[doc = $source])+
            pub $key: f64,
        )+}

        impl Default for Costs {
            fn default() -> Self {
                Self { $($key: $price,)+ }
            }
        }

        impl Costs {
            /// Each key with its price and where the default comes from.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, f64, &'static str)> {
                [$((stringify!($key), self.$key, concat!($($source,)+)),)+].into_iter()
            }
        }
    };
}

costs! {
    /// an int8 multiplication with its int32 addition: 0.2 + 0.1
    mac_pj: 0.3,
    /// each product of two bits that a MAC has beyond int8's 64: 2.9 / 960
    mac_bit_pj: 0.00302,
    /// an int32 lane of any ALU operation but MUL: an int32 addition
    alu_op_pj: 0.1,
    /// an int32 lane of MUL: an int32 multiplication
    alu_mul_pj: 3.1,
    /// a byte of the micro-op scratchpad: 32 KiB with a narrow port, 20 / 8
    uop_byte_pj: 2.5,
    /// of the input scratchpad: wide ports come from banks of at most 8 KiB, 5 / 4
    inp_byte_pj: 1.25,
    /// of the weight scratchpad: banks of 8 KiB, 5 / 4
    wgt_byte_pj: 1.25,
    /// of the accumulators: banks of 16 KiB, 5 / 4 by the square root of 2
    acc_byte_pj: 1.77,
    /// a byte over the DRAM bus: 640 / 4
    dram_byte_pj: 160.0,
    /// leakage and clock in a cycle: 20 mW at 100 MHz, an assumption
    cycle_pj: 200.0,
    /// int8 multiplier and int32 adder: 282 + 137 um2
    mac_mm2: 419e-6,
    /// each product of two bits that a MAC has beyond int8's 64: 3213 / 960 um2
    mac_bit_mm2: 3.35e-6,
    /// ALU lane: int32 multiplier, adder, comparator, shifter: 3495 + 3 * 137 um2
    alu_lane_mm2: 3906e-6,
    /// CLIP, an ALU lane: a second comparator, shifters of both bounds: 3 * 137 um2
    clip_lane_mm2: 411e-6,
    /// DEPTHWISE, a MAC: 8 flip-flops of 4.5 um2, 30 multiplexers as MOV's
    depthwise_mac_mm2: 93e-6,
    /// MOV, an ALU lane: 32 multiplexer cells of an open 45 nm library, 1.9 um2 each
    mov_lane_mm2: 60.8e-6,
    /// OVERWRITE, a sum: 32 gates of that library before its adder, 1.1 um2 each
    overwrite_sum_mm2: 35.2e-6,
    /// PAD, a lane of a tile: 8 multiplexers as MOV's
    pad_lane_mm2: 15.2e-6,
    /// PRELOAD, a lane of a tile: 32 flip-flops of 4.5 um2, multiplexers as MOV's
    preload_lane_mm2: 204.8e-6,
    /// REQUANT, a lane of a tile: 224 flip-flops for its entry, 4.5 um2 each
    requant_lane_mm2: 1008e-6,
    /// REQUANT, a byte of the bus: 3/4 * 3495 + 6 * 282 + 12.5 * 137 um2
    requant_byte_mm2: 6025.75e-6,
    /// SATURATE, a lane of a tile: 50 gates as OVERWRITE's
    saturate_lane_mm2: 55e-6,
    /// SATURATE, a byte of the bus: 8 multiplexers as MOV's
    saturate_byte_mm2: 15.2e-6,
    /// WGT4, a byte of the bus: 16 multiplexers as MOV's
    wgt4_byte_mm2: 30.4e-6,
    /// a byte of a scratchpad: 8 cells of 0.38 um2 at 70 % array efficiency
    sram_byte_mm2: 4.4e-6,
    /// a byte of the bus's width: buffers for data and alignment, an assumption
    bus_byte_mm2: 2e-3,
}

/// A file of prices that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CostsError {
    /// Not TOML of the expected form; unknown keys are refused by name.
    #[error("costs file: {0}")]
    Toml(String),
    /// A price below zero, or none.
    #[error("costs key {key} is {value}, but it must be a finite number, at least 0")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl Costs {
    /// Reads a file of prices.
    ///
    /// # Errors
    /// [`CostsError`] for text that isn't TOML, an unknown key, a negative price.
    pub fn from_toml(text: &str) -> Result<Self, CostsError> {
        let costs: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            CostsError::Toml(vta_files::toml_message(text, e.message(), at))
        })?;
        for (key, value, _) in costs.entries() {
            if !(value.is_finite() && value >= 0.0) {
                let value = value.to_string();
                return Err(CostsError::Range { key, value });
            }
        }
        Ok(costs)
    }

    /// The file: a line for each price, behind one with the source of its default.
    pub fn to_toml(&self) -> String {
        let line = |(key, price, source): (&str, f64, &str)| {
            format!("# {}\n{key} = {price:?}\n", source.trim())
        };
        self.entries().map(line).collect()
    }

    /// What `work` takes that moves `dram_bytes` and lasts `cycles`.
    pub fn energy(&self, work: &Work, dram_bytes: u64, cycles: u64) -> Energy {
        let [uop, inp, wgt, acc] = work.scratchpad_bytes.map(|bytes| bytes as f64);
        Energy {
            matrix_pj: work.macs as f64 * self.mac_pj + work.mac_bits as f64 * self.mac_bit_pj,
            alu_pj: work.alu_ops as f64 * self.alu_op_pj + work.alu_muls as f64 * self.alu_mul_pj,
            scratchpad_pj: uop * self.uop_byte_pj
                + inp * self.inp_byte_pj
                + wgt * self.wgt_byte_pj
                + acc * self.acc_byte_pj,
            dram_pj: dram_bytes as f64 * self.dram_byte_pj,
            leakage_pj: cycles as f64 * self.cycle_pj,
        }
    }

    /// Square millimetres of the parts that a configuration and a board decide: the matrix unit has one MAC for each of
    /// a step's, the ALU a lane for each element of a tile, and the output buffer an output for each accumulator, with
    /// SATURATE two bits more, or with REQUANT all four bytes, behind which a lane of arithmetic for each byte of the bus is enough.
    pub fn area_mm2(&self, config: &Config, timing: &TimingConfig) -> f64 {
        let bytes = |mem| (config.depth(mem) * config.elem_bytes(mem)) as f64;
        let scratchpads = [
            MemType::Uop,
            MemType::Inp,
            MemType::Wgt,
            MemType::Acc,
            MemType::Out,
        ];
        let extensions = config.extensions();
        let has = |extension| extensions.contains(extension);
        let mirrored = match (has(Extension::Requant), has(Extension::Saturate)) {
            (true, _) => bytes(MemType::Acc) - bytes(MemType::Out),
            // Two bits of 32.
            (false, true) => bytes(MemType::Acc) / 16.0,
            (false, false) => 0.0,
        };
        let added = extensions.iter().map(|e| self.lane_mm2(e, config.block()));
        let lane = added.sum::<f64>() + self.alu_lane_mm2;
        let on_bus = extensions.iter().map(|e| self.on_bus_mm2(e));
        let bus_byte = on_bus.sum::<f64>() + self.bus_byte_mm2;
        let mac_mm2 = self.mac_mm2 + wide_bits(config) as f64 * self.mac_bit_mm2;
        config.macs_per_step() as f64 * mac_mm2
            + config.lanes() as f64 * lane
            + (scratchpads.map(bytes).iter().sum::<f64>() + mirrored) * self.sram_byte_mm2
            + f64::from(timing.bus_bytes) * bus_byte
    }

    /// What an extension adds to each lane of a tile.
    const fn lane_mm2(&self, extension: Extension, block: usize) -> f64 {
        match extension {
            // The lane has their parts.
            Extension::Acc8 | Extension::Mul | Extension::Shl => 0.0,
            // It is beside the bus.
            Extension::Wgt4 => 0.0,
            // A lane is that of a row of MACs.
            Extension::Depthwise => self.depthwise_mac_mm2 * block as f64,
            Extension::Mov => self.mov_lane_mm2,
            Extension::Overwrite => self.overwrite_sum_mm2,
            Extension::Clip => self.clip_lane_mm2,
            Extension::Pad => self.pad_lane_mm2,
            Extension::Preload => self.preload_lane_mm2,
            Extension::Requant => self.requant_lane_mm2,
            Extension::Saturate => self.saturate_lane_mm2,
        }
    }

    /// What an extension adds to each byte of the bus.
    const fn on_bus_mm2(&self, extension: Extension) -> f64 {
        match extension {
            Extension::Requant => self.requant_byte_mm2,
            Extension::Saturate => self.saturate_byte_mm2,
            Extension::Wgt4 => self.wgt4_byte_mm2,
            _ => 0.0,
        }
    }
}

/// Products of two bits that a MAC has beyond those of int8.
const fn wide_bits(config: &Config) -> u64 {
    (config.width(MemType::Inp) * config.width(MemType::Wgt)) as u64 - 64
}

/// Picojoules by where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Energy {
    /// The matrix unit's multiply-adds.
    pub matrix_pj: f64,
    /// The ALU's lanes, and those of STOREs that saturate or requantise.
    pub alu_pj: f64,
    /// Reads and writes of all scratchpads.
    pub scratchpad_pj: f64,
    /// The DRAM bus, instructions and micro-ops included.
    pub dram_pj: f64,
    /// Leakage and clock over all cycles.
    pub leakage_pj: f64,
}

impl Energy {
    /// Everything together.
    pub fn total_pj(&self) -> f64 {
        self.matrix_pj + self.alu_pj + self.scratchpad_pj + self.dram_pj + self.leakage_pj
    }

    /// Adds another estimate.
    pub fn add(&mut self, other: &Self) {
        self.matrix_pj += other.matrix_pj;
        self.alu_pj += other.alu_pj;
        self.scratchpad_pj += other.scratchpad_pj;
        self.dram_pj += other.dram_pj;
        self.leakage_pj += other.leakage_pj;
    }
}

/// Operations and scratchpad bytes of some instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Multiply-adds, those of padded channels included.
    pub macs: u64,
    /// Products of two bits that these have beyond int8's 64 each.
    pub mac_bits: u64,
    /// int32 lanes of ALU operations but MUL, and what STOREs do that saturate or requantise.
    pub alu_ops: u64,
    /// int32 lanes of MUL.
    pub alu_muls: u64,
    /// Bytes read and written in the micro-op, input, weight and accumulator scratchpads.
    pub scratchpad_bytes: [u64; 4],
}

impl Work {
    /// Adds what an instruction does.
    pub fn count(&mut self, insn: &Insn, config: &Config) {
        let tile = |mem| config.elem_bytes(mem) as u64;
        let acc = tile(MemType::Acc);
        let macs_before = self.macs;
        let [uops, inp, wgt, accs] = &mut self.scratchpad_bytes;
        match insn {
            Insn::Load(load) => {
                let tiles = load.sram_tiles();
                match load.mem {
                    MemType::Uop => *uops += tiles * UOP_BYTES as u64,
                    MemType::Inp => *inp += tiles * tile(MemType::Inp),
                    MemType::Wgt | MemType::Wgt4 => *wgt += tiles * tile(MemType::Wgt),
                    MemType::Acc | MemType::Acc8 | MemType::Out => *accs += tiles * acc,
                }
            }
            Insn::Store(store) => {
                let operands = store.operands().map(|(_, tiles)| tiles.end - tiles.start);
                *accs += (store.tiles() + operands.sum::<u64>()) * acc;
                let lanes = store.tiles() * config.lanes() as u64;
                // Two comparisons.
                self.alu_ops += 2 * lanes * u64::from(store.saturate);
                if let Some(how) = &store.requantize {
                    // A multiplication, an addition, a shift and two comparisons; then two multiplications of int8, which
                    // count as one of int32, two additions, and the rest again.
                    let (muls, ops) = match how.residual {
                        0 => (1, 4),
                        _ => (2, 9),
                    };
                    self.alu_muls += muls * lanes;
                    self.alu_ops += ops * lanes;
                }
            }
            Insn::Gemm(gemm) => {
                let steps = gemm.steps();
                *uops += steps * UOP_BYTES as u64;
                *accs += steps * acc;
                if !gemm.reset {
                    *accs += steps * acc * u64::from(!gemm.overwrite);
                    *inp += steps * tile(MemType::Inp);
                    *wgt += steps * tile(MemType::Wgt);
                    self.macs += steps * config.macs_per_step();
                }
            }
            Insn::Depthwise(insn) => {
                let steps = insn.steps();
                *uops += steps * UOP_BYTES as u64;
                *accs += steps * acc * (1 + u64::from(!insn.overwrite));
                *inp += window_tiles(insn) * tile(MemType::Inp);
                *wgt += steps * tile(MemType::Wgt);
                self.macs += steps * (insn.taps() * config.lanes()) as u64;
            }
            Insn::Alu(alu) => {
                let (steps, lanes) = (alu.steps(), config.lanes() as u64);
                *uops += steps * UOP_BYTES as u64;
                // The result is written.
                *accs += steps * acc * (1 + u64::from(alu.tiles_read()));
                match alu.op {
                    AluOp::Mul => self.alu_muls += steps * lanes,
                    AluOp::Min | AluOp::Max | AluOp::Add | AluOp::Shr | AluOp::Shl => {
                        self.alu_ops += steps * lanes;
                    }
                    // Two comparisons.
                    AluOp::Clip => self.alu_ops += 2 * steps * lanes,
                    AluOp::Mov => {}
                }
            }
            Insn::Finish(_) => {}
        }
        self.mac_bits += (self.macs - macs_before) * wide_bits(config);
    }

    /// Adds the work of other instructions.
    pub fn add(&mut self, other: &Self) {
        self.macs += other.macs;
        self.mac_bits += other.mac_bits;
        self.alu_ops += other.alu_ops;
        self.alu_muls += other.alu_muls;
        for (mine, theirs) in self.scratchpad_bytes.iter_mut().zip(other.scratchpad_bytes) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests;
