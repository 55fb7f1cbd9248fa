/* The register tiles by name, the same for every ISA: MR rows, and any number of vectors of columns up to NR / LANES.
 * Included at the end of the ISA's micro.h. */
#pragma once

/* 1 .. NR / LANES vectors of columns, while memory that will be needed soon comes closer:
 * dot: C[i][j] (+)= sum over k of a[i * lda + k] * panel[k][j]; the panel is packed;
 * outer: C[i][j] (+)= sum over k of a[k * lda + i] * b[k * ldb + j]. */
#define GEMM_KERNELS(VECTORS)                                                                                                  \
    static NOINLINE void dot_ahead_##VECTORS(i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc,           \
                                             i32 accumulate, const prefetch_cursor *prefetch) {                                        \
        gemm_tile(VECTORS, k, a, lda, panel, c, ldc, accumulate, prefetch);                                                       \
    }                                                                                                                         \
    static NOINLINE void outer_ahead_##VECTORS(i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,    \
                                               i32 accumulate, const prefetch_cursor *prefetch) {                                      \
        gemm_tn_tile(VECTORS, k, a, lda, b, ldb, c, ldc, accumulate, prefetch);                                                    \
    }
GEMM_KERNELS(1)
GEMM_KERNELS(2)
#if TILE_VECTORS == 4
GEMM_KERNELS(3)
GEMM_KERNELS(4)
#endif

static void f32_gemm(i32 width, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate,
                            const prefetch_cursor *prefetch) {
    switch (width / LANES) {
    case 1: dot_ahead_1(k, a, lda, panel, c, ldc, accumulate, prefetch); break;
    case 2: dot_ahead_2(k, a, lda, panel, c, ldc, accumulate, prefetch); break;
#if TILE_VECTORS == 4
    case 3: dot_ahead_3(k, a, lda, panel, c, ldc, accumulate, prefetch); break;
    case 4: dot_ahead_4(k, a, lda, panel, c, ldc, accumulate, prefetch); break;
#endif
    }
}

static void f32_gemm_tn(i32 width, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,
                              i32 accumulate, const prefetch_cursor *prefetch) {
    switch (width / LANES) {
    case 1: outer_ahead_1(k, a, lda, b, ldb, c, ldc, accumulate, prefetch); break;
    case 2: outer_ahead_2(k, a, lda, b, ldb, c, ldc, accumulate, prefetch); break;
#if TILE_VECTORS == 4
    case 3: outer_ahead_3(k, a, lda, b, ldb, c, ldc, accumulate, prefetch); break;
    case 4: outer_ahead_4(k, a, lda, b, ldb, c, ldc, accumulate, prefetch); break;
#endif
    }
}
