/* Winograd convolutions, 3x3 with stride 1: F(2x2, 3x3) takes 16 multiplications instead of 36, F(4x4, 3x3) 36
 * instead of 144. The window of a tile and a filter are transformed to (m + 2)^2 points each, and the sum over
 * channels is one small matrix product per point:
 *
 *   forward           V = B^T x B       U = G w G^T        M[point] = V[point] U[point]        y = A^T M A
 *   backward data     the same with dy for x, and rotated, transposed weights for w
 *   backward weights  V = B^T x B       D = A dy A^T       dU[point] = V[point]^T D[point]     dw = G^T dU G
 *
 * Points are numbered line by line. The transformed tensors are 2.25 (F4) to 4 (F2) times as large as the originals,
 * so they are computed piece by piece and stay in the private cache of a core instead of going through memory. */
#include "winograd/tiles.h"

enum {
    /* Floats that a thread works on at a time: they fit into the L2 cache of a server or phone core. */
    WINOGRAD_L2_FLOATS = LANES > 4 ? 240 << 10 : 56 << 10,
    /* The same if weights are transformed again for every block: then a block should have many tiles. */
    WINOGRAD_RECOMPUTE_L2_FLOATS = LANES > 4 ? 600 << 10 : 128 << 10,
    WINOGRAD_MIN_BLOCK = 24,
    /* Transformed weights above this many floats are not cached: every thread computes them again for each of its
     * blocks. */
    WINOGRAD_MAX_CACHED_WEIGHTS = LANES > 4 ? 768 << 10 : 160 << 10,
    /* Transformed input tiles up to this many floats may be cached, if there are few tiles. */
    WINOGRAD_MAX_CACHED_INPUT = LANES > 4 ? 1536 << 10 : 384 << 10,
    WINOGRAD_MAX_BLOCK = 252,
    CACHE_LINE_FLOATS = 16, /* per cache line */
};

/* Round up to an odd number of cache lines, so that the points of a tile do not compete for the same few sets of the
 * L1 cache. */
static i64 odd_cache_lines(i64 floats) { return ROUND_UP(floats, CACHE_LINE_FLOATS) | CACHE_LINE_FLOATS; }

/* ---- U = G w G^T ---- */

/* Backward data rotates the filters by 180 degrees and swaps input and output channels. */
typedef struct {
    const float *at;
    i32 rotated;
} winograd_weights;

/* One tap of a panel: [tap][input channel][width]. */
static void pack_tap(const winograd_tiling *l, const winograd_weights *from, i32 panel, i32 tap, float *taps) {
    i32 n0 = panel * NR, width = panel_width(l->out_c, panel), channels = MIN(width, l->out_c - n0);
    i64 tap_floats = (i64)l->in_c * l->out_c;
    float *to = taps + (i64)tap * l->in_c * width;
    if (from->rotated) {
        pack_transposed_panel(from->at + (8 - tap) * tap_floats + (i64)n0 * l->in_c, l->in_c, channels, l->in_c, to,
                              width);
        return;
    }
    const float *rows = from->at + tap * tap_floats + n0;
    for (i32 k = 0; k < l->in_c; k++) copy_padded(rows + (i64)k * l->out_c, channels, to + (i64)k * width, width);
}

/* One line of points of a packed panel. */
INLINE void transform_weight_line(const i32 m, i32 line, const float *taps, i32 channels, i32 width, float *to,
                                  i64 point) {
    const float *g = weight_transform_line(m, line);
    i64 tap = (i64)channels * width;
    for (i64 i = 0; i < tap; i += LANES) {
        vec half[3], u[MAX_SIDE];
        UNROLL for (i32 q = 0; q < 3; q++) half[q] = g[0] * load(taps + q * tap + i) +
                                                     g[1] * load(taps + (3 + q) * tap + i) +
                                                     g[2] * load(taps + (6 + q) * tap + i);
        weight_transform(m, half, u);
        UNROLL for (i32 q = 0; q < m + 2; q++) store(to + q * point + i, u[q]);
    }
}

static NOINLINE void transform_weight_panel(const winograd_tiling *l, i32 line, const float *taps, i32 width, float *to,
                                            i64 point) {
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

/* What happens to the outputs: like store_output_tile or store_gradient_tile in epilogue.h. Exactly one is set. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *gradient;
} winograd_epilogue;

INLINE void store_output_vector(const i32 m, const conv_forward *op, const worker *w, const winograd_tiling *l,
                                const tile_position *positions, i32 count, const float *products, i32 width, i32 c0,
                                i32 lanes, const i32 dtype) {
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

INLINE void store_gradient_vector(const i32 m, const fused_gradient *s, const worker *w, const winograd_tiling *l,
                                  const tile_position *positions, i32 count, const float *products, i32 width, i32 c0,
                                  i32 lanes, const i32 dtype) {
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
                    g = activation_backward(g, load_as_fp32(element_at(s->y, row * s->ld_y + c0, dtype), lanes, dtype),
                                            s->act);
                }
                store_lanes(to, g, lanes);
            }
        }
    }
    if (!n) return;
    add_sums(sums, to_double(sum), lanes);
    add_sums(sums + n->channels, to_double(moments), lanes);
}

INLINE void epilogue_as(const winograd_epilogue *f, const worker *w, const winograd_tiling *l,
                        const tile_position *positions, i32 count, const float *products, i32 width, i32 c0, i32 lanes,
                        const i32 dtype) {
    if (f->forward && l->m == 2)
        store_output_vector(2, f->forward, w, l, positions, count, products, width, c0, lanes, dtype);
    else if (f->forward) store_output_vector(4, f->forward, w, l, positions, count, products, width, c0, lanes, dtype);
    else if (l->m == 2)
        store_gradient_vector(2, f->gradient, w, l, positions, count, products, width, c0, lanes, dtype);
    else store_gradient_vector(4, f->gradient, w, l, positions, count, products, width, c0, lanes, dtype);
}

INLINE void epilogue_vector(const winograd_epilogue *f, const worker *w, const winograd_tiling *l,
                            const tile_position *positions, i32 count, const float *products, i32 width, i32 c0,
                            i32 lanes) {
    i32 dtype = f->forward ? f->forward->dtype : f->gradient->dtype;
    if (dtype == FP16) epilogue_as(f, w, l, positions, count, products, width, c0, lanes, FP16);
    else epilogue_as(f, w, l, positions, count, products, width, c0, lanes, FP32);
}

/* The channels of one panel, of the tiles at `positions`. products: [tile][point][width]. */
static NOINLINE void epilogue_tiles(const winograd_epilogue *f, const worker *w, const winograd_tiling *l,
                                    const tile_position *positions, i32 count, const float *products, i32 panel) {
    i32 n0 = panel * NR, width = panel_width(l->out_c, panel), channels = MIN(width, l->out_c - n0), c = 0;
    for (; c + LANES <= channels; c += LANES)
        epilogue_vector(f, w, l, positions, count, products + c, width, n0 + c, LANES);
    if (c < channels) epilogue_vector(f, w, l, positions, count, products + c, width, n0 + c, channels - c);
}

/* Some tiles at a time, because fp32 sums of more pixels would lose digits. */
static void epilogue_panel(const winograd_epilogue *f, const worker *w, const winograd_tiling *l,
                           const tile_position *positions, i32 count, const float *products, i32 panel) {
    i32 step = 2 * EPILOGUE_ROWS / (l->m * l->m);
    i64 tile = (i64)l->points * panel_width(l->out_c, panel);
    for (i32 i = 0; i < count; i += step)
        epilogue_tiles(f, w, l, positions + i, MIN(step, count - i), products + i * tile, panel);
}

/* ---- forward and backward data ---- */

/* CACHE_WEIGHTS: all weights are transformed once; then threads process blocks of tiles.
 * RECOMPUTE_WEIGHTS: the same, but the transformed weights are too large for the caches; computing them again is
 * cheaper than reading them from memory.
 * CACHE_INPUT: there are few tiles. All of them are transformed once; then threads process panels of weights. */
enum strategy { CACHE_WEIGHTS, RECOMPUTE_WEIGHTS, CACHE_INPUT };

/* The blocking of a step, and the sizes of its buffers in floats: shared by all threads, or private to each. */
typedef struct {
    enum strategy strategy;
    i64 blocks;
    i32 block; /* tiles per block at most, a multiple of MR */
    i64 ld_v, v_point, u_point,
        u_panel;    /* strides in V: [point][tile][channel], and in U: [panel][point][channel][NR] */
    i64 panel_taps; /* floats in a packed panel before its transform */
    i64 shared_taps, shared_filters, shared_values;
    i64 taps, filters, values, products;
} winograd_blocking;

/* Blocks of whole register tiles, equally many for each thread. */
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
    else if (tiles <= WINOGRAD_MAX_BLOCK && l->points * tiles * l->in_c <= WINOGRAD_MAX_CACHED_INPUT &&
             panels >= threads)
        b.strategy = CACHE_INPUT;
    else b.strategy = RECOMPUTE_WEIGHTS;
    b.blocks = b.strategy == CACHE_INPUT ? 1 : block_count(l, threads, b.strategy);
    b.block = (i32)CEIL_DIV(tiles / MR, b.blocks) * MR;
    b.v_point = odd_cache_lines(b.block * b.ld_v);
    b.u_panel = l->points * b.u_point;
    b.panel_taps = odd_cache_lines((i64)9 * l->in_c * NR);
    *(b.strategy == CACHE_INPUT ? &b.shared_values : &b.values) = l->points * b.v_point;
    *(b.strategy == CACHE_INPUT ? &b.taps : &b.shared_taps) = (b.strategy == CACHE_INPUT ? 1 : panels) * b.panel_taps;
    *(b.strategy == CACHE_WEIGHTS ? &b.shared_filters : &b.filters) =
        b.strategy == CACHE_WEIGHTS ? panels * b.u_panel : l->side * b.u_point;
    b.products = ROUND_UP((i64)b.block * l->points * NR, CACHE_LINE_FLOATS);
    return b;
}

static i64 shared_floats(const winograd_blocking *b) { return b->shared_taps + b->shared_filters + b->shared_values; }
static i64 own_floats(const winograd_blocking *b) { return b->taps + b->filters + b->values + b->products; }

static i64 winograd_blocking_bytes(const winograd_tiling *l, i32 threads) {
    winograd_blocking b = winograd_blocking_of(l, threads);
    return (shared_floats(&b) + threads * own_floats(&b)) * (i64)sizeof(float);
}

/* What one thread works with: the buffers of the step, shared or private. */
typedef struct {
    const worker *w;
    const winograd_tiling *l;
    const winograd_blocking *b;
    const winograd_weights *weights;
    const winograd_epilogue *epilogue;
    float *taps, *filters, *values, *products;
} winograd_context;

static winograd_context winograd_context_of(const worker *w, const winograd_tiling *l, const winograd_blocking *b,
                                            const winograd_weights *weights, const winograd_epilogue *f) {
    float *shared = (float *)w->workspace, *own = shared + shared_floats(b) + w->index * own_floats(b);
    return (winograd_context){
        .w = w,
        .l = l,
        .b = b,
        .weights = weights,
        .epilogue = f,
        .taps = b->taps ? own : shared,
        .filters = b->filters ? own + b->taps : shared + b->shared_taps,
        .values = b->values ? own + b->taps + b->filters : shared + b->shared_taps + b->shared_filters,
        .products = own + b->taps + b->filters + b->values,
    };
}

static void find_positions(const winograd_tiling *l, i64 first, i32 count, tile_position *positions) {
    for (i32 i = 0; i < count; i++) positions[i] = tile_position_of(l, first + i);
}

/* Transform one tile of V. Rows after the last tile are zeros, up to whole register tiles. */
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
        prefetch_list prefetch = {
            0}; /* prefetch the next point: its weights or its tiles, whichever are further away */
        if (b->filters) prefetch_floats(&prefetch, values + b->v_point, count * b->ld_v);
        else prefetch_floats(&prefetch, u + b->u_point, (i64)channels * width);
        for (i32 c = 0; c < channels; c += depth)
            gemm_panel(CEIL_DIV(count, MR), MIN(depth, channels - c), values + c, b->ld_v, u + (i64)c * width, width,
                       k->products + point * width, ld, c > 0, &prefetch);
    }
}

/* One panel of output channels, for the tiles in V. */
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
        transform_weight_panel(k->l, line, k->taps + panel * b->panel_taps, panel_width(k->l->out_c, panel), u,
                               b->u_point);
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
    for (i64 i = next_tile(w); i < panel_count(k->l->out_c); i = next_tile(w))
        convolve_panel(k, positions, count, (i32)i);
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
