// The pages in Chromium: what they show and say, by mouse and keyboard, on a phone and at 1280 px, dark and light.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createRequire } from "node:module";
import { extname, join } from "node:path";
import { after, before, test } from "node:test";
import { type Browser, type Page, chromium } from "playwright-core";
import { LESSONS } from "../site/src/lessons.ts";
import { pack } from "../site/src/link.ts";
import { PROGRAMS, ROOT, VTA, step } from "./node.ts";

const SITE = process.env["VTA_SITE"]!;
const PICTURES = process.env["VTA_PICTURES"]!;
const SMALL = process.env["VTA_SMALL"] === "1";
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let server: Server;
let browser: Browser;
let base = "";
const asked: string[] = [];

before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://here").pathname;
    const name = path === "/" ? "index.html" : path.slice(1);
    if (!readdirSync(SITE).includes(name)) return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(name)] ?? "application/octet-stream" });
    response.end(readFileSync(join(SITE, name)));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  browser = await chromium.launch({ executablePath: process.env["VTA_CHROMIUM"]!, args: FLAGS });
});

after(async () => {
  await browser?.close();
  server?.close();
});

type Look = { width?: number; dark?: boolean };

async function open(hash: string, { width = 1280, dark = false }: Look = {}): Promise<Page> {
  const context = await browser.newContext({ viewport: { width, height: width < 600 ? 844 : 900 }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => assert.fail(`${hash}: ${error.message}`));
  await page.goto(base + hash);
  return page;
}

/// Waits until a function says so in the page, whose policy forbids the eval of Playwright's own wait.
async function until<A>(page: Page, holds: (given: A) => boolean, given: A): Promise<void> {
  const end = performance.now() + 120_000;
  while (!(await page.evaluate(holds as (given: unknown) => boolean, given))) {
    assert.ok(performance.now() < end, `not within two minutes: ${holds}`);
    await page.waitForTimeout(20);
  }
}

const settled: Record<string, (page: Page) => Promise<unknown>> = {
  classify: (page) => page.frameLocator("iframe.report").getByRole("heading", { name: "Over time" }).waitFor(),
  program: (page) => page.locator(".machine").waitFor(),
  design: (page) => page.locator(".tile").first().waitFor(),
  model: (page) => page.locator("#onnx").waitFor(),
};

test("first labels come soon", async () => {
  const started = performance.now();
  const page = await open("#/classify");
  await page.locator(".ranking").waitFor();
  const took = performance.now() - started;
  // A measure, not a limit: others may compute beside this test.
  console.log(`first labels after ${took.toFixed(0)} ms`);
  assert.match(await page.locator(".ranking").innerText(), /cat/);
  await settled["classify"]!(page);
  const report = page.frameLocator("iframe.report");
  await report.getByRole("heading", { name: "Where the cycles go" }).waitFor();
  await page.getByRole("button", { name: "Sample 1: airplane" }).click();
  await page.locator(".ranking tr:first-child th", { hasText: "airplane" }).waitFor();
  await page.setInputFiles("#photo", join(ROOT, "models/demo/cat.png"));
  await page.getByText("Labels of cat.png").waitFor();
  const times = await page.evaluate(async () => {
    const client = (globalThis as unknown as { vta: { call(...args: unknown[]): Promise<unknown> } }).vta;
    const all: number[] = [];
    for (let i = 0; i < 30; i++) {
      const began = performance.now();
      await client.call("sample", i % 10);
      all.push(performance.now() - began);
    }
    return all.sort((a, b) => a - b);
  });
  console.log(`an image of the demo: median ${times[15]!.toFixed(1)} ms, fastest ${times[0]!.toFixed(1)} ms`);
  await page.context().close();
});

test("photos that are none are refused in words", async () => {
  const page = await open("#/classify");
  await page.locator(".ranking").waitFor();
  for (const [name, body] of [["x.png", "no picture"], ["y.jpg", "\u00ff\u00d8\u00ff"], ["z.png", ""]] as const) {
    await page.setInputFiles("#photo", { name, mimeType: "image/png", buffer: Buffer.from(body, "latin1") });
    await page.locator(".labels .wrong", { hasText: name }).waitFor();
  }
  await page.context().close();
});

test("a lesson is solved by keyboard, and wrong answers are told why", async () => {
  const page = await open("#/program");
  await settled["program"]!(page);
  await page.getByRole("button", { name: "Check" }).click();
  await page.locator(".verdict.wrong", { hasText: "out 0, value 0, is 34, not 17" }).waitFor();
  await page.locator(".cm-content").fill(LESSONS[0]!.start.replace("imm=2", "imm=3"));
  await page.getByRole("button", { name: "Check" }).focus();
  await page.keyboard.press("Enter");
  await page.locator(".verdict.right").waitFor();
  await page.getByRole("combobox", { name: "Lesson" }).selectOption("1");
  await page.locator(".ends .wrong", { hasText: "deadlock in cycle" }).waitFor();
  await page.locator(".cm-lint-marker-error").first().waitFor();
  await page.getByRole("combobox", { name: "Lesson" }).selectOption("2");
  await page.locator(".ends .wrong", { hasText: "no chain of tokens orders them" }).first().waitFor();
  await page.locator(".cm-content").fill("gemm uop_ende=1\nfinish");
  await page.locator(".ends .wrong", { hasText: "line 1, column 6: gemm has no field or flag 'uop_ende'" }).waitFor();
  await page.context().close();
});

test("steps go by cycles and instructions", async () => {
  const page = await open("#/program");
  await settled["program"]!(page);
  const where = page.locator(".where");
  assert.equal(await where.innerText(), "before the first cycle");
  await page.getByRole("button", { name: "+ insn" }).click();
  await page.getByText(/behind cycle 60 of/).waitFor();
  await page.getByRole("button", { name: "+ insn" }).click();
  await page.getByText(/behind cycle 63 of/).waitFor();
  const tile = page.getByRole("button", { name: /^inputs tile 0, written by line/ });
  await tile.click();
  await page.locator(".values td").first().waitFor();
  assert.match(await page.locator(".values").innerText(), /1\s+2\s+3\s+4/);
  await page.getByRole("slider", { name: "Cycle" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByText(/behind cycle 64 of/).waitFor();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByText("before the first cycle").waitFor();
  await page.context().close();
});

test("a link opens its program, and a hostile one is refused in words", async () => {
  const page = await open(`#/program/${await pack({ asm: "load.inp y_size=1 x_size=1 x_stride=1\nfinish pop_prev" })}`);
  await page.locator(".ends .wrong", { hasText: "compute waits at instruction 1" }).waitFor();
  await page.context().close();
  for (const link of ["AAAA", "%", await pack({ asm: 7 }), await pack({ asm: "x".repeat(300_000) }), await pack([])]) {
    const refused = await open(`#/program/${link}`);
    await refused.locator("main .wrong").first().waitFor();
    await settled["program"]!(refused);
    await refused.context().close();
  }
});

test("programs that ask for much leave the page answering", async () => {
  const page = await open("#/program");
  await settled["program"]!(page);
  await page.evaluate(() => {
    const long: number[] = [];
    Object.assign(globalThis, { long });
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => long.push(entry.duration))).observe({ type: "longtask" });
  });
  for (const text of [
    "gemm uop_end=1024 iter_out=16383 iter_in=16383\nfinish",
    `${"load.inp y_size=1 x_size=1 x_stride=1\n".repeat(7000)}finish`,
    ".wgt 0 1*16777216\nfinish",
    "load.wgt y_size=32 x_size=32 x_stride=32\n".repeat(600) + "finish",
  ]) {
    await page.evaluate((program) => {
      const client = (globalThis as unknown as { vta: { call(...args: unknown[]): Promise<unknown> } }).vta;
      return client.call("program", program, '{"device":"cycle"}').then(() => {}, () => {});
    }, text);
  }
  const long = await page.evaluate(() => (globalThis as unknown as { long: number[] }).long);
  console.log(`the longest task of the page: ${Math.max(0, ...long)} ms`);
  await page.context().close();
});

test("a worker that is lost is told of, and another one goes on", async () => {
  const page = await open("#/program");
  await settled["program"]!(page);
  await page.evaluate(() => (globalThis as unknown as { vta: { call(name: string): Promise<unknown> } }).vta.call("crash").catch(() => {}));
  await page.locator("#status", { hasText: "The worker stopped" }).waitFor();
  await page.locator(".cm-content").fill("finish");
  await page.locator(".ends", { hasText: "1 instructions" }).waitFor();
  await page.context().close();
});

test("a notebook steps a program as the page does", async () => {
  const text = LESSONS[9]!.start;
  const { overview, state } = step(text, { device: "cycle" });
  for (const dark of [false, true]) {
    const context = await browser.newContext({ viewport: { width: 860, height: 1000 }, colorScheme: dark ? "dark" : "light" });
    const page = await context.newPage();
    page.on("pageerror", (error) => assert.fail(error.message));
    await page.goto(`${base}main.css`);
    await page.exposeFunction("stateOf", state);
    await page.setContent("<main id=cell></main>");
    const code = readFileSync(join(ROOT, "python/pyvta/stepper.js"), "utf8");
    await page.evaluate(
      async ([code, overview, text]) => {
        const { stateOf } = globalThis as unknown as { stateOf(cycle: number): Promise<object> };
        const widget = await import(URL.createObjectURL(new Blob([code as string], { type: "text/javascript" })));
        // What Jupyter has on its side of a widget.
        const told: ((content: object) => void)[] = [];
        const send = async ({ cycle }: { cycle: number }) => {
          const state = await stateOf(cycle);
          for (const call of told) call({ cycle, state });
        };
        const model = { get: (name: string) => (name === "text" ? text : overview), on: (_: string, call: () => void) => told.push(call), off: () => {}, send };
        widget.default.render({ model, el: document.querySelector("#cell") });
      },
      [code, overview, text] as const,
    );
    for (let i = 0; i < 9; i++) await page.getByRole("button", { name: "+ insn" }).click();
    await page.getByText("behind cycle").waitFor();
    assert.ok(await page.locator(".tile-cell").count());
    assert.ok(await page.locator(".listing .line-runs, .listing .line-waits").count());
    await page.screenshot({ path: join(PICTURES, `notebook-${dark ? "dark" : "light"}.png`), fullPage: true });
    await context.close();
  }
});

test("a machine is designed by keyboard, and a search fills the front", async () => {
  const page = await open("#/design");
  await settled["design"]!(page);
  const cycles = page.locator(".tile", { hasText: "Cycles" }).locator("strong");
  const first = await cycles.innerText();
  await page.getByRole("combobox", { name: "Network" }).selectOption("zoo:resnet18");
  // ResNet-18 takes some millions.
  await until(page, () => Number(document.querySelector(".tile strong")?.textContent?.replace(/\D/g, "")) > 5e6, undefined);
  const times = await page.evaluate(async () => {
    const client = (globalThis as unknown as { vta: { call(...args: unknown[]): Promise<unknown> } }).vta;
    const all: number[] = [];
    // Neighbours of the default machine in the grid have another memory or other extensions.
    for (let point = 0; point < 12; point++) {
      const began = performance.now();
      const { error } = (await client.call("measure", 21216 + point)) as { error?: string };
      if (error) throw new Error(error);
      all.push(performance.now() - began);
    }
    return all.sort((a, b) => a - b);
  });
  console.log(`ResNet-18 on another machine: median ${times[6]!.toFixed(0)} ms, slowest ${times[11]!.toFixed(0)} ms`);
  await page.getByRole("combobox", { name: "Network" }).selectOption("demo");
  await until(page, (before) => document.querySelector(".tile strong")?.textContent === before, first);
  await page.getByRole("slider", { name: "Bus" }).focus();
  await page.keyboard.press("ArrowRight");
  await until(page, (before) => document.querySelector(".tile strong")?.textContent !== before, first);
  const started = performance.now();
  await page.getByRole("button", { name: "Search" }).click();
  // The search asks for some machines at a time, and for a few less than it may.
  const wanted = SMALL ? 20 : 190;
  await until(page, (most) => Number(document.querySelector("progress")?.value) >= most, wanted);
  console.log(`${wanted} machines after ${(performance.now() - started).toFixed(0)} ms`);
  await page.getByRole("button", { name: "Stop" }).click();
  assert.match((await page.locator(".front svg").getAttribute("aria-label")) ?? "", /machines, [1-9]/);
  await page.context().close();
});

test("a model is checked and timed, and a float one quantised", async () => {
  const page = await open("#/model");
  await page.setInputFiles("#onnx", join(ROOT, "models/demo/resnet20.onnx"));
  await page.locator("iframe.report").waitFor();
  await page.setInputFiles("#try", join(ROOT, "models/demo/cat.png"));
  await page.getByText("Labels of cat.png").waitFor();
  await page.setInputFiles("#onnx", { name: "bad.onnx", mimeType: "application/octet-stream", buffer: Buffer.from("not a model") });
  await page.locator("[role=status].wrong", { hasText: "bad.onnx" }).waitFor();
  await page.setInputFiles("#onnx", join(ROOT, "models/demo/resnet20_f32.onnx"));
  await page.getByText("A float model: quantise it.").waitFor();
  await page.setInputFiles("#images", join(ROOT, "models/demo/cat.png"));
  await page.getByRole("button", { name: "Quantise and time" }).click();
  await page.getByRole("link", { name: "Save the int8 model" }).waitFor({ timeout: 120_000 });
  await page.context().close();
});

test("programs in Chromium have the command line's outputs and cycles", async () => {
  const page = await open("#/model");
  const names = readdirSync(PROGRAMS).filter((name) => name.endsWith(".asm")).sort();
  for (const name of SMALL ? names.slice(0, 20) : names) {
    const file = join(PROGRAMS, name);
    const machine = file.replace(/asm$/, "json");
    // The cycle model refuses programs on which the RTL aborts: values of these come from the simulator.
    const told = (device: string) => spawnSync(VTA, ["exec", file, "--config", machine, "--device", device, "--json"], { encoding: "utf8", maxBuffer: 1 << 28 });
    const timed = told("cycle");
    const device = timed.status === 0 ? "cycle" : "sim";
    const expected = JSON.parse((timed.status === 0 ? timed : told("sim")).stdout);
    const target = JSON.stringify({ device, config: JSON.parse(readFileSync(machine, "utf8")) });
    const found = await page.evaluate(
      ([path, text, target]) => (globalThis as unknown as { vta: { call(...args: unknown[]): Promise<unknown> } }).vta.call("exec", path, text, target),
      [file, readFileSync(file, "utf8"), target],
    );
    assert.deepEqual(found, expected, name);
  }
  await page.context().close();
});

test("axe finds nothing serious, and nothing is wider than the page", async () => {
  for (const width of [1280, 390]) {
    for (const dark of [false, true]) {
      for (const name of Object.keys(settled)) {
        const page = await open(`#/${name}`, { width, dark });
        await settled[name]!(page);
        if (name === "program") {
          await page.getByRole("combobox", { name: "Lesson" }).selectOption("9");
          await page.locator(".timeline").waitFor();
          for (let i = 0; i < 9; i++) await page.getByRole("button", { name: "+ insn" }).click();
          await page.waitForTimeout(300);
        }
        if (name === "design") {
          await page.getByRole("button", { name: "Search" }).click();
          await until(page, (most) => Number(document.querySelector("progress")?.value) >= most, SMALL ? 20 : 100);
          await page.getByRole("button", { name: "Stop" }).click();
        }
        await page.addScriptTag({ path: AXE }).catch(async () => page.evaluate(readFileSync(AXE, "utf8")));
        const found = await page.evaluate(async () => {
          const axe = (globalThis as unknown as { axe: { run(where: unknown, how: object): Promise<{ violations: { impact: string; id: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
          const { violations } = await axe.run(document, { iframes: false });
          return violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => `${v.id}: ${v.nodes[0]?.html.slice(0, 200)}: ${v.nodes[0]?.failureSummary}`);
        });
        // A frame that was never in view isn't in the picture.
        if (name === "classify") await page.locator("iframe.report").scrollIntoViewIfNeeded();
        await page.waitForTimeout(200);
        await page.screenshot({ path: join(PICTURES, `${name}-${width}-${dark ? "dark" : "light"}.png`), fullPage: true });
        assert.deepEqual(found, [], `${name} at ${width}, ${dark ? "dark" : "light"}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} at ${width} is ${wide} px too wide`);
        await page.context().close();
      }
    }
  }
});

test("nothing but the site is asked for", () => {
  assert.ok(asked.length > 0);
  const foreign = asked.filter((url) => !url.startsWith(base) && !/^(blob|data|about):/.test(url));
  assert.deepEqual(foreign, []);
});
