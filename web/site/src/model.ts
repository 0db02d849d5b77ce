// The page for one's own network: an ONNX file is checked, quantised with images where it is float, and timed.

import { bytes, ranked } from "./classify.ts";
import { Cancelled, type Client } from "./client.ts";
import { h } from "./dom.ts";
import type { Checked, NetworkInfo, Ranked } from "./types.ts";

const MACHINE = JSON.stringify({ device: "sim", allow_host: true });

function verdict(found: Checked): HTMLElement {
  const nodes = found.nodes ?? [];
  const count = (place: string) => nodes.filter((node) => node.place === place).length;
  const others = nodes.filter((node) => node.place !== "device");
  const row = (node: (typeof nodes)[number]) => h("tr", {}, h("th", { scope: "row" }, node.name || node.op), h("td", {}, node.op), h("td", {}, node.place), h("td", {}, node.why));
  return h(
    "div",
    {},
    h("p", {}, `${nodes.length} nodes: ${count("device")} on the device, ${count("host")} on the host, ${count("refused")} refused. `, found.float ? "A float model: quantise it." : "An int8 model."),
    ...found.faults.map((fault) => h("p", { class: "wrong" }, fault)),
    ...found.notes.map((note) => h("p", { class: "note" }, note)),
    others.length > 0 && h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Nodes that are not on the device" }, h("table", {}, h("caption", {}, "Nodes that are not on the device"), h("tbody", {}, ...others.slice(0, 200).map(row)))),
  );
}

export function modelPage(client: Client, root: HTMLElement): void {
  const state = h("p", { class: "note", role: "status" }, "No file yet.");
  const progress = h("progress", { max: 1, value: 0, "aria-label": "Progress", hidden: true });
  const checked = h("div", {});
  const images = h("input", { type: "file", accept: "image/*", multiple: true, id: "images" });
  const timed = h("div", {});
  const file = h("input", { type: "file", accept: ".onnx", id: "onnx" });
  const save = h("a", { class: "button", hidden: true }, "Save the int8 model");
  const photo = h("input", { type: "file", accept: "image/*", id: "try" });
  const tryIt = h("p", { hidden: true }, h("label", { for: "try" }, "Run a photo: "), photo);
  let model: { name: string; data: Uint8Array } | undefined;

  client.progress = (done, all) => {
    progress.hidden = false;
    progress.max = Math.max(all, 1);
    progress.value = done;
  };
  const work = async (what: string, act: () => Promise<void>): Promise<void> => {
    state.textContent = what;
    stop.hidden = false;
    try {
      await act();
      state.textContent = "";
    } catch (error) {
      state.textContent = error instanceof Cancelled ? "Cancelled." : (error as Error).message;
      state.className = error instanceof Cancelled ? "note" : "wrong";
    }
    stop.hidden = true;
    progress.hidden = true;
  };
  const stop = h("button", { type: "button", hidden: true, onclick: () => client.cancel() }, "Cancel");
  const time = async (name: string, data: Uint8Array): Promise<void> => {
    await client.call<NetworkInfo>("network", name, data, MACHINE);
    const page = await client.call<string>("report");
    timed.replaceChildren(h("iframe", { class: "report", title: `Report of ${name}`, sandbox: "allow-scripts", srcdoc: page }));
    tryIt.hidden = false;
  };
  file.addEventListener("change", () => {
    const chosen = file.files?.[0];
    if (!chosen) return;
    state.className = "note";
    void work(`Checking ${chosen.name}`, async () => {
      model = { name: chosen.name, data: await bytes(chosen) };
      const found = await client.call<Checked>("check", model.name, model.data, MACHINE);
      checked.replaceChildren(verdict(found));
      if (!found.float && !found.refused) await time(model.name, model.data);
    });
  });
  const quantize = h("button", { type: "button" }, "Quantise and time");
  quantize.addEventListener("click", () => {
    const photos = [...(images.files ?? [])];
    state.className = "note";
    void work("Quantising", async () => {
      if (!model) throw new Error("choose an ONNX file first");
      if (!photos.length) throw new Error("choose images to quantise with first");
      await client.call("calibrate", model.name, model.data);
      for (const [i, image] of photos.entries()) {
        await client.call("image", image.name, await bytes(image));
        client.progress(i + 1, photos.length);
      }
      const int8 = await client.call<Uint8Array>("quantize");
      const name = model.name.replace(/(\.onnx)?$/, "_int8.onnx");
      save.href = URL.createObjectURL(new Blob([int8 as BlobPart]));
      save.download = name;
      save.hidden = false;
      await time(name, int8);
    });
  });
  photo.addEventListener("change", () => {
    const chosen = photo.files?.[0];
    if (chosen) void work(`Running ${chosen.name}`, async () => labels.replaceChildren(ranked(await client.call<Ranked>("classify", chosen.name, await bytes(chosen)))));
  });
  const labels = h("div", { "aria-live": "polite" });
  root.append(
    h("h1", {}, "Bring a model"),
    h(
      "section",
      {},
      h("p", { class: "note" }, "An ONNX file is checked, quantised and timed in this tab; it isn't sent anywhere."),
      h("p", {}, h("label", { for: "onnx" }, "ONNX file: "), file),
      h("p", {}, h("label", { for: "images" }, "Images to quantise a float model with: "), images),
      h("div", { class: "bar" }, quantize, stop, save, progress),
      state,
      checked,
      tryIt,
      labels,
    ),
    h("section", { "aria-label": "Report" }, h("h2", {}, "Where its cycles go"), timed),
  );
}
