/* Vectors of LANES floats and the basic operations on them, in clang's vector extensions instead of intrinsics. */
#pragma once
#include "kernel_table.h"

typedef float vec __attribute__((ext_vector_type(LANES)));
typedef float unaligned_vec __attribute__((ext_vector_type(LANES), aligned(4)));
typedef i32 ivec __attribute__((ext_vector_type(LANES)));
typedef u32 uvec __attribute__((ext_vector_type(LANES)));
typedef double dvec __attribute__((ext_vector_type(LANES)));

INLINE vec load(const float *p) { return *(const unaligned_vec *)p; }
INLINE void store(float *p, vec v) { *(unaligned_vec *)p = v; }
INLINE vec splat(float x) { return (vec)x; }

/* Load or store the first n lanes. The other lanes are 0 or unchanged, and their memory is not accessed. */
#if LANES > 4
typedef _Bool lane_mask __attribute__((ext_vector_type(LANES)));

INLINE lane_mask first_lanes_mask(i32 n) {
    ivec lane;
    UNROLL for (i32 i = 0; i < LANES; i++) lane[i] = i;
    return __builtin_convertvector(lane < n, lane_mask);
}
INLINE vec load_partial(const float *p, i32 n) { return __builtin_masked_load(first_lanes_mask(n), p, (vec)0); }
INLINE void store_partial(float *p, vec v, i32 n) { __builtin_masked_store(first_lanes_mask(n), v, p); }
#else /* this ISA has no masked loads; predictable branches are the fastest alternative */
INLINE vec load_partial(const float *p, i32 n) {
    vec v = 0;
    if (n > 0) v[0] = p[0];
    if (n > 1) v[1] = p[1];
    if (n > 2) v[2] = p[2];
    if (n > 3) v[3] = p[3];
    return v;
}
INLINE void store_partial(float *p, vec v, i32 n) {
    if (n > 0) p[0] = v[0];
    if (n > 1) p[1] = v[1];
    if (n > 2) p[2] = v[2];
    if (n > 3) p[3] = v[3];
}
#endif
/* For code that is written once for whole vectors and for tails: `lanes` is the constant LANES for whole vectors,
 * and smaller for a tail. */
INLINE vec load_lanes(const float *p, i32 lanes) { return lanes == LANES ? load(p) : load_partial(p, lanes); }
INLINE void store_lanes(float *p, vec v, i32 lanes) {
    if (lanes == LANES) store(p, v);
    else store_partial(p, v, lanes);
}

/* NaN stays NaN, so that a diverged run is noticed. */
INLINE vec relu(vec v) { return 0 > v ? (vec)0 : v; }
INLINE vec activate(vec v, i32 act) {
    if (act == ACT_NONE) return v;
    v = relu(v);
    return act == ACT_RELU6 ? (6 < v ? (vec)6 : v) : v;
}
/* The gradient behind an activation: g where the activation with output y passes gradients, otherwise 0. */
INLINE vec activation_backward(vec g, vec y, i32 act) {
    if (act == ACT_NONE) return g;
    g = y > 0 ? g : (vec)0;
    return act == ACT_RELU6 ? (y < 6 ? g : (vec)0) : g;
}

/* Prefetch one page ahead, in passes over whole tensors, also for memory that is written. 10-50 % faster where
 * memory is the limit, on the one ISA whose vectors are whole cache lines; on the others it costs too much. */
INLINE void prefetch_page_ahead(const void *p) {
    if (LANES == 16) __builtin_prefetch((const char *)p + 4096);
}
