//! The configuration of one VTA instance: `vta_config.json`.

use serde::Deserialize;
use thiserror::Error;

use crate::{Extension, Extensions, Gemm, MemType, Uop};

/// What fixes a VTA instance: the matrix unit's size, the scratchpads' sizes, the widths of numbers, and which
/// extensions of the original RTL it has.
///
/// Inputs, weights and outputs are numbers of 8, 16 or 32 bits, each for itself, and accumulators int32. Networks
/// and OpenCL need [8 bits of each](Self::int8).
/// Values are checked when the configuration is made, so every accessor is total.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    target: String,
    hw_ver: String,
    log_batch: u32,
    log_block: u32,
    /// In the order of [`WIDTHS`].
    log_widths: [u32; 3],
    /// In the order of [`SCRATCHPADS`].
    log_buff_sizes: [u32; 4],
    extensions: Extensions,
}

/// Each scratchpad: the key of its size, what lies in it, and the largest depth that fields address.
const SCRATCHPADS: [(&str, MemType, u64); 4] = [
    ("LOG_UOP_BUFF_SIZE", MemType::Uop, Config::MAX_UOP_DEPTH),
    ("LOG_INP_BUFF_SIZE", MemType::Inp, Config::MAX_INP_DEPTH),
    ("LOG_WGT_BUFF_SIZE", MemType::Wgt, Config::MAX_WGT_DEPTH),
    ("LOG_ACC_BUFF_SIZE", MemType::Acc, Config::MAX_ACC_DEPTH),
];

/// The keys of the widths of inputs, weights and outputs.
const WIDTHS: [&str; 3] = ["LOG_INP_WIDTH", "LOG_WGT_WIDTH", "LOG_OUT_WIDTH"];
/// Accumulators of 32 bits: the only width in scope.
const LOG_ACC_WIDTH: u32 = 5;
/// int8.
const LOG_INT8: u32 = 3;

/// A configuration that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON of the expected form; unknown keys are refused by name.
    #[error("configuration: {0}")]
    Json(String),
    /// A key has a value outside its range.
    #[error("configuration key {key} is {value}, but it must be {expected}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u32,
        /// The legal range in words.
        expected: String,
    },
    /// Two spellings of one fact differ.
    #[error("configuration keys {first} = {first_value} and {second} = {second_value} disagree")]
    Conflict {
        /// One key.
        first: &'static str,
        /// Its value.
        first_value: u32,
        /// The other key.
        second: &'static str,
        /// Its value, given or derived.
        second_value: u32,
    },
    /// A scratchpad has more tiles than the instruction fields can address.
    #[error(
        "configuration key {key} = {value} gives a scratchpad of {depth} tiles, \
         but instruction fields address at most {limit}"
    )]
    Depth {
        /// The key.
        key: &'static str,
        /// Its value, log2 of bytes.
        value: u32,
        /// The depth in tiles (micro-ops for the micro-op scratchpad).
        depth: u64,
        /// The largest depth.
        limit: u64,
    },
    /// Numbers of another width than something has.
    #[error("configuration key {key} is {value}, but {what} needs {wanted}, numbers of {} bits", 1 << wanted)]
    Width {
        /// The key.
        key: &'static str,
        /// Its value, log2 of bits.
        value: u32,
        /// What it should be.
        wanted: u32,
        /// Who needs that.
        what: &'static str,
    },
    /// `EXTENSIONS` names something that is none.
    #[error(
        "configuration key EXTENSIONS: there is no '{name}' (there are {})",
        Extensions::ALL
    )]
    Extension {
        /// The name.
        name: String,
    },
}

/// What one configuration has and another hasn't: the first thing for which what was made for
/// the one can't run on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Excess {
    /// Another matrix unit.
    #[error("matrix unit {}x{}x{}, not {}x{}x{}", .wanted.0, .wanted.1, .wanted.1, .there.0, .there.1, .there.1)]
    MatrixUnit {
        /// BATCH and BLOCK.
        wanted: (usize, usize),
        /// Those of the other.
        there: (usize, usize),
    },
    /// A deeper scratchpad.
    #[error("{mem} scratchpad of {wanted} elements, not {there}")]
    Scratchpad {
        /// Which.
        mem: MemType,
        /// Its depth.
        wanted: usize,
        /// That of the other.
        there: usize,
    },
    /// Numbers of another width.
    #[error("{key} = {wanted}, not {there}")]
    Width {
        /// The key.
        key: &'static str,
        /// Its value, log2 of bits.
        wanted: u32,
        /// That of the other.
        there: u32,
    },
    /// An extension that the other lacks.
    #[error("{0}, which it doesn't have")]
    Extension(Extension),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "UPPERCASE")]
struct Keys {
    target: Option<String>,
    hw_ver: Option<String>,
    log_inp_width: Option<u32>,
    log_wgt_width: Option<u32>,
    log_acc_width: Option<u32>,
    log_out_width: Option<u32>,
    log_batch: Option<u32>,
    log_block: Option<u32>,
    log_block_in: Option<u32>,
    log_block_out: Option<u32>,
    log_uop_buff_size: Option<u32>,
    log_inp_buff_size: Option<u32>,
    log_wgt_buff_size: Option<u32>,
    log_acc_buff_size: Option<u32>,
    log_out_buff_size: Option<u32>,
    extensions: Option<Vec<String>>,
}

impl Default for Config {
    /// The public default: 1x16x16, uop 32 KiB, inp 32 KiB, wgt 256 KiB, acc 128 KiB.
    fn default() -> Self {
        Self {
            target: "sim".to_owned(),
            hw_ver: "0.0.2".to_owned(),
            log_batch: 0,
            log_block: 4,
            log_widths: [LOG_INT8; 3],
            log_buff_sizes: [15, 15, 18, 17],
            extensions: Extensions::DEFAULT,
        }
    }
}

impl Config {
    /// The largest scratchpad depths that the instruction fields address.
    pub const MAX_UOP_DEPTH: u64 = Gemm::FIELDS.uop_bgn.max() + 1;
    /// Input tiles.
    pub const MAX_INP_DEPTH: u64 = Uop::SRC.max() + 1;
    /// Weight tiles.
    pub const MAX_WGT_DEPTH: u64 = Uop::WGT.max() + 1;
    /// Accumulator tiles.
    pub const MAX_ACC_DEPTH: u64 = Uop::DST.max() + 1;

    /// Reads the text of a `vta_config.json`. Keys that are absent take the default's value.
    ///
    /// # Errors
    /// [`ConfigError`] for text that isn't JSON, an unknown key, a value out of range, spellings
    /// that disagree, or a scratchpad deeper than the instruction fields address.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        Self::from_json_over(&Self::default(), text)
    }

    /// As [`Config::from_json`], but keys that are absent take their value from `base`: what is
    /// left of a board when the text names some keys.
    ///
    /// # Errors
    /// As for [`Config::from_json`].
    pub fn from_json_over(base: &Self, text: &str) -> Result<Self, ConfigError> {
        let keys: Keys =
            serde_json::from_str(text).map_err(|e| ConfigError::Json(e.to_string()))?;
        Self::from_keys(&keys, base.clone())
    }

    fn from_keys(keys: &Keys, default: Self) -> Result<Self, ConfigError> {
        let log_acc_width = keys.log_acc_width.unwrap_or(LOG_ACC_WIDTH);
        ranged("LOG_ACC_WIDTH", log_acc_width, LOG_ACC_WIDTH, LOG_ACC_WIDTH)?;
        let mut log_widths = default.log_widths;
        let given = [keys.log_inp_width, keys.log_wgt_width, keys.log_out_width];
        for ((key, width), given) in WIDTHS.into_iter().zip(&mut log_widths).zip(given) {
            *width = ranged(key, given.unwrap_or(*width), LOG_INT8, LOG_ACC_WIDTH)?;
        }
        let mut log_block = keys.log_block.map(|v| ("LOG_BLOCK", v));
        for (key, value) in [
            ("LOG_BLOCK_IN", keys.log_block_in),
            ("LOG_BLOCK_OUT", keys.log_block_out),
        ] {
            let Some(value) = value else { continue };
            match log_block {
                Some((first, first_value)) if first_value != value => {
                    return Err(ConfigError::Conflict {
                        first,
                        first_value,
                        second: key,
                        second_value: value,
                    });
                }
                _ => log_block = Some((key, value)),
            }
        }
        let (block_key, log_block) = log_block.unwrap_or(("LOG_BLOCK", default.log_block));
        let given = [
            keys.log_uop_buff_size,
            keys.log_inp_buff_size,
            keys.log_wgt_buff_size,
            keys.log_acc_buff_size,
        ];
        let mut log_buff_sizes = default.log_buff_sizes;
        for (size, given) in log_buff_sizes.iter_mut().zip(given) {
            *size = given.unwrap_or(*size);
        }
        let log_batch = keys.log_batch.unwrap_or(default.log_batch);
        let config = Self {
            target: keys.target.clone().unwrap_or(default.target),
            hw_ver: keys.hw_ver.clone().unwrap_or(default.hw_ver),
            log_batch: ranged("LOG_BATCH", log_batch, 0, 6)?,
            log_block: ranged(block_key, log_block, 0, 6)?,
            log_widths,
            log_buff_sizes,
            extensions: match &keys.extensions {
                None => default.extensions,
                Some(names) => extensions(names)?,
            },
        };
        config.check_depths()?;
        if let Some(given) = keys.log_out_buff_size {
            // The original derives it: an output for each accumulator. `check_depths` has seen that there is one.
            let [.., log_acc_buff_size] = config.log_buff_sizes;
            let [.., log_out_width] = config.log_widths;
            let derived = log_acc_buff_size + log_out_width - LOG_ACC_WIDTH;
            if given != derived {
                return Err(ConfigError::Conflict {
                    first: "LOG_OUT_BUFF_SIZE",
                    first_value: given,
                    second: "LOG_ACC_BUFF_SIZE + LOG_OUT_WIDTH - LOG_ACC_WIDTH",
                    second_value: derived,
                });
            }
        }
        Ok(config)
    }

    fn check_depths(&self) -> Result<(), ConfigError> {
        for ((key, mem, limit), value) in SCRATCHPADS.into_iter().zip(self.log_buff_sizes) {
            let log_elem = self.log_elem_bytes(mem);
            // The upper bound keeps the shift below within u64; the fields' limits are far smaller.
            if value < log_elem || value > 40 {
                return Err(ConfigError::Range {
                    key,
                    value,
                    expected: format!("{log_elem} (one {mem} element) or more, and at most 40"),
                });
            }
            let depth = 1u64 << (value - log_elem);
            if depth > limit {
                return Err(ConfigError::Depth {
                    key,
                    value,
                    depth,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// The configuration as the text of a `vta_config.json`, one key a line. `EXTENSIONS` and
    /// `LOG_OUT_WIDTH` stand there only where they aren't [the default](Extensions::DEFAULT).
    pub fn to_json(&self) -> String {
        let [inp, wgt, out] = self.log_widths;
        let mut keys = serde_json::json!({
            "TARGET": self.target,
            "HW_VER": self.hw_ver,
            "LOG_INP_WIDTH": inp,
            "LOG_WGT_WIDTH": wgt,
            "LOG_ACC_WIDTH": LOG_ACC_WIDTH,
            "LOG_BATCH": self.log_batch,
            "LOG_BLOCK": self.log_block,
        });
        for ((key, ..), size) in SCRATCHPADS.into_iter().zip(self.log_buff_sizes) {
            keys[key] = size.into();
        }
        if out != LOG_INT8 {
            keys["LOG_OUT_WIDTH"] = out.into();
        }
        if self.extensions != Extensions::DEFAULT {
            keys["EXTENSIONS"] = self.extensions.iter().map(Extension::name).collect();
        }
        format!("{keys:#}")
    }

    /// The extensions of the original RTL that the machine has: [some](Extensions::DEFAULT) by default. In JSON they are
    /// the list `EXTENSIONS`, e.g. `["ACC8", "MUL"]`.
    pub const fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// The same machine with other extensions.
    #[must_use]
    pub fn with_extensions(self, extensions: Extensions) -> Self {
        Self { extensions, ..self }
    }

    /// The same machine with inputs and outputs of so many bits, in scratchpads of as many bytes.
    #[must_use]
    pub const fn with_tensors_of(mut self, bits: u32) -> Self {
        let [inp, _, out] = &mut self.log_widths;
        (*inp, *out) = (bits.ilog2(), bits.ilog2());
        self
    }

    /// The first thing that this configuration has and `machine` hasn't; `None` when what was
    /// made for this one runs on the other. The text of the target may differ.
    pub fn excess(&self, machine: &Self) -> Option<Excess> {
        let unit = |config: &Self| (config.batch(), config.block());
        let (wanted, there) = (unit(self), unit(machine));
        if wanted != there {
            return Some(Excess::MatrixUnit { wanted, there });
        }
        for (at, key) in WIDTHS.into_iter().enumerate() {
            let (wanted, there) = (self.log_widths[at], machine.log_widths[at]);
            if wanted != there {
                return Some(Excess::Width { key, wanted, there });
            }
        }
        for mem in MemType::ALL {
            let (wanted, there) = (self.depth(mem), machine.depth(mem));
            if wanted > there {
                return Some(Excess::Scratchpad { mem, wanted, there });
            }
        }
        let mut lacks = self.extensions.iter();
        let lacks = lacks.find(|e| !machine.extensions.contains(*e));
        lacks.map(Excess::Extension)
    }

    /// Free text: which device the file describes.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Rows of the matrix unit (`BATCH`): 1 by default.
    pub const fn batch(&self) -> usize {
        1 << self.log_batch
    }

    /// Columns of the matrix unit, in and out (`BLOCK_IN = BLOCK_OUT = BLOCK`): 16 by default.
    pub const fn block(&self) -> usize {
        1 << self.log_block
    }

    /// Bits of a number of the memory type in DRAM: of a lane, a weight or a micro-op. ACC8 are numbers as
    /// STOREs write them.
    #[inline]
    pub const fn width(&self, mem: MemType) -> usize {
        1 << self.log_width(mem)
    }

    #[inline]
    const fn log_width(&self, mem: MemType) -> u32 {
        let [inp, wgt, out] = self.log_widths;
        match mem {
            MemType::Inp => inp,
            MemType::Wgt => wgt,
            MemType::Wgt4 => 2,
            MemType::Out | MemType::Acc8 => out,
            MemType::Acc | MemType::Uop => LOG_ACC_WIDTH,
        }
    }

    /// That inputs, weights and outputs have 8 bits, which `what` needs.
    ///
    /// # Errors
    /// [`ConfigError::Width`] for the first that hasn't.
    pub fn int8(&self, what: &'static str) -> Result<(), ConfigError> {
        self.holds(8, what)
    }

    /// That inputs and outputs have so many bits and weights 8, which `what` needs.
    ///
    /// # Errors
    /// [`ConfigError::Width`] for the first that hasn't.
    pub fn holds(&self, bits: u32, what: &'static str) -> Result<(), ConfigError> {
        let tensors = bits.ilog2();
        let wanted = [tensors, LOG_INT8, tensors];
        let differs = (0..3).find(|&at| self.log_widths[at] != wanted[at]);
        differs.map_or(Ok(()), |at| {
            Err(ConfigError::Width {
                key: WIDTHS[at],
                value: self.log_widths[at],
                wanted: wanted[at],
                what,
            })
        })
    }

    /// Bytes of one DRAM element of the memory type: the unit of `dram_base`.
    #[inline]
    pub const fn elem_bytes(&self, mem: MemType) -> usize {
        1 << self.log_elem_bytes(mem)
    }

    #[inline]
    const fn log_elem_bytes(&self, mem: MemType) -> u32 {
        let log_numbers = match mem {
            MemType::Uop => 0,
            MemType::Wgt | MemType::Wgt4 => 2 * self.log_block,
            MemType::Inp | MemType::Out | MemType::Acc8 | MemType::Acc => {
                self.log_batch + self.log_block
            }
        };
        // Half a byte takes one.
        (log_numbers + self.log_width(mem)).saturating_sub(3)
    }

    /// Bytes of the largest element: a multiple of every other's.
    pub fn max_elem_bytes(&self) -> u64 {
        let bytes = MemType::ALL.map(|mem| self.elem_bytes(mem) as u64);
        bytes.into_iter().fold(1, u64::max)
    }

    /// Tiles (micro-ops for UOP) of the scratchpad that the memory type lives in: WGT and WGT4 share
    /// one, and so do ACC, ACC8 and OUT.
    #[inline]
    pub const fn depth(&self, mem: MemType) -> usize {
        let at = scratchpad(mem);
        1 << (self.log_buff_sizes[at] - self.log_elem_bytes(SCRATCHPADS[at].1))
    }

    /// The key of the size of the scratchpad that the memory type lives in.
    pub(crate) const fn size_key(mem: MemType) -> &'static str {
        SCRATCHPADS[scratchpad(mem)].0
    }

    /// Lanes of one input, accumulator or output tile: `BATCH * BLOCK`.
    #[inline]
    pub const fn lanes(&self) -> usize {
        self.batch() * self.block()
    }

    /// Multiply-adds of one GEMM step: `BATCH * BLOCK * BLOCK`.
    pub const fn macs_per_step(&self) -> u64 {
        (self.batch() * self.block() * self.block()) as u64
    }
}

/// Where the memory type's scratchpad is in [`SCRATCHPADS`].
const fn scratchpad(mem: MemType) -> usize {
    match mem {
        MemType::Uop => 0,
        MemType::Inp => 1,
        MemType::Wgt | MemType::Wgt4 => 2,
        MemType::Acc | MemType::Acc8 | MemType::Out => 3,
    }
}

fn extensions(names: &[String]) -> Result<Extensions, ConfigError> {
    let known = |name: &String| {
        Extension::from_name(name).ok_or_else(|| ConfigError::Extension { name: name.clone() })
    };
    names.iter().map(known).collect()
}

fn ranged(key: &'static str, value: u32, low: u32, high: u32) -> Result<u32, ConfigError> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(ConfigError::Range {
            key,
            value,
            expected: if low == high {
                format!("{low}, the only one in scope")
            } else {
                format!("{low} to {high}")
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_those_of_the_default_unless_listed() {
        let default = Config::default();
        assert_eq!(default.extensions(), Extensions::DEFAULT);
        assert!(!default.to_json().contains("EXTENSIONS"));
        let [all, some] = [Extensions::ALL, Extensions::DEFAULT].map(|set| set.to_string());
        for (text, expected) in [
            ("{}", &*some),
            (
                r#"{"EXTENSIONS": ["SHL", "MUL", "ACC8"]}"#,
                "ACC8, MUL, SHL",
            ),
            (r#"{"EXTENSIONS": ["CLIP", "SHL"]}"#, "CLIP, SHL"),
            (r#"{"EXTENSIONS": []}"#, "none"),
            (r#"{"EXTENSIONS": ["MUL", "ACC8", "MUL"]}"#, "ACC8, MUL"),
        ] {
            let config = Config::from_json(text).unwrap();
            assert_eq!(config.extensions().to_string(), expected, "{text}");
            assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        }
        let error = Config::from_json(r#"{"EXTENSIONS": ["DIV"]}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("configuration key EXTENSIONS: there is no 'DIV' (there are {all})")
        );
    }

    #[test]
    fn numbers_have_their_own_widths() {
        let text = r#"{"LOG_INP_WIDTH": 4, "LOG_WGT_WIDTH": 5, "LOG_OUT_WIDTH": 4, "LOG_OUT_BUFF_SIZE": 16}"#;
        let config = Config::from_json(text).unwrap();
        assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        let bytes = MemType::ALL.map(|mem| (mem.name(), config.elem_bytes(mem), config.depth(mem)));
        let expected = [
            ("uop", 4, 8192),
            ("wgt", 1024, 256),
            ("inp", 32, 1024),
            ("acc", 64, 2048),
            ("out", 32, 2048),
            ("acc8", 32, 2048),
            ("wgt4", 128, 256),
        ];
        assert_eq!(bytes, expected);
        assert_eq!(config.bounds(MemType::Inp), (-32768, 32767));
        assert_eq!(config.bounds(MemType::Wgt), (i32::MIN, i32::MAX));
        let bytes = [0xff, 0x7f, 0, 0x80];
        let numbers: Vec<i32> = config.numbers(MemType::Inp, &bytes).collect();
        assert_eq!(numbers, [32767, -32768]);
        let int8 = Config::default();
        assert!(int8.int8("a network").is_ok());
        let refused = config.int8("a network").map_err(|e| e.to_string());
        let refused = refused.unwrap_err();
        let expected =
            "configuration key LOG_INP_WIDTH is 4, but a network needs 3, numbers of 8 bits";
        assert_eq!(refused, expected);
        let excess = config.excess(&int8).map(|e| e.to_string());
        assert_eq!(excess.as_deref(), Some("LOG_INP_WIDTH = 4, not 3"));
        for (text, expected) in [
            (
                r#"{"LOG_INP_WIDTH": 2}"#,
                "key LOG_INP_WIDTH is 2, but it must be 3 to 5",
            ),
            (
                r#"{"LOG_OUT_WIDTH": 6}"#,
                "key LOG_OUT_WIDTH is 6, but it must be 3 to 5",
            ),
            (
                r#"{"LOG_ACC_WIDTH": 4}"#,
                "key LOG_ACC_WIDTH is 4, but it must be 5, the only one in scope",
            ),
            (
                r#"{"LOG_OUT_WIDTH": 4, "LOG_OUT_BUFF_SIZE": 15}"#,
                "disagree",
            ),
        ] {
            let error = Config::from_json(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn absent_keys_are_those_of_the_base() {
        let base = Config::from_json(r#"{"LOG_UOP_BUFF_SIZE": 13, "EXTENSIONS": []}"#).unwrap();
        let config = Config::from_json_over(&base, r#"{"LOG_INP_BUFF_SIZE": 14}"#).unwrap();
        let depths = [MemType::Uop, MemType::Inp].map(|mem| config.depth(mem));
        assert_eq!(
            (depths, config.extensions()),
            ([2048, 1024], Extensions::NONE)
        );
    }

    #[test]
    fn what_a_machine_lacks_is_named() {
        let config = |text: &str| Config::from_json(text).unwrap();
        let small = config(r#"{"LOG_UOP_BUFF_SIZE": 13, "EXTENSIONS": ["SHL"]}"#);
        let cases = [
            ("{}", Some("UOP scratchpad of 8192 elements, not 2048")),
            (
                r#"{"LOG_UOP_BUFF_SIZE": 13}"#,
                Some("ACC8, which it doesn't have"),
            ),
            (
                r#"{"LOG_BLOCK": 5, "LOG_UOP_BUFF_SIZE": 13}"#,
                Some("matrix unit 1x32x32, not 1x16x16"),
            ),
            (r#"{"LOG_UOP_BUFF_SIZE": 12, "EXTENSIONS": ["SHL"]}"#, None),
            (r#"{"LOG_UOP_BUFF_SIZE": 13, "EXTENSIONS": []}"#, None),
        ];
        for (text, expected) in cases {
            let excess = config(text).excess(&small).map(|e| e.to_string());
            let same = excess.as_deref().map(str::to_lowercase) == expected.map(str::to_lowercase);
            assert!(same, "{text}: {excess:?}");
        }
        assert_eq!(small.excess(&Config::default()), None);
    }
}
