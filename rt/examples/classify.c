/* Classifies pictures with a flat image: `classify` is what a controller does, `main` the board.
 *
 * The board here is a file that holds the registers and, from byte 4096 on, the window; another
 * process plays the accelerator in it. On a controller both are addresses of the memory map.
 *
 *     classify IMAGE MEMORY BUS_ADDRESS VALUES
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "vta_rt.h"

enum { REGISTERS = 4096, BATCHES = 64, CLASSES = 1000 };

static vta_rt runtime;
static vta_rt_batch_stats batches[BATCHES];

static int failed(const char *what)
{
    vta_rt_fault fault;
    vta_rt_fault_of(&runtime, &fault);
    fprintf(stderr, "%s: %s (at %u: %llu, %llu)\n", what, vta_rt_text(fault.status),
            (unsigned)fault.at, (unsigned long long)fault.value, (unsigned long long)fault.limit);
    return 1;
}

/* Runs the network on some pictures, one behind the other, and prints the class of each. */
static int classify(const vta_rt_board *board, const void *image, uint32_t image_bytes,
                    const int8_t *values, size_t count)
{
    vta_rt_tensor input, output;
    static int8_t scores[CLASSES];

    if (vta_rt_open(&runtime, board, image, image_bytes, batches, BATCHES) != VTA_RT_OK)
        return failed("open");
    if (vta_rt_tensor_of(&runtime, 0, 0, &input) || vta_rt_tensor_of(&runtime, 1, 0, &output))
        return failed("tensors");
    if (output.values > CLASSES)
        return failed("more classes than there is room for");
    for (; count >= input.values; count -= input.values, values += input.values) {
        uint32_t best = 0;
        if (vta_rt_input(&runtime, 0, 0, values, input.values) != VTA_RT_OK)
            return failed("input");
        if (vta_rt_run(&runtime) != VTA_RT_OK)
            return failed("run");
        if (vta_rt_output(&runtime, 0, 0, scores, output.values) != VTA_RT_OK)
            return failed("output");
        for (uint32_t i = 1; i < output.values; i++)
            if (scores[i] > scores[best])
                best = i;
        printf("class %u\n", (unsigned)best);
    }
    return 0;
}

static uint64_t microseconds(void *context)
{
    struct timespec now;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void *map(const char *path, int writable, size_t *bytes)
{
    struct stat facts;
    int file = open(path, writable ? O_RDWR : O_RDONLY);
    void *at;
    if (file < 0 || fstat(file, &facts) != 0) {
        perror(path);
        exit(1);
    }
    *bytes = (size_t)facts.st_size;
    at = mmap(NULL, *bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    return at;
}

int main(int argc, char **argv)
{
    size_t image_bytes, memory_bytes, count;
    vta_rt_board board = {0};
    vta_rt_stats stats;
    const void *image;
    const int8_t *values;
    uint8_t *memory;

    if (argc != 5) {
        fprintf(stderr, "usage: classify IMAGE MEMORY BUS_ADDRESS VALUES\n");
        return 2;
    }
    image = map(argv[1], 0, &image_bytes);
    memory = map(argv[2], 1, &memory_bytes);
    values = map(argv[4], 0, &count);
    board.registers = (volatile uint32_t *)(void *)memory;
    board.register_layout = VTA_RT_NARROW;
    board.window = memory + REGISTERS;
    board.window_bytes = (uint32_t)(memory_bytes - REGISTERS);
    board.window_bus = strtoull(argv[3], NULL, 0);
    board.image_bus = VTA_RT_NOT_VISIBLE;
    board.clock = microseconds;
    board.deadline = 60u * 1000000u;
    if (classify(&board, image, (uint32_t)image_bytes, values, count) != 0)
        return 1;
    for (uint32_t i = 0; i < BATCHES && batches[i].runs > 0; i++)
        printf("%s %llu cycles\n", vta_rt_batch_name(&runtime, i),
               (unsigned long long)batches[i].cycles);
    if (vta_rt_stats_of(&runtime, &stats, 0) != VTA_RT_OK)
        return failed("stats");
    printf("total %llu cycles, %llu runs\n", (unsigned long long)stats.cycles,
           (unsigned long long)stats.runs);
    return 0;
}
