/* One strip of pixels: its input, the operations fused into the load, and prefetching. */
#pragma once
#include "depthwise/plan.h"

/* Where to prefetch vectors of channels. Addresses are contiguous or nearly so, which means that prefetching
 * accesses memory in order. */
typedef struct {
    const char *at;
    i64 pixel, vector; /* bytes */
} prefetch_strip;

INLINE prefetch_strip prefetch_strip_at(const void *at, i64 pixel_stride, i32 channels, i32 dtype) {
    i64 bytes = dtype_bytes(dtype);
    if (pixel_stride == channels) return (prefetch_strip){at, LANES * bytes, STRIP * LANES * bytes};
    return (prefetch_strip){at, pixel_stride * bytes, LANES * bytes};
}
INLINE void prefetch_to_read(const prefetch_strip *a, i32 vector) {
    const char *from = a->at + vector * a->vector;
    UNROLL for (i32 i = 0; i < STRIP; i++) __builtin_prefetch(from + i * a->pixel, 0);
}
INLINE void prefetch_to_write(const prefetch_strip *a, i32 vector) {
    const char *from = a->at + vector * a->vector;
    UNROLL for (i32 i = 0; i < STRIP; i++) __builtin_prefetch(from + i * a->pixel, 1);
}

/* The input of a strip. Column q is inside the image for start <= q < end. `from` is column 0 of the first tap row
 * inside the image; `rows` tap rows are inside. `pixel_stride` and `row_stride` are elements between columns and
 * between tap rows. */
typedef struct {
    const void *from;
    const float *scale, *shift;
    i64 pixel_stride, row_stride;
    i32 rows, start, end;
    const taps *taps;
    i32 step;
    prefetch_strip next[2]; /* rows needed next, at the same columns */
    i32 next_count;
} strip_input;

/* The operation fused into the load, as a constant for the inner loops. fp16 input always uses the clamp, which
 * covers the other modes. */
enum input_mode { IDENTITY, AFFINE_RELU, AFFINE_CLAMP, FP16_AFFINE_CLAMP, INPUT_MODES };
INLINE enum input_mode input_mode_of(const fused_input *x) {
    if (x->dtype == FP16) return FP16_AFFINE_CLAMP;
    return !x->scale ? IDENTITY : x->act == ACT_RELU ? AFFINE_RELU : AFFINE_CLAMP;
}
INLINE i32 dtype_of(const enum input_mode mode) { return mode == FP16_AFFINE_CLAMP ? FP16 : FP32; }

typedef struct {
    vec scale, shift, low, high;
} affine;

INLINE vec lower_limit(i32 act) { return act == ACT_NONE ? splat(-__builtin_inff()) : (vec)0; }
INLINE vec upper_limit(i32 act) { return splat(act == ACT_RELU6 ? 6 : __builtin_inff()); }

INLINE affine load_affine(const strip_input *v, i32 act, i32 c, i32 lanes, const enum input_mode mode) {
    if (mode == IDENTITY) return (affine){0, 0, 0, 0};
    if (!v->scale) return (affine){1, 0, lower_limit(ACT_NONE), upper_limit(ACT_NONE)};
    return (affine){load_lanes(v->scale + c, lanes), load_lanes(v->shift + c, lanes), lower_limit(act),
                    upper_limit(act)};
}

INLINE vec apply_affine(vec v, const affine *g, const enum input_mode mode) {
    if (mode == IDENTITY) return v;
    v = v * g->scale + g->shift;
    if (mode == AFFINE_RELU) return relu(v);
    v = g->low > v ? g->low : v;
    return g->high < v ? g->high : v;
}

enum tap_shape { TAPS_ANY, TAPS_1, TAPS_2, TAPS_3, TAPS_3_STRIDE_2, TAP_SHAPES };
static enum tap_shape tap_shape_of(const taps *t, i32 step) {
    if (t->count == 3 && t->spacing == 1 && step <= 2) return step == 1 ? TAPS_3 : TAPS_3_STRIDE_2;
    if (t->count == 2 && t->spacing == 1 && step == 1) return TAPS_2;
    return t->count == 1 && step == 1 ? TAPS_1 : TAPS_ANY;
}

/* The tap rows of an output row that lie inside the image: `rows` of them from tap `first` on. The first one reads
 * input row y. */
typedef struct {
    i32 first, rows, y;
} tap_rows;

static tap_rows tap_rows_inside(const dw_plan *k, const taps *t, i32 y) {
    i32 at = y / k->phases * k->step + t->offset, first = 0, past = t->count;
    while (first < past && at + first * t->spacing < 0) first++;
    while (first < past && at + (past - 1) * t->spacing >= k->in_h) past--;
    return (tap_rows){first, past - first, at + first * t->spacing};
}

/* Prefetch the input rows that the next output row needs and this one does not. */
static void prefetch_input_rows(const dw_plan *k, const fused_input *x, const taps *t, i32 y, const void *image,
                                i32 column, i32 channels, strip_input *v) {
    v->next_count = 0;
    if (y % k->phases) return;
    i32 past = y / k->phases * k->step + t->offset + (t->count - 1) * t->spacing + 1;
    for (i32 row = MAX(past, 0); row < MIN(past + MIN(k->step, 2), k->in_h); row++)
        v->next[v->next_count++] = prefetch_strip_at(element_at(image, ((i64)row * k->in_w + column) * x->ld, x->dtype),
                                                     x->ld, channels, x->dtype);
}
