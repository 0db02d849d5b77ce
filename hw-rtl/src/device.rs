//! A design as a device of the driver.

use std::path::Path;
use std::time::Instant;

use vta_driver::{
    Batch, Budget, DeviceInfo, DeviceMemory, RunReport, Runner, Traffic, WorkerDevice,
};
use vta_isa::{Config, Insn, MemType, tokens};

use crate::RtlError;
use crate::bus::Moved;
use crate::rtl::{Options, Rtl};

/// Clocks that any run has, whatever its instructions.
const CLOCKS_OF_A_RUN: u64 = 1 << 20;
/// Clocks that an instruction may take beside what it moves and computes.
const CLOCKS_OF_AN_INSN: u64 = 4096;
/// Clocks for a byte that is moved and for a step.
const CLOCKS_OF_WORK: u64 = 16;

/// Clocks that a run of instructions may take before it is given up: far more than any design needs, and
/// few enough that the end comes while somebody waits.
pub fn most_clocks(config: &Config, insns: &[Insn]) -> u64 {
    let traffic = Traffic::of(insns, config);
    let steps = [traffic.gemm_steps, traffic.reset_steps, traffic.alu_steps];
    let sum = |sum: u64, count| sum.saturating_add(count);
    let work = steps.into_iter().fold(traffic.total_bytes(), sum);
    let insns = (insns.len() as u64).saturating_mul(CLOCKS_OF_AN_INSN);
    let most = work.saturating_mul(CLOCKS_OF_WORK).saturating_add(insns);
    most.saturating_add(CLOCKS_OF_A_RUN)
}

/// The largest element that a design may be thought to have: a weight tile of 64 by 64.
const MAX_ELEM_LOG2: u32 = 12;

/// Makes devices of designs.
pub struct RtlDevice;

impl RtlDevice {
    /// The design of a library as a device: [`RunReport::cycles`] is what its counter says.
    ///
    /// # Errors
    /// As [`Rtl::open`].
    pub fn open(
        path: &Path,
        config: Config,
        budget: Budget,
        options: &Options,
    ) -> Result<WorkerDevice, RtlError> {
        let mut rtl = Rtl::open(path, options)?;
        let (max_clocks, of) = (options.max_clocks, config.clone());
        let runner: Runner = Box::new(move |batch, memory| {
            budget
                .check_steps(&batch.insns)
                .map_err(|e| e.to_string())?;
            budget
                .check_bytes(&of, &batch.insns)
                .map_err(|e| e.to_string())?;
            let ran = run(&mut rtl, &of, max_clocks, batch, memory);
            let (report, moved) = ran.map_err(|e| e.to_string())?;
            match stores_else(batch, &report, &moved) {
                None => Ok(report),
                Some(text) => Err(text),
            }
        });
        let name = name(path);
        Ok(WorkerDevice::new(DeviceInfo { name, config }, runner))
    }
}

/// What a design's device is called.
pub fn name(path: &Path) -> String {
    format!("rtl:{}", path.display())
}

/// In words, that a design wrote more or fewer bytes than the STOREs of its instructions have, where FINISH waits for
/// the last of them.
pub fn stores_else(batch: &Batch, report: &RunReport, moved: &Moved) -> Option<String> {
    let mut last = batch.insns.iter().rev();
    let last = last.find(|insn| matches!(insn, Insn::Store(_)));
    let waits = last.is_none_or(|insn| insn.deps().push_prev)
        && report.leftover_tokens[tokens::Edge::StoreToCompute as usize] == 0;
    let expected = report.traffic.bytes[MemType::Out.index()];
    let written = moved.written_bytes;
    (waits && written != expected).then(|| {
        format!(
            "the design wrote {written} bytes where its instructions store {expected}: it has another block size or \
             instruction set"
        )
    })
}

/// Runs a batch on a design, for `max_clocks` and [`most_clocks`] at most: what it took, and what it moved.
///
/// # Errors
/// As [`Rtl::run`].
pub fn run(
    rtl: &mut Rtl,
    config: &Config,
    max_clocks: Option<u64>,
    batch: &Batch,
    memory: &mut DeviceMemory,
) -> Result<(RunReport, Moved), RtlError> {
    let started = Instant::now();
    let most = most_clocks(config, &batch.insns);
    let max_clocks = max_clocks.map_or(most, |given| given.min(most));
    let ran = rtl.run(batch.insn_addr, batch.insns.len(), memory, max_clocks);
    let ran = ran.map_err(|error| whose(config, &batch.insns, error))?;
    // A program that the design has finished, though no order of its instructions does.
    let leftover = tokens::order(&batch.insns).map_or([0; 4], |order| order.leftover);
    let report = RunReport {
        wall: started.elapsed(),
        cycles: Some(ran.cycles),
        leftover_tokens: leftover,
        // A design says nothing of its layers.
        ..RunReport::of(&batch.insns, &batch.marks, config)
    };
    Ok((report, ran.moved))
}

/// An address where nothing is allocated, with the instruction that has it on a design of other elements.
fn whose(config: &Config, insns: &[Insn], error: RtlError) -> RtlError {
    let RtlError::Nowhere { does, addr, reason } = error else {
        return error;
    };
    let at = |insn: &Insn| {
        let (mem, base, count) = match insn {
            Insn::Load(load) => (load.mem, load.dram_base, load.x_size),
            Insn::Store(store) => (MemType::Out, store.dram_base, store.x_size),
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => return None,
        };
        let own = config.elem_bytes(mem) as u64;
        let others = (0..=MAX_ELEM_LOG2).map(|log2| 1_u64 << log2);
        let mut others = others.filter(|elem| *elem != own && base > 0);
        let first = |elem: u64| u64::from(base) * elem;
        let other = others
            .find(|elem| (first(*elem)..first(*elem) + u64::from(count) * elem).contains(&addr))?;
        Some(format!(
            "; there {insn} would {} if {mem} elements had {other} bytes, not {own}: is the design of another block \
             size?",
            does.trim_end_matches('s')
        ))
    };
    let whose = insns.iter().find_map(at).unwrap_or_default();
    let reason = reason + &whose;
    RtlError::Nowhere { does, addr, reason }
}
