//! What a session counts: `vta_counters`, and JSON with the keys of the command line's.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use vta_app::Session as Network;
use vta_app::run::counters_json;
use vta_driver::{Counters as Driver, DeviceCounters, FlushReason};
use vta_isa::MemType;

/// What a session counted in all its runs that ended well. Later versions may add figures at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Runs.
    pub runs: u64,
    /// Images of all runs.
    pub images: u64,
    /// Passes over the program: each takes up to BATCH images.
    pub passes: u64,
    /// Instructions that devices got.
    pub insns: u64,
    /// Multiply-adds of the network, for all images.
    pub macs: u64,
    /// Bytes that instructions loaded from the device's memory.
    pub bytes_loaded: u64,
    /// Bytes that instructions stored to the device's memory.
    pub bytes_stored: u64,
    /// Cycles of all passes, on a device that counts them; 0 on others.
    pub cycles: u64,
}

impl Counters {
    /// The figures in the order in which they lie.
    pub const fn words(&self) -> [u64; size_of::<Self>() / size_of::<u64>()] {
        [
            self.runs,
            self.images,
            self.passes,
            self.insns,
            self.macs,
            self.bytes_loaded,
            self.bytes_stored,
            self.cycles,
        ]
    }
}

/// Totals since a session was opened.
#[derive(Debug, Default)]
pub struct Counted {
    /// Runs, images and passes.
    totals: Counters,
    driver: Driver,
    devices: BTreeMap<String, DeviceCounters>,
}

impl Counted {
    /// Counts a run. What is of devices are totals already.
    pub fn add(
        &mut self,
        network: &Network,
        images: usize,
        driver: Driver,
        devices: BTreeMap<String, DeviceCounters>,
    ) {
        let totals = &mut self.totals;
        totals.runs += 1;
        totals.images += images as u64;
        totals.passes += images.div_ceil(network.program().config.batch()) as u64;
        (self.driver, self.devices) = (driver, devices);
    }

    /// The main figures.
    pub fn figures(&self, network: &Network) -> Counters {
        let bytes = |mem: MemType| self.driver.traffic.bytes[mem.index()];
        let loaded = MemType::ALL.into_iter().filter(|mem| *mem != MemType::Out);
        let macs = network.program().layers.iter().map(|layer| layer.macs);
        let pass_cycles = network.report().map_or(0, |report| report.total().cycles);
        Counters {
            insns: self.driver.traffic.insns,
            macs: macs.sum::<u64>().saturating_mul(self.totals.images),
            bytes_loaded: loaded.map(bytes).fold(0, u64::saturating_add),
            bytes_stored: bytes(MemType::Out),
            cycles: pass_cycles.saturating_mul(self.totals.passes),
            ..self.totals
        }
    }

    /// All of it as one object of JSON.
    pub fn json(&self, network: &Network) -> String {
        let figures = self.figures(network);
        let traffic = &self.driver.traffic;
        let bytes = |mem: MemType| (mem.name().to_owned(), json!(traffic.bytes[mem.index()]));
        let flush = |r: FlushReason| (r.name().to_owned(), json!(self.driver.flushed(r)));
        let device =
            |(name, counted): (&String, &DeviceCounters)| (name.clone(), counters_json(counted));
        let mut object = json!({
            "runs": figures.runs,
            "images": figures.images,
            "passes": figures.passes,
            "macs": figures.macs,
            "insns": figures.insns,
            "bytes": MemType::ALL.into_iter().map(bytes).collect::<Map<_, _>>(),
            "submissions": self.driver.submissions,
            "flush_reasons": FlushReason::ALL.into_iter().map(flush).collect::<Map<_, _>>(),
            "encoded_batches": self.driver.encoded_batches,
            "replayed_batches": self.driver.replayed_batches,
        });
        if !self.devices.is_empty() {
            let all = self.devices.iter().map(device).collect();
            object["device_counters"] = Value::Object(all);
        }
        if let Some(report) = network.report() {
            object["cycles"] = json!(figures.cycles);
            object["pass"] = report.json();
        }
        object.to_string()
    }
}
