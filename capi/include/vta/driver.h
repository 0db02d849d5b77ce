/*
 * vta/driver.h: the interface between the original runtime of the Versatile Tensor Accelerator and a device,
 * offered by libvta. A program or library that was linked with the original's simulator or board driver links
 * with libvta instead; docs/c-original.md says how.
 *
 * The device is opened by the first call that needs it, one for the process. The environment says which:
 *   VTA_DEVICE   sim (the default), oracle, cycle, opencl[:SEL], board:NAME, rtl:LIB.so
 *   VTA_BOARD    the board whose configuration and timing the device has
 *   VTA_CONFIG   a file vta_config.json; without it and VTA_BOARD the default configuration, 1x16x16
 * Instructions and micro-ops are read as the original packs them for VTA_CONFIG, without it for the default.
 *
 * Functions may be called by any thread; they wait for each other, and for a run. What fails says why through
 * vta_last_error of vta.h; the first failures of a process are also written to standard error.
 */
#ifndef VTA_DRIVER_H_
#define VTA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of VTAMemAlloc: both kinds of memory are the same here. */
#define VTA_CACHED 1
#define VTA_NOT_CACHED 0

/* The most bytes that the original runtime queues before it runs them. */
#ifndef VTA_MAX_XFER
#define VTA_MAX_XFER (1 << 25)
#endif

/* Buffers begin on pages and are whole pages. */
#define VTA_PAGE_BITS 12
#define VTA_PAGE_BYTES (1 << VTA_PAGE_BITS)

/* What VTADeviceAlloc gives: a number, not an address. */
typedef void *VTADeviceHandle;

/* An address of the device's memory. */
typedef uint32_t vta_phy_addr_t;

/* A handle on the device; NULL if it can't be opened. */
VTADeviceHandle VTADeviceAlloc(void);

/* Gives a handle back. Buffers and tokens stay. */
void VTADeviceFree(VTADeviceHandle handle);

/*
 * Runs insn_count instructions, 16 bytes each, that lie at an address of the device, and waits for their end;
 * the last is FINISH. The run sees what was written to buffers before, and buffers hold what it stored when it
 * returns: no thread may touch them meanwhile. Dependence tokens that a run leaves are there for the next one
 * that needs them. 0 if it ran to its end, 1 if not: the tokens are gone then, and buffers hold what was stored
 * before the fault. wait_cycles has no meaning: a run that waits for a token that never comes is refused.
 */
int VTADeviceRun(VTADeviceHandle device, vta_phy_addr_t insn_phy_addr, uint32_t insn_count,
                 uint32_t wait_cycles);

/* A buffer of whole pages, at least one, filled with zeros, that the host writes and reads in place; NULL if
 * there is no memory for it. */
void *VTAMemAlloc(size_t size, int cached);

/* Frees a buffer, given its first byte; NULL is nothing to free. */
void VTAMemFree(void *buf);

/* The device's address of a byte of a buffer, which need not be its first; 0 if it is in no buffer. */
vta_phy_addr_t VTAMemGetPhyAddr(void *buf);

/* Copies into a buffer, or a part of it. Nothing is copied if it doesn't fit. */
void VTAMemCopyFromHost(void *dst, const void *src, size_t size);

/* Copies from a buffer, or a part of it. Nothing is copied if there aren't so many bytes. */
void VTAMemCopyToHost(void *dst, const void *src, size_t size);

/* Nothing is left to do between the host and a run: both do nothing. */
void VTAFlushCache(void *vir_addr, vta_phy_addr_t phy_addr, int size);
void VTAInvalidateCache(void *vir_addr, vta_phy_addr_t phy_addr, int size);

/* Names the bitstream for an OpenCL device that takes no source, before the device is opened. Other devices
 * need none. */
void VTAProgram(const char *bitstream);

/*
 * What all runs moved and computed, as a JSON object with the names of the original's profiler:
 * inp_load_nbytes, wgt_load_nbytes, acc_load_nbytes, uop_load_nbytes, out_store_nbytes, gemm_counter,
 * alu_counter. Anything but 0 clears the counts. The text lives until the thread's next call.
 */
const char *vta_stats_json(int clear);

/*
 * Lets failures of the functions here and in vta/runtime.h be told to a function instead of standard error; NULL:
 * to standard error again. It is called by the thread whose call failed, before that call ends, with the text that
 * vta_last_error has then, which lives as long as the call. It must return, and may call any function but this one.
 */
void vta_on_failure(void (*callback)(const char *text, void *data), void *data);

#ifdef __cplusplus
}
#endif
#endif /* VTA_DRIVER_H_ */
