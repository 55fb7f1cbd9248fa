/* A GEMM register tile for processors that multiply a vector by a broadcast float from memory at full speed. The
 * header of the ISA defines its shape. Row i of A at step k is a[i * a_row + k * a_k]; row k of B is b + k * ldb. */
#pragma once
#include "../prefetch.h"
#include "../vector.h"

enum { NR = TILE_VECTORS * LANES };

/* One step of k. */
INLINE void gemm_broadcast_step(vec sum[MR][NR / LANES], const i32 vecs, const float *a, i64 a_row, const float *b) {
    vec row[NR / LANES];
    const float *far = a + 3 * a_row; /* one address reaches three rows */
    UNROLL for (i32 j = 0; j < vecs; j++) row[j] = load(b + j * LANES);
    UNROLL for (i32 i = 0; i < MR; i++) {
        vec x = splat(i < 3 ? a[i * a_row] : far[(i - 3) * a_row]);
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] += x * row[j];
    }
}

/* Unrolled four times: 23 instructions per step of k on AVX2 instead of 29. Convolutions became 10 % faster where
 * two threads share a core. */
INLINE void gemm_broadcast_tile(const i32 vecs, i64 k, const float *a, i64 a_row, i64 a_k, const float *b, i64 ldb,
                                float *c, i64 ldc, i32 accumulate, const prefetch_cursor *prefetch) {
    enum { K_UNROLL = 4, CACHE_LINE = 64, PREFETCHES_PER_ROUND = K_UNROLL * PREFETCH_STEP_BYTES / CACHE_LINE };
    vec sum[MR][NR / LANES];
    /* Without the pragmas clang does not unroll loops of 12 rows or more, and keeps the sums in memory: a third of
     * the speed. */
    UNROLL for (i32 i = 0; i < MR; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] = accumulate ? load(c + i * ldc + j * LANES) : (vec)0;
    }
    const char *at = prefetch->at;
    i64 step = prefetch->step * (CACHE_LINE / PREFETCH_STEP_BYTES), jump = prefetch->jump;
    while (k >= K_UNROLL) {
        i64 stop = k > PREFETCH_RUN_STEPS ? k - PREFETCH_RUN_STEPS : K_UNROLL - 1;
        for (; k > stop; k -= K_UNROLL, a += K_UNROLL * a_k, b += K_UNROLL * ldb) {
            UNROLL for (i32 i = 0; i < K_UNROLL; i++) {
                if (i < PREFETCHES_PER_ROUND) prefetch_next(&at, step);
                gemm_broadcast_step(sum, vecs, a + i * a_k, a_row, b + i * ldb);
            }
        }
        at += jump;
    }
    for (; k > 0; k--, a += a_k, b += ldb) gemm_broadcast_step(sum, vecs, a, a_row, b);
    UNROLL for (i32 i = 0; i < MR; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) store(c + i * ldc + j * LANES, sum[i][j]);
    }
}

INLINE void gemm_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc,
                      i32 accumulate, const prefetch_cursor *prefetch) {
    gemm_broadcast_tile(vecs, k, a, lda, 1, panel, vecs * LANES, c, ldc, accumulate, prefetch);
}

INLINE void gemm_tn_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,
                         i32 accumulate, const prefetch_cursor *prefetch) {
    gemm_broadcast_tile(vecs, k, a, 1, lda, b, ldb, c, ldc, accumulate, prefetch);
}

#include "f32_gemm_kernels.h"
