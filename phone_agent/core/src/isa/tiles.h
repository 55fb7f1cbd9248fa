/* The register tiles by name, the same for every ISA: MR rows, and any number of vectors of columns up to NR / LANES.
 * Included at the end of the ISA's micro.h. */
#pragma once

/* 1 .. NR / LANES vectors of columns, while memory that will be needed soon comes closer:
 * dot: C[i][j] (+)= sum over k of a[i * lda + k] * panel[k][j]; the panel is packed;
 * outer: C[i][j] (+)= sum over k of a[k * lda + i] * b[k * ldb + j]. */
#define TILES_AHEAD(VECTORS)                                                                                                  \
    static NOINLINE void dot_ahead_##VECTORS(i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc,           \
                                             i32 accumulate, const lookahead *ahead) {                                        \
        dot_tile(VECTORS, k, a, lda, panel, c, ldc, accumulate, ahead);                                                       \
    }                                                                                                                         \
    static NOINLINE void outer_ahead_##VECTORS(i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,    \
                                               i32 accumulate, const lookahead *ahead) {                                      \
        outer_tile(VECTORS, k, a, lda, b, ldb, c, ldc, accumulate, ahead);                                                    \
    }
TILES_AHEAD(1)
TILES_AHEAD(2)
#if TILE_VECTORS == 4
TILES_AHEAD(3)
TILES_AHEAD(4)
#endif

static void micro_dot_ahead(i32 width, i64 k, const float *a, i64 lda, const float *panel, float *c, i64 ldc, i32 accumulate,
                            const lookahead *ahead) {
    switch (width / LANES) {
    case 1: dot_ahead_1(k, a, lda, panel, c, ldc, accumulate, ahead); break;
    case 2: dot_ahead_2(k, a, lda, panel, c, ldc, accumulate, ahead); break;
#if TILE_VECTORS == 4
    case 3: dot_ahead_3(k, a, lda, panel, c, ldc, accumulate, ahead); break;
    case 4: dot_ahead_4(k, a, lda, panel, c, ldc, accumulate, ahead); break;
#endif
    }
}

static void micro_outer_ahead(i32 width, i64 k, const float *a, i64 lda, const float *b, i64 ldb, float *c, i64 ldc,
                              i32 accumulate, const lookahead *ahead) {
    switch (width / LANES) {
    case 1: outer_ahead_1(k, a, lda, b, ldb, c, ldc, accumulate, ahead); break;
    case 2: outer_ahead_2(k, a, lda, b, ldb, c, ldc, accumulate, ahead); break;
#if TILE_VECTORS == 4
    case 3: outer_ahead_3(k, a, lda, b, ldb, c, ldc, accumulate, ahead); break;
    case 4: outer_ahead_4(k, a, lda, b, ldb, c, ldc, accumulate, ahead); break;
#endif
    }
}
