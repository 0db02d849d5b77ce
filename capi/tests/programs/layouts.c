/* In configurations whose scratchpads have other depths, the original's bit fields have other widths. Programs that a
 * compiler of C packed so compute what plain loops compute; configurations without such words are refused by name. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vta.h>
#include <vta/driver.h>

typedef struct {
  unsigned deps, reset, uop_bgn, uop_end, out, in, dst_out, dst_in, src_out, src_in, wgt_out, wgt_in, op, use_imm;
  int imm;
} Loop;

/* How one configuration packs: bits of no field hold garbage, as in streams of the original's runtime. */
typedef struct {
  void (*gemm)(void *, Loop), (*alu)(void *, Loop);
  uint32_t (*uop)(unsigned, unsigned, unsigned);
  unsigned uops, inps, wgts, accs;
} Packing;

#define MAX(A, B) ((A) > (B) ? (A) : (B))
#define PACKING(NAME, U, I, W, A)                                                                                    \
  static void NAME##_gemm(void *to, Loop v) {                                                                        \
    __extension__ struct {                                                                                           \
      uint64_t opcode : 3, deps : 4, reset : 1, uop_bgn : U, uop_end : U + 1, out : 14, in : 14, dst_out : A,        \
          dst_in : A, src_out : I, src_in : I, wgt_out : W, wgt_in : W;                                              \
    } gemm;                                                                                                          \
    memset(&gemm, 0xff, sizeof gemm);                                                                                \
    gemm.opcode = 2, gemm.deps = v.deps, gemm.reset = v.reset, gemm.uop_bgn = v.uop_bgn, gemm.uop_end = v.uop_end;   \
    gemm.out = v.out, gemm.in = v.in, gemm.dst_out = v.dst_out, gemm.dst_in = v.dst_in, gemm.src_out = v.src_out;    \
    gemm.src_in = v.src_in, gemm.wgt_out = v.wgt_out, gemm.wgt_in = v.wgt_in;                                        \
    memcpy(to, &gemm, sizeof gemm);                                                                                  \
  }                                                                                                                  \
  static void NAME##_alu(void *to, Loop v) {                                                                         \
    __extension__ struct {                                                                                           \
      uint64_t opcode : 3, deps : 4, reset : 1, uop_bgn : U, uop_end : U + 1, out : 14, in : 14, dst_out : A,        \
          dst_in : A, src_out : A, src_in : A, op : 3, use_imm : 1;                                                  \
      int64_t imm : 16;                                                                                              \
    } alu;                                                                                                           \
    memset(&alu, 0xff, sizeof alu);                                                                                  \
    alu.opcode = 4, alu.deps = v.deps, alu.uop_bgn = v.uop_bgn, alu.uop_end = v.uop_end, alu.out = v.out;            \
    alu.in = v.in, alu.dst_out = v.dst_out, alu.dst_in = v.dst_in, alu.src_out = v.src_out, alu.src_in = v.src_in;   \
    alu.op = v.op, alu.use_imm = v.use_imm, alu.imm = v.imm;                                                         \
    memcpy(to, &alu, sizeof alu);                                                                                    \
  }                                                                                                                  \
  static uint32_t NAME##_uop(unsigned dst, unsigned src, unsigned wgt) {                                             \
    struct {                                                                                                         \
      uint32_t dst : A, src : MAX(A, I), wgt : W;                                                                    \
    } uop;                                                                                                           \
    uint32_t word;                                                                                                   \
    memset(&uop, 0xff, sizeof uop);                                                                                  \
    uop.dst = dst, uop.src = src, uop.wgt = wgt;                                                                     \
    memcpy(&word, &uop, sizeof word);                                                                                \
    return word;                                                                                                     \
  }                                                                                                                  \
  static const Packing NAME = {NAME##_gemm, NAME##_alu, NAME##_uop, 1u << U, 1u << I, 1u << W, 1u << A};

PACKING(usual, 13, 11, 10, 11)
PACKING(few_uops, 11, 11, 10, 11)
PACKING(fewer_uops, 8, 11, 10, 11)
PACKING(fewest_uops, 5, 11, 10, 11)
PACKING(inputs, 13, 9, 10, 11)
PACKING(weights, 13, 11, 8, 11)
PACKING(sums, 13, 11, 10, 9)
PACKING(all, 4, 6, 5, 4)
PACKING(large_blocks, 13, 10, 8, 10)

/* The depth of a scratchpad is its size over that of an element: with blocks of 32, weights have four times the
 * bytes, inputs and sums twice. What has no packing is refused, and `named` in the reason. */
static const struct {
  const char *keys;
  unsigned block;
  const Packing *packing;
  const char *named;
} CASES[] = {
    {"", 16, &usual, 0},
    {"\"LOG_UOP_BUFF_SIZE\":13", 16, &few_uops, 0},
    {"\"LOG_UOP_BUFF_SIZE\":10", 16, &fewer_uops, 0},
    {"\"LOG_UOP_BUFF_SIZE\":7", 16, &fewest_uops, 0},
    {"\"LOG_INP_BUFF_SIZE\":13", 16, &inputs, 0},
    {"\"LOG_WGT_BUFF_SIZE\":16", 16, &weights, 0},
    {"\"LOG_ACC_BUFF_SIZE\":15", 16, &sums, 0},
    {"\"LOG_UOP_BUFF_SIZE\":6,\"LOG_INP_BUFF_SIZE\":10,\"LOG_WGT_BUFF_SIZE\":13,\"LOG_ACC_BUFF_SIZE\":10", 16, &all, 0},
    {"\"LOG_BLOCK\":5", 32, &large_blocks, 0},
    {"\"LOG_WGT_BUFF_SIZE\":8", 16, NULL, "LOG_WGT_BUFF_SIZE"},
    {"\"LOG_ACC_BUFF_SIZE\":18", 16, NULL, "LOG_ACC_BUFF_SIZE"},
};

/* A LOAD (0) or STORE (1) of neighbouring tiles or micro-ops. */
static void move(void *to, unsigned opcode, unsigned deps, unsigned type, unsigned sram, uint32_t dram,
                 unsigned count) {
  __extension__ struct {
    uint64_t opcode : 3, deps : 4, type : 3, sram : 16, dram : 32, y : 16, x : 16, stride : 16, pads : 16;
  } mem;
  memset(&mem, 0xff, sizeof mem);
  mem.opcode = opcode, mem.deps = deps, mem.type = type, mem.sram = sram, mem.dram = dram;
  mem.y = 1, mem.x = count, mem.stride = count, mem.pads = 0;
  memcpy(to, &mem, sizeof mem);
}

enum { POP_PREV = 1, POP_NEXT = 2, PUSH_PREV = 4, PUSH_NEXT = 8 };
enum { UOP = 0, WGT = 1, INP = 2, OUT = 4, TILES = 8, MOST = 32 };

/* Eight tiles of each kind: four from 0 on, four from the middle of the scratchpad on. */
typedef struct {
  unsigned char (*insns)[16];
  uint32_t *uops;
  int8_t *inp, *wgt, *out;
} Buffers;

typedef struct {
  unsigned dst, src, wgt;
} Uop;

static unsigned packed(const Packing *packing, unsigned block, Buffers at, Loop loop, const Uop uops[2]) {
  unsigned n = 0, tile = block, square = block * block;
  uint32_t inp = VTAMemGetPhyAddr(at.inp) / tile, wgt = VTAMemGetPhyAddr(at.wgt) / square;
  uint32_t out = VTAMemGetPhyAddr(at.out) / tile;
  for (int i = 0; i < 2; i++) at.uops[i] = packing->uop(uops[i].dst, uops[i].src, uops[i].wgt);
  move(at.insns[n++], 0, 0, UOP, loop.uop_bgn, VTAMemGetPhyAddr(at.uops) / 4, 2);
  move(at.insns[n++], 0, 0, INP, 0, inp, 4);
  move(at.insns[n++], 0, 0, INP, packing->inps / 2, inp + 4, 4);
  move(at.insns[n++], 0, 0, WGT, 0, wgt, 4);
  move(at.insns[n++], 0, PUSH_NEXT, WGT, packing->wgts / 2, wgt + 4, 4);
  Loop reset = loop, add = loop, larger = loop, shift = loop;
  reset.reset = 1;
  packing->gemm(at.insns[n++], reset);
  loop.deps = POP_PREV;
  packing->gemm(at.insns[n++], loop);
  add.op = 2, add.use_imm = 1, add.imm = -77;
  packing->alu(at.insns[n++], add);
  larger.op = 1, larger.src_out = 1, larger.src_in = 0;
  packing->alu(at.insns[n++], larger);
  shift.op = 3, shift.use_imm = 1, shift.imm = 3, shift.deps = PUSH_NEXT;
  packing->alu(at.insns[n++], shift);
  move(at.insns[n++], 1, POP_PREV, OUT, 0, out, 4);
  move(at.insns[n++], 1, PUSH_PREV, OUT, packing->accs / 2, out + 4, 4);
  memset(at.insns[n], 0xff, 16);
  at.insns[n++][0] = 3 | POP_NEXT << 3 | 0x80;
  return n;
}

/* What the program leaves of the tiles in `out`, by definition. */
static void expected(const Packing *packing, unsigned block, Buffers at, Loop loop, const Uop uops[2], int8_t *out) {
  static int32_t acc[2048][MOST];
  memset(acc, 0, sizeof acc);
#define TILE(INDEX, DEPTH) ((INDEX) < 4 ? (INDEX) : (INDEX) - (DEPTH) / 2 + 4)
  for (int step = 0; step < 5; step++)
    for (unsigned i = 0; i < loop.out; i++)
      for (unsigned j = 0; j < loop.in; j++)
        for (int u = 0; u < 2; u++) {
          int32_t *dst = acc[uops[u].dst + i * loop.dst_out + j * loop.dst_in];
          const int32_t *other = acc[uops[u].src + i];
          const int8_t *inp = at.inp + block * TILE(uops[u].src + i * loop.src_out + j * loop.src_in, packing->inps);
          const int8_t *wgt =
              at.wgt + block * block * TILE(uops[u].wgt + i * loop.wgt_out + j * loop.wgt_in, packing->wgts);
          for (unsigned o = 0; o < block; o++) {
            if (step == 0) dst[o] = 0;
            if (step == 1)
              for (unsigned k = 0; k < block; k++) dst[o] += inp[k] * wgt[o * block + k];
            if (step == 2) dst[o] -= 77;
            if (step == 3 && other[o] > dst[o]) dst[o] = other[o];
            if (step == 4) dst[o] >>= 3;
          }
        }
  for (unsigned tile = 0; tile < TILES; tile++)
    for (unsigned o = 0; o < block; o++)
      out[tile * block + o] = (int8_t)acc[tile < 4 ? tile : packing->accs / 2 + tile - 4][o];
}

/* Runs a program whose indices reach the upper half of all scratchpads, with other micro-ops, and with another factor
 * at the same address. */
static int compute(VTADeviceHandle device, const Packing *packing, unsigned block) {
  Buffers at = {VTAMemAlloc(64 * 16, 0), VTAMemAlloc(64, 0), VTAMemAlloc(TILES * block, 0),
                VTAMemAlloc(TILES * block * block, 0), VTAMemAlloc(TILES * block, 0)};
  for (unsigned i = 0; i < TILES * block; i++) at.inp[i] = (int8_t)(i * 37 % 251);
  for (unsigned i = 0; i < TILES * block * block; i++) at.wgt[i] = (int8_t)(i * 91 % 253);
  Loop far = {0, 0, packing->uops - 2, packing->uops, 2, 2, packing->accs / 2, 1, packing->inps / 2, 1,
              packing->wgts / 2, 1, 0, 0, 0};
  /* With 256 micro-ops, all that differs is a bit that no field of this project's has. */
  Loop near = far;
  near.dst_out = 0;
  const Uop uops[2][2] = {{{0, 1, 2}, {2, 2, 1}}, {{0, 0, 0}, {2, 1, 2}}};
  static const int ORDER[] = {0, 0, 1, 1, 0, 2, 0};
  int8_t wanted[TILES * MOST];
  for (unsigned run = 0; run < sizeof ORDER / sizeof *ORDER; run++) {
    Loop loop = ORDER[run] == 2 ? near : far;
    const Uop *two = uops[ORDER[run] == 1];
    unsigned count = packed(packing, block, at, loop, two);
    memset(at.out, 0x55, TILES * block);
    if (VTADeviceRun(device, VTAMemGetPhyAddr(at.insns), count, 0)) return 1;
    expected(packing, block, at, loop, two, wanted);
    /* What a run with another factor leaves of the tiles that it doesn't reach is that of the run before. */
    if (memcmp(at.out, wanted, (ORDER[run] == 2 ? 4 : TILES) * block)) {
      fprintf(stderr, "run %u differs\n", run);
      return 1;
    }
  }
  /* A program that stores to its own micro-ops is refused, and the next one runs. */
  Buffers onto = at;
  onto.out = (int8_t *)at.uops;
  unsigned count = packed(packing, block, onto, far, uops[0]);
  int refused = VTADeviceRun(device, VTAMemGetPhyAddr(at.insns), count, 0) && strstr(vta_last_error(), "micro-ops");
  if (refused != (packing != &usual)) return 1;
  count = packed(packing, block, at, far, uops[0]);
  return VTADeviceRun(device, VTAMemGetPhyAddr(at.insns), count, 0);
}

/* In a process of its own: there is one device in each. */
static int try(const char *file, size_t at) {
  FILE *config = fopen(file, "w");
  if (!config) return 2;
  fprintf(config, "{%s}", CASES[at].keys);
  if (fclose(config)) return 2;
  setenv("VTA_CONFIG", file, 1);
  VTADeviceHandle device = VTADeviceAlloc();
  if (!CASES[at].packing) return device || !strstr(vta_last_error(), CASES[at].named);
  return device ? compute(device, CASES[at].packing, CASES[at].block) : 1;
}

/* The device is the argument. */
int main(int argc, char **argv) {
  if (argc > 1) setenv("VTA_DEVICE", argv[1], 1);
  int failed = 0, status = 0;
  for (size_t at = 0; at < sizeof CASES / sizeof *CASES; at++) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(try("config.json", at));
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    printf("{%s}: %s\n", CASES[at].keys, status ? "wrong" : "right");
    failed |= status != 0;
  }
  return failed;
}
