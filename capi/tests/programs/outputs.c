/* Writes what a network gives, bytes of float32 and then of int8 for each output: outputs MODEL DEVICE
   [IMAGES [OPTION VALUE]..]. IMAGES of "-" are those of the model. Counters go to standard error, as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vta.h>

static int fail(void) {
  fprintf(stderr, "%s\n", vta_last_error());
  return 1;
}

int main(int argc, char **argv) {
  vta_session *session;
  vta_options *options = vta_options_new();
  if (argc < 3) return 2;
  const char *images = argc > 3 && strcmp(argv[3], "-") != 0 ? argv[3] : NULL;
  for (int i = 4; i + 1 < argc; i += 2)
    if (vta_options_set(options, argv[i], argv[i + 1])) return fail();
  if (vta_open(argv[1], argv[2], options, &session)) return fail();
  vta_options_free(options);
  if (vta_set_images(session, 0, images) || vta_run(session)) return fail();
  for (size_t output = 0; output < vta_output_count(session); output++) {
    size_t count = vta_image_count(session) * vta_tensor_len(vta_output(session, output));
    float *real = malloc(count * sizeof *real);
    signed char *steps = malloc(count);
    if (!real || !steps) return 2;
    if (vta_read_output(session, output, VTA_TYPE_F32, real, count)) return fail();
    if (vta_read_output(session, output, VTA_TYPE_I8, steps, count)) return fail();
    if (fwrite(real, sizeof *real, count, stdout) != count) return 2;
    if (fwrite(steps, 1, count, stdout) != count) return 2;
    free(real);
    free(steps);
  }
  fprintf(stderr, "%s\n", vta_counters_json(session));
  vta_close(session);
  return 0;
}
