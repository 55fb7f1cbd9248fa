/* Depthwise forward and backward data. */
#include "depthwise/strip.h"

/* Accumulate a strip over `count` neighboring taps; consecutive outputs are `step` columns apart. */
INLINE void accumulate_dense(vec *sums, const strip_input *v, i32 c, const float *weights, i64 weights_line,
                             const affine *g, const i32 count, const i32 step, const enum input_mode mode,
                             const i32 edge) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    i64 next = v->taps->tap_step * LANES;
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->row_stride, dtype), weights += weights_line) {
        vec w[3];
        UNROLL for (i32 i = 0; i < count; i++) w[i] = load(weights + i * next);
        UNROLL for (i32 q = 0; q < (STRIP - 1) * step + count; q++) {
            if (edge && (q < v->start || q >= v->end)) continue;
            vec x = apply_affine(load_as_fp32(element_at(from, q * v->pixel_stride, dtype), LANES, dtype), g, mode);
            UNROLL for (i32 i = 0; i < count; i++) if (q >= i && (q - i) % step == 0 && (q - i) / step < STRIP)
                sums[(q - i) / step] += x * w[i];
        }
    }
}

/* The same for any taps, and for a partial vector of channels. */
INLINE void accumulate_any(vec *sums, const strip_input *v, i32 c, i32 lanes, const float *weights, i64 weights_line,
                           const affine *g, const enum input_mode mode) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->row_stride, dtype), weights += weights_line)
        for (i32 i = 0; i < v->taps->count; i++) {
            vec w = load(weights + (i64)i * v->taps->tap_step * LANES);
            UNROLL for (i32 j = 0; j < STRIP; j++) {
                i32 q = i * v->taps->spacing + j * v->step;
                if (q < v->start || q >= v->end) continue;
                sums[j] +=
                    w * apply_affine(load_as_fp32(element_at(from, q * v->pixel_stride, dtype), lanes, dtype), g, mode);
            }
        }
}

/* The epilogue of a strip: `count` output pixels from `pixel` on, `pixel_stride` apart, channels from c0 on. Exactly
 * one of forward and backward is set. The sums for a normalization are kept in fp32 for some pixels (per vector of
 * channels: two sums, and the pivot of the forward pass, see add_statistics) and then added to those of the norm. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *backward;
    const worker *worker;
    float *sums;
    i64 pixel;
    i32 count, pixel_stride, c0, channels, summed; /* summed: pixels in sums */
    prefetch_strip to, y;                          /* what the next strip writes, and reads */
} strip_epilogue;

/* Like store_output_tile, for outputs in registers. */
INLINE void store_output_strip_as(const strip_epilogue *f, const vec *outputs, i32 c, float *sums, const i32 dtype) {
    const conv_forward *op = f->forward;
    c += f->c0;
    void *y = element_at(op->y, f->pixel * op->ld_y + c, dtype);
    vec bias = op->bias ? load(op->bias + c) : (vec)0, sum = 0, squares = 0;
    vec low = lower_limit(op->act), high = upper_limit(op->act),
        pivot = f->summed ? load(sums + 2 * LANES) : outputs[0];
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

INLINE void store_gradient_strip_with_act(const strip_epilogue *f, const vec *gradients, i32 c, float *sums,
                                          const i32 act, const i32 dtype) {
    const fused_gradient *s = f->backward;
    const batch_norm *n = s->norm;
    c += f->c0;
    float *to = s->data + f->pixel * s->ld + c;
    const void *from = element_at(s->y, f->pixel * s->ld_y + c, dtype);
    i64 ld = (i64)f->pixel_stride * s->ld, ld_y = (i64)f->pixel_stride * s->ld_y;
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

/* Like store_gradient_tile, for gradients in registers. */
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
    for (i32 i = 0; i < f->count; i++)
        store(tile + i * LANES, outputs[i]), rows[i] = f->pixel + (i64)i * f->pixel_stride;
    if (f->forward) store_output_tile(f->forward, f->worker, tile, LANES, f->pixel, f->count, f->c0 + c, lanes);
    else store_gradient_tile(f->backward, f->worker, tile, LANES, rows, f->count, f->c0 + c, lanes);
}

/* Add the fp32 sums to those of the norm and reset them. */
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

/* Packed weights: by vectors of channels, tap after tap. `weights` is the first tap of the first row that applies to
 * this strip. */
typedef struct {
    const float *weights;
    i64 row_stride, vector; /* floats between tap rows, and between vectors */
} strip_weights;

INLINE void prefetch_next_strip(const strip_input *v, const strip_epilogue *f, i32 vector) {
    for (i32 i = 0; i < v->next_count; i++) prefetch_to_read(&v->next[i], vector);
    prefetch_to_write(&f->to, vector);
    if (f->y.at) prefetch_to_read(&f->y, vector);
}

static NOINLINE void convolve_tail(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act,
                                   enum input_mode mode, i32 c) {
    i32 lanes = f->channels - c;
    vec sums[STRIP];
    for (i32 i = 0; i < STRIP; i++) sums[i] = 0;
    const float *weights = w->weights + c / LANES * w->vector;
    affine g = load_affine(v, act, c, lanes, AFFINE_CLAMP);
    if (mode == FP16_AFFINE_CLAMP) accumulate_any(sums, v, c, lanes, weights, w->row_stride, &g, FP16_AFFINE_CLAMP);
    else accumulate_any(sums, v, c, lanes, weights, w->row_stride, &g, AFFINE_CLAMP);
    store_tail(f, sums, c, lanes);
}

/* One strip, all channels. count 0 stands for any taps. */
INLINE void convolve_strip(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act,
                           const i32 count, const i32 step, const enum input_mode mode, const i32 edge,
                           const i32 backward) {
    i32 c = 0;
    for (i32 vector = 0; c + LANES <= f->channels; c += LANES, vector++) {
        prefetch_next_strip(v, f, vector);
        vec sums[STRIP];
        UNROLL for (i32 i = 0; i < STRIP; i++) sums[i] = 0;
        affine g = load_affine(v, act, c, LANES, mode);
        const float *weights = w->weights + vector * w->vector;
        if (count) accumulate_dense(sums, v, c, weights, w->row_stride, &g, count, step, mode, edge);
        else accumulate_any(sums, v, c, LANES, weights, w->row_stride, &g, mode);
        if (backward) store_gradient_strip(f, sums, c, f->sums + SUM_VECTORS * c);
        else store_output_strip(f, sums, c, f->sums + SUM_VECTORS * c);
    }
    if (c < f->channels) convolve_tail(v, w, f, act, mode, c);
}

/* The kernels, named as in XNNPACK: input type, dwconv, kernel width and stride (or `any`), pixels computed at once,
 * operation fused into the load. `inner`: all columns are inside the image; `edge`: some may be outside. */
typedef void dwconv_kernel(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act);
#define DWCONV_KERNEL(name, count, step, mode, edge, backward) \
    static void FOR_ISA(name)(const strip_input *v, const strip_weights *w, const strip_epilogue *f, i32 act) { \
        convolve_strip(v, w, f, act, count, step, mode, edge, backward); \
    }
#define DWCONV_FORWARD(type, load, mode) \
    DWCONV_KERNEL(type##_dwconv_any_7p_##load, 0, 0, mode, 1, 0) \
    DWCONV_KERNEL(type##_dwconv_k3s1_7p_##load##_edge, 3, 1, mode, 1, 0) \
    DWCONV_KERNEL(type##_dwconv_k3s1_7p_##load##_inner, 3, 1, mode, 0, 0) \
    DWCONV_KERNEL(type##_dwconv_k3s2_7p_##load##_edge, 3, 2, mode, 1, 0) \
    DWCONV_KERNEL(type##_dwconv_k3s2_7p_##load##_inner, 3, 2, mode, 0, 0)
DWCONV_FORWARD(f32, identity, IDENTITY)
DWCONV_FORWARD(f32, relu, AFFINE_RELU)
DWCONV_FORWARD(f32, clamp, AFFINE_CLAMP)
DWCONV_FORWARD(f16, clamp, FP16_AFFINE_CLAMP)
/* Backward data: the number of taps depends on the phase of the stride. */
DWCONV_KERNEL(f32_dwconv_bwd_any_7p, 0, 0, IDENTITY, 1, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k1_7p_edge, 1, 1, IDENTITY, 1, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k1_7p_inner, 1, 1, IDENTITY, 0, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k2_7p_edge, 2, 1, IDENTITY, 1, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k2_7p_inner, 2, 1, IDENTITY, 0, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k3_7p_edge, 3, 1, IDENTITY, 1, 1)
DWCONV_KERNEL(f32_dwconv_bwd_k3_7p_inner, 3, 1, IDENTITY, 0, 1)

static dwconv_kernel *forward_kernel(enum tap_shape shape, enum input_mode mode, i32 edge) {
#define BOTH(name) {FOR_ISA(name##_inner), FOR_ISA(name##_edge)}
#define ANY_TAPS(type, load) {FOR_ISA(type##_dwconv_any_7p_##load), FOR_ISA(type##_dwconv_any_7p_##load)}
#define BY_SHAPE(type, load) \
    { \
        [TAPS_ANY] = ANY_TAPS(type, load), [TAPS_1] = ANY_TAPS(type, load), [TAPS_2] = ANY_TAPS(type, load), \
        [TAPS_3] = BOTH(type##_dwconv_k3s1_7p_##load), [TAPS_3_STRIDE_2] = BOTH(type##_dwconv_k3s2_7p_##load) \
    }
    static dwconv_kernel *const kernels[INPUT_MODES][TAP_SHAPES][2] = {
        [IDENTITY] = BY_SHAPE(f32, identity),
        [AFFINE_RELU] = BY_SHAPE(f32, relu),
        [AFFINE_CLAMP] = BY_SHAPE(f32, clamp),
        [FP16_AFFINE_CLAMP] = BY_SHAPE(f16, clamp),
    };
    return kernels[mode][shape][edge];
}

static dwconv_kernel *backward_data_kernel(enum tap_shape shape, i32 edge) {
    static dwconv_kernel *const kernels[TAP_SHAPES][2] = {
        [TAPS_ANY] = {FOR_ISA(f32_dwconv_bwd_any_7p), FOR_ISA(f32_dwconv_bwd_any_7p)},
        [TAPS_1] = BOTH(f32_dwconv_bwd_k1_7p),
        [TAPS_2] = BOTH(f32_dwconv_bwd_k2_7p),
        [TAPS_3] = BOTH(f32_dwconv_bwd_k3_7p),
        [TAPS_3_STRIDE_2] = {FOR_ISA(f32_dwconv_bwd_any_7p), FOR_ISA(f32_dwconv_bwd_any_7p)},
    };
    return kernels[shape][edge];
}

/* The private memory of a thread: packed weights of all channels, sums for a norm of the channels in a block, taps
 * of each phase. */
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
    dw_scratch b = {(float *)at, (float *)(at + weights_bytes(k)),
                    (taps *)(at + weights_bytes(k) + norm_sums_bytes(k))};
    pack_weights(k, weights, b.weights);
    for (i32 c = 0; c < SUM_VECTORS * k->block; c += LANES) store(b.sums + c, (vec)0);
    for (i32 phase = 0; phase < k->phases; phase++) b.phases[phase] = plan_taps(k, k->kernel_w, k->pad_w, phase);
    return b;
}

static void prefetch_output(strip_epilogue *f) {
    const conv_forward *op = f->forward;
    const fused_gradient *s = f->backward;
    i64 next = f->pixel + (i64)f->count * f->pixel_stride;
    f->y.at = 0;
    if (op)
        f->to =
            prefetch_strip_at(element_at(op->y, next * op->ld_y + f->c0, op->dtype), op->ld_y, f->channels, op->dtype);
    else f->to = prefetch_strip_at(s->data + next * s->ld + f->c0, s->ld, f->channels, FP32);
    if (s && s->y)
        f->y = prefetch_strip_at(element_at(s->y, next * s->ld_y + f->c0, s->dtype), s->ld_y, f->channels, s->dtype);
}

static void convolve_row(const dw_plan *k, const dw_scratch *b, const fused_input *x, strip_epilogue *f, i64 image,
                         i32 y) {
    taps ty = plan_taps(k, k->kernel_h, k->pad_h, y % k->phases);
    tap_rows inside = tap_rows_inside(k, &ty, y);
    i64 of_vector = (i64)k->kernel_h * k->kernel_w * LANES, of_line = (i64)k->kernel_w * LANES;
    const void *of_image = element_at(x->data, image * k->in_h * k->in_w * x->ld + f->c0, x->dtype);
    const void *line = element_at(of_image, (i64)inside.y * k->in_w * x->ld, x->dtype);
    const float *weights =
        b->weights + f->c0 / LANES * of_vector + (ty.first_tap + inside.first * ty.tap_step) * of_line;
    i64 row = (image * k->out_h + y) * k->out_w;
    strip_input v = {.scale = x->scale + f->c0,
                     .shift = x->shift + f->c0,
                     .pixel_stride = x->ld,
                     .row_stride = ty.spacing * k->in_w * (i64)x->ld};
    if (!x->scale) v.scale = 0;
    v.step = k->step;
    for (i32 column = 0, j = 0; column < k->out_w; column += STRIP * k->phases, j += STRIP)
        for (i32 phase = 0; phase < MIN(k->phases, k->out_w - column); phase++) {
            v.taps = &b->phases[phase];
            i32 first = j * k->step + v.taps->offset,
                span = (STRIP - 1) * k->step + (v.taps->count - 1) * v.taps->spacing + 1;
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
            enum tap_shape shape = tap_shape_of(v.taps, k->step);
            (f->forward ? forward_kernel(shape, input_mode_of(x), edge) : backward_data_kernel(shape, edge))(&v, &w, f,
                                                                                                             x->act);
            f->summed += f->count;
        }
}

static void process_tiles(const dw_plan *k, worker *w, const fused_input *x, strip_epilogue *f, const dw_scratch *b) {
    const batch_norm *n = f->forward ? f->forward->norm : f->backward->norm;
    i64 blocks = channel_blocks(k), tiles = CEIL_DIV(output_rows(k), k->chunk) * blocks;
    f->worker = w, f->sums = b->sums, f->pixel_stride = k->phases;
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
