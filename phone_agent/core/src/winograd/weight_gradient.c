/* Weight gradient of the Winograd convolutions: dU = V^T D, dw = G^T dU G. */

/* The work is cut into units: a pair of lines of points x a part of the input channels x a part of the output
 * channels. A unit's piece of dU stays in the cache while a chunk of tiles passes by; V and D are computed again for
 * each unit. Each thread has its own units. If there are too few units, the tiles are cut into parts as well, each
 * with its own dU. So sums are always computed in the same order. */
typedef struct {
    i32 channel_parts, filter_parts, tile_parts, units;
    i32 rows, columns;     /* of dU, padded for whole register tiles: [part of tiles][point][row][column] */
    i64 chunk;             /* tiles that a thread processes with all its units before it goes on to the next ones */
    i32 block;             /* tiles at a time */
    i64 v_point, d_point;  /* V: [point][group][tile][STRIP_GROUP]; D: [point][panel][tile][NR] */
    i64 sums, bias;        /* floats in one dU, and in one sum of dy */
    i64 values, gradients; /* floats in V and D, per thread */
} wgrad_blocking;

enum {
    STRIP_GROUP = MR * LANES / 2, /* whole strips of MR, and whole vectors */
    PART_STRIPS = LANES > 4 ? CEIL_DIV(128, MR) : CEIL_DIV(64, MR),
    PART_PANELS = LANES > 4 ? CEIL_DIV(64, NR) : CEIL_DIV(32, NR),
    WINOGRAD_CHUNK = LANES > 4 ? 2 << 20 : 512 << 10, /* floats of x and dy that may be read repeatedly */
    UNITS_PER_THREAD = 6,                             /* at least; with fewer, a number of units that divides evenly */
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

/* The range of one unit. */
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

/* V and D of one unit, for a block of tiles. */
static void transform_unit(const winograd_tiling *l, const wgrad_blocking *b, const fused_input *dy,
                           const wgrad_unit *u, i64 tile, i32 count, float *values, float *gradients) {
    i32 c0 = u->panel * NR, channels = MIN(u->panels * NR, l->out_c - c0);
    for (i32 i = 0; i < count; i++) {
        tile_position p = tile_position_of(l, tile + i);
        transform_target v = {values + (i64)i * STRIP_GROUP, b->v_point, (i64)b->block * STRIP_GROUP, STRIP_GROUP};
        transform_target d = {gradients + (i64)i * NR, b->d_point, (i64)b->block * NR, NR};
        transform_input_tile(l, u->pair, &p, u->row, (i32)MIN(ROUND_UP(u->rows, LANES), l->in_c - u->row), v);
        transform_gradient_tile(l, u->pair, dy, &p, c0, channels, d);
    }
}

/* sums[row][column] of one point, for the rows and columns of the unit: V^T D. */
static void accumulate_products(const winograd_tiling *l, const wgrad_blocking *b, const wgrad_unit *u, i32 tiles,
                                const float *values, const float *gradients, float *sums, i32 accumulate) {
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
static void accumulate_bias_gradient(const winograd_tiling *l, const wgrad_blocking *b, const wgrad_unit *u, i32 tiles,
                                     const float *gradients, float *sums, i32 accumulate) {
    for (i32 c = 0; c < MIN(u->panels * NR, l->out_c - u->panel * NR); c += LANES) {
        const float *d = gradients + (i64)(c / NR) * NR * b->block + c % NR;
        float *to = sums + u->panel * NR + c;
        vec sum = accumulate ? load(to) : (vec)0;
        for (i32 i = 0; i < tiles; i++) sum += load(d + i * NR);
        store(to, sum);
    }
}

/* Add tiles first .. last - 1 to the unit's piece of dU, or start it. */
static void accumulate_unit(const winograd_tiling *l, const wgrad_blocking *b, const fused_input *dy,
                            const wgrad_unit *u, i64 first, i64 last, i32 start, float *sums, float *bias,
                            float *values, float *gradients) {
    for (i64 tile = first; tile < last; tile += b->block, start = 0) {
        i32 count = (i32)MIN(b->block, last - tile);
        transform_unit(l, b, dy, u, tile, count, values, gradients);
        for (i32 i = 0; i < 2 * l->side; i++) {
            i32 point = line_of(l->m, u->pair, i / l->side) * l->side + i % l->side;
            const float *d = gradients + i * b->d_point;
            accumulate_products(l, b, u, count, values + i * b->v_point, d, sums + (i64)point * b->rows * b->columns,
                                !start);
            if (u->row == 0 && point == l->side + 1) accumulate_bias_gradient(l, b, u, count, d, bias, !start);
        }
    }
}

/* Process this thread's part of the tiles and of the units. */
static void accumulate_thread_share(const worker *w, const winograd_tiling *l, const wgrad_blocking *b,
                                    const fused_input *dy, float *sums, float *bias, float *values, float *gradients) {
    i32 part = w->index % b->tile_parts;
    i64 tile, last_tile, first, last;
    split_range(l->tiles, part, b->tile_parts, &tile, &last_tile);
    split_range(b->units, w->index / b->tile_parts, w->threads / b->tile_parts, &first, &last);
    for (i64 chunk = tile; chunk < last_tile; chunk += b->chunk) {
        for (i64 i = first; i < last; i++) {
            wgrad_unit unit = wgrad_unit_of(l, b, (i32)i);
            accumulate_unit(l, b, dy, &unit, chunk, MIN(chunk + b->chunk, last_tile), chunk == tile,
                            sums + part * b->sums, bias + part * b->bias, values, gradients);
        }
    }
}

/* dw = G^T dU G of one input channel. */
INLINE void inverse_transform_row(const i32 m, const conv_backward_weights *op, const wgrad_blocking *b,
                                  const float *sums, i32 k) {
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
                for (i32 part = 1; part < b->tile_parts; part++)
                    u[r] += load(from + part * b->sums + (r * side + q) * point);
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
