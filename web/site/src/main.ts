// Pages by the address's fragment: `#/page` or `#/page/LINK`.

import { classifyPage } from "./classify.ts";
import { Client } from "./client.ts";
import { designPage } from "./design.ts";
import { h } from "./dom.ts";
import { unpack } from "./link.ts";
import { modelPage } from "./model.ts";
import { programOf, programPage } from "./program.ts";

const client = new Client(new URL("worker.js", import.meta.url));
const main = document.querySelector("main")!;
const status = document.querySelector("#status")!;
client.status = (text) => {
  status.textContent = text;
};
// For tests and for who is curious in the console.
Object.assign(globalThis, { vta: client });

const PAGES = ["classify", "program", "design", "model"];

let leave = () => {};

async function show(): Promise<void> {
  leave();
  leave = () => {};
  const [, name = "", packed] = /^#\/([a-z]*)(?:\/(.*))?$/.exec(location.hash) ?? [];
  const page = PAGES.includes(name) ? name : "classify";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector("[aria-current]")?.textContent} · vta playground`;
  client.progress = () => {};
  const root = h("div", { class: `page ${page}` });
  let link: unknown;
  try {
    link = packed ? await unpack(packed) : undefined;
    if (page === "program" && link !== undefined) programOf(link);
  } catch (error) {
    root.append(h("p", { class: "wrong" }, `${(error as Error).message}.`));
    link = undefined;
  }
  main.replaceChildren(root);
  if (page === "classify") classifyPage(client, root);
  if (page === "program") programPage(client, root, link === undefined ? undefined : programOf(link));
  if (page === "design") leave = designPage(client, root, link);
  if (page === "model") modelPage(client, root);
}

addEventListener("hashchange", () => void show());
void show();
