// The run over time: a lane for each unit and the bus, as in the report, with the cycle that is shown.

import { s } from "./dom.ts";
import { colour } from "./machine.ts";
import type { Overview } from "./types.ts";

const [WIDTH, LANE, LEFT] = [1000, 22, 78];
/// Instructions that are drawn; of longer runs every other one and so on.
const MOST = 2000;

export class Timeline {
  readonly svg: SVGElement;
  private readonly cursor: SVGElement;
  private readonly cycles: number;

  constructor(overview: Overview, go: (cycle: number) => void) {
    this.cycles = overview.last + 1;
    const x = (cycle: number) => LEFT + ((WIDTH - LEFT) * cycle) / this.cycles;
    const rows = ["bus", ...overview.modules];
    const height = rows.length * LANE + 20;
    const bar = (row: number, from: number, to: number, kind: string, title: string): SVGElement =>
      s("rect", { x: x(from).toFixed(2), width: Math.max(x(to) - x(from), 0.6).toFixed(2), y: row * LANE + 3, height: LANE - 6, class: kind }, s("title", {}, title));
    const shapes: SVGElement[] = [];
    for (const burst of overview.bursts) shapes.push(bar(0, burst.from, burst.to, burst.client === "fetch" ? "k10" : "k7", `${burst.client}: cycles ${burst.from} to ${burst.to - 1}`));
    const step = Math.ceil(overview.insns.length / MOST) || 1;
    overview.insns.forEach((insn, i) => {
      if (insn.start === null || i % step) return;
      const row = 1 + overview.modules.indexOf(insn.module);
      const end = insn.done === null ? insn.start + 1 : insn.done + 1;
      shapes.push(bar(row, insn.start, end, `${colour(insn.text)} cell`, `line ${insn.line}, ${insn.text}: cycles ${insn.start} to ${end - 1}`));
    });
    const names = rows.map((name, row) => s("text", { x: 0, y: row * LANE + 16 }, name));
    const lanes = rows.map((_, row) => s("rect", { class: "lane", x: LEFT, y: row * LANE + 2, width: WIDTH - LEFT, height: LANE - 4 }));
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const cycle = Math.round(share * overview.last);
      return s("text", { x: x(cycle), y: height - 4, "text-anchor": share === 1 ? "end" : "start" }, String(cycle));
    });
    this.cursor = s("rect", { class: "cursor", y: 0, height: rows.length * LANE, width: 2 });
    const label = `Timeline of ${overview.insns.length} instructions over ${this.cycles} cycles`;
    this.svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label, class: "timeline" }, ...lanes, ...shapes, ...names, ...ticks, this.cursor);
    this.svg.addEventListener("click", (event) => {
      const box = this.svg.getBoundingClientRect();
      const at = (((event as MouseEvent).clientX - box.left) / box.width) * WIDTH;
      go(Math.round(((at - LEFT) / (WIDTH - LEFT)) * this.cycles));
    });
  }

  /// Shows where a cycle is.
  at(cycle: number): void {
    const x = LEFT + ((WIDTH - LEFT) * Math.max(cycle, 0)) / this.cycles;
    this.cursor.setAttribute("x", x.toFixed(2));
  }
}
