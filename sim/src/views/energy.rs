//! An estimate of a run's energy: operations and bytes, each at a price.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vta_isa::{AluOp, Config, Insn, MemType, UOP_BYTES};

/// Picojoules of each operation.
///
/// The defaults are estimates for a 45 nm process at 0.9 V, put together from the operation
/// energies that M. Horowitz gave at ISSCC 2014 ("Computing's energy problem"): int8 multiply
/// 0.2, int32 add 0.1, int32 multiply 3.1, 32 bits from an 8 KiB SRAM 5, 64 bits from a 32 KiB
/// SRAM 20, 32 bits from DRAM 640. They rank designs and schedules; they are no measurement of any
/// chip. In TOML every key is optional and overrides its default:
///
/// ```
/// use vta_sim::views::EnergyTable;
///
/// let table = EnergyTable::from_toml("dram_byte_pj = 40.0  # LPDDR4")?;
/// assert_eq!((table.dram_byte_pj, table.mac_pj), (40.0, 0.3));
/// # Ok::<(), vta_sim::views::EnergyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnergyTable {
    /// One int8 multiplication with its int32 addition: 0.2 + 0.1.
    pub mac_pj: f64,
    /// One int32 lane of any ALU operation but MUL: an int32 addition, 0.1.
    pub alu_op_pj: f64,
    /// One int32 lane of MUL: an int32 multiplication, 3.1.
    pub alu_mul_pj: f64,
    /// One byte read from or written to the micro-op scratchpad: 32 KiB with a narrow port, 20 / 8.
    pub uop_byte_pj: f64,
    /// The same for the input scratchpad: wide ports come from banks of at most 8 KiB, 5 / 4.
    pub inp_byte_pj: f64,
    /// The same for the weight scratchpad: banks of 8 KiB, 5 / 4.
    pub wgt_byte_pj: f64,
    /// The same for the accumulator scratchpad: banks of 16 KiB, 5 / 4 by the square root of 2.
    pub acc_byte_pj: f64,
    /// One byte over the DRAM bus, read or written: 640 / 4.
    pub dram_byte_pj: f64,
    /// Leakage and clock in one cycle: 20 mW at 100 MHz, an assumption.
    pub cycle_pj: f64,
}

/// An energy file that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnergyError {
    /// Not TOML of the expected form; unknown keys are refused by name.
    #[error("energy file: {0}")]
    Toml(String),
    /// A price below zero, or none.
    #[error("energy key {key} is {value}, but it must be a finite number, at least 0")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl Default for EnergyTable {
    fn default() -> Self {
        Self {
            mac_pj: 0.3,
            alu_op_pj: 0.1,
            alu_mul_pj: 3.1,
            uop_byte_pj: 2.5,
            inp_byte_pj: 1.25,
            wgt_byte_pj: 1.25,
            acc_byte_pj: 1.77,
            dram_byte_pj: 160.0,
            cycle_pj: 200.0,
        }
    }
}

impl EnergyTable {
    /// Reads an energy file.
    ///
    /// # Errors
    /// [`EnergyError`] for text that isn't TOML, an unknown key, a negative price.
    pub fn from_toml(text: &str) -> Result<Self, EnergyError> {
        let table: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            EnergyError::Toml(vta_files::toml_message(text, e.message(), at))
        })?;
        for (key, value) in [
            ("mac_pj", table.mac_pj),
            ("alu_op_pj", table.alu_op_pj),
            ("alu_mul_pj", table.alu_mul_pj),
            ("uop_byte_pj", table.uop_byte_pj),
            ("inp_byte_pj", table.inp_byte_pj),
            ("wgt_byte_pj", table.wgt_byte_pj),
            ("acc_byte_pj", table.acc_byte_pj),
            ("dram_byte_pj", table.dram_byte_pj),
            ("cycle_pj", table.cycle_pj),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                let value = value.to_string();
                return Err(EnergyError::Range { key, value });
            }
        }
        Ok(table)
    }

    /// What `work` takes that moves `dram_bytes` and lasts `cycles`.
    pub fn energy(&self, work: &Work, dram_bytes: u64, cycles: u64) -> Energy {
        let [uop, inp, wgt, acc] = work.scratchpad_bytes.map(|bytes| bytes as f64);
        Energy {
            matrix_pj: work.macs as f64 * self.mac_pj,
            alu_pj: work.alu_ops as f64 * self.alu_op_pj + work.alu_muls as f64 * self.alu_mul_pj,
            scratchpad_pj: uop * self.uop_byte_pj
                + inp * self.inp_byte_pj
                + wgt * self.wgt_byte_pj
                + acc * self.acc_byte_pj,
            dram_pj: dram_bytes as f64 * self.dram_byte_pj,
            leakage_pj: cycles as f64 * self.cycle_pj,
        }
    }
}

/// Picojoules by where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Energy {
    /// The matrix unit's multiply-adds.
    pub matrix_pj: f64,
    /// The ALU's lanes.
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
    /// int8 multiply-adds, those of padded channels included.
    pub macs: u64,
    /// int32 lanes of ALU operations but MUL.
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
        let [uops, inp, wgt, accs] = &mut self.scratchpad_bytes;
        match insn {
            Insn::Load(load) => {
                let tiles = load.sram_tiles();
                match load.mem {
                    MemType::Uop => *uops += tiles * UOP_BYTES as u64,
                    MemType::Inp => *inp += tiles * tile(MemType::Inp),
                    MemType::Wgt => *wgt += tiles * tile(MemType::Wgt),
                    MemType::Acc | MemType::Acc8 | MemType::Out => *accs += tiles * acc,
                }
            }
            Insn::Store(store) => {
                let operands = store.operands().map(|(_, tiles)| tiles.end - tiles.start);
                *accs += (store.tiles() + operands.sum::<u64>()) * acc;
                if let Some(how) = &store.requantize {
                    let lanes = store.tiles() * config.lanes() as u64;
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
    }

    /// Adds the work of other instructions.
    pub fn add(&mut self, other: &Self) {
        self.macs += other.macs;
        self.alu_ops += other.alu_ops;
        self.alu_muls += other.alu_muls;
        for (mine, theirs) in self.scratchpad_bytes.iter_mut().zip(other.scratchpad_bytes) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests;
