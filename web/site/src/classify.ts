// The Classify page: a photo or a sample, labels, and the report of where the cycles went.

import type { Client } from "./client.ts";
import { h } from "./dom.ts";
import type { NetworkInfo, Ranked } from "./types.ts";

const MACHINE = JSON.stringify({ device: "sim" });
/// The largest file that is read.
export const MOST_FILE = 64 << 20;

/// The bytes of a file that may be read.
export async function bytes(file: File): Promise<Uint8Array> {
  if (file.size > MOST_FILE) throw new Error(`${file.name}: ${file.size} bytes; at most ${MOST_FILE} are read`);
  return new Uint8Array(await file.arrayBuffer());
}

/// A picture of pixels, three bytes each.
function picture(sample: NetworkInfo["samples"][number]): HTMLCanvasElement {
  const [, height, width] = sample.chw;
  const canvas = h("canvas", { width, height, "aria-hidden": "true" });
  const image = new ImageData(width, height);
  sample.rgb?.forEach((value, i) => {
    image.data[Math.floor(i / 3) * 4 + (i % 3)] = value;
  });
  for (let i = 3; i < image.data.length; i += 4) image.data[i] = 255;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

export function ranked(found: Ranked): HTMLElement {
  const row = ({ label, share }: Ranked["ranking"][number]) => {
    const percent = `${(share * 100).toFixed(1)} %`;
    return h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "share" }, h("span", { class: "k0", style: `width:${(share * 100).toFixed(1)}%` })), h("td", { class: "numbers" }, percent));
  };
  const truth = found.truth ? `It shows: ${found.truth}.` : "";
  return h("div", {}, h("table", { class: "ranking" }, h("caption", {}, `Labels of ${found.name}`), h("tbody", {}, ...found.ranking.map(row))), h("p", { class: "note" }, truth));
}

export function classifyPage(client: Client, root: HTMLElement): void {
  const labels = h("div", { class: "labels", "aria-live": "polite" }, h("p", { class: "note" }, "The network is being compiled."));
  const samples = h("div", { class: "samples" });
  const report = h("section", { "aria-label": "Where the cycles go" }, h("h2", {}, "Where the cycles go"));
  const input = h("input", { type: "file", accept: "image/*", id: "photo" });
  const drop = h("div", { class: "drop" }, h("label", { for: "photo" }, "Drop a photo here, or choose one"), input);
  root.append(
    h("h1", {}, "Classify"),
    h("section", {}, h("p", { class: "note" }, "A network trained on CIFAR-10 sees ten kinds of things. It runs on the simulated accelerator, in this tab; no photo leaves it."), h("div", { class: "two" }, h("div", {}, drop, samples), labels)),
    report,
  );
  const show = async (work: Promise<Ranked>): Promise<void> => {
    labels.setAttribute("aria-busy", "true");
    try {
      labels.replaceChildren(ranked(await work));
    } catch (error) {
      labels.replaceChildren(h("p", { class: "wrong" }, (error as Error).message));
    }
    labels.removeAttribute("aria-busy");
  };
  const photo = (file: File | undefined): void => {
    if (file) void show(bytes(file).then((data) => client.call<Ranked>("classify", file.name, data)));
  };
  input.addEventListener("change", () => photo(input.files?.[0]));
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    photo((event as DragEvent).dataTransfer?.files[0]);
  });
  const open = async (): Promise<void> => {
    const info = await client.call<NetworkInfo>("network", "demo", undefined, MACHINE);
    info.samples.forEach((sample, i) => {
      const button = h("button", { type: "button", "aria-label": `Sample ${i + 1}: ${sample.label ?? sample.name}`, onclick: () => void show(client.call<Ranked>("sample", i)) }, picture(sample));
      samples.append(button);
    });
    await show(client.call<Ranked>("sample", 3));
    const page = await client.call<string>("report");
    // The report's own script sorts its table; the frame has no other rights.
    report.append(h("iframe", { class: "report", title: "Report of the demo's cycles", sandbox: "allow-scripts", srcdoc: page }));
  };
  open().catch((error: Error) => labels.replaceChildren(h("p", { class: "wrong" }, error.message)));
}
