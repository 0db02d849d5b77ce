// The machine at a cycle: modules with their queues, tokens between them, scratchpads as tiles, the bus, the outputs.

import { grouped, h } from "./dom.ts";
import type { Overview, State, Touches } from "./types.ts";

/// The report's colours (`app/src/report/html/svg.rs`): what an instruction is drawn in, on every page.
export function colour(text: string): string {
  if (text.startsWith("gemm") || text.startsWith("depthwise")) return "k0";
  if (text.startsWith("alu")) return "k3";
  if (text.startsWith("store")) return "k9";
  if (/^load\.(uop|acc)/.test(text)) return "k5";
  return text.startsWith("load") ? "k8" : "k7";
}

const LONG: Record<string, string> = { inp: "inputs", wgt: "weights", uop: "micro-ops", acc: "accumulators" };

function modules(overview: Overview, state: State): HTMLElement {
  const box = (index: number): HTMLElement => {
    const module = state.modules[index]!;
    const name = overview.modules[index]!;
    const head = module.queue[0];
    const insn = head === undefined ? undefined : overview.insns[head];
    const stall = state.stalls[index + 1];
    const doing = module.runs && insn ? insn.text : insn && stall ? `waits: ${stall}` : stall ?? (insn ? "" : "idle");
    const waiting = module.queue.length - (module.runs ? 1 : 0);
    return h(
      "div",
      { class: `module${module.runs ? " runs" : ""}` },
      h("h3", {}, h("i", { class: insn && module.runs ? colour(insn.text) : "idle" }), name),
      h("p", { class: "doing" }, doing),
      h("p", { class: "note" }, `${waiting} waiting`),
    );
  };
  const edge = (index: number): HTMLElement => {
    const count = state.tokens[index]!;
    const name = overview.edges[index]!;
    const dots = Array.from({ length: Math.min(count, 8) }, () => h("i", { class: "token" }));
    return h("p", { class: "edge" }, h("span", { class: "name" }, name.replace("->", " → ")), h("span", { class: "dots", "aria-hidden": "true" }, ...dots), h("b", {}, `${count} token${count === 1 ? "" : "s"}`));
  };
  return h(
    "div",
    { class: "modules" },
    box(0),
    h("div", { class: "edges" }, edge(0), edge(1)),
    box(1),
    h("div", { class: "edges" }, edge(2), edge(3)),
    box(2),
  );
}

function hit(touches: (Touches | null)[], kind: "reads" | "writes", pad: string, tile: number): boolean {
  const inside = ([from, to]: [number, number]) => tile >= from && tile < to;
  return touches.some((t) => t?.[kind].some((one) => one.pad === pad && one.runs.some(inside)));
}

/// Tiles that a running instruction writes, beside those that were written.
function arriving(touches: (Touches | null)[], pad: string, most: number): number[] {
  const tiles: number[] = [];
  for (const all of touches)
    for (const one of all?.writes ?? [])
      if (one.pad === pad)
        for (const [from, to] of one.runs)
          for (let tile = from; tile < to && tiles.length < most; tile++) tiles.push(tile);
  return tiles;
}

function pads(overview: Overview, state: State, chosen: Chosen, choose: (chosen: Chosen) => void): HTMLElement {
  const touches = state.modules.map((module) => module.touches);
  const one = (name: string): HTMLElement => {
    const pad = state.pads[name]!;
    const known = new Map(pad.tiles.map((tile) => [tile.tile, tile]));
    const shown = [...new Set([...known.keys(), ...arriving(touches, name, 64)])].sort((a, b) => a - b);
    const cell = (tile: number): HTMLElement => {
      const writer = known.get(tile)?.writer;
      const insn = writer === undefined ? undefined : overview.insns[writer];
      const classes = ["tile-cell", insn ? colour(insn.text) : "fresh"];
      const [reads, writes] = [hit(touches, "reads", name, tile), hit(touches, "writes", name, tile)];
      if (reads) classes.push("reads");
      if (writes) classes.push("writes");
      const now = [reads && "read now", writes && "written now"].filter(Boolean).join(", ");
      const label = `${LONG[name]} tile ${tile}${insn ? `, written by line ${insn.line}` : ", not written yet"}${now && `, ${now}`}`;
      const pressed = chosen?.pad === name && chosen.tile === tile;
      return h("button", { type: "button", class: classes.join(" "), "aria-label": label, "aria-pressed": String(pressed), title: label, onclick: () => choose({ pad: name, tile }) }, String(tile));
    };
    const all = pad.count > pad.tiles.length ? `, ${grouped(pad.count)} written` : "";
    return h(
      "div",
      { class: "pad" },
      h("h3", {}, `${LONG[name]} `, h("span", { class: "note" }, `${name}, ${grouped(overview.depths[name] ?? 0)} entries${all}`)),
      shown.length ? h("div", { class: "cells" }, ...shown.map(cell)) : h("p", { class: "note" }, "nothing written yet"),
    );
  };
  return h("div", { class: "pads" }, ...["inp", "wgt", "uop", "acc"].map(one));
}

export type Chosen = { pad: string; tile: number } | null;

/// The values of a tile, rows of a block.
function values(overview: Overview, state: State, chosen: Chosen): HTMLElement | null {
  if (!chosen) return null;
  const found = state.pads[chosen.pad]?.tiles.find((tile) => tile.tile === chosen.tile);
  const title = `${LONG[chosen.pad]} tile ${chosen.tile}`;
  if (!found) return h("p", { class: "note values" }, `${title} isn't written yet: on hardware it holds what was left there.`);
  if (chosen.pad === "uop") {
    const [dst, src, wgt] = found.values;
    return h("p", { class: "values" }, `${title}: dst=${dst} src=${src} wgt=${wgt}`);
  }
  const rows: HTMLElement[] = [];
  for (let at = 0; at < found.values.length; at += overview.block) {
    const row = found.values.slice(at, at + overview.block);
    rows.push(h("tr", {}, ...row.map((value) => h("td", { class: value < 0 ? "minus" : value > 0 ? "plus" : "" }, String(value)))));
  }
  return h("div", { class: "values scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", {}, h("caption", {}, title), h("tbody", {}, ...rows)));
}

function outputs(state: State): HTMLElement {
  const row = ({ element, values, expected }: State["out"][number]): HTMLElement => {
    const wrong = expected.some((value, i) => value !== null && value !== values[i]);
    const said = expected.every((value) => value === null);
    const verdict = said ? "" : wrong ? `not yet: ${expected.map((value) => value ?? "?").join(" ")}` : "as expected";
    return h("tr", {}, h("th", { scope: "row" }, `out ${element}`), h("td", { class: "numbers" }, values.join(" ")), h("td", {}, verdict));
  };
  return h(
    "div",
    { class: "outs-scroll", tabindex: 0, role: "region", "aria-label": "Outputs in DRAM" },
    h("table", { class: "outs" }, h("caption", {}, "Outputs in DRAM"), h("tbody", {}, ...state.out.map(row))),
  );
}

/// Everything of a cycle.
export function machine(overview: Overview, state: State, chosen: Chosen, choose: (chosen: Chosen) => void): HTMLElement {
  const fetch = state.stalls[0];
  const [read, write] = state.bus;
  const bus = [read && `reads for ${read}`, write && "writes outputs"].filter(Boolean).join(", ");
  return h(
    "div",
    { class: "machine" },
    h("p", { class: "note bus" }, `Bus: ${bus || "quiet"}. Fetch: ${fetch ?? "at work"}.`),
    modules(overview, state),
    pads(overview, state, chosen, choose),
    values(overview, state, chosen),
    outputs(state),
    state.fault && h("p", { class: "wrong" }, state.fault),
  );
}
