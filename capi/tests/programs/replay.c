/*
 * Replays recorded runs with nothing but the functions of vta/driver.h, one after the other in one process.
 *
 * A file of numbers of 32 bits describes a run: allocations (count; size each), what lies in memory before
 * (count; allocation, offset, size, bytes each), what lies there afterwards (the same), instructions (count;
 * four numbers each), and those that name an address (count; instruction, allocation, offset in bytes, bytes of
 * an element each). Bytes are padded to four. Behind each run stands its profile on standard output.
 */
#include <stdio.h>
#include <string.h>
#include <vta/driver.h>

static FILE *file;

static void fail(const char *what) {
  fprintf(stderr, "replay: %s\n", what);
  exit(1);
}

static uint32_t number(void) {
  uint32_t value;
  if (fread(&value, 4, 1, file) != 1) fail("the file is too short");
  return value;
}

/* Reads regions over the buffers, which are the caller's or the device's. */
static void regions(unsigned char **buffers, const uint32_t *sizes, uint32_t count) {
  for (uint32_t left = number(); left > 0; left--) {
    uint32_t at = number(), offset = number(), size = number();
    if (at >= count || offset > sizes[at] || size > sizes[at] - offset) fail("a region is outside");
    if (fread(buffers[at] + offset, 1, size, file) != size) fail("the file is too short");
    fseek(file, (4 - size % 4) % 4, SEEK_CUR);
  }
}

/* dram_base, 32 bits from bit 26 on. */
static void set_base(uint32_t *word, uint32_t base) {
  word[0] = (word[0] & 0x03ffffff) | base << 26;
  word[1] = (word[1] & 0xfc000000) | base >> 6;
}

static unsigned long replay(VTADeviceHandle device) {
  uint32_t count = number();
  unsigned char **buffers = calloc(count, sizeof *buffers), **expected = calloc(count, sizeof *expected);
  uint32_t *sizes = calloc(count, sizeof *sizes);
  if (!buffers || !expected || !sizes) fail("no memory");
  for (uint32_t i = 0; i < count; i++) {
    sizes[i] = number();
    buffers[i] = VTAMemAlloc(sizes[i], VTA_CACHED);
    expected[i] = malloc(sizes[i] + 1);
    if (!buffers[i] || !expected[i]) fail("no memory");
  }
  regions(buffers, sizes, count);
  for (uint32_t i = 0; i < count; i++) memcpy(expected[i], buffers[i], sizes[i]);
  regions(expected, sizes, count);

  uint32_t insns = number();
  uint32_t *words = VTAMemAlloc((size_t)insns * 16, VTA_CACHED);
  if (!words || fread(words, 16, insns, file) != insns) fail("no instructions");
  for (uint32_t left = number(); left > 0; left--) {
    uint32_t insn = number(), at = number(), offset = number(), elem = number();
    if (insn >= insns || at >= count || offset >= sizes[at]) fail("an address is outside");
    set_base(words + 4 * insn, VTAMemGetPhyAddr(buffers[at] + offset) / elem);
  }
  if (VTADeviceRun(device, VTAMemGetPhyAddr(words), insns, 1000000)) fail("the run failed");

  unsigned long bytes = 0;
  for (uint32_t i = 0; i < count; i++) {
    unsigned char *copy = malloc(sizes[i] + 1);
    if (!copy) fail("no memory");
    VTAMemCopyToHost(copy, buffers[i], sizes[i]);
    if (memcmp(copy, expected[i], sizes[i]) || memcmp(buffers[i], expected[i], sizes[i]))
      fail("memory is not as recorded");
    bytes += sizes[i];
    free(copy);
    free(expected[i]);
    VTAMemFree(buffers[i]);
  }
  VTAMemFree(words);
  free(buffers);
  free(expected);
  free(sizes);
  return bytes;
}

int main(int argc, char **argv) {
  VTADeviceHandle device = VTADeviceAlloc();
  if (!device) fail("no device");
  for (int i = 1; i < argc; i++) {
    file = fopen(argv[i], "rb");
    if (!file) fail(argv[i]);
    unsigned long bytes = replay(device);
    fclose(file);
    printf("%lu %s\n", bytes, vta_stats_json(1));
  }
  VTADeviceFree(device);
  return 0;
}
