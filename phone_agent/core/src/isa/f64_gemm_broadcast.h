/* The tile of a GEMM in double precision, for processors that multiply a vector with one number of memory at full speed.
 * The ISA's folder gives it a shape: DOUBLE_ROWS x DOUBLE_VECTORS vectors. */
#pragma once
#include "f64_vector.h"

/* C[DOUBLE_ROWS][DOUBLE_COLUMNS] (+)= A^T B. Both are packed: the numbers of one step of k lie side by side. */
static NOINLINE void f64_gemm(i64 k, const double *a, const double *b, double *c, i64 ldc, i32 accumulate) {
    f64_vec sum[F64_MR][F64_VECTORS];
    clear_f64_tile(sum, c, ldc);
    for (; k > 0; k--, a += F64_MR, b += F64_NR) {
        f64_vec row[F64_VECTORS];
        UNROLL for (i32 j = 0; j < F64_VECTORS; j++) row[j] = load_f64(b + j * F64_LANES);
        UNROLL for (i32 i = 0; i < F64_MR; i++) {
            f64_vec x = (f64_vec)a[i];
            UNROLL for (i32 j = 0; j < F64_VECTORS; j++) sum[i][j] += x * row[j];
        }
    }
    store_f64_tile(sum, c, ldc, accumulate);
}
