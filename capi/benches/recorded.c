/*
 * A recorded run of the original over vta/driver.h of any library: what it takes run after run, by the clock or, with `cpu`,
 * of the processor by all threads, and whether the bytes that were recorded are there in the end.
 *
 *   cc -O2 capi/benches/recorded.c -ldl -o recorded
 *   recorded LIB RUN RUNS [cpu]
 *
 * RUN is a folder with insns.bin, dram_map.json, dram_before.bin and dram_after.bin, as in conformance/tvm. Buffers are
 * given by the library, and addresses of instructions are moved there. Nanoseconds are printed a line each.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 256 };

static char *folder;

static char *file(const char *name, size_t *size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *from = fopen(path, "rb");
  if (!from) perror(path), exit(2);
  fseek(from, 0, SEEK_END);
  *size = (size_t)ftell(from);
  rewind(from);
  char *bytes = malloc(*size + 1);
  if (fread(bytes, 1, *size, from) != *size) perror(path), exit(2);
  bytes[*size] = 0;
  fclose(from);
  return bytes;
}

/* The numbers of a key's list, whose keys have no digits. */
static int list(const char *json, const char *key, uint64_t *to) {
  const char *at = strstr(json, key);
  int count = 0, depth = 0;
  if (!at) fprintf(stderr, "%s: no %s\n", folder, key), exit(2);
  do {
    at += strcspn(at, "[]0123456789");
    if (*at >= '0' && *at <= '9') {
      if (count == MOST) fprintf(stderr, "%s: too many numbers\n", folder), exit(2);
      to[count++] = strtoull(at, (char **)&at, 10);
    } else {
      depth += *at++ == '[' ? 1 : -1;
    }
  } while (depth > 0);
  return count;
}

static uint64_t buffers[MOST], before[MOST], after[MOST], first, insns;
static int allocations;
static char *host[MOST];

static int holding(uint64_t phys) {
  for (int i = 0; i < allocations; i += 2)
    if (phys - buffers[i] < buffers[i + 1]) return i;
  fprintf(stderr, "%s: nothing at %#llx\n", folder, (unsigned long long)phys);
  exit(2);
}

/* What is left of an address's buffer, of so many bytes, and where it lies: a region may go over several. */
static char *part(uint64_t phys, uint64_t size, uint64_t *here) {
  int i = holding(phys);
  uint64_t left = buffers[i] + buffers[i + 1] - phys;
  *here = size < left ? size : left;
  return host[i] + (phys - buffers[i]);
}

static clockid_t which = CLOCK_MONOTONIC;

static uint64_t nanos(void) {
  struct timespec now;
  clock_gettime(which, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
  static uint64_t took[10000];
  static const uint64_t BYTES[8] = {4, 256, 16, 64, 16};
  int cpu = argc == 5 && !strcmp(argv[4], "cpu"), runs = argc == 4 + cpu ? atoi(argv[3]) : 0;
  if (runs < 1 || runs > 10000) return fputs("usage: recorded LIB RUN RUNS [cpu]\n", stderr), 2;
  folder = argv[2];
  if (cpu) which = CLOCK_PROCESS_CPUTIME_ID;
  /* Before the library is opened, so that what its opening leaves in the caches stays there. */
  memset(took, 1, sizeof took);
  void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
  void *(*alloc)(size_t, int) = dlsym(lib, "VTAMemAlloc");
  uint32_t (*phys)(void *) = dlsym(lib, "VTAMemGetPhyAddr");
  void (*copy)(void *, const void *, size_t) = dlsym(lib, "VTAMemCopyFromHost");
  void *(*open)(void) = dlsym(lib, "VTADeviceAlloc");
  int (*run)(void *, uint32_t, uint32_t, uint32_t) = dlsym(lib, "VTADeviceRun");
  size_t size;
  char *map = file("dram_map.json", &size), *old = file("dram_before.bin", &size);
  char *new = file("dram_after.bin", &size);
  uint64_t *words = (uint64_t *)file("insns.bin", &size);
  allocations = list(map, "\"allocations\"", buffers);
  int regions = list(map, "\"before\"", before), changed = list(map, "\"after_changed\"", after);
  first = strtoull(strstr(map, "\"insn_phys_addr\":") + 17, NULL, 10), insns = size / 16;
  void *device = open();
  if (!device) return 3;
  for (int i = 0; i < allocations; i += 2) {
    host[i] = alloc(buffers[i + 1], 1);
    if (!host[i]) return 3;
    if (buffers[i + 1] <= 1 << 20) memset(host[i], 0, buffers[i + 1]);
  }
  for (uint64_t i = 0; i < insns; i++) {
    /* LOAD and STORE that move something: the memory's type is bits 7 to 9, elements in DRAM are bits 26 to 57. */
    uint64_t *word = words + 2 * i, from = *word >> 26 & 0xffffffff, unit = BYTES[*word >> 7 & 7];
    if ((*word & 7) > 1 || !unit || !(word[1] >> 16 & 0xffff)) continue;
    int in = holding(from * unit);
    uint64_t to = (phys(host[in]) + from * unit - buffers[in]) / unit;
    *word = (*word & ~(0xffffffffull << 26)) | to << 26;
  }
  uint64_t here;
  copy(part(first, 16 * insns, &here), words, 16 * insns);
  for (int i = 0; i < regions; i += 3)
    for (uint64_t done = 0; done < before[i + 1]; done += here) {
      char *to = part(before[i] + done, before[i + 1] - done, &here);
      copy(to, old + before[i + 2] + done, here);
    }
  uint32_t start = phys(host[holding(first)]) + (uint32_t)(first - buffers[holding(first)]);
  for (int i = 0; i < 100; i++) nanos();
  for (int i = 0; i < runs; i++) {
    uint64_t began = nanos();
    if (run(device, start, (uint32_t)insns, 1000000)) return 3;
    took[i] = nanos() - began;
  }
  for (int i = 0; i < runs; i++) printf("%llu\n", (unsigned long long)took[i]);
  for (int i = 0; i < changed; i += 3)
    for (uint64_t done = 0; done < after[i + 1]; done += here) {
      char *found = part(after[i] + done, after[i + 1] - done, &here);
      if (memcmp(found, new + after[i + 2] + done, here)) return 1;
    }
  return 0;
}
