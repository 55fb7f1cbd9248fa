/* 6 x 8: 24 sums, 3 registers of A, 4 of B. A register holds 2 numbers of A and is multiplied lane by lane, so that 7 loads
 * feed 24 multiply-adds. */
#pragma once
#define DOUBLE_ROWS 6
#define DOUBLE_VECTORS 4
#define DOUBLE_DEPTH 256 /* a panel of B takes 16 of a Cortex-A76's 64 KB of L1 */
#define DOUBLE_BLOCK_ROWS 72 /* of A, which stay in an L2 of 256 KB */
#define DOUBLE_BLOCK_COLUMNS 512
#include "../double_vector.h"

static NOINLINE void double_tile(i64 k, const double *a, const double *b, double *c, i64 ldc, i32 accumulate) {
    double_vec sum[DOUBLE_ROWS][DOUBLE_VECTORS];
    clear_double_tile(sum, c, ldc);
    for (; k > 0; k--, a += DOUBLE_ROWS, b += DOUBLE_COLUMNS) {
        double_vec x[DOUBLE_ROWS / DOUBLES];
        UNROLL for (i32 i = 0; i < DOUBLE_ROWS / DOUBLES; i++) x[i] = load_doubles(a + i * DOUBLES);
        UNROLL for (i32 j = 0; j < DOUBLE_VECTORS; j++) {
            double_vec row = load_doubles(b + j * DOUBLES);
            UNROLL for (i32 i = 0; i < DOUBLE_ROWS; i++) sum[i][j] += row * x[i / DOUBLES][i % DOUBLES];
        }
    }
    store_double_tile(sum, c, ldc, accumulate);
}
