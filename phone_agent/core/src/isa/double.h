/* The tile of a GEMM in double precision, for processors that multiply a vector with one number of memory at full speed.
 * The ISA's folder gives it a shape: DOUBLE_ROWS x DOUBLE_VECTORS vectors. */
#pragma once
#include "double_vector.h"

/* C[DOUBLE_ROWS][DOUBLE_COLUMNS] (+)= A^T B. Both are packed: the numbers of one step of k lie side by side. */
static NOINLINE void double_tile(i64 k, const double *a, const double *b, double *c, i64 ldc, i32 accumulate) {
    double_vec sum[DOUBLE_ROWS][DOUBLE_VECTORS];
    clear_double_tile(sum, c, ldc);
    for (; k > 0; k--, a += DOUBLE_ROWS, b += DOUBLE_COLUMNS) {
        double_vec row[DOUBLE_VECTORS];
        UNROLL for (i32 j = 0; j < DOUBLE_VECTORS; j++) row[j] = load_doubles(b + j * DOUBLES);
        UNROLL for (i32 i = 0; i < DOUBLE_ROWS; i++) {
            double_vec x = (double_vec)a[i];
            UNROLL for (i32 j = 0; j < DOUBLE_VECTORS; j++) sum[i][j] += x * row[j];
        }
    }
    store_double_tile(sum, c, ldc, accumulate);
}
