/* Tiles of a Winograd convolution: their positions, and the transforms of inputs and gradients. */
#pragma once
#include "gemm.h"
#include "winograd/transforms.h"

/* The output is cut into tiles of m x m pixels. A tile needs a window of (m + 2) x (m + 2) input pixels. */
typedef struct {
    fused_input x;
    i32 m, side, points;
    i32 in_h, in_w, in_c, out_h, out_w, out_c, top, left;
    i32 tiles_h, tiles_w; /* tiles per image */
    i64 tiles;
} winograd_tiling;

static winograd_tiling winograd_tiling_of(const geometry *g, i32 algorithm, fused_input x) {
    i32 m = algorithm == WINOGRAD2 ? 2 : 4;
    winograd_tiling l = {.x = x, .m = m, .side = m + 2, .points = (m + 2) * (m + 2)};
    l.in_h = g->in_h, l.in_w = g->in_w, l.in_c = g->in_c;
    l.out_h = g->out_h, l.out_w = g->out_w, l.out_c = g->out_c;
    l.top = g->pad_h, l.left = g->pad_w;
    l.tiles_h = CEIL_DIV(l.out_h, m), l.tiles_w = CEIL_DIV(l.out_w, m);
    l.tiles = (i64)g->batch * l.tiles_h * l.tiles_w;
    return l;
}

/* Input and output are swapped: reads dy, computes dx. A padding above 2 becomes a negative padding here: windows
 * then start inside dy. */
static winograd_tiling winograd_tiling_backward(const geometry *g, i32 algorithm, fused_input dy) {
    geometry swapped = *g;
    swapped.in_h = g->out_h, swapped.in_w = g->out_w, swapped.in_c = g->out_c;
    swapped.out_h = g->in_h, swapped.out_w = g->in_w, swapped.out_c = g->in_c;
    swapped.pad_h = 2 - g->pad_h, swapped.pad_w = 2 - g->pad_w;
    return winograd_tiling_of(&swapped, algorithm, dy);
}

/* The position of a tile in the output: its first pixel as a row of the tensor, and the part of it inside the image. */
typedef struct {
    i64 image, row;
    i32 y, x, rows, columns;
} tile_position;

static tile_position tile_position_of(const winograd_tiling *l, i64 tile) {
    i32 inside = (i32)(tile % ((i64)l->tiles_h * l->tiles_w));
    tile_position p = {.image = tile / ((i64)l->tiles_h * l->tiles_w)};
    p.y = inside / l->tiles_w * l->m, p.x = inside % l->tiles_w * l->m;
    p.row = (p.image * l->out_h + p.y) * l->out_w + p.x;
    p.rows = MIN(l->m, l->out_h - p.y), p.columns = MIN(l->m, l->out_w - p.x);
    return p;
}

/* A square of pixels that may extend beyond the edges. Pixels outside are read from the first pixel and then masked
 * to 0. */
typedef struct {
    const void *at[MAX_POINTS];
    i32 inside[MAX_POINTS]; /* all bits set, or none */
    i32 interior;
} tile_window;

static void locate_window(tile_window *v, const fused_input *x, i64 image, i32 h, i32 w, i32 y0, i32 x0, i32 side) {
    v->interior = y0 >= 0 && x0 >= 0 && y0 + side <= h && x0 + side <= w;
    i64 first = (image * h + y0) * w + x0, ld = x->ld * dtype_bytes(x->dtype);
    const char *data = x->data;
    for (i32 r = 0; r < side; r++) {
        for (i32 q = 0; q < side; q++)
            v->at[r * side + q] = data + (first + r * w + q) * ld, v->inside[r * side + q] = -1;
    }
    if (v->interior) return;
    for (i32 r = 0; r < side; r++) {
        for (i32 q = 0; q < side; q++) {
            if (y0 + r < 0 || y0 + r >= h || x0 + q < 0 || x0 + q >= w)
                v->at[r * side + q] = data, v->inside[r * side + q] = 0;
        }
    }
}

INLINE vec masked_vec(vec v, i32 bits) { return (vec)((ivec)v & (ivec)bits); }

/* Where the points of one tile are stored: point p of channel c at at[p * point + c / width * next + c % width]. */
typedef struct {
    float *at;
    i64 point, next;
    i32 width; /* a multiple of LANES */
} transform_target;

/* Copy a partial vector of channels to local memory with room for a whole one, with the fused operations applied. */
static void copy_tail(tile_window *to, float copy[][LANES], const tile_window *v, i32 count, const fused_input *x,
                      i32 c0, i32 channels) {
    for (i32 i = 0; i < count; i++) {
        zero_row(copy[i], LANES);
        i64 row = ((const char *)v->at[i] - (const char *)x->data) / (x->ld * dtype_bytes(x->dtype));
        if (v->inside[i]) load_affine_row(x, row, c0, channels, copy[i]);
        to->at[i] = copy[i];
    }
}

/* ---- V = B^T x B ---- */

enum { NO_AFFINE = -1 }; /* in place of an activation: no fused operation */

/* Channels c0 .. c0 + channels - 1 of one window, whole vectors only; all lines of points or one pair of them. */
INLINE void transform_window(const i32 m, const i32 pair, const i32 act, const i32 interior, const i32 dtype,
                             const tile_window *v, const fused_input *x, i32 c0, i32 channels, transform_target to) {
    const i32 side = m + 2, lines = pair == ALL_LINES ? side : 2;
    for (i32 block = 0; block < channels; block += to.width, to.at += to.next) {
        for (i32 c = block; c < MIN(channels, block + to.width); c += LANES) {
            vec scale = act == NO_AFFINE ? (vec)1 : load(x->scale + c0 + c),
                shift = act == NO_AFFINE ? (vec)0 : load(x->shift + c0 + c);
            vec half[MAX_SIDE][MAX_SIDE];
            UNROLL for (i32 q = 0; q < side; q++) {
                vec d[MAX_SIDE], out[MAX_SIDE];
                UNROLL for (i32 r = 0; r < side; r++) {
                    d[r] = load_as_fp32(element_at(v->at[r * side + q], c0 + c, dtype), LANES, dtype);
                    if (act != NO_AFFINE) d[r] = activate(d[r] * scale + shift, act);
                    if (!interior) d[r] = masked_vec(d[r], v->inside[r * side + q]);
                }
                if (pair == ALL_LINES) input_transform(m, d, out);
                else input_transform_pair(m, pair, d, out, out + 1);
                UNROLL for (i32 r = 0; r < lines; r++) half[r][q] = out[r];
            }
            UNROLL for (i32 r = 0; r < lines; r++) {
                vec out[MAX_SIDE];
                input_transform(m, half[r], out);
                UNROLL for (i32 q = 0; q < side; q++) store(to.at + (r * side + q) * to.point + c - block, out[q]);
            }
        }
    }
}

INLINE void transform_window_by_mode(const i32 m, const i32 pair, const tile_window *v, const fused_input *x, i32 c0,
                                     i32 channels, transform_target to) {
    if (x->dtype == FP16 && !x->scale) transform_window(m, pair, NO_AFFINE, 0, FP16, v, x, c0, channels, to);
    else if (x->dtype == FP16 && x->act == ACT_RELU)
        transform_window(m, pair, ACT_RELU, 0, FP16, v, x, c0, channels, to);
    else if (x->dtype == FP16) transform_window(m, pair, x->act, 0, FP16, v, x, c0, channels, to);
    else if (!x->scale && v->interior) transform_window(m, pair, NO_AFFINE, 1, FP32, v, x, c0, channels, to);
    else if (!x->scale) transform_window(m, pair, NO_AFFINE, 0, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_NONE) transform_window(m, pair, ACT_NONE, 0, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_RELU && v->interior) transform_window(m, pair, ACT_RELU, 1, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_RELU) transform_window(m, pair, ACT_RELU, 0, FP32, v, x, c0, channels, to);
    else transform_window(m, pair, ACT_RELU6, 0, FP32, v, x, c0, channels, to);
}

static NOINLINE void transform_all_lines(i32 m, const tile_window *v, const fused_input *x, i32 c0, i32 channels,
                                         transform_target to) {
    if (m == 2) transform_window_by_mode(2, ALL_LINES, v, x, c0, channels, to);
    else transform_window_by_mode(4, ALL_LINES, v, x, c0, channels, to);
}

static NOINLINE void transform_line_pair(i32 m, i32 pair, const tile_window *v, const fused_input *x, i32 c0,
                                         i32 channels, transform_target to) {
    if (m == 2 && pair == 0) transform_window_by_mode(2, 0, v, x, c0, channels, to);
    else if (m == 2) transform_window_by_mode(2, 1, v, x, c0, channels, to);
    else if (pair == 0) transform_window_by_mode(4, 0, v, x, c0, channels, to);
    else if (pair == 1) transform_window_by_mode(4, 1, v, x, c0, channels, to);
    else transform_window_by_mode(4, 2, v, x, c0, channels, to);
}

static void transform_lines(i32 m, i32 pair, const tile_window *v, const fused_input *x, i32 c0, i32 channels,
                            transform_target to) {
    if (pair == ALL_LINES) transform_all_lines(m, v, x, c0, channels, to);
    else transform_line_pair(m, pair, v, x, c0, channels, to);
}

INLINE transform_target target_at_channel(transform_target to, i32 c) {
    to.at += c / to.width * to.next + c % to.width;
    return to;
}

/* Channels c0 .. c0 + channels - 1 of the window of a tile; the last vector is padded with zeros. */
static void transform_input_tile(const winograd_tiling *l, i32 pair, const tile_position *p, i32 c0, i32 channels,
                                 transform_target to) {
    tile_window v, tail = {.interior = 1};
    float copy[MAX_POINTS][LANES];
    i32 even = channels / LANES * LANES;
    locate_window(&v, &l->x, p->image, l->in_h, l->in_w, p->y - l->top, p->x - l->left, l->side);
    transform_lines(l->m, pair, &v, &l->x, c0, even, to);
    if (even == channels) return;
    copy_tail(&tail, copy, &v, l->points, &l->x, c0 + even, channels - even);
    transform_lines(l->m, pair, &tail, &(fused_input){.data = copy[0]}, 0, LANES, target_at_channel(to, even));
}

/* ---- D = A dy A^T ---- */

INLINE void transform_gradients(const i32 m, const i32 pair, const i32 interior, const tile_window *v, i32 c0,
                                i32 channels, transform_target to) {
    const i32 side = m + 2;
    for (i32 block = 0; block < channels; block += to.width, to.at += to.next) {
        for (i32 c = block; c < MIN(channels, block + to.width); c += LANES) {
            vec half[2][4];
            UNROLL for (i32 q = 0; q < m; q++) {
                vec d[4];
                UNROLL for (i32 r = 0; r < m; r++) {
                    d[r] = load((const float *)v->at[r * m + q] + c0 + c);
                    if (!interior) d[r] = masked_vec(d[r], v->inside[r * m + q]);
                }
                gradient_transform_pair(m, pair, d, half[0] + q, half[1] + q);
            }
            UNROLL for (i32 r = 0; r < 2; r++) {
                vec out[MAX_SIDE];
                gradient_transform(m, half[r], out);
                UNROLL for (i32 q = 0; q < side; q++) store(to.at + (r * side + q) * to.point + c - block, out[q]);
            }
        }
    }
}

INLINE void transform_gradients_by_mode(const i32 m, const i32 pair, const tile_window *v, i32 c0, i32 channels,
                                        transform_target to) {
    if (v->interior) transform_gradients(m, pair, 1, v, c0, channels, to);
    else transform_gradients(m, pair, 0, v, c0, channels, to);
}

static NOINLINE void transform_gradient_lines(i32 m, i32 pair, const tile_window *v, i32 c0, i32 channels,
                                              transform_target to) {
    if (m == 2 && pair == 0) transform_gradients_by_mode(2, 0, v, c0, channels, to);
    else if (m == 2) transform_gradients_by_mode(2, 1, v, c0, channels, to);
    else if (pair == 0) transform_gradients_by_mode(4, 0, v, c0, channels, to);
    else if (pair == 1) transform_gradients_by_mode(4, 1, v, c0, channels, to);
    else transform_gradients_by_mode(4, 2, v, c0, channels, to);
}

/* One pair of lines of a gradient tile, like transform_input_tile. */
static void transform_gradient_tile(const winograd_tiling *l, i32 pair, const fused_input *dy, const tile_position *p,
                                    i32 c0, i32 channels, transform_target to) {
    tile_window v, tail = {.interior = 1};
    float copy[MAX_POINTS][LANES];
    i32 even = channels / LANES * LANES;
    locate_window(&v, dy, p->image, l->out_h, l->out_w, p->y, p->x, l->m);
    transform_gradient_lines(l->m, pair, &v, c0, even, to);
    if (even == channels) return;
    copy_tail(&tail, copy, &v, l->m * l->m, dy, c0 + even, channels - even);
    transform_gradient_lines(l->m, pair, &tail, 0, LANES, target_at_channel(to, even));
}
