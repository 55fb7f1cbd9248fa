/* Gathering: the rows of the implicit im2col matrix, copied into local memory block by block. */

/* One axis of the image as a product sees it. Tap t of grid point j reads pixel j * stride + offset + t * spacing
 * (zero outside 0 .. size - 1), with weight first + t * step. The result belongs to pixel to_first + j * to_step of
 * the target. */
typedef struct {
    i32 grid, taps, stride, offset, spacing, size, first, step, to_first, to_step, to_size;
} axis;

static axis forward_axis(i32 in, i32 out, i32 kernel, i32 stride, i32 pad, i32 dilation) {
    return (axis){out, kernel, stride, -pad, dilation, in, 0, 1, 0, 1, out};
}

/* Tap k connects input pixel i = phase + j * stride with output pixel (i + pad - k * dilation) / stride, if that is
 * an integer. Those taps are evenly spaced; they are counted from the last one, so that pixels ascend. */
static axis backward_axis(i32 in, i32 out, i32 kernel, i32 stride, i32 pad, i32 dilation, i32 phase) {
    axis a = {.stride = 1, .size = out, .to_first = phase, .to_step = stride, .to_size = in};
    a.grid = phase < in ? CEIL_DIV(in - phase, stride) : 0;
    for (i32 k = kernel - 1; k >= 0; k--) {
        i32 distance = phase + pad - k * dilation;
        if (distance % stride) continue;
        if (a.taps == 0) {
            a.first = k;
            a.offset = distance / stride;
        } else if (a.taps == 1) {
            a.step = k - a.first;
            a.spacing = distance / stride - a.offset;
        }
        a.taps++;
    }
    return a;
}

/* The implicit im2col matrix: a row is a grid point, its depth the pixels around that point with `channels` of each
 * (of one group). If the taps of a kernel row are contiguous in memory, they form one run. */
typedef struct {
    fused_input x;
    axis h, w;
    i32 channels, run_taps;
    i32 pointwise; /* row r is pixel r */
    i64 rows, depth;
} im2col_view;

static im2col_view im2col_view_of(fused_input x, axis h, axis w, i32 batch, i32 channels) {
    im2col_view v = {.x = x, .h = h, .w = w, .channels = channels, .run_taps = 1};
    v.rows = (i64)batch * h.grid * w.grid;
    v.depth = (i64)h.taps * w.taps * channels;
    v.pointwise = h.taps * w.taps == 1 && h.stride * w.stride == 1 && h.grid == h.size && w.grid == w.size &&
                  !h.offset && !w.offset;
    if (!x.scale && x.ld == channels && (w.spacing == 1 || w.taps == 1)) v.run_taps = w.taps;
    return v;
}

/* Some rows of a product: the first pixel of each in the image, and its row in the target. */
enum { MAX_LISTED_ROWS = MAX(PRIVATE_BLOCK_ROWS, MAX(BLOCK_ROWS, WGRAD_PIXELS)) };
enum { SHORT_RUN_FLOATS = 32 }; /* enough for 7 taps of 3 channels */
typedef struct {
    i32 count;
    i32 y[MAX_LISTED_ROWS], x[MAX_LISTED_ROWS];
    i64 image[MAX_LISTED_ROWS], target[MAX_LISTED_ROWS];
} row_list;

static void locate_rows(const im2col_view *v, i64 row0, i32 count, row_list *rows) {
    const axis *h = &v->h, *w = &v->w;
    i32 x = (i32)(row0 % w->grid), y = (i32)(row0 / w->grid % h->grid);
    i64 image = row0 / w->grid / h->grid;
    rows->count = count;
    for (i32 r = 0; r < count; x = 0) {
        i32 some = MIN(count - r, w->grid - x);
        i64 target = (image * h->to_size + h->to_first + y * h->to_step) * w->to_size + w->to_first + x * w->to_step;
        for (i32 i = 0; i < some; i++) {
            rows->y[r + i] = y * h->stride + h->offset;
            rows->x[r + i] = (x + i) * w->stride + w->offset;
            rows->image[r + i] = image * h->size * w->size;
            rows->target[r + i] = target + i * w->to_step;
        }
        r += some;
        if (++y < h->grid) continue;
        y = 0;
        image++;
    }
}

/* Elements c .. c + count - 1 of the run that starts at pixel (y, x). The run has several taps, some of which may be
 * outside the image. */
static NOINLINE void gather_edge(const im2col_view *v, const void *from, i32 x, i32 c, i32 count, float *to) {
    i32 start = MAX(0, -x) * v->channels, end = MIN(v->run_taps, v->w.size - x) * v->channels;
    start = MIN(MAX(start - c, 0), count);
    end = MAX(MIN(end - c, count), start);
    zero_row(to, start);
    copy_elements(element_at(from, start, v->x.dtype), end - start, to + start, v->x.dtype);
    zero_row(to + end, count - end);
}

INLINE void gather_run(const im2col_view *v, i64 image, i32 y, i32 x, i32 c, i32 count, float *to) {
    const void *from = element_at(v->x.data, (image + (i64)y * v->w.size + x) * v->channels + c, v->x.dtype);
    if (x >= 0 && x + v->run_taps <= v->w.size) copy_elements(from, count, to, v->x.dtype);
    else gather_edge(v, from, x, c, count, to);
}

/* The whole depth of a row, if that is short fp32 runs (an image with few channels) which do not touch an edge. */
INLINE i32 gather_interior(const im2col_view *v, i64 image, i32 y, i32 x, float *to) {
    i32 length = v->run_taps * v->channels;
    i64 line = (i64)v->w.size * v->channels;
    if (x < 0 || x + v->run_taps > v->w.size || y < 0 || y + (v->h.taps - 1) * v->h.spacing >= v->h.size) return 0;
    const float *from = (const float *)v->x.data + (image * v->channels + y * line + (i64)x * v->channels);
    i64 step = v->h.spacing * line;
    i32 taps = v->h.taps;
    if (length < LANES)
        for (; taps > 0; taps--, from += step, to += length) store_partial(to, load_partial(from, length), length);
    for (; taps > 0; taps--, from += step, to += length) {
        store(to, load(from));
        for (i32 i = LANES; i < length - LANES; i += LANES) store(to + i, load(from + i));
        store(to + length - LANES, load(from + length - LANES));
    }
    return 1;
}

static void gather_short_runs(const im2col_view *v, const row_list *rows, float *to, i64 ld) {
    i32 length = v->run_taps * v->channels;
    for (i32 r = 0; r < rows->count; r++, to += ld) {
        i32 y = rows->y[r], x = rows->x[r];
        if (gather_interior(v, rows->image[r], y, x, to)) continue;
        for (i32 tap = 0; tap < v->h.taps; tap++, y += v->h.spacing) {
            if (y < 0 || y >= v->h.size) zero_row(to + tap * length, length);
            else gather_run(v, rows->image[r], y, x, 0, length, to + tap * length);
        }
    }
}

/* `multi_tap`: runs are several taps long. A constant, so that each variant of the loop has all registers. */
INLINE void gather_any(const im2col_view *v, const row_list *rows, i32 group, i64 k0, i64 depth, float *to, i64 ld,
                       i32 multi_tap) {
    i32 length = v->run_taps * v->channels, runs = v->w.taps / v->run_taps, channel0 = group * v->channels;
    for (i64 k = 0; k < depth;) {
        i32 run = (i32)((k0 + k) / length), c = (i32)((k0 + k) % length);
        i32 floats = (i32)MIN(length - c, depth - k);
        i32 dy = run / runs * v->h.spacing, dx = run % runs * v->w.spacing;
        for (i32 r = 0; r < rows->count; r++) {
            float *at = to + r * ld + k;
            i32 y = rows->y[r] + dy, x = rows->x[r] + dx;
            i64 image = rows->image[r];
            if (y < 0 || y >= v->h.size) zero_row(at, floats);
            else if (multi_tap) gather_run(v, image, y, x, c, floats, at);
            else if (x < 0 || x >= v->w.size) zero_row(at, floats);
            else load_affine_row(&v->x, image + (i64)y * v->w.size + x, channel0 + c, floats, at);
        }
        k += floats;
    }
}

static NOINLINE void gather_multi_tap(const im2col_view *v, const row_list *rows, i64 k0, i64 depth, float *to,
                                      i64 ld) {
    gather_any(v, rows, 0, k0, depth, to, ld, 1);
}

/* to[r][0 .. depth - 1] = elements k0 .. of the depth of these rows, zeros where taps lie outside the image. */
static void gather_rows(const im2col_view *v, const row_list *rows, i32 group, i64 k0, i64 depth, float *to, i64 ld) {
    if (v->run_taps == 1) gather_any(v, rows, group, k0, depth, to, ld, 0);
    else if (depth == v->depth && v->run_taps * v->channels <= SHORT_RUN_FLOATS && v->x.dtype == FP32)
        gather_short_runs(v, rows, to, ld);
    else gather_multi_tap(v, rows, k0, depth, to, ld);
}

static im2col_view forward_view(const geometry *g, fused_input x) {
    axis h = forward_axis(g->in_h, g->out_h, g->kernel_h, g->stride, g->pad_h, g->dilation);
    axis w = forward_axis(g->in_w, g->out_w, g->kernel_w, g->stride, g->pad_w, g->dilation);
    return im2col_view_of(x, h, w, g->batch, g->in_c / g->groups);
}
