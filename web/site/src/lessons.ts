// Ten lessons, and what checks their tasks: the same checkers as on the command line, in this order.

import type { Fault, Overview, Ran, State } from "./types.ts";

export interface Lesson {
  title: string;
  /// Paragraphs, code between backticks.
  text: string;
  task: string;
  start: string;
  /// In place of the program's own values when the task is checked: micro-ops stay those of the program.
  data: string;
  /// The most instructions and cycles of a solution.
  most?: { insns?: number; cycles?: number };
}

export interface Verdict {
  right: boolean;
  words: string;
  /// The line that the words are about.
  line?: number;
}

/// The engine, in a worker or in node.
export interface Engine {
  fault(text: string): Promise<Fault | null>;
  program(text: string): Promise<Ran>;
}

const WEIGHTS = `.wgt 0  1*16                # output 0 sums all inputs
.wgt +  2*16                # output 1 twice that
.wgt +  0*15 1              # output 2 is the last input
.wgt +  -1*16               # output 3 the negative sum`;

const ONE = `.inp 0  1..16
${WEIGHTS}
.uop 0  dst=0 src=0 wgt=0   # acc[0] += inp[0] * wgt[0]`;

const LOADS = `load.uop x_size=1 y_size=1 x_stride=1
load.inp x_size=1 y_size=1 x_stride=1`;

const FOUR = `.inp 0  1*16 2*16 3*16 4*16
${WEIGHTS}`;

const QUARTERS = ".out 0  4 8 0 -4 0*12 8 16 0 -8 0*12 12 24 0 -12 0*12 16 32 1 -16 0*12";

const SIXTY_FOUR = `.inp 0  1*256 2*256 3*256 4*256
${WEIGHTS}
.uop 0  dst=0 src=0 wgt=0`;

/// What chunks of tiles of ones, twos and so on give.
function sums(each: number, chunks = 4): string {
  const outputs = [1, 2, 3, 4].slice(0, chunks).map((x) => `${4 * x} ${8 * x} ${Math.floor(x / 4)} ${-4 * x} 0*12 `.repeat(each));
  return `.out 0  ${outputs.join("")}`;
}

export const LESSONS: Lesson[] = [
  {
    title: "A first program",
    text: "Three LOADs bring a micro-op, an input tile and a weight tile. GEMM with `reset` clears sums, the next GEMM multiplies, `alu.shr` divides, STORE writes the low byte of each sum.\n\nStep through the cycles and watch the tiles fill.",
    task: "The program stores a quarter of each sum. Let it store an eighth.",
    start: `${ONE}

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev push_prev
finish pop_next
`,
    data: `.inp 0 1..16\n${WEIGHTS}\n.out 0 17 34 2 -17 0*12`,
  },
  {
    title: "A token that never comes",
    text: "Load, compute and store run at the same time. A `push` flag gives a token to a neighbour, a `pop` flag waits for one. FINISH here waits for a token that nobody gives: the machine stands still, which is a deadlock.",
    task: "Find the flag that is missing, so that the run ends after the result is stored.",
    start: `${ONE}

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev
finish pop_next
`,
    data: `.inp 0 1..16\n${WEIGHTS}\n.out 0 34 68 4 -34 0*12`,
  },
  {
    title: "A race",
    text: "Nothing makes this product wait for its weights. In the stepper the GEMM is done before the weights are there, so it multiplies with zeros. The hazard checker names both instructions.",
    task: "Make the product wait for the weights.",
    start: `${ONE}

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1
alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev push_prev
finish pop_next
`,
    data: `.inp 0 1..16\n${WEIGHTS}\n.out 0 34 68 4 -34 0*12`,
  },
  {
    title: "Clamp",
    text: "The ALU works on tiles of accumulators: `min`, `max`, `add`, `shr`, with a number (`imm=`) or another tile. Networks clamp negative values to zero (ReLU).",
    task: "Store zero where the sum is negative. The store must still wait for the last ALU instruction.",
    start: `${ONE}

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev push_prev
finish pop_next
`,
    data: `.inp 0 1..16\n${WEIGHTS}\n.out 0 34 68 4 0 0*12`,
  },
  {
    title: "A bias",
    text: "Sums needn't start from zero. `load.acc` brings int32 values into the accumulators. It runs in the compute module, in order with GEMM and ALU, so it needs no token.",
    task: "Let the sums start from the values of `.acc` in place of zero.",
    start: `${ONE}
.acc 0  100 -100 8 16 0*12

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev push_prev
finish pop_next
`,
    data: `.inp 0 1..16\n${WEIGHTS}\n.acc 0 100 -100 8 16 0*12\n.out 0 59 43 6 -30 0*12`,
  },
  {
    title: "Two micro-ops, one sum",
    text: "A tile has 16 inputs. A sum over 32 is two products with the same `dst`. Micro-ops say which tiles: a GEMM runs over those from `uop_bgn` to `uop_end`.",
    task: "There are two input tiles and two weight tiles. Add both products into accumulator tile 0.",
    start: `.inp 0  1..32
.wgt 0  1*16
.wgt 1  1*16
.uop 0  dst=0 src=0 wgt=0

${LOADS}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
alu.shr imm=3 uop_end=1 iter_out=1 iter_in=1 push_next
store x_size=1 y_size=1 x_stride=1 pop_prev push_prev
finish pop_next
`,
    data: ".inp 0 1..32\n.wgt 0 1*16 2*16 0*224\n.wgt 1 1*16 -1*16 0*224\n.out 0 66 -15 0*14",
  },
  {
    title: "Loops in place of instructions",
    text: "A GEMM repeats its micro-ops `iter_out` times `iter_in` times. After each trip of the outer loop, `dst_factor_out`, `src_factor_out` and `wgt_factor_out` are added to the tiles of the micro-ops.",
    task: "Four input tiles become four output tiles. Do it with at most 8 instructions.",
    start: `${FOUR}
.uop 0  dst=0 src=0 wgt=0
.uop 1  dst=1 src=1 wgt=0
.uop 2  dst=2 src=2 wgt=0
.uop 3  dst=3 src=3 wgt=0

load.uop x_size=4 y_size=1 x_stride=4
load.inp x_size=4 y_size=1 x_stride=4
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_bgn=0 uop_end=4 iter_out=1 iter_in=1
gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=1 pop_prev
gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=1
gemm uop_bgn=2 uop_end=3 iter_out=1 iter_in=1
gemm uop_bgn=3 uop_end=4 iter_out=1 iter_in=1
alu.shr imm=2 uop_bgn=0 uop_end=4 iter_out=1 iter_in=1 push_next
store x_size=4 y_size=1 x_stride=4 pop_prev push_prev
finish pop_next
`,
    data: `${FOUR}\n${QUARTERS}`,
    most: { insns: 8 },
  },
  {
    title: "Fewer, larger transfers",
    text: "Every transfer waits for the memory before its first byte comes. Sixteen LOADs of one tile wait sixteen times. `x_size` is how many tiles a row has.",
    task: "Store the same result within 330 cycles.",
    start: `.inp 0  1*64 2*64 3*64 4*64
${WEIGHTS}
.uop 0  dst=0 src=0 wgt=0

load.uop x_size=1 y_size=1 x_stride=1
${Array.from({ length: 16 }, (_, i) => `load.inp sram_base=${i} dram_base=${i} x_size=1 y_size=1 x_stride=1`).join("\n")}
load.wgt x_size=1 y_size=1 x_stride=1 push_next
gemm reset uop_end=1 iter_out=16 iter_in=1 dst_factor_out=1
gemm uop_end=1 iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=16 iter_in=1 dst_factor_out=1 push_next
store x_size=16 y_size=1 x_stride=16 pop_prev push_prev
finish pop_next
`,
    data: `.inp 0 1*64 2*64 3*64 4*64\n${WEIGHTS}\n${sums(4)}`,
    most: { cycles: 330 },
  },
  {
    title: "Load while computing",
    text: "This program loads all 64 input tiles, then computes, then stores. Each module idles while another works. Cut the work in two: compute on the first half while the second half is loaded, store the first while the second is computed.",
    task: "Store the same result within 500 cycles.",
    start: `${SIXTY_FOUR}

load.uop x_size=1 y_size=1 x_stride=1
load.wgt x_size=1 y_size=1 x_stride=1
load.inp x_size=64 y_size=1 x_stride=64 push_next
gemm reset uop_end=1 iter_out=64 iter_in=1 dst_factor_out=1
gemm uop_end=1 iter_out=64 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=64 iter_in=1 dst_factor_out=1 push_next
store x_size=64 y_size=1 x_stride=64 pop_prev push_prev
finish pop_next
`,
    data: `${SIXTY_FOUR.split("\n").slice(0, -1).join("\n")}\n${sums(16)}`,
    most: { cycles: 500 },
  },
  {
    title: "A tile that is used again",
    text: "Scratchpads are small, so programs use tiles again. This one has room for two chunks of 16 tiles: the third chunk goes where the first was. Nothing makes its LOAD wait until the first product has read them.\n\nCompute gives load a token with `push_prev`, load waits for it with `pop_next`.",
    task: "Order the third LOAD behind the first product, and stay within 620 cycles.",
    start: `${SIXTY_FOUR}

load.uop x_size=1 y_size=1 x_stride=1
load.wgt x_size=1 y_size=1 x_stride=1
load.inp sram_base=0  dram_base=0  x_size=16 y_size=1 x_stride=16 push_next
load.inp sram_base=16 dram_base=16 x_size=16 y_size=1 x_stride=16 push_next
load.inp sram_base=0  dram_base=32 x_size=16 y_size=1 x_stride=16 push_next
gemm reset uop_end=1 iter_out=48 iter_in=1 dst_factor_out=1
gemm uop_end=1 iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
.uop 1  dst=16 src=16 wgt=0
.uop 2  dst=32 src=0 wgt=0
load.uop sram_base=1 dram_base=1 x_size=2 y_size=1 x_stride=2
gemm uop_bgn=1 uop_end=2 iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
gemm uop_bgn=2 uop_end=3 iter_out=16 iter_in=1 dst_factor_out=1 src_factor_out=1 pop_prev
alu.shr imm=2 uop_end=1 iter_out=48 iter_in=1 dst_factor_out=1 push_next
store x_size=48 y_size=1 x_stride=48 pop_prev push_prev
finish pop_next
`,
    data: `${SIXTY_FOUR.split("\n").slice(0, -1).join("\n")}\n${sums(16, 3)}`,
    most: { cycles: 620 },
  },
];

/// The program with a lesson's values in place of its own. Lines keep their numbers.
export function withData(lesson: Lesson, text: string): string {
  const lines = text.split("\n").map((line) => (/^\s*\.(inp|wgt4?|acc8?|out)\b/.test(line) ? "" : line));
  return `${lines.join("\n")}\n${lesson.data}\n`;
}

/// The first value that isn't the expected one, in words.
export function wrong(state: State): string | null {
  for (const { element, values, expected } of state.out) {
    const at = expected.findIndex((value, i) => value !== null && value !== values[i]);
    if (at >= 0) return `out ${element}, value ${at}, is ${values[at]}, not ${expected[at]}`;
  }
  return null;
}

function stopped(overview: Overview): Verdict | null {
  if (!overview.stopped) return null;
  const line = overview.stuck_lines[0];
  return { right: false, words: overview.stopped, ...(line === undefined ? {} : { line }) };
}

/// Checks an answer. The first thing that is wrong is told.
export async function check(lesson: Lesson, text: string, engine: Engine): Promise<Verdict> {
  const fault = await engine.fault(text);
  if (fault) return { right: false, ...fault };
  let ran: Ran;
  try {
    ran = await engine.program(withData(lesson, text));
  } catch (error) {
    return { right: false, words: error instanceof Error ? error.message : String(error) };
  }
  const { overview, end } = ran;
  const ends = stopped(overview);
  if (ends) return ends;
  if (overview.faults[0]) return { right: false, words: overview.faults[0] };
  const hazard = overview.hazards[0];
  if (hazard) return { right: false, words: hazard.words, line: hazard.lines[1] };
  if (end.fault) return { right: false, words: end.fault };
  const expected = lesson.data.split("\n").some((line) => line.startsWith(".out"));
  if (expected && !end.out.length) return { right: false, words: "nothing is stored" };
  const value = wrong(end);
  if (value) return { right: false, words: value };
  const { insns, cycles } = lesson.most ?? {};
  if (insns && overview.insns.length > insns) return { right: false, words: `${overview.insns.length} instructions: the task allows ${insns}` };
  if (cycles && (overview.cycles ?? 0) > cycles) return { right: false, words: `${overview.cycles} cycles: the task allows ${cycles}` };
  return { right: true, words: `Right, in ${overview.cycles} cycles.` };
}
