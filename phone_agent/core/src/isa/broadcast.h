/* The tile of a GEMM in registers, for processors that multiply a vector with one float of memory at full speed. Each ISA
 * folder gives it a shape. Row i of A at step k: a[i * a_row + k * a_k]; row k of B: b + k * ldb. */
#pragma once
#include "../vector.h"

INLINE void broadcast_tile(const i32 rows, const i32 vecs, i64 k, const float *a, i64 a_row, i64 a_k, const float *b, i64 ldb,
                           float *c, i64 ldc, i32 accumulate, const i32 looks, const char *ahead, i64 ahead_step) {
    vec sum[MR][NR / LANES];
    /* Without the pragmas clang keeps loops of 12 rows and more, and with them the sums in memory: a third of the speed. */
    UNROLL for (i32 i = 0; i < rows; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] = accumulate ? load(c + i * ldc + j * LANES) : (vec)0;
    }
    for (; k > 0; k--, a += a_k, b += ldb) {
        vec row[NR / LANES];
        if (looks) look(&ahead, ahead_step);
        UNROLL for (i32 j = 0; j < vecs; j++) row[j] = load(b + j * LANES);
        UNROLL for (i32 i = 0; i < rows; i++) {
            vec x = splat(a[i * a_row]);
            UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] += x * row[j];
        }
    }
    UNROLL for (i32 i = 0; i < rows; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) store(c + i * ldc + j * LANES, sum[i][j]);
    }
}

INLINE void dot_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate,
                     const i32 looks, const char *ahead, i64 ahead_step) {
    broadcast_tile(MR, vecs, k, a, lda, 1, panel, vecs * LANES, c, ldc, accumulate, looks, ahead, ahead_step);
}

INLINE void outer_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc, i32 accumulate,
                       const i32 looks, const char *ahead, i64 ahead_step) {
    broadcast_tile(MR, vecs, k, a, 1, lda, b, ldb, c, ldc, accumulate, looks, ahead, ahead_step);
}

#include "tiles.h"
