/* What happens to rows of channels on their way in and out of every kernel: seen through a source, finished into an
 * output or a sink. Tiles are small local matrices: `ld` floats between rows, and at least LANES readable floats from any
 * channel that is a multiple of LANES (padded, so that tails need no care here). */
#pragma once
#include "vector.h"

/* to[0 .. channels) = channels c0 .. of row `row`, as the source's readers see it. */
INLINE void see_row(const source *x, i64 row, i32 c0, i32 channels, float *to) {
    const float *from = x->data + row * x->ld + c0;
    i32 c = 0;
    if (!x->scale) {
        for (; c + LANES <= channels; c += LANES) store(to + c, load(from + c));
        for (; c < channels; c++) to[c] = from[c];
        return;
    }
    const float *scale = x->scale + c0, *shift = x->shift + c0;
    i32 act = x->act;
    for (; c + LANES <= channels; c += LANES)
        store(to + c, activate(load(from + c) * load(scale + c) + load(shift + c), act));
    for (; c < channels; c++) {
        float v = from[c] * scale[c] + shift[c];
        if (act != ACT_NONE) v = 0 > v ? 0 : v;
        if (act == ACT_RELU6) v = 6 < v ? 6 : v;
        to[c] = v;
    }
}

INLINE void zero_row(float *to, i32 channels) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES) store(to + c, (vec)0);
    for (; c < channels; c++) to[c] = 0;
}

INLINE double *norm_sums(const norm *n, i32 index) { return n->sums + (i64)index * 2 * n->channels; }

/* Every thread, at the start of a step that fills a norm's sums. */
static void norm_begin(const norm *n, const worker *w) {
    double *sums = norm_sums(n, w->index);
    for (i32 i = 0; i < 2 * n->channels; i++) sums[i] = 0;
}

INLINE void add_sums(double *to, vec v, i32 lanes) {
    if (lanes == LANES) {
        typedef double loose_dvec __attribute__((ext_vector_type(LANES), aligned(8)));
        *(loose_dvec *)to = *(loose_dvec *)to + __builtin_convertvector(v, dvec);
        return;
    }
    for (i32 i = 0; i < lanes; i++) to[i] += v[i];
}

/* A forward tile, finished: + bias, activated, stored to rows row0 .. of y; and counted, where a norm follows. */
static void emit_tile(const conv_forward *op, const worker *w, const float *tile, i32 ld, i64 row0, i32 rows, i32 c0, i32 channels) {
    float *y = op->y + row0 * op->ld_y + c0;
    double *sums = op->norm ? norm_sums(op->norm, w->index) + c0 : 0;
    for (i32 c = 0; c < channels; c += LANES) {
        i32 lanes = MIN(LANES, channels - c);
        vec bias = !op->bias ? (vec)0 : lanes == LANES ? load(op->bias + c0 + c) : load_some(op->bias + c0 + c, lanes);
        vec sum = 0, squares = 0;
        for (i32 r = 0; r < rows; r++) {
            vec v = activate(load(tile + (i64)r * ld + c) + bias, op->act);
            if (lanes == LANES) store(y + (i64)r * op->ld_y + c, v);
            else store_some(y + (i64)r * op->ld_y + c, v, lanes);
            sum += v;
            squares += v * v;
        }
        if (sums) {
            add_sums(sums + c, sum, lanes);
            add_sums(sums + op->norm->channels + c, squares, lanes);
        }
    }
}

/* A gradient tile into its sink; row i of the tile is row rows[i] of the tensor. A norm's sums: of g, and of g * (z - mean). */
static void sink_tile(const sink *s, const worker *w, const float *tile, i32 ld, const i64 *rows, i32 count, i32 c0, i32 channels) {
    const norm *n = s->norm;
    double *sums = n ? norm_sums(n, w->index) + c0 : 0;
    for (i32 c = 0; c < channels; c += LANES) {
        i32 lanes = MIN(LANES, channels - c), at = c0 + c;
        i32 whole = lanes == LANES;
#define GET(p) (whole ? load(p) : load_some(p, lanes))
        vec scale = n ? GET(n->scale + at) : (vec)0, shift = n ? GET(n->shift + at) : (vec)0;
        vec mean = n ? GET(n->mean + at) : (vec)0, sum = 0, products = 0;
        for (i32 r = 0; r < count; r++) {
            float *to = s->data + rows[r] * s->ld + at;
            vec g = load(tile + (i64)r * ld + c);
            if (s->accumulate) g += GET(to);
            if (n) {
                vec z = GET(s->y + rows[r] * s->ld_y + at);
                g = passed(g, z * scale + shift, s->act);
                sum += g;
                products += g * (z - mean);
            } else if (s->act != ACT_NONE) {
                g = passed(g, GET(s->y + rows[r] * s->ld_y + at), s->act);
            }
            if (whole) store(to, g);
            else store_some(to, g, lanes);
        }
#undef GET
        if (n) {
            add_sums(sums + c, sum, lanes);
            add_sums(sums + n->channels + c, products, lanes);
        }
    }
}

/* The threads' sums, added up by whoever takes channel blocks; call between two meetings. `rows`: pixels in the batch. */
static void norm_statistics(norm *n, worker *w, i64 rows) {
    i64 start, end;
    share(n->channels, w->index, w->threads, &start, &end);
    for (i64 c = start; c < end; c++) {
        double sum = 0, squares = 0;
        for (i32 t = 0; t < w->threads; t++) {
            sum += norm_sums(n, t)[c];
            squares += norm_sums(n, t)[n->channels + c];
        }
        double mean = sum / rows, variance = squares / rows - mean * mean;
        if (variance < 0) variance = 0;
        float inv_std = (float)(1.0 / __builtin_elementwise_sqrt(variance + n->epsilon));
        n->mean[c] = (float)mean;
        n->inv_std[c] = inv_std;
        n->scale[c] = n->gamma[c] * inv_std;
        n->shift[c] = n->beta[c] - (float)mean * n->scale[c];
        double unbiased = rows > 1 ? variance * rows / (rows - 1) : variance;
        n->running_mean[c] += n->momentum * ((float)mean - n->running_mean[c]);
        n->running_var[c] += n->momentum * ((float)unbiased - n->running_var[c]);
    }
}
