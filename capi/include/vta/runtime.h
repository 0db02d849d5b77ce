/*
 * vta/runtime.h: the original's runtime interface, which the modules that its compiler made call, offered by
 * libvta: buffers, loads and stores of tiles, micro-op kernels, dependences. With it such a module needs no C++
 * runtime. docs/c-original.md says how; the device is chosen as for vta/driver.h.
 *
 * Every thread has a queue of instructions, which its command handle names. Nothing runs before VTASynchronize,
 * or before 2097152 instructions wait. A call that fails says why through vta_last_error of vta.h, and on
 * standard error; what stands in its thread's queue is then thrown away by the next VTASynchronize, which fails.
 */
#ifndef VTA_RUNTIME_H_
#define VTA_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Directions of VTABufferCopy. */
#define VTA_MEMCPY_H2D 1
#define VTA_MEMCPY_D2H 2
#define VTA_MEMCPY_D2D 3

/* Bits of VTASetDebugMode. */
#define VTA_DEBUG_DUMP_INSN (1 << 1)
#define VTA_DEBUG_DUMP_UOP (1 << 2)
#define VTA_DEBUG_SKIP_READ_BARRIER (1 << 3)
#define VTA_DEBUG_SKIP_WRITE_BARRIER (1 << 4)
#define VTA_DEBUG_FORCE_SERIAL (1 << 5)

/* A thread's queue: a number, not an address. */
typedef void *VTACommandHandle;

/* Kernels that were recorded for a place in a program; NULL before the first. */
typedef void *VTAUopHandle;

/* A buffer of whole pages, at least one, filled with zeros; NULL if there is no memory. Its handle is where it
 * begins: the host reads and writes it in place when nothing runs. */
void *VTABufferAlloc(size_t size);

/* Frees a buffer by its handle. */
void VTABufferFree(void *buffer);

/* Copies size bytes: from host memory to a buffer, from a buffer, or between two. */
void VTABufferCopy(const void *from, size_t from_offset, void *to, size_t to_offset, size_t size,
                   int kind_mask);

/* The handle of this thread, valid in it alone, until it ends; NULL if the device can't be opened. */
VTACommandHandle VTATLSCommandHandle(void);

/* Where the host finds a buffer; NULL if it is none. */
void *VTABufferCPUPtr(VTACommandHandle cmd, void *buffer);

/* What is written to standard error when the queue runs, and whether it runs one instruction after the other. */
void VTASetDebugMode(VTACommandHandle cmd, int debug_flag);

/* Nothing is to be done: runs see what the host wrote, and the host what runs wrote. */
void VTAWriteBarrier(VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent);
void VTAReadBarrier(VTACommandHandle cmd, void *buffer, uint32_t elem_bits, uint32_t start, uint32_t extent);

/*
 * LOAD: y_size rows of x_size tiles, x_stride tiles apart, from tile src_elem_offset of a buffer to tile
 * dst_sram_index of a scratchpad (0 micro-ops, 1 weights, 2 inputs, 3 accumulators, 5 accumulators from int8), with
 * 0 to 15 rows and tiles of zeros around.
 */
void VTALoadBuffer2D(VTACommandHandle cmd, void *src_dram_addr, uint32_t src_elem_offset, uint32_t x_size,
                     uint32_t y_size, uint32_t x_stride, uint32_t x_pad_before, uint32_t y_pad_before,
                     uint32_t x_pad_after, uint32_t y_pad_after, uint32_t dst_sram_index,
                     uint32_t dst_memory_type);

/* STORE: rows of accumulators, the low 8 bits of each value, to a buffer; src_memory_type is 4. */
void VTAStoreBuffer2D(VTACommandHandle cmd, uint32_t src_sram_index, uint32_t src_memory_type,
                      void *dst_dram_addr, uint32_t dst_elem_offset, uint32_t x_size, uint32_t y_size,
                      uint32_t x_stride);

/*
 * A micro-op of the kernel that this thread's callback records: mode 0 multiplies input tile src_index by weight
 * tile wgt_index into accumulator tile dst_index, or clears that with reset_out; mode 1 is the ALU on accumulators
 * with opcode 0 MIN, 1 MAX, 2 ADD, 3 SHR (and those of the configuration's extensions), with imm_val, -32768 to
 * 32767, for the second operand if use_imm.
 */
void VTAUopPush(uint32_t mode, uint32_t reset_out, uint32_t dst_index, uint32_t src_index, uint32_t wgt_index,
                uint32_t opcode, uint32_t use_imm, int32_t imm_val);

/* A loop around the micro-ops that follow, two at most, opened before the first micro-op and closed behind the
 * last: each trip adds the factors to the indices. */
void VTAUopLoopBegin(uint32_t extent, uint32_t dst_factor, uint32_t src_factor, uint32_t wgt_factor);
void VTAUopLoopEnd(void);

/*
 * Queues a kernel on this thread. finit(signature) records it, when no kernel of *uop_handle has the same
 * signature of nbytes bytes, and returns 0. 0 if it was queued, 1 if not.
 */
int VTAPushGEMMOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);
int VTAPushALUOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);

/* The last instruction of a stage gives a token to another, or the next of to_qid takes one: 1 loads, 2 computes,
 * 3 stores; queues join 1 with 2 and 2 with 3. 0, or 1 if there is no such queue. */
int VTADepPush(VTACommandHandle cmd, int from_qid, int to_qid);
int VTADepPop(VTACommandHandle cmd, int from_qid, int to_qid);

/* Runs what the queue holds and waits for its end. wait_cycles has no meaning: what would wait for ever is
 * refused. */
void VTASynchronize(VTACommandHandle cmd, uint32_t wait_cycles);

/* Forgets this thread's queue and the recorded kernels of all. */
void VTARuntimeShutdown(void);

#ifdef __cplusplus
}
#endif
#endif /* VTA_RUNTIME_H_ */
