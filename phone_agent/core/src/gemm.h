/* GEMM of any size on top of the register tiles of the ISA.
 *
 * C = A B. B is packed into panels of NR columns; the rows of a panel are contiguous, and the last panel is only as
 * wide as necessary. Blocks of A are gathered into local memory. Padding is zeros, so the register tiles never see
 * an edge. */
#pragma once
#include "load_affine.h"
#include GEMM_HEADER

_Static_assert(BLOCK_ROWS % MR == 0 && PRIVATE_BLOCK_ROWS % MR == 0 && WGRAD_ROWS % MR == 0, "blocks hold whole tiles");
_Static_assert(BLOCK_COLUMNS % NR == 0 && PRIVATE_BLOCK_COLUMNS % NR == 0 && WGRAD_COLUMNS % NR == 0,
               "blocks hold whole panels");

/* Not a power of two, so that the rows of a block do not all fall into the same few sets of the L1 cache. */
enum { LDA = BLOCK_DEPTH + LANES };

INLINE i32 panel_count(i32 columns) { return CEIL_DIV(columns, NR); }

/* The last panel has only as many vectors as it needs. */
INLINE i32 panel_width(i32 columns, i32 strip) { return MIN(NR, ROUND_UP(columns - strip * NR, LANES)); }
INLINE i64 padded_columns(i32 columns) { return ROUND_UP(columns, LANES); }

/* to[0 .. count - 1] = from, then zeros up to `width`, a multiple of LANES. */
INLINE void copy_padded(const float *from, i32 count, float *to, i32 width) {
    i32 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(from + i));
    for (; i < width; i += LANES) store(to + i, count > i ? load_partial(from + i, count - i) : (vec)0);
}

/* Copies of any length; the last vector overlaps the one before it. */
INLINE void copy_elements_as(const void *from, i32 count, float *to, i32 dtype) {
    i32 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load_as_fp32(element_at(from, i, dtype), LANES, dtype));
    if (i == count) return;
    if (count >= LANES) store(to + count - LANES, load_as_fp32(element_at(from, count - LANES, dtype), LANES, dtype));
    else store_partial(to, load_as_fp32(from, count, dtype), count);
}

INLINE void copy_elements(const void *from, i32 count, float *to, i32 dtype) {
    if (dtype == FP16) copy_elements_as(from, count, to, FP16);
    else copy_elements_as(from, count, to, FP32);
}

typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float unaligned_f32x4 __attribute__((ext_vector_type(4), aligned(4)));

/* to[k * width + j] = from[j * ld + k], for 4 x 4 elements. */
INLINE void transpose_4x4(const float *from, i64 ld, float *to, i32 width) {
    f32x4 a = *(const unaligned_f32x4 *)from, b = *(const unaligned_f32x4 *)(from + ld);
    f32x4 c = *(const unaligned_f32x4 *)(from + 2 * ld), d = *(const unaligned_f32x4 *)(from + 3 * ld);
    f32x4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    f32x4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(unaligned_f32x4 *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(unaligned_f32x4 *)(to + width) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(unaligned_f32x4 *)(to + 2 * width) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    *(unaligned_f32x4 *)(to + 3 * width) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* Pack a panel from a column-major matrix: to[k * width + j] = from[j * ld + k], zeros from `columns` on. */
static void pack_transposed_panel(const float *from, i64 ld, i32 columns, i32 depth, float *to, i32 width) {
    i32 j = 0;
    for (; j + 4 <= columns; j += 4) {
        i32 k = 0;
        for (; k + 4 <= depth; k += 4) transpose_4x4(from + j * ld + k, ld, to + (i64)k * width + j, width);
        for (; k < depth; k++)
            for (i32 i = 0; i < 4; i++) to[(i64)k * width + j + i] = from[(j + i) * ld + k];
    }
    for (; j < width; j++)
        for (i32 k = 0; k < depth; k++) to[(i64)k * width + j] = j < columns ? from[j * ld + k] : 0;
}

/* `tiles` tiles of MR rows times one panel. */
static void gemm_panel(i32 tiles, i64 depth, const float *a, i64 lda, const float *panel, i32 width, float *c, i64 ldc,
                       i32 accumulate, prefetch_list *list) {
    for (i32 tile = 0; tile < tiles; tile++, a += MR * lda, c += MR * ldc) {
        prefetch_cursor prefetch = prefetch_list_next(list, depth, a);
        f32_gemm(width, depth, a, lda, panel, c, ldc, accumulate, &prefetch);
    }
}
