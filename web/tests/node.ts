// The worker's methods without a worker, for tests in node.

import { readFileSync } from "node:fs";
import * as vta from "#vta";
import type { Engine } from "../site/src/lessons.ts";
import type { Overview, State } from "../site/src/types.ts";

function path(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} isn't set: run scripts/web test`);
  return value;
}

/// The command line, which is the counterpart.
export const VTA = path("VTA_BIN");
/// Random programs, each with its machine.
export const PROGRAMS = path("VTA_PROGRAMS_FOLDER");
export const ROOT = path("VTA_ROOT");

Object.assign(globalThis, { vtaProgress: () => {}, vtaNote: () => {} });
const { memory } = vta.initSync({ module: readFileSync(path("VTA_WASM")) });
/// It never shrinks.
export const memoryBytes = () => memory.buffer.byteLength;
export { vta };

export interface Stepped {
  overview: Overview;
  state(cycle: number): State;
}

export function step(text: string, machine: object): Stepped {
  const program = new vta.Program(text, JSON.stringify(machine));
  return { overview: JSON.parse(program.overview()), state: (cycle) => JSON.parse(program.state(cycle)) };
}

export const engine: Engine = {
  fault: async (text) => JSON.parse(vta.fault(text) ?? "null"),
  program: async (text) => {
    const { overview, state } = step(text, { device: "cycle" });
    return { overview, end: state(overview.last) };
  },
};
