/* Load rows of an input tensor with the fused operations applied: act(scale * x + shift). */
#pragma once
#include "fp16.h"

INLINE void load_affine_scaled(const void *from, const float *scale, const float *shift, i32 channels, float *to,
                               i32 act, i32 dtype) {
    i32 c = 0;
    for (; c + 2 * LANES <= channels; c += 2 * LANES) {
        vec v0 = load_as_fp32(element_at(from, c, dtype), LANES, dtype) * load(scale + c) + load(shift + c);
        vec v1 = load_as_fp32(element_at(from, c + LANES, dtype), LANES, dtype) * load(scale + c + LANES) +
                 load(shift + c + LANES);
        store(to + c, activate(v0, act));
        store(to + c + LANES, activate(v1, act));
    }
    for (; c < channels; c += LANES) {
        i32 lanes = MIN(LANES, channels - c);
        vec v = load_as_fp32(element_at(from, c, dtype), lanes, dtype) * load_lanes(scale + c, lanes) +
                load_lanes(shift + c, lanes);
        store_lanes(to + c, activate(v, act), lanes);
    }
}

INLINE void load_affine_as(const fused_input *x, i64 row, i32 c0, i32 channels, float *to, i32 dtype) {
    const void *from = element_at(x->data, row * x->ld + c0, dtype);
    if (!x->scale) {
        i32 c = 0;
        for (; c + LANES <= channels; c += LANES) store(to + c, load_as_fp32(element_at(from, c, dtype), LANES, dtype));
        if (c < channels)
            store_partial(to + c, load_as_fp32(element_at(from, c, dtype), channels - c, dtype), channels - c);
        return;
    }
    const float *scale = x->scale + c0, *shift = x->shift + c0;
    if (x->act == ACT_NONE) load_affine_scaled(from, scale, shift, channels, to, ACT_NONE, dtype);
    else if (x->act == ACT_RELU) load_affine_scaled(from, scale, shift, channels, to, ACT_RELU, dtype);
    else load_affine_scaled(from, scale, shift, channels, to, ACT_RELU6, dtype);
}

/* to[0 .. channels - 1] = channels c0 .. of row `row`, with the fused operations applied. */
INLINE void load_affine_row(const fused_input *x, i64 row, i32 c0, i32 channels, float *to) {
    if (x->dtype == FP16) load_affine_as(x, row, c0, channels, to, FP16);
    else load_affine_as(x, row, c0, channels, to, FP32);
}

INLINE void zero_row(float *to, i32 channels) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) store(to + c, (vec)0);
    if (c < channels) store_partial(to + c, (vec)0, channels - c);
}
