/* 6 x 8 tile: 24 accumulators, 3 registers for A, 4 for B. A register holds 2 doubles of A and is multiplied by
 * lane, so 7 loads feed 24 multiply-adds. */
#pragma once
#define f64_gemm FOR_ISA(f64_gemm_6x8)
#define F64_MR 6
#define F64_VECTORS 4
#define F64_BLOCK_DEPTH 256 /* a panel of B takes 16 KB of a Cortex-A76's 64 KB L1 cache */
#define F64_BLOCK_ROWS 72   /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
#include "../f64_vector.h"

static NOINLINE void f64_gemm(i64 k, const double *a, const double *b, double *c, i64 ldc, i32 accumulate) {
    f64_vec sum[F64_MR][F64_VECTORS];
    clear_f64_tile(sum, c, ldc);
    for (; k > 0; k--, a += F64_MR, b += F64_NR) {
        f64_vec x[F64_MR / F64_LANES];
        UNROLL for (i32 i = 0; i < F64_MR / F64_LANES; i++) x[i] = load_f64(a + i * F64_LANES);
        UNROLL for (i32 j = 0; j < F64_VECTORS; j++) {
            f64_vec row = load_f64(b + j * F64_LANES);
            UNROLL for (i32 i = 0; i < F64_MR; i++) sum[i][j] += row * x[i / F64_LANES][i % F64_LANES];
        }
    }
    store_f64_tile(sum, c, ldc, accumulate);
}
