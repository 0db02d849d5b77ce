/* What vta/driver.h refuses, and tokens that outlive a run. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <vta.h>
#include <vta/driver.h>

static int failed;

static void expect(int line, int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "line %d: %s; last error: %s\n", line, what, vta_last_error());
    failed = 1;
  }
}
#define EXPECT(holds) expect(__LINE__, (holds), #holds)
/* The last failure says this. */
#define SAYS(text) EXPECT(strstr(vta_last_error(), text) != NULL)

/* Opcodes and the flags of tokens, as the lowest bits of an instruction. */
enum { LOAD = 0, STORE = 1, FINISH = 3 };
enum { POP_PREV = 1 << 3, POP_NEXT = 1 << 4, PUSH_PREV = 1 << 5, PUSH_NEXT = 1 << 6 };
enum { ACC = 3 << 7, OUT = 4 << 7 };

static uint32_t *stream;

static int run(VTADeviceHandle device, uint32_t first, uint32_t second) {
  memset(stream, 0, 48);
  stream[0] = first;
  stream[4] = second;
  stream[8] = FINISH;
  return VTADeviceRun(device, VTAMemGetPhyAddr(stream), 3, 1000);
}

int main(void) {
  char room[64] = "unchanged";
  /* Before any buffer. */
  EXPECT(VTAMemGetPhyAddr(room) == 0);
  SAYS("nothing was allocated yet");
  VTAMemFree(room);
  VTAMemFree(NULL);
  EXPECT(VTADeviceRun(NULL, 4096, 1, 0) == 1);
  SAYS("no handle");

  /* Sizes. */
  EXPECT(VTAMemAlloc(SIZE_MAX, 0) == NULL);
  EXPECT(VTAMemAlloc((size_t)1 << 40, 0) == NULL);
  SAYS("no room for");
  void *empty = VTAMemAlloc(0, VTA_CACHED);
  EXPECT(empty != NULL && VTAMemGetPhyAddr(empty) != 0);
  VTAMemFree(empty);

  /* Pointers into a buffer. */
  unsigned char *buffer = VTAMemAlloc(10000, VTA_NOT_CACHED);
  stream = VTAMemAlloc(VTA_PAGE_BYTES, VTA_CACHED);
  if (!buffer || !stream) return 2;
  for (int i = 0; i < 3 * VTA_PAGE_BYTES; i++) EXPECT(buffer[i] == 0);
  vta_phy_addr_t at = VTAMemGetPhyAddr(buffer);
  EXPECT(at % VTA_PAGE_BYTES == 0 && (uintptr_t)buffer % VTA_PAGE_BYTES == 0);
  EXPECT(VTAMemGetPhyAddr(buffer + 9999) == at + 9999);
  EXPECT(VTAMemGetPhyAddr(room) == 0);
  SAYS("not in one buffer");
  VTAMemCopyFromHost(buffer + 5000, "inside", 7);
  VTAMemCopyToHost(room, buffer + 5000, 7);
  EXPECT(strcmp(room, "inside") == 0);
  VTAMemCopyFromHost(buffer + 3 * VTA_PAGE_BYTES - 3, "outside", 8);
  SAYS("8 bytes at");
  EXPECT(buffer[3 * VTA_PAGE_BYTES - 3] == 0);
  VTAMemCopyToHost(room, buffer, SIZE_MAX);
  SAYS("too many");
  VTAMemCopyToHost(NULL, buffer, 1);
  SAYS("`dst` is NULL");
  VTAMemFree(buffer + 1);
  SAYS("1 bytes into a buffer");
  EXPECT(VTAMemGetPhyAddr(buffer) == at);

  /* Runs of what isn't there or is no program. */
  VTADeviceHandle device = VTADeviceAlloc();
  EXPECT(device != NULL);
  EXPECT(VTADeviceRun((char *)device + 1000, at, 1, 0) == 1);
  EXPECT(VTADeviceRun(device, 0xfffffff0u, 1, 0) == 1);
  SAYS("not in one buffer");
  EXPECT(VTADeviceRun(device, at, UINT32_MAX, 0) == 1);
  SAYS("more than");
  EXPECT(VTADeviceRun(device, at, 0, 0) == 1);
  SAYS("FINISH");
  memset(buffer, 0xff, 16);
  EXPECT(VTADeviceRun(device, at, 1, 0) == 1);
  SAYS("needs DEPTHWISE, which this machine doesn't have");
  VTAProgram("any.bit");
  SAYS("the device is open");

  /* A store of one tile to an address that is in no buffer. */
  EXPECT(run(device, LOAD, LOAD) == 0);
  stream[0] = STORE | OUT;
  stream[1] = 0x03ffffff;
  stream[2] = 1 | 1 << 16;
  EXPECT(VTADeviceRun(device, VTAMemGetPhyAddr(stream), 3, 1000) == 1);
  SAYS("outside every allocation");

  /* A token that one run leaves is the next one's, once. */
  EXPECT(run(device, LOAD | ACC | POP_NEXT, LOAD) == 1);
  SAYS("a token from store to compute");
  EXPECT(run(device, STORE | PUSH_PREV, STORE | PUSH_PREV) == 0);
  EXPECT(run(device, STORE | PUSH_PREV, LOAD | ACC | POP_NEXT) == 0);
  for (int i = 0; i < 2; i++) EXPECT(run(device, LOAD | ACC | POP_NEXT, LOAD) == 0);
  EXPECT(run(device, LOAD | ACC | POP_NEXT, LOAD) == 1);
  /* All four queues. */
  EXPECT(run(device, LOAD | ACC | PUSH_NEXT | PUSH_PREV, 0x100 | LOAD | PUSH_NEXT) == 0);
  EXPECT(run(device, STORE | POP_PREV, 0x100 | LOAD | POP_NEXT) == 0);
  EXPECT(run(device, LOAD | ACC | POP_PREV, LOAD) == 0);
  EXPECT(run(device, LOAD | ACC | POP_PREV, LOAD) == 1);
  SAYS("a token from load to compute");

  /* Freed buffers are gone. */
  vta_phy_addr_t streams = VTAMemGetPhyAddr(stream);
  VTAMemFree(buffer);
  VTAMemFree(stream);
  VTAMemFree(buffer);
  SAYS("or is freed");
  EXPECT(VTAMemGetPhyAddr(buffer) == 0);
  EXPECT(VTADeviceRun(device, streams, 3, 0) == 1);
  EXPECT(strstr(vta_stats_json(1), "\"gemm_counter\":0") != NULL);
  VTADeviceFree(device);
  return failed;
}
