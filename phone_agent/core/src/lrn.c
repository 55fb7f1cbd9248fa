/* Local response normalization: y = x * s^-beta with s = k + alpha / size * (sum of x^2 over `size` neighboring
 * channels).
 *
 * Rows are copied to local buffers padded with zeros on both sides, so the sum over neighbors is `size` shifted
 * loads. As in PyTorch, the window of channel c is c - size / 2 .. c + (size - 1) / 2; the backward pass uses the
 * mirrored window. */
#include "vmath.h"

enum { LRN_ROWS = 64 };

INLINE vec lrn_power(vec s, float beta) {
    if (beta == 0.75f) {
        vec root = vsqrt(s);
        return 1 / (root * vsqrt(root));
    }
    return vpow(s, -beta);
}

/* Floats of a buffer for `channels`, with room for windows that start or end outside. The data start at lrn_edge. */
INLINE i64 lrn_edge(i32 size) { return ROUND_UP(size, LANES); }
INLINE i64 lrn_floats(i32 channels, i32 size) { return ROUND_UP(channels, LANES) + 2 * lrn_edge(size); }

/* Sum of `size` values from `from` on. */
INLINE vec lrn_window(const float *from, i32 size) {
    vec sum = load(from);
    for (i32 i = 1; i < size; i++) sum += load(from + i);
    return sum;
}

/* The squares of a row, both from lrn_edge on. The zeros around them stay as lrn_clear left them. */
INLINE void lrn_squares(const float *x, i32 channels, float *squares) {
    for (i32 c = 0; c < channels; c += LANES) store(squares + c, load(x + c) * load(x + c));
}

INLINE void lrn_clear(float *buffers, i64 floats) {
    for (i64 i = 0; i < floats; i += LANES) store(buffers + i, (vec)0);
}

INLINE void lrn_forward_row(const lrn_forward *op, const float *x, const float *squares, i32 size, void *y, i32 dtype) {
    float factor = op->alpha / op->size;
    for (i32 c = 0; c < op->channels; c += LANES) {
        vec s = op->k + factor * lrn_window(squares + c - op->size / 2, size);
        vec v = load(x + c) * lrn_power(s, op->beta);
        store_from_fp32(element_at(y, c, dtype), v, MIN(LANES, op->channels - c), dtype);
    }
}

static void run_lrn_forward(worker *w, const void *p) {
    const lrn_forward *op = p;
    i64 floats = lrn_floats(op->channels, op->size);
    float *x = (float *)w->workspace + w->index * 2 * floats, *squares = x + floats;
    lrn_clear(x, 2 * floats);
    x += lrn_edge(op->size), squares += lrn_edge(op->size);
    i64 tiles = CEIL_DIV(op->rows, LRN_ROWS);
    for (i64 tile = next_tile(w); tile < tiles; tile = next_tile(w))
        for (i64 row = tile * LRN_ROWS; row < MIN(op->rows, (tile + 1) * LRN_ROWS); row++) {
            load_affine_row(&op->x, row, 0, op->channels, x);
            lrn_squares(x, op->channels, squares);
            void *y = element_at(op->y, row * op->ld_y, op->dtype);
            if (op->size != 5) lrn_forward_row(op, x, squares, op->size, y, op->dtype);
            else if (op->dtype == FP16) lrn_forward_row(op, x, squares, 5, y, FP16);
            else lrn_forward_row(op, x, squares, 5, y, FP32);
        }
}

static i64 workspace_lrn_forward(i32 threads, const void *p) {
    const lrn_forward *op = p;
    return threads * 2 * lrn_floats(op->channels, op->size) * 4;
}

/* dx = dy s^-beta - 2 alpha / size beta x * (sum of dy y / s over the windows that contain this channel). */
INLINE void lrn_ratios(const lrn_backward *op, const float *x, const float *squares, const float *dy, i32 size,
                       float *ratios, float *dx) {
    float factor = op->alpha / op->size;
    for (i32 c = 0; c < op->channels; c += LANES) {
        i32 lanes = MIN(LANES, op->channels - c);
        vec s = op->k + factor * lrn_window(squares + c - op->size / 2, size);
        vec g = load_lanes(dy + c, lanes) * lrn_power(s, op->beta);
        store(dx + c, g);
        store_lanes(ratios + c, g * load(x + c) / s, lanes);
    }
}

INLINE void lrn_backward_row(const lrn_backward *op, const float *x, const float *ratios, i32 size, float *dx) {
    float factor = 2 * op->alpha / op->size * op->beta;
    for (i32 c = 0; c < op->channels; c += LANES)
        store(dx + c, load(dx + c) - factor * load(x + c) * lrn_window(ratios + c - (op->size - 1) / 2, size));
}

typedef struct {
    i64 floats; /* each of x, squares and ratios of a row; a tile of dx follows */
    i32 ld;
} lrn_layout;

static lrn_layout lrn_layout_of(const lrn_backward *op) {
    return (lrn_layout){lrn_floats(op->channels, op->size), ROUND_UP(op->channels, LANES)};
}
static i64 lrn_bytes(lrn_layout k) { return ROUND_UP((3 * k.floats + LRN_ROWS * k.ld) * 4, 64); }

static void run_lrn_backward(worker *w, const void *p) {
    const lrn_backward *op = p;
    lrn_layout k = lrn_layout_of(op);
    i64 numbers[LRN_ROWS];
    float *x = (float *)(w->workspace + w->index * lrn_bytes(k)), *tile_of = x + 3 * k.floats;
    lrn_clear(x, 3 * k.floats);
    x += lrn_edge(op->size);
    float *squares = x + k.floats, *ratios = squares + k.floats;
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    i64 tiles = CEIL_DIV(op->rows, LRN_ROWS);
    for (i64 tile = next_tile(w); tile < tiles; tile = next_tile(w)) {
        i64 first = tile * LRN_ROWS;
        i32 count = (i32)MIN(LRN_ROWS, op->rows - first);
        for (i32 i = 0; i < count; i++) {
            const float *dy = op->dy + (first + i) * op->ld_dy;
            float *dx = tile_of + (i64)i * k.ld;
            numbers[i] = first + i;
            load_affine_row(&op->x, first + i, 0, op->channels, x);
            lrn_squares(x, op->channels, squares);
            if (op->size == 5) {
                lrn_ratios(op, x, squares, dy, 5, ratios, dx);
                lrn_backward_row(op, x, ratios, 5, dx);
            } else {
                lrn_ratios(op, x, squares, dy, op->size, ratios, dx);
                lrn_backward_row(op, x, ratios, op->size, dx);
            }
        }
        store_gradient_tile(&op->dx, w, tile_of, k.ld, numbers, count, 0, op->channels);
    }
}

static i64 workspace_lrn_backward(i32 threads, const void *p) { return threads * lrn_bytes(lrn_layout_of(p)); }
