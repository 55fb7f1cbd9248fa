/* Dropout without a stored mask: the bits of the core's dropout.c, which says how they are drawn. */

static inline uint mix(uint x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* What element i is multiplied with. NaN times 0 stays NaN. */
static inline float factor(uint i, global const uint *draw, uint salt, uint threshold, float kept) {
    uint key = mix(draw[0] + 0x9E3779B9u * salt) ^ mix(draw[1] + salt); /* the low 32 bits come first */
    return mix(i ^ key) >= threshold ? kept : 0;
}

kernel void dropout_forward(SOURCE(X, x), global Y *y_buffer, long y_at, global const uint *draw, long draw_at, int rows,
                            int channels, int ld_y, uint salt, uint threshold, float kept) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_SOURCE(X, x);
    float f = factor((uint)row * channels + c, draw + draw_at, salt, threshold, kept);
    STORE(Y, y_buffer + y_at, row * ld_y + c, SEE(X, x, row, c) * f);
}

kernel void dropout_backward(global const float *dy_buffer, long dy_at, SINK(M, dx), global const uint *draw,
                             long draw_at, int rows, int channels, int ld_dy, uint salt, uint threshold, float kept) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_SINK(M, dx);
    float g = dy_buffer[dy_at + row * ld_dy + c] * factor((uint)row * channels + c, draw + draw_at, salt, threshold, kept);
    SINK_PUT(M, dx, g, row, c);
}
