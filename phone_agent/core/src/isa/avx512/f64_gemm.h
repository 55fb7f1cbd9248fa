/* 24 sums, 4 of B, 1 of A, as of floats. A panel of B (32 x 128 doubles) leaves
 * room for what comes by of A and C in an L1 of 48 KB. */
#define f64_gemm FOR_ISA(f64_gemm_6x32)
#define F64_MR 6
#define F64_VECTORS 4
#define F64_BLOCK_DEPTH 128
#define F64_BLOCK_ROWS 192 /* of A, which stay in L2 */
#define F64_BLOCK_COLUMNS 512
#include "../f64_gemm_broadcast.h"
