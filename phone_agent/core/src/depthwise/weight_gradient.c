/* Depthwise weight gradient: loops over dy like the forward pass over its output, with one sum per tap. The rows of
 * all images are cut into chunks with their own sums, which are added in order at the end. So the result does not
 * depend on which thread computed which chunk. */
enum { CHUNKS_PER_THREAD = 4 };

/* Sums of one chunk, by vectors of channels: one sum per tap, and one for the bias. */
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

/* A strip of dy and the sums it contributes to. `sums` is the first tap of the first row that applies to the strip. */
typedef struct {
    const float *from;
    float *sums;
    i64 pixel_stride, row_stride,
        vector; /* floats: between pixels of dy; between tap rows, and between vectors of sums */
    i32 count, channels;
    i64 bias; /* offset of the bias sum from `sums`, or -1 */
    prefetch_strip next;
} gradient_strip;

INLINE void correlate_dense(const strip_input *v, const vec *d, float *sums, i64 sums_line, i32 c, const affine *g,
                            const i32 step, const enum input_mode mode, const i32 edge) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->row_stride, dtype), sums += sums_line) {
        vec s[3];
        UNROLL for (i32 i = 0; i < 3; i++) s[i] = load(sums + i * LANES);
        UNROLL for (i32 q = 0; q < (STRIP - 1) * step + 3; q++) {
            if (edge && (q < v->start || q >= v->end)) continue;
            vec x = apply_affine(load_as_fp32(element_at(from, q * v->pixel_stride, dtype), LANES, dtype), g, mode);
            UNROLL for (i32 i = 0; i < 3; i++) if (q >= i && (q - i) % step == 0 && (q - i) / step < STRIP) s[i] +=
                x * d[(q - i) / step];
        }
        UNROLL for (i32 i = 0; i < 3; i++) store(sums + i * LANES, s[i]);
    }
}

INLINE void correlate_any(const strip_input *v, const vec *d, float *sums, i64 sums_line, i32 c, i32 lanes,
                          const affine *g, const enum input_mode mode) {
    const i32 dtype = dtype_of(mode);
    const void *from = element_at(v->from, c, dtype);
    for (i32 y = 0; y < v->rows; y++, from = element_at(from, v->row_stride, dtype), sums += sums_line)
        for (i32 i = 0; i < v->taps->count; i++) {
            vec s = load(sums + i * LANES);
            UNROLL for (i32 j = 0; j < STRIP; j++) {
                i32 q = i * v->taps->spacing + j * v->step;
                if (q < v->start || q >= v->end) continue;
                s += d[j] *
                     apply_affine(load_as_fp32(element_at(from, q * v->pixel_stride, dtype), lanes, dtype), g, mode);
            }
            store(sums + i * LANES, s);
        }
}

INLINE void load_gradient_strip(const gradient_strip *r, vec *d, i32 c, i32 lanes) {
    UNROLL for (i32 i = 0; i < STRIP; i++) d[i] =
        i < r->count ? load_lanes(r->from + i * r->pixel_stride + c, lanes) : (vec)0;
}

INLINE void accumulate_bias(const gradient_strip *r, const vec *d, float *sums) {
    if (r->bias < 0) return;
    vec s = load(sums + r->bias);
    UNROLL for (i32 i = 0; i < STRIP; i++) s += d[i];
    store(sums + r->bias, s);
}

static NOINLINE void correlate_tail(const strip_input *v, const gradient_strip *r, i32 act, enum input_mode mode, i32 c,
                                    float *sums) {
    i32 lanes = r->channels - c;
    vec d[STRIP];
    load_gradient_strip(r, d, c, lanes);
    affine g = load_affine(v, act, c, lanes, AFFINE_CLAMP);
    if (mode == FP16_AFFINE_CLAMP) correlate_any(v, d, sums, r->row_stride, c, lanes, &g, FP16_AFFINE_CLAMP);
    else correlate_any(v, d, sums, r->row_stride, c, lanes, &g, AFFINE_CLAMP);
    accumulate_bias(r, d, sums);
}

/* step 0 stands for any taps. */
INLINE void correlate_strip(const strip_input *v, const gradient_strip *r, i32 act, const i32 step,
                            const enum input_mode mode, const i32 edge) {
    i32 c = 0;
    float *sums = r->sums;
    for (i32 vector = 0; c + LANES <= r->channels; c += LANES, vector++, sums += r->vector) {
        for (i32 i = 0; i < v->next_count; i++) prefetch_to_read(&v->next[i], vector);
        prefetch_to_read(&r->next, vector);
        vec d[STRIP];
        load_gradient_strip(r, d, c, LANES);
        affine g = load_affine(v, act, c, LANES, mode);
        if (step) correlate_dense(v, d, sums, r->row_stride, c, &g, step, mode, edge);
        else correlate_any(v, d, sums, r->row_stride, c, LANES, &g, mode);
        accumulate_bias(r, d, sums);
    }
    if (c < r->channels) correlate_tail(v, r, act, mode, c, sums);
}

/* The kernels, named like those of convolve.c. */
typedef void wgrad_kernel(const strip_input *v, const gradient_strip *r, i32 act);
#define DWCONV_WGRAD_KERNEL(name, step, mode, edge) \
    static void FOR_ISA(name)(const strip_input *v, const gradient_strip *r, i32 act) { \
        correlate_strip(v, r, act, step, mode, edge); \
    }
#define DWCONV_WGRAD(type, load, mode) \
    DWCONV_WGRAD_KERNEL(type##_dwconv_wgrad_any_7p_##load, 0, mode, 1) \
    DWCONV_WGRAD_KERNEL(type##_dwconv_wgrad_k3s1_7p_##load##_edge, 1, mode, 1) \
    DWCONV_WGRAD_KERNEL(type##_dwconv_wgrad_k3s1_7p_##load##_inner, 1, mode, 0) \
    DWCONV_WGRAD_KERNEL(type##_dwconv_wgrad_k3s2_7p_##load##_edge, 2, mode, 1) \
    DWCONV_WGRAD_KERNEL(type##_dwconv_wgrad_k3s2_7p_##load##_inner, 2, mode, 0)
DWCONV_WGRAD(f32, identity, IDENTITY)
DWCONV_WGRAD(f32, relu, AFFINE_RELU)
DWCONV_WGRAD(f32, clamp, AFFINE_CLAMP)
DWCONV_WGRAD(f16, clamp, FP16_AFFINE_CLAMP)

static wgrad_kernel *weight_gradient_kernel(enum tap_shape shape, enum input_mode mode, i32 edge) {
    enum { ANY_TAPS, STRIDE_1, STRIDE_2, VARIANTS };
#define WGRAD_BY_STRIDE(type, load) \
    { \
        [ANY_TAPS] = {FOR_ISA(type##_dwconv_wgrad_any_7p_##load), FOR_ISA(type##_dwconv_wgrad_any_7p_##load)}, \
        [STRIDE_1] = BOTH(type##_dwconv_wgrad_k3s1_7p_##load), [STRIDE_2] = BOTH(type##_dwconv_wgrad_k3s2_7p_##load) \
    }
    static wgrad_kernel *const kernels[INPUT_MODES][VARIANTS][2] = {
        [IDENTITY] = WGRAD_BY_STRIDE(f32, identity),
        [AFFINE_RELU] = WGRAD_BY_STRIDE(f32, relu),
        [AFFINE_CLAMP] = WGRAD_BY_STRIDE(f32, clamp),
        [FP16_AFFINE_CLAMP] = WGRAD_BY_STRIDE(f16, clamp),
    };
    return kernels[mode][shape == TAPS_3 ? STRIDE_1 : shape == TAPS_3_STRIDE_2 ? STRIDE_2 : ANY_TAPS][edge];
}

static void correlate_row(const conv_backward_weights *op, const dw_plan *k, i64 image, i32 y, i32 c0, i32 channels,
                          float *sums) {
    const fused_input *x = &op->x;
    taps tx = taps_forward(k->kernel_w, k->pad_w, k->dilation), ty = taps_forward(k->kernel_h, k->pad_h, k->dilation);
    tap_rows inside = tap_rows_inside(k, &ty, y);
    const void *of_image = element_at(x->data, image * k->in_h * k->in_w * x->ld + c0, x->dtype);
    const void *line = element_at(of_image, (i64)inside.y * k->in_w * x->ld, x->dtype);
    const float *dy = op->dy + (image * k->out_h + y) * k->out_w * op->ld_dy + c0;
    strip_input v = {.scale = x->scale + c0,
                     .shift = x->shift + c0,
                     .pixel_stride = x->ld,
                     .row_stride = ty.spacing * k->in_w * (i64)x->ld};
    if (!x->scale) v.scale = 0;
    v.step = k->step, v.taps = &tx, v.rows = inside.rows;
    gradient_strip r = {.pixel_stride = op->ld_dy,
                        .row_stride = (i64)k->kernel_w * LANES,
                        .vector = sums_of_vector(k),
                        .channels = channels};
    r.sums = sums + inside.first * r.row_stride;
    r.bias = op->dbias ? r.vector - LANES - inside.first * r.row_stride : -1;
    for (i32 j = 0; j < k->out_w; j += STRIP) {
        i32 first = j * k->step + tx.offset, span = (STRIP - 1) * k->step + (tx.count - 1) * tx.spacing + 1;
        v.from = element_at(line, (i64)first * x->ld, x->dtype);
        v.start = -first, v.end = k->in_w - first;
        prefetch_input_rows(k, x, &ty, y, of_image, j * k->step, channels, &v);
        r.from = dy + (i64)j * op->ld_dy;
        r.count = MIN(STRIP, k->out_w - j);
        r.next = prefetch_strip_at(r.from + (i64)STRIP * op->ld_dy, op->ld_dy, channels, FP32);
        i32 edge = v.start > 0 || v.end < span;
        weight_gradient_kernel(tap_shape_of(&tx, k->step), input_mode_of(x), edge)(&v, &r, x->act);
    }
}

/* Add the sums of all chunks for one vector of channels and store the gradients. */
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
