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
#define VTA_KIND_STORE 4u
#define VTA_KIND_GEMM 5u
#define VTA_KIND_CHAIN 6u
#define VTA_KIND_GEMM_IN_ORDER 7u
#define VTA_KIND_ALU_IN_ORDER 8u
#define VTA_KIND_PRODUCTS 9u
#define VTA_EACH_KIND(X) X(LOAD_INP, load_inp) X(LOAD_WGT, load_wgt) X(LOAD_ACC, load_acc) X(LOAD_ACC8, load_acc8) X(STORE, store) X(GEMM, gemm) X(CHAIN, chain) X(GEMM_IN_ORDER, gemm_in_order) X(ALU_IN_ORDER, alu_in_order) X(PRODUCTS, products)

/* Operations of a stage beside those of the ALU. */
#define VTA_STAGE_CLEAR 8u
#define VTA_EACH_STAGE(X) X(CLEAR, clear)

/* Operands of a stage. */
#define VTA_OPERAND_IMM 0u
#define VTA_OPERAND_IMM_OF_SOME 1u
#define VTA_OPERAND_TILES 2u
#define VTA_EACH_OPERAND(X) X(IMM, imm) X(IMM_OF_SOME, imm_of_some) X(TILES, tiles)

/* Lengths, and entries of tables that name nothing. */
#define VTA_OP_WORDS 24u
#define VTA_STAGE_WORDS 5u
#define VTA_PIECE_WORDS 5u
#define VTA_UNTOUCHED 4294967295u
#define VTA_MISSING 4294967295u

#endif
