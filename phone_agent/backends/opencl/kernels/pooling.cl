/* Pooling. Forward: a work-item computes one channel of one window, clipped to the image. Backward: one channel of
 * one input pixel, which gathers from the windows that cover it, so it is written once. */

#define POOLING_MAX 0

#define GEOMETRY \
    int batch, int in_h, int in_w, int in_c, int out_h, int out_w, int out_c, int kernel_h, int kernel_w, int stride, \
        int pad_h, int pad_w, int dilation, int groups

/* Along one axis: the taps start .. end - 1 inside the image, of a window whose tap 0 is at `first`. */
static inline int tap_start(int first, int kernel_, int dilation) {
    return first >= 0 ? 0 : min(kernel_, CEIL_DIV(-first, dilation));
}
static inline int tap_end(int first, int kernel_, int dilation, int size) {
    int start = tap_start(first, kernel_, dilation);
    return first >= size ? start : max(start, min(kernel_, CEIL_DIV(size - first, dilation)));
}
static inline int taps_inside(int first, int kernel_, int dilation, int size) {
    return tap_end(first, kernel_, dilation, size) - tap_start(first, kernel_, dilation);
}

kernel void pooling_forward(GEOMETRY, INPUT(X, x), global Y *y_buffer, long y_at, global uchar *argmax_buffer,
                            long argmax_at, int ld_y, int pooling, int count_padding, int save_argmax) {
    int c = get_global_id(0), pixel = get_global_id(1);
    if (c >= out_c || pixel >= batch * out_h * out_w) return;
    OPEN_INPUT(X, x);
    int image = pixel / (out_h * out_w), top = pixel / out_w % out_h * stride - pad_h,
        left = pixel % out_w * stride - pad_w;
    int start_y = tap_start(top, kernel_h, dilation), end_y = tap_end(top, kernel_h, dilation, in_h);
    int start_x = tap_start(left, kernel_w, dilation), end_x = tap_end(left, kernel_w, dilation, in_w);
    float best = -INFINITY, sum = 0;
    int best_tap = start_y * kernel_w + start_x;
    for (int ky = start_y; ky < end_y; ky++)
        for (int kx = start_x; kx < end_x; kx++) {
            float v = LOAD_INPUT(X, x, (image * in_h + top + ky * dilation) * in_w + left + kx * dilation, c);
            sum += v;
            int better =
                v > best ||
                v != v; /* NaN wins, so that a diverged run is noticed; otherwise the first of the largest values */
            best = better ? v : best;
            best_tap = better ? ky * kernel_w + kx : best_tap;
        }
    int inside = count_padding ? kernel_h * kernel_w : (end_y - start_y) * (end_x - start_x);
    float average = inside ? sum * (1.0f / inside) : 0;
    STORE(Y, y_buffer + y_at, pixel * ld_y + c, pooling == POOLING_MAX ? best : average);
    if (save_argmax) argmax_buffer[argmax_at + pixel * out_c + c] = best_tap;
}

/* Along one axis: the first output whose window may cover an input coordinate, and the one after the last. */
static inline int cover_start(int at, int pad, int kernel_, int dilation, int stride) {
    int first = at + pad - (kernel_ - 1) * dilation;
    return first <= 0 ? 0 : CEIL_DIV(first, stride);
}
static inline int cover_end(int at, int pad, int stride, int outputs) { return min(outputs, (at + pad) / stride + 1); }

kernel void pooling_backward(GEOMETRY, global const float *dy_buffer, long dy_at, global const uchar *argmax_buffer,
                             long argmax_at, GRADIENT(M, dx), int ld_dy, int pooling, int count_padding) {
    int c = get_global_id(0), pixel = get_global_id(1);
    if (c >= in_c || pixel >= batch * in_h * in_w) return;
    OPEN_GRADIENT(M, dx);
    global const float *dy = dy_buffer + dy_at;
    global const uchar *argmax = argmax_buffer + argmax_at;
    int image = pixel / (in_h * in_w), at_y = pixel / in_w % in_h, at_x = pixel % in_w;
    int start_x = cover_start(at_x, pad_w, kernel_w, dilation, stride), end_x = cover_end(at_x, pad_w, stride, out_w);
    float sum = 0;
    for (int oy = cover_start(at_y, pad_h, kernel_h, dilation, stride); oy < cover_end(at_y, pad_h, stride, out_h);
         oy++) {
        int down = at_y + pad_h - oy * stride;
        if (down % dilation) continue;
        for (int ox = start_x; ox < end_x; ox++) {
            int across = at_x + pad_w - ox * stride;
            if (across % dilation) continue;
            int out = (image * out_h + oy) * out_w + ox, tap = down / dilation * kernel_w + across / dilation;
            float g = dy[out * ld_dy + c];
            if (pooling == POOLING_MAX) {
                sum += argmax[out * out_c + c] == tap ? g : 0;
            } else {
                int inside = kernel_h * kernel_w;
                if (!count_padding)
                    inside = taps_inside(oy * stride - pad_h, kernel_h, dilation, in_h) *
                             taps_inside(ox * stride - pad_w, kernel_w, dilation, in_w);
                sum += g * (1.0f / inside);
            }
        }
    }
    STORE_GRADIENT(M, dx, sum, pixel, c);
}
