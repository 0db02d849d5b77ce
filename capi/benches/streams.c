/*
 * Convolutions of ResNet-18 over vta/runtime.h with tiles of one, as the original's compiler lays them out where it has
 * no tuned schedule: a product of one output tile and one block of inputs at a time, and ALU steps of single tiles.
 *
 *   cc -O2 -Icapi/include capi/benches/streams.c -Ltarget/release -lvta -o streams
 *   streams LAYER RUNS
 *
 * Linked with the original's runtime.cc and simulator instead, it runs there. Each run prints the milliseconds of the
 * processor that it took, and a hash of what it computed. Inputs differ from run to run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <vta/runtime.h>

enum { LOAD = 1, COMPUTE = 2, STORE = 3 };
enum { WGT = 1, INP = 2, ACC = 3, OUT = 4, BLOCK = 16 };

static const struct layer {
  const char *name;
  int size, in, out, kernel, pad, stride;
} LAYERS[] = {
    {"C2", 56, 64, 64, 3, 1, 1},    {"C3", 56, 64, 128, 3, 1, 2},   {"C4", 56, 64, 128, 1, 0, 2},
    {"C5", 28, 128, 128, 3, 1, 1},  {"C6", 28, 128, 256, 3, 1, 2},  {"C7", 28, 128, 256, 1, 0, 2},
    {"C8", 14, 256, 256, 3, 1, 1},  {"C9", 14, 256, 512, 3, 1, 2},  {"C10", 14, 256, 512, 1, 0, 2},
    {"C11", 7, 512, 512, 3, 1, 1},
};

static struct layer layer;
static void *kernels[6];

static int reset(void *signature) {
  (void)signature;
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  return 0;
}

static int multiply(void *signature) {
  (void)signature;
  VTAUopLoopBegin(layer.kernel, 0, 1, 1);
  VTAUopLoopBegin(layer.kernel, 0, layer.kernel, layer.kernel);
  VTAUopPush(0, 0, 0, 0, 0, 0, 0, 0);
  VTAUopLoopEnd();
  VTAUopLoopEnd();
  return 0;
}

static int shift(void *signature) {
  (void)signature;
  VTAUopPush(1, 0, 0, 0, 0, 3, 1, 8);
  return 0;
}

static int bias(void *signature) {
  (void)signature;
  VTAUopPush(1, 0, 0, 1, 0, 2, 0, 0);
  return 0;
}

static int from_0(void *signature) {
  (void)signature;
  VTAUopPush(1, 0, 0, 0, 0, 1, 1, 0);
  return 0;
}

static int to_127(void *signature) {
  (void)signature;
  VTAUopPush(1, 0, 0, 0, 0, 0, 1, 127);
  return 0;
}

struct buffers {
  void *in, *weights, *bias, *out;
};

static int beyond(int at, int end) { return at > end ? at - end : 0; }

/* The patch that an output reads, of one block of inputs, and the weights that it is multiplied by. */
static void product(void *cmd, const struct buffers *b, int y, int x, int in, int out) {
  int k = layer.kernel, size = layer.size;
  int above = beyond(0, y), left = beyond(0, x), below = beyond(y + k, size), right = beyond(x + k, size);
  int first = (in * size + y + above) * size + x + left;
  VTADepPop(cmd, COMPUTE, LOAD);
  VTALoadBuffer2D(cmd, b->in, first, k - left - right, k - above - below, size, left, above, right, below, 0, INP);
  VTALoadBuffer2D(cmd, b->weights, (out * (layer.in / BLOCK) + in) * k * k, k * k, 1, k * k, 0, 0, 0, 0, 0, WGT);
  VTADepPush(cmd, LOAD, COMPUTE);
  VTADepPop(cmd, LOAD, COMPUTE);
  VTAPushGEMMOp(&kernels[1], multiply, NULL, 0);
  VTADepPush(cmd, COMPUTE, LOAD);
}

static void convolution(const struct buffers *b, int outputs) {
  void *cmd = VTATLSCommandHandle();
  VTADepPush(cmd, STORE, COMPUTE);
  for (int y = 0; y < outputs; y++) {
    for (int out = 0; out < layer.out / BLOCK; out++) {
      for (int x = 0; x < outputs; x++) {
        VTADepPop(cmd, STORE, COMPUTE);
        VTAPushGEMMOp(&kernels[0], reset, NULL, 0);
        VTADepPush(cmd, COMPUTE, LOAD);
        for (int in = 0; in < layer.in / BLOCK; in++) {
          product(cmd, b, y * layer.stride - layer.pad, x * layer.stride - layer.pad, in, out);
        }
        VTADepPop(cmd, COMPUTE, LOAD);
        VTAPushALUOp(&kernels[2], shift, NULL, 0);
        VTALoadBuffer2D(cmd, b->bias, out, 1, 1, 1, 0, 0, 0, 0, 1, ACC);
        VTAPushALUOp(&kernels[3], bias, NULL, 0);
        VTAPushALUOp(&kernels[4], from_0, NULL, 0);
        VTAPushALUOp(&kernels[5], to_127, NULL, 0);
        VTADepPush(cmd, COMPUTE, STORE);
        VTADepPop(cmd, COMPUTE, STORE);
        VTAStoreBuffer2D(cmd, 0, OUT, b->out, (out * outputs + y) * outputs + x, 1, 1, outputs);
        VTADepPush(cmd, STORE, COMPUTE);
      }
    }
  }
  VTADepPop(cmd, STORE, COMPUTE);
  VTASynchronize(cmd, 1u << 31);
}

static double processor_ms(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

/* A buffer whose every `step`th byte looks random; the others are 0. */
static void fill(void *buffer, size_t bytes, size_t step) {
  static uint32_t seed = 1;
  uint8_t *values = calloc(bytes, 1);
  for (size_t at = 0; values && at < bytes; at += step) {
    seed = seed * 1664525u + 1013904223u;
    values[at] = seed >> 24;
  }
  VTABufferCopy(values, 0, buffer, 0, bytes, VTA_MEMCPY_H2D);
  free(values);
}

int main(int argc, char **argv) {
  int runs = argc > 2 ? atoi(argv[2]) : 3;
  for (size_t at = 0; at < sizeof LAYERS / sizeof *LAYERS; at++) {
    layer = argc > 1 && strcmp(argv[1], LAYERS[at].name) == 0 ? LAYERS[at] : layer;
  }
  if (!layer.name) {
    fputs("usage: streams C2..C11 [RUNS]\n", stderr);
    return 2;
  }
  int outputs = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
  size_t in = (size_t)layer.size * layer.size * layer.in, out = (size_t)outputs * outputs * layer.out;
  size_t weights = (size_t)layer.in * layer.out * layer.kernel * layer.kernel;
  struct buffers b = {VTABufferAlloc(in), VTABufferAlloc(weights), VTABufferAlloc(4 * layer.out), VTABufferAlloc(out)};
  uint8_t *found = malloc(out);
  fill(b.weights, weights, 1);
  fill(b.bias, 4 * layer.out, 4);
  for (int run = 0; found && run < runs; run++) {
    fill(b.in, in, 1);
    double before = processor_ms();
    convolution(&b, outputs);
    double ms = processor_ms() - before;
    uint64_t hash = 14695981039346656037u;
    VTABufferCopy(b.out, 0, found, 0, out, VTA_MEMCPY_D2H);
    for (size_t at = 0; at < out; at++) {
      hash = (hash ^ found[at]) * 1099511628211u;
    }
    printf("%d %.2f ms %016llx\n", run, ms, (unsigned long long)hash);
  }
  free(found);
  return 0;
}
