/* Every way in which a call of vta.h fails: errors FLOAT_ONNX. Says nothing and ends with 0 if all is well. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vta.h>

static int wrong;

static void check(int ok, int line, const char *what) {
  if (ok) return;
  wrong++;
  fprintf(stderr, "line %d: %s; the last error is %d '%s'\n", line, what, (int)vta_last_status(),
          vta_last_error());
}

#define CHECK(ok) check((ok) != 0, __LINE__, #ok)
/* The call fails with a status, and a text that begins so. */
#define FAILS(call, status, text) \
  CHECK((call) == (status) && vta_last_status() == (status) && starts(text))

static int starts(const char *text) { return strncmp(vta_last_error(), text, strlen(text)) == 0; }

static void options(void) {
  vta_options *options = vta_options_new();
  CHECK(options != NULL);
  FAILS(vta_options_set(NULL, "board", "pynq"), VTA_STATUS_USAGE, "`options` is NULL");
  FAILS(vta_options_set(options, NULL, "pynq"), VTA_STATUS_USAGE, "`name` is NULL");
  FAILS(vta_options_set(options, "board", NULL), VTA_STATUS_USAGE, "`value` is NULL");
  FAILS(vta_options_set(options, "bord", "x"), VTA_STATUS_USAGE, "no option 'bord'; did you mean board?");
  FAILS(vta_options_set(options, "\xff", "x"), VTA_STATUS_USAGE, "`name` is no UTF-8");
  FAILS(vta_options_set(options, "threads", "none"), VTA_STATUS_USAGE, "`threads`: 'none'");
  CHECK(vta_options_set(options, "threads", "1") == VTA_STATUS_OK);
  vta_options_free(options);
  vta_options_free(NULL);
}

static void opening(const char *float_onnx) {
  vta_session *session = (vta_session *)&wrong;
  vta_options *options = vta_options_new();
  FAILS(vta_open("demo", "sim", NULL, NULL), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_open(NULL, "sim", NULL, &session), VTA_STATUS_USAGE, "`model` is NULL");
  CHECK(session == NULL);
  FAILS(vta_open("resnet18", "sim", NULL, &session), VTA_STATUS_USAGE,
        "'resnet18' is neither a file nor a built-in network; did you mean zoo:resnet18?");
  FAILS(vta_open("no/such.onnx", "sim", NULL, &session), VTA_STATUS_FILE, "no/such.onnx");
  FAILS(vta_open("no/such.vta", "sim", NULL, &session), VTA_STATUS_MODEL, "no/such.vta");
  FAILS(vta_open(float_onnx, "sim", NULL, &session), VTA_STATUS_FLOAT, float_onnx);
  FAILS(vta_open_onnx("no onnx", 7, "sim", NULL, &session), VTA_STATUS_MODEL, "the model");
  FAILS(vta_open_onnx(NULL, 7, "sim", NULL, &session), VTA_STATUS_USAGE, "`data` is NULL");
  FAILS(vta_open_onnx("", SIZE_MAX, "sim", NULL, &session), VTA_STATUS_USAGE, "`data`: ");
  CHECK(vta_options_set(options, "board", "nowhere") == VTA_STATUS_OK);
  FAILS(vta_open("demo", "sim", options, &session), VTA_STATUS_USAGE, "`board` nowhere");
  CHECK(session == NULL);
  vta_options_free(options);
  vta_close(NULL);
}

/* A name that no device has is refused at once; a device is opened by the first run. */
static void no_device(void) {
  vta_session *session;
  FAILS(vta_open("demo", "simm", NULL, &session), VTA_STATUS_USAGE, "no device 'simm'");
  FAILS(vta_open("demo", "sim,cylce", NULL, &session), VTA_STATUS_USAGE, "no device 'cylce'");
  CHECK(session == NULL);
  CHECK(vta_open("demo", "board:no/such.toml", NULL, &session) == VTA_STATUS_OK);
  CHECK(vta_set_images(session, 0, NULL) == VTA_STATUS_OK);
  FAILS(vta_run(session), VTA_STATUS_DEVICE, "");
  FAILS(vta_run(session), VTA_STATUS_DEVICE, "");
  vta_close(session);
}

static void null_sessions(void) {
  size_t index = 7;
  char room[8];
  CHECK(vta_input_count(NULL) == 0 && vta_output_count(NULL) == 0 && vta_label_count(NULL) == 0);
  CHECK(vta_input(NULL, 0) == NULL && starts("`session` is NULL"));
  CHECK(vta_output(NULL, 0) == NULL && vta_tensor_name(NULL) == NULL && vta_tensor_shape(NULL) == NULL);
  CHECK(vta_tensor_type(NULL) == VTA_TYPE_F32 && vta_tensor_rank(NULL) == 0 && vta_tensor_len(NULL) == 0);
  CHECK(vta_tensor_scale(NULL) == 0 && vta_tensor_zero(NULL) == 0 && *vta_label(NULL, 0) == 0);
  FAILS(vta_find_input(NULL, "input", &index), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_find_output(NULL, "output", &index), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_set_input(NULL, 0, VTA_TYPE_I8, room, 8), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_set_images(NULL, 0, NULL), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_run(NULL), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_read_output(NULL, 0, VTA_TYPE_I8, room, 8), VTA_STATUS_USAGE, "`session` is NULL");
  FAILS(vta_read_counters(NULL, NULL, 0), VTA_STATUS_USAGE, "`session` is NULL");
  CHECK(vta_image_count(NULL) == 0 && vta_counters_json(NULL) == NULL && vta_notes(NULL) == NULL);
  CHECK(index == 7);
  vta_cancel(NULL);
}

static void inputs(vta_session *session, float *values, size_t count) {
  size_t index = 7;
  CHECK(vta_input(session, 1) == NULL && starts("no input 1 (there is 0 "));
  FAILS(vta_find_input(session, "imput", &index), VTA_STATUS_USAGE, "no input 'imput' (there is ");
  FAILS(vta_find_input(session, NULL, &index), VTA_STATUS_USAGE, "`name` is NULL");
  FAILS(vta_find_input(session, "input", NULL), VTA_STATUS_USAGE, "`index` is NULL");
  CHECK(vta_find_input(session, vta_tensor_name(vta_input(session, 0)), &index) == VTA_STATUS_OK);
  CHECK(index == 0);
  FAILS(vta_run(session), VTA_STATUS_USAGE, "input '");
  FAILS(vta_set_input(session, 1, VTA_TYPE_F32, values, count), VTA_STATUS_USAGE, "no input 1");
  FAILS(vta_set_input(session, 0, 77, values, count), VTA_STATUS_USAGE, "`type`: 77 is no vta_type");
  FAILS(vta_set_input(session, 0, VTA_TYPE_F32, NULL, count), VTA_STATUS_USAGE, "`values` is NULL");
  FAILS(vta_set_input(session, 0, VTA_TYPE_F32, (char *)values + 1, 1), VTA_STATUS_USAGE, "`values` is at ");
  FAILS(vta_set_input(session, 0, VTA_TYPE_I64, values, SIZE_MAX), VTA_STATUS_USAGE, "`values`: ");
  FAILS(vta_set_input(session, 0, VTA_TYPE_F32, values, count - 1), VTA_STATUS_INPUT, "input '");
  FAILS(vta_set_input(session, 0, VTA_TYPE_F32, values, 0), VTA_STATUS_INPUT, "input '");
  FAILS(vta_set_input(session, 0, VTA_TYPE_I32, values, count), VTA_STATUS_INPUT, "input '");
  FAILS(vta_set_images(session, 1, NULL), VTA_STATUS_USAGE, "no input 1");
  FAILS(vta_set_images(session, 0, "no/such.png"), VTA_STATUS_FILE, "no/such.png");
  values[3] = NAN;
  CHECK(vta_set_input(session, 0, VTA_TYPE_F32, values, count) == VTA_STATUS_OK);
  FAILS(vta_run(session), VTA_STATUS_INPUT, "input '");
  values[3] = 0;
}

static void outputs(vta_session *session, const float *values, size_t count) {
  float scores[10];
  signed char steps[10];
  vta_counters counters;
  uint64_t first[2];
  char *kept;
  memset(&counters, 0xff, sizeof counters);
  FAILS(vta_read_output(session, 0, VTA_TYPE_F32, scores, 10), VTA_STATUS_USAGE, "there are no outputs");
  CHECK(vta_image_count(session) == 0);
  CHECK(vta_read_counters(session, &counters, sizeof counters) == VTA_STATUS_OK);
  CHECK(counters.runs == 0 && counters.images == 0 && counters.cycles == 0);
  CHECK(vta_set_input(session, 0, VTA_TYPE_F32, values, count) == VTA_STATUS_OK);
  vta_cancel(session); /* nothing runs */
  CHECK(vta_run(session) == VTA_STATUS_OK && vta_image_count(session) == 1);
  CHECK(vta_output(session, 1) == NULL && starts("no output 1 (there is 0 "));
  FAILS(vta_find_output(session, "none", &(size_t){0}), VTA_STATUS_USAGE, "no output 'none' (there is ");
  FAILS(vta_read_output(session, 1, VTA_TYPE_F32, scores, 10), VTA_STATUS_USAGE, "no output 1");
  FAILS(vta_read_output(session, 0, VTA_TYPE_F32, scores, 9), VTA_STATUS_INPUT, "output '");
  FAILS(vta_read_output(session, 0, VTA_TYPE_F32, NULL, 10), VTA_STATUS_USAGE, "`values` is NULL");
  FAILS(vta_read_output(session, 0, VTA_TYPE_I64, NULL, 0), VTA_STATUS_INPUT, "output '");
  FAILS(vta_read_output(session, 0, VTA_TYPE_BOOL, steps, 10), VTA_STATUS_INPUT, "output '");
  FAILS(vta_read_output(session, 0, -1, scores, 10), VTA_STATUS_USAGE, "`type`: -1 is no vta_type");
  CHECK(vta_read_output(session, 0, VTA_TYPE_F32, scores, 10) == VTA_STATUS_OK);
  CHECK(vta_read_output(session, 0, VTA_TYPE_I8, steps, 10) == VTA_STATUS_OK);
  const vta_tensor *output = vta_output(session, 0);
  for (int i = 0; i < 10; i++)
    CHECK(scores[i] == ((float)steps[i] - (float)vta_tensor_zero(output)) * vta_tensor_scale(output));
  FAILS(vta_read_counters(session, NULL, 8), VTA_STATUS_USAGE, "`counters` is NULL");
  CHECK(vta_read_counters(session, &counters, sizeof counters) == VTA_STATUS_OK);
  CHECK(counters.runs == 1 && counters.images == 1 && counters.passes == 1 && counters.cycles == 0);
  CHECK(counters.insns > 0 && counters.macs > 0 && counters.bytes_loaded > 0 && counters.bytes_stored > 0);
  /* A program of an older version has fewer figures. */
  CHECK(vta_read_counters(session, (vta_counters *)(void *)first, sizeof first) == VTA_STATUS_OK);
  CHECK(first[0] == 1 && first[1] == 1);
  kept = strdup(vta_counters_json(session));
  CHECK(kept && strncmp(kept, "{\"runs\":1,\"images\":1,", 21) == 0);
  CHECK(strcmp(vta_counters_json(session), kept) == 0 && *vta_notes(session) == 0);
  free(kept);
}

int main(int argc, char **argv) {
  vta_session *session;
  if (argc != 2) return 2;
  CHECK(vta_last_status() == VTA_STATUS_OK && *vta_last_error() == 0);
  CHECK(vta_abi_version() == VTA_ABI_VERSION && strlen(vta_version()) >= 5);
  options();
  opening(argv[1]);
  no_device();
  null_sessions();
  CHECK(vta_open("demo", NULL, NULL, &session) == VTA_STATUS_OK && session != NULL);
  const vta_tensor *input = vta_input(session, 0);
  size_t count = vta_tensor_len(input);
  CHECK(vta_tensor_rank(input) == 3 && vta_tensor_shape(input)[0] == 3 && count == 3 * 32 * 32);
  CHECK(strcmp(vta_label(session, 3), "cat") == 0 && *vta_label(session, 10) == 0);
  float *values = calloc(count, sizeof *values);
  if (!values) return 2;
  inputs(session, values, count);
  outputs(session, values, count);
  free(values);
  vta_close(session);
  return wrong != 0;
}
