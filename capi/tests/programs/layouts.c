/* A configuration whose instructions, as the original packs them, lie otherwise than this interface reads them is
 * refused by name. The widths below are those of the original's bit fields: logarithms of the scratchpads' depths. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vta.h>
#include <vta/driver.h>

/* A GEMM as the original's compiler packs it, with other values in every field. */
#define GEMM(NAME, UOP, INP, WGT, ACC)                                                                  \
  static void NAME(unsigned char *to) {                                                                 \
    __extension__ struct {                                                                              \
      uint64_t opcode : 3, deps : 4, reset : 1, uop_bgn : UOP, uop_end : UOP + 1, out : 14, in : 14;    \
      uint64_t dst_out : ACC, dst_in : ACC, src_out : INP, src_in : INP, wgt_out : WGT, wgt_in : WGT;   \
    } gemm;                                                                                             \
    memset(&gemm, 0, sizeof gemm);                                                                      \
    gemm.opcode = 2, gemm.uop_bgn = 1, gemm.uop_end = 2, gemm.out = 3, gemm.in = 4;                     \
    gemm.dst_out = 5, gemm.dst_in = 6, gemm.src_out = 7, gemm.src_in = 8;                               \
    gemm.wgt_out = 9, gemm.wgt_in = 10;                                                                 \
    memset(to, 0, 32);                                                                                  \
    memcpy(to, &gemm, sizeof gemm < 32 ? sizeof gemm : 32);                                             \
  }

GEMM(usual, 13, 11, 10, 11)
GEMM(few_uops, 11, 11, 10, 11)
GEMM(uops, 12, 11, 10, 11)
GEMM(inputs, 13, 10, 10, 11)
GEMM(weights, 13, 11, 9, 11)
GEMM(sums, 13, 11, 10, 10)

/* The depth of a scratchpad is its size over that of an element: with blocks of 32, weights have four times the
 * bytes, inputs and sums twice. */
static const struct {
  const char *keys;
  void (*gemm)(unsigned char *);
  const char *named;
} CASES[] = {
    {"", usual, ""},
    {"\"LOG_UOP_BUFF_SIZE\":13", few_uops, "LOG_UOP_BUFF_SIZE"},
    {"\"LOG_UOP_BUFF_SIZE\":14", uops, "LOG_UOP_BUFF_SIZE"},
    {"\"LOG_INP_BUFF_SIZE\":14", inputs, "LOG_INP_BUFF_SIZE"},
    {"\"LOG_WGT_BUFF_SIZE\":17", weights, "LOG_WGT_BUFF_SIZE"},
    {"\"LOG_ACC_BUFF_SIZE\":16", sums, "LOG_ACC_BUFF_SIZE"},
    {"\"LOG_BLOCK\":5,\"LOG_INP_BUFF_SIZE\":16,\"LOG_WGT_BUFF_SIZE\":20,\"LOG_ACC_BUFF_SIZE\":18", usual, ""},
    {"\"LOG_BLOCK\":5,\"LOG_INP_BUFF_SIZE\":16,\"LOG_WGT_BUFF_SIZE\":19,\"LOG_ACC_BUFF_SIZE\":18", weights,
     "LOG_WGT_BUFF_SIZE"},
};

/* In a process of its own: there is one device in each. */
static int try(const char *file, const char *keys, int same, const char *named) {
  FILE *config = fopen(file, "w");
  if (!config) return 2;
  fprintf(config, "{%s}", keys);
  if (fclose(config)) return 2;
  setenv("VTA_CONFIG", file, 1);
  VTADeviceHandle device = VTADeviceAlloc();
  const char *said = device ? "" : vta_last_error();
  printf("{%s}: %s\n", keys, said);
  fflush(stdout);
  int right = same ? device != NULL : device == NULL && strstr(said, named) && strstr(said, "GEMM");
  return right ? 0 : 1;
}

int main(void) {
  unsigned char expected[32], found[32];
  usual(expected);
  int failed = 0, status = 0;
  for (size_t at = 0; at < sizeof CASES / sizeof *CASES; at++) {
    CASES[at].gemm(found);
    int same = memcmp(found, expected, sizeof found) == 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(try("config.json", CASES[at].keys, same, CASES[at].named));
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    if (status != 0) {
      fprintf(stderr, "{%s}: wrong\n", CASES[at].keys);
      failed = 1;
    }
  }
  return failed;
}
