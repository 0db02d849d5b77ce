/* Runs a network once for each line of standard input, and prints what it gives. */
#include <stdio.h>
#include <stdlib.h>
#include <vta.h>

static int failed(void) {
    printf("error: %s\n", vta_last_error());
    return 1;
}

int main(int argc, char **argv) {
    vta_session *session;
    if (argc != 2) return 2;
    if (vta_open(argv[1], "sim", NULL, &session)) return failed();
    size_t taken = vta_tensor_len(vta_input(session, 0));
    size_t given = vta_tensor_len(vta_output(session, 0));
    float *x = calloc(taken, sizeof *x), *y = calloc(given, sizeof *y);
    if (!x || !y) return 2;
    for (size_t i = 0; i < taken; i++) x[i] = (float)(i % 7) / 7;
    puts("open");
    fflush(stdout);
    while (getchar() != EOF) {
        if (vta_set_input(session, 0, VTA_TYPE_F32, x, taken) || vta_run(session) ||
            vta_read_output(session, 0, VTA_TYPE_F32, y, given))
            return failed();
        for (size_t i = 0; i < given; i++) printf("%g ", y[i]);
        puts("");
        fflush(stdout);
    }
    vta_close(session);
    free(x);
    free(y);
    return 0;
}
