/* A GEMM register tile in double precision, for processors that multiply a vector by a broadcast double from memory
 * at full speed. The header of the ISA defines its shape: F64_MR rows x F64_VECTORS vectors. */
#pragma once
#include "f64_vector.h"

/* C[F64_MR][F64_NR] (+)= A^T B. Both operands are packed: the elements of one step of k are contiguous. */
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
