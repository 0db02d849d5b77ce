// The stepper in a notebook: what anywidget loads (`python/pyvta/_stepper.py`). States come from Python, one by one.

import { h } from "./dom.ts";
import { Stepper } from "./stepper.ts";
import type { Overview, State } from "./types.ts";

/// The site's style, which `build.mjs` puts here.
declare const STYLE: string;

interface Model {
  get(name: "overview" | "text"): unknown;
  send(content: { cycle: number }): void;
  on(event: "msg:custom", call: (content: { cycle: number; state: State }) => void): void;
  off(event: "msg:custom", call: (content: { cycle: number; state: State }) => void): void;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const root = el.attachShadow({ mode: "open" });
  const waiting = new Map<number, (state: State) => void>();
  const told = ({ cycle, state }: { cycle: number; state: State }): void => {
    waiting.get(cycle)?.(state);
    waiting.delete(cycle);
  };
  model.on("msg:custom", told);
  const ask = (cycle: number): Promise<State> =>
    new Promise((resolve) => {
      waiting.set(cycle, resolve);
      model.send({ cycle });
    });
  const overview = model.get("overview") as Overview;
  const lines = (model.get("text") as string).split("\n").map((text) => h("li", {}, text));
  const faults = [overview.stopped, ...overview.faults, ...overview.hazards.map((hazard) => hazard.words)];
  const listing = h("ol", { class: "listing", tabindex: 0, "aria-label": "Program" }, ...lines);
  const panel = h("section", { class: "stepper" }, ...faults.map((words) => words && h("p", { class: "wrong" }, words)), listing);
  root.append(h("style", {}, STYLE), panel);
  const stepper = new Stepper(panel, ask, (marks) => {
    for (const line of lines) line.className = "";
    for (const { line, kind } of marks) lines[line - 1]!.className = kind;
    const first = lines.find((line) => line.className);
    if (first) listing.scrollTop = first.offsetTop - listing.offsetTop;
  });
  void stepper.show(overview);
  return () => model.off("msg:custom", told);
}

export default { render };
