/* Classifies images with an int8 network: classify [MODEL [IMAGES [DEVICE]]]. */
#include <stdio.h>
#include <stdlib.h>
#include <vta.h>
int main(int argc, char **argv) {
  const char *model = argc > 1 ? argv[1] : "demo";
  const char *images = argc > 2 ? argv[2] : NULL; /* those that the demo brings along */
  const char *device = argc > 3 ? argv[3] : "sim";
  vta_session *session;
  float *scores = NULL;
  int failed = 1;
  if (vta_open(model, device, NULL, &session)) goto done;
  if (vta_set_images(session, 0, images) || vta_run(session)) goto done;
  size_t count = vta_image_count(session), classes = vta_tensor_len(vta_output(session, 0));
  scores = calloc(count * classes, sizeof *scores);
  if (!scores || vta_read_output(session, 0, VTA_TYPE_F32, scores, count * classes)) goto done;
  for (size_t image = 0; image < count; image++) {
    const float *of = scores + image * classes;
    size_t best = 0;
    for (size_t class = 1; class < classes; class++)
      if (of[class] > of[best]) best = class;
    printf("%zu: %zu %s (%g)\n", image, best, vta_label(session, best), of[best]);
  }
  failed = 0;
done:
  if (failed) fprintf(stderr, "%s\n", vta_last_error());
  free(scores);
  vta_close(session);
  return failed;
}
