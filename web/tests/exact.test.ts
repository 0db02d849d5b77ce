// Outputs and cycles are those of the command line, bit for bit.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { OutElement } from "../site/src/types.ts";
import { PROGRAMS, ROOT, VTA, step, vta } from "./node.ts";

function run(...args: string[]): string {
  return execFileSync(VTA, args, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] });
}

const names = readdirSync(PROGRAMS).filter((name) => name.endsWith(".asm")).sort();

/// What the command line prints, or why it refuses.
function told(...args: string[]): { json: unknown } | { error: string } {
  const done = spawnSync(VTA, args, { encoding: "utf8", maxBuffer: 1 << 28 });
  return done.status === 0 ? { json: JSON.parse(done.stdout) } : { error: done.stderr };
}

function exec(name: string, text: string, machine: object): { json: { cycles?: number; out: OutElement[] } } | { error: string } {
  try {
    return { json: JSON.parse(vta.exec(name, text, JSON.stringify(machine))) };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

function read(name: string): { file: string; text: string; config: object } {
  const file = join(PROGRAMS, name);
  return { file, text: readFileSync(file, "utf8"), config: JSON.parse(readFileSync(file.replace(/asm$/, "json"), "utf8")) };
}

test("random programs have the command line's outputs and cycles", () => {
  assert.ok(names.length >= 40, `${names.length} programs`);
  let timed = 0;
  for (const name of names) {
    const { file, text, config } = read(name);
    for (const device of ["sim", "cycle", "oracle"]) {
      const expected = told("exec", file, "--config", file.replace(/asm$/, "json"), "--device", device, "--json");
      const found = exec(file, text, { device, config });
      if ("error" in found) {
        // The cycle model refuses programs on which the RTL aborts.
        assert.equal(device, "cycle", found.error);
        assert.match(found.error, /the RTL aborts/);
        assert.ok("error" in expected && expected.error.includes(found.error.trim()), `${name}: ${JSON.stringify(expected)}`);
      } else {
        assert.deepEqual({ json: found.json }, expected, `${name} on ${device}`);
        timed += Number(found.json.cycles !== undefined);
      }
    }
  }
  console.log(`${names.length} programs, ${timed} of them with cycles`);
  assert.ok(timed > names.length / 4, `${timed} programs were timed`);
});

test("stepping random programs ends with the oracle's outputs in the cycle model's cycles", () => {
  for (const name of names) {
    const { text, config } = read(name);
    const expected = exec(name, text, { device: "oracle", config });
    assert.ok("json" in expected, name);
    const { overview, state } = step(text, { device: "cycle", config });
    const timed = exec(name, text, { device: "cycle", config });
    if ("json" in timed) assert.equal(overview.cycles, timed.json.cycles, name);
    const races = overview.hazards.filter(({ words }) => words.includes("no chain of tokens"));
    assert.deepEqual(races, [], name);
    const end = state(overview.last);
    assert.equal(end.fault, null, name);
    const stored = new Map(expected.json.out.map((out) => [out.element, out.values]));
    assert.ok(end.out.length > 0, name);
    for (const { element, values } of end.out) assert.deepEqual(values, stored.get(element), `${name}: out ${element}`);
  }
});

test("gemm.asm is what docs/first-program.md shows", () => {
  const file = join(ROOT, "cli/examples/gemm.asm");
  const expected = JSON.parse(run("exec", file, "--device", "cycle", "--json"));
  const found = JSON.parse(vta.exec(file, readFileSync(file, "utf8"), JSON.stringify({ device: "cycle" })));
  assert.deepEqual(found, expected);
  assert.equal(found.cycles, 143);
});

test("the demo has the command line's outputs and cycles", () => {
  const out = join(mkdtempSync(join(tmpdir(), "vta-web-")), "out.npy");
  const told = JSON.parse(run("run", "demo", "--device", "cycle", "--json", "--output", out));
  const network = new vta.Network("demo", undefined, JSON.stringify({ device: "sim" }));
  const npy = readFileSync(out);
  const first = 10 + npy.readUInt16LE(8);
  const info = JSON.parse(network.info());
  assert.equal(info.samples.length, 10);
  for (let image = 0; image < 10; image++) {
    const expected = Array.from({ length: 10 }, (_, i) => npy.readFloatLE(first + 4 * (image * 10 + i)));
    // The second time the plan runs, which has kernels of its own.
    for (let again = 0; again < 2; again++) {
      const found = JSON.parse(network.sample(image));
      assert.deepEqual(Float32Array.from(found.output), Float32Array.from(expected), `image ${image}`);
      assert.equal(found.truth, found.ranking[0].label);
    }
  }
  const cycles = JSON.parse(network.cycles());
  const layers = (all: { name: string; cycles: number }[]) => all.map(({ name, cycles }) => [name, cycles]);
  assert.ok(cycles.layers.length > 20);
  const passes = 10;
  assert.deepEqual(layers(cycles.layers).map(([name, each]) => [name, (each as number) * passes]), layers(told.layers));
  assert.equal(cycles.cycles * passes, told.cycles);
});

test("ResNet-18's C2 has the command line's figures and the reference's bits", () => {
  for (const device of ["sim", "cycle"]) {
    const expected = JSON.parse(run("layer", "resnet18.C2", "--device", device, "--json"));
    const found = JSON.parse(vta.layer("resnet18.C2", JSON.stringify({ device })));
    delete expected.wall_ms;
    delete found.wall_ms;
    assert.deepEqual(found, expected);
    assert.equal(found.max_abs_error, 0);
  }
});
