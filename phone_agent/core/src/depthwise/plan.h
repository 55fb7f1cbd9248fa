/* Depthwise convolution: each channel by itself. Memory bandwidth is the limit, so nothing is copied, and memory is
 * accessed in order: strip by strip along a row, all channels of a strip before the next strip, with the next rows
 * and strips prefetched. The fused input operations are applied at every load, because arithmetic is free where
 * memory is the limit.
 *
 * Forward and backward data are the same loops. In backward data, the input pixels with the same remainder modulo
 * the stride (a phase) all see the same taps, and dy is read with stride 1 along a phase. Backward weights loops
 * like forward, with one sum per tap. */

#pragma once
#include "epilogue.h"

/* Pixels whose sums are in registers at the same time. The widths of common feature maps are multiples of it. */
enum { STRIP = 7 };
enum { TILES_PER_THREAD = 16, MAX_SUMMED_PIXELS = 256, MIN_BLOCK = 64, SUM_VECTORS = 3 };

/* The taps that apply to an output coordinate along one axis: output j of a phase reads input j * step + offset + k
 * * spacing with tap first_tap + k * tap_step, for k in 0 .. count - 1. */
typedef struct {
    i32 count, first_tap, tap_step, offset, spacing;
} taps;

static taps taps_forward(i32 strip_weights, i32 pad, i32 dilation) {
    return (taps){strip_weights, 0, 1, -pad, dilation};
}

/* Output i of the forward pass reads input i * stride - pad + tap * dilation. So input `phase` is reached by the
 * taps without a remainder. */
static taps taps_backward(i32 strip_weights, i32 pad, i32 dilation, i32 stride, i32 phase) {
    taps t = {0, 0, 0, 0, 0};
    i32 last = -1;
    for (i32 tap = 0; tap < strip_weights; tap++) {
        if ((phase + pad - tap * dilation) % stride) continue;
        if (last >= 0) t.tap_step = last - tap;
        last = tap;
        t.count++;
    }
    if (!t.count) return t;
    t.first_tap = last;
    t.offset = (phase + pad - last * dilation) / stride;
    t.spacing = -t.tap_step * dilation / stride;
    return t;
}

/* Sizes of the tensor that is read (`in`) and of the one that is computed (`out`), and the tiling. */
typedef struct {
    i32 batch, in_h, in_w, out_h, out_w, channels;
    i32 kernel_h, kernel_w, pad_h, pad_w, dilation;
    i32 step, phases, backward; /* forward: stride, 1; backward: 1, stride */
    i32 block;                  /* channels per tile: all, or a multiple of LANES if there are few rows */
    i64 chunk;                  /* output rows (of all images) per tile */
} dw_plan;

static taps plan_taps(const dw_plan *k, i32 strip_weights, i32 pad, i32 phase) {
    if (!k->backward) return taps_forward(strip_weights, pad, k->dilation);
    return taps_backward(strip_weights, pad, k->dilation, k->phases, phase);
}

INLINE i64 output_rows(const dw_plan *k) { return (i64)k->batch * k->out_h; }
INLINE i64 channel_blocks(const dw_plan *k) { return CEIL_DIV(k->channels, k->block); }

static void choose_tiling(dw_plan *k, i32 threads) {
    i64 wanted = (i64)threads * TILES_PER_THREAD, rows = output_rows(k);
    i32 blocks = (i32)MIN(CEIL_DIV(wanted, rows), CEIL_DIV(k->channels, MIN_BLOCK));
    k->block = ROUND_UP(CEIL_DIV(k->channels, blocks), LANES);
    k->chunk = CEIL_DIV(rows, wanted);
}

static dw_plan plan_base(const geometry *g) {
    return (dw_plan){.batch = g->batch,
                     .channels = g->in_c,
                     .kernel_h = g->kernel_h,
                     .kernel_w = g->kernel_w,
                     .pad_h = g->pad_h,
                     .pad_w = g->pad_w,
                     .dilation = g->dilation};
}

static dw_plan plan_forward(const geometry *g, i32 threads) {
    dw_plan k = plan_base(g);
    k.in_h = g->in_h, k.in_w = g->in_w, k.out_h = g->out_h, k.out_w = g->out_w;
    k.step = g->stride, k.phases = 1;
    choose_tiling(&k, threads);
    return k;
}

static dw_plan plan_backward_data(const geometry *g, i32 threads) {
    dw_plan k = plan_base(g);
    k.in_h = g->out_h, k.in_w = g->out_w, k.out_h = g->in_h, k.out_w = g->in_w;
    k.step = 1, k.phases = g->stride, k.backward = 1;
    choose_tiling(&k, threads);
    return k;
}

INLINE i64 vector_count(i64 channels) { return CEIL_DIV(channels, LANES); }
INLINE i64 aligned_bytes(i64 floats) { return ROUND_UP(floats * 4, 64); }
