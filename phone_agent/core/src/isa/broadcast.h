/* The tile of a GEMM in registers, for processors that multiply a vector with one float of memory at full speed. Each ISA
 * folder gives it a shape. Row i of A at step k: a[i * a_row + k * a_k]; row k of B: b + k * ldb. */
#pragma once
#include "../vector.h"

INLINE void broadcast_tile(const i32 rows, const i32 vecs, i64 k, const float *a, i64 a_row, i64 a_k, const float *b, i64 ldb,
                           float *c, i64 ldc, i32 accumulate) {
    vec sum[MR][NR / LANES];
    /* Without the pragmas clang keeps loops of 12 rows and more, and with them the sums in memory: a third of the speed. */
    UNROLL for (i32 i = 0; i < rows; i++) {
        UNROLL for (i32 j = 0; j < vecs; j++) sum[i][j] = accumulate ? load(c + i * ldc + j * LANES) : (vec)0;
    }
    for (; k > 0; k--, a += a_k, b += ldb) {
        vec row[NR / LANES];
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

/* C[MR][NR] (+)= A[MR][k] * panel[k][NR]; the panel is packed. */
static NOINLINE void micro_dot(i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate) {
    broadcast_tile(MR, NR / LANES, k, a, lda, 1, panel, NR, c, ldc, accumulate);
}

static NOINLINE void micro_dot_half(i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate) {
    broadcast_tile(MR, NR_HALF / LANES, k, a, lda, 1, panel, NR_HALF, c, ldc, accumulate);
}

/* C[i][j] (+)= sum over k of a[k * lda + i] * b[k * ldb + j]. */
static NOINLINE void micro_outer(i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc, i32 accumulate) {
    broadcast_tile(MR, NR / LANES, k, a, 1, lda, b, ldb, c, ldc, accumulate);
}

static NOINLINE void micro_outer_half(i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc, i32 accumulate) {
    broadcast_tile(MR, NR_HALF / LANES, k, a, 1, lda, b, ldb, c, ldc, accumulate);
}
