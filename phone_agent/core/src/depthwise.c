/* Depthwise convolution: each channel by itself. Bandwidth decides here, so everything is read once and written once.
 *
 * A thread walks down a band of rows with a window of input rows: copied once, seen through the source, padded with zeros on all
 * sides, and laid out one vector of channels after the other (so there are no edges and no tails in the arithmetic, and all
 * loads there are next to each other). Where it pays, several output rows are made in a pass, because each pass ends in sums.
 *
 * Forward and backward are the same walk. Backward, output pixels of one remainder by the stride (a phase) all
 * meet the same taps, and along a phase dy is walked one by one. */

/* Outputs whose sums are in registers together. Pixel counts of common maps are multiples of it. */
enum { STRIP = 7 };
enum { WINDOW_FLOATS = 32 * 1024, PASS_PIXELS = 256, BLOCK_CHANNELS = 128, TILES_A_THREAD = 16 };

/* The taps an output coordinate meets along one axis: output j of a phase meets input j * step + first + k * gap through tap
 * tap + k * next, for k in 0 .. count - 1. */
typedef struct {
    i32 count, tap, next, first, gap;
} taps;

INLINE taps taps_forward(i32 kernel, i32 pad, i32 dilation) { return (taps){kernel, 0, 1, -pad, dilation}; }

/* Output i of forward met input i * stride - pad + tap * dilation: so input `phase` meets the taps that leave no remainder. */
INLINE taps taps_backward(i32 kernel, i32 pad, i32 dilation, i32 stride, i32 phase) {
    taps t = {0, 0, 0, 0, 0};
    i32 last = -1;
    for (i32 tap = 0; tap < kernel; tap++) {
        if ((phase + pad - tap * dilation) % stride) continue;
        if (last >= 0) t.next = last - tap;
        last = tap;
        t.count++;
    }
    if (!t.count) return t;
    t.tap = last;
    t.first = (phase + pad - last * dilation) / stride;
    t.gap = -t.next * dilation / stride;
    return t;
}

INLINE i32 floor_div(i32 a, i32 b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/* One walk: sizes of what is read (`in`) and what is made (`out`), and how they are cut. */
typedef struct {
    i32 batch, in_h, in_w, out_h, out_w, channels;
    i32 kernel_h, kernel_w, pad_h, pad_w, dilation;
    i32 step, phases, backward; /* forward: stride, 1; backward: 1, stride */
    i32 block;              /* channels in a window: a multiple of LANES */
    i32 rows;               /* output rows in a pass */
    i32 slots, left, width; /* window rows; its first column, counted in input pixels; its columns */
    i64 plane;              /* floats of one vector of channels in the window */
    i64 chunk;              /* output rows (of all images) in a tile */
} walk;

INLINE taps walk_taps(const walk *k, i32 kernel, i32 pad, i32 phase) {
    return k->backward ? taps_backward(kernel, pad, k->dilation, k->phases, phase) : taps_forward(kernel, pad, k->dilation);
}

/* The first and one past the last input row that output rows start .. end - 1 meet. */
INLINE i32 first_row(const walk *k, i32 start) {
    if (!k->backward) return start * k->step - k->pad_h;
    return -floor_div(-(start + k->pad_h - (k->kernel_h - 1) * k->dilation), k->phases);
}
INLINE i32 past_row(const walk *k, i32 end) {
    if (k->backward) return floor_div(end - 1 + k->pad_h, k->phases) + 1;
    return (end - 1) * k->step - k->pad_h + (k->kernel_h - 1) * k->dilation + 1;
}

INLINE i32 slots_for(const walk *k, i32 rows) {
    i32 span = (k->kernel_h - 1) * k->dilation;
    return k->backward ? (rows - 1 + span) / k->phases + 1 : (rows - 1) * k->step + span + 1;
}

/* Columns the strips of all phases load, past the last output too. */
static void set_columns(walk *k) {
    i32 first = 0, past = 1;
    for (i32 phase = 0; phase < k->phases; phase++) {
        taps t = walk_taps(k, k->kernel_w, k->pad_w, phase);
        i32 outputs = ROUND_UP(CEIL_DIV(k->out_w - phase, k->phases), STRIP);
        if (!t.count || outputs <= 0) continue;
        first = MIN(first, t.first);
        past = MAX(past, (outputs - 1) * k->step + t.first + (t.count - 1) * t.gap + 1);
    }
    k->left = first;
    k->width = past - first;
}

static i32 fits(const walk *k, i32 rows) {
    return (i64)slots_for(k, rows) * k->width * k->block <= WINDOW_FLOATS && (rows == 1 || (i64)rows * k->out_w <= PASS_PIXELS);
}

static void cut(walk *k, i32 threads) {
    set_columns(k);
    i32 blocks = CEIL_DIV(k->channels, BLOCK_CHANNELS);
    do {
        k->block = ROUND_UP(CEIL_DIV(k->channels, blocks), LANES);
        blocks++;
    } while (k->block > LANES && !fits(k, 1));
    k->rows = 1;
    while (k->rows < k->out_h && fits(k, k->rows + 1)) k->rows++;
    k->slots = slots_for(k, k->rows);
    /* One vector more, lest all planes lie on the same cache sets. */
    k->plane = ((i64)k->slots * k->width + 1) * LANES;
    i64 all = (i64)k->batch * k->out_h;
    blocks = CEIL_DIV(k->channels, k->block);
    k->chunk = MAX(ROUND_UP(CEIL_DIV(all * blocks, threads * TILES_A_THREAD), k->rows), 4 * k->rows);
}

static walk walk_of(const geometry *g) {
    return (walk){.batch = g->batch,
                  .channels = g->in_c,
                  .kernel_h = g->kernel_h,
                  .kernel_w = g->kernel_w,
                  .pad_h = g->pad_h,
                  .pad_w = g->pad_w,
                  .dilation = g->dilation};
}

static walk walk_forward(const geometry *g, i32 threads) {
    walk k = walk_of(g);
    k.in_h = g->in_h, k.in_w = g->in_w, k.out_h = g->out_h, k.out_w = g->out_w;
    k.step = g->stride, k.phases = 1;
    cut(&k, threads);
    return k;
}

static walk walk_backward(const geometry *g, i32 threads) {
    walk k = walk_of(g);
    k.in_h = g->out_h, k.in_w = g->out_w, k.out_h = g->in_h, k.out_w = g->in_w;
    k.step = 1, k.phases = g->stride, k.backward = 1;
    cut(&k, threads);
    return k;
}

/* What a thread keeps: the window, the weights of all channels, and the sums of a pass for a norm; vector by vector. */
typedef struct {
    float *window, *weights, *sums;
} scratch;

INLINE i64 vectors(i64 channels) { return CEIL_DIV(channels, LANES); }
INLINE i64 floats_bytes(i64 floats) { return ROUND_UP(floats * 4, 64); }
static i64 window_bytes(const walk *k) { return floats_bytes(vectors(k->block) * k->plane); }
static i64 weights_bytes(const walk *k) {
    return floats_bytes(vectors(k->channels) * k->kernel_h * k->kernel_w * LANES);
}
static i64 pass_sums_bytes(const walk *k) { return floats_bytes(2 * k->block); }
static i64 scratch_bytes(const walk *k) { return window_bytes(k) + weights_bytes(k) + pass_sums_bytes(k); }

static scratch scratch_of(const walk *k, const worker *w) {
    char *at = w->workspace + w->index * scratch_bytes(k);
    return (scratch){(float *)at, (float *)(at + window_bytes(k)), (float *)(at + window_bytes(k) + weights_bytes(k))};
}

static void lay_out_weights(const walk *k, const float *weights, float *to) {
    i32 all = k->kernel_h * k->kernel_w;
    for (i32 c = 0; c < k->channels; c += LANES)
        for (i32 tap = 0; tap < all; tap++, to += LANES) {
            const float *from = weights + (i64)tap * k->channels + c;
            store(to, c + LANES <= k->channels ? load(from) : load_some(from, k->channels - c));
        }
}

/* A pixel's channels to their planes, as the source's readers see them. */
INLINE void gather_pixel(const float *from, const float *scale, const float *shift, i32 act, i32 channels, float *to, i64 plane) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES, to += plane) {
        vec v = load(from + c);
        store(to, scale ? activate(v * load(scale + c) + load(shift + c), act) : v);
    }
    if (c == channels) return;
    i32 n = channels - c;
    vec v = load_some(from + c, n);
    store(to, scale ? activate(v * load_some(scale + c, n) + load_some(shift + c, n), act) : v);
}

INLINE void gather_pixels(const source *x, i64 pixel, i32 count, i32 c0, i32 channels, i32 act, float *to, i64 plane) {
    const float *from = x->data + pixel * x->ld + c0, *scale = x->scale + c0, *shift = x->shift + c0;
    for (i32 i = 0; i < count; i++) gather_pixel(from + (i64)i * x->ld, scale, shift, act, channels, to + (i64)i * LANES, plane);
}

static void gather_seen(const source *x, i64 pixel, i32 count, i32 c0, i32 channels, float *to, i64 plane) {
    if (!x->scale) {
        const float *from = x->data + pixel * x->ld + c0;
        for (i32 i = 0; i < count; i++)
            gather_pixel(from + (i64)i * x->ld, 0, 0, ACT_NONE, channels, to + (i64)i * LANES, plane);
    } else if (x->act == ACT_NONE) {
        gather_pixels(x, pixel, count, c0, channels, ACT_NONE, to, plane);
    } else if (x->act == ACT_RELU) {
        gather_pixels(x, pixel, count, c0, channels, ACT_RELU, to, plane);
    } else {
        gather_pixels(x, pixel, count, c0, channels, ACT_RELU6, to, plane);
    }
}

static void clear_pixels(float *to, i32 count, i32 channels, i64 plane) {
    for (i32 c = 0; c < channels; c += LANES, to += plane)
        for (i32 i = 0; i < count; i++) store(to + (i64)i * LANES, (vec)0);
}

/* `count` pixels of row y of an image, from column `left`; zeros outside of the image. */
static void gather_line(const source *x, i64 image, i32 y, i32 in_h, i32 in_w, i32 left, i32 count, i32 c0, i32 channels,
                        float *to, i64 plane) {
    i32 start = MIN(MAX(0, -left), count), end = MAX(MIN(count, in_w - left), start);
    if (y < 0 || y >= in_h) start = end = count;
    clear_pixels(to, start, channels, plane);
    clear_pixels(to + (i64)end * LANES, count - end, channels, plane);
    if (start < end)
        gather_seen(x, (image * in_h + y) * in_w + left + start, end - start, c0, channels, to + (i64)start * LANES, plane);
}

INLINE float *window_line(const walk *k, float *window, i32 slot) { return window + (i64)slot * k->width * LANES; }

/* The window holds rows .. `have` of an image; row r lies in slot (r - base) % slots. */
typedef struct {
    i32 base, have;
} ring;

static void roll(const walk *k, ring *r, const source *x, i64 image, i32 first, i32 past, i32 c0, i32 channels, float *window) {
    for (i32 y = MAX(first, r->have); y < past; y++)
        gather_line(x, image, y, k->in_h, k->in_w, k->left, k->width, c0, channels,
                    window_line(k, window, (y - r->base) % k->slots), k->plane);
    r->have = MAX(r->have, past);
}

/* Sums of one strip over one window row: `count` and `step` are constants where it matters, or `gap` rules. */
INLINE void strip_dense(vec *sums, const float *line, const float *weights, i32 next, const i32 count, const i32 step) {
    vec w[3];
    UNROLL for (i32 i = 0; i < count; i++) w[i] = load(weights + (i64)i * next * LANES);
    UNROLL for (i32 column = 0; column < (STRIP - 1) * step + count; column++) {
        vec v = load(line + column * LANES);
        UNROLL for (i32 i = 0; i < count; i++)
            if (column >= i && (column - i) % step == 0 && (column - i) / step < STRIP) sums[(column - i) / step] += v * w[i];
    }
}

INLINE void strip_any(vec *sums, const float *line, const float *weights, const taps *t, i32 step) {
    for (i32 i = 0; i < t->count; i++) {
        vec w = load(weights + (i64)i * t->next * LANES);
        const float *from = line + (i64)i * t->gap * LANES;
        UNROLL for (i32 j = 0; j < STRIP; j++) sums[j] += w * load(from + (i64)j * step * LANES);
    }
}

enum shape { ANY, ONE, PAIR, TRIPLE, TRIPLE_BY_2 };
INLINE enum shape shape_of(const taps *t, i32 step) {
    if (t->count == 3 && t->gap == 1 && step <= 2) return step == 1 ? TRIPLE : TRIPLE_BY_2;
    if (t->count == 2 && t->gap == 1 && step == 1) return PAIR;
    return t->count == 1 && step == 1 ? ONE : ANY;
}

/* Where a strip of outputs ends up: exactly one of `forward` and `backward` is set. Sums for a norm are kept in floats for one
 * pass, two vectors for each vector of channels, and then added to the norm's own. */
typedef struct {
    const conv_forward *forward;
    const sink *backward;
    const worker *worker;
    float *sums;
    vec low, high; /* forward: results are kept within; backward: gradients pass where the output lies between */
} finish;

INLINE finish finish_forward(const conv_forward *op, const worker *w, float *sums) {
    vec infinity = splat(__builtin_inff());
    return (finish){.forward = op, .worker = w, .sums = sums, .low = op->act == ACT_NONE ? -infinity : (vec)0,
                    .high = op->act == ACT_RELU6 ? splat(6) : infinity};
}

INLINE finish finish_backward(const sink *s, const worker *w, float *sums) {
    vec infinity = splat(__builtin_inff());
    return (finish){.backward = s, .worker = w, .sums = sums, .low = s->act == ACT_NONE ? -infinity : (vec)0,
                    .high = s->act == ACT_RELU6 ? splat(6) : infinity};
}

/* As emit_tile, for `count` outputs in registers, `apart` pixels from one to the next. */
INLINE void emit_strip(const finish *f, const vec *outputs, i32 count, i64 pixel, i32 apart, i32 c, float *sums) {
    const conv_forward *op = f->forward;
    float *y = op->y + pixel * op->ld_y + c;
    i64 ld = (i64)apart * op->ld_y;
    vec bias = op->bias ? load(op->bias + c) : (vec)0, sum = 0, squares = 0;
    UNROLL for (i32 i = 0; i < STRIP; i++) {
        if (i >= count) break;
        vec v = outputs[i] + bias;
        v = f->low > v ? f->low : v;
        v = f->high < v ? f->high : v;
        store(y + i * ld, v);
        sum += v;
        squares += v * v;
    }
    store(sums, load(sums) + sum);
    store(sums + LANES, load(sums + LANES) + squares);
}

/* As sink_tile. */
INLINE void sink_strip(const finish *f, const vec *gradients, i32 count, i64 pixel, i32 apart, i32 c, float *sums) {
    const sink *s = f->backward;
    const norm *n = s->norm;
    float *to = s->data + pixel * s->ld + c;
    i64 ld = (i64)apart * s->ld, ld_y = (i64)apart * s->ld_y;
    vec g[STRIP];
    UNROLL for (i32 i = 0; i < STRIP; i++) g[i] = gradients[i];
    if (s->accumulate) UNROLL for (i32 i = 0; i < STRIP; i++) if (i < count) g[i] += load(to + i * ld);
    if (n) {
        const float *z = s->y + pixel * s->ld_y + c;
        vec scale = load(n->scale + c), shift = load(n->shift + c), mean = load(n->mean + c), sum = 0, products = 0;
        UNROLL for (i32 i = 0; i < STRIP; i++) {
            if (i >= count) break;
            vec at = load(z + i * ld_y), y = at * scale + shift;
            g[i] = y > f->low && y < f->high ? g[i] : (vec)0;
            sum += g[i];
            products += g[i] * (at - mean);
        }
        store(sums, load(sums) + sum);
        store(sums + LANES, load(sums + LANES) + products);
    } else if (s->act != ACT_NONE) {
        const float *from = s->y + pixel * s->ld_y + c;
        UNROLL for (i32 i = 0; i < STRIP; i++) {
            if (i >= count) break;
            vec y = load(from + i * ld_y);
            g[i] = y > f->low && y < f->high ? g[i] : (vec)0;
        }
    }
    UNROLL for (i32 i = 0; i < STRIP; i++) if (i < count) store(to + i * ld, g[i]);
}

/* A last vector with fewer channels than lanes. */
static NOINLINE void finish_tail(const finish *f, const vec *outputs, i32 count, i64 pixel, i32 apart, i32 c, i32 lanes) {
    float tile[STRIP * LANES];
    i64 rows[STRIP];
    for (i32 i = 0; i < count; i++) store(tile + i * LANES, outputs[i]), rows[i] = pixel + (i64)i * apart;
    if (f->forward) emit_tile(f->forward, f->worker, tile, LANES, pixel, count, c, lanes);
    else sink_tile(f->backward, f->worker, tile, LANES, rows, count, c, lanes);
}

/* Adds a pass's sums to the norm's, and starts them again. */
static void flush_sums(const finish *f, const norm *n, i32 c0, i32 channels) {
    if (!n) return;
    double *to = norm_sums(n, f->worker->index) + c0;
    float *from = f->sums;
    for (i32 c = 0; c + LANES <= channels; c += LANES, from += 2 * LANES) {
        add_sums(to + c, load(from), LANES);
        add_sums(to + n->channels + c, load(from + LANES), LANES);
        store(from, (vec)0);
        store(from + LANES, (vec)0);
    }
}

/* One strip through all taps, for each vector of channels in the block. */
INLINE void convolve_strip(const walk *k, const taps *tx, const taps *ty, const float *window, i32 slot, const float *weights,
                           i32 count, i64 pixel, i32 c0, i32 channels, const finish *f, const enum shape shape) {
    float *of_vector = f->sums;
    for (i32 c = 0; c < channels; c += LANES, window += k->plane, of_vector += 2 * LANES) {
        vec sums[STRIP];
        UNROLL for (i32 i = 0; i < STRIP; i++) sums[i] = 0;
        i32 at = slot;
        for (i32 y = 0; y < ty->count; y++) {
            const float *line = window + (i64)at * k->width * LANES;
            const float *row = weights + ((i64)(ty->tap + y * ty->next) * k->kernel_w + tx->tap) * LANES;
            if (shape == TRIPLE) strip_dense(sums, line, row, tx->next, 3, 1);
            else if (shape == TRIPLE_BY_2) strip_dense(sums, line, row, tx->next, 3, 2);
            else if (shape == PAIR) strip_dense(sums, line, row, tx->next, 2, 1);
            else if (shape == ONE) strip_dense(sums, line, row, tx->next, 1, 1);
            else strip_any(sums, line, row, tx, k->step);
            at += ty->gap;
            if (at >= k->slots) at -= k->slots;
        }
        weights += (i64)k->kernel_h * k->kernel_w * LANES;
        if (c + LANES > channels) finish_tail(f, sums, count, pixel, k->phases, c0 + c, channels - c);
        else if (f->forward) emit_strip(f, sums, count, pixel, k->phases, c0 + c, of_vector);
        else sink_strip(f, sums, count, pixel, k->phases, c0 + c, of_vector);
    }
}

/* The outputs of one phase in one row, whose first is `pixel`. */
INLINE void convolve_phase(const walk *k, const taps *tx, const taps *ty, const float *window, i32 slot, const float *weights,
                           i32 outputs, i64 pixel, i32 c0, i32 channels, const finish *f, const enum shape shape) {
    window += (i64)(tx->first - k->left) * LANES;
    i32 j = 0;
    for (; j + STRIP <= outputs; j += STRIP, window += (i64)STRIP * k->step * LANES)
        convolve_strip(k, tx, ty, window, slot, weights, STRIP, pixel + (i64)j * k->phases, c0, channels, f, shape);
    if (j < outputs)
        convolve_strip(k, tx, ty, window, slot, weights, outputs - j, pixel + (i64)j * k->phases, c0, channels, f, shape);
}

static void convolve_row(const walk *k, const ring *r, const float *window, const float *weights, i32 y, i64 pixel, i32 c0,
                         i32 channels, const finish *f) {
    taps ty = walk_taps(k, k->kernel_h, k->pad_h, y % k->phases);
    i32 slot = ty.count ? (y / k->phases * k->step + ty.first - r->base) % k->slots : 0;
    for (i32 phase = 0; phase < k->phases; phase++, pixel++) {
        taps tx = walk_taps(k, k->kernel_w, k->pad_w, phase), rows = ty;
        if (!tx.count) rows.count = 0;
        i32 outputs = CEIL_DIV(k->out_w - phase, k->phases);
#define CASE(shape) \
    case shape: convolve_phase(k, &tx, &rows, window, slot, weights, outputs, pixel, c0, channels, f, shape); break
        switch (shape_of(&tx, k->step)) {
            CASE(ANY);
            CASE(ONE);
            CASE(PAIR);
            CASE(TRIPLE);
            CASE(TRIPLE_BY_2);
        }
#undef CASE
    }
}

/* Output rows start .. end - 1 of an image, channels c0 .. */
static void walk_image(const walk *k, const scratch *b, const source *x, const finish *f, i64 image, i32 start, i32 end, i32 c0,
                       i32 channels) {
    ring r = {first_row(k, start), first_row(k, start)};
    const norm *n = f->forward ? f->forward->norm : f->backward->norm;
    const float *weights = b->weights + (i64)c0 * k->kernel_h * k->kernel_w;
    for (i32 y = start; y < end; y += k->rows) {
        i32 rows = MIN(k->rows, end - y);
        roll(k, &r, x, image, first_row(k, y), past_row(k, y + rows), c0, channels, b->window);
        for (i32 i = y; i < y + rows; i++)
            convolve_row(k, &r, b->window, weights, i, (image * k->out_h + i) * k->out_w, c0, channels, f);
        flush_sums(f, n, c0, channels);
    }
}

static void walk_tiles(const walk *k, worker *w, const source *x, const finish *f, const scratch *b) {
    i64 all = (i64)k->batch * k->out_h, blocks = CEIL_DIV(k->channels, k->block), tiles = CEIL_DIV(all, k->chunk) * blocks;
    for (i64 tile = take(w); tile < tiles; tile = take(w)) {
        i32 c0 = (i32)(tile % blocks) * k->block, channels = MIN(k->block, k->channels - c0);
        i64 row = tile / blocks * k->chunk, end = MIN(all, row + k->chunk);
        while (row < end) {
            i32 start = (i32)(row % k->out_h), stop = (i32)MIN(k->out_h, start + end - row);
            walk_image(k, b, x, f, row / k->out_h, start, stop, c0, channels);
            row += stop - start;
        }
    }
}

static scratch prepare(const walk *k, const worker *w, const float *weights) {
    scratch b = scratch_of(k, w);
    lay_out_weights(k, weights, b.weights);
    for (i32 c = 0; c < 2 * k->block; c += LANES) store(b.sums + c, (vec)0);
    return b;
}

static void run_depthwise_forward(worker *w, const void *p) {
    const conv_forward *op = p;
    walk k = walk_forward(&op->g, w->threads);
    scratch b = prepare(&k, w, op->weights);
    finish f = finish_forward(op, w, b.sums);
    if (op->norm) norm_begin(op->norm, w);
    walk_tiles(&k, w, &op->x, &f, &b);
    if (!op->norm) return;
    meet(w);
    norm_statistics(op->norm, w, (i64)k.batch * k.out_h * k.out_w);
}

static i64 workspace_depthwise_forward(i32 threads, const void *p) {
    walk k = walk_forward(&((const conv_forward *)p)->g, threads);
    return threads * scratch_bytes(&k);
}

static void run_depthwise_backward_data(worker *w, const void *p) {
    const conv_backward_data *op = p;
    walk k = walk_backward(&op->g, w->threads);
    source dy = {.data = op->dy, .ld = op->ld_dy};
    scratch b = prepare(&k, w, op->weights);
    finish f = finish_backward(&op->dx, w, b.sums);
    if (op->dx.norm) norm_begin(op->dx.norm, w);
    walk_tiles(&k, w, &dy, &f, &b);
}

static i64 workspace_depthwise_backward_data(i32 threads, const void *p) {
    walk k = walk_backward(&((const conv_backward_data *)p)->g, threads);
    return threads * scratch_bytes(&k);
}

/* Gradients of the weights: dy is walked like an output, and each tap keeps a sum. The rows of all images are cut into chunks
 * with sums of their own, added up in the end in their order: so the result does not depend on who took which. */
enum { CHUNKS_A_THREAD = 4 };

typedef struct {
    float *window, *dy;
} pair_of_windows;

INLINE i64 dy_line(const walk *k) { return (i64)ROUND_UP(k->out_w, STRIP) * LANES; }
INLINE i64 dy_plane(const walk *k) { return k->rows * dy_line(k) + LANES; }
static i64 dy_bytes(const walk *k) { return floats_bytes(vectors(k->block) * dy_plane(k)); }
/* Of one chunk, vector by vector of channels: a sum a tap, and one more for the bias. */
INLINE i64 sums_of_vector(const walk *k) { return ((i64)k->kernel_h * k->kernel_w + 1) * LANES; }
static i64 sums_bytes(const walk *k) { return floats_bytes(vectors(k->channels) * sums_of_vector(k)); }

static walk walk_weights(const geometry *g, i32 threads) {
    walk k = walk_forward(g, threads);
    k.chunk = CEIL_DIV((i64)k.batch * k.out_h, threads * CHUNKS_A_THREAD);
    return k;
}

static i64 chunks_of(const walk *k) { return CEIL_DIV((i64)k->batch * k->out_h, k->chunk); }

static i64 workspace_depthwise_backward_weights(i32 threads, const void *p) {
    walk k = walk_weights(&((const conv_backward_weights *)p)->g, threads);
    return threads * (window_bytes(&k) + dy_bytes(&k)) + chunks_of(&k) * sums_bytes(&k);
}

INLINE void correlate_3x3(const walk *k, i32 slot, const float *window, const float *dy, i32 rows, float *sums, const i32 step) {
    vec acc[9];
    UNROLL for (i32 i = 0; i < 9; i++) acc[i] = load(sums + i * LANES);
    i64 line = (i64)k->width * LANES;
    for (i32 y = 0; y < rows; y++, dy += dy_line(k)) {
        i32 second = slot + 1 < k->slots ? slot + 1 : 0, third = second + 1 < k->slots ? second + 1 : 0;
        const float *lines[3] = {window + slot * line, window + second * line, window + third * line};
        for (i32 x = 0; x < k->out_w; x += STRIP) {
            vec d[STRIP];
            UNROLL for (i32 i = 0; i < STRIP; i++) d[i] = load(dy + (i64)(x + i) * LANES);
            UNROLL for (i32 row = 0; row < 3; row++) {
                const float *from = lines[row] + (i64)x * step * LANES;
                UNROLL for (i32 column = 0; column < (STRIP - 1) * step + 3; column++) {
                    vec v = load(from + column * LANES);
                    UNROLL for (i32 i = 0; i < 3; i++)
                        if (column >= i && (column - i) % step == 0 && (column - i) / step < STRIP)
                            acc[row * 3 + i] += v * d[(column - i) / step];
                }
            }
        }
        slot += step;
        if (slot >= k->slots) slot -= k->slots;
    }
    UNROLL for (i32 i = 0; i < 9; i++) store(sums + i * LANES, acc[i]);
}

static void correlate_by_1(const walk *k, i32 slot, const float *window, const float *dy, i32 rows, float *sums) {
    correlate_3x3(k, slot, window, dy, rows, sums, 1);
}

static void correlate_by_2(const walk *k, i32 slot, const float *window, const float *dy, i32 rows, float *sums) {
    correlate_3x3(k, slot, window, dy, rows, sums, 2);
}

static void correlate_any(const walk *k, i32 slot, const float *window, const float *dy, i32 rows, float *sums) {
    for (i32 tap = 0; tap < k->kernel_h * k->kernel_w; tap++, sums += LANES) {
        vec sum = 0;
        for (i32 y = 0; y < rows; y++) {
            i32 at = (slot + y * k->step + tap / k->kernel_w * k->dilation) % k->slots;
            const float *from = window + ((i64)at * k->width + tap % k->kernel_w * k->dilation) * LANES;
            const float *d = dy + y * dy_line(k);
            for (i32 x = 0; x < k->out_w; x++) sum += load(from + (i64)x * k->step * LANES) * load(d + (i64)x * LANES);
        }
        store(sums, load(sums) + sum);
    }
}

static void correlate(const walk *k, i32 slot, const float *window, const float *dy, i32 rows, float *sums) {
    i32 small = k->kernel_h == 3 && k->kernel_w == 3 && k->dilation == 1;
    if (small && k->step == 1) correlate_by_1(k, slot, window, dy, rows, sums);
    else if (small && k->step == 2) correlate_by_2(k, slot, window, dy, rows, sums);
    else correlate_any(k, slot, window, dy, rows, sums);
}

static void add_bias(const walk *k, const float *dy, i32 rows, float *sum) {
    vec s = load(sum);
    for (i64 i = 0, end = rows * dy_line(k); i < end; i += LANES) s += load(dy + i);
    store(sum, s);
}

static void correlate_image(const conv_backward_weights *op, const walk *k, const pair_of_windows *b, i64 image, i32 start,
                            i32 end, i32 c0, i32 channels, float *sums) {
    source dy = {.data = op->dy, .ld = op->ld_dy};
    ring r = {first_row(k, start), first_row(k, start)};
    for (i32 y = start; y < end; y += k->rows) {
        i32 rows = MIN(k->rows, end - y), first = first_row(k, y);
        roll(k, &r, &op->x, image, first, past_row(k, y + rows), c0, channels, b->window);
        for (i32 i = 0; i < rows; i++)
            gather_line(&dy, image, y + i, k->out_h, k->out_w, 0, ROUND_UP(k->out_w, STRIP), c0, channels,
                        b->dy + i * dy_line(k), dy_plane(k));
        for (i32 c = 0; c < vectors(channels); c++) {
            float *of_vector = sums + c * sums_of_vector(k);
            const float *d = b->dy + c * dy_plane(k);
            correlate(k, (first - r.base) % k->slots, b->window + c * k->plane, d, rows, of_vector);
            if (op->dbias) add_bias(k, d, rows, of_vector + sums_of_vector(k) - LANES);
        }
    }
}

static void correlate_chunk(const conv_backward_weights *op, const walk *k, const pair_of_windows *b, i64 chunk, i32 c0,
                            i32 channels, float *sums) {
    for (i64 i = 0, end = vectors(channels) * sums_of_vector(k); i < end; i += LANES) store(sums + i, (vec)0);
    i64 row = chunk * k->chunk, end = MIN((i64)k->batch * k->out_h, row + k->chunk);
    while (row < end) {
        i32 start = (i32)(row % k->out_h), stop = (i32)MIN(k->out_h, start + end - row);
        correlate_image(op, k, b, row / k->out_h, start, stop, c0, channels, sums);
        row += stop - start;
    }
}

/* One vector of channels: all chunks' sums, to the gradients. */
static void deliver(const conv_backward_weights *op, const walk *k, const char *sums, i64 vector) {
    i32 all = k->kernel_h * k->kernel_w, c = (i32)vector * LANES, lanes = MIN(LANES, k->channels - c);
    for (i32 tap = 0; tap < all + (op->dbias != 0); tap++) {
        vec sum = 0;
        for (i64 chunk = 0; chunk < chunks_of(k); chunk++)
            sum += load((const float *)(sums + chunk * sums_bytes(k)) + vector * sums_of_vector(k) + tap * LANES);
        float *to = (tap < all ? op->dweights + (i64)tap * k->channels : op->dbias) + c;
        if (op->accumulate) sum += load_some(to, lanes);
        store_some(to, sum, lanes);
    }
}

static void run_depthwise_backward_weights(worker *w, const void *p) {
    const conv_backward_weights *op = p;
    walk k = walk_weights(&op->g, w->threads);
    i64 own = window_bytes(&k) + dy_bytes(&k);
    pair_of_windows b = {(float *)(w->workspace + w->index * own), (float *)(w->workspace + w->index * own + window_bytes(&k))};
    char *sums = w->workspace + w->threads * own;
    i64 blocks = CEIL_DIV(k.channels, k.block), tiles = chunks_of(&k) * blocks;
    for (i64 tile = take(w); tile < tiles; tile = take(w)) {
        i32 c0 = (i32)(tile % blocks) * k.block, channels = MIN(k.block, k.channels - c0);
        i64 chunk = tile / blocks;
        float *of_block = (float *)(sums + chunk * sums_bytes(&k)) + c0 / LANES * sums_of_vector(&k);
        correlate_chunk(op, &k, &b, chunk, c0, channels, of_block);
    }
    meet(w);
    i64 start, end;
    share(vectors(k.channels), w->index, w->threads, &start, &end);
    for (i64 vector = start; vector < end; vector++) deliver(op, &k, sums, vector);
}
