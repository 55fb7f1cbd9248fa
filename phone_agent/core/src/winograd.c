/* Convolutions 3x3 with stride 1 by Winograd: F(2x2, 3x3) and F(4x4, 3x3), which take 16 multiplications where DIRECT takes 36, and
 * 36 where it takes 144. The output is cut into tiles of m x m pixels; a tile sees a window of (m + 2) x (m + 2) inputs. Transformed, a
 * window and a filter are (m + 2)^2 points, and the sum over channels is one small matrix product a point:
 *
 *   forward           V = B^T x B       U = G w G^T        M[point] = V[point] U[point]        y = A^T M A
 *   backward data     the same with dy for x and turned, transposed weights for w
 *   backward weights  V = B^T x B       D = A dy A^T       dU[point] = V[point]^T D[point]     dw = G^T dU G
 *
 * Points are numbered row by row. V: [point][tile][channel in]; M: [tile][point][channel out]; U: by panels of NR channels out,
 * in each [point][channel in][NR]. */
#include "gemm.h"
#include "winograd_transforms.h"

/* Floats in what a thread works on at a time: half of a second-level cache, of a server's or of a phone's. */
enum { WINOGRAD_LOCAL = LANES > 4 ? 224 << 10 : 48 << 10, WINOGRAD_MAX_BLOCK = 256, WINOGRAD_DEEP = 256, LINE_FLOATS = 16 };

typedef struct {
    source x;
    i32 m, side, points;
    i32 in_h, in_w, in_c, out_h, out_w, out_c, top, left;
    i32 down, across; /* tiles in an image */
    i64 tiles;
} tiling;

static tiling tiling_of(const geometry *g, i32 algorithm, source x) {
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
static tiling tiling_backward(const geometry *g, i32 algorithm, source dy) {
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
    const float *at[MAX_POINTS];
    i32 inside[MAX_POINTS]; /* all bits, or none */
    i32 whole;
} tile_window;

static void look_at_tile(tile_window *v, const float *data, i64 ld, i64 image, i32 h, i32 w, i32 y0, i32 x0, i32 side) {
    v->whole = 1;
    for (i32 r = 0; r < side; r++) {
        for (i32 q = 0; q < side; q++) {
            i32 y = y0 + r, x = x0 + q, inside = y >= 0 && y < h && x >= 0 && x < w;
            v->at[r * side + q] = inside ? data + ((image * h + y) * w + x) * ld : data;
            v->inside[r * side + q] = -inside;
            v->whole &= inside;
        }
    }
}

INLINE vec masked_vec(vec v, i32 bits) { return (vec)((ivec)v & (ivec)bits); }

/* ---- V = B^T x B ---- */

enum { UNSEEN = -1 }; /* in place of an activation: a source that changes nothing */

/* One window, all channels; the last vector may overlap the one before it. */
INLINE void spread_window(const i32 m, const i32 act, const i32 whole, const tile_window *v, const source *x, i32 channels, float *to,
                          i64 point) {
    const i32 side = m + 2;
    for (i32 begin = 0; begin < channels; begin += LANES) {
        i32 c = MIN(begin, channels - LANES);
        vec scale = act == UNSEEN ? (vec)1 : load(x->scale + c), shift = act == UNSEEN ? (vec)0 : load(x->shift + c);
        vec half[MAX_SIDE][MAX_SIDE];
        UNROLL for (i32 r = 0; r < side; r++) {
            vec d[MAX_SIDE];
            UNROLL for (i32 q = 0; q < side; q++) {
                d[q] = load(v->at[r * side + q] + c);
                if (act != UNSEEN) d[q] = activate(d[q] * scale + shift, act);
                if (!whole) d[q] = masked_vec(d[q], v->inside[r * side + q]);
            }
            spread_input(m, d, half[r]);
        }
        UNROLL for (i32 q = 0; q < side; q++) {
            vec d[MAX_SIDE], out[MAX_SIDE];
            UNROLL for (i32 r = 0; r < side; r++) d[r] = half[r][q];
            spread_input(m, d, out);
            UNROLL for (i32 r = 0; r < side; r++) store(to + (r * side + q) * point + c, out[r]);
        }
    }
}

INLINE void spread_seen(const i32 m, const i32 act, const tile_window *v, const source *x, i32 channels, float *to, i64 point) {
    if (v->whole) spread_window(m, act, 1, v, x, channels, to, point);
    else spread_window(m, act, 0, v, x, channels, to, point);
}

INLINE void spread_any(const i32 m, const tile_window *v, const source *x, i32 channels, float *to, i64 point) {
    if (!x->scale) spread_seen(m, UNSEEN, v, x, channels, to, point);
    else if (x->act == ACT_NONE) spread_seen(m, ACT_NONE, v, x, channels, to, point);
    else if (x->act == ACT_RELU) spread_seen(m, ACT_RELU, v, x, channels, to, point);
    else spread_seen(m, ACT_RELU6, v, x, channels, to, point);
}

/* Fewer channels than a vector has: the window is copied to where there is room, as the source's readers see it. */
static void spread_narrow(i32 m, const tile_window *v, const source *x, i32 channels, float *to, i64 point) {
    float copy[MAX_POINTS][LANES];
    tile_window local = {.whole = 1};
    for (i32 i = 0; i < (m + 2) * (m + 2); i++) {
        zero_row(copy[i], LANES);
        if (v->inside[i]) see_row(x, (v->at[i] - x->data) / x->ld, 0, channels, copy[i]);
        local.at[i] = copy[i];
    }
    if (m == 2) spread_window(2, UNSEEN, 1, &local, x, LANES, to, point);
    else spread_window(4, UNSEEN, 1, &local, x, LANES, to, point);
}

/* to[point * (floats between points) + channel]; at least LANES channels are written. */
static NOINLINE void spread_tile(const tiling *l, const tile_place *p, float *to, i64 point) {
    tile_window v;
    look_at_tile(&v, l->x.data, l->x.ld, p->image, l->in_h, l->in_w, p->y - l->top, p->x - l->left, l->side);
    if (l->in_c < LANES) spread_narrow(l->m, &v, &l->x, l->in_c, to, point);
    else if (l->m == 2) spread_any(2, &v, &l->x, l->in_c, to, point);
    else spread_any(4, &v, &l->x, l->in_c, to, point);
}

/* ---- U = G w G^T ---- */

enum { WEIGHT_ROWS = LANES }; /* channels in, transformed at a time */

INLINE i32 winograd_panel_wide(i32 channels) { return channels > NR_HALF ? NR : NR_HALF; }

/* Rows of one panel: taps[tap * tap_floats + k * k_floats + channel], `channels` of them; the panel's other columns become 0. */
INLINE void spread_filters(const i32 m, const float *taps, i64 tap_floats, i64 k_floats, i32 rows, i32 channels, i32 wide, float *to,
                        i64 point) {
    const i32 side = m + 2;
    for (i32 k = 0; k < rows; k++) {
        for (i32 c = 0; c < wide; c += LANES) {
            i32 lanes = MAX(0, MIN(LANES, channels - c));
            vec half[MAX_SIDE][3];
            UNROLL for (i32 q = 0; q < 3; q++) {
                vec g[3], u[MAX_SIDE];
                UNROLL for (i32 r = 0; r < 3; r++) g[r] = load_lanes(taps + (r * 3 + q) * tap_floats + k * k_floats + c, lanes);
                spread_weights(m, g, u);
                UNROLL for (i32 r = 0; r < side; r++) half[r][q] = u[r];
            }
            UNROLL for (i32 r = 0; r < side; r++) {
                vec u[MAX_SIDE];
                spread_weights(m, half[r], u);
                UNROLL for (i32 q = 0; q < side; q++) store(to + (r * side + q) * point + (i64)k * wide + c, u[q]);
            }
        }
    }
}

/* The weights of backward data: filters turned by 180 degrees, channels in and out exchanged. from: [tap][channel][k]. */
static void turn_filters(const float *from, i64 tap_floats, i64 channel_floats, i32 rows, i32 channels, float to[9][WEIGHT_ROWS][NR]) {
    for (i32 tap = 0; tap < 9; tap++) {
        for (i32 c = 0; c < channels; c++) {
            const float *row = from + (8 - tap) * tap_floats + c * channel_floats;
            for (i32 k = 0; k < rows; k++) to[tap][k][c] = row[k];
        }
    }
}

/* Rows k0 .. of the panel of channels n0 .. */
static NOINLINE void spread_panel(const tiling *l, const float *weights, i32 turned, i32 n0, i32 k0, float *panel) {
    i32 channels = MIN(NR, l->out_c - n0), wide = winograd_panel_wide(channels), rows = MIN(WEIGHT_ROWS, l->in_c - k0);
    i64 tap_floats = (i64)l->in_c * l->out_c, k_floats = l->out_c, point = (i64)l->in_c * wide;
    const float *taps = weights + (i64)k0 * l->out_c + n0;
    float local[9][WEIGHT_ROWS][NR];
    if (turned) {
        turn_filters(weights + (i64)n0 * l->in_c + k0, tap_floats, l->in_c, rows, channels, local);
        taps = local[0][0], tap_floats = WEIGHT_ROWS * NR, k_floats = NR;
    }
    panel += (i64)k0 * wide;
    if (l->m == 2) spread_filters(2, taps, tap_floats, k_floats, rows, channels, wide, panel, point);
    else spread_filters(4, taps, tap_floats, k_floats, rows, channels, wide, panel, point);
}

static i64 winograd_panel_offset(const tiling *l, i32 n0) { return (i64)l->points * l->in_c * n0; }

static void spread_all_weights(worker *w, const tiling *l, const float *weights, i32 turned, float *u) {
    i32 blocks = CEIL_DIV(l->in_c, WEIGHT_ROWS);
    i64 count = (i64)blocks * CEIL_DIV(l->out_c, NR);
    for (i64 i = take(w); i < count; i = take(w)) {
        i32 n0 = (i32)(i / blocks) * NR, k0 = (i32)(i % blocks) * WEIGHT_ROWS;
        spread_panel(l, weights, turned, n0, k0, u + winograd_panel_offset(l, n0));
    }
}

/* ---- y = A^T M A ---- */

INLINE void collect_tile(const i32 m, const float *products, i64 point, vec y[4][4]) {
    const i32 side = m + 2;
    vec half[4][MAX_SIDE];
    UNROLL for (i32 q = 0; q < side; q++) {
        vec v[MAX_SIDE], out[4];
        UNROLL for (i32 r = 0; r < side; r++) v[r] = load(products + (r * side + q) * point);
        collect_output(m, v, out);
        UNROLL for (i32 r = 0; r < m; r++) half[r][q] = out[r];
    }
    UNROLL for (i32 r = 0; r < m; r++) collect_output(m, half[r], y[r]);
}

/* What becomes of the outputs: forward's, as emit_tile in rows.h; or a gradient's, as sink_tile. */
typedef struct {
    const conv_forward *forward;
    const sink *sink;
} tile_finish;

INLINE void emit_vector(const i32 m, const conv_forward *op, const worker *w, const tiling *l, const tile_place *places, i32 count,
                        const float *products, i32 wide, i32 c0, i32 lanes) {
    double *sums = op->norm ? norm_sums(op->norm, w->index) + c0 : 0;
    vec bias = op->bias ? load_lanes(op->bias + c0, lanes) : (vec)0, sum = 0, squares = 0;
    for (i32 i = 0; i < count; i++, products += l->points * wide) {
        vec y[4][4];
        collect_tile(m, products, wide, y);
        UNROLL for (i32 r = 0; r < m; r++) {
            float *to = op->y + (places[i].row + r * l->out_w) * op->ld_y + c0;
            UNROLL for (i32 q = 0; q < m; q++, to += op->ld_y) {
                if (r >= places[i].rows || q >= places[i].columns) continue;
                vec v = activate(y[r][q] + bias, op->act);
                store_lanes(to, v, lanes);
                sum += v;
                squares += v * v;
            }
        }
    }
    if (!sums) return;
    add_sums(sums, sum, lanes);
    add_sums(sums + op->norm->channels, squares, lanes);
}

INLINE void sink_vector(const i32 m, const sink *s, const worker *w, const tiling *l, const tile_place *places, i32 count,
                        const float *products, i32 wide, i32 c0, i32 lanes) {
    const norm *n = s->norm;
    double *sums = n ? norm_sums(n, w->index) + c0 : 0;
    vec scale = n ? load_lanes(n->scale + c0, lanes) : (vec)0, shift = n ? load_lanes(n->shift + c0, lanes) : (vec)0;
    vec mean = n ? load_lanes(n->mean + c0, lanes) : (vec)0, sum = 0, moments = 0;
    for (i32 i = 0; i < count; i++, products += l->points * wide) {
        vec y[4][4];
        collect_tile(m, products, wide, y);
        UNROLL for (i32 r = 0; r < m; r++) {
            UNROLL for (i32 q = 0; q < m; q++) {
                if (r >= places[i].rows || q >= places[i].columns) continue;
                i64 row = places[i].row + r * l->out_w + q;
                float *to = s->data + row * s->ld + c0;
                vec g = y[r][q];
                if (s->accumulate) g += load_lanes(to, lanes);
                if (n) {
                    vec z = load_lanes(s->y + row * s->ld_y + c0, lanes);
                    g = passed(g, z * scale + shift, s->act);
                    sum += g;
                    moments += g * (z - mean);
                } else if (s->act != ACT_NONE) {
                    g = passed(g, load_lanes(s->y + row * s->ld_y + c0, lanes), s->act);
                }
                store_lanes(to, g, lanes);
            }
        }
    }
    if (!n) return;
    add_sums(sums, sum, lanes);
    add_sums(sums + n->channels, moments, lanes);
}

INLINE void finish_vector(const tile_finish *f, const worker *w, const tiling *l, const tile_place *places, i32 count, const float *products,
                          i32 wide, i32 c0, i32 lanes) {
    if (f->forward && l->m == 2) emit_vector(2, f->forward, w, l, places, count, products, wide, c0, lanes);
    else if (f->forward) emit_vector(4, f->forward, w, l, places, count, products, wide, c0, lanes);
    else if (l->m == 2) sink_vector(2, f->sink, w, l, places, count, products, wide, c0, lanes);
    else sink_vector(4, f->sink, w, l, places, count, products, wide, c0, lanes);
}

/* Channels n0 .. of the tiles at `places`. */
static NOINLINE void finish_panel(const tile_finish *f, const worker *w, const tiling *l, const tile_place *places, i32 count,
                                  const float *products, i32 n0) {
    i32 channels = MIN(NR, l->out_c - n0), wide = winograd_panel_wide(channels), c = 0;
    for (; c + LANES <= channels; c += LANES) finish_vector(f, w, l, places, count, products + c, wide, n0 + c, LANES);
    if (c < channels) finish_vector(f, w, l, places, count, products + c, wide, n0 + c, channels - c);
}

/* ---- forward, and backward data ---- */

/* How a step's work is cut, and where its buffers lie in the workspace. */
typedef struct {
    i32 block;            /* tiles at a time, a multiple of MR */
    i64 ld_v, v_point;    /* floats between rows and between points of V */
    i64 weights, values, products; /* floats in U, V, M; V and M for each thread */
} tile_blocking;

/* An odd number of cache lines: the points of a tile then do not compete for the same few places in the first-level cache. */
static i64 odd_lines(i64 floats) { return ROUND_UP(floats, LINE_FLOATS) | LINE_FLOATS; }

static tile_blocking tile_blocking_of(const tiling *l, i32 threads) {
    i64 per_tile = (i64)l->points * (l->in_c + MIN(NR, ROUND_UP(l->out_c, NR_HALF)));
    i64 block = MAX(2 * MR, MIN(WINOGRAD_LOCAL / per_tile, (i64)WINOGRAD_MAX_BLOCK - MR));
    i64 rounds = CEIL_DIV(l->tiles, block * threads); /* so that all threads have as much to do */
    block = MIN(block, ROUND_UP(CEIL_DIV(l->tiles, rounds * threads), MR));
    tile_blocking b = {.block = (i32)(block / MR * MR)};
    b.ld_v = odd_lines(l->in_c + LANES);
    b.v_point = odd_lines(b.block * b.ld_v);
    b.weights = (i64)l->points * l->in_c * ROUND_UP(l->out_c, NR_HALF);
    b.weights = ROUND_UP(b.weights, LINE_FLOATS);
    b.values = ROUND_UP(l->points * b.v_point, LINE_FLOATS);
    b.products = ROUND_UP((i64)b.block * l->points * NR, LINE_FLOATS);
    return b;
}

static i64 tile_blocking_bytes(const tiling *l, i32 threads) {
    tile_blocking b = tile_blocking_of(l, threads);
    return (b.weights + threads * (b.values + b.products)) * (i64)sizeof(float);
}

static void spread_block(const tiling *l, const tile_blocking *b, const tile_place *places, i32 count, float *values) {
    for (i32 i = 0; i < count; i++) spread_tile(l, places + i, values + i * b->ld_v, b->v_point);
    for (i32 i = count; i < ROUND_UP(count, MR); i++)
        for (i32 point = 0; point < l->points; point++) zero_row(values + point * b->v_point + i * b->ld_v, l->in_c);
}

/* products[tile][point][wide] = V[point][tile] * panel[point] */
static void multiply_points(const tiling *l, const tile_blocking *b, i32 count, i32 wide, const float *values, const float *panel,
                           float *products) {
    i64 ld = l->points * wide;
    for (i32 point = 0; point < l->points; point++) {
        for (i32 k0 = 0; k0 < l->in_c; k0 += WINOGRAD_DEEP) {
            i32 k = MIN(WINOGRAD_DEEP, l->in_c - k0);
            const float *a = values + point * b->v_point + k0, *u = panel + ((i64)point * l->in_c + k0) * wide;
            for (i32 i = 0; i < count; i += MR) {
                float *to = products + i * ld + point * wide;
                if (wide == NR) micro_dot(k, a + i * b->ld_v, b->ld_v, u, to, ld, k0 > 0);
                else micro_dot_half(k, a + i * b->ld_v, b->ld_v, u, to, ld, k0 > 0);
            }
        }
    }
}

static void winograd_convolve(worker *w, const tiling *l, const float *weights, i32 turned, const tile_finish *f) {
    tile_blocking b = tile_blocking_of(l, w->threads);
    float *u = (float *)w->workspace, *values = u + b.weights + w->index * (b.values + b.products), *products = values + b.values;
    spread_all_weights(w, l, weights, turned, u);
    meet(w);
    i64 blocks = CEIL_DIV(l->tiles, b.block);
    for (i64 i = take(w); i < blocks; i = take(w)) {
        tile_place places[WINOGRAD_MAX_BLOCK];
        i32 count = (i32)MIN(b.block, l->tiles - i * b.block);
        for (i32 t = 0; t < count; t++) places[t] = tile_place_of(l, i * b.block + t);
        spread_block(l, &b, places, count, values);
        for (i32 n0 = 0; n0 < l->out_c; n0 += NR) {
            multiply_points(l, &b, count, winograd_panel_wide(l->out_c - n0), values, u + winograd_panel_offset(l, n0), products);
            finish_panel(f, w, l, places, count, products, n0);
        }
    }
}

void winograd_forward(worker *w, const conv_forward *op) {
    tiling l = tiling_of(&op->g, op->algorithm, op->x);
    if (op->norm) norm_begin(op->norm, w);
    winograd_convolve(w, &l, op->weights, 0, &(tile_finish){.forward = op});
    if (!op->norm) return;
    meet(w);
    norm_statistics(op->norm, w, (i64)op->g.batch * op->g.out_h * op->g.out_w);
}

i64 winograd_workspace_forward(i32 threads, const conv_forward *op) {
    tiling l = tiling_of(&op->g, op->algorithm, op->x);
    return tile_blocking_bytes(&l, threads);
}

static tiling tiling_of_gradient(const conv_backward_data *op) {
    return tiling_backward(&op->g, op->algorithm, (source){.data = op->dy, .ld = op->ld_dy});
}

void winograd_backward_data(worker *w, const conv_backward_data *op) {
    tiling l = tiling_of_gradient(op);
    if (op->dx.norm) norm_begin(op->dx.norm, w);
    winograd_convolve(w, &l, op->weights, 1, &(tile_finish){.sink = &op->dx});
}

i64 winograd_workspace_backward_data(i32 threads, const conv_backward_data *op) {
    tiling l = tiling_of_gradient(op);
    return tile_blocking_bytes(&l, threads);
}

/* ---- backward weights ---- */

/* D = A dy A^T for one tile, as spread_window. */
INLINE void spread_gradients(const i32 m, const i32 whole, const tile_window *v, i32 channels, float *to, i64 point) {
    const i32 side = m + 2;
    for (i32 begin = 0; begin < channels; begin += LANES) {
        i32 c = MIN(begin, channels - LANES);
        vec half[4][MAX_SIDE];
        UNROLL for (i32 r = 0; r < m; r++) {
            vec d[4];
            UNROLL for (i32 q = 0; q < m; q++) {
                d[q] = load(v->at[r * m + q] + c);
                if (!whole) d[q] = masked_vec(d[q], v->inside[r * m + q]);
            }
            spread_gradient(m, d, half[r]);
        }
        UNROLL for (i32 q = 0; q < side; q++) {
            vec d[4], out[MAX_SIDE];
            UNROLL for (i32 r = 0; r < m; r++) d[r] = half[r][q];
            spread_gradient(m, d, out);
            UNROLL for (i32 r = 0; r < side; r++) store(to + (r * side + q) * point + c, out[r]);
        }
    }
}

static void spread_gradients_narrow(i32 m, const tile_window *v, i32 channels, float *to, i64 point) {
    float copy[16][LANES];
    tile_window local = {.whole = 1};
    for (i32 i = 0; i < m * m; i++) {
        store(copy[i], v->inside[i] ? load_some(v->at[i], channels) : (vec)0);
        local.at[i] = copy[i];
    }
    if (m == 2) spread_gradients(2, 1, &local, LANES, to, point);
    else spread_gradients(4, 1, &local, LANES, to, point);
}

static NOINLINE void spread_gradient_tile(const tiling *l, const conv_backward_weights *op, const tile_place *p, float *to, i64 point) {
    tile_window v;
    look_at_tile(&v, op->dy, op->ld_dy, p->image, l->out_h, l->out_w, p->y, p->x, l->m);
    if (l->out_c < LANES) spread_gradients_narrow(l->m, &v, l->out_c, to, point);
    else if (l->m == 2 && v.whole) spread_gradients(2, 1, &v, l->out_c, to, point);
    else if (l->m == 2) spread_gradients(2, 0, &v, l->out_c, to, point);
    else if (v.whole) spread_gradients(4, 1, &v, l->out_c, to, point);
    else spread_gradients(4, 0, &v, l->out_c, to, point);
}

/* A chunk of tiles is transformed by all threads for all; then each adds its own points and channels of dU up. So there is one dU,
 * and every sum in it is made in the same order whatever the number of threads. */
typedef struct {
    i32 chunk, rows, columns; /* tiles at a time; dU[point][rows][columns], padded for whole register tiles */
    i64 ld_v, ld_d, v_point, d_point;
    i64 values, gradients, sums; /* floats in V, D, dU */
} tile_gathering;

enum { WINOGRAD_SHARED = LANES > 4 ? 2 << 20 : 256 << 10, WINOGRAD_MIN_CHUNK = 128, WINOGRAD_MAX_CHUNK = 512, TAKEN_TILES = 8 };

static tile_gathering tile_gathering_of(const tiling *l) {
    tile_gathering b = {.rows = (i32)ROUND_UP(l->in_c, MR), .columns = (i32)ROUND_UP(l->out_c, NR_HALF)};
    i64 chunk = WINOGRAD_SHARED / ((i64)l->points * (l->in_c + l->out_c));
    chunk = MIN(MAX(chunk, WINOGRAD_MIN_CHUNK), WINOGRAD_MAX_CHUNK);
    b.chunk = (i32)CEIL_DIV(l->tiles, CEIL_DIV(l->tiles, chunk));
    b.ld_v = odd_lines(MAX(b.rows, l->in_c + LANES)), b.ld_d = odd_lines(b.columns + LANES);
    b.v_point = odd_lines(b.chunk * b.ld_v), b.d_point = odd_lines(b.chunk * b.ld_d);
    b.values = l->points * b.v_point, b.gradients = l->points * b.d_point;
    b.sums = ROUND_UP((i64)l->points * b.rows * b.columns, LINE_FLOATS);
    return b;
}

static void spread_chunk(worker *w, const tiling *l, const tile_gathering *b, const conv_backward_weights *op, i64 first, i32 count,
                         float *values, float *gradients) {
    for (i64 t = take(w) * TAKEN_TILES; t < count; t = take(w) * TAKEN_TILES) {
        for (i64 i = t; i < MIN(t + TAKEN_TILES, count); i++) {
            tile_place p = tile_place_of(l, first + i);
            spread_tile(l, &p, values + i * b->ld_v, b->v_point);
            spread_gradient_tile(l, op, &p, gradients + i * b->ld_d, b->d_point);
        }
    }
}

/* dU[rows][columns] of one point: strips of MR rows start .. end. */
static void add_products(const tiling *l, const tile_gathering *b, i32 start, i32 end, i32 tiles, const float *values, const float *gradients,
                         float *sums, i32 accumulate) {
    for (i32 n0 = 0; n0 < l->out_c; n0 += NR) {
        i32 wide = winograd_panel_wide(l->out_c - n0);
        for (i32 i = start * MR; i < end * MR; i += MR) {
            float *to = sums + (i64)i * b->columns + n0;
            if (wide == NR) micro_outer(tiles, values + i, b->ld_v, gradients + n0, b->ld_d, to, b->columns, accumulate);
            else micro_outer_half(tiles, values + i, b->ld_v, gradients + n0, b->ld_d, to, b->columns, accumulate);
        }
    }
}

/* Point (1, 1) of A dy A^T is the sum of the tile's gradients. */
static void add_bias_gradient(const conv_backward_weights *op, const tile_gathering *b, i32 tiles, const float *gradients, i32 accumulate) {
    for (i32 c = 0; c < op->g.out_c; c += LANES) {
        i32 lanes = MIN(LANES, op->g.out_c - c);
        vec sum = accumulate ? load_lanes(op->dbias + c, lanes) : (vec)0;
        for (i32 i = 0; i < tiles; i++) sum += load(gradients + i * b->ld_d + c);
        store_lanes(op->dbias + c, sum, lanes);
    }
}

/* This thread's share of the points' strips of MR rows. */
static void add_chunk(const worker *w, const tiling *l, const tile_gathering *b, const conv_backward_weights *op, i64 first, i32 count,
                      const float *values, const float *gradients, float *sums) {
    i32 strips = b->rows / MR;
    i64 start, end;
    share((i64)l->points * strips, w->index, w->threads, &start, &end);
    for (i64 at = start; at < end;) {
        i32 point = (i32)(at / strips), strip = (i32)(at % strips), last = (i32)MIN(strips, strip + end - at);
        const float *d = gradients + point * b->d_point;
        add_products(l, b, strip, last, count, values + point * b->v_point, d, sums + (i64)point * b->rows * b->columns, first > 0);
        if (op->dbias && point == l->side + 1 && strip == 0) add_bias_gradient(op, b, count, d, first > 0 || op->accumulate);
        at += last - strip;
    }
}

/* dw = G^T dU G of one channel in. */
INLINE void collect_row(const i32 m, const conv_backward_weights *op, const tile_gathering *b, const float *sums, i32 k) {
    const i32 side = m + 2;
    i64 point = (i64)b->rows * b->columns, tap = (i64)op->g.in_c * op->g.out_c;
    for (i32 c = 0; c < op->g.out_c; c += LANES) {
        i32 lanes = MIN(LANES, op->g.out_c - c);
        const float *from = sums + (i64)k * b->columns + c;
        float *to = op->dweights + (i64)k * op->g.out_c + c;
        vec half[3][MAX_SIDE];
        UNROLL for (i32 q = 0; q < side; q++) {
            vec u[MAX_SIDE], g[3];
            UNROLL for (i32 r = 0; r < side; r++) u[r] = load(from + (r * side + q) * point);
            collect_weights(m, u, g);
            UNROLL for (i32 r = 0; r < 3; r++) half[r][q] = g[r];
        }
        UNROLL for (i32 r = 0; r < 3; r++) {
            vec g[3];
            collect_weights(m, half[r], g);
            UNROLL for (i32 q = 0; q < 3; q++) {
                float *at = to + (r * 3 + q) * tap;
                store_lanes(at, op->accumulate ? load_lanes(at, lanes) + g[q] : g[q], lanes);
            }
        }
    }
}

void winograd_backward_weights(worker *w, const conv_backward_weights *op) {
    tiling l = tiling_of(&op->g, op->algorithm, op->x);
    tile_gathering b = tile_gathering_of(&l);
    float *sums = (float *)w->workspace, *values = sums + b.sums, *gradients = values + b.values;
    for (i64 first = 0; first < l.tiles; first += b.chunk) {
        i32 count = (i32)MIN(b.chunk, l.tiles - first);
        spread_chunk(w, &l, &b, op, first, count, values, gradients);
        meet(w);
        add_chunk(w, &l, &b, op, first, count, values, gradients, sums);
        meet(w);
    }
    for (i64 k = take(w); k < op->g.in_c; k = take(w)) {
        if (l.m == 2) collect_row(2, op, &b, sums, (i32)k);
        else collect_row(4, op, &b, sums, (i32)k);
    }
}

i64 winograd_workspace_backward_weights(i32 threads, const conv_backward_weights *op) {
    (void)threads;
    tiling l = tiling_of(&op->g, op->algorithm, op->x);
    tile_gathering b = tile_gathering_of(&l);
    return (b.sums + b.values + b.gradients) * (i64)sizeof(float);
}
