// A run that is looked at cycle by cycle: steps, timeline and machine, on the Program page and in notebooks.

import { h } from "./dom.ts";
import { type Chosen, machine } from "./machine.ts";
import { Timeline } from "./timeline.ts";
import type { Overview, State } from "./types.ts";

/// A line of the program at which a module is, and how.
export interface Mark {
  line: number;
  kind: "line-runs" | "line-waits";
}

export class Stepper {
  private overview: Overview | undefined;
  private timeline: Timeline | undefined;
  private cycle = -1;
  private chosen: Chosen = null;
  private readonly shown = h("div", {});
  private readonly line = h("div", { class: "line", tabindex: 0, role: "region", "aria-label": "Timeline" });
  private readonly where = h("output", { class: "where" });
  private readonly slider = h("input", { type: "range", min: -1, max: 0, value: -1, "aria-label": "Cycle" });

  /// `ask` gives the state behind a cycle, or before the first; `mark` is told the lines at which modules are.
  constructor(
    root: HTMLElement,
    private readonly ask: (cycle: number) => Promise<State>,
    private readonly mark: (lines: Mark[]) => void,
  ) {
    const button = (label: string, title: string, act: () => void) => h("button", { type: "button", title, onclick: act }, label);
    root.append(
      h(
        "div",
        { class: "bar steps" },
        button("Start", "Before the first cycle", () => void this.go(-1)),
        button("− insn", "Back to where an instruction was done", () => void this.insn(-1)),
        button("− 1", "One cycle back", () => void this.go(this.cycle - 1)),
        button("+ 1", "One cycle on", () => void this.go(this.cycle + 1)),
        button("+ insn", "On to where an instruction is done", () => void this.insn(1)),
        button("End", "To the end", () => void this.go(Infinity)),
        this.where,
      ),
      this.slider,
      this.line,
      this.shown,
    );
    this.slider.addEventListener("input", () => void this.go(Number(this.slider.value)));
  }

  /// Shows another run, at the cycle of the last one as far as it has that.
  show(overview: Overview): Promise<void> {
    this.overview = overview;
    this.timeline = new Timeline(overview, (cycle) => void this.go(cycle));
    this.line.replaceChildren(this.timeline.svg);
    this.slider.max = String(overview.last);
    return this.go(this.cycle);
  }

  private insn(way: 1 | -1): Promise<void> {
    const done = (this.overview?.insns ?? []).flatMap((insn) => (insn.done === null ? [] : [insn.done])).sort((a, b) => a - b);
    const next = way > 0 ? done.find((at) => at > this.cycle) : done.reverse().find((at) => at < this.cycle);
    return this.go(next ?? (way > 0 ? Infinity : -1));
  }

  private async go(cycle: number): Promise<void> {
    if (!this.overview) return;
    this.cycle = Math.max(-1, Math.min(cycle, this.overview.last));
    const wanted = this.cycle;
    const state = await this.ask(wanted).catch(() => undefined);
    if (!state || wanted !== this.cycle) return;
    this.draw(this.overview, state);
  }

  private draw(overview: Overview, state: State): void {
    this.slider.value = String(this.cycle);
    this.where.textContent = this.cycle < 0 ? "before the first cycle" : `behind cycle ${this.cycle} of ${overview.last}`;
    this.slider.setAttribute("aria-valuetext", this.where.textContent);
    this.timeline?.at(this.cycle);
    const root = this.shown.getRootNode() as Document | ShadowRoot;
    const focused = root.activeElement?.getAttribute("aria-label");
    const choose = (chosen: Chosen) => {
      this.chosen = chosen;
      this.draw(overview, state);
    };
    this.shown.replaceChildren(machine(overview, state, this.chosen, choose));
    if (focused?.includes(" tile ")) this.shown.querySelector<HTMLElement>(`[aria-pressed="true"]`)?.focus();
    const marks = state.modules.flatMap((module): Mark[] => {
      const insn = module.queue[0] === undefined ? undefined : overview.insns[module.queue[0]];
      return insn ? [{ line: insn.line, kind: module.runs ? "line-runs" : "line-waits" }] : [];
    });
    this.mark(marks);
  }
}
