//! The parameters of a board: [`TimingConfig`], its presets and its TOML form.

use serde::{Deserialize, Serialize};

use super::DramModel;
use super::error::{TimingError, range};

/// Everything that the cycle model needs to know about a board besides the
/// [`Config`](vta_isa::Config) of the accelerator.
///
/// The defaults of every field are the values of the public VTA RTL in its 64-bit `pynq`
/// configuration; [`TimingConfig::de10`] differs in the burst and the fetch chunk. In TOML every
/// key is optional, and a key overrides the value of the `preset` (`"pynq"` if absent):
///
/// ```
/// use vta_sim::cycle::TimingConfig;
///
/// let timing = TimingConfig::from_toml(
///     "preset = \"de10\"
///      memory_latency_cycles = 30
///      [dram]
///      model = \"banked\"
///      banks = 8
///      row_bytes = 2048
///      t_hit = 0
///      t_miss = 12
///      t_refresh = 26
///      refresh_interval = 780",
/// )?;
/// assert_eq!((timing.burst_beats, timing.memory_latency_cycles), (16, 30));
/// # Ok::<(), vta_sim::cycle::TimingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimingConfig {
    /// Bytes of one beat of the memory bus: 8, 16, 32 or 64. Source: AXI data width of the RTL's
    /// memory engine, 64 bits in both presets.
    pub bus_bytes: u32,
    /// Most beats of one burst, a power of two, 1..=256; bursts never cross a multiple of
    /// `burst_beats * bus_bytes` bytes. Source: AXI length field of the RTL: 256 (pynq), 16 (de10).
    pub burst_beats: u32,
    /// Most instructions of one fetch request. Its bytes must fit one burst. Source: the RTL's
    /// fetch buffer: 128 (pynq), 8 (de10).
    pub fetch_chunk_insns: u32,
    /// Cycles from a request's arrival at an idle memory to its service, 1..=4096. Source: the
    /// memory model of the RTL simulation, 16.
    pub memory_latency_cycles: u32,
    /// Read requests that may be outstanding, 1..=4096. Source: tags of the RTL's memory engine, 16.
    pub tags: u32,
    /// Read requests that the memory holds, 1..=65536. Source: request FIFO of the RTL simulation's
    /// memory, 256. More than `tags` never wait there.
    pub request_fifo: u32,
    /// Instructions that the queue of each of load, compute and store holds, 1..=65536; the one
    /// that runs still occupies its entry. Source: RTL, 512.
    pub queue_depth: u32,
    /// Where the counter of each token queue saturates, 1..=65535. Source: 8-bit counters of the
    /// RTL, 255.
    pub token_max: u32,
    /// Cycles from the issue of a GEMM step to its write-back, 1..=256. Source: measured on the
    /// RTL, 4 for the 1x16x16 unit.
    pub gemm_pipeline_cycles: u32,
    /// Cycles from the issue of an ALU step to its write-back, 1..=256. Source: measured, 4.
    pub alu_pipeline_cycles: u32,
    /// Cycles between the issues of two ALU steps with two accumulator operands, 1..=16; with an
    /// immediate it is always 1. Source: measured, 2 (one read port).
    pub alu_two_operand_cycles: u32,
    /// Whether a STORE reads a tile of several beats while the last beat of the tile before is sent, not in a cycle of
    /// its own. Source: RTL, no.
    pub store_ahead: bool,
    /// Whether a GEMM, DEPTHWISE or ALU is decoded while the pipeline of the one before drains. Source: RTL, no.
    pub compute_ahead: bool,
    /// Whether the load module asks for the beats of its next LOAD while the last burst of the one before arrives, not when
    /// that is done. Source: RTL, no.
    pub load_ahead: bool,
    /// Cycles after the start of FINISH in which the memory still serves, and counts requests and
    /// beats, 0..=4096: until the host sees the end and stops the clock. No cycle of the run
    /// depends on it. Source: counters of the RTL simulation.
    pub end_poll_cycles: u32,
    /// Clock in MHz, over 0 and at most 10000: turns cycles into time, no cycle depends on it.
    /// Source: the public bitstreams of both boards, 100.
    pub clock_mhz: f64,
    /// What lies behind the bus.
    pub dram: DramModel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    preset: Option<String>,
    bus_bytes: Option<u32>,
    burst_beats: Option<u32>,
    fetch_chunk_insns: Option<u32>,
    memory_latency_cycles: Option<u32>,
    tags: Option<u32>,
    request_fifo: Option<u32>,
    queue_depth: Option<u32>,
    token_max: Option<u32>,
    gemm_pipeline_cycles: Option<u32>,
    alu_pipeline_cycles: Option<u32>,
    alu_two_operand_cycles: Option<u32>,
    store_ahead: Option<bool>,
    compute_ahead: Option<bool>,
    load_ahead: Option<bool>,
    end_poll_cycles: Option<u32>,
    clock_mhz: Option<f64>,
    dram: Option<DramModel>,
}

impl Default for TimingConfig {
    /// The `pynq` preset.
    fn default() -> Self {
        Self::pynq()
    }
}

impl TimingConfig {
    /// Names that [`TimingConfig::preset`] knows.
    pub const PRESETS: [&'static str; 3] = ["pynq", "de10", "own"];

    /// The RTL's configuration for the PYNQ board: bursts of 256 beats, 128 instructions a fetch.
    pub const fn pynq() -> Self {
        Self {
            bus_bytes: 8,
            burst_beats: 256,
            fetch_chunk_insns: 128,
            memory_latency_cycles: 16,
            tags: 16,
            request_fifo: 256,
            queue_depth: 512,
            token_max: 255,
            gemm_pipeline_cycles: 4,
            alu_pipeline_cycles: 4,
            alu_two_operand_cycles: 2,
            store_ahead: false,
            compute_ahead: false,
            load_ahead: false,
            end_poll_cycles: 18,
            clock_mhz: 100.0,
            dram: DramModel::Ideal {},
        }
    }

    /// The RTL's configuration for the DE10-Nano board: bursts of 16 beats, 8 instructions a fetch.
    pub const fn de10() -> Self {
        Self {
            burst_beats: 16,
            fetch_chunk_insns: 8,
            ..Self::pynq()
        }
    }

    /// As [`TimingConfig::pynq`] without what only the public RTL is bound by: an ALU step takes a cycle whatever it reads,
    /// and instructions of all three modules begin beside the end of the one before. docs/extensions.md has the circuits.
    pub const fn own() -> Self {
        Self {
            alu_two_operand_cycles: 1,
            store_ahead: true,
            compute_ahead: true,
            load_ahead: true,
            ..Self::pynq()
        }
    }

    /// The preset of a name.
    ///
    /// # Errors
    /// [`TimingError::Preset`] for a name that isn't one of [`TimingConfig::PRESETS`].
    pub fn preset(name: &str) -> Result<Self, TimingError> {
        match name {
            "pynq" => Ok(Self::pynq()),
            "de10" => Ok(Self::de10()),
            "own" => Ok(Self::own()),
            _ => Err(TimingError::Preset(name.to_owned())),
        }
    }

    /// Reads a timing file: an optional `preset`, and any fields of this struct as overrides.
    ///
    /// # Errors
    /// [`TimingError`] for text that isn't TOML, an unknown key or preset, a value out of range.
    pub fn from_toml(text: &str) -> Result<Self, TimingError> {
        let keys: Keys = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            TimingError::Toml(vta_files::toml_message(text, e.message(), at))
        })?;
        let preset = keys.preset.as_deref();
        let base = preset.map_or(Ok(Self::pynq()), Self::preset)?;
        Self::from_keys(keys, base)
    }

    /// As [`TimingConfig::from_toml`] of what a table has beside a preset, over the values of
    /// `base`.
    pub(crate) fn from_table(table: toml::Table, base: Self) -> Result<Self, TimingError> {
        let read =
            |table: toml::Table| table.try_into::<Keys>().map_err(|e| e.message().to_owned());
        // A table has no places in a text: the key is the place.
        for (key, value) in &table {
            let one = toml::Table::from_iter([(key.clone(), value.clone())]);
            read(one).map_err(|message| TimingError::Toml(format!("{key}: {message}")))?;
        }
        Self::from_keys(read(table).map_err(TimingError::Toml)?, base)
    }

    fn from_keys(keys: Keys, base: Self) -> Result<Self, TimingError> {
        let timing = Self {
            bus_bytes: keys.bus_bytes.unwrap_or(base.bus_bytes),
            burst_beats: keys.burst_beats.unwrap_or(base.burst_beats),
            fetch_chunk_insns: keys.fetch_chunk_insns.unwrap_or(base.fetch_chunk_insns),
            memory_latency_cycles: keys
                .memory_latency_cycles
                .unwrap_or(base.memory_latency_cycles),
            tags: keys.tags.unwrap_or(base.tags),
            request_fifo: keys.request_fifo.unwrap_or(base.request_fifo),
            queue_depth: keys.queue_depth.unwrap_or(base.queue_depth),
            token_max: keys.token_max.unwrap_or(base.token_max),
            gemm_pipeline_cycles: keys
                .gemm_pipeline_cycles
                .unwrap_or(base.gemm_pipeline_cycles),
            alu_pipeline_cycles: keys.alu_pipeline_cycles.unwrap_or(base.alu_pipeline_cycles),
            alu_two_operand_cycles: keys
                .alu_two_operand_cycles
                .unwrap_or(base.alu_two_operand_cycles),
            store_ahead: keys.store_ahead.unwrap_or(base.store_ahead),
            compute_ahead: keys.compute_ahead.unwrap_or(base.compute_ahead),
            load_ahead: keys.load_ahead.unwrap_or(base.load_ahead),
            end_poll_cycles: keys.end_poll_cycles.unwrap_or(base.end_poll_cycles),
            clock_mhz: keys.clock_mhz.unwrap_or(base.clock_mhz),
            dram: keys.dram.unwrap_or(base.dram),
        };
        timing.validate()?;
        Ok(timing)
    }

    /// The configuration as a timing file that [`TimingConfig::from_toml`] reads back.
    pub fn to_toml(&self) -> String {
        // Numbers and one nested table always have a TOML form.
        toml::to_string(self).unwrap_or_default()
    }

    /// Checks every field against its range and the fetch chunk against the burst.
    ///
    /// # Errors
    /// [`TimingError::Range`] naming the first key that is wrong, its value and its limit.
    pub fn validate(&self) -> Result<(), TimingError> {
        if ![8, 16, 32, 64].contains(&self.bus_bytes) {
            return Err(range("bus_bytes", self.bus_bytes, "8, 16, 32 or 64"));
        }
        if !self.burst_beats.is_power_of_two() || self.burst_beats > 256 {
            let limit = "a power of two, at most 256";
            return Err(range("burst_beats", self.burst_beats, limit));
        }
        let fit = self.burst_beats * self.bus_bytes / 16;
        if !(1..=fit).contains(&self.fetch_chunk_insns) {
            let limit = format!(
                "1 to {fit}: a chunk is one burst of at most {} beats of {} bytes",
                self.burst_beats, self.bus_bytes
            );
            return Err(range("fetch_chunk_insns", self.fetch_chunk_insns, limit));
        }
        for (key, value, high) in [
            ("memory_latency_cycles", self.memory_latency_cycles, 4096),
            ("tags", self.tags, 4096),
            ("request_fifo", self.request_fifo, 65536),
            ("queue_depth", self.queue_depth, 65536),
            ("token_max", self.token_max, 65535),
            ("gemm_pipeline_cycles", self.gemm_pipeline_cycles, 256),
            ("alu_pipeline_cycles", self.alu_pipeline_cycles, 256),
            ("alu_two_operand_cycles", self.alu_two_operand_cycles, 16),
        ] {
            if !(1..=high).contains(&value) {
                return Err(range(key, value, format!("1 to {high}")));
            }
        }
        if self.end_poll_cycles > 4096 {
            return Err(range("end_poll_cycles", self.end_poll_cycles, "0 to 4096"));
        }
        if !(self.clock_mhz > 0.0 && self.clock_mhz <= 10_000.0) {
            let limit = "over 0 and at most 10000";
            return Err(range("clock_mhz", self.clock_mhz, limit));
        }
        self.dram.validate()
    }
}

#[cfg(test)]
mod tests;
