/* Batch normalization: passes over whole tensors that should run at memory speed.
 *
 * A group of rows is processed with all its channels, so that memory is read in order and per-channel values are
 * loaded once per group. Sums are accumulated in fp32 over ROWS_PER_PARTIAL rows and in double precision beyond.
 * Every thread has a fixed range of rows, so the result does not depend on timing. */

#include "row_loops.h"

/* The two partial sums of each channel of a thread, in whole vectors. */
INLINE i64 partial_floats(i32 channels) { return 2 * ROUND_UP(channels, 16); }
INLINE float *partial_sums(const batch_norm *n, const worker *w, float *workspace) {
    return workspace + w->index * partial_floats(n->channels);
}

/* pivots: null if the values themselves were summed; see add_statistics. */
static void add_partial_sums(const batch_norm *n, const worker *w, float *partial, const void *pivots, i32 dtype,
                             i32 rows) {
    double *sums = batch_norm_sums(n, w->index);
    const float *seconds = partial + partial_floats(n->channels) / 2;
    for (i32 c = 0; c < n->channels; c += LANES) {
        i32 lanes = MIN(LANES, n->channels - c);
        vec pivot = pivots ? load_as_fp32(element_at(pivots, c, dtype), lanes, dtype) : (vec)0;
        add_statistics(sums + c, n->channels, pivot, load(partial + c), load(seconds + c), rows, lanes);
    }
    zero_row(partial, (i32)partial_floats(n->channels));
}

/* ---- forward ---- */

INLINE void accumulate_statistics(i64 row, i32 rows, i32 c, i32 lanes, const batch_norm_forward *op, i32 channels,
                                  const void *pivots, float *partial, i32 dtype) {
    float *seconds = partial + partial_floats(channels) / 2;
    vec pivot = load_as_fp32(element_at(pivots, c, dtype), lanes, dtype), sum = 0, squares = 0;
    for (i32 r = 0; r < rows; r++) {
        vec d = load_as_fp32(element_at(op->z, (row + r) * op->ld_z + c, dtype), lanes, dtype) - pivot;
        sum += d;
        squares += d * d;
    }
    store(partial + c, load(partial + c) + sum);
    store(seconds + c, load(seconds + c) + squares);
}

static void run_batch_norm_forward(worker *w, const void *p) {
    batch_norm_forward op = *(const batch_norm_forward *)p;
    batch_norm *n = op.norm;
    i32 channels = n->channels;
    float *partial = partial_sums(n, w, (float *)w->workspace);
    i64 start, end;
    split_range(op.rows, w->index, w->threads, &start, &end);
    batch_norm_clear_sums(n, w);
    zero_row(partial, (i32)partial_floats(channels));
    for (i64 row = start; row < end; row += ROWS_PER_PARTIAL) {
        const void *pivots = element_at(op.z, row * op.ld_z, op.dtype);
        i64 next = MIN(end, row + ROWS_PER_PARTIAL);
        if (op.dtype == FP16)
            FOR_ROWS_AND_CHANNELS(row, next, channels, accumulate_statistics, &op, channels, pivots, partial, FP16);
        else FOR_ROWS_AND_CHANNELS(row, next, channels, accumulate_statistics, &op, channels, pivots, partial, FP32);
        add_partial_sums(n, w, partial, pivots, op.dtype, (i32)(next - row));
    }
    barrier(w);
    batch_norm_finish_statistics(n, w, op.rows);
}

static i64 workspace_batch_norm_forward(i32 threads, const void *p) {
    const batch_norm_forward *op = p;
    return threads * partial_floats(op->norm->channels) * (i64)sizeof(float);
}

static void run_batch_norm_fold(worker *w, const void *p) {
    const batch_norm *n = ((const batch_norm_fold *)p)->norm;
    i64 start, end;
    split_range(n->channels, w->index, w->threads, &start, &end);
    for (i64 c = start; c < end; c++) {
        n->mean[c] = n->running_mean[c];
        n->inv_std[c] = (float)(1.0 / __builtin_elementwise_sqrt((double)n->running_var[c] + n->epsilon));
        n->scale[c] = n->gamma[c] * n->inv_std[c];
        n->shift[c] = n->beta[c] - n->mean[c] * n->scale[c];
    }
}

static i64 workspace_batch_norm_fold(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

/* ---- backward ---- */

/* With x = (z - mean) inv_std and means over the batch, dz = gamma inv_std (g - mean(g) - x mean(g x)). For each
 * channel that is of_g * g + of_z * z + constant. */
typedef struct {
    float *of_g, *of_z, *constant;
} coefficients;

INLINE i64 coefficient_floats(i32 channels) { return 3 * ROUND_UP(channels, 16); }

INLINE coefficients coefficients_in(const batch_norm *n, float *workspace) {
    i64 each = coefficient_floats(n->channels) / 3;
    return (coefficients){workspace, workspace + each, workspace + 2 * each};
}

/* The gradient of the residual sum behind its activation, as the other branch needs it. */
INLINE vec residual_gradient(const batch_norm_backward *op, i64 row, i32 c, i32 lanes, i32 residual_act, i32 dtype) {
    const float *dy = op->dy + row * op->ld_dy + c;
    vec g = load_lanes(dy, lanes);
    prefetch_page_ahead(dy);
    if (residual_act == ACT_NONE) return g;
    return activation_backward(
        g, load_as_fp32(element_at(op->residual_sum, row * op->ld_residual_sum + c, dtype), lanes, dtype),
        residual_act);
}

INLINE void reduce_group(i64 row, i32 rows, i32 c, i32 lanes, const batch_norm_backward *op, const batch_norm *n,
                         float *partial, i32 act, i32 residual_act, i32 dtype) {
    float *seconds = partial + partial_floats(n->channels) / 2;
    vec mean = load_lanes(n->mean + c, lanes), sum = 0, products = 0, scale = 0, shift = 0;
    if (act != ACT_NONE) scale = load_lanes(n->scale + c, lanes), shift = load_lanes(n->shift + c, lanes);
    for (i32 r = 0; r < rows; r++) {
        const void *from = element_at(op->z, (row + r) * op->ld_z + c, dtype);
        vec z = load_as_fp32(from, lanes, dtype);
        prefetch_page_ahead(from);
        vec g = residual_gradient(op, row + r, c, lanes, residual_act, dtype);
        if (residual_act != ACT_NONE && !op->keep_dy) store_lanes(op->dy + (row + r) * op->ld_dy + c, g, lanes);
        g = activation_backward(g, z * scale + shift, act);
        sum += g;
        products += g * (z - mean);
    }
    store(partial + c, load(partial + c) + sum);
    store(seconds + c, load(seconds + c) + products);
}

INLINE void gradient_group(i64 row, i32 rows, i32 c, i32 lanes, const batch_norm_backward *op, const batch_norm *n,
                           const coefficients *k, i32 act, i32 residual_act, i32 dtype) {
    vec of_g = load(k->of_g + c), of_z = load(k->of_z + c), constant = load(k->constant + c), scale = 0, shift = 0;
    if (act != ACT_NONE) scale = load_lanes(n->scale + c, lanes), shift = load_lanes(n->shift + c, lanes);
    for (i32 r = 0; r < rows; r++) {
        const void *from = element_at(op->z, (row + r) * op->ld_z + c, dtype);
        vec z = load_as_fp32(from, lanes, dtype);
        prefetch_page_ahead(from);
        vec g = residual_gradient(op, row + r, c, lanes, residual_act, dtype);
        g = activation_backward(g, z * scale + shift, act);
        float *to = op->dz + (row + r) * op->ld_dz + c;
        prefetch_page_ahead(to);
        store_lanes(to, of_g * g + (of_z * z + constant), lanes);
    }
}

/* A branch-free copy of the loops for each combination that networks use, and one for all others. */
#define SPECIALIZE_ACTS(call, act, residual_act, dtype) \
    switch ((act) * 3 + (residual_act)) { \
    case ACT_NONE * 3 + ACT_NONE: call(ACT_NONE, ACT_NONE, dtype); \
    case ACT_RELU * 3 + ACT_NONE: call(ACT_RELU, ACT_NONE, dtype); \
    case ACT_RELU6 * 3 + ACT_NONE: call(ACT_RELU6, ACT_NONE, dtype); \
    case ACT_NONE * 3 + ACT_RELU: call(ACT_NONE, ACT_RELU, dtype); \
    default: call(act, residual_act, dtype); \
    }
#define SPECIALIZE_ACTS_AND_DTYPE(call, act, residual_act, dtype) \
    if ((dtype) == FP16) SPECIALIZE_ACTS(call, act, residual_act, FP16) \
    else SPECIALIZE_ACTS(call, act, residual_act, FP32)

static NOINLINE void reduce_rows(const batch_norm_backward *from, i64 start, i64 end, float *partial) {
    batch_norm_backward op = *from;
    batch_norm n = *op.norm;
    i32 act = op.act, residual_act = op.residual_sum ? op.residual_act : ACT_NONE;
#define REDUCE(act, residual_act, dtype) \
    FOR_ROWS_AND_CHANNELS(start, end, n.channels, reduce_group, &op, &n, partial, act, residual_act, dtype); \
    break
    SPECIALIZE_ACTS_AND_DTYPE(REDUCE, act, residual_act, op.dtype)
#undef REDUCE
}

static NOINLINE void gradient_rows(const batch_norm_backward *from, i64 start, i64 end, coefficients k, i32 act,
                                   i32 residual_act) {
    batch_norm_backward op = *from;
    batch_norm n = *op.norm;
#define GRADIENT(act, residual_act, dtype) \
    FOR_ROWS_AND_CHANNELS(start, end, n.channels, gradient_group, &op, &n, &k, act, residual_act, dtype); \
    break
    SPECIALIZE_ACTS_AND_DTYPE(GRADIENT, act, residual_act, op.dtype)
#undef GRADIENT
}

static void compute_coefficients(const batch_norm_backward *op, const worker *w, coefficients k) {
    const batch_norm *n = op->norm;
    double per_row = 1.0 / op->rows;
    i64 start, end;
    split_range(n->channels, w->index, w->threads, &start, &end);
    for (i64 c = start; c < end; c++) {
        double sum = 0, products = 0;
        for (i32 t = 0; t < w->threads; t++) {
            sum += batch_norm_sums(n, t)[c];
            products += batch_norm_sums(n, t)[n->channels + c];
        }
        double inv_std = n->inv_std[c], of_g = n->gamma[c] * inv_std;
        double of_z = -of_g * inv_std * inv_std * products * per_row;
        k.of_g[c] = (float)of_g;
        k.of_z[c] = (float)of_z;
        k.constant[c] = (float)(-of_g * sum * per_row - k.of_z[c] * (double)n->mean[c]);
        n->dgamma[c] = (n->accumulate ? n->dgamma[c] : 0) + (float)(inv_std * products);
        n->dbeta[c] = (n->accumulate ? n->dbeta[c] : 0) + (float)sum;
    }
}

static void reduce_gradient(const batch_norm_backward *op, const worker *w, i64 start, i64 end) {
    float *partial = partial_sums(op->norm, w, (float *)w->workspace + coefficient_floats(op->norm->channels));
    batch_norm_clear_sums(op->norm, w);
    zero_row(partial, (i32)partial_floats(op->norm->channels));
    for (i64 row = start; row < end; row += ROWS_PER_PARTIAL) {
        reduce_rows(op, row, MIN(end, row + ROWS_PER_PARTIAL), partial);
        add_partial_sums(op->norm, w, partial, 0, FP32, 0);
    }
}

static void run_batch_norm_backward(worker *w, const void *p) {
    const batch_norm_backward *op = p;
    coefficients k = coefficients_in(op->norm, (float *)w->workspace);
    i64 start, end;
    split_range(op->rows, w->index, w->threads, &start, &end);
    if (!op->reduced) {
        reduce_gradient(op, w, start, end);
        barrier(w);
    }
    compute_coefficients(op, w, k);
    barrier(w);
    i32 act = op->reduced ? ACT_NONE : op->act;
    i32 residual_act = op->reduced || !op->residual_sum || !op->keep_dy ? ACT_NONE : op->residual_act;
    /* Backwards, because what the first pass read last is still in the cache. */
    for (i64 row = end; row > start; row -= ROWS_PER_PARTIAL)
        gradient_rows(op, MAX(start, row - ROWS_PER_PARTIAL), row, k, act, residual_act);
}

static i64 workspace_batch_norm_backward(i32 threads, const void *p) {
    const batch_norm_backward *op = p;
    i32 channels = op->norm->channels;
    return (coefficient_floats(channels) + threads * partial_floats(channels)) * (i64)sizeof(float);
}
