/* Programs of one instruction kind each, as the original's instruction tests build them through its runtime
 * interface, compared with plain arithmetic. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vta.h>
#include <vta/runtime.h>

enum { BLOCK = 16, LOAD_STAGE = 1, COMPUTE_STAGE = 2, STORE_STAGE = 3 };
enum { WGT = 1, INP = 2, ACC = 3, OUT = 4 };
enum { MIN = 0, MAX = 1, ADD = 2, SHR = 3 };

static int checked;

static void check(int good, const char *what, int at, int found, int expected)
{
    checked++;
    if (!good) {
        fprintf(stderr, "%s: value %d is %d, not %d; %s\n", what, at, found, expected, vta_last_error());
        exit(1);
    }
}

static unsigned seed = 12345;

static int noise(int range)
{
    seed = seed * 1103515245u + 12345u;
    return (int)((seed >> 16) % (2 * (unsigned)range + 1)) - range;
}

static VTACommandHandle begin(void)
{
    VTACommandHandle cmd = VTATLSCommandHandle();
    check(cmd != NULL, "handle", 0, 0, 1);
    return cmd;
}

static void compute_to_store(VTACommandHandle cmd)
{
    check(VTADepPush(cmd, COMPUTE_STAGE, STORE_STAGE) == 0, "push", 0, 1, 0);
    check(VTADepPop(cmd, COMPUTE_STAGE, STORE_STAGE) == 0, "pop", 0, 1, 0);
}

/* A kernel of one ALU micro-op over so many tiles. */
struct alu {
    unsigned tiles, opcode, use_imm, src;
    int imm;
};

static int alu_kernel(void *signature)
{
    const struct alu *alu = signature;
    VTAUopLoopBegin(alu->tiles, 1, 1, 0);
    VTAUopPush(1, 0, 0, alu->src, 0, alu->opcode, alu->use_imm, alu->imm);
    VTAUopLoopEnd();
    return 0;
}

static int recorded;

static int counted_kernel(void *signature)
{
    recorded++;
    return alu_kernel(signature);
}

/* Tiles of accumulators through a chain of ALU operations, the second operand in the tiles behind. */
static void alu_chain(void)
{
    enum { TILES = 7, VALUES = TILES * BLOCK };
    static void *place;
    VTACommandHandle cmd = begin();
    int32_t *a = VTABufferAlloc(VALUES * sizeof *a), *b = VTABufferAlloc(VALUES * sizeof *b);
    int8_t *out = VTABufferAlloc(VALUES);
    int32_t host[VALUES];
    for (int i = 0; i < VALUES; i++) {
        host[i] = noise(3000);
        b[i] = noise(3000);
    }
    VTABufferCopy(host, 0, a, 0, sizeof host, VTA_MEMCPY_H2D);
    check(VTABufferCPUPtr(cmd, a) == a, "pointer", 0, 0, 1);
    for (int round = 0; round < 2; round++) {
        struct alu chain[] = {
            {TILES, ADD, 0, TILES, 0}, {TILES, SHR, 1, 0, 3},  {TILES, MAX, 0, TILES, 0},
            {TILES, SHR, 1, 0, 4},     {TILES, MIN, 1, 0, 100}, {TILES, MAX, 1, 0, -100},
        };
        VTALoadBuffer2D(cmd, a, 0, TILES, 1, TILES, 0, 0, 0, 0, 0, ACC);
        VTALoadBuffer2D(cmd, b, 0, TILES, 1, TILES, 0, 0, 0, 0, TILES, ACC);
        for (size_t k = 0; k < sizeof chain / sizeof *chain; k++)
            check(VTAPushALUOp(&place, counted_kernel, &chain[k], sizeof chain[k]) == 0, "alu", (int)k, 1, 0);
        compute_to_store(cmd);
        VTAStoreBuffer2D(cmd, 0, OUT, out, 0, TILES, 1, TILES);
        VTASynchronize(cmd, 1 << 20);
        for (int i = 0; i < VALUES; i++) {
            int v = (host[i] + b[i]) >> 3;
            v = v > b[i] ? v : b[i];
            v >>= 4;
            v = v < 100 ? v : 100;
            v = v > -100 ? v : -100;
            check(out[i] == v, "alu chain", i, out[i], v);
        }
        memset(out, 0, VALUES);
    }
    /* The second round found its kernels by their signatures. */
    check(recorded == 6, "recorded", 0, recorded, 6);
    VTABufferFree(a);
    VTABufferFree(b);
    VTABufferFree(out);
}

struct gemm {
    unsigned rows, inner, reset;
};

static int gemm_kernel(void *signature)
{
    const struct gemm *gemm = signature;
    VTAUopLoopBegin(gemm->rows, 1, gemm->inner, 0);
    if (!gemm->reset)
        VTAUopLoopBegin(gemm->inner, 0, 1, 1);
    VTAUopPush(0, gemm->reset, 0, 0, 0, 0, 0, 0);
    if (!gemm->reset)
        VTAUopLoopEnd();
    VTAUopLoopEnd();
    return 0;
}

/* ROWS vectors of INNER tiles times a matrix, shifted and stored. */
static void gemm(int debug)
{
    enum { ROWS = 5, INNER = 3 };
    static void *clear_place, *gemm_place, *shift_place;
    VTACommandHandle cmd = begin();
    int8_t *inp = VTABufferAlloc(ROWS * INNER * BLOCK), *wgt = VTABufferAlloc(INNER * BLOCK * BLOCK);
    int8_t *out = VTABufferAlloc(ROWS * BLOCK);
    struct gemm clear = {ROWS, INNER, 1}, multiply = {ROWS, INNER, 0};
    struct alu shift = {ROWS, SHR, 1, 0, 8};
    for (int i = 0; i < ROWS * INNER * BLOCK; i++)
        inp[i] = (int8_t)noise(127);
    for (int i = 0; i < INNER * BLOCK * BLOCK; i++)
        wgt[i] = (int8_t)noise(16);
    VTASetDebugMode(cmd, debug);
    VTAWriteBarrier(cmd, inp, 8, 0, ROWS * INNER * BLOCK);
    check(VTAPushGEMMOp(&clear_place, gemm_kernel, &clear, sizeof clear) == 0, "clear", 0, 1, 0);
    VTALoadBuffer2D(cmd, wgt, 0, INNER, 1, INNER, 0, 0, 0, 0, 0, WGT);
    VTALoadBuffer2D(cmd, inp, 0, ROWS * INNER, 1, ROWS * INNER, 0, 0, 0, 0, 0, INP);
    VTADepPush(cmd, LOAD_STAGE, COMPUTE_STAGE);
    VTADepPop(cmd, LOAD_STAGE, COMPUTE_STAGE);
    check(VTAPushGEMMOp(&gemm_place, gemm_kernel, &multiply, sizeof multiply) == 0, "gemm", 0, 1, 0);
    check(VTAPushALUOp(&shift_place, alu_kernel, &shift, sizeof shift) == 0, "shift", 0, 1, 0);
    compute_to_store(cmd);
    VTAStoreBuffer2D(cmd, 0, OUT, out, 0, ROWS, 1, ROWS);
    VTASynchronize(cmd, 1 << 20);
    VTAReadBarrier(cmd, out, 8, 0, ROWS * BLOCK);
    VTASetDebugMode(cmd, 0);
    for (int row = 0; row < ROWS; row++)
        for (int o = 0; o < BLOCK; o++) {
            int sum = 0;
            for (int k = 0; k < INNER; k++)
                for (int i = 0; i < BLOCK; i++)
                    sum += inp[(row * INNER + k) * BLOCK + i] * wgt[(k * BLOCK + o) * BLOCK + i];
            check(out[row * BLOCK + o] == (int8_t)(sum >> 8), "gemm", row * BLOCK + o, out[row * BLOCK + o],
                  (int8_t)(sum >> 8));
        }
    VTABufferFree(inp);
    VTABufferFree(wgt);
    VTABufferFree(out);
}

/* A plane with zeros around it, as it comes back. */
static void padded_load(void)
{
    enum { Y = 4, X = 5, TOP = 2, BOTTOM = 1, LEFT = 3, RIGHT = 2 };
    enum { HEIGHT = TOP + Y + BOTTOM, WIDTH = LEFT + X + RIGHT, TILES = HEIGHT * WIDTH };
    static void *place;
    VTACommandHandle cmd = begin();
    int32_t *plane = VTABufferAlloc(2 * Y * X * BLOCK * sizeof *plane);
    int8_t *out = VTABufferAlloc(TILES * BLOCK), back[TILES * BLOCK];
    struct alu relu = {TILES, MAX, 1, 0, 0};
    for (int i = 0; i < 2 * Y * X * BLOCK; i++)
        plane[i] = noise(127);
    /* Every second row of tiles, from the second tile on. */
    VTALoadBuffer2D(cmd, plane, 1, X - 1, Y, 2 * X, LEFT, TOP, RIGHT + 1, BOTTOM, 0, ACC);
    check(VTAPushALUOp(&place, alu_kernel, &relu, sizeof relu) == 0, "relu", 0, 1, 0);
    compute_to_store(cmd);
    VTAStoreBuffer2D(cmd, 0, OUT, out, 0, TILES, 1, TILES);
    VTASynchronize(cmd, 1 << 20);
    VTABufferCopy(out, 0, back, 0, sizeof back, VTA_MEMCPY_D2H);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int o = 0; o < BLOCK; o++) {
                int inside = y >= TOP && y < TOP + Y && x >= LEFT && x < LEFT + X - 1;
                int at = (y * WIDTH + x) * BLOCK + o, value = 0;
                if (inside)
                    value = plane[((y - TOP) * 2 * X + 1 + x - LEFT) * BLOCK + o];
                value = value > 0 ? value : 0;
                check(back[at] == value, "padded load", at, back[at], value);
            }
    VTABufferFree(plane);
    VTABufferFree(out);
}

static int failing_kernel(void *signature)
{
    return *(int *)signature;
}

static int empty_kernel(void *signature)
{
    (void)signature;
    return 0;
}

static int nesting_kernel(void *signature)
{
    static void *inner;
    check(VTAPushALUOp(&inner, alu_kernel, signature, sizeof(struct alu)) == 1, "nested", 0, 0, 1);
    return alu_kernel(signature);
}

/* Calls that fail say why, and what is queued behind them doesn't run. */
static void refused(const char *what, const char *told)
{
    checked++;
    if (strstr(vta_last_error(), told) == NULL) {
        fprintf(stderr, "%s: '%s' doesn't say '%s'\n", what, vta_last_error(), told);
        exit(1);
    }
}

static void failures(void)
{
    static void *place;
    VTACommandHandle cmd = begin();
    int8_t *buffer = VTABufferAlloc(64);
    int three = 3;
    struct alu add = {1, ADD, 1, 0, 1};
    buffer[0] = 77;
    VTAUopPush(0, 0, 0, 0, 0, 0, 0, 0);
    refused("uop", "no kernel is recorded");
    check(VTAPushALUOp(&place, failing_kernel, &three, sizeof three) == 1, "kernel", 0, 0, 1);
    refused("kernel", "callback returned 3");
    VTAStoreBuffer2D(cmd, 0, OUT, buffer, 0, 1, 1, 1);
    VTASynchronize(cmd, 0);
    refused("synchronize", "nothing is run, since an instruction is missing");
    check(buffer[0] == 77, "buffer", 0, buffer[0], 77);
    check(VTAPushALUOp(&place, empty_kernel, &add, sizeof add) == 1, "empty", 0, 0, 1);
    refused("empty", "no micro-op");
    VTASynchronize(cmd, 0);
    check(VTAPushGEMMOp(&place, alu_kernel, &add, sizeof add) == 1, "mode", 0, 0, 1);
    refused("mode", "came through VTAPushGEMMOp");
    VTASynchronize(cmd, 0);
    check(VTAPushALUOp(&place, nesting_kernel, &add, sizeof add) == 0, "nesting", 0, 1, 0);
    VTASynchronize(cmd, 0);
    check(VTAPushALUOp(NULL, alu_kernel, &add, sizeof add) == 1, "place", 0, 0, 1);
    VTASynchronize(cmd, 0);
    check(VTADepPush(cmd, LOAD_STAGE, STORE_STAGE) == 1, "queue", 0, 0, 1);
    refused("queue", "no queue of tokens");
    VTASynchronize(cmd, 0);
    check(VTADepPop(cmd, 0, 9) == 1, "stage", 0, 0, 1);
    VTASynchronize(cmd, 0);
    VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 16, 0, 0, 0, 0, INP);
    refused("pad", "x_pad_0");
    VTASynchronize(cmd, 0);
    VTALoadBuffer2D(cmd, &three, 0, 1, 1, 1, 0, 0, 0, 0, 0, INP);
    refused("pointer", "not in one buffer");
    VTASynchronize(cmd, 0);
    VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, 9);
    refused("memory", "no memory type 9");
    VTASynchronize(cmd, 0);
    VTALoadBuffer2D(cmd, buffer, 0, 4096, 4, 4096, 0, 0, 0, 0, 0, ACC);
    VTASynchronize(cmd, 0);
    refused("run", "instruction");
    VTADepPop(cmd, COMPUTE_STAGE, STORE_STAGE);
    VTAStoreBuffer2D(cmd, 0, OUT, buffer, 0, 1, 1, 1);
    VTASynchronize(cmd, 0);
    refused("token", "token");
    VTABufferCopy(buffer, 0, buffer, 1 << 20, 1, VTA_MEMCPY_D2D);
    refused("copy", "not in one buffer");
    VTABufferCopy(buffer, 0, buffer, 0, 1, 9);
    refused("mask", "kind_mask 9");
    VTASynchronize((VTACommandHandle)(uintptr_t)999, 0);
    refused("handle", "is no handle of VTATLSCommandHandle");
    VTABufferFree(buffer);
    VTABufferFree(buffer);
    refused("free", "no buffer begins at");
}

int main(void)
{
    padded_load();
    alu_chain();
    gemm(0);
    gemm(VTA_DEBUG_FORCE_SERIAL);
    gemm(VTA_DEBUG_DUMP_INSN | VTA_DEBUG_DUMP_UOP);
    failures();
    /* After failures everything is as before. */
    alu_chain();
    VTARuntimeShutdown();
    gemm(0);
    printf("%d checks\n", checked);
    return 0;
}
