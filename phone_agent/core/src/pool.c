/* Pooling, a vector of channels at a time. Forward, a window is cut to the part inside of the image. Backward, each input
 * pixel gathers from the windows that cover it, so it is written once, and by one thread. */

enum { POOL_TILES_A_THREAD = 16, POOL_PIXELS = 16, POOL_BLOCK = 512, POOL_AT_ONCE = 4, POOL_LEAST_BLOCK = 4 * LANES };

typedef u8 bytes __attribute__((ext_vector_type(LANES)));
typedef u8 loose_bytes __attribute__((ext_vector_type(LANES), aligned(1)));

INLINE ivec load_winners(const u8 *p, i32 lanes) {
    if (lanes == LANES) return __builtin_convertvector(*(const loose_bytes *)p, ivec);
    ivec v = 0;
    for (i32 i = 0; i < lanes; i++) v[i] = p[i];
    return v;
}
INLINE void store_winners(u8 *p, ivec v, i32 lanes) {
    if (lanes == LANES) {
        *(loose_bytes *)p = __builtin_convertvector(v, bytes);
        return;
    }
    for (i32 i = 0; i < lanes; i++) p[i] = (u8)v[i];
}

/* Along one axis: the taps start .. end - 1 of a window that fall inside of the image, and where its tap 0 falls. */
typedef struct {
    i32 first, start, end;
} reach;

static reach reach_of(i32 out, i32 stride, i32 pad, i32 dilation, i32 kernel, i32 size) {
    i32 first = out * stride - pad, start = first >= 0 ? 0 : MIN(kernel, CEIL_DIV(-first, dilation));
    i32 end = first >= size ? start : MIN(kernel, CEIL_DIV(size - first, dilation));
    return (reach){first, start, MAX(start, end)};
}
static reach reach_down(const geometry *g, i32 y) {
    return reach_of(y, g->stride, g->pad_h, g->dilation, g->kernel_h, g->in_h);
}
static reach reach_across(const geometry *g, i32 x) {
    return reach_of(x, g->stride, g->pad_w, g->dilation, g->kernel_w, g->in_w);
}

/* What one pixel counts in an average. */
INLINE float average_share(const geometry *g, i32 count_padding, i32 inside) {
    if (count_padding) inside = g->kernel_h * g->kernel_w;
    return inside ? 1.0f / inside : 0;
}

/* How a source is seen, as a constant for the inner loops. */
enum seen_as { SEEN_RAW, SEEN_SCALED, SEEN_RELU, SEEN_RELU6 };
INLINE enum seen_as seen_as(const fused_input *x) { return x->scale ? SEEN_SCALED + x->act : SEEN_RAW; }
INLINE vec see(vec v, vec scale, vec shift, const enum seen_as as) {
    return as == SEEN_RAW ? v : activate(v * scale + shift, as - SEEN_SCALED);
}

/* What one window reads: `row` and `column` are numbers from tap to tap; `from` is tap 0. */
typedef struct {
    const void *from;
    const float *scale, *shift;
    i64 row, column;
    i32 start_y, end_y, start_x, end_x, kernel_w;
} window;

/* NaN wins: a diverged run must show. Else the first of the largest. */
INLINE void compete(vec v, i32 tap, vec *best, ivec *who) {
    ivec better = v > *best || v != v;
    *best = better ? v : *best;
    *who = better ? (ivec)tap : *who;
}

/* `whole`: 3 or 2 for a window of that size with nothing outside, else 0. */
INLINE void max_of_window(const window *t, i32 c, i32 lanes, const enum seen_as as, const i32 dtype, const i32 whole, vec *best,
                          ivec *who) {
    vec scale = as == SEEN_RAW ? (vec)0 : load_lanes(t->scale + c, lanes);
    vec shift = as == SEEN_RAW ? (vec)0 : load_lanes(t->shift + c, lanes);
    const void *from = stored_at(t->from, c, dtype);
    *best = splat(-__builtin_inff());
    if (whole) {
        *who = 0;
        UNROLL for (i32 y = 0; y < whole; y++)
            UNROLL for (i32 x = 0; x < whole; x++)
                compete(see(load_stored(stored_at(from, y * t->row + x * t->column, dtype), LANES, dtype), scale, shift, as),
                        y * whole + x, best, who);
        return;
    }
    *who = (ivec)(t->start_y * t->kernel_w + t->start_x);
    for (i32 y = t->start_y; y < t->end_y; y++)
        for (i32 x = t->start_x; x < t->end_x; x++)
            compete(see(load_stored(stored_at(from, y * t->row + x * t->column, dtype), lanes, dtype), scale, shift, as),
                    y * t->kernel_w + x, best, who);
}

/* Where one pixel of the result goes. */
typedef struct {
    void *at;
    i32 dtype;
} pooled;

INLINE void max_pixel(const window *t, i32 channels, pooled y, u8 *argmax, const enum seen_as as, const i32 dtype, const i32 whole) {
    vec best;
    ivec who;
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) {
        max_of_window(t, c, LANES, as, dtype, whole, &best, &who);
        store_stored(stored_at(y.at, c, y.dtype), best, LANES, y.dtype);
        if (argmax) store_winners(argmax + c, who, LANES);
    }
    if (c == channels) return;
    max_of_window(t, c, channels - c, as, dtype, 0, &best, &who);
    store_stored(stored_at(y.at, c, y.dtype), best, channels - c, y.dtype);
    if (argmax) store_winners(argmax + c, who, channels - c);
}

INLINE void average_some(const window *t, i32 c, float share, pooled y, const enum seen_as as, const i32 dtype, const i32 count,
                         i32 lanes) {
    vec sums[POOL_AT_ONCE], scale[POOL_AT_ONCE], shift[POOL_AT_ONCE];
    UNROLL for (i32 i = 0; i < count; i++) {
        sums[i] = 0;
        scale[i] = as == SEEN_RAW ? (vec)0 : load_lanes(t->scale + c + i * LANES, lanes);
        shift[i] = as == SEEN_RAW ? (vec)0 : load_lanes(t->shift + c + i * LANES, lanes);
    }
    for (i32 ky = t->start_y; ky < t->end_y; ky++)
        for (i32 kx = t->start_x; kx < t->end_x; kx++) {
            const void *from = stored_at(t->from, ky * t->row + kx * t->column + c, dtype);
            UNROLL for (i32 i = 0; i < count; i++)
                sums[i] += see(load_stored(stored_at(from, i * LANES, dtype), lanes, dtype), scale[i], shift[i], as);
        }
    UNROLL for (i32 i = 0; i < count; i++)
        store_stored(stored_at(y.at, c + i * LANES, y.dtype), sums[i] * share, lanes, y.dtype);
}

INLINE void average_pixel(const window *t, float share, i32 channels, pooled y, const enum seen_as as, const i32 dtype) {
    i32 c = 0;
    for (; c + POOL_AT_ONCE * LANES <= channels; c += POOL_AT_ONCE * LANES)
        average_some(t, c, share, y, as, dtype, POOL_AT_ONCE, LANES);
    for (; c + LANES <= channels; c += LANES) average_some(t, c, share, y, as, dtype, 1, LANES);
    if (c < channels) average_some(t, c, share, y, as, dtype, 1, channels - c);
}

/* One row of outputs, channels c0 .. */
INLINE void pool_row(const pooling_forward *op, const reach *columns, i64 row, i32 c0, i32 channels, const enum seen_as as,
                     const i32 dtype) {
    const geometry *g = &op->g;
    const fused_input *x = &op->x;
    reach down = reach_down(g, (i32)(row % g->out_h));
    const void *line = stored_at(x->data, (row / g->out_h * g->in_h + down.first) * g->in_w * x->ld + c0, dtype);
    window t = {.scale = x->scale + c0, .shift = x->shift + c0, .start_y = down.start, .end_y = down.end, .kernel_w = g->kernel_w};
    t.column = (i64)g->dilation * x->ld;
    t.row = t.column * g->in_w;
    for (i32 i = 0; i < g->out_w; i++) {
        i64 pixel = row * g->out_w + i;
        pooled y = {stored_at(op->y, pixel * op->ld_y + c0, op->dtype), op->dtype};
        t.from = stored_at(line, (i64)columns[i].first * x->ld, dtype);
        t.start_x = columns[i].start, t.end_x = columns[i].end;
        i32 height = t.end_y - t.start_y, width = t.end_x - t.start_x;
        if (op->pooling == POOLING_AVERAGE) {
            average_pixel(&t, average_share(g, op->count_padding, height * width), channels, y, as, dtype);
            continue;
        }
        u8 *argmax = op->argmax ? op->argmax + pixel * g->out_c + c0 : 0;
        i32 inside = height == g->kernel_h && width == g->kernel_w && height == width;
        if (inside && width == 3) max_pixel(&t, channels, y, argmax, as, dtype, 3);
        else if (inside && width == 2) max_pixel(&t, channels, y, argmax, as, dtype, 2);
        else max_pixel(&t, channels, y, argmax, as, dtype, 0);
    }
}

/* Rows by channels, cut into pieces: the channels only where there are few rows (a global pool) or very many channels. */
typedef struct {
    i64 chunk, chunks;
    i32 block, blocks;
} cutting;

static cutting cut_rows(i64 rows, i32 channels, i32 threads, i32 most) {
    cutting k;
    i64 wanted = (i64)threads * POOL_TILES_A_THREAD;
    k.chunk = CEIL_DIV(rows, wanted);
    k.chunks = CEIL_DIV(rows, k.chunk);
    i64 blocks = MAX(CEIL_DIV(channels, most), MIN(CEIL_DIV(wanted, k.chunks), CEIL_DIV(channels, POOL_LEAST_BLOCK)));
    k.block = ROUND_UP(CEIL_DIV(channels, (i32)blocks), LANES);
    k.blocks = CEIL_DIV(channels, k.block);
    return k;
}

static void pool_rows(const pooling_forward *op, const reach *columns, i64 start, i64 end, i32 c0, i32 channels) {
    enum { HALVES = 8 };
    enum seen_as as = seen_as(&op->x);
    for (i64 row = start; row < end; row++) switch (as + (op->x.dtype == FP16 ? HALVES : 0)) {
            case SEEN_RAW: pool_row(op, columns, row, c0, channels, SEEN_RAW, FP32); break;
            case SEEN_SCALED: pool_row(op, columns, row, c0, channels, SEEN_SCALED, FP32); break;
            case SEEN_RELU: pool_row(op, columns, row, c0, channels, SEEN_RELU, FP32); break;
            case SEEN_RELU6: pool_row(op, columns, row, c0, channels, SEEN_RELU6, FP32); break;
            case HALVES + SEEN_RELU: pool_row(op, columns, row, c0, channels, SEEN_RELU, FP16); break;
            default: pool_row(op, columns, row, c0, channels, as, FP16);
        }
}

static i64 columns_bytes(i32 columns) { return ROUND_UP(columns * (i64)sizeof(reach), 64); }

static void run_pooling_forward(worker *w, const void *p) {
    const pooling_forward *op = p;
    const geometry *g = &op->g;
    reach *columns = (reach *)(w->workspace + w->index * columns_bytes(g->out_w));
    for (i32 x = 0; x < g->out_w; x++) columns[x] = reach_across(g, x);
    i64 rows = (i64)g->batch * g->out_h;
    cutting k = cut_rows(rows, g->out_c, w->threads, g->out_c);
    for (i64 tile = take(w); tile < k.chunks * k.blocks; tile = take(w)) {
        i64 start = tile / k.blocks * k.chunk, end = MIN(rows, start + k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block;
        pool_rows(op, columns, start, end, c0, MIN(k.block, g->out_c - c0));
    }
}

static i64 workspace_pooling_forward(i32 threads, const void *p) { return threads * columns_bytes(((const pooling_forward *)p)->g.out_w); }

/* Along one axis: the outputs whose windows may cover an input coordinate. */
typedef struct {
    i32 start, end;
} cover;

static cover cover_of(i32 at, i32 pad, i32 kernel, i32 dilation, i32 stride, i32 outputs) {
    i32 last = at + pad, first = last - (kernel - 1) * dilation;
    return (cover){first <= 0 ? 0 : CEIL_DIV(first, stride), MIN(outputs, last / stride + 1)};
}

/* The tap through which output `out` sees input `at`, or -1. */
INLINE i32 tap_between(i32 at, i32 out, i32 pad, i32 dilation, i32 stride) {
    i32 distance = at + pad - out * stride;
    return dilation == 1 ? distance : distance % dilation ? -1 : distance / dilation;
}

/* One output that saw the pixel: what it passes back where it has won, or its share of an average. */
typedef struct {
    const float *dy;
    const u8 *argmax;
    i32 tap;
    float share;
} visitor;

enum { VISITORS = 16 };

INLINE vec gather_vector(const visitor *from, i32 count, i32 c, i32 lanes, const enum pooling pooling) {
    vec sum = 0;
    for (i32 i = 0; i < count; i++) {
        vec g = load_lanes(from[i].dy + c, lanes);
        if (pooling == POOLING_AVERAGE) sum += g * from[i].share;
        else sum += load_winners(from[i].argmax + c, lanes) == from[i].tap ? g : (vec)0;
    }
    return sum;
}

/* count: a constant where it is small, so that nothing is left of the loop over visitors. */
INLINE void gather_channels(const visitor *from, i32 count, i32 channels, float *to, i32 more, const enum pooling pooling) {
    for (i32 c = 0; c + LANES <= channels; c += LANES)
        store(to + c, gather_vector(from, count, c, LANES, pooling) + (more ? load(to + c) : (vec)0));
    i32 tail = channels % LANES, c = channels - tail;
    if (tail) store(to + c, gather_vector(from, count, c, tail, pooling) + (more ? load(to + c) : (vec)0));
}

INLINE void gather_counted(const visitor *from, i32 count, i32 channels, float *to, i32 more, const enum pooling pooling) {
    if (count == 1) gather_channels(from, 1, channels, to, more, pooling);
    else if (count == 2) gather_channels(from, 2, channels, to, more, pooling);
    else if (count == 4) gather_channels(from, 4, channels, to, more, pooling);
    else gather_channels(from, count, channels, to, more, pooling);
}

static void gather_visitors(const pooling_backward *op, const visitor *from, i32 count, i32 channels, float *to, i32 more) {
    if (op->pooling == POOLING_MAX) gather_counted(from, count, channels, to, more, POOLING_MAX);
    else gather_counted(from, count, channels, to, more, POOLING_AVERAGE);
}

/* Where in the image a row of pixels is, and who may have seen each column. */
typedef struct {
    i64 image;
    i32 y;
    cover down;
    const cover *across;
} place;

/* The gradient of pixel x of a row, channels c0 .., to `to` (padded to whole vectors). */
static void gather_gradient(const pooling_backward *op, const place *at, i32 x, i32 c0, i32 channels, float *to) {
    const geometry *g = &op->g;
    visitor visitors[VISITORS];
    i32 count = 0, more = 0;
    cover across = at->across[x];
    for (i32 oy = at->down.start; oy < at->down.end; oy++) {
        i32 tap_y = tap_between(at->y, oy, g->pad_h, g->dilation, g->stride);
        if (tap_y < 0) continue;
        for (i32 ox = across.start; ox < across.end; ox++) {
            i32 tap_x = tap_between(x, ox, g->pad_w, g->dilation, g->stride);
            if (tap_x < 0) continue;
            i64 pixel = (at->image * g->out_h + oy) * g->out_w + ox;
            visitor *v = &visitors[count++];
            v->dy = op->dy + pixel * op->ld_dy + c0;
            if (op->pooling == POOLING_MAX) {
                v->argmax = op->argmax + pixel * g->out_c + c0;
                v->tap = tap_y * g->kernel_w + tap_x;
            } else if (op->count_padding) {
                v->share = average_share(g, 1, 0);
            } else {
                reach down = reach_down(g, oy), wide = reach_across(g, ox);
                v->share = average_share(g, 0, (down.end - down.start) * (wide.end - wide.start));
            }
            if (count < VISITORS) continue;
            gather_visitors(op, visitors, count, channels, to, more);
            count = 0, more = 1;
        }
    }
    if (count || !more) gather_visitors(op, visitors, count, channels, to, more);
}

/* What a thread keeps: a tile of gradients on their way to the sink, their pixels' numbers, and the covers of a row's columns. */
typedef struct {
    float *tile;
    cover *across;
    i32 ld;
} pool_scratch;

static cutting cut_backward(const geometry *g, i32 threads) {
    return cut_rows((i64)g->batch * g->in_h, g->in_c, threads, POOL_BLOCK);
}
static i64 pool_tile_bytes(const cutting *k) { return (i64)POOL_PIXELS * k->block * 4; }
static i64 pool_scratch_bytes(const cutting *k, const geometry *g) {
    return pool_tile_bytes(k) + ROUND_UP(g->in_w * (i64)sizeof(cover), 64);
}

static void unpool_row(const pooling_backward *op, const worker *w, const pool_scratch *b, i64 row, i32 c0, i32 channels) {
    const geometry *g = &op->g;
    i32 y = (i32)(row % g->in_h);
    place at = {row / g->in_h, y, cover_of(y, g->pad_h, g->kernel_h, g->dilation, g->stride, g->out_h), b->across};
    i64 pixels[POOL_PIXELS];
    for (i32 x = 0; x < g->in_w; x += POOL_PIXELS) {
        i32 count = MIN(POOL_PIXELS, g->in_w - x);
        for (i32 i = 0; i < count; i++) {
            pixels[i] = row * g->in_w + x + i;
            gather_gradient(op, &at, x + i, c0, channels, b->tile + (i64)i * b->ld);
        }
        sink_tile(&op->dx, w, b->tile, b->ld, pixels, count, c0, channels);
    }
}

static void run_pooling_backward(worker *w, const void *p) {
    const pooling_backward *op = p;
    const geometry *g = &op->g;
    cutting k = cut_backward(g, w->threads);
    char *own = w->workspace + w->index * pool_scratch_bytes(&k, g);
    pool_scratch b = {(float *)own, (cover *)(own + pool_tile_bytes(&k)), k.block};
    for (i32 x = 0; x < g->in_w; x++) b.across[x] = cover_of(x, g->pad_w, g->kernel_w, g->dilation, g->stride, g->out_w);
    i64 rows = (i64)g->batch * g->in_h;
    if (op->dx.norm) norm_begin(op->dx.norm, w);
    for (i64 tile = take(w); tile < k.chunks * k.blocks; tile = take(w)) {
        i64 end = MIN(rows, (tile / k.blocks + 1) * k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block;
        for (i64 row = tile / k.blocks * k.chunk; row < end; row++)
            unpool_row(op, w, &b, row, c0, MIN(k.block, g->in_c - c0));
    }
}

static i64 workspace_pooling_backward(i32 threads, const void *p) {
    const geometry *g = &((const pooling_backward *)p)->g;
    cutting k = cut_backward(g, threads);
    return threads * pool_scratch_bytes(&k, g);
}
