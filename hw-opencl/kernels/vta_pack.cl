/*
 * Packs images into the tiles of a tensor, where they were copied to as they are: that is a
 * tenth of the bytes of its patches, and the device packs faster than its host.
 *
 * A piece is a block of channels, or of columns of patches, of one batch row at one position. A
 * work-item takes `share` of them, one after the other; work-items side by side write side by
 * side. Build macros: as for vta_throughput.cl.
 */
#ifndef VTA_THROUGHPUT_H
#include "vta_throughput.h"
#endif

#define VTA_PACK_SIZE(NAME) sizes[VTA_PACK_##NAME]

/* `sizes` has the words VTA_PACK_..; tiles without padding are patches of one tap. The images lie
 * one behind the other, each in CHW order; `to` is the first byte of the tensor. */
__kernel void vta_pack(__global const uint *sizes, __global const char *images,
                       __global uchar *dram, ulong to, uint share)
{
    const uint count = VTA_PACK_SIZE(IMAGES), channels = VTA_PACK_SIZE(CHANNELS);
    const long height = VTA_PACK_SIZE(HEIGHT), width = VTA_PACK_SIZE(WIDTH);
    const uint kernel_height = VTA_PACK_SIZE(KERNEL_HEIGHT), kernel_width = VTA_PACK_SIZE(KERNEL_WIDTH);
    const uint out_width = VTA_PACK_SIZE(OUT_WIDTH), positions = VTA_PACK_SIZE(POSITIONS);
    const uchar zero = (uchar)VTA_PACK_SIZE(ZERO);
    const ulong pieces = (ulong)VTA_PACK_SIZE(BLOCKS) * positions * VTA_BATCH;
    const ulong first = (ulong)get_global_id(0) * share;
    const ulong last = min(first + share, pieces);
    for (ulong piece = first; piece < last; ++piece) {
        const uint row = (uint)(piece % VTA_BATCH);
        const ulong tile = piece / VTA_BATCH;
        const uint position = (uint)(tile % positions), block = (uint)(tile / positions);
        const long top = (long)(position / out_width) * VTA_PACK_SIZE(STRIDE_Y) - VTA_PACK_SIZE(TOP);
        const long left = (long)(position % out_width) * VTA_PACK_SIZE(STRIDE_X) - VTA_PACK_SIZE(LEFT);
        const ulong column = (ulong)block * VTA_BLOCK;
        const uint taps = kernel_height * kernel_width;
        uint channel = (uint)(column / taps);
        uint ky = (uint)(column % taps) / kernel_width, kx = (uint)(column % taps) % kernel_width;
        __global const char *image = images + (ulong)row * channels * height * width;
        __global uchar *out = dram + to + piece * VTA_BLOCK;
        for (uint k = 0; k < VTA_BLOCK; ++k) {
            uchar value = 0;
            if (row < count && channel < channels) {
                const long y = top + (long)ky * VTA_PACK_SIZE(DILATION_Y);
                const long x = left + (long)kx * VTA_PACK_SIZE(DILATION_X);
                const bool inside = y >= 0 && y < height && x >= 0 && x < width;
                value = inside ? (uchar)image[((long)channel * height + y) * width + x] : zero;
            }
            out[k] = value;
            if (++kx == kernel_width) {
                kx = 0;
                if (++ky == kernel_height) {
                    ky = 0;
                    ++channel;
                }
            }
        }
    }
}
