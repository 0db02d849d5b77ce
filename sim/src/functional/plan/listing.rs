//! Plans as text: what runs in place of which instructions.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use vta_driver::{LayerMark, Span};
use vta_isa::Insn;

use super::super::run::ops::{Columns, LoadOp, MapOp, Narrow, Op, ProductOp};
use super::super::run::scratchpads::Scratchpads;
use super::Plan;
use super::origin::Origin;
use super::passes::PASSES;
use crate::kernels::{Operand, Start, Step, Steps};

/// The operations that the fast executor runs in place of a batch's instructions, in order.
///
/// Each line says what is done, in which shape and by which form of the kernel, then the
/// instructions that the operation stands for: those that it was made of, and behind the name of
/// each fusion those that it brought there. `Display` writes all of them, one a line, with their
/// places in DRAM; [`Self::summary`] counts those that differ in nothing but their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanListing {
    lines: Vec<PlanLine>,
}

/// One operation of a [`PlanListing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanLine {
    /// What is done, in which shape and by which form of the kernel.
    pub what: String,
    /// Spans of DRAM, each after a semicolon: region, first byte, length.
    pub place: String,
    /// What each fusion brought, from `""`: what the operation was made of. Mnemonics and indices
    /// of instructions.
    pub origin: BTreeMap<&'static str, Vec<(String, u32)>>,
}

impl PlanListing {
    pub(crate) fn new(
        plan: &Plan,
        insns: &[Insn],
        marks: &[LayerMark],
        pads: &Scratchpads,
    ) -> Self {
        let describe = Describe { marks, pads };
        let line = |(op, origin): (&Op, &Origin)| {
            let mut by_pass: BTreeMap<&'static str, Vec<(String, u32)>> = BTreeMap::new();
            for (index, pass) in origin.insns() {
                let list = by_pass.entry(pass.unwrap_or("")).or_default();
                list.push((
                    insns.get(index as usize).map_or_else(String::new, mnemonic),
                    index,
                ));
            }
            PlanLine {
                what: describe.op(op),
                place: places(op),
                origin: by_pass,
            }
        };
        let ops = plan.ops.iter().zip(&plan.origins);
        Self {
            lines: ops.map(line).collect(),
        }
    }

    /// The operations, in order.
    pub fn lines(&self) -> &[PlanLine] {
        &self.lines
    }

    /// Names of the fusions, in the order in which they run.
    pub fn fusions() -> impl Iterator<Item = &'static str> {
        PASSES.iter().map(|pass| pass.name)
    }

    /// Every different line once, where it first stands, with how often it does: without places
    /// and without indices of instructions, of which those that are the same are counted.
    pub fn summary(&self) -> String {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            let count = counts.entry(line.short()).or_insert((at, 0));
            count.1 += 1;
        }
        let mut lines: Vec<(usize, usize, String)> = counts
            .into_iter()
            .map(|(text, (at, count))| (at, count, text))
            .collect();
        lines.sort_unstable();
        let line = |(_, count, text): (usize, usize, String)| format!("{count} x {text}\n");
        lines.into_iter().map(line).collect()
    }
}

impl fmt::Display for PlanListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{}{}{}", line.what, line.place, line.from(indexed))?;
        }
        Ok(())
    }
}

impl PlanLine {
    fn short(&self) -> String {
        self.what.clone() + &self.from(counted)
    }

    /// The instructions of each pass, as `of` puts them.
    fn from(&self, of: fn(&[(String, u32)]) -> String) -> String {
        let mut text = String::new();
        for (pass, insns) in &self.origin {
            text += if text.is_empty() { "\n    from " } else { "; " };
            if !pass.is_empty() {
                text += pass;
                text += ": ";
            }
            text += &of(insns);
        }
        text
    }
}

/// Mnemonics with how often each stands in a row.
fn counted(insns: &[(String, u32)]) -> String {
    let same = insns.chunk_by(|a, b| a.0 == b.0);
    let text = |run: &[(String, u32)]| match run {
        [(one, _)] => one.clone(),
        [(first, _), ..] => format!("{} {first}", run.len()),
        [] => String::new(),
    };
    same.map(text).collect::<Vec<_>>().join(", ")
}

fn indexed(insns: &[(String, u32)]) -> String {
    let text = |(name, index): &(String, u32)| format!("{index} {name}");
    insns.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// What an instruction is called.
fn mnemonic(insn: &Insn) -> String {
    if matches!(insn, Insn::Gemm(gemm) if gemm.reset) {
        return "reset".to_owned();
    }
    let text = insn.to_string();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What it takes to say what an operation does.
struct Describe<'a> {
    marks: &'a [LayerMark],
    pads: &'a Scratchpads,
}

impl Describe<'_> {
    fn op(&self, op: &Op) -> String {
        match op {
            Op::Mark(mark) => {
                let name = self.marks.get(*mark).map_or("", |m| m.name.as_str());
                format!("layer {name}")
            }
            Op::Load(op) => load(op),
            Op::Store(op) => {
                let tiles = op.shape.row_bytes / self.pads.lanes;
                let how = match op.how {
                    Narrow::Low => "",
                    Narrow::Saturate => ", saturated",
                    Narrow::Requantize(how) if how.residual == 0 => ", requantised",
                    Narrow::Requantize(_) => ", requantised with a residual",
                };
                format!("store of {} rows of {tiles} tiles{how}", op.shape.rows)
            }
            Op::Fill { runs, values } => {
                let what = match values.iter().all(|value| *value == 0) {
                    true => "zero",
                    false => "constants in",
                };
                let runs: Vec<_> = runs.iter().map(|run| (run.first, run.len)).collect();
                format!("{what} {}", self.runs(&runs))
            }
            Op::Chain { steps, runs } => {
                format!("chain on {}: {}", self.runs(runs), list(steps))
            }
            Op::Zip { op, runs } => {
                let pairs: u32 = runs.iter().map(|r| r.tiles).sum();
                format!(
                    "{} of {pairs} pairs in {} runs, in order",
                    op.name(),
                    runs.len()
                )
            }
            Op::Gather { op, table } => {
                let each = |&(tiles, length): &(u32, u32)| format!("{tiles} of {length}");
                let lists: Vec<String> = table.runs.iter().map(each).collect();
                format!("{} of lists: {}", op.name(), lists.join(", "))
            }
            Op::Map(op) => map(op),
            Op::Product(op) => self.product(op),
        }
    }

    fn runs(&self, runs: &[(u32, u32)]) -> String {
        let lanes: usize = runs.iter().map(|r| r.1 as usize).sum();
        format!("{} tiles in {} runs", lanes / self.pads.lanes, runs.len())
    }

    fn product(&self, op: &ProductOp) -> String {
        let mut text = format!("product of {} rows", op.rows.list().len());
        for group in &op.groups {
            let columns = group.bases.list().len();
            let (taps, blocks) = (group.inputs.taps(), group.inputs.blocks());
            let _ = write!(
                text,
                ", {columns} columns of {taps} taps in {blocks} blocks"
            );
        }
        text += match op.read {
            Some(_) => ", from DRAM",
            None => ", from the scratchpad",
        };
        text += match op.start {
            Start::Zero => ", on zero",
            Start::Acc => ", on the sums before",
            Start::Residual => ", on bytes",
        };
        // Groups differ in constants alone.
        if let Some(group) = op.groups.first() {
            text += &steps(group);
        }
        text += match (op.out.is_some(), op.write_acc) {
            (true, true) => ", stored and kept",
            (true, false) => ", stored",
            (false, true) => ", kept",
            (false, false) => ", for nobody",
        };
        text
    }
}

/// Steps of a group. Those behind `end` are done in registers.
fn steps(group: &Columns) -> String {
    let mut text = String::new();
    if !group.before.list().is_empty() {
        let _ = write!(text, ", first {}", list(group.before.list()));
    }
    if group.first.as_flattened().iter().any(|&x| x != 0) {
        text += ", plus constants";
    }
    if !group.after.list().is_empty() {
        let _ = write!(text, ", then {}", ended(&group.after));
    }
    text
}

fn ended(steps: &Steps) -> String {
    let (before, end) = steps.parts();
    let floats = match &end.floors {
        Some(floors) if floors.inner => " in floats with a floor",
        Some(_) => " in floats",
        None => "",
    };
    let (before, end) = steps.list().split_at(before.len());
    let text = [list(before), list(end)].join(" end ");
    text.trim().to_owned() + floats
}

fn list(steps: &[Step]) -> String {
    let step = |step: &Step| {
        let name = step.op.name();
        match &step.operand {
            Operand::Imm(imm) => format!("{name} {imm}"),
            Operand::Tiles(_) => format!("{name} tiles"),
            Operand::Lanes(_) => format!("{name} vector"),
            Operand::Scaled(_) => format!("{name} scaled bytes"),
        }
    };
    steps.iter().map(step).collect::<Vec<_>>().join(" ")
}

fn load(op: &LoadOp) -> String {
    let (rows, cols) = (op.shape.rows, op.cols);
    let mut text = format!("load {} of {rows} rows of {cols}", op.mem.name());
    if op.padding != [0; 4] {
        let [left, right, above, below] = op.padding;
        let _ = write!(text, ", padded by {left} {right} {above} {below}");
    }
    text
}

fn map(op: &MapOp) -> String {
    let mut text = format!("map of {} bytes: {}", op.out.len, list(&op.map.first));
    if let Some(with) = &op.map.with {
        let name = with.op.name();
        let first = list(&with.first);
        let _ = write!(text, ", {name} bytes {first} each for {} tiles", with.tiles);
    }
    text + ", then " + &list(&op.map.after)
}

fn places(op: &Op) -> String {
    let place = |what: &str, span: Option<Span>| {
        let text = |s: Span| format!("; {what} {}:{:#x}+{}", s.region, s.start, s.len);
        span.map_or_else(String::new, text)
    };
    match op {
        Op::Load(op) => place("reads", Some(op.span)),
        Op::Store(op) => place("stores", Some(op.span)),
        Op::Map(op) => {
            let read = place("reads", Some(op.from));
            read + &place("bytes", op.with) + &place("stores", Some(op.out))
        }
        Op::Product(op) => {
            let read = place("reads", op.read);
            read + &place("bytes", op.residual) + &place("stores", op.out)
        }
        Op::Mark(_) | Op::Fill { .. } | Op::Chain { .. } | Op::Zip { .. } | Op::Gather { .. } => {
            String::new()
        }
    }
}
