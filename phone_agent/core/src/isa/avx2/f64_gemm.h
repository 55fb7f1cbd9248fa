/* 12 sums, 2 of B, 2 of A: all 16 registers. A panel of B (8 x 256 doubles) takes half of an L1 of 32 KB. */
#define f64_gemm FOR_ISA(f64_gemm_6x8)
#define F64_MR 6
#define F64_VECTORS 2
#define F64_BLOCK_DEPTH 256
#define F64_BLOCK_ROWS 72 /* of A, which stay in an L2 of 256 KB */
#define F64_BLOCK_COLUMNS 512
#include "../f64_gemm_broadcast.h"
