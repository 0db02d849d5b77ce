/* Runs compiled networks on VTA without an operating system.
 *
 * No allocation, no globals, no floats; nothing calls anything but the board's hooks. A flat
 * image (`vta compile MODEL -o NET.img --flat layers`) is read where it lies. docs/bare-metal.md
 * says what lies where and what a controller must provide.
 *
 * One handle is for one thread at a time; calls that hooks or interrupts make meanwhile give
 * VTA_RT_BUSY. Handles of different accelerators have nothing to do with each other.
 */
#ifndef VTA_RT_H
#define VTA_RT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to; in vta_rt_fault, what `at`, `value` and `limit` say of it. */
typedef uint32_t vta_rt_status;
enum {
    VTA_RT_OK = 0,
    VTA_RT_NULL = 1,            /* a pointer that must be given is null */
    VTA_RT_CLOSED = 2,          /* the handle isn't open */
    VTA_RT_BUSY = 3,            /* the accelerator, or another call, is still at work */
    VTA_RT_IMAGE_CUT = 4,       /* value: bytes given, limit: bytes needed */
    VTA_RT_IMAGE_MAGIC = 5,     /* no flat image */
    VTA_RT_IMAGE_VERSION = 6,   /* value: the image's version, limit: that of this runtime */
    VTA_RT_IMAGE_CHECKSUM = 7,  /* at: first byte of the part, value: found, limit: stored */
    VTA_RT_IMAGE_FORMAT = 8,    /* at: byte of the field, value: what it is, limit: its bound */
    VTA_RT_IMAGE_INSN = 9,      /* at: the instruction's number */
    VTA_RT_WINDOW = 10,         /* value: the window's bytes, limit: bytes needed */
    VTA_RT_ALIGNMENT = 11,      /* value: the address, limit: what it must be a multiple of */
    VTA_RT_ADDRESS = 12,        /* value: where the memory ends, limit: the last end possible */
    VTA_RT_INDEX = 13,          /* value: the number given, limit: how many there are */
    VTA_RT_LENGTH = 14,         /* value: the values given, limit: those of the tensor */
    VTA_RT_HUNG = 15,           /* at: the batch, value: ticks so far, limit: the deadline */
    VTA_RT_COUNTER = 16,        /* at: the batch, value: cycles counted, limit: the least possible */
    VTA_RT_BUS = 17             /* at: byte of the register, value: what it reads, limit: what it must */
};

typedef struct vta_rt_fault {
    vta_rt_status status;
    uint32_t at;
    uint64_t value;
    uint64_t limit;
} vta_rt_fault;

/* Values of vta_rt_board. */
#define VTA_RT_NARROW 0u                    /* register_layout: one register for an address */
#define VTA_RT_WIDE 1u                      /* register_layout: two, the low word first */
#define VTA_RT_NO_COUNTER 1u                /* flags: the cycle counter doesn't count */
#define VTA_RT_NOT_VISIBLE UINT64_MAX       /* image_bus: the constants are copied to the window */

/* The board. Hooks may be null; all are given `context`. */
typedef struct vta_rt_board {
    volatile uint32_t *registers;   /* the control registers, uncached */
    uint32_t register_layout;       /* VTA_RT_NARROW or VTA_RT_WIDE */
    uint32_t flags;                 /* 0, or VTA_RT_NO_COUNTER */
    uint8_t *window;                /* memory for this handle alone */
    uint64_t window_bus;            /* its address as the accelerator sees it */
    uint64_t image_bus;             /* the image's, or VTA_RT_NOT_VISIBLE */
    uint64_t deadline;              /* ticks that a batch may take */
    uint32_t window_bytes;
    uint64_t (*clock)(void *context);   /* ticks, any unit; null: each poll is one */
    void (*clean)(void *context, uint8_t *at, uint32_t bytes);    /* write caches back */
    void (*discard)(void *context, uint8_t *at, uint32_t bytes);  /* drop what caches hold */
    void *context;
} vta_rt_board;

/* What an image needs and has. */
typedef struct vta_rt_needs {
    uint64_t window_bytes;              /* of a window, with the constants */
    uint64_t window_bytes_in_place;     /* of a window, when the accelerator sees the image */
    uint32_t align;     /* addresses of the window, and of an image that the accelerator sees */
    uint32_t batches;   /* of a pass */
    uint32_t inputs;
    uint32_t outputs;
    uint32_t rows;      /* of a batch of inputs: images that one pass runs (BATCH) */
    uint32_t block;     /* of the accelerator that the image is for (BLOCK) */
} vta_rt_needs;

/* An input or an output: int8 values in the order channels, rows, columns.
 * real = scale * (value - zero). */
typedef struct vta_rt_tensor {
    const char *name;   /* in the image */
    uint32_t values;    /* chw[0] * chw[1] * chw[2] */
    uint32_t chw[3];
    float scale;
    int32_t zero;
} vta_rt_tensor;

/* One batch: a layer of an image made with `--flat layers`. */
typedef struct vta_rt_batch_stats {
    uint64_t runs;          /* that finished, since the counts were cleared */
    uint64_t cycles;        /* of these, by the accelerator's counter */
    uint64_t ticks;         /* of these, by the board's clock */
    uint64_t loaded_bytes;  /* of one run, and so on */
    uint64_t stored_bytes;
    uint64_t gemm_steps;
    uint64_t alu_steps;
    uint64_t macs;          /* multiply-adds of the layers' mathematics */
    uint32_t insns;
    uint32_t layers;
} vta_rt_batch_stats;

/* All batches, since the counts were cleared. */
typedef struct vta_rt_stats {
    uint64_t runs;          /* passes through the whole network that finished */
    uint64_t batches;
    uint64_t cycles;
    uint64_t ticks;
    uint64_t loaded_bytes;
    uint64_t stored_bytes;
    uint64_t insns;
    uint32_t hung;
    uint32_t wrong_counters;
    uint32_t bus_errors;
    uint32_t busy;
} vta_rt_stats;

/* Memory for a handle; what it holds is the runtime's. */
typedef struct vta_rt {
    uint64_t words[48];
} vta_rt;

/* Checks an image and says what it needs. */
vta_rt_status vta_rt_needs_of(const void *image, uint32_t image_bytes, vta_rt_needs *out);

/* Checks the image and the board, then fills the window. The image, and `capacity` records of
 * batches, which may be null, stay the handle's until it is opened again or no more used. */
vta_rt_status vta_rt_open(vta_rt *rt, const vta_rt_board *board, const void *image,
                          uint32_t image_bytes, vta_rt_batch_stats *batches, uint32_t capacity);

/* Describes input (`output` 0) or output (1) number `index`. */
vta_rt_status vta_rt_tensor_of(vta_rt *rt, uint32_t output, uint32_t index, vta_rt_tensor *out);

/* Gives a row (0 where the accelerator's BATCH is 1) of an input its values. */
vta_rt_status vta_rt_input(vta_rt *rt, uint32_t index, uint32_t row, const int8_t *values,
                           uint32_t count);

/* Takes a row's values of an output. */
vta_rt_status vta_rt_output(vta_rt *rt, uint32_t index, uint32_t row, int8_t *values,
                            uint32_t count);

/* Runs the network, or what steps have left of a pass. */
vta_rt_status vta_rt_run(vta_rt *rt);

/* Runs the next batch; `left`, which may be null, becomes the number that the pass has left. */
vta_rt_status vta_rt_step(vta_rt *rt, uint32_t *left);

/* After VTA_RT_HUNG, once the board has reset the accelerator: fills the window anew. */
vta_rt_status vta_rt_recover(vta_rt *rt);

/* The counts, which may be null; then clears them, those of batches too, if `clear` isn't 0. */
vta_rt_status vta_rt_stats_of(vta_rt *rt, vta_rt_stats *out, uint32_t clear);

/* The first layer of a batch, in the image; null for a batch that isn't there. */
const char *vta_rt_batch_name(vta_rt *rt, uint32_t index);

/* What the last call on a handle came to, also one that didn't open it. */
void vta_rt_fault_of(const vta_rt *rt, vta_rt_fault *out);

/* A status in words. */
const char *vta_rt_text(vta_rt_status status);

#ifdef __cplusplus
}
#endif

#endif
