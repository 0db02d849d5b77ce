// Each lesson has a solution, its start isn't one, and wrong answers get the words that say why.

import assert from "node:assert/strict";
import { test } from "node:test";
import { LESSONS, check } from "../site/src/lessons.ts";
import { engine } from "./node.ts";

type Change = [from: string | RegExp, to: string];
interface Answers {
  right: Change[];
  /// Each with what the verdict must say; the first is no change at all.
  wrong: [Change[], RegExp][];
}

const GEMM = "gemm uop_end=1 iter_out=1 iter_in=1 pop_prev";
const SHIFT = "alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next";

const HALVES = `load.uop x_size=1 y_size=1 x_stride=1
load.wgt x_size=1 y_size=1 x_stride=1
load.inp x_size=32 y_size=1 x_stride=32 push_next
load.inp sram_base=32 dram_base=32 x_size=32 y_size=1 x_stride=32 push_next
.uop 1 dst=32 src=32 wgt=0
gemm reset uop_end=1 iter_out=64 iter_in=1 dst_factor_out=1
gemm uop_end=1 iter_out=32 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=32 iter_in=1 dst_factor_out=1 push_next
load.uop sram_base=1 dram_base=1 x_size=1 y_size=1 x_stride=1
gemm uop_bgn=1 uop_end=2 iter_out=32 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
alu.shr imm=2 uop_bgn=1 uop_end=2 iter_out=32 iter_in=1 dst_factor_out=1 push_next
store x_size=32 y_size=1 x_stride=32 pop_prev
store sram_base=32 dram_base=32 x_size=32 y_size=1 x_stride=32 pop_prev push_prev
finish pop_next
`;

const ANSWERS: Answers[] = [
  {
    right: [["imm=2", "imm=3"]],
    wrong: [
      [[], /^out 0, value 0, is 34, not 17$/],
      [[["imm=2", "imm=4"]], /^out 0, value 0, is 8, not 17$/],
      [[["imm=2", "imm=three"]], /^line 13, column 9: 'three' is no number/],
    ],
  },
  {
    right: [["pop_prev\nfinish", "pop_prev push_prev\nfinish"]],
    wrong: [
      [[], /^deadlock in cycle \d+: compute waits at instruction 7 \(finish pop_next\) for a token from store to compute$/],
      [[["finish pop_next", "finish"]], /hands over|no chain of tokens orders them/],
      [[["pop_prev\nfinish", "\nfinish"]], /^deadlock in cycle/],
    ],
  },
  {
    right: [["load.wgt x_size=1 y_size=1 x_stride=1", "load.wgt x_size=1 y_size=1 x_stride=1 push_next"], ["\ngemm uop_end=1 iter_out=1 iter_in=1", `\n${GEMM}`]],
    wrong: [
      [[], /^inp tiles 0\.\.1: instruction 1 .* no chain of tokens orders them$/],
      [[["load.wgt x_size=1 y_size=1 x_stride=1", "load.wgt x_size=1 y_size=1 x_stride=1 push_next"]], /left|no chain of tokens orders them/],
      [[["\ngemm uop_end=1 iter_out=1 iter_in=1", `\n${GEMM}`]], /^deadlock in cycle/],
      [[["load.inp x_size=1 y_size=1 x_stride=1", "load.inp x_size=1 y_size=1 x_stride=1 push_next"], ["\ngemm uop_end=1 iter_out=1 iter_in=1", `\n${GEMM}`]], /^wgt tiles 0\.\.1: .* no chain of tokens orders them$/],
    ],
  },
  {
    right: [[SHIFT, `alu.max imm=0 uop_end=1 iter_out=1 iter_in=1\n${SHIFT}`]],
    wrong: [
      [[], /^out 0, value 3, is -34, not 0$/],
      [[[SHIFT, `${SHIFT}\nalu.max imm=0 uop_end=1 iter_out=1 iter_in=1`]], /^acc tiles 0\.\.1: .* no chain of tokens orders them$/],
      [[[SHIFT, `alu.min imm=0 uop_end=1 iter_out=1 iter_in=1\n${SHIFT}`]], /^out 0, value 0, is 0, not 34$/],
    ],
  },
  {
    right: [["gemm reset uop_end=1 iter_out=1 iter_in=1", "load.acc x_size=1 y_size=1 x_stride=1"]],
    wrong: [
      [[], /^out 0, value 0, is 34, not 59$/],
      [[["gemm reset", "load.acc x_size=1 y_size=1 x_stride=1\ngemm reset"]], /^out 0, value 0, is 34, not 59$/],
      [[["gemm reset uop_end=1 iter_out=1 iter_in=1", "load.acc x_size=1 y_size=1 x_stride=1 pop_prev"]], /^deadlock in cycle/],
    ],
  },
  {
    right: [
      [".uop 0  dst=0 src=0 wgt=0", ".uop 0  dst=0 src=0 wgt=0\n.uop 1  dst=0 src=1 wgt=1"],
      [/x_size=1 y_size=1 x_stride=1\n/g, "x_size=2 y_size=1 x_stride=2\n"],
      ["x_size=1 y_size=1 x_stride=1 push_next", "x_size=2 y_size=1 x_stride=2 push_next"],
      [GEMM, "gemm uop_end=2 iter_out=1 iter_in=1 pop_prev"],
    ],
    wrong: [
      [[], /^out 0, value 0, is 17, not 66$/],
      [[[GEMM, "gemm uop_end=2 iter_out=1 iter_in=1 pop_prev"]], /^out 0, value 0, is/],
    ],
  },
  {
    right: [
      [/gemm uop_bgn=0 uop_end=1 [^\n]*\ngemm uop_bgn=1[^\n]*\ngemm uop_bgn=2[^\n]*\ngemm uop_bgn=3[^\n]*/, "gemm uop_end=1 iter_out=4 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev"],
    ],
    wrong: [
      [[], /^11 instructions: the task allows 8$/],
      [[[/gemm uop_bgn=0 uop_end=1 [^\n]*\ngemm uop_bgn=1[^\n]*\ngemm uop_bgn=2[^\n]*\ngemm uop_bgn=3[^\n]*/, "gemm uop_end=1 iter_out=4 iter_in=1 dst_factor_out=1 pop_prev"]], /^out 1, value 0, is 4, not 8$/],
    ],
  },
  {
    right: [[/(load\.inp sram[^\n]*\n)+/, "load.inp x_size=16 y_size=1 x_stride=16\n"]],
    wrong: [
      [[], /^\d+ cycles: the task allows 330$/],
      [[[/(load\.inp sram[^\n]*\n)+/, "load.inp x_size=15 y_size=1 x_stride=15\n"]], /^out 15, value 0, is 0, not 16$/],
    ],
  },
  {
    right: [[/load\.uop[\s\S]*/, HALVES]],
    wrong: [
      [[], /^\d+ cycles: the task allows 500$/],
      [[[/load\.uop[\s\S]*/, HALVES.replace("x_stride=32 push_next\nload.inp", "x_stride=32\nload.inp")]], /^deadlock in cycle/],
      [[[/load\.uop[\s\S]*/, HALVES.replace("src_factor_out=1 pop_prev\nalu.shr imm=2 uop_bgn", "src_factor_out=1\nalu.shr imm=2 uop_bgn")]], /^1 token\(s\) left from load to compute at the end$/],
    ],
  },
  {
    right: [
      ["load.inp sram_base=0  dram_base=32 x_size=16 y_size=1 x_stride=16 push_next", "load.inp sram_base=0  dram_base=32 x_size=16 y_size=1 x_stride=16 pop_next push_next"],
      ["iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev\n.uop", "iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev push_prev\n.uop"],
    ],
    wrong: [
      [[], /^inp tiles 0\.\.16: .* no chain of tokens orders them$/],
      [[["dram_base=32 x_size=16 y_size=1 x_stride=16 push_next", "dram_base=32 x_size=16 y_size=1 x_stride=16 pop_next push_next"]], /^deadlock in cycle/],
      [[["sram_base=0  dram_base=32", "sram_base=16 dram_base=32"]], /^inp tiles 16\.\.32: .* no chain of tokens orders them$/],
    ],
  },
];

function changed(text: string, changes: Change[]): string {
  return changes.reduce((now, [from, to]) => {
    const next = now.replace(from, to);
    assert.notEqual(next, now, `nothing matches ${from}`);
    return next;
  }, text);
}

test("there are answers to ten lessons", () => {
  assert.equal(LESSONS.length, 10);
  assert.equal(ANSWERS.length, 10);
});

for (const [i, lesson] of LESSONS.entries()) {
  test(`lesson ${i + 1}, ${lesson.title}`, async () => {
    const { right, wrong } = ANSWERS[i]!;
    const found = await check(lesson, changed(lesson.start, right), engine);
    assert.ok(found.right, found.words);
    assert.match(found.words, /^Right, in \d+ cycles\.$/);
    for (const [changes, words] of wrong) {
      const verdict = await check(lesson, changed(lesson.start, changes), engine);
      assert.equal(verdict.right, false, `right with ${JSON.stringify(changes)}`);
      assert.match(verdict.words, words);
    }
  });
}
