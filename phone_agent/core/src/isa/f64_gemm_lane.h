/* A GEMM register tile in double precision, for processors that multiply a vector by one lane of another. */
#pragma once
#include "f64_vector.h"

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
