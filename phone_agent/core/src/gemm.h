/* Matrices of any size out of the ISA's register tiles.
 *
 * C = A B. B is packed into panels of NR columns, a panel's rows one after the other; the last panel is as wide as it must
 * be. Blocks of A are gathered into local memory. So the tiles in registers never see an edge: padding is zeros. */
#pragma once
#include "rows.h"
#include MICRO_HEADER

_Static_assert(BLOCK_ROWS % MR == 0 && ALONE_ROWS % MR == 0 && GRADIENT_ROWS % MR == 0, "blocks hold whole tiles");
_Static_assert(BLOCK_COLUMNS % NR == 0 && PACK_COLUMNS % NR == 0 && GRADIENT_COLUMNS % NR == 0, "blocks hold whole panels");

/* Not a power of two: rows of a block must not all fall into the same few sets of the L1 cache. */
enum { LDA = BLOCK_DEPTH + LANES };

INLINE i32 panel_count(i32 columns) { return CEIL_DIV(columns, NR); }

/* The last panel has as many vectors as it needs. */
INLINE i32 strip_width(i32 columns, i32 strip) { return MIN(NR, ROUND_UP(columns - strip * NR, LANES)); }
INLINE i64 strip_columns(i32 columns) { return ROUND_UP(columns, LANES); }

/* to[0 .. count) = from, and zeros up to `width`, a multiple of LANES. */
INLINE void copy_padded(const float *from, i32 count, float *to, i32 width) {
    i32 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(from + i));
    for (; i < width; i += LANES) store(to + i, count > i ? load_some(from + i, count - i) : (vec)0);
}

/* Copies that may end anywhere; the last vector overlaps the one before. */
INLINE void copy_as(const void *from, i32 count, float *to, i32 dtype) {
    i32 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load_stored(stored_at(from, i, dtype), LANES, dtype));
    if (i == count) return;
    if (count >= LANES) store(to + count - LANES, load_stored(stored_at(from, count - LANES, dtype), LANES, dtype));
    else store_some(to, load_stored(from, count, dtype), count);
}

INLINE void copy_run(const void *from, i32 count, float *to, i32 dtype) {
    if (dtype == FP16) copy_as(from, count, to, FP16);
    else copy_as(from, count, to, FP32);
}

typedef float quad __attribute__((ext_vector_type(4)));
typedef float loose_quad __attribute__((ext_vector_type(4), aligned(4)));

/* to[k * width + j] = from[j * ld + k], for 4 x 4. */
INLINE void transpose_quads(const float *from, i64 ld, float *to, i32 width) {
    quad a = *(const loose_quad *)from, b = *(const loose_quad *)(from + ld);
    quad c = *(const loose_quad *)(from + 2 * ld), d = *(const loose_quad *)(from + 3 * ld);
    quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(loose_quad *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(loose_quad *)(to + width) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(loose_quad *)(to + 2 * width) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    *(loose_quad *)(to + 3 * width) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* A panel's rows out of a matrix that lies column by column: to[k * width + j] = from[j * ld + k], zeros from `columns` on. */
static void transpose_into_panel(const float *from, i64 ld, i32 columns, i32 depth, float *to, i32 width) {
    i32 j = 0;
    for (; j + 4 <= columns; j += 4) {
        i32 k = 0;
        for (; k + 4 <= depth; k += 4) transpose_quads(from + j * ld + k, ld, to + (i64)k * width + j, width);
        for (; k < depth; k++)
            for (i32 i = 0; i < 4; i++) to[(i64)k * width + j + i] = from[(j + i) * ld + k];
    }
    for (; j < width; j++)
        for (i32 k = 0; k < depth; k++) to[(i64)k * width + j] = j < columns ? from[j * ld + k] : 0;
}

/* `tiles` tiles of MR rows times one panel. */
static void multiply_tiles(i32 tiles, i64 depth, const float *a, i64 lda, const float *panel, i32 width, float *c, i64 ldc,
                           i32 accumulate, errand *e) {
    for (i32 tile = 0; tile < tiles; tile++, a += MR * lda, c += MR * ldc) {
        lookahead ahead = next_errand(e, depth, a);
        micro_dot_ahead(width, depth, a, lda, panel, c, ldc, accumulate, &ahead);
    }
}
