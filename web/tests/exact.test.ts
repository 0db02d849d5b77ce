// Outputs and cycles are those of the command line, bit for bit.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
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

test("random programs have the command line's outputs and cycles", () => {
  assert.ok(names.length >= 40, `${names.length} programs`);
  for (const name of names) {
    const file = join(PROGRAMS, name);
    const machine = file.replace(/asm$/, "json");
    const text = readFileSync(file, "utf8");
    const config = JSON.parse(readFileSync(machine, "utf8"));
    for (const device of ["sim", "cycle", "oracle"]) {
      const expected = JSON.parse(run("exec", file, "--config", machine, "--device", device, "--json"));
      const found = JSON.parse(vta.exec(file, text, JSON.stringify({ device, config })));
      assert.deepEqual(found, expected, `${name} on ${device}`);
    }
  }
});

test("stepping random programs ends with the oracle's outputs in the cycle model's cycles", () => {
  for (const name of names) {
    const text = readFileSync(join(PROGRAMS, name), "utf8");
    const config = JSON.parse(readFileSync(join(PROGRAMS, name.replace(/asm$/, "json")), "utf8"));
    const expected = JSON.parse(vta.exec(name, text, JSON.stringify({ device: "oracle", config })));
    const { overview, state } = step(text, { device: "cycle", config });
    const cycles = JSON.parse(vta.exec(name, text, JSON.stringify({ device: "cycle", config }))).cycles;
    assert.equal(overview.cycles, cycles, name);
    assert.deepEqual(overview.hazards, [], name);
    const end = state(overview.last);
    assert.equal(end.fault, null, name);
    const stored = new Map(expected.out.map((out: OutElement) => [out.element, out.values]));
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
