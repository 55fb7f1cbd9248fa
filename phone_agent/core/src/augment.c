/* Data augmentation: from byte images to network input, with crop, flip, resize, color transform and normalization.
 *
 * Color transforms and normalization are both affine. Together, each output value is a weighted sum of the channels
 * of its pixel plus a constant. Channels are interleaved, so "the channel d places before this one" is the row
 * shifted by d, and an output row is a few multiply-adds with factors that repeat every `channels` values. */

typedef u8 bytes_vec __attribute__((ext_vector_type(LANES), aligned(1)));

enum {
    COLOR_CHANNELS = 3,
    MAX_SHIFT = COLOR_CHANNELS - 1
}; /* color transforms apply to images of 3 channels; a row is shifted by -2 .. 2 */

INLINE i64 augment_row(const augment *op) { return (i64)op->out_w * op->channels; }
INLINE i64 augment_floats(const augment *op) { return ROUND_UP(augment_row(op), 16); }
INLINE i64 window_floats(const augment *op) { return ROUND_UP((i64)op->in_w * op->channels, 16); }
/* The private memory of a thread in floats: an output row before its color transform, with margins; and a row as
 * wide as the image. */
INLINE i64 padded_floats(const augment *op) { return augment_floats(op) + 4 * 16; }
INLINE i64 thread_floats(const augment *op) { return padded_floats(op) + window_floats(op); }

static void expand_normalization(const augment *op, float *scale, float *shift) {
    for (i64 x = 0, i = 0; x < op->out_w; x++)
        for (i32 c = 0; c < op->channels; c++, i++) {
            scale[i] = op->inv_std[c] / 255;
            shift[i] = -op->mean[c] * op->inv_std[c];
        }
}

INLINE void bytes_to_floats(const u8 *from, float *to, i64 count) {
    i64 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, __builtin_convertvector(*(const bytes_vec *)(from + i), vec));
    for (; i < count; i++) to[i] = (float)from[i];
}

/* to = pixels left .. left + out_w - 1 of a row, mirrored if `flip` is set; zero outside the image. */
INLINE void copy_pixels(const augment *op, const u8 *row, i64 left, i32 flip, float *to, i32 channels) {
    for (i64 x = 0; x < op->out_w; x++) {
        i64 from = left + (flip ? op->out_w - 1 - x : x);
        i32 there = row && from >= 0 && from < op->in_w;
        for (i32 c = 0; c < channels; c++) to[x * channels + c] = there ? (float)row[from * channels + c] : 0;
    }
}

static void crop_row(const augment *op, const crop_window *v, const u8 *image, i32 y, float *to) {
    i64 from_y = (i64)v->top + y, left = v->left, bytes = (i64)op->in_w * op->channels;
    const u8 *row = from_y >= 0 && from_y < op->in_h ? image + from_y * bytes : 0;
    if (row && !v->flip && left >= 0 && left + op->out_w <= op->in_w)
        bytes_to_floats(row + left * op->channels, to, augment_row(op));
    else if (op->channels == 3) copy_pixels(op, row, left, v->flip, to, 3);
    else copy_pixels(op, row, left, v->flip, to, op->channels);
}

/* Map output position `i` of `out` to the input of size `in`, with pixel centers aligned: the input pixel before it,
 * and the fraction. */
INLINE i64 source_position(i64 i, i64 in, i64 out, float *fraction) {
    float at = ((float)i + 0.5f) * ((float)in / (float)out) - 0.5f;
    at = at<0 ? 0 : at>(float)(in - 1) ? (float)(in - 1) : at;
    i64 before = (i64)at;
    *fraction = at - (float)before;
    return before;
}

INLINE void resize_horizontally(const augment *op, const crop_window *v, const float *window_row, float *to,
                                i32 channels) {
    for (i64 x = 0; x < op->out_w; x++) {
        float fraction;
        i64 before = source_position(v->flip ? op->out_w - 1 - x : x, v->width, op->out_w, &fraction),
            after = MIN(before + 1, v->width - 1);
        for (i32 c = 0; c < channels; c++) {
            float a = window_row[before * channels + c], b = window_row[after * channels + c];
            to[x * channels + c] = a + (b - a) * fraction;
        }
    }
}

/* Bilinear: first between two rows of the window, then along the row. */
static void resize_row(const augment *op, const crop_window *v, const u8 *image, i32 y, float *window_row, float *to) {
    float fraction;
    i64 before = source_position(y, v->height, op->out_h, &fraction), after = MIN(before + 1, v->height - 1);
    i64 bytes = (i64)op->in_w * op->channels, count = (i64)v->width * op->channels, i = 0;
    const u8 *start = image + v->top * bytes + (i64)v->left * op->channels;
    const u8 *upper = start + before * bytes, *lower = start + after * bytes;
    for (; i + LANES <= count; i += LANES) {
        vec a = __builtin_convertvector(*(const bytes_vec *)(upper + i), vec);
        vec b = __builtin_convertvector(*(const bytes_vec *)(lower + i), vec);
        store(window_row + i, a + (b - a) * fraction);
    }
    for (; i < count; i++) window_row[i] = (float)upper[i] + ((float)lower[i] - (float)upper[i]) * fraction;
    if (op->channels == 3) resize_horizontally(op, v, window_row, to, 3);
    else resize_horizontally(op, v, window_row, to, op->channels);
}

static void normalize_row(const float *from, const float *scale, const float *shift, float *to, i64 count) {
    i64 i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(from + i) * load(scale + i) + load(shift + i));
    for (; i < count; i++) to[i] = from[i] * scale[i] + shift[i];
}

/* The factors of one image: [shift][lane], for three consecutive vectors, after which they repeat. */
typedef struct {
    vec factor[2 * MAX_SHIFT + 1][COLOR_CHANNELS], constant[COLOR_CHANNELS];
} color_factors;

static void expand_color_matrix(const augment *op, const float *color_matrices, color_factors *p) {
    for (i32 i = 0; i < COLOR_CHANNELS * LANES; i++) {
        i32 c = i % COLOR_CHANNELS;
        float inv_std = op->inv_std[c];
        for (i32 d = -MAX_SHIFT; d <= MAX_SHIFT; d++) {
            i32 from = c + d;
            p->factor[d + MAX_SHIFT][i / LANES][i % LANES] =
                from >= 0 && from < COLOR_CHANNELS ? color_matrices[c * (COLOR_CHANNELS + 1) + from] * inv_std / 255
                                                   : 0;
        }
        p->constant[i / LANES][i % LANES] =
            (color_matrices[c * (COLOR_CHANNELS + 1) + COLOR_CHANNELS] - op->mean[c]) * inv_std;
    }
}

/* `from` has margins of at least one vector. Their contents are finite, and their factors are 0. */
static void transform_colors(const float *from, const color_factors *p, float *to, i64 count) {
    for (i64 i = 0, phase = 0; i < count; i += LANES, phase = phase == COLOR_CHANNELS - 1 ? 0 : phase + 1) {
        vec sum = p->constant[phase];
        UNROLL for (i32 d = -MAX_SHIFT; d <= MAX_SHIFT; d++) sum +=
            p->factor[d + MAX_SHIFT][phase] * load(from + i + d);
        store_lanes(to + i, sum, (i32)MIN(LANES, count - i));
    }
}

static void run_augment(worker *w, const void *p) {
    const augment *op = p;
    float *scale = (float *)w->workspace, *shift = scale + augment_floats(op);
    float *own = shift + augment_floats(op) + w->index * thread_floats(op);
    float *row = own + 16, *window_row = own + padded_floats(op);
    i64 count = augment_row(op);
    if (w->index == 0) expand_normalization(op, scale, shift);
    for (i64 i = 0; i < padded_floats(op); i++) own[i] = 0;
    barrier(w);
    color_factors colors;
    for (i64 image; (image = next_tile(w)) < op->batch;) {
        const crop_window *v = op->crops + image;
        const u8 *from = op->images + image * op->in_h * op->in_w * op->channels;
        i32 as_is = v->height == op->out_h && v->width == op->out_w;
        if (op->color_matrices)
            expand_color_matrix(op, op->color_matrices + image * COLOR_CHANNELS * (COLOR_CHANNELS + 1), &colors);
        for (i32 y = 0; y < op->out_h; y++) {
            float *to = op->out + (image * op->out_h + y) * count;
            if (as_is) crop_row(op, v, from, y, row);
            else resize_row(op, v, from, y, window_row, row);
            if (op->color_matrices) transform_colors(row, &colors, to, count);
            else normalize_row(row, scale, shift, to, count);
        }
    }
}

static i64 workspace_augment(i32 threads, const void *p) {
    const augment *op = p;
    return (2 * augment_floats(op) + threads * thread_floats(op)) * (i64)sizeof(float);
}
