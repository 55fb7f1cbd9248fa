/* Pooling, a vector of channels at a time. Forward, a window is cut to the part inside of the image. Backward, each input
 * pixel gathers from the windows that cover it, so it is written once, and by one thread. */

enum { POOL_TILES_A_THREAD = 8, POOL_TILE_FLOATS = 4096, POOL_BLOCK = 256, POOL_AT_ONCE = 4 };

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

/* The taps of one window that fall inside of the image: along each axis start .. end - 1. */
typedef struct {
    i32 top, left;                        /* input pixel of tap 0, 0 */
    i32 start_y, end_y, start_x, end_x;
} window;

INLINE i32 first_inside(i32 first, i32 dilation) { return first >= 0 ? 0 : CEIL_DIV(-first, dilation); }
INLINE i32 past_inside(i32 first, i32 dilation, i32 kernel, i32 size) {
    return size <= first ? 0 : MIN(kernel, CEIL_DIV(size - first, dilation));
}

static window window_at(const geometry *g, i32 y, i32 x) {
    window at = {.top = y * g->stride - g->pad_h, .left = x * g->stride - g->pad_w};
    at.start_y = first_inside(at.top, g->dilation);
    at.end_y = past_inside(at.top, g->dilation, g->kernel_h, g->in_h);
    at.start_x = first_inside(at.left, g->dilation);
    at.end_x = past_inside(at.left, g->dilation, g->kernel_w, g->in_w);
    return at;
}

INLINE float window_share(const geometry *g, const window *at, i32 count_padding) {
    i32 height = MAX(at->end_y - at->start_y, 0), width = MAX(at->end_x - at->start_x, 0);
    i32 count = count_padding ? g->kernel_h * g->kernel_w : height * width;
    return count ? 1.0f / count : 0;
}

/* How a source is seen, as a constant for the inner loops. */
enum seen_as { SEEN_RAW, SEEN_SCALED, SEEN_RELU, SEEN_RELU6 };
INLINE enum seen_as seen_as(const source *x) { return x->scale ? SEEN_SCALED + x->act : SEEN_RAW; }
INLINE vec see(vec v, vec scale, vec shift, const enum seen_as as) {
    return as == SEEN_RAW ? v : activate(v * scale + shift, as - SEEN_SCALED);
}

/* What one window reads: `row` and `column` are floats from tap to tap. */
typedef struct {
    const float *from, *scale, *shift;
    i64 row, column;
} taps_in;

INLINE void max_of_window(const taps_in *t, const window *at, i32 kernel_w, i32 c, i32 lanes, const enum seen_as as, vec *most,
                          ivec *winner) {
    vec scale = as == SEEN_RAW ? (vec)0 : load_lanes(t->scale + c, lanes);
    vec shift = as == SEEN_RAW ? (vec)0 : load_lanes(t->shift + c, lanes);
    vec best = splat(-__builtin_inff());
    ivec who = (ivec)(at->start_y * kernel_w + at->start_x);
    for (i32 y = at->start_y; y < at->end_y; y++) {
        const float *from = t->from + y * t->row + c;
        for (i32 x = at->start_x; x < at->end_x; x++) {
            vec v = see(load_lanes(from + x * t->column, lanes), scale, shift, as);
            ivec better = v > best || v != v; /* NaN wins: a diverged run must show */
            best = better ? v : best;
            who = better ? (ivec)(y * kernel_w + x) : who;
        }
    }
    *most = best;
    *winner = who;
}

INLINE void max_pixel(const taps_in *t, const window *at, i32 kernel_w, i32 channels, float *y, u8 *winner, const enum seen_as as) {
    vec most;
    ivec who;
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) {
        max_of_window(t, at, kernel_w, c, LANES, as, &most, &who);
        store(y + c, most);
        if (winner) store_winners(winner + c, who, LANES);
    }
    if (c == channels) return;
    max_of_window(t, at, kernel_w, c, channels - c, as, &most, &who);
    store_some(y + c, most, channels - c);
    if (winner) store_winners(winner + c, who, channels - c);
}

INLINE void average_pixel(const taps_in *t, const window *at, float share, i32 channels, float *y, const enum seen_as as) {
    for (i32 c = 0; c < channels; c += LANES * POOL_AT_ONCE) {
        vec sums[POOL_AT_ONCE], scale[POOL_AT_ONCE], shift[POOL_AT_ONCE];
        i32 lanes[POOL_AT_ONCE];
        i32 whole = c + LANES * POOL_AT_ONCE <= channels;
        UNROLL for (i32 i = 0; i < POOL_AT_ONCE; i++) {
            lanes[i] = whole ? LANES : MAX(0, MIN(LANES, channels - c - i * LANES));
            sums[i] = 0;
            scale[i] = as == SEEN_RAW ? (vec)0 : load_lanes(t->scale + c + i * LANES, lanes[i]);
            shift[i] = as == SEEN_RAW ? (vec)0 : load_lanes(t->shift + c + i * LANES, lanes[i]);
        }
        for (i32 ky = at->start_y; ky < at->end_y; ky++)
            for (i32 kx = at->start_x; kx < at->end_x; kx++) {
                const float *from = t->from + ky * t->row + kx * t->column + c;
                if (whole)
                    UNROLL for (i32 i = 0; i < POOL_AT_ONCE; i++) sums[i] += see(load(from + i * LANES), scale[i], shift[i], as);
                else
                    UNROLL for (i32 i = 0; i < POOL_AT_ONCE; i++)
                        sums[i] += see(load_some(from + i * LANES, lanes[i]), scale[i], shift[i], as);
            }
        UNROLL for (i32 i = 0; i < POOL_AT_ONCE; i++) store_lanes(y + c + i * LANES, sums[i] * share, lanes[i]);
    }
}

/* Output pixels start .. end - 1 (counted over the batch), channels c0 .. */
INLINE void pool_pixels(const pool_forward *op, i64 start, i64 end, i32 c0, i32 channels, const enum seen_as as) {
    const geometry *g = &op->g;
    const source *x = &op->x;
    taps_in t = {.scale = x->scale + c0, .shift = x->shift + c0};
    t.column = (i64)g->dilation * x->ld;
    t.row = t.column * g->in_w;
    for (i64 pixel = start; pixel < end; pixel++) {
        i64 image = pixel / (g->out_h * g->out_w);
        window at = window_at(g, (i32)(pixel / g->out_w % g->out_h), (i32)(pixel % g->out_w));
        t.from = x->data + ((image * g->in_h + at.top) * g->in_w + at.left) * x->ld + c0;
        float *y = op->y + pixel * op->ld_y + c0;
        u8 *winner = op->winner ? op->winner + pixel * g->out_c + c0 : 0;
        if (op->pooling == POOL_MAX) max_pixel(&t, &at, g->kernel_w, channels, y, winner, as);
        else average_pixel(&t, &at, window_share(g, &at, op->count_padding), channels, y, as);
    }
}

/* `pixels` by `channels`, cut into pieces: the channels only where there are few pixels (a global pool). */
typedef struct {
    i64 chunk, chunks;
    i32 block, blocks;
} cutting;

static cutting cut_pixels(i64 pixels, i32 channels, i32 threads, i32 most) {
    cutting k;
    i64 wanted = (i64)threads * POOL_TILES_A_THREAD;
    k.chunk = MIN(CEIL_DIV(pixels, wanted), most);
    k.chunks = CEIL_DIV(pixels, k.chunk);
    k.block = k.chunks >= wanted ? channels : MIN(channels, MAX(ROUND_UP(channels / 8, 4 * LANES), 4 * LANES));
    k.blocks = CEIL_DIV(channels, k.block);
    return k;
}

static void run_pool_forward(worker *w, const void *p) {
    const pool_forward *op = p;
    i64 pixels = (i64)op->g.batch * op->g.out_h * op->g.out_w;
    cutting k = cut_pixels(pixels, op->g.out_c, w->threads, 1 << 30);
    for (i64 tile = take(w); tile < k.chunks * k.blocks; tile = take(w)) {
        i64 start = tile / k.blocks * k.chunk, end = MIN(pixels, start + k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block, channels = MIN(k.block, op->g.out_c - c0);
        switch (seen_as(&op->x)) {
            case SEEN_RAW: pool_pixels(op, start, end, c0, channels, SEEN_RAW); break;
            case SEEN_SCALED: pool_pixels(op, start, end, c0, channels, SEEN_SCALED); break;
            case SEEN_RELU: pool_pixels(op, start, end, c0, channels, SEEN_RELU); break;
            case SEEN_RELU6: pool_pixels(op, start, end, c0, channels, SEEN_RELU6); break;
        }
    }
}

static i64 workspace_pool_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

/* The outputs whose windows may cover an input coordinate. */
typedef struct {
    i32 start, end;
} span;

INLINE span outputs_over(i32 at, i32 pad, i32 kernel, i32 dilation, i32 stride, i32 outputs) {
    i32 last = at + pad, first = last - (kernel - 1) * dilation;
    return (span){first <= 0 ? 0 : CEIL_DIV(first, stride), MIN(outputs, last / stride + 1)};
}

/* The tap through which output `out` sees input `at`, or -1. */
INLINE i32 tap_between(i32 at, i32 out, i32 pad, i32 dilation, i32 stride) {
    i32 distance = at + pad - out * stride;
    return dilation == 1 ? distance : distance % dilation ? -1 : distance / dilation;
}

INLINE void add_won(const float *dy, const u8 *winner, i32 tap, i32 channels, float *to) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES)
        store(to + c, load(to + c) + (load_winners(winner + c, LANES) == tap ? load(dy + c) : (vec)0));
    if (c == channels) return;
    i32 n = channels - c;
    store(to + c, load(to + c) + (load_winners(winner + c, n) == tap ? load_some(dy + c, n) : (vec)0));
}

INLINE void add_share(const float *dy, float share, i32 channels, float *to) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) store(to + c, load(to + c) + load(dy + c) * share);
    if (c < channels) store(to + c, load(to + c) + load_some(dy + c, channels - c) * share);
}

/* The gradient of input pixel (y, x) of an image, channels c0 .., to `to` (padded to whole vectors). */
static void gather_gradient(const pool_backward *op, i64 image, i32 y, i32 x, i32 c0, i32 channels, float *to) {
    const geometry *g = &op->g;
    span ys = outputs_over(y, g->pad_h, g->kernel_h, g->dilation, g->stride, g->out_h);
    span xs = outputs_over(x, g->pad_w, g->kernel_w, g->dilation, g->stride, g->out_w);
    zero_row(to, ROUND_UP(channels, LANES));
    for (i32 oy = ys.start; oy < ys.end; oy++) {
        i32 tap_y = tap_between(y, oy, g->pad_h, g->dilation, g->stride);
        if (tap_y < 0) continue;
        for (i32 ox = xs.start; ox < xs.end; ox++) {
            i32 tap_x = tap_between(x, ox, g->pad_w, g->dilation, g->stride);
            if (tap_x < 0) continue;
            i64 pixel = (image * g->out_h + oy) * g->out_w + ox;
            const float *dy = op->dy + pixel * op->ld_dy + c0;
            if (op->pooling == POOL_MAX) {
                add_won(dy, op->winner + pixel * g->out_c + c0, tap_y * g->kernel_w + tap_x, channels, to);
            } else {
                window at = window_at(g, oy, ox);
                add_share(dy, window_share(g, &at, op->count_padding), channels, to);
            }
        }
    }
}

static cutting cut_backward(const geometry *g, i32 threads) {
    i64 pixels = (i64)g->batch * g->in_h * g->in_w;
    i32 block = MIN(g->in_c, POOL_BLOCK);
    cutting k = cut_pixels(pixels, g->in_c, threads, MAX(1, POOL_TILE_FLOATS / ROUND_UP(block, LANES)));
    k.block = block;
    k.blocks = CEIL_DIV(g->in_c, block);
    return k;
}

static i64 pool_tile_bytes(const cutting *k) { return ROUND_UP(k->chunk * (ROUND_UP(k->block, LANES) * 4 + 8), 64); }

static void run_pool_backward(worker *w, const void *p) {
    const pool_backward *op = p;
    const geometry *g = &op->g;
    cutting k = cut_backward(g, w->threads);
    i64 *rows = (i64 *)(w->workspace + w->index * pool_tile_bytes(&k));
    float *tile_of = (float *)(rows + k.chunk);
    i32 ld = ROUND_UP(k.block, LANES);
    i64 pixels = (i64)g->batch * g->in_h * g->in_w;
    if (op->dx.norm) norm_begin(op->dx.norm, w);
    for (i64 tile = take(w); tile < k.chunks * k.blocks; tile = take(w)) {
        i64 start = tile / k.blocks * k.chunk, end = MIN(pixels, start + k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block, channels = MIN(k.block, g->in_c - c0);
        for (i64 pixel = start; pixel < end; pixel++) {
            rows[pixel - start] = pixel;
            gather_gradient(op, pixel / (g->in_h * g->in_w), (i32)(pixel / g->in_w % g->in_h), (i32)(pixel % g->in_w), c0,
                            channels, tile_of + (pixel - start) * ld);
        }
        sink_tile(&op->dx, w, tile_of, ld, rows, (i32)(end - start), c0, channels);
    }
}

static i64 workspace_pool_backward(i32 threads, const void *p) {
    cutting k = cut_backward(&((const pool_backward *)p)->g, threads);
    return threads * pool_tile_bytes(&k);
}
