/* 12 accumulators, 2 registers for B, 2 for A: all 16 registers. A panel of B (8 x 256 doubles) takes half of a 32
 * KB L1 cache. */
#define f64_gemm FOR_ISA(f64_gemm_6x8)
#define F64_MR 6
#define F64_VECTORS 2
#define F64_BLOCK_DEPTH 256
#define F64_BLOCK_ROWS 72 /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
#include "../f64_gemm_broadcast.h"
