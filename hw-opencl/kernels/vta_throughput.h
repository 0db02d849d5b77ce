/* What vta_throughput.cl and its host agree on. Generated from hw-opencl/src/words.rs; do not
 * edit. VTA_EACH_KIND(X) is X(NAME, name) for each. */
#ifndef VTA_THROUGHPUT_H
#define VTA_THROUGHPUT_H

/* Words of an operation. */
#define VTA_OP_KIND 0u
#define VTA_OP_UNITS 1u
#define VTA_OP_CHUNK 2u
#define VTA_OP_A 3u
#define VTA_EACH_OP(X) X(KIND, kind) X(UNITS, units) X(CHUNK, chunk) X(A, a)

/* Kinds of operations. */
#define VTA_KIND_LOAD_INP 0u
#define VTA_KIND_LOAD_WGT 1u
#define VTA_KIND_LOAD_ACC 2u
#define VTA_KIND_LOAD_ACC8 3u
#define VTA_KIND_GEMM 4u
#define VTA_KIND_CHAIN 5u
#define VTA_KIND_GEMM_IN_ORDER 6u
#define VTA_KIND_ALU_IN_ORDER 7u
#define VTA_KIND_PRODUCTS 8u
#define VTA_KIND_REQUANTIZE 9u
#define VTA_KIND_WINDOWS 10u
#define VTA_EACH_KIND(X) X(LOAD_INP, load_inp) X(LOAD_WGT, load_wgt) X(LOAD_ACC, load_acc) X(LOAD_ACC8, load_acc8) X(GEMM, gemm) X(CHAIN, chain) X(GEMM_IN_ORDER, gemm_in_order) X(ALU_IN_ORDER, alu_in_order) X(PRODUCTS, products) X(REQUANTIZE, requantize) X(WINDOWS, windows)

/* Operations of a stage beside those of the ALU. */
#define VTA_STAGE_CLEAR 8u
#define VTA_EACH_STAGE(X) X(CLEAR, clear)

/* Operands of a stage. */
#define VTA_OPERAND_IMM 0u
#define VTA_OPERAND_IMM_OF_SOME 1u
#define VTA_OPERAND_TILES 2u
#define VTA_EACH_OPERAND(X) X(IMM, imm) X(IMM_OF_SOME, imm_of_some) X(TILES, tiles)

/* Memory scopes. */
#define VTA_SCOPE_BUFFER 0u
#define VTA_SCOPE_CONSTANT 1u
#define VTA_SCOPE_IMAGE 2u
#define VTA_SCOPE_IMAGE2D 3u
#define VTA_EACH_SCOPE(X) X(BUFFER, buffer) X(CONSTANT, constant) X(IMAGE, image) X(IMAGE2D, image2d)

/* Words of what is packed. */
#define VTA_PACK_IMAGES 0u
#define VTA_PACK_CHANNELS 1u
#define VTA_PACK_HEIGHT 2u
#define VTA_PACK_WIDTH 3u
#define VTA_PACK_KERNEL_HEIGHT 4u
#define VTA_PACK_KERNEL_WIDTH 5u
#define VTA_PACK_STRIDE_Y 6u
#define VTA_PACK_STRIDE_X 7u
#define VTA_PACK_DILATION_Y 8u
#define VTA_PACK_DILATION_X 9u
#define VTA_PACK_TOP 10u
#define VTA_PACK_LEFT 11u
#define VTA_PACK_OUT_WIDTH 12u
#define VTA_PACK_POSITIONS 13u
#define VTA_PACK_BLOCKS 14u
#define VTA_PACK_ZERO 15u
#define VTA_EACH_PACK(X) X(IMAGES, images) X(CHANNELS, channels) X(HEIGHT, height) X(WIDTH, width) X(KERNEL_HEIGHT, kernel_height) X(KERNEL_WIDTH, kernel_width) X(STRIDE_Y, stride_y) X(STRIDE_X, stride_x) X(DILATION_Y, dilation_y) X(DILATION_X, dilation_x) X(TOP, top) X(LEFT, left) X(OUT_WIDTH, out_width) X(POSITIONS, positions) X(BLOCKS, blocks) X(ZERO, zero)

/* Lengths, and entries of tables that name nothing. */
#define VTA_OP_WORDS 24u
#define VTA_STAGE_WORDS 5u
#define VTA_PIECE_WORDS 5u
#define VTA_TEXTURE_WIDTH 1024u
#define VTA_UNTOUCHED 4294967295u
#define VTA_MISSING 4294967295u

#endif
