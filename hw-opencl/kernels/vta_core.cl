/*
 * The single-work-item core: one kernel that interprets the instruction stream in order. An
 * FPGA compiler turns it into hardware; on a CPU it is a plain interpreter.
 *
 * The host has checked every instruction and every micro-op before a launch, and orders the
 * stream so that running it from first to last is an order that the dependency tokens allow;
 * so there are no tokens and no bounds here.
 *
 * Build macros:
 *   VTA_BATCH, VTA_BLOCK                       rows and columns of the matrix unit
 *   VTA_UOP_DEPTH, VTA_INP_DEPTH, VTA_WGT_DEPTH, VTA_ACC_DEPTH   scratchpads, in elements
 *   VTA_ON_CHIP    scratchpads are arrays of the kernel (block RAM), zero at the start of a run;
 *                  without it they lie in a buffer of the device and outlive the run
 *   VTA_CHANNELS   three kernels, load, compute and store, joined by Intel channels
 */
#ifdef VTA_CHANNELS
#pragma OPENCL EXTENSION cl_intel_channels : enable
#endif
#ifndef VTA_ISA_H
#include "vta_isa.h"
#endif

/* What isn't a switch over one of its lists, below: memory types in all kernels, instructions in
 * those that channels join. */
#define VTA_ONE(NAME, name) +1
#if (0 VTA_EACH_MEM(VTA_ONE)) != 7
#error "a memory type that LOAD doesn't know"
#endif
#if (0 VTA_EACH_OPCODE(VTA_ONE)) != 6
#error "an instruction that vta_compute doesn't know"
#endif

#define VTA_LANES (VTA_BATCH * VTA_BLOCK)
#define VTA_WGT_TILE (VTA_BLOCK * VTA_BLOCK)

#if defined(VTA_ON_CHIP) || defined(VTA_CHANNELS)
#define VTA_PAD __private
#else
#define VTA_PAD __global
#endif

#define VTA_SINGLE __attribute__((reqd_work_group_size(1, 1, 1)))

/* What a LOAD loads: the order of the stream is right whichever module fills accumulators. */
static uint vta_mem(ulong2 w)
{
    const uint mem = VTA_LOAD_MEMORY_TYPE(w);
    switch (mem) {
    case VTA_MEM_PRELOAD_ACC:
        return VTA_MEM_ACC;
    case VTA_MEM_PRELOAD_ACC8:
        return VTA_MEM_ACC8;
    case VTA_MEM_PADDED_INP:
        return VTA_LOAD_WGT4(w) ? VTA_MEM_WGT4 : VTA_MEM_INP;
    default:
        return mem;
    }
}

/* Bytes of one element of a memory type in DRAM. */
static uint vta_elem_bytes(uint mem)
{
    switch (mem) {
    case VTA_MEM_UOP:
        return 4;
    case VTA_MEM_WGT:
        return VTA_WGT_TILE;
    case VTA_MEM_WGT4:
        return (VTA_WGT_TILE + 1) / 2;
    case VTA_MEM_ACC:
        return 4 * VTA_LANES;
    default: /* INP, OUT and ACC8. */
        return VTA_LANES;
    }
}

/* The weight in a byte's lower half, or the upper one. */
static char vta_weight4(uint byte, uint upper)
{
    const int signed_byte = as_char((uchar)(upper ? byte : byte << 4));
    return (char)(signed_byte >> 4);
}

static int vta_padded(ulong2 w)
{
    return VTA_LOAD_MEMORY_TYPE(w) == VTA_MEM_PADDED_INP && vta_mem(w) == VTA_MEM_INP;
}

/* The rows of a LOAD, and the byte of its padding: where inputs are padded with a value, it has bits of the rows. */
static uint vta_y_size(ulong2 w)
{
    return vta_padded(w) ? VTA_PADDED_Y_SIZE(w) : VTA_LOAD_Y_SIZE(w);
}

static uchar vta_pad_byte(ulong2 w)
{
    return vta_padded(w) ? as_uchar((char)VTA_PADDED_PAD_VALUE(w)) : (uchar)0;
}

/* The scratchpads on chip, of zeros. */
#define VTA_SCRATCHPADS                                                                          \
    uint uop[VTA_UOP_DEPTH];                                                                     \
    int acc[VTA_ACC_DEPTH * VTA_LANES];                                                          \
    char wgt[VTA_WGT_DEPTH * VTA_WGT_TILE];                                                      \
    char inp[VTA_INP_DEPTH * VTA_LANES];                                                         \
    for (uint i = 0; i < VTA_UOP_DEPTH; ++i)                                                     \
        uop[i] = 0;                                                                              \
    for (uint i = 0; i < VTA_ACC_DEPTH * VTA_LANES; ++i)                                         \
        acc[i] = 0;                                                                              \
    for (uint i = 0; i < VTA_WGT_DEPTH * VTA_WGT_TILE; ++i)                                      \
        wgt[i] = 0;                                                                              \
    for (uint i = 0; i < VTA_INP_DEPTH * VTA_LANES; ++i)                                         \
        inp[i] = 0;

/* The instance that this program was built for: the host compares it with the one it wants. */
VTA_SINGLE __kernel void vta_identity(__global uint *restrict out)
{
    out[0] = VTA_ENCODING_VERSION;
    out[1] = VTA_BATCH;
    out[2] = VTA_BLOCK;
    out[3] = VTA_UOP_DEPTH;
    out[4] = VTA_INP_DEPTH;
    out[5] = VTA_WGT_DEPTH;
    out[6] = VTA_ACC_DEPTH;
}

/* The ALU operations: a function for each in the list of vta_isa.h. */
static int vta_min(int x, int y)
{
    return min(x, y);
}

static int vta_max(int x, int y)
{
    return max(x, y);
}

/* Two's complement without the undefined behaviour of signed overflow. */
static int vta_add(int x, int y)
{
    return as_int(as_uint(x) + as_uint(y));
}

/* Arithmetic right shift, left shift for a negative amount; amounts modulo 32. */
static int vta_shr(int x, int y)
{
    const uint left = (0u - as_uint(y)) & 31u;
    return y >= 0 ? x >> (y & 31) : as_int(as_uint(x) << left);
}

static int vta_mul(int x, int y)
{
    return as_int(as_uint(x) * as_uint(y));
}

static int vta_shl(int x, int y)
{
    return vta_shr(x, as_int(0u - as_uint(y)));
}

/* A bound in thirty-seconds, times 2 to a power and rounded down. */
static int vta_bound(int byte, uint scale, uint parts)
{
    const uint fixed = as_uint(byte) << 5 | (parts & 31u);
    return as_int(fixed << (scale >> 10)) >> 5;
}

static int vta_clip(int x, int y)
{
    const uint scale = as_uint(y ^ y >> 31) >> 16;
    const int low = vta_bound(as_int(as_uint(y) << 16) >> 24, scale, scale >> 5);
    const int high = vta_bound(as_int(as_uint(y) << 24) >> 24, scale, scale);
    return max(min(x, high), low);
}

static int vta_mov(int x, int y)
{
    return y;
}

/* The constants of a row's channels, in registers. */
static void vta_entry(int *entry, ulong2 w, uint row, VTA_PAD const int *acc)
{
    const uint tiles = VTA_REQUANTIZE_RESIDUAL(w) ? VTA_ENTRY : VTA_ROUNDING;
    const uint first = VTA_REQUANTIZE_TABLE(w) + (VTA_REQUANTIZE_BY_ROW(w) ? row * tiles : 0u);
    for (uint i = 0; i < tiles * VTA_LANES; ++i)
        entry[i] = acc[first * VTA_LANES + i];
}

/* Adds the offset to a product, shifts and clamps. */
static int vta_round(long product, const int *entry)
{
    const int bounds = entry[VTA_LANES];
    const long offset = (long)((bounds & 0xffff) ^ 0x8000) - 0x8000;
    const long sum = product + offset * 4294967296L + (long)as_uint(entry[0]);
    const int high = bounds >> 24, low = as_int(as_uint(bounds) << 8) >> 24;
    return (int)max(min(sum >> (entry[2 * VTA_LANES] >> 24 & 63), (long)high), (long)low);
}

static long vta_factor(int word)
{
    return word & 0xffffff;
}

/* What a STORE that requantises makes of an element. */
static uchar vta_requantized(const int *entry, ulong2 w, VTA_PAD const int *acc, uint at)
{
    const uint lane = at % VTA_LANES;
    const uint residual = VTA_REQUANTIZE_RESIDUAL(w) * VTA_RESIDUAL_TILES * VTA_LANES;
    const int *first = entry + lane;
    int x = vta_round(acc[at] * vta_factor(first[2 * VTA_LANES]), first);
    if (residual) {
        const int *second = first + VTA_ROUNDING * VTA_LANES;
        const long more = (long)as_char((uchar)(as_uint(acc[at + residual]) & 0xffu)) *
                          vta_factor(second[VTA_ROUNDING * VTA_LANES]);
        x = vta_round(x * vta_factor(second[2 * VTA_LANES]) + more, second);
    }
    return (uchar)(as_uint(x) & 0xffu);
}

/* What another STORE makes of one: its low byte, or with saturation the number clamped to int8. */
static uchar vta_narrow(ulong2 w, int x)
{
    return (uchar)(as_uint(VTA_STORE_SATURATE(w) ? clamp(x, -128, 127) : x) & 0xffu);
}

#define VTA_OPERATION(NAME, name)                                                                \
    case VTA_ALU_##NAME:                                                                         \
        return vta_##name(x, y);

static int vta_operation(uint op, int x, int y)
{
    switch (op) {
        VTA_EACH_ALU(VTA_OPERATION)
    default: /* The host refuses every other code. */
        return x;
    }
}

static void vta_product(VTA_PAD int *restrict acc, VTA_PAD const char *restrict inp,
                        VTA_PAD const char *restrict wgt)
{
    for (uint b = 0; b < VTA_BATCH; ++b) {
#pragma unroll
        for (uint o = 0; o < VTA_BLOCK; ++o) {
            int sum = 0;
#pragma unroll
            for (uint k = 0; k < VTA_BLOCK; ++k)
                sum += (int)inp[b * VTA_BLOCK + k] * (int)wgt[o * VTA_BLOCK + k];
            acc[b * VTA_BLOCK + o] = vta_add(acc[b * VTA_BLOCK + o], sum);
        }
    }
}

static void vta_gemm(ulong2 w, VTA_PAD const uint *restrict uop, VTA_PAD const char *restrict inp,
                     VTA_PAD const char *restrict wgt, VTA_PAD int *restrict acc)
{
    const uint bgn = VTA_GEMM_UOP_BGN(w), end = VTA_GEMM_UOP_END(w);
    const uint iter_out = VTA_GEMM_ITER_OUT(w), iter_in = VTA_GEMM_ITER_IN(w);
    const uint reset = VTA_GEMM_RESET(w), overwrite = VTA_GEMM_OVERWRITE(w);
    for (uint i = 0; i < iter_out; ++i) {
        for (uint j = 0; j < iter_in; ++j) {
            const uint dst_base = i * VTA_GEMM_DST_FACTOR_OUT(w) + j * VTA_GEMM_DST_FACTOR_IN(w);
            const uint src_base = i * VTA_GEMM_SRC_FACTOR_OUT(w) + j * VTA_GEMM_SRC_FACTOR_IN(w);
            const uint wgt_base = i * VTA_GEMM_WGT_FACTOR_OUT(w) + j * VTA_GEMM_WGT_FACTOR_IN(w);
            for (uint u = bgn; u < end; ++u) {
                const uint word = uop[u];
                const uint dst = VTA_UOP_DST(word) + dst_base;
                if (reset | overwrite) {
#pragma unroll
                    for (uint l = 0; l < VTA_LANES; ++l)
                        acc[dst * VTA_LANES + l] = 0;
                }
                if (!reset) {
                    const uint src = VTA_UOP_SRC(word) + src_base;
                    const uint tile = VTA_UOP_WGT(word) + wgt_base;
                    vta_product(acc + dst * VTA_LANES, inp + src * VTA_LANES,
                                wgt + tile * VTA_WGT_TILE);
                }
            }
        }
    }
}

static void vta_depthwise(ulong2 w, VTA_PAD const uint *restrict uop,
                          VTA_PAD const char *restrict inp, VTA_PAD const char *restrict wgt,
                          VTA_PAD int *restrict acc)
{
    const uint bgn = VTA_DEPTHWISE_UOP_BGN(w), end = VTA_DEPTHWISE_UOP_END(w);
    const uint iter_out = VTA_DEPTHWISE_ITER_OUT(w), iter_in = VTA_DEPTHWISE_ITER_IN(w);
    const uint rows = VTA_DEPTHWISE_ROWS(w), columns = VTA_DEPTHWISE_COLUMNS(w);
    const uint pitch = VTA_DEPTHWISE_PITCH(w), overwrite = VTA_DEPTHWISE_OVERWRITE(w);
    for (uint i = 0; i < iter_out; ++i) {
        for (uint j = 0; j < iter_in; ++j) {
            const uint dst_base =
                i * VTA_DEPTHWISE_DST_FACTOR_OUT(w) + j * VTA_DEPTHWISE_DST_FACTOR_IN(w);
            const uint src_base =
                i * VTA_DEPTHWISE_SRC_FACTOR_OUT(w) + j * VTA_DEPTHWISE_SRC_FACTOR_IN(w);
            for (uint u = bgn; u < end; ++u) {
                const uint word = uop[u];
                const uint dst = (VTA_UOP_DST(word) + dst_base) * VTA_LANES;
                const uint src = VTA_UOP_SRC(word) + src_base;
                VTA_PAD const char *taps = wgt + VTA_UOP_WGT(word) * VTA_WGT_TILE;
                if (overwrite) {
#pragma unroll
                    for (uint l = 0; l < VTA_LANES; ++l)
                        acc[dst + l] = 0;
                }
                for (uint y = 0; y < rows; ++y) {
                    for (uint x = 0; x < columns; ++x) {
                        const uint from = (src + y * pitch + x) * VTA_LANES;
                        const uint tap = y * columns + x;
#pragma unroll
                        for (uint l = 0; l < VTA_LANES; ++l) {
                            const int weight = (int)taps[l % VTA_BLOCK * VTA_BLOCK + tap];
                            acc[dst + l] = vta_add(acc[dst + l], (int)inp[from + l] * weight);
                        }
                    }
                }
            }
        }
    }
}

static void vta_alu(ulong2 w, VTA_PAD const uint *restrict uop, VTA_PAD int *acc)
{
    const uint bgn = VTA_ALU_UOP_BGN(w), end = VTA_ALU_UOP_END(w);
    const uint iter_out = VTA_ALU_ITER_OUT(w), iter_in = VTA_ALU_ITER_IN(w);
    const uint op = VTA_ALU_ALU_OPCODE(w), use_imm = VTA_ALU_USE_IMM(w);
    const int imm = VTA_ALU_IMM(w);
    for (uint i = 0; i < iter_out; ++i) {
        for (uint j = 0; j < iter_in; ++j) {
            const uint dst_base = i * VTA_ALU_DST_FACTOR_OUT(w) + j * VTA_ALU_DST_FACTOR_IN(w);
            const uint src_base = i * VTA_ALU_SRC_FACTOR_OUT(w) + j * VTA_ALU_SRC_FACTOR_IN(w);
            for (uint u = bgn; u < end; ++u) {
                const uint word = uop[u];
                const uint dst = (VTA_UOP_DST(word) + dst_base) * VTA_LANES;
                /* The source of an immediate may lie outside and is not read. */
                const uint src = use_imm ? dst : (VTA_UOP_SRC(word) + src_base) * VTA_LANES;
#pragma unroll
                for (uint l = 0; l < VTA_LANES; ++l)
                    acc[dst + l] = vta_operation(op, acc[dst + l], use_imm ? imm : acc[src + l]);
            }
        }
    }
}

#ifndef VTA_CHANNELS

static void vta_load(ulong2 w, ulong dram_base, __global const uchar *restrict dram,
                     VTA_PAD uint *restrict uop, VTA_PAD char *restrict inp,
                     VTA_PAD char *restrict wgt, VTA_PAD int *restrict acc)
{
    const uint mem = vta_mem(w);
    const uint y_size = vta_y_size(w), x_size = VTA_LOAD_X_SIZE(w);
    const uint y_pad_0 = VTA_LOAD_Y_PAD_0(w), x_pad_0 = VTA_LOAD_X_PAD_0(w);
    const uint rows = y_pad_0 + y_size + VTA_LOAD_Y_PAD_1(w);
    const uint cols = x_pad_0 + x_size + VTA_LOAD_X_PAD_1(w);
    const uint elem = vta_elem_bytes(mem);
    uint tile = VTA_LOAD_SRAM_BASE(w);
    if (x_size == 0 || y_size == 0)
        return;
    for (uint row = 0; row < rows; ++row) {
        /* Wraps below the padding, which the comparison then takes for outside. */
        const uint y = row - y_pad_0;
        const ulong first = (ulong)VTA_LOAD_DRAM_BASE(w) + (ulong)y * VTA_LOAD_X_STRIDE(w);
        __global const uchar *restrict line = dram + (first * elem - dram_base);
        for (uint col = 0; col < cols; ++col, ++tile) {
            const uint x = col - x_pad_0;
            const int inside = y < y_size && x < x_size;
            __global const uchar *restrict from = inside ? line + (ulong)x * elem : dram;
            if (mem == VTA_MEM_INP) {
                for (uint l = 0; l < VTA_LANES; ++l)
                    inp[tile * VTA_LANES + l] = as_char((uchar)(inside ? from[l] : vta_pad_byte(w)));
            } else if (mem == VTA_MEM_WGT) {
                for (uint l = 0; l < VTA_WGT_TILE; ++l)
                    wgt[tile * VTA_WGT_TILE + l] = inside ? as_char(from[l]) : (char)0;
            } else if (mem == VTA_MEM_WGT4) {
                for (uint l = 0; l < VTA_WGT_TILE; ++l)
                    wgt[tile * VTA_WGT_TILE + l] =
                        inside ? vta_weight4(from[l / 2], l % 2) : (char)0;
            } else if (mem == VTA_MEM_UOP) {
                uop[tile] = inside ? *(__global const uint *)from : 0u;
            } else if (mem == VTA_MEM_ACC) {
                for (uint l = 0; l < VTA_LANES; ++l)
                    acc[tile * VTA_LANES + l] = inside ? ((__global const int *)from)[l] : 0;
            } else {
                for (uint l = 0; l < VTA_LANES; ++l)
                    acc[tile * VTA_LANES + l] = inside ? (int)as_char(from[l]) : 0;
            }
        }
    }
}

static void vta_store(ulong2 w, ulong dram_base, __global uchar *restrict dram,
                      VTA_PAD const int *restrict acc)
{
    const uint y_size = VTA_STORE_Y_SIZE(w), x_size = VTA_STORE_X_SIZE(w);
    const bool requantizes = VTA_INSN_OPCODE(w) == VTA_OPCODE_REQUANTIZING;
    uint tile = VTA_STORE_SRAM_BASE(w);
    int entry[VTA_ENTRY * VTA_LANES];
    for (uint y = 0; y < y_size; ++y) {
        const ulong first = (ulong)VTA_STORE_DRAM_BASE(w) + (ulong)y * VTA_STORE_X_STRIDE(w);
        __global uchar *restrict to = dram + (first * VTA_LANES - dram_base);
        if (requantizes && x_size)
            vta_entry(entry, w, y, acc);
        for (uint l = 0; l < x_size * VTA_LANES; ++l) {
            const uint at = tile * VTA_LANES + l;
            to[l] = requantizes ? vta_requantized(entry, w, acc, at) : vta_narrow(w, acc[at]);
        }
        tile += x_size;
    }
}

/* How each kind of instruction in the list of vta_isa.h runs. */
#define VTA_RUN_LOAD vta_load(w, dram_base, dram, uop, inp, wgt, acc)
#define VTA_RUN_STORE vta_store(w, dram_base, dram, acc)
#define VTA_RUN_GEMM vta_gemm(w, uop, inp, wgt, acc)
#define VTA_RUN_FINISH (void)0
#define VTA_RUN_DEPTHWISE vta_depthwise(w, uop, inp, wgt, acc)
#define VTA_RUN_ALU vta_alu(w, uop, acc)
#define VTA_RUN(NAME, name)                                                                      \
    case VTA_OPCODE_##NAME:                                                                      \
        VTA_RUN_##NAME;                                                                          \
        break;

/*
 * Runs instructions 0 to count - 1.
 *   dram_base     the physical address of the first byte of dram
 *   scratchpads   of micro-ops, accumulators, weights and inputs, in this order; unused (and any
 *                 buffer) with VTA_ON_CHIP
 */
VTA_SINGLE __kernel void vta_core(uint count, ulong dram_base,
                                  __global const ulong2 *restrict insns,
                                  __global uchar *restrict dram,
                                  __global uint *restrict scratchpads)
{
#ifdef VTA_ON_CHIP
    VTA_SCRATCHPADS
#else
    __global uint *restrict uop = scratchpads;
    __global int *restrict acc = (__global int *)(scratchpads + VTA_UOP_DEPTH);
    __global char *restrict wgt = (__global char *)(acc + VTA_ACC_DEPTH * VTA_LANES);
    __global char *restrict inp = wgt + VTA_WGT_DEPTH * VTA_WGT_TILE;
#endif
    for (uint i = 0; i < count; ++i) {
        const ulong2 w = insns[i];
        switch (VTA_INSN_OPCODE(w)) {
            VTA_EACH_OPCODE(VTA_RUN)
        case VTA_OPCODE_OVERWRITING:
            VTA_RUN_GEMM;
            break;
        case VTA_OPCODE_REQUANTIZING:
            VTA_RUN_STORE;
            break;
        }
    }
}

#else /* VTA_CHANNELS */

/*
 * DRAM is read by one kernel and written by another; the scratchpads belong to the third, which
 * gets every loaded element and gives every stored tile as packets. Each kernel walks the same
 * stream. A LOAD that reads what an earlier STORE wrote waits for it: fences[i] is how many
 * STOREs must be done before instruction i, and each finished STORE sends one acknowledgement.
 * A STORE never overtakes a LOAD before it, since compute has taken that LOAD's packets first.
 */
#define VTA_PACKET_BYTES 64
#define VTA_PACKETS(bytes) (((bytes) + VTA_PACKET_BYTES - 1) / VTA_PACKET_BYTES)
#define VTA_OUT_PACKETS VTA_PACKETS(VTA_LANES)

typedef struct {
    uchar bytes[VTA_PACKET_BYTES];
} vta_packet;

channel vta_packet vta_loaded __attribute__((depth(64)));
channel vta_packet vta_stored __attribute__((depth(64)));
channel uint vta_done __attribute__((depth(64)));

VTA_SINGLE __kernel void vta_load(uint count, ulong dram_base,
                                  __global const ulong2 *restrict insns,
                                  __global const uint *restrict fences,
                                  __global volatile const uchar *dram, uint stores)
{
    uint done = 0;
    for (uint i = 0; i < count; ++i) {
        const ulong2 w = insns[i];
        if (VTA_INSN_OPCODE(w) != VTA_OPCODE_LOAD)
            continue;
        const uint y_size = vta_y_size(w), x_size = VTA_LOAD_X_SIZE(w);
        const uint elem = vta_elem_bytes(vta_mem(w));
        if (x_size == 0 || y_size == 0)
            continue;
        while (done < fences[i]) {
            (void)read_channel_intel(vta_done);
            mem_fence(CLK_CHANNEL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            ++done;
        }
        for (uint y = 0; y < y_size; ++y) {
            const ulong first = (ulong)VTA_LOAD_DRAM_BASE(w) + (ulong)y * VTA_LOAD_X_STRIDE(w);
            for (uint x = 0; x < x_size; ++x) {
                const ulong from = (first + x) * elem - dram_base;
                for (uint p = 0; p < VTA_PACKETS(elem); ++p) {
                    vta_packet packet;
                    for (uint b = 0; b < VTA_PACKET_BYTES; ++b) {
                        const uint at = p * VTA_PACKET_BYTES + b;
                        packet.bytes[b] = at < elem ? dram[from + at] : (uchar)0;
                    }
                    /* An acknowledgement that nobody takes would hold up the store kernel, and
                     * through it compute, which is to take this packet. */
                    while (!write_channel_nb_intel(vta_loaded, packet)) {
                        bool taken;
                        (void)read_channel_nb_intel(vta_done, &taken);
                        done += taken ? 1 : 0;
                    }
                }
            }
        }
    }
    while (done < stores) {
        (void)read_channel_intel(vta_done);
        ++done;
    }
}

VTA_SINGLE __kernel void vta_compute(uint count, __global const ulong2 *restrict insns)
{
    VTA_SCRATCHPADS
    for (uint i = 0; i < count; ++i) {
        const ulong2 w = insns[i];
        const uint opcode = VTA_INSN_OPCODE(w);
        if (opcode == VTA_OPCODE_GEMM || opcode == VTA_OPCODE_OVERWRITING) {
            vta_gemm(w, uop, inp, wgt, acc);
        } else if (opcode == VTA_OPCODE_ALU) {
            vta_alu(w, uop, acc);
        } else if (opcode == VTA_OPCODE_DEPTHWISE) {
            vta_depthwise(w, uop, inp, wgt, acc);
        } else if (opcode == VTA_OPCODE_LOAD) {
            const uint mem = vta_mem(w);
            const uint y_size = vta_y_size(w), x_size = VTA_LOAD_X_SIZE(w);
            const uint y_pad_0 = VTA_LOAD_Y_PAD_0(w), x_pad_0 = VTA_LOAD_X_PAD_0(w);
            const uint rows = y_pad_0 + y_size + VTA_LOAD_Y_PAD_1(w);
            const uint cols = x_pad_0 + x_size + VTA_LOAD_X_PAD_1(w);
            const uint elem = vta_elem_bytes(mem);
            uint tile = VTA_LOAD_SRAM_BASE(w);
            if (x_size == 0 || y_size == 0)
                continue;
            for (uint row = 0; row < rows; ++row) {
                for (uint col = 0; col < cols; ++col, ++tile) {
                    const uint y = row - y_pad_0, x = col - x_pad_0;
                    const int inside = y < y_size && x < x_size;
                    for (uint p = 0; p < VTA_PACKETS(elem); ++p) {
                        vta_packet packet;
                        if (inside)
                            packet = read_channel_intel(vta_loaded);
                        for (uint b = 0; b < VTA_PACKET_BYTES; ++b) {
                            const uint at = p * VTA_PACKET_BYTES + b;
                            const uint byte = inside ? packet.bytes[b] : vta_pad_byte(w);
                            const uint shift = at % 4 * 8;
                            if (at >= elem)
                                continue;
                            if (mem == VTA_MEM_INP)
                                inp[tile * VTA_LANES + at] = as_char((uchar)byte);
                            else if (mem == VTA_MEM_WGT)
                                wgt[tile * VTA_WGT_TILE + at] = as_char((uchar)byte);
                            else if (mem == VTA_MEM_WGT4)
                                for (uint l = 2 * at; l < 2 * at + 2 && l < VTA_WGT_TILE; ++l)
                                    wgt[tile * VTA_WGT_TILE + l] = vta_weight4(byte, l % 2);
                            else if (mem == VTA_MEM_UOP)
                                uop[tile] = (shift ? uop[tile] : 0u) | byte << shift;
                            else if (mem == VTA_MEM_ACC8)
                                acc[tile * VTA_LANES + at] = (int)as_char((uchar)byte);
                            else
                                acc[tile * VTA_LANES + at / 4] = as_int(
                                    (shift ? as_uint(acc[tile * VTA_LANES + at / 4]) : 0u) |
                                    byte << shift);
                        }
                    }
                }
            }
        } else if (opcode == VTA_OPCODE_STORE || opcode == VTA_OPCODE_REQUANTIZING) {
            const bool requantizes = opcode == VTA_OPCODE_REQUANTIZING;
            const uint x_size = VTA_STORE_X_SIZE(w);
            const uint tiles = VTA_STORE_Y_SIZE(w) * x_size;
            const uint first = VTA_STORE_SRAM_BASE(w) * VTA_LANES;
            int entry[VTA_ENTRY * VTA_LANES];
            for (uint t = 0; t < tiles; ++t) {
                if (requantizes && t % x_size == 0)
                    vta_entry(entry, w, t / x_size, acc);
                for (uint p = 0; p < VTA_OUT_PACKETS; ++p) {
                    vta_packet packet;
                    for (uint b = 0; b < VTA_PACKET_BYTES; ++b) {
                        const uint at = p * VTA_PACKET_BYTES + b;
                        const uint from = first + t * VTA_LANES + at;
                        packet.bytes[b] = 0;
                        if (at < VTA_LANES)
                            packet.bytes[b] = requantizes
                                                  ? vta_requantized(entry, w, acc, from)
                                                  : vta_narrow(w, acc[from]);
                    }
                    write_channel_intel(vta_stored, packet);
                }
            }
        }
    }
}

VTA_SINGLE __kernel void vta_store(uint count, ulong dram_base,
                                   __global const ulong2 *restrict insns,
                                   __global volatile uchar *dram)
{
    for (uint i = 0; i < count; ++i) {
        const ulong2 w = insns[i];
        if (VTA_INSN_OPCODE(w) != VTA_OPCODE_STORE &&
            VTA_INSN_OPCODE(w) != VTA_OPCODE_REQUANTIZING)
            continue;
        const uint y_size = VTA_STORE_Y_SIZE(w), x_size = VTA_STORE_X_SIZE(w);
        if (x_size == 0 || y_size == 0)
            continue;
        for (uint y = 0; y < y_size; ++y) {
            const ulong first = (ulong)VTA_STORE_DRAM_BASE(w) + (ulong)y * VTA_STORE_X_STRIDE(w);
            for (uint x = 0; x < x_size; ++x) {
                const ulong to = (first + x) * VTA_LANES - dram_base;
                for (uint p = 0; p < VTA_OUT_PACKETS; ++p) {
                    const vta_packet packet = read_channel_intel(vta_stored);
                    for (uint b = 0; b < VTA_PACKET_BYTES; ++b) {
                        const uint at = p * VTA_PACKET_BYTES + b;
                        if (at < VTA_LANES)
                            dram[to + at] = packet.bytes[b];
                    }
                }
            }
        }
        mem_fence(CLK_CHANNEL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        write_channel_intel(vta_done, 1u);
    }
}

#endif /* VTA_CHANNELS */
