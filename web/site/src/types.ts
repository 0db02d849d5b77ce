// What the worker gives, as `app/src/run/steps.rs` and `web/src` write it.

export interface Insn {
  text: string;
  line: number;
  module: string;
  dispatched: number | null;
  start: number | null;
  done: number | null;
}

export interface HazardFound {
  words: string;
  lines: [number, number];
}

export interface Overview {
  insns: Insn[];
  modules: string[];
  units: string[];
  edges: string[];
  batch: number;
  block: number;
  depths: Record<string, number>;
  cycles: number | null;
  last: number;
  stopped: string | null;
  stuck_lines: number[];
  faults: string[];
  hazards: HazardFound[];
  bursts: { client: string; write: boolean; from: number; to: number }[];
}

export interface Touches {
  reads: { pad: string; runs: [number, number][] }[];
  writes: { pad: string; runs: [number, number][] }[];
}

export interface OutElement {
  element: number;
  values: number[];
  expected: (number | null)[];
}

export interface Pad {
  count: number;
  tiles: { tile: number; writer: number; values: number[] }[];
}

export interface State {
  cycle: number | null;
  tokens: [number, number, number, number];
  modules: { queue: number[]; runs: boolean; touches: Touches | null }[];
  stalls: (string | null)[];
  bus: [string | null, string | null];
  done: number[];
  pads: Record<string, Pad>;
  out: OutElement[];
  fault: string | null;
}

export interface Fault {
  line: number;
  words: string;
}

export interface Ran {
  overview: Overview;
  /// Behind the last cycle.
  end: State;
}

export interface Ranked {
  name: string;
  truth: string | null;
  ranking: { class: number; label: string; share: number }[];
  output: number[];
  int8: number[] | null;
}

export interface NetworkInfo {
  name: string;
  inputs: { name: string; shape: number[] }[];
  outputs: { name: string; shape: number[] }[];
  labels: string[];
  macs: number;
  samples: { name: string; chw: [number, number, number]; rgb: number[] | null; label: string | null }[];
}

export interface Measured {
  point: Record<string, string>;
  figures?: Record<string, number>;
  error?: string;
}

export interface Checked {
  faults: string[];
  notes: string[];
  float: boolean;
  refused: boolean;
  nodes: { name: string; op: string; place: string; why: string }[] | null;
}
