/* Tiles of Winograd's convolutions: where they lie, and their way into the transformed domain. */
#pragma once
#include "gemm.h"
#include "winograd_transforms.h"

/* The output is cut into tiles of m x m pixels; a tile sees a window of (m + 2) x (m + 2) inputs. */
typedef struct {
    fused_input x;
    i32 m, side, points;
    i32 in_h, in_w, in_c, out_h, out_w, out_c, top, left;
    i32 down, across; /* tiles in an image */
    i64 tiles;
} tiling;

static tiling tiling_of(const geometry *g, i32 algorithm, fused_input x) {
    i32 m = algorithm == WINOGRAD2 ? 2 : 4;
    tiling l = {.x = x, .m = m, .side = m + 2, .points = (m + 2) * (m + 2)};
    l.in_h = g->in_h, l.in_w = g->in_w, l.in_c = g->in_c;
    l.out_h = g->out_h, l.out_w = g->out_w, l.out_c = g->out_c;
    l.top = g->pad_h, l.left = g->pad_w;
    l.down = CEIL_DIV(l.out_h, m), l.across = CEIL_DIV(l.out_w, m);
    l.tiles = (i64)g->batch * l.down * l.across;
    return l;
}

/* dy goes in, dx comes out. Padding of 3 and more makes negative padding here: windows then start inside dy. */
static tiling tiling_backward(const geometry *g, i32 algorithm, fused_input dy) {
    geometry turned = *g;
    turned.in_h = g->out_h, turned.in_w = g->out_w, turned.in_c = g->out_c;
    turned.out_h = g->in_h, turned.out_w = g->in_w, turned.out_c = g->in_c;
    turned.pad_h = 2 - g->pad_h, turned.pad_w = 2 - g->pad_w;
    return tiling_of(&turned, algorithm, dy);
}

/* Where a tile lies in the output: its first pixel, as a row of the tensor, and how much of it is inside the image. */
typedef struct {
    i64 image, row;
    i32 y, x, rows, columns;
} tile_place;

static tile_place tile_place_of(const tiling *l, i64 tile) {
    i32 inside = (i32)(tile % ((i64)l->down * l->across));
    tile_place p = {.image = tile / ((i64)l->down * l->across)};
    p.y = inside / l->across * l->m, p.x = inside % l->across * l->m;
    p.row = (p.image * l->out_h + p.y) * l->out_w + p.x;
    p.rows = MIN(l->m, l->out_h - p.y), p.columns = MIN(l->m, l->out_w - p.x);
    return p;
}

/* A square of pixels that may hang over the edges: what lies outside is read from the first pixel, and then masked to 0. */
typedef struct {
    const void *at[MAX_POINTS];
    i32 inside[MAX_POINTS]; /* all bits, or none */
    i32 whole;
} tile_window;

static void look_at_tile(tile_window *v, const fused_input *x, i64 image, i32 h, i32 w, i32 y0, i32 x0, i32 side) {
    v->whole = y0 >= 0 && x0 >= 0 && y0 + side <= h && x0 + side <= w;
    i64 first = (image * h + y0) * w + x0, ld = x->ld * dtype_bytes(x->dtype);
    const char *data = x->data;
    for (i32 r = 0; r < side; r++) {
        for (i32 q = 0; q < side; q++) v->at[r * side + q] = data + (first + r * w + q) * ld, v->inside[r * side + q] = -1;
    }
    if (v->whole) return;
    for (i32 r = 0; r < side; r++) {
        for (i32 q = 0; q < side; q++) {
            if (y0 + r < 0 || y0 + r >= h || x0 + q < 0 || x0 + q >= w) v->at[r * side + q] = data, v->inside[r * side + q] = 0;
        }
    }
}

INLINE vec masked_vec(vec v, i32 bits) { return (vec)((ivec)v & (ivec)bits); }

/* Where the points of one tile go: point p of channel c to at[p * point + c / width * next + c % width]. */
typedef struct {
    float *at;
    i64 point, next;
    i32 width; /* a multiple of LANES */
} tile_target;

/* The end of a row that fills no vector: copied to where there is room, as the source's readers see it. */
static void look_at_tail(tile_window *to, float copy[][LANES], const tile_window *v, i32 count, const fused_input *x, i32 c0, i32 channels) {
    for (i32 i = 0; i < count; i++) {
        zero_row(copy[i], LANES);
        i64 row = ((const char *)v->at[i] - (const char *)x->data) / (x->ld * dtype_bytes(x->dtype));
        if (v->inside[i]) see_row(x, row, c0, channels, copy[i]);
        to->at[i] = copy[i];
    }
}

/* ---- V = B^T x B ---- */

enum { UNSEEN = -1 }; /* in place of an activation: a source that changes nothing */

/* Channels c0 .. c0 + channels of one window, whole vectors only; all lines of points, or one pair of them. */
INLINE void spread_window(const i32 m, const i32 pair, const i32 act, const i32 whole, const i32 dtype, const tile_window *v,
                          const fused_input *x, i32 c0, i32 channels, tile_target to) {
    const i32 side = m + 2, lines = pair == ALL ? side : 2;
    for (i32 block = 0; block < channels; block += to.width, to.at += to.next) {
        for (i32 c = block; c < MIN(channels, block + to.width); c += LANES) {
            vec scale = act == UNSEEN ? (vec)1 : load(x->scale + c0 + c), shift = act == UNSEEN ? (vec)0 : load(x->shift + c0 + c);
            vec half[MAX_SIDE][MAX_SIDE];
            UNROLL for (i32 q = 0; q < side; q++) {
                vec d[MAX_SIDE], out[MAX_SIDE];
                UNROLL for (i32 r = 0; r < side; r++) {
                    d[r] = load_stored(stored_at(v->at[r * side + q], c0 + c, dtype), LANES, dtype);
                    if (act != UNSEEN) d[r] = activate(d[r] * scale + shift, act);
                    if (!whole) d[r] = masked_vec(d[r], v->inside[r * side + q]);
                }
                if (pair == ALL) spread_input(m, d, out);
                else spread_input_pair(m, pair, d, out, out + 1);
                UNROLL for (i32 r = 0; r < lines; r++) half[r][q] = out[r];
            }
            UNROLL for (i32 r = 0; r < lines; r++) {
                vec out[MAX_SIDE];
                spread_input(m, half[r], out);
                UNROLL for (i32 q = 0; q < side; q++) store(to.at + (r * side + q) * to.point + c - block, out[q]);
            }
        }
    }
}

INLINE void spread_seen(const i32 m, const i32 pair, const tile_window *v, const fused_input *x, i32 c0, i32 channels, tile_target to) {
    if (x->dtype == FP16 && !x->scale) spread_window(m, pair, UNSEEN, 0, FP16, v, x, c0, channels, to);
    else if (x->dtype == FP16 && x->act == ACT_RELU) spread_window(m, pair, ACT_RELU, 0, FP16, v, x, c0, channels, to);
    else if (x->dtype == FP16) spread_window(m, pair, x->act, 0, FP16, v, x, c0, channels, to);
    else if (!x->scale && v->whole) spread_window(m, pair, UNSEEN, 1, FP32, v, x, c0, channels, to);
    else if (!x->scale) spread_window(m, pair, UNSEEN, 0, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_NONE) spread_window(m, pair, ACT_NONE, 0, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_RELU && v->whole) spread_window(m, pair, ACT_RELU, 1, FP32, v, x, c0, channels, to);
    else if (x->act == ACT_RELU) spread_window(m, pair, ACT_RELU, 0, FP32, v, x, c0, channels, to);
    else spread_window(m, pair, ACT_RELU6, 0, FP32, v, x, c0, channels, to);
}

static NOINLINE void spread_all_lines(i32 m, const tile_window *v, const fused_input *x, i32 c0, i32 channels, tile_target to) {
    if (m == 2) spread_seen(2, ALL, v, x, c0, channels, to);
    else spread_seen(4, ALL, v, x, c0, channels, to);
}

static NOINLINE void spread_two_lines(i32 m, i32 pair, const tile_window *v, const fused_input *x, i32 c0, i32 channels, tile_target to) {
    if (m == 2 && pair == 0) spread_seen(2, 0, v, x, c0, channels, to);
    else if (m == 2) spread_seen(2, 1, v, x, c0, channels, to);
    else if (pair == 0) spread_seen(4, 0, v, x, c0, channels, to);
    else if (pair == 1) spread_seen(4, 1, v, x, c0, channels, to);
    else spread_seen(4, 2, v, x, c0, channels, to);
}

static void spread_lines(i32 m, i32 pair, const tile_window *v, const fused_input *x, i32 c0, i32 channels, tile_target to) {
    if (pair == ALL) spread_all_lines(m, v, x, c0, channels, to);
    else spread_two_lines(m, pair, v, x, c0, channels, to);
}

INLINE tile_target target_from(tile_target to, i32 c) {
    to.at += c / to.width * to.next + c % to.width;
    return to;
}

/* Channels c0 .. c0 + channels of the window a tile sees; the last vector is filled up with zeros. */
static void spread_tile(const tiling *l, i32 pair, const tile_place *p, i32 c0, i32 channels, tile_target to) {
    tile_window v, tail = {.whole = 1};
    float copy[MAX_POINTS][LANES];
    i32 even = channels / LANES * LANES;
    look_at_tile(&v, &l->x, p->image, l->in_h, l->in_w, p->y - l->top, p->x - l->left, l->side);
    spread_lines(l->m, pair, &v, &l->x, c0, even, to);
    if (even == channels) return;
    look_at_tail(&tail, copy, &v, l->points, &l->x, c0 + even, channels - even);
    spread_lines(l->m, pair, &tail, &(fused_input){.data = copy[0]}, 0, LANES, target_from(to, even));
}

/* ---- D = A dy A^T ---- */

INLINE void spread_gradients(const i32 m, const i32 pair, const i32 whole, const tile_window *v, i32 c0, i32 channels,
                             tile_target to) {
    const i32 side = m + 2;
    for (i32 block = 0; block < channels; block += to.width, to.at += to.next) {
        for (i32 c = block; c < MIN(channels, block + to.width); c += LANES) {
            vec half[2][4];
            UNROLL for (i32 q = 0; q < m; q++) {
                vec d[4];
                UNROLL for (i32 r = 0; r < m; r++) {
                    d[r] = load((const float *)v->at[r * m + q] + c0 + c);
                    if (!whole) d[r] = masked_vec(d[r], v->inside[r * m + q]);
                }
                spread_gradient_pair(m, pair, d, half[0] + q, half[1] + q);
            }
            UNROLL for (i32 r = 0; r < 2; r++) {
                vec out[MAX_SIDE];
                spread_gradient(m, half[r], out);
                UNROLL for (i32 q = 0; q < side; q++) store(to.at + (r * side + q) * to.point + c - block, out[q]);
            }
        }
    }
}

INLINE void spread_gradients_of(const i32 m, const i32 pair, const tile_window *v, i32 c0, i32 channels, tile_target to) {
    if (v->whole) spread_gradients(m, pair, 1, v, c0, channels, to);
    else spread_gradients(m, pair, 0, v, c0, channels, to);
}

static NOINLINE void spread_gradient_lines(i32 m, i32 pair, const tile_window *v, i32 c0, i32 channels, tile_target to) {
    if (m == 2 && pair == 0) spread_gradients_of(2, 0, v, c0, channels, to);
    else if (m == 2) spread_gradients_of(2, 1, v, c0, channels, to);
    else if (pair == 0) spread_gradients_of(4, 0, v, c0, channels, to);
    else if (pair == 1) spread_gradients_of(4, 1, v, c0, channels, to);
    else spread_gradients_of(4, 2, v, c0, channels, to);
}

/* A pair of lines of a tile of gradients, as spread_tile. */
static void spread_gradient_tile(const tiling *l, i32 pair, const fused_input *dy, const tile_place *p, i32 c0, i32 channels, tile_target to) {
    tile_window v, tail = {.whole = 1};
    float copy[MAX_POINTS][LANES];
    i32 even = channels / LANES * LANES;
    look_at_tile(&v, dy, p->image, l->out_h, l->out_w, p->y, p->x, l->m);
    spread_gradient_lines(l->m, pair, &v, c0, even, to);
    if (even == channels) return;
    look_at_tail(&tail, copy, &v, l->m * l->m, dy, c0 + even, channels - even);
    spread_gradient_lines(l->m, pair, &tail, 0, LANES, target_from(to, even));
}
