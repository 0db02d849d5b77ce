//! How busy everything was over time, in a bounded number of buckets.

use vta_isa::{Insn, Module};

use crate::cycle::{BurstEvent, Client, CycleReport, Listener, Unit};

/// What a timeline shows, from the instruction stream to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Instruction beats on the bus.
    Fetch,
    /// The load module works on an instruction.
    Load,
    /// The compute module multiplies or clears.
    Gemm,
    /// The compute module runs an ALU instruction.
    Alu,
    /// The compute module loads accumulators or micro-ops.
    ComputeLoad,
    /// The store module works on an instruction.
    Store,
    /// Beats read.
    BusRead,
    /// Beats written.
    BusWrite,
}

impl Lane {
    /// How many lanes there are.
    pub const COUNT: usize = 8;

    /// Every lane, top to bottom.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Fetch,
        Self::Load,
        Self::Gemm,
        Self::Alu,
        Self::ComputeLoad,
        Self::Store,
        Self::BusRead,
        Self::BusWrite,
    ];

    /// A word or two for the picture.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Load => "load",
            Self::Gemm => "GEMM",
            Self::Alu => "ALU",
            Self::ComputeLoad => "acc, uop load",
            Self::Store => "store",
            Self::BusRead => "bus read",
            Self::BusWrite => "bus write",
        }
    }
}

/// Busy cycles of each [`Lane`] in buckets of equal width, a power of two. When a run outgrows the
/// buckets, two become one, so memory doesn't grow with the run.
#[derive(Clone, Debug)]
pub struct Timeline<'p> {
    insns: &'p [Insn],
    width_log2: u32,
    max_buckets: usize,
    /// Bucket by bucket.
    buckets: Vec<[u64; Lane::COUNT]>,
    running: [Option<(usize, u64)>; 3],
}

/// A finished timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Cycles of one bucket.
    pub width_cycles: u64,
    /// Busy cycles of each of [`Lane::ALL`], bucket by bucket; the last one may lie partly beyond
    /// the run.
    pub busy: Vec<[u64; Lane::COUNT]>,
}

impl<'p> Timeline<'p> {
    /// At most `max_buckets` buckets, at least 2.
    pub fn new(insns: &'p [Insn], max_buckets: usize) -> Self {
        Self {
            insns,
            width_log2: 0,
            max_buckets: max_buckets.max(2),
            buckets: Vec::new(),
            running: [None; 3],
        }
    }

    /// The buckets, when the run is over.
    pub fn finish(mut self, report: &CycleReport) -> Buckets {
        for module in Module::ALL {
            self.end(module, report.cycles);
        }
        Buckets {
            width_cycles: 1 << self.width_log2,
            busy: self.buckets,
        }
    }

    fn end(&mut self, module: Module, to: u64) {
        let Some((insn, from)) = self.running[module as usize].take() else {
            return;
        };
        match module {
            Module::Load => self.add(Lane::Load, from, to),
            Module::Store => self.add(Lane::Store, from, to),
            Module::Compute => {
                // The lanes show instructions, not steps: the pipeline's ends belong to them.
                let lane = match &self.insns[insn] {
                    Insn::Gemm(_) | Insn::Depthwise(_) => Lane::Gemm,
                    Insn::Alu(_) => Lane::Alu,
                    Insn::Load(_) => Lane::ComputeLoad,
                    Insn::Store(_) | Insn::Finish(_) => return,
                };
                self.add(lane, from, to);
            }
        }
    }

    fn add(&mut self, lane: Lane, mut from: u64, to: u64) {
        if from >= to {
            return;
        }
        while (to - 1) >> self.width_log2 >= self.max_buckets as u64 {
            self.buckets = halve(&self.buckets);
            self.width_log2 += 1;
        }
        let last = ((to - 1) >> self.width_log2) as usize;
        if self.buckets.len() <= last {
            self.buckets.resize(last + 1, [0; Lane::COUNT]);
        }
        while from < to {
            let bucket = from >> self.width_log2;
            let end = to.min((bucket + 1) << self.width_log2);
            self.buckets[bucket as usize][lane as usize] += end - from;
            from = end;
        }
    }
}

fn halve(buckets: &[[u64; Lane::COUNT]]) -> Vec<[u64; Lane::COUNT]> {
    let join = |pair: &[[u64; Lane::COUNT]]| {
        let mut sum = pair[0];
        if let Some(second) = pair.get(1) {
            sum.iter_mut().zip(second).for_each(|(a, b)| *a += b);
        }
        sum
    };
    buckets.chunks(2).map(join).collect()
}

impl Listener for Timeline<'_> {
    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        self.running[module as usize] = Some((insn, cycle));
    }

    fn insn_done(&mut self, module: Module, _insn: usize, cycle: u64) {
        self.end(module, cycle + 1);
    }

    fn burst(&mut self, event: &BurstEvent) {
        let (from, to) = (event.first_cycle, event.last_cycle + 1);
        if event.client == Client::Out {
            self.add(Lane::BusWrite, from, to);
            return;
        }
        self.add(Lane::BusRead, from, to);
        if event.client.unit() == Unit::Fetch {
            self.add(Lane::Fetch, from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::{Config, asm};

    use super::*;
    use crate::cycle::{TimingConfig, simulate};

    fn run(max_buckets: usize) -> (CycleReport, Buckets) {
        let text = "load.inp y_size=1 x_size=128 x_stride=128
            load.wgt y_size=1 x_size=16 x_stride=16 push_next
            gemm uop_bgn=0 uop_end=1 iter_out=93 iter_in=1 pop_prev push_next
            alu.max imm=0 uop_bgn=0 uop_end=1 iter_out=43 iter_in=1
            store y_size=1 x_size=16 x_stride=16 pop_prev push_prev
            finish pop_next";
        let insns = asm::parse(text).unwrap();
        let mut timeline = Timeline::new(&insns, max_buckets);
        let (timing, config) = (TimingConfig::pynq(), Config::default());
        let report = simulate(&timing, &config, &insns, 0, &mut timeline).unwrap();
        let buckets = timeline.finish(&report);
        (report, buckets)
    }

    #[test]
    fn merging_buckets_loses_no_cycle() {
        for max_buckets in [2, 3, 64, 1 << 20] {
            let (report, buckets) = run(max_buckets);
            assert!(buckets.busy.len() <= max_buckets);
            let total = |lane: Lane| buckets.busy.iter().map(|b| b[lane as usize]).sum::<u64>();
            assert_eq!(total(Lane::Load), report.busy[Unit::Load as usize]);
            assert_eq!(total(Lane::Store), report.busy[Unit::Store as usize]);
            assert_eq!((total(Lane::Gemm), total(Lane::Alu)), (100, 50));
            assert_eq!(total(Lane::BusRead), report.read_beats);
            assert_eq!(total(Lane::Fetch), 12);
            let full = buckets
                .busy
                .iter()
                .flatten()
                .all(|&b| b <= buckets.width_cycles);
            assert!(full, "a bucket holds more than its width");
        }
    }
}
