//! A run as a trace in Chrome's JSON format, which <https://ui.perfetto.dev> opens.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use vta_driver::LayerMark;
use vta_isa::{Insn, Module};

use super::windows::{Layers, Windows};
use crate::cycle::{BurstEvent, Client, CycleReport, Edge, Listener, StallEvent, TokenEvent, Unit};

/// Tracks, in the order in which they are shown; the first has the number 1.
const TRACKS: [&str; 11] = [
    "layers",
    "fetch",
    "load",
    "compute",
    "store",
    "bus read",
    "bus write",
    "fetch: why not",
    "load: why not",
    "compute: why not",
    "store: why not",
];

/// A track's number.
#[derive(Clone, Copy)]
struct Track(u32);

impl Track {
    const LAYERS: Self = Self(1);
    const FETCH: Self = Self(2);
    const BUS_READ: Self = Self(6);
    const BUS_WRITE: Self = Self(7);

    /// What a unit does.
    const fn of(unit: Unit) -> Self {
        Self(Self::FETCH.0 + unit as u32)
    }

    /// Why it does nothing.
    const fn stalls(unit: Unit) -> Self {
        Self(Self::BUS_WRITE.0 + 1 + unit as u32)
    }
}

/// A trace file of one or more runs, one behind the other.
///
/// One nanosecond of the trace is one cycle. Events are written as they arise; what is kept is one
/// open slice for each track and the tokens that are queued. A fault of the output is kept, too,
/// and given by [`TraceWriter::close`].
pub struct TraceWriter<W: Write> {
    out: W,
    fault: Option<io::Error>,
    /// Cycles of the runs before.
    offset: u64,
    flows: u64,
    line: String,
    first: bool,
}

/// The listener for one run of a [`TraceWriter`].
pub struct TraceRun<'t, W: Write> {
    trace: &'t mut TraceWriter<W>,
    insns: &'t [Insn],
    layers: Layers,
    windows: Windows,
    named: usize,
    running: [Option<(usize, u64)>; 3],
    /// Consecutive dispatches: first instruction, first cycle, how many.
    dispatched: Option<(usize, u64, u64)>,
    /// Instruction and cycle of the tokens in each queue.
    queued: [VecDeque<(usize, u64)>; 4],
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace; `title` names the process in the picture.
    pub fn new(out: W, title: &str) -> Self {
        let mut trace = Self {
            out,
            fault: None,
            offset: 0,
            flows: 0,
            line: String::new(),
            first: true,
        };
        trace.write("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"unit\":\"1 ns = 1 cycle\"},\n");
        trace.write("\"traceEvents\":[");
        let name = quoted(&format!("{title} (1 ns = 1 cycle)"));
        trace.event(&format!(
            "\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\
             \"args\":{{\"name\":{name}}}"
        ));
        for (tid, name) in (1..).zip(TRACKS) {
            trace.event(&format!(
                "\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_name\",\
                 \"args\":{{\"name\":\"{name}\"}}"
            ));
            trace.event(&format!(
                "\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_sort_index\",\
                 \"args\":{{\"sort_index\":{tid}}}"
            ));
        }
        trace
    }

    /// The listener for a run that begins where the last one ended.
    pub fn run<'t>(&'t mut self, insns: &'t [Insn], marks: &[LayerMark]) -> TraceRun<'t, W> {
        let layers = Layers::new(marks);
        TraceRun {
            windows: Windows::new(&layers, insns.len()),
            layers,
            trace: self,
            insns,
            named: 0,
            running: [None; 3],
            dispatched: None,
            queued: Default::default(),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The first fault of the output since the trace began.
    pub fn close(mut self) -> io::Result<W> {
        self.write("\n]}\n");
        match self.fault {
            Some(fault) => Err(fault),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn write(&mut self, text: &str) {
        if self.fault.is_none()
            && let Err(fault) = self.out.write_all(text.as_bytes())
        {
            self.fault = Some(fault);
        }
    }

    /// Writes an object with these members.
    fn event(&mut self, members: &str) {
        let start = if self.first { "\n{" } else { ",\n{" };
        self.first = false;
        self.write(start);
        self.write(members);
        self.write("}");
    }

    /// A slice `from..to` in cycles of the run; `args` are JSON members.
    fn slice(&mut self, track: Track, name: &str, [from, to]: [u64; 2], args: &str) {
        if from >= to {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line.push_str("\"ph\":\"X\",\"pid\":1,\"tid\":");
        // Writing to a string can't fail.
        let _ = write!(line, "{},\"ts\":", track.0);
        time(self.offset + from, &mut line);
        line.push_str(",\"dur\":");
        time(to - from, &mut line);
        let _ = write!(line, ",\"name\":{},\"args\":{{{args}}}", quoted(name));
        self.event(&line);
        self.line = line;
    }

    /// An arrow from the slice at one place to that at another.
    fn flow(&mut self, edge: Edge, from: (Track, u64), to: (Track, u64)) {
        self.flows += 1;
        for (ph, (track, cycle)) in [("s", from), ("f", to)] {
            let mut line = format!(
                "\"ph\":\"{ph}\",\"bp\":\"e\",\"pid\":1,\"tid\":{},\"cat\":\"token\",\
                 \"name\":\"{}\",\"id\":{},\"ts\":",
                track.0,
                edge.name(),
                self.flows
            );
            time(self.offset + cycle, &mut line);
            self.event(&line);
        }
    }
}

impl<W: Write> TraceRun<'_, W> {
    /// Ends the run.
    pub fn finish(mut self, report: &CycleReport) {
        for module in Module::ALL {
            self.end(module, report.cycles);
        }
        self.flush_dispatched();
        self.windows.finish(report.cycles);
        self.name_layers();
        self.trace.offset += report.cycles;
    }

    fn layer_of(&self, insn: usize) -> &str {
        &self.layers.names()[self.layers.of(insn)]
    }

    fn end(&mut self, module: Module, to: u64) {
        let Some((insn, from)) = self.running[module as usize].take() else {
            return;
        };
        let text = self.insns[insn].to_string();
        let name = text.split(' ').next().unwrap_or_default();
        let layer = quoted(self.layer_of(insn));
        let args = format!("\"insn\":{insn},\"text\":\"{text}\",\"layer\":{layer}");
        self.trace
            .slice(Track::of(module.into()), name, [from, to], &args);
    }

    fn flush_dispatched(&mut self) {
        if let Some((first, from, count)) = self.dispatched.take() {
            let last = first as u64 + count - 1;
            let args = format!("\"first_insn\":{first},\"last_insn\":{last}");
            let span = [from, from + count];
            self.trace.slice(Track::FETCH, "dispatch", span, &args);
        }
    }

    fn name_layers(&mut self) {
        while let Some(end) = self.windows.end_of(self.named) {
            let start = self.windows.start_of(self.named);
            let name = &self.layers.names()[self.named];
            self.trace.slice(Track::LAYERS, name, [start, end], "");
            self.named += 1;
        }
    }
}

impl<W: Write> Listener for TraceRun<'_, W> {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        match &mut self.dispatched {
            Some((_, from, count)) if *from + *count == cycle => *count += 1,
            _ => {
                self.flush_dispatched();
                self.dispatched = Some((insn, cycle, 1));
            }
        }
    }

    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        self.running[module as usize] = Some((insn, cycle));
    }

    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        self.end(module, cycle + 1);
        if self.windows.done(self.layers.of(insn), cycle) {
            self.name_layers();
        }
    }

    fn token_push(&mut self, event: &TokenEvent) {
        self.queued[event.edge as usize].push_back((event.insn, event.cycle));
    }

    fn token_pop(&mut self, event: &TokenEvent) {
        // Both ends are written here, so that a token that is left over makes no loose arrow.
        if let Some((insn, cycle)) = self.queued[event.edge as usize].pop_front() {
            let track = |insn: usize| Track::of(self.insns[insn].module().into());
            let (from, to) = (track(insn), track(event.insn));
            self.trace
                .flow(event.edge, (from, cycle), (to, event.cycle));
        }
    }

    fn burst(&mut self, event: &BurstEvent) {
        let (addr, beats, insn) = (event.addr, event.beats, event.insn);
        let args = format!("\"addr\":\"{addr:#x}\",\"beats\":{beats},\"insn\":{insn}");
        let span = [event.first_cycle, event.last_cycle + 1];
        let track = match event.client {
            Client::Out => Track::BUS_WRITE,
            Client::Fetch
            | Client::Uop
            | Client::Inp
            | Client::Wgt
            | Client::Acc
            | Client::Preload => Track::BUS_READ,
        };
        self.trace.slice(track, event.client.name(), span, &args);
        if event.client == Client::Fetch {
            self.flush_dispatched();
            self.trace.slice(Track::FETCH, "read chunk", span, &args);
        }
    }

    fn stall(&mut self, event: &StallEvent) {
        let args = match event.insn {
            Some(insn) => format!("\"insn\":{insn}"),
            None => String::new(),
        };
        let name = event.reason.to_string();
        let track = Track::stalls(event.unit);
        self.trace
            .slice(track, &name, [event.from, event.to], &args);
    }
}

/// A cycle as microseconds with three decimals: a nanosecond each.
fn time(cycle: u64, line: &mut String) {
    let _ = write!(line, "{}.{:03}", cycle / 1000, cycle % 1000);
}

/// A JSON string, quoted.
fn quoted(text: &str) -> serde_json::Value {
    text.into()
}

#[cfg(test)]
mod tests;
