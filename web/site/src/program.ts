// The Program page: editor, stepper, lessons.

import { Cancelled, type Client } from "./client.ts";
import { grouped, h, prose, settled } from "./dom.ts";
import { Editor, MOST_TEXT, type Remark } from "./editor.ts";
import { check, type Engine, LESSONS, wrong } from "./lessons.ts";
import { pack } from "./link.ts";
import { Stepper } from "./stepper.ts";
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
  private readonly stepper: Stepper;
  private asked = 0;
  private lesson = 0;
  private readonly editor: Editor;
  private readonly ends = h("div", { class: "ends", "aria-live": "polite" });
  private readonly text = h("div", { class: "lesson-text" });
  private readonly verdict = h("p", { class: "verdict", role: "status" });
  private readonly choice = h("select", { "aria-label": "Lesson" });
  private readonly kept = kept();

  constructor(private readonly client: Client, root: HTMLElement, text: string | undefined) {
    const box = h("div", { class: "editor" });
    const machine = h("section", { class: "run", "aria-label": "The machine" }, h("h2", {}, "The machine"));
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
        machine,
      ),
    );
    this.stepper = new Stepper(machine, (cycle) => this.client.call<State>("state", cycle), (lines) => this.editor.mark(lines));
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
    void this.stepper.show(overview);
  }

  private say(words: [string, string][]): void {
    this.ends.replaceChildren(...words.slice(0, 12).map(([kind, text]) => h("p", { class: kind }, text)));
  }
}

export function programPage(client: Client, root: HTMLElement, text: string | undefined): void {
  new Page(client, root, text);
}
