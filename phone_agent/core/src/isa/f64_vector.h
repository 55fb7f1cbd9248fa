/* Vectors of doubles, half as many lanes as floats, and how a register tile starts and ends. */
#pragma once
#include "../kernel_table.h"

enum { F64_LANES = LANES / 2, F64_NR = F64_VECTORS * F64_LANES };

typedef double f64_vec __attribute__((ext_vector_type(F64_LANES)));
typedef double unaligned_f64_vec __attribute__((ext_vector_type(F64_LANES), aligned(8)));

INLINE f64_vec load_f64(const double *p) { return *(const unaligned_f64_vec *)p; }
INLINE void store_f64(double *p, f64_vec v) { *(unaligned_f64_vec *)p = v; }

/* Prefetches C while the tile is computed. */
INLINE void clear_f64_tile(f64_vec sum[F64_MR][F64_VECTORS], const double *c, i64 ldc) {
    enum { CACHE_LINE = 8 };
    UNROLL for (i32 i = 0; i < F64_MR; i++) {
        UNROLL for (i32 j = 0; j < F64_NR; j += CACHE_LINE) __builtin_prefetch(c + i * ldc + j, 1, 3);
        UNROLL for (i32 j = 0; j < F64_VECTORS; j++) sum[i][j] = 0;
    }
}

INLINE void store_f64_tile(f64_vec sum[F64_MR][F64_VECTORS], double *c, i64 ldc, i32 accumulate) {
    UNROLL for (i32 i = 0; i < F64_MR; i++) {
        UNROLL for (i32 j = 0; j < F64_VECTORS; j++) {
            double *to = c + i * ldc + j * F64_LANES;
            store_f64(to, accumulate ? load_f64(to) + sum[i][j] : sum[i][j]);
        }
    }
}
