/*
 * vta.h: networks on the Versatile Tensor Accelerator. Written by cbindgen from capi/src: don't edit it.
 *
 *   vta_session *session;
 *   if (vta_open("demo", "sim", NULL, &session) || vta_set_images(session, 0, NULL) || vta_run(session))
 *     fprintf(stderr, "%s\n", vta_last_error());
 *
 * Failures. A function that gives a vta_status gives VTA_STATUS_OK, which is 0, or the class of the failure;
 * one that gives a pointer gives NULL. vta_last_error says why, vta_last_status of what class it was. They are
 * of the calling thread, and stay until its next failure. Nothing here ends the program or throws.
 *
 * Pointers. Each is NULL or points to what its function says, for as long as the call lasts; NULL where there
 * must be something is VTA_STATUS_USAGE. Texts are UTF-8 and end with a byte of 0. What is given is copied;
 * what a function gives belongs to the library, and lives as long as the function says.
 *
 * Threads. Any thread may have a session or options, and need not be the one that made them. Calls on one
 * session wait for each other, but for vta_cancel; since setting inputs, running and reading outputs are several
 * calls, threads that share a session need a lock around them, or a session each. Sessions run at the same
 * time. vta_options_set and the functions that free a handle must have it alone. vta_last_error,
 * vta_last_status, vta_version and vta_abi_version may be called any time.
 */


#ifndef VTA_H
#define VTA_H

#include <stddef.h>
#include <stdint.h>

// The version of this interface: the number in the shared library's name. A program that was compiled with
// one works with every library of the same.
#define VTA_ABI_VERSION 1

// Whether a call did what it says, and of what class the failure is if it didn't. Later versions may
// have more classes: treat what you don't know as `VTA_STATUS_INTERNAL`.
typedef enum {
  // It did.
  VTA_STATUS_OK = 0,
  // What was asked for makes no sense: NULL where there must be something, a name that nothing has,
  // options that contradict each other, calls in the wrong order.
  VTA_STATUS_USAGE = 1,
  // A float network, which must be quantised first.
  VTA_STATUS_FLOAT = 2,
  // Data that isn't what it should be: a size, a type, a value, a configuration.
  VTA_STATUS_INPUT = 3,
  // A network that can't be read, placed, compiled or loaded.
  VTA_STATUS_MODEL = 4,
  // A device that isn't there or can't be opened.
  VTA_STATUS_DEVICE = 5,
  // A run that began and failed.
  VTA_STATUS_RUN = 6,
  // A file that can't be read or written.
  VTA_STATUS_FILE = 7,
  // Work for which the system has no memory.
  VTA_STATUS_MEMORY = 8,
  // The work was told to stop.
  VTA_STATUS_CANCELLED = 9,
  // A fault of this library: please report its text.
  VTA_STATUS_INTERNAL = 10,
} vta_status;

// Types of elements.
typedef enum {
  // 32-bit floats.
  VTA_TYPE_F32 = 0,
  // 8-bit integers with a sign. Of a tensor with a scale they are the device's own steps.
  VTA_TYPE_I8 = 1,
  // 8-bit integers without a sign.
  VTA_TYPE_U8 = 2,
  // 32-bit integers.
  VTA_TYPE_I32 = 3,
  // 64-bit integers.
  VTA_TYPE_I64 = 4,
  // Bytes of 0 for false, and of 1 for true.
  VTA_TYPE_BOOL = 5,
  // 16-bit integers with a sign.
  VTA_TYPE_I16 = 6,
  // 16-bit integers without a sign.
  VTA_TYPE_U16 = 7,
} vta_type;

// How a network is opened, compiled and run: see `vta_options_set`. The device is an argument of its own.
typedef struct vta_options vta_options;

// A network loaded on its devices.
typedef struct vta_session vta_session;

// An input or output of a network. It belongs to its session, and never changes.
typedef struct vta_tensor vta_tensor;

// What a session counted in all its runs that ended well. Later versions may add figures at the end.
typedef struct {
  // Runs.
  uint64_t runs;
  // Images of all runs.
  uint64_t images;
  // Passes over the program: each takes up to BATCH images.
  uint64_t passes;
  // Instructions that devices got.
  uint64_t insns;
  // Multiply-adds of the network, for all images.
  uint64_t macs;
  // Bytes that instructions loaded from the device's memory.
  uint64_t bytes_loaded;
  // Bytes that instructions stored to the device's memory.
  uint64_t bytes_stored;
  // Cycles of all passes, on a device that counts them; 0 on others.
  uint64_t cycles;
} vta_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call of this thread that failed did so; "" before any did. It is never NULL, and lives
// until the next call of this thread that fails.
const char *vta_last_error(void);

// The status of the last call of this thread that failed; `VTA_STATUS_OK` before any did.
vta_status vta_last_status(void);

// `VTA_ABI_VERSION` of this library.
uint32_t vta_abi_version(void);

// The version of this library, "MAJOR.MINOR.PATCH". It lives as long as the program.
const char *vta_version(void);

// Options, none of them set. Free them with `vta_options_free`. NULL if there is no memory.
vta_options *vta_options_new(void);

// Sets an option, both as text that is copied:
//
// | `name` | `value` |
// |---|---|
// | `config` | a `vta_config.json`, or an object of its keys, `{"LOG_BLOCK": 4}`; the board's, or else 1x16x16 |
// | `board` | a board, whose limits and timing hold: a preset's name or a TOML file |
// | `timing` | timing alone of a board, for the device `cycle` |
// | `threads` | threads, at least 1; one for each core |
// | `batch` | runs in flight on each device, at least 1; 1, and 2 on OpenCL |
// | `allow_host` | 1 lets the host compute what no device can; 0 |
// | `input_shape` | a shape that an ONNX file leaves open, `NAME=1x3x224x224`, once for each input |
// | `requant` | `precise` or `fast`: how int32 sums become int8; what the model says |
// | `timing_only` | 1 counts cycles and computes nothing, for the device `cycle`; 0 |
// | `placement` | a TOML file that says which layers run on which device |
// | `tiles` | a cache of measured tiles |
// | `costs`, `host_speed` | prices and speeds for estimates, in TOML, for the device `cycle` |
// | `scope`, `bitstream` | memory scopes and bitstream of OpenCL devices |
//
// A file is looked for when a session is opened.
vta_status vta_options_set(vta_options *options,
                           const char *name,
                           const char *value);

// Frees options. Sessions that were opened with them go on. NULL is left alone.
void vta_options_free(vta_options *options);

// Opens a network and compiles it for a device.
//
// `model` is an ONNX file, a bundle (`.vta`), `demo` or `zoo:NAME`, with int8 tensors: a float model is
// `VTA_STATUS_FLOAT`. `device` is `sim` (fast), `oracle` (slow, obvious), `cycle` (counts cycles),
// `opencl[:SEL]` or another of the command line's; several with commas between share the network; NULL is
// `sim`. `options` may be NULL. Devices are opened by the first run.
//
// The session is written to `session`, NULL after a failure. Close it with `vta_close`.
vta_status vta_open(const char *model, const char *device, const vta_options *options, vta_session **session);

// As `vta_open`, of an ONNX model that is in memory, `size` bytes at `data`, which are copied.
vta_status vta_open_onnx(const void *data,
                         size_t size,
                         const char *device,
                         const vta_options *options,
                         vta_session **session);

// Closes a session and frees what belongs to it. No other call may have it any more. NULL is left alone.
void vta_close(vta_session *session);

// How many inputs the network has; 0 for NULL.
size_t vta_input_count(const vta_session *session);

// How many outputs the network has; 0 for NULL.
size_t vta_output_count(const vta_session *session);

// An input by number, from 0; NULL if there is no such one. It lives until the session is closed.
const vta_tensor *vta_input(const vta_session *session, size_t index);

// An output by number, from 0; NULL if there is no such one. It lives until the session is closed.
const vta_tensor *vta_output(const vta_session *session, size_t index);

// Writes the number of the input of a name to `index`.
vta_status vta_find_input(const vta_session *session, const char *name, size_t *index);

// Writes the number of the output of a name to `index`.
vta_status vta_find_output(const vta_session *session, const char *name, size_t *index);

// The model's name for a tensor; NULL for NULL. It lives as long as the tensor.
const char *vta_tensor_name(const vta_tensor *tensor);

// The type of its elements in the model. NULL has `VTA_TYPE_F32`.
vta_type vta_tensor_type(const vta_tensor *tensor);

// How many dimensions one image has; 0 for NULL.
size_t vta_tensor_rank(const vta_tensor *tensor);

// The dimensions of one image, `vta_tensor_rank` of them, without the batch; NULL for NULL. They live as
// long as the tensor.
const size_t *vta_tensor_shape(const vta_tensor *tensor);

// How many values one image has; 0 for NULL.
size_t vta_tensor_len(const vta_tensor *tensor);

// The real value of one int8 step of the device's tensor; 0 for what no device holds, and for NULL.
float vta_tensor_scale(const vta_tensor *tensor);

// The int8 step of the device's tensor that stands for 0.
int32_t vta_tensor_zero(const vta_tensor *tensor);

// How many names of classes the model has; 0 for NULL.
size_t vta_label_count(const vta_session *session);

// The name of a class by number; "" where the model has none for it. It lives until the session is closed.
const char *vta_label(const vta_session *session, size_t index);

// Gives an input by number its values, `count` of `type` (a `vta_type`), which are copied: a whole number of
// images, one behind the other, each in the order of the tensor's shape. An input keeps them until it gets
// others.
//
// `type` is that of the model; where devices hold the tensor (`vta_tensor_scale` isn't 0) it may be
// `VTA_TYPE_I8`, the device's own steps. Real values are rounded to the nearest step, ties to even.
vta_status vta_set_input(vta_session *session, size_t index, int32_t type, const void *values, size_t count);

// Gives an input by number the images of a file or folder, made as the model says they are: photos (png,
// jpeg, webp, bmp, tiff), `.npy`, `.npz`. NULL are the images that come with `demo`, and a synthetic one of
// `zoo:NAME`. All are in memory at once.
vta_status vta_set_images(vta_session *session, size_t index, const char *path);

// Runs the network on what its inputs were given, and waits for it. After a failure the session can be used
// again, but has no outputs.
vta_status vta_run(vta_session *session);

// Lets the run that another thread waits for end with `VTA_STATUS_CANCELLED`, once what has begun is done;
// does nothing where none runs, and for NULL. It never waits.
void vta_cancel(vta_session *session);

// How many images the last run was of; 0 before a run that ended well, and for NULL.
size_t vta_image_count(const vta_session *session);

// Copies an output of the last run to `values`, where there is room for `count` values of `type` (a
// `vta_type`): exactly `vta_image_count` times `vta_tensor_len`, one image behind the other.
//
// `type` is that of the model; of what devices hold, `VTA_TYPE_F32` are real values and `VTA_TYPE_I8` the
// device's own steps; `VTA_TYPE_I64` holds whole numbers of any type that the host gave.
vta_status vta_read_output(const vta_session *session,
                           size_t index,
                           int32_t type,
                           void *values,
                           size_t count);

// Writes what the session counted to `counters`, `size` bytes of it: give `sizeof(vta_counters)`.
vta_status vta_read_counters(const vta_session *session, vta_counters *counters, size_t size);

// What the session counted as an object of JSON, with the keys of `vta run --json`; on a device that counts
// cycles `pass` says where those of one pass went. NULL after a failure. It lives until the next call that
// gives text of this session, or closes it.
const char *vta_counters_json(vta_session *session);

// Remarks on the network and its runs, a line each; "" if there are none. It lives as `vta_counters_json`'s
// does.
const char *vta_notes(vta_session *session);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VTA_H */
