//! What lies behind the memory bus: extra cycles before a request's beats begin.

use serde::{Deserialize, Serialize};

use super::error::{TimingError, range};

/// Extra latency of the memory behind the bus, in cycles of the accelerator's clock.
///
/// A request is charged when it is taken up: a read when it leaves the request FIFO, a write when
/// its command is accepted. Its first byte decides. In one cycle a read is charged before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum DramModel {
    /// Nothing extra: the memory of the RTL simulation.
    Ideal {},
    /// Banks with one open row each. The byte at `addr` is in bank
    /// `(addr / row_bytes) % banks` and row `addr / row_bytes / banks`.
    Banked {
        /// Banks, a power of two, 1..=64.
        banks: u32,
        /// Bytes of a row, a power of two, 64..=65536.
        row_bytes: u32,
        /// Cycles before a request whose row is open, at most 4096.
        t_hit: u32,
        /// Cycles before a request whose row must first be opened, from `t_hit` to 4096.
        t_miss: u32,
        /// Cycles that a refresh takes, less than `refresh_interval`. It closes all rows, and a
        /// request that meets it waits for its end.
        t_refresh: u32,
        /// Cycles from the beginning of a refresh to that of the next; 0: never.
        refresh_interval: u32,
    },
}

impl DramModel {
    pub(super) fn validate(&self) -> Result<(), TimingError> {
        let Self::Banked {
            banks,
            row_bytes,
            t_hit,
            t_miss,
            t_refresh,
            refresh_interval,
        } = *self
        else {
            return Ok(());
        };
        if !banks.is_power_of_two() || banks > 64 {
            return Err(range("dram.banks", banks, "a power of two, at most 64"));
        }
        if !row_bytes.is_power_of_two() || !(64..=65536).contains(&row_bytes) {
            let limit = "a power of two, 64 to 65536";
            return Err(range("dram.row_bytes", row_bytes, limit));
        }
        if t_hit > 4096 {
            return Err(range("dram.t_hit", t_hit, "at most 4096"));
        }
        if !(t_hit..=4096).contains(&t_miss) {
            let limit = format!("{t_hit} (t_hit) to 4096");
            return Err(range("dram.t_miss", t_miss, limit));
        }
        if refresh_interval > 0 && t_refresh >= refresh_interval {
            let limit = format!("less than refresh_interval, {refresh_interval}");
            return Err(range("dram.t_refresh", t_refresh, limit));
        }
        Ok(())
    }
}

/// The state of the banks.
#[derive(Clone, Debug)]
pub(super) struct Dram {
    model: DramModel,
    /// Which row each bank has open.
    open: Vec<Option<u64>>,
    /// How many refreshes had begun at the last access.
    refreshes: u64,
}

impl Dram {
    pub(super) fn new(model: DramModel) -> Self {
        let banks = match model {
            DramModel::Ideal {} => 0,
            DramModel::Banked { banks, .. } => banks as usize,
        };
        Self {
            model,
            open: vec![None; banks],
            refreshes: 0,
        }
    }

    /// Extra cycles of a request at byte `addr` that is taken up in cycle `now`. Calls must come
    /// in the order of `now`.
    pub(super) fn access(&mut self, addr: u64, now: u64) -> u64 {
        let DramModel::Banked {
            banks,
            row_bytes,
            t_hit,
            t_miss,
            t_refresh,
            refresh_interval,
        } = self.model
        else {
            return 0;
        };
        let mut wait = 0;
        if refresh_interval > 0 {
            let refreshes = now / u64::from(refresh_interval);
            if refreshes != self.refreshes {
                self.refreshes = refreshes;
                self.open.fill(None);
            }
            // The first one begins after an interval, not with the run.
            if refreshes > 0 {
                wait = u64::from(t_refresh).saturating_sub(now % u64::from(refresh_interval));
            }
        }
        let line = addr / u64::from(row_bytes);
        let (bank, row) = (line % u64::from(banks), line / u64::from(banks));
        let hit = self.open[bank as usize].replace(row) == Some(row);
        wait + u64::from(if hit { t_hit } else { t_miss })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANKED: DramModel = DramModel::Banked {
        banks: 2,
        row_bytes: 64,
        t_hit: 1,
        t_miss: 10,
        t_refresh: 20,
        refresh_interval: 100,
    };

    #[test]
    fn rows_open_and_refresh_closes_them() {
        let mut dram = Dram::new(BANKED);
        for (addr, now, extra, what) in [
            (0, 0, 10, "first access opens the row"),
            (63, 5, 1, "same row"),
            (64, 6, 10, "other bank"),
            (0, 7, 1, "the first bank's row is still open"),
            (128, 8, 10, "same bank, next row"),
            (0, 99, 10, "the row was replaced"),
            (0, 100, 30, "a refresh begins"),
            (0, 119, 2, "last cycle of the refresh, row open again"),
            (0, 120, 1, "the refresh is over"),
            (64, 350, 10, "refreshes in between closed the row"),
        ] {
            assert_eq!(dram.access(addr, now), extra, "{what}");
        }
        assert_eq!(Dram::new(DramModel::Ideal {}).access(77, 5), 0);
    }

    #[test]
    fn bad_values_name_the_key() {
        let DramModel::Banked { .. } = BANKED else {
            unreachable!()
        };
        type Change = fn(&mut [u32; 6]);
        for (change, key) in [
            ((|v| v[0] = 3) as Change, "dram.banks is 3"),
            (|v| v[0] = 128, "dram.banks is 128"),
            (|v| v[1] = 32, "dram.row_bytes is 32"),
            (|v| v[2] = 5000, "dram.t_hit is 5000"),
            (|v| v[3] = 0, "dram.t_miss is 0"),
            (|v| v[4] = 100, "dram.t_refresh is 100"),
        ] {
            let mut v = [2, 64, 1, 10, 20, 100];
            change(&mut v);
            let model = DramModel::Banked {
                banks: v[0],
                row_bytes: v[1],
                t_hit: v[2],
                t_miss: v[3],
                t_refresh: v[4],
                refresh_interval: v[5],
            };
            let error = model.validate().unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        BANKED.validate().unwrap();
    }
}
