// Bad programs, photos and models give words, not traps, and take no more memory than a tab may.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { LESSONS } from "../site/src/lessons.ts";
import { ROOT, memoryBytes, vta } from "./node.ts";

/// The same numbers in each run.
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function damaged(bytes: Uint8Array, next: (below: number) => number): Uint8Array {
  const copy = Uint8Array.from(bytes.subarray(0, next(4) ? bytes.length : next(bytes.length)));
  const count = 1 + next(8);
  // Half of the damage is where headers are.
  for (let i = 0; i < count && copy.length; i++) copy[next(2) ? next(copy.length) : next(Math.min(400, copy.length))] = next(256);
  return copy;
}

/// What a call says: an error of its own, or nothing. A trap fails the test.
function words(call: () => unknown): string {
  try {
    call();
    return "";
  } catch (error) {
    assert.ok(!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError), `a trap: ${(error as Error).stack}`);
    return (error as Error).message;
  }
}

test("damaged photos are read or refused", () => {
  const photo = readFileSync(join(ROOT, "models/demo/cat.png"));
  const network = new vta.Network("demo", undefined, '{"device":"sim"}');
  const next = numbers(1);
  let refused = 0;
  for (let i = 0; i < 60; i++) {
    const said = words(() => network.classify("x.png", damaged(photo, next)));
    if (said) assert.match(said, /^x\.png/);
    refused += Number(said !== "");
  }
  assert.ok(refused > 10, `${refused} refused`);
  const huge = Buffer.from("89504e470d0a1a0a0000000d494844520000ffff0000ffff080200000000000000", "hex");
  assert.match(words(() => network.classify("huge.png", huge)), /huge\.png/);
  network.free();
});

test("damaged models are checked or refused", () => {
  const model = readFileSync(join(ROOT, "models/demo/resnet20.onnx"));
  const next = numbers(2);
  let refused = 0;
  for (let i = 0; i < 60; i++) refused += Number(words(() => vta.check_model("x.onnx", damaged(model, next), '{"device":"sim"}')) !== "");
  assert.ok(refused > 10, `${refused} refused`);
});

test("random programs are told what is wrong, or stepped", () => {
  const next = numbers(3);
  const pieces = LESSONS.flatMap((lesson) => lesson.start.split(/(\s+)/));
  for (let i = 0; i < 300; i++) {
    const text = Array.from({ length: 1 + next(60) }, () => pieces[next(pieces.length)]).join(next(2) ? "" : " ");
    const fault = vta.fault(text);
    const said = words(() => {
      const program = new vta.Program(text, '{"device":"cycle"}');
      const { last } = JSON.parse(program.overview());
      program.state(last);
      program.state(-1);
      program.free();
    });
    if (fault) assert.notEqual(said, "", text);
  }
});

test("machines that can't be are refused by name", () => {
  for (const [machine, said] of [
    ['{"device":"cycle","config":{"LOG_BLOCK":20}}', /LOG_BLOCK/],
    ['{"device":"opencl"}', /opencl/],
    ['{"no":1}', /unknown field/],
    ["", /the machine/],
  ] as const) {
    assert.match(words(() => vta.exec("x", "finish", machine)), said);
  }
});

test("all that took less than a gigabyte", () => {
  const bytes = memoryBytes();
  console.log(`${(bytes / 2 ** 20).toFixed(0)} MiB of memory`);
  assert.ok(bytes > 0 && bytes < 2 ** 30);
});
