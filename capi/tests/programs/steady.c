/* Thousands of calls take no more memory than the first ones: steady ONNX_FILE. The model is read from memory,
   and gives what it gives from its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vta.h>

#define SIDE (3 * 32 * 32)

static void good(vta_status status, const char *what) {
  if (status == VTA_STATUS_OK) return;
  fprintf(stderr, "%s: %s\n", what, vta_last_error());
  exit(1);
}

/* Pages that the process has in memory. */
static long resident(void) {
  long all, in_memory;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &all, &in_memory) != 2) exit(2);
  fclose(file);
  return in_memory;
}

static void *contents(const char *name, size_t *size) {
  FILE *file = fopen(name, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(2);
  *size = (size_t)ftell(file);
  rewind(file);
  void *bytes = malloc(*size);
  if (!bytes || fread(bytes, 1, *size, file) != *size) exit(2);
  fclose(file);
  return bytes;
}

static void once(vta_session *session, const float *image, float *scores) {
  size_t index;
  vta_counters counters;
  good(vta_set_input(session, 0, VTA_TYPE_F32, image, SIDE), "set");
  good(vta_run(session), "run");
  good(vta_read_output(session, 0, VTA_TYPE_F32, scores, 10), "read");
  good(vta_read_counters(session, &counters, sizeof counters), "counters");
  for (int i = 0; i < 10; i++) {
    if (!vta_counters_json(session) || !vta_notes(session)) exit(2);
    if (vta_find_input(session, "none", &index) == VTA_STATUS_OK) exit(2);
    if (vta_set_input(session, 0, VTA_TYPE_F32, image, SIDE - 1) == VTA_STATUS_OK) exit(2);
  }
}

int main(int argc, char **argv) {
  vta_session *sessions[2];
  vta_options *options = vta_options_new();
  static float image[SIDE], scores[2][10];
  size_t size;
  long before = 0;
  if (argc != 2) return 2;
  for (int i = 0; i < SIDE; i++) image[i] = (float)(i % 97) / 50.0f - 1.0f;
  void *bytes = contents(argv[1], &size);
  good(vta_options_set(options, "threads", "1"), "threads");
  good(vta_open(argv[1], "sim", options, &sessions[0]), "file");
  good(vta_open_onnx(bytes, size, "sim", options, &sessions[1]), "memory");
  free(bytes);
  for (int round = 0; round < 600; round++) {
    if (round == 100) before = resident();
    for (int i = 0; i < 2; i++) once(sessions[i], image, scores[i]);
    if (memcmp(scores[0], scores[1], sizeof scores[0]) != 0) return 3;
  }
  long grown = (resident() - before) * sysconf(_SC_PAGESIZE);
  printf("%ld bytes more after 500 rounds\n", grown);
  for (int i = 0; i < 2; i++) vta_close(sessions[i]);
  before = resident();
  for (int round = 0; round < 40; round++) {
    good(vta_open(argv[1], "sim", options, &sessions[0]), "again");
    once(sessions[0], image, scores[0]);
    vta_close(sessions[0]);
  }
  long more = (resident() - before) * sysconf(_SC_PAGESIZE);
  printf("%ld bytes more after 40 sessions\n", more);
  vta_options_free(options);
  /* A leak of 100 bytes a call, or of a session, would be more. */
  return grown > 1000000 || more > 20000000 ? 4 : 0;
}
