/* The tile of a GEMM in registers, for processors that multiply a vector with one float of memory at full speed. Each ISA
 * folder gives it a shape. Row i of A at step k: a[i * a_row + k * a_k]; row k of B: b + k * ldb. */
#pragma once
#include "../vector.h"

INLINE void broadcast_tile(const i32 rows, const i32 vecs, i64 k, const float *a, i64 a_row, i64 a_k, const float *b, i64 ldb,
                           float *c, i64 ldc, i32 accumulate, const i32 looks, const lookahead *ahead) {
    vec sum[MR][NR / LANES];
    /* Without the pragmas clang keeps loops of 12 rows and more, and with them the sums in memory: a third of the speed. */
    UNROLL for (i32 i = 0; i < rows; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] = accumulate ? load(c + i * ldc + j * LANES) : (vec)0;
    }
    const char *at = looks ? ahead->at : 0;
    i64 step = looks ? ahead->step : 0, jump = looks ? ahead->jump : 0;
    while (k > 0) {
        i64 stop = looks && k > AHEAD_STEPS ? k - AHEAD_STEPS : 0;
        for (; k > stop; k--, a += a_k, b += ldb) {
            vec row[NR / LANES];
            if (looks) look(&at, step);
            UNROLL for (i32 j = 0; j < vecs; j++) row[j] = load(b + j * LANES);
            UNROLL for (i32 i = 0; i < rows; i++) {
                vec x = splat(a[i * a_row]);
                UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] += x * row[j];
            }
        }
        at += jump;
    }
    UNROLL for (i32 i = 0; i < rows; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) store(c + i * ldc + j * LANES, sum[i][j]);
    }
}

INLINE void dot_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate,
                     const i32 looks, const lookahead *ahead) {
    broadcast_tile(MR, vecs, k, a, lda, 1, panel, vecs * LANES, c, ldc, accumulate, looks, ahead);
}

INLINE void outer_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc, i32 accumulate,
                       const i32 looks, const lookahead *ahead) {
    broadcast_tile(MR, vecs, k, a, 1, lda, b, ldb, c, ldc, accumulate, looks, ahead);
}

#include "tiles.h"
