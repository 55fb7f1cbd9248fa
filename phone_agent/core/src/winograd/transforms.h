/* One-dimensional Winograd transforms: F(2, 3) at the points 0, 1, -1, inf and F(4, 3) at 0, 1, -1, 2, -2, inf. m
 * outputs of a 3-tap filter take m + 2 inputs and as many multiplications: y = A^T ((G g) * (B^T d)). In two
 * dimensions they are applied first along the rows, then along the columns. `m` is a constant wherever these are
 * called. */
#pragma once
#include "vector.h"

enum { MAX_SIDE = 6, MAX_POINTS = MAX_SIDE * MAX_SIDE };

/* The lines of a square come in pairs that share arithmetic: 0 and the last, 1 and 2, 3 and 4. ALL_LINES: all pairs. */
enum { ALL_LINES = -1 };
INLINE i32 line_pairs(const i32 m) { return m / 2 + 1; }
INLINE i32 line_of(const i32 m, i32 pair, i32 second) { return pair > 0 ? 2 * pair - 1 + second : second * (m + 1); }

/* B^T: inputs. */
INLINE void input_transform_pair(const i32 m, const i32 pair, const vec *d, vec *first, vec *second) {
    if (m == 2) {
        *first = pair == 0 ? d[0] - d[2] : d[1] + d[2];
        *second = pair == 0 ? d[1] - d[3] : d[2] - d[1];
    } else if (pair == 0) {
        *first = 4 * d[0] + (d[4] - 5 * d[2]);
        *second = 4 * d[1] + (d[5] - 5 * d[3]);
    } else {
        vec even = pair == 1 ? d[4] - 4 * d[2] : d[4] - d[2], odd = pair == 1 ? d[3] - 4 * d[1] : 2 * (d[3] - d[1]);
        *first = even + odd;
        *second = even - odd;
    }
}

INLINE void input_transform(const i32 m, const vec *d, vec *v) {
    UNROLL for (i32 pair = 0; pair < line_pairs(m); pair++)
        input_transform_pair(m, pair, d, v + line_of(m, pair, 0), v + line_of(m, pair, 1));
}

/* A^T: products to outputs. */
INLINE void output_transform(const i32 m, const vec *v, vec *y) {
    vec sum1 = v[1] + v[2], difference1 = v[1] - v[2];
    if (m == 2) {
        y[0] = v[0] + sum1;
        y[1] = difference1 - v[3];
        return;
    }
    vec sum2 = v[3] + v[4], difference2 = v[3] - v[4];
    y[0] = v[0] + sum1 + sum2;
    y[1] = difference1 + 2 * difference2;
    y[2] = sum1 + 4 * sum2;
    y[3] = difference1 + 8 * difference2 + v[5];
}

/* A: output gradients to products. */
INLINE void gradient_transform_pair(const i32 m, const i32 pair, const vec *d, vec *first, vec *second) {
    if (pair == 0) {
        *first = d[0];
        *second = m == 2 ? -d[1] : d[3];
    } else if (m == 2) {
        *first = d[0] + d[1];
        *second = d[0] - d[1];
    } else {
        vec even = pair == 1 ? d[0] + d[2] : d[0] + 4 * d[2], odd = pair == 1 ? d[1] + d[3] : 2 * d[1] + 8 * d[3];
        *first = even + odd;
        *second = even - odd;
    }
}

INLINE void gradient_transform(const i32 m, const vec *d, vec *v) {
    UNROLL for (i32 pair = 0; pair < line_pairs(m); pair++)
        gradient_transform_pair(m, pair, d, v + line_of(m, pair, 0), v + line_of(m, pair, 1));
}

/* G: weights. */
static const float G2[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
static const float G4[6][3] = {{1.f / 4, 0, 0},
                               {-1.f / 6, -1.f / 6, -1.f / 6},
                               {-1.f / 6, 1.f / 6, -1.f / 6},
                               {1.f / 24, 1.f / 12, 1.f / 6},
                               {1.f / 24, -1.f / 12, 1.f / 6},
                               {0, 0, 1}};
INLINE const float *weight_transform_line(const i32 m, i32 line) { return m == 2 ? G2[line] : G4[line]; }

INLINE void weight_transform(const i32 m, const vec *g, vec *u) {
    if (m == 2) {
        vec even = 0.5f * (g[0] + g[2]), odd = 0.5f * g[1];
        u[0] = g[0];
        u[1] = even + odd;
        u[2] = even - odd;
        u[3] = g[2];
        return;
    }
    vec even = (-1.f / 6) * (g[0] + g[2]), odd = (1.f / 6) * g[1];
    u[0] = 0.25f * g[0];
    u[1] = even - odd;
    u[2] = even + odd;
    even = (1.f / 24) * g[0] + (1.f / 6) * g[2], odd = (1.f / 12) * g[1];
    u[3] = even + odd;
    u[4] = even - odd;
    u[5] = g[2];
}

/* G^T: products to weight gradients. */
INLINE void weight_gradient_transform(const i32 m, const vec *u, vec *g) {
    vec sum1 = u[1] + u[2], difference1 = u[1] - u[2];
    if (m == 2) {
        g[0] = u[0] + 0.5f * sum1;
        g[1] = 0.5f * difference1;
        g[2] = u[3] + 0.5f * sum1;
        return;
    }
    vec sum2 = u[3] + u[4], difference2 = u[3] - u[4];
    g[0] = 0.25f * u[0] - (1.f / 6) * sum1 + (1.f / 24) * sum2;
    g[1] = (1.f / 12) * difference2 - (1.f / 6) * difference1;
    g[2] = (1.f / 6) * (sum2 - sum1) + u[5];
}
