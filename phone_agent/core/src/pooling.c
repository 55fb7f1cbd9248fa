/* Pooling, one vector of channels at a time. Forward: a window is clipped to the image. Backward: each input pixel
 * gathers from the windows that cover it, so it is written once, and by one thread. */

enum {
    POOLING_TILES_PER_THREAD = 16,
    POOLING_PIXELS = 16,
    POOLING_MAX_BLOCK = 512,
    POOLING_VECTORS = 4,
    POOLING_MIN_BLOCK = 4 * LANES
};

typedef u8 u8_vec __attribute__((ext_vector_type(LANES)));
typedef u8 unaligned_u8_vec __attribute__((ext_vector_type(LANES), aligned(1)));

INLINE ivec load_argmax(const u8 *p, i32 lanes) {
    if (lanes == LANES) return __builtin_convertvector(*(const unaligned_u8_vec *)p, ivec);
    ivec v = 0;
    for (i32 i = 0; i < lanes; i++) v[i] = p[i];
    return v;
}
INLINE void store_argmax(u8 *p, ivec v, i32 lanes) {
    if (lanes == LANES) {
        *(unaligned_u8_vec *)p = __builtin_convertvector(v, u8_vec);
        return;
    }
    for (i32 i = 0; i < lanes; i++) p[i] = (u8)v[i];
}

/* Along one axis: the taps start .. end - 1 of a window that lie inside the image, and the input coordinate of tap
 * 0. */
typedef struct {
    i32 first, start, end;
} tap_range;

static tap_range tap_range_of(i32 out, i32 stride, i32 pad, i32 dilation, i32 kernel, i32 size) {
    i32 first = out * stride - pad, start = first >= 0 ? 0 : MIN(kernel, CEIL_DIV(-first, dilation));
    i32 end = first >= size ? start : MIN(kernel, CEIL_DIV(size - first, dilation));
    return (tap_range){first, start, MAX(start, end)};
}
static tap_range tap_range_h(const geometry *g, i32 y) {
    return tap_range_of(y, g->stride, g->pad_h, g->dilation, g->kernel_h, g->in_h);
}
static tap_range tap_range_w(const geometry *g, i32 x) {
    return tap_range_of(x, g->stride, g->pad_w, g->dilation, g->kernel_w, g->in_w);
}

/* The weight of one pixel in an average. */
INLINE float average_weight(const geometry *g, i32 count_padding, i32 inside) {
    if (count_padding) inside = g->kernel_h * g->kernel_w;
    return inside ? 1.0f / inside : 0;
}

/* The operation fused into the load, as a constant for the inner loops. */
enum input_mode { INPUT_IDENTITY, INPUT_AFFINE, INPUT_RELU, INPUT_RELU6 };
INLINE enum input_mode input_mode_of(const fused_input *x) { return x->scale ? INPUT_AFFINE + x->act : INPUT_IDENTITY; }
INLINE vec apply_affine(vec v, vec scale, vec shift, const enum input_mode mode) {
    return mode == INPUT_IDENTITY ? v : activate(v * scale + shift, mode - INPUT_AFFINE);
}

/* The input of one window: `row` and `column` are elements between taps; `from` is tap 0. */
typedef struct {
    const void *from;
    const float *scale, *shift;
    i64 row, column;
    i32 start_y, end_y, start_x, end_x, kernel_w;
} pooling_window;

/* NaN wins, so that a diverged run is noticed. Otherwise the first of the largest values. */
INLINE void update_max(vec v, i32 tap, vec *best, ivec *best_tap) {
    ivec better = v > *best || v != v;
    *best = better ? v : *best;
    *best_tap = better ? (ivec)tap : *best_tap;
}

/* `full_size`: 3 or 2 for a window of that size inside the image, otherwise 0. */
INLINE void max_of_window(const pooling_window *t, i32 c, i32 lanes, const enum input_mode mode, const i32 dtype,
                          const i32 full_size, vec *best, ivec *best_tap) {
    vec scale = mode == INPUT_IDENTITY ? (vec)0 : load_lanes(t->scale + c, lanes);
    vec shift = mode == INPUT_IDENTITY ? (vec)0 : load_lanes(t->shift + c, lanes);
    const void *from = element_at(t->from, c, dtype);
    *best = splat(-__builtin_inff());
    if (full_size) {
        *best_tap = 0;
        UNROLL for (i32 y = 0; y < full_size; y++) UNROLL for (i32 x = 0; x < full_size; x++)
            update_max(apply_affine(load_as_fp32(element_at(from, y * t->row + x * t->column, dtype), LANES, dtype),
                                    scale, shift, mode),
                       y * full_size + x, best, best_tap);
        return;
    }
    *best_tap = (ivec)(t->start_y * t->kernel_w + t->start_x);
    for (i32 y = t->start_y; y < t->end_y; y++)
        for (i32 x = t->start_x; x < t->end_x; x++)
            update_max(apply_affine(load_as_fp32(element_at(from, y * t->row + x * t->column, dtype), lanes, dtype),
                                    scale, shift, mode),
                       y * t->kernel_w + x, best, best_tap);
}

/* One output pixel. */
typedef struct {
    void *at;
    i32 dtype;
} output_pixel;

INLINE void max_pixel(const pooling_window *t, i32 channels, output_pixel y, u8 *argmax, const enum input_mode mode,
                      const i32 dtype, const i32 full_size) {
    vec best;
    ivec best_tap;
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) {
        max_of_window(t, c, LANES, mode, dtype, full_size, &best, &best_tap);
        store_from_fp32(element_at(y.at, c, y.dtype), best, LANES, y.dtype);
        if (argmax) store_argmax(argmax + c, best_tap, LANES);
    }
    if (c == channels) return;
    max_of_window(t, c, channels - c, mode, dtype, 0, &best, &best_tap);
    store_from_fp32(element_at(y.at, c, y.dtype), best, channels - c, y.dtype);
    if (argmax) store_argmax(argmax + c, best_tap, channels - c);
}

INLINE void average_vectors(const pooling_window *t, i32 c, float weight, output_pixel y, const enum input_mode mode,
                            const i32 dtype, const i32 count, i32 lanes) {
    vec sums[POOLING_VECTORS], scale[POOLING_VECTORS], shift[POOLING_VECTORS];
    UNROLL for (i32 i = 0; i < count; i++) {
        sums[i] = 0;
        scale[i] = mode == INPUT_IDENTITY ? (vec)0 : load_lanes(t->scale + c + i * LANES, lanes);
        shift[i] = mode == INPUT_IDENTITY ? (vec)0 : load_lanes(t->shift + c + i * LANES, lanes);
    }
    for (i32 ky = t->start_y; ky < t->end_y; ky++)
        for (i32 kx = t->start_x; kx < t->end_x; kx++) {
            const void *from = element_at(t->from, ky * t->row + kx * t->column + c, dtype);
            UNROLL for (i32 i = 0; i < count; i++) sums[i] +=
                apply_affine(load_as_fp32(element_at(from, i * LANES, dtype), lanes, dtype), scale[i], shift[i], mode);
        }
    UNROLL for (i32 i = 0; i < count; i++)
        store_from_fp32(element_at(y.at, c + i * LANES, y.dtype), sums[i] * weight, lanes, y.dtype);
}

INLINE void average_pixel(const pooling_window *t, float weight, i32 channels, output_pixel y,
                          const enum input_mode mode, const i32 dtype) {
    i32 c = 0;
    for (; c + POOLING_VECTORS * LANES <= channels; c += POOLING_VECTORS * LANES)
        average_vectors(t, c, weight, y, mode, dtype, POOLING_VECTORS, LANES);
    for (; c + LANES <= channels; c += LANES) average_vectors(t, c, weight, y, mode, dtype, 1, LANES);
    if (c < channels) average_vectors(t, c, weight, y, mode, dtype, 1, channels - c);
}

/* One row of outputs, channels c0 .. */
INLINE void pooling_row(const pooling_forward *op, const tap_range *columns, i64 row, i32 c0, i32 channels,
                        const enum input_mode mode, const i32 dtype) {
    const geometry *g = &op->g;
    const fused_input *x = &op->x;
    tap_range down = tap_range_h(g, (i32)(row % g->out_h));
    const void *line = element_at(x->data, (row / g->out_h * g->in_h + down.first) * g->in_w * x->ld + c0, dtype);
    pooling_window t = {.scale = x->scale + c0,
                        .shift = x->shift + c0,
                        .start_y = down.start,
                        .end_y = down.end,
                        .kernel_w = g->kernel_w};
    t.column = (i64)g->dilation * x->ld;
    t.row = t.column * g->in_w;
    for (i32 i = 0; i < g->out_w; i++) {
        i64 pixel = row * g->out_w + i;
        output_pixel y = {element_at(op->y, pixel * op->ld_y + c0, op->dtype), op->dtype};
        t.from = element_at(line, (i64)columns[i].first * x->ld, dtype);
        t.start_x = columns[i].start, t.end_x = columns[i].end;
        i32 height = t.end_y - t.start_y, width = t.end_x - t.start_x;
        if (op->pooling == POOLING_AVERAGE) {
            average_pixel(&t, average_weight(g, op->count_padding, height * width), channels, y, mode, dtype);
            continue;
        }
        u8 *argmax = op->argmax ? op->argmax + pixel * g->out_c + c0 : 0;
        i32 inside = height == g->kernel_h && width == g->kernel_w && height == width;
        if (inside && width == 3) max_pixel(&t, channels, y, argmax, mode, dtype, 3);
        else if (inside && width == 2) max_pixel(&t, channels, y, argmax, mode, dtype, 2);
        else max_pixel(&t, channels, y, argmax, mode, dtype, 0);
    }
}

/* Tiles of rows x channels. The channels are cut only if there are few rows (global pooling) or very many channels. */
typedef struct {
    i64 chunk, chunks;
    i32 block, blocks;
} row_tiling;

static row_tiling tile_rows(i64 rows, i32 channels, i32 threads, i32 max_block) {
    row_tiling k;
    i64 target_tiles = (i64)threads * POOLING_TILES_PER_THREAD;
    k.chunk = CEIL_DIV(rows, target_tiles);
    k.chunks = CEIL_DIV(rows, k.chunk);
    i64 blocks = MAX(CEIL_DIV(channels, max_block),
                     MIN(CEIL_DIV(target_tiles, k.chunks), CEIL_DIV(channels, POOLING_MIN_BLOCK)));
    k.block = ROUND_UP(CEIL_DIV(channels, (i32)blocks), LANES);
    k.blocks = CEIL_DIV(channels, k.block);
    return k;
}

static void pooling_rows(const pooling_forward *op, const tap_range *columns, i64 start, i64 end, i32 c0,
                         i32 channels) {
    enum { FP16_MODES = 8 };
    enum input_mode mode = input_mode_of(&op->x);
    for (i64 row = start; row < end; row++) switch (mode + (op->x.dtype == FP16 ? FP16_MODES : 0)) {
        case INPUT_IDENTITY: pooling_row(op, columns, row, c0, channels, INPUT_IDENTITY, FP32); break;
        case INPUT_AFFINE: pooling_row(op, columns, row, c0, channels, INPUT_AFFINE, FP32); break;
        case INPUT_RELU: pooling_row(op, columns, row, c0, channels, INPUT_RELU, FP32); break;
        case INPUT_RELU6: pooling_row(op, columns, row, c0, channels, INPUT_RELU6, FP32); break;
        case FP16_MODES + INPUT_RELU: pooling_row(op, columns, row, c0, channels, INPUT_RELU, FP16); break;
        default: pooling_row(op, columns, row, c0, channels, mode, FP16);
        }
}

static i64 columns_bytes(i32 columns) { return ROUND_UP(columns * (i64)sizeof(tap_range), 64); }

static void run_pooling_forward(worker *w, const void *p) {
    const pooling_forward *op = p;
    const geometry *g = &op->g;
    tap_range *columns = (tap_range *)(w->workspace + w->index * columns_bytes(g->out_w));
    for (i32 x = 0; x < g->out_w; x++) columns[x] = tap_range_w(g, x);
    i64 rows = (i64)g->batch * g->out_h;
    row_tiling k = tile_rows(rows, g->out_c, w->threads, g->out_c);
    for (i64 tile = next_tile(w); tile < k.chunks * k.blocks; tile = next_tile(w)) {
        i64 start = tile / k.blocks * k.chunk, end = MIN(rows, start + k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block;
        pooling_rows(op, columns, start, end, c0, MIN(k.block, g->out_c - c0));
    }
}

static i64 workspace_pooling_forward(i32 threads, const void *p) {
    return threads * columns_bytes(((const pooling_forward *)p)->g.out_w);
}

/* Along one axis: the outputs whose windows may cover an input coordinate. */
typedef struct {
    i32 start, end;
} output_range;

static output_range output_range_of(i32 at, i32 pad, i32 kernel, i32 dilation, i32 stride, i32 outputs) {
    i32 last = at + pad, first = last - (kernel - 1) * dilation;
    return (output_range){first <= 0 ? 0 : CEIL_DIV(first, stride), MIN(outputs, last / stride + 1)};
}

/* The tap with which output `out` reads input `at`, or -1. */
INLINE i32 tap_between(i32 at, i32 out, i32 pad, i32 dilation, i32 stride) {
    i32 distance = at + pad - out * stride;
    return dilation == 1 ? distance : distance % dilation ? -1 : distance / dilation;
}

/* The contribution of one output to the gradient of an input pixel: dy if this pixel was the maximum, or its weight
 * in an average. */
typedef struct {
    const float *dy;
    const u8 *argmax;
    i32 tap;
    float weight;
} contribution;

enum { MAX_CONTRIBUTIONS = 16 };

INLINE vec gather_vector(const contribution *from, i32 count, i32 c, i32 lanes, const enum pooling pooling) {
    vec sum = 0;
    for (i32 i = 0; i < count; i++) {
        vec g = load_lanes(from[i].dy + c, lanes);
        if (pooling == POOLING_AVERAGE) sum += g * from[i].weight;
        else sum += load_argmax(from[i].argmax + c, lanes) == from[i].tap ? g : (vec)0;
    }
    return sum;
}

/* `count` is a constant if it is small, so that the loop over contributions is unrolled. */
INLINE void gather_channels(const contribution *from, i32 count, i32 channels, float *to, i32 more,
                            const enum pooling pooling) {
    for (i32 c = 0; c + LANES <= channels; c += LANES)
        store(to + c, gather_vector(from, count, c, LANES, pooling) + (more ? load(to + c) : (vec)0));
    i32 tail = channels % LANES, c = channels - tail;
    if (tail) store(to + c, gather_vector(from, count, c, tail, pooling) + (more ? load(to + c) : (vec)0));
}

INLINE void gather_by_count(const contribution *from, i32 count, i32 channels, float *to, i32 more,
                            const enum pooling pooling) {
    if (count == 1) gather_channels(from, 1, channels, to, more, pooling);
    else if (count == 2) gather_channels(from, 2, channels, to, more, pooling);
    else if (count == 4) gather_channels(from, 4, channels, to, more, pooling);
    else gather_channels(from, count, channels, to, more, pooling);
}

static void gather_contributions(const pooling_backward *op, const contribution *from, i32 count, i32 channels,
                                 float *to, i32 more) {
    if (op->pooling == POOLING_MAX) gather_by_count(from, count, channels, to, more, POOLING_MAX);
    else gather_by_count(from, count, channels, to, more, POOLING_AVERAGE);
}

/* The position of a row of pixels, and the outputs that may cover each of its columns. */
typedef struct {
    i64 image;
    i32 y;
    output_range down;
    const output_range *across;
} pixel_row;

/* The gradient of pixel x of a row, channels c0 .., to `to` (padded to whole vectors). */
static void gather_gradient(const pooling_backward *op, const pixel_row *at, i32 x, i32 c0, i32 channels, float *to) {
    const geometry *g = &op->g;
    contribution contributions[MAX_CONTRIBUTIONS];
    i32 count = 0, more = 0;
    output_range across = at->across[x];
    for (i32 oy = at->down.start; oy < at->down.end; oy++) {
        i32 tap_y = tap_between(at->y, oy, g->pad_h, g->dilation, g->stride);
        if (tap_y < 0) continue;
        for (i32 ox = across.start; ox < across.end; ox++) {
            i32 tap_x = tap_between(x, ox, g->pad_w, g->dilation, g->stride);
            if (tap_x < 0) continue;
            i64 pixel = (at->image * g->out_h + oy) * g->out_w + ox;
            contribution *v = &contributions[count++];
            v->dy = op->dy + pixel * op->ld_dy + c0;
            if (op->pooling == POOLING_MAX) {
                v->argmax = op->argmax + pixel * g->out_c + c0;
                v->tap = tap_y * g->kernel_w + tap_x;
            } else if (op->count_padding) {
                v->weight = average_weight(g, 1, 0);
            } else {
                tap_range down = tap_range_h(g, oy), wide = tap_range_w(g, ox);
                v->weight = average_weight(g, 0, (down.end - down.start) * (wide.end - wide.start));
            }
            if (count < MAX_CONTRIBUTIONS) continue;
            gather_contributions(op, contributions, count, channels, to, more);
            count = 0, more = 1;
        }
    }
    if (count || !more) gather_contributions(op, contributions, count, channels, to, more);
}

/* The private memory of a thread: a tile of gradients, and the outputs that cover the columns of a row. */
typedef struct {
    float *tile;
    output_range *across;
    i32 ld;
} pooling_scratch;

static row_tiling tile_backward(const geometry *g, i32 threads) {
    return tile_rows((i64)g->batch * g->in_h, g->in_c, threads, POOLING_MAX_BLOCK);
}
static i64 pooling_tile_bytes(const row_tiling *k) { return (i64)POOLING_PIXELS * k->block * 4; }
static i64 pooling_scratch_bytes(const row_tiling *k, const geometry *g) {
    return pooling_tile_bytes(k) + ROUND_UP(g->in_w * (i64)sizeof(output_range), 64);
}

static void pooling_backward_row(const pooling_backward *op, const worker *w, const pooling_scratch *b, i64 row, i32 c0,
                                 i32 channels) {
    const geometry *g = &op->g;
    i32 y = (i32)(row % g->in_h);
    pixel_row at = {row / g->in_h, y, output_range_of(y, g->pad_h, g->kernel_h, g->dilation, g->stride, g->out_h),
                    b->across};
    i64 pixels[POOLING_PIXELS];
    for (i32 x = 0; x < g->in_w; x += POOLING_PIXELS) {
        i32 count = MIN(POOLING_PIXELS, g->in_w - x);
        for (i32 i = 0; i < count; i++) {
            pixels[i] = row * g->in_w + x + i;
            gather_gradient(op, &at, x + i, c0, channels, b->tile + (i64)i * b->ld);
        }
        store_gradient_tile(&op->dx, w, b->tile, b->ld, pixels, count, c0, channels);
    }
}

static void run_pooling_backward(worker *w, const void *p) {
    const pooling_backward *op = p;
    const geometry *g = &op->g;
    row_tiling k = tile_backward(g, w->threads);
    char *own = w->workspace + w->index * pooling_scratch_bytes(&k, g);
    pooling_scratch b = {(float *)own, (output_range *)(own + pooling_tile_bytes(&k)), k.block};
    for (i32 x = 0; x < g->in_w; x++)
        b.across[x] = output_range_of(x, g->pad_w, g->kernel_w, g->dilation, g->stride, g->out_w);
    i64 rows = (i64)g->batch * g->in_h;
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    for (i64 tile = next_tile(w); tile < k.chunks * k.blocks; tile = next_tile(w)) {
        i64 end = MIN(rows, (tile / k.blocks + 1) * k.chunk);
        i32 c0 = (i32)(tile % k.blocks) * k.block;
        for (i64 row = tile / k.blocks * k.chunk; row < end; row++)
            pooling_backward_row(op, w, &b, row, c0, MIN(k.block, g->in_c - c0));
    }
}

static i64 workspace_pooling_backward(i32 threads, const void *p) {
    const geometry *g = &((const pooling_backward *)p)->g;
    row_tiling k = tile_backward(g, threads);
    return threads * pooling_scratch_bytes(&k, g);
}
