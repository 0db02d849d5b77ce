//! Where the cycles of a run go, as figures, JSON and a page.

pub(crate) mod format;
pub(crate) mod host_share;
pub(crate) mod html;
pub(crate) mod timed;

pub use self::format::{bytes, percent, short};
pub use self::host_share::{HostShare, HostSpeed};
pub use self::timed::{Report, leave_out_additions, merge, utilization, verdict};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use vta_sim::views::Lane;

use self::timed::add_keys;

impl Report {
    /// The figures of the pass and of each layer, with the keys of `vta run --json`.
    pub fn json(&self) -> Value {
        let batch = self.program.config.batch() as u64;
        let macs = |layer: &vta_driver::Layer| layer.macs * batch;
        let layer = |layer: &vta_driver::Layer| {
            let mut object = json!({"name": layer.name, "kind": layer.kind, "macs": layer.macs});
            if let Some(host) = self.host.layer(&layer.name) {
                object["host"] = host.json(Some(&self.speed));
                // The device spends none on them.
                object["cycles"] = json!(0);
                object["bound_cycles"] = json!(0);
            }
            let keys = self.layer_json(&layer.name, macs(layer), 1);
            add_keys(&mut object, keys);
            object
        };
        let layers: Vec<Value> = self.program.layers.iter().map(layer).collect();
        let total = self.program.layers.iter().map(macs).sum();
        let mut object: Map<String, Value> = self.keys(total, 1);
        object.insert("layers".into(), layers.into());
        if !self.host.layers.is_empty() {
            let host = self.host.json(Some(&self.speed));
            object.insert("host".into(), host);
        }
        Value::Object(object)
    }

    /// Busy share of each of [`Lane::ALL`] over the pass, 0 to 1: a thousand columns of equal width.
    pub fn busy(&self) -> Vec<[f64; Lane::COUNT]> {
        html::busy(self)
    }

    /// One HTML file that needs nothing else.
    pub fn html(&self) -> String {
        html::page(self)
    }
}

/// As [`Report::json`], with the title.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = self.json();
        object["title"] = json!(self.title);
        object.serialize(serializer)
    }
}
