/* Convolutions 3x3 with stride 1 by Winograd: F(2x2, 3x3) and F(4x4, 3x3), which take 16 multiplications where DIRECT takes 36, and
 * 36 where it takes 144. Transformed, the window a tile sees and a filter are (m + 2)^2 points, and the sum over channels is one
 * small matrix product a point:
 *
 *   forward           V = B^T x B       U = G w G^T        M[point] = V[point] U[point]        y = A^T M A
 *   backward data     the same with dy for x and turned, transposed weights for w
 *   backward weights  V = B^T x B       D = A dy A^T       dU[point] = V[point]^T D[point]     dw = G^T dU G
 *
 * Points are numbered line by line. The transformed tensors are 2.25 (F4) to 4 times as large as their originals: they are made
 * piece by piece, where they stay in a core's own cache, rather than written out and read again. */
#include "winograd_tiles.h"

enum {
    /* Floats in what a thread works on at a time: fit for the second-level cache of a server's core, or of a phone's. */
    WINOGRAD_L2_FLOATS = LANES > 4 ? 240 << 10 : 56 << 10,
    /* The same where transformed weights are made for each block: they should be used for many tiles then. */
    WINOGRAD_RECOMPUTE_L2_FLOATS = LANES > 4 ? 600 << 10 : 128 << 10,
    WINOGRAD_MIN_BLOCK = 24,
    /* Transformed weights beyond this many floats are not kept: every thread makes them again for each of its blocks. */
    WINOGRAD_MAX_CACHED_WEIGHTS = LANES > 4 ? 768 << 10 : 160 << 10,
    /* Transformed tiles up to this many floats may be shared, where the tiles are few. */
    WINOGRAD_MAX_CACHED_INPUT = LANES > 4 ? 1536 << 10 : 384 << 10,
    WINOGRAD_MAX_BLOCK = 252,
    CACHE_LINE_FLOATS = 16,     /* in a cache line */
};

/* An odd number of cache lines: the points of a tile then do not compete for the same few places in the first-level cache. */
static i64 odd_cache_lines(i64 floats) { return ROUND_UP(floats, CACHE_LINE_FLOATS) | CACHE_LINE_FLOATS; }

/* ---- U = G w G^T ---- */

/* Backward data turns filters by 180 degrees, and exchanges channels in and out. */
typedef struct {
    const float *at;
    i32 rotated;
} winograd_weights;

/* One tap of a panel: [tap][channel in][width]. */
static void pack_tap(const winograd_tiling *l, const winograd_weights *from, i32 panel, i32 tap, float *taps) {
    i32 n0 = panel * NR, width = panel_width(l->out_c, panel), channels = MIN(width, l->out_c - n0);
    i64 tap_floats = (i64)l->in_c * l->out_c;
    float *to = taps + (i64)tap * l->in_c * width;
    if (from->rotated) {
        pack_transposed_panel(from->at + (8 - tap) * tap_floats + (i64)n0 * l->in_c, l->in_c, channels, l->in_c, to, width);
        return;
    }
    const float *rows = from->at + tap * tap_floats + n0;
    for (i32 k = 0; k < l->in_c; k++) copy_padded(rows + (i64)k * l->out_c, channels, to + (i64)k * width, width);
}

/* One line of points of a packed panel. */
INLINE void transform_weight_line(const i32 m, i32 line, const float *taps, i32 channels, i32 width, float *to, i64 point) {
    const float *g = weight_transform_line(m, line);
    i64 tap = (i64)channels * width;
    for (i64 i = 0; i < tap; i += LANES) {
        vec half[3], u[MAX_SIDE];
        UNROLL for (i32 q = 0; q < 3; q++)
            half[q] = g[0] * load(taps + q * tap + i) + g[1] * load(taps + (3 + q) * tap + i) + g[2] * load(taps + (6 + q) * tap + i);
        weight_transform(m, half, u);
        UNROLL for (i32 q = 0; q < m + 2; q++) store(to + q * point + i, u[q]);
    }
}

static NOINLINE void transform_weight_panel(const winograd_tiling *l, i32 line, const float *taps, i32 width, float *to, i64 point) {
    if (l->m == 2) transform_weight_line(2, line, taps, l->in_c, width, to, point);
    else transform_weight_line(4, line, taps, l->in_c, width, to, point);
}

/* ---- y = A^T M A ---- */

INLINE void inverse_transform_tile(const i32 m, const float *products, i64 point, vec y[4][4]) {
    const i32 side = m + 2;
    vec half[4][MAX_SIDE];
    UNROLL for (i32 q = 0; q < side; q++) {
        vec v[MAX_SIDE], out[4];
        UNROLL for (i32 r = 0; r < side; r++) v[r] = load(products + (r * side + q) * point);
        output_transform(m, v, out);
        UNROLL for (i32 r = 0; r < m; r++) half[r][q] = out[r];
    }
    UNROLL for (i32 r = 0; r < m; r++) output_transform(m, half[r], y[r]);
}

/* What becomes of the outputs: forward's, as emit_tile in rows.h; or a gradient's, as sink_tile. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *gradient;
} winograd_epilogue;

INLINE void store_output_vector(const i32 m, const conv_forward *op, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                        const float *products, i32 width, i32 c0, i32 lanes, const i32 dtype) {
    vec bias = op->bias ? load_lanes(op->bias + c0, lanes) : (vec)0, pivot = 0, sum = 0, squares = 0;
    i32 pixels = 0;
    for (i32 i = 0; i < count; i++, products += l->points * width) {
        vec y[4][4];
        inverse_transform_tile(m, products, width, y);
        if (i == 0) pivot = y[0][0];
        pixels += positions[i].rows * positions[i].columns;
        UNROLL for (i32 r = 0; r < m; r++) {
            void *to = element_at(op->y, (positions[i].row + r * l->out_w) * op->ld_y + c0, dtype);
            UNROLL for (i32 q = 0; q < m; q++, to = element_at(to, op->ld_y, dtype)) {
                if (r >= positions[i].rows || q >= positions[i].columns) continue;
                vec v = activate(y[r][q] + bias, op->act);
                store_from_fp32(to, v, lanes, dtype);
                vec d = v - pivot;
                sum += d;
                squares += d * d;
            }
        }
    }
    if (!op->norm) return;
    add_statistics(batch_norm_sums(op->norm, w->index) + c0, op->norm->channels, pivot, sum, squares, pixels, lanes);
}

INLINE void store_gradient_vector(const i32 m, const fused_gradient *s, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                        const float *products, i32 width, i32 c0, i32 lanes, const i32 dtype) {
    const batch_norm *n = s->norm;
    double *sums = n ? batch_norm_sums(n, w->index) + c0 : 0;
    vec scale = n ? load_lanes(n->scale + c0, lanes) : (vec)0, shift = n ? load_lanes(n->shift + c0, lanes) : (vec)0;
    vec mean = n ? load_lanes(n->mean + c0, lanes) : (vec)0, sum = 0, moments = 0;
    for (i32 i = 0; i < count; i++, products += l->points * width) {
        vec y[4][4];
        inverse_transform_tile(m, products, width, y);
        UNROLL for (i32 r = 0; r < m; r++) {
            UNROLL for (i32 q = 0; q < m; q++) {
                if (r >= positions[i].rows || q >= positions[i].columns) continue;
                i64 row = positions[i].row + r * l->out_w + q;
                float *to = s->data + row * s->ld + c0;
                vec g = y[r][q];
                if (s->accumulate) g += load_lanes(to, lanes);
                if (n) {
                    vec z = load_as_fp32(element_at(s->y, row * s->ld_y + c0, dtype), lanes, dtype);
                    g = activation_backward(g, z * scale + shift, s->act);
                    sum += g;
                    moments += g * (z - mean);
                } else if (s->act != ACT_NONE) {
                    g = activation_backward(g, load_as_fp32(element_at(s->y, row * s->ld_y + c0, dtype), lanes, dtype), s->act);
                }
                store_lanes(to, g, lanes);
            }
        }
    }
    if (!n) return;
    add_sums(sums, to_double(sum), lanes);
    add_sums(sums + n->channels, to_double(moments), lanes);
}

INLINE void epilogue_as(const winograd_epilogue *f, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                      const float *products, i32 width, i32 c0, i32 lanes, const i32 dtype) {
    if (f->forward && l->m == 2) store_output_vector(2, f->forward, w, l, positions, count, products, width, c0, lanes, dtype);
    else if (f->forward) store_output_vector(4, f->forward, w, l, positions, count, products, width, c0, lanes, dtype);
    else if (l->m == 2) store_gradient_vector(2, f->gradient, w, l, positions, count, products, width, c0, lanes, dtype);
    else store_gradient_vector(4, f->gradient, w, l, positions, count, products, width, c0, lanes, dtype);
}

INLINE void epilogue_vector(const winograd_epilogue *f, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                          const float *products, i32 width, i32 c0, i32 lanes) {
    i32 dtype = f->forward ? f->forward->dtype : f->gradient->dtype;
    if (dtype == FP16) epilogue_as(f, w, l, positions, count, products, width, c0, lanes, FP16);
    else epilogue_as(f, w, l, positions, count, products, width, c0, lanes, FP32);
}

/* One panel's channels of the tiles at `positions`; products: [tile][point][width]. */
static NOINLINE void epilogue_tiles(const winograd_epilogue *f, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                                  const float *products, i32 panel) {
    i32 n0 = panel * NR, width = panel_width(l->out_c, panel), channels = MIN(width, l->out_c - n0), c = 0;
    for (; c + LANES <= channels; c += LANES) epilogue_vector(f, w, l, positions, count, products + c, width, n0 + c, LANES);
    if (c < channels) epilogue_vector(f, w, l, positions, count, products + c, width, n0 + c, channels - c);
}

/* Some tiles at a time: a norm's fp32 sums of more pixels would lose digits. */
static void epilogue_panel(const winograd_epilogue *f, const worker *w, const winograd_tiling *l, const tile_position *positions, i32 count,
                         const float *products, i32 panel) {
    i32 step = 2 * EPILOGUE_ROWS / (l->m * l->m);
    i64 tile = (i64)l->points * panel_width(l->out_c, panel);
    for (i32 i = 0; i < count; i += step)
        epilogue_tiles(f, w, l, positions + i, MIN(step, count - i), products + i * tile, panel);
}

/* ---- forward, and backward data ---- */

/* KEEP_FILTERS: all weights are transformed once; then threads take blocks of tiles.
 * MAKE_FILTERS: the same, but transformed weights are too large for the caches, and cheaper made anew than read from memory.
 * KEEP_TILES: the tiles are few. All of them are transformed once; then threads take panels of weights. */
enum strategy { CACHE_WEIGHTS, RECOMPUTE_WEIGHTS, CACHE_INPUT };

/* How a step's work is cut, and the floats of its buffers: those all threads share, and those each thread has of its own. */
typedef struct {
    enum strategy strategy;
    i64 blocks;
    i32 block;                           /* tiles in one at most, a multiple of MR */
    i64 ld_v, v_point, u_point, u_panel; /* distances in V: [point][tile][channel], and in U: [panel][point][channel][NR] */
    i64 panel_taps;                      /* floats in a panel as it is packed, not transformed */
    i64 shared_taps, shared_filters, shared_values;
    i64 taps, filters, values, products;
} winograd_blocking;

/* Blocks of whole register tiles, as many for each thread. */
static i64 block_count(const winograd_tiling *l, i32 threads, enum strategy strategy) {
    i64 per_tile = (i64)l->points * (l->in_c + MIN(NR, padded_columns(l->out_c)));
    i64 room = strategy == CACHE_WEIGHTS ? WINOGRAD_L2_FLOATS : WINOGRAD_RECOMPUTE_L2_FLOATS;
    i64 max_block = MAX(WINOGRAD_MIN_BLOCK, MIN(room / per_tile, WINOGRAD_MAX_BLOCK)) / MR * MR;
    i64 blocks = CEIL_DIV(l->tiles, max_block);
    return MIN(ROUND_UP(blocks, threads), CEIL_DIV(l->tiles, MR));
}

static winograd_blocking winograd_blocking_of(const winograd_tiling *l, i32 threads) {
    winograd_blocking b = {.ld_v = odd_cache_lines(l->in_c + LANES), .u_point = odd_cache_lines((i64)l->in_c * NR)};
    i32 panels = panel_count(l->out_c);
    i64 tiles = ROUND_UP(l->tiles, MR);
    if ((i64)l->points * l->in_c * l->out_c <= WINOGRAD_MAX_CACHED_WEIGHTS) b.strategy = CACHE_WEIGHTS;
    else if (tiles <= WINOGRAD_MAX_BLOCK && l->points * tiles * l->in_c <= WINOGRAD_MAX_CACHED_INPUT && panels >= threads) b.strategy = CACHE_INPUT;
    else b.strategy = RECOMPUTE_WEIGHTS;
    b.blocks = b.strategy == CACHE_INPUT ? 1 : block_count(l, threads, b.strategy);
    b.block = (i32)CEIL_DIV(tiles / MR, b.blocks) * MR;
    b.v_point = odd_cache_lines(b.block * b.ld_v);
    b.u_panel = l->points * b.u_point;
    b.panel_taps = odd_cache_lines((i64)9 * l->in_c * NR);
    *(b.strategy == CACHE_INPUT ? &b.shared_values : &b.values) = l->points * b.v_point;
    *(b.strategy == CACHE_INPUT ? &b.taps : &b.shared_taps) = (b.strategy == CACHE_INPUT ? 1 : panels) * b.panel_taps;
    *(b.strategy == CACHE_WEIGHTS ? &b.shared_filters : &b.filters) = b.strategy == CACHE_WEIGHTS ? panels * b.u_panel : l->side * b.u_point;
    b.products = ROUND_UP((i64)b.block * l->points * NR, CACHE_LINE_FLOATS);
    return b;
}

static i64 shared_floats(const winograd_blocking *b) { return b->shared_taps + b->shared_filters + b->shared_values; }
static i64 own_floats(const winograd_blocking *b) { return b->taps + b->filters + b->values + b->products; }

static i64 winograd_blocking_bytes(const winograd_tiling *l, i32 threads) {
    winograd_blocking b = winograd_blocking_of(l, threads);
    return (shared_floats(&b) + threads * own_floats(&b)) * (i64)sizeof(float);
}

/* One thread's view of a step: the buffers it works on, shared or its own. */
typedef struct {
    const worker *w;
    const winograd_tiling *l;
    const winograd_blocking *b;
    const winograd_weights *weights;
    const winograd_epilogue *epilogue;
    float *taps, *filters, *values, *products;
} winograd_context;

static winograd_context winograd_context_of(const worker *w, const winograd_tiling *l, const winograd_blocking *b, const winograd_weights *weights, const winograd_epilogue *f) {
    float *shared = (float *)w->workspace, *own = shared + shared_floats(b) + w->index * own_floats(b);
    return (winograd_context){
        .w = w, .l = l, .b = b, .weights = weights, .epilogue = f,
        .taps = b->taps ? own : shared,
        .filters = b->filters ? own + b->taps : shared + b->shared_taps,
        .values = b->values ? own + b->taps + b->filters : shared + b->shared_taps + b->shared_filters,
        .products = own + b->taps + b->filters + b->values,
    };
}

static void find_positions(const winograd_tiling *l, i64 first, i32 count, tile_position *positions) {
    for (i32 i = 0; i < count; i++) positions[i] = tile_position_of(l, first + i);
}

/* One tile of V; rows after the last are zeros, up to whole register tiles. */
static void transform_tile_row(const winograd_context *k, const tile_position *positions, i32 i, i32 count) {
    const winograd_tiling *l = k->l;
    transform_target to = {k->values + i * k->b->ld_v, k->b->v_point, 0, (i32)ROUND_UP(l->in_c, LANES)};
    if (i < count) transform_input_tile(l, ALL_LINES, positions + i, 0, l->in_c, to);
    else
        for (i32 point = 0; point < l->points; point++) zero_row(to.at + point * to.point, l->in_c);
}

/* products[tile][point][width] = V[point][tile] * U[point], for one line of points. */
static void gemm_line(const winograd_context *k, i32 line, i32 count, i32 width, const float *u) {
    const winograd_blocking *b = k->b;
    i32 channels = k->l->in_c, depth = CEIL_DIV(channels, CEIL_DIV(channels, BLOCK_DEPTH));
    i64 ld = k->l->points * width;
    for (i32 q = 0; q < k->l->side; q++, u += b->u_point) {
        i32 point = line * k->l->side + q;
        const float *values = k->values + point * b->v_point;
        prefetch_list prefetch = {0}; /* the next point's: of weights or of tiles, whichever is further away */
        if (b->filters) prefetch_floats(&prefetch, values + b->v_point, count * b->ld_v);
        else prefetch_floats(&prefetch, u + b->u_point, (i64)channels * width);
        for (i32 c = 0; c < channels; c += depth)
            gemm_panel(CEIL_DIV(count, MR), MIN(depth, channels - c), values + c, b->ld_v, u + (i64)c * width, width,
                           k->products + point * width, ld, c > 0, &prefetch);
    }
}

/* One panel of the outputs of the tiles in V. */
static void convolve_panel(const winograd_context *k, const tile_position *positions, i32 count, i32 panel) {
    const winograd_tiling *l = k->l;
    const winograd_blocking *b = k->b;
    i32 width = panel_width(l->out_c, panel);
    const float *taps = b->taps ? k->taps : k->taps + panel * b->panel_taps;
    for (i32 tap = 0; b->taps && tap < 9; tap++) pack_tap(l, k->weights, panel, tap, k->taps);
    for (i32 line = 0; line < l->side; line++) {
        float *u = b->filters ? k->filters : k->filters + panel * b->u_panel + line * l->side * b->u_point;
        if (b->filters) transform_weight_panel(l, line, taps, width, u, b->u_point);
        gemm_line(k, line, count, width, u);
    }
    epilogue_panel(k->epilogue, k->w, l, positions, count, k->products, panel);
}

static void pack_all_taps(worker *w, const winograd_context *k) {
    for (i64 i = next_tile(w); i < 9 * panel_count(k->l->out_c); i = next_tile(w))
        pack_tap(k->l, k->weights, (i32)(i / 9), (i32)(i % 9), k->taps + i / 9 * k->b->panel_taps);
    barrier(w);
}

static void transform_all_weights(worker *w, const winograd_context *k) {
    const winograd_blocking *b = k->b;
    for (i64 i = next_tile(w); i < panel_count(k->l->out_c) * k->l->side; i = next_tile(w)) {
        i32 panel = (i32)(i / k->l->side), line = (i32)(i % k->l->side);
        float *u = k->filters + panel * b->u_panel + line * k->l->side * b->u_point;
        transform_weight_panel(k->l, line, k->taps + panel * b->panel_taps, panel_width(k->l->out_c, panel), u, b->u_point);
    }
    barrier(w);
}

static void process_blocks(worker *w, const winograd_context *k) {
    tile_position positions[WINOGRAD_MAX_BLOCK];
    for (i64 i = next_tile(w); i < k->b->blocks; i = next_tile(w)) {
        i64 first, last;
        split_range(CEIL_DIV(k->l->tiles, MR), (i32)i, (i32)k->b->blocks, &first, &last);
        i32 count = (i32)(MIN(last * MR, k->l->tiles) - first * MR);
        find_positions(k->l, first * MR, count, positions);
        for (i32 t = 0; t < ROUND_UP(count, MR); t++) transform_tile_row(k, positions, t, count);
        for (i32 panel = 0; panel < panel_count(k->l->out_c); panel++) convolve_panel(k, positions, count, panel);
    }
}

static void process_panels(worker *w, const winograd_context *k) {
    tile_position positions[WINOGRAD_MAX_BLOCK];
    i32 count = (i32)k->l->tiles;
    find_positions(k->l, 0, count, positions);
    for (i64 i = next_tile(w); i < k->b->block; i = next_tile(w)) transform_tile_row(k, positions, (i32)i, count);
    barrier(w);
    for (i64 i = next_tile(w); i < panel_count(k->l->out_c); i = next_tile(w)) convolve_panel(k, positions, count, (i32)i);
}

static void winograd_convolve(worker *w, const winograd_tiling *l, winograd_weights weights, winograd_epilogue f) {
    winograd_blocking b = winograd_blocking_of(l, w->threads);
    winograd_context context = winograd_context_of(w, l, &b, &weights, &f);
    if (b.strategy == CACHE_INPUT) {
        process_panels(w, &context);
        return;
    }
    pack_all_taps(w, &context);
    if (b.strategy == CACHE_WEIGHTS) transform_all_weights(w, &context);
    process_blocks(w, &context);
}

void winograd_forward(worker *w, const conv_forward *op) {
    winograd_tiling l = winograd_tiling_of(&op->g, op->algorithm, op->x);
    if (op->norm) batch_norm_clear_sums(op->norm, w);
    winograd_convolve(w, &l, (winograd_weights){op->weights, 0}, (winograd_epilogue){.forward = op});
    if (!op->norm) return;
    barrier(w);
    batch_norm_finish_statistics(op->norm, w, (i64)op->g.batch * op->g.out_h * op->g.out_w);
}

i64 winograd_workspace_forward(i32 threads, const conv_forward *op) {
    winograd_tiling l = winograd_tiling_of(&op->g, op->algorithm, op->x);
    return winograd_blocking_bytes(&l, threads);
}

static winograd_tiling tiling_of_gradient(const conv_backward_data *op) {
    return winograd_tiling_backward(&op->g, op->algorithm, (fused_input){.data = op->dy, .ld = op->ld_dy});
}

void winograd_backward_data(worker *w, const conv_backward_data *op) {
    winograd_tiling l = tiling_of_gradient(op);
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    winograd_convolve(w, &l, (winograd_weights){op->weights, 1}, (winograd_epilogue){.gradient = &op->dx});
}

i64 winograd_workspace_backward_data(i32 threads, const conv_backward_data *op) {
    winograd_tiling l = tiling_of_gradient(op);
    return winograd_blocking_bytes(&l, threads);
}

/* ---- backward weights ---- */

/* The work is cut into units: a pair of lines of points, a part of the channels in, a part of the channels out. A unit's piece of dU
 * stays in the cache while a chunk of tiles goes by; V and D are made again for each unit. Each thread has its own units; where they
 * are too few for that, the tiles are cut into parts as well, and each part has a dU. So sums are made in the same order every time. */
typedef struct {
    i32 channel_parts, filter_parts, tile_parts, units;
    i32 rows, columns;     /* of dU, padded for whole register tiles: [part of tiles][point][row][column] */
    i64 chunk;             /* tiles a thread goes through with all its units, before it takes the next ones */
    i32 block;             /* tiles at a time */
    i64 v_point, d_point;  /* V: [point][group][tile][STRIP_GROUP]; D: [point][panel][tile][NR] */
    i64 sums, bias;        /* floats in one dU, and in one sum of dy */
    i64 values, gradients; /* floats in V and D, of each thread */
} wgrad_blocking;

enum {
    STRIP_GROUP = MR * LANES / 2, /* whole strips of MR, and whole vectors */
    PART_STRIPS = LANES > 4 ? CEIL_DIV(128, MR) : CEIL_DIV(64, MR),
    PART_PANELS = LANES > 4 ? CEIL_DIV(64, NR) : CEIL_DIV(32, NR),
    WINOGRAD_CHUNK = LANES > 4 ? 2 << 20 : 512 << 10, /* floats of x and dy that may be read again and again */
    UNITS_PER_THREAD = 6, /* at least, or else a number that can be dealt out evenly */
    WINOGRAD_MIN_DEPTH = 16,
    WINOGRAD_MAX_DEPTH = 128,
};
_Static_assert(STRIP_GROUP % MR == 0 && STRIP_GROUP % LANES == 0, "groups hold whole strips and whole vectors");

static i32 gcd(i32 a, i32 b) { return b ? gcd(b, a % b) : a; }

static wgrad_blocking wgrad_blocking_of(const winograd_tiling *l, i32 threads) {
    wgrad_blocking b = {.rows = (i32)ROUND_UP(l->in_c, MR), .columns = (i32)padded_columns(l->out_c)};
    b.sums = odd_cache_lines((i64)l->points * b.rows * b.columns);
    b.bias = ROUND_UP(b.columns + LANES, CACHE_LINE_FLOATS);
    b.channel_parts = CEIL_DIV(b.rows / MR, PART_STRIPS);
    b.filter_parts = CEIL_DIV(panel_count(l->out_c), PART_PANELS);
    b.units = line_pairs(l->m) * b.channel_parts * b.filter_parts;
    i32 parts = b.units >= UNITS_PER_THREAD * threads ? 1 : threads / gcd(threads, b.units);
    b.tile_parts = parts <= l->tiles ? parts : 1;
    b.chunk = MAX(WINOGRAD_MAX_DEPTH, WINOGRAD_CHUNK / ((i64)l->m * l->m * (l->in_c + l->out_c)));
    i64 points = 2 * l->side, rows = CEIL_DIV(b.rows / MR, b.channel_parts) * MR;
    i64 columns = CEIL_DIV(panel_count(l->out_c), b.filter_parts) * NR;
    i64 block = (WINOGRAD_L2_FLOATS - points * rows * columns) / (points * (rows + columns));
    b.block = (i32)MIN(MIN(MAX(block, WINOGRAD_MIN_DEPTH), WINOGRAD_MAX_DEPTH), l->tiles);
    b.v_point = odd_cache_lines(ROUND_UP(rows, STRIP_GROUP) * b.block);
    b.d_point = odd_cache_lines(columns * b.block);
    b.values = points * b.v_point, b.gradients = points * b.d_point;
    return b;
}

/* What a unit works on. */
typedef struct {
    i32 pair, row, rows, panel, panels;
} wgrad_unit;

static wgrad_unit wgrad_unit_of(const winograd_tiling *l, const wgrad_blocking *b, i32 index) {
    wgrad_unit u = {.pair = index % line_pairs(l->m)};
    index /= line_pairs(l->m);
    i64 first, last;
    split_range(b->rows / MR, index % b->channel_parts, b->channel_parts, &first, &last);
    u.row = (i32)first * MR, u.rows = (i32)(last - first) * MR;
    index /= b->channel_parts;
    split_range(panel_count(l->out_c), index, b->filter_parts, &first, &last);
    u.panel = (i32)first, u.panels = (i32)(last - first);
    return u;
}

/* A block of tiles: V and D of one unit. */
static void transform_unit(const winograd_tiling *l, const wgrad_blocking *b, const fused_input *dy, const wgrad_unit *u, i64 tile, i32 count,
                        float *values, float *gradients) {
    i32 c0 = u->panel * NR, channels = MIN(u->panels * NR, l->out_c - c0);
    for (i32 i = 0; i < count; i++) {
        tile_position p = tile_position_of(l, tile + i);
        transform_target v = {values + (i64)i * STRIP_GROUP, b->v_point, (i64)b->block * STRIP_GROUP, STRIP_GROUP};
        transform_target d = {gradients + (i64)i * NR, b->d_point, (i64)b->block * NR, NR};
        transform_input_tile(l, u->pair, &p, u->row, (i32)MIN(ROUND_UP(u->rows, LANES), l->in_c - u->row), v);
        transform_gradient_tile(l, u->pair, dy, &p, c0, channels, d);
    }
}

/* sums[row][column] of one point, the unit's rows and columns of it: V^T D. */
static void accumulate_products(const winograd_tiling *l, const wgrad_blocking *b, const wgrad_unit *u, i32 tiles, const float *values,
                         const float *gradients, float *sums, i32 accumulate) {
    for (i32 panel = 0; panel < u->panels; panel++, gradients += (i64)NR * b->block) {
        i32 width = panel_width(l->out_c, u->panel + panel);
        for (i32 i = 0; i < u->rows; i += MR) {
            const float *v = values + (i64)(i / STRIP_GROUP) * STRIP_GROUP * b->block + i % STRIP_GROUP;
            float *to = sums + (i64)(u->row + i) * b->columns + (u->panel + panel) * NR;
            prefetch_cursor none = prefetch_list_next(&(prefetch_list){0}, tiles, v);
            f32_gemm_tn(width, tiles, v, STRIP_GROUP, gradients, NR, to, b->columns, accumulate, &none);
        }
    }
}

/* Point (1, 1) of A dy A^T is the sum of the tile's gradients. */
static void accumulate_bias_gradient(const winograd_tiling *l, const wgrad_blocking *b, const wgrad_unit *u, i32 tiles, const float *gradients,
                              float *sums, i32 accumulate) {
    for (i32 c = 0; c < MIN(u->panels * NR, l->out_c - u->panel * NR); c += LANES) {
        const float *d = gradients + (i64)(c / NR) * NR * b->block + c % NR;
        float *to = sums + u->panel * NR + c;
        vec sum = accumulate ? load(to) : (vec)0;
        for (i32 i = 0; i < tiles; i++) sum += load(d + i * NR);
        store(to, sum);
    }
}

/* Adds tiles first .. last to a unit's piece of dU, or starts it. */
static void accumulate_unit(const winograd_tiling *l, const wgrad_blocking *b, const fused_input *dy, const wgrad_unit *u, i64 first, i64 last, i32 start,
                        float *sums, float *bias, float *values, float *gradients) {
    for (i64 tile = first; tile < last; tile += b->block, start = 0) {
        i32 count = (i32)MIN(b->block, last - tile);
        transform_unit(l, b, dy, u, tile, count, values, gradients);
        for (i32 i = 0; i < 2 * l->side; i++) {
            i32 point = line_of(l->m, u->pair, i / l->side) * l->side + i % l->side;
            const float *d = gradients + i * b->d_point;
            accumulate_products(l, b, u, count, values + i * b->v_point, d, sums + (i64)point * b->rows * b->columns, !start);
            if (u->row == 0 && point == l->side + 1) accumulate_bias_gradient(l, b, u, count, d, bias, !start);
        }
    }
}

/* This thread's part of the tiles and of the units. */
static void accumulate_thread_share(const worker *w, const winograd_tiling *l, const wgrad_blocking *b, const fused_input *dy, float *sums, float *bias,
                         float *values, float *gradients) {
    i32 part = w->index % b->tile_parts;
    i64 tile, last_tile, first, last;
    split_range(l->tiles, part, b->tile_parts, &tile, &last_tile);
    split_range(b->units, w->index / b->tile_parts, w->threads / b->tile_parts, &first, &last);
    for (i64 chunk = tile; chunk < last_tile; chunk += b->chunk) {
        for (i64 i = first; i < last; i++) {
            wgrad_unit unit = wgrad_unit_of(l, b, (i32)i);
            accumulate_unit(l, b, dy, &unit, chunk, MIN(chunk + b->chunk, last_tile), chunk == tile, sums + part * b->sums,
                        bias + part * b->bias, values, gradients);
        }
    }
}

/* dw = G^T dU G of one channel in. */
INLINE void inverse_transform_row(const i32 m, const conv_backward_weights *op, const wgrad_blocking *b, const float *sums, i32 k) {
    const i32 side = m + 2;
    i64 point = (i64)b->rows * b->columns, tap = (i64)op->g.in_c * op->g.out_c;
    for (i32 c = 0; c < op->g.out_c; c += LANES) {
        i32 lanes = MIN(LANES, op->g.out_c - c);
        const float *from = sums + (i64)k * b->columns + c;
        float *to = op->dweights + (i64)k * op->g.out_c + c;
        vec half[3][MAX_SIDE];
        UNROLL for (i32 q = 0; q < side; q++) {
            vec u[MAX_SIDE], g[3];
            UNROLL for (i32 r = 0; r < side; r++) {
                u[r] = load(from + (r * side + q) * point);
                for (i32 part = 1; part < b->tile_parts; part++) u[r] += load(from + part * b->sums + (r * side + q) * point);
            }
            weight_gradient_transform(m, u, g);
            UNROLL for (i32 r = 0; r < 3; r++) half[r][q] = g[r];
        }
        UNROLL for (i32 r = 0; r < 3; r++) {
            vec g[3];
            weight_gradient_transform(m, half[r], g);
            UNROLL for (i32 q = 0; q < 3; q++) {
                float *at = to + (r * 3 + q) * tap;
                store_lanes(at, op->accumulate ? load_lanes(at, lanes) + g[q] : g[q], lanes);
            }
        }
    }
}

static void reduce_bias(const conv_backward_weights *op, const wgrad_blocking *b, const float *sums) {
    for (i32 c = 0; c < op->g.out_c; c += LANES) {
        i32 lanes = MIN(LANES, op->g.out_c - c);
        vec sum = op->accumulate ? load_lanes(op->dbias + c, lanes) : (vec)0;
        for (i32 part = 0; part < b->tile_parts; part++) sum += load(sums + part * b->bias + c);
        store_lanes(op->dbias + c, sum, lanes);
    }
}

void winograd_backward_weights(worker *w, const conv_backward_weights *op) {
    winograd_tiling l = winograd_tiling_of(&op->g, op->algorithm, op->x);
    wgrad_blocking b = wgrad_blocking_of(&l, w->threads);
    fused_input dy = {.data = op->dy, .ld = op->ld_dy};
    float *sums = (float *)w->workspace, *bias = sums + b.tile_parts * b.sums;
    float *values = bias + b.tile_parts * b.bias + w->index * (b.values + b.gradients), *gradients = values + b.values;
    accumulate_thread_share(w, &l, &b, &dy, sums, bias, values, gradients);
    barrier(w);
    if (w->index == 0 && op->dbias) reduce_bias(op, &b, bias);
    for (i64 k = next_tile(w); k < op->g.in_c; k = next_tile(w)) {
        if (l.m == 2) inverse_transform_row(2, op, &b, sums, (i32)k);
        else inverse_transform_row(4, op, &b, sums, (i32)k);
    }
}

i64 winograd_workspace_backward_weights(i32 threads, const conv_backward_weights *op) {
    winograd_tiling l = winograd_tiling_of(&op->g, op->algorithm, op->x);
    wgrad_blocking b = wgrad_blocking_of(&l, threads);
    return (b.tile_parts * (b.sums + b.bias) + threads * (b.values + b.gradients)) * (i64)sizeof(float);
}
