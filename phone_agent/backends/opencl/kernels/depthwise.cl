/* Depthwise convolution. A work-item computes WIDTH neighboring channels of some lines of the result, PIXELS pixels
 * of a line at a time, so each input pixel is loaded once for all of them.
 *
 * Backward data is the same on dy. With a stride, pixels fall into phases that different taps reach; each phase is
 * its own pass. With STATIC_TAPS, the compiler knows taps, stride and spacing. */

/* Tap (i, j) of grid point (h, w) reads pixel (h * stride + offset_h + i * spacing_h, ...) with weight (first_h + i
 * * step_h, ...). The result belongs to pixel (to_first_h + h * to_step, ...). `lines`: lines per work-item, counted
 * over all images. */
typedef struct {
    int batch, grid_h, grid_w, from_h, from_w, channels;
    int taps_h, taps_w, stride, offset_h, offset_w, spacing_h, spacing_w;
    int to_h, to_w, to_first_h, to_first_w, to_step;
    int kernel_w, first_h, first_w, step_h, step_w, lines;
} stencil;

#ifdef STATIC_TAPS
#define STRIP_INPUTS ((PIXELS - 1) * STRIDE + TAPS_W) /* input pixels of PIXELS results; their spacing is 1 */
#endif

/* The input tensor and its fused operation. Without one, scale is 1, shift 0, and the bounds are infinite, so there
 * are no branches. */
typedef struct {
    global const X *data;
    VEC scale, shift;
    float low, high;
    int ld, width;
} affine_input;

/* An input pixel with the fused operation applied; 0 outside the image. `line`: the pixel at x = 0. */
static inline VEC load_affine(const stencil *g, const affine_input *s, long line, int x) {
    int at = clamp(x, 0, g->from_w - 1);
    VEC v = LOADN(X, s->data + (line + at) * s->ld, s->width) * s->scale + s->shift;
    v = select(v, (VEC)s->low, (VEC)s->low > v);
    v = select(v, (VEC)s->high, (VEC)s->high < v);
    return x == at ? v : (VEC)0;
}

static inline VEC weight(const stencil *g, global const float *weights, int i, int j, int width) {
    long tap = (g->first_h + i * g->step_h) * g->kernel_w + g->first_w + j * g->step_w;
    return LOADN(float, weights + tap * g->channels, width);
}

/* Grid points from x0 on of line (image, y): PIXELS results. */
static inline void convolve(const stencil *g, const affine_input *s, global const float *weights, int image, int y,
                            int x0, VEC result[PIXELS]) {
#pragma unroll
    for (int n = 0; n < PIXELS; n++) result[n] = 0;
#ifdef STATIC_TAPS
#pragma unroll
    for (int i = 0; i < TAPS_H; i++) {
        int from_y = y * STRIDE + g->offset_h + i;
        if (from_y < 0 || from_y >= g->from_h) continue;
        long line = ((long)image * g->from_h + from_y) * g->from_w;
        int from_x = x0 * STRIDE + g->offset_w;
        VEC inputs[STRIP_INPUTS];
#pragma unroll
        for (int n = 0; n < STRIP_INPUTS; n++) inputs[n] = load_affine(g, s, line, from_x + n);
#pragma unroll
        for (int j = 0; j < TAPS_W; j++) {
            VEC w = weight(g, weights, i, j, s->width);
#pragma unroll
            for (int n = 0; n < PIXELS; n++) result[n] += inputs[n * STRIDE + j] * w;
        }
    }
#else
    for (int i = 0; i < g->taps_h; i++) {
        int from_y = y * g->stride + g->offset_h + i * g->spacing_h;
        if (from_y < 0 || from_y >= g->from_h) continue;
        long line = ((long)image * g->from_h + from_y) * g->from_w;
        for (int j = 0; j < g->taps_w; j++) {
            VEC w = weight(g, weights, i, j, s->width);
            int from_x = x0 * g->stride + g->offset_w + j * g->spacing_w;
            for (int n = 0; n < PIXELS; n++) result[n] += load_affine(g, s, line, from_x + n * g->stride) * w;
        }
    }
#endif
}

#define WORK_GROUP __attribute__((reqd_work_group_size(1, 1, 1)))
#define OPEN_WORK_ITEM() \
    int c = get_global_id(0) * WIDTH, width = g.channels - c, part = get_global_id(1); \
    int first_line = part * g.lines, last_line = min(g.batch * g.grid_h, first_line + g.lines); \
    if (width <= 0 || first_line >= last_line) return
#define OPEN_AFFINE_INPUT() \
    affine_input s = {x + c, 1, 0, -INFINITY, INFINITY, x_ld, width}; \
    if (x_has_affine) { \
        s.scale = LOADN(float, x_scale + c, width); \
        s.shift = LOADN(float, x_shift + c, width); \
        if (x_act != ACT_NONE) s.low = 0; \
        if (x_act == ACT_RELU6) s.high = 6; \
    }

/* Work-items: vectors of channels, groups of lines. If `has_norm`, also stores the mean of the item's pixels and the
 * sum of squared deviations from it: [part][2][channels]. */
WORK_GROUP kernel void depthwise_forward(stencil g, INPUT(X, x), global const float *weights, long weights_at,
                                         global const float *bias_buffer, long bias_at, global Y *y_buffer, long y_at,
                                         global float *parts, long parts_at, int ld_y, int act, int has_bias,
                                         int has_norm) {
    OPEN_WORK_ITEM();
    OPEN_INPUT(X, x);
    OPEN_AFFINE_INPUT();
    VEC bias = 0, pivot = 0, sum = 0, squares = 0, result[PIXELS];
    if (has_bias) bias = LOADN(float, bias_buffer + bias_at + c, width);
    for (int line = first_line; line < last_line; line++)
        for (int x0 = 0; x0 < g.grid_w; x0 += PIXELS) {
            convolve(&g, &s, weights + weights_at + c, line / g.grid_h, line % g.grid_h, x0, result);
            if (line == first_line && x0 == 0) pivot = result[0];
            global Y *to = y_buffer + y_at + ((long)line * g.grid_w + x0) * ld_y + c;
#pragma unroll
            for (int n = 0; n < PIXELS; n++) {
                if (x0 + n >= g.grid_w) break;
                VEC d = result[n] - pivot;
                sum += d;
                squares += d * d;
                STOREN(Y, to + (long)n * ld_y, width, activate_v(result[n] + bias, act));
            }
        }
    if (has_norm) {
        VEC mean = sum / (float)((last_line - first_line) * g.grid_w);
        parts += parts_at + (long)part * 2 * g.channels + c;
        STOREN(float, parts, width, pivot + mean);
        STOREN(float, parts + g.channels, width, fmax((VEC)0, squares - sum * mean));
    }
}

/* If dx_has_norm, also stores the sums of g and of g (z - mean) over the item's pixels: [part][2][channels]. */
WORK_GROUP kernel void depthwise_backward_data(stencil g, INPUT(X, x), global const float *weights, long weights_at,
                                               GRADIENT(Y, dx), global const float *mean_buffer, long mean_at,
                                               global float *parts, long parts_at) {
    OPEN_WORK_ITEM();
    OPEN_INPUT(X, x);
    OPEN_AFFINE_INPUT();
    OPEN_GRADIENT(Y, dx);
    VEC scale = 1, shift = 0, mean = 0, sum = 0, products = 0, result[PIXELS];
    if (dx_has_norm) {
        scale = LOADN(float, dx_scale + c, width);
        shift = LOADN(float, dx_shift + c, width);
        mean = LOADN(float, mean_buffer + mean_at + c, width);
    }
    for (int line = first_line; line < last_line; line++)
        for (int x0 = 0; x0 < g.grid_w; x0 += PIXELS) {
            int image = line / g.grid_h, y = line % g.grid_h;
            convolve(&g, &s, weights + weights_at + c, image, y, x0, result);
            long to = ((long)image * g.to_h + g.to_first_h + y * g.to_step) * g.to_w + g.to_first_w + x0 * g.to_step;
#pragma unroll
            for (int n = 0; n < PIXELS; n++, to += g.to_step) {
                if (x0 + n >= g.grid_w) break;
                VEC v = result[n], old, z;
                if (dx_accumulate) {
                    old = LOADN(float, dx + to * dx_ld + c, width);
                    v += old;
                }
                if (dx_act != ACT_NONE || dx_has_norm) {
                    z = LOADN(Y, dx_y + to * dx_ld_y + c, width);
                    v = activation_backward_v(v, z * scale + shift, dx_act);
                    sum += v;
                    products += v * (z - mean);
                }
                STOREN(float, dx + to * dx_ld + c, width, v);
            }
        }
    if (dx_has_norm) {
        parts += parts_at + (long)part * 2 * g.channels + c;
        STOREN(float, parts, width, sum);
        STOREN(float, parts + g.channels, width, products);
    }
}

#define STORE_SUM(tap, v) \
    do { \
        global float *at_ = to_buffer + to_at + ((long)part * g.taps_h * g.taps_w + (tap)) * g.channels + c; \
        VEC old_ = 0; \
        if (accumulate) old_ = LOADN(float, at_, width); \
        STOREN(float, at_, width, (v) + old_); \
    } while (0)

/* Work-items: vectors of channels, groups of lines, and taps unless STATIC_TAPS. Partial sums:
 * [part][taps][channels]. */
WORK_GROUP kernel void depthwise_backward_weights(stencil g, INPUT(X, x), global const float *dy_buffer, long dy_at,
                                                  global float *to_buffer, long to_at, int ld_dy, int accumulate) {
    OPEN_WORK_ITEM();
    OPEN_INPUT(X, x);
    OPEN_AFFINE_INPUT();
#ifdef STATIC_TAPS
    VEC sum[TAPS_H][TAPS_W];
#pragma unroll
    for (int i = 0; i < TAPS_H; i++)
#pragma unroll
        for (int j = 0; j < TAPS_W; j++) sum[i][j] = 0;
    for (int at = first_line; at < last_line; at++)
        for (int x0 = 0; x0 < g.grid_w; x0 += PIXELS) {
            global const float *from = dy_buffer + dy_at + ((long)at * g.grid_w + x0) * ld_dy + c;
            VEC dy[PIXELS];
#pragma unroll
            for (int n = 0; n < PIXELS; n++) {
                dy[n] = 0;
                if (x0 + n < g.grid_w) dy[n] = LOADN(float, from + (long)n * ld_dy, width);
            }
#pragma unroll
            for (int i = 0; i < TAPS_H; i++) {
                int from_y = at % g.grid_h * STRIDE + g.offset_h + i, from_x = x0 * STRIDE + g.offset_w;
                if (from_y < 0 || from_y >= g.from_h) continue;
                long line = ((long)(at / g.grid_h) * g.from_h + from_y) * g.from_w;
                VEC inputs[STRIP_INPUTS];
#pragma unroll
                for (int n = 0; n < STRIP_INPUTS; n++) inputs[n] = load_affine(&g, &s, line, from_x + n);
#pragma unroll
                for (int j = 0; j < TAPS_W; j++)
#pragma unroll
                    for (int n = 0; n < PIXELS; n++) sum[i][j] += inputs[n * STRIDE + j] * dy[n];
            }
        }
#pragma unroll
    for (int i = 0; i < TAPS_H; i++)
#pragma unroll
        for (int j = 0; j < TAPS_W; j++) STORE_SUM(i * TAPS_W + j, sum[i][j]);
#else
    int tap = get_global_id(2), i = tap / g.taps_w, j = tap % g.taps_w;
    VEC sum = 0, dy;
    for (int at = first_line; at < last_line; at++) {
        int from_y = at % g.grid_h * g.stride + g.offset_h + i * g.spacing_h;
        long line = ((long)(at / g.grid_h) * g.from_h + from_y) * g.from_w;
        if (from_y < 0 || from_y >= g.from_h) continue;
        for (int n = 0; n < g.grid_w; n++) {
            dy = LOADN(float, dy_buffer + dy_at + ((long)at * g.grid_w + n) * ld_dy + c, width);
            sum += load_affine(&g, &s, line, n * g.stride + g.offset_w + j * g.spacing_w) * dy;
        }
    }
    STORE_SUM(tap, sum);
#endif
}
