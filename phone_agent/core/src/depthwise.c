/* Depthwise convolution: each channel by itself. Bandwidth decides here, so nothing is copied, and memory is met in order: strip
 * by strip along a row, all channels of a strip before the next, the rows and strips that come next prefetched meanwhile.
 * A source is applied at each load: arithmetic is free where memory is the limit.
 *
 * Forward and backward data are the same walk. Backward, input pixels of one remainder by the stride (a phase) all
 * meet the same taps, and along a phase dy is walked one by one. Backward weights walk like forward, with a sum a tap. */

/* Pixels whose sums are in registers together. Widths of common maps are multiples of it. */
enum { STRIP = 7 };
enum { TILES_PER_THREAD = 16, MAX_SUMMED_PIXELS = 256, MIN_BLOCK = 64, SUM_VECTORS = 3 };

/* The taps an output coordinate meets along one axis: output j of a phase meets input j * step + first + k * gap through tap
 * tap + k * next, for k in 0 .. count - 1. */
typedef struct {
    i32 count, first_tap, tap_step, offset, spacing;
} taps;

static taps taps_forward(i32 strip_weights, i32 pad, i32 dilation) { return (taps){strip_weights, 0, 1, -pad, dilation}; }

/* Output i of forward met input i * stride - pad + tap * dilation: so input `phase` meets the taps that leave no remainder. */
static taps taps_backward(i32 strip_weights, i32 pad, i32 dilation, i32 stride, i32 phase) {
    taps t = {0, 0, 0, 0, 0};
    i32 last = -1;
    for (i32 tap = 0; tap < strip_weights; tap++) {
        if ((phase + pad - tap * dilation) % stride) continue;
        if (last >= 0) t.tap_step = last - tap;
        last = tap;
        t.count++;
    }
    if (!t.count) return t;
    t.first_tap = last;
    t.offset = (phase + pad - last * dilation) / stride;
    t.spacing = -t.tap_step * dilation / stride;
    return t;
}

/* One walk: sizes of what is read (`in`) and what is made (`out`), and how they are cut. */
typedef struct {
    i32 batch, in_h, in_w, out_h, out_w, channels;
    i32 kernel_h, kernel_w, pad_h, pad_w, dilation;
    i32 step, phases, backward; /* forward: stride, 1; backward: 1, stride */
    i32 block;                  /* channels in a tile: all, or a multiple of LANES where there are few rows */
    i64 chunk;                  /* output rows (of all images) in a tile */
} dw_plan;

static taps plan_taps(const dw_plan *k, i32 strip_weights, i32 pad, i32 phase) {
    if (!k->backward) return taps_forward(strip_weights, pad, k->dilation);
    return taps_backward(strip_weights, pad, k->dilation, k->phases, phase);
}

INLINE i64 output_rows(const dw_plan *k) { return (i64)k->batch * k->out_h; }
INLINE i64 channel_blocks(const dw_plan *k) { return CEIL_DIV(k->channels, k->block); }

static void choose_tiling(dw_plan *k, i32 threads) {
    i64 wanted = (i64)threads * TILES_PER_THREAD, rows = output_rows(k);
    i32 blocks = (i32)MIN(CEIL_DIV(wanted, rows), CEIL_DIV(k->channels, MIN_BLOCK));
    k->block = ROUND_UP(CEIL_DIV(k->channels, blocks), LANES);
    k->chunk = CEIL_DIV(rows, wanted);
}

static dw_plan plan_base(const geometry *g) {
    return (dw_plan){.batch = g->batch,
                  .channels = g->in_c,
                  .kernel_h = g->kernel_h,
                  .kernel_w = g->kernel_w,
                  .pad_h = g->pad_h,
                  .pad_w = g->pad_w,
                  .dilation = g->dilation};
}

static dw_plan plan_forward(const geometry *g, i32 threads) {
    dw_plan k = plan_base(g);
    k.in_h = g->in_h, k.in_w = g->in_w, k.out_h = g->out_h, k.out_w = g->out_w;
    k.step = g->stride, k.phases = 1;
    choose_tiling(&k, threads);
    return k;
}

static dw_plan plan_backward_data(const geometry *g, i32 threads) {
    dw_plan k = plan_base(g);
    k.in_h = g->out_h, k.in_w = g->out_w, k.out_h = g->in_h, k.out_w = g->in_w;
    k.step = 1, k.phases = g->stride, k.backward = 1;
    choose_tiling(&k, threads);
    return k;
}

INLINE i64 vector_count(i64 channels) { return CEIL_DIV(channels, LANES); }
INLINE i64 aligned_bytes(i64 floats) { return ROUND_UP(floats * 4, 64); }

/* Vectors of channels that lie next to each other in memory, or nearly: so that prefetching them meets memory in order. */
typedef struct {
    const char *at;
    i64 pixel, vector; /* bytes */
} prefetch_strip;

INLINE prefetch_strip prefetch_strip_at(const void *at, i64 apart, i32 channels, i32 dtype) {
    i64 bytes = dtype_bytes(dtype);
    if (apart == channels) return (prefetch_strip){at, LANES * bytes, STRIP * LANES * bytes};
    return (prefetch_strip){at, apart * bytes, LANES * bytes};
}
INLINE void prefetch_to_read(const prefetch_strip *a, i32 vector) {
    const char *from = a->at + vector * a->vector;
    UNROLL for (i32 i = 0; i < STRIP; i++) __builtin_prefetch(from + i * a->pixel, 0);
}
INLINE void prefetch_to_write(const prefetch_strip *a, i32 vector) {
    const char *from = a->at + vector * a->vector;
    UNROLL for (i32 i = 0; i < STRIP; i++) __builtin_prefetch(from + i * a->pixel, 1);
}

/* What a strip reads. Column q of it is inside of the image for start <= q < end; `from` is column 0 in the first tap row that is
 * inside, and is met with `rows` rows of weights. `apart` and `line` are numbers between columns, and between tap rows. */
typedef struct {
    const void *from;
    const float *scale, *shift;
    i64 apart, line;
    i32 rows, start, end;
    const taps *taps;
    i32 step;
    prefetch_strip next[2]; /* rows needed next, at this place */
    i32 next_count;
} strip_input;

/* How a source is mode, as a constant for the inner loops. Halves are always CLAMPED, which can do what the others do. */
enum input_mode { IDENTITY, AFFINE_RELU, AFFINE_CLAMP, FP16_AFFINE_CLAMP, INPUT_MODES };
INLINE enum input_mode input_mode_of(const fused_input *x) {
    if (x->dtype == FP16) return FP16_AFFINE_CLAMP;
    return !x->scale ? IDENTITY : x->act == ACT_RELU ? AFFINE_RELU : AFFINE_CLAMP;
}
INLINE i32 dtype_of(const enum input_mode mode) { return mode == FP16_AFFINE_CLAMP ? FP16 : FP32; }

typedef struct {
    vec scale, shift, low, high;
} affine;

INLINE vec lower_limit(i32 act) { return act == ACT_NONE ? splat(-__builtin_inff()) : (vec)0; }
INLINE vec upper_limit(i32 act) { return splat(act == ACT_RELU6 ? 6 : __builtin_inff()); }

INLINE affine load_affine(const strip_input *v, i32 act, i32 c, i32 lanes, const enum input_mode mode) {
    if (mode == IDENTITY) return (affine){0, 0, 0, 0};
    if (!v->scale) return (affine){1, 0, lower_limit(ACT_NONE), upper_limit(ACT_NONE)};
    return (affine){load_lanes(v->scale + c, lanes), load_lanes(v->shift + c, lanes), lower_limit(act), upper_limit(act)};
}

INLINE vec apply_affine(vec v, const affine *g, const enum input_mode mode) {
    if (mode == IDENTITY) return v;
    v = v * g->scale + g->shift;
    if (mode == AFFINE_RELU) return relu(v);
    v = g->low > v ? g->low : v;
    return g->high < v ? g->high : v;
}

/* Sums of a strip over `count` neighbouring taps, `step` columns from one output to the next. */
INLINE void accumulate_dense(vec *sums, const strip_input *v, i32 c, const float *weights, i64 weights_line, const affine *g,
                        const i32 count, const i32 step, const enum input_mode mode, const i32 edge) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    i64 next = v->taps->tap_step * LANES;
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->line, dtype), weights += weights_line) {
        vec w[3];
        UNROLL for (i32 i = 0; i < count; i++) w[i] = load(weights + i * next);
        UNROLL for (i32 q = 0; q < (STRIP - 1) * step + count; q++) {
            if (edge && (q < v->start || q >= v->end)) continue;
            vec x = apply_affine(load_as_fp32(element_at(from, q * v->apart, dtype), LANES, dtype), g, mode);
            UNROLL for (i32 i = 0; i < count; i++)
                if (q >= i && (q - i) % step == 0 && (q - i) / step < STRIP) sums[(q - i) / step] += x * w[i];
        }
    }
}

/* The same for any taps, and for a last vector that is not whole. */
INLINE void accumulate_any(vec *sums, const strip_input *v, i32 c, i32 lanes, const float *weights, i64 weights_line, const affine *g,
                      const enum input_mode mode) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->line, dtype), weights += weights_line)
        for (i32 i = 0; i < v->taps->count; i++) {
            vec w = load(weights + (i64)i * v->taps->tap_step * LANES);
            UNROLL for (i32 j = 0; j < STRIP; j++) {
                i32 q = i * v->taps->spacing + j * v->step;
                if (q < v->start || q >= v->end) continue;
                sums[j] += w * apply_affine(load_as_fp32(element_at(from, q * v->apart, dtype), lanes, dtype), g, mode);
            }
        }
}

/* Where a strip of outputs goes: `count` pixels from `pixel` on, `apart` from one to the next; channels from c0 on. Exactly one of
 * forward and backward is set. Sums for a norm are kept in floats for some pixels (for each vector of channels: two sums and
 * the pivot of forward's, see add_statistics), and then added to the norm's own. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *backward;
    const worker *worker;
    float *sums;
    i64 pixel;
    i32 count, apart, c0, channels, summed; /* summed: pixels in sums */
    prefetch_strip to, y; /* what the next strip writes, and reads */
} strip_epilogue;

/* As emit_tile, for outputs in registers. */
INLINE void store_output_strip_as(const strip_epilogue *f, const vec *outputs, i32 c, float *sums, const i32 dtype) {
    const conv_forward *op = f->forward;
    c += f->c0;
    void *y = element_at(op->y, f->pixel * op->ld_y + c, dtype);
    vec bias = op->bias ? load(op->bias + c) : (vec)0, sum = 0, squares = 0;
    vec low = lower_limit(op->act), high = upper_limit(op->act), pivot = f->summed ? load(sums + 2 * LANES) : outputs[0];
    UNROLL for (i32 i = 0; i < STRIP; i++) {
        if (i >= f->count) break;
        vec v = outputs[i] + bias;
        v = low > v ? low : v;
        v = high < v ? high : v;
        store_from_fp32(element_at(y, (i64)i * op->ld_y, dtype), v, LANES, dtype);
        vec d = v - pivot;
        sum += d;
        squares += d * d;
    }
    store(sums, load(sums) + sum);
    store(sums + LANES, load(sums + LANES) + squares);
    store(sums + 2 * LANES, pivot);
}

INLINE void store_output_strip(const strip_epilogue *f, const vec *outputs, i32 c, float *sums) {
    if (f->forward->dtype == FP16) store_output_strip_as(f, outputs, c, sums, FP16);
    else store_output_strip_as(f, outputs, c, sums, FP32);
}

INLINE void store_gradient_strip_with_act(const strip_epilogue *f, const vec *gradients, i32 c, float *sums, const i32 act, const i32 dtype) {
    const fused_gradient *s = f->backward;
    const batch_norm *n = s->norm;
    c += f->c0;
    float *to = s->data + f->pixel * s->ld + c;
    const void *from = element_at(s->y, f->pixel * s->ld_y + c, dtype);
    i64 ld = (i64)f->apart * s->ld, ld_y = (i64)f->apart * s->ld_y;
    vec g[STRIP];
    UNROLL for (i32 i = 0; i < STRIP; i++) g[i] = gradients[i];
    if (s->accumulate) UNROLL for (i32 i = 0; i < STRIP; i++) if (i < f->count) g[i] += load(to + i * ld);
    if (n) {
        vec scale = load(n->scale + c), shift = load(n->shift + c), mean = load(n->mean + c), sum = 0, products = 0;
        UNROLL for (i32 i = 0; i < STRIP; i++) {
            if (i >= f->count) break;
            vec z = load_as_fp32(element_at(from, i * ld_y, dtype), LANES, dtype);
            g[i] = activation_backward(g[i], z * scale + shift, act);
            sum += g[i];
            products += g[i] * (z - mean);
        }
        store(sums, load(sums) + sum);
        store(sums + LANES, load(sums + LANES) + products);
    } else if (act != ACT_NONE) {
        UNROLL for (i32 i = 0; i < STRIP; i++) {
            if (i >= f->count) break;
            g[i] = activation_backward(g[i], load_as_fp32(element_at(from, i * ld_y, dtype), LANES, dtype), act);
        }
    }
    UNROLL for (i32 i = 0; i < STRIP; i++) if (i < f->count) store(to + i * ld, g[i]);
}

/* As sink_tile. */
INLINE void store_gradient_strip(const strip_epilogue *f, const vec *gradients, i32 c, float *sums) {
    i32 act = f->backward->act;
    if (f->backward->dtype == FP16) store_gradient_strip_with_act(f, gradients, c, sums, act, FP16);
    else if (act == ACT_NONE) store_gradient_strip_with_act(f, gradients, c, sums, ACT_NONE, FP32);
    else if (act == ACT_RELU) store_gradient_strip_with_act(f, gradients, c, sums, ACT_RELU, FP32);
    else store_gradient_strip_with_act(f, gradients, c, sums, ACT_RELU6, FP32);
}

static void store_tail(const strip_epilogue *f, const vec *outputs, i32 c, i32 lanes) {
    float tile[STRIP * LANES];
    i64 rows[STRIP];
    for (i32 i = 0; i < f->count; i++) store(tile + i * LANES, outputs[i]), rows[i] = f->pixel + (i64)i * f->apart;
    if (f->forward) store_output_tile(f->forward, f->worker, tile, LANES, f->pixel, f->count, f->c0 + c, lanes);
    else store_gradient_tile(f->backward, f->worker, tile, LANES, rows, f->count, f->c0 + c, lanes);
}

/* Adds what was summed in floats to the norm's sums, and starts again. */
static void flush_sums(strip_epilogue *f, const batch_norm *n) {
    float *from = f->sums;
    for (i32 c = 0; n && c + LANES <= f->channels; c += LANES, from += SUM_VECTORS * LANES) {
        vec pivot = f->forward ? load(from + 2 * LANES) : (vec)0;
        double *to = batch_norm_sums(n, f->worker->index) + f->c0 + c;
        add_statistics(to, n->channels, pivot, load(from), load(from + LANES), f->summed, LANES);
        store(from, (vec)0);
        store(from + LANES, (vec)0);
    }
    f->summed = 0;
}

/* Weights are laid out by vectors of channels, tap after tap; `weights` is the first tap of the first row this strip meets. */
typedef struct {
    const float *weights;
    i64 line, vector; /* floats from tap row to tap row, and from vector to vector */
} strip_weights;

INLINE void prefetch_next_strip(const strip_input *v, const strip_epilogue *f, i32 vector) {
    for (i32 i = 0; i < v->next_count; i++) prefetch_to_read(&v->next[i], vector);
    prefetch_to_write(&f->to, vector);
    if (f->y.at) prefetch_to_read(&f->y, vector);
}

static NOINLINE void convolve_tail(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act, enum input_mode mode, i32 c) {
    i32 lanes = f->channels - c;
    vec sums[STRIP];
    for (i32 i = 0; i < STRIP; i++) sums[i] = 0;
    const float *weights = w->weights + c / LANES * w->vector;
    affine g = load_affine(v, act, c, lanes, AFFINE_CLAMP);
    if (mode == FP16_AFFINE_CLAMP) accumulate_any(sums, v, c, lanes, weights, w->line, &g, FP16_AFFINE_CLAMP);
    else accumulate_any(sums, v, c, lanes, weights, w->line, &g, AFFINE_CLAMP);
    store_tail(f, sums, c, lanes);
}

/* One strip, all its channels. count 0 stands for any taps. */
INLINE void convolve_strip(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act, const i32 count, const i32 step,
                           const enum input_mode mode, const i32 edge, const i32 backward) {
    i32 c = 0;
    for (i32 vector = 0; c + LANES <= f->channels; c += LANES, vector++) {
        prefetch_next_strip(v, f, vector);
        vec sums[STRIP];
        UNROLL for (i32 i = 0; i < STRIP; i++) sums[i] = 0;
        affine g = load_affine(v, act, c, LANES, mode);
        const float *weights = w->weights + vector * w->vector;
        if (count) accumulate_dense(sums, v, c, weights, w->line, &g, count, step, mode, edge);
        else accumulate_any(sums, v, c, LANES, weights, w->line, &g, mode);
        if (backward) store_gradient_strip(f, sums, c, f->sums + SUM_VECTORS * c);
        else store_output_strip(f, sums, c, f->sums + SUM_VECTORS * c);
    }
    if (c < f->channels) convolve_tail(v, w, f, act, mode, c);
}

typedef void dwconv_kernel(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act);
#define STRIP_FUNCTION(name, count, step, mode, edge, backward) \
    static void name(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act) { \
        convolve_strip(v, w, f, act, count, step, mode, edge, backward); \
    }
/* Names: taps, then step; within: no column outside of the image. */
#define STRIP_FUNCTIONS(mode) \
    STRIP_FUNCTION(any_##mode, 0, 0, mode, 1, 0) \
    STRIP_FUNCTION(three_##mode, 3, 1, mode, 1, 0) \
    STRIP_FUNCTION(three_within_##mode, 3, 1, mode, 0, 0) \
    STRIP_FUNCTION(three_by_two_##mode, 3, 2, mode, 1, 0) \
    STRIP_FUNCTION(three_by_two_within_##mode, 3, 2, mode, 0, 0)
STRIP_FUNCTIONS(IDENTITY)
STRIP_FUNCTIONS(AFFINE_RELU)
STRIP_FUNCTIONS(AFFINE_CLAMP)
STRIP_FUNCTIONS(FP16_AFFINE_CLAMP)
STRIP_FUNCTION(back_any, 0, 0, IDENTITY, 1, 1)
STRIP_FUNCTION(back_one, 1, 1, IDENTITY, 1, 1)
STRIP_FUNCTION(back_one_within, 1, 1, IDENTITY, 0, 1)
STRIP_FUNCTION(back_two, 2, 1, IDENTITY, 1, 1)
STRIP_FUNCTION(back_two_within, 2, 1, IDENTITY, 0, 1)
STRIP_FUNCTION(back_three, 3, 1, IDENTITY, 1, 1)
STRIP_FUNCTION(back_three_within, 3, 1, IDENTITY, 0, 1)

enum tap_shape { TAPS_ANY, TAPS_1, TAPS_2, TAPS_3, TAPS_3_STRIDE_2, TAP_SHAPES };
static enum tap_shape tap_shape_of(const taps *t, i32 step) {
    if (t->count == 3 && t->spacing == 1 && step <= 2) return step == 1 ? TAPS_3 : TAPS_3_STRIDE_2;
    if (t->count == 2 && t->spacing == 1 && step == 1) return TAPS_2;
    return t->count == 1 && step == 1 ? TAPS_1 : TAPS_ANY;
}

static dwconv_kernel *strip_forward(enum tap_shape tap_shape, enum input_mode mode, i32 edge) {
#define CHOICES(mode) \
    {{any_##mode, any_##mode}, {any_##mode, any_##mode}, {any_##mode, any_##mode}, {three_within_##mode, three_##mode}, \
     {three_by_two_within_##mode, three_by_two_##mode}}
    static dwconv_kernel *const choices[INPUT_MODES][TAP_SHAPES][2] = {CHOICES(IDENTITY), CHOICES(AFFINE_RELU), CHOICES(AFFINE_CLAMP), CHOICES(FP16_AFFINE_CLAMP)};
    return choices[mode][tap_shape][edge];
}

static dwconv_kernel *strip_backward(enum tap_shape tap_shape, i32 edge) {
    static dwconv_kernel *const choices[TAP_SHAPES][2] = {{back_any, back_any},
                                                       {back_one_within, back_one},
                                                       {back_two_within, back_two},
                                                       {back_three_within, back_three},
                                                       {back_any, back_any}};
    return choices[tap_shape][edge];
}

/* What a thread keeps: weights of all channels, sums for a norm of the channels in a block, taps of each phase. */
typedef struct {
    float *weights, *sums;
    taps *phases;
} dw_scratch;

static i64 weights_bytes(const dw_plan *k) {
    return aligned_bytes(vector_count(k->channels) * k->kernel_h * k->kernel_w * LANES);
}
static i64 norm_sums_bytes(const dw_plan *k) { return aligned_bytes(SUM_VECTORS * (i64)k->block); }
static i64 scratch_bytes(const dw_plan *k) {
    return weights_bytes(k) + norm_sums_bytes(k) + ROUND_UP(k->phases * (i64)sizeof(taps), 64);
}

static void pack_weights(const dw_plan *k, const float *weights, float *to) {
    i32 all = k->kernel_h * k->kernel_w;
    for (i32 c = 0; c < k->channels; c += LANES)
        for (i32 tap = 0; tap < all; tap++, to += LANES)
            store(to, load_lanes(weights + (i64)tap * k->channels + c, MIN(LANES, k->channels - c)));
}

static dw_scratch prepare_scratch(const dw_plan *k, const worker *w, const float *weights) {
    char *at = w->workspace + w->index * scratch_bytes(k);
    dw_scratch b = {(float *)at, (float *)(at + weights_bytes(k)), (taps *)(at + weights_bytes(k) + norm_sums_bytes(k))};
    pack_weights(k, weights, b.weights);
    for (i32 c = 0; c < SUM_VECTORS * k->block; c += LANES) store(b.sums + c, (vec)0);
    for (i32 phase = 0; phase < k->phases; phase++) b.phases[phase] = plan_taps(k, k->kernel_w, k->pad_w, phase);
    return b;
}

/* The tap rows of an output row that lie inside of the image: `rows` of them from tap `first` on; the first meets input row y. */
typedef struct {
    i32 first, rows, y;
} tap_rows;

static tap_rows tap_rows_inside(const dw_plan *k, const taps *t, i32 y) {
    i32 at = y / k->phases * k->step + t->offset, first = 0, past = t->count;
    while (first < past && at + first * t->spacing < 0) first++;
    while (first < past && at + (past - 1) * t->spacing >= k->in_h) past--;
    return (tap_rows){first, past - first, at + first * t->spacing};
}

/* The input rows that the row after this one needs and this one does not. */
static void prefetch_input_rows(const dw_plan *k, const fused_input *x, const taps *t, i32 y, const void *image, i32 column, i32 channels, strip_input *v) {
    v->next_count = 0;
    if (y % k->phases) return;
    i32 past = y / k->phases * k->step + t->offset + (t->count - 1) * t->spacing + 1;
    for (i32 row = MAX(past, 0); row < MIN(past + MIN(k->step, 2), k->in_h); row++)
        v->next[v->next_count++] =
            prefetch_strip_at(element_at(image, ((i64)row * k->in_w + column) * x->ld, x->dtype), x->ld, channels, x->dtype);
}

static void prefetch_output(strip_epilogue *f) {
    const conv_forward *op = f->forward;
    const fused_gradient *s = f->backward;
    i64 next = f->pixel + (i64)f->count * f->apart;
    f->y.at = 0;
    if (op) f->to = prefetch_strip_at(element_at(op->y, next * op->ld_y + f->c0, op->dtype), op->ld_y, f->channels, op->dtype);
    else f->to = prefetch_strip_at(s->data + next * s->ld + f->c0, s->ld, f->channels, FP32);
    if (s && s->y) f->y = prefetch_strip_at(element_at(s->y, next * s->ld_y + f->c0, s->dtype), s->ld_y, f->channels, s->dtype);
}

static void convolve_row(const dw_plan *k, const dw_scratch *b, const fused_input *x, strip_epilogue *f, i64 image, i32 y) {
    taps ty = plan_taps(k, k->kernel_h, k->pad_h, y % k->phases);
    tap_rows inside = tap_rows_inside(k, &ty, y);
    i64 of_vector = (i64)k->kernel_h * k->kernel_w * LANES, of_line = (i64)k->kernel_w * LANES;
    const void *of_image = element_at(x->data, image * k->in_h * k->in_w * x->ld + f->c0, x->dtype);
    const void *line = element_at(of_image, (i64)inside.y * k->in_w * x->ld, x->dtype);
    const float *weights = b->weights + f->c0 / LANES * of_vector + (ty.first_tap + inside.first * ty.tap_step) * of_line;
    i64 row = (image * k->out_h + y) * k->out_w;
    strip_input v = {.scale = x->scale + f->c0, .shift = x->shift + f->c0, .apart = x->ld, .line = ty.spacing * k->in_w * (i64)x->ld};
    if (!x->scale) v.scale = 0;
    v.step = k->step;
    for (i32 column = 0, j = 0; column < k->out_w; column += STRIP * k->phases, j += STRIP)
        for (i32 phase = 0; phase < MIN(k->phases, k->out_w - column); phase++) {
            v.taps = &b->phases[phase];
            i32 first = j * k->step + v.taps->offset, span = (STRIP - 1) * k->step + (v.taps->count - 1) * v.taps->spacing + 1;
            v.from = element_at(line, (i64)first * x->ld, x->dtype);
            v.rows = v.taps->count ? inside.rows : 0;
            v.start = -first, v.end = k->in_w - first;
            prefetch_input_rows(k, x, &ty, y, of_image, j * k->step, f->channels, &v);
            if (phase) v.next_count = 0;
            f->pixel = row + column + phase;
            f->count = MIN(STRIP, CEIL_DIV(k->out_w - column - phase, k->phases));
            prefetch_output(f);
            strip_weights w = {weights + v.taps->first_tap * LANES, ty.tap_step * of_line, of_vector};
            i32 edge = v.start > 0 || v.end < span;
            enum tap_shape tap_shape = tap_shape_of(v.taps, k->step);
            (f->forward ? strip_forward(tap_shape, input_mode_of(x), edge) : strip_backward(tap_shape, edge))(&v, &w, f, x->act);
            f->summed += f->count;
        }
}

static void process_tiles(const dw_plan *k, worker *w, const fused_input *x, strip_epilogue *f, const dw_scratch *b) {
    const batch_norm *n = f->forward ? f->forward->norm : f->backward->norm;
    i64 blocks = channel_blocks(k), tiles = CEIL_DIV(output_rows(k), k->chunk) * blocks;
    f->worker = w, f->sums = b->sums, f->apart = k->phases;
    for (i64 tile = next_tile(w); tile < tiles; tile = next_tile(w)) {
        f->c0 = (i32)(tile % blocks) * k->block, f->channels = MIN(k->block, k->channels - f->c0);
        i64 row = tile / blocks * k->chunk, end = MIN(output_rows(k), row + k->chunk);
        for (; row < end; row++) {
            convolve_row(k, b, x, f, row / k->out_h, (i32)(row % k->out_h));
            if (f->summed >= MAX_SUMMED_PIXELS || row + 1 == end) flush_sums(f, n);
        }
    }
}

static void run_depthwise_forward(worker *w, const void *p) {
    const conv_forward *op = p;
    dw_plan k = plan_forward(&op->g, w->threads);
    dw_scratch b = prepare_scratch(&k, w, op->weights);
    strip_epilogue f = {.forward = op};
    if (op->norm) batch_norm_clear_sums(op->norm, w);
    process_tiles(&k, w, &op->x, &f, &b);
    if (!op->norm) return;
    barrier(w);
    batch_norm_finish_statistics(op->norm, w, output_rows(&k) * k.out_w);
}

static i64 workspace_depthwise_forward(i32 threads, const void *p) {
    dw_plan k = plan_forward(&((const conv_forward *)p)->g, threads);
    return threads * scratch_bytes(&k);
}

static void run_depthwise_backward_data(worker *w, const void *p) {
    const conv_backward_data *op = p;
    dw_plan k = plan_backward_data(&op->g, w->threads);
    dw_scratch b = prepare_scratch(&k, w, op->weights);
    strip_epilogue f = {.backward = &op->dx};
    fused_input dy = {.data = op->dy, .ld = op->ld_dy};
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    process_tiles(&k, w, &dy, &f, &b);
}

static i64 workspace_depthwise_backward_data(i32 threads, const void *p) {
    dw_plan k = plan_backward_data(&((const conv_backward_data *)p)->g, threads);
    return threads * scratch_bytes(&k);
}

/* Gradients of the weights: dy is walked like an output, and each tap keeps a sum. The rows of all images are cut into chunks
 * with sums of their own, added up in the end in their order: so the result does not depend on who took which. */
enum { CHUNKS_PER_THREAD = 4 };

/* Of one chunk, vector by vector of channels: a sum a tap, and one more for the bias. */
INLINE i64 sums_of_vector(const dw_plan *k) { return ((i64)k->kernel_h * k->kernel_w + 1) * LANES; }
static i64 sums_bytes(const dw_plan *k) { return aligned_bytes(vector_count(k->channels) * sums_of_vector(k)); }

static dw_plan plan_backward_weights(const geometry *g, i32 threads) {
    dw_plan k = plan_forward(g, threads);
    k.chunk = CEIL_DIV(output_rows(&k), threads * CHUNKS_PER_THREAD);
    return k;
}

static i64 chunks_of(const dw_plan *k) { return CEIL_DIV(output_rows(k), k->chunk); }

static i64 workspace_depthwise_backward_weights(i32 threads, const void *p) {
    dw_plan k = plan_backward_weights(&((const conv_backward_weights *)p)->g, threads);
    return chunks_of(&k) * sums_bytes(&k);
}

/* A strip of dy, and the sums it goes to: `sums` is the first tap of the first row that meets the strip. */
typedef struct {
    const float *from;
    float *sums;
    i64 apart, line, vector; /* floats: pixel to pixel of dy; tap row to tap row and vector to vector of sums */
    i32 count, channels;
    i64 bias; /* where the bias's sum lies, from `sums` on; or -1 */
    prefetch_strip next;
} gradient_strip;

INLINE void correlate_dense(const strip_input *v, const vec *d, float *sums, i64 sums_line, i32 c, const affine *g, const i32 step,
                            const enum input_mode mode, const i32 edge) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->line, dtype), sums += sums_line) {
        vec s[3];
        UNROLL for (i32 i = 0; i < 3; i++) s[i] = load(sums + i * LANES);
        UNROLL for (i32 q = 0; q < (STRIP - 1) * step + 3; q++) {
            if (edge && (q < v->start || q >= v->end)) continue;
            vec x = apply_affine(load_as_fp32(element_at(from, q * v->apart, dtype), LANES, dtype), g, mode);
            UNROLL for (i32 i = 0; i < 3; i++)
                if (q >= i && (q - i) % step == 0 && (q - i) / step < STRIP) s[i] += x * d[(q - i) / step];
        }
        UNROLL for (i32 i = 0; i < 3; i++) store(sums + i * LANES, s[i]);
    }
}

INLINE void correlate_any(const strip_input *v, const vec *d, float *sums, i64 sums_line, i32 c, i32 lanes, const affine *g,
                          const enum input_mode mode) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->line, dtype), sums += sums_line)
        for (i32 i = 0; i < v->taps->count; i++) {
            vec s = load(sums + i * LANES);
            UNROLL for (i32 j = 0; j < STRIP; j++) {
                i32 q = i * v->taps->spacing + j * v->step;
                if (q < v->start || q >= v->end) continue;
                s += d[j] * apply_affine(load_as_fp32(element_at(from, q * v->apart, dtype), lanes, dtype), g, mode);
            }
            store(sums + i * LANES, s);
        }
}

INLINE void load_gradient_strip(const gradient_strip *r, vec *d, i32 c, i32 lanes) {
    UNROLL for (i32 i = 0; i < STRIP; i++) d[i] = i < r->count ? load_lanes(r->from + i * r->apart + c, lanes) : (vec)0;
}

INLINE void accumulate_bias(const gradient_strip *r, const vec *d, float *sums) {
    if (r->bias < 0) return;
    vec s = load(sums + r->bias);
    UNROLL for (i32 i = 0; i < STRIP; i++) s += d[i];
    store(sums + r->bias, s);
}

static NOINLINE void correlate_tail(const strip_input *v, const gradient_strip *r, i32 act, enum input_mode mode, i32 c, float *sums) {
    i32 lanes = r->channels - c;
    vec d[STRIP];
    load_gradient_strip(r, d, c, lanes);
    affine g = load_affine(v, act, c, lanes, AFFINE_CLAMP);
    if (mode == FP16_AFFINE_CLAMP) correlate_any(v, d, sums, r->line, c, lanes, &g, FP16_AFFINE_CLAMP);
    else correlate_any(v, d, sums, r->line, c, lanes, &g, AFFINE_CLAMP);
    accumulate_bias(r, d, sums);
}

/* step 0 stands for any taps. */
INLINE void correlate_strip(const strip_input *v, const gradient_strip *r, i32 act, const i32 step, const enum input_mode mode, const i32 edge) {
    i32 c = 0;
    float *sums = r->sums;
    for (i32 vector = 0; c + LANES <= r->channels; c += LANES, vector++, sums += r->vector) {
        for (i32 i = 0; i < v->next_count; i++) prefetch_to_read(&v->next[i], vector);
        prefetch_to_read(&r->next, vector);
        vec d[STRIP];
        load_gradient_strip(r, d, c, LANES);
        affine g = load_affine(v, act, c, LANES, mode);
        if (step) correlate_dense(v, d, sums, r->line, c, &g, step, mode, edge);
        else correlate_any(v, d, sums, r->line, c, LANES, &g, mode);
        accumulate_bias(r, d, sums);
    }
    if (c < r->channels) correlate_tail(v, r, act, mode, c, sums);
}

typedef void correlate_function(const strip_input *v, const gradient_strip *r, i32 act);
#define CORRELATE_FUNCTION(name, step, mode, edge) \
    static void name(const strip_input *v, const gradient_strip *r, i32 act) { correlate_strip(v, r, act, step, mode, edge); }
#define CORRELATE_FUNCTIONS(mode) \
    CORRELATE_FUNCTION(correlate_any_##mode, 0, mode, 1) \
    CORRELATE_FUNCTION(correlate_by_one_##mode, 1, mode, 1) \
    CORRELATE_FUNCTION(correlate_by_one_within_##mode, 1, mode, 0) \
    CORRELATE_FUNCTION(correlate_by_two_##mode, 2, mode, 1) \
    CORRELATE_FUNCTION(correlate_by_two_within_##mode, 2, mode, 0)
CORRELATE_FUNCTIONS(IDENTITY)
CORRELATE_FUNCTIONS(AFFINE_RELU)
CORRELATE_FUNCTIONS(AFFINE_CLAMP)
CORRELATE_FUNCTIONS(FP16_AFFINE_CLAMP)

static correlate_function *correlate_for(enum tap_shape tap_shape, enum input_mode mode, i32 edge) {
#define CORRELATE_CHOICES(mode) \
    {{correlate_any_##mode, correlate_any_##mode}, {correlate_by_one_within_##mode, correlate_by_one_##mode}, \
     {correlate_by_two_within_##mode, correlate_by_two_##mode}}
    static correlate_function *const choices[INPUT_MODES][3][2] = {CORRELATE_CHOICES(IDENTITY), CORRELATE_CHOICES(AFFINE_RELU),
                                                                   CORRELATE_CHOICES(AFFINE_CLAMP), CORRELATE_CHOICES(FP16_AFFINE_CLAMP)};
    return choices[mode][tap_shape == TAPS_3 ? 1 : tap_shape == TAPS_3_STRIDE_2 ? 2 : 0][edge];
}

static void correlate_row(const conv_backward_weights *op, const dw_plan *k, i64 image, i32 y, i32 c0, i32 channels, float *sums) {
    const fused_input *x = &op->x;
    taps tx = taps_forward(k->kernel_w, k->pad_w, k->dilation), ty = taps_forward(k->kernel_h, k->pad_h, k->dilation);
    tap_rows inside = tap_rows_inside(k, &ty, y);
    const void *of_image = element_at(x->data, image * k->in_h * k->in_w * x->ld + c0, x->dtype);
    const void *line = element_at(of_image, (i64)inside.y * k->in_w * x->ld, x->dtype);
    const float *dy = op->dy + (image * k->out_h + y) * k->out_w * op->ld_dy + c0;
    strip_input v = {.scale = x->scale + c0, .shift = x->shift + c0, .apart = x->ld, .line = ty.spacing * k->in_w * (i64)x->ld};
    if (!x->scale) v.scale = 0;
    v.step = k->step, v.taps = &tx, v.rows = inside.rows;
    gradient_strip r = {.apart = op->ld_dy, .line = (i64)k->kernel_w * LANES, .vector = sums_of_vector(k), .channels = channels};
    r.sums = sums + inside.first * r.line;
    r.bias = op->dbias ? r.vector - LANES - inside.first * r.line : -1;
    for (i32 j = 0; j < k->out_w; j += STRIP) {
        i32 first = j * k->step + tx.offset, span = (STRIP - 1) * k->step + (tx.count - 1) * tx.spacing + 1;
        v.from = element_at(line, (i64)first * x->ld, x->dtype);
        v.start = -first, v.end = k->in_w - first;
        prefetch_input_rows(k, x, &ty, y, of_image, j * k->step, channels, &v);
        r.from = dy + (i64)j * op->ld_dy;
        r.count = MIN(STRIP, k->out_w - j);
        r.next = prefetch_strip_at(r.from + (i64)STRIP * op->ld_dy, op->ld_dy, channels, FP32);
        i32 edge = v.start > 0 || v.end < span;
        correlate_for(tap_shape_of(&tx, k->step), input_mode_of(x), edge)(&v, &r, x->act);
    }
}

/* One vector of channels: all chunks' sums, to the gradients. */
static void reduce_chunks(const conv_backward_weights *op, const dw_plan *k, const char *sums, i64 vector) {
    i32 all = k->kernel_h * k->kernel_w, c = (i32)vector * LANES, lanes = MIN(LANES, k->channels - c);
    for (i32 tap = 0; tap < all + (op->dbias != 0); tap++) {
        vec sum = 0;
        for (i64 chunk = 0; chunk < chunks_of(k); chunk++)
            sum += load((const float *)(sums + chunk * sums_bytes(k)) + vector * sums_of_vector(k) + tap * LANES);
        float *to = (tap < all ? op->dweights + (i64)tap * k->channels : op->dbias) + c;
        if (op->accumulate) sum += load_lanes(to, lanes);
        store_lanes(to, sum, lanes);
    }
}

static void run_depthwise_backward_weights(worker *w, const void *p) {
    const conv_backward_weights *op = p;
    dw_plan k = plan_backward_weights(&op->g, w->threads);
    i64 blocks = channel_blocks(&k), tiles = chunks_of(&k) * blocks;
    for (i64 tile = next_tile(w); tile < tiles; tile = next_tile(w)) {
        i32 c0 = (i32)(tile % blocks) * k.block, channels = MIN(k.block, k.channels - c0);
        i64 row = tile / blocks * k.chunk, past = MIN(output_rows(&k), row + k.chunk), of_vector = sums_of_vector(&k);
        float *sums = (float *)(w->workspace + tile / blocks * sums_bytes(&k)) + c0 / LANES * of_vector;
        for (i64 i = 0; i < vector_count(channels) * of_vector; i += LANES) store(sums + i, (vec)0);
        for (; row < past; row++) correlate_row(op, &k, row / k.out_h, (i32)(row % k.out_h), c0, channels, sums);
    }
    barrier(w);
    i64 start, end;
    split_range(vector_count(k.channels), w->index, w->threads, &start, &end);
    for (i64 vector = start; vector < end; vector++) reduce_chunks(op, &k, w->workspace, vector);
}
