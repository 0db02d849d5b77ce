// The Program page: editor, stepper, lessons.

import { Cancelled, type Client } from "./client.ts";
import { grouped, h, prose, settled } from "./dom.ts";
import { Editor, MOST_TEXT, type Remark } from "./editor.ts";
import { check, type Engine, LESSONS, wrong } from "./lessons.ts";
import { pack } from "./link.ts";
import { type Chosen, machine } from "./machine.ts";
import { Timeline } from "./timeline.ts";
import type { Fault, Overview, Ran, State } from "./types.ts";

const MACHINE = JSON.stringify({ device: "cycle" });
/// Where answers are kept, and which lessons are done.
const KEPT = "vta.lessons";

interface Kept {
  done: number[];
  texts: Record<number, string>;
}

function kept(): Kept {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "{}") as Partial<Kept>;
    return { done: Array.isArray(found.done) ? found.done : [], texts: found.texts ?? {} };
  } catch {
    return { done: [], texts: {} };
  }
}

function keep(value: Kept): void {
  try {
    localStorage.setItem(KEPT, JSON.stringify(value));
  } catch {
    // A tab without storage forgets.
  }
}

export function engine(client: Client): Engine {
  return {
    fault: (text) => client.call<Fault | null>("fault", text),
    program: (text) => client.call<Ran>("program", text, MACHINE),
  };
}

/// What a link may hold.
export function programOf(link: unknown): string {
  const text = (link as { asm?: unknown } | null)?.asm;
  if (typeof text !== "string") throw new Error("the link holds no program");
  if (text.length > MOST_TEXT) throw new Error(`the link's program has more than ${MOST_TEXT} characters`);
  return text;
}

class Page {
  private overview: Overview | undefined;
  private timeline: Timeline | undefined;
  private cycle = -1;
  private chosen: Chosen = null;
  private asked = 0;
  private lesson = 0;
  private readonly editor: Editor;
  private readonly ends = h("div", { class: "ends", "aria-live": "polite" });
  private readonly shown = h("div", {});
  private readonly line = h("div", { class: "line", tabindex: 0, role: "region", "aria-label": "Timeline" });
  private readonly where = h("output", { class: "where" });
  private readonly slider = h("input", { type: "range", min: -1, max: 0, value: -1, "aria-label": "Cycle" });
  private readonly text = h("div", { class: "lesson-text" });
  private readonly verdict = h("p", { class: "verdict", role: "status" });
  private readonly choice = h("select", { "aria-label": "Lesson" });
  private readonly kept = kept();

  constructor(private readonly client: Client, root: HTMLElement, text: string | undefined) {
    const box = h("div", { class: "editor" });
    const run = settled(250, () => void this.run());
    const button = (label: string, title: string, act: () => void) => h("button", { type: "button", title, onclick: act }, label);
    root.append(
      h("h1", {}, "Program"),
      h(
        "div",
        { class: "workbench" },
        h(
          "section",
          { class: "lesson", "aria-label": "Lesson" },
          h("div", { class: "bar" }, this.choice, button("Check", "Check the task", () => void this.check()), button("Start again", "The lesson's own program", () => this.restart())),
          this.text,
          this.verdict,
        ),
        h("section", { class: "code", "aria-label": "Program text" }, h("div", { class: "bar" }, h("h2", {}, "Program"), button("Copy link", "A link to this program", () => void this.link())), box, this.ends),
        h(
          "section",
          { class: "run", "aria-label": "The machine" },
          h("h2", {}, "The machine"),
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
        ),
      ),
    );
    this.slider.addEventListener("input", () => void this.go(Number(this.slider.value)));
    LESSONS.forEach((lesson, i) => this.choice.append(h("option", { value: i }, `${i + 1}. ${lesson.title}`)));
    if (text !== undefined) this.choice.append(h("option", { value: -1 }, "The program of the link"));
    this.choice.addEventListener("change", () => this.take(Number(this.choice.value)));
    this.editor = new Editor(box, "", (now) => {
      if (this.lesson >= 0) {
        this.kept.texts[this.lesson] = now;
        keep(this.kept);
      }
      run();
    });
    this.linked = text;
    this.take(text === undefined ? 0 : -1);
  }

  private readonly linked: string | undefined;

  private take(index: number): void {
    this.lesson = index;
    this.choice.value = String(index);
    this.verdict.textContent = "";
    this.verdict.className = "verdict";
    const lesson = LESSONS[index];
    this.text.replaceChildren();
    if (lesson) {
      const done = this.kept.done.includes(index);
      this.text.append(prose(lesson.text), h("p", { class: "task" }, h("b", {}, done ? "Task, done: " : "Task: "), lesson.task));
    } else {
      this.text.append(prose("This program came with the link."));
    }
    this.editor.text = (lesson ? this.kept.texts[index] ?? lesson.start : this.linked) ?? "";
    void this.run();
  }

  private restart(): void {
    delete this.kept.texts[this.lesson];
    keep(this.kept);
    this.take(this.lesson);
  }

  private async check(): Promise<void> {
    const lesson = LESSONS[this.lesson];
    if (!lesson) {
      this.verdict.textContent = "The program of a link has no task.";
      return;
    }
    const found = await check(lesson, this.editor.text, engine(this.client)).catch((error: Error) => ({ right: false, words: error.message }));
    this.verdict.className = `verdict ${found.right ? "right" : "wrong"}`;
    this.verdict.textContent = found.words;
    if (found.right && !this.kept.done.includes(this.lesson)) {
      this.kept.done.push(this.lesson);
      keep(this.kept);
    }
    // The check ran other values.
    await this.run();
  }

  private async link(): Promise<void> {
    history.replaceState(null, "", `#/program/${await pack({ asm: this.editor.text })}`);
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    this.verdict.textContent = copied ? "The link is copied." : "The link is in the address bar.";
  }

  private async run(): Promise<void> {
    const turn = ++this.asked;
    const text = this.editor.text;
    try {
      const fault = await this.client.call<Fault | null>("fault", text);
      if (turn !== this.asked) return;
      if (fault) {
        this.editor.remark([{ ...fault, severity: "error" }]);
        this.say([["wrong", fault.words]]);
        return;
      }
      const { overview, end } = await this.client.call<Ran>("program", text, MACHINE);
      if (turn !== this.asked) return;
      this.ran(overview, end);
    } catch (error) {
      if (error instanceof Cancelled || turn !== this.asked) return;
      this.editor.remark([]);
      this.say([["wrong", (error as Error).message]]);
    }
  }

  private ran(overview: Overview, end: State): void {
    this.overview = overview;
    const remarks: Remark[] = [];
    const words: [string, string][] = [];
    // The static check finds a deadlock, too, but doesn't know its cycle.
    for (const fault of overview.faults) if (!overview.stopped || !fault.startsWith("deadlock")) words.push(["wrong", fault]);
    if (overview.stopped) {
      words.push(["wrong", overview.stopped]);
      for (const line of overview.stuck_lines) remarks.push({ line, words: overview.stopped, severity: "error" });
    }
    for (const hazard of overview.hazards) {
      words.push(["wrong", hazard.words]);
      for (const line of new Set(hazard.lines)) remarks.push({ line, words: hazard.words, severity: "warning" });
    }
    if (end.fault) words.push(["wrong", end.fault]);
    const value = wrong(end);
    if (value) words.push(["wrong", value]);
    if (!words.length) words.push(["right", "No fault, no hazard."]);
    if (overview.cycles !== null) words.unshift(["", `${overview.insns.length} instructions, ${grouped(overview.cycles)} cycles.`]);
    this.editor.remark(remarks);
    this.say(words);
    this.timeline = new Timeline(overview, (cycle) => void this.go(cycle));
    this.line.replaceChildren(this.timeline.svg);
    this.slider.max = String(overview.last);
    void this.go(Math.min(this.cycle, overview.last));
  }

  private say(words: [string, string][]): void {
    this.ends.replaceChildren(...words.slice(0, 12).map(([kind, text]) => h("p", { class: kind }, text)));
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
    const state = await this.client.call<State>("state", wanted).catch(() => undefined);
    if (!state || wanted !== this.cycle) return;
    this.draw(state);
  }

  private draw(state: State): void {
    const overview = this.overview!;
    this.slider.value = String(this.cycle);
    this.where.textContent = this.cycle < 0 ? "before the first cycle" : `behind cycle ${this.cycle} of ${overview.last}`;
    this.slider.setAttribute("aria-valuetext", this.where.textContent);
    this.timeline?.at(this.cycle);
    const focused = document.activeElement?.getAttribute("aria-label");
    const choose = (chosen: Chosen) => {
      this.chosen = chosen;
      this.draw(state);
    };
    this.shown.replaceChildren(machine(overview, state, this.chosen, choose));
    if (focused?.includes(" tile ")) this.shown.querySelector<HTMLElement>(`[aria-pressed="true"]`)?.focus();
    const lines = state.modules.flatMap((module) => {
      const insn = module.queue[0] === undefined ? undefined : overview.insns[module.queue[0]];
      return insn ? [{ line: insn.line, kind: module.runs ? "line-runs" : "line-waits" }] : [];
    });
    this.editor.mark(lines);
  }
}

export function programPage(client: Client, root: HTMLElement, text: string | undefined): void {
  new Page(client, root, text);
}
