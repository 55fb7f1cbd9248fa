/* 8 accumulators and 2 registers for B; products and A use the other 6 of 16 registers. */
#define f64_gemm FOR_ISA(f64_gemm_4x4)
#define F64_MR 4
#define F64_VECTORS 2
#define F64_BLOCK_DEPTH 256
#define F64_BLOCK_ROWS 64 /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
#include "../f64_gemm_broadcast.h"
