/* A GEMM register tile for processors that multiply a vector by one lane of another. The header of the ISA defines its
 * shape. */
#pragma once
#include "../prefetch.h"

enum { NR = TILE_VECTORS * LANES };

INLINE void load_accumulators(vec sum[MR][NR / LANES], const i32 vecs, const float *c, i64 ldc, i32 accumulate) {
    UNROLL for (i32 i = 0; i < MR; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] = accumulate ? load(c + i * ldc + j * LANES) : (vec)0;
    }
}

INLINE void store_accumulators(vec sum[MR][NR / LANES], const i32 vecs, float *c, i64 ldc) {
    UNROLL for (i32 i = 0; i < MR; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) store(c + i * ldc + j * LANES, sum[i][j]);
    }
}

/* x[i] holds row i of A for 4 consecutive steps of k. */
INLINE void gemm_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc,
                      i32 accumulate, const prefetch_cursor *prefetch) {
    vec sum[MR][NR / LANES];
    load_accumulators(sum, vecs, c, ldc, accumulate);
    const char *at = prefetch->at;
    i64 prefetch_step = 4 * prefetch->step, jump = prefetch->jump;
    while (k >= 4) {
        i64 stop = k > PREFETCH_RUN_STEPS ? k - PREFETCH_RUN_STEPS : 3;
        for (; k > stop; k -= 4, a += 4, panel += 4 * vecs * LANES) {
            vec x[MR];
            prefetch_next(&at, prefetch_step);
            UNROLL for (i32 i = 0; i < MR; i++) x[i] = load(a + i * lda);
            UNROLL for (i32 step = 0; step < 4; step++) {
                UNROLL for (i32 j = 0; j < vecs; j++) {
                    vec row = load(panel + (step * vecs + j) * LANES);
                    UNROLL for (i32 i = 0; i < MR; i++) sum[i][j] += row * x[i][step];
                }
            }
        }
        at += jump;
    }
    for (; k > 0; k--, a++, panel += vecs * LANES) {
        UNROLL for (i32 j = 0; j < vecs; j++) {
            vec row = load(panel + j * LANES);
            UNROLL for (i32 i = 0; i < MR; i++) sum[i][j] += row * a[i * lda];
        }
    }
    store_accumulators(sum, vecs, c, ldc);
}

/* The elements of one step of k are contiguous in both operands. */
INLINE void gemm_tn_tile(const i32 vecs, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,
                         i32 accumulate, const prefetch_cursor *prefetch) {
    vec sum[MR][NR / LANES];
    load_accumulators(sum, vecs, c, ldc, accumulate);
    const char *at = prefetch->at;
    i64 prefetch_step = prefetch->step, jump = prefetch->jump;
    while (k > 0) {
        i64 stop = k > PREFETCH_RUN_STEPS ? k - PREFETCH_RUN_STEPS : 0;
        for (; k > stop; k--, a += lda, b += ldb) {
            vec x[MR / LANES];
            prefetch_next(&at, prefetch_step);
            UNROLL for (i32 i = 0; i < MR / LANES; i++) x[i] = load(a + i * LANES);
            UNROLL for (i32 j = 0; j < vecs; j++) {
                vec row = load(b + j * LANES);
                UNROLL for (i32 i = 0; i < MR; i++) sum[i][j] += row * x[i / LANES][i % LANES];
            }
        }
        at += jump;
    }
    store_accumulators(sum, vecs, c, ldc);
}

#include "f32_gemm_kernels.h"
