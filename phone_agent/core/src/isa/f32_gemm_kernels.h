/* The f32 GEMM microkernels of one ISA, named by their tile: f32_gemm_6x16_avx2 computes 6 rows x 16 columns of C.
 * The header of the ISA lists the tiles in GEMM_KERNELS(X): X(vectors of columns, tile).
 *
 *   f32_gemm:    C[i][j] (+)= sum over k of a[i * lda + k] * panel[k][j]; the panel is packed
 *   f32_gemm_tn: C[i][j] (+)= sum over k of a[k * lda + i] * b[k * ldb + j]; A is transposed, as in BLAS
 *
 * While they compute, the kernels prefetch memory that will be needed soon. */
#pragma once

#define F32_GEMM(VECTORS, TILE) \
    static NOINLINE void FOR_ISA(f32_gemm_##TILE)(i64 k, const float *a, i64 lda, const float *panel, float *c, \
                                                  i64 ldc, i32 accumulate, const prefetch_cursor *prefetch) { \
        gemm_tile(VECTORS, k, a, lda, panel, c, ldc, accumulate, prefetch); \
    }
#define F32_GEMM_TN(VECTORS, TILE) \
    static NOINLINE void FOR_ISA(f32_gemm_tn_##TILE)(i64 k, const float *a, i64 lda, const float *b, i64 ldb, \
                                                     float *c, i64 ldc, i32 accumulate, \
                                                     const prefetch_cursor *prefetch) { \
        gemm_tn_tile(VECTORS, k, a, lda, b, ldb, c, ldc, accumulate, prefetch); \
    }
GEMM_KERNELS(F32_GEMM)
GEMM_KERNELS(F32_GEMM_TN)

/* `width` columns, a multiple of LANES and at most NR. */
static void f32_gemm(i32 width, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate,
                     const prefetch_cursor *prefetch) {
#define CASE(VECTORS, TILE) \
    case VECTORS: FOR_ISA(f32_gemm_##TILE)(k, a, lda, panel, c, ldc, accumulate, prefetch); break;
    switch (width / LANES) { GEMM_KERNELS(CASE) }
#undef CASE
}

static void f32_gemm_tn(i32 width, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,
                        i32 accumulate, const prefetch_cursor *prefetch) {
#define CASE(VECTORS, TILE) \
    case VECTORS: FOR_ISA(f32_gemm_tn_##TILE)(k, a, lda, b, ldb, c, ldc, accumulate, prefetch); break;
    switch (width / LANES) { GEMM_KERNELS(CASE) }
#undef CASE
}
