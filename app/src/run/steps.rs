//! A program written by hand, cycle by cycle, as a page or a notebook shows it.

use serde_json::{Value, json};
use vta_driver::Budget;
use vta_isa::resolve::stored_bytes;
use vta_isa::tokens::Edge;
use vta_isa::{Config, MemType, Module, check as isa_check, number};
use vta_replay::spaces;
use vta_sim::cycle::{Client, Unit};
use vta_sim::hazards::{self, Hazard};
use vta_sim::stepper::{Span, Stepper, Touched};

use crate::check;
use crate::device::machine::Machine;
use crate::error::{Error, Result, ensure};
use crate::open::Source;
use crate::options::Target;

/// The most instructions of a program that is stepped.
const MAX_INSNS: usize = 20_000;
/// What such a program may ask for: a step back computes all before it again.
pub const BUDGET: Budget = Budget {
    steps: 1 << 20,
    cycles: 10_000_000,
    bytes: 16 << 20,
};
/// The most tiles of a scratchpad whose values are told at once; others are only counted.
const MAX_TILES: usize = 256;
/// The most bursts that are told.
const MAX_BURSTS: usize = 2000;
/// Scratchpads, as they are shown.
const PADS: [MemType; 4] = [MemType::Inp, MemType::Wgt, MemType::Uop, MemType::Acc];

/// A program at one of its cycles.
pub struct Steps {
    source: Source,
    config: Config,
    stepper: Stepper,
    /// By scratchpad of [`PADS`], which instruction wrote each tile last.
    writers: [Vec<Option<usize>>; 4],
}

/// The line of the first fault of a text, from 1, and what is wrong; `None` where it is a program of int8.
pub fn fault(text: &str) -> Option<(usize, String)> {
    let checked = Source::parse(text).and_then(|source| source.check_data(&Config::default()));
    let error = checked.err()?;
    let words = error.to_string();
    let rest = words.strip_prefix("line ");
    let digits = rest.map(|rest| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    });
    let line = digits.and_then(|digits| digits.parse().ok()).unwrap_or(1);
    Some((line, words))
}

impl Steps {
    /// Times a program and stands before its first cycle. The target gives the machine.
    ///
    /// # Errors
    /// The first line that is neither an instruction nor data, data or transfers beyond a space, a machine that can't
    /// be, a program without instructions or with too many.
    pub fn open(text: &str, target: &Target) -> Result<Self> {
        let machine = Machine::read(target)?;
        let source = Source::parse(text)?;
        let count = source.insns.len();
        ensure!(count > 0, "the program has no instruction");
        ensure!(
            count <= MAX_INSNS,
            "{count} instructions: at most {MAX_INSNS} are shown step by step"
        );
        let config = machine.config.clone();
        let case = source.case("program", &config)?;
        let stepper = Stepper::new(case, &machine.timing, &BUDGET).map_err(Error::input)?;
        Ok(Self {
            source,
            writers: PADS.map(|mem| vec![None; config.depth(mem)]),
            config,
            stepper,
        })
    }

    /// What stays the same from cycle to cycle: instructions with their lines and times, what the checkers say, and
    /// how the run ends.
    ///
    /// # Errors
    /// Work that hazards can't be looked for in.
    pub fn overview(&self) -> Result<Value> {
        let spans = self.stepper.spans().iter();
        let insns = self.source.insns.iter().zip(&self.source.insn_lines);
        let insn = |((insn, line), span): ((&vta_isa::Insn, &usize), &Span)| {
            json!({
                "text": insn.to_string(), "line": line, "module": insn.module().name(),
                "dispatched": span.dispatched, "start": span.start, "done": span.done,
            })
        };
        let depth = |mem: MemType| (mem.name().to_owned(), json!(self.config.depth(mem)));
        let faults = isa_check::check(&self.config, &self.source.insns);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let (cycles, stopped) = match self.stepper.report() {
            Ok(report) if report.stuck.is_empty() => (Some(report.cycles), None),
            Ok(report) => {
                let words: Vec<String> = report.stuck.iter().map(ToString::to_string).collect();
                let words = format!("deadlock behind FINISH: {}", words.join("; "));
                (Some(report.cycles), Some(words))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let (stuck, bursts) = (self.stuck_lines(), self.stepper.bursts());
        Ok(json!({
            "insns": insns.zip(spans).map(insn).collect::<Vec<_>>(),
            "modules": Module::ALL.map(|m| m.name()),
            "units": Unit::ALL,
            "edges": Edge::ALL,
            "batch": self.config.batch(), "block": self.config.block(),
            "depths": PADS.map(depth).into_iter().collect::<serde_json::Map<_, _>>(),
            "cycles": cycles, "last": self.stepper.last_cycle(), "stopped": stopped,
            "stuck_lines": stuck,
            "faults": faults,
            "hazards": self.hazards()?,
            // Of long runs every other one, and so on: what a picture has room for.
            "bursts": bursts.iter().step_by(bursts.len() / MAX_BURSTS + 1).map(|b| json!({
                "client": b.client.name(), "write": b.client == Client::Out,
                "from": b.first_cycle, "to": b.last_cycle + 1,
            })).collect::<Vec<_>>(),
        }))
    }

    /// The lines at which modules wait for ever.
    fn stuck_lines(&self) -> Vec<usize> {
        let state = self.stepper.state(Some(self.stepper.last_cycle()));
        let ended = matches!(self.stepper.report(), Ok(report) if report.stuck.is_empty());
        let heads = state.queues.iter().filter_map(|queue| queue.first());
        let heads = heads.filter(|_| !ended);
        let line = |insn: &usize| self.source.insn_lines.get(*insn).copied();
        heads.filter_map(line).collect()
    }

    /// Each hazard in words, with the lines of its instructions. A program without an order has none: how it
    /// ends says why.
    fn hazards(&self) -> Result<Vec<Value>> {
        let found = match hazards::check_case(self.stepper.case()) {
            Ok(report) => check::as_written(report, &self.source.insns).hazards,
            Err(hazards::HazardError::Token(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let line = |insn: usize| self.source.insn_lines.get(insn);
        let hazard = |hazard: &Hazard| {
            let first = match hazard {
                Hazard::Race(race) => race.first.at.index,
                other => other.insn(),
            };
            json!({"words": hazard.to_string(), "lines": [line(first), line(hazard.insn())]})
        };
        Ok(found.iter().map(hazard).collect())
    }

    /// The state behind a cycle; `None` is before the first. A fault on the way is told in it.
    pub fn state(&mut self, cycle: Option<u64>) -> Value {
        let fault = self.stepper.go_to(cycle).err().map(|fault| {
            self.source
                .as_written(&fault.to_string(), self.stepper.case())
        });
        self.note_writers();
        let state = self.stepper.state(cycle);
        let module = |module: Module| {
            let at = module as usize;
            let (queue, runs) = (&state.queues[at], state.running[at]);
            let touched = queue
                .first()
                .filter(|_| runs)
                .map(|&insn| self.stepper.touched(insn));
            let touched = touched.as_ref().map(touched_json);
            json!({"queue": queue, "runs": runs, "touches": touched})
        };
        json!({
            "cycle": cycle,
            "tokens": state.tokens,
            "modules": Module::ALL.map(module),
            "stalls": state.stalls,
            "bus": state.bus.map(|client| client.map(Client::name)),
            "done": self.stepper.done().map(|(insn, _)| insn).collect::<Vec<_>>(),
            "pads": PADS.map(|mem| (mem.name().to_owned(), self.pad(mem)))
                .into_iter().collect::<serde_json::Map<_, _>>(),
            "out": self.out(),
            "fault": fault,
        })
    }

    /// Tiles that were written, with the instruction that did so last.
    fn note_writers(&mut self) {
        self.writers = PADS.map(|mem| vec![None; self.config.depth(mem)]);
        for (insn, touched) in self.stepper.done() {
            for (mem, tiles) in &touched.writes {
                let at = PADS.iter().position(|pad| pad == mem);
                let Some(writers) = at.map(|at| &mut self.writers[at]) else {
                    continue;
                };
                for tile in tiles.iter() {
                    if let Some(writer) = writers.get_mut(tile) {
                        *writer = Some(insn);
                    }
                }
            }
        }
    }

    /// The written tiles of a scratchpad.
    fn pad(&self, mem: MemType) -> Value {
        let at = PADS.iter().position(|pad| *pad == mem).unwrap_or_default();
        let written = self.writers[at].iter().enumerate();
        let written = written.filter_map(|(tile, writer)| Some((tile, (*writer)?)));
        let all: Vec<(usize, usize)> = written.collect();
        let tile = |&(tile, writer): &(usize, usize)| json!({"tile": tile, "writer": writer, "values": self.values(mem, tile)});
        json!({
            "count": all.len(),
            "tiles": all.iter().take(MAX_TILES).map(tile).collect::<Vec<_>>(),
        })
    }

    fn values(&self, mem: MemType, tile: usize) -> Vec<i32> {
        let pads = self.stepper.pads();
        let numbers = |mem: MemType, pad: &[u8]| {
            let size = self.config.elem_bytes(mem);
            let tile = &pad[tile * size..][..size];
            self.config.numbers(mem, tile).collect()
        };
        match mem {
            MemType::Uop => {
                let uop = pads.uop[tile];
                [uop.dst, uop.src, uop.wgt].map(i32::from).to_vec()
            }
            MemType::Inp => numbers(mem, pads.inp),
            MemType::Wgt | MemType::Wgt4 => numbers(MemType::Wgt, pads.wgt),
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                let lanes = self.config.lanes();
                pads.acc[tile * lanes..][..lanes].to_vec()
            }
        }
    }

    /// Elements where the program stores or values are expected, as DRAM has them.
    fn out(&self) -> Vec<Value> {
        let case = self.stepper.case();
        let elem = self.config.elem_bytes(MemType::Out) as u64;
        let base = u64::from(spaces::address(MemType::Out, 0).0);
        let stored = stored_bytes(&case.config, &case.insns);
        let elements = stored
            .iter()
            .flat_map(|bytes| (bytes.start - base) / elem..(bytes.end - base).div_ceil(elem));
        let value = |element: u64| {
            let bytes = self.stepper.memory().read(base + element * elem, elem);
            let values = self.config.numbers(MemType::Out, bytes.ok()?);
            let values: Vec<i32> = values.collect();
            let expected = self.expected(element);
            Some(json!({"element": element, "values": values, "expected": expected}))
        };
        elements.take(MAX_TILES).filter_map(value).collect()
    }

    /// What `.out` says of an element; `None` for a value of which it says nothing.
    fn expected(&self, element: u64) -> Vec<Option<i32>> {
        let elem = self.config.elem_bytes(MemType::Out) as u64;
        let width = self.config.width(MemType::Out);
        let base = u64::from(spaces::address(MemType::Out, 0).0) + element * elem;
        let after = &self.stepper.case().after;
        let value = |at: u64| {
            after.iter().rev().find_map(|region| {
                let offset = at.checked_sub(u64::from(region.addr.0))? as usize;
                let bytes = region.bytes.get(offset..offset + width / 8)?;
                Some(number(bytes, width, 0))
            })
        };
        (base..base + elem).step_by(width / 8).map(value).collect()
    }
}

fn touched_json(touched: &Touched) -> Value {
    let list = |all: &[(MemType, vta_isa::resolve::TileSet)]| -> Vec<Value> {
        let one = |(mem, tiles): &(MemType, vta_isa::resolve::TileSet)| {
            let runs = tiles.runs().take(MAX_TILES).map(|run| [run.start, run.end]);
            json!({"pad": mem.name(), "runs": runs.collect::<Vec<_>>()})
        };
        all.iter().map(one).collect()
    };
    json!({"reads": list(&touched.reads), "writes": list(&touched.writes)})
}

#[cfg(test)]
mod tests;
