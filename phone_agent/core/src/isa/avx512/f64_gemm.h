/* 24 accumulators, 4 registers for B, 1 for A, as for floats. A panel of B (32 x 128 doubles) leaves room for A and
 * C in a 48 KB L1 cache. */
#define f64_gemm FOR_ISA(f64_gemm_6x32)
#define F64_MR 6
#define F64_VECTORS 4
#define F64_BLOCK_DEPTH 128
#define F64_BLOCK_ROWS 192 /* of A, which stay in the L2 cache */
#define F64_BLOCK_COLUMNS 512
#include "../f64_gemm_broadcast.h"
