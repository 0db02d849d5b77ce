// Links hold what was packed, and hostile ones are refused with the reason.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { pack, unpack } from "../site/src/link.ts";
import { ROOT, VTA } from "./node.ts";

const bytes = (value: Uint8Array) => Buffer.from(value).toString("base64url");

test("what is packed is unpacked", async () => {
  for (const value of [{ asm: "" }, { asm: "finish\n# ⏭ ünï" }, { design: [1, 2, 3] }, { asm: "x".repeat(200_000) }]) {
    const packed = await pack(value);
    assert.match(packed, /^[\w-]*$/);
    assert.deepEqual(await unpack(packed), value);
  }
});

test("hostile links are refused", async () => {
  const bomb = bytes(deflateRawSync(Buffer.alloc(1 << 28)));
  for (const [link, words] of [
    ["%%%", /base64url/],
    ["AAAA", /damaged/],
    [bytes(deflateRawSync("{")), /no JSON/],
    [bomb, /more than 1048576 bytes/],
  ] as const) {
    await assert.rejects(unpack(link), words);
  }
});

test("the command line's link holds the file", async () => {
  const file = join(ROOT, "cli/examples/gemm.asm");
  const link = execFileSync(VTA, ["playground", file], { encoding: "utf8" }).trim();
  const [, packed = ""] = /#\/program\/([\w-]+)$/.exec(link) ?? [];
  assert.deepEqual(await unpack(packed), { asm: readFileSync(file, "utf8") });
});
