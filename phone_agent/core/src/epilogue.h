/* Epilogues: what happens to a computed tile before it is stored to an output or to a gradient. A tile is a small
 * local matrix with `ld` floats between rows. From any channel that is a multiple of LANES at least LANES floats are
 * readable (padding), so tails need no special loads. */
#pragma once
#include "fp16.h"

INLINE double *batch_norm_sums(const batch_norm *n, i32 index) { return n->sums + (i64)index * 2 * n->channels; }

/* Clear this thread's sums. Every thread calls it at the start of a step that fills the sums of a normalization. */
static void batch_norm_clear_sums(const batch_norm *n, const worker *w) {
    double *sums = batch_norm_sums(n, w->index);
    for (i32 i = 0; i < 2 * n->channels; i++) sums[i] = 0;
}

INLINE dvec to_double(vec v) { return __builtin_convertvector(v, dvec); }

INLINE void add_sums(double *to, dvec v, i32 lanes) {
    if (lanes == LANES) {
        typedef double unaligned_dvec __attribute__((ext_vector_type(LANES), aligned(8)));
        *(unaligned_dvec *)to = *(unaligned_dvec *)to + v;
        return;
    }
    for (i32 i = 0; i < lanes; i++) to[i] += v[i];
}

/* The variance is the mean of the squares minus the square of the mean. In fp32 that loses digits if the mean is
 * large compared with the spread, so the kernels sum differences from a pivot, which is one of the values. Here
 * these sums become, in double precision, the sums of `count` values and of their squares. */
INLINE void add_statistics(double *sums, i32 channels, vec pivot, vec sum, vec squares, i32 count, i32 lanes) {
    dvec p = to_double(pivot), d = to_double(sum), all = p * (double)count;
    add_sums(sums, d + all, lanes);
    add_sums(sums + channels, to_double(squares) + p * (d + d + all), lanes);
}

/* Some vector columns of a tile, all rows, so that per-channel values stay in registers. The callers below pass
 * `vectors`, `act` and `dtype` as constants, so the loops contain no branches. `lanes` is LANES except for a single
 * tail. */
INLINE void store_output_columns(const conv_forward *op, double *sums, const float *tile, i32 ld, i64 row0, i32 rows,
                                 i32 c, i32 vectors, i32 lanes, i32 act, i32 dtype) {
    enum { MAX_VECTORS = 4 };
    i64 ld_y = op->ld_y; /* a copy: for all the compiler knows, the stores could change *op */
    void *y = element_at(op->y, row0 * ld_y + c, dtype);
    vec bias[MAX_VECTORS], pivot[MAX_VECTORS], sum[MAX_VECTORS], squares[MAX_VECTORS];
    UNROLL for (i32 v = 0; v < vectors; v++) {
        pivot[v] = load(tile + v * LANES);
        bias[v] = op->bias ? load_lanes(op->bias + c + v * LANES, lanes) : (vec)0;
        sum[v] = squares[v] = 0;
    }
    for (i32 r = 0; r < rows; r++, tile += ld, y = element_at(y, ld_y, dtype)) {
        UNROLL for (i32 v = 0; v < vectors; v++) {
            vec value = load(tile + v * LANES);
            if (sums) {
                vec d = value - pivot[v];
                sum[v] += d;
                squares[v] += d * d;
            } else {
                value = activate(value + bias[v], act);
            }
            store_from_fp32(element_at(y, v * LANES, dtype), value, lanes, dtype);
        }
    }
    if (!sums) return;
    UNROLL for (i32 v = 0; v < vectors; v++)
        add_statistics(sums + c + v * LANES, op->norm->channels, pivot[v], sum[v], squares[v], rows, lanes);
}

INLINE void store_output_all_columns(const conv_forward *op, double *sums, const float *tile, i32 ld, i64 row0,
                                     i32 rows, i32 c0, i32 channels, i32 act, i32 dtype) {
    i32 c = 0;
    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        store_output_columns(op, sums, tile + c, ld, row0, rows, c0 + c, 4, LANES, act, dtype);
    if (c + 2 * LANES <= channels) {
        store_output_columns(op, sums, tile + c, ld, row0, rows, c0 + c, 2, LANES, act, dtype);
        c += 2 * LANES;
    }
    if (c + LANES <= channels) {
        store_output_columns(op, sums, tile + c, ld, row0, rows, c0 + c, 1, LANES, act, dtype);
        c += LANES;
    }
    if (c < channels) store_output_columns(op, sums, tile + c, ld, row0, rows, c0 + c, 1, channels - c, act, dtype);
}

/* A wide tile is stored a few rows at a time: a processor prefetches from a few pages at once only, and with 1024
 * channels each row lies in its own page. That is twice as fast where memory is the limit. Also, fp32 sums over more
 * rows would lose digits. */
enum { WIDE_EPILOGUE_ROWS = 16, EPILOGUE_ROWS = 64, WIDE_CHANNELS = 4 * LANES };

INLINE i32 epilogue_rows(i32 channels) { return channels > WIDE_CHANNELS ? WIDE_EPILOGUE_ROWS : EPILOGUE_ROWS; }

INLINE void store_output_as(const conv_forward *op, const worker *w, const float *tile, i32 ld, i64 row0, i32 rows,
                            i32 c0, i32 channels, i32 dtype) {
    if (op->norm)
        store_output_all_columns(op, batch_norm_sums(op->norm, w->index), tile, ld, row0, rows, c0, channels, ACT_NONE,
                                 dtype);
    else if (op->act == ACT_NONE) store_output_all_columns(op, 0, tile, ld, row0, rows, c0, channels, ACT_NONE, dtype);
    else if (op->act == ACT_RELU) store_output_all_columns(op, 0, tile, ld, row0, rows, c0, channels, ACT_RELU, dtype);
    else store_output_all_columns(op, 0, tile, ld, row0, rows, c0, channels, ACT_RELU6, dtype);
}

static NOINLINE void store_output_rows(const conv_forward *op, const worker *w, const float *tile, i32 ld, i64 row0,
                                       i32 rows, i32 c0, i32 channels) {
    if (op->dtype == FP16) store_output_as(op, w, tile, ld, row0, rows, c0, channels, FP16);
    else store_output_as(op, w, tile, ld, row0, rows, c0, channels, FP32);
}

/* The epilogue of a forward tile: add the bias, apply the activation, store to rows row0 .. of y. If a normalization
 * follows, accumulate its statistics as well. */
static void store_output_tile(const conv_forward *op, const worker *w, const float *tile, i32 ld, i64 row0, i32 rows,
                              i32 c0, i32 channels) {
    i32 step = epilogue_rows(channels);
    for (i32 r = 0; r < rows; r += step)
        store_output_rows(op, w, tile + (i64)r * ld, ld, row0 + r, MIN(step, rows - r), c0, channels);
}

INLINE void store_gradient_columns(const fused_gradient *s, double *sums, const float *tile, i32 ld, const i64 *rows,
                                   i32 count, i32 c, i32 vectors, i32 lanes, i32 act, i32 accumulate, i32 dtype) {
    enum { MAX_VECTORS = 2 };
    const batch_norm *n = s->norm;
    float *data = s->data + c; /* copies: for all the compiler knows, the stores could change *s */
    const void *y = element_at(s->y, c, dtype);
    i64 ld_data = s->ld, ld_y = s->ld_y;
    vec scale[MAX_VECTORS], shift[MAX_VECTORS], mean[MAX_VECTORS], sum[MAX_VECTORS], products[MAX_VECTORS];
    UNROLL for (i32 v = 0; sums && v < vectors; v++) {
        i32 at = c + v * LANES;
        scale[v] = load_lanes(n->scale + at, lanes), shift[v] = load_lanes(n->shift + at, lanes);
        mean[v] = load_lanes(n->mean + at, lanes);
        sum[v] = products[v] = 0;
    }
    for (i32 r = 0; r < count; r++, tile += ld) {
        float *to = data + rows[r] * ld_data;
        const void *from = element_at(y, rows[r] * ld_y, dtype);
        UNROLL for (i32 v = 0; v < vectors; v++) {
            vec g = load(tile + v * LANES);
            if (accumulate) g += load_lanes(to + v * LANES, lanes);
            if (sums) {
                vec z = load_as_fp32(element_at(from, v * LANES, dtype), lanes, dtype);
                g = activation_backward(g, z * scale[v] + shift[v], act);
                sum[v] += g;
                products[v] += g * (z - mean[v]);
            } else if (act != ACT_NONE) {
                g = activation_backward(g, load_as_fp32(element_at(from, v * LANES, dtype), lanes, dtype), act);
            }
            store_lanes(to + v * LANES, g, lanes);
        }
    }
    UNROLL for (i32 v = 0; sums && v < vectors; v++) {
        add_sums(sums + c + v * LANES, to_double(sum[v]), lanes);
        add_sums(sums + n->channels + c + v * LANES, to_double(products[v]), lanes);
    }
}

INLINE void store_gradient_all_columns(const fused_gradient *s, double *sums, const float *tile, i32 ld,
                                       const i64 *rows, i32 count, i32 c0, i32 channels, i32 act, i32 accumulate,
                                       i32 dtype) {
    i32 c = 0;
    for (; c + 2 * LANES <= channels; c += 2 * LANES)
        store_gradient_columns(s, sums, tile + c, ld, rows, count, c0 + c, 2, LANES, act, accumulate, dtype);
    if (c + LANES <= channels) {
        store_gradient_columns(s, sums, tile + c, ld, rows, count, c0 + c, 1, LANES, act, accumulate, dtype);
        c += LANES;
    }
    if (c < channels)
        store_gradient_columns(s, sums, tile + c, ld, rows, count, c0 + c, 1, channels - c, act, accumulate, dtype);
}

INLINE void store_gradient_with_act(const fused_gradient *s, double *sums, const float *tile, i32 ld, const i64 *rows,
                                    i32 count, i32 c0, i32 channels, i32 act, i32 dtype) {
    if (s->accumulate) store_gradient_all_columns(s, sums, tile, ld, rows, count, c0, channels, act, 1, dtype);
    else store_gradient_all_columns(s, sums, tile, ld, rows, count, c0, channels, act, 0, dtype);
}

INLINE void store_gradient_as(const fused_gradient *s, const worker *w, const float *tile, i32 ld, const i64 *rows,
                              i32 count, i32 c0, i32 channels, i32 dtype) {
    if (s->norm) {
        double *sums = batch_norm_sums(s->norm, w->index);
        if (s->act == ACT_NONE) store_gradient_with_act(s, sums, tile, ld, rows, count, c0, channels, ACT_NONE, dtype);
        else if (s->act == ACT_RELU)
            store_gradient_with_act(s, sums, tile, ld, rows, count, c0, channels, ACT_RELU, dtype);
        else store_gradient_with_act(s, sums, tile, ld, rows, count, c0, channels, ACT_RELU6, dtype);
    } else {
        if (s->act == ACT_NONE) store_gradient_with_act(s, 0, tile, ld, rows, count, c0, channels, ACT_NONE, dtype);
        else if (s->act == ACT_RELU)
            store_gradient_with_act(s, 0, tile, ld, rows, count, c0, channels, ACT_RELU, dtype);
        else store_gradient_with_act(s, 0, tile, ld, rows, count, c0, channels, ACT_RELU6, dtype);
    }
}

static NOINLINE void store_gradient_rows(const fused_gradient *s, const worker *w, const float *tile, i32 ld,
                                         const i64 *rows, i32 count, i32 c0, i32 channels) {
    if (s->dtype == FP16) store_gradient_as(s, w, tile, ld, rows, count, c0, channels, FP16);
    else store_gradient_as(s, w, tile, ld, rows, count, c0, channels, FP32);
}

/* The epilogue of a gradient tile: row i of the tile is row rows[i] of the tensor. The sums of a normalization are
 * those of g and of g * (z - mean). */
static void store_gradient_tile(const fused_gradient *s, const worker *w, const float *tile, i32 ld, const i64 *rows,
                                i32 count, i32 c0, i32 channels) {
    i32 step = epilogue_rows(channels);
    for (i32 r = 0; r < count; r += step)
        store_gradient_rows(s, w, tile + (i64)r * ld, ld, rows + r, MIN(step, count - r), c0, channels);
}

/* Reduce the sums of all threads to the statistics; each thread does some channels. Call between two barriers.
 * `rows`: pixels in the batch. */
static void batch_norm_finish_statistics(batch_norm *n, worker *w, i64 rows) {
    i64 start, end;
    split_range(n->channels, w->index, w->threads, &start, &end);
    for (i64 c = start; c < end; c++) {
        double sum = 0, squares = 0;
        for (i32 t = 0; t < w->threads; t++) {
            sum += batch_norm_sums(n, t)[c];
            squares += batch_norm_sums(n, t)[n->channels + c];
        }
        double mean = sum / rows, variance = squares / rows - mean * mean;
        if (variance < 0) variance = 0;
        double inv_std = 1.0 / __builtin_elementwise_sqrt(variance + n->epsilon);
        n->mean[c] = (float)mean;
        n->inv_std[c] = (float)inv_std;
        n->scale[c] = (float)(n->gamma[c] * inv_std);
        n->shift[c] = (float)(n->beta[c] - mean * n->scale[c]);
        if (rows == 1) continue; /* a single value has no variance */
        double unbiased = variance * rows / (rows - 1);
        n->running_mean[c] += n->momentum * ((float)mean - n->running_mean[c]);
        n->running_var[c] += n->momentum * ((float)unbiased - n->running_var[c]);
    }
}
