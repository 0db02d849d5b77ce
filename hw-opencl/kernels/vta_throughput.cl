/*
 * The throughput structure for CPUs and GPUs. The host decodes a batch into operations, each a
 * number of units that don't depend on each other, orders the operations into levels that do,
 * and cuts each level into blocks of units. A launch is one level shared by many work-groups,
 * or, for small ones, a run of levels that a single work-group takes one after the other.
 *
 * A unit is VTA_V neighbouring lanes of one accumulator tile (VTA_ROWS tiles for a GEMM), so the
 * same code serves a CPU, whose work-items are vectors, and a GPU, whose work-items are lanes.
 *
 * Build macros, besides those of vta_core.cl:
 *   VTA_V          lanes of a unit: 1, 2, 4, 8 or 16, at most VTA_BLOCK
 *   VTA_ROWS       accumulator rows that a GEMM unit sums at once: 1, 2, 4 or 8
 *   VTA_GROUP      work-items of a work-group
 *   VTA_PRODUCT_ROWS  outputs that are summed at once where products are listed
 *   VTA_MATH       how products are formed, and so how scratchpads are kept:
 *                  0 int8 widened to int32; 1 pairs of int16; 2 float; 3 fours of int8;
 *                  4 tiles of 16 rows by 32 work-items together, elsewhere fours
 *   VTA_DP4A       with VTA_MATH 3 or 4: NVIDIA's dp4a instruction through inline PTX
 *   VTA_MMA        with VTA_MATH 4: NVIDIA's mma instruction through inline PTX
 *   VTA_TRANSPOSE  weights are loaded by blocks of 16x16 in vectors (VTA_V 16 only)
 *   VTA_ONE_LAUNCH with vta_phases, in which work-groups wait for each other
 *   VTA_INP_SCOPE  where products read inputs: VTA_SCOPE_.., the buffer if it isn't given
 *   VTA_WGT_SCOPE  the same of weights
 */
#ifndef VTA_ISA_H
#include "vta_isa.h"
#endif
#ifndef VTA_THROUGHPUT_H
#include "vta_throughput.h"
#endif

#ifndef VTA_INP_SCOPE
#define VTA_INP_SCOPE VTA_SCOPE_BUFFER
#endif
#ifndef VTA_WGT_SCOPE
#define VTA_WGT_SCOPE VTA_SCOPE_BUFFER
#endif
#define VTA_IS_IMAGE(scope) ((scope) == VTA_SCOPE_IMAGE || (scope) == VTA_SCOPE_IMAGE2D)

#define VTA_LANES (VTA_BATCH * VTA_BLOCK)
#define VTA_WGT_TILE (VTA_BLOCK * VTA_BLOCK)
#define VTA_CHUNKS (VTA_BLOCK / VTA_V)

#define VTA_CAT_(a, b) a##b
#define VTA_CAT(a, b) VTA_CAT_(a, b)
#if VTA_V == 1
typedef int vta_ints;
typedef uint vta_uints;
typedef long vta_longs;
#define VTA_LOAD(p) (*(p))
#define VTA_STORE(v, p) (*(p) = (v))
#define VTA_TO(type) VTA_CAT(convert_, type)
#define VTA_AS_INTS as_int
#define VTA_AS_UINTS as_uint
#else
typedef VTA_CAT(int, VTA_V) vta_ints;
typedef VTA_CAT(uint, VTA_V) vta_uints;
typedef VTA_CAT(long, VTA_V) vta_longs;
typedef VTA_CAT(float, VTA_V) vta_floats;
#define VTA_LOAD(p) VTA_CAT(vload, VTA_V)(0, p)
#define VTA_STORE(v, p) VTA_CAT(vstore, VTA_V)(v, 0, p)
#define VTA_TO(type) VTA_CAT(VTA_CAT(convert_, type), VTA_V)
#define VTA_AS_INTS VTA_CAT(as_int, VTA_V)
#define VTA_AS_UINTS VTA_CAT(as_uint, VTA_V)
#endif
#if VTA_V == 1
typedef float vta_floats;
#endif

#if VTA_MATH == 0
typedef char vta_inp;
typedef char vta_wgt;
#elif VTA_MATH == 1
typedef short vta_inp;
typedef short vta_wgt;
#elif VTA_MATH == 2
typedef float vta_inp;
typedef float vta_wgt;
#else
typedef char vta_inp;
typedef char vta_wgt;
#endif

/* Where element (o, k) of a weight tile is kept: lanes side by side, so that a unit reads a
 * vector; with pairs or fours of k together where the products want them; as in DRAM where
 * work-items share the tile, and where a texel holds what one of them multiplies. */
#if VTA_MATH == 4 || (VTA_MATH == 3 && VTA_IS_IMAGE(VTA_WGT_SCOPE) && VTA_BLOCK >= 16)
#define VTA_WGT_ROWS
#endif
#if VTA_MATH == 1
#define VTA_WGT_AT(o, k) (((k) / 2 * VTA_BLOCK + (o)) * 2 + (k) % 2)
#elif defined(VTA_WGT_ROWS)
#define VTA_WGT_AT(o, k) ((o) * VTA_BLOCK + (k))
#elif VTA_MATH == 3
#define VTA_WGT_AT(o, k) (((k) / 4 * VTA_BLOCK + (o)) * 4 + (k) % 4)
#else
#define VTA_WGT_AT(o, k) ((k) * VTA_BLOCK + (o))
#endif

typedef struct {
    __global const uint *tables; /* micro-ops, groups, chains */
    __global uchar *dram;
    __global vta_inp *inp;
    __global vta_wgt *wgt;
    __global int *acc;
} vta_memory;

/*
 * Views: what products read inputs and weights through. A LOAD always writes the buffers; where the
 * scope is another, a view of the same bytes is an argument of its own. The host sees to it that no
 * launch both writes a buffer and reads its view: nothing would make them agree before its end.
 *
 * VTA_INP_AT(e) names the elements of inputs from number e on, VTA_INP_ELEM(x, i) is the one with
 * number i of those, VTA_INP_INT(x, i) the four int8 from there on, VTA_INP_INTS(x, i) sixteen. The
 * same with WGT.
 */
#if VTA_IS_IMAGE(VTA_INP_SCOPE) || VTA_IS_IMAGE(VTA_WGT_SCOPE)
/* A texel has four channels of 32 bits. */
#if VTA_MATH == 1
#define VTA_TEXEL_ELEMS 8
#elif VTA_MATH == 2
#define VTA_TEXEL_ELEMS 4
#else
#define VTA_TEXEL_ELEMS 16
#endif

static uint vta_channel(uint4 texel, uint i)
{
    return i & 2 ? (i & 1 ? texel.w : texel.z) : (i & 1 ? texel.y : texel.x);
}

static vta_inp vta_elem(uint4 texel, uint i)
{
    const uint word = vta_channel(texel, i * 4 / VTA_TEXEL_ELEMS);
#if VTA_MATH == 1
    return as_short((ushort)(word >> i % 2 * 16));
#elif VTA_MATH == 2
    return as_float(word);
#else
    return as_char((uchar)(word >> i % 4 * 8));
#endif
}

#define VTA_TEXEL_2D(view, t)                                                                    \
    read_imageui(view, (int2)((int)((t) % VTA_TEXTURE_WIDTH), (int)((t) / VTA_TEXTURE_WIDTH)))
#define VTA_TEXEL_1D(view, t) read_imageui(view, (int)(t))
#endif

#if VTA_INP_SCOPE == VTA_SCOPE_BUFFER
#define VTA_INP_PARAM
#define VTA_INP_VIEW
typedef __global const vta_inp *vta_inps;
#define VTA_INP_AT(e) (m.inp + (e))
#define VTA_INP_ELEM(x, i) ((x)[i])
#define VTA_INP_INT(x, i) (*(__global const int *)((x) + (i)))
#elif VTA_INP_SCOPE == VTA_SCOPE_CONSTANT
#define VTA_INP_PARAM , __constant vta_inp *inp_view
#define VTA_INP_VIEW , inp_view
typedef __constant vta_inp *vta_inps;
#define VTA_INP_AT(e) (inp_view + (e))
#define VTA_INP_ELEM(x, i) ((x)[i])
#define VTA_INP_INT(x, i) (*(__constant int *)((x) + (i)))
#else
#if VTA_INP_SCOPE == VTA_SCOPE_IMAGE
#define VTA_INP_PARAM , __read_only image1d_buffer_t inp_view
#define VTA_INP_TEXEL(t) VTA_TEXEL_1D(inp_view, t)
#else
#define VTA_INP_PARAM , __read_only image2d_t inp_view
#define VTA_INP_TEXEL(t) VTA_TEXEL_2D(inp_view, t)
#endif
#define VTA_INP_VIEW , inp_view
typedef uint vta_inps;
#define VTA_INP_AT(e) (e)
#define VTA_INP_OF(x, i) VTA_INP_TEXEL(((x) + (i)) / VTA_TEXEL_ELEMS)
#define VTA_INP_ELEM(x, i) vta_elem(VTA_INP_OF(x, i), ((x) + (i)) % VTA_TEXEL_ELEMS)
#define VTA_INP_INT(x, i) as_int(vta_channel(VTA_INP_OF(x, i), ((x) + (i)) / 4 % 4))
#define VTA_INP_INTS(x, i) as_int4(VTA_INP_OF(x, i))
#endif
#ifndef VTA_INP_INTS
#define VTA_INP_INTS(x, i)                                                                       \
    ((int4)(VTA_INP_INT(x, i), VTA_INP_INT(x, (i) + 4), VTA_INP_INT(x, (i) + 8),                 \
            VTA_INP_INT(x, (i) + 12)))
#endif

/* Weights also come as vectors: VTA_WGT_VECTOR(w, i) is VTA_V elements, VTA_WGT_SHORT16(w, i) and
 * the like so many of pairs. */
#if VTA_WGT_SCOPE == VTA_SCOPE_BUFFER || VTA_WGT_SCOPE == VTA_SCOPE_CONSTANT
#if VTA_WGT_SCOPE == VTA_SCOPE_BUFFER
#define VTA_WGT_PARAM
#define VTA_WGT_VIEW
typedef __global const vta_wgt *vta_wgts;
#define VTA_WGT_FROM(tile) (m.wgt + (size_t)(tile) * VTA_WGT_TILE)
#define VTA_WGT_INT(w, i) (*(__global const int *)((w) + (i)))
#else
#define VTA_WGT_PARAM , __constant vta_wgt *wgt_view
#define VTA_WGT_VIEW , wgt_view
typedef __constant vta_wgt *vta_wgts;
#define VTA_WGT_FROM(tile) (wgt_view + (size_t)(tile) * VTA_WGT_TILE)
#define VTA_WGT_INT(w, i) (*(__constant int *)((w) + (i)))
#endif
#define VTA_WGT_ELEM(w, i) ((w)[i])
#define VTA_WGT_VECTOR(w, i) VTA_LOAD((w) + (i))
#define VTA_WGT_SHORT16(w, i) vload16(0, (w) + (i))
#define VTA_WGT_SHORT8(w, i) vload8(0, (w) + (i))
#define VTA_WGT_SHORT4(w, i) vload4(0, (w) + (i))
#else
#if VTA_WGT_SCOPE == VTA_SCOPE_IMAGE
#define VTA_WGT_PARAM , __read_only image1d_buffer_t wgt_view
#define VTA_WGT_TEXEL(t) VTA_TEXEL_1D(wgt_view, t)
#else
#define VTA_WGT_PARAM , __read_only image2d_t wgt_view
#define VTA_WGT_TEXEL(t) VTA_TEXEL_2D(wgt_view, t)
#endif
#define VTA_WGT_VIEW , wgt_view
typedef uint vta_wgts;
#define VTA_WGT_FROM(tile) ((tile) * VTA_WGT_TILE)
#define VTA_WGT_OF(w, i) VTA_WGT_TEXEL(((w) + (i)) / VTA_TEXEL_ELEMS)
#define VTA_WGT_ELEM(w, i) vta_elem(VTA_WGT_OF(w, i), ((w) + (i)) % VTA_TEXEL_ELEMS)
#define VTA_WGT_INT(w, i) as_int(vta_channel(VTA_WGT_OF(w, i), ((w) + (i)) / 4 % 4))
#define VTA_WGT_INTS(w, i) as_int4(VTA_WGT_OF(w, i))
#define VTA_WGT_ELEMS_2(w, i) VTA_WGT_ELEM(w, i), VTA_WGT_ELEM(w, (i) + 1)
#define VTA_WGT_ELEMS_4(w, i) VTA_WGT_ELEMS_2(w, i), VTA_WGT_ELEMS_2(w, (i) + 2)
#define VTA_WGT_ELEMS_8(w, i) VTA_WGT_ELEMS_4(w, i), VTA_WGT_ELEMS_4(w, (i) + 4)
#define VTA_WGT_SHORT8(w, i) as_short8(VTA_WGT_OF(w, i))
#define VTA_WGT_SHORT16(w, i) ((short16)(VTA_WGT_SHORT8(w, i), VTA_WGT_SHORT8(w, (i) + 8)))
/* Only a tile of BLOCK 2 is so small that four of it may be a part of a texel. */
#define VTA_WGT_SHORT4(w, i) ((short4)(VTA_WGT_ELEMS_4(w, i)))
#if VTA_V == 1
#define VTA_WGT_VECTOR(w, i) VTA_WGT_ELEM(w, i)
#elif VTA_V == 16 && VTA_MATH == 2
#define VTA_WGT_FLOAT4(w, i) as_float4(VTA_WGT_OF(w, i))
#define VTA_WGT_VECTOR(w, i)                                                                     \
    ((float16)(VTA_WGT_FLOAT4(w, i), VTA_WGT_FLOAT4(w, (i) + 4), VTA_WGT_FLOAT4(w, (i) + 8),     \
               VTA_WGT_FLOAT4(w, (i) + 12)))
#elif VTA_V == 16
#define VTA_WGT_VECTOR(w, i) as_char16(VTA_WGT_OF(w, i))
#elif VTA_MATH == 2
#define VTA_WGT_VECTOR(w, i) ((vta_floats)(VTA_CAT(VTA_WGT_ELEMS_, VTA_V)(w, i)))
#else
#define VTA_WGT_VECTOR(w, i) ((VTA_CAT(char, VTA_V))(VTA_CAT(VTA_WGT_ELEMS_, VTA_V)(w, i)))
#endif
#endif
#ifndef VTA_WGT_INTS
#define VTA_WGT_INTS(w, i)                                                                       \
    ((int4)(VTA_WGT_INT(w, i), VTA_WGT_INT(w, (i) + VTA_WGT_AT(0, 4)),                           \
            VTA_WGT_INT(w, (i) + VTA_WGT_AT(0, 8)), VTA_WGT_INT(w, (i) + VTA_WGT_AT(0, 12))))
#endif

/* Behind the last parameter, or argument, of a function that may read them. */
#define VTA_VIEW_PARAMS VTA_INP_PARAM VTA_WGT_PARAM
#define VTA_VIEWS VTA_INP_VIEW VTA_WGT_VIEW

/* The ALU operations: a function for each in the list of vta_isa.h. */
static vta_ints vta_min(vta_ints x, vta_ints y)
{
    return min(x, y);
}

static vta_ints vta_max(vta_ints x, vta_ints y)
{
    return max(x, y);
}

static vta_ints vta_add(vta_ints x, vta_ints y)
{
    return VTA_AS_INTS(VTA_AS_UINTS(x) + VTA_AS_UINTS(y));
}

/* Shift amounts are taken modulo 32, and -y of the smallest int is itself. */
static vta_ints vta_shr(vta_ints x, vta_ints y)
{
    const vta_ints right = x >> (y & 31);
    const vta_ints left =
        VTA_AS_INTS(VTA_AS_UINTS(x) << ((VTA_AS_UINTS((vta_ints)0) - VTA_AS_UINTS(y)) & 31u));
    return y >= 0 ? right : left;
}

static vta_ints vta_mul(vta_ints x, vta_ints y)
{
    return VTA_AS_INTS(VTA_AS_UINTS(x) * VTA_AS_UINTS(y));
}

static vta_ints vta_shl(vta_ints x, vta_ints y)
{
    return vta_shr(x, VTA_AS_INTS(VTA_AS_UINTS((vta_ints)0) - VTA_AS_UINTS(y)));
}

/* Bounds in thirty-seconds, times 2 to a power and rounded down. */
static vta_ints vta_bound(vta_ints byte, vta_ints scale, vta_ints parts)
{
    const vta_ints fixed = byte * 32 | (parts & 31);
    return VTA_AS_INTS(VTA_AS_UINTS(fixed) << VTA_AS_UINTS(scale >> 10)) >> 5;
}

static vta_ints vta_clip(vta_ints x, vta_ints y)
{
    const vta_ints scale = (y ^ y >> 31) >> 16;
    const vta_ints low = vta_bound(VTA_AS_INTS(VTA_AS_UINTS(y) << 16) >> 24, scale, scale >> 5);
    const vta_ints high = vta_bound(VTA_AS_INTS(VTA_AS_UINTS(y) << 24) >> 24, scale, scale);
    return max(min(x, high), low);
}

static vta_ints vta_mov(vta_ints x, vta_ints y)
{
    return y;
}

#define VTA_OPERATION(NAME, name)                                                                \
    case VTA_ALU_##NAME:                                                                         \
        return vta_##name(x, y);

static vta_ints vta_operation(uint op, vta_ints x, vta_ints y)
{
    switch (op) {
        VTA_EACH_ALU(VTA_OPERATION)
    default: /* VTA_STAGE_CLEAR */
        return (vta_ints)0;
    }
}

/* Words of a LOAD: sram_base, offset in dram, bytes from row to row, x_size, y_size,
 * x_pad_0, y_pad_0, tiles of a row with its padding, the byte of padding, whether weights have
 * 4 bits. The tile's place in DRAM, or 0 outside. */
static __global uchar *vta_tile(__global const uint *a, uint tile, uint elem, vta_memory m)
{
    const uint row = tile / a[7], col = tile - row * a[7];
    /* Below the padding these wrap, which the comparison then takes for outside. */
    const uint y = row - a[6], x = col - a[5];
    if (y >= a[4] || x >= a[3])
        return 0;
    return m.dram + ((size_t)a[1] + (size_t)y * a[2] + (size_t)x * elem);
}

static void vta_load_inp(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint tile = unit / (VTA_LANES / VTA_V), lane = unit % (VTA_LANES / VTA_V) * VTA_V;
    __global const char *from = (__global const char *)vta_tile(a, tile, VTA_LANES, m);
    __global vta_inp *to = m.inp + (size_t)(a[0] + tile) * VTA_LANES + lane;
    vta_ints x = (vta_ints)as_int(a[8]);
    if (from)
        x = VTA_TO(int)(VTA_LOAD(from + lane));
#if VTA_MATH == 1
    VTA_STORE(VTA_TO(short)(x), to);
#elif VTA_MATH == 2
    VTA_STORE(VTA_TO(float)(x), to);
#else
    VTA_STORE(VTA_TO(char)(x), to);
#endif
}

/* A weight tile's place in DRAM, or 0 outside. */
static __global const char *vta_wgt_tile(__global const uint *a, uint tile, vta_memory m)
{
    const uint elem = a[9] ? (VTA_WGT_TILE + 1) / 2 : VTA_WGT_TILE;
    return (__global const char *)vta_tile(a, tile, elem, m);
}

/* A weight of a tile; of 4 bits each the first is in a byte's lower half. */
static char vta_weight(__global const uint *a, __global const char *tile, uint at)
{
    if (!a[9])
        return tile[at];
    const int byte = tile[at / 2];
    return (char)(at % 2 ? byte >> 4 : as_char((uchar)((uint)byte << 4)) >> 4);
}

#ifdef VTA_TRANSPOSE
/* 16 of them. */
static char16 vta_weights(__global const uint *a, __global const char *tile, uint at)
{
    if (!a[9])
        return vload16(0, tile + at);
    const char8 bytes = vload8(0, tile + at / 2);
    char16 all;
    all.even = (bytes << (char8)4) >> (char8)4;
    all.odd = bytes >> (char8)4;
    return all;
}

/* Rows 2i and 2i+1 of the result interleave rows i and i + 8: after four of these, rows and
 * columns have changed places. Swizzles, because shuffle2 is a slow function on some runtimes. */
#define VTA_MIX(a, b) (((char16)(a, b)).s08192a3b4c5d6e7f)
#define VTA_LOW(a, b) VTA_MIX((a).lo, (b).lo)
#define VTA_HIGH(a, b) VTA_MIX((a).hi, (b).hi)
#define VTA_INTERLEAVE(to, from, i)                                                              \
    to[2 * i] = VTA_LOW(from[i], from[i + 8]);                                                   \
    to[2 * i + 1] = VTA_HIGH(from[i], from[i + 8]);
#define VTA_PASS(to, from)                                                                       \
    VTA_INTERLEAVE(to, from, 0) VTA_INTERLEAVE(to, from, 1) VTA_INTERLEAVE(to, from, 2)          \
    VTA_INTERLEAVE(to, from, 3) VTA_INTERLEAVE(to, from, 4) VTA_INTERLEAVE(to, from, 5)          \
    VTA_INTERLEAVE(to, from, 6) VTA_INTERLEAVE(to, from, 7)

/* A unit is 16 outputs by 16 inputs. */
static void vta_load_wgt(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint side = VTA_BLOCK / 16;
    const uint tile = unit / (side * side), part = unit % (side * side);
    const uint o = part / side * 16, k = part % side * 16;
    __global const char *from = vta_wgt_tile(a, tile, m);
    __global vta_wgt *to = m.wgt + (size_t)(a[0] + tile) * VTA_WGT_TILE;
    char16 r[16], t[16];
#pragma unroll
    for (uint i = 0; i < 16; ++i)
        r[i] = from ? vta_weights(a, from, (o + i) * VTA_BLOCK + k) : (char16)0;
    VTA_PASS(t, r)
    VTA_PASS(r, t)
    VTA_PASS(t, r)
    VTA_PASS(r, t)
#if VTA_MATH == 1
#pragma unroll
    for (uint i = 0; i < 16; i += 2) {
        __global vta_wgt *pair = to + VTA_WGT_AT(o, k + i);
        vstore16(convert_short16(VTA_LOW(r[i], r[i + 1])), 0, pair);
        vstore16(convert_short16(VTA_HIGH(r[i], r[i + 1])), 1, pair);
    }
#else
#pragma unroll
    for (uint i = 0; i < 16; ++i) {
#if VTA_MATH == 2
        vstore16(convert_float16(r[i]), 0, to + VTA_WGT_AT(o, k + i));
#else
        vstore16(r[i], 0, to + VTA_WGT_AT(o, k + i));
#endif
    }
#endif
}
#elif VTA_GROUP == 1
/* A unit is a tile. */
static void vta_load_wgt(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    __global const char *from = vta_wgt_tile(a, unit, m);
    __global vta_wgt *to = m.wgt + (size_t)(a[0] + unit) * VTA_WGT_TILE;
    for (uint o = 0; o < VTA_BLOCK; ++o)
        for (uint k = 0; k < VTA_BLOCK; ++k)
            to[VTA_WGT_AT(o, k)] = from ? (vta_wgt)vta_weight(a, from, o * VTA_BLOCK + k) : (vta_wgt)0;
}
#else
/* A unit is one element (four with VTA_MATH 3 and 4), in the order in which they are written. */
static void vta_load_wgt(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
#if VTA_MATH >= 3
    const uint tile = unit / (VTA_WGT_TILE / 4), at = unit % (VTA_WGT_TILE / 4);
#ifdef VTA_WGT_ROWS
    const uint o = at * 4 / VTA_BLOCK, k = at * 4 % VTA_BLOCK;
#else
    const uint o = at % VTA_BLOCK, k = at / VTA_BLOCK * 4;
#endif
    __global const char *from = vta_wgt_tile(a, tile, m);
    __global uint *to = (__global uint *)(m.wgt + (size_t)(a[0] + tile) * VTA_WGT_TILE);
    const uint first = o * VTA_BLOCK + k;
    uint four = 0;
    if (from && a[9])
        four = as_uint((char4)(vta_weight(a, from, first), vta_weight(a, from, first + 1),
                               vta_weight(a, from, first + 2), vta_weight(a, from, first + 3)));
    else if (from)
        four = *(__global const uint *)(from + first);
    to[at] = four;
#else
    const uint tile = unit / VTA_WGT_TILE, at = unit % VTA_WGT_TILE;
    const uint o = at % VTA_BLOCK, k = at / VTA_BLOCK;
    __global const char *from = vta_wgt_tile(a, tile, m);
    __global vta_wgt *to = m.wgt + (size_t)(a[0] + tile) * VTA_WGT_TILE;
    to[VTA_WGT_AT(o, k)] = from ? (vta_wgt)vta_weight(a, from, o * VTA_BLOCK + k) : (vta_wgt)0;
#endif
}
#endif

static void vta_load_acc(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint tile = unit / (VTA_LANES / VTA_V), lane = unit % (VTA_LANES / VTA_V) * VTA_V;
    __global const int *from = (__global const int *)vta_tile(a, tile, 4 * VTA_LANES, m);
    vta_ints x = (vta_ints)0;
    if (from)
        x = VTA_LOAD(from + lane);
    VTA_STORE(x, m.acc + (size_t)(a[0] + tile) * VTA_LANES + lane);
}

static void vta_load_acc8(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint tile = unit / (VTA_LANES / VTA_V), lane = unit % (VTA_LANES / VTA_V) * VTA_V;
    __global const char *from = (__global const char *)vta_tile(a, tile, VTA_LANES, m);
    vta_ints x = (vta_ints)0;
    if (from)
        x = VTA_TO(int)(VTA_LOAD(from + lane));
    VTA_STORE(x, m.acc + (size_t)(a[0] + tile) * VTA_LANES + lane);
}

#if VTA_MATH >= 3
static int vta_dot4(int x, int w, int sum)
{
#ifdef VTA_DP4A
    int out;
    __asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(w), "r"(sum));
    return out;
#else
    const char4 a = as_char4(x), b = as_char4(w);
    return sum + a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3;
#endif
}
#endif

/* Sums of products of one micro-op's tiles, added to VTA_V lanes. A float holds every integer up
 * to 2^24 exactly, which 1024 products of int8 can't exceed; the caller empties it in time. */
#if VTA_MATH == 2
typedef vta_floats vta_sum;
#define VTA_EMPTY(sum) VTA_TO(int)(sum)
#define VTA_FULL_UOPS (1024 / VTA_BLOCK)
#else
typedef vta_ints vta_sum;
#define VTA_EMPTY(sum) (sum)
/* |sum| < 2^31 even after this many. */
#define VTA_FULL_UOPS (65536 / VTA_BLOCK)
#endif

/*
 * Words of a GEMM: rows along i and j, and what each adds to dst, src, wgt (8 words);
 * reduction along i and j, and what each adds to src and wgt (6 words); groups, table of groups,
 * blocks of rows, rows at once. A group is the micro-ops of one destination: dst, first, last.
 */
#define VTA_DEFINE_GEMM(NAME, ROWS)                                                              \
    static void NAME(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)            \
    {                                                                                            \
        const uint lane = unit % VTA_CHUNKS * VTA_V;                                             \
        const uint b = unit / VTA_CHUNKS % VTA_BATCH;                                            \
        const uint block = unit / (VTA_CHUNKS * VTA_BATCH);                                      \
        __global const uint *group = m.tables + a[15] + block / a[16] * 3;                       \
        const uint rows = a[0] * a[1], first = block % a[16] * ROWS;                             \
        uint dst[ROWS], src[ROWS], wgt = 0;                                                      \
        vta_sum sum[ROWS];                                                                       \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                        \
        {                                                                                        \
            /* Beyond the last row the last one is summed again and not stored. */               \
            const uint row = min(first + q, rows - 1), i = row / a[1], j = row % a[1];           \
            dst[q] = (group[0] + i * a[2] + j * a[3]) * VTA_LANES + b * VTA_BLOCK + lane;        \
            src[q] = (i * a[4] + j * a[5]) * VTA_LANES + b * VTA_BLOCK;                          \
            /* Rows that are summed at once have the same weights. */                            \
            wgt = i * a[6] + j * a[7];                                                           \
            sum[q] = (vta_sum)0;                                                                 \
        }                                                                                        \
        uint room = VTA_FULL_UOPS;                                                               \
        for (uint ri = 0; ri < a[8]; ++ri) {                                                     \
            for (uint rj = 0; rj < a[9]; ++rj) {                                                 \
                for (uint u = group[1]; u < group[2]; ++u) {                                     \
                    const uint word = m.tables[u];                                               \
                    const uint tile = VTA_UOP_WGT(word) + wgt + ri * a[12] + rj * a[13];         \
                    const uint from = VTA_UOP_SRC(word) + ri * a[10] + rj * a[11];               \
                    const vta_inps x = VTA_INP_AT(from * VTA_LANES);                             \
                    const vta_wgts w = VTA_WGT_FROM(tile);                                       \
                    VTA_PRODUCTS(ROWS)                                                           \
                    if (--room == 0) {                                                           \
                        VTA_FLUSH(ROWS)                                                          \
                        room = VTA_FULL_UOPS;                                                    \
                    }                                                                            \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        VTA_FLUSH(ROWS)                                                                          \
    }

#define VTA_FLUSH(ROWS)                                                                          \
    _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                            \
    {                                                                                            \
        if (first + q < rows) {                                                                  \
            __global int *to = m.acc + dst[q];                                                   \
            const vta_ints more = VTA_EMPTY(sum[q]);                                             \
            VTA_STORE(VTA_AS_INTS(VTA_AS_UINTS(VTA_LOAD(to)) + VTA_AS_UINTS(more)), to);         \
        }                                                                                        \
        sum[q] = (vta_sum)0;                                                                     \
    }

#if VTA_MATH == 1
#define VTA_PRODUCTS(ROWS)                                                                       \
    for (uint k = 0; k < VTA_BLOCK; k += 2) {                                                    \
        const uint pair = VTA_WGT_AT(lane, k);                                                   \
        VTA_PAIR(y, w, pair)                                                                     \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q) sum[q] +=                              \
            (int)VTA_INP_ELEM(x, src[q] + k) * y0 + (int)VTA_INP_ELEM(x, src[q] + k + 1) * y1;   \
    }
#if VTA_V == 16
#define VTA_PAIR(y, w, p)                                                                        \
    const short16 pa = VTA_WGT_SHORT16(w, p), pb = VTA_WGT_SHORT16(w, (p) + 16);                 \
    const int16 y0 = convert_int16((short16)(pa.even, pb.even));                                 \
    const int16 y1 = convert_int16((short16)(pa.odd, pb.odd));
#elif VTA_V == 1
#define VTA_PAIR(y, w, p) const int y0 = VTA_WGT_ELEM(w, p), y1 = VTA_WGT_ELEM(w, (p) + 1);
#elif VTA_V == 8
#define VTA_PAIR(y, w, p)                                                                        \
    const short16 pa = VTA_WGT_SHORT16(w, p);                                                    \
    const int8 y0 = convert_int8(pa.even), y1 = convert_int8(pa.odd);
#elif VTA_V == 4
#define VTA_PAIR(y, w, p)                                                                        \
    const short8 pa = VTA_WGT_SHORT8(w, p);                                                      \
    const int4 y0 = convert_int4(pa.even), y1 = convert_int4(pa.odd);
#else
#define VTA_PAIR(y, w, p)                                                                        \
    const short4 pa = VTA_WGT_SHORT4(w, p);                                                      \
    const int2 y0 = convert_int2(pa.even), y1 = convert_int2(pa.odd);
#endif
#elif VTA_MATH == 0 || VTA_MATH == 2
#if VTA_MATH == 0
#define VTA_Y(k) VTA_TO(int)(VTA_WGT_VECTOR(w, VTA_WGT_AT(lane, k)))
#define VTA_X(x) (int)(x)
#else
#define VTA_Y(k) VTA_WGT_VECTOR(w, VTA_WGT_AT(lane, k))
#define VTA_X(x) (x)
#endif
#if VTA_IS_IMAGE(VTA_INP_SCOPE) && VTA_BLOCK >= 4
/* A texel's inputs, or a part of them, at once. */
#if VTA_MATH == 0
#define VTA_INP_FOUR(x, i) as_char4(VTA_INP_INT(x, i))
typedef char4 vta_four;
#else
#define VTA_INP_FOUR(x, i) as_float4(VTA_INP_OF(x, i))
typedef float4 vta_four;
#endif
#define VTA_PRODUCTS(ROWS)                                                                       \
    for (uint k = 0; k < VTA_BLOCK; k += 4) {                                                    \
        const vta_sum y0 = VTA_Y(k), y1 = VTA_Y(k + 1), y2 = VTA_Y(k + 2), y3 = VTA_Y(k + 3);    \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                        \
        {                                                                                        \
            const vta_four four = VTA_INP_FOUR(x, src[q] + k);                                   \
            sum[q] += VTA_X(four.s0) * y0 + VTA_X(four.s1) * y1;                                 \
            sum[q] += VTA_X(four.s2) * y2 + VTA_X(four.s3) * y3;                                 \
        }                                                                                        \
    }
#elif VTA_MATH == 0
#define VTA_PRODUCTS(ROWS)                                                                       \
    for (uint k = 0; k < VTA_BLOCK; ++k) {                                                       \
        const vta_ints y = VTA_Y(k);                                                             \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q) sum[q] +=                              \
            (int)VTA_INP_ELEM(x, src[q] + k) * y;                                                \
    }
#else
#define VTA_PRODUCTS(ROWS)                                                                       \
    _Pragma("unroll 4") for (uint k = 0; k < VTA_BLOCK; ++k)                                     \
    {                                                                                            \
        const vta_floats y = VTA_Y(k);                                                           \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q) sum[q] +=                              \
            VTA_INP_ELEM(x, src[q] + k) * y;                                                     \
    }
#endif
#elif VTA_BLOCK >= 16 && (VTA_IS_IMAGE(VTA_INP_SCOPE) || VTA_IS_IMAGE(VTA_WGT_SCOPE))
#define VTA_PRODUCTS(ROWS)                                                                       \
    _Pragma("unroll") for (uint k = 0; k < VTA_BLOCK; k += 16)                                   \
    {                                                                                            \
        const int4 y = VTA_WGT_INTS(w, VTA_WGT_AT(lane, k));                                     \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                        \
        {                                                                                        \
            const int4 four = VTA_INP_INTS(x, src[q] + k);                                       \
            sum[q] = vta_dot4(four.s1, y.s1, vta_dot4(four.s0, y.s0, sum[q]));                   \
            sum[q] = vta_dot4(four.s3, y.s3, vta_dot4(four.s2, y.s2, sum[q]));                   \
        }                                                                                        \
    }
#else
#define VTA_PRODUCTS(ROWS)                                                                       \
    _Pragma("unroll") for (uint k = 0; k < VTA_BLOCK; k += 4)                                    \
    {                                                                                            \
        const int y = VTA_WGT_INT(w, VTA_WGT_AT(lane, k));                                       \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q) sum[q] =                               \
            vta_dot4(VTA_INP_INT(x, src[q] + k), y, sum[q]);                                     \
    }
#endif

/* A unit of a kind sums one row, or many at once: DEFINE(name, ROWS) is its function for so many. */
VTA_DEFINE_GEMM(vta_gemm_row, 1)
#if VTA_ROWS > 1
VTA_DEFINE_GEMM(vta_gemm_rows, VTA_ROWS)
#endif

static void vta_gemm(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
#if VTA_ROWS > 1
    if (a[17] > 1) {
        vta_gemm_rows(a, unit, m VTA_VIEWS);
        return;
    }
#endif
    vta_gemm_row(a, unit, m VTA_VIEWS);
}

/*
 * Words of products: outputs of a component, its blocks, table of the outputs' offsets, table of
 * each component's first output, table of pieces, number of pieces, outputs at once, a tile of
 * zeros, parts that each block's products are cut into (VTA_MATH 4). A piece is the products of
 * one instruction: pattern, what its inputs are added to, what its weights are added to, table of
 * each component's weights, weights of a component. A pattern has the first entry of each block,
 * and the end; an entry is the number of a weight, and an input for each output.
 */
#if VTA_MATH < 4
#define VTA_DEFINE_PRODUCTS(NAME, ROWS)                                                          \
    static void NAME(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)            \
    {                                                                                            \
        const uint lane = unit % VTA_CHUNKS * VTA_V;                                             \
        const uint batch = unit / VTA_CHUNKS % VTA_BATCH * VTA_BLOCK;                            \
        const uint block = unit / (VTA_CHUNKS * VTA_BATCH) % a[1];                               \
        const uint component = unit / (VTA_CHUNKS * VTA_BATCH) / a[1];                           \
        const uint rows = a[0], first = block * ROWS;                                            \
        uint dst[ROWS];                                                                          \
        vta_sum sum[ROWS];                                                                       \
        _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                        \
        {                                                                                        \
            const uint tile = m.tables[a[3] + component] +                                       \
                              m.tables[a[2] + min(first + q, rows - 1)];                         \
            dst[q] = tile * VTA_LANES + batch + lane;                                            \
            sum[q] = (vta_sum)0;                                                                 \
        }                                                                                        \
        uint room = VTA_FULL_UOPS;                                                               \
        __global const uint *p = m.tables + a[4];                                                \
        for (uint piece = 0; piece < a[5]; ++piece, p += VTA_PIECE_WORDS) {                      \
            __global const uint *pattern = m.tables + p[0];                                      \
            __global const uint *weights = m.tables + p[3] + component * p[4];                   \
            const uint stop = pattern[block + 1];                                                \
            for (uint n = pattern[block]; n < stop; ++n) {                                       \
                __global const uint *entry = pattern + a[1] + 1 + n * (ROWS + 1);                \
                const uint tile = p[2] + weights[entry[0]];                                      \
                uint src[ROWS];                                                                  \
                _Pragma("unroll") for (uint q = 0; q < ROWS; ++q)                                \
                {                                                                                \
                    const uint from = entry[1 + q];                                              \
                    src[q] = (from == VTA_MISSING ? a[7] : p[1] + from) * VTA_LANES + batch;     \
                }                                                                                \
                const vta_inps x = VTA_INP_AT(0);                                                \
                const vta_wgts w = VTA_WGT_FROM(tile);                                           \
                VTA_PRODUCTS(ROWS)                                                               \
                if (--room == 0) {                                                               \
                    VTA_FLUSH(ROWS)                                                              \
                    room = VTA_FULL_UOPS;                                                        \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        VTA_FLUSH(ROWS)                                                                          \
    }

#else
/* 32 work-items have tiles of 16 rows, which are batch rows of outputs one behind the other, by 16
 * lanes. Where products are cut into n parts, they take every n-th, and others the rest: all add to
 * the accumulators atomically, in any order, which wrapping sums allow. Of each tile, work-item
 * 4 g + t reads products 4 t to 4 t + 3 of rows g and g + 8 and of weights g and g + 8, and sums
 * lanes 2 t and 2 t + 1, and those 8 further, of both rows. */
#ifdef VTA_MMA
#define VTA_MATRIX(half)                                                                         \
    __asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "                            \
                   "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                         \
                   : "+r"(sum[f][half][0]), "+r"(sum[f][half][1]), "+r"(sum[f][half][2]),        \
                     "+r"(sum[f][half][3])                                                       \
                   : "r"(x[0]), "r"(x[1]), "r"(y[half]));
#define VTA_MATRIX_OPERANDS(r) x[r] = VTA_INP_INT(VTA_INP_AT(from), 4 * t);
#define VTA_MATRIX_WEIGHTS()                                                                     \
    const int y[2] = {VTA_WGT_INT(w, 4 * item), VTA_WGT_INT(w, 4 * (item + 32))};
#else
/* The same sums without the instruction: each work-item reads all that its own are of. */
#define VTA_MATRIX(half)                                                                         \
    for (uint k = 0; k < 4; ++k)                                                                 \
        for (uint c = 0; c < 4; ++c)                                                             \
            sum[f][half][c] = vta_dot4(                                                          \
                VTA_INP_INT(VTA_INP_AT(x[c / 2]), 4 * k),                                        \
                VTA_WGT_INT(w, VTA_WGT_AT(8 * half + 2 * t + c % 2, 4 * k)),                     \
                sum[f][half][c]);
#define VTA_MATRIX_OPERANDS(r) x[r] = from;
#define VTA_MATRIX_WEIGHTS()
#endif

/* Tiles whose loads are under way at once, as registers allow: a work-item has little else to do
 * meanwhile. */
#if VTA_BATCH == 1
#define VTA_MATRIX_UNROLL _Pragma("unroll 4")
#else
#define VTA_MATRIX_UNROLL _Pragma("unroll 2")
#endif

#define VTA_DEFINE_PRODUCTS(NAME, ROWS)                                                          \
    static void NAME(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)            \
    {                                                                                            \
        enum { TILES = (ROWS * VTA_BATCH + 15) / 16 };                                           \
        const uint item = unit % 32, g = item / 4, t = item % 4;                                 \
        const uint part = unit / 32 % a[8], sums = unit / 32 / a[8];                             \
        const uint block = sums % a[1], component = sums / a[1];                                 \
        const uint rows = a[0], first = block * ROWS;                                            \
        int sum[TILES][2][4];                                                                    \
        _Pragma("unroll") for (uint f = 0; f < TILES; ++f)                                       \
            _Pragma("unroll") for (uint c = 0; c < 4; ++c) sum[f][0][c] = sum[f][1][c] = 0;      \
        __global const uint *p = m.tables + a[4];                                                \
        for (uint piece = 0; piece < a[5]; ++piece, p += VTA_PIECE_WORDS) {                      \
            __global const uint *pattern = m.tables + p[0];                                      \
            __global const uint *weights = m.tables + p[3] + component * p[4];                   \
            const uint stop = pattern[block + 1];                                                \
            VTA_MATRIX_UNROLL for (uint n = pattern[block] + part; n < stop; n += a[8])          \
            {                                                                                    \
                __global const uint *entry = pattern + a[1] + 1 + n * (ROWS + 1);                \
                const uint tile = p[2] + weights[entry[0]];                                      \
                const vta_wgts w = VTA_WGT_FROM(tile);                                           \
                VTA_MATRIX_WEIGHTS()                                                             \
                _Pragma("unroll") for (uint f = 0; f < TILES; ++f)                               \
                {                                                                                \
                    int x[2];                                                                    \
                    _Pragma("unroll") for (uint r = 0; r < 2; ++r)                               \
                    {                                                                            \
                        /* Rows beyond the last output's are summed and not stored. */           \
                        const uint row = 16 * f + 8 * r + g;                                     \
                        const uint input = entry[1 + min(row / VTA_BATCH, ROWS - 1u)];           \
                        const uint from = (input == VTA_MISSING ? a[7] : p[1] + input) *         \
                                              VTA_LANES +                                        \
                                          row % VTA_BATCH * VTA_BLOCK;                           \
                        VTA_MATRIX_OPERANDS(r)                                                   \
                    }                                                                            \
                    VTA_MATRIX(0)                                                                \
                    VTA_MATRIX(1)                                                                \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        for (uint f = 0; f < TILES; ++f) {                                                       \
            for (uint r = 0; r < 2; ++r) {                                                       \
                const uint row = 16 * f + 8 * r + g, output = row / VTA_BATCH;                   \
                if (output >= ROWS || first + output >= rows)                                    \
                    continue;                                                                    \
                const uint dst = m.tables[a[3] + component] + m.tables[a[2] + first + output];   \
                __global int *to =                                                               \
                    m.acc + dst * VTA_LANES + row % VTA_BATCH * VTA_BLOCK + 2 * t;               \
                for (uint c = 0; c < 4; ++c) {                                                   \
                    atomic_add(to + c / 2 * 8 + c % 2, sum[f][c / 2][2 * r + c % 2]);            \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }
#endif

VTA_DEFINE_PRODUCTS(vta_products_row, 1)
#if VTA_PRODUCT_ROWS > 1
VTA_DEFINE_PRODUCTS(vta_products_rows, VTA_PRODUCT_ROWS)
#endif

static void vta_products(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
#if VTA_PRODUCT_ROWS > 1
    if (a[6] > 1) {
        vta_products_rows(a, unit, m VTA_VIEWS);
        return;
    }
#endif
    vta_products_row(a, unit, m VTA_VIEWS);
}

/*
 * Words of a chain: what its tiles are added to, stages, table of stages, table of tiles, table of
 * the tiles' places in dram or VTA_UNTOUCHED where none is stored, what those are added to, whether
 * what is stored is clamped to int8. A stage
 * is operation, operand (VTA_OPERAND_), immediate, table of touched tiles or of source tiles, what
 * its source tiles are added to. No stage reads a tile that
 * the chain writes, except its own.
 */
static void vta_chain(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint tile = unit / (VTA_LANES / VTA_V), lane = unit % (VTA_LANES / VTA_V) * VTA_V;
    const uint dst = a[0] + m.tables[a[3] + tile];
    __global int *to = m.acc + dst * VTA_LANES + lane;
    vta_ints x = VTA_LOAD(to);
    for (uint s = 0; s < a[1]; ++s) {
        __global const uint *stage = m.tables + a[2] + s * VTA_STAGE_WORDS;
        vta_ints y = (vta_ints)as_int(stage[2]);
        if (stage[1] != VTA_OPERAND_IMM) {
            const uint offset = m.tables[stage[3] + tile];
            if (offset == VTA_UNTOUCHED)
                continue;
            const uint src = stage[4] + offset;
            if (stage[1] == VTA_OPERAND_TILES)
                y = src == dst ? x : VTA_LOAD(m.acc + src * VTA_LANES + lane);
        }
        x = vta_operation(stage[0], x, y);
    }
    if (a[1])
        VTA_STORE(x, to);
    if (a[4] != VTA_UNTOUCHED) {
        const uint offset = m.tables[a[4] + tile];
        if (a[6])
            x = clamp(x, (vta_ints)-128, (vta_ints)127);
        if (offset != VTA_UNTOUCHED)
            VTA_STORE(VTA_TO(uchar)(x & 0xff), m.dram + ((size_t)a[5] + offset + lane));
    }
}

static vta_longs vta_factor(vta_ints word)
{
    return VTA_TO(long)(word & 0xffffff);
}

/* Adds the offset to products, shifts and clamps, by the words of these lanes. */
static vta_longs vta_round(vta_longs products, __global const int *words)
{
    const vta_ints bounds = VTA_LOAD(words + VTA_LANES);
    const vta_ints upper = VTA_AS_INTS(VTA_AS_UINTS(bounds) << 16) >> 16;
    const vta_longs offset =
        VTA_TO(long)(upper) * 4294967296L + VTA_TO(long)(VTA_AS_UINTS(VTA_LOAD(words)));
    const vta_ints shift = VTA_LOAD(words + 2 * VTA_LANES) >> 24 & 63;
    const vta_ints low = VTA_AS_INTS(VTA_AS_UINTS(bounds) << 8) >> 24;
    const vta_longs rounded = (products + offset) >> VTA_TO(long)(shift);
    return max(min(rounded, VTA_TO(long)(bounds >> 24)), VTA_TO(long)(low));
}

/* A STORE that requantises. Words: first tile of the sums, offset in dram, bytes from row to row, tiles of a row, first
 * tile of the table, tiles from a row's entry to the next, whether there are residuals, their first tile. */
static void vta_requantize(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint tile = unit / (VTA_LANES / VTA_V), lane = unit % (VTA_LANES / VTA_V) * VTA_V;
    const uint row = tile / a[3], col = tile - row * a[3];
    __global const int *words = m.acc + (a[4] + row * a[5]) * VTA_LANES + lane;
    const vta_ints sums = VTA_LOAD(m.acc + (a[0] + tile) * VTA_LANES + lane);
    vta_longs x = vta_round(
        VTA_TO(long)(sums) * vta_factor(VTA_LOAD(words + 2 * VTA_LANES)), words);
    if (a[6]) {
        const vta_ints held = VTA_LOAD(m.acc + (a[7] + tile) * VTA_LANES + lane);
        const vta_ints residual = VTA_AS_INTS(VTA_AS_UINTS(held) << 24) >> 24;
        words += VTA_ROUNDING * VTA_LANES;
        x = vta_round(x * vta_factor(VTA_LOAD(words + 2 * VTA_LANES)) +
                          VTA_TO(long)(residual) *
                              vta_factor(VTA_LOAD(words + VTA_ROUNDING * VTA_LANES)),
                      words);
    }
    __global uchar *to = m.dram + ((size_t)a[1] + (size_t)row * a[2] + col * VTA_LANES + lane);
    VTA_STORE(VTA_TO(uchar)(VTA_TO(int)(x) & 0xff), to);
}

/* An instruction's own loops: lanes never depend on each other, so each unit runs all of them in
 * order. Words: i, j, what each adds to dst, src and wgt (6), first micro-op, last, then for the
 * ALU operation, use of the immediate, immediate. */
static void vta_alu_in_order(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint lane = unit * VTA_V;
    for (uint i = 0; i < a[0]; ++i) {
        for (uint j = 0; j < a[1]; ++j) {
            for (uint u = a[8]; u < a[9]; ++u) {
                const uint word = m.tables[u];
                const uint dst = VTA_UOP_DST(word) + i * a[2] + j * a[3];
                vta_ints y = (vta_ints)as_int(a[12]);
                if (!a[11]) {
                    const uint src = VTA_UOP_SRC(word) + i * a[4] + j * a[5];
                    y = VTA_LOAD(m.acc + src * VTA_LANES + lane);
                }
                __global int *to = m.acc + dst * VTA_LANES + lane;
                VTA_STORE(vta_operation(a[10], VTA_LOAD(to), y), to);
            }
        }
    }
}

static void vta_gemm_in_order(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint lane = unit % VTA_CHUNKS * VTA_V, b = unit / VTA_CHUNKS;
    for (uint i = 0; i < a[0]; ++i) {
        for (uint j = 0; j < a[1]; ++j) {
            for (uint u = a[8]; u < a[9]; ++u) {
                const uint word = m.tables[u];
                const uint dst = VTA_UOP_DST(word) + i * a[2] + j * a[3];
                __global int *to = m.acc + dst * VTA_LANES + b * VTA_BLOCK + lane;
                if (a[10]) {
                    VTA_STORE((vta_ints)0, to);
                    continue;
                }
                const uint src = VTA_UOP_SRC(word) + i * a[4] + j * a[5];
                const uint tile = VTA_UOP_WGT(word) + i * a[6] + j * a[7];
                const vta_inps x = VTA_INP_AT(src * VTA_LANES + b * VTA_BLOCK);
                const vta_wgts w = VTA_WGT_FROM(tile);
                int sums[VTA_V];
                for (uint v = 0; v < VTA_V; ++v) {
                    int sum = 0;
                    for (uint k = 0; k < VTA_BLOCK; ++k)
                        sum += (int)VTA_INP_ELEM(x, k) *
                               (int)VTA_WGT_ELEM(w, VTA_WGT_AT(lane + v, k));
                    sums[v] = as_int(as_uint(to[v]) + as_uint(sum));
                }
                for (uint v = 0; v < VTA_V; ++v)
                    to[v] = sums[v];
            }
        }
    }
}

/* Windows of inputs, channel by channel, as DEPTHWISE has them. Words: those of loops, then rows, columns, input tiles
 * from row to row, whether sums are replaced, and whether each unit has one trip of the loops. */
static void vta_windows(__global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    const uint chunk = unit % (VTA_LANES / VTA_V), b = chunk / VTA_CHUNKS;
    const uint lane = chunk % VTA_CHUNKS * VTA_V;
    const uint first = a[14] ? unit / (VTA_LANES / VTA_V) : 0;
    const uint end = a[14] ? first + 1 : a[0] * a[1];
    for (uint trip = first; trip < end; ++trip) {
        const uint i = trip / a[1], j = trip % a[1];
        for (uint u = a[8]; u < a[9]; ++u) {
            const uint word = m.tables[u];
            const uint dst = VTA_UOP_DST(word) + i * a[2] + j * a[3];
            const uint src = VTA_UOP_SRC(word) + i * a[4] + j * a[5];
            const vta_wgts w = VTA_WGT_FROM(VTA_UOP_WGT(word));
            __global int *to = m.acc + dst * VTA_LANES + b * VTA_BLOCK + lane;
            int sums[VTA_V];
            for (uint v = 0; v < VTA_V; ++v)
                sums[v] = a[13] ? 0 : to[v];
            for (uint y = 0; y < a[10]; ++y) {
                for (uint x = 0; x < a[11]; ++x) {
                    const uint tile = src + y * a[12] + x, tap = y * a[11] + x;
                    const vta_inps inputs = VTA_INP_AT(tile * VTA_LANES + b * VTA_BLOCK);
                    for (uint v = 0; v < VTA_V; ++v) {
                        const int weight = (int)VTA_WGT_ELEM(w, VTA_WGT_AT(lane + v, tap));
                        const int product = (int)VTA_INP_ELEM(inputs, lane + v) * weight;
                        sums[v] = as_int(as_uint(sums[v]) + as_uint(product));
                    }
                }
            }
            for (uint v = 0; v < VTA_V; ++v)
                to[v] = sums[v];
        }
    }
}

#define VTA_UNIT(NAME, name)                                                                     \
    case VTA_KIND_##NAME:                                                                        \
        vta_##name(a, unit, m VTA_VIEWS);                                                        \
        break;

static void vta_unit(uint kind, __global const uint *a, uint unit, vta_memory m VTA_VIEW_PARAMS)
{
    switch (kind) {
        VTA_EACH_KIND(VTA_UNIT)
    }
}

/* The blocks of a level that fall to one of so many work-groups. A block is an operation and the
 * first of its units; levels[l] is the first block of level l. */
static void vta_level(uint l, uint group, uint groups, __global const uint *ops,
                      __global const uint2 *blocks, __global const uint *levels,
                      vta_memory m VTA_VIEW_PARAMS)
{
    const uint end = levels[l + 1];
    for (uint b = levels[l] + group; b < end; b += groups) {
        const uint2 block = blocks[b];
        __global const uint *op = ops + block.x * VTA_OP_WORDS;
        const uint stop = min(block.y + op[VTA_OP_CHUNK], op[VTA_OP_UNITS]);
        for (uint unit = block.y + get_local_id(0); unit < stop; unit += VTA_GROUP)
            vta_unit(op[VTA_OP_KIND], op + VTA_OP_A, unit, m VTA_VIEWS);
    }
}

#if VTA_GROUP > 1
#define VTA_BARRIER() barrier(CLK_GLOBAL_MEM_FENCE)
#else
#define VTA_BARRIER()
#endif

/* Levels first to last - 1. More than one is only ever given to a single work-group. */
__attribute__((reqd_work_group_size(VTA_GROUP, 1, 1))) __kernel void
vta_levels(uint first, uint last, __global const uint *ops, __global const uint2 *blocks,
           __global const uint *levels, __global const uint *tables, __global uchar *dram,
           __global vta_inp *inp, __global vta_wgt *wgt, __global int *acc VTA_VIEW_PARAMS)
{
    const vta_memory m = {tables, dram, inp, wgt, acc};
    for (uint l = first; l < last; ++l) {
        vta_level(l, get_group_id(0), get_num_groups(0), ops, blocks, levels, m VTA_VIEWS);
        VTA_BARRIER();
    }
}

#ifdef VTA_ONE_LAUNCH
#if VTA_INP_SCOPE != VTA_SCOPE_BUFFER || VTA_WGT_SCOPE != VTA_SCOPE_BUFFER
#error one launch both writes the buffers and reads them
#endif
#ifdef VTA_DP4A
/* Orders memory over the whole device, which OpenCL C 1.2 has no function for. */
#define VTA_DEVICE_FENCE() __asm volatile("membar.gl;" ::: "memory")
#else
#define VTA_DEVICE_FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif

/* Waits until every work-group is here. All of them must be running: the host launches no more
 * than the device holds at once. `arrived` counts from 0 and never back. */
static void vta_meet(volatile __global uint *arrived, uint goal)
{
    VTA_BARRIER();
    if (get_local_id(0) == 0) {
        VTA_DEVICE_FENCE();
        atomic_inc(arrived);
        while (*arrived < goal)
            ;
        VTA_DEVICE_FENCE();
    }
    VTA_BARRIER();
}

/* A batch in one launch. A phase is what vta_levels is launched for: levels phases[2 * p] to
 * phases[2 * p + 1] - 1, shared by all work-groups when it is one level, else for the first. */
__attribute__((reqd_work_group_size(VTA_GROUP, 1, 1))) __kernel void
vta_phases(uint at, uint count, __global const uint *ops, __global const uint2 *blocks,
           __global const uint *levels, __global const uint *tables, __global uchar *dram,
           __global vta_inp *inp, __global vta_wgt *wgt, __global int *acc,
           volatile __global uint *arrived)
{
    const vta_memory m = {tables, dram, inp, wgt, acc};
    const uint group = get_group_id(0), groups = get_num_groups(0);
    __global const uint *phase = tables + at;
    for (uint p = 0; p < count; ++p, phase += 2) {
        const uint first = phase[0], last = phase[1];
        if (last - first == 1) {
            vta_level(first, group, groups, ops, blocks, levels, m);
        } else if (group == 0) {
            for (uint l = first; l < last; ++l) {
                vta_level(l, 0, 1, ops, blocks, levels, m);
                VTA_BARRIER();
            }
        }
        vta_meet(arrived, (p + 1) * groups);
    }
}
#endif
