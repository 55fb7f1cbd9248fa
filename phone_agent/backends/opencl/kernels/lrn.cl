/* Local response normalization: y = x * s^-beta with s = k + alpha / size * (sum of x^2 over `size` neighboring
 * channels). As in PyTorch, the window of channel c is c - size / 2 .. c + (size - 1) / 2. */

static inline float square_sum(INPUT(X, x), int row, int c, int channels, int size) {
    OPEN_INPUT(X, x);
    float sum = 0;
    for (int n = max(0, c - size / 2); n <= min(channels - 1, c + (size - 1) / 2); n++) {
        float v = LOAD_INPUT(X, x, row, n);
        sum += v * v;
    }
    return sum;
}
#define PASS_INPUT(x) \
    x##_buffer, x##_at, x##_scale_buffer, x##_scale_at, x##_shift_buffer, x##_shift_at, x##_ld, x##_has_affine, x##_act

kernel void lrn_forward(INPUT(X, x), global Y *y_buffer, long y_at, int rows, int channels, int ld_y, int size,
                        float alpha, float beta, float k) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_INPUT(X, x);
    float s = k + alpha / size * square_sum(PASS_INPUT(x), row, c, channels, size);
    STORE(Y, y_buffer + y_at, row * ld_y + c, LOAD_INPUT(X, x, row, c) * powr(s, -beta));
}

/* dx = dy s^-beta - 2 alpha / size beta x * (sum of dy y / s over the windows that contain this channel). */
kernel void lrn_backward(INPUT(X, x), global const float *dy_buffer, long dy_at, GRADIENT(M, dx), int rows,
                         int channels, int ld_dy, int size, float alpha, float beta, float k) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_INPUT(X, x);
    OPEN_GRADIENT(M, dx);
    global const float *dy = dy_buffer + dy_at + row * ld_dy;
    float direct = 0, ratios = 0;
    for (int n = max(0, c - (size - 1) / 2); n <= min(channels - 1, c + size / 2); n++) {
        float s = k + alpha / size * square_sum(PASS_INPUT(x), row, n, channels, size);
        float g = dy[n] * powr(s, -beta);
        ratios += g * LOAD_INPUT(X, x, row, n) / s;
        direct = n == c ? g : direct;
    }
    float g = direct - 2 * alpha / size * beta * LOAD_INPUT(X, x, row, c) * ratios;
    STORE_GRADIENT(M, dx, g, row, c);
}
