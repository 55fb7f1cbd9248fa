/* Vectors of doubles, half as many as floats, and how a tile of them begins and ends. */
#pragma once
#include "../table.h"

enum { DOUBLES = LANES / 2, DOUBLE_COLUMNS = DOUBLE_VECTORS * DOUBLES };

typedef double double_vec __attribute__((ext_vector_type(DOUBLES)));
typedef double loose_double_vec __attribute__((ext_vector_type(DOUBLES), aligned(8)));

INLINE double_vec load_doubles(const double *p) { return *(const loose_double_vec *)p; }
INLINE void store_doubles(double *p, double_vec v) { *(loose_double_vec *)p = v; }

/* C is fetched while the tile multiplies. */
INLINE void clear_double_tile(double_vec sum[DOUBLE_ROWS][DOUBLE_VECTORS], const double *c, i64 ldc) {
    enum { LINE = 8 };
    UNROLL for (i32 i = 0; i < DOUBLE_ROWS; i++) {
        UNROLL for (i32 j = 0; j < DOUBLE_COLUMNS; j += LINE) __builtin_prefetch(c + i * ldc + j, 1, 3);
        UNROLL for (i32 j = 0; j < DOUBLE_VECTORS; j++) sum[i][j] = 0;
    }
}

INLINE void store_double_tile(double_vec sum[DOUBLE_ROWS][DOUBLE_VECTORS], double *c, i64 ldc, i32 accumulate) {
    UNROLL for (i32 i = 0; i < DOUBLE_ROWS; i++) {
        UNROLL for (i32 j = 0; j < DOUBLE_VECTORS; j++) {
            double *to = c + i * ldc + j * DOUBLES;
            store_doubles(to, accumulate ? load_doubles(to) + sum[i][j] : sum[i][j]);
        }
    }
}
