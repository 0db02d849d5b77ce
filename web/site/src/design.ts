// The Design page: a machine by sliders, what a network takes on it, and machines that a search chooses.

import { Cancelled, type Client } from "./client.ts";
import { grouped, h, s } from "./dom.ts";
import { pack } from "./link.ts";
import type { Measured } from "./types.ts";

interface Axis {
  key: string;
  name: string;
  values: number[];
  start: number;
  words: (value: number) => string;
}

const kib = (log: number): string => `${2 ** (log - 10)} KiB`;
const AXES: Axis[] = [
  { key: "LOG_BLOCK", name: "Matrix unit", values: [3, 4, 5, 6], start: 4, words: (v) => `${2 ** v} × ${2 ** v}` },
  { key: "LOG_BATCH", name: "Images at once", values: [0, 1, 2], start: 0, words: (v) => String(2 ** v) },
  { key: "LOG_INP_BUFF_SIZE", name: "Input buffer", values: [13, 14, 15, 16, 17], start: 15, words: kib },
  { key: "LOG_WGT_BUFF_SIZE", name: "Weight buffer", values: [15, 16, 17, 18, 19], start: 18, words: kib },
  { key: "LOG_ACC_BUFF_SIZE", name: "Accumulators", values: [15, 16, 17, 18, 19], start: 17, words: kib },
  { key: "bus_bytes", name: "Bus", values: [8, 16, 32, 64], start: 8, words: (v) => `${v * 8} bit` },
  { key: "memory_latency_cycles", name: "Memory latency", values: [4, 16, 64, 256], start: 16, words: (v) => `${v} cycles` },
];
const EXTENSIONS = "EXTENSIONS=none,CLIP+MOV+OVERWRITE,CLIP+DEPTHWISE+MOV+OVERWRITE+PAD+PRELOAD+REQUANT";
const SETS = ["those of the board", "clamps in one step, copies, overwriting products", "and rounding stores, preloads"];
/// Networks of the zoo have seeded weights, on which no cycle depends.
const NETWORKS = ["demo", "zoo:resnet18", "zoo:mobilenet-v1"];
const MACHINE = JSON.stringify({ device: "cycle" });
const FRONT = 200;
/// Workers of a search, each with memory of its own.
const MOST_WORKERS = 4;
const FIGURES: [string, string, (value: number) => string][] = [
  ["cycles", "Cycles", grouped],
  ["pass_ms", "Time", (v) => `${v.toFixed(2)} ms`],
  ["utilization", "Matrix unit", (v) => `${(v * 100).toFixed(1)} %`],
  ["dram_bytes", "DRAM", (v) => `${(v / 1024).toFixed(0)} KiB`],
  ["energy_uj", "Energy", (v) => `${v.toFixed(0)} µJ`],
  ["area_mm2", "Area", (v) => `${v.toFixed(2)} mm²`],
];

/// Slider positions of a link, as far as they are ones.
function positions(link: unknown): number[] {
  const given = (link as { design?: unknown } | null)?.design;
  const list = Array.isArray(given) ? given : [];
  return [...AXES.map((axis) => axis.values.length), SETS.length, NETWORKS.length].map((length, i) => {
    const start = AXES[i] ? AXES[i].values.indexOf(AXES[i].start) : 0;
    const at = Number(list[i]);
    return Number.isInteger(at) && at >= 0 && at < length ? at : start;
  });
}

/// Points of a search, cycles of an image against area; the front is drawn through those that no other beats.
function picture(found: Measured[], here: Measured | undefined): SVGElement {
  const at = (m: Measured) => m.figures && { x: m.figures["area_mm2"]!, y: m.figures["cycles"]! / Math.max(m.figures["images"]!, 1), label: Object.values(m.point).join(" ") };
  const points = found.flatMap((m) => at(m) ?? []);
  const own = here && at(here);
  const all = own ? [...points, own] : points;
  const [width, height, pad] = [640, 300, 46];
  const range = (values: number[]): [number, number] => [Math.log(Math.min(...values) * 0.95), Math.log(Math.max(...values) * 1.05)];
  const [x0, x1] = range(all.length ? all.map((p) => p.x) : [1, 10]);
  const [y0, y1] = range(all.length ? all.map((p) => p.y) : [1, 10]);
  const x = (value: number) => pad + ((width - pad - 8) * (Math.log(value) - x0)) / (x1 - x0);
  const y = (value: number) => 8 + ((height - pad - 8) * (y1 - Math.log(value))) / (y1 - y0);
  const best: typeof points = [];
  for (const point of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) if (!best.length || point.y < best[best.length - 1]!.y) best.push(point);
  const path = best.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
  const ticks = [x0, (x0 + x1) / 2, x1].map((v, i) => s("text", { x: x(Math.exp(v)), y: height - 24, "text-anchor": ["start", "middle", "end"][i] }, Math.exp(v).toPrecision(2)));
  const up = [y0, (y0 + y1) / 2, y1].map((v) => s("text", { x: 2, y: y(Math.exp(v)) + 4 }, `${Math.round(Math.exp(v) / 1000)}k`));
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Cycles of an image against area: ${points.length} machines, ${best.length} of which no other one beats` },
    s("path", { class: "roof", d: path }),
    ...points.map((p) => s("circle", { class: `dot ${best.includes(p) ? "k0" : "k7"}`, r: best.includes(p) ? 5 : 3, cx: x(p.x).toFixed(1), cy: y(p.y).toFixed(1) }, s("title", {}, `${p.label}: ${grouped(p.y)} cycles an image, ${p.x.toFixed(2)} mm²`))),
    own && s("circle", { class: "dot k5", r: 7, cx: x(own.x).toFixed(1), cy: y(own.y).toFixed(1) }, s("title", {}, "the machine of the sliders")),
    ...ticks,
    ...up,
    s("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, "area in mm²; up: cycles an image"),
  );
}

/// Fills the page; what ends its own workers.
export function designPage(client: Client, root: HTMLElement, link: unknown): () => void {
  const chosen = positions(link);
  const figures = h("div", { class: "tiles", "aria-live": "polite" });
  const drawing = h("div", { class: "front" });
  const progress = h("progress", { max: FRONT, value: 0, "aria-label": "Machines measured" });
  const found: Measured[] = [];
  let here: Measured | undefined;
  let busy = false;
  let dirty = false;

  const draw = () => drawing.replaceChildren(picture(found, here));
  const show = (measured: Measured): void => {
    here = measured;
    const tile = ([key, name, words]: (typeof FIGURES)[number]) => h("div", { class: "tile" }, h("span", {}, name), h("strong", {}, words(measured.figures![key]!)));
    figures.replaceChildren(...(measured.figures ? FIGURES.map(tile) : [h("p", { class: "wrong" }, measured.error ?? "no result")]));
    draw();
  };
  // The last axis of a grid is the fastest.
  const point = () => [...AXES.map((axis) => axis.values.length), SETS.length].reduce((at, length, i) => at * length + chosen[i]!, 0);
  const axes = [...AXES.map((axis) => `${axis.key}=${axis.values.join(",")}`), EXTENSIONS].join("\n");
  const network = () => NETWORKS[chosen[AXES.length + 1]!]!;
  const measure = async (): Promise<void> => {
    dirty = true;
    if (busy) return;
    busy = true;
    while (dirty) {
      dirty = false;
      try {
        show(await client.call<Measured>("measure", point()));
      } catch (error) {
        if (!(error instanceof Cancelled)) figures.replaceChildren(h("p", { class: "wrong" }, (error as Error).message));
        break;
      }
    }
    busy = false;
  };

  const slider = (axis: Axis, i: number): HTMLElement => {
    const said = h("output", {}, axis.words(axis.values[chosen[i]!]!));
    const input = h("input", { type: "range", id: `axis${i}`, min: 0, max: axis.values.length - 1, value: chosen[i]!, "aria-valuetext": said.textContent ?? "" });
    input.addEventListener("input", () => {
      chosen[i] = Number(input.value);
      said.textContent = axis.words(axis.values[chosen[i]]!);
      input.setAttribute("aria-valuetext", said.textContent);
      void measure();
    });
    return h("p", { class: "axis" }, h("label", { for: `axis${i}` }, axis.name), input, said);
  };
  const open = (): void => {
    stop();
    found.length = 0;
    figures.replaceChildren(h("p", { class: "note" }, `${network()} is being read.`));
    client.call("design", network(), axes, MACHINE).then(measure, (error: Error) => figures.replaceChildren(h("p", { class: "wrong" }, error.message)));
  };
  const networks = h("select", { id: "network" }, ...NETWORKS.map((name, i) => h("option", { value: i, selected: i === chosen[AXES.length + 1] }, name)));
  networks.addEventListener("change", () => {
    chosen[AXES.length + 1] = Number(networks.value);
    open();
  });
  const sets = h("select", { id: "sets" }, ...SETS.map((words, i) => h("option", { value: i, selected: i === chosen[AXES.length] }, words)));
  sets.addEventListener("change", () => {
    chosen[AXES.length] = Number(sets.value);
    void measure();
  });

  let exploring: Client[] = [];
  const stop = (): void => {
    for (const worker of exploring) worker.cancel();
    exploring = [];
  };
  /// Workers of its own, so that sliders go on: one asks for machines, all measure.
  const explore = async (): Promise<void> => {
    stop();
    found.length = 0;
    const count = Math.min(Math.max(navigator.hardwareConcurrency || 1, 1), MOST_WORKERS);
    const workers = Array.from({ length: count }, () => client.another());
    exploring = workers;
    try {
      await Promise.all(workers.map((worker) => worker.call("explore", network(), "", MACHINE, FRONT)));
      for (;;) {
        const wanted = await workers[0]!.call<number[]>("wanted");
        if (!wanted.length) break;
        const measure = async (worker: Client): Promise<void> => {
          for (let point = wanted.pop(); point !== undefined; point = wanted.pop()) {
            const next = await worker.call<Measured>("explored", point);
            await workers[0]!.call("tell", point, next);
            found.push(next);
            progress.value = found.length;
            if (found.length % 5 === 0) draw();
          }
        };
        await Promise.all(workers.map(measure));
      }
    } catch (error) {
      if (!(error instanceof Cancelled)) drawing.replaceChildren(h("p", { class: "wrong" }, (error as Error).message));
      return;
    } finally {
      for (const worker of workers) worker.cancel();
    }
    draw();
  };
  const button = (label: string, act: () => void) => h("button", { type: "button", onclick: act }, label);
  root.append(
    h("h1", {}, "Design"),
    h(
      "div",
      { class: "two" },
      h("section", { "aria-label": "The machine" }, h("h2", {}, "The machine"), ...AXES.map(slider), h("p", { class: "axis" }, h("label", { for: "sets" }, "Extensions"), sets), button("Copy link", () => {
        void pack({ design: chosen }).then((packed) => {
          history.replaceState(null, "", `#/design/${packed}`);
          void navigator.clipboard?.writeText(location.href).catch(() => {});
        });
      })),
      h("section", { "aria-label": "A network on it" }, h("h2", {}, "A network on it"), h("p", { class: "axis" }, h("label", { for: "network" }, "Network"), networks), h("p", { class: "note" }, "Cycles are those of the cycle model; energy and area are estimates from a table of prices."), figures),
    ),
    h(
      "section",
      { "aria-label": "Machines that no other one beats" },
      h("h2", {}, "Machines that no other one beats"),
      h("p", { class: "note" }, `A search measures up to ${FRONT} machines for few cycles and little energy. Blue ones are the front of cycles against area, the orange one is that of the sliders.`),
      h("div", { class: "bar" }, button("Search", () => void explore()), button("Stop", stop), progress),
      drawing,
    ),
  );
  draw();
  open();
  return stop;
}
